//! What is usual, changed at random: the gateway reads it without harm. A fuzzer goes on where this ends.
#![cfg(feature = "gateway")]

use llmgw_core::gateway::hostile;
use proptest::prelude::*;

type Read = fn(&[u8]);

/// What reads bytes of others, and what is usual of them.
fn readers() -> Vec<(Read, Vec<&'static str>)> {
    vec![
        (
            hostile::events,
            vec![
                "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n: x\n\ndata: [DONE]\n\n",
                "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\"m\",\"usage\":{\"input_tokens\":1}}}\r\n\r\n",
                "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":3}}}\n\nerror: {}\n\n",
            ],
        ),
        (
            hostile::answer,
            vec![
                "{\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"message\":{\"content\":\"\\\"}{\"}}],\"usage\":{\"prompt_tokens\":1}}",
                "{ \"usage\" : null , \"model\" : \"m\\\\\" , \"error\" : { } }",
            ],
        ),
        (
            hostile::body,
            vec![
                "{\"model\":\"a\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9\"}],\"stream_options\":{\"include_usage\":false,\"x\":1}}",
                "{ \"stream\" : true , \"model\" : \"a\" }",
                "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nzz\r\n--x--\r\n",
            ],
        ),
        (
            hostile::connection,
            vec![
                "POST /v1/x HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nabcdGET / HTTP/1.0\r\n\r\n",
                "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3;q=\"a\"\r\nabc\r\n0\r\n\r\n\r\nGET /v1/models HTTP/1.1\r\nhost: b\r\n\r\n",
            ],
        ),
    ]
}

/// A change of some bytes.
#[derive(Clone, Debug)]
struct Change {
    at: prop::sample::Index,
    length: usize,
    with: Vec<u8>,
}

fn change() -> impl Strategy<Value = Change> {
    let telling = prop::sample::select(b"{}[]\",:\\\r\n 0a-".to_vec());
    let with = prop::collection::vec(prop_oneof![3 => telling, 1 => any::<u8>()], 0..4);
    (any::<prop::sample::Index>(), 0_usize..6, with).prop_map(|(at, length, with)| Change {
        at,
        length,
        with,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn what_is_usual_is_read_without_harm_however_it_is_changed(
        reader in any::<prop::sample::Index>(),
        seed in any::<prop::sample::Index>(),
        begin in any::<[u8; 2]>(),
        changes in prop::collection::vec(change(), 0..4),
    ) {
        let readers = readers();
        let (read, seeds) = reader.get(&readers);
        let mut bytes = seed.get(seeds).as_bytes().to_vec();
        for Change { at, length, with } in changes {
            let at = at.index(bytes.len() + 1);
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, with);
        }
        read(&[&begin[..], &bytes].concat());
    }
}
