//! Headers that are read from afar.

use super::*;
use crate::{
    fetch::beginning::HeaderError,
    header::{Progress, ReadError},
};

/// A header that ends with the first `k`.
fn until_k(bytes: &[u8]) -> Result<Progress<usize>, &'static str> {
    if bytes.contains(&b'!') {
        return Err("no header");
    }
    let have = u64::try_from(bytes.len()).unwrap();
    Ok(match bytes.iter().position(|byte| *byte == b'k') {
        Some(at) => Progress::Done(at),
        None => Progress::NeedMore { bytes: have + 1 },
    })
}

fn part(from: usize, to: usize, total: usize) -> String {
    let body = std::str::from_utf8(&BODY[from..to]).unwrap();
    format!(
        "HTTP/1.1 206 OK\r\ncontent-range: bytes {from}-{}/{total}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        to - 1,
        to - from,
    )
}

#[tokio::test]
async fn a_header_is_read_by_ranges_and_no_further() {
    let (address, mut questions) = server(vec![part(0, 5, 16), part(5, 16, 16)]).await;
    let (at, size) = fetcher().header(&request(address), until_k).await.unwrap();
    assert_eq!((at, size), (15, Some(Bytes(16))));
    for range in ["bytes=0-4194303", "bytes=5-4194308"] {
        let asked = questions.recv().await.unwrap().to_ascii_lowercase();
        assert!(asked.contains(&format!("range: {range}\r\n")), "{asked}");
    }
}

#[tokio::test]
async fn a_server_without_ranges_is_left_after_the_header() {
    let (listener, address) = black_hole().await;
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        let endless = "HTTP/1.1 200 OK\r\ncontent-length: 900000000000\r\n\r\nsixteen bytes ok";
        stream.write_all(endless.as_bytes()).await.unwrap();
        // Who has what it wants closes.
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).await.unwrap_or(0), 0);
    };
    let read = async { fetcher().header(&request(address), until_k).await };
    let (read, ()) = tokio::join!(read, serve);
    assert_eq!(read.unwrap(), (15, Some(Bytes(900_000_000_000))));
}

#[tokio::test]
async fn a_header_that_ends_early_lies_or_is_none_is_refused() {
    let (address, _questions) = server(vec![part(0, 5, 5)]).await;
    let error = fetcher()
        .header(&request(address), until_k)
        .await
        .unwrap_err();
    assert!(
        matches!(error, ReadError::Truncated { have: 5, need: 6 }),
        "{error:?}"
    );
    let (address, _questions) = server(vec![part(0, 5, 16), part(0, 16, 16)]).await;
    let error = fetcher()
        .header(&request(address), until_k)
        .await
        .unwrap_err();
    let ReadError::Broken(HeaderError::Fetch(FetchError::Length { .. })) = error else {
        panic!("{error:?}");
    };
    let (address, _questions) = server(vec![ok(6, b"a head!")]).await;
    let error = fetcher()
        .header(&request(address), until_k)
        .await
        .unwrap_err();
    assert!(
        matches!(error, ReadError::Truncated { .. } | ReadError::Broken(_)),
        "{error:?}"
    );
    let (address, _questions) =
        server(vec!["HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n".into()]).await;
    let error = fetcher()
        .header(&request(address), until_k)
        .await
        .unwrap_err();
    let ReadError::Broken(HeaderError::Fetch(error)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.code(), Code::NotFound);
}
