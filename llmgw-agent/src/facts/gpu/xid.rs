//! The errors that NVIDIA's driver has written to the kernel's log.
//!
//! A line says which card, a number and some words:
//! `NVRM: Xid (PCI:0000:19:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.`
//! What a number means stands in NVIDIA's catalog (docs.nvidia.com, "XID errors"); [`weigh`] takes from it those
//! after which the catalog asks for a reset of the card or a restart of the machine. Most others are an
//! application's own mistake and say nothing of the card.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{ErrorKind, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    sync::{Mutex, PoisonError},
};

use llmgw_core::cluster::node::GpuProblemKind;
use rustix::{fs::OFlags, io::Errno};

use super::bus_address;
use crate::facts::Root;

/// The errors of each card since its driver was loaded, by the card's address without function: the last ones of
/// each number.
pub(super) type Errors = BTreeMap<String, BTreeMap<u32, String>>;

/// Follows the kernel's log.
#[derive(Debug, Default)]
pub(super) struct KernelLog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The log of the running kernel, read up to here.
    log: Option<File>,
    errors: Errors,
}

// === impl KernelLog ===

impl KernelLog {
    /// The errors so far; none where the log can't be read, as by a user whom the kernel does not let.
    pub(super) fn errors(&self, root: &Root) -> Errors {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if root.machine().is_some() {
            let mut errors = Errors::new();
            for line in root.text(LOG).unwrap_or_default().lines() {
                take(&mut errors, line);
            }
            return errors;
        }
        let State { log, errors } = &mut *state;
        if log.is_none() {
            *log = open(root);
        }
        let mut kept = Vec::new();
        if let Some(file) = log
            && follow(file, |record| {
                if take(errors, record) {
                    kept.extend_from_slice(record.as_bytes());
                    kept.push(b'\n');
                }
            })
            .is_err()
        {
            // It is opened anew the next time, and read from its beginning.
            *log = None;
        }
        if !kept.is_empty() {
            kept.truncate(KEPT_LIMIT);
            root.note(LOG, &kept);
        }
        errors.clone()
    }
}

fn open(root: &Root) -> Option<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).ok()?;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(root.path(LOG))
        .ok()
}

/// Reads what is new, a record at each read; each begins with its first line, and continuation lines follow.
fn follow(log: &mut File, mut each: impl FnMut(&str)) -> std::io::Result<()> {
    let mut record = vec![0; RECORD_LIMIT];
    for _ in 0..RECORDS_LIMIT {
        match log.read(&mut record) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                let text = String::from_utf8_lossy(record.get(..length).unwrap_or_default());
                each(text.lines().next().unwrap_or_default());
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            // Records that were overwritten before they were read.
            Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes a line in, and says whether it told anything.
fn take(errors: &mut Errors, line: &str) -> bool {
    // `6,1234,567890,-;the text`, or the text alone.
    let text = line.split_once(';').map_or(line, |(_, text)| text);
    let Some((_, text)) = text.split_once("NVRM: ") else {
        return false;
    };
    if text.starts_with("loading NVIDIA UNIX") {
        errors.clear();
        return true;
    }
    let Some((card, number, words)) = xid(text).or_else(|| fallen(text)) else {
        return false;
    };
    if errors.len() < MOST_CARDS || errors.contains_key(&card) {
        let of_card = errors.entry(card).or_default();
        if of_card.len() < MOST_NUMBERS || of_card.contains_key(&number) {
            of_card.insert(number, words.chars().take(WORDS_LIMIT).collect());
        }
    }
    true
}

/// `Xid (PCI:0000:19:00): 79, words`; with MIG, a part is named behind the address.
fn xid(text: &str) -> Option<(String, u32, String)> {
    let (place, rest) = text.strip_prefix("Xid (PCI:")?.split_once("): ")?;
    let card = bus_address(place.split(' ').next()?)?;
    let (number, words) = rest.split_once(',').unwrap_or((rest, ""));
    // Who was at work when it happened is nobody else's business, and says nothing of the card.
    let words = words
        .split(", ")
        .map(str::trim)
        .filter(|part| !part.is_empty() && !part.starts_with("pid=") && !part.starts_with("name="));
    let words = words.collect::<Vec<_>>().join(", ");
    Some((
        without_function(&card).to_owned(),
        number.trim().parse().ok()?,
        words,
    ))
}

/// `GPU 0000:19:00.0: GPU has fallen off the bus.`: some drivers say it without a number.
fn fallen(text: &str) -> Option<(String, u32, String)> {
    let (place, words) = text.strip_prefix("GPU ")?.split_once(": ")?;
    let card = bus_address(place)?;
    words
        .contains("fallen off the bus")
        .then(|| (without_function(&card).to_owned(), 79, words.to_owned()))
}

/// An address without its function, as the driver writes it here.
pub(super) fn without_function(address: &str) -> &str {
    address.split_once('.').map_or(address, |(card, _)| card)
}

/// What an error says of the card; `None` when it says nothing.
pub(super) fn weigh(number: u32) -> Option<(GpuProblemKind, &'static str)> {
    let (_, kind, meaning) = CATALOG.iter().find(|(listed, _, _)| *listed == number)?;
    Some((*kind, meaning))
}

const CATALOG: &[(u32, GpuProblemKind, &str)] = &[
    (46, GpuProblemKind::Xid, "it has stopped working"),
    (48, GpuProblemKind::Xid, "a memory error of two bits"),
    (62, GpuProblemKind::Xid, "its controller has halted"),
    (
        63,
        GpuProblemKind::RemapPending,
        "bad memory is to be replaced at the next reset",
    ),
    (64, GpuProblemKind::Xid, "bad memory could not be replaced"),
    (74, GpuProblemKind::Xid, "an NVLink error"),
    (79, GpuProblemKind::Lost, "it has fallen off the bus"),
    (
        92,
        GpuProblemKind::Contained,
        "many memory errors of one bit",
    ),
    (
        94,
        GpuProblemKind::Contained,
        "a memory error that was contained",
    ),
    (
        95,
        GpuProblemKind::Xid,
        "a memory error that was not contained",
    ),
    (
        109,
        GpuProblemKind::Xid,
        "it does not change between programs any more",
    ),
    (110, GpuProblemKind::Xid, "a security fault"),
    (
        119,
        GpuProblemKind::Xid,
        "its system processor does not answer",
    ),
    (120, GpuProblemKind::Xid, "its system processor has failed"),
    (140, GpuProblemKind::Xid, "a memory error without recovery"),
];

const LOG: &str = "dev/kmsg";

/// The kernel writes records of 8 KiB at most (`CONSOLE_EXT_LOG_MAX`).
const RECORD_LIMIT: usize = 8192;

/// A ring of 16 MiB holds fewer records; what is left is read the next time.
const RECORDS_LIMIT: usize = 200_000;

const MOST_CARDS: usize = 64;
const MOST_NUMBERS: usize = 32;
const WORDS_LIMIT: usize = 120;
const KEPT_LIMIT: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn errors(lines: &[&str]) -> Errors {
        let mut errors = Errors::new();
        for line in lines {
            take(&mut errors, line);
        }
        errors
    }

    #[test]
    fn errors_are_read_in_the_forms_that_drivers_write() {
        let found = errors(&[
            "3,1201,9912034,-;NVRM: Xid (PCI:0000:19:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
            "4,9,9,-;NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus.",
            "4,9,9,-;NVRM: Xid (PCI:0000:9b:00): 31",
            "6,1,2,-;usb 1-1: new device",
        ]);
        assert_eq!(found["0000:19:00"][&79], "GPU has fallen off the bus.");
        assert!(found["0000:3b:00"][&94].starts_with("Contained: CE"));
        assert!(found["0000:5d:00"].contains_key(&79));
        assert_eq!(found["0000:9b:00"][&31], "");
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn a_driver_that_is_loaded_anew_begins_with_no_errors() {
        let found = errors(&[
            "NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off the bus.",
            "6,2,2,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15",
        ]);
        assert_eq!(found, Errors::new());
    }

    #[test]
    fn an_application_s_own_error_says_nothing_of_the_card() {
        for number in [13, 31, 43, 45, 69, 4_000_000_000] {
            assert_eq!(weigh(number), None, "{number}");
        }
        assert!(weigh(79).unwrap().0.forbids());
        assert!(!weigh(94).unwrap().0.forbids());
    }

    #[test]
    fn the_kernel_s_own_log_is_followed_without_waiting_for_it() {
        let log = KernelLog::default();
        let first = log.errors(&Root::system());
        assert_eq!(log.errors(&Root::system()), first);
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_a_panic(line in "(NVRM: )?(Xid \\(PCI:|GPU )?\\PC{0,60}") {
            take(&mut Errors::new(), &line);
        }

        #[test]
        fn any_number_of_lines_is_kept_within_bounds(cards in prop::collection::vec((0u32..200, 0u32..200), 0..3000)) {
            let mut errors = Errors::new();
            for (card, number) in cards {
                take(&mut errors, &format!("NVRM: Xid (PCI:0000:{card:02x}:00): {number}, x"));
            }
            prop_assert!(errors.len() <= MOST_CARDS);
            prop_assert!(errors.values().all(|of| of.len() <= MOST_NUMBERS));
        }
    }
}
