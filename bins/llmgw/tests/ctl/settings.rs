//! The cluster's settings.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_written_tried_and_brought_back() {
    let plane = Plane::sample().await;
    let spread = r#"{"placement": {"policy": "spread"}}"#;
    let file = plane.file("spread.json", spread);
    let said = plane.ctl(&["settings", "put", &file]).await.succeeded();
    assert_eq!(
        said,
        "placement.policy: \"scarcity\" -> \"spread\"\nversion 1 is in force\n"
    );
    let document = plane.ctl(&["config", "get"]).await.succeeded();
    assert_eq!(document, spread);
    let value = ["settings", "get", "placement.policy", "-o", "json"];
    assert_eq!(plane.ctl(&value).await.succeeded(), "\"spread\"\n");

    let file = plane.file("new.json", r#"{"placement": {"policy": "scarcity"}}"#);
    let tried = plane.ctl(&["settings", "try", &file]).await.succeeded();
    assert!(
        tried.starts_with("placement.policy: \"spread\" -> \"scarcity\"\n"),
        "{tried}"
    );
    let put = ["settings", "put", &file, "--base", "0"];
    plane.ctl(&put).await.failed(
        1,
        &[
            "error: base: the settings are at version 1, and not at 0 any more",
            "hint: look at what has changed with `llmgw ctl settings get`, and make your change again",
        ],
    );
    let unset = ["settings", "unset", "placement.policy"];
    assert!(
        plane
            .ctl(&unset)
            .await
            .succeeded()
            .ends_with("version 2 is in force\n")
    );
    let gone = plane.ctl(&unset).await;
    assert_eq!(gone.code, Some(2), "{gone:?}");
    let back = plane.ctl(&["settings", "rollback", "1"]).await.succeeded();
    assert!(
        back.ends_with("version 3 is in force, which brings back 1\n"),
        "{back}"
    );
    let history = plane
        .ctl(&["settings", "history", "--limit", "2"])
        .await
        .succeeded();
    let lines: Vec<&str> = history.lines().collect();
    assert_eq!(lines.len(), 3, "{history}");
    assert!(
        lines[1].starts_with("      3  ") || lines[1].trim_start().starts_with("3 "),
        "{history}"
    );
    let unknown = plane.ctl(&["settings", "rollback", "9"]).await;
    assert!(unknown.err.contains("there is no version 9"), "{unknown:?}");
    let keys = plane.ctl(&["settings", "keys"]).await.succeeded();
    assert!(keys.contains("weights.hub_token_file"), "{keys}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_in_an_editor_is_not_lost_when_it_is_refused() {
    let plane = Plane::sample().await;
    let edit = |with: &str| {
        let mut command = plane.command(&["settings", "edit"]);
        command.env("EDITOR", with).env_remove("VISUAL");
        command.env("TMPDIR", plane.home.path());
        command
    };
    let nothing = run(edit("true")).await;
    assert_eq!(
        (nothing.code, nothing.out.as_str()),
        (Some(0), ""),
        "{nothing:?}"
    );
    assert_eq!(nothing.err, "nothing was changed\n");
    let stopped = run(edit("false")).await;
    assert_eq!(stopped.code, Some(2), "{stopped:?}");

    let good = r#"{"placement": {"policy": "spread"}}"#;
    let editor = plane.file("good.sh", &format!("printf '%s' '{good}' > \"$1\"\n"));
    let done = run(edit(&format!("sh {editor}"))).await.succeeded();
    assert!(done.ends_with("version 1 is in force\n"), "{done}");

    let editor = plane.file("bad.sh", "echo 'frob: 1' > \"$1\"\n");
    let refused = run(edit(&format!("sh {editor}"))).await;
    assert_eq!(
        (refused.code, refused.out.as_str()),
        (Some(2), ""),
        "{refused:?}"
    );
    let hint = refused
        .err
        .lines()
        .find_map(|line| line.strip_prefix("hint: what you wrote is in "));
    let place = hint.unwrap().split(':').next().unwrap();
    assert_eq!(fs::read_to_string(place).unwrap(), "frob: 1\n");
}
