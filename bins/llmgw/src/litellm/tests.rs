//! Whole configurations and answers, and whatever random ones there are.

use std::io::Write as _;

use llmgw_core::{
    clock::Timestamp,
    cluster::{catalog::Model, tenancy::Limits},
    control::{check_level_removal, check_new_level},
};
use llmgw_server::settings::Sources;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Fate, Given, Imported, Options, read};

mod any;

const CONFIG: &str = r#"
model_list:
  - model_name: chat
    litellm_params:
      model: hosted_vllm/org/chat-7b
      api_base: http://user:hunter2@10.0.0.1:8000
      api_key: sk-secret-of-a-server
      rpm: 100
    model_info: {max_input_tokens: 8192, input_cost_per_token: 0.00000015, output_cost_per_token: 6e-7}
  - model_name: chat
    litellm_params: {model: hosted_vllm/org/chat-7b, api_base: "http://10.0.0.2:8000", input_cost_per_token: 0.00000015, output_cost_per_token: 6e-7}
    model_info: {max_input_tokens: 8192}
  - model_name: chat-too
    litellm_params: {model: huggingface/org/chat-7b, input_cost_per_token: 0.00000015, output_cost_per_token: 6e-7}
    model_info: {max_input_tokens: 8192}
  - model_name: small
    litellm_params: {model: "ollama/llama3.2:1b"}
  - model_name: gpt-4o
    litellm_params: {model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY}
  - model_name: other
    litellm_params: {model: openai/org/other, api_base: "os.environ/BASE", temperature: 0.1}
router_settings:
  model_group_alias: {gpt-4: chat, hidden: {model: chat, hidden: false}, lost: gpt-4o}
  fallbacks: [{chat: [small, other]}, {other: [gpt-4]}]
  routing_strategy: simple-shuffle
litellm_settings:
  context_window_fallbacks: [{chat: [small]}]
  max_budget: 100
  budget_duration: 30d
general_settings:
  master_key: sk-the-master
  database_url: postgresql://me:swordfish@host/db
environment_variables: {REDIS_PASSWORD: correct-horse}
surprise: {anything: 1}
"#;

fn accounts() -> Value {
    json!({"teams": [
        {"team_id": "t-1", "team_alias": "Search & Find", "organization_id": "o-1", "models": ["chat", "openai/*"],
         "max_budget": 70.0, "budget_duration": "7d", "spend": 3.0,
         "keys": [{"token": "88dc28d0f030c55ed4ab77ed8faf098196cb1c05df778539800c9f1243fe6b4b", "key_name": "sk-...wxyz",
                   "key_alias": "indexer", "team_id": "t-1", "team_max_budget": 70.0, "models": ["all-team-models"],
                   "rpm_limit": 60, "tpm_limit": 1000, "max_parallel_requests": 4, "expires": "2026-12-02T00:00:00+00:00"}]},
        {"team_id": "t-2", "team_alias": "alone", "blocked": true},
        {"team_id": "t-3", "team_alias": "lost", "organization_id": "o-9"},
    ], "organizations": [
        {"organization_id": "o-1", "organization_alias": "acme", "models": [],
         "litellm_budget_table": {"max_budget": 10.0, "budget_duration": "1d", "soft_budget": 5.0}},
    ], "keys": [
        {"token": "h2", "team_id": "t-9", "models": []},
        {"token": "h3", "models": [], "expires": "2020-01-01T00:00:00"},
        {"token": "h4", "models": [], "rpm_limit": 0},
        {"token": "h5", "blocked": true},
        "88dc28d0f030c55ed4ab77ed8faf098196cb1c05df778539800c9f1243fe6b4c",
    ], "total_pages": 2})
}

fn imported(files: &[(&str, &str)], sources: &[(&str, &str)]) -> Imported {
    let given: Vec<Given<'_>> = files
        .iter()
        .map(|(name, text)| Given { name, text })
        .collect();
    let options = Options {
        sources: sources
            .iter()
            .map(|(name, source)| ((*name).into(), (*source).into()))
            .collect(),
        now: Timestamp(1_796_083_200_000),
    };
    read(&given, &options).unwrap()
}

fn of_all() -> Imported {
    let accounts = accounts().to_string();
    imported(
        &[("config.yaml", CONFIG), ("accounts.json", &accounts)],
        &[],
    )
}

/// The reason that is told of what stands at a path.
fn why<'a>(imported: &'a Imported, path: &str) -> &'a str {
    let at = imported.remarks.iter().find(|remark| remark.path == path);
    at.map_or_else(
        || panic!("{path} is not told of: {:#?}", imported.remarks),
        |remark| &remark.why,
    )
}

/// Everything that is made can be what it is made for.
fn check(imported: &Imported) {
    let text = serde_saphyr::to_string(&imported.settings).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let settings = Sources {
        file: Some(file.path().to_owned()),
        ..Sources::default()
    };
    let settings = settings.read("");
    let settings = settings.unwrap_or_else(|fault| panic!("{fault:?}\n{text}"));
    let models: Vec<&Model> = settings.models.iter().collect();
    assert_eq!(llmgw_core::cluster::catalog::fallback_faults(&models), []);
    let mut names: Vec<&str> = Vec::new();
    for model in &models {
        names.push(model.name().as_str());
        names.extend(model.aliases().iter().map(|alias| alias.as_str()));
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name is given twice");
    let mut levels = Vec::new();
    for level in &imported.accounts.levels {
        if level.path.is_cluster() {
            level.limits.check("limits").unwrap();
            continue;
        }
        levels.push(check_new_level(level.clone(), &levels, Timestamp(0)).unwrap());
    }
    for key in &imported.accounts.keys {
        key.limits.check("limits").unwrap();
        llmgw_core::control::check_key_name(&key.name).unwrap();
        assert!(key.level.is_cluster() || levels.iter().any(|level| level.path == key.level));
        assert!(key.expires_in.is_none_or(|span| !span.0.is_zero()));
    }
    for price in &imported.accounts.prices {
        assert!(
            models
                .iter()
                .any(|model| model.answers_to(price.model.as_str()))
        );
        let model = price.model.clone();
        llmgw_core::control::check_price(price.clone(), model, Timestamp(0)).unwrap();
    }
    for level in &levels {
        let keys = imported.accounts.keys.iter().map(|key| &key.level);
        drop(check_level_removal(&level.path, &levels, keys));
    }
}

#[test]
fn models_have_their_sources_aliases_fallbacks_and_prices() {
    let all = of_all();
    check(&all);
    let settings = serde_json::to_value(&all.settings).unwrap();
    let gpu = |context: Value| {
        let mut profile = json!({"engine": "vllm", "gpus": {"count": 1}});
        if context.is_number() {
            profile["context"] = context;
        }
        json!([profile])
    };
    assert_eq!(
        settings,
        json!({"models": [
            {"name": "chat", "source": "hf:org/chat-7b/model.safetensors.index.json", "replicas": 2,
             "aliases": ["chat-too", "gpt-4", "hidden"], "fallbacks": ["other"], "profiles": gpu(json!(8192))},
            {"name": "other", "source": "hf:org/other/model.safetensors.index.json", "profiles": gpu(Value::Null)},
        ]}),
        "{settings:#}"
    );
    let prices = serde_json::to_value(&all.accounts.prices).unwrap();
    assert_eq!(
        prices,
        json!([{"model": "chat", "prompt": 150_000, "completion": 600_000}])
    );
}

#[test]
fn what_is_not_carried_is_told_with_its_place() {
    let all = of_all();
    for (path, says) in [
        ("model_list[3]", "llama3.2:1b is a name in Ollama's library"),
        ("model_list[4]", "openai is a provider elsewhere"),
        ("model_list[2]", "it is an alias of chat"),
        (
            "model_list[0].litellm_params.rpm",
            "llmgw limits keys and levels",
        ),
        (
            "model_list[0].litellm_params.api_key",
            "it opens a server that llmgw does not ask",
        ),
        (
            "model_list[5].litellm_params.temperature",
            "llmgw sends what the client asked for",
        ),
        (
            "router_settings.model_group_alias.lost",
            "its model is not carried",
        ),
        ("router_settings.fallbacks[0].chat", "small is not carried"),
        (
            "router_settings.fallbacks[1].other",
            "chat falls back to other already",
        ),
        (
            "router_settings.routing_strategy",
            "llmgw asks the replica with the least",
        ),
        (
            "litellm_settings.context_window_fallbacks",
            "llmgw falls back where a model can't serve",
        ),
        (
            "general_settings.master_key",
            "it is a secret, and opened LiteLLM",
        ),
        ("environment_variables", "secrets are not carried"),
        ("surprise", "llmgw has no such setting"),
        ("teams[0].models", "openai/* is no name of a model"),
        (
            "teams[0].budget_duration",
            "there are budgets of an hour, a day",
        ),
        ("teams[0].spend", "what was spent is not carried"),
        ("teams[2]", "its organisation is not carried"),
        (
            "organizations[0].litellm_budget_table.soft_budget",
            "it only warned",
        ),
        ("keys[0]", "its team is not carried"),
        ("keys[1].expires", "the key has ended"),
        ("keys[2].rpm_limit", "nothing could be done with it"),
        ("keys[3]", "it is blocked"),
        ("keys[4]", "it is only the hash of a key"),
        ("total_pages", "it is one page of 2"),
    ] {
        assert!(
            why(&all, path).starts_with(says),
            "{path}: {}",
            why(&all, path)
        );
    }
    let rpm = |remark: &&super::Remark| remark.path.ends_with("params.rpm");
    assert_eq!(all.remarks.iter().find(rpm).unwrap().line, Some(8));
    let changed = all
        .remarks
        .iter()
        .filter(|remark| remark.fate == Fate::Changed);
    assert!(changed.count() >= 5);
}

#[test]
fn levels_and_keys_are_never_wider_than_they_were() {
    let all = of_all();
    let levels: Vec<(String, Value)> = all
        .accounts
        .levels
        .iter()
        .map(|level| {
            (
                level.path.to_string(),
                serde_json::to_value(&level.limits).unwrap(),
            )
        })
        .collect();
    let budget = |micros: u64, period: &str| json!([{"amount_micros": micros, "period": period, "kind": "hard"}]);
    assert_eq!(
        levels,
        [
            (
                "/".to_owned(),
                json!({"budgets": budget(100_000_000, "month")})
            ),
            (
                "acme".to_owned(),
                json!({"budgets": budget(10_000_000, "day")})
            ),
            (
                "acme/Search---Find".to_owned(),
                json!({"models": ["chat"], "budgets": budget(10_000_000, "day")})
            ),
            ("alone".to_owned(), json!({"models": []})),
        ]
    );
    let keys = serde_json::to_value(&all.accounts.keys).unwrap();
    assert_eq!(
        keys,
        json!([
            {"name": "imported 3", "limits": {"models": []}},
            {"name": "indexer", "level": "acme/Search---Find", "expires_in": "1day",
             "limits": {"requests_per_minute": 60, "tokens_per_minute": 1000, "concurrent": 4}},
        ])
    );
}

#[test]
fn no_secret_is_told() {
    let all = of_all();
    let told = serde_json::to_string(&all).unwrap();
    for secret in [
        "hunter2",
        "sk-",
        "swordfish",
        "correct-horse",
        "88dc28d0",
        "wxyz",
    ] {
        assert!(!told.contains(secret), "{secret} is told");
    }
    // The name of a variable is told, as it says where the value is.
    let one = imported(
        &[(
            "c.yaml",
            "model_list: [{model_name: m, litellm_params: {model: os.environ/MODEL}}]",
        )],
        &[],
    );
    assert!(why(&one, "model_list[0].litellm_params.model").contains("the variable MODEL"));
}

#[test]
fn a_source_that_is_said_stands_for_any_model() {
    let sources = [
        ("gpt-4o", "hf:org/own/m.gguf"),
        ("small", "https://host/m.gguf"),
    ];
    let all = imported(&[("config.yaml", CONFIG)], &sources);
    check(&all);
    let model = |name: &str| all.settings.models.iter().find(|model| model.name == name);
    let own = serde_json::to_value(model("gpt-4o").unwrap()).unwrap();
    assert_eq!(
        own,
        json!({"name": "gpt-4o", "aliases": ["lost"], "source": "hf:org/own/m.gguf", "profiles": [{}]})
    );
    // What can't be right is told as it is of a definition.
    assert!(model("small").is_none());
    assert!(why(&all, "model_list[3]").starts_with("sha256: missing"));
}

#[test]
fn a_file_that_is_neither_is_refused_by_its_name() {
    let wrong = |text: &str| {
        let given = [Given {
            name: "x.yaml",
            text,
        }];
        read(&given, &Options::default()).unwrap_err().to_string()
    };
    assert!(wrong("a: 1").starts_with("x.yaml: it is neither LiteLLM's configuration"));
    assert!(wrong("model_list: [").starts_with("x.yaml:1:"));
    assert!(wrong("[{a: 1}]").starts_with("x.yaml: it is neither"));
    assert!(imported(&[("x.json", "[]")], &[]).remarks.is_empty());
}

#[test]
fn what_is_alike_is_told_once() {
    let one = |number: usize| {
        format!("- {{model_name: m{number}, litellm_params: {{model: openai/gpt}}}}\n")
    };
    let text = format!("model_list:\n{}", (0..30).map(one).collect::<String>());
    let all = imported(&[("config.yaml", &text)], &[]);
    assert_eq!(all.remarks.len(), 1);
    assert_eq!((all.remarks[0].line, all.remarks[0].others), (Some(2), 29));
}

#[test]
fn default_fallbacks_are_those_of_every_other_model() {
    let text = "
model_list:
  - {model_name: a, litellm_params: {model: vllm/o/a}}
  - {model_name: b, litellm_params: {model: vllm/o/b}}
  - {model_name: c, litellm_params: {model: vllm/o/c}}
litellm_settings: {default_fallbacks: [a, b]}
";
    let all = imported(&[("config.yaml", text)], &[]);
    check(&all);
    let fallbacks: Vec<_> = all
        .settings
        .models
        .iter()
        .map(|model| model.fallbacks.clone())
        .collect();
    assert_eq!(
        fallbacks,
        [vec![], vec!["a".to_owned()], vec!["a".into(), "b".into()]]
    );
    assert!(
        why(&all, "litellm_settings.default_fallbacks").starts_with("b falls back to a already")
    );
}

#[test]
fn whoever_has_an_unreadable_limit_is_allowed_nothing() {
    for limit in [
        json!({"max_budget": "os.environ/BUDGET"}),
        json!({"max_budget": "much"}),
        json!({"max_budget": -1}),
        json!({"rpm_limit": 1.5}),
        json!({"tpm_limit": {"a": 1}}),
        json!({"max_parallel_requests": 0}),
    ] {
        let mut key = json!({"token": "t", "key_alias": "k"});
        key.as_object_mut()
            .unwrap()
            .extend(limit.as_object().unwrap().clone());
        let all = imported(&[("k.json", &json!({"keys": [key]}).to_string())], &[]);
        let expected = Limits {
            models: Some(Vec::new()),
            ..Limits::default()
        };
        assert_eq!(all.accounts.keys[0].limits, expected, "{limit}");
        assert_eq!(all.remarks.len(), 1, "{limit}: {:#?}", all.remarks);
    }
}

proptest! {
    #[test]
    fn whatever_is_carried_can_be_right(config in any::config(), accounts in any::accounts()) {
        let files = [("config.yaml", config.to_string()), ("accounts.json", accounts.to_string())];
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        check(&imported(&files, &[]));
    }

    #[test]
    fn changed_bytes_are_read_or_refused(at in any::<prop::sample::Index>(), length in 0_usize..40, new in "\\PC{0,12}") {
        let mut text: Vec<char> = CONFIG.chars().collect();
        let at = at.index(text.len());
        let end = (at + length).min(text.len());
        text.splice(at..end, new.chars());
        let text: String = text.into_iter().collect();
        if let Ok(imported) = read(&[Given { name: "c", text: &text }], &Options::default()) {
            check(&imported);
        }
    }
}
