//! What engines count, in files that a kill leaves as they are.
//!
//! A file of each engine's process, a line of 64 bytes for each call that it saw: the call's id, the tokens of its prompt,
//! those of its answer so far, and whether it tells its usage as it goes. A count is written in its place before its token is
//! sent, so that no kill can lose it.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Context as _;

/// Where an engine writes.
#[derive(Debug)]
pub(crate) struct Counts {
    file: File,
    lines: AtomicU64,
}

/// The line of one call.
#[derive(Debug)]
pub(crate) struct Line {
    counts: Arc<Counts>,
    at: u64,
}

/// What an engine counted of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Counted {
    pub(crate) prompt: u64,
    pub(crate) completion: u64,
    /// Whether it told its usage as it went, and not only at the end.
    pub(crate) running: bool,
}

impl Counts {
    pub(crate) fn create(directory: &Path) -> io::Result<Arc<Self>> {
        let path = directory.join(std::process::id().to_string());
        Ok(Arc::new(Self {
            file: File::create(path)?,
            lines: AtomicU64::new(0),
        }))
    }

    /// Begins the line of a call.
    pub(crate) fn line(
        self: &Arc<Self>,
        call: &str,
        prompt: u64,
        running: bool,
    ) -> io::Result<Line> {
        let at = self.lines.fetch_add(1, Ordering::Relaxed) * LENGTH;
        let running = if running { 'R' } else { 'E' };
        let text = format!("{call:<40.40} {prompt:07} {:07} {running}", 0);
        self.file
            .write_all_at(format!("{text:<63}\n").as_bytes(), at)?;
        Ok(Line {
            counts: Arc::clone(self),
            at: at + COMPLETION,
        })
    }
}

impl Line {
    /// Writes down so many tokens of the answer.
    pub(crate) fn completion(&self, tokens: u64) -> io::Result<()> {
        self.counts
            .file
            .write_all_at(format!("{tokens:07}").as_bytes(), self.at)
    }
}

/// What all engines counted, by the id of the call; several where it was tried again.
pub(crate) fn read(directory: &Path) -> anyhow::Result<BTreeMap<String, Vec<Counted>>> {
    let mut all: BTreeMap<String, Vec<Counted>> = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let text = fs::read_to_string(entry?.path())?;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let mut word = || {
                words
                    .next()
                    .with_context(|| format!("a line of counts is {line:?}"))
            };
            let call = word()?.to_owned();
            let counted = Counted {
                prompt: word()?.parse()?,
                completion: word()?.parse()?,
                running: word()? == "R",
            };
            all.entry(call).or_default().push(counted);
        }
    }
    Ok(all)
}

/// Of a line, with its end.
const LENGTH: u64 = 64;
/// Where the tokens of the answer stand in it.
const COMPLETION: u64 = 40 + 1 + 7 + 1;
