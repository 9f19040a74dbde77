//! Embeds the checked archive reader: a member that could leave its place is refused, by name and by rule.
//!
//! `cargo run -p llmgw-examples --example member`

use std::fs;

use llmgw_bundle::{archive::extract_member, limits::Limits};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let archive = std::env::temp_dir().join(format!("llmgw-example-{}.zip", std::process::id()));

    fs::write(&archive, ARCHIVE)?;
    let member = extract_member(&archive, "a.txt", &mut Vec::new(), &Limits::default())?;
    say(&format!(
        "a.txt: {} with sha256 {}",
        member.bytes, member.sha256
    ));

    // The same archive, as somebody with bad intentions would make it.
    fs::write(&archive, renamed(ARCHIVE, "a.txt", "../ab"))?;
    let escape = extract_member(&archive, "../ab", &mut Vec::new(), &Limits::default());
    fs::remove_file(&archive)?;
    match escape {
        Ok(_) => return Err("a member left its place".into()),
        Err(error) => say(&format!("refused: {error}")),
    }
    Ok(())
}

fn renamed(archive: &[u8], from: &str, to: &str) -> Vec<u8> {
    let mut bytes = archive.to_vec();
    for start in 0..bytes.len().saturating_sub(from.len()) {
        if bytes[start..].starts_with(from.as_bytes()) {
            bytes[start..start + to.len()].copy_from_slice(to.as_bytes());
        }
    }
    bytes
}

#[expect(clippy::print_stdout, reason = "an example shows what it found")]
fn say(text: &str) {
    println!("{text}");
}

/// A zip file of one stored member, `a.txt`, that holds `a`.
const ARCHIVE: &[u8] = &[
    0x50, 0x4b, 0x03, 0x04, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x21, 0x00, 0x43, 0xbe,
    0xb7, 0xe8, 0x01, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x61, 0x2e,
    0x74, 0x78, 0x74, 0x61, 0x50, 0x4b, 0x01, 0x02, 0x14, 0x03, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x21, 0x00, 0x43, 0xbe, 0xb7, 0xe8, 0x01, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00,
    0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x01, 0x00, 0x00,
    0x00, 0x00, 0x61, 0x2e, 0x74, 0x78, 0x74, 0x50, 0x4b, 0x05, 0x06, 0x00, 0x00, 0x00, 0x00, 0x01,
    0x00, 0x01, 0x00, 0x33, 0x00, 0x00, 0x00, 0x24, 0x00, 0x00, 0x00, 0x00, 0x00,
];
