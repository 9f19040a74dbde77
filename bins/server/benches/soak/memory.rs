//! How much memory processes have, and whether it grows.

use std::{fs, time::Duration};

use crate::crowd::Crowd;

/// What was seen of each process.
#[derive(Debug)]
pub(crate) struct Memory {
    processes: Vec<Seen>,
    next: Duration,
}

/// A process, and how many KiB it had at which second.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pid: u32,
    pub(crate) samples: Vec<(f64, f64)>,
}

/// A line through the second half of the samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slope {
    /// MiB where it begins and where it ends.
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// MiB more in an hour.
    pub(crate) hourly: f64,
}

impl Memory {
    pub(crate) fn of(processes: Vec<(String, u32)>) -> Self {
        let seen = |(name, pid)| Seen {
            name,
            pid,
            samples: Vec::new(),
        };
        Self {
            processes: processes.into_iter().map(seen).collect(),
            next: Duration::ZERO,
        }
    }

    pub(crate) fn sample(&mut self, now: Duration, crowd: &Crowd) {
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        let mut line = format!("{:>5} s  {} calls are over;", now.as_secs(), crowd.over());
        for seen in &mut self.processes {
            if let Some(kib) = resident(seen.pid) {
                seen.samples.push((now.as_secs_f64(), kib));
                line.push_str(&format!(" {} {:.1} MiB", seen.name, kib / 1024.0));
            }
        }
        if now.as_secs() % 30 < EVERY.as_secs() {
            println!("{line}");
        }
    }

    pub(crate) fn processes(&self) -> &[Seen] {
        &self.processes
    }
}

impl Seen {
    /// `None` when there are too few samples.
    pub(crate) fn slope(&self) -> Option<Slope> {
        let half = self.samples.len() / 2;
        let (from, to, hourly) = fit(self.samples.get(half..)?)?;
        Some(Slope {
            from: from / 1024.0,
            to: to / 1024.0,
            hourly: hourly * 3_600.0 / 1024.0,
        })
    }
}

impl Slope {
    /// How much more at the end is still flat, in MiB.
    pub(crate) fn allowed(&self) -> f64 {
        (self.from * 0.1).max(12.0)
    }

    pub(crate) fn is_flat(&self) -> bool {
        self.to - self.from <= self.allowed()
    }
}

/// Least squares: the line's value at the first and at the last sample, and its slope.
fn fit(samples: &[(f64, f64)]) -> Option<(f64, f64, f64)> {
    let (first, last) = (samples.first()?.0, samples.last()?.0);
    if samples.len() < 6 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "some thousands of samples")]
    let count = samples.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| samples.iter().map(value).sum::<f64>() / count;
    let (x, y) = (mean(|one| one.0), mean(|one| one.1));
    let over: f64 = samples.iter().map(|one| (one.0 - x) * (one.1 - y)).sum();
    let under: f64 = samples.iter().map(|one| (one.0 - x).powi(2)).sum();
    let slope = over / under;
    Some((y + slope * (first - x), y + slope * (last - x), slope))
}

/// In KiB.
fn resident(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

const EVERY: Duration = Duration::from_secs(5);
