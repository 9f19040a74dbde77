//! The end: what is being answered is finished, or cut off by who insists.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::harness::Home;

#[test]
fn a_second_interrupt_cuts_off_what_the_first_one_waits_for_real_engine() {
    let home = Home::new();
    let mut up = home.up(|_| {});
    up.ready();

    // An answer that takes many times as long as this test.
    let key = fs::read_to_string(home.key_file()).unwrap();
    let mut client = Command::new("curl")
        .args(["-sSN", "--max-time", "120", "-H"])
        .arg(format!("Authorization: Bearer {}", key.trim()))
        .arg("-d")
        .arg(
            r#"{"model": "smollm2-135m", "stream": true, "max_tokens": 1800, "ignore_eos": true,
                "messages": [{"role": "user", "content": "Count."}]}"#,
        )
        .arg(format!("{}/v1/chat/completions", up.address()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stream = BufReader::new(client.stdout.take().unwrap());
    let mut first = String::new();
    stream.read_line(&mut first).unwrap();
    assert!(first.starts_with("data: "), "{first}");

    up.signal("-INT");
    up.wait_for("draining 1 request, up to 30 s; press Ctrl-C again to cut them off");
    let insisted = Instant::now();
    up.signal("-INT");
    let status = up.ended();
    let took = insisted.elapsed();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    client.wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert!(!rest.contains("[DONE]"), "the answer was cut off");
    assert_eq!(home.processes(), Vec::<String>::new());
}
