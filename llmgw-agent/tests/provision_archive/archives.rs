//! Archives as releases have them, with programs that only say what they are.

use std::{path::Path, process::Command};

use crate::site::script;

/// An archive with one top folder, a server program that calls itself `number`, and files besides.
pub(crate) fn engine(number: u64, more: &[(&str, &str)]) -> Vec<u8> {
    let text = format!(
        "#!/bin/sh\ncase \"$1\" in\n  --version) echo 'version: {number} (abc1234)' >&2;;\n  \
         --list-devices) echo 'Available devices:'; cat \"$(dirname \"$0\")/devices\" 2>/dev/null; exit 0;;\n  *) exit 3;;\nesac\n"
    );
    packed(|top| {
        script(&top.join("llama-server"), &text);
        std::fs::write(top.join("LICENSE"), "free").unwrap();
        for (name, text) in more {
            std::fs::write(top.join(name), text).unwrap();
        }
    })
}

/// The same with a library in it that needs `needed`.
pub(crate) fn engine_that_needs(number: u64, needed: &str) -> Vec<u8> {
    let whole = engine(number, &[]);
    let directory = tempfile::tempdir().unwrap();
    unpack(&whole, directory.path());
    library(&directory.path().join("llama"), "libthing.so", needed);
    pack(directory.path())
}

/// The same with a program of this machine in it, which asks for its C library or an older one.
pub(crate) fn engine_with_program(number: u64) -> Vec<u8> {
    let whole = engine(number, &[]);
    let directory = tempfile::tempdir().unwrap();
    unpack(&whole, directory.path());
    std::fs::copy("/bin/true", directory.path().join("llama/tool")).unwrap();
    pack(directory.path())
}

/// An archive whose one top folder is filled by `fill`.
pub(crate) fn packed(fill: impl FnOnce(&Path)) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path().join("llama");
    std::fs::create_dir(&top).unwrap();
    fill(&top);
    pack(directory.path())
}

fn pack(directory: &Path) -> Vec<u8> {
    let archive = directory.join("archive.tar.gz");
    let packed = Command::new("tar")
        .arg("-czf")
        .arg(&archive)
        .arg("-C")
        .arg(directory)
        .arg("llama")
        .status()
        .unwrap();
    assert!(packed.success());
    std::fs::read(archive).unwrap()
}

fn unpack(bytes: &[u8], directory: &Path) {
    let archive = directory.join("in.tar.gz");
    std::fs::write(&archive, bytes).unwrap();
    let unpacked = Command::new("tar")
        .arg("-xzf")
        .arg(&archive)
        .arg("-C")
        .arg(directory)
        .status()
        .unwrap();
    assert!(unpacked.success());
}

/// A shared library that needs another, made by the compiler that links this test.
fn library(directory: &Path, name: &str, needed: &str) {
    let run = |args: &[&str]| {
        let made = Command::new("cc")
            .current_dir(directory)
            .args(args)
            .status();
        assert!(
            made.is_ok_and(|made| made.success()),
            "a C compiler is needed: cc {args:?}"
        );
    };
    std::fs::write(directory.join("none.c"), "").unwrap();
    let soname = format!("-Wl,-soname,{needed}");
    run(&[
        "-shared",
        "-nostdlib",
        "-o",
        "libneeded.so",
        &soname,
        "none.c",
    ]);
    run(&[
        "-shared",
        "-nostdlib",
        "-Wl,--no-as-needed",
        "-o",
        name,
        "none.c",
        "-L.",
        "-lneeded",
    ]);
    for file in ["none.c", "libneeded.so"] {
        std::fs::remove_file(directory.join(file)).unwrap();
    }
}
