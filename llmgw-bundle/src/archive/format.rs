//! What an archive is: by its content, and by its name where that says something.

use std::{fmt, path::Path};

use serde::Serialize;

use super::tar;

/// A format that can be read here.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub enum Format {
    /// A tar archive.
    #[serde(rename = "tar")]
    Tar,
    /// A tar archive in a gzip stream.
    #[serde(rename = "tar.gz")]
    TarGz,
    /// A tar archive in a zstd stream.
    #[serde(rename = "tar.zst")]
    TarZst,
    /// A zip archive; wheels are.
    #[serde(rename = "zip")]
    Zip,
}

impl Format {
    /// What a file that begins with `start` is.
    pub(super) fn of_content(start: &[u8]) -> Option<Self> {
        // A zip archive begins with its first member, or with its end when it has none.
        if start.starts_with(b"PK\x03\x04") || start.starts_with(b"PK\x05\x06") {
            Some(Self::Zip)
        } else if start.starts_with(GZIP) {
            Some(Self::TarGz)
        } else if start.starts_with(ZSTD) {
            Some(Self::TarZst)
        } else if tar::is_first_block(start) {
            Some(Self::Tar)
        } else {
            None
        }
    }

    /// The end of the name, when it is one of another format's.
    pub(super) fn contradicted_by(self, name: &Path) -> Option<&'static str> {
        let name = name.file_name()?.to_str()?.to_ascii_lowercase();
        let says = |end: &str| {
            name.strip_suffix(end)
                .is_some_and(|stem| stem.ends_with('.'))
        };
        let (end, format) = ENDS.into_iter().find(|(end, _)| says(end))?;
        (format != Some(self)).then_some(end)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tar => "tar",
            Self::TarGz => "tar.gz",
            Self::TarZst => "tar.zst",
            Self::Zip => "zip",
        })
    }
}

/// RFC 1952, section 2.3.1, with its only method.
pub(super) const GZIP: &[u8] = b"\x1f\x8b\x08";
/// RFC 8878, section 3.1.1.
pub(super) const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

/// Ends of names, the longer ones first, and what they say.
const ENDS: [(&str, Option<Format>); 16] = [
    ("tar.gz", Some(Format::TarGz)),
    ("tar.zst", Some(Format::TarZst)),
    ("tar", Some(Format::Tar)),
    ("tgz", Some(Format::TarGz)),
    ("tzst", Some(Format::TarZst)),
    ("zip", Some(Format::Zip)),
    ("whl", Some(Format::Zip)),
    ("gz", Some(Format::TarGz)),
    ("zst", Some(Format::TarZst)),
    ("tar.bz2", None),
    ("tar.xz", None),
    ("tbz2", None),
    ("txz", None),
    ("bz2", None),
    ("xz", None),
    ("7z", None),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_says_nothing_contradicts_nothing() {
        for name in ["a", "a.bin", "tar", "zip", "a.zip.partial", "b3a1.0"] {
            assert_eq!(Format::Tar.contradicted_by(Path::new(name)), None, "{name}");
        }
    }

    #[test]
    fn a_name_contradicts_every_format_but_its_own() {
        for (name, own) in [
            ("a.tar", Format::Tar),
            ("a.TAR.GZ", Format::TarGz),
            ("a.tgz", Format::TarGz),
            ("a.tar.zst", Format::TarZst),
            ("a.whl", Format::Zip),
        ] {
            for format in [Format::Tar, Format::TarGz, Format::TarZst, Format::Zip] {
                let contradicts = format.contradicted_by(Path::new(name)).is_some();
                assert_eq!(contradicts, format != own, "{name} {format}");
            }
        }
        assert_eq!(
            Format::Tar.contradicted_by(Path::new("a.tar.xz")),
            Some("tar.xz")
        );
    }
}
