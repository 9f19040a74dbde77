//! Extended headers (POSIX.1-2017, pax, "pax Extended Header").

use crate::error::Rule;

/// What an extended header says that matters here.
#[derive(Debug, Default)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
}

impl Extended {
    /// Reads the body of the header of one entry. What is said twice is refused: the last holds in the standard
    /// and not in all programs.
    pub(super) fn read(body: &[u8]) -> Result<Self, Rule> {
        let mut extended = Self::default();
        each(body, |key, value| {
            if is_sparse(key) {
                return Err(Rule::Sparse);
            }
            match key {
                b"path" => set(&mut extended.path, value.to_vec()),
                b"linkpath" => set(&mut extended.link, value.to_vec()),
                b"size" => set(&mut extended.size, decimal(value)?),
                _ => Ok(()),
            }
        })?;
        Ok(extended)
    }
}

/// Checks a header for all entries that follow: `git archive` notes the commit in one, and that is all that one
/// is used for.
pub(super) fn check_global(body: &[u8]) -> Result<(), Rule> {
    each(body, |key, _| {
        let changes =
            is_sparse(key) || matches!(key, b"path" | b"linkpath" | b"size" | b"hdrcharset");
        if changes {
            return Err(Rule::GlobalHeader);
        }
        Ok(())
    })
}

/// The forms in which GNU and Schilling say that a file has holes.
fn is_sparse(key: &[u8]) -> bool {
    key.starts_with(b"GNU.sparse.") || key == b"SCHILY.realsize"
}

/// Goes through records of the form `length key=value\n`, where the length is that of the whole record.
fn each(
    mut body: &[u8],
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), Rule>,
) -> Result<(), Rule> {
    while !body.is_empty() {
        let digits = body.iter().position(|byte| *byte == b' ');
        let digits = digits.ok_or(Rule::ExtendedHeader)?;
        let length = decimal(body.get(..digits).unwrap_or_default())?;
        let length = usize::try_from(length).map_err(|_| Rule::ExtendedHeader)?;
        let record = body.get(..length).and_then(|record| record.get(digits..));
        let record = record
            .and_then(|record| record.strip_prefix(b" "))
            .and_then(|record| record.strip_suffix(b"\n"))
            .ok_or(Rule::ExtendedHeader)?;
        let equals = record.iter().position(|byte| *byte == b'=');
        let (key, value) = record.split_at(equals.ok_or(Rule::ExtendedHeader)?);
        if key.is_empty() {
            return Err(Rule::ExtendedHeader);
        }
        take(key, value.get(1..).unwrap_or_default())?;
        body = body.get(length..).unwrap_or_default();
    }
    Ok(())
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), Rule> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Rule::ExtendedHeader),
    }
}

fn decimal(text: &[u8]) -> Result<u64, Rule> {
    let is_decimal = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_decimal);
    text.and_then(|text| text.parse().ok())
        .ok_or(Rule::ExtendedHeader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_hold_anything_that_its_length_covers() {
        let extended = Extended::read(b"12 path=a\nb\n23 comment=12 path=zzz\n").unwrap();
        assert_eq!(extended.path.unwrap(), b"a\nb");
    }

    #[test]
    fn records_that_are_not_what_they_say_are_refused() {
        for body in [
            &b"11 path=a\nb\n"[..],
            b"13 path=a\nb\n",
            b"99 path=a\n",
            b"path=a\n",
            b"+9 path=a\n",
            b" 9 path=a\n",
            b"4 =\n",
            b"5 ab\n",
            b"1 \n",
            b"0 \n",
            b"18446744073709551616 a=b\n",
            b"9 path=a\n9 path=b\n",
            b"9 size=-\n",
            b"9 path=a\n\0",
        ] {
            assert_eq!(
                Extended::read(body).unwrap_err(),
                Rule::ExtendedHeader,
                "{:?}",
                String::from_utf8_lossy(body)
            );
        }
    }
}
