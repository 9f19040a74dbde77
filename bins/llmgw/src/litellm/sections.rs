//! The parts of `config.yaml`, and what becomes of each.

use super::{
    accounts::Accounts,
    document::{Fields, Node, Place},
    models::{Models, is_secret},
    told::Told,
};

/// Whether a document is a configuration, and not an answer of the admin API.
pub(super) fn is_configuration(document: &Node) -> bool {
    let entries = document.map().unwrap_or_default();
    entries
        .iter()
        .any(|(key, _)| SECTIONS.contains(&key.as_str()))
}

/// Reads a configuration.
pub(super) fn read(
    mut fields: Fields<'_>,
    models: &mut Models,
    accounts: &mut Accounts,
    told: &mut Told,
) {
    let root = fields.place.clone();
    if let Some(list) = fields.take("model_list") {
        models.read(list, &root.key("model_list"), told);
    }
    for section in ["litellm_settings", "router_settings", "general_settings"] {
        let Some(node) = fields.take(section) else {
            continue;
        };
        match Fields::of(node, &root.key(section)) {
            Some(mut fields) => {
                routing(&mut fields, models, told);
                accounts.whole(&mut fields, told);
                for (key, node) in fields.rest() {
                    let (why, help) = fate(key);
                    told.left(&fields.place.key(key), node, why, help);
                }
            }
            None => told.left(&root.key(section), node, "it is no map", ""),
        }
    }
    for (key, node) in fields.rest() {
        let (why, help) = match key {
            "environment_variables" | "credential_list" => (SECRET, ""),
            "include" => (
                "files that it includes are not looked for",
                "name them too, behind this one",
            ),
            "guardrails" | "policies" => (GUARD, ""),
            _ => fate(key),
        };
        told.left(&root.key(key), node, why, help);
    }
}

/// What stands in `router_settings`, and in `litellm_settings` just as well.
fn routing(fields: &mut Fields<'_>, models: &mut Models, told: &mut Told) {
    let at = |fields: &Fields<'_>, key: &str| -> Place { fields.place.key(key) };
    if let Some(node) = fields.take("model_group_alias") {
        models
            .routing
            .aliases(node, &at(fields, "model_group_alias"), told);
    }
    if let Some(node) = fields.take("fallbacks") {
        models
            .routing
            .fallbacks(node, &at(fields, "fallbacks"), told);
    }
    if let Some(node) = fields.take("default_fallbacks") {
        models
            .routing
            .for_all(node, &at(fields, "default_fallbacks"));
    }
}

/// Why a setting is not carried, and what would help.
fn fate(key: &str) -> (&'static str, &'static str) {
    match key {
        "context_window_fallbacks" => (
            "llmgw falls back where a model can't serve, and not for what it was asked: a prompt that is too long gets \
             400 context_length_exceeded",
            "give the model a larger context, or fall back in the client",
        ),
        "content_policy_fallbacks" => (
            "llmgw falls back where a model can't serve, and not for what it was asked",
            "",
        ),
        "master_key" => (
            "it is a secret, and opened LiteLLM: llmgw's admin token is made at its start",
            "`llmgw ctl tokens create` makes others, with roles",
        ),
        "database_url" => (
            "it is a secret, and LiteLLM's store",
            "`llmgw-server --store` names llmgw's own",
        ),
        "default_key_generate_params"
        | "upperbound_key_generate_params"
        | "default_internal_user_params"
        | "default_team_settings"
        | "default_team_params"
        | "max_internal_user_budget"
        | "internal_user_budget_duration"
        | "max_end_user_budget" => (
            "llmgw has no defaults for keys and users that are made later",
            "limit the level that they belong to: its limits hold for all keys beneath it",
        ),
        "num_retries"
        | "request_timeout"
        | "timeout"
        | "stream_timeout"
        | "allowed_fails"
        | "cooldown_time"
        | "retry_after"
        | "retry_policy"
        | "max_retries"
        | "model_group_retry_policy"
        | "max_fallbacks"
        | "allowed_fails_policy" => (
            "time-outs, retries and circuits are those of the gateway, for all models",
            "",
        ),
        "routing_strategy"
        | "routing_strategy_args"
        | "enable_tag_filtering"
        | "enable_pre_call_checks"
        | "optional_pre_call_checks"
        | "routing_groups" => (
            "llmgw asks the replica with the least outstanding work, and keeps to one that has the prompt's beginning",
            "",
        ),
        "guardrails" | "policies" => (GUARD, ""),
        "callbacks"
        | "success_callback"
        | "failure_callback"
        | "service_callback"
        | "callback_settings"
        | "alerting"
        | "alerting_args"
        | "alert_types"
        | "alert_to_webhook_url" => (
            "what happens is told by metrics, logs, usage and the audit log",
            "`llmgw ctl usage`, and /metrics on the admin listener",
        ),
        "cache" | "cache_params" | "enable_caching_on_provider_specific_optional_params" => (
            "answers are not cached: engines keep the beginnings of prompts",
            "",
        ),
        "drop_params" | "modify_params" | "additional_drop_params" => {
            ("what a client asked goes to the engine unchanged", "")
        }
        _ if is_secret(key) => (SECRET, ""),
        _ => ("llmgw has no such setting", ""),
    }
}

const SECRET: &str = "secrets are not carried";
const GUARD: &str = "rules have another form here";
const SECTIONS: [&str; 6] = [
    "model_list",
    "litellm_settings",
    "router_settings",
    "general_settings",
    "environment_variables",
    "include",
];
