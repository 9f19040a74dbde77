//! Answers that are no table: the state of the whole, and why a model is not placed.

use llmgw_core::{
    api::{
        admin::{Explanation, Summary},
        settings::SettingsView,
    },
    clock::Timestamp,
    reason::{
        Report,
        remedy::{Awaited, Change},
        render,
    },
    terminal::{lines, one_line},
};

pub(super) fn status(summary: &Summary) -> String {
    let Summary {
        version,
        leading,
        epoch: _,
        store,
        uptime_seconds,
        nodes_ready,
        nodes_total,
        models_satisfied,
        models_total,
        replicas_ready,
        replicas_total,
        requests,
        attention,
        // It is the first of what needs attention, with what goes on.
        frozen: _,
    } = summary;
    let role = if *leading { "leading" } else { "standing by" };
    let mut text = format!(
        "llmgw {}, up {}, {role}, store {}\n\
         Nodes     {nodes_ready} of {nodes_total} ready\n\
         Models    {models_satisfied} of {models_total} satisfied\n\
         Replicas  {replicas_ready} of {replicas_total} ready\n\
         Requests  {requests} since the start\n",
        one_line(version),
        span(*uptime_seconds),
        one_line(store),
    );
    if !attention.is_empty() {
        text.push_str("\nAttention:\n");
    }
    for line in attention {
        text.push_str(&format!("  {}\n", one_line(line)));
    }
    text
}

/// The settings as they would stand in a file.
pub(super) fn settings(settings: &SettingsView) -> String {
    serde_saphyr::to_string(settings).unwrap_or_else(|error| format!("error: {error}\n"))
}

/// A point in time, in UTC: `2026-11-30 09:12:44Z`.
pub(super) fn moment(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(at.0) {
        Ok(moment) => moment.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        // Outside of what a calendar has: the number says at least that.
        Err(_) => at.0.to_string(),
    }
}

pub(super) fn explanation(explanation: &Explanation) -> String {
    let Explanation {
        model,
        placed,
        replicas,
        report,
        headline,
        attention,
    } = explanation;
    let text = if *placed && replicas.is_empty() {
        format!(
            "{model} waits for a request: none of it runs\n{}",
            one_more(report)
        )
    } else if *placed {
        let count = match replicas.len() {
            1 => "1 replica".to_owned(),
            count => format!("{count} replicas"),
        };
        format!(
            "{model} is placed: {count}\n{}{}",
            downloads(report),
            one_more(report)
        )
    } else if *headline == render::headline(report) {
        render::explanation(report)
    } else {
        // The control plane knows more than the trial, such as what it waits for: one line says why, and not two.
        let trial = render::explanation(report);
        let rest = trial.split_once('\n').map_or("", |(_, rest)| rest);
        format!("{headline}\n{rest}")
    };
    let held_up = attention.iter().map(|line| format!("{}\n", one_line(line)));
    lines(&(text + &held_up.collect::<String>()))
}

/// `42s`, `12m`, `5h`, `9d`: the largest unit that gives two of it, as far as there is one.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// What its replicas still wait for.
fn downloads(report: &Report) -> String {
    let waits = report.remedies.iter().filter(|remedy| {
        matches!(
            &remedy.change,
            Change::Wait {
                until: Awaited::Weights { .. },
                ..
            }
        )
    });
    waits
        .map(|remedy| format!("{}: {}\n", remedy.when(), remedy.change))
        .collect()
}

/// What a trial for a further replica found, for a model that has all it should have.
fn one_more(report: &Report) -> String {
    match &report.fits {
        Some(fit) => format!(
            "One more would fit on {} with {}\n",
            fit.hostname, fit.profile
        ),
        None => format!("One more fits nowhere now:\n{}", render::table(report)),
    }
}

#[cfg(test)]
mod tests {
    use llmgw_core::testing::control::MemoryControl;

    use super::*;

    async fn explained(name: &str) -> String {
        let control = MemoryControl::sample().control();
        explanation(
            &control
                .catalog
                .explain(&name.parse().unwrap())
                .await
                .unwrap(),
        )
    }

    #[test]
    fn a_span_is_shown_in_its_largest_unit() {
        for (seconds, shown) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7_199, "119m"),
            (7_200, "2h"),
            (172_800, "2d"),
        ] {
            assert_eq!(span(seconds), shown);
        }
    }

    #[tokio::test]
    async fn status_shows_the_whole_and_what_needs_attention() {
        let control = MemoryControl::sample().control();
        let text = status(&control.fleet.summary().await.unwrap());
        let expected = "\
llmgw 0.1.0, up 2h, leading, store memory
Nodes     2 of 3 ready
Models    1 of 4 satisfied
Replicas  1 of 3 ready
Requests  1036 since the start

Attention:
  broken is parked: the engine ended with signal 4 (SIGILL)
  huge is not placed: 3 nodes, 1 profile, none fits now. Nearest: alpha with default: memory: needs 372.5 GiB, has 18.0 GiB, short by 354.5 GiB
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[tokio::test]
    async fn what_fits_nowhere_is_explained_node_by_node() {
        let text = explained("huge").await;
        let expected = "\
huge is not placed: 3 nodes, 1 profile, none fits now. Nearest: alpha with default: memory: needs 372.5 GiB, has 18.0 GiB, short by 354.5 GiB
NODE   PROFILE  STATE  ENGINE  MEMORY                                                   DISK
alpha  default  ok     ok      372.5 GiB / 18.0 GiB  short 354.5 GiB                    ok
beta   default  lost   ok      372.5 GiB / 12.0 GiB  short 360.5 GiB                    ok
gamma  default  ok     ok      needs 372.5 GiB, and its agent does not say what it has  ok
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[tokio::test]
    async fn what_the_control_plane_knows_better_is_said_instead_of_the_trial() {
        let control = MemoryControl::sample().control();
        let name = "huge".parse().unwrap();
        let mut explained = control.catalog.explain(&name).await.unwrap();
        explained.headline = "huge waits until it is known what its weights are".to_owned();
        let whole = explanation(&explained);
        assert!(
            whole.starts_with(&format!("{}\nNODE ", explained.headline)),
            "{whole}"
        );
        assert!(!whole.contains("is not placed"), "{whole}");
        // Where nothing was tried there is nothing to show.
        explained.report.rejections.clear();
        assert_eq!(explanation(&explained), format!("{}\n", explained.headline));
    }

    #[tokio::test]
    async fn what_is_placed_is_said_to_be() {
        let expected = "\
smollm2-135m is placed: 1 replica
One more would fit on alpha with default
";
        assert_eq!(explained("tiny").await, expected);
    }
}
