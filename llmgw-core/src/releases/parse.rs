use serde::Deserialize;

use crate::{
    clock::Timestamp,
    cluster::{
        release::{Asset, Release},
        variant::BuildName,
    },
    units::Bytes,
};

/// Why an answer is no release.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// It is not JSON of the form that the API has.
    #[error("not a release as GitHub describes one")]
    Form(#[source] serde_json::Error),
    /// It has more files than any release that is meant for people.
    #[error("{count} files, where at most {MAX_ASSETS} are read")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// Its name can't be a directory's.
    #[error("the tag {tag:?} can't be used as a name")]
    Tag {
        /// The tag.
        tag: String,
    },
}

#[derive(Deserialize)]
struct PublishedRelease {
    tag_name: String,
    #[serde(default)]
    published_at: Option<String>,
    #[serde(default)]
    draft: bool,
    #[serde(default)]
    assets: Vec<PublishedAsset>,
}

#[derive(Deserialize)]
struct PublishedAsset {
    name: String,
    browser_download_url: String,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    digest: Option<String>,
    #[serde(default)]
    state: Option<String>,
}

/// Reads the answer for one release: the builds for Linux that can be fetched already.
///
/// # Errors
/// When it is not of the API's form, or can't be right.
pub fn parse(json: &[u8]) -> Result<Release, ParseError> {
    let release: PublishedRelease = serde_json::from_slice(json).map_err(ParseError::Form)?;
    checked(release)
}

/// Reads the answer for a list of releases, in the API's order: the newest first. Drafts are left out.
///
/// # Errors
/// As [`parse`].
pub fn parse_list(json: &[u8]) -> Result<Vec<Release>, ParseError> {
    let releases: Vec<PublishedRelease> = serde_json::from_slice(json).map_err(ParseError::Form)?;
    releases
        .into_iter()
        .filter(|release| !release.draft)
        .map(checked)
        .collect()
}

fn checked(release: PublishedRelease) -> Result<Release, ParseError> {
    let PublishedRelease {
        tag_name,
        published_at,
        draft: _,
        assets,
    } = release;
    if !is_name(&tag_name) {
        return Err(ParseError::Tag {
            tag: tag_name.chars().take(100).collect(),
        });
    }
    if assets.len() > MAX_ASSETS {
        return Err(ParseError::TooMany {
            count: assets.len(),
        });
    }
    let assets = assets
        .into_iter()
        .filter(|asset| BuildName::parse(&asset.name).is_some())
        // A file is listed before it is there: `starter` while it is being uploaded.
        .filter(|asset| asset.state.as_deref().unwrap_or(UPLOADED) == UPLOADED)
        .map(|asset| Asset {
            name: asset.name,
            url: asset.browser_download_url,
            size: asset.size.map(Bytes),
            // Another algorithm than sha256 is as good as none: it is not checked here.
            sha256: asset
                .digest
                .as_deref()
                .and_then(|digest| digest.strip_prefix("sha256:"))
                .and_then(|digits| digits.parse().ok()),
        })
        .collect();
    Ok(Release {
        tag: tag_name,
        published_at: published_at.as_deref().and_then(timestamp),
        assets,
    })
}

/// A tag becomes the name of a directory.
fn is_name(tag: &str) -> bool {
    !tag.is_empty()
        && tag.len() <= 64
        && !tag.starts_with('.')
        && tag
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

/// Reads `2026-11-30T19:38:57Z`, the one form in which the API writes times.
fn timestamp(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let mut time = time.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let fits = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    fits.then(|| {
        // Days since 1970 in the civil calendar, with the year beginning in March, so that the leap day is its
        // last: chrono-Compatible Low-Level Date Algorithms, section `days_from_civil` (H. Hinnant).
        let year = if month <= 2 { year - 1 } else { year };
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let month = (month + 9) % 12;
        let of_year = (153 * month + 2) / 5 + day - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
        Timestamp((days * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000)
    })
}

const UPLOADED: &str = "uploaded";
const MAX_ASSETS: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_the_form_of_the_api() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2026-11-30T19:38:57Z", 1_796_067_537),
        ] {
            assert_eq!(timestamp(text), Some(Timestamp(seconds * 1_000)), "{text}");
        }
        for wrong in [
            "",
            "2026-11-30",
            "2026-13-01T00:00:00Z",
            "2026-11-30T19:38:57+01:00",
        ] {
            assert_eq!(timestamp(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_not_there_yet_is_left_out_and_no_digest_is_no_digest() {
        let json = br#"{"tag_name":"b10991","published_at":"2026-11-30T19:38:57Z","assets":[
            {"name":"llama-b10991-bin-ubuntu-x64.tar.gz","browser_download_url":"https://a/x","size":16,
             "state":"uploaded","digest":"sha256:b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
            {"name":"llama-b10991-bin-ubuntu-vulkan-x64.tar.gz","browser_download_url":"https://a/v","size":16,
             "state":"starter","digest":null},
            {"name":"llama-b10991-bin-ubuntu-arm64.tar.gz","browser_download_url":"https://a/a","size":16,
             "state":"uploaded","digest":null},
            {"name":"llama-b10991-bin-macos-arm64.tar.gz","browser_download_url":"https://a/m"}]}"#;
        let release = parse(json).unwrap();
        let names: Vec<&str> = release.assets.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "llama-b10991-bin-ubuntu-x64.tar.gz",
                "llama-b10991-bin-ubuntu-arm64.tar.gz"
            ]
        );
        assert!(release.assets[0].sha256.is_some() && release.assets[1].sha256.is_none());
        assert_eq!(release.published_at, Some(Timestamp(1_796_067_537_000)));
    }

    #[test]
    fn a_digest_of_another_kind_is_none_even_if_it_is_as_long() {
        let digits = "ab".repeat(32);
        for (kind, known) in [("sha256:", true), ("sha3-256:", false), ("", false)] {
            let json = format!(
                r#"{{"tag_name":"b1","assets":[{{"name":"llama-b1-bin-ubuntu-x64.tar.gz",
                    "browser_download_url":"https://a/x","digest":"{kind}{digits}"}}]}}"#
            );
            let release = parse(json.as_bytes()).unwrap();
            assert_eq!(release.assets[0].sha256.is_some(), known, "{kind:?}");
        }
    }

    #[test]
    fn a_draft_is_left_out_of_a_list() {
        let json = br#"[{"tag_name":"b2","draft":true},{"tag_name":"b1","draft":false}]"#;
        let tags: Vec<String> = parse_list(json)
            .unwrap()
            .into_iter()
            .map(|release| release.tag)
            .collect();
        assert_eq!(tags, ["b1"]);
    }

    #[test]
    fn what_is_no_release_is_refused() {
        for json in [
            "",
            "[]",
            r#"{"message":"Not Found"}"#,
            r#"{"tag_name":""}"#,
            r#"{"tag_name":"../x"}"#,
            r#"{"tag_name":".trash-1"}"#,
        ] {
            assert!(parse(json.as_bytes()).is_err(), "{json}");
        }
        let tag = |length| format!(r#"{{"tag_name":"{}"}}"#, "b".repeat(length));
        assert!(parse(tag(64).as_bytes()).is_ok());
        assert!(parse(tag(65).as_bytes()).is_err());
        let asset = r#"{"name":"a","browser_download_url":"b"}"#;
        let many = vec![asset; MAX_ASSETS + 1].join(",");
        let json = format!(r#"{{"tag_name":"b1","assets":[{many}]}}"#);
        assert!(matches!(
            parse(json.as_bytes()),
            Err(ParseError::TooMany { .. })
        ));
    }
}
