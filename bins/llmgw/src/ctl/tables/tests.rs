use llmgw_core::{api::admin::UnhealthyGpu, control::Control, testing::control::MemoryControl};

use super::*;

fn sample() -> Control {
    MemoryControl::sample().control()
}

/// Compares line by line, so that a failure shows the table.
fn golden(table: &str, expected: &[&str]) {
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines, expected, "\n{table}");
}

#[tokio::test]
async fn nodes_show_what_is_unknown_as_a_dash() {
    golden(
        &nodes(&sample().fleet.nodes().await.unwrap()),
        &[
            "NAME   STATE  CORES  MEMORY (RESERVED / USABLE)  DISK FREE  GPUS  ENGINES          REPLICAS  WARNINGS  SEEN    AGENT",
            "alpha  ready  16     10.0 GiB / 28.0 GiB         120.0 GiB  0     llamacpp 10991   2         none      2s ago  0.1.0",
            "beta   lost   16     0 B / 12.0 GiB              120.0 GiB  0     llamacpp failed  1         no_avx2   6m ago  0.1.0",
            "gamma  ready  -      0 B / -                     -          -     -                0         -         1s ago  0.0.9",
        ],
    );
}

#[tokio::test]
async fn gpus_are_counted_with_their_class_and_the_broken_ones() {
    let mut node = sample().fleet.nodes().await.unwrap().remove(0);
    node.gpu_total = Some(8);
    node.gpu_classes = Some(vec!["H200".to_owned()]);
    assert_eq!(gpus(&node), "8 H200");
    node.unhealthy_gpus = Some(vec![UnhealthyGpu {
        index: 3,
        class: Some("H200".to_owned()),
        fault: "it has fallen off the bus".to_owned(),
    }]);
    assert_eq!(gpus(&node), "8 H200, 1 broken");
}

#[tokio::test]
async fn engines_show_each_node_and_what_it_passed_over() {
    let control = sample();
    golden(
        &engines(&control.engines.engines().await.unwrap(), Messages::Cut),
        &[
            "ENGINE    WANTED       NODE   STATE                                         CHOICE, OR WHY NOT",
            "llamacpp  auto b10991  alpha  installed: 10991 (wheel)                      wheel: no path was named",
            "                              passed over: b10991 vulkan                    SIGILL while loading",
            "llamacpp  auto b10991  beta   not installed: pip: no matching distribution  -",
        ],
    );
}

#[tokio::test]
async fn models_show_their_state_and_why() {
    golden(
        &models(&sample().catalog.models().await.unwrap(), Messages::Cut),
        &[
            "NAME          READY  STATE        ALIASES  ORIGIN    MESSAGE",
            "broken        0/1    parked       none     added     the engine ended with signal 4 (SIGILL)",
            "huge          0/1    unplaceable  none     added     huge is not placed: 3 nodes, 1 profile, none fits now. Nearest: alpha with default: memory: needs 37…",
            "org/qwen:7b   0/1    starting     none     added     -",
            "smollm2-135m  1/1    ready        tiny     declared  -",
        ],
    );
}

#[tokio::test]
async fn replicas_show_how_far_they_are() {
    golden(
        &replicas(&sample().fleet.replicas(None).await.unwrap(), Messages::Cut),
        &[
            "ID          MODEL         PROFILE  STATE          NODE   AGE  MEMORY (MEASURED / SET ASIDE)  CALLS  ENDPOINT         MESSAGE",
            "r-00000003  broken        default  failed, stale  beta   2d   - / 700.0 MiB                  0      -                the engine ended with signal 4 (SIGILL)",
            "r-00000002  org/qwen:7b   default  fetching       alpha  95s  - / 700.0 MiB                  0      -                25 % of 8.0 GiB, 12.0 MiB/s, ~8m left",
            "r-00000001  smollm2-135m  default  ready          alpha  2h   412.0 MiB / 700.0 MiB          3      127.0.0.1:40001  -",
        ],
    );
}

#[tokio::test]
async fn a_message_of_others_stays_in_its_cell() {
    let mut models_of_sample = sample().catalog.models().await.unwrap();
    models_of_sample.truncate(1);
    if let Some(model) = models_of_sample.first_mut() {
        model.last_error = Some(format!("two\nlines \u{1b}[31m{}", "x".repeat(200)));
    }
    let table = models(&models_of_sample, Messages::Cut);
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(!table.contains('\u{1b}'), "{table:?}");
    assert!(table.ends_with("x…\n"), "{table}");
    // A pipe gets all of it.
    let piped = models(&models_of_sample, Messages::Whole);
    assert!(piped.contains(&"x".repeat(200)), "{piped}");
}
