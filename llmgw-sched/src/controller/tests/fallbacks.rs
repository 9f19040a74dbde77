use super::*;

#[tokio::test(start_paused = true)]
async fn what_others_fall_back_to_stays_and_an_added_model_outlives_its_declared_fallback() {
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::starting_at(Timestamp(0)));
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock)));
    let declared = vec![model("declared", "1GiB")];
    let first = restarted(declared, Arc::clone(&store), Arc::clone(&clock)).await;
    let falling_back = |name: &str, to: &str| {
        let mut json = definition(name, "1GiB");
        json["fallbacks"] = serde_json::json!([to]);
        json
    };
    let add = |json| first.handle.add(serde_json::from_value(json).unwrap());
    let refused = add(falling_back("a", "b")).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidRequest);
    assert_eq!(
        refused.message,
        "fallbacks[0]: missing fallback: there is no model b"
    );
    add(falling_back("b", "declared")).await.unwrap();
    add(falling_back("a", "b")).await.unwrap();
    let refused = first.handle.remove(&name("b")).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (Code::Conflict, "a falls back to b")
    );
    first.handle.remove(&name("a")).await.unwrap();
    first.stop().await;

    let second = restarted(Vec::new(), store, clock).await;
    let models = second.handle.models().await.unwrap();
    let fallbacks: Vec<_> = models.iter().map(|model| &model.fallbacks).collect();
    assert_eq!(fallbacks, [&vec![name("declared")]]);
    let again = serde_json::from_value(falling_back("declared", "b")).unwrap();
    let refused = second.handle.add(again).await.unwrap_err();
    assert_eq!(
        refused.message,
        "fallbacks[0]: fallbacks lead in a circle: declared -> b -> declared"
    );
    second.stop().await;
}

#[test]
fn declared_models_fall_back_to_declared_models_alone() {
    let mut json = definition("a", "1GiB");
    json["fallbacks"] = serde_json::json!(["b"]);
    let a: Model = serde_json::from_value(json).unwrap();
    let b = || model("b", "1GiB");
    entries(vec![a.clone(), b()], Vec::new(), Timestamp(0)).unwrap();
    let added = StoredModel {
        model: b(),
        added_at: Timestamp(0),
    };
    let error = entries(vec![a], vec![added], Timestamp(0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the declared model a can't fall back so: \
         fallbacks[0]: missing fallback: there is no model b"
    );
}
