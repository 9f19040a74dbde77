//! Any sequence of lies gives the right bytes or a typed error, and the right bytes once the lies are over.

use proptest::{collection::vec, prelude::*};

use super::*;

/// What a server does with one connection.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// Nothing: it answers as it should.
    None,
    /// It breaks off after so many thousandths of what it should send.
    Break(usize),
    /// It answers a range with the whole.
    Whole,
    /// It answers with another part, and says so or not.
    Elsewhere { shift: usize, said: bool },
    /// It announces so many bytes more or fewer than it sends.
    Length(i64),
    /// It says another size of the whole.
    Total(u64),
    /// It has other bytes, under another version or the same.
    Changed { told: bool },
    /// It says that it is encoded.
    Encoded,
    /// It says that there is no such part, of a file of this size.
    NoPart(u64),
    /// It answers with a status alone.
    Status(u16),
    /// It sends what is no answer.
    Garbage,
    /// It closes the connection.
    Nothing,
    /// It redirects to itself.
    Loop,
}

fn lie() -> impl Strategy<Value = Lie> {
    prop_oneof![
        2 => Just(Lie::None),
        4 => (0..1_000usize).prop_map(Lie::Break),
        2 => Just(Lie::Whole),
        2 => (1..2_000usize, any::<bool>()).prop_map(|(shift, said)| Lie::Elsewhere { shift, said }),
        1 => (-500..500i64).prop_map(Lie::Length),
        1 => (0..9_000u64).prop_map(Lie::Total),
        2 => any::<bool>().prop_map(|told| Lie::Changed { told }),
        1 => Just(Lie::Encoded),
        1 => (0..9_000u64).prop_map(Lie::NoPart),
        1 => prop_oneof![Just(204), Just(206), Just(304), Just(401), Just(404), Just(412), Just(500)]
            .prop_map(Lie::Status),
        1 => Just(Lie::Garbage),
        1 => Just(Lie::Nothing),
        1 => Just(Lie::Loop),
    ]
}

fn body() -> Vec<u8> {
    (0..SIZE)
        .map(|at| u8::try_from(at * 7 % 251).unwrap())
        .collect()
}

/// The answer of a server that tells `lie` to who asks for what follows `from`.
fn told(lie: Lie, from: Option<usize>) -> Vec<u8> {
    let mut bytes = body();
    let mut etag = "\"v1\"";
    if let Lie::Changed { told } = lie {
        bytes.reverse();
        etag = if told { "\"v2\"" } else { etag };
    }
    let from = from.filter(|from| *from < SIZE && !matches!(lie, Lie::Whole));
    let mut start = from.unwrap_or(0);
    let mut said = start;
    if let Lie::Elsewhere {
        shift,
        said: is_said,
    } = lie
    {
        start = (start + shift) % SIZE;
        said = if is_said { start } else { said };
    }
    let sent = &bytes[start..];
    let total = if let Lie::Total(total) = lie {
        total
    } else {
        u64::try_from(SIZE).unwrap()
    };
    let announced = match lie {
        Lie::Length(more) => i64::try_from(sent.len()).unwrap() + more,
        _ => i64::try_from(sent.len()).unwrap(),
    };
    let mut head = match lie {
        Lie::Garbage => return b"\x16\x03\x01 not http\r\n\r\n".to_vec(),
        Lie::Nothing => return Vec::new(),
        Lie::Loop => return to(302, "/m").into_bytes(),
        Lie::Status(status) => {
            return format!(
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            .into_bytes();
        }
        Lie::NoPart(total) => {
            return format!(
                "HTTP/1.1 416 X\r\ncontent-range: bytes */{total}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
            .into_bytes();
        }
        Lie::Encoded => "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n".to_owned(),
        _ => match from {
            Some(_) => format!(
                "HTTP/1.1 206 OK\r\ncontent-range: bytes {said}-{}/{total}\r\n",
                (said + sent.len()).saturating_sub(1)
            ),
            None => "HTTP/1.1 200 OK\r\n".to_owned(),
        },
    };
    head.push_str(&format!(
        "etag: {etag}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        announced.max(0)
    ));
    let sent = match lie {
        Lie::Break(part) => &sent[..sent.len() * part / 1_000],
        _ => sent,
    };
    [head.as_bytes(), sent].concat()
}

/// Tells the lies one after the other, and the truth from then on.
#[expect(
    clippy::disallowed_methods,
    reason = "the server ends with the test's own runtime"
)]
async fn liar(lies: Vec<Lie>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut lies = lies.into_iter();
        while let Ok((mut stream, _)) = listener.accept().await {
            let asked = head(&mut stream).await.to_ascii_lowercase();
            let from = asked
                .lines()
                .find_map(|line| line.strip_prefix("range: bytes="))
                .and_then(|range| range.split('-').next()?.parse().ok());
            let answer = told(lies.next().unwrap_or(Lie::None), from);
            drop(stream.write_all(&answer).await);
            drop(stream.shutdown().await);
        }
    });
    address
}

async fn survives(lies: Vec<Lie>, size_is_known: bool) -> Result<(), TestCaseError> {
    let attempts = lies.len() + 2;
    let address = liar(lies).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.partial");
    let sha256 = Sha256Digest(Sha256::digest(body()).into());
    let size = size_is_known.then(|| Bytes(u64::try_from(SIZE).unwrap()));
    let request = FetchRequest::new(format!("http://{address}/m"))
        .with_sha256(Some(sha256))
        .with_size(size);
    let fetcher = Fetcher::new(FetchTimes {
        pause: Duration::from_millis(1),
        ..FetchTimes::default()
    })
    .unwrap();
    let watch = Watch::<FetchError> {
        room: &|_| Ok(()),
        progress: &|_, _| (),
    };
    for _ in 0..attempts {
        if let Ok(fetched) = fetcher.to_partial(&request, &path, &watch).await {
            prop_assert_eq!(fetched.sha256, sha256);
            prop_assert!(
                std::fs::read(&path).unwrap() == body(),
                "other bytes passed"
            );
            return Ok(());
        }
    }
    Err(TestCaseError::fail("an honest server was not believed"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_sequence_of_lies_ends_with_the_right_bytes(
        lies in vec(lie(), 0..7),
        size_is_known in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(survives(lies, size_is_known))?;
    }
}

const SIZE: usize = 4_096;
