use llmgw_core::cluster::{release::Release, weights::Sha256Digest};

use super::*;

fn wanted(source: EngineSource) -> WantedEngine {
    WantedEngine::new("llamacpp".parse().unwrap(), source)
}

fn chosen(source: EngineSource, machine: &Machine<'_>) -> Choice {
    plan(&wanted(source), machine, None)
        .unwrap()
        .choices
        .remove(0)
}

const HOUR: i64 = 3_600_000;

const BARE: Machine<'static> = Machine {
    architecture: "x86_64",
    configured: None,
    glibc: Some(MajorMinor::new(2, 36)),
    gpus: Gpus {
        nvidia: false,
        cuda: None,
        others: false,
    },
    now: Timestamp(1_000 * HOUR),
};

fn with_driver(cuda: &str) -> Machine<'static> {
    Machine {
        gpus: Gpus {
            nvidia: true,
            cuda: Some(cuda.parse().unwrap()),
            others: false,
        },
        glibc: Some(MajorMinor::new(2, 39)),
        ..BARE
    }
}

fn release(age_hours: i64, names: &[&str]) -> Release {
    let assets = names.iter().map(|name| Asset {
        name: (*name).to_owned(),
        url: format!("https://example.com/{name}"),
        size: None,
        sha256: Some(Sha256Digest([7; 32])),
    });
    Release {
        tag: "b10991".to_owned(),
        published_at: Some(Timestamp(BARE.now.0 - age_hours * HOUR)),
        assets: assets.collect(),
    }
}

fn of(release: Release) -> WantedEngine {
    WantedEngine {
        release: Some(Resolution::Found { release }),
        ..wanted(EngineSource::Auto)
    }
}

/// What is tried, by the names that people call it.
fn tried(plan: &Plan) -> Vec<String> {
    plan.choices.iter().map(|one| one.build.text()).collect()
}

fn passed(plan: &Plan) -> Vec<&str> {
    plan.passed_over
        .iter()
        .map(|one| one.build.as_str())
        .collect()
}

fn codes(plan: &Plan) -> Vec<&str> {
    plan.warnings.iter().map(|one| one.code.as_str()).collect()
}

const WHEEL: &str = "xllamacpp 2026.10.11549";
const CPU: &str = "llama-b10991-bin-ubuntu-x64.tar.gz";
const VULKAN: &str = "llama-b10991-bin-ubuntu-vulkan-x64.tar.gz";
const ARM: &str = "llama-b10991-bin-ubuntu-arm64.tar.gz";
const CUDA_13: &str = "llama-b10991-bin-ubuntu-cuda-13.3-x64.tar.gz";
const CUDART_13: &str = "cudart-llama-bin-ubuntu-cuda-13.3-x64.tar.gz";
const CUDA_12: &str = "llama-b10991-bin-ubuntu-cuda-12.8-x64.tar.gz";
const CUDART_12: &str = "cudart-llama-bin-ubuntu-cuda-12.8-x64.tar.gz";
const CUDA_124: &str = "llama-b10991-bin-ubuntu-cuda-12.4-x64.tar.gz";
const CUDART_124: &str = "cudart-llama-bin-ubuntu-cuda-12.4-x64.tar.gz";
const ALL: &[&str] = &[CUDART_13, CUDART_12, CUDA_13, CUDA_12, CPU, VULKAN, ARM];

#[test]
fn a_configured_path_comes_first_and_the_wheel_without_one() {
    let named = Machine {
        configured: Some(Path::new("/opt/llama-server")),
        ..BARE
    };
    let choice = chosen(EngineSource::Auto, &named);
    assert_eq!(choice.build, Build::Program("/opt/llama-server".into()));
    assert_eq!(
        choice.line,
        "llamacpp by path (/opt/llama-server): the configuration names it"
    );
    let choice = chosen(EngineSource::Auto, &BARE);
    assert_eq!(choice.build, Build::Wheel);
    assert_eq!(
        choice.line,
        "llamacpp by wheel (xllamacpp 2026.10.11549): no path is configured"
    );
    assert_eq!(chosen(EngineSource::Wheel, &named).build, Build::Wheel);
}

#[test]
fn a_path_is_taken_on_any_machine_and_the_wheel_only_where_one_is_built() {
    let other = Machine {
        architecture: "riscv64",
        ..BARE
    };
    let path = EngineSource::Path("/p".to_owned());
    assert_eq!(chosen(path, &other).build, Build::Program("/p".into()));
    let error = plan(&wanted(EngineSource::Auto), &other, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "xllamacpp 2026.10.11549 is not built for riscv64"
    );
}

#[test]
fn an_engine_that_this_release_does_not_run_is_not_installed() {
    let other = WantedEngine::new("unheard-of".parse().unwrap(), EngineSource::Auto);
    let error = plan(&other, &BARE, None).unwrap_err();
    assert!(matches!(error, ProvisionError::UnknownEngine { .. }));
    let lock = wanted(EngineSource::Lock("/locks/x.txt".to_owned()));
    assert_eq!(
        plan(&lock, &BARE, None).unwrap_err().to_string(),
        "llamacpp is no Python environment, and has no lock"
    );
}

#[test]
fn a_machine_without_gpus_gets_the_cpu_build_and_then_the_wheel() {
    let plan = plan(&of(release(48, ALL)), &BARE, None).unwrap();
    assert_eq!(tried(&plan), ["b10991 cpu", WHEEL]);
    assert_eq!(
        plan.choices[0].line,
        format!("llamacpp by github ({CPU}): this machine has no GPU")
    );
    assert!(plan.passed_over.is_empty() && plan.warnings.is_empty());
}

#[test]
fn the_newest_cuda_that_the_driver_supports_comes_with_its_runtime() {
    let machine = with_driver("12.9");
    let plan = plan(&of(release(48, ALL)), &machine, None).unwrap();
    assert_eq!(
        tried(&plan),
        ["b10991 cuda-12.8", "b10991 vulkan", "b10991 cpu", WHEEL]
    );
    let Build::Archive(build) = &plan.choices[0].build else {
        panic!("{plan:?}");
    };
    let names: Vec<&str> = build.assets.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, [CUDA_12, CUDART_12]);
    assert_eq!(passed(&plan), ["b10991 cuda-13.3"]);
    assert!(
        plan.choices[0]
            .line
            .ends_with("the driver supports CUDA 12.9")
    );
}

#[test]
fn a_driver_runs_newer_minor_versions_of_its_major_version_but_older_ones_come_first() {
    let both = [CUDA_12, CUDART_12, CUDA_124, CUDART_124, CPU, VULKAN];
    let only_newer = plan(&of(release(48, &both[..2])), &with_driver("12.2"), None).unwrap();
    assert_eq!(tried(&only_newer)[0], "b10991 cuda-12.8");
    assert!(only_newer.choices[0].line.contains("newer minor versions"));
    let older = plan(&of(release(48, &both)), &with_driver("12.6"), None).unwrap();
    assert_eq!(tried(&older)[..2], ["b10991 cuda-12.4", "b10991 cuda-12.8"]);
    // Of several newer ones the nearest, which asks least of the driver.
    let newer = plan(&of(release(48, &both)), &with_driver("12.2"), None).unwrap();
    assert_eq!(tried(&newer)[..2], ["b10991 cuda-12.4", "b10991 cuda-12.8"]);
}

#[test]
fn at_most_two_cuda_builds_are_tried() {
    let three = [
        CUDA_13, CUDART_13, CUDA_12, CUDART_12, CUDA_124, CUDART_124, CPU, VULKAN,
    ];
    let unknown = Machine {
        gpus: Gpus {
            cuda: None,
            ..with_driver("13.3").gpus
        },
        ..with_driver("13.3")
    };
    for machine in [with_driver("13.3"), unknown] {
        let plan = plan(&of(release(48, &three)), &machine, None).unwrap();
        assert_eq!(
            tried(&plan)[..3],
            ["b10991 cuda-13.3", "b10991 cuda-12.8", "b10991 vulkan"]
        );
    }
}

#[test]
fn a_driver_that_is_too_old_is_said_aloud_and_vulkan_is_taken() {
    let plan = plan(&of(release(48, ALL)), &with_driver("11.8"), None).unwrap();
    assert_eq!(tried(&plan), ["b10991 vulkan", "b10991 cpu", WHEEL]);
    assert_eq!(passed(&plan), ["b10991 cuda-13.3", "b10991 cuda-12.8"]);
    assert_eq!(codes(&plan), ["driver_too_old", "no_cuda_build"]);
}

#[test]
fn a_cuda_build_without_its_runtime_is_refused() {
    let plan = plan(
        &of(release(48, &[CUDA_13, CPU, VULKAN])),
        &with_driver("13.3"),
        None,
    )
    .unwrap();
    assert_eq!(tried(&plan), ["b10991 vulkan", "b10991 cpu", WHEEL]);
    assert!(plan.passed_over[0].reason.contains("runtime archive"));
}

#[test]
fn a_build_for_a_newer_c_library_is_passed_over_before_it_is_fetched() {
    let old = Machine {
        glibc: Some(MajorMinor::new(2, 36)),
        ..with_driver("13.3")
    };
    let with_gpus = plan(&of(release(48, ALL)), &old, None).unwrap();
    assert_eq!(tried(&with_gpus)[0], "b10991 cuda-12.8");
    assert_eq!(codes(&with_gpus), ["glibc_too_old"]);
    let arm = Machine {
        architecture: "aarch64",
        ..BARE
    };
    let on_arm = plan(&of(release(48, ALL)), &arm, None).unwrap();
    assert_eq!(tried(&on_arm), [WHEEL]);
    assert!(on_arm.passed_over[0].reason.contains("glibc 2.38"));
    // 2.4 is older than 2.38, though its text comes after.
    let ancient = Machine {
        glibc: Some(MajorMinor::new(2, 4)),
        ..arm
    };
    let on_ancient = plan(&of(release(48, ALL)), &ancient, None).unwrap();
    assert_eq!(tried(&on_ancient), [WHEEL]);
    // What is not known is not held against a machine.
    let unknown = Machine { glibc: None, ..arm };
    let on_unknown = plan(&of(release(48, ALL)), &unknown, None).unwrap();
    assert_eq!(tried(&on_unknown)[0], "b10991 cpu");
}

#[test]
fn a_young_release_without_the_best_build_is_waited_for_and_an_old_one_is_not() {
    for (machine, names) in [
        (with_driver("13.3"), &[CPU, VULKAN] as &[&str]),
        (with_driver("13.3"), &[CUDA_13, CPU, VULKAN]),
        (BARE, &[VULKAN]),
    ] {
        let error = plan(&of(release(1, names)), &machine, None).unwrap_err();
        let ProvisionError::Waiting { reason, again } = &error else {
            panic!("{error:?}");
        };
        assert!(reason.contains("was published 60 min ago"), "{reason}");
        assert!(again.is_some());
        let plan = plan(&of(release(2, names)), &machine, None).unwrap();
        assert!(!plan.choices.is_empty() && !plan.passed_over.is_empty());
    }
    // What is there is taken, however young.
    assert_eq!(
        tried(&plan(&of(release(0, ALL)), &BARE, None).unwrap())[0],
        "b10991 cpu"
    );
}

#[test]
fn a_missing_digest_is_a_refusal_unless_it_is_allowed_by_name() {
    let mut bare = release(48, &[CPU]);
    bare.assets[0].sha256 = None;
    let refused = plan(&of(bare.clone()), &BARE, None).unwrap();
    assert_eq!(tried(&refused), [WHEEL]);
    assert!(refused.passed_over[0].reason.contains(CPU));
    let other = WantedEngine {
        allow_missing_digest: [VULKAN.to_owned()].into(),
        ..of(bare.clone())
    };
    assert_eq!(tried(&plan(&other, &BARE, None).unwrap()), [WHEEL]);
    let allowed = WantedEngine {
        allow_missing_digest: [CPU.to_owned()].into(),
        ..of(bare)
    };
    let plan = plan(&allowed, &BARE, None).unwrap();
    assert_eq!(tried(&plan), ["b10991 cpu", WHEEL]);
}

#[test]
fn an_asked_for_variant_is_the_only_one_and_the_wheel_does_not_stand_in() {
    let asked = |variant: &str| WantedEngine {
        variant: Some(variant.to_owned()),
        ..of(release(48, ALL))
    };
    let vulkan = plan(&asked("vulkan"), &BARE, None).unwrap();
    assert_eq!(tried(&vulkan), ["b10991 vulkan"]);
    let cuda = plan(&asked("cuda-13"), &with_driver("13.3"), None).unwrap();
    assert_eq!(tried(&cuda), ["b10991 cuda-13.3"]);
    let error = plan(&asked("rocm"), &BARE, None).unwrap_err();
    assert!(error.to_string().contains("b10991 rocm"), "{error}");
}

#[test]
fn another_version_than_the_wheels_is_not_replaced_by_the_wheel() {
    let other = WantedEngine {
        version: Some("b11000".to_owned()),
        release: Some(Resolution::Failed {
            error: "api.github.com could not be reached".to_owned(),
            hint: Some("check the network".to_owned()),
        }),
        ..wanted(EngineSource::Auto)
    };
    let error = plan(&other, &BARE, None).unwrap_err();
    assert!(
        error.to_string().contains("could not be reached"),
        "{error}"
    );
}

#[test]
fn releases_that_cannot_be_looked_up_leave_the_wheel_and_say_so() {
    let failed = WantedEngine {
        release: Some(Resolution::Failed {
            error: "api.github.com could not be reached (2.5 s)".to_owned(),
            hint: None,
        }),
        ..wanted(EngineSource::Auto)
    };
    let by_wheel = plan(&failed, &BARE, None).unwrap();
    assert_eq!(
        by_wheel.choices[0].line,
        "llamacpp by wheel (xllamacpp 2026.10.11549): the releases can't be looked up: \
         api.github.com could not be reached (2.5 s)"
    );
    let github = WantedEngine {
        source: EngineSource::Github,
        ..failed
    };
    assert!(plan(&github, &BARE, None).is_err());
}

#[test]
fn while_the_control_plane_asks_nodes_wait() {
    let asking = WantedEngine {
        release: Some(Resolution::Asking),
        ..wanted(EngineSource::Auto)
    };
    let error = plan(&asking, &BARE, None).unwrap_err();
    assert!(matches!(error, ProvisionError::Waiting { again: None, .. }));
    // What is there already needs no answer.
    let there = plan(&asking, &BARE, Some(&Build::Wheel)).unwrap();
    assert_eq!(tried(&there), [WHEEL]);
}

#[test]
fn a_mirror_is_used_alone() {
    let mirror = WantedEngine {
        source: EngineSource::Mirror("http://mirror:8081".to_owned()),
        release: Some(Resolution::Found {
            release: release(48, &[CPU]),
        }),
        ..wanted(EngineSource::Auto)
    };
    let by_mirror = plan(&mirror, &BARE, None).unwrap();
    assert_eq!(tried(&by_mirror), ["b10991 cpu"]);
    assert!(
        by_mirror.choices[0]
            .line
            .starts_with("llamacpp by mirror (")
    );
}

#[test]
fn nothing_is_removed_before_it_can_be_made_again_and_the_marker_is_last() {
    for found in [Found::Nothing, Found::Spoilt("no marker".to_owned())] {
        let by_wheel = steps(&found);
        assert_eq!(by_wheel[..2], [Step::FindPython, Step::Wipe]);
        let last = [Step::Check, Step::Compute, Step::Mark];
        assert_eq!(by_wheel[by_wheel.len() - 3..], last);
        let by_archive = archive_steps(&found);
        let at = |step| by_archive.iter().position(|one| *one == step).unwrap();
        assert!(at(ArchiveStep::Fetch) < at(ArchiveStep::Wipe));
        assert!(at(ArchiveStep::Compute) < at(ArchiveStep::Mark));
        assert!(at(ArchiveStep::Mark) < at(ArchiveStep::Tidy));
    }
    let marked = [Step::WriteLauncher, Step::Check, Step::Compute];
    assert_eq!(steps(&Found::Marked), marked);
    assert!(!archive_steps(&Found::Marked).contains(&ArchiveStep::Fetch));
}

#[test]
fn engines_in_python_come_as_environments_whatever_the_source() {
    let chosen = |source, configured| {
        let wanted = WantedEngine::new("vllm".parse().unwrap(), source);
        let machine = Machine { configured, ..BARE };
        assert!(!needs_release(&wanted, &machine));
        plan(&wanted, &machine, None).unwrap().choices.remove(0)
    };
    let shipped = chosen(EngineSource::Auto, None);
    assert_eq!(shipped.build, Build::Environment(Origin::Shipped));
    assert_eq!(
        shipped.line,
        "vllm by environment of the lock that ships with the agent: no other is named"
    );
    let lock = chosen(EngineSource::Lock("/l.txt".to_owned()), None);
    assert_eq!(
        lock.build,
        Build::Environment(Origin::Lock("/l.txt".into()))
    );
    let named = chosen(EngineSource::Auto, Some(Path::new("/opt/venv")));
    let existing = |path: &str| Build::Environment(Origin::Existing(path.into()));
    assert_eq!(named.build, existing("/opt/venv"));
    let asked = chosen(EngineSource::Path("/opt/other".to_owned()), None);
    assert_eq!(
        asked.line,
        "vllm by the environment at /opt/other: it was asked for"
    );
}
