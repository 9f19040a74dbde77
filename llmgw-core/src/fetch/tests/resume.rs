//! Fetches that go on where they were left, and servers that lie about it.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use super::*;

mod left;

const ETAG: &str = "etag: \"v1\"\r\n";

/// Where a fetch writes, and the server that it asks.
struct Scene {
    directory: tempfile::TempDir,
    address: SocketAddr,
    questions: mpsc::UnboundedReceiver<String>,
}

impl Scene {
    async fn new(answers: Vec<String>) -> Self {
        let (address, questions) = server(answers).await;
        Self {
            directory: tempfile::tempdir().unwrap(),
            address,
            questions,
        }
    }

    fn partial(&self) -> PathBuf {
        self.directory.path().join("m.partial")
    }

    fn request(&self) -> FetchRequest {
        FetchRequest::new(format!("http://{}/m.gguf?signature=secret", self.address))
            .with_sha256(Some(digest(BODY)))
    }

    async fn fetch(&self) -> Result<Fetched, FetchError> {
        self.fetch_as(&self.request()).await
    }

    async fn fetch_as(&self, request: &FetchRequest) -> Result<Fetched, FetchError> {
        quick()
            .to_partial(request, &self.partial(), &silent())
            .await
    }

    /// What was asked, each as the range and the version that it was for.
    fn asked(&mut self) -> Vec<(Option<String>, Option<String>)> {
        let mut asked = Vec::new();
        while let Ok(head) = self.questions.try_recv() {
            let value = |name: &str| {
                let mut lines = head.lines();
                lines.find_map(|line| {
                    let (key, value) = line.split_once(": ")?;
                    key.eq_ignore_ascii_case(name).then(|| value.to_owned())
                })
            };
            asked.push((value("range"), value("if-range")));
        }
        asked
    }

    fn names(&self) -> Vec<String> {
        names(self.directory.path())
    }
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn quick() -> Fetcher {
    Fetcher::new(FetchTimes {
        pause: Duration::from_millis(1),
        ..FetchTimes::default()
    })
    .unwrap()
}

fn silent() -> Watch<'static, FetchError> {
    Watch {
        room: &|_| Ok(()),
        progress: &|_, _| (),
    }
}

fn digest(bytes: &[u8]) -> Sha256Digest {
    Sha256Digest(Sha256::digest(bytes).into())
}

/// An answer of this status, with these lines in its head.
fn answer(status: &str, head: &str, length: usize, body: &[u8]) -> String {
    let body = std::str::from_utf8(body).unwrap();
    format!(
        "HTTP/1.1 {status}\r\n{head}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn whole() -> String {
    answer("200 OK", ETAG, 16, BODY)
}

/// The whole, broken off after `at` bytes.
fn broken(at: usize) -> String {
    answer("200 OK", ETAG, 16, &BODY[..at])
}

fn part(range: &str, head: &str, body: &[u8]) -> String {
    let head = format!("content-range: bytes {range}\r\n{head}");
    answer("206 Partial Content", &head, body.len(), body)
}

fn anew() -> (Option<String>, Option<String>) {
    (None, None)
}

fn range(from: u64) -> (Option<String>, Option<String>) {
    (Some(format!("bytes={from}-")), Some("\"v1\"".to_owned()))
}

#[tokio::test]
async fn a_fetch_goes_on_where_the_connection_broke() {
    let answers = vec![broken(7), part("7-15/16", ETAG, &BODY[7..])];
    let mut scene = Scene::new(answers).await;
    let fetched = scene.fetch().await.unwrap();
    assert_eq!(fetched.bytes, Bytes(16));
    assert_eq!(fetched.sha256, digest(BODY));
    assert_eq!(std::fs::read(scene.partial()).unwrap(), BODY);
    assert_eq!(scene.names(), ["m.partial"], "the note has gone");
    assert_eq!(scene.asked(), [anew(), range(7)]);
}

#[tokio::test]
async fn a_fetch_goes_on_in_another_life_and_a_part_of_the_rest_is_taken_too() {
    let answers = vec![
        broken(7),
        answer("503 Busy", "", 0, b""),
        part("7-9/16", ETAG, &BODY[7..10]),
        part("10-15/16", ETAG, &BODY[10..]),
    ];
    let mut scene = Scene::new(answers).await;
    let error = scene.fetch().await.unwrap_err();
    assert!(matches!(error, FetchError::Status { status: 503, .. }));
    assert_eq!(scene.names(), ["m.partial", "m.partial.json"]);
    let note = std::fs::read_to_string(scene.directory.path().join("m.partial.json")).unwrap();
    assert!(!note.contains("secret"), "{note}");
    scene.fetch().await.unwrap();
    assert_eq!(std::fs::read(scene.partial()).unwrap(), BODY);
    assert_eq!(scene.asked(), [anew(), range(7), range(7), range(10)]);
}

#[tokio::test]
async fn a_fetch_that_nobody_waits_for_any_more_is_continued_by_the_next() {
    let (listener, address) = black_hole().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.partial");
    let request = FetchRequest::new(format!("http://{address}/m")).with_sha256(Some(digest(BODY)));
    let halves = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        stream.write_all(broken(7).as_bytes()).await.unwrap();
        stream
    };
    let fetcher = quick();
    let watch = silent();
    let fetch = fetcher.to_partial(&request, &path, &watch);
    let mut fetch = Box::pin(fetch);
    let _open = tokio::select! {
        done = &mut fetch => panic!("{done:?}"),
        stream = halves => stream,
    };
    // The bytes are on their way to the disk once they were told of.
    let there = async {
        loop {
            if std::fs::metadata(&path).is_ok_and(|found| found.len() == 7) {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = &mut fetch => panic!("{done:?}"),
        () = there => {}
    }
    drop(fetch);
    let rest = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let asked = head(&mut stream).await.to_ascii_lowercase();
        assert!(asked.contains("range: bytes=7-\r\n"), "{asked}");
        let answer = part("7-15/16", ETAG, &BODY[7..]);
        stream.write_all(answer.as_bytes()).await.unwrap();
    };
    let (fetched, ()) = tokio::join!(fetcher.to_partial(&request, &path, &watch), rest);
    assert_eq!(fetched.unwrap().sha256, digest(BODY));
}

#[tokio::test]
async fn whatever_a_server_says_instead_of_the_rest_is_never_appended() {
    let rest = &BODY[7..];
    let cases = [
        ("the whole", answer("200 OK", "etag: \"v2\"\r\n", 16, BODY)),
        ("no place", answer("206 Partial Content", ETAG, 9, rest)),
        ("another place", part("6-14/16", ETAG, &BODY[6..15])),
        ("the whole as a part", part("0-15/16", ETAG, BODY)),
        ("another size", part("7-16/17", ETAG, b"ten bytes!")),
        ("another version", part("7-15/16", "etag: \"v2\"\r\n", rest)),
        (
            "another length",
            answer(
                "206 Partial Content",
                "content-range: bytes 7-15/16\r\n",
                12,
                b"twelve bytes",
            ),
        ),
        (
            "no such part",
            answer("416 No", "content-range: bytes */3\r\n", 0, b""),
        ),
        (
            "that it is complete",
            answer("416 No", "content-range: bytes */16\r\n", 0, b""),
        ),
        ("other bytes", part("7-15/16", ETAG, b"otherbyte")),
    ];
    for (lie, answer) in cases {
        let mut scene = Scene::new(vec![broken(7), answer, whole()]).await;
        let fetched = scene.fetch().await;
        // Bytes that only the digest tells from the right ones came in the same life, and are its error.
        let fetched = match fetched {
            Err(FetchError::Digest { .. }) if lie == "other bytes" => {
                assert!(scene.names().is_empty(), "{:?}", scene.names());
                scene.fetch().await
            }
            fetched => fetched,
        };
        fetched.unwrap_or_else(|error| panic!("{lie}: {error}"));
        assert_eq!(std::fs::read(scene.partial()).unwrap(), BODY, "{lie}");
        let asked = scene.asked();
        assert_eq!(asked[..2], [anew(), range(7)], "{lie}");
        assert!(asked[2..].iter().all(|asked| *asked == anew()), "{lie}");
    }
}

#[tokio::test]
async fn a_part_that_turns_out_wrong_is_fetched_anew_once() {
    let rest = part("7-15/16", ETAG, &BODY[7..]);
    let answers = vec![broken(7), answer("503 Busy", "", 0, b""), rest, whole()];
    let mut scene = Scene::new(answers).await;
    scene.fetch().await.unwrap_err();
    // What a power cut may leave: the right length, and other bytes.
    std::fs::write(scene.partial(), b"\0\0\0\0\0\0\0").unwrap();
    scene.fetch().await.unwrap();
    assert_eq!(std::fs::read(scene.partial()).unwrap(), BODY);
    assert_eq!(scene.asked(), [anew(), range(7), range(7), anew()]);
}

#[tokio::test]
async fn a_file_that_is_whole_is_not_asked_for_again() {
    let mut scene = Scene::new(vec![broken(7), answer("503 Busy", "", 0, b"")]).await;
    scene.fetch().await.unwrap_err();
    std::fs::write(scene.partial(), BODY).unwrap();
    scene.asked();
    scene.fetch().await.unwrap();
    assert_eq!(scene.asked(), []);
}

#[tokio::test]
async fn a_file_that_the_server_calls_complete_is_whole_when_its_digest_says_so() {
    let chunked = "HTTP/1.1 200 OK\r\netag: \"v1\"\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n\
                   10\r\nsixteen bytes ok\r\n";
    let complete = answer("416 No", "content-range: bytes */16\r\n", 0, b"");
    let mut scene = Scene::new(vec![chunked.to_owned(), complete]).await;
    assert_eq!(scene.fetch().await.unwrap().bytes, Bytes(16));
    assert_eq!(scene.asked(), [anew(), range(16)]);
}

#[tokio::test]
async fn other_bytes_are_refused_and_leave_nothing() {
    let answers = vec![answer("200 OK", ETAG, 16, b"sixteen bytes no")];
    let scene = Scene::new(answers).await;
    let error = scene.fetch().await.unwrap_err();
    assert!(matches!(error, FetchError::Digest { .. }), "{error:?}");
    assert_eq!(error.code(), Code::VerificationFailed);
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(scene.names().is_empty(), "{:?}", scene.names());
}

#[tokio::test]
async fn what_has_another_size_than_it_must_have_leaves_nothing() {
    let endless = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nsixteen bytes ok and more";
    for answer in [
        endless.to_owned(),
        answer("200 OK", "", 17, b"sixteen bytes ok!"),
    ] {
        let scene = Scene::new(vec![answer]).await;
        let request = scene.request().with_size(Some(Bytes(16)));
        let error = scene.fetch_as(&request).await.unwrap_err();
        assert!(matches!(error, FetchError::Length { .. }), "{error:?}");
        assert!(scene.names().is_empty(), "{:?}", scene.names());
    }
    let scene = Scene::new(vec![endless.to_owned()]).await;
    let error = scene.fetch_as(&scene.request().with_max(Bytes(20))).await;
    assert!(
        matches!(error, Err(FetchError::TooLarge { .. })),
        "{error:?}"
    );
    assert!(scene.names().is_empty(), "{:?}", scene.names());
}

#[tokio::test]
async fn an_encoded_body_is_refused() {
    for head in ["content-encoding: gzip\r\n", "content-encoding: br\r\n"] {
        let scene = Scene::new(vec![answer("200 OK", head, 16, BODY)]).await;
        let error = scene.fetch().await.unwrap_err();
        assert!(matches!(error, FetchError::Encoded { .. }), "{error:?}");
    }
    let head = "content-encoding: identity\r\n";
    let scene = Scene::new(vec![answer("200 OK", head, 16, BODY)]).await;
    scene.fetch().await.unwrap();
}

#[tokio::test]
async fn a_part_of_something_else_is_not_continued() {
    let mut scene = Scene::new(vec![broken(7), answer("503 Busy", "", 0, b""), whole()]).await;
    scene.fetch().await.unwrap_err();
    let other = FetchRequest::new(format!("http://{}/other.gguf", scene.address))
        .with_sha256(Some(digest(BODY)));
    scene.fetch_as(&other).await.unwrap();
    assert_eq!(scene.asked()[2], anew());
}

#[tokio::test]
async fn without_a_version_or_a_digest_nothing_is_continued() {
    let bare = || answer("200 OK", "", 16, &BODY[..7]);
    let rest = answer(
        "206 Partial Content",
        "content-range: bytes 7-15/16\r\n",
        9,
        &BODY[7..],
    );
    let mut scene = Scene::new(vec![bare(), rest]).await;
    scene.fetch().await.unwrap();
    assert_eq!(scene.asked()[1], (Some("bytes=7-".to_owned()), None));
    let mut scene = Scene::new(vec![bare(), whole()]).await;
    let request = scene.request().with_sha256(None);
    scene.fetch_as(&request).await.unwrap();
    assert_eq!(scene.asked(), [anew(), anew()]);
    // A weak validator is none, and a date is one.
    let dated = |etag: &str| {
        let head = format!("{etag}last-modified: Mon, 30 Nov 2026 08:00:00 GMT\r\n");
        answer("200 OK", &head, 16, &BODY[..7])
    };
    let mut scene = Scene::new(vec![dated("etag: W/\"v1\"\r\n"), whole()]).await;
    scene
        .fetch_as(&scene.request().with_sha256(None))
        .await
        .unwrap();
    let since = "Mon, 30 Nov 2026 08:00:00 GMT".to_owned();
    assert_eq!(scene.asked()[1], (Some("bytes=7-".to_owned()), Some(since)));
}

#[tokio::test]
async fn a_server_that_never_gets_further_is_given_up() {
    let mut scene = Scene::new(vec![broken(0)]).await;
    let error = scene.fetch().await.unwrap_err();
    assert!(matches!(error, FetchError::Broken { .. }), "{error:?}");
    assert_eq!(
        scene.asked().len(),
        1,
        "nothing came: the next source's turn"
    );
    let empty = answer(
        "206 Partial Content",
        "content-range: bytes 7-15/16\r\n",
        9,
        b"",
    );
    let mut scene = Scene::new(vec![broken(7), empty]).await;
    scene.fetch().await.unwrap_err();
    assert_eq!(scene.asked().len(), 5);
}

#[tokio::test]
async fn no_room_is_the_callers_word_and_what_is_there_stays() {
    #[derive(Debug, PartialEq)]
    enum Wrong {
        NoRoom(Bytes),
        Fetch,
    }
    impl From<FetchError> for Wrong {
        fn from(_: FetchError) -> Self {
            Self::Fetch
        }
    }
    let scene = Scene::new(vec![broken(7), part("7-15/16", ETAG, &BODY[7..])]).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let room = |need| {
        asked.lock().unwrap().push(need);
        if need > Bytes(9) {
            Ok(())
        } else {
            Err(Wrong::NoRoom(need))
        }
    };
    let watch = Watch {
        room: &room,
        progress: &|_, _| (),
    };
    let done = quick()
        .to_partial(&scene.request(), &scene.partial(), &watch)
        .await;
    assert_eq!(done, Err(Wrong::NoRoom(Bytes(9))));
    assert_eq!(*asked.lock().unwrap(), [Bytes(16), Bytes(9)]);
    assert_eq!(scene.names(), ["m.partial", "m.partial.json"]);
    assert_eq!(std::fs::read(scene.partial()).unwrap(), &BODY[..7]);
}

#[tokio::test]
async fn a_secret_and_a_range_follow_a_redirect_as_they_may() {
    let (elsewhere, mut other) = server(vec![part("7-15/16", ETAG, &BODY[7..])]).await;
    let onward = to(302, &format!("http://{elsewhere}/cdn?X-Signature=secret"));
    let scene = Scene::new(vec![broken(7), onward]).await;
    let request = scene.request().with_bearer(Some("tok".into()));
    scene.fetch_as(&request).await.unwrap();
    let asked = other.recv().await.unwrap().to_ascii_lowercase();
    assert!(asked.contains("range: bytes=7-\r\n"), "{asked}");
    assert!(!asked.contains("authorization"), "{asked}");
}
