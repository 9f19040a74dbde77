use std::{collections::BTreeMap, path::Path, process::Command};

use llmgw_bundle::digest::digest;
use llmgw_core::{
    clock::SystemClock,
    cluster::{
        engine::EngineSource,
        release::{Asset, Release, Resolution},
    },
};
use tempfile::TempDir;

use super::*;
use crate::{
    facts::Root,
    provision::{
        ComputeProblem, NoBuild, Prover, ProvisionConfig, ProvisionDeps, ProvisionTimes,
        SystemPackages,
    },
};

/// Takes every build's word for it.
#[derive(Debug)]
struct Believer;

#[async_trait]
impl Prover for Believer {
    async fn prove(&self, _: &InstalledEngine, _: bool) -> Result<(), ComputeProblem> {
        Ok(())
    }
}

/// A node with an archive that was fetched already.
struct Site {
    directory: TempDir,
    wanted: WantedEngine,
}

const ARCHIVE: &str = "llama-b7-bin-ubuntu-x64.tar.gz";

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        std::fs::create_dir_all(source.join("llama")).unwrap();
        std::fs::write(source.join("llama/libx.so"), "x").unwrap();
        sh(
            &source,
            "printf '#!/bin/sh\\necho \"version: 7 (abc)\"\\n' > llama/llama-server && \
             chmod +x llama/llama-server && tar -czf archive.tar.gz llama",
        );
        let archive = source.join("archive.tar.gz");
        let sha256 = digest(std::fs::File::open(&archive).unwrap())
            .unwrap()
            .sha256;
        let release = Release {
            tag: "b7".to_owned(),
            published_at: None,
            assets: vec![Asset {
                name: ARCHIVE.to_owned(),
                url: "http://127.0.0.1:1/".to_owned(),
                size: None,
                sha256: Some(sha256),
            }],
        };
        let site = Self {
            wanted: WantedEngine {
                version: Some("b7".to_owned()),
                variant: Some("cpu".to_owned()),
                release: Some(Resolution::Found { release }),
                ..WantedEngine::new("llamacpp".parse().unwrap(), EngineSource::Github)
            },
            directory,
        };
        site.fetch();
        site
    }

    /// Puts the archive where a download would have put it.
    fn fetch(&self) {
        let downloads = self.directory.path().join("engines/downloads/b7");
        std::fs::create_dir_all(&downloads).unwrap();
        let archive = self.directory.path().join("source/archive.tar.gz");
        std::fs::copy(archive, downloads.join(ARCHIVE)).unwrap();
    }

    fn engines(&self, check_every: Duration) -> Arc<Engines> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let provisioner = Provisioner::build(
            ProvisionConfig {
                directory: self.directory.path().join("engines"),
                marker_env: Vec::new(),
                environment: Vec::new(),
                python: None,
                path_override: BTreeMap::new(),
                clock: Arc::clone(&clock),
            },
            ProvisionTimes::default(),
            ProvisionDeps {
                releases: None,
                packages: SystemPackages::Leave {
                    reason: "this is a test".to_owned(),
                },
                prover: Some(Arc::new(Believer)),
                root: Root::system(),
                reserve: Bytes::ZERO,
            },
        );
        let customs = Customs::open(self.directory.path().join("custom.json"));
        Arc::new(Engines::new(provisioner, check_every, clock, customs))
    }

    fn library(&self) -> PathBuf {
        self.directory
            .path()
            .join("engines/llamacpp/b7-cpu/libx.so")
    }
}

fn sh(directory: &Path, text: &str) {
    let done = Command::new("/bin/sh")
        .args(["-c", text])
        .current_dir(directory)
        .status();
    assert!(done.unwrap().success());
}

/// What is said, until it is what is waited for.
async fn until(engines: &Engines, holds: impl Fn(&ProvisionState) -> bool) -> Vec<String> {
    let mut installations = engines.watch();
    let mut said = Vec::new();
    let heard = async {
        loop {
            let state = installations
                .borrow_and_update()
                .values()
                .next()
                .map(|one| one.provision.state.clone());
            if let Some(state) = state {
                said.push(state.describe());
                if holds(&state) {
                    return;
                }
            }
            installations.changed().await.unwrap();
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(30), heard).await;
    assert!(heard.is_ok(), "{said:?}");
    said
}

fn is_installed(state: &ProvisionState) -> bool {
    matches!(state, ProvisionState::Installed { .. })
}

#[tokio::test]
async fn what_was_removed_is_noticed_with_the_next_look_reported_and_mended() {
    let site = Site::new();
    let engines = site.engines(Duration::from_millis(200));
    engines.want(std::slice::from_ref(&site.wanted));
    until(&engines, is_installed).await;
    site.fetch();
    std::fs::remove_file(site.library()).unwrap();
    let mut said = until(&engines, |state| !is_installed(state)).await;
    said.extend(until(&engines, is_installed).await);
    assert!(
        said.iter().any(|words| words.contains("libx.so is gone")),
        "{said:?}"
    );
    assert!(site.library().exists());
    engines.close().await;
}

#[tokio::test]
async fn who_asks_for_a_look_does_not_wait_for_its_time() {
    let site = Site::new();
    let engines = site.engines(Duration::from_secs(3_600));
    engines.want(std::slice::from_ref(&site.wanted));
    until(&engines, is_installed).await;
    site.fetch();
    std::fs::remove_file(site.library()).unwrap();
    // The task may not wait for it yet: it is asked for until it is heard.
    let asking = async {
        loop {
            engines.check_now();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        said = until(&engines, |state| !is_installed(state)) => drop(said),
        () = asking => {}
    }
    until(&engines, is_installed).await;
    assert!(site.library().exists());
    engines.close().await;
}

#[tokio::test]
async fn what_the_control_plane_learns_of_a_release_disturbs_nothing_that_is_installed() {
    let site = Site::new();
    let engines = site.engines(Duration::from_secs(3_600));
    let asking = WantedEngine {
        release: Some(Resolution::Asking),
        ..site.wanted.clone()
    };
    engines.want(std::slice::from_ref(&asking));
    let waits = |state: &ProvisionState| matches!(state, ProvisionState::Waiting { .. });
    until(&engines, waits).await;
    // The answer ends the waiting at once.
    engines.want(std::slice::from_ref(&site.wanted));
    until(&engines, is_installed).await;
    engines.want(std::slice::from_ref(&asking));
    let one = engines.watch().borrow().values().next().cloned().unwrap();
    assert!(is_installed(&one.provision.state) && one.installed.is_some());
    engines.close().await;
}

#[test]
fn what_will_be_wrong_tomorrow_is_seldom_tried_again() {
    let spoilt = ProvisionError::Check {
        package: "xllamacpp 1".to_owned(),
        problem: "it calls itself 2".to_owned(),
    };
    assert_eq!(most_of(&spoilt), Duration::from_secs(600));
    let missing = ProvisionError::UnknownEngine {
        engine: "other".parse().unwrap(),
    };
    assert_eq!(most_of(&missing), Duration::from_secs(60));
    let none = |lasting| {
        ProvisionError::NoBuild(Box::new(NoBuild {
            engine: "llamacpp".parse().unwrap(),
            version: "b1".to_owned(),
            why: String::new(),
            passed_over: Vec::new(),
            warnings: Vec::new(),
            hint: None,
            lasting,
        }))
    };
    // Whether it is worth trying again is told by what was tried last, not by there being none.
    assert_eq!(most_of(&none(true)), Duration::from_secs(600));
    assert_eq!(most_of(&none(false)), Duration::from_secs(60));
}
