//! Where a body in chunks ends (RFC 9112, section 7.1).

/// Follows one body.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    at: At,
    /// Bytes of extensions and trailers until now: nobody reads them, so that few are taken.
    ignored: usize,
}

#[derive(Clone, Copy, Debug)]
enum At {
    /// Within the size, of which so many digits were read.
    Size {
        digits: u8,
        size: u64,
    },
    Extension {
        size: u64,
    },
    SizeEnd {
        size: u64,
    },
    /// Within the data, of which so many bytes are left.
    Data(u64),
    DataReturn,
    DataEnd,
    /// Behind the last chunk, where a trailer may begin.
    Trailers,
    Trailer,
    TrailerEnd,
    /// Before the very last line feed.
    End,
}

impl Default for At {
    fn default() -> Self {
        Self::Size { digits: 0, size: 0 }
    }
}

// === impl Chunks ===

impl Chunks {
    /// Goes on over `bytes`. How many of them are right, and whether the body ends with them, or what is wrong behind.
    pub(super) fn skip(&mut self, bytes: &[u8]) -> (usize, Result<bool, &'static str>) {
        let mut passed = 0;
        while let Some(byte) = bytes.get(passed) {
            if let At::Data(left) = &mut self.at {
                let rest = bytes.len() - passed;
                let here = u64::try_from(rest).map_or(*left, |rest| rest.min(*left));
                *left -= here;
                // No more than there are bytes here.
                passed += usize::try_from(here).unwrap_or(rest);
                if *left == 0 {
                    self.at = At::DataReturn;
                }
                continue;
            }
            match self.step(*byte) {
                Ok(Some(at)) => self.at = at,
                Ok(None) => return (passed + 1, Ok(true)),
                Err(wrong) => return (passed, Err(wrong)),
            }
            passed += 1;
        }
        (passed, Ok(false))
    }

    /// Where the next byte leads; `None` when it is the last.
    fn step(&mut self, byte: u8) -> Result<Option<At>, &'static str> {
        let next = match (self.at, byte) {
            (At::Size { digits: 1.., size }, b'\r') => At::SizeEnd { size },
            (At::Size { digits: 1.., size }, b';') => At::Extension { size },
            (At::Size { digits, size }, byte) => {
                let digit = char::from(byte).to_digit(16).ok_or(NO_SIZE)?;
                if digits >= MAX_DIGITS {
                    return Err("a chunk is larger than anything");
                }
                At::Size {
                    digits: digits + 1,
                    size: size * 16 + u64::from(digit),
                }
            }
            (At::Extension { size }, b'\r') => At::SizeEnd { size },
            (at @ (At::Extension { .. } | At::Trailer), byte) if byte != b'\r' => {
                self.ignore(byte)?;
                at
            }
            (At::SizeEnd { size: 0 }, b'\n') => At::Trailers,
            (At::SizeEnd { size }, b'\n') => At::Data(size),
            (At::DataReturn, b'\r') => At::DataEnd,
            (At::DataEnd, b'\n') => At::default(),
            (At::Trailers, b'\r') => At::End,
            (At::Trailers, byte) => {
                self.ignore(byte)?;
                At::Trailer
            }
            (At::Trailer, _) => At::TrailerEnd,
            (At::TrailerEnd, b'\n') => At::Trailers,
            (At::End, b'\n') => return Ok(None),
            (At::DataReturn | At::DataEnd, _) => return Err("a chunk is not as long as it says"),
            (At::SizeEnd { .. } | At::TrailerEnd | At::End | At::Extension { .. }, _) => {
                return Err("a line between chunks ends without CR LF");
            }
            (At::Data(_), _) => return Err(NO_SIZE),
        };
        Ok(Some(next))
    }

    fn ignore(&mut self, byte: u8) -> Result<(), &'static str> {
        self.ignored += 1;
        if byte != b'\t' && (byte < b' ' || byte == 0x7f) {
            return Err("there is a control character between chunks");
        }
        if self.ignored > MAX_IGNORED {
            return Err("there is more between chunks than the limit of 8 KiB");
        }
        Ok(())
    }
}

const NO_SIZE: &str = "the size of a chunk is not hexadecimal";
/// Fifteen digits are 2^60.
const MAX_DIGITS: u8 = 15;
/// Half of what hyper takes.
const MAX_IGNORED: usize = 8 << 10;
