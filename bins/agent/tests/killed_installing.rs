//! The daemon, killed by SIGKILL in each step of an installation and of a download: its next life finishes what was
//! begun, and nothing is there twice or left behind.
//!
//! Each moment is one that the daemon shows by itself: what it has asked of a server, what it has written, what it has
//! started. For the moments at which a file gets its name, a library that stops there is put between the daemon and
//! the system.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't set itself up fails"
)]

#[path = "scene/build.rs"]
mod build;
#[path = "../../../llmgw-agent/tests/provision_archive/github.rs"]
mod github;
#[path = "scene/plane.rs"]
#[expect(dead_code, reason = "others use the rest")]
mod scene;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use build::{NUMBER, noise};
use futures_util::StreamExt as _;
use github::{Github, NOW, Published, sha256};
use llmgw_core::{
    api::agent::NodeReport,
    clock::Timestamp,
    cluster::{
        engine::{EngineSource, ProvisionState, WantedEngine},
        release::Resolution,
        weights::Weights,
    },
    releases::Answer,
    units::Bytes,
};
use scene::{PATIENCE, Scene, until};
use serde_json::json;
use tokio::process::Command;

/// When the daemon is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// When the server has its question and has answered with so many bytes of the file.
    Sent(usize),
    /// When a file or folder of this name is in its data directory.
    There(&'static str),
    /// When what it installs is started for this.
    Started(&'static str),
    /// Before a file gets this name.
    Before(&'static str),
    /// After it got it.
    After(&'static str),
}

#[tokio::test]
async fn a_kill_in_any_step_of_an_installation_costs_time_and_nothing_else() {
    let tools = Tools::new();
    for (moment, downloads) in [
        (Moment::Sent(0), 2),
        (Moment::Sent(1 << 20), 2),
        (Moment::Before(ARCHIVE), 2),
        (Moment::After(ARCHIVE), 1),
        (Moment::There(".b4711-cpu.partial"), 1),
        (Moment::Started("version"), 1),
        (Moment::Started("compute"), 1),
        (Moment::Before("/installed.json"), 1),
        (Moment::After("/installed.json"), 1),
        (Moment::Before("/llamacpp.json"), 1),
        (Moment::After("/llamacpp.json"), 1),
    ] {
        let site = Site::new(&tools).await;
        site.kill_at(moment, &tools, &[]).await;
        site.finish(moment, &[]).await;
        let expected = [
            "llamacpp.json",
            "llamacpp/b4711-cpu/computing.py",
            "llamacpp/b4711-cpu/installed.json",
            "llamacpp/b4711-cpu/libnoise.so",
            "llamacpp/b4711-cpu/llama-server",
            "llamacpp/b4711-cpu/plan.json",
            "llamacpp/b4711-cpu/proven.json",
        ];
        let left = files(&site.scene.home.join("engines"));
        assert_eq!(left, expected, "{moment:?}");
        assert_eq!(site.github.downloads(), downloads, "{moment:?}");
        if let Moment::Sent(bytes @ 1..) = moment {
            let asked = site.github.asked.lock().unwrap().clone();
            let range = format!("range: bytes={bytes}-");
            let last = asked.last().unwrap().to_ascii_lowercase();
            assert!(last.contains(&range), "{last}");
        }
    }
}

#[tokio::test]
async fn a_kill_while_a_package_of_the_system_is_installed_costs_time_and_nothing_else() {
    // Only root installs packages, and gets a mount namespace of its own to do it in.
    let tools = Tools::new();
    let mut site = Site::new(&tools).await;
    let build = tools.directory.path().join("needy.tar.gz");
    let library = tools.needy_library();
    build::pack(&build, site.plan(), &[("libneedy.so", library)]);
    site.publish(ARCHIVE, fs::read(build).unwrap()).await;
    let apt = site.path("apt-get");
    let script = format!(
        "#!/bin/sh\nif [ -e {holds}/apt ]; then mv {holds}/apt {holds}/apt.reached; exec sleep 1000; fi\n\
         case \"$*\" in *install*) : > {libraries}/{MISSING};; esac\n",
        holds = site.path("holds").display(),
        libraries = site.path("lib64").display(),
    );
    fs::write(&apt, script).unwrap();
    fs::set_permissions(&apt, fs::Permissions::from_mode(0o755)).unwrap();
    let mounts = format!(
        "cp -a /usr/lib64 {libraries} && mount --bind {libraries} /usr/lib64 && \
         mount --bind {apt} /usr/bin/apt-get && exec \"$@\"",
        libraries = site.path("lib64").display(),
        apt = apt.display(),
    );
    let again = mounts.replace("cp -a /usr/lib64", "test -d /usr/lib64 && test -d");
    let within = |mounts: &str| ["unshare", "-m", "sh", "-c", mounts, "sh"].map(str::to_owned);
    site.kill_at(Moment::Started("apt"), &tools, &within(&mounts))
        .await;
    site.finish(Moment::Started("apt"), &within(&again)).await;
    assert!(site.path("lib64").join(MISSING).exists());
    assert_eq!(site.github.downloads(), 1);
}

#[tokio::test]
async fn a_kill_in_any_step_of_a_download_costs_time_and_nothing_else() {
    let tools = Tools::new();
    let model = format!("/{MODEL}");
    let name: &'static str = model.leak();
    for (moment, downloads) in [
        (Moment::Sent(0), 2),
        (Moment::Sent(1 << 20), 2),
        // It is whole and checked: nothing is fetched again, only read.
        (Moment::Before(name), 2),
        (Moment::After(name), 1),
        (Moment::Before("/verified.json"), 1),
        (Moment::After("/verified.json"), 1),
    ] {
        let mut site = Site::new(&tools).await;
        // What the stand-in is told is in its weights.
        let pad: String = noise(1 << 20)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let weights = json!({"pad": pad}).to_string().into_bytes();
        let base = site.github.list.split("/repos/").next().unwrap().to_owned();
        site.scene.spec.weights = Weights {
            sources: vec![format!("{base}/download/{MODEL}").parse().unwrap()],
            sha256: Some(sha256(&weights).parse().unwrap()),
            size: Some(Bytes(weights.len() as u64)),
            files: Vec::new(),
        };
        site.publish(MODEL, weights).await;
        site.use_stand_in();
        site.kill_at(moment, &tools, &[]).await;

        let mut agent = site.start(&[], &[]);
        let (_frames, ready) = site.scene.ready().await;
        assert_eq!(ready.replicas.len(), 1, "{moment:?}");
        let left = files(&site.scene.home.join("weights/sha256"));
        let names: Vec<&str> = left
            .iter()
            .map(|file| file.split_once('/').unwrap().1)
            .collect();
        assert_eq!(
            names,
            [MODEL, "verified.json", "verified.json.used"],
            "{moment:?}"
        );
        assert_eq!(site.github.downloads(), downloads, "{moment:?}");
        agent.kill().await.unwrap();
        // The engine is the next life's, which this node does not have.
        for process in site.processes() {
            drop(
                Command::new("kill")
                    .args(["-9", &process.to_string()])
                    .status()
                    .await,
            );
        }
    }
}

/// What all rounds use: the build that is published, and the library that stops the daemon.
struct Tools {
    directory: tempfile::TempDir,
}

/// A node, and the release that it installs.
struct Site {
    scene: Scene,
    github: Github,
}

// === impl Tools ===

impl Tools {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tools = Self { directory };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scene/pause.c");
        tools.compile(&["-O1", "-o", "pause.so", source.to_str().unwrap(), "-ldl"]);
        tools
    }

    /// By the compiler that links this test.
    fn compile(&self, args: &[&str]) {
        let made = std::process::Command::new("cc")
            .current_dir(self.directory.path())
            .args(["-shared", "-fPIC"])
            .args(args)
            .status();
        assert!(
            made.is_ok_and(|made| made.success()),
            "a C compiler is needed: cc {args:?}"
        );
    }

    /// A library that needs one that no machine has, and that a package is known for.
    fn needy_library(&self) -> Vec<u8> {
        fs::write(self.directory.path().join("none.c"), "").unwrap();
        let name = format!("-Wl,-soname,{MISSING}");
        self.compile(&["-nostdlib", "-o", "libneeded.so", &name, "none.c"]);
        let needs = ["-Wl,--no-as-needed", "none.c", "-L.", "-lneeded"];
        self.compile(&[&["-nostdlib", "-o", "libneedy.so"], &needs[..]].concat());
        fs::read(self.directory.path().join("libneedy.so")).unwrap()
    }
}

// === impl Site ===

impl Site {
    async fn new(tools: &Tools) -> Self {
        let mut scene = Scene::new(json!({})).await;
        scene.flags.clear();
        fs::create_dir(scene.dir.path().join("holds")).unwrap();
        let github = Github::of(Published {
            tag: format!("b{NUMBER}"),
            age_hours: 9,
            ..Published::default()
        })
        .await;
        let mut site = Self { scene, github };
        let build = tools.directory.path().join("build.tar.gz");
        build::pack(&build, site.plan(), &[("libnoise.so", noise(SIZE))]);
        site.publish(ARCHIVE, fs::read(build).unwrap()).await;
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scene.dir.path().join(name)
    }

    fn plan(&self) -> serde_json::Value {
        json!({"holds": self.path("holds")})
    }

    async fn publish(&mut self, name: &str, bytes: Vec<u8>) {
        self.github
            .published
            .lock()
            .unwrap()
            .files
            .insert(name.to_owned(), bytes);
        let tag = format!("b{NUMBER}");
        let answer = self
            .github
            .client()
            .by_tag(&tag, None, Timestamp(NOW))
            .await;
        let Answer::Release { release, .. } = answer.unwrap() else {
            panic!("an answer without a release");
        };
        self.scene.engine = WantedEngine {
            version: Some(tag),
            release: Some(Resolution::Found { release }),
            ..WantedEngine::new("llamacpp".parse().unwrap(), EngineSource::Github)
        };
    }

    /// The engine is not what this test is about.
    fn use_stand_in(&mut self) {
        let engine =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../llmgw-agent/tests/scene/engine.py");
        self.scene.engine = WantedEngine::new("llamacpp".parse().unwrap(), EngineSource::Auto);
        self.scene.flags = vec!["--llamacpp-path".into(), engine.display().to_string()];
    }

    /// Starts the daemon behind the words `within`, with these variables.
    fn start(&self, within: &[String], variables: &[(&str, &Path)]) -> tokio::process::Child {
        let plain = self.scene.command();
        let plain = plain.as_std();
        let mut words: Vec<_> = within.iter().map(Into::into).collect();
        words.push(plain.get_program().to_owned());
        words.extend(plain.get_args().map(ToOwned::to_owned));
        Command::new(&words[0])
            .args(&words[1..])
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// Lets a life begin, and ends it at that moment.
    async fn kill_at(&self, moment: Moment, tools: &Tools, within: &[String]) {
        let (library, reached) = (
            tools.directory.path().join("pause.so"),
            self.path("reached"),
        );
        let mut variables: Vec<(&str, &Path)> = Vec::new();
        match moment {
            Moment::Sent(bytes) => self.github.published.lock().unwrap().holds = Some(bytes),
            Moment::There(_) => {}
            Moment::Started(step) => fs::write(self.path("holds").join(step), "").unwrap(),
            Moment::Before(name) | Moment::After(name) => {
                let variable = match moment {
                    Moment::Before(_) => "PAUSE_BEFORE",
                    _ => "PAUSE_AFTER",
                };
                variables.extend([
                    (variable, Path::new(name)),
                    ("PAUSE_REACHED", reached.as_path()),
                    ("LD_PRELOAD", library.as_path()),
                ]);
            }
        }
        let mut agent = self.start(within, &variables);
        let serving = async {
            let mut frames = self.scene.accept().await;
            let replicas = match self.scene.engine.source {
                EngineSource::Auto => std::slice::from_ref(&self.scene.spec),
                _ => &[],
            };
            self.scene.want(&mut frames, replicas).await;
            while let Some(Ok(_)) = frames.next().await {}
        };
        let come = async {
            while !self.has_come(moment) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            () = serving => panic!("{moment:?}: the agent ended by itself"),
            come = tokio::time::timeout(PATIENCE, come) => {
                assert!(come.is_ok(), "{moment:?} did not come: {:?}", files(&self.scene.home));
            }
        }
        agent.start_kill().unwrap();
        let ended = agent.wait().await.unwrap();
        assert_eq!(ended.signal(), Some(9), "{moment:?}");
        let marked = self
            .scene
            .home
            .join("engines/llamacpp/b4711-cpu/installed.json")
            .exists();
        let is_late = matches!(
            moment,
            Moment::After("/installed.json")
                | Moment::Before("/llamacpp.json")
                | Moment::After("/llamacpp.json")
        );
        assert_eq!(
            marked, is_late,
            "{moment:?}: it was killed where it was meant to be"
        );
    }

    fn has_come(&self, moment: Moment) -> bool {
        match moment {
            Moment::Sent(bytes) => {
                // The daemon has them, as far as any were sent.
                let partial = files(&self.scene.home)
                    .into_iter()
                    .find(|file| file.ends_with(".partial"))
                    .and_then(|file| fs::metadata(self.scene.home.join(file)).ok());
                let has = partial.map_or(0, |found| found.len());
                self.github.downloads() == 1 && has >= bytes as u64
            }
            Moment::There(name) => self.scene.home.join("engines/llamacpp").join(name).exists(),
            Moment::Started(step) => self.path("holds").join(format!("{step}.reached")).exists(),
            Moment::Before(_) | Moment::After(_) => self.path("reached").exists(),
        }
    }

    /// The next life, until the engine is installed; then it is stopped, and nothing runs any more.
    async fn finish(&self, moment: Moment, within: &[String]) {
        let mut agent = self.start(within, &[]);
        let installed = loop {
            let mut frames = self.scene.accept().await;
            self.scene.want(&mut frames, &[]).await;
            if let Some(report) = until(&mut frames, is_settled).await {
                break report;
            }
        };
        let state = &installed.provision[0].state;
        assert!(
            matches!(state, ProvisionState::Installed { version, .. } if *version == format!("b{NUMBER}")),
            "{moment:?}: {:?}",
            installed.provision
        );
        let pid = agent.id().unwrap().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .await
                .unwrap()
                .success()
        );
        let ended = tokio::time::timeout(PATIENCE, agent.wait()).await.unwrap();
        assert_eq!(ended.unwrap().code(), Some(0), "{moment:?}");
        assert_eq!(self.processes(), BTreeSet::new(), "{moment:?}");
    }

    /// What runs and was started by an agent of this node.
    fn processes(&self) -> BTreeSet<u32> {
        let mark = format!("LLMGW_DATA_DIR={}", self.scene.home.display());
        let all = fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark.as_bytes())
        })
        .collect()
    }
}

fn is_settled(report: &NodeReport) -> bool {
    report.provision.iter().any(|one| {
        matches!(
            one.state,
            ProvisionState::Installed { .. } | ProvisionState::Failed { .. }
        )
    })
}

/// All files below a directory, by path.
fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            } else {
                let path = entry.path();
                found.push(path.strip_prefix(directory).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// Large enough that extracting it takes a moment.
const SIZE: usize = 8 << 20;
const MODEL: &str = "model.gguf";
/// A library that no machine has, of a package that there is.
const MISSING: &str = "libopenblas.so.4711";
/// As a release of the stand-in would call it.
const ARCHIVE: &str = if cfg!(target_arch = "aarch64") {
    "llama-b4711-bin-ubuntu-arm64.tar.gz"
} else {
    "llama-b4711-bin-ubuntu-x64.tar.gz"
};
