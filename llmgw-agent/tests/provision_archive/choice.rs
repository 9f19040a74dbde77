//! What is installed, and what is said of it.

use std::collections::BTreeMap;

use llmgw_agent::{engine::Launch, provision::ProvisionError};
use llmgw_core::{
    cluster::{
        engine::{EngineSource, ProvisionState, WantedEngine},
        release::{Release, Resolution},
    },
    error::Coded as _,
};

use crate::{
    archives::engine,
    github::{Github, Published},
    site::{Site, sigill, wanted},
};

pub(crate) const CPU: &str = "llama-b10991-bin-ubuntu-x64.tar.gz";
const VULKAN: &str = "llama-b10991-bin-ubuntu-vulkan-x64.tar.gz";
const CUDA: &str = "llama-b10991-bin-ubuntu-cuda-12.8-x64.tar.gz";
const CUDART: &str = "cudart-llama-bin-ubuntu-cuda-12.8-x64.tar.gz";

pub(crate) fn published(files: &[(&str, Vec<u8>)]) -> Published {
    Published {
        tag: "b10991".to_owned(),
        age_hours: 9,
        files: files
            .iter()
            .map(|(name, bytes)| ((*name).to_owned(), bytes.clone()))
            .collect(),
        ..Published::default()
    }
}

#[tokio::test]
async fn an_archive_is_fetched_checked_unpacked_computed_with_and_marked() {
    let github = Github::of(published(&[(CPU, engine(10_991, &[]))])).await;
    let site = Site::new();
    let provisioner = site.provisioner(Some(&github));
    let auto = wanted(EngineSource::Auto);
    let installed = site.converge(&provisioner, &auto).await.unwrap();
    assert_eq!(
        (installed.version.as_str(), installed.variant.as_str()),
        ("b10991", "cpu")
    );
    let directory = site.path("engines/llamacpp/b10991-cpu");
    let program = directory.join("llama-server");
    assert_eq!(
        installed.launch,
        Launch::Program {
            program: program.clone()
        }
    );
    assert_eq!(
        site.left(),
        [
            "llamacpp.json",
            "llamacpp/b10991-cpu/LICENSE",
            "llamacpp/b10991-cpu/installed.json",
            "llamacpp/b10991-cpu/llama-server",
        ]
    );
    assert_eq!(
        site.last().choice.unwrap(),
        format!("llamacpp by github ({CPU}): this machine has no GPU")
    );
    let words = site.words();
    for step in ["looking up the release b10991", "computing with b10991 cpu"] {
        assert!(words.iter().any(|words| words.contains(step)), "{words:?}");
    }
    assert_eq!(words.last().unwrap(), "installed: b10991 (cpu)");
    assert_eq!(site.prover.asked.lock().unwrap().len(), 1);

    // The token goes to the list, and to no other host.
    let asked = github.asked.lock().unwrap().clone();
    let with_token: Vec<bool> = asked
        .iter()
        .map(|head| head.contains("the-token"))
        .collect();
    assert_eq!(with_token, [true, false, false], "{asked:?}");

    // The next life neither asks nor fetches nor computes.
    let again = site.converge(&site.provisioner(Some(&github)), &auto).await;
    assert_eq!(again.unwrap(), installed);
    assert_eq!(github.asked.lock().unwrap().len(), 3);
    assert_eq!(site.prover.asked.lock().unwrap().len(), 1);
    assert!(site.last().choice.unwrap().contains("by github"));
}

#[tokio::test]
async fn what_the_control_plane_found_is_not_asked_for_again() {
    let github = Github::of(published(&[(CPU, engine(10_991, &[]))])).await;
    let site = Site::new();
    let asked = WantedEngine {
        release: Some(Resolution::Found {
            release: release(&github).await,
        }),
        ..wanted(EngineSource::Github)
    };
    github.asked.lock().unwrap().clear();
    site.converge(&site.provisioner(None), &asked)
        .await
        .unwrap();
    let heads = github.asked.lock().unwrap().clone();
    assert!(
        heads.iter().all(|head| !head.contains("/tags/")),
        "{heads:?}"
    );
}

async fn release(github: &Github) -> Release {
    let answer = github
        .client()
        .by_tag("b10991", None, llmgw_core::clock::Timestamp(0))
        .await;
    let llmgw_core::releases::Answer::Release { release, .. } = answer.unwrap() else {
        panic!("an answer without a release");
    };
    release
}

#[tokio::test]
async fn a_mirror_serves_by_digests_that_the_control_plane_trusts() {
    let bytes = engine(10_991, &[]);
    let path = format!("_llmgw/engines/llamacpp/b10991/{CPU}");
    let github = Github::of(published(&[(&path, bytes.clone())])).await;
    let files = github.list.split("/repos/").next().unwrap().to_owned();
    let digest = crate::github::sha256(&bytes).parse().unwrap();
    let mirror = format!("{files}/download");
    let trusted = BTreeMap::from([(CPU.to_owned(), digest)]);
    let wish = WantedEngine {
        release: Some(Resolution::Found {
            release: Release::of_mirror("b10991", &mirror, &trusted),
        }),
        ..wanted(EngineSource::Mirror(mirror.clone()))
    };
    let site = Site::new();
    site.converge(&site.provisioner(None), &wish).await.unwrap();
    assert!(
        site.last()
            .choice
            .unwrap()
            .starts_with("llamacpp by mirror (")
    );
}

#[tokio::test]
async fn a_build_that_does_not_compute_is_passed_over_with_its_reason() {
    let github = Github::of(published(&[
        (CPU, engine(10_991, &[])),
        (
            VULKAN,
            engine(
                10_991,
                &[("devices", "  Vulkan0: A card (1 MiB, 1 MiB free)\n")],
            ),
        ),
    ]))
    .await;
    let site = Site::new();
    // A machine with a card of AMD's.
    site.system("dev/kfd");
    *site.prover.answers.lock().unwrap() = vec![Err(sigill())];
    let installed = site
        .converge(
            &site.provisioner(Some(&github)),
            &wanted(EngineSource::Auto),
        )
        .await
        .unwrap();
    assert_eq!(installed.variant, "cpu");
    let told = site.last();
    assert_eq!(told.passed_over.len(), 1);
    assert_eq!(told.passed_over[0].build, "b10991 vulkan");
    assert!(told.passed_over[0].reason.contains("SIGILL while loading"));
    let asked: Vec<bool> = site
        .prover
        .asked
        .lock()
        .unwrap()
        .iter()
        .map(|(_, gpu)| *gpu)
        .collect();
    assert_eq!(asked, [true, false]);
    assert!(
        !site.left().iter().any(|file| file.contains("vulkan")),
        "{:?}",
        site.left()
    );
    // The reason stays visible in the next life.
    let again = site.provisioner(Some(&github));
    site.converge(&again, &wanted(EngineSource::Auto))
        .await
        .unwrap();
    assert_eq!(site.last().passed_over, told.passed_over);
}

#[tokio::test]
async fn a_build_for_gpus_that_sees_none_is_passed_over() {
    let github = Github::of(published(&[
        (CPU, engine(10_991, &[])),
        (VULKAN, engine(10_991, &[])),
    ]))
    .await;
    let site = Site::new();
    site.system("dev/kfd");
    let installed = site
        .converge(
            &site.provisioner(Some(&github)),
            &wanted(EngineSource::Auto),
        )
        .await
        .unwrap();
    assert_eq!(installed.variant, "cpu");
    assert!(
        site.last().passed_over[0]
            .reason
            .contains("sees none of this machine's GPUs")
    );
}

#[tokio::test]
async fn a_cuda_build_is_unpacked_together_with_its_runtime() {
    let driver = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Mar 30 2025\n";
    let devices = "  CUDA0: NVIDIA H200 (143771 MiB, 143253 MiB free)\n";
    let runtime = crate::archives::packed(|top| {
        std::fs::write(top.join("libcudart.so.12"), "library").unwrap();
        std::fs::write(top.join("LICENSE"), "free").unwrap();
    });
    let github = Github::of(published(&[
        (CUDART, runtime),
        (CUDA, engine(10_991, &[("devices", devices)])),
        (CPU, engine(10_991, &[])),
    ]))
    .await;
    let site = Site::new();
    site.system("proc/driver/nvidia/version");
    std::fs::write(site.path("root/proc/driver/nvidia/version"), driver).unwrap();
    let installed = site
        .converge(
            &site.provisioner(Some(&github)),
            &wanted(EngineSource::Auto),
        )
        .await
        .unwrap();
    assert_eq!(installed.variant, "cuda-12.8");
    let left = site.left();
    assert!(
        left.contains(&"llamacpp/b10991-cuda-12.8/libcudart.so.12".to_owned()),
        "{left:?}"
    );
    assert!(
        site.last()
            .choice
            .unwrap()
            .ends_with("the driver supports CUDA 12.8")
    );
}

#[tokio::test]
async fn another_build_number_than_the_tag_is_said_and_the_checks_go_on() {
    let github = Github::of(published(&[(CPU, engine(10_990, &[]))])).await;
    let site = Site::new();
    let installed = site
        .converge(
            &site.provisioner(Some(&github)),
            &wanted(EngineSource::Auto),
        )
        .await
        .unwrap();
    assert_eq!(installed.version, "b10990");
    assert_eq!(site.last().warnings[0].code, "other_build_number");
}

#[tokio::test]
async fn a_young_release_without_the_wanted_build_is_waited_for() {
    let young = Published {
        age_hours: 1,
        ..published(&[(VULKAN, engine(10_991, &[]))])
    };
    let github = Github::of(young).await;
    let site = Site::new();
    let provisioner = site.provisioner(Some(&github));
    let error = site
        .converge(&provisioner, &wanted(EngineSource::Auto))
        .await
        .unwrap_err();
    let ProvisionError::Waiting { reason, again } = error else {
        panic!("{error:?}");
    };
    assert!(
        reason.contains("60 min ago") && reason.contains("cpu"),
        "{reason}"
    );
    assert!(again.is_some());
    assert_eq!(github.downloads(), 0);
}

#[tokio::test]
async fn a_list_that_is_used_up_or_away_is_said_and_asked_no_more_for_a_while() {
    let refusal = "403 Forbidden\r\nx-ratelimit-remaining: 0\r\nretry-after: 600";
    let github = Github::of(Published {
        refusals: vec![refusal.to_owned(); 3],
        ..published(&[(CPU, engine(10_991, &[]))])
    })
    .await;
    let site = Site::new();
    let provisioner = site.provisioner(Some(&github));
    for _ in 0..3 {
        let error = site
            .converge(&provisioner, &wanted(EngineSource::Github))
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("403") && text.contains("again in 10 min"),
            "{text}"
        );
        assert!(error.hint().is_some());
    }
    assert_eq!(github.asked.lock().unwrap().len(), 1);
    // With the wheel to fall to, it is what is tried, and the reason is said.
    site.converge(&provisioner, &wanted(EngineSource::Auto))
        .await
        .unwrap_err();
    let told = site.last();
    assert!(
        told.choice.unwrap().contains("by wheel"),
        "{:?}",
        told.passed_over
    );
    assert!(told.passed_over[0].reason.contains("rate limit"));
}

#[tokio::test]
async fn a_newer_version_leaves_the_one_before_and_no_older() {
    let site = Site::new();
    for number in [1_u64, 2, 3] {
        let tag = format!("b{number}");
        let name = format!("llama-{tag}-bin-ubuntu-x64.tar.gz");
        let github = Github::of(Published {
            tag: tag.clone(),
            ..published(&[(&name, engine(number, &[]))])
        })
        .await;
        let wish = WantedEngine {
            version: Some(tag),
            ..wanted(EngineSource::Github)
        };
        let clock_of_its_own = site.provisioner(Some(&github));
        site.converge(&clock_of_its_own, &wish).await.unwrap();
        assert!(matches!(
            site.last().state,
            ProvisionState::Installed { .. }
        ));
    }
    let mut versions: Vec<String> = std::fs::read_dir(site.path("engines/llamacpp"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    versions.sort();
    assert_eq!(versions, ["b2-cpu", "b3-cpu"]);
}
