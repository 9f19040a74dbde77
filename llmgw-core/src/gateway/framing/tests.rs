use proptest::prelude::*;

use super::*;
use crate::units::Bytes;

const BOUNDS: HeadBounds = HeadBounds {
    size: Bytes(200),
    count: 5,
};

/// What came of bytes that come in pieces: what passed, how many heads, and the status or the words of a fault.
fn pieces(pieces: &[&[u8]]) -> (Vec<u8>, u64, String) {
    let mut framing = Framing::new(BOUNDS);
    let (mut passed, mut held) = (Vec::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        let scan = framing.scan(&held);
        passed.extend(held.drain(..scan.passed));
        match scan.fault {
            None => {}
            Some(Fault::Head(refusal)) => {
                return (
                    passed,
                    framing.heads(),
                    refusal.status().as_str().to_owned(),
                );
            }
            Some(Fault::Body(wrong)) => return (passed, framing.heads(), wrong.to_owned()),
        }
    }
    (passed, framing.heads(), String::new())
}

fn fault(text: &str) -> String {
    let (_, heads, fault) = pieces(&[text.as_bytes()]);
    assert_eq!(heads, 0, "{text:?}");
    fault
}

fn head(headers: &str) -> String {
    format!("POST /v1/x HTTP/1.1\r\nhost: a\r\n{headers}\r\n")
}

#[test]
fn what_two_readers_could_read_otherwise_is_refused() {
    for (headers, status) in [
        ("content-length: 5\r\ntransfer-encoding: chunked\r\n", "400"),
        ("transfer-encoding: chunked\r\ncontent-length: 5\r\n", "400"),
        ("content-length: 5\r\ncontent-length: 5\r\n", "400"),
        ("content-length: 5\r\nContent-Length: 6\r\n", "400"),
        ("content-length: 5, 5\r\n", "400"),
        ("content-length: +5\r\n", "400"),
        ("content-length: 0x5\r\n", "400"),
        ("content-length:\r\n", "400"),
        ("content-length: 99999999999999999999\r\n", "413"),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "400",
        ),
        ("transfer-encoding: chunked, chunked\r\n", "400"),
        ("transfer-encoding: gzip, chunked\r\n", "400"),
        ("transfer-encoding: xchunked\r\n", "400"),
        ("transfer-encoding:\x0bchunked\r\n", "400"),
        ("transfer-encoding : chunked\r\n", "400"),
        ("x: a\r\n transfer-encoding: chunked\r\n", "400"),
        ("x: a\r\n\tb\r\n", "400"),
        (" x: a\r\n", "400"),
        ("x: a\n", "400"),
        ("x: a\rb\r\n", "400"),
        ("x: a\0b\r\n", "400"),
        ("x\0: a\r\n", "400"),
        ("x: \x7f\r\n", "400"),
        ("x a\r\n", "400"),
        (": a\r\n", "400"),
        ("é: a\r\n", "400"),
        ("Host: b\r\n", "400"),
    ] {
        assert_eq!(fault(&head(headers)), status, "{headers:?}");
    }
    for (text, status) in [
        ("GET / HTTP/1.1\n\n", "400"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nx-host: a\r\n\r\n", "400"),
        ("\n", "400"),
        ("GET  / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.1 x\r\n\r\n", "400"),
        ("GET /\r\n\r\n", "400"),
        ("GET / HTTX/1.1\r\n\r\n", "400"),
        ("G@T / HTTP/1.1\r\n\r\n", "400"),
        ("GET /\x01 HTTP/1.1\r\n\r\n", "400"),
        ("GET /é HTTP/1.1\r\n\r\n", "400"),
        ("GET http://[ HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.2\r\n\r\n", "505"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"),
        (
            "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n",
            "400",
        ),
        // The beginning of a TLS handshake.
        ("\x16\x03\x01", "400"),
        ("\r\n\r\n\r\n\r\n\r\n", "400"),
    ] {
        assert_eq!(fault(text), status, "{text:?}");
    }
}

#[test]
fn heads_within_the_bounds_pass_and_others_are_refused_before_they_are_whole() {
    let ok = ["x: y\r\n".repeat(4), format!("x: {}\r\n", "y".repeat(194))];
    for headers in ok {
        let text = head(&headers);
        assert_eq!(
            pieces(&[text.as_bytes()]),
            (text.into_bytes(), 1, String::new())
        );
    }
    assert_eq!(fault(&head(&"x: y\r\n".repeat(5))), "431");
    assert_eq!(fault(&head(&format!("x: {}\r\n", "y".repeat(195)))), "431");
    assert_eq!(fault(&head(&format!("{}: y\r\n", "x".repeat(300)))), "431");
    // Only HTTP/1.1 asks for a host.
    let older = b"GET / HTTP/1.0\r\n\r\n";
    assert_eq!(pieces(&[older]), (older.to_vec(), 1, String::new()));
    let endless = "y".repeat(BOUNDS.most());
    assert_eq!(fault(&format!("GET / HTTP/1.1\r\nx: {endless}")), "431");
    assert_eq!(fault(&format!("GET /{endless}")), "414");
    let long = "y".repeat(9 << 10);
    assert_eq!(fault(&format!("GET /{long} HTTP/1.1\r\n\r\n")), "414");
}

#[test]
fn the_framing_of_chunks_is_followed_and_nothing_else() {
    let after = |body: &str| {
        let text = format!("{}{body}", head("transfer-encoding: Chunked\r\n"));
        let (passed, heads, fault) = pieces(&[text.as_bytes()]);
        (text.len() - passed.len(), heads, fault)
    };
    for body in [
        "0\r\n\r\n",
        "5\r\nhello\r\n00\r\n\r\n",
        "A;x=\"y\"\r\n0123456789\r\n0\r\nx: y\r\nz: \r\n\r\n",
    ] {
        let next = format!("{body}GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(after(&next), (0, 2, String::new()), "{body:?}");
    }
    for (body, wrong) in [
        ("\r\n", "hexadecimal"),
        (";x\r\n", "hexadecimal"),
        (" 5\r\nhello\r\n", "hexadecimal"),
        ("5 \r\nhello\r\n", "hexadecimal"),
        ("+5\r\nhello\r\n", "hexadecimal"),
        ("0x5\r\nhello\r\n", "hexadecimal"),
        ("5\nhello\r\n", "hexadecimal"),
        ("5\rhello\r\n", "without CR LF"),
        ("5;a\nhello\r\n", "control character"),
        ("5\r\nhello0\r\n", "not as long"),
        ("5\r\nhello\n0\r\n", "not as long"),
        ("ffffffffffffffff\r\n", "larger than anything"),
        ("0\r\nx: y\n\r\n", "control character"),
        ("0\r\n\rx", "without CR LF"),
    ] {
        let (left, heads, fault) = after(body);
        assert!(fault.contains(wrong), "{body:?}: {fault:?}");
        assert!(left > 0 && heads == 1, "{body:?}");
    }
    let (_, _, fault) = after(&format!("1;{}", "x".repeat(9 << 10)));
    assert!(fault.contains("8 KiB"), "{fault}");
}

proptest! {
    #[test]
    fn every_cut_of_the_bytes_gives_the_same(
        parts in prop::collection::vec(prop::sample::select(vec![
            "GET / HTTP/1.0\r\n\r\n", "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nabcd",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3;q\r\nabc\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n", "\r\n", "\n", "GET", " ",
        ]), 0..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let text = parts.concat();
        let whole = pieces(&[text.as_bytes()]);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.push(text.len());
        cuts.sort_unstable();
        let mut from = 0;
        let cut: Vec<&[u8]> = cuts.iter().map(|to| &text.as_bytes()[std::mem::replace(&mut from, *to)..*to]).collect();
        prop_assert_eq!(pieces(&cut), whole);
    }

    #[test]
    fn any_bytes_are_looked_at_without_harm(
        text in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b' '), any::<u8>()], 0..80),
        chunked in any::<bool>(),
    ) {
        let begin = if chunked { head("transfer-encoding: chunked\r\n") } else { String::new() };
        let bytes = [begin.as_bytes(), &text].concat();
        let (passed, ..) = pieces(&[&bytes]);
        prop_assert!(bytes.starts_with(&passed));
    }
}
