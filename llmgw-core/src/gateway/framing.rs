//! Where a client's requests begin and end, told strictly, before hyper sees a byte of them.
//!
//! Two that disagree about the end of a request are how one hides within another. hyper forgives what a careful
//! server may forgive; here nothing is forgiven that others read otherwise: a line ends with CR LF, a body has one
//! length told in one way, a chunk's size is hexadecimal. What passes is read by hyper just so, and what does not is
//! answered in JSON with what is wrong, where hyper would send a bare status.
//!
//! The machine holds no bytes and does no I/O. It is shown what came, says how much of it may pass, and is shown the
//! rest again together with what comes next: a head passes when it is whole.

mod chunks;
mod head;

use http::StatusCode;
use memchr::memchr_iter;

use self::chunks::Chunks;
pub(super) use self::head::HeadBounds;
use self::head::Length;
use super::refusal::Refusal;
use crate::error::Code;

/// Follows the requests of one connection.
#[derive(Debug)]
pub(super) struct Framing {
    bounds: HeadBounds,
    state: State,
    /// Heads that passed.
    heads: u64,
    /// Lines without text in front of the next head.
    empty_lines: u32,
    /// Where the line starts that is being looked for, in what was not passed.
    line: usize,
    /// Up to where no line ends.
    scanned: usize,
}

/// What came of looking at some bytes.
#[derive(Debug)]
pub(super) struct Scan {
    /// So many of them may pass.
    pub(super) passed: usize,
    /// What is wrong behind these; nothing is passed any more.
    pub(super) fault: Option<Fault>,
}

/// What a client got wrong.
#[derive(Debug)]
pub(super) enum Fault {
    /// In a head: the answer that the request gets.
    Head(Refusal),
    /// In the framing of a body whose head has passed: what is wrong.
    Body(&'static str),
}

#[derive(Debug)]
enum State {
    /// Before a head or within it.
    Head,
    /// Within a body, with so many bytes to come.
    Body(u64),
    Chunks(Chunks),
    /// Something was wrong.
    Over,
}

// === impl Framing ===

impl Framing {
    pub(super) fn new(bounds: HeadBounds) -> Self {
        Self {
            bounds,
            state: State::Head,
            heads: 0,
            empty_lines: 0,
            line: 0,
            scanned: 0,
        }
    }

    /// Heads that passed until now.
    pub(super) fn heads(&self) -> u64 {
        self.heads
    }

    /// Looks at what came: what did not pass the last time, and what came since.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Scan {
        let mut passed = 0;
        let fault = loop {
            let rest = bytes.get(passed..).unwrap_or_default();
            if rest.is_empty() {
                break None;
            }
            match &mut self.state {
                State::Head => match self.head(rest) {
                    Ok(0) => break None,
                    Ok(length) => passed += length,
                    Err(refusal) => break Some(Fault::Head(refusal)),
                },
                State::Body(left) => {
                    let here = u64::try_from(rest.len()).map_or(*left, |here| here.min(*left));
                    *left -= here;
                    // No more than there are bytes here.
                    passed += usize::try_from(here).unwrap_or(rest.len());
                    if *left == 0 {
                        self.state = State::Head;
                    }
                }
                State::Chunks(chunks) => {
                    let (length, ended) = chunks.skip(rest);
                    passed += length;
                    match ended {
                        Ok(true) => self.state = State::Head,
                        Ok(false) => {}
                        Err(wrong) => break Some(Fault::Body(wrong)),
                    }
                }
                State::Over => break None,
            }
        };
        if fault.is_some() {
            self.state = State::Over;
        }
        Scan { passed, fault }
    }

    /// The length of the next head, or of an empty line before it; 0 while it is not whole.
    fn head(&mut self, bytes: &[u8]) -> Result<usize, Refusal> {
        if !bytes.first().is_some_and(|byte| head::begins(*byte)) {
            return Err(malformed("what came is no HTTP request"));
        }
        let news = bytes.get(self.scanned..).unwrap_or_default();
        for newline in memchr_iter(b'\n', news) {
            let newline = self.scanned + newline;
            let line = bytes.get(self.line..newline).unwrap_or_default();
            let Some(line) = line.strip_suffix(b"\r") else {
                return Err(malformed(
                    "a line of the head ends without a carriage return",
                ));
            };
            let end = newline + 1;
            if line.is_empty() {
                let is_head = self.line > 0;
                (self.line, self.scanned) = (0, 0);
                return self.ended(bytes.get(..end).unwrap_or_default(), is_head);
            }
            self.bounds.check_so_far(end, self.line > 0)?;
            self.line = end;
        }
        self.scanned = bytes.len();
        self.bounds.check_so_far(bytes.len(), self.line > 0)?;
        Ok(0)
    }

    fn ended(&mut self, text: &[u8], is_head: bool) -> Result<usize, Refusal> {
        if is_head {
            self.state = match head::read(text, self.bounds)? {
                Length::Exact(0) => State::Head,
                Length::Exact(length) => State::Body(length),
                Length::Chunked => State::Chunks(Chunks::default()),
            };
            self.heads += 1;
            self.empty_lines = 0;
        } else {
            // Some clients send a line end behind a body; nobody sends many.
            self.empty_lines += 1;
            if self.empty_lines > EMPTY_LINES {
                return Err(malformed("there are empty lines instead of a request"));
            }
        }
        Ok(text.len())
    }
}

/// A request that can't be read.
fn malformed(what: &'static str) -> Refusal {
    Refusal::new(Code::InvalidRequest, what)
}

fn too_large(what: String) -> Refusal {
    Refusal::new(Code::RequestTooLarge, what)
        .with_status(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
}

const EMPTY_LINES: u32 = 4;

#[cfg(test)]
mod tests;
