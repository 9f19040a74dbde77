//! The fields of a form (`multipart/form-data`, RFC 7578) that the gateway must know, found and left where they are.

use std::ops::Range;

use http::HeaderValue;
use memchr::memmem;

use crate::{error::Code, gateway::refusal::Refusal};

/// Where the values stand.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) model: Option<Range<usize>>,
    pub(super) stream: Option<Range<usize>>,
}

/// Whether a content type is that of a form.
pub(super) fn is_form(kind: &HeaderValue) -> bool {
    let kind = kind.as_bytes();
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    essence
        .trim_ascii()
        .eq_ignore_ascii_case(b"multipart/form-data")
}

/// Finds the fields. One that stands twice is refused, as in JSON.
pub(super) fn read(text: &[u8], kind: &HeaderValue) -> Result<Fields, Refusal> {
    let Some(boundary) = boundary(kind) else {
        return Err(wrong(
            "its content type names no boundary of 1 to 70 characters",
        ));
    };
    let delimiter = [b"--", boundary.as_slice()].concat();
    let finder = memmem::Finder::new(&delimiter);
    let mut fields = Fields::default();
    // What stands before the first delimiter is no part of the form.
    let Some(mut at) = next_delimiter(text, 0, &finder) else {
        return Err(wrong("its boundary does not stand in it"));
    };
    for _ in 0..MOST_FIELDS {
        at += delimiter.len();
        let rest = text.get(at..).unwrap_or_default();
        if rest.starts_with(b"--") {
            return Ok(fields);
        }
        let Some(end) = next_delimiter(text, at, &finder) else {
            return Err(wrong("its last boundary is missing"));
        };
        let headers = memmem::find(
            rest.get(..MOST_HEADERS.min(rest.len())).unwrap_or_default(),
            b"\r\n\r\n",
        );
        let Some(length) = headers.filter(|length| at + length + 4 <= end) else {
            return Err(wrong(
                "the headers of one of its fields do not end, or are larger than 8 KiB",
            ));
        };
        // The line end before a delimiter belongs to it.
        let value = at + length + 4..end.saturating_sub(2).max(at + length + 4);
        let slot = match name(rest.get(..length).unwrap_or_default()) {
            Some(b"model") => Some((&mut fields.model, "model")),
            Some(b"stream") => Some((&mut fields.stream, "stream")),
            _ => None,
        };
        if let Some((slot, name)) = slot
            && slot.replace(value).is_some()
        {
            let message = format!("{name:?} stands twice in the form");
            return Err(Refusal::new(Code::InvalidRequest, message).with_param(name));
        }
        at = end;
    }
    Err(wrong("it has more than 256 fields"))
}

/// The next delimiter: it begins a line, and nothing else stands in that.
fn next_delimiter(text: &[u8], from: usize, finder: &memmem::Finder<'_>) -> Option<usize> {
    let rest = text.get(from..)?;
    let mut starts = finder.find_iter(rest).map(|start| from + start);
    let length = finder.needle().len();
    starts.find(|start| {
        let before = text.get(..*start).unwrap_or_default();
        let behind = text.get(start + length..).unwrap_or_default();
        (before.is_empty() || before.ends_with(b"\r\n"))
            && [&b"\r\n"[..], b"--", b" ", b"\t"]
                .iter()
                .any(|end| behind.starts_with(end))
    })
}

fn boundary(kind: &HeaderValue) -> Option<Vec<u8>> {
    let boundary = parameter(kind.as_bytes(), b"boundary")?;
    (1..=70)
        .contains(&boundary.len())
        .then(|| boundary.to_vec())
}

/// The name of the field with these headers.
fn name(headers: &[u8]) -> Option<&[u8]> {
    let mut lines = headers.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (header, value) = line.split_at(colon);
        let is_ours = header
            .trim_ascii()
            .eq_ignore_ascii_case(b"content-disposition");
        is_ours.then(|| parameter(value, b"name"))?
    })
}

/// A parameter of a header, with or without quotes.
fn parameter<'h>(header: &'h [u8], wanted: &[u8]) -> Option<&'h [u8]> {
    let mut rest = header;
    loop {
        let semicolon = rest.iter().position(|byte| *byte == b';')?;
        rest = rest.get(semicolon + 1..)?.trim_ascii_start();
        let equals = rest.iter().position(|byte| matches!(byte, b'=' | b';'))?;
        let found = rest
            .get(..equals)?
            .trim_ascii()
            .eq_ignore_ascii_case(wanted);
        if rest.get(equals) == Some(&b';') {
            rest = rest.get(equals..)?;
            continue;
        }
        rest = rest.get(equals + 1..)?.trim_ascii_start();
        let value = match rest.strip_prefix(b"\"") {
            Some(quoted) => {
                // A semicolon may stand within quotes.
                let end = quoted.iter().position(|byte| *byte == b'"')?;
                rest = quoted.get(end + 1..)?;
                quoted.get(..end)?
            }
            None => {
                let end = rest
                    .iter()
                    .position(|byte| *byte == b';')
                    .unwrap_or(rest.len());
                let value = rest.get(..end)?.trim_ascii();
                rest = rest.get(end..)?;
                value
            }
        };
        if found {
            return Some(value);
        }
    }
}

fn wrong(what: &str) -> Refusal {
    Refusal::new(
        Code::InvalidRequest,
        format!("the body is not a form: {what}"),
    )
}

/// More fields than a call of these APIs has.
const MOST_FIELDS: usize = 256;
/// The most bytes of one field's headers.
const MOST_HEADERS: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind(text: &str) -> HeaderValue {
        HeaderValue::from_str(text).unwrap()
    }

    fn fields(body: &str) -> Result<(Option<String>, Option<String>), String> {
        let kind = kind("multipart/form-data; charset=utf-8; boundary=\"x y\"");
        let fields = read(body.as_bytes(), &kind).map_err(|refusal| refusal.object().message)?;
        let text = |at: Option<Range<usize>>| at.map(|at| body.get(at).unwrap().to_owned());
        Ok((text(fields.model), text(fields.stream)))
    }

    fn part(name: &str, value: &str) -> String {
        format!(
            "--x y\r\ncontent-disposition: form-data; filename=\"a;name=b\"; name={name}\r\nx: y\r\n\r\n{value}\r\n"
        )
    }

    #[test]
    fn the_fields_are_found_among_files() {
        let file = part("\"file\"", "\r\n--x\r\n name=\"model\"--x y\r\n");
        let body = format!(
            "preamble\r\n{file}{}{}--x y--\r\n",
            part("\"model\"", "a/b"),
            part("stream", "true")
        );
        assert_eq!(fields(&body), Ok((Some("a/b".into()), Some("true".into()))));
        let empty = format!("{}--x y--", part("\"model\"", ""));
        assert_eq!(fields(&empty), Ok((Some(String::new()), None)));
    }

    #[test]
    fn what_is_no_form_is_refused_with_what_is_wrong() {
        let model = part("model", "a");
        for (body, wrong) in [
            (String::new(), "boundary does not stand"),
            (model.clone(), "last boundary is missing"),
            (format!("{model}{model}--x y--"), "stands twice"),
            (
                "--x y\r\nx: y\r\n--x y--".to_owned(),
                "headers of one of its fields",
            ),
            (part("a", "b").repeat(257), "more than 256"),
        ] {
            let told = fields(&body).unwrap_err();
            assert!(told.contains(wrong), "{told}");
        }
        for none in [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"a",
        ] {
            assert!(read(b"--\r\n", &kind(none)).is_err(), "{none}");
        }
        assert!(is_form(&kind("Multipart/Form-Data;boundary=a")));
        assert!(!is_form(&kind("application/json")));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            text in "(--x y|\r\n|\r\n\r\n|--|content-disposition: form-data; name=|\"model\"|model|[a-z;=\"]){0,12}",
        ) {
            if let Ok((Some(model), _)) = fields(&text) {
                prop_assert!(!model.contains("--x y"));
            }
        }
    }
}
