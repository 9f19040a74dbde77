//! Embeds the store: who holds the lease may write, and whoever was overtaken may not.
//!
//! `cargo run -p llmgw-examples --example store`

use std::time::Duration;

use llmgw_core::{
    clock::Timestamp,
    cluster::catalog::Model,
    store::{self, StoreError, StoredModel},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = store::open("memory:").await?;
    let model: Model = serde_json::from_str(MODEL)?;
    let model = StoredModel {
        model,
        added_at: Timestamp(0),
    };

    let first = store
        .acquire_lease("first", Duration::from_secs(10))
        .await?;
    store.release_lease(first.epoch).await?;
    let second = store
        .acquire_lease("second", Duration::from_secs(10))
        .await?;

    let late = store.insert_model(first.epoch, &model).await;
    assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
    store.insert_model(second.epoch, &model).await?;
    say(&format!(
        "{}: {} model",
        store.describe(),
        store.models().await?.len()
    ));
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it found")]
fn say(text: &str) {
    println!("{text}");
}

const MODEL: &str =
    r#"{"name": "m", "source": "file:/models/m.gguf", "profiles": [{"memory": "1GiB"}]}"#;
