//! A build as releases have them, whose program is the stand-in that computes as a check model asks.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use llmgw_core::gguf::check::CheckModel;
use serde_json::{Value, json};

/// The number that the stand-in calls itself.
pub(crate) const NUMBER: u64 = 4_711;

/// Packs a build into `path`, by what the name ends with; its program does as `plan` says. Where that names a
/// directory as `holds`, the program waits for ever at the step that a file there has the name of, once.
pub(crate) fn pack(path: &Path, mut plan: Value, more: &[(&str, Vec<u8>)]) {
    let model = CheckModel::mixed();
    plan["answers"] = json!([[model.prompt(), model.answer()]]);
    let work = tempfile::tempdir().unwrap();
    let top = work.path().join(format!("llama-b{NUMBER}"));
    fs::create_dir(&top).unwrap();
    // Engines are started with an environment of their own: what the program does comes with it.
    let holds = plan["holds"].as_str().unwrap_or("/nonexistent").to_owned();
    let program = format!(
        r#"#!/bin/sh
case "$1" in --version) step=version;; --list-devices) step=devices;; *) step=compute;; esac
if [ -e '{holds}'/$step ]; then mv '{holds}'/$step '{holds}'/$step.reached; exec sleep 1000; fi
here=$(dirname "$0")
PLAN="$here/plan.json" exec python3 "$here/computing.py" "$@"
"#
    );
    fs::write(top.join("llama-server"), program).unwrap();
    fs::set_permissions(top.join("llama-server"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(computing(), top.join("computing.py")).unwrap();
    fs::write(top.join("plan.json"), plan.to_string()).unwrap();
    for (name, bytes) in more {
        fs::write(top.join(name), bytes).unwrap();
    }
    let name = path.to_str().unwrap();
    let (program, args): (&str, &[&str]) = if name.ends_with(".zip") {
        let pack = "import shutil, sys; shutil.make_archive(sys.argv[1][:-4], 'zip', '.')";
        ("python3", &["-c", pack])
    } else if name.ends_with("z") {
        ("tar", &["-cz", "-f"])
    } else {
        ("tar", &["-c", "-f"])
    };
    let mut command = Command::new(program);
    command.args(args).arg(path).current_dir(work.path());
    if program == "tar" {
        command.arg(top.file_name().unwrap());
    }
    assert!(command.status().unwrap().success(), "{program} {args:?}");
}

/// Bytes that can't be packed smaller.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// The stand-in of the agent library's own tests.
fn computing() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../llmgw-agent/tests/scene/computing.py")
}
