//! Decisions for people.

use llmgw_core::{api::decision::Decision, clock::Timestamp};

use super::{tables::Messages, text::span};
use crate::grid::grid;

/// A line for each; what was decided again is shown by its last time, with how often in all.
pub(super) fn table(decisions: &[Decision], now: Timestamp, messages: Messages) -> String {
    let row = |decision: &Decision| {
        let verb = decision.what.verb();
        vec![
            decision.number.to_string(),
            span(now.since(decision.last_at).as_secs()),
            decision.model.to_string(),
            match decision.again {
                0 => verb.to_owned(),
                again => format!("{verb} ({} times)", again.saturating_add(1)),
            },
            messages.shown(&decision.what.why()),
        ]
    };
    grid(
        &["NUMBER", "AGO", "MODEL", "WHAT", "WHY"],
        &[0],
        decisions.iter().map(row),
    )
}

#[cfg(test)]
mod tests {
    use llmgw_core::testing::control::MemoryControl;

    use super::*;

    #[tokio::test]
    async fn each_decision_is_a_line_with_its_reason() {
        let control = MemoryControl::sample().control();
        let decisions = control.catalog.decisions(None, 0, 10).await.unwrap();
        let shown = table(&decisions, Timestamp(1_790_000_360_000), Messages::Cut);
        let expected = [
            "NUMBER  AGO  MODEL         WHAT                   WHY",
            "     1  6m   smollm2-135m  placed                 r-00000001 on alpha with default",
            "     2  5m   huge          not placed (42 times)  huge is not placed: there is no node",
            "     3  6m   broken        placed                 r-00000003 on alpha with default",
            "     4  6m   broken        failed                 r-00000003: the engine ended with signal 4 (SIGILL)",
            "     6  6m   gone          stopped                r-00000004: its model was removed",
        ];
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines, expected, "\n{shown}");
    }
}
