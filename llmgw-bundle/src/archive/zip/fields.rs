//! Numbers of a zip header, in their order.

use std::io;

/// What is left of a header. Numbers are little-endian.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (head, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn u16(&mut self) -> io::Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (head, rest) = self
            .0
            .split_first_chunk()
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(*head)
    }
}

/// The extra fields that matter here (APPNOTE.TXT, sections 4.5.3 and 4.6.9).
#[derive(Debug, Default)]
pub(super) struct Extra<'a> {
    /// Sizes and offsets that are too large for 32 bits.
    pub(super) large: Option<&'a [u8]>,
    /// The name in UTF-8, for readers that know of it.
    pub(super) unicode_name: Option<&'a [u8]>,
}

impl<'a> Extra<'a> {
    pub(super) fn read(extra: &'a [u8]) -> io::Result<Self> {
        let mut found = Self::default();
        let mut fields = Fields(extra);
        // Programs that align members fill up with fewer bytes than a field's head.
        while fields.0.len() >= 4 {
            let (kind, length) = (fields.u16()?, fields.u16()?);
            let body = fields.take(usize::from(length))?;
            let twice = match kind {
                LARGE => found.large.replace(body).is_some(),
                UNICODE_NAME => found.unicode_name.replace(body).is_some(),
                _ => false,
            };
            if twice {
                return Err(wrong("an extra field stands twice"));
            }
        }
        Ok(found)
    }

    /// Replaces those of `numbers` that are all ones by those that stand here for them, in their order.
    pub(super) fn widen(&self, numbers: &mut [&mut u64]) -> io::Result<()> {
        let mut large = Fields(self.large.unwrap_or_default());
        for number in numbers {
            if **number == u64::from(u32::MAX) && self.large.is_some() {
                **number = large.u64()?;
            }
        }
        Ok(())
    }
}

/// The header is not one.
pub(super) fn wrong(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

const LARGE: u16 = 0x0001;
const UNICODE_NAME: u16 = 0x7075;
