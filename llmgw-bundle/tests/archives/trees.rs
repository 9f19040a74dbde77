//! Trees that come out of an archive as they went in, whoever made the archive.

use std::{
    collections::BTreeMap,
    io::{Cursor, Write as _},
};

use llmgw_bundle::{archive::inspect, limits::Limits};
use proptest::prelude::*;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use crate::{
    craft::{gz, zst},
    site::{Site, There, file, folder, link, program, snapshot},
};

type Tree = BTreeMap<String, There>;

/// Trees of folders, files, programs and links to what is in them.
fn trees() -> impl Strategy<Value = Tree> {
    let part = prop_oneof![
        "[a-c]",
        "[a-z]{1,8}",
        "[x-z\u{e4}\u{3b1}]{2}",
        "[a-z]{60,130}"
    ];
    let path = prop::collection::vec(part, 1..5);
    let leaf = prop_oneof![
        Just(folder()),
        prop::collection::vec(any::<u8>(), 0..2_000).prop_map(file),
        prop::collection::vec(any::<u8>(), 0..10).prop_map(program),
        Just(link("")),
    ];
    prop::collection::vec((path, leaf), 0..25).prop_map(|leaves| {
        let mut tree = Tree::new();
        for (parts, leaf) in leaves {
            let path = parts.join("/");
            let above: Vec<String> = (1..parts.len())
                .map(|count| parts[..count].join("/"))
                .collect();
            let is_free = above
                .iter()
                .all(|path| matches!(tree.get(path), None | Some(There::Folder { .. })));
            if is_free && !tree.contains_key(&path) {
                tree.extend(above.into_iter().map(|path| (path, folder())));
                // Up to the root, and down again to something that need not be there.
                let mut target = "../".repeat(parts.len() - 1);
                target.extend(
                    parts[..parts.len() - 1]
                        .iter()
                        .map(|part| format!("{part}/")),
                );
                target.push_str("target");
                let leaf = match leaf {
                    There::Link { .. } => There::Link { target },
                    leaf => leaf,
                };
                tree.insert(path, leaf);
            }
        }
        tree
    })
}

/// As the crate `tar` packs it, with GNU's long names.
fn packed_tar(tree: &Tree) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, there) in tree {
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        match there {
            There::Folder { .. } => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(0o755);
                builder.append_data(&mut header, path, &[][..]).unwrap();
            }
            There::File { mode, bytes } => {
                header.set_size(bytes.len() as u64);
                header.set_mode(*mode);
                builder.append_data(&mut header, path, &bytes[..]).unwrap();
            }
            There::Link { target } => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_mode(0o777);
                builder.append_link(&mut header, path, target).unwrap();
            }
        }
    }
    builder.into_inner().unwrap()
}

/// As the crate `zip` packs it.
fn packed_zip(tree: &Tree, method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, there) in tree {
        let options = SimpleFileOptions::default().compression_method(method);
        match there {
            There::Folder { .. } => zip.add_directory(path, options).unwrap(),
            There::File { mode, bytes } => {
                zip.start_file(path, options.unix_permissions(*mode))
                    .unwrap();
                zip.write_all(bytes).unwrap();
            }
            There::Link { target } => zip.add_symlink(path, target, options).unwrap(),
        }
    }
    zip.finish().unwrap().into_inner()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_packed_is_what_is_extracted(tree in trees()) {
        let plain = packed_tar(&tree);
        for archive in [
            gz(&plain),
            zst(&plain),
            plain,
            packed_zip(&tree, CompressionMethod::Stored),
            packed_zip(&tree, CompressionMethod::Deflated),
        ] {
            let site = Site::new(&archive);
            let done = site.extract(Limits::default()).unwrap();
            prop_assert_eq!(&snapshot(&site.destination), &tree);
            let listing = inspect(&site.archive, &Limits::default()).unwrap();
            prop_assert_eq!(done.bytes, listing.bytes);
            let mut listed: Vec<_> = listing.entries.into_iter().map(|entry| entry.path).collect();
            listed.sort();
            prop_assert_eq!(listed, tree.keys().cloned().collect::<Vec<_>>());
        }
    }
}
