//! What was proven of a build, kept beside it.
//!
//! `proven.json` holds the build's identity and the types of weights that it has computed with, on the processor
//! and on GPUs. It holds no proof for another build: the identity is made of what the installation's files are
//! (sizes and times, not contents: hashing gigabytes of GPU code at each start would take longer than computing)
//! and of the processor, so that an upgraded library, a replaced program, or a disk that was moved to another
//! machine are proven again.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use llmgw_core::{fingerprint::Fingerprint, gguf::TensorType};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::Expectation;
use crate::{
    durable,
    engine::{InstalledEngine, Launch},
};

/// Keeps what was proven of one build.
#[derive(Clone, Debug)]
pub(in crate::provision) struct Record {
    path: PathBuf,
    engine: InstalledEngine,
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct Proven {
    build: Option<Fingerprint>,
    /// ggml's numbers of the types.
    #[serde(default)]
    cpu: BTreeSet<u32>,
    #[serde(default)]
    gpu: BTreeSet<u32>,
}

// === impl Record ===

impl Record {
    /// The record of a build, below the directory of all engines.
    pub(in crate::provision) fn of(engine: &InstalledEngine, engines: &Path) -> Self {
        let ours = engines.join(engine.name.as_str());
        let at = match &engine.launch {
            Launch::Wheel { launcher, .. } => launcher.as_path(),
            Launch::Program { program } => program.as_path(),
            Launch::Environment { python } => python.as_path(),
            Launch::Custom(described) => Path::new(described.program()),
        };
        let installation = at
            .strip_prefix(&ours)
            .ok()
            .and_then(|below| below.components().next());
        let path = match installation {
            Some(installation) => ours.join(installation).join("proven.json"),
            // A program that is not ours: nothing is written beside it.
            None => ours.join("proven-path.json"),
        };
        Self {
            path,
            engine: engine.clone(),
        }
    }

    /// The types of `needed` that were not proven yet. What can't be read was not.
    pub(in crate::provision) async fn missing(
        &self,
        needed: BTreeSet<TensorType>,
        expectation: Expectation,
    ) -> BTreeSet<TensorType> {
        let this = self.clone();
        let proven = spawn_blocking(move || this.read())
            .await
            .unwrap_or_default();
        let proven = proven.types(expectation);
        needed
            .into_iter()
            .filter(|kind| !proven.contains(&kind.0))
            .collect()
    }

    /// Whether this build was ever seen to compute, with whatever weights.
    pub(in crate::provision) async fn has_computed(&self) -> bool {
        let this = self.clone();
        let proven = spawn_blocking(move || this.read()).await;
        proven.is_ok_and(|proven| !proven.cpu.is_empty() || !proven.gpu.is_empty())
    }

    /// Keeps what was proven now.
    pub(in crate::provision) async fn keep(
        &self,
        types: BTreeSet<TensorType>,
        expectation: Expectation,
    ) {
        let this = self.clone();
        let kept = spawn_blocking(move || {
            let mut proven = this.read();
            proven.build = Some(identity(&this.engine));
            let all = proven.types_mut(expectation);
            all.extend(types.iter().map(|kind| kind.0));
            let json = serde_json::to_vec(&proven)?;
            if let Some(directory) = this.path.parent() {
                fs::create_dir_all(directory)?;
            }
            durable::write(&this.path, &json)
        });
        let kept = kept
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        if let Err(error) = kept {
            // The next start proves it again, which costs a second.
            tracing::warn!(path = %self.path.display(), %error, "what was proven could not be written down");
        }
    }

    /// What the file says of this build; nothing when it speaks of another.
    fn read(&self) -> Proven {
        let mut text = Vec::new();
        let read = fs::File::open(&self.path)
            .and_then(|file| file.take(FILE_LIMIT).read_to_end(&mut text));
        read.ok()
            .and_then(|_| serde_json::from_slice::<Proven>(&text).ok())
            .filter(|proven| proven.build == Some(identity(&self.engine)))
            .unwrap_or_default()
    }
}

// === impl Proven ===

impl Proven {
    fn types(&self, expectation: Expectation) -> &BTreeSet<u32> {
        match expectation {
            Expectation::Cpu => &self.cpu,
            Expectation::Gpu => &self.gpu,
        }
    }

    fn types_mut(&mut self, expectation: Expectation) -> &mut BTreeSet<u32> {
        match expectation {
            Expectation::Cpu => &mut self.cpu,
            Expectation::Gpu => &mut self.gpu,
        }
    }
}

/// Tells this build on this processor from every other.
fn identity(engine: &InstalledEngine) -> Fingerprint {
    let mut text = format!(
        "{} {} {}\n{}\n",
        engine.name,
        engine.version,
        engine.variant,
        processor()
    );
    let mut files = Vec::new();
    match &engine.launch {
        Launch::Program { program } => {
            let program = fs::canonicalize(program).unwrap_or_else(|_| program.clone());
            if let Some(directory) = program.parent() {
                objects(directory, 0, &mut files);
                objects(&directory.with_file_name("lib"), 0, &mut files);
            }
            files.push(program);
        }
        Launch::Wheel { python, launcher } => {
            files.push(launcher.clone());
            if let Some(environment) = python.ancestors().nth(2) {
                objects(&environment.join("lib"), DEPTH, &mut files);
            }
        }
        Launch::Environment { python } => {
            if let Some(environment) = python.ancestors().nth(2) {
                objects(&environment.join("lib"), DEPTH, &mut files);
            }
        }
        Launch::Custom(described) => files.push(described.program().into()),
    }
    files.sort();
    files.dedup();
    for file in files {
        if let Ok(found) = fs::metadata(&file) {
            let (size, seconds, nanos) = (found.size(), found.mtime(), found.mtime_nsec());
            text.push_str(&format!("{} {size} {seconds}.{nanos}\n", file.display()));
        }
    }
    Fingerprint::of_bytes(text.as_bytes())
}

/// The shared objects in a directory, and so deep below it.
fn objects(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        if files.len() >= MOST_FILES {
            return;
        }
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".so") || name.contains(".so.") {
            files.push(entry.path());
        } else if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            objects(&entry.path(), depth - 1, files);
        }
    }
}

/// What the kernel says of the first core: model and instructions.
fn processor() -> String {
    let mut text = Vec::new();
    let read = fs::File::open("/proc/cpuinfo")
        .and_then(|file| file.take(FILE_LIMIT).read_to_end(&mut text));
    if read.is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| {
            let key = line.split(':').next().unwrap_or_default().trim();
            matches!(key, "model name" | "flags" | "Features" | "CPU part")
        })
        .collect()
}

const FILE_LIMIT: u64 = 64 << 10;
/// `lib/python3.x/site-packages/package/part`.
const DEPTH: usize = 4;
/// An environment of Python has some hundred.
const MOST_FILES: usize = 20_000;
