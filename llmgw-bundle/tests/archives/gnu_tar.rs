//! Held against GNU tar: what it lists and what it makes of the same archive.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Command,
};

use llmgw_bundle::{
    archive::{Entry, Kind, inspect},
    limits::Limits,
};

use crate::site::{Site, snapshot, workplace};

/// A tree with all that a good archive may hold, as far as the format can say it.
fn plant(root: &Path, longest: usize) {
    fs::create_dir_all(root.join("top/bin")).unwrap();
    fs::create_dir(root.join("top/empty")).unwrap();
    fs::write(root.join("top/bin/server"), vec![0x7f; 100_000]).unwrap();
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(root.join("top/bin/server"), executable).unwrap();
    fs::write(root.join("top/bin/none"), "").unwrap();
    fs::write(root.join("top/with space"), "1").unwrap();
    fs::write(root.join("top/block"), vec![1; 512]).unwrap();
    fs::write(root.join("top/gr\u{fc}\u{df}e"), "2").unwrap();
    symlink("bin/server", root.join("top/server")).unwrap();
    symlink("../bin/none", root.join("top/empty/up")).unwrap();
    // One part is at most 255 bytes; each level makes the name longer.
    let mut folder = root.join("top");
    let mut length = "top".len();
    while length + 52 < longest {
        folder = folder.join("f".repeat(50));
        length += 51;
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("file"), length.to_string()).unwrap();
    }
    if longest > 200 {
        fs::write(root.join("top").join("n".repeat(200)), "3").unwrap();
        symlink("t".repeat(200), root.join("top/long-target")).unwrap();
    }
}

fn tar(arguments: &[&str]) -> String {
    let output = Command::new("tar")
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .output();
    let output = output.expect("GNU tar is installed (Debian: tar)");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// What `tar -tv` says of each entry: kind and mode, size, name, target.
fn listed(archive: &Path) -> Vec<String> {
    let archive = archive.to_str().unwrap();
    let text = tar(&[
        "-tvf",
        archive,
        "--quoting-style=literal",
        "--full-time",
        "--numeric-owner",
    ]);
    text.lines()
        .map(|line| {
            let mut fields = line.splitn(6, ' ').filter(|field| !field.is_empty());
            let mode = fields.next().unwrap().to_owned();
            // Owner, then size, date and time; the size is aligned with spaces.
            let rest = line.split_once(' ').unwrap().1;
            let mut words = rest.split_whitespace();
            words.next();
            let size = words.next().unwrap();
            let time = rest.find(':').unwrap();
            // Times of entries with and without fractions are aligned with spaces.
            let name = rest
                .get(time..)
                .unwrap()
                .split_once(' ')
                .unwrap()
                .1
                .trim_start();
            let is_executable = mode.chars().nth(3) == Some('x');
            let kind = mode.chars().next().unwrap();
            let x = if kind == '-' && is_executable {
                "x"
            } else {
                ""
            };
            let name = name.strip_prefix("./").unwrap_or(name);
            format!(
                "{kind}{x} {size} {}",
                name.strip_suffix('/').unwrap_or(name)
            )
        })
        // The folder that all are in is no entry here.
        .filter(|line| line != "d 0 ")
        .collect()
}

fn ours(entry: &Entry) -> String {
    let Entry { path, kind } = entry;
    match kind {
        Kind::Folder => format!("d 0 {path}"),
        Kind::File { bytes, executable } => {
            let x = if *executable { "x" } else { "" };
            format!("-{x} {} {path}", bytes.0)
        }
        Kind::Link { target } => format!("l 0 {path} -> {target}"),
    }
}

#[test]
fn both_list_and_make_the_same_in_every_format_that_gnu_tar_writes() {
    // The longest name that each format can say; the old ones have no long ones.
    for (format, longest) in [
        ("v7", 99),
        ("oldgnu", 2_000),
        ("gnu", 2_000),
        ("ustar", 180),
        ("pax", 2_000),
    ] {
        for (packing, name) in [
            ("", "a.tar"),
            ("--gzip", "a.tar.gz"),
            ("--zstd", "a.tar.zst"),
        ] {
            for start in ["top", "."] {
                let work = workplace();
                let source = work.path().join("source");
                fs::create_dir(&source).unwrap();
                plant(&source, longest);
                let archive = work.path().join(name);
                let form = format!("--format={format}");
                let mut arguments = vec![
                    "-cf",
                    archive.to_str().unwrap(),
                    &form,
                    "-C",
                    source.to_str().unwrap(),
                ];
                arguments.extend(Some(packing).filter(|packing| !packing.is_empty()));
                arguments.push(start);
                tar(&arguments);

                let listing = inspect(&archive, &Limits::default()).unwrap();
                let own: Vec<String> = listing.entries.iter().map(ours).collect();
                assert_eq!(own, listed(&archive), "{format} {name} {start}");

                let theirs = work.path().join("theirs");
                fs::create_dir(&theirs).unwrap();
                tar(&[
                    "-xf",
                    archive.to_str().unwrap(),
                    "-C",
                    theirs.to_str().unwrap(),
                ]);
                let site = Site::named(name, &fs::read(&archive).unwrap());
                site.extract(Limits::default()).unwrap();
                assert_eq!(site.tree(), snapshot(&theirs), "{format} {name} {start}");
            }
        }
    }
}
