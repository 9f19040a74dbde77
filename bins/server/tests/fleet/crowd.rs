//! Clients that stream all the time.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// So many clients, each with one stream after another.
pub(crate) struct Crowd {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

struct Shared {
    address: String,
    key: String,
    /// The model that every client asks for when its own is gone.
    first: &'static str,
    /// How long each answer is, in tokens.
    tokens: u32,
    /// What every second client asks for as long as it is there.
    second: Mutex<Option<&'static str>>,
    calls: Mutex<Vec<Call>>,
    ends: AtomicBool,
}

/// A call, from its first byte to its last.
pub(crate) struct Call {
    pub(crate) model: &'static str,
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    pub(crate) outcome: Outcome,
}

/// What came of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// A whole stream with content, and so many pieces of it.
    Whole(usize),
    /// A stream that began and did not end as it should.
    Broken(String),
    /// Another status than 200, and the code that says why.
    Refused(u16, String),
    /// Nobody took the call.
    Unheard,
}

impl Crowd {
    /// Clients that ask for answers of so many tokens.
    pub(crate) fn start(
        clients: usize,
        (address, key): (&str, String),
        first: &'static str,
        tokens: u32,
    ) -> Self {
        let shared = Arc::new(Shared {
            address: address.to_owned(),
            key,
            first,
            tokens,
            second: Mutex::new(None),
            calls: Mutex::new(Vec::new()),
            ends: AtomicBool::new(false),
        });
        let client = |number: usize| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.stream_on(number % 2 == 1))
        };
        let clients = (0..clients).map(client).collect();
        Self { shared, clients }
    }

    /// Every second client asks for this model from now on, until it is told that there is none.
    pub(crate) fn ask_also(&self, model: &'static str) {
        *self.shared.second.lock().unwrap() = Some(model);
    }

    /// Whole streams of a model so far.
    pub(crate) fn whole(&self, model: &str) -> usize {
        let calls = self.shared.calls.lock().unwrap();
        let whole = |call: &&Call| call.model == model && matches!(call.outcome, Outcome::Whole(_));
        calls.iter().filter(whole).count()
    }

    /// Lets every client end its stream.
    pub(crate) fn end(self) -> Vec<Call> {
        self.shared.ends.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        let mut calls = self.shared.calls.lock().unwrap();
        std::mem::take(&mut *calls)
    }
}

impl Shared {
    fn stream_on(&self, is_second: bool) {
        let mut gone = false;
        while !self.ends.load(Ordering::Relaxed) {
            let second = *self.second.lock().unwrap();
            let model = second.filter(|_| is_second && !gone).unwrap_or(self.first);
            let begun = Instant::now();
            let outcome = stream((&self.address, &self.key), model, self.tokens);
            let is_whole = matches!(outcome, Outcome::Whole(_));
            gone |= matches!(outcome, Outcome::Refused(404, _));
            self.calls.lock().unwrap().push(Call {
                model,
                begun,
                ended: Instant::now(),
                outcome,
            });
            if !is_whole {
                // As clients do that are turned away.
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// How many calls ended in which way, by model.
pub(crate) fn tally(calls: &[Call]) -> BTreeMap<(&'static str, String), usize> {
    let mut counts = BTreeMap::new();
    for call in calls {
        let way = match &call.outcome {
            Outcome::Whole(_) => "whole".to_owned(),
            Outcome::Broken(why) => format!("broken: {why}"),
            Outcome::Refused(status, code) => format!("refused: {status} {code}"),
            Outcome::Unheard => "unheard".to_owned(),
        };
        *counts.entry((call.model, way)).or_default() += 1;
    }
    counts
}

/// One streamed chat completion of so many tokens, on a connection of its own.
pub(crate) fn stream((address, key): (&str, &str), model: &str, tokens: u32) -> Outcome {
    let body = json!({
        "model": model, "stream": true, "max_tokens": tokens, "ignore_eos": true,
        "messages": [{"role": "user", "content": "Count to ten."}],
    })
    .to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut answer = Vec::new();
    let read = TcpStream::connect(address).and_then(|mut connection| {
        connection.set_read_timeout(Some(Duration::from_secs(120)))?;
        connection.write_all(request.as_bytes())?;
        connection.read_to_end(&mut answer)
    });
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return Outcome::Unheard;
    };
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    if status != 200 {
        // Its only line of JSON, whether the transfer is in chunks or not.
        let mut lines = body.lines();
        let error = lines.find_map(|line| {
            serde_json::from_str::<Value>(line)
                .ok()
                .filter(Value::is_object)
        });
        let code = error.unwrap_or_default()["error"]["code"].to_string();
        return Outcome::Refused(status, code.trim_matches('"').to_owned());
    }
    let pieces = body
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
        .filter_map(|event| Some(event["choices"][0]["delta"]["content"].as_str()?.len()))
        .filter(|length| *length > 0)
        .count();
    // The last chunk of the transfer, behind the last event of the stream.
    let is_over = body.contains("data: [DONE]") && body.ends_with("0\r\n\r\n");
    if read.is_ok() && is_over && pieces > 0 {
        return Outcome::Whole(pieces);
    }
    let last = body.lines().rfind(|line| line.starts_with("data: "));
    let last: String = last.unwrap_or_default().chars().take(200).collect();
    Outcome::Broken(format!("{read:?} after {pieces} pieces; last {last:?}"))
}
