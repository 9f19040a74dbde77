//! How fast archives are extracted, with GNU tar beside it on the same archives.
//!
//! `cargo xtask bench extract [--files 200] [--size 1] [--dir DIR]`. Both end when what they wrote is on the disk.
//! We read everything twice, and check it; GNU tar reads it once. The ratios are ours by theirs: below 1 is faster.
//! That of the processor's time, user and system, with what is started for it, is the one that other work on the
//! machine does not change.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::Parser;
use llmgw_bundle::{
    archive::{ExtractOptions, extract, inspect},
    limits::Limits,
};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

/// How fast archives are extracted
#[derive(Debug, Parser)]
struct Args {
    /// Files in the archive; a release of llama.cpp has about 60
    #[arg(long, default_value_t = 200)]
    files: u32,
    /// MiB of each
    #[arg(long, default_value_t = 1)]
    size: u32,
    /// Rounds, of which the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Where to work [default: the system's folder for temporary files]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// What cargo says to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let dir = args.dir.unwrap_or_else(std::env::temp_dir);
    let work = tempfile::tempdir_in(&dir)?;
    let source = work.path().join("source");
    plant(&source, args.files, args.size)?;
    let total = f64::from(args.files) * f64::from(args.size);
    say(&format!(
        "{} files of {} MiB; median of {} rounds",
        args.files, args.size, args.rounds
    ));
    say(&format!(
        "{:>8}  {:>10}  {:>10}  {:>10}  {:>10}  {:>6}  {:>10}  {:>10}  {:>6}",
        "format", "packed", "check", "extract", "GNU tar", "ratio", "our cpu", "their cpu", "ratio"
    ));
    for (name, packing) in [
        ("tar", None),
        ("tar.gz", Some("--gzip")),
        ("tar.zst", Some("--zstd")),
        ("zip", None),
    ] {
        let archive = work.path().join(format!("archive.{name}"));
        let is_zip = name == "zip";
        if is_zip {
            zip(&source, &archive)?;
        } else {
            let mut tar = Command::new("tar");
            tar.args(packing).arg("-cf").arg(&archive);
            run(tar.arg("-C").arg(&source).arg("."))?;
        }
        let (mut checks, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        let (mut our_cpu, mut their_cpu) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..args.rounds {
            let destination = work.path().join("out");
            checks.push(timed(|| {
                inspect(&archive, &Limits::default())?;
                Ok(())
            })?);
            let before = cpu()?;
            ours.push(timed(|| extracted(&archive, &destination))?);
            our_cpu += cpu()? - before;
            fs::remove_dir_all(&destination)?;
            if !is_zip {
                let before = cpu()?;
                theirs.push(timed(|| untarred(&archive, &destination))?);
                their_cpu += cpu()? - before;
                fs::remove_dir_all(&destination)?;
            }
        }
        let (check, own, other) = (median(checks), median(ours), median(theirs));
        let speed = |time: Duration| {
            if time.is_zero() {
                return "-".to_owned();
            }
            format!("{:.0} MiB/s", total / time.as_secs_f64())
        };
        let ratio = |own: Duration, other: Duration| {
            if other.is_zero() {
                return "-".to_owned();
            }
            format!("{:.2}", own.as_secs_f64() / other.as_secs_f64())
        };
        let rounds = u32::try_from(args.rounds)?.max(1);
        let each = |cpu: Duration| match cpu {
            Duration::ZERO => "-".to_owned(),
            cpu => format!("{} ms", (cpu / rounds).as_millis()),
        };
        let packed = fs::metadata(&archive)?.len() >> 20;
        say(&format!(
            "{name:>8}  {:>10}  {:>10}  {:>10}  {:>10}  {:>6}  {:>10}  {:>10}  {:>6}",
            format!("{packed} MiB"),
            speed(check),
            speed(own),
            speed(other),
            ratio(own, other),
            each(our_cpu),
            each(their_cpu),
            ratio(our_cpu, their_cpu)
        ));
    }
    Ok(())
}

/// Files that compress to a third, as programs do.
fn plant(root: &Path, files: u32, size: u32) -> anyhow::Result<()> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for number in 0..files {
        let folder = root.join(format!("top/{}", number % 10));
        fs::create_dir_all(&folder)?;
        let mut bytes = Vec::new();
        while bytes.len() < usize::try_from(size)? << 20 {
            // Xorshift (Marsaglia, "Xorshift RNGs", 2003), each word followed by two that are known.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend(state.to_le_bytes());
            bytes.extend(*b"a repeated piece");
        }
        let path = folder.join(format!("lib{number}.so"));
        fs::write(&path, bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn zip(source: &Path, archive: &Path) -> anyhow::Result<()> {
    let mut zip = ZipWriter::new(fs::File::create(archive)?);
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(source)?.to_string_lossy().into_owned();
            if path.is_dir() {
                zip.add_directory(name, options)?;
                folders.push(path);
            } else {
                zip.start_file(name, options)?;
                zip.write_all(&fs::read(path)?)?;
            }
        }
    }
    zip.finish()?;
    Ok(())
}

fn extracted(archive: &Path, destination: &Path) -> anyhow::Result<()> {
    let options = ExtractOptions {
        limits: Limits::default(),
        collapse_top: false,
        cancelled: &|| false,
        progress: &|_| {},
    };
    extract(archive, destination, &options)?;
    Ok(())
}

fn untarred(archive: &Path, destination: &Path) -> anyhow::Result<()> {
    fs::create_dir(destination)?;
    run(Command::new("tar")
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(destination))?;
    run(Command::new("sync").arg("-f").arg(destination))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

/// The processor's time of this process and of those that it has waited for: fields 14 to 17 of proc_pid_stat(5), in
/// hundredths of a second.
fn cpu() -> anyhow::Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("the name of the process")?;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(4)
        .map(|field| field.parse::<u64>().unwrap_or_default())
        .sum();
    Ok(Duration::from_millis(ticks * 10))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[expect(clippy::print_stdout, reason = "a bench shows what it measured")]
fn say(line: &str) {
    println!("{line}");
}
