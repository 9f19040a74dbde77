use std::time::Duration;

use llmgw_core::error::Coded as _;

use super::*;

fn judged(answer: &str, end: End) -> Findings {
    let heard: Vec<String> = answer.lines().map(ToOwned::to_owned).collect();
    judge("vllm", &heard, end)
}

fn told(findings: &Findings) -> Vec<String> {
    findings.problems.iter().map(ToString::to_string).collect()
}

/// What the script said of vLLM 0.33.0 as the shipped lock installs it, on a machine without a GPU.
const WITHOUT_DRIVER: &str = r#"llmgw-check {"stage": "versions", "begun": true}
llmgw-check {"stage": "versions", "done": true, "packages": 198, "wrong": 0}
llmgw-check {"stage": "libraries", "begun": true}
llmgw-check {"stage": "libraries", "object": "vllm/_C_stable_libtorch.abi3.so", "library": "libcuda.so.1"}
llmgw-check {"stage": "libraries", "done": true, "objects": 26, "wrong": 1, "gpu": true}
llmgw-check {"stage": "torch", "begun": true}
llmgw-check {"stage": "torch", "done": true, "version": "2.14.0+cu130", "cuda": "13.0", "hip": null, "available": false, "devices": 0}
llmgw-check {"stage": "import", "begun": true}
llmgw-check {"stage": "import", "done": true, "failed": "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory"}
llmgw-check {"stage": "version", "begun": true}
llmgw-check {"stage": "version", "done": true, "failed": "RuntimeError: status 1: RuntimeError: Failed to infer device type"}"#;

/// As the script would say it of a machine that has all that it needs; not recorded on hardware.
const FINE: &str = r#"llmgw-check {"stage": "versions", "done": true, "packages": 198, "wrong": 0}
llmgw-check {"stage": "libraries", "done": true, "objects": 26, "wrong": 0, "gpu": true}
llmgw-check {"stage": "torch", "done": true, "version": "2.14.0+cu130", "cuda": "13.0", "hip": null, "available": true, "devices": 2}
INFO something that a package prints
llmgw-check {"stage": "import", "done": true, "modules": ["vllm._C_stable_libtorch"]}
llmgw-check {"stage": "version", "done": true, "says": "0.33.0", "metadata": "0.33.0"}"#;

#[test]
fn a_machine_without_a_driver_is_told_so_before_all_that_follows_from_it() {
    let findings = judged(WITHOUT_DRIVER, End::Whole);
    assert_eq!(
        told(&findings),
        [
            "this machine has no NVIDIA driver: vllm's build needs one",
            "importing the compiled module: ImportError: libcuda.so.1: cannot open shared object file: No such \
             file or directory",
            "asking for --version: RuntimeError: status 1: RuntimeError: Failed to infer device type",
        ]
    );
    assert_eq!(findings.version, None);
}

#[test]
fn an_environment_that_answers_all_is_fine() {
    let findings = judged(FINE, End::Whole);
    assert_eq!(told(&findings), [] as [&str; 0]);
    assert_eq!(findings.version.as_deref(), Some("0.33.0"));
}

#[test]
fn a_driver_that_is_too_old_is_told_from_a_gpu_that_is_not_there() {
    let old = FINE.replace(
        r#""available": true, "devices": 2"#,
        r#""available": false, "devices": 0"#,
    );
    assert_eq!(
        told(&judged(&old, End::Whole)),
        [
            "torch 2.14.0+cu130 is built for CUDA 13.0, which the NVIDIA driver of this machine does not run"
        ]
    );
    let gone = FINE.replace(r#""devices": 2"#, r#""devices": 0"#);
    assert_eq!(
        told(&judged(&gone, End::Whole)),
        ["torch 2.14.0+cu130 sees no GPU"]
    );
    // A build for processors asks for none, whatever its torch could use.
    let processor = old.replace(r#""gpu": true"#, r#""gpu": false"#);
    assert_eq!(told(&judged(&processor, End::Whole)), [] as [&str; 0]);
}

#[test]
fn packages_that_are_not_as_pinned_and_libraries_that_are_missing_are_all_told() {
    let answer = format!(
        "{}\n{}\n{}\n{FINE}",
        r#"llmgw-check {"stage": "versions", "package": "numpy", "want": "2.3.5", "have": "2.4.0"}"#,
        r#"llmgw-check {"stage": "versions", "package": "torch", "want": "2.14.0", "have": null}"#,
        r#"llmgw-check {"stage": "libraries", "object": "vllm/_C.so", "library": "libgomp.so.1"}"#,
    );
    assert_eq!(
        told(&judged(&answer, End::Whole)),
        [
            "numpy is 2.4.0, and 2.3.5 is pinned",
            "torch is not installed, and 2.14.0 is pinned",
            "vllm/_C.so needs libgomp.so.1, which is not there",
        ]
    );
    let other = FINE.replace(r#""says": "0.33.0""#, r#""says": "0.32.0""#);
    assert_eq!(
        told(&judged(&other, End::Whole)),
        ["it says that it is 0.32.0, and 0.33.0 is installed"]
    );
}

#[test]
fn a_check_that_ends_early_is_told_by_where_it_was() {
    let until_import: Vec<&str> = WITHOUT_DRIVER.lines().take(8).collect();
    let until_import = until_import
        .join("\n")
        .replace("libcuda.so.1", "libgomp.so.1");
    let died = End::Early {
        how: "signal: 4 (SIGILL)".to_owned(),
        said: "Illegal instruction".to_owned(),
    };
    let findings = judged(&until_import, died);
    let last = findings.problems.last().unwrap();
    assert_eq!(
        last.to_string(),
        "the check ended with signal: 4 (SIGILL) at: importing the compiled module: Illegal instruction"
    );
    assert!(last.hint().unwrap().contains("instructions"));
    let slow = judged("", End::Slow(Duration::from_secs(5)));
    assert_eq!(
        told(&slow),
        ["the check did not end within 5s; it was at: starting Python"]
    );
}

#[test]
fn silence_and_nonsense_prove_nothing() {
    for answer in [
        "",
        "hello",
        "llmgw-check {",
        "llmgw-check {\"stage\": \"dance\", \"done\": true}",
    ] {
        assert_eq!(judged(answer, End::Whole).problems.len(), 1, "{answer}");
    }
    let without_end: Vec<&str> = FINE.lines().take(4).collect();
    assert_eq!(
        judged(&without_end.join("\n"), End::Whole).problems.len(),
        1
    );
}
