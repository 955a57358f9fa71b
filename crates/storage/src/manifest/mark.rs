//! The mark of a shard: a small file outside of the shard's folder that states how far the files of
//! the shard go. A manifest or a log cannot show that its own end is missing, because each of its
//! earlier states was valid. The mark shows it.
//!
//! ```text
//!  DIR/marks/shard-0003.2     two slots of 4096 bytes, named like the folder of the shard
//!  slot   magic u64 | version u32 | shard u32 | stamp u64 | count u64 | edit u64 | chain u32 |
//!         durable u64 | crc u32                                           zeros to 4096
//! ```
//!
//! 1. Each write replaces the older slot, so that the other stays valid. The slot with the greater
//!    count is the present one. A slot fits a sector, so it is written completely or not at all.
//! 2. *Edit* is the number of the last edit of the manifest, and *chain* the checksum over the file
//!    of the manifest up to it. They are written when the edit is durable, and before any other
//!    task relies on it. So a manifest without that edit was cut, or is an older copy.
//! 3. *Durable* is the last log record that was durable. It is written a second after a batch, at
//!    most once a second. A log that ends before it was cut, or is an older copy.
//! 4. The manifest and the log may be ahead of the mark: a crash may come between the writes.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::env::BLOCK;
use crate::env::{Env, File, Mode};
use crate::error::StorageError;
use crate::manifest::layout::{read_all, sync};
use crate::model::codec::{Malformed, Reader, put_u32, put_u64};
use crate::signal::Signal;

const MAGIC: u64 = 0x3130_4b52_4d4c_4146; // "FALMRK01"
/// Format version that this program reads and writes.
const VERSION: u32 = 1;

/// Count of a new mark.
pub(crate) const NEW_MARK_COUNT: u64 = 2;

/// The contents of a mark.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Facts {
    pub(crate) shard: u32,
    /// Stamp of the shard, see [`crate::manifest::Manifest`].
    pub(crate) stamp: u64,
    /// Number of the last durable edit.
    pub(crate) edit: u64,
    /// Checksum of the manifest up to that edit.
    pub(crate) chain: u32,
    /// Log records up to this one were durable.
    pub(crate) durable: u64,
}

/// Result of reading a mark.
#[derive(Clone, Debug)]
pub(crate) enum MarkRead {
    Missing,
    /// The damage. `None`: no slot is readable. Otherwise the facts of the other slot, which hold,
    /// but may be older.
    Damaged(StorageError, Option<Facts>),
    /// The facts, and the count of the slot.
    Valid(Facts, u64),
}

impl MarkRead {
    /// Returns the facts, if a slot is readable.
    pub(crate) fn facts(&self) -> Option<&Facts> {
        match self {
            MarkRead::Valid(facts, _) | MarkRead::Damaged(_, Some(facts)) => Some(facts),
            MarkRead::Missing | MarkRead::Damaged(_, None) => None,
        }
    }
}

/// Returns the folder of the marks of a data folder.
pub(crate) fn marks_dir(root: &Path) -> PathBuf {
    root.join("marks")
}

/// Returns the path of the mark of the shard with this folder.
pub(crate) fn mark_path(dir: &Path) -> PathBuf {
    let root = dir.parent().expect("a shard's folder is in a data folder");
    marks_dir(root).join(dir.file_name().expect("a shard's folder has a name"))
}

fn encode(facts: &Facts, count: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(BLOCK);
    put_u64(&mut out, MAGIC);
    put_u32(&mut out, VERSION);
    put_u32(&mut out, facts.shard);
    put_u64(&mut out, facts.stamp);
    put_u64(&mut out, count);
    put_u64(&mut out, facts.edit);
    put_u32(&mut out, facts.chain);
    put_u64(&mut out, facts.durable);
    let crc = crc32c::crc32c(&out);
    put_u32(&mut out, crc);
    out.resize(BLOCK, 0);
    out
}

/// Decodes the slot at `at`. `Err(Some(version))`: intact, but of another format version.
fn decode(data: &Bytes, at: usize) -> Result<(Facts, u64), Option<u32>> {
    let read = || -> Result<(u32, Facts, u64), Malformed> {
        let mut reader = Reader::at(data.clone(), at);
        if reader.u64()? != MAGIC {
            return Err(Malformed);
        }
        let version = reader.u32()?;
        let shard = reader.u32()?;
        let stamp = reader.u64()?;
        let count = reader.u64()?;
        let edit = reader.u64()?;
        let chain = reader.u32()?;
        let durable = reader.u64()?;
        let end = reader.position();
        if reader.u32()? != crc32c::crc32c(&data[at..end]) {
            return Err(Malformed);
        }
        Ok((version, Facts { shard, stamp, edit, chain, durable }, count))
    };
    match read() {
        Ok((VERSION, facts, count)) => Ok((facts, count)),
        Ok((version, ..)) => Err(Some(version)),
        Err(Malformed) => Err(None),
    }
}

/// Reads the mark of the shard with the folder `dir`.
///
/// # Errors
/// The file cannot be read, or has another format version.
pub(crate) async fn read_mark(env: &dyn Env, dir: &Path) -> Result<MarkRead, StorageError> {
    let path = mark_path(dir);
    let data = match read_all(env, &path).await {
        Err(StorageError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
            return Ok(MarkRead::Missing);
        }
        data => data?,
    };
    let slots = [0, BLOCK].map(|at| decode(&data, at));
    if let Some(found) = slots.iter().find_map(|slot| slot.err().flatten()) {
        return Err(StorageError::UnknownFormat { path, found, known: VERSION });
    }
    let newest = slots.iter().flatten().max_by_key(|(_, count)| *count).copied();
    if slots.iter().any(Result::is_err) || data.len() != 2 * BLOCK {
        let what = format!(
            "expected a mark of {} bytes with two valid slots, got {} bytes; the mark states how far the log \
             and the manifest of this shard go",
            2 * BLOCK,
            data.len()
        );
        return Ok(MarkRead::Damaged(StorageError::corrupt(path, what), newest.map(|(facts, _)| facts)));
    }
    let (facts, count) = newest.expect("both are valid");
    Ok(MarkRead::Valid(facts, count))
}

/// Writes the first mark of a shard. Replaces one that is there.
pub(crate) async fn create_mark(
    env: &dyn Env,
    dir: &Path,
    facts: &Facts,
) -> Result<Arc<dyn File>, StorageError> {
    let path = mark_path(dir);
    let marks = path.parent().expect("a mark is in a folder");
    let new = path.with_file_name(format!("{}.new", path.file_name().expect("named").to_string_lossy()));
    let io = |error| StorageError::io("write the mark", &path, error);
    let make = async {
        env.create_dir_all(marks).await?;
        let file = env.open(&new, Mode::Create).await?;
        let slots = [encode(facts, NEW_MARK_COUNT), encode(facts, NEW_MARK_COUNT - 1)];
        file.write(0, slots.concat().into()).await?;
        file.sync().await?;
        drop(file);
        env.rename(&new, &path).await
    };
    make.await.map_err(io)?;
    sync(env, marks).await?;
    if let Some(root) = marks.parent() {
        sync(env, root).await?;
    }
    env.open(&path, Mode::Log).await.map_err(io)
}

/// The mark of an open shard.
#[derive(Debug)]
pub(crate) struct Mark {
    env: Arc<dyn Env>,
    dir: PathBuf,
    /// `None`: it was not written since the start.
    file: RefCell<Option<Arc<dyn File>>>,
    facts: Cell<Facts>,
    /// Count of the last write. 0: there is no valid file yet.
    count: Cell<u64>,
    is_busy: Cell<bool>,
    turn: Signal,
}

/// Ends a write, also one that its task has dropped.
struct Turn<'m>(&'m Mark);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_busy.set(false);
        self.0.turn.wake();
    }
}

impl Mark {
    /// Returns the mark of the shard with the folder `dir`. `count` is that of the file; with
    /// `None` the next write creates the file.
    pub(crate) fn new(env: Arc<dyn Env>, dir: PathBuf, count: Option<u64>, facts: Facts) -> Mark {
        let (file, is_busy, turn) = Default::default();
        let count = Cell::new(count.unwrap_or(0));
        Mark { env, dir, file, facts: Cell::new(facts), count, is_busy, turn }
    }

    /// States durably that an edit of the manifest is durable.
    pub(crate) async fn state_edit(&self, stamp: u64, edit: u64, chain: u32) -> Result<(), StorageError> {
        self.write(|facts| Facts { stamp, edit, chain, ..facts }).await
    }

    /// States durably that log records up to `record` are durable.
    pub(crate) async fn state_durable(&self, record: u64) -> Result<(), StorageError> {
        // Without an edit there is nothing to compare the log with.
        if self.facts.get().edit == 0 {
            return Ok(());
        }
        self.write(|facts| Facts { durable: facts.durable.max(record), ..facts }).await
    }

    /// Waits until no write is in flight.
    pub(crate) async fn settle(&self) {
        self.turn.wait(|| (!self.is_busy.get()).then_some(())).await;
    }

    async fn write(&self, change: impl FnOnce(Facts) -> Facts) -> Result<(), StorageError> {
        self.turn.wait(|| (!self.is_busy.replace(true)).then_some(())).await;
        let _turn = Turn(self);
        let facts = change(self.facts.get());
        let count = self.count.get() + 1;
        let path = mark_path(&self.dir);
        let io = |error| StorageError::io("write the mark", &path, error);
        let open = self.file.borrow().clone();
        if count == 1 {
            *self.file.borrow_mut() = Some(create_mark(&*self.env, &self.dir, &facts).await?);
            self.count.set(NEW_MARK_COUNT);
        } else {
            let file = match open {
                Some(file) => file,
                None => self.env.open(&path, Mode::Log).await.map_err(io)?,
            };
            *self.file.borrow_mut() = Some(file.clone());
            // A failed write may have replaced the slot. The same slot is written again then.
            let at = (count % 2) * BLOCK as u64;
            file.write_durable(at, &encode(&facts, count)).await.map_err(io)?;
            self.count.set(count);
        }
        self.facts.set(facts);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts { shard: 3, stamp: 7, edit: 12, chain: 0xfeed_beef, durable: 99 };

    #[test]
    fn every_damaged_byte_of_a_slot_is_noticed() {
        let slot = encode(&FACTS, 5);
        assert_eq!(decode(&slot.clone().into(), 0), Ok((FACTS, 5)));
        for at in 0..56 {
            let mut damaged = slot.clone();
            damaged[at] ^= 0x20;
            assert_eq!(decode(&damaged.into(), 0), Err(None), "flipped {at}");
            assert_eq!(decode(&slot[..at].to_vec().into(), 0), Err(None), "cut at {at}");
        }
    }

    #[test]
    fn mark_of_another_version_is_refused() {
        let mut slot = encode(&FACTS, 5);
        slot[8] = VERSION as u8 + 1;
        let crc = crc32c::crc32c(&slot[..52]);
        slot[52..56].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&slot.into(), 0), Err(Some(VERSION + 1)));
    }
}
