//! What everybody counted, compared.

use std::{collections::BTreeMap, time::Duration};

use clap::ValueEnum;
use llmgw_core::id::RequestId;
use sqlx::{Connection as _, PgConnection};
use tokio::time::{Instant, sleep};

use crate::{
    counts::Counted,
    crowd::{Call, Outcome},
};

/// What the store has of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Row {
    prompt: u64,
    completion: u64,
    estimated: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// How many calls ended how.
    pub(crate) outcomes: BTreeMap<String, usize>,
    /// Streams, and other calls, that ended as none may.
    pub(crate) wrong_ends: Vec<String>,
    /// Calls whose records are not as the engines counted.
    pub(crate) wrong_counts: Vec<String>,
    /// Calls that engines saw, and records that were compared with them.
    pub(crate) seen: usize,
    pub(crate) compared: usize,
    /// Tokens that engines counted of whole answers, and that the store has of them.
    pub(crate) tokens: (u64, u64),
    /// Records that are estimates.
    pub(crate) estimated: usize,
}

/// A fault that is planted, to see that it is found.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Fault {
    /// A record is missing
    LostRecord,
    /// A record says one token more
    WrongCount,
    /// A stream ends without an end
    TornStream,
}

/// The records of the store, once there is one for each call that an engine saw, or after a minute.
pub(crate) async fn rows(
    store: &str,
    calls: &[Call],
    engines: &BTreeMap<String, Vec<Counted>>,
) -> anyhow::Result<BTreeMap<String, Row>> {
    let mut connection = PgConnection::connect(store).await?;
    let begun = Instant::now();
    loop {
        type Told = (uuid::Uuid, i64, i64, bool);
        let told: Vec<Told> = sqlx::query_as(
            "SELECT request, prompt_tokens, completion_tokens, estimated FROM llmgw.usage",
        )
        .fetch_all(&mut connection)
        .await?;
        let mut rows = BTreeMap::new();
        for (request, prompt, completion, estimated) in told {
            let row = Row {
                prompt: u64::try_from(prompt)?,
                completion: u64::try_from(completion)?,
                estimated,
            };
            rows.insert(RequestId::from_uuid(request).to_string(), row);
        }
        let answered = calls
            .iter()
            .filter(|call| matches!(call.outcome, Outcome::Whole(_)));
        let ids = answered
            .filter_map(|call| call.id.as_ref())
            .chain(engines.keys());
        let missing = ids
            .filter(|id| is_call(id) && !rows.contains_key(*id))
            .count();
        if missing == 0 || begun.elapsed() > Duration::from_secs(60) {
            connection.close().await?;
            return Ok(rows);
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Compares them.
pub(crate) fn check(
    calls: &[Call],
    engines: &BTreeMap<String, Vec<Counted>>,
    rows: &BTreeMap<String, Row>,
    planted: Option<Fault>,
) -> Checked {
    let (mut calls, mut rows) = (calls.to_vec(), rows.clone());
    plant(planted, &mut calls, &mut rows);
    let mut checked = Checked {
        estimated: rows.values().filter(|row| row.estimated).count(),
        ..Checked::default()
    };
    let mut by_id: BTreeMap<&str, &Call> = BTreeMap::new();
    for call in &calls {
        let kind = match &call.outcome {
            Outcome::Whole(_) => "whole".to_owned(),
            Outcome::Broken(_, code) => format!("ended in an error event: {code}"),
            Outcome::Left(_) => "left by the client".to_owned(),
            Outcome::Refused(status, code) => format!("refused: {status} {code}"),
            Outcome::Wrong(what) => {
                checked
                    .wrong_ends
                    .push(format!("{}: {what}", call.id.as_deref().unwrap_or("?")));
                "ended as none may".to_owned()
            }
        };
        *checked.outcomes.entry(kind).or_default() += 1;
        if let Outcome::Whole(tokens) = call.outcome
            && tokens != call.asked
        {
            let id = call.id.as_deref().unwrap_or("?");
            checked
                .wrong_ends
                .push(format!("{id}: {tokens} tokens of {}", call.asked));
        }
        if let Some(id) = &call.id {
            by_id.insert(id, call);
        }
    }
    for (id, counted) in engines.iter().filter(|(id, _)| is_call(id)) {
        checked.seen += 1;
        let Some(row) = rows.get(id) else {
            checked.wrong_counts.push(format!(
                "{id}: an engine saw it, and the store has no record"
            ));
            continue;
        };
        checked.compared += 1;
        let Some(call) = by_id.get(id.as_str()) else {
            checked.wrong_counts.push(format!("{id}: no client had it"));
            continue;
        };
        if let Some(what) = differs(call, counted, row) {
            checked.wrong_counts.push(format!(
                "{id}: {what}; {:?}; {counted:?}; {row:?}",
                call.outcome
            ));
        }
        if let Outcome::Whole(_) = call.outcome {
            let most = counted.iter().map(|one| one.prompt + one.completion).max();
            checked.tokens.0 += most.unwrap_or_default();
            checked.tokens.1 += row.prompt + row.completion;
        }
    }
    for (id, row) in rows.iter().filter(|(id, _)| !engines.contains_key(*id)) {
        if row.completion > 0 || row.prompt > 0 {
            checked.wrong_counts.push(format!(
                "{id}: no engine saw it, and the store says {row:?}"
            ));
        }
    }
    checked
}

/// Why a record is not what the engines counted; they are several where a call was tried again.
fn differs(call: &Call, counted: &[Counted], row: &Row) -> Option<&'static str> {
    let most = counted.iter().max_by_key(|one| one.completion)?;
    if most.prompt != call.prompt {
        return Some("the engine counted another prompt than was sent");
    }
    let Row {
        prompt,
        completion,
        estimated,
    } = *row;
    match &call.outcome {
        Outcome::Whole(_) => {
            let same = prompt == most.prompt && completion == most.completion && !estimated;
            (!same).then_some("of a whole answer, not what the engine counted")
        }
        Outcome::Broken(delivered, _) => {
            if completion != *delivered {
                return Some("of a broken answer, not what was delivered");
            }
            let told = most.running && completion > 0;
            (told && (prompt != most.prompt || estimated))
                .then_some("of a broken answer that told its usage, not that")
        }
        Outcome::Left(read) => {
            let between = *read <= completion && completion <= most.completion;
            (!between)
                .then_some("of an answer that was left, neither what was read nor what was counted")
        }
        Outcome::Refused(..) => (completion > 0).then_some("of a refused call, an answer"),
        Outcome::Wrong(_) => None,
    }
}

fn plant(fault: Option<Fault>, calls: &mut [Call], rows: &mut BTreeMap<String, Row>) {
    let whole = calls
        .iter_mut()
        .find(|call| matches!(call.outcome, Outcome::Whole(_)));
    let Some((call, id)) = whole
        .and_then(|call| Some((call.id.clone()?, call)))
        .map(|(id, call)| (call, id))
    else {
        return;
    };
    match fault {
        None => {}
        Some(Fault::LostRecord) => drop(rows.remove(&id)),
        Some(Fault::WrongCount) => {
            if let Some(row) = rows.get_mut(&id) {
                row.completion += 1;
            }
        }
        Some(Fault::TornStream) => call.outcome = Outcome::Wrong("planted".to_owned()),
    }
}

/// Whether it is a client's, and not one of an agent that looks whether its engine computes.
fn is_call(id: &str) -> bool {
    id.starts_with("req-")
}
