//! `llmgw ctl logs`: what the engines of a model wrote, and write.
//!
//! Lines of engines are the answer. What is said about them (which replica, why it ended, what follows it) goes beside
//! it, as with every other answer; for programs, both are entries, one on a line.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use llmgw_core::{
    api::{
        admin::ReplicaView,
        log::{LogFrom, LogPart},
        orders::{LogOf, LogView},
    },
    control::{Control, ControlError, LogReader},
    error::Code,
    id::{ModelName, ReplicaId},
    terminal::line as clean,
};
use serde::Serialize;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    failure::{Cause, Failure},
    output::{Format, Shown},
};

#[derive(Args, Clone, Debug)]
pub(super) struct LogsArgs {
    /// A model or an alias
    model: ModelName,
    /// Go on with what is written, until interrupted
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Of this replica alone, as `replicas` lists it; its whole id also finds one that is gone
    #[arg(long, value_name = "ID")]
    replica: Option<String>,
    /// How many of the last lines of each replica
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    lines: u32,
}

/// One line of an engine, or something that is said about them.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    replica: Option<ReplicaId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<&'a str>,
    of: LogOf,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// Tells lines and notes as they come.
#[derive(Debug)]
struct Teller {
    format: Format,
    /// Lines say whose they are.
    are_several: bool,
    /// Whether a line was told.
    has_told: bool,
    /// Nobody reads any more.
    is_unheard: bool,
}

/// A reader that has read, and what.
type Read = (LogReader, Result<LogPart, ControlError>);

/// Whose log is read, and where that replica is.
type Whose<'a> = (ReplicaId, &'a str);

/// Tells what there is, and goes on if that is asked for.
pub(super) async fn logs(
    control: &Control,
    format: Format,
    args: LogsArgs,
) -> Result<Shown, Failure> {
    let kept = control.fleet.logs(&args.model).await?;
    let (replicas, left_out) = args.chosen(control).await?;
    let mut teller = Teller {
        format,
        are_several: replicas.len() > 1,
        has_told: false,
        is_unheard: false,
    };
    if args.replica.is_none() {
        let first = kept.iter().filter(|log| log.of == LogOf::FirstFailure);
        for log in first {
            teller.first_failure(log)?;
        }
    }
    let mut readers = Vec::new();
    let mut refused = None;
    for (id, hostname) in &replicas {
        let from = LogFrom::Last(args.lines);
        let mut reader = LogReader::new(control.logs.clone(), *id, from);
        let whose = (*id, hostname.as_str());
        match reader.now().await {
            Ok(part) => {
                teller.part(whose, &part)?;
                if part.end.is_none() {
                    readers.push(reader);
                }
            }
            Err(error) => {
                let known = kept.iter().find(|log| log.replica == Some(*id));
                let known = known.filter(|log| !log.lines.is_empty());
                let Some(log) = known else {
                    teller.note(Some(whose), &format!("{}: {error}", id.short()))?;
                    if error.code != Code::NotFound {
                        readers.push(reader);
                    }
                    refused.get_or_insert(error);
                    continue;
                };
                // What its node told when it failed.
                let error = log.error.as_deref().unwrap_or("it has ended");
                teller.note(Some(whose), &format!("{}: {error}", id.short()))?;
                teller.lines(whose, &log.lines)?;
            }
        }
    }
    if left_out > 0 {
        let note = format!(
            "{left_out} more replicas of {} are not read: {MOST} are at a time; --replica ID reads one of them",
            args.model
        );
        teller.note(None, &note)?;
    }
    if replicas.is_empty() {
        let why = control.catalog.explain(&args.model).await?.headline;
        teller.note(None, &format!("there is no replica: {why}"))?;
    }
    if args.follow {
        let known = replicas.into_iter().collect();
        return follow(control, &args, teller, readers, known).await;
    }
    match refused {
        Some(error) if !teller.has_told => Err(error.into()),
        _ => Ok(Shown::line(String::new())),
    }
}

/// Goes on with every replica there is and comes, until nobody reads any more.
async fn follow(
    control: &Control,
    args: &LogsArgs,
    mut teller: Teller,
    readers: Vec<LogReader>,
    mut known: BTreeMap<ReplicaId, String>,
) -> Result<Shown, Failure> {
    let mut reading: JoinSet<Read> = JoinSet::new();
    let mut troubles: BTreeMap<ReplicaId, String> = BTreeMap::new();
    for reader in readers {
        reading.spawn(read(reader, Duration::ZERO));
    }
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !teller.is_unheard {
        let joined = tokio::select! {
            Some(joined) = reading.join_next() => joined,
            _ = look.tick() => {
                let there = match args.chosen(control).await {
                    // The model was removed; what its replicas write to their end is told.
                    Err(failure) if failure.cause == Cause::NotFound && !reading.is_empty() => continue,
                    there => there?.0,
                };
                for (id, hostname) in there {
                    if known.contains_key(&id) {
                        continue;
                    }
                    if reading.len() >= MOST {
                        break;
                    }
                    teller.are_several = true;
                    let whose = (id, hostname.as_str());
                    teller.note(Some(whose), &format!("{} begins on {hostname}", id.short()))?;
                    let reader = LogReader::new(control.logs.clone(), id, LogFrom::After(0));
                    reading.spawn(read(reader, Duration::ZERO));
                    known.insert(id, hostname);
                }
                continue;
            }
        };
        let (reader, part) = joined
            .map_err(|error| Failure::new(Cause::Refused, format!("reading a log: {error}")))?;
        let id = reader.replica();
        let hostname = known.get(&id).map_or("", String::as_str);
        match part {
            Ok(part) => {
                troubles.remove(&id);
                teller.part((id, hostname), &part)?;
                if part.end.is_none() {
                    reading.spawn(read(reader, Duration::ZERO));
                } else if args.replica.is_some() {
                    return Ok(Shown::line(String::new()));
                }
            }
            Err(error) => {
                let text = format!("{}: {error}", id.short());
                // What lasts is told once.
                if troubles.insert(id, text.clone()).as_ref() != Some(&text) {
                    teller.note(Some((id, hostname)), &text)?;
                }
                if error.code != Code::NotFound {
                    reading.spawn(read(reader, AGAIN));
                } else if args.replica.is_some() {
                    return Err(error.into());
                }
            }
        }
    }
    Ok(Shown::line(String::new()))
}

async fn read(mut reader: LogReader, pause: Duration) -> Read {
    if !pause.is_zero() {
        sleep(pause).await;
    }
    let part = reader.next().await;
    (reader, part)
}

// === impl LogsArgs ===

impl LogsArgs {
    /// The replicas whose logs are asked for, and where they are; and how many more there are.
    async fn chosen(
        &self,
        control: &Control,
    ) -> Result<(Vec<(ReplicaId, String)>, usize), Failure> {
        let all = control.fleet.replicas(Some(&self.model)).await?;
        let Some(name) = &self.replica else {
            let left_out = all.len().saturating_sub(MOST);
            let read = all.into_iter().take(MOST);
            let read = read.map(|view| (view.id, view.hostname)).collect();
            return Ok((read, left_out));
        };
        let named = |view: &ReplicaView| view.id.short() == *name || view.id.to_string() == *name;
        if let Some(view) = all.into_iter().find(named) {
            return Ok((vec![(view.id, view.hostname)], 0));
        }
        // It may be gone, and its log be there.
        let Ok(id) = name.parse() else {
            let message = format!("{} has no replica {}", self.model, clean(name));
            return Err(Failure::new(Cause::NotFound, message).with_hint(format!(
                "`llmgw ctl replicas --model {}` lists those there are",
                self.model
            )));
        };
        Ok((vec![(id, String::new())], 0))
    }
}

// === impl Teller ===

impl Teller {
    /// The first of the failures that parked the model.
    fn first_failure(&mut self, log: &LogView) -> Result<(), Failure> {
        let error = log.error.as_deref().unwrap_or("it is not known why");
        let note = format!("the first failure of {}: {error}", log.model);
        self.tell(None, LogOf::FirstFailure, None, Some(&note))?;
        for line in &log.lines {
            self.tell(None, LogOf::FirstFailure, Some(line), None)?;
        }
        Ok(())
    }

    fn part(&mut self, whose: Whose<'_>, part: &LogPart) -> Result<(), Failure> {
        let short = whose.0.short();
        if part.skipped.0 > 0 {
            let note = format!(
                "{short}: {} are not there any more: its log had grown too large",
                part.skipped
            );
            self.note(Some(whose), &note)?;
        }
        self.lines(whose, &part.lines)?;
        match &part.end {
            Some(end) => self.note(Some(whose), &format!("{short} {end}")),
            None => Ok(()),
        }
    }

    fn lines(&mut self, whose: Whose<'_>, lines: &[String]) -> Result<(), Failure> {
        for line in lines {
            self.tell(Some(whose), LogOf::Replica, Some(line), None)?;
        }
        Ok(())
    }

    fn note(&mut self, whose: Option<Whose<'_>>, note: &str) -> Result<(), Failure> {
        self.tell(whose, LogOf::Replica, None, Some(note))
    }

    fn tell(
        &mut self,
        whose: Option<Whose<'_>>,
        of: LogOf,
        line: Option<&str>,
        note: Option<&str>,
    ) -> Result<(), Failure> {
        self.has_told |= line.is_some();
        let entry = Entry {
            replica: whose.map(|(id, _)| id),
            hostname: whose
                .map(|(_, hostname)| hostname)
                .filter(|name| !name.is_empty()),
            of,
            line,
            note,
        };
        let shown = match self.format {
            Format::Table => self.for_people(&entry),
            Format::Json => Shown::line(format!("{}\n", json(&entry)?)),
            Format::Yaml => Shown::line(format!("---\n{}\n", json(&entry)?)),
        };
        self.is_unheard |= !shown.write_on()?;
        Ok(())
    }

    fn for_people(&self, entry: &Entry<'_>) -> Shown {
        let Entry {
            replica,
            line,
            note,
            ..
        } = entry;
        let nothing = Shown::line(String::new());
        if let Some(note) = note {
            return nothing.with_remark((*note).to_owned());
        }
        let line = clean(line.unwrap_or_default());
        match replica {
            Some(id) if self.are_several => Shown::line(format!("{} | {line}\n", id.short())),
            _ => Shown::line(format!("{line}\n")),
        }
    }
}

fn json(entry: &Entry<'_>) -> Result<String, Failure> {
    serde_json::to_string(entry).map_err(|error| Failure::new(Cause::Refused, error.to_string()))
}

/// Replicas that are read at a time: as many questions as one node answers.
const MOST: usize = 16;

/// How often it is looked which replicas there are.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Before a log is asked for again that could not be read.
const AGAIN: Duration = Duration::from_secs(2);
