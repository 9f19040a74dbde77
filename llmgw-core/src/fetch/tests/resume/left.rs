//! What an earlier life has left: whose it is, how much of it there is, and who still writes to it.

use std::fs::{self, File};

use tokio::time::timeout;

use super::{
    super::super::{note::Note, partial::Partial},
    *,
};
use crate::fingerprint::Fingerprint;

fn busy() -> String {
    answer("503 Busy", "", 0, b"")
}

#[tokio::test]
async fn the_rest_of_another_version_is_not_taken_for_the_rest_of_this_one() {
    // Only the version tells: place and size are the same, and the digest would come too late.
    let other = part("7-15/16", "etag: \"v2\"\r\n", b"otherbyte");
    let mut scene = Scene::new(vec![broken(7), other, whole()]).await;
    scene.fetch().await.unwrap();
    assert_eq!(fs::read(scene.partial()).unwrap(), BODY);
    assert_eq!(scene.asked(), [anew(), range(7), anew()]);
}

#[tokio::test]
async fn without_a_digest_a_length_makes_nothing_whole() {
    let complete = answer("416 No", "content-range: bytes */16\r\n", 0, b"");
    let mut scene = Scene::new(vec![broken(7), busy(), complete, whole()]).await;
    let request = scene.request().with_sha256(None);
    scene.fetch_as(&request).await.unwrap_err();
    // As long as it must be, and nobody knows of what.
    fs::write(scene.partial(), b"sixteen zeros...").unwrap();
    scene.fetch_as(&request).await.unwrap();
    assert_eq!(fs::read(scene.partial()).unwrap(), BODY);
    assert_eq!(scene.asked(), [anew(), range(7), range(16), anew()]);
}

#[tokio::test]
async fn nothing_of_a_longer_file_is_left_behind_a_shorter_one() {
    // Of something else that was asked for here before.
    let scene = Scene::new(vec![broken(7), busy(), whole()]).await;
    scene.fetch().await.unwrap_err();
    fs::write(scene.partial(), [0; 40]).unwrap();
    let other = FetchRequest::new(format!("http://{}/other.gguf", scene.address));
    scene
        .fetch_as(&other.with_sha256(Some(digest(BODY))))
        .await
        .unwrap();
    assert_eq!(fs::read(scene.partial()).unwrap(), BODY);
    // Of another version of the same.
    let long = answer("200 OK", "etag: \"v0\"\r\n", 40, &[b'x'; 20]);
    let scene = Scene::new(vec![long, whole()]).await;
    scene.fetch().await.unwrap();
    assert_eq!(fs::read(scene.partial()).unwrap(), BODY);
}

#[tokio::test]
async fn more_than_the_whole_is_begun_anew_at_once() {
    let mut scene = Scene::new(vec![broken(7), busy(), whole()]).await;
    scene.fetch().await.unwrap_err();
    fs::write(scene.partial(), [0; 40]).unwrap();
    scene.fetch().await.unwrap();
    assert_eq!(fs::read(scene.partial()).unwrap(), BODY);
    assert_eq!(scene.asked(), [anew(), range(7), anew()]);
}

#[tokio::test]
async fn a_part_belongs_to_an_address_without_its_signature_and_to_a_digest() {
    let rest = part("7-15/16", ETAG, &BODY[7..]);
    let mut scene = Scene::new(vec![broken(7), busy(), rest]).await;
    scene.fetch().await.unwrap_err();
    let signed_anew = FetchRequest::new(format!("http://{}/m.gguf?signature=x", scene.address));
    scene
        .fetch_as(&signed_anew.with_sha256(Some(digest(BODY))))
        .await
        .unwrap();
    assert_eq!(scene.asked(), [anew(), range(7), range(7)]);
    let other = b"other sixteen by";
    let mut scene = Scene::new(vec![broken(7), busy(), answer("200 OK", ETAG, 16, other)]).await;
    scene.fetch().await.unwrap_err();
    let request = scene.request().with_sha256(Some(digest(other)));
    scene.fetch_as(&request).await.unwrap();
    assert_eq!(scene.asked(), [anew(), range(7), anew()]);
}

#[tokio::test]
async fn a_part_of_a_whole_of_unsaid_size_is_counted_from_its_place() {
    let rest = part("7-15/*", ETAG, &BODY[7..]);
    let scene = Scene::new(vec![broken(7), rest]).await;
    let request = scene.request().with_size(Some(Bytes(16)));
    assert_eq!(scene.fetch_as(&request).await.unwrap().bytes, Bytes(16));
}

#[tokio::test]
async fn a_part_that_nobody_asked_for_is_not_the_whole() {
    let scene = Scene::new(vec![part("0-15/16", ETAG, BODY)]).await;
    let error = scene.fetch().await.unwrap_err();
    assert!(
        matches!(error, FetchError::Status { status: 206, .. }),
        "{error:?}"
    );
    assert!(scene.names().is_empty(), "{:?}", scene.names());
}

#[tokio::test]
async fn a_rest_that_does_not_end_where_it_must_takes_the_beginning_with_it() {
    let endless = format!(
        "HTTP/1.1 206 Partial Content\r\n{ETAG}content-range: bytes 7-15/16\r\nconnection: close\r\n\r\n"
    );
    let scene = Scene::new(vec![broken(7), endless + "nine bytes and more"]).await;
    let error = scene.fetch().await.unwrap_err();
    assert!(matches!(error, FetchError::Length { .. }), "{error:?}");
    assert!(scene.names().is_empty(), "{:?}", scene.names());
}

#[tokio::test]
async fn a_source_that_gave_nothing_leaves_no_file() {
    let scene = Scene::new(vec![broken(0)]).await;
    scene.fetch().await.unwrap_err();
    assert!(scene.names().is_empty(), "{:?}", scene.names());
}

#[tokio::test]
async fn what_is_announced_above_the_limit_is_refused_before_room_is_asked_for() {
    let scene = Scene::new(vec![whole()]).await;
    let watch = Watch::<FetchError> {
        room: &|need| panic!("room for {need}"),
        progress: &|_, _| (),
    };
    let request = scene.request().with_max(Bytes(15));
    let done = quick().to_partial(&request, &scene.partial(), &watch).await;
    assert!(matches!(done, Err(FetchError::TooLarge { .. })), "{done:?}");
}

#[tokio::test]
async fn a_source_that_breaks_off_often_is_kept_while_it_brings_something() {
    let size: usize = 8 << 20;
    let body = vec![b'x'; size];
    let piece = size / 8;
    let answers = (0..8)
        .map(|at| match at {
            0 => answer("200 OK", ETAG, size, &body[..piece]),
            at => {
                let place = format!("{}-{}/{size}", at * piece, (at + 1) * piece - 1);
                part(&place, ETAG, &body[..piece])
            }
        })
        .collect();
    let scene = Scene::new(answers).await;
    let request = scene.request().with_sha256(Some(digest(&body)));
    scene.fetch_as(&request).await.unwrap();
}

#[tokio::test]
async fn room_is_asked_for_again_while_a_large_file_comes() {
    let every = ASK_ROOM_EVERY;
    let body = vec![b'x'; usize::try_from(every.0).unwrap() + (4 << 20)];
    let scene = Scene::new(vec![answer("200 OK", ETAG, body.len(), &body)]).await;
    let asked = Mutex::new(Vec::new());
    let watch = Watch::<FetchError> {
        room: &|need| {
            asked.lock().unwrap().push(need);
            Ok(())
        },
        progress: &|_, _| (),
    };
    let request = scene.request().with_sha256(None);
    quick()
        .to_partial(&request, &scene.partial(), &watch)
        .await
        .unwrap();
    let asked = asked.into_inner().unwrap();
    assert_eq!(asked.len(), 2, "{asked:?}");
    // Others have written to the disk meanwhile: only what is still missing is asked for.
    assert!(asked[1] <= Bytes::mib(4), "{asked:?}");
}

#[tokio::test]
async fn who_opens_a_file_that_is_still_written_waits_and_leaves_it_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.partial");
    let held = File::create(&path).unwrap();
    held.lock().unwrap();
    let mut open = Box::pin(Partial::open(&path, Fingerprint(1)));
    timeout(Duration::from_millis(200), &mut open)
        .await
        .unwrap_err();
    // The other finishes, and gives it its final name.
    let whole = directory.path().join("m");
    fs::write(&path, BODY).unwrap();
    fs::rename(&path, &whole).unwrap();
    drop(held);
    let mut partial = open.await.unwrap();
    let note = Note {
        asked: partial.asked(),
        version: None,
        total: None,
    };
    partial.remember(note).await.unwrap();
    partial.push("mine".into()).await.unwrap();
    partial.finish().await.unwrap();
    assert_eq!(fs::read(whole).unwrap(), BODY);
    assert_eq!(fs::read(path).unwrap(), b"mine");
}
