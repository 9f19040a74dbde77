//! Reasons as text for people: a line for "why", a table for "where", a line for each remedy.

use std::collections::BTreeSet;

use crate::reason::{Check, Reason, Rejection, Report, remedy::Remedy};

/// One line: `big is not placed: 3 nodes, 1 profile, none fits now. Nearest: …`.
#[must_use]
pub fn headline(report: &Report) -> String {
    let model = &report.model;
    if let Some(fit) = &report.fits {
        return format!("{model} fits on {} with {}", fit.hostname, fit.profile);
    }
    let (replicas, missing) = (report.replicas, report.missing);
    let (state, none) = match replicas.checked_sub(missing) {
        Some(placed) if placed > 0 && missing > 0 => {
            let has = format!("{model} has {placed} of {replicas} replicas");
            (has, "no further one fits now")
        }
        _ => (format!("{model} is not placed"), "none fits now"),
    };
    if report.nodes == 0 {
        return format!("{state}: there is no node");
    }
    let mut line = format!(
        "{state}: {}, {}, {none}",
        counted(report.nodes, "node"),
        counted(report.profiles, "profile"),
    );
    if let Some(nearest) = &report.nearest {
        line.push_str(". Nearest: ");
        line.push_str(&rejection(nearest));
    }
    line
}

/// One line: `gpu-3 with q4: memory: needs 372.5 GiB, has 21.0 GiB, short by 351.5 GiB`.
#[must_use]
pub fn rejection(rejection: &Rejection) -> String {
    let reasons: Vec<String> = rejection.reasons.iter().map(reason).collect();
    format!(
        "{} with {}: {}",
        rejection.hostname,
        rejection.profile,
        reasons.join("; ")
    )
}

/// A table of every rejected node and profile, one line each, with a heading.
///
/// Columns are padded to their widest cell; a check that passed is `ok`. A check that is not made of every replica
/// has a column where it failed somewhere.
#[must_use]
pub fn table(report: &Report) -> String {
    let reasons = report
        .rejections
        .iter()
        .flat_map(|rejection| &rejection.reasons);
    let failed: BTreeSet<Check> = reasons.map(|reason| reason.check).collect();
    let shown = |check: &&Check| check.is_always_made() || failed.contains(*check);
    let checks: Vec<Check> = Check::ALL.iter().filter(shown).copied().collect();
    let mut rows = vec![vec!["NODE".to_owned(), "PROFILE".to_owned()]];
    if let Some(heading) = rows.first_mut() {
        heading.extend(checks.iter().map(|check| match check {
            // The first column has that name.
            Check::Node => "STATE".to_owned(),
            other => other.as_str().to_uppercase().replace('_', " "),
        }));
    }
    for rejection in &report.rejections {
        let mut row = vec![rejection.hostname.clone(), rejection.profile.to_string()];
        row.extend(checks.iter().map(|check| cell(rejection, *check)));
        rows.push(row);
    }
    columns(&rows)
}

/// The whole answer to "why is it not placed": headline, table, remedies.
#[must_use]
pub fn explanation(report: &Report) -> String {
    let mut text = headline(report);
    text.push('\n');
    if !report.rejections.is_empty() {
        text.push_str(&table(report));
    }
    if !report.remedies.is_empty() {
        text.push_str("What would help (each was tried):\n");
        let rows: Vec<Vec<String>> = report.remedies.iter().map(remedy).collect();
        text.push_str(&columns(&rows));
    }
    text
}

/// When, what, and where the model is placed then.
fn remedy(remedy: &Remedy) -> Vec<String> {
    let places = remedy.places.as_ref();
    let places = places.map(|fit| format!("places on {} with {}", fit.hostname, fit.profile));
    vec![
        format!("  {}", remedy.when()),
        remedy.change.to_string(),
        places.unwrap_or_default(),
    ]
}

fn reason(reason: &Reason) -> String {
    let check = reason.check.as_str().replace('_', " ");
    format!("{check}: {}", reason.detail)
}

fn cell(rejection: &Rejection, check: Check) -> String {
    let Some(reason) = rejection
        .reasons
        .iter()
        .find(|reason| reason.check == check)
    else {
        return "ok".to_owned();
    };
    match (&reason.have, reason.short_by) {
        (Some(have), Some(short)) => format!("{} / {have}  short {short}", reason.need),
        (Some(have), None) => have.to_string(),
        (None, _) => reason.detail.clone(),
    }
}

/// Lines of cells, padded to the widest of each column and parted by two spaces.
fn columns(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let line: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}
