//! What the gateway counts while it answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry,
};

use super::{
    named,
    overhead::{OverheadMeters, OverheadTimes},
    registered, text,
};
use crate::{
    cluster::{account::UsageRecord, guard::Decision},
    id::{ModelName, RuleName},
    units::Tokens,
};

/// The gateway's numbers; see [the table](super).
#[derive(Debug)]
pub struct GatewayMeters {
    registry: Registry,
    requests: IntCounterVec,
    duration: HistogramVec,
    first_token: HistogramVec,
    inter_token: HistogramVec,
    overhead: OverheadMeters,
    tokens: IntCounterVec,
    in_flight: IntGauge,
    received: IntCounter,
    journal: IntGauge,
    lost: IntCounter,
    guard: IntCounterVec,
    /// Sets of labels that the guard's decisions were counted under.
    guarded: Mutex<BTreeSet<[String; 5]>>,
    judge_failures: IntCounterVec,
    /// Models with numbers.
    counted: RwLock<BTreeMap<ModelName, Arc<OfModel>>>,
}

/// The numbers of one model: to find each by its labels for each call takes longer than to count.
#[derive(Debug)]
struct OfModel {
    duration: Histogram,
    // Made with the first of it: nothing is shown of what never was.
    first_token: OnceLock<Histogram>,
    inter_token: OnceLock<Histogram>,
    /// By [kind](KINDS).
    tokens: [OnceLock<IntCounter>; KINDS.len()],
    /// By status.
    requests: Mutex<Vec<(u16, IntCounter)>>,
}

/// What the gateway is doing at the moment of a scrape.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct GatewayGauges {
    /// Calls that are being answered, or wait.
    pub in_flight: u64,
    /// Calls since the start.
    pub received: u64,
    /// Usage records that wait to be written.
    pub journal: u64,
    /// Usage records that were lost since the start.
    pub lost: u64,
}

// === impl GatewayMeters ===

impl GatewayMeters {
    /// Numbers that are all nothing.
    #[must_use]
    pub fn new() -> Self {
        let registry = Registry::new();
        let counters = |name, help, labels: &[&str]| {
            registered(&registry, IntCounterVec::new(named(name, help), labels))
        };
        let times = |name: &str, help: &str, buckets: &[f64]| {
            let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            registered(&registry, HistogramVec::new(opts, &["model"]))
        };
        let gauge = |name, help| registered(&registry, IntGauge::with_opts(named(name, help)));
        let counter = |name, help| registered(&registry, IntCounter::with_opts(named(name, help)));
        Self {
            requests: counters(
                "llmgw_requests_total",
                "Calls that were answered, by HTTP status; 499: the client left.",
                &["model", "code"],
            ),
            duration: times(
                "llmgw_request_duration_seconds",
                "From the call to the end of its answer.",
                &ANSWERS,
            ),
            first_token: times(
                "llmgw_time_to_first_token_seconds",
                "From the call to the first content.",
                &FIRST_TOKENS,
            ),
            inter_token: times(
                "llmgw_inter_token_seconds",
                "The mean time between the tokens of a call.",
                &BETWEEN_TOKENS,
            ),
            overhead: OverheadMeters::new(&registry),
            tokens: counters(
                "llmgw_tokens_total",
                "Tokens, as the engines count them.",
                &["model", "kind"],
            ),
            in_flight: gauge(
                "llmgw_requests_in_flight",
                "Calls that are being answered, or wait.",
            ),
            received: counter("llmgw_requests_received_total", "Calls since the start."),
            journal: gauge(
                "llmgw_usage_journal_records",
                "Usage records that wait to be written.",
            ),
            lost: counter(
                "llmgw_usage_journal_lost_total",
                "Usage records that were lost: a gap in the accounts.",
            ),
            guard: counters(
                "llmgw_guard_decisions_total",
                "Calls that a rule of the guard has matched, by what it did.",
                &["rule", "level", "stage", "action", "model"],
            ),
            guarded: Mutex::default(),
            judge_failures: counters(
                "llmgw_guard_judge_failures_total",
                "Times that a judge of the guard gave no score.",
                &["rule"],
            ),
            counted: RwLock::default(),
            registry,
        }
    }

    /// A judge of the guard gave no score.
    pub fn judge_failed(&self, rule: &RuleName) {
        self.judge_failures
            .with_label_values(&[rule.as_str()])
            .inc();
    }

    /// Counts what the guard did. Rules come and go: of very many, the last have no names here.
    fn guard(&self, model: &ModelName, decision: &Decision) {
        let mut labels = [
            decision.rule.to_string(),
            decision.by.to_string(),
            decision.stage.to_string(),
            decision.action.to_string(),
            model.to_string(),
        ];
        let mut guarded = self.guarded.lock().unwrap_or_else(PoisonError::into_inner);
        if guarded.len() >= MOST_GUARDED && !guarded.contains(&labels) {
            for at in [0, 1, 4] {
                if let Some(label) = labels.get_mut(at) {
                    "other".clone_into(label);
                }
            }
        }
        self.guard.with_label_values(&labels).inc();
        guarded.insert(labels);
    }

    /// Takes a call that is over.
    pub fn call(&self, record: &UsageRecord) {
        for decision in &record.guard {
            self.guard(&record.model, decision);
        }
        let model = self.of(&record.model);
        let mut requests = model.lock();
        match requests.iter().find(|(status, _)| *status == record.status) {
            Some((_, counter)) => counter.inc(),
            None => {
                let mut buffer = [0; 3];
                let labels = [record.model.as_str(), digits(record.status, &mut buffer)];
                let counter = self.requests.with_label_values(&labels);
                counter.inc();
                requests.push((record.status, counter));
            }
        }
        drop(requests);
        model.duration.observe(record.duration.as_secs_f64());
        if let Some(first) = record.time_to_first_token {
            let labels = [record.model.as_str()];
            let of = |family: &HistogramVec| family.with_label_values(&labels);
            model
                .first_token
                .get_or_init(|| of(&self.first_token))
                .observe(first.as_secs_f64());
            if let Some(seconds) = between_tokens(record.duration, first, record.completion_tokens)
            {
                model
                    .inter_token
                    .get_or_init(|| of(&self.inter_token))
                    .observe(seconds);
            }
        }
        let counts = [
            record.prompt_tokens,
            record.cached_tokens,
            record.completion_tokens,
        ];
        for ((kind, counter), tokens) in KINDS.iter().zip(&model.tokens).zip(counts) {
            if tokens.0 > 0 {
                let labels = [record.model.as_str(), kind];
                counter
                    .get_or_init(|| self.tokens.with_label_values(&labels))
                    .inc_by(tokens.0);
            }
        }
    }

    /// Takes what of a call's time was the gateway's own.
    pub fn overhead(&self, times: &OverheadTimes) {
        self.overhead.observe(times);
    }

    /// The numbers of a model.
    fn of(&self, model: &ModelName) -> Arc<OfModel> {
        let counted = self.counted.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = counted.get(model) {
            return Arc::clone(known);
        }
        drop(counted);
        let mut counted = self.counted.write().unwrap_or_else(PoisonError::into_inner);
        let made = counted.entry(model.clone()).or_insert_with(|| {
            let labels = [model.as_str()];
            Arc::new(OfModel {
                duration: self.duration.with_label_values(&labels),
                first_token: OnceLock::new(),
                inter_token: OnceLock::new(),
                tokens: Default::default(),
                requests: Mutex::default(),
            })
        });
        Arc::clone(made)
    }

    /// Forgets the numbers of models that `is_known` does not know.
    pub fn keep(&self, is_known: impl Fn(&ModelName) -> bool) {
        let mut counted = self.counted.write().unwrap_or_else(PoisonError::into_inner);
        counted.retain(|model, numbers| {
            let keep = is_known(model);
            if !keep {
                let name = model.as_str();
                for (status, _) in &*numbers.lock() {
                    let mut buffer = [0; 3];
                    let code = digits(*status, &mut buffer);
                    // One that was never counted there is not there: nothing to remove.
                    drop(self.requests.remove_label_values(&[name, code]));
                }
                for times in [&self.duration, &self.first_token, &self.inter_token] {
                    drop(times.remove_label_values(&[name]));
                }
                for kind in KINDS {
                    drop(self.tokens.remove_label_values(&[name, kind]));
                }
            }
            keep
        });
    }

    /// The text that Prometheus reads.
    #[must_use]
    pub fn text(&self, now: GatewayGauges) -> String {
        let as_gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.in_flight.set(as_gauge(now.in_flight));
        self.journal.set(as_gauge(now.journal));
        // Both only grow; a scrape beside this one may have brought them further already.
        self.received
            .inc_by(now.received.saturating_sub(self.received.get()));
        self.lost.inc_by(now.lost.saturating_sub(self.lost.get()));
        text(&self.registry)
    }
}

impl Default for GatewayMeters {
    fn default() -> Self {
        Self::new()
    }
}

// === impl OfModel ===

impl OfModel {
    fn lock(&self) -> MutexGuard<'_, Vec<(u16, IntCounter)>> {
        // A list that is only added to is right after any panic.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The mean time between tokens; `None` where there are not two.
fn between_tokens(duration: Duration, first: Duration, tokens: Tokens) -> Option<f64> {
    let gaps = u32::try_from(tokens.0).ok()?.checked_sub(1)?;
    let rest = duration.checked_sub(first)?;
    (gaps > 0).then(|| rest.as_secs_f64() / f64::from(gaps))
}

/// The three digits of a status, without an allocation.
fn digits(status: u16, buffer: &mut [u8; 3]) -> &str {
    let status = status.clamp(100, 999);
    for (place, digit) in buffer
        .iter_mut()
        .zip([status / 100, status / 10 % 10, status % 10])
    {
        *place = b'0' + u8::try_from(digit).unwrap_or(0);
    }
    std::str::from_utf8(buffer).unwrap_or("000")
}

/// Kinds of tokens, in the order in which they are counted.
const KINDS: [&str; 3] = ["prompt", "cached", "completion"];
/// Seconds; from an embedding to an hour of reasoning.
const ANSWERS: [f64; 14] = [
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
];
/// Seconds; from a prompt in the cache to a cold start.
const FIRST_TOKENS: [f64; 12] = [
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0,
];
/// Seconds; from 1,000 tokens a second to one.
const BETWEEN_TOKENS: [f64; 10] = [
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 1.0,
];

/// A policy has a thousand rules at most, and few of them ever match.
const MOST_GUARDED: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Timestamp,
        id::{KeyId, RequestId},
    };

    fn record(model: &str, status: u16) -> UsageRecord {
        UsageRecord {
            request: RequestId::generate(),
            key: KeyId::generate(),
            model: model.parse().unwrap(),
            replica: None,
            prompt_tokens: Tokens(7),
            cached_tokens: Tokens(0),
            completion_tokens: Tokens(11),
            estimated: false,
            status,
            started_at: Timestamp(0),
            duration: Duration::from_millis(1_200),
            time_to_first_token: Some(Duration::from_millis(200)),
            level: Default::default(),
            cost: Default::default(),
            guard: Vec::new(),
        }
    }

    fn lines(meters: &GatewayMeters) -> Vec<String> {
        let text = meters.text(GatewayGauges {
            received: 3,
            ..GatewayGauges::default()
        });
        text.lines().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn a_call_is_counted_under_its_model_and_status() {
        let meters = GatewayMeters::new();
        meters.call(&record("a", 200));
        meters.call(&record("a", 200));
        meters.call(&record("a", 499));
        let lines = lines(&meters);
        for line in [
            "llmgw_requests_total{code=\"200\",model=\"a\"} 2",
            "llmgw_requests_total{code=\"499\",model=\"a\"} 1",
            "llmgw_tokens_total{kind=\"prompt\",model=\"a\"} 21",
            "llmgw_tokens_total{kind=\"completion\",model=\"a\"} 33",
            "llmgw_time_to_first_token_seconds_bucket{model=\"a\",le=\"0.25\"} 3",
            "llmgw_time_to_first_token_seconds_bucket{model=\"a\",le=\"0.1\"} 0",
            // A second for ten gaps.
            "llmgw_inter_token_seconds_sum{model=\"a\"} 0.30000000000000004",
            "llmgw_requests_received_total 3",
        ] {
            assert!(lines.iter().any(|one| one == line), "{line}: {lines:#?}");
        }
        assert!(!lines.iter().any(|line| line.contains("cached")));
    }

    #[test]
    fn nothing_is_left_of_a_model_that_is_gone() {
        let meters = GatewayMeters::new();
        meters.call(&record("stays", 200));
        meters.call(&record("goes", 200));
        meters.call(&record("goes", 503));
        meters.keep(|model| model.as_str() == "stays");
        let text = lines(&meters).join("\n");
        assert!(!text.contains("goes"), "{text}");
        assert!(text.contains("stays"));
        // And it may come back.
        meters.call(&record("goes", 200));
        assert!(lines(&meters).join("\n").contains("goes"));
    }

    #[test]
    fn an_answer_of_one_token_has_no_gap() {
        let second = Duration::from_secs(1);
        assert_eq!(between_tokens(second, second, Tokens(1)), None);
        assert_eq!(between_tokens(second, second, Tokens(0)), None);
        assert_eq!(between_tokens(second, second * 2, Tokens(9)), None);
        assert_eq!(between_tokens(second * 2, second, Tokens(3)), Some(0.5));
    }
}
