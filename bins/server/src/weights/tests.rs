use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use llmgw_core::cluster::weights::{Sha256Digest, Source};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub with one repository of one file, which is no model.
#[expect(
    clippy::disallowed_methods,
    reason = "the server ends with the test's own runtime"
)]
async fn hub(asked: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            asked.fetch_add(1, Ordering::SeqCst);
            let oid = Sha256Digest(Sha256::digest(b"no model").into());
            let body = match path.as_str() {
                "/api/models/o/r/revision/main" => {
                    format!(r#"{{"sha":"{COMMIT}","siblings":[{{"rfilename":"m.gguf"}}]}}"#)
                }
                path if path.contains("/paths-info/") => format!(
                    r#"[{{"type":"file","path":"m.gguf","oid":"{COMMIT}","size":1,"lfs":{{"oid":"{oid}","size":8}}}}]"#
                ),
                _ => "no model".to_owned(),
            };
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            drop(stream.write_all(answer.as_bytes()).await);
            drop(stream.shutdown().await);
        }
    });
    base
}

fn reader(hub: &str, directory: &Path) -> RemoteReader {
    let settings = WeightsSettings {
        hub: Some(hub.to_owned()),
        hub_token: HubToken::parse("hf_secret"),
        ..WeightsSettings::default()
    };
    RemoteReader::new(&settings, directory.join("weights-found")).unwrap()
}

fn wanted() -> Weights {
    Weights {
        sources: vec!["hf:o/r/m.gguf".parse::<Source>().unwrap()],
        sha256: None,
        size: None,
        files: Vec::new(),
    }
}

#[tokio::test]
async fn a_branch_is_the_same_commit_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let asked = Arc::<AtomicUsize>::default();
    let hub = hub(Arc::clone(&asked)).await;
    let found = reader(&hub, directory.path())
        .find_out(&wanted())
        .await
        .unwrap();
    assert_eq!(
        found.weights.sources[0].to_string(),
        format!("hf:o/r/m.gguf@{COMMIT}")
    );
    assert_eq!(found.weights.size.map(|size| size.0), Some(8));
    let problem = found.shape.unwrap_err();
    assert!(!problem.passing, "{problem:?}");
    // Nobody is asked which commit it is, and nothing of it changes, when the hub is gone.
    let nowhere = reader("http://127.0.0.1:9", directory.path());
    let again = nowhere.find_out(&wanted()).await.unwrap();
    assert_eq!(again.weights, found.weights);
    let kept: Vec<_> = fs::read_dir(directory.path().join("weights-found"))
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    assert_eq!(kept.len(), 1);
    assert!(!kept[0].contains("hf_secret"));
    // What is kept of other weights is not taken for these.
    let mut other = wanted();
    other.size = Some(llmgw_core::units::Bytes(8));
    assert!(nowhere.find_out(&other).await.is_err());
}

#[tokio::test]
async fn a_damaged_note_is_asked_anew() {
    let directory = tempfile::tempdir().unwrap();
    let asked = Arc::<AtomicUsize>::default();
    let hub = hub(Arc::clone(&asked)).await;
    let first = reader(&hub, directory.path());
    first.find_out(&wanted()).await.unwrap();
    let before = asked.load(Ordering::SeqCst);
    let place = first.place(&wanted()).unwrap();
    fs::write(&place, "{\"of\":").unwrap();
    first.find_out(&wanted()).await.unwrap();
    assert!(asked.load(Ordering::SeqCst) > before);
}
