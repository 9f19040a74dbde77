use super::*;

fn read(json: &str) -> Result<Policy, String> {
    let definition: PolicyDefinition =
        serde_json::from_str(json).map_err(|error| error.to_string())?;
    Policy::checked(definition, "guard").map_err(|error| error.to_string())
}

fn names(policy: &Policy, level: &str) -> Vec<String> {
    let held = policy.of(&level.parse().unwrap());
    held.map(|held| format!("{}@{}", held.rule.name, held.by))
        .collect()
}

#[test]
fn levels_add_replace_and_switch_off_from_the_organisation_down() {
    let policy = read(
        r#"{
            "rules": [
                {"name": "a", "pii": ["secret"], "action": "redact", "locked": true},
                {"name": "b", "keywords": ["x"], "action": "block"},
                {"name": "c", "regex": "y", "action": "flag"}
            ],
            "levels": {
                "acme/search": {"off": ["c"], "rules": [{"name": "d", "keywords": ["z"], "action": "flag"}]},
                "acme": {"off": ["b"], "rules": [{"name": "c", "regex": "q", "action": "flag"}]}
            }
        }"#,
    )
    .unwrap();
    assert_eq!(names(&policy, "/"), ["a@/", "b@/", "c@/"]);
    assert_eq!(names(&policy, "other/team"), ["a@/", "b@/", "c@/"]);
    assert_eq!(names(&policy, "acme"), ["a@/", "c@acme"]);
    let searching = ["a@/", "d@acme/search"];
    assert_eq!(names(&policy, "acme/search"), searching);
    assert_eq!(names(&policy, "acme/search/indexer"), searching);
    let nearest = |level: &str| policy.nearest(&level.parse().unwrap()).to_string();
    assert_eq!(nearest("acme/search/indexer"), "acme/search");
    assert_eq!(nearest("acme/other"), "acme");
    assert_eq!(nearest("other"), "/");
}

#[test]
fn what_is_locked_binds_all_beneath_who_locked_it() {
    let locked = r#""rules": [{"name": "a", "pii": ["card"], "action": "block", "locked": true}]"#;
    let error = read(&format!(
        r#"{{{locked}, "levels": {{"x": {{"off": ["a"]}}}}}}"#
    ))
    .unwrap_err();
    assert_eq!(error, "guard.levels.x.off: a is locked by the cluster");
    let inner = format!(r#"{{"levels": {{"x": {{{locked}}}, "x/y": {{{locked}}}}}}}"#);
    let error = read(&inner).unwrap_err();
    assert_eq!(
        error,
        "guard.levels.x/y.rules[a]: the rule of that name is locked by the organisation x"
    );
}

#[test]
fn what_cannot_be_meant_is_refused_with_the_rule_that_it_is_in() {
    let rule = |rest: &str| format!(r#"{{"rules": [{{"name": "a", {rest}}}]}}"#);
    let long = format!(r#""action": "flag", "regex": "{}""#, "x".repeat(5000));
    let judge = |rest: &str| {
        rule(&format!(
            r#""action": "block", "judge": {{"model": "m", "prompt": "p", {rest}}}"#
        ))
    };
    for (json, part) in [
        (
            rule(r#""action": "flag""#),
            "guard.rules[a]: it must say exactly one",
        ),
        (
            rule(r#""action": "flag", "regex": "a", "pii": ["card"]"#),
            "guard.rules[a]: it must say exactly one",
        ),
        (rule(r#""action": "flag", "pii": []"#), "guard.rules[a].pii"),
        (
            rule(r#""action": "flag", "pii": ["shoe-size"]"#),
            "shoe-size",
        ),
        (rule(r#""action": "shout", "pii": ["card"]"#), "shout"),
        (
            rule(r#""action": "flag", "pii": ["card"], "stage": "input""#),
            "stage",
        ),
        (rule(r#""pii": ["card"]"#), "action"),
        (
            rule(r#""action": "flag", "keywords": []"#),
            "guard.rules[a].keywords",
        ),
        (
            rule(r#""action": "flag", "keywords": ["a", " "]"#),
            "guard.rules[a].keywords[1]",
        ),
        (
            rule(r#""action": "flag", "regex": """#),
            "guard.rules[a].regex",
        ),
        (rule(&long), "guard.rules[a].regex"),
        (
            rule(r#""action": "flag", "regex": "a", "message": "a\nb""#),
            "guard.rules[a].message",
        ),
        (
            rule(r#""action": "redact", "judge": {"model": "m", "prompt": "p"}"#),
            "guard.rules[a].action",
        ),
        (judge(r#""threshold": 0"#), "guard.rules[a].judge.threshold"),
        (
            judge(r#""threshold": 1.5"#),
            "guard.rules[a].judge.threshold",
        ),
        (judge(r#""timeout": "1ms""#), "guard.rules[a].judge.timeout"),
        (judge(r#""url": "http://x""#), "url"),
        (
            r#"{"rules": [{"name": "a b", "pii": ["card"], "action": "flag"}]}"#.to_owned(),
            "guard.rules[0].name",
        ),
        (
            r#"{"rules": [
                {"name": "a", "pii": ["card"], "action": "flag"},
                {"name": "a", "pii": ["card"], "action": "flag"}
            ]}"#
            .to_owned(),
            "guard.rules[a]: there are two",
        ),
        (r#"{"levels": {"/": {}}}"#.to_owned(), "guard.levels./"),
        (r#"{"levels": {"a/b/c/d": {}}}"#.to_owned(), "a/b/c/d"),
        (
            r#"{"levels": {"x": {"off": ["gone"]}}}"#.to_owned(),
            "guard.levels.x.off: no rule gone holds here",
        ),
        (r#"{"rule": []}"#.to_owned(), "rule"),
    ] {
        let error = read(&json).expect_err(&json);
        assert!(error.contains(part), "{json}: {error}");
    }
    let many: Vec<String> = (0..1_025)
        .map(|index| format!(r#"{{"name": "r{index}", "pii": ["card"], "action": "flag"}}"#))
        .collect();
    let error = read(&format!(r#"{{"rules": [{}]}}"#, many.join(","))).unwrap_err();
    assert!(error.starts_with("guard.rules: there are 1025"), "{error}");
}

#[test]
fn the_baseline_is_what_its_own_words_make() {
    let baseline = Policy::baseline();
    assert!(baseline.is_baseline());
    assert_eq!(baseline.of(&LevelPath::CLUSTER).count(), 4);
    for held in baseline.of(&LevelPath::CLUSTER) {
        assert_eq!(held.rule.action, Action::Flag);
        assert_eq!(
            held.rule.stages,
            Stages::INPUT,
            "streams pass without a wait"
        );
    }
    let json = serde_json::to_string(baseline.definition()).unwrap();
    let written = read(&json).unwrap();
    let rules = |policy: &Policy| {
        let held = policy.of(&LevelPath::CLUSTER);
        held.map(|held| held.rule.clone()).collect::<Vec<_>>()
    };
    assert_eq!(rules(&written), rules(&baseline));
}
