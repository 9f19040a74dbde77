use std::path::PathBuf;

use llmgw_core::units::Bytes;

use super::DiskShort;

/// The disk that weights are written to, and how much of it stays free.
#[derive(Debug)]
pub(super) struct Disk {
    directory: PathBuf,
    reserve: Bytes,
}

impl Disk {
    pub(super) fn new(directory: PathBuf, reserve: Bytes) -> Self {
        Self { directory, reserve }
    }

    /// Whether `need` more bytes leave the reserve untouched. A disk that does not say how full it is, is tried.
    pub(super) fn room_for(&self, need: Bytes) -> Result<(), DiskShort> {
        let Ok(found) = rustix::fs::statvfs(&self.directory) else {
            return Ok(());
        };
        let free = Bytes(found.f_bavail.saturating_mul(found.f_frsize));
        let have = free.saturating_sub(self.reserve);
        if need <= have {
            return Ok(());
        }
        Err(DiskShort {
            directory: self.directory.clone(),
            need,
            have,
            short: need - have,
            reserve: self.reserve,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_need_and_have() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::new(directory.path().to_owned(), Bytes::mib(1));
        assert_eq!(disk.room_for(Bytes(1)), Ok(()));
        let short = disk.room_for(Bytes::gib(1 << 30)).unwrap_err();
        assert_eq!(short.need, Bytes::gib(1 << 30));
        assert_eq!(short.have + short.short, short.need);
        let reserved = Disk::new(directory.path().to_owned(), Bytes(u64::MAX));
        let short = reserved.room_for(Bytes(1)).unwrap_err();
        assert_eq!((short.have, short.short), (Bytes::ZERO, Bytes(1)));
    }
}
