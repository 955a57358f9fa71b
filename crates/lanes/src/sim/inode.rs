//! The contents of one file: what is seen, what a crash certainly leaves, and what lies between.

use bytes::Bytes;

use super::Random;

/// The unit that a disk writes whole or not at all, in bytes.
pub(super) const SECTOR: u64 = 512;

/// A change to a file's contents.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write {
        offset: u64,
        data: Bytes,
    },
    /// Cut off, or zeros added, to this length.
    Length(u64),
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Change::Write { offset, data } => put(contents, *offset, data),
            Change::Length(length) => contents.resize(*length as usize, 0),
        }
    }

    /// Applies what chance leaves of the change: nothing, all, or any of its sectors.
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

/// A file, whatever it is called.
#[derive(Debug, Default)]
pub(super) struct Inode {
    /// What readers see.
    pub(super) now: Vec<u8>,
    /// What a crash certainly leaves.
    pub(super) durable: Vec<u8>,
    /// Not synced, with the moment of each.
    unsynced: Vec<(u64, Change)>,
    /// Open handles.
    pub(super) handles: u32,
}

impl Inode {
    /// A change that a crash may undo.
    pub(super) fn change(&mut self, moment: u64, change: Change) {
        change.apply(&mut self.now);
        self.unsynced.push((moment, change));
    }

    /// A change that is durable at once, with whatever it lies upon.
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

    /// A change that failed, of which chance decides what is there.
    pub(super) fn change_torn(&mut self, change: &Change, random: &mut Random) {
        let before = random.clone();
        change.apply_torn(&mut self.now, random);
        change.apply_torn(&mut self.durable, &mut before.clone());
    }

    /// Makes durable what was changed before a moment.
    pub(super) fn sync(&mut self, before: u64) {
        for (_, change) in self.unsynced.extract_if(.., |(moment, _)| *moment < before) {
            change.apply(&mut self.durable);
        }
    }

    /// A sync that failed: of what was changed before, chance decides what reached the disk, and no later sync will help.
    pub(super) fn sync_torn(&mut self, before: u64, random: &mut Random) {
        for (_, change) in self.unsynced.extract_if(.., |(moment, _)| *moment < before) {
            change.apply_torn(&mut self.durable, random);
        }
    }

    /// The machine went down while `under_way` was being done.
    pub(super) fn crash(&mut self, under_way: Vec<Change>, random: &mut Random) {
        self.sync_torn(u64::MAX, random);
        for change in under_way {
            change.apply_torn(&mut self.durable, random);
        }
        self.now.clone_from(&self.durable);
        self.handles = 0;
    }
}
