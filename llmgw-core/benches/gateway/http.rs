//! As much of HTTP/1.1 as both ends of the bench need.

use std::io;

use memchr::{memchr, memmem};

/// The head of a request or of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// With the empty line behind it.
    pub(crate) length: usize,
    /// Of an answer.
    pub(crate) status: u16,
    pub(crate) body: Body,
    /// The connection is not kept.
    pub(crate) closes: bool,
}

/// How long a body is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Body {
    Length(usize),
    Chunked,
    UntilClosed,
}

/// Takes chunks apart.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    /// What is left of the chunk, its line end included.
    left: usize,
    pub(crate) ended: bool,
}

// === impl Head ===

impl Head {
    /// The head that these bytes begin with, once it is whole.
    pub(crate) fn read(bytes: &[u8]) -> io::Result<Option<Self>> {
        let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = bytes.get(..end).unwrap_or_default();
        let text = str::from_utf8(text).map_err(io::Error::other)?;
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let is_answer = first.starts_with("HTTP/");
        let mut head = Self {
            length: end + 4,
            status: first
                .split(' ')
                .nth(1)
                .and_then(|status| status.parse().ok())
                .unwrap_or(0),
            body: if is_answer {
                Body::UntilClosed
            } else {
                Body::Length(0)
            },
            closes: first.starts_with("HTTP/1.0"),
        };
        for line in lines {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                head.body = Body::Length(value.parse().map_err(io::Error::other)?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                head.body = Body::Chunked;
            } else if name.eq_ignore_ascii_case("connection") {
                head.closes = value.eq_ignore_ascii_case("close");
            }
        }
        Ok(Some(head))
    }
}

// === impl Chunks ===

impl Chunks {
    /// Moves the data that is there from `bytes` to `data`; what can't be read yet is left.
    pub(crate) fn take(&mut self, bytes: &mut Vec<u8>, data: &mut Vec<u8>) -> io::Result<()> {
        let mut at = 0;
        while !self.ended {
            let rest = bytes.get(at..).unwrap_or_default();
            if self.left > 0 {
                let here = rest.len().min(self.left);
                let of_data = here.min(self.left.saturating_sub(2));
                data.extend_from_slice(rest.get(..of_data).unwrap_or_default());
                self.left -= here;
                at += here;
                if here == 0 {
                    break;
                }
                continue;
            }
            let Some(line) = memchr(b'\n', rest) else {
                break;
            };
            let size = rest.get(..line).unwrap_or_default().trim_ascii_end();
            let size = size.split(|byte| *byte == b';').next().unwrap_or_default();
            let size = str::from_utf8(size).map_err(io::Error::other)?;
            let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
            if size == 0 {
                // No proxy here writes trailers.
                if rest.len() < line + 3 {
                    break;
                }
                at += line + 3;
                self.ended = true;
            } else {
                at += line + 1;
                self.left = size + 2;
            }
        }
        bytes.drain(..at);
        Ok(())
    }
}
