//! The daemon, on a data directory in which something else has the names of its files: said, and never waited for.

#![expect(clippy::unwrap_used, reason = "a test that can't set itself up fails")]

#[path = "scene/plane.rs"]
#[expect(dead_code, reason = "others use the rest")]
mod scene;

use std::{
    fs,
    os::unix::fs::FileTypeExt as _,
    path::Path,
    process::{Output, Stdio},
};

use scene::{PATIENCE, Scene, until};
use serde_json::json;
use tokio::process::Command;

#[derive(Clone, Copy, Debug)]
enum Other {
    Pipe,
    Directory,
    Large,
}

impl Other {
    const ALL: [Self; 3] = [Self::Pipe, Self::Directory, Self::Large];

    /// Puts it there, in the place of what is.
    async fn put(self, path: &Path) {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(path).unwrap(),
            Ok(_) => fs::remove_file(path).unwrap(),
            Err(_) => fs::create_dir_all(path.parent().unwrap()).unwrap(),
        }
        match self {
            Self::Pipe => {
                let made = Command::new("mkfifo").arg(path).status().await;
                assert!(made.unwrap().success());
            }
            Self::Directory => fs::create_dir(path).unwrap(),
            // A gigabyte of nothing, which takes no room.
            Self::Large => fs::File::create(path).unwrap().set_len(1 << 30).unwrap(),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Pipe => "a pipe",
            Self::Directory => "a directory",
            Self::Large => "1.0 GiB",
        }
    }
}

#[tokio::test]
async fn what_must_be_read_is_named_when_it_is_no_file_or_too_large() {
    let scene = Scene::new(json!({})).await;
    for name in ["node-id", "desired.json"] {
        let path = scene.home.join(name);
        for other in Other::ALL {
            other.put(&path).await;
            let output = ended(&scene).await;
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{said}");
            let error = said.lines().find(|line| line.starts_with("error: "));
            let error = error.unwrap_or_default();
            assert!(
                error.contains(name) && error.contains(other.words()),
                "{other:?}: {said}"
            );
            assert!(
                said.lines().any(|line| line.starts_with("hint: ")),
                "{said}"
            );
        }
        // It is the operator's to look at.
        assert!(path.exists());
        fs::remove_file(path).unwrap();
    }
    // What it only locks.
    Other::Pipe.put(&scene.home.join("agent.lock")).await;
    let said = String::from_utf8(ended(&scene).await.stderr).unwrap();
    assert!(said.contains("agent.lock"), "{said}");
}

#[tokio::test]
async fn what_can_be_done_without_keeps_nobody() {
    let scene = Scene::new(json!({})).await;
    let kept = [
        "next-port",
        "cgroups",
        "engines/custom.json",
        "engines/llamacpp.json",
        "replicas/r.json",
        "weights/in-place/a.json",
    ];
    for other in Other::ALL {
        for name in kept {
            other.put(&scene.home.join(name)).await;
        }
        let mut agent = scene.start();
        let (mut frames, ready) = scene.ready().await;
        assert_eq!(ready.replicas.len(), 1, "{other:?}");
        scene.want(&mut frames, &[]).await;
        let gone = until(&mut frames, |report| report.replicas.is_empty());
        assert!(gone.await.is_some());
        agent.kill().await.unwrap();
    }
    // And none of them was believed to be an entry.
    let kind = fs::metadata(scene.home.join("replicas/r.json"));
    assert!(kind.is_err() || !kind.unwrap().file_type().is_fifo());
}

/// The end of an agent that has nothing to wait for.
async fn ended(scene: &Scene) -> Output {
    let mut command = scene.command();
    command.stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output();
    tokio::time::timeout(PATIENCE, output)
        .await
        .unwrap()
        .unwrap()
}
