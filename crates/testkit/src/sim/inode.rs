//! Contents of one file: the visible ones, those that certainly survive a crash, and the changes in
//! between.

use bytes::Bytes;

use crate::Random;

/// Unit that a disk writes whole or not at all, bytes.
pub(super) const SECTOR: u64 = 512;

/// Change to a file's contents.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write {
        offset: u64,
        data: Bytes,
    },
    /// Truncated or extended with zeros to this length.
    Length(u64),
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Change::Write { offset, data } => put(contents, *offset, data),
            Change::Length(length) => contents.resize(*length as usize, 0),
        }
    }

    /// Applies a random part of the change: nothing, all, or any of its sectors.
    fn apply_torn(&self, contents: &mut Vec<u8>, random: &mut Random) {
        match (random.below(3), self) {
            (0, _) => {}
            (1, _) | (_, Change::Length(_)) => self.apply(contents),
            (_, Change::Write { offset, data }) => {
                let end = offset + data.len() as u64;
                let mut at = *offset;
                while at < end {
                    let next = (at / SECTOR * SECTOR + SECTOR).min(end);
                    if random.one_in(2) {
                        put(contents, at, &data[(at - offset) as usize..(next - offset) as usize]);
                    }
                    at = next;
                }
            }
        }
    }

    fn overlaps(&self, from: u64, to: u64) -> bool {
        match self {
            Change::Write { offset, data } => *offset < to && from < offset + data.len() as u64,
            Change::Length(_) => true,
        }
    }
}

fn put(contents: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + data.len());
    if contents.len() < end {
        contents.resize(end, 0);
    }
    contents[start..end].copy_from_slice(data);
}

/// File, independent of its names.
#[derive(Debug, Default)]
pub(super) struct Inode {
    /// Visible contents.
    pub(super) now: Vec<u8>,
    /// Contents that certainly survive a crash.
    pub(super) durable: Vec<u8>,
    /// Changes that are not synced, each with its moment.
    unsynced: Vec<(u64, Change)>,
    /// Open handles.
    pub(super) handles: u32,
}

impl Inode {
    /// Applies a change that a crash may undo.
    pub(super) fn change(&mut self, moment: u64, change: Change) {
        change.apply(&mut self.now);
        self.unsynced.push((moment, change));
    }

    /// Applies a change that is durable at once, along with earlier changes of the same bytes.
    pub(super) fn change_durably(&mut self, change: Change) {
        let (from, to) = match &change {
            Change::Write { offset, data } => (*offset, offset + data.len() as u64),
            Change::Length(_) => (0, u64::MAX),
        };
        for (_, earlier) in self.unsynced.extract_if(.., |(_, earlier)| earlier.overlaps(from, to)) {
            earlier.apply(&mut self.durable);
        }
        change.apply(&mut self.now);
        change.apply(&mut self.durable);
    }

    /// Applies a random part of a change that failed.
    pub(super) fn change_torn(&mut self, change: &Change, random: &mut Random) {
        let before = random.clone();
        change.apply_torn(&mut self.now, random);
        change.apply_torn(&mut self.durable, &mut before.clone());
    }

    /// Makes changes before a moment durable.
    pub(super) fn sync(&mut self, before: u64) {
        for (_, change) in self.unsynced.extract_if(.., |(moment, _)| *moment < before) {
            change.apply(&mut self.durable);
        }
    }

    /// Fails a sync: a random part of the changes before it reaches the disk, and no later sync
    /// repairs that.
    pub(super) fn sync_torn(&mut self, before: u64, random: &mut Random) {
        for (_, change) in self.unsynced.extract_if(.., |(moment, _)| *moment < before) {
            change.apply_torn(&mut self.durable, random);
        }
    }

    /// Crashes the machine while the changes `in_flight` are being made.
    pub(super) fn crash(&mut self, in_flight: Vec<Change>, random: &mut Random) {
        self.sync_torn(u64::MAX, random);
        for change in in_flight {
            change.apply_torn(&mut self.durable, random);
        }
        self.now.clone_from(&self.durable);
        self.handles = 0;
    }
}
