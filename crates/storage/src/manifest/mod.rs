//! The manifest: the list of live table files, and the position up to which the log is flushed. It
//! is the only source of truth at a restart. A file that it does not name does not exist.
//!
//! An edit is a list of changes, called items. The state results from applying all edits to an
//! empty manifest, in order.
//!
//! ```text
//!  item   1 flushed record u64
//!         2 next file u64
//!         3 table u128 | truncated at record u64
//!         4 table u128 | file u64 | run u64 | seal u64 | owner count varint, each:
//!                                shards u32 | ignored bits u32 | shard u32
//!         5 table u128 | file u64                    the file is removed
//!         6 table u128 | file u64 | from token i64   smaller tokens in the file are ignored
//!         7 count varint, each: segment u64          log segments that are not flushed
//!         8 record u64                               log records up to this one were durable
//!         9 table u128 | file u64 | generation u64 | shard u32 | seal u64   origin of the file
//!        10 table u128 | file u64 | bytes u64 | checksum of the footer u32   identity of the file
//!        11 file u64 | seal u64   an earlier edit removed the file, which may still be on the disk
//! ```
//!
//! The manifest is also kept in memory. An edit is made from the change, so that its cost depends
//! on the change and not on the number of files.
//!
//! The log continues in segments after the last one named (point 6 of `segment.rs`). If none is
//! named the log is empty: the server was shut down in order, and the next start reads no log.
//!
//! `edits.rs` describes the layout of edits in the file, and `mark.rs` a file outside of the
//! shard's folder that tells how far the manifest goes.

pub(crate) mod edits;
pub(crate) mod layout;
pub(crate) mod mark;
pub(crate) mod versions;

use std::collections::BTreeMap;

use bytes::Bytes;
use schema::Sharding;

use crate::model::TableId;
use crate::model::codec::{Malformed, Reader, put_i64, put_u32, put_u64, put_u128, put_varint};

pub(crate) const MAGIC: u64 = 0x3130_4e41_4d4c_4146; // "FALMAN01"
/// Format version that this program writes. It also reads version 4.
pub(crate) const VERSION: u32 = 5;

const FLUSHED: u8 = 1;
const NEXT_FILE: u8 = 2;
const TRUNCATED: u8 = 3;
const FILE: u8 = 4;
const GONE: u8 = 5;
const CUT: u8 = 6;
const LOG: u8 = 7;
const DURABLE: u8 = 8;
const ORIGIN: u8 = 9;
const IDENTITY: u8 = 10;
const REMOVED: u8 = 11;

/// Size of an owner in an edit.
const OWNER_BYTES: usize = 12;

/// State of a shard's files and log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Manifest {
    pub(crate) shard: u32,
    pub(crate) shards: u32,
    /// Random number that tells the shard's files from those of other shards. 0 until a manifest of
    /// version 4 is written anew.
    pub(crate) stamp: u64,
    /// Log records up to this one are in table files.
    pub(crate) flushed: u64,
    /// The number of the next file. Numbers are not reused.
    pub(crate) next_file: u64,
    /// Log segments that may contain records that are not flushed, in ascending order.
    pub(crate) log: Vec<u64>,
    /// Log records up to this one were durable.
    pub(crate) durable: u64,
    pub(crate) tables: BTreeMap<TableId, TableVersion>,
}

/// The files of one table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TableVersion {
    /// Log records up to this one are ignored for this table, because it was truncated or dropped
    /// then.
    pub(crate) truncated: u64,
    /// Files by their numbers.
    pub(crate) files: BTreeMap<u64, FileEntry>,
}

/// A live table file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileEntry {
    /// Number of the file in this shard, from which its name derives.
    pub(crate) id: u64,
    /// Number of the run. Its files are fragments of one sorted sequence, and their tokens do not
    /// overlap.
    pub(crate) run: u64,
    /// Number that seeds the checksums of the file: [`seal_of`] of the shard that wrote it.
    pub(crate) seal: u64,
    /// Only partitions that all of these shards own count. Empty for a file that this shard wrote:
    /// all partitions count.
    pub(crate) owners: Vec<Owner>,
    /// Partitions with smaller tokens are ignored, because a running compaction has rewritten them.
    /// `i64::MIN` for a whole file.
    pub(crate) from: i64,
    /// The shard that wrote the file, if not this one. Files with equal origins are links to one
    /// file.
    pub(crate) origin: Option<Origin>,
    /// `None`: an earlier version wrote the entry.
    pub(crate) identity: Option<Identity>,
}

/// Properties that tell a file from an older copy and from any other file. The checksum of the
/// footer covers the checksums of everything in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) bytes: u64,
    pub(crate) footer: u32,
}

/// Returns the seal of a file that the shard with this stamp writes. Different numbers of one shard
/// have different seals, and seals of two shards are equal by chance only. Without a stamp it is
/// the number.
pub(crate) fn seal_of(stamp: u64, file: u64) -> u64 {
    if stamp == 0 {
        return file;
    }
    // The finalizer of splitmix64, which maps 64 bits one to one.
    let mut z = stamp.wrapping_add(file.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Identity of a file within the data folder, by the shard that wrote it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Origin {
    pub(crate) generation: u64,
    pub(crate) shard: u32,
    pub(crate) seal: u64,
}

impl FileEntry {
    /// Returns the entry of a file that this shard wrote.
    pub(crate) fn new(id: u64, run: u64, seal: u64) -> FileEntry {
        FileEntry { id, run, seal, owners: Vec::new(), from: i64::MIN, origin: None, identity: None }
    }

    /// Returns true if a partition with this token counts.
    #[inline]
    pub(crate) fn owns(&self, token: i64) -> bool {
        token >= self.from && self.owners.iter().all(|owner| owner.owns(token))
    }
}

/// A shard of some sharding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) sharding: Sharding,
    pub(crate) shard: u32,
}

impl Owner {
    #[inline]
    pub(crate) fn owns(&self, token: i64) -> bool {
        self.sharding.shard_of(token) == self.shard
    }
}

/// Reason why a manifest cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unusable {
    /// The damage and its position.
    Damaged(String),
    /// The file has another format version.
    Version(u32),
}

impl Manifest {
    /// Returns the manifest of a new shard.
    pub(crate) fn empty(shard: u32, shards: u32) -> Manifest {
        Manifest { shard, shards, next_file: 1, ..Manifest::default() }
    }

    /// Encodes the edit that turns `old` into `self`. Compares everything.
    pub(crate) fn since(&self, old: &Manifest) -> Vec<u8> {
        let mut out = Vec::new();
        put_item(&mut out, FLUSHED, self.flushed);
        put_item(&mut out, NEXT_FILE, self.next_file);
        if self.log != old.log {
            put_log(&mut out, &self.log);
        }
        if self.durable != old.durable {
            put_item(&mut out, DURABLE, self.durable);
        }
        let nothing = TableVersion::default();
        for id in old.tables.keys().chain(self.tables.keys().filter(|id| !old.tables.contains_key(id))) {
            let before = old.tables.get(id).unwrap_or(&nothing);
            let now = self.tables.get(id).unwrap_or(&nothing);
            if before.truncated != now.truncated {
                out.push(TRUNCATED);
                put_u128(&mut out, id.0);
                put_u64(&mut out, now.truncated);
            }
            for gone in before.files.values().filter(|file| now.files.get(&file.id) != Some(*file)) {
                put_gone(&mut out, *id, gone.id);
            }
            for file in now.files.values().filter(|file| before.files.get(&file.id) != Some(*file)) {
                put_file(&mut out, *id, file);
            }
        }
        out
    }

    /// Applies an edit.
    #[cfg(test)]
    pub(crate) fn apply(&mut self, edit: Bytes) -> Result<(), Malformed> {
        self.apply_noting(edit, |_, _| ())
    }

    /// Applies an edit. Calls `removed` with number and seal of every file that is removed.
    pub(crate) fn apply_noting(
        &mut self,
        edit: Bytes,
        mut removed: impl FnMut(u64, u64),
    ) -> Result<(), Malformed> {
        let mut reader = Reader::new(edit);
        while reader.rest() > 0 {
            match reader.u8()? {
                FLUSHED => self.flushed = reader.u64()?,
                NEXT_FILE => self.next_file = reader.u64()?,
                LOG => {
                    let count = reader.count(8)?;
                    self.log = (0..count).map(|_| reader.u64()).collect::<Result<_, _>>()?;
                }
                DURABLE => self.durable = reader.u64()?,
                REMOVED => removed(reader.u64()?, reader.u64()?),
                kind @ (TRUNCATED | FILE | GONE | CUT | ORIGIN | IDENTITY) => {
                    let id = TableId(reader.u128()?);
                    let table = self.tables.entry(id).or_default();
                    match kind {
                        TRUNCATED => table.truncated = reader.u64()?,
                        FILE => {
                            let file = read_file(&mut reader)?;
                            table.files.insert(file.id, file);
                        }
                        CUT => {
                            let (cut, from) = (reader.u64()?, reader.i64()?);
                            table.files.get_mut(&cut).ok_or(Malformed)?.from = from;
                        }
                        ORIGIN => {
                            let file = reader.u64()?;
                            let origin = Origin {
                                generation: reader.u64()?,
                                shard: reader.u32()?,
                                seal: reader.u64()?,
                            };
                            table.files.get_mut(&file).ok_or(Malformed)?.origin = Some(origin);
                        }
                        IDENTITY => {
                            let file = reader.u64()?;
                            let identity = Identity { bytes: reader.u64()?, footer: reader.u32()? };
                            table.files.get_mut(&file).ok_or(Malformed)?.identity = Some(identity);
                        }
                        _ => {
                            let gone = table.files.remove(&reader.u64()?);
                            gone.iter().for_each(|file| removed(file.id, file.seal));
                        }
                    }
                    if *table == TableVersion::default() {
                        self.tables.remove(&id);
                    }
                }
                _ => return Err(Malformed),
            }
        }
        Ok(())
    }

    /// Returns all files with their tables.
    pub(crate) fn files(&self) -> impl Iterator<Item = (TableId, &FileEntry)> {
        self.tables.iter().flat_map(|(id, table)| table.files.values().map(|file| (*id, file)))
    }

    /// Removes truncations that precede all records in the log.
    pub(crate) fn tidy(&mut self) {
        let flushed = self.flushed;
        self.tables.retain(|_, table| !table.files.is_empty() || table.truncated > flushed);
    }
}

/// Change of the manifest, applied to memory and disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edit(Vec<Item>);

#[derive(Clone, Debug)]
enum Item {
    Flushed(u64),
    Log(Vec<u64>),
    Durable(u64),
    Truncated(TableId, u64),
    Add(TableId, FileEntry),
    Gone(TableId, u64),
    Cut(TableId, u64, i64),
}

impl Edit {
    /// Sets the last log record that is in table files.
    pub(crate) fn flushed(&mut self, record: u64) {
        self.0.push(Item::Flushed(record));
    }

    /// Sets the log segments that may contain records that are not flushed, and the last durable
    /// record.
    pub(crate) fn log(&mut self, segments: Vec<u64>, durable: u64) {
        self.0.push(Item::Log(segments));
        self.0.push(Item::Durable(durable));
    }

    /// Empties a table: ignores its files, and its log records up to `record`.
    pub(crate) fn truncate(&mut self, table: TableId, record: u64) {
        self.0.push(Item::Truncated(table, record));
    }

    /// Adds a file.
    pub(crate) fn add(&mut self, table: TableId, file: FileEntry) {
        self.0.push(Item::Add(table, file));
    }

    /// Removes a file.
    pub(crate) fn remove(&mut self, table: TableId, file: u64) {
        self.0.push(Item::Gone(table, file));
    }

    /// Ignores tokens below `from` in a file.
    pub(crate) fn cut(&mut self, table: TableId, file: u64, from: i64) {
        self.0.push(Item::Cut(table, file, from));
    }

    /// Encodes the edit for a file whose state is `old`.
    pub(crate) fn encode(&self, old: &Manifest) -> Vec<u8> {
        let mut out = Vec::new();
        put_item(&mut out, FLUSHED, old.flushed.max(self.last_flushed()));
        put_item(&mut out, NEXT_FILE, old.next_file);
        for item in &self.0 {
            match item {
                Item::Flushed(_) => {}
                Item::Log(log) if old.log == *log => {}
                Item::Log(log) => put_log(&mut out, log),
                Item::Durable(record) if *record <= old.durable => {}
                Item::Durable(record) => put_item(&mut out, DURABLE, *record),
                Item::Truncated(table, record) => {
                    let version = old.tables.get(table);
                    let before = version.map_or(0, |version| version.truncated);
                    out.push(TRUNCATED);
                    put_u128(&mut out, table.0);
                    put_u64(&mut out, before.max(*record));
                    let files = version.into_iter().flat_map(|version| version.files.keys());
                    files.for_each(|file| put_gone(&mut out, *table, *file));
                }
                Item::Add(table, file) => put_file(&mut out, *table, file),
                Item::Gone(table, file) => put_gone(&mut out, *table, *file),
                Item::Cut(table, file, from) => put_cut(&mut out, *table, *file, *from),
            }
        }
        out
    }

    fn last_flushed(&self) -> u64 {
        let flushed = |item: &Item| if let Item::Flushed(record) = item { *record } else { 0 };
        self.0.iter().map(flushed).max().unwrap_or(0)
    }

    /// Applies the change in memory.
    pub(crate) fn apply(self, manifest: &mut Manifest) {
        let mut may_empty_table = false;
        for item in self.0 {
            match item {
                Item::Flushed(record) => manifest.flushed = manifest.flushed.max(record),
                Item::Log(log) => {
                    manifest.log = log;
                    continue;
                }
                Item::Durable(record) => {
                    manifest.durable = manifest.durable.max(record);
                    continue;
                }
                Item::Truncated(table, record) => {
                    let version = manifest.tables.entry(table).or_default();
                    version.truncated = version.truncated.max(record);
                    version.files.clear();
                }
                Item::Add(table, file) => {
                    manifest.tables.entry(table).or_default().files.insert(file.id, file);
                    continue;
                }
                Item::Gone(table, file) => {
                    let files = manifest.tables.get_mut(&table).map(|version| &mut version.files);
                    if files.is_none_or(|files| files.remove(&file).is_none() || !files.is_empty()) {
                        continue;
                    }
                }
                Item::Cut(table, file, from) => {
                    let version = manifest.tables.get_mut(&table);
                    version.and_then(|version| version.files.get_mut(&file)).into_iter().for_each(|file| {
                        file.from = from;
                    });
                    continue;
                }
            }
            may_empty_table = true;
        }
        if may_empty_table {
            manifest.tidy();
        }
    }
}

fn put_item(out: &mut Vec<u8>, kind: u8, number: u64) {
    out.push(kind);
    put_u64(out, number);
}

fn put_log(out: &mut Vec<u8>, log: &[u64]) {
    out.push(LOG);
    put_varint(out, log.len() as u64);
    log.iter().for_each(|segment| put_u64(out, *segment));
}

fn put_gone(out: &mut Vec<u8>, table: TableId, file: u64) {
    out.push(GONE);
    put_u128(out, table.0);
    put_u64(out, file);
}

fn put_cut(out: &mut Vec<u8>, table: TableId, file: u64, from: i64) {
    out.push(CUT);
    put_u128(out, table.0);
    put_u64(out, file);
    put_i64(out, from);
}

fn put_file(out: &mut Vec<u8>, table: TableId, file: &FileEntry) {
    out.push(FILE);
    put_u128(out, table.0);
    put_u64(out, file.id);
    put_u64(out, file.run);
    put_u64(out, file.seal);
    put_varint(out, file.owners.len() as u64);
    for owner in &file.owners {
        put_u32(out, owner.sharding.shards);
        put_u32(out, owner.sharding.ignore_msb);
        put_u32(out, owner.shard);
    }
    if file.from > i64::MIN {
        put_cut(out, table, file.id, file.from);
    }
    if let Some(origin) = file.origin {
        out.push(ORIGIN);
        put_u128(out, table.0);
        put_u64(out, file.id);
        put_u64(out, origin.generation);
        put_u32(out, origin.shard);
        put_u64(out, origin.seal);
    }
    if let Some(identity) = file.identity {
        out.push(IDENTITY);
        put_u128(out, table.0);
        put_u64(out, file.id);
        put_u64(out, identity.bytes);
        put_u32(out, identity.footer);
    }
}

/// Encodes a file that an earlier edit removed and that may still be on the disk.
pub(crate) fn put_removed(out: &mut Vec<u8>, file: u64, seal: u64) {
    out.push(REMOVED);
    put_u64(out, file);
    put_u64(out, seal);
}

fn read_file(reader: &mut Reader) -> Result<FileEntry, Malformed> {
    let id = reader.u64()?;
    let run = reader.u64()?;
    let seal = reader.u64()?;
    let mut owners = Vec::new();
    for _ in 0..reader.count(OWNER_BYTES)? {
        let sharding = Sharding { shards: reader.u32()?, ignore_msb: reader.u32()? };
        owners.push(Owner { sharding, shard: reader.u32()? });
    }
    Ok(FileEntry { owners, ..FileEntry::new(id, run, seal) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: impl IntoIterator<Item = FileEntry>) -> BTreeMap<u64, FileEntry> {
        files.into_iter().map(|file| (file.id, file)).collect()
    }

    fn sample() -> Manifest {
        let owner = Owner { sharding: Sharding { shards: 2, ignore_msb: 12 }, shard: 1 };
        let origin = Some(Origin { generation: 3, shard: 1, seal: 1 });
        let identity = Some(Identity { bytes: 4096, footer: 0xfeed });
        let owners = vec![owner, owner];
        let shared = FileEntry { owners, from: -5, origin, identity, ..FileEntry::new(7, 3, 1) };
        let first = TableVersion { truncated: 9, files: files([FileEntry::new(4, 4, 4), shared]) };
        let second = TableVersion { truncated: 0, files: files([FileEntry::new(5, 4, 5)]) };
        let tables = [(TableId(5), first), (TableId(6), second)].into();
        let log = vec![3, 4, 6];
        Manifest { flushed: 77, next_file: 8, log, durable: 79, tables, ..Manifest::empty(1, 2) }
    }

    fn check(old: &Manifest, new: &Manifest) {
        let mut applied = old.clone();
        assert_eq!(applied.apply(new.since(old).into()), Ok(()));
        assert_eq!(applied, *new);
    }

    #[test]
    fn edit_turns_the_old_manifest_into_the_new() {
        let (empty, full) = (Manifest::empty(1, 2), sample());
        check(&empty, &full);
        check(&full, &full);
        check(&full, &empty);
        let mut other = sample();
        other.tables.remove(&TableId(5));
        let files = &mut other.tables.get_mut(&TableId(6)).expect("there").files;
        files.insert(9, FileEntry::new(9, 4, 9));
        files.remove(&5);
        check(&full, &other);
        check(&other, &full);
    }

    /// Checks that an edit in memory and its encoded form have the same effect.
    #[test]
    fn edit_changes_memory_and_disk_alike() {
        let (first, second) = (TableId(5), TableId(6));
        let mut manifest = sample();
        let mut read = manifest.clone();
        let mut change = |make: &dyn Fn(&mut Edit)| {
            let mut edit = Edit::default();
            make(&mut edit);
            read.apply(edit.encode(&manifest).into()).expect("it decodes");
            edit.apply(&mut manifest);
            read.tidy();
            assert_eq!(read, manifest);
            manifest.clone()
        };
        change(&|edit| edit.add(second, FileEntry::new(8, 8, 8)));
        change(&|edit| edit.cut(second, 8, 17));
        change(&|edit| edit.remove(second, 5));
        let truncated = change(&|edit| edit.truncate(first, 99));
        assert!(truncated.tables[&first].files.is_empty());
        let older = change(&|edit| edit.truncate(first, 98));
        assert_eq!(older.tables[&first].truncated, 99, "an older truncation changes nothing");
        let flushed = change(&|edit| {
            edit.flushed(120);
            edit.log(vec![6, 7], 125);
        });
        assert_eq!((flushed.log, flushed.durable), (vec![6, 7], 125));
        assert_eq!(change(&|edit| edit.log(Vec::new(), 124)).durable, 125, "it stays durable");
        assert!(!flushed.tables.contains_key(&first), "no record of it is left in the log");
        change(&|edit| edit.remove(second, 8));
    }

    #[test]
    fn edit_among_thousands_of_files_is_as_long_as_among_ten() {
        let edit_bytes = |count: u64| {
            let mut manifest = Manifest::empty(0, 1);
            let all = (1..=count).map(|id| FileEntry::new(id, id, id));
            manifest.tables.insert(TableId(5), TableVersion { truncated: 0, files: files(all) });
            let mut edit = Edit::default();
            edit.add(TableId(5), FileEntry::new(count + 1, count + 1, count + 1));
            edit.encode(&manifest).len()
        };
        assert_eq!(edit_bytes(10), edit_bytes(4096));
    }

    #[test]
    fn truncated_edit_is_malformed_or_incomplete() {
        let (empty, full) = (Manifest::empty(1, 2), sample());
        let edit = full.since(&empty);
        for end in 0..edit.len() {
            let mut cut = empty.clone();
            assert!(cut.apply(edit[..end].to_vec().into()).is_err() || cut != full, "cut at {end}");
        }
        assert_eq!(empty.clone().apply(vec![99u8].into()), Err(Malformed));
    }
}
