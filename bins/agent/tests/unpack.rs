//! `llmgw-agent unpack` as it is called: what it makes, what it says, how it ends.
#![expect(clippy::unwrap_used, reason = "a test that can't be set up has failed")]

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Output},
    thread,
};

use tempfile::TempDir;

fn unpack(work: &TempDir, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_llmgw-agent"))
        .arg("unpack")
        .args(arguments)
        .current_dir(work.path())
        .output()
        .unwrap()
}

/// A ustar archive of these files (POSIX.1-2017, pax, "ustar Interchange Format").
fn tar(path: &Path, files: &[(&str, &str)]) {
    let mut out = fs::File::create(path).unwrap();
    for (name, text) in files {
        let mut block = [0; 1024];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..108].copy_from_slice(b"0000755\0");
        block[124..136].copy_from_slice(format!("{:011o}\0", text.len()).as_bytes());
        block[148..156].fill(b' ');
        block[156] = b'0';
        block[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block[512..512 + text.len()].copy_from_slice(text.as_bytes());
        out.write_all(&block).unwrap();
    }
    out.write_all(&[0; 1024]).unwrap();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_good_archive_is_unpacked_without_its_top_folder() {
    let work = tempfile::tempdir().unwrap();
    tar(
        &work.path().join("a.tar"),
        &[("top/x", "1"), ("top/b/y", "22")],
    );
    let output = unpack(&work, &["a.tar", "out"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "out: 2 entries, 3 B, from a tar archive that breaks no rule\n"
    );
    assert_eq!(fs::read(work.path().join("out/b/y")).unwrap(), b"22");

    let output = unpack(&work, &["a.tar", "kept", "--keep-top", "-o", "json"]);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!({"format": "tar", "entries": 2, "bytes": 3, "top": "top"});
    assert_eq!(said, expected);
    assert_eq!(fs::read(work.path().join("kept/top/x")).unwrap(), b"1");
}

#[test]
fn a_listing_writes_nothing() {
    let work = tempfile::tempdir().unwrap();
    tar(&work.path().join("a.tar"), &[("x", "1")]);
    let output = unpack(&work, &["a.tar", "--list"]);
    assert_eq!(
        text(&output.stdout),
        "prog            1 x\n1 entries, 1 B, in a tar archive that breaks no rule\n"
    );
    let output = unpack(&work, &["a.tar", "--list", "-o", "json"]);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["entries"][0]["path"], "x");
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 1);
}

#[test]
fn a_terminal_is_told_nothing_by_names_and_programs_get_them_whole() {
    let work = tempfile::tempdir().unwrap();
    // Shown as it stands, it reads as a text file.
    let name = "setup\u{202e}txt.sh";
    tar(&work.path().join("a.tar"), &[(name, "1")]);
    let shown = text(&unpack(&work, &["a.tar", "--list"]).stdout);
    assert!(
        shown.starts_with("prog            1 setup txt.sh\n"),
        "{shown:?}"
    );
    let output = unpack(&work, &["a.tar", "--list", "-o", "json"]);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["entries"][0]["path"], name);

    let said = text(&unpack(&work, &["a\u{1b}]0;b\u{7}.tar", "--list"]).stderr);
    assert!(said.starts_with("error: "), "{said:?}");
    assert!(!said.contains(['\u{1b}', '\u{7}']), "{said:?}");
}

#[test]
fn a_hostile_archive_is_refused_with_its_entry_the_rule_and_a_hint() {
    let work = tempfile::tempdir().unwrap();
    tar(
        &work.path().join("a.tar"),
        &[("good", "1"), ("../evil", "1")],
    );
    for arguments in [&["a.tar", "out"][..], &["a.tar", "--list"]] {
        let output = unpack(&work, arguments);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        let line = "error: a.tar: entry \"../evil\" is refused: its name has a part that is empty, . or ..\n";
        assert!(said.starts_with(line), "{said}");
        assert!(said.contains("\nhint: nothing was written;"), "{said}");
        assert_eq!(fs::read_dir(work.path()).unwrap().count(), 1);
    }
}

#[test]
fn what_can_not_be_meant_is_wrong_input() {
    let work = tempfile::tempdir().unwrap();
    tar(&work.path().join("a.tar"), &[("x", "1")]);
    for arguments in [
        &["none.tar", "out"][..],
        &["a.tar"],
        &["a.tar", "out", "--list"],
        &["a.tar", "."],
    ] {
        let output = unpack(&work, arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    }
}

#[test]
fn the_folder_that_one_is_in_is_not_unpacked_to_and_what_to_name_is_said() {
    let work = tempfile::tempdir().unwrap();
    let archive = tempfile::tempdir().unwrap();
    let archive = archive.path().join("a.tar");
    tar(&archive, &[("x", "1")]);
    for folder in [".", "./", ".."] {
        let output = unpack(&work, &[archive.to_str().unwrap(), folder]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.starts_with(&format!("error: {folder} can't be unpacked to: ")),
            "{said}"
        );
        assert!(
            said.contains("\nhint: name a folder that does not exist yet"),
            "{said}"
        );
        assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
    }
}

#[test]
fn an_interrupt_ends_it_and_leaves_nothing() {
    let work = tempfile::tempdir().unwrap();
    let archive = work.path().join("a.tar");
    // Half a gigabyte of nothing, which takes no room until it is written.
    const SIZE: u64 = 512 << 20;
    tar(&archive, &[("x", "")]);
    let mut bytes = fs::read(&archive).unwrap();
    bytes[124..136].copy_from_slice(format!("{SIZE:011o}\0").as_bytes());
    bytes[148..156].fill(b' ');
    let sum: u32 = bytes[..512].iter().map(|byte| u32::from(*byte)).sum();
    bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    fs::write(&archive, &bytes[..512]).unwrap();
    fs::File::options()
        .write(true)
        .open(&archive)
        .unwrap()
        .set_len(512 + SIZE + 1_024)
        .unwrap();

    let mut child = Command::new(env!("CARGO_BIN_EXE_llmgw-agent"))
        .args(["unpack", "a.tar", "out"])
        .current_dir(work.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while !work.path().join(".out.partial/x").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        thread::yield_now();
    }
    let interrupt = ["-INT".to_owned(), child.id().to_string()];
    assert!(
        Command::new("kill")
            .args(interrupt)
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "error: extracting a.tar was cancelled\n"
    );
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 1);
}
