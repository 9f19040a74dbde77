//! Names as the most forgetful file systems compare them.

use unicode_normalization::UnicodeNormalization as _;

/// The form of one part of a name in which it is the same as all those that some file system takes for it.
///
/// ext4 and f2fs with `casefold` compare the case-folded canonical form without the characters that are ignorable
/// by default; APFS compares canonical forms, NTFS and SMB shares upper-case ones. This is the compatibility
/// form, folded through upper case, which tells fewer names apart than each of them.
pub(super) fn fold(part: &str) -> String {
    if part.is_ascii() {
        return part.to_ascii_lowercase();
    }
    let visible = part.nfkc().filter(|c| !is_ignorable(*c));
    // Some capitals have no lower case of their own kind until they were lower case once: the capital sharp s.
    let folded = visible
        .flat_map(char::to_lowercase)
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase);
    folded.nfkc().collect()
}

/// `Default_Ignorable_Code_Point` of the Unicode Character Database (DerivedCoreProperties.txt, version 16.0).
fn is_ignorable(c: char) -> bool {
    IGNORABLE
        .iter()
        .any(|(first, last)| (first..=last).contains(&&u32::from(c)))
}

const IGNORABLE: [(u32, u32); 17] = [
    (0x00ad, 0x00ad),
    (0x034f, 0x034f),
    (0x061c, 0x061c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180f),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfff8),
    (0x1_bca0, 0x1_bca3),
    (0x1_d173, 0x1_d17a),
    (0xe_0000, 0xe_0fff),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_file_system_confuses_fold_to_one() {
        for (one, other) in [
            ("README", "readme"),
            ("caf\u{e9}", "cafe\u{301}"),
            ("CAF\u{c9}", "cafe\u{301}"),
            ("stra\u{df}e", "STRASSE"),
            ("\u{212b}", "\u{e5}"),
            ("\u{fb01}le", "file"),
            ("\u{ff21}", "a"),
            ("\u{3a3}", "\u{3c2}"),
            ("a\u{200d}b", "ab"),
            ("\u{1e9e}", "ss"),
        ] {
            assert_eq!(fold(one), fold(other), "{one} {other}");
        }
    }

    #[test]
    fn names_that_differ_stay_apart() {
        for (one, other) in [
            ("a", "b"),
            ("a", "\u{e4}"),
            ("lib.so", "lib.so.1"),
            ("\u{431}", "b"),
        ] {
            assert_ne!(fold(one), fold(other), "{one} {other}");
        }
    }
}
