//! What happens until a model is served: bars on a terminal, plain lines otherwise.

use std::{collections::BTreeMap, io::IsTerminal, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use llmgw_core::{
    api::agent::NodeReport,
    cluster::{
        engine::{Provision, ProvisionState},
        replica::{ReplicaState, ReplicaStatus},
    },
    units::Bytes,
};

/// Shows progress in the way that fits where it is shown.
#[derive(Debug)]
pub(super) struct Progress {
    /// `None` when stderr is no terminal.
    bars: Option<Bars>,
    /// The last line of each subject, so that nothing is said twice.
    said: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Bars {
    all: MultiProgress,
    of: BTreeMap<String, ProgressBar>,
}

/// How far something is.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Item {
    subject: String,
    text: String,
    bytes: Option<(Bytes, Option<Bytes>)>,
    ended: bool,
}

// === impl Progress ===

impl Progress {
    pub(super) fn new() -> Self {
        let bars = std::io::stderr().is_terminal().then(|| Bars {
            all: MultiProgress::new(),
            of: BTreeMap::new(),
        });
        Self {
            bars,
            said: BTreeMap::new(),
        }
    }

    /// Shows what an agent reports.
    pub(super) fn show(&mut self, report: &NodeReport) {
        let mut items: Vec<Item> = Vec::new();
        for provision in &report.provision {
            if let Some(choice) = &provision.choice {
                self.note("engine choice", &format!("engine: {choice}"));
            }
            items.push(engine(provision));
        }
        items.extend(report.replicas.iter().map(replica));
        for item in &items {
            if let Some(bars) = &mut self.bars {
                bars.show(item);
            } else {
                self.note(&item.subject, &plain(item));
            }
        }
    }

    /// Says a line, once.
    pub(super) fn note(&mut self, subject: &str, line: &str) {
        if self.said.get(subject).is_some_and(|said| said == line) {
            return;
        }
        self.said.insert(subject.to_owned(), line.to_owned());
        match &self.bars {
            Some(bars) => bars.all.suspend(|| say(line)),
            None => say(line),
        }
    }

    /// Shows what a model waits for, where nothing else moves: a report says the same in more detail.
    pub(super) fn doing(&mut self, subject: &str, text: &str) {
        self.said.remove(subject);
        let Some(bars) = &mut self.bars else { return };
        let others = bars.of.keys().any(|other| other != subject);
        bars.show(&Item {
            subject: subject.to_owned(),
            text: text.to_owned(),
            bytes: None,
            ended: others,
        });
    }

    /// Takes all bars away.
    pub(super) fn clear(&mut self) {
        if let Some(bars) = &mut self.bars {
            for bar in bars.of.values() {
                bar.finish_and_clear();
            }
            bars.of.clear();
        }
    }
}

// === impl Bars ===

impl Bars {
    fn show(&mut self, item: &Item) {
        if item.ended {
            if let Some(bar) = self.of.remove(&item.subject) {
                bar.finish_and_clear();
            }
            return;
        }
        let bar = self.of.entry(item.subject.clone()).or_insert_with(|| {
            let bar = self.all.add(ProgressBar::new_spinner());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        match item.bytes {
            Some((done, Some(total))) => {
                bar.set_style(style(
                    "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}",
                ));
                bar.set_length(total.0);
                bar.set_position(done.0);
            }
            _ => bar.set_style(style("{spinner} {msg} {elapsed}")),
        }
        bar.set_message(item.text.clone());
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn engine(provision: &Provision) -> Item {
    let ended = matches!(provision.state, ProvisionState::Installed { .. });
    Item {
        subject: format!("engine {}", provision.engine),
        text: format!("{}: {}", provision.engine, provision.state.describe()),
        bytes: None,
        ended,
    }
}

fn replica(status: &ReplicaStatus) -> Item {
    let model = &status.spec.model;
    let (text, bytes) = match (status.state, &status.fetch) {
        (ReplicaState::Fetching, Some(fetch)) => (
            format!("{model}: fetching weights from {}", fetch.source.scheme()),
            Some((fetch.bytes_done, fetch.bytes_total)),
        ),
        (ReplicaState::Fetching, None) => (format!("{model}: looking for its weights"), None),
        (ReplicaState::Failed, _) => {
            let error = status.error.as_deref().unwrap_or("no reason was given");
            (format!("{model}: failed: {error}"), None)
        }
        // That it serves is said when the gateway knows.
        (ReplicaState::Ready, _) => return ended(status),
        (state, _) => (format!("{model}: {}", state.as_str()), None),
    };
    Item {
        subject: status.spec.id.to_string(),
        text,
        bytes,
        ended: false,
    }
}

fn ended(status: &ReplicaStatus) -> Item {
    Item {
        subject: status.spec.id.to_string(),
        text: format!("{}: loaded", status.spec.model),
        bytes: None,
        ended: true,
    }
}

/// A line for a log: a fetch is said in tenths, not in bytes.
fn plain(item: &Item) -> String {
    match item.bytes {
        Some((done, Some(total))) if total.0 > 0 => {
            let tenths = u128::from(done.0) * 10 / u128::from(total.0);
            format!("{}: {} % of {total}", item.text, tenths * 10)
        }
        _ => item.text.clone(),
    }
}

/// Says a line to the person who started this.
#[expect(clippy::print_stderr, reason = "stdout is for data")]
pub(super) fn say(line: &str) {
    eprintln!("llmgw: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_is_logged_ten_times_at_most() {
        let line = |done| {
            plain(&Item {
                subject: "r".into(),
                text: "m: fetching".into(),
                bytes: Some((Bytes(done), Some(Bytes(1_000)))),
                ended: false,
            })
        };
        let lines: std::collections::BTreeSet<String> = (0..=1_000).map(line).collect();
        assert_eq!(lines.len(), 11);
        assert_eq!(line(437), "m: fetching: 40 % of 1000 B");
    }
}
