//! What happens until a model is served: bars on a terminal, plain lines otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::IsTerminal,
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use llmgw_core::{
    api::agent::NodeReport,
    clock::Timestamp,
    cluster::{
        engine::{Provision, ProvisionState},
        replica::{ReplicaState, ReplicaStatus},
    },
    id::{ModelName, ReplicaId},
    terminal::one_line,
    units::Bytes,
};
use tokio::time::Instant;

/// Shows progress in the way that fits where it is shown.
#[derive(Debug)]
pub(super) struct Progress {
    /// `None` when stderr is no terminal.
    bars: Option<Bars>,
    /// The last line of each subject, so that nothing is said twice.
    said: BTreeMap<String, String>,
    /// Models that have failed since they were ready: how they are tried again is not told step by step.
    failed: BTreeSet<ModelName>,
    /// Why engines are not installed, until a model's reason says it, or no model waits for one.
    not_installed: BTreeMap<String, String>,
    /// The reasons of models that were said, without their amounts, and when.
    reasons: BTreeMap<ModelName, BTreeMap<String, Instant>>,
    /// When this process began: a replica that is older was left by another.
    since: Timestamp,
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
    /// The model that takes a step by this.
    step_of: Option<ModelName>,
}

// === impl Progress ===

impl Progress {
    /// Of a process that began at `since`.
    pub(super) fn new(since: Timestamp) -> Self {
        let bars = std::io::stderr().is_terminal().then(|| Bars {
            all: MultiProgress::new(),
            of: BTreeMap::new(),
        });
        Self {
            bars,
            said: BTreeMap::new(),
            failed: BTreeSet::new(),
            not_installed: BTreeMap::new(),
            reasons: BTreeMap::new(),
            since,
        }
    }

    /// Shows what an agent reports.
    pub(super) fn show(&mut self, report: &NodeReport) {
        let mut items: Vec<Item> = Vec::new();
        for provision in &report.provision {
            if let Some(choice) = &provision.choice {
                self.note("engine choice", &format!("engine: {choice}"));
            }
            let engine = provision.engine.to_string();
            match &provision.state {
                ProvisionState::Failed { error, .. } => {
                    self.not_installed.insert(engine, error.clone());
                }
                _ => drop(self.not_installed.remove(&engine)),
            }
            items.extend(step_of_engine(provision));
        }
        for status in &report.replicas {
            if status.state == ReplicaState::Failed {
                self.failed.insert(status.spec.model.clone());
                self.note(&status.spec.id.to_string(), &failure(status));
            }
            if is_older(status.spec.id, self.since) {
                self.taken_over(status);
            } else {
                items.push(step_of_replica(status));
            }
        }
        for item in &items {
            if let Some(bars) = &mut self.bars {
                bars.show(item);
            } else if let Some(line) = self.plain(item) {
                self.note(&item.subject, &line);
            }
        }
    }

    /// Says that an engine of an earlier process is used. It has no steps to show.
    fn taken_over(&mut self, status: &ReplicaStatus) {
        if matches!(status.state, ReplicaState::Starting | ReplicaState::Ready) {
            let model = &status.spec.model;
            let line = format!("{model}: its engine still runs from before, and is taken over");
            self.note(&format!("taken over {}", status.spec.id), &line);
        }
    }

    /// The line for a log, where there is something new to tell.
    fn plain(&self, item: &Item) -> Option<String> {
        let told = match &item.step_of {
            Some(model) => item.ended || self.failed.contains(model),
            None => item.text.is_empty(),
        };
        (!told).then(|| plain(item))
    }

    /// Says that a model serves.
    pub(super) fn ready(&mut self, model: &ModelName) {
        self.failed.remove(model);
        self.reasons.remove(model);
        self.said.remove(&why(model));
        self.note(model.as_str(), &format!("{model} is ready"));
    }

    /// Says why a model does not serve: once, until it has another reason or some time has passed. What others take and
    /// give back meanwhile changes the amounts in a reason, and not the reason.
    pub(super) fn waits(&mut self, model: &ModelName, reason: &str) {
        // One failure is one line: the reason has the engine's.
        self.not_installed
            .retain(|_, error| !reason.contains(error.as_str()));
        let now = Instant::now();
        let reasons = self.reasons.entry(model.clone()).or_default();
        reasons.retain(|_, said| now.saturating_duration_since(*said) < SAY_AGAIN_AFTER);
        if reasons.len() >= MOST_REASONS || reasons.contains_key(&without_amounts(reason)) {
            return;
        }
        reasons.insert(without_amounts(reason), now);
        self.said.remove(&why(model));
        self.note(&why(model), reason);
    }

    /// Says what stands in the way of engines, when no model's reason has said it.
    pub(super) fn failures_of_engines(&mut self) {
        for (engine, error) in std::mem::take(&mut self.not_installed) {
            let line = format!("{engine}: not installed: {error}");
            self.note(&why(&engine), &line);
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
            step_of: None,
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
        bar.set_message(one_line(&item.text));
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// What is done for an engine. That it waits for its turn is no step, and neither is that it failed.
fn step_of_engine(provision: &Provision) -> Option<Item> {
    let engine = &provision.engine;
    let mut bytes = None;
    let (text, ended) = match &provision.state {
        ProvisionState::Pending => return None,
        // A step of an installation, or the look at one that is there: it is said as what it is.
        ProvisionState::Installing {
            step,
            percent,
            transfer,
            ..
        } => {
            bytes = transfer.map(|transfer| (transfer.done, transfer.total));
            // A bar says how much is there.
            let percent = percent.filter(|_| bytes.is_none());
            let percent = percent.map(|percent| format!(" ({percent} %)"));
            let text = format!("{engine}: {step}{}", percent.unwrap_or_default());
            (text, false)
        }
        ProvisionState::Waiting { reason, .. } => (format!("{engine}: waiting: {reason}"), false),
        ProvisionState::Failed { .. } => (String::new(), true),
        state => (format!("{engine}: {}", state.describe()), true),
    };
    let item = Item {
        subject: format!("engine {engine}"),
        text,
        bytes,
        ended,
        step_of: None,
    };
    Some(item)
}

/// How far a replica is. That it serves is said when the gateway knows.
fn step_of_replica(status: &ReplicaStatus) -> Item {
    let model = &status.spec.model;
    let (text, bytes) = match (status.state, &status.fetch) {
        (ReplicaState::Fetching, Some(fetch)) => {
            let before = fetch.passed_over.as_ref();
            let before = before.map_or_else(String::new, |why| format!(", for {why}"));
            let text = format!(
                "{model}: fetching weights from {}{before}",
                fetch.source.scheme()
            );
            (text, Some((fetch.bytes_done, fetch.bytes_total)))
        }
        (ReplicaState::Fetching, None) => (format!("{model}: looking for its weights"), None),
        (ReplicaState::Provisioning, _) => (format!("{model}: waiting for its engine"), None),
        (state, _) => (format!("{model}: {}", state.as_str()), None),
    };
    Item {
        subject: status.spec.id.to_string(),
        text,
        bytes,
        ended: matches!(status.state, ReplicaState::Ready | ReplicaState::Failed),
        step_of: Some(model.clone()),
    }
}

fn failure(status: &ReplicaStatus) -> String {
    format!("{}: failed: {}", status.spec.model, status.failure())
}

/// Whether a replica was made before `since`: its id tells when.
fn is_older(id: ReplicaId, since: Timestamp) -> bool {
    let Some(made) = id.as_uuid().get_timestamp() else {
        return false;
    };
    let (seconds, nanos) = made.to_unix();
    let millis = u128::from(seconds) * 1_000 + u128::from(nanos / 1_000_000);
    i64::try_from(millis).is_ok_and(|millis| millis < since.0)
}

/// A reason without its numbers.
fn without_amounts(reason: &str) -> String {
    let is_amount = |c: char| c.is_ascii_digit() || c == '.';
    let kept: Vec<&str> = reason
        .split(is_amount)
        .filter(|part| !part.is_empty())
        .collect();
    // An amount that has grown may have another unit.
    let units = [" B", " KiB", " MiB", " GiB", " TiB"];
    units
        .iter()
        .fold(kept.join("#"), |text, unit| text.replace(unit, "#"))
}

/// The subject of why something does not work.
fn why(subject: impl std::fmt::Display) -> String {
    format!("why {subject}")
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

/// A person who comes back sees why nothing has come.
const SAY_AGAIN_AFTER: Duration = Duration::from_secs(600);
/// Reasons of one model within that time.
const MOST_REASONS: usize = 16;

/// Says a line to the person who started this.
#[expect(clippy::print_stderr, reason = "stdout is for data")]
pub(super) fn say(line: &str) {
    eprintln!("llmgw: {}", one_line(line));
}

#[cfg(test)]
mod tests;
