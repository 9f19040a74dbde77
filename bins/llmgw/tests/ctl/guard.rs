//! The guard's rules, shown and tried.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_guard_is_shown_and_tried() {
    let plane = Plane::sample().await;
    let shown = plane.ctl(&["guard"]).await.succeeded();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines,
        [
            "The baseline stands: no policy was given.",
            "RULE             BY  STAGES  ACTION  LOCKED  LOOKS FOR",
            "secrets          /   input   flag            secret",
            "cards            /   input   flag            card",
            "bank-accounts    /   input   flag            iban",
            "social-security  /   input   flag            ssn",
        ],
        "\n{shown}"
    );
    let found = ["guard", "test", "4111 1111 1111 1111", "--level", "acme"];
    let tried = plane.ctl(&found).await.succeeded();
    assert_eq!(
        tried,
        "flag\nRULE   BY  ACTION  TIMES\ncards  /   flag        1\n"
    );
    let clear = ["guard", "test", "4111 1111 1111 1111", "--stage", "output"];
    assert_eq!(plane.ctl(&clear).await.succeeded(), "nothing is found\n");
    let none = plane.ctl(&["guard", "decisions", "--since", "1h"]).await;
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""), "{none:?}");
    assert!(none.err.contains("no rule matched a call"), "{none:?}");
    let unknown = plane
        .ctl(&["guard", "test", "x", "--stage", "sideways"])
        .await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.err.contains("input and output"), "{unknown:?}");
    let long = "x".repeat(40 << 10);
    let refused = plane.ctl(&["guard", "test", &long]).await;
    assert!(refused.err.contains("32768 are the most"), "{refused:?}");
}
