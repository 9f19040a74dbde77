//! What is remembered of a partial file, beside it.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use reqwest::header::{ETAG, HeaderMap, HeaderValue, LAST_MODIFIED};
use serde::{Deserialize, Serialize};

use crate::{fingerprint::Fingerprint, units::Bytes};

/// What is remembered of a partial file: whose it is, and how the server named the version that it is of.
///
/// We keep no digest of what is there: it is read again before it is continued, so that a torn write, a disk that
/// lies and a note of another file all come out. We keep no address either, as signed ones carry secrets.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Note {
    /// Tells what was asked for: the address without its query, and the digest.
    pub asked: Fingerprint,
    /// How the server names this version; absent when it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// The size of the whole; absent when the server did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Bytes>,
}

/// How a server names a version of a file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Version {
    /// A strong `ETag`.
    Etag(String),
    /// A `Last-Modified`.
    Modified(String),
}

// === impl Note ===

impl Note {
    /// The note beside a partial file. One that is torn, or of a newer release, is none.
    pub(super) fn read(partial: &Path) -> Option<Self> {
        let mut json = Vec::new();
        File::open(place(partial))
            .ok()?
            .take(MAX_NOTE)
            .read_to_end(&mut json)
            .ok()?;
        Self::parse(&json)
    }

    fn parse(json: &[u8]) -> Option<Self> {
        let note: Self = serde_json::from_slice(json).ok()?;
        // It is sent as it stands there.
        let sendable = match &note.version {
            Some(Version::Etag(text)) => is_strong(text),
            Some(Version::Modified(text)) => HeaderValue::from_str(text).is_ok(),
            None => true,
        };
        sendable.then_some(note)
    }

    /// Puts the note beside a partial file: the old one or the new one, whole.
    pub(super) fn write(&self, partial: &Path) -> io::Result<()> {
        let place = place(partial);
        let mut beside = place.clone().into_os_string();
        beside.push(".new");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(beside, place)
    }

    /// Removes the note beside a partial file; there may be none.
    pub(super) fn remove(partial: &Path) -> io::Result<()> {
        match fs::remove_file(place(partial)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

// === impl Version ===

impl Version {
    /// What the head of an answer says. A weak `ETag` is none: two versions may share it, and no range may be asked
    /// for by it (RFC 9110, section 13.1.5).
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name| {
            let value: &HeaderValue = headers.get(name)?;
            let text = value.to_str().ok()?;
            (text.len() <= MAX_VERSION).then(|| text.to_owned())
        };
        let etag = text(ETAG).filter(|etag| is_strong(etag)).map(Self::Etag);
        etag.or_else(|| text(LAST_MODIFIED).map(Self::Modified))
    }

    /// As it stands in `If-Range`.
    pub(super) fn text(&self) -> &str {
        let (Self::Etag(text) | Self::Modified(text)) = self;
        text
    }
}

fn is_strong(etag: &str) -> bool {
    etag.len() >= 2
        && etag.starts_with('"')
        && etag.ends_with('"')
        && HeaderValue::from_str(etag).is_ok()
}

/// `model.gguf.partial` has its note in `model.gguf.partial.json`.
pub(super) fn place(partial: &Path) -> PathBuf {
    let mut place = partial.as_os_str().to_owned();
    place.push(".json");
    place.into()
}

const MAX_NOTE: u64 = 4_096;
/// Real ones have some 70 characters.
const MAX_VERSION: usize = 512;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_note_survives_the_disk_and_a_torn_one_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let partial = directory.path().join("m.partial");
        assert_eq!(Note::read(&partial), None);
        let note = Note {
            asked: Fingerprint(7),
            version: Some(Version::Etag("\"a1\"".into())),
            total: Some(Bytes(9)),
        };
        note.write(&partial).unwrap();
        assert_eq!(Note::read(&partial).as_ref(), Some(&note));
        let whole = fs::read(place(&partial)).unwrap();
        fs::write(place(&partial), &whole[..whole.len() / 2]).unwrap();
        assert_eq!(Note::read(&partial), None);
        Note::remove(&partial).unwrap();
        Note::remove(&partial).unwrap();
    }

    #[test]
    fn a_note_whose_version_could_not_be_sent_is_none() {
        for version in [
            r#"{"etag":"W/\"weak\""}"#,
            r#"{"etag":"\"a\r\nx: y\""}"#,
            r#"{"modified":"a\r\nx: y"}"#,
        ] {
            let json = format!(r#"{{"asked":"0000000000000007","version":{version}}}"#);
            assert_eq!(Note::parse(json.as_bytes()), None, "{version}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_note_that_can_be_sent_or_none(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            etag in ".{0,12}",
        ) {
            prop_assert_eq!(Note::parse(&bytes), None);
            let note = Note { asked: Fingerprint(1), version: Some(Version::Etag(etag)), total: None };
            if let Some(read) = Note::parse(&serde_json::to_vec(&note).unwrap()) {
                prop_assert!(HeaderValue::from_str(read.version.unwrap().text()).is_ok());
            }
        }
    }
}
