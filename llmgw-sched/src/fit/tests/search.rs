use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[test]
fn nothing_is_the_most_when_no_limit_is_known_or_nothing_fits() {
    let shape = weighted();
    let unlimited = Request::new(Tokens(1024));
    assert_eq!(largest_context(&shape, &unlimited).unwrap(), None);
    let tiny = Request {
        host: Some(Bytes::mib(1)),
        ..unlimited
    };
    assert_eq!(largest_context(&shape, &tiny).unwrap(), None);
    assert_eq!(most_slots(&shape, &tiny).unwrap(), None);
    assert_eq!(most_layers(&shape, &tiny).unwrap(), None);
}

#[test]
fn what_is_said_to_make_it_fit_does_and_nothing_is_said_of_what_fits() {
    let shape = weighted();
    let asked = Request {
        parallel: 4,
        ..Request::new(Tokens(4096))
    };
    let need = estimate(&shape, &asked)
        .unwrap()
        .host()
        .unwrap()
        .total()
        .most;
    let smallest = Request {
        cache_keys: CacheType::Q4_0,
        cache_values: CacheType::Q4_0,
        ..Request::new(Tokens(256))
    };
    let least = estimate(&shape, &smallest)
        .unwrap()
        .host()
        .unwrap()
        .total()
        .most;
    let with = |host: Bytes| Request {
        host: Some(host),
        ..asked.clone()
    };
    assert_eq!(remedies(&shape, &with(need)).unwrap(), []);
    assert_eq!(remedies(&shape, &asked).unwrap(), [], "no limit is known");
    assert_eq!(remedies(&shape, &with(Bytes::mib(1))).unwrap(), []);
    let mut kinds = BTreeSet::new();
    for part in 0..=20 {
        let request = with(least + Bytes((need - least).0 / 21 * part));
        let found = remedies(&shape, &request).unwrap();
        assert!(!found.is_empty(), "{request:?}");
        for change in found {
            let changed = Request {
                context: change.context.unwrap_or(request.context),
                parallel: change.parallel.unwrap_or(request.parallel),
                cache_keys: change.cache.unwrap_or(request.cache_keys),
                cache_values: change.cache.unwrap_or(request.cache_values),
                ..request.clone()
            };
            assert_eq!(
                estimate(&shape, &changed).unwrap().fits(),
                Some(true),
                "{change:?}"
            );
            kinds.extend(change.context.map(|_| "context"));
            kinds.extend(change.parallel.map(|_| "parallel"));
            kinds.extend(change.cache.map(|_| "cache"));
        }
    }
    assert_eq!(kinds.len(), 3, "{kinds:?}");
}

#[test]
fn the_context_is_no_larger_than_what_the_model_was_trained_for() {
    let plenty = Request {
        host: Some(Bytes::gib(64)),
        ..Request::new(Tokens(1024))
    };
    let found = largest_context(&weighted(), &plenty).unwrap();
    assert_eq!(found, Some(Tokens(4096)));
}

#[test]
fn as_many_layers_as_fit_go_to_the_gpu() {
    let shape = weighted();
    let layers = |mib: u64| {
        let request = Request {
            gpus: vec![Some(Bytes::mib(mib))],
            ..Request::new(Tokens(1024))
        };
        most_layers(&shape, &request).unwrap()
    };
    assert_eq!(layers(8_192), Some(9));
    assert_eq!(layers(100), None);
    let found: Vec<_> = (895..960).filter_map(layers).collect();
    assert!(
        found.is_sorted() && found.iter().any(|n| (1..9).contains(n)),
        "{found:?}"
    );
}

/// Any request with limits.
fn requests() -> impl Strategy<Value = Request> {
    let engine = prop_oneof![
        Just(Engine::Llamacpp),
        Just(Engine::Vllm),
        Just(Engine::Sglang)
    ];
    let flash = prop_oneof![Just(FlashAttention::On), Just(FlashAttention::Off)];
    let slots = prop_oneof![Just(Slots::Apart), Just(Slots::Shared)];
    let gpus = proptest::collection::vec(1_000..40_000u64, 1..4);
    (
        engine,
        flash,
        slots,
        gpus,
        1..100_000u64,
        1..40u32,
        1..2_048u64,
    )
        .prop_map(
            |(engine, flash_attention, slots, gpus, context, parallel, batch)| Request {
                engine,
                flash_attention,
                slots,
                gpus: gpus.into_iter().map(|mib| Some(Bytes::mib(mib))).collect(),
                parallel,
                batch: Some(Tokens(batch)),
                ..Request::new(Tokens(context))
            },
        )
}

#[test]
fn a_model_that_says_it_was_trained_for_more_than_can_be_is_searched_as_far_as_can_be() {
    let endless = Shape {
        trained_context: Some(Tokens(u64::MAX)),
        ..weighted()
    };
    let plenty = Request {
        host: Some(Bytes(u64::MAX)),
        ..Request::new(Tokens(256))
    };
    assert_eq!(
        largest_context(&endless, &plenty).unwrap(),
        Some(Tokens(1 << 30))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_most_fits_and_one_more_does_not(request in requests()) {
        let shape = shape("gemma3", &[
            ("attention.sliding_window", Value::U32(512)),
            ("context_length", Value::U32(1 << 20)),
        ]);
        let fits = |request: &Request| estimate(&shape, request).unwrap().fits() == Some(true);
        if let Some(context) = largest_context(&shape, &request).unwrap() {
            let with = |context| Request { context: Tokens(context), ..request.clone() };
            prop_assert!(fits(&with(context.0)));
            prop_assert!(context.0 == 1 << 20 || !fits(&with(context.0 + 256)));
        }
        if let Some(slots) = most_slots(&shape, &request).unwrap() {
            let with = |parallel| Request { parallel, ..request.clone() };
            prop_assert!(fits(&with(slots)));
            prop_assert!(slots == 4_096 || !fits(&with(slots + 1)));
        }
    }

    #[test]
    fn more_of_anything_never_takes_less(request in requests(), more in 1..50_000u64) {
        let shape = shape("llama", &[]);
        let total = |request: &Request| {
            let found = estimate(&shape, request).unwrap();
            found.devices.iter().map(|device| device.total().most).sum::<Bytes>()
        };
        let longer = Request { context: Tokens(request.context.0 + more), ..request.clone() };
        prop_assert!(total(&longer) >= total(&request));
        let wider = Request { parallel: request.parallel + 1, ..request.clone() };
        prop_assert!(total(&wider) >= total(&request));
        for device in estimate(&shape, &request).unwrap().devices {
            prop_assert!(device.total().least <= device.total().most);
        }
    }

    #[test]
    fn no_number_makes_it_panic(
        layers in 1..40u32, width: u32, heads: u32, kv: u32, head: u32, vocabulary: u32, context in 1..=1u64 << 30,
        parallel in 1..=4_096u32,
    ) {
        let draft = draft("llama", &[
            ("block_count", Value::U32(layers)),
            ("embedding_length", Value::U32(width)),
            ("attention.head_count", Value::U32(heads)),
            ("attention.head_count_kv", Value::U32(kv)),
            ("attention.key_length", Value::U32(head)),
            ("vocab_size", Value::U32(vocabulary)),
        ]);
        if let Ok(shape) = Shape::from_gguf(&header(&draft), None) {
            for engine in [Engine::Llamacpp, Engine::Vllm, Engine::Sglang] {
                let request = Request {
                    engine,
                    parallel,
                    gpus: vec![Some(Bytes::gib(24)); 2],
                    ..Request::new(Tokens(context))
                };
                let found = estimate(&shape, &request).unwrap();
                prop_assert!(found.devices.len() == 3);
            }
        }
    }
}
