//! Tar archives by the block.

/// A header, and the bytes that follow it.
#[derive(Clone)]
pub(crate) struct Block {
    name: Vec<u8>,
    flag: u8,
    link: Vec<u8>,
    mode: u32,
    body: Vec<u8>,
    size: Option<u64>,
    edit: fn(&mut [u8; 512]),
    spoil: fn(&mut [u8; 512]),
}

impl Block {
    fn new(name: impl AsRef<[u8]>, flag: u8) -> Self {
        Self {
            name: name.as_ref().to_vec(),
            flag,
            link: Vec::new(),
            mode: 0o644,
            body: Vec::new(),
            size: None,
            edit: |_| {},
            spoil: |_| {},
        }
    }

    pub(crate) fn file(name: impl AsRef<[u8]>, body: impl AsRef<[u8]>) -> Self {
        Self {
            body: body.as_ref().to_vec(),
            ..Self::new(name, b'0')
        }
    }

    pub(crate) fn folder(name: impl AsRef<[u8]>) -> Self {
        Self {
            mode: 0o755,
            ..Self::new(name, b'5')
        }
    }

    pub(crate) fn link(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        Self {
            link: target.as_ref().to_vec(),
            ..Self::new(name, b'2')
        }
    }

    /// An entry of any type.
    pub(crate) fn of_type(flag: u8, name: &str, target: &str) -> Self {
        Self {
            link: target.as_bytes().to_vec(),
            ..Self::new(name, flag)
        }
    }

    /// A pax header with these records, for the next entry (`x`) or for all (`g`).
    pub(crate) fn pax(flag: u8, records: &[(&str, &str)]) -> Self {
        let mut body = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut length = rest + rest.to_string().len();
            length = rest + length.to_string().len();
            body.extend(format!("{length} {key}={value}\n").bytes());
        }
        Self::extension(flag, body)
    }

    /// The body of a header that says something of the next entry.
    pub(crate) fn extension(flag: u8, body: impl AsRef<[u8]>) -> Self {
        Self {
            body: body.as_ref().to_vec(),
            ..Self::new("././@LongLink", flag)
        }
    }

    pub(crate) fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    /// Says this size, whatever follows.
    pub(crate) fn says(self, size: u64) -> Self {
        Self {
            size: Some(size),
            ..self
        }
    }

    /// Changes the header before its checksum is made.
    pub(crate) fn edit(self, edit: fn(&mut [u8; 512])) -> Self {
        Self { edit, ..self }
    }

    /// Changes the header after its checksum was made.
    pub(crate) fn spoil(self, spoil: fn(&mut [u8; 512])) -> Self {
        Self { spoil, ..self }
    }

    /// POSIX.1-2017, pax, "ustar Interchange Format".
    fn write(&self, out: &mut Vec<u8>) {
        let mut header = [0; 512];
        let size = self.size.unwrap_or(self.body.len() as u64);
        header[..self.name.len()].copy_from_slice(&self.name);
        header[100..108].copy_from_slice(format!("{:07o}\0", self.mode).as_bytes());
        header[108..116].copy_from_slice(b"0001750\0");
        header[116..124].copy_from_slice(b"0001750\0");
        header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        header[136..148].copy_from_slice(b"14371573740\0");
        header[156] = self.flag;
        header[157..157 + self.link.len()].copy_from_slice(&self.link);
        header[257..265].copy_from_slice(b"ustar\x0000");
        (self.edit)(&mut header);
        sum(&mut header);
        (self.spoil)(&mut header);
        out.extend(header);
        out.extend(&self.body);
        out.resize(out.len().next_multiple_of(512), 0);
    }
}

/// An archive of these blocks with its end mark.
pub(crate) fn tar(blocks: &[Block]) -> Vec<u8> {
    let mut out = open(blocks);
    out.extend([0; 1024]);
    out
}

/// An archive of these blocks without an end mark.
pub(crate) fn open(blocks: &[Block]) -> Vec<u8> {
    let mut out = Vec::new();
    for block in blocks {
        block.write(&mut out);
    }
    out
}

fn sum(header: &mut [u8; 512]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
