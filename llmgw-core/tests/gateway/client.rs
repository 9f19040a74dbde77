//! A client that sees every byte: it writes requests as text and reads answers down to their chunks.

use std::{future::Future, net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    /// The answer broke off before its end.
    pub(crate) broken: bool,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = within(TcpStream::connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) {
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: gateway\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if method == "POST" {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        self.raw(&bytes).await;
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        within(self.stream.write_all(bytes)).await.unwrap();
    }

    pub(crate) async fn head(&mut self) -> Head {
        let head = self.try_head().await;
        head.expect("the connection was closed instead of an answer")
    }

    /// The next head; `None` when the connection is closed instead.
    pub(crate) async fn try_head(&mut self) -> Option<Head> {
        let line = self.line().await?;
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line().await?;
            let Some((name, value)) = line.split_once(": ") else {
                return Some(Head { status, headers });
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    pub(crate) async fn reply(&mut self) -> Reply {
        let head = self.head().await;
        let mut reply = Reply {
            head,
            body: Vec::new(),
            broken: false,
        };
        if reply.head.get("transfer-encoding") == Some("chunked") {
            loop {
                match self.chunk().await {
                    Some(chunk) if chunk.is_empty() => break,
                    Some(chunk) => reply.body.extend(chunk),
                    None => {
                        reply.broken = true;
                        break;
                    }
                }
            }
        } else {
            let length = reply.head.get("content-length").unwrap().parse().unwrap();
            reply.body = vec![0; length];
            within(self.stream.read_exact(&mut reply.body))
                .await
                .unwrap();
        }
        reply
    }

    /// The rest of a chunked answer, whose head was read.
    pub(crate) async fn reply_body(&mut self) -> String {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await {
            if chunk.is_empty() {
                break;
            }
            body.extend(chunk);
        }
        String::from_utf8(body).unwrap()
    }

    /// The next chunk of an answer, empty at the end; `None` when the connection is closed instead.
    pub(crate) async fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.line().await?;
        let mut chunk = vec![0; usize::from_str_radix(&line, 16).unwrap() + 2];
        within(self.stream.read_exact(&mut chunk)).await.ok()?;
        chunk.truncate(chunk.len() - 2);
        Some(chunk)
    }

    /// The bytes of the next chunks until `text` is among them.
    pub(crate) async fn chunks_until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            let chunk = self.chunk().await.unwrap();
            assert!(!chunk.is_empty(), "ended after {seen:?}");
            seen.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        seen
    }

    /// Whether the other side closes the connection, without another byte.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let read = within(self.stream.read_to_end(&mut rest)).await;
        read.is_err() || rest.is_empty()
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = within(self.stream.read_line(&mut line)).await.unwrap_or(0);
        (read > 0).then(|| line.trim_end().to_owned())
    }
}

impl Head {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(key, _)| key == name)?;
        Some(&header.1)
    }
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The error's code and message.
    pub(crate) fn error(&self) -> (String, String) {
        let error = &self.json()["error"];
        let text = |name: &str| error[name].as_str().unwrap().to_owned();
        (text("code"), text("message"))
    }
}

/// Nothing in these tests takes long; what hangs fails.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("it took too long")
}
