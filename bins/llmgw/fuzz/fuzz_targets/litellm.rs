//! Any text as LiteLLM's configuration, or as what its admin API answered: nobody panics, what is carried can be right, and
//! no value of a secret is told.
//!
//! `cargo fuzz run litellm` with a nightly toolchain; a stable one builds it as `llmgw-bundle/fuzz` says.
#![no_main]

#[path = "../../src/lib.rs"]
mod llmgw;

use libfuzzer_sys::fuzz_target;
use llmgw_core::{
    clock::Timestamp,
    cluster::catalog::{Model, fallback_faults},
};

use self::llmgw::litellm::{Given, Options, read};

fuzz_target!(|text: &str| {
    let files = [Given { name: "f", text }];
    let options = Options {
        now: Timestamp(1_796_083_200_000),
        ..Options::default()
    };
    let Ok(imported) = read(&files, &options) else {
        return;
    };
    let models = imported.settings.models.into_iter();
    let models: Vec<Model> = models
        .map(|model| Model::try_from(model).unwrap())
        .collect();
    let models: Vec<&Model> = models.iter().collect();
    assert_eq!(fallback_faults(&models), []);
    for level in &imported.accounts.levels {
        level.limits.check("limits").unwrap();
    }
    for key in &imported.accounts.keys {
        key.limits.check("limits").unwrap();
        assert!(
            imported
                .accounts
                .levels
                .iter()
                .any(|level| level.path == key.level)
                || key.level.is_cluster()
        );
    }
    // A mark that stands for a secret, where secrets stand.
    let told = serde_json::to_string(&imported.remarks).unwrap();
    assert!(
        !told.contains("hunter2")
            || text.matches("hunter2").count() != text.matches("api_key: hunter2").count()
    );
});
