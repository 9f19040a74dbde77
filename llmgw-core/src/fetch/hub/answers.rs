//! What a hub answers, read no further than it holds together.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use sha1::{Digest as _, Sha1};

use crate::{
    cluster::weights::{Sha256Digest, is_relative},
    units::Bytes,
};

/// What a revision stands for, and the files that it has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Revision {
    pub commit: String,
    pub files: BTreeSet<String>,
}

/// What is said of one file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PathInfo {
    pub size: Bytes,
    /// Of its bytes; absent for a file that is kept in git itself.
    pub sha256: Option<Sha256Digest>,
    /// What git calls it: of a file in LFS, that of its pointer.
    pub blob: String,
}

#[derive(Deserialize)]
struct RevisionAnswer {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

#[derive(Deserialize)]
struct PathAnswer {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    oid: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    lfs: Option<LfsAnswer>,
}

#[derive(Deserialize)]
struct LfsAnswer {
    oid: String,
    size: u64,
}

// === impl Revision ===

impl Revision {
    /// Reads the answer to a question for `asked`. A commit stands for itself.
    pub(super) fn parse(body: &[u8], asked: &str) -> Result<Self, String> {
        let answer: RevisionAnswer = serde_json::from_slice(body).map_err(|e| e.to_string())?;
        let RevisionAnswer { sha, siblings } = answer;
        if !is_git_id(&sha) {
            return Err("its commit is none".to_owned());
        }
        if is_git_id(asked) && asked != sha {
            return Err(format!("it is another commit, {sha}"));
        }
        // A name that leaves the repository is of no file that anybody can ask for.
        let names = siblings.into_iter().map(|sibling| sibling.rfilename);
        Ok(Self {
            commit: sha,
            files: names.filter(|name| is_relative(name)).collect(),
        })
    }
}

// === impl PathInfo ===

impl PathInfo {
    /// Reads what is said of files, by path; directories are left out.
    pub(super) fn parse(body: &[u8]) -> Result<BTreeMap<String, Self>, String> {
        let answers: Vec<PathAnswer> = serde_json::from_slice(body).map_err(|e| e.to_string())?;
        let mut infos = BTreeMap::new();
        for answer in answers.into_iter().filter(|answer| answer.kind == "file") {
            let PathAnswer {
                path,
                oid,
                size,
                lfs,
                ..
            } = answer;
            let wrong = |problem: &str| Err(format!("{path}: {problem}"));
            if !is_git_id(&oid) {
                return wrong("its oid is none");
            }
            let sha256 = match &lfs {
                None => None,
                Some(lfs) => match lfs.oid.strip_prefix("sha256:").unwrap_or(&lfs.oid).parse() {
                    Ok(digest) => Some(digest),
                    Err(_) => return wrong("its lfs.oid is no sha256"),
                },
            };
            let size = Bytes(lfs.map_or(size, |lfs| lfs.size));
            let info = Self {
                size,
                sha256,
                blob: oid,
            };
            if infos.insert(path.clone(), info).is_some() {
                return wrong("it is there twice");
            }
        }
        Ok(infos)
    }
}

/// What git calls a file of these bytes.
pub(super) fn git_blob(bytes: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", bytes.len()));
    hash.update(bytes);
    data_encoding::HEXLOWER.encode(&hash.finalize())
}

fn is_git_id(text: &str) -> bool {
    text.len() == 40
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn git_names_a_file_by_its_bytes() {
        // What `git hash-object` says of an empty file and of "hello\n".
        assert_eq!(git_blob(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(
            git_blob(b"hello\n"),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
    }

    #[test]
    fn a_revision_is_a_commit_and_a_commit_is_itself() {
        let answer = format!(
            r#"{{"sha":"{COMMIT}","siblings":[{{"rfilename":"a/b.gguf"}},{{"rfilename":"../x"}}],"private":false}}"#
        );
        let revision = Revision::parse(answer.as_bytes(), "main").unwrap();
        assert_eq!(revision.commit, COMMIT);
        assert_eq!(revision.files, BTreeSet::from(["a/b.gguf".to_owned()]));
        let other = "1".repeat(40);
        assert!(Revision::parse(answer.as_bytes(), &other).is_err());
        assert!(Revision::parse(br#"{"sha":"main"}"#, "main").is_err());
    }

    #[test]
    fn a_large_file_has_the_digest_of_its_lfs_record() {
        let digest = "a".repeat(64);
        let answer = format!(
            r#"[{{"type":"file","oid":"{COMMIT}","size":134,"path":"m.gguf",
                "lfs":{{"oid":"{digest}","size":9000000000,"pointerSize":134}}}},
               {{"type":"directory","oid":"{COMMIT}","size":0,"path":"d"}},
               {{"type":"file","oid":"{COMMIT}","size":7,"path":"config.json"}}]"#
        );
        let infos = PathInfo::parse(answer.as_bytes()).unwrap();
        assert_eq!(infos.len(), 2);
        assert_eq!(infos["m.gguf"].size, Bytes(9_000_000_000));
        assert_eq!(infos["m.gguf"].sha256.unwrap().to_string(), digest);
        assert_eq!(infos["config.json"].sha256, None);
        let wrong = answer.replace(&digest, "sha1");
        assert!(PathInfo::parse(wrong.as_bytes()).is_err());
        // Two answers for one path: nobody knows which of them holds.
        let twice = answer.replace("config.json", "m.gguf");
        assert!(PathInfo::parse(twice.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn no_answer_makes_a_file_leave_its_repository(
            sha in "[0-9a-f]{40}|.{0,41}",
            names in proptest::collection::vec("(\\.\\./|/|[a-z.]{1,3}/?){0,4}", 0..6),
        ) {
            let siblings: Vec<_> = names
                .iter()
                .map(|name| serde_json::json!({ "rfilename": name }))
                .collect();
            let body = serde_json::json!({ "sha": sha, "siblings": siblings }).to_string();
            if let Ok(revision) = Revision::parse(body.as_bytes(), "main") {
                prop_assert!(is_git_id(&revision.commit));
                prop_assert!(revision.files.iter().all(|name| is_relative(name)));
            }
        }

        #[test]
        fn any_bytes_are_an_answer_or_a_refusal(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let refused = Revision::parse(&bytes, "main").is_err() && PathInfo::parse(&bytes).is_err();
            // Two bytes can be an empty list.
            prop_assert!(refused || bytes.len() >= 2);
        }
    }
}
