//! What goes to the store together.

use std::sync::{Arc, Mutex, PoisonError};

use super::{State, Target, spool::Left};
use crate::cluster::account::UsageRecord;

/// Records that go to the store together.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) number: u64,
    pub(super) count: u64,
    /// Bytes of its file; 0 when it has none.
    pub(super) bytes: u64,
    /// Absent when they are on the disk alone.
    records: Option<Arc<Vec<UsageRecord>>>,
    in_hand: bool,
    /// Records are being added to its file.
    appending: bool,
    /// An earlier process made its file, and may have been killed in the middle of a line.
    is_left: bool,
}

/// A parcel that is being written to the store. Dropped before it is [`done`](Self::done), it goes back.
pub(super) struct InHand<'a> {
    state: &'a Mutex<State>,
    number: u64,
    count: u64,
    has_file: bool,
    records: Option<Arc<Vec<UsageRecord>>>,
}

// === impl Parcel ===

impl Parcel {
    pub(super) fn held(records: Vec<UsageRecord>) -> Self {
        Self {
            number: 0,
            count: records.len() as u64,
            bytes: 0,
            records: Some(Arc::new(records)),
            in_hand: false,
            appending: false,
            is_left: false,
        }
    }

    pub(super) fn left(left: Left) -> Self {
        Self {
            number: left.number,
            count: left.records,
            bytes: left.bytes,
            records: None,
            in_hand: false,
            appending: false,
            is_left: true,
        }
    }

    pub(super) fn on_disk(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    fn in_memory(&self) -> usize {
        self.records.as_ref().map_or(0, |records| records.len())
    }
}

// === impl State ===

impl State {
    /// Records that are in memory.
    pub(super) fn in_memory(&self) -> usize {
        let parcels = self.parcels.iter().map(Parcel::in_memory);
        self.new.len() + parcels.sum::<usize>()
    }

    /// The file that new records go to: the last one, while it is small and nobody reads it. It is not taken in hand
    /// until they were [`add`](Self::add)ed.
    pub(super) fn target(&mut self) -> Target {
        let last = self.parcels.back_mut();
        let open = last
            .filter(|last| last.bytes > 0 && last.bytes < FULL && !last.in_hand && !last.is_left);
        if let Some(last) = open {
            last.appending = true;
            return Target {
                number: last.number,
                bytes: last.bytes,
            };
        }
        Target {
            number: self.number(),
            bytes: 0,
        }
    }

    /// Adds a parcel: to the one whose file it is in now, or after all others.
    pub(super) fn add(&mut self, target: Target, mut parcel: Parcel) {
        let on_disk = parcel.bytes > 0;
        match self.release(target) {
            Some(known) if on_disk => {
                known.count += parcel.count;
                known.bytes = parcel.bytes;
                match (&mut known.records, parcel.records) {
                    (Some(records), Some(more)) => {
                        Arc::make_mut(records).extend(more.iter().cloned());
                    }
                    (records, _) => *records = None,
                }
                return;
            }
            Some(_) => parcel.number = self.number(),
            None => parcel.number = target.number,
        }
        self.parcels.push_back(parcel);
    }

    /// Nothing is being added to that file any more; its parcel, if it had one before.
    pub(super) fn release(&mut self, target: Target) -> Option<&mut Parcel> {
        let mut parcels = self.parcels.iter_mut();
        let known = parcels.find(|parcel| parcel.number == target.number)?;
        known.appending = false;
        Some(known)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Keeps no more than so many records in memory of those that are on the disk.
    pub(super) fn forget_some(&mut self, most: usize) {
        let mut excess = self.in_memory().saturating_sub(most);
        for parcel in self.parcels.iter_mut().rev() {
            if excess == 0 {
                break;
            }
            if parcel.bytes > 0 && !parcel.in_hand && !parcel.appending {
                excess = excess.saturating_sub(parcel.in_memory());
                parcel.records = None;
            }
        }
    }
}

// === impl InHand ===

impl<'a> InHand<'a> {
    /// Takes the oldest parcel; none while records are being added to that.
    pub(super) fn take(state: &'a Mutex<State>) -> Option<Self> {
        let mut held = state.lock().unwrap_or_else(PoisonError::into_inner);
        let parcel = held.parcels.front_mut().filter(|front| !front.appending)?;
        parcel.in_hand = true;
        Some(Self {
            state,
            number: parcel.number,
            count: parcel.count,
            has_file: parcel.bytes > 0,
            records: parcel.records.clone(),
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The records, if they are in memory.
    pub(super) fn records(&self) -> Option<Arc<Vec<UsageRecord>>> {
        self.records.clone()
    }

    /// The number of its file, if it has one.
    pub(super) fn file(&self) -> Option<u64> {
        self.has_file.then_some(self.number)
    }

    /// The store has it.
    pub(super) fn done(self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.number;
        state.parcels.retain(|parcel| parcel.number != number);
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.number;
        let parcel = state
            .parcels
            .iter_mut()
            .find(|parcel| parcel.number == number);
        if let Some(parcel) = parcel {
            parcel.in_hand = false;
        }
    }
}

/// A file of this many bytes gets no more.
const FULL: u64 = 1 << 20;
