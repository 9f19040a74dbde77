//! Installations that are killed at each of their steps, and on a disk that is full.
//!
//! The victim is this test's own program, run again for the one test that installs and says each step.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use llmgw_core::{
    cluster::{
        engine::{EngineSource, Provision, WantedEngine},
        release::{Release, Resolution},
    },
    error::Chain,
    releases::Answer,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::{
    archives::engine,
    choice::{CPU, published},
    github::{Github, Published},
    site::{Site, wanted},
};

/// Large enough that it is not there at once, and can't be packed smaller.
fn noise(bytes: usize) -> String {
    let mut state = 7_u64;
    let mut text = String::with_capacity(bytes);
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push(char::from(b' ' + u8::try_from(state % 90).unwrap()));
    }
    text
}

#[tokio::test]
async fn a_kill_at_any_step_of_an_installation_costs_time_and_nothing_else() {
    let github = Github::of(published(&[(
        CPU,
        engine(10_991, &[("libnoise.so", &noise(1 << 20))]),
    )]))
    .await;
    let release = release(&github).await;
    // The first life that is left alone says how many steps there are.
    let site = Site::new();
    let mut steps = 0;
    let mut whole = victim(&site.path(""), &release, &[]);
    while next_step(&mut whole).await.is_some() {
        steps += 1;
    }
    assert!(whole.0.wait().await.unwrap().success());
    assert!(steps >= 6, "{steps}");

    for kill_at in 1..=steps {
        let site = Site::new();
        let mut child = victim(&site.path(""), &release, &[]);
        let mut said = String::new();
        for _ in 0..kill_at {
            said = next_step(&mut child).await.unwrap_or(said);
        }
        child.0.kill().await.unwrap();
        let wish = wish(&release);
        let provisioner = site.provisioner(None);
        site.converge(&provisioner, &wish)
            .await
            .unwrap_or_else(|error| panic!("killed at {said:?}: {}", Chain(&error)));
        provisioner.check(&wish).await.unwrap();
        assert_eq!(
            site.left(),
            [
                "llamacpp.json",
                "llamacpp/b10991-cpu/LICENSE",
                "llamacpp/b10991-cpu/installed.json",
                "llamacpp/b10991-cpu/libnoise.so",
                "llamacpp/b10991-cpu/llama-server",
            ],
            "killed at {said:?}"
        );
    }
}

#[tokio::test]
async fn a_download_that_was_killed_goes_on_where_it_was() {
    let bytes = engine(10_991, &[("libnoise.so", &noise(1 << 20))]);
    let half = bytes.len() / 2;
    let github = Github::of(Published {
        holds: Some(half),
        ..published(&[(CPU, bytes)])
    })
    .await;
    let release = release(&github).await;
    let site = Site::new();
    let mut child = victim(&site.path(""), &release, &[]);
    let partial = site.path(&format!("engines/downloads/b10991/{CPU}.partial"));
    let size = || std::fs::metadata(&partial).map_or(0, |found| found.len());
    while size() < u64::try_from(half).unwrap() {
        tokio::task::yield_now().await;
    }
    child.0.kill().await.unwrap();
    assert!(partial.exists());
    site.converge(&site.provisioner(None), &wish(&release))
        .await
        .unwrap();
    let asked = github.asked.lock().unwrap().clone();
    let range = format!("range: bytes={half}-");
    let last = asked.last().unwrap().to_ascii_lowercase();
    assert!(last.contains(&range), "{last}");
}

#[tokio::test]
async fn a_disk_that_fills_up_is_said_and_nothing_but_a_partial_file_is_left() {
    let bytes = engine(10_991, &[("libnoise.so", &noise(6 << 20))]);
    let github = Github::of(published(&[(CPU, bytes)])).await;
    let mut release = release(&github).await;
    // Nobody says how large it is, so that it is not refused before it is tried.
    release.assets[0].size = None;
    let site = Site::new();
    let small = site.path("small");
    std::fs::create_dir(&small).unwrap();
    // In a mount namespace of its own: three megabytes that nobody else sees.
    let mount = format!("mount -t tmpfs -o size=3m tmpfs '{}'", small.display());
    let mut child = victim(
        &small,
        &release,
        &[
            "unshare",
            "-m",
            "sh",
            "-c",
            &format!("{mount} && exec \"$@\"",),
            "sh",
        ],
    );
    let mut said = Vec::new();
    while let Some(step) = next_step(&mut child).await {
        said.push(step);
    }
    assert!(
        child.0.wait().await.unwrap().success(),
        "{said:?}: mounting takes root"
    );
    let left = said.pop().unwrap();
    // What the next attempt goes on with, and its note.
    let partial = format!("downloads/b10991/{CPU}.partial");
    let files = left.strip_prefix("left: ").unwrap().split_whitespace();
    assert!(
        files.clone().all(|file| file.starts_with(&partial)),
        "{left}"
    );
    let last = said.last().unwrap();
    assert!(
        last.contains("full") || last.contains("needs") && last.contains("are free"),
        "{said:?}"
    );
    assert!(last.contains(&small.display().to_string()), "{last}");
}

/// Run again by the others: installs what it is told to, and says each step.
#[tokio::test]
#[ignore = "is started, and killed, by the tests of this file"]
async fn victim_of_the_others() {
    let told = told_by_environment();
    let site = Site::at(Path::new(&told.0));
    let release: Release = serde_json::from_str(&told.1).unwrap();
    let hears = |told: Provision| say(&told.state.describe());
    let done = site
        .provisioner(None)
        .converge(&wish(&release), &hears)
        .await;
    if let Err(error) = done {
        say(&Chain(&error).to_string());
        say(&format!("left: {}", site.left().join(" ")));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "it is how a test's own program is told what to do"
)]
fn told_by_environment() -> (String, String) {
    (
        std::env::var(DIRECTORY).unwrap(),
        std::env::var(RELEASE).unwrap(),
    )
}

fn say(words: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{STEP}{words}").unwrap();
    out.flush().unwrap();
}

/// A victim, and what it says.
struct Victim(
    Child,
    tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
);

fn victim(directory: &Path, release: &Release, before: &[&str]) -> Victim {
    let program: PathBuf = std::env::current_exe().unwrap();
    let mut words: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
    words.push(program.display().to_string());
    words.extend(
        [
            "killed::victim_of_the_others",
            "--exact",
            "--ignored",
            "--nocapture",
        ]
        .map(str::to_owned),
    );
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .env(DIRECTORY, directory)
        .env(RELEASE, serde_json::to_string(release).unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    Victim(child, lines)
}

async fn next_step(victim: &mut Victim) -> Option<String> {
    while let Ok(Some(line)) = victim.1.next_line().await {
        // The harness may have begun the line.
        if let Some((_, step)) = line.split_once(STEP) {
            return Some(step.to_owned());
        }
    }
    None
}

fn wish(release: &Release) -> WantedEngine {
    WantedEngine {
        release: Some(Resolution::Found {
            release: release.clone(),
        }),
        ..wanted(EngineSource::Github)
    }
}

async fn release(github: &Github) -> Release {
    let answer = github
        .client()
        .by_tag("b10991", None, llmgw_core::clock::Timestamp(0))
        .await;
    let Answer::Release { release, .. } = answer.unwrap() else {
        panic!("an answer without a release");
    };
    release
}

const DIRECTORY: &str = "LLMGW_TEST_DIRECTORY";
const RELEASE: &str = "LLMGW_TEST_RELEASE";
const STEP: &str = "STEP ";
