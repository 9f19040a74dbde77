//! Questions to an engine, and waits that have an end.

use std::time::Duration;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    match tokio::time::timeout(Duration::from_secs(120), future).await {
        Ok(output) => output,
        Err(_) => panic!("it takes too long"),
    }
}

pub(crate) async fn post(endpoint: &str, path: &str, body: &Value) -> Value {
    let body = body.to_string();
    let mut stream = TcpStream::connect(endpoint).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.0\r\nhost: {endpoint}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len(),
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}
