//! `llmgw-agent unpack`: the checked extraction that engines are installed with, by itself.

use std::{
    io::Write as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use clap::Args;
use llmgw_bundle::{
    archive::{Entry, ExtractOptions, Extracted, Kind, Listing, extract, inspect},
    error::ArchiveError,
    limits::Limits,
};
use llmgw_core::terminal::in_lines;
use serde::Serialize;

use crate::{failure::Failure, flags::Output, interrupted};

#[derive(Args, Debug)]
pub(crate) struct UnpackArgs {
    /// A tar, tar.gz, tar.zst or zip archive
    archive: PathBuf,
    /// Where its contents go: a folder that does not exist yet, or is empty
    #[arg(required_unless_present = "list")]
    dir: Option<PathBuf>,
    /// Check it and show what it holds; write nothing
    #[arg(long, conflicts_with_all = ["dir", "keep_top"])]
    list: bool,
    /// Keep the folder that everything in the archive is in
    #[arg(long)]
    keep_top: bool,
    /// How the result is shown
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

/// Checks an archive, and extracts it when it breaks no rule.
pub(crate) fn run(args: UnpackArgs) -> Result<(), Failure> {
    let UnpackArgs {
        archive,
        dir,
        list: _,
        keep_top,
        output,
    } = args;
    let Some(destination) = dir else {
        let listing = inspect(&archive, &Limits::default()).map_err(|error| failure(&error))?;
        return show(output, &listing, listed);
    };
    let shown = destination.display().to_string();
    if destination.file_name().is_none() {
        // It would be another folder afterwards, and who is in it would see an empty one.
        return Err(Failure::wrong(
            format!("{shown} can't be unpacked to: all that is unpacked becomes one new folder"),
            "name a folder that does not exist yet, such as ./unpacked",
        ));
    }
    let done = unless_interrupted(move |cancelled| {
        let options = ExtractOptions {
            limits: Limits::default(),
            collapse_top: !keep_top,
            cancelled,
            progress: &|_| {},
        };
        extract(&archive, &destination, &options)
    })?;
    let done = done.map_err(|error| failure(&error))?;
    show(output, &done, |done| extracted(done, &shown))
}

/// Does `work` on a thread of its own. At SIGINT it is told to end, so that it can remove what it has written.
fn unless_interrupted<T: Send + 'static>(
    work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::plain(format!("the async runtime can't start: {error}")))?;
    let cancelled = Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        let asked = Arc::clone(&cancelled);
        let mut working =
            tokio::task::spawn_blocking(move || work(&|| asked.load(Ordering::Relaxed)));
        let ended = tokio::select! {
            ended = &mut working => ended,
            interrupted = interrupted() => {
                // Without the signal there is nothing to wait for but the end.
                cancelled.store(interrupted.is_ok(), Ordering::Relaxed);
                working.await
            }
        };
        ended.map_err(|error| Failure::plain(format!("extracting ended early: {error}")))
    })
}

fn failure(error: &ArchiveError) -> Failure {
    match error {
        ArchiveError::Open { .. } | ArchiveError::Taken { .. } => Failure::input(error),
        _ => Failure::of(error),
    }
}

fn show<T: Serialize>(
    output: Output,
    result: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    let shown = match output {
        Output::Text => text(result),
        Output::Json => serde_json::to_string_pretty(result)
            .map_err(|error| Failure::plain(format!("writing JSON: {error}")))?,
    };
    // Who reads no further has seen enough.
    drop(writeln!(std::io::stdout().lock(), "{shown}"));
    Ok(())
}

fn extracted(done: &Extracted, destination: &str) -> String {
    let Extracted {
        format,
        entries,
        bytes,
        top: _,
    } = done;
    in_lines(&[format!(
        "{destination}: {entries} entries, {bytes}, from a {format} archive that breaks no rule"
    )])
}

/// A line for each entry, and one for all.
fn listed(listing: &Listing) -> String {
    let mut lines: Vec<String> = listing.entries.iter().map(line).collect();
    lines.push(format!(
        "{} entries, {}, in a {} archive that breaks no rule",
        listing.entries.len(),
        listing.bytes,
        listing.format
    ));
    in_lines(&lines)
}

fn line(entry: &Entry) -> String {
    let Entry { path, kind } = entry;
    match kind {
        Kind::Folder => format!("folder            {path}/"),
        Kind::File {
            bytes,
            executable: false,
        } => format!("file {:>12} {path}", bytes.0),
        Kind::File {
            bytes,
            executable: true,
        } => format!("prog {:>12} {path}", bytes.0),
        Kind::Link { target } => format!("link              {path} -> {target}"),
    }
}
