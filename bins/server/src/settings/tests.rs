use std::path::Path;

use llmgw_core::units::Bytes;

use super::*;
use crate::fault::Fault;

fn read_file(path: &Path) -> Result<Settings, Fault> {
    let sources = Sources {
        file: Some(path.to_owned()),
        ..Sources::default()
    };
    sources.read("")
}

#[test]
fn a_model_flag_says_all_that_is_needed() {
    let model = model_flag("tiny=file:/m/Tiny.gguf,memory=1GiB,context=512").unwrap();
    assert_eq!(model.name().as_str(), "tiny");
    assert_eq!(model.profiles()[0].memory, Bytes::gib(1));
    assert_eq!(model.profiles()[0].context.0, 512);
    assert_eq!(
        model_flag("file:/m/Tiny.gguf,memory=1GiB")
            .unwrap()
            .name()
            .as_str(),
        "tiny"
    );
    assert_eq!(
        model_flag("starter").unwrap().name().as_str(),
        "smollm2-135m"
    );
}

#[test]
fn the_policy_that_places_is_chosen_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("llmgw.yaml");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read_file(&path)
    };
    assert_eq!(read("models: []").unwrap().policy, PolicyName::Scarcity);
    let spread = read("placement: {policy: spread}").unwrap();
    assert_eq!(spread.policy, PolicyName::Spread);
    for spelled in ["best_fit", "best-fit"] {
        let read = read(&format!("placement: {{policy: {spelled}}}")).unwrap();
        assert_eq!(read.policy, PolicyName::BestFit);
        assert_eq!(read.policy.to_string(), "best_fit");
    }
    let error = read("placement: {policy: random}").unwrap_err().render();
    assert!(
        error.contains("random") && error.contains("best_fit"),
        "{error}"
    );
}

#[test]
fn pools_are_named_by_models_and_engines_and_must_be_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("llmgw.yaml");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read_file(&path)
    };
    let pools = "pools: {fast: {gpu: h200}}\n";
    let of = |pool: &str| {
        format!(
            "{pools}engines: {{vllm: {{pool: {pool}}}}}\nmodels: [{{name: a, source: 'file:/m', profiles: \
             [{{memory: 1GiB, pool: {pool}}}]}}]"
        )
    };
    let settings = read(&of("fast")).unwrap();
    let pool = |engine: &WantedEngine| engine.pool.clone();
    let engines: Vec<_> = settings.wanted_engines().iter().map(pool).collect();
    assert_eq!(engines, [None, Some("fast".to_owned())]);
    assert_eq!(settings.pools.by_name()["fast"]["gpu"], "h200");
    let model = "models: [{name: a, source: 'file:/m', profiles: [{memory: 1GiB, pool: slow}]}]";
    for (text, says) in [
        (
            format!("{pools}engines: {{vllm: {{pool: slow}}}}"),
            "engines.vllm.pool: there is no pool slow",
        ),
        (
            format!("{pools}{model}"),
            "models[0].profiles[0].pool: there is no pool slow",
        ),
        (model.to_owned(), "the settings name no pool"),
        (
            "pools: {fast: {}}".to_owned(),
            "pools.fast: no label makes a node one of it",
        ),
        (
            "pools: {fast: {gpu: ''}}".to_owned(),
            "pools.fast.gpu: it is no label",
        ),
        ("pools: {fast: h200}".to_owned(), "llmgw.yaml:1:"),
    ] {
        let error = read(&text).unwrap_err().render();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn a_model_of_a_hub_needs_neither_digest_nor_memory() {
    let model = model_flag("big=hf:a/b/c.gguf").unwrap();
    assert!(!model.is_complete());
    assert_eq!(model.weights().sha256, None);
    assert!(!model.profiles()[0].is_sized());
}

#[test]
fn what_is_said_of_weights_is_checked_and_the_token_is_read_and_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("llmgw.yaml");
    let token = directory.path().join("hub.token");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read_file(&path)
    };
    std::fs::write(&token, "hf_secret\n").unwrap();
    let all = format!(
        "weights: {{evict: true, mirror: \"http://m/x\", hub_token_file: {}}}",
        token.display()
    );
    let settings = read(&all).unwrap();
    assert!(settings.weights.evict);
    assert_eq!(settings.weights.mirror.as_deref(), Some("http://m/x"));
    let secret = settings.weights.hub_token.as_ref().unwrap();
    assert_eq!(secret.secret(), "hf_secret");
    assert!(!format!("{settings:?}").contains("hf_secret"));
    std::fs::write(&token, "two words hf_secret").unwrap();
    for (text, says) in [
        (all.as_str(), "weights.hub_token_file: "),
        (
            "weights: {mirror: ftp}",
            "weights.mirror: \"ftp\" is no address",
        ),
        ("weights: {evict: true, keep: 1}", "keep"),
        (
            "weights: {hub_token_file: /nonexistent}",
            "weights.hub_token_file: /nonexistent",
        ),
    ] {
        let error = read(text).unwrap_err().render();
        assert!(
            error.contains(says) && !error.contains("hf_secret"),
            "{error}"
        );
    }
}

#[test]
fn a_model_flag_that_cannot_be_right_is_refused_with_what_is_wrong() {
    for (text, says) in [
        ("tiny=pip:p==1/m.gguf", "memory is missing"),
        (
            "tiny=file:/m.gguf,memory=much",
            "memory: \"much\" is not a size",
        ),
        (
            "tiny=file:/m.gguf,memory=1GiB,gpus=2",
            "gpus is not a setting",
        ),
        (
            "tiny=file:/m.gguf,memory=1GiB,memory=2GiB",
            "memory stands there twice",
        ),
        ("tiny=https://a/c.gguf,memory=1GiB", "sha256: missing"),
        ("x", "begins with hf:"),
    ] {
        let error = model_flag(text).unwrap_err().render();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn a_settings_file_is_checked_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("llmgw.yaml");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read_file(&path)
    };
    let settings = read(
        "models:\n  - name: tiny\n    source: file:/m.gguf\n    profiles: [{memory: 1GiB}]\n\
         engines:\n  llamacpp: {path: /opt/llama-server}\n",
    )
    .unwrap();
    assert_eq!(settings.models.len(), 1);
    let path = EngineSource::Path("/opt/llama-server".to_owned());
    assert_eq!(settings.wanted_engines()[0].source, path);
    let settings = read(
        "models:\n  - {name: a, source: file:/m, profiles: [{memory: 1GiB, engine: vllm}]}\n  - {name: b, source: \
         file:/m, profiles: [{memory: 1GiB, engine: mine}]}\nengines:\n  sglang: {lock: /l.txt}\n  mine: {command: \
         [/s, '{port}'], health: /h, ready: /r, stop: SIGINT, metrics: {path: /m, running: r}, probe: {path: /p, body: \
         {n: 1}, expect: x}}\n",
    )
    .unwrap();
    let wanted: Vec<_> = settings
        .wanted_engines()
        .into_iter()
        .map(|one| (one.name.to_string(), one.source))
        .collect();
    let [
        llamacpp,
        (mine, EngineSource::Custom(described)),
        sglang,
        vllm,
    ] = &wanted[..]
    else {
        panic!("{wanted:?}");
    };
    assert_eq!((mine.as_str(), described.ready()), ("mine", "/r"));
    let auto = |name: &str| (name.to_owned(), EngineSource::Auto);
    assert_eq!((llamacpp, vllm), (&auto("llamacpp"), &auto("vllm")));
    assert_eq!(sglang.1, EngineSource::Lock("/l.txt".to_owned()));
    for (text, says) in [
        ("models: [", "llmgw.yaml:1:9: "),
        ("models:\n  - name: a\n    source: [\n", "llmgw.yaml:3:13: "),
        // What is lacking before the fault is not what is wrong.
        (
            "models:\n  - name: a\n  source: file:/m\n",
            "llmgw.yaml:3:3: ",
        ),
        ("modles: []", "llmgw.yaml:1:1: unknown field `modles`"),
        (
            "models:\n  - name: a\n    source: file:/m\n",
            "llmgw.yaml:3:5: missing field `profiles`",
        ),
        ("engines: {mine: {}}", "engines.mine: not an engine"),
        (
            "engines: {llamacpp: {lock: /l.txt}}",
            "engines.llamacpp.lock: it is no Python environment",
        ),
        (
            "engines: {vllm: {lock: /l.txt, path: /p}}",
            "engines.vllm.lock: a path stands beside it",
        ),
        (
            "engines: {vllm: {command: [/s, '{port}'], health: /h}}",
            "engines.vllm: this release describes it itself",
        ),
        (
            "engines: {mine: {path: /s}}",
            "engines.mine: this release does not know it",
        ),
        (
            "engines: {mine: {command: [/s, '{port}']}}",
            "engines.mine.health: it is missing",
        ),
        (
            "engines: {mine: {command: [/s, '{port}', '{gpu}'], health: /h}}",
            "engines.mine.command[2]: {gpu} is not a placeholder",
        ),
        (
            "models: [{name: a, source: 'file:/m', profiles: [{memory: 1GiB, engine: mine}]}]",
            "models[0].profiles[0].engine: mine is not an engine",
        ),
        (
            "engines: {llamacpp: {source: path}}",
            "engines.llamacpp.path: is missing",
        ),
        (
            "models: [{name: a, source: 'file:/m', profiles: []}]",
            "models[0].profiles: there is none",
        ),
    ] {
        let error = read(text).unwrap_err().render();
        assert!(error.contains(says), "{text}: {error}");
    }
}

/// What a file and flags come to with a document over them.
fn over(file: &str, flags: &[&str], document: &str) -> Result<Settings, Fault> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("llmgw.yaml");
    std::fs::write(&path, file).unwrap();
    let sources = Sources {
        file: Some(path),
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        starter: true,
    };
    sources.read(document)
}

fn names(settings: &Settings) -> Vec<&str> {
    let names = settings.models.iter().map(|model| model.name().as_str());
    names.collect()
}

const A_AND_B: &str = "\
models:
  - {name: a, source: file:/a.gguf, profiles: [{memory: 1GiB}]}
  - {name: b, source: file:/b.gguf, profiles: [{memory: 1GiB}]}
pools: {fast: {gpu: h200}, slow: {gpu: none}}
engines: {llamacpp: {version: b1}, vllm: {pool: fast}}
queue: {max_total: 8, activation_timeout: 20s}
weights: {mirror: 'http://mirror.example/m', evict: true}
";

#[test]
fn a_document_stands_over_a_file_name_by_name_and_field_by_field() {
    let document = "\
models:
  - {name: b, source: file:/other.gguf, profiles: [{memory: 2GiB}]}
  - {name: c, source: file:/c.gguf, profiles: [{memory: 1GiB, pool: slow}]}
pools: {fast: {gpu: b200}}
engines: {llamacpp: {version: b2}}
queue: {max_total: 4}
placement: {policy: spread}
weights: {evict: false}
";
    let flag = "d=file:/d.gguf,memory=1GiB";
    let settings = over(A_AND_B, &[flag], document).unwrap();
    assert_eq!(names(&settings), ["a", "d", "b", "c"]);
    assert_eq!(settings.models[2].profiles()[0].memory, Bytes::gib(2));
    let version = |name: &str| settings.engines[name].version().to_owned();
    assert_eq!(version("llamacpp"), "b2");
    assert!(settings.engines.contains_key("vllm"));
    assert_eq!(settings.pools.by_name()["fast"]["gpu"], "b200");
    assert_eq!(settings.pools.by_name()["slow"]["gpu"], "none");
    assert_eq!(settings.queue.max_total, 4);
    assert_eq!(settings.queue.activation_timeout.as_secs(), 20);
    assert_eq!(settings.policy, PolicyName::Spread);
    assert!(!settings.weights.evict);
    let mirror = settings.weights.mirror.as_deref();
    assert_eq!(mirror, Some("http://mirror.example/m"));

    let alone = over(A_AND_B, &[flag], "").unwrap();
    assert_eq!(names(&alone), ["a", "b", "d"]);
    assert_eq!(alone.queue.max_total, 8);
}

#[test]
fn the_starter_model_stays_beside_what_a_document_names() {
    let starter = "smollm2-135m";
    let one = "models: [{name: a, source: file:/a.gguf, profiles: [{memory: 1GiB}]}]";
    assert_eq!(names(&over("{}", &[], "").unwrap()), [starter]);
    assert_eq!(names(&over("{}", &[], one).unwrap()), [starter, "a"]);
    assert_eq!(names(&over(one, &[], "").unwrap()), ["a"]);
    let of_its_name = one.replace("name: a", "name: smollm2-135m");
    let settings = over("{}", &[], &of_its_name).unwrap();
    assert_eq!(names(&settings), [starter]);
    assert!(settings.models[0].profiles()[0].memory == Bytes::gib(1));
}

#[test]
fn what_a_document_can_not_say_is_refused_by_its_place_there() {
    for (document, says) in [
        ("frob: 1", "document:1:1: "),
        ("queue:\n  max_total: x", "document:2:14: "),
        ("[", "document:"),
        (
            "weights: {hub_token_file: /etc/shadow}",
            "document: weights.hub_token_file: it names a file of one machine",
        ),
        (
            "queue: {max_total: 0}",
            "document: queue.max_total: 0 is not between",
        ),
        (
            "models: [{name: b, source: file:/x, profiles: [{memory: 0}]}]",
            "document: models[0].",
        ),
        (
            "models: [{name: d, source: file:/x, profiles: [{memory: 1GiB}]}]",
            "document: the name d is declared twice",
        ),
        (
            "models: [{name: e, aliases: [a], source: file:/x, profiles: [{memory: 1GiB}]}]",
            "document: the name a is declared twice",
        ),
        (
            "engines: {vllm: {pool: frob}}",
            "document: engines.vllm.pool: ",
        ),
        (
            "models: [{name: e, source: file:/x, profiles: [{memory: 1GiB, engine: frob}]}]",
            "document: models[0].profiles[0].engine: frob is not an engine",
        ),
    ] {
        let fault = over(A_AND_B, &["d=file:/d.gguf,memory=1GiB"], document).unwrap_err();
        let shown = fault.to_string();
        assert!(shown.starts_with(says), "{document}: {shown}");
    }
}

#[test]
fn every_key_of_the_table_is_one_and_the_readme_has_it() {
    let readme = include_str!("../../../../README.md");
    for key in KEYS {
        assert!(readme.contains(key.path), "{}", key.path);
    }
    for key in KEYS
        .iter()
        .filter(|key| !key.path.contains("NAME") && key.path != "models")
    {
        let (part, field) = key.path.split_once('.').unwrap();
        // A map is what no key takes: it is known, and refused for what it is.
        let error = over(&format!("{part}: {{{field}: {{}}}}"), &[], "").unwrap_err();
        assert!(!error.to_string().contains("unknown"), "{error}");
    }
}

#[test]
fn a_policy_of_the_guard_is_read_whole_and_what_can_not_be_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("llmgw.yaml");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read_file(&path)
    };
    assert_eq!(
        read("models: []").unwrap().guard,
        None,
        "the baseline stands"
    );
    let policy = read(
        "guard:\n  rules:\n  - {name: secrets, pii: [secret], action: redact, stages: both, locked: true}\n  \
         levels: {acme: {rules: [{name: words, keywords: [blue], action: block}]}}",
    );
    let policy = policy.unwrap().guard.unwrap();
    assert_eq!(policy.of(&"acme/search".parse().unwrap()).count(), 2);
    for (text, part) in [
        (
            "guard: {rules: [{name: bad, regex: '(', action: flag}]}",
            "guard.rules[bad].regex: unclosed group",
        ),
        (
            "guard: {rules: [{name: bad, regex: a, pii: [card], action: flag}]}",
            "guard.rules[bad]: it must say exactly one",
        ),
        ("guard: {rule: []}", "rule"),
        (
            "guard: {rules: [{name: a, pii: [card], action: shout}]}",
            "shout",
        ),
    ] {
        let error = read(text).unwrap_err().render();
        assert!(error.contains(part), "{text}: {error}");
    }
}
