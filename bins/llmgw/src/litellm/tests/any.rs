//! Random configurations and answers, of the fields that are looked at.

use proptest::{prelude::*, sample::select};
use serde_json::{Map, Value, json};

pub(super) fn config() -> impl Strategy<Value = Value> {
    let list = prop::collection::vec(deployment(), 0..6);
    let fallbacks = prop::collection::vec((name(), prop::collection::vec(name(), 0..10)), 0..5);
    let aliases = prop::collection::vec((name(), name()), 0..4);
    (
        list,
        fallbacks,
        aliases,
        prop::collection::vec(name(), 0..4),
        limited(),
    )
        .prop_map(|(list, fallbacks, aliases, for_all, whole)| {
            let fallbacks: Vec<Value> = fallbacks
                .into_iter()
                .map(|(of, to)| json!({of: to}))
                .collect();
            let aliases: Map<String, Value> =
                aliases.into_iter().map(|(a, b)| (a, b.into())).collect();
            let mut whole = whole;
            whole.insert("default_fallbacks".into(), for_all.into());
            json!({
                "model_list": list,
                "router_settings": {"fallbacks": fallbacks, "model_group_alias": aliases},
                "litellm_settings": whole,
            })
        })
}

pub(super) fn accounts() -> impl Strategy<Value = Value> {
    let one = (
        select(vec!["organization_id", "team_id", "project_id", "token"]),
        limited(),
    );
    prop::collection::vec(
        (one, name(), prop::option::of(id()), prop::option::of(id())),
        0..8,
    )
    .prop_map(|all| {
        let all = all.into_iter().enumerate().map(
            |(index, ((kind, mut fields), alias, team, organization))| {
                for (key, value) in [("team_id", team), ("organization_id", organization)] {
                    if let Some(value) = value.filter(|_| kind != "organization_id") {
                        fields.insert(key.into(), value.into());
                    }
                }
                let id = if kind == "token" {
                    format!("t{index}")
                } else {
                    format!("i{}", index % 3)
                };
                fields.insert(kind.into(), id.into());
                let alias_of = if kind == "token" {
                    "key_alias".into()
                } else {
                    kind.replace("_id", "_alias")
                };
                fields.insert(alias_of, alias.into());
                Value::Object(fields)
            },
        );
        Value::Array(all.collect())
    })
}

fn deployment() -> impl Strategy<Value = Value> {
    let provider = select(vec![
        "hosted_vllm/",
        "huggingface/",
        "openai/",
        "ollama/",
        "vllm/o/",
        "",
    ]);
    let cost = prop::option::of(prop_oneof![
        0.0..1e-3,
        Just(1e9),
        Just(-1.0),
        Just(f64::MIN_POSITIVE)
    ]);
    (
        name(),
        provider,
        name(),
        prop::bool::ANY,
        cost,
        0_u64..20_000_000,
    )
        .prop_map(|(group, provider, rest, is_own, cost, context)| {
            let mut params = json!({"model": format!("{provider}{rest}"), "num_ctx": context});
            if is_own {
                params["api_base"] = "http://h".into();
            }
            if let Some(cost) = cost {
                params["input_cost_per_token"] = json!(cost);
                params["output_cost_per_token"] = json!(cost);
            }
            json!({"model_name": group, "litellm_params": params})
        })
}

fn limited() -> impl Strategy<Value = Map<String, Value>> {
    let number = || {
        prop_oneof![
            Just(json!(null)),
            Just(json!(0)),
            Just(json!("x")),
            any::<u32>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from)
        ]
    };
    let models = prop::collection::vec(
        prop_oneof![name(), Just("all-team-models".to_owned())],
        0..3,
    );
    let duration = prop_oneof![
        "[0-9]{1,3}(s|m|h|d|w|mo|x)",
        Just("daily".to_owned()),
        Just(String::new())
    ];
    (number(), number(), number(), number(), duration, models).prop_map(
        |(rpm, tpm, parallel, budget, duration, models)| {
            let fields = json!({
                "rpm_limit": rpm, "tpm_limit": tpm, "max_parallel_requests": parallel, "max_budget": budget,
                "budget_duration": duration, "models": models,
            });
            fields.as_object().cloned().unwrap_or_default()
        },
    )
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        5 => select(vec!["a", "b", "c", "o/r", "o/r2", "x/y/z"]).prop_map(str::to_owned),
        1 => "\\PC{0,8}",
    ]
}

fn id() -> impl Strategy<Value = String> {
    select(vec!["i0", "i1", "i2", "none"]).prop_map(str::to_owned)
}
