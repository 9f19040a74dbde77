//! A disk that is full to its last byte while weights are written to it.
//!
//! The disk is a small one in a mount namespace of its own, in which this test's own program is run again.
#![expect(clippy::unwrap_used, reason = "a test that can't be set up has failed")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
};

use llmgw_agent::weights::{WeightsConfig, WeightsError, WeightsStore};
use llmgw_bundle::digest::digest;
use llmgw_core::{
    cluster::weights::Weights,
    error::{Chain, Coded as _},
    units::Bytes,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

#[test]
fn a_disk_that_fills_up_while_weights_are_written_leaves_what_can_be_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let small = directory.path().join("small");
    fs::create_dir(&small).unwrap();
    let mount = format!(
        "mount -t tmpfs -o size=8m tmpfs '{}' && exec \"$@\"",
        small.display()
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &mount, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["on_a_small_disk", "--exact", "--ignored", "--nocapture"])
        .env(DIRECTORY, &small)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}: mounting takes root");
    assert!(said.contains("1 passed"), "{said}");
}

/// Run again by the other.
#[tokio::test]
#[ignore = "is started by the other test of this file, on a disk of its own"]
async fn on_a_small_disk() {
    #[expect(
        clippy::disallowed_methods,
        reason = "it is how a test's own program is told what to do"
    )]
    let disk = PathBuf::from(std::env::var(DIRECTORY).unwrap());
    let bytes: Arc<[u8]> = (0..6_000_000_u32)
        .map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect();
    let filler = disk.join("of-somebody-else");
    let server = Server::start(bytes.clone(), filler.clone()).await;
    let mut config = WeightsConfig::in_directory(disk.join("weights"));
    config.disk_reserve = Bytes::ZERO;
    let store = WeightsStore::new(config).unwrap();
    let sha256 = digest(&bytes[..]).unwrap().sha256;
    let weights = Weights {
        sources: vec![format!("{}/m.gguf", server.base).parse().unwrap()],
        sha256: Some(sha256),
        size: Some(Bytes(bytes.len() as u64)),
        files: Vec::new(),
    };
    let error = store.ensure(&weights, &|_| ()).await.unwrap_err();
    let WeightsError::Short(short) = &error else {
        panic!("{}", Chain(&error));
    };
    assert_eq!(short.have, Bytes::ZERO, "{error}");
    assert!(
        short.need > Bytes::ZERO && short.short == short.need,
        "{error}"
    );
    assert!(
        error.to_string().contains(&*disk.to_string_lossy()),
        "{error}"
    );
    assert!(error.hint().is_some());

    let shelf = disk.join("weights/sha256").join(sha256.to_string());
    let left = names(&shelf);
    let partial = left.iter().find(|name| name.ends_with(".partial")).unwrap();
    let note = format!("{partial}.json");
    assert!(
        left.iter().all(|name| name == partial || *name == note),
        "{left:?}"
    );
    let reached = fs::metadata(shelf.join(partial)).unwrap().len();
    assert!(reached >= FIRST as u64, "{reached}");

    fs::remove_file(filler).unwrap();
    let path = store.ensure(&weights, &|_| ()).await.unwrap();
    assert_eq!(fs::read(path).unwrap(), &bytes[..]);
    let asked = server.asked.lock().unwrap().clone();
    let from = asked.last().copied().unwrap();
    assert!(from > 0 && from <= reached, "from {from} of {reached}");
    assert_eq!(
        names(&shelf),
        ["m.gguf", "verified.json", "verified.json.used"]
    );
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Serves one file. In the middle of its first answer, the disk fills up.
struct Server {
    base: String,
    /// Where each question wanted the file to begin.
    asked: Arc<Mutex<Vec<u64>>>,
}

impl Server {
    #[expect(
        clippy::disallowed_methods,
        reason = "the server ends with the test's own runtime"
    )]
    async fn start(bytes: Arc<[u8]>, filler: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<u64>>>::default();
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that leaves is the end of its connection alone.
                drop(answer(stream, &bytes, &log, &filler).await);
            }
        });
        Self { base, asked }
    }
}

async fn answer(
    mut stream: TcpStream,
    bytes: &[u8],
    log: &Mutex<Vec<u64>>,
    filler: &Path,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let from = head
        .split_once("range: bytes=")
        .and_then(|(_, range)| range.split('-').next()?.parse::<usize>().ok())
        .unwrap_or(0);
    let is_first = {
        let mut log = log.lock().unwrap();
        log.push(from as u64);
        log.len() == 1
    };
    let status = if from > 0 {
        format!(
            "206 Partial Content\r\ncontent-range: bytes {from}-{}/{}",
            bytes.len() - 1,
            bytes.len()
        )
    } else {
        "200 OK".to_owned()
    };
    let head = format!(
        "HTTP/1.1 {status}\r\netag: \"one\"\r\naccept-ranges: bytes\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        bytes.len() - from
    );
    stream.write_all(head.as_bytes()).await?;
    let mut rest = &bytes[from..];
    if is_first {
        let (first, second) = rest.split_at(FIRST);
        stream.write_all(first).await?;
        rest = second;
        // All that was sent is written, and then there is no byte left on the disk.
        let weights = filler.with_file_name("weights/sha256");
        while size_of_partial(&weights) < FIRST as u64 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let mut file = fs::File::create(filler)?;
        while std::io::Write::write(&mut file, &[7; 4_096]).is_ok() {}
    }
    stream.write_all(rest).await?;
    stream.shutdown().await
}

fn size_of_partial(directory: &Path) -> u64 {
    let shelf = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .next();
    let files = shelf.and_then(|shelf| fs::read_dir(shelf.path()).ok());
    files
        .into_iter()
        .flatten()
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().ends_with(".partial"))
        .map(|file| file.metadata().map_or(0, |found| found.len()))
        .sum()
}

/// What is there when the disk fills up.
const FIRST: usize = 3 << 20;
const DIRECTORY: &str = "LLMGW_TEST_DIRECTORY";
