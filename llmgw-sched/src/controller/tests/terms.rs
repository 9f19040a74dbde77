//! Settings that are written while the controller runs.

use std::sync::Mutex;

use llmgw_core::{api::admin::Origin, control::ControlError};

use super::*;

/// Reads the names of models as a document, one on each line, over what it was told.
#[derive(Debug, Default)]
struct Names(Mutex<Vec<&'static str>>);

impl TermsReader for Names {
    fn read(&self, document: &str) -> Result<Terms, ControlError> {
        let told = self.0.lock().unwrap().clone();
        let names = told.into_iter().chain(document.lines());
        let declared = names.map(|name| match name.parse::<ModelName>() {
            Ok(_) => Ok(model(name, "1GiB")),
            Err(error) => Err(ControlError::new(Code::InvalidRequest, error.to_string())),
        });
        Ok(Terms {
            declared: declared.collect::<Result<_, _>>()?,
            ..Terms::default()
        })
    }
}

async fn told(
    names: &[&'static str],
    store: &Arc<MemoryStore>,
    clock: &Arc<dyn Clock>,
) -> (Running, Arc<Names>) {
    let reader = Arc::new(Names(Mutex::new(names.to_vec())));
    let stored = store.settings(None).await.unwrap();
    let text = stored.as_ref().map_or("", |one| &one.text);
    let config = ControllerConfig {
        terms: reader.read(text).unwrap(),
        version_of_terms: stored.as_ref().map_or(0, |one| one.version),
        ..alone()
    };
    let deps = ControllerDeps {
        store: Arc::clone(store) as Arc<dyn Store>,
        clock: Arc::clone(clock),
        hashing_key: HashingKey::from_bytes([1; 32]),
        weights_reader: None,
        terms_reader: Some(Arc::clone(&reader) as Arc<dyn TermsReader>),
    };
    let controller = config.build(deps).await.unwrap();
    let handle = controller.handle();
    let stop = CancellationToken::new();
    let running = TaskTracker::new().spawn(controller.run(stop.clone()));
    let running = Running {
        handle,
        store: Arc::clone(store),
        stop,
        task: tokio_util::task::AbortOnDropHandle::new(running),
    };
    (running, reader)
}

async fn declared(running: &Running) -> Vec<String> {
    let models = running.handle.models().await.unwrap();
    let declared = models.iter().filter(|one| one.origin == Origin::Declared);
    declared.map(|one| one.name.to_string()).collect()
}

fn world() -> (Arc<MemoryStore>, Arc<dyn Clock>) {
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::starting_at(Timestamp(0)));
    (Arc::new(MemoryStore::new(Arc::clone(&clock))), clock)
}

#[tokio::test(start_paused = true)]
async fn a_document_is_placed_at_once_and_outlives_the_control_plane() {
    let (store, clock) = world();
    let (running, _) = told(&["a"], &store, &clock).await;
    let mut agent = running.agent().await;
    agent.report(ReplicaState::Ready).await;
    let handle = &running.handle;
    let kept = handle.put("b\nc".to_owned(), Some(0)).await.unwrap();
    let keys: Vec<&str> = kept.changes.iter().map(|one| one.key.as_str()).collect();
    assert_eq!((kept.version, keys), (1, vec!["models.b", "models.c"]));
    assert_eq!(declared(&running).await, ["a", "b", "c"]);
    while agent
        .desired
        .as_ref()
        .is_none_or(|one| one.replicas.len() < 3)
    {
        agent.report(ReplicaState::Ready).await;
        agent.told().await;
    }

    let trial = handle.try_out(String::new()).await.unwrap();
    let gone: Vec<&str> = trial
        .outcome
        .stops
        .iter()
        .map(|one| one.model.as_str())
        .collect();
    assert_eq!(gone, ["b", "c"]);
    let runs = |replicas: Vec<llmgw_core::api::admin::ReplicaView>| -> Vec<_> {
        let of_b = replicas.into_iter().filter(|one| one.model.as_str() == "b");
        of_b.map(|one| (one.id, one.stale)).collect()
    };
    let before = runs(handle.replicas(None).await.unwrap());
    assert_eq!(before.len(), 1);
    handle.put("b".to_owned(), None).await.unwrap();
    assert_eq!(declared(&running).await, ["a", "b"]);
    // What stays as it is keeps what runs.
    assert_eq!(runs(handle.replicas(None).await.unwrap()), before);
    running.stop().await;

    let (next, _) = told(&["a"], &store, &clock).await;
    assert_eq!(declared(&next).await, ["a", "b"]);
    let back = next.handle.roll_back(1).await.unwrap();
    assert_eq!((back.version, back.brings_back), (3, Some(1)));
    assert_eq!(declared(&next).await, ["a", "b", "c"]);
    let log = next.handle.audit(0, 10).await.unwrap();
    let log: Vec<(&str, &str)> = log
        .iter()
        .map(|entry| (entry.action.as_str(), entry.subject.as_str()))
        .collect();
    assert_eq!(
        log,
        [
            ("settings.put", "version 1"),
            ("settings.put", "version 2"),
            ("settings.rollback", "version 3 brings back 1"),
        ]
    );
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_document_that_contradicts_what_was_added_is_refused() {
    let (store, clock) = world();
    let (running, _) = told(&["a", "b"], &store, &clock).await;
    let handle = &running.handle;
    let mut added = llmgw_core::cluster::catalog::ModelDefinition::from(model("m", "1GiB"));
    added.fallbacks = vec!["c".to_owned()];
    handle.put("c".to_owned(), None).await.unwrap();
    handle.add(added).await.unwrap();
    for document in ["m", "a", ""] {
        let refused = handle.put(document.to_owned(), None).await.unwrap_err();
        let code = match document {
            // Twice in what was told, whatever was added.
            "a" => Code::InvalidRequest,
            _ => Code::Conflict,
        };
        assert_eq!(refused.code, code, "{document}: {refused}");
    }
    assert_eq!(declared(&running).await, ["a", "b", "c"]);
    assert_eq!(handle.settings().await.unwrap().version, 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_added_model_is_there_again_when_the_declared_one_of_its_name_goes() {
    let (store, clock) = world();
    let (running, _) = told(&[], &store, &clock).await;
    let added = llmgw_core::cluster::catalog::ModelDefinition::from(model("m", "2GiB"));
    running.handle.add(added).await.unwrap();
    running.stop().await;
    // A file declares one of its name while nothing runs.
    let (next, reader) = told(&["m"], &store, &clock).await;
    assert_eq!(declared(&next).await, ["m"]);
    *reader.0.lock().unwrap() = Vec::new();
    next.handle.reread_terms().await.unwrap();
    let models = next.handle.models().await.unwrap();
    assert_eq!((models.len(), models[0].origin), (1, Origin::Added));
    next.handle.remove(&name("m")).await.unwrap();
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_told_otherwise_is_read_again_and_what_can_not_be_right_is_shown() {
    let (store, clock) = world();
    let (running, reader) = told(&["a"], &store, &clock).await;
    running.handle.put("b".to_owned(), None).await.unwrap();
    *reader.0.lock().unwrap() = vec!["c"];
    running.handle.reread_terms().await.unwrap();
    assert_eq!(declared(&running).await, ["b", "c"]);
    // The file names now what the document does.
    *reader.0.lock().unwrap() = vec!["b"];
    let error = running.handle.reread_terms().await.unwrap_err();
    assert_eq!(declared(&running).await, ["b", "c"]);
    let view = running.handle.settings().await.unwrap();
    assert_eq!(view.problem, Some(error.to_string()));
    *reader.0.lock().unwrap() = vec!["d"];
    running.handle.reread_terms().await.unwrap();
    assert_eq!(declared(&running).await, ["b", "d"]);
    let view = running.handle.settings().await.unwrap();
    assert_eq!((view.problem, view.version), (None, 1));
    running.stop().await;
}
