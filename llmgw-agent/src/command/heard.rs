//! What a running program is heard to say and seen to do.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{Arc, Mutex},
    time::Duration,
};

use llmgw_core::units::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};

use super::{Group, HelperError, Listener, Patience, end_group};

/// What was heard of a running program so far.
pub(super) struct Heard<'a> {
    tail: Mutex<Tail>,
    last: Mutex<Instant>,
    listener: &'a Listener<'a>,
}

/// What came last, bounded.
#[derive(Default)]
struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
}

// === impl Heard ===

impl<'a> Heard<'a> {
    pub(super) fn by(listener: &'a Listener<'a>) -> Self {
        Self {
            tail: Mutex::new(Tail::default()),
            last: Mutex::new(Instant::now()),
            listener,
        }
    }

    /// Listens until the program has ended.
    pub(super) async fn until_end(
        &self,
        group: &mut Group,
        program: &Path,
    ) -> Result<ExitStatus, HelperError> {
        let leader = group.leader;
        let (out, err) = (group.child.stdout.take(), group.child.stderr.take());
        let reading = async { tokio::join!(self.read(out), self.read(err)) };
        tokio::pin!(reading);
        let ended = tokio::select! {
            ended = group.wait() => {
                // What is still in the pipes is read. Who keeps them open after the program has ended
                // was left behind by it.
                if timeout(REST_OF_OUTPUT, reading).await.is_err() {
                    end_group(leader);
                }
                ended
            }
            _ = &mut reading => group.wait().await,
        };
        ended.map_err(|source| HelperError::Wait {
            program: program.to_owned(),
            source: Arc::new(source),
        })
    }

    async fn read(&self, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(mut pipe) = pipe else { return };
        let mut buffer = vec![0; 4 << 10];
        let mut line = Vec::new();
        while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
            self.alive();
            for byte in buffer.get(..count).unwrap_or_default() {
                match byte {
                    // Progress bars return to the start of their line.
                    b'\n' | b'\r' => self.line(&mut line),
                    _ if line.len() < MAX_LINE => line.push(*byte),
                    _ => {}
                }
            }
        }
        self.line(&mut line);
    }

    fn line(&self, line: &mut Vec<u8>) {
        if line.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(line).into_owned();
        line.clear();
        (self.listener.line)(&text);
        if let Ok(mut tail) = self.tail.lock() {
            tail.push(text);
        }
    }

    fn alive(&self) {
        if let Ok(mut last) = self.last.lock() {
            *last = Instant::now();
        }
    }

    fn silence(&self) -> Duration {
        self.last
            .lock()
            .map_or(Duration::ZERO, |last| last.elapsed())
    }

    /// Returns when the program's time is up, and tells the listener meanwhile how full its directory is.
    pub(super) async fn give_up(&self, program: &Path, patience: Patience) -> HelperError {
        let limit = match patience {
            Patience::Whole(limit) | Patience::Silence(limit) => limit,
        };
        let measuring = async {
            let mut full = Bytes::ZERO;
            let mut ticks = interval(MEASURE_EVERY.min(limit / 4).max(Duration::from_millis(1)));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                if let Some((directory, hears)) = self.listener.filling {
                    let now = size_of(directory.to_owned()).await;
                    if now != full {
                        full = now;
                        self.alive();
                        hears(full);
                    }
                }
                if matches!(patience, Patience::Silence(_)) && self.silence() > limit {
                    break;
                }
            }
        };
        let program = program.to_owned();
        match patience {
            Patience::Whole(after) => tokio::select! {
                () = measuring => HelperError::Silent { program, after },
                () = sleep(after) => HelperError::Deadline { program, after },
            },
            Patience::Silence(after) => {
                measuring.await;
                HelperError::Silent { program, after }
            }
        }
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.tail
            .into_inner()
            .map_or_else(|_| Vec::new(), |tail| tail.lines.into())
    }
}

// === impl Tail ===

impl Tail {
    fn push(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.bytes > MAX_TAIL {
            let Some(first) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= first.len();
        }
    }
}

/// How many bytes the files under `directory` have together; what can't be read counts as nothing.
async fn size_of(directory: PathBuf) -> Bytes {
    let measure = move || {
        let mut waiting = vec![directory];
        let mut total = 0_u64;
        while let Some(directory) = waiting.pop() {
            let Ok(entries) = std::fs::read_dir(directory) else {
                continue;
            };
            for entry in entries.flatten() {
                match entry.metadata() {
                    Ok(found) if found.is_dir() => waiting.push(entry.path()),
                    Ok(found) => total = total.saturating_add(found.len()),
                    Err(_) => {}
                }
            }
        }
        Bytes(total)
    };
    tokio::task::spawn_blocking(measure)
        .await
        .unwrap_or(Bytes::ZERO)
}

pub(super) const MAX_LINE: usize = 2_000;
/// Enough for the traceback at the end of a failed `pip`.
pub(super) const MAX_TAIL: usize = 64 << 10;
const REST_OF_OUTPUT: Duration = Duration::from_secs(1);
/// As often as a person looks at a progress bar.
const MEASURE_EVERY: Duration = Duration::from_millis(300);
