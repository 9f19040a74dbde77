use llmgw_bundle::digest::digest;

use super::*;

struct Fixture {
    directory: tempfile::TempDir,
    shelf: Shelf,
    source: Source,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let sha256 = digest(&b"weights"[..]).unwrap().sha256;
    Fixture {
        shelf: Shelf::new(directory.path(), sha256),
        source: "https://user:secret@host/dir/model.gguf?signature=secret"
            .parse()
            .unwrap(),
        directory,
    }
}

impl Fixture {
    async fn keep(&self, bytes: &[u8]) -> Result<PathBuf, SourceError> {
        let place = self.shelf.place(&self.source).await?;
        std::fs::write(&place.partial, bytes).unwrap();
        let kept = self
            .shelf
            .keep(&place, &self.source, digest(bytes).unwrap())
            .await;
        place.clear().await;
        kept
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.shelf.directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn a_file_is_kept_under_its_digest_and_found_again() {
    let fixture = fixture();
    assert_eq!(fixture.shelf.find().await.unwrap(), None);
    let path = fixture.keep(b"weights").await.unwrap();
    let expected = fixture
        .directory
        .path()
        .join("sha256")
        .join(fixture.shelf.digest.to_string())
        .join("model.gguf");
    assert_eq!(path, expected);
    assert_eq!(fixture.names(), ["model.gguf", RECORD]);
    assert_eq!(fixture.shelf.find().await.unwrap(), Some(path));
}

#[tokio::test]
async fn other_bytes_are_never_kept() {
    let fixture = fixture();
    let error = fixture.keep(b"wEights").await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("https://host/dir/model.gguf gives other bytes"));
    assert!(text.contains(&fixture.shelf.digest.to_string()), "{text}");
    assert!(fixture.names().is_empty(), "{:?}", fixture.names());
}

#[tokio::test]
async fn a_file_that_looks_the_same_is_not_read_again() {
    let fixture = fixture();
    let path = fixture.keep(b"weights").await.unwrap();
    // Only a record that is believed makes these bytes pass.
    std::fs::write(&path, b"wEights").unwrap();
    let look = Look::of(&std::fs::metadata(&path).unwrap());
    fixture.shelf.write_record(&path, look).await.unwrap();
    assert_eq!(fixture.shelf.find().await.unwrap(), Some(path));
}

#[tokio::test]
async fn a_changed_file_is_noticed_and_removed() {
    let fixture = fixture();
    let path = fixture.keep(b"weights").await.unwrap();
    std::fs::write(&path, b"wEights").unwrap();
    assert_eq!(fixture.shelf.find().await.unwrap(), None);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_touched_file_is_read_again_and_its_record_renewed() {
    let fixture = fixture();
    let path = fixture.keep(b"weights").await.unwrap();
    std::fs::write(&path, b"weights").unwrap();
    let old = std::fs::read(fixture.shelf.record()).unwrap();
    assert_eq!(fixture.shelf.find().await.unwrap(), Some(path));
    assert_ne!(std::fs::read(fixture.shelf.record()).unwrap(), old);
}

#[tokio::test]
async fn a_whole_file_without_its_record_is_checked_and_used() {
    let fixture = fixture();
    let path = fixture.keep(b"weights").await.unwrap();
    for record in [None, Some("half of a rec")] {
        match record {
            None => std::fs::remove_file(fixture.shelf.record()).unwrap(),
            Some(text) => std::fs::write(fixture.shelf.record(), text).unwrap(),
        }
        assert_eq!(fixture.shelf.find().await.unwrap(), Some(path.clone()));
    }
}

#[tokio::test]
async fn what_a_crash_has_left_is_never_used_and_what_can_be_continued_stays() {
    let fixture = fixture();
    let place = fixture.shelf.place(&fixture.source).await.unwrap();
    std::fs::write(&place.partial, b"weights").unwrap();
    std::fs::create_dir_all(place.scratch.join("wheels")).unwrap();
    assert_eq!(fixture.shelf.find().await.unwrap(), None);
    fixture.shelf.clear().await.unwrap();
    let again = fixture.shelf.place(&fixture.source).await.unwrap();
    assert_eq!(again.partial, place.partial, "it is found again");
    assert!(!again.partial.to_str().unwrap().contains("secret"));
    assert!(place.partial.exists() && !place.scratch.exists());
    let other = fixture
        .shelf
        .place(&"https://other/model.gguf".parse().unwrap())
        .await;
    assert_ne!(other.unwrap().partial, place.partial);
    fixture.keep(b"weights").await.unwrap();
    assert_eq!(
        fixture.names(),
        ["model.gguf", RECORD],
        "nothing is left to continue"
    );
}

#[test]
fn names_that_would_be_in_the_way_are_replaced() {
    for text in [
        "https://host/",
        "https://host/verified.json",
        "https://host/a.partial",
        "https://host/.hidden",
    ] {
        assert_eq!(file_name(&text.parse().unwrap()), "weights", "{text}");
    }
}

#[tokio::test]
async fn a_file_that_can_not_be_read_is_not_removed() {
    let fixture = fixture();
    let path = fixture.keep(b"weights").await.unwrap();
    std::fs::remove_file(&path).unwrap();
    // A regular file whose first byte the kernel refuses to read.
    std::os::unix::fs::symlink("/proc/self/mem", &path).unwrap();
    let error = fixture.shelf.find().await.unwrap_err();
    let WeightsError::File {
        doing, path: named, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((*doing, named), ("reading", &path));
    assert_eq!(fixture.names(), ["model.gguf", RECORD]);
}
