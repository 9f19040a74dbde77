//! Zip archives by the field (APPNOTE.TXT, sections 4.3.7, 4.3.9, 4.3.12 and 4.3.16).

use flate2::{Compress, Compression, Crc, FlushCompress};

/// A member that says of itself what it likes.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) local_name: Option<Vec<u8>>,
    /// As it is stored.
    pub(crate) body: Vec<u8>,
    pub(crate) crc: u32,
    pub(crate) size: u32,
    pub(crate) flags: u16,
    pub(crate) local_flags: Option<u16>,
    pub(crate) method: u16,
    pub(crate) mode: u32,
    pub(crate) host: u8,
    pub(crate) extra: Vec<u8>,
    /// Stands in the place of the sizes in its own header.
    pub(crate) local_sizes: Option<(u32, u32, u32)>,
    /// Follows its bytes.
    pub(crate) behind: Vec<u8>,
    /// What the directory adds to the place where it begins.
    pub(crate) shift: i32,
}

impl Entry {
    pub(crate) fn new(name: impl AsRef<[u8]>, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref().to_vec();
        Self {
            name: name.as_ref().to_vec(),
            local_name: None,
            crc: crc(&body),
            size: u32::try_from(body.len()).unwrap(),
            body,
            flags: 0,
            local_flags: None,
            method: 0,
            mode: if name.as_ref().ends_with(b"/") {
                0o040_755
            } else {
                0o100_644
            },
            host: 3,
            extra: Vec::new(),
            local_sizes: None,
            behind: Vec::new(),
            shift: 0,
        }
    }

    pub(crate) fn link(name: &str, target: &str) -> Self {
        Self {
            mode: 0o120_777,
            ..Self::new(name, target)
        }
    }

    pub(crate) fn deflated(name: impl AsRef<[u8]>, body: &[u8]) -> Self {
        let mut packed = Vec::with_capacity(body.len() + 1_000);
        Compress::new(Compression::default(), false)
            .compress_vec(body, &mut packed, FlushCompress::Finish)
            .unwrap();
        Self {
            body: packed,
            crc: crc(body),
            size: u32::try_from(body.len()).unwrap(),
            method: 8,
            ..Self::new(name, b"")
        }
    }

    /// Its checksum and sizes follow its bytes, as programs write them that can't go back.
    pub(crate) fn streamed(self) -> Self {
        let mut behind = b"PK\x07\x08".to_vec();
        behind.extend(self.crc.to_le_bytes());
        behind.extend(u32::try_from(self.body.len()).unwrap().to_le_bytes());
        behind.extend(self.size.to_le_bytes());
        Self {
            flags: self.flags | 8,
            local_sizes: Some((0, 0, 0)),
            behind,
            ..self
        }
    }
}

pub(crate) fn crc(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// The bytes of an archive of these members.
pub(crate) fn zip(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let start = i32::try_from(out.len()).unwrap() + entry.shift;
        let packed = u32::try_from(entry.body.len()).unwrap();
        let sizes = (entry.crc, packed, entry.size);
        let common = |out: &mut Vec<u8>, name: &[u8], flags: u16, sizes: (u32, u32, u32)| {
            out.extend(20u16.to_le_bytes());
            out.extend(flags.to_le_bytes());
            out.extend(entry.method.to_le_bytes());
            out.extend([0, 0, 0x21, 0x00]);
            out.extend(sizes.0.to_le_bytes());
            out.extend(sizes.1.to_le_bytes());
            out.extend(sizes.2.to_le_bytes());
            out.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
            out.extend(u16::try_from(entry.extra.len()).unwrap().to_le_bytes());
        };
        let local_name = entry.local_name.as_ref().unwrap_or(&entry.name);
        out.extend(b"PK\x03\x04");
        let local_flags = entry.local_flags.unwrap_or(entry.flags);
        common(
            &mut out,
            local_name,
            local_flags,
            entry.local_sizes.unwrap_or(sizes),
        );
        out.extend(local_name);
        out.extend(&entry.extra);
        out.extend(&entry.body);
        out.extend(&entry.behind);
        directory.extend(b"PK\x01\x02");
        directory.extend([20, entry.host]);
        common(&mut directory, &entry.name, entry.flags, sizes);
        directory.extend([0; 6]);
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(start.to_le_bytes());
        directory.extend(&entry.name);
        directory.extend(&entry.extra);
    }
    let start = u32::try_from(out.len()).unwrap();
    let count = u16::try_from(entries.len()).unwrap();
    out.extend(&directory);
    out.extend(end(
        count,
        u32::try_from(directory.len()).unwrap(),
        start,
        b"",
    ));
    out
}

/// What stands at the end of an archive.
pub(crate) fn end(count: u16, size: u32, start: u32, comment: &[u8]) -> Vec<u8> {
    let mut out = b"PK\x05\x06\0\0\0\0".to_vec();
    out.extend(count.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend(size.to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend(u16::try_from(comment.len()).unwrap().to_le_bytes());
    out.extend(comment);
    out
}
