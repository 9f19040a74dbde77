//! What llama.cpp prints when it loads a file with a model's header, on the CPU (`data/measured.csv`).

use llmgw_core::units::Tokens;
use llmgw_sched::fit::{CacheType, FlashAttention, Request, Shape, Slots, estimate};

use super::{as_mib, assert_digits, bytes, published};

const MEASURED: &str = include_str!("../data/measured.csv");

fn shape(model: &str) -> Shape {
    match model {
        "smollm2_135m" => published::smollm2_135m(),
        "llama31_8b" => published::llama31_8b(),
        "qwen3_30b" => published::qwen3_30b(),
        "gemma3_4b" => published::gemma3_4b(),
        "gpt_oss_20b" => published::gpt_oss_20b(),
        "deepseek_v2_lite" => published::deepseek_v2_lite(),
        "qwen35_9b" => published::qwen35_9b(),
        "qwen3_next" => published::qwen3_next(),
        other => panic!("{other} has no shape here"),
    }
}

fn request([n_ctx, n_seq, unified, ubatch, fa, kv_type]: [&str; 6]) -> Request {
    let parallel: u32 = n_seq.parse().unwrap();
    let all: u64 = n_ctx.parse().unwrap();
    let kept = if kv_type == "q8_0" {
        CacheType::Q8_0
    } else {
        CacheType::F16
    };
    Request {
        parallel,
        cache_keys: kept,
        cache_values: kept,
        batch: Some(Tokens(ubatch.parse().unwrap())),
        flash_attention: if fa == "on" {
            FlashAttention::On
        } else {
            FlashAttention::Off
        },
        slots: if unified == "1" {
            Slots::Shared
        } else {
            Slots::Apart
        },
        ..Request::new(Tokens(all / u64::from(parallel)))
    }
}

#[test]
fn what_llama_cpp_prints_is_foretold() {
    let mut compared = 0;
    for line in MEASURED.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [model, asked @ .., cache, state, compute] = cells.as_slice() else {
            panic!("{line}");
        };
        let request = request(asked.try_into().unwrap());
        let found = estimate(&shape(model), &request).unwrap();
        let host = found.host().unwrap();
        assert_digits(line, "cache", host.cache, cache.parse().unwrap(), 2);
        assert_digits(line, "state", host.state, state.parse().unwrap(), 2);
        let reading: f64 = compute.parse().unwrap();
        println!(
            "{model}: compute read {reading:.0} MiB, bound {:.0} to {:.0}",
            as_mib(host.compute.least),
            as_mib(host.compute.most)
        );
        assert!(
            host.compute.holds(bytes(reading)),
            "{line}: {:?}",
            host.compute
        );
        compared += 1;
    }
    assert_eq!(compared, 27);
}
