use super::*;

fn gpus(gib: &[u64]) -> Vec<Option<Bytes>> {
    gib.iter().map(|gib| Some(Bytes::gib(*gib))).collect()
}

fn request(gib: &[u64]) -> Request {
    Request {
        gpus: gpus(gib),
        ..Request::new(Tokens(1024))
    }
}

#[test]
fn weights_and_cache_go_where_the_layers_are() {
    let shape = weighted();
    let of = |offload| {
        let request = Request {
            offload,
            ..request(&[24])
        };
        let found = estimate(&shape, &request).unwrap();
        let gpu = &found.devices[0];
        let host = found.host().unwrap();
        let mib = |bytes: Bytes| bytes.0 >> 20;
        [
            mib(gpu.weights),
            mib(gpu.cache),
            mib(host.weights),
            mib(host.cache),
        ]
    };
    // Embeddings of tokens stay on the host. A layer keeps 1024 x 2 x (32 + 32) x 2 bytes: a quarter of a MiB.
    assert_eq!(of(Offload::All), [12, 2, 4, 0]);
    assert_eq!(of(Offload::Layers(5)), [8, 1, 8, 1]);
    assert_eq!(of(Offload::Layers(1)), [4, 0, 12, 2]);
    assert_eq!(of(Offload::Layers(0)), [0, 0, 16, 2]);
}

#[test]
fn an_output_without_weights_of_its_own_is_copied_to_the_gpu_and_not_on_the_host() {
    let tied = draft("llama", &[]).tensor("token_embd.weight", &[1024, 2048], TensorType::F16);
    let tied = Shape::from_gguf(&header(&tied), None).unwrap();
    let found = estimate(&tied, &request(&[24])).unwrap();
    assert_eq!(found.devices[0].weights, Bytes::mib(4));
    assert_eq!(found.host().unwrap().weights, Bytes::mib(4));
    let host = estimate(&tied, &Request::new(Tokens(1024))).unwrap();
    assert_eq!(host.host().unwrap().weights, Bytes::mib(4));
}

#[test]
fn slots_have_a_cache_each_or_share_one() {
    let shape = shape("gemma3", &[("attention.sliding_window", Value::U32(1024))]);
    let of = |slots| {
        let request = Request {
            parallel: 4,
            slots,
            ..Request::new(Tokens(8_000))
        };
        estimate(&shape, &request).unwrap().host().unwrap().cache
    };
    let cell = 2 * (32 + 32) * 2;
    // Rounded up to 256 cells. One full layer and seven with a window and a batch of 512.
    assert_eq!(of(Slots::Apart), Bytes(cell * 4 * (8_192 + 7 * 1_536)));
    assert_eq!(
        of(Slots::Shared),
        Bytes(cell * (32_000 + 7 * (4 * 1_024 + 512)))
    );
}

#[test]
fn state_is_kept_for_each_sequence_and_each_guess() {
    let shape = shape(
        "qwen35",
        &[
            ("nextn_predict_layers", Value::U32(1)),
            ("block_count", Value::U32(9)),
            ("ssm.conv_kernel", Value::U32(4)),
            ("ssm.inner_size", Value::U32(512)),
            ("ssm.state_size", Value::U32(16)),
            ("ssm.group_count", Value::U32(1)),
        ],
    );
    assert_eq!(
        (pattern(&shape).as_str(), shape.draft.len()),
        ("rrrfrrrf", 1)
    );
    let of = |parallel, draft| {
        let request = Request {
            parallel,
            draft,
            ..Request::new(Tokens(256))
        };
        let found = estimate(&shape, &request).unwrap();
        let host = found.host().unwrap();
        (host.state.0, host.cache.0 / (256 * 2 * 64 * 2))
    };
    let (one, _) = of(1, 0);
    assert_eq!(of(1, 0), (one, 2));
    assert_eq!(of(3, 0), (3 * one, 3 * 2));
    assert_eq!(of(3, 3), (3 * 4 * one, 3 * 3));
}

#[test]
fn what_an_engine_can_t_do_is_refused() {
    let shape = weighted();
    let refused = |request: Request| estimate(&shape, &request).unwrap_err().to_string();
    let base = Request::new(Tokens(1024));
    assert_eq!(
        refused(Request {
            engine: Engine::Vllm,
            ..base.clone()
        }),
        "gpus: this engine needs a GPU"
    );
    assert_eq!(
        refused(Request {
            engine: Engine::Sglang,
            cache_keys: CacheType::Q8_0,
            ..request(&[24])
        }),
        "cache: this engine keeps f16 or f8, not llama.cpp's types"
    );
    assert_eq!(
        refused(Request {
            cache_values: CacheType::Q8_0,
            flash_attention: FlashAttention::Off,
            ..base.clone()
        }),
        "cache_values: quantised values need flash attention"
    );
    assert_eq!(
        refused(Request {
            context: Tokens(0),
            ..base.clone()
        }),
        "context: 0 tokens; 1 to 1073741824 can be"
    );
    assert_eq!(
        refused(Request {
            parallel: 0,
            ..base
        }),
        "parallel: 0 requests; 1 to 4096 can be"
    );
}

#[test]
fn engines_with_pages_split_all_over_their_gpus() {
    let shape = weighted();
    for engine in [Engine::Vllm, Engine::Sglang] {
        let of = |gib: &[u64]| {
            let request = Request {
                engine,
                ..request(gib)
            };
            estimate(&shape, &request).unwrap().devices[0].clone()
        };
        let (one, two, four) = (of(&[24]), of(&[24, 24]), of(&[24, 24, 24, 24]));
        assert_eq!(one.weights, Bytes::mib(16));
        assert_eq!(two.weights, Bytes::mib(8));
        assert_eq!((one.cache, two.cache), (Bytes::mib(2), Bytes::mib(1)));
        // Two heads for four GPUs: each has one.
        assert_eq!(four.cache, two.cache);
    }
}
