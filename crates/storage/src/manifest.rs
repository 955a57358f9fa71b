//! The manifest: which table files are alive, and how far the log has been flushed. The only source of truth on
//! restart; a file it does not name is not there.
//!
//! An edit says what changes, as a list of items. The state is what all edits make of an empty manifest, in order.
//!
//! ```text
//!  item   1 flushed record u64
//!         2 next file u64
//!         3 table u128 | truncated at record u64
//!         4 table u128 | file u64 | run u64 | seal u64 | owners: varint count, each: shards u32 | ignored bits u32 | shard u32
//!         5 table u128 | file u64                      the file is gone
//!         6 table u128 | file u64 | from token i64     of the file, smaller tokens do not count any more
//!         7 varint count, each: segment u64            segments of the log that may have records which are not flushed
//!         8 record u64                                 records of the log up to this one were durable
//! ```
//!
//! The log goes on in segments that the last one named leads to (point 6 of `segment.rs`). With none named the log is
//! empty: the server was stopped in order, and the next start reads nothing of it.
//!
//! `edits.rs` describes the layout of edits in the file. Version 2 has no items 7 and 8: then every segment counts. In
//! version 1 every edit wrote the whole manifest anew. Both are read, and replaced by the first edit.

use std::collections::BTreeMap;

use bytes::Bytes;
use schema::Sharding;

use crate::codec::{Malformed, Reader, put_i64, put_u32, put_u64, put_u128, put_varint};
use crate::model::TableId;

pub(crate) const MAGIC: u64 = 0x3130_4e41_4d4c_4146; // "FALMAN01"
/// The newest version of the format this program reads, and the one it writes.
pub(crate) const VERSION: u32 = 3;

const FLUSHED: u8 = 1;
const NEXT_FILE: u8 = 2;
const TRUNCATED: u8 = 3;
const FILE: u8 = 4;
const GONE: u8 = 5;
const CUT: u8 = 6;
const LOG: u8 = 7;
const DURABLE: u8 = 8;

/// Bytes of one owner in an edit.
const OWNER_BYTES: usize = 12;

/// What the manifest says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Manifest {
    pub(crate) shard: u32,
    pub(crate) shards: u32,
    /// Log records up to this one are in table files.
    pub(crate) flushed: u64,
    /// No file has this number or a higher one.
    pub(crate) next_file: u64,
    /// The segments of the log that may have records which are not flushed, ascending. `None`: unknown, before version 3.
    pub(crate) log: Option<Vec<u64>>,
    /// Log records up to this one were durable.
    pub(crate) durable: u64,
    pub(crate) tables: BTreeMap<TableId, TableVersion>,
}

/// The files of one table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TableVersion {
    /// Log records up to this one do not count for this table: it was truncated or dropped then.
    pub(crate) truncated: u64,
    pub(crate) files: Vec<FileEntry>,
}

/// A table file that is alive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileEntry {
    /// Its number and name in this shard.
    pub(crate) id: u64,
    /// Files with the same run are fragments of one sorted whole: their tokens do not overlap.
    pub(crate) run: u64,
    /// The number it was written under, which its checksums are seeded with: its own, or another shard's.
    pub(crate) seal: u64,
    /// Of its partitions, those count that every one of these owns. Empty for a file that this shard wrote: all of them.
    pub(crate) owners: Vec<Owner>,
    /// Partitions of smaller tokens do not count: a merge under way has written them anew. `i64::MIN` for a whole file.
    pub(crate) from: i64,
}

impl FileEntry {
    /// A file that this shard has written.
    pub(crate) fn new(id: u64, run: u64) -> FileEntry {
        FileEntry { id, run, seal: id, owners: Vec::new(), from: i64::MIN }
    }

    /// Whether a partition with this token counts.
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

/// Why a manifest cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unusable {
    /// What is wrong, and at which byte.
    Damaged(String),
    Newer(u32),
}

impl Manifest {
    /// A new shard's.
    pub(crate) fn empty(shard: u32, shards: u32) -> Manifest {
        Manifest { shard, shards, next_file: 1, log: Some(Vec::new()), ..Manifest::default() }
    }

    /// The edit that makes `self` of `old`.
    pub(crate) fn since(&self, old: &Manifest) -> Vec<u8> {
        let mut out = Vec::new();
        out.push(FLUSHED);
        put_u64(&mut out, self.flushed);
        out.push(NEXT_FILE);
        put_u64(&mut out, self.next_file);
        if let Some(log) = self.log.as_ref().filter(|_| self.log != old.log) {
            out.push(LOG);
            put_varint(&mut out, log.len() as u64);
            log.iter().for_each(|segment| put_u64(&mut out, *segment));
        }
        if self.durable != old.durable {
            out.push(DURABLE);
            put_u64(&mut out, self.durable);
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
            for gone in before.files.iter().filter(|file| !now.files.contains(file)) {
                out.push(GONE);
                put_u128(&mut out, id.0);
                put_u64(&mut out, gone.id);
            }
            for file in now.files.iter().filter(|file| !before.files.contains(file)) {
                out.push(FILE);
                put_u128(&mut out, id.0);
                put_file(&mut out, file);
                if file.from > i64::MIN {
                    out.push(CUT);
                    put_u128(&mut out, id.0);
                    put_u64(&mut out, file.id);
                    put_i64(&mut out, file.from);
                }
            }
        }
        out
    }

    /// Applies an edit.
    pub(crate) fn apply(&mut self, edit: Bytes) -> Result<(), Malformed> {
        let mut reader = Reader::new(edit);
        while reader.rest() > 0 {
            match reader.u8()? {
                FLUSHED => self.flushed = reader.u64()?,
                NEXT_FILE => self.next_file = reader.u64()?,
                LOG => {
                    let count = reader.count(8)?;
                    self.log = Some((0..count).map(|_| reader.u64()).collect::<Result<_, _>>()?);
                }
                DURABLE => self.durable = reader.u64()?,
                kind @ (TRUNCATED | FILE | GONE | CUT) => {
                    let id = TableId(reader.u128()?);
                    let table = self.tables.entry(id).or_default();
                    match kind {
                        TRUNCATED => table.truncated = reader.u64()?,
                        FILE => table.files.push(read_file(&mut reader)?),
                        CUT => {
                            let (cut, from) = (reader.u64()?, reader.i64()?);
                            let file = table.files.iter_mut().find(|file| file.id == cut);
                            file.ok_or(Malformed)?.from = from;
                        }
                        _ => {
                            let gone = reader.u64()?;
                            table.files.retain(|file| file.id != gone);
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

    /// Reads a manifest of version 1.
    pub(crate) fn decode_v1(bytes: &Bytes) -> Result<Manifest, Unusable> {
        let damaged = |what: &str| Unusable::Damaged(what.to_owned());
        let body = bytes.len().checked_sub(4).ok_or_else(|| damaged("it is too short"))?;
        let crc = Reader::at(bytes.clone(), body).u32();
        if crc != Ok(crc32c::crc32c(&bytes[..body])) {
            return Err(damaged("it does not match its checksum"));
        }
        let read = || -> Result<Manifest, Malformed> {
            let mut reader = Reader::new(bytes.slice(..body));
            let (_magic, _version) = (reader.u64()?, reader.u32()?);
            let (shard, shards) = (reader.u32()?, reader.u32()?);
            let (flushed, next_file) = (reader.u64()?, reader.u64()?);
            let mut tables = BTreeMap::new();
            for _ in 0..reader.count(25)? {
                let id = TableId(reader.u128()?);
                let truncated = reader.u64()?;
                let files = (0..reader.count(8)?).map(|_| reader.u64().map(|id| FileEntry::new(id, id)));
                let files = files.collect::<Result<_, _>>()?;
                tables.insert(id, TableVersion { truncated, files });
            }
            let manifest = Manifest { shard, shards, flushed, next_file, tables, ..Manifest::default() };
            if reader.rest() == 0 { Ok(manifest) } else { Err(Malformed) }
        };
        read().map_err(|Malformed| damaged("it does not decode"))
    }

    /// All files, with their tables.
    pub(crate) fn files(&self) -> impl Iterator<Item = (TableId, &FileEntry)> {
        self.tables.iter().flat_map(|(id, table)| table.files.iter().map(|file| (*id, file)))
    }

    /// Forgets what no longer matters: truncations that lie before everything still in the log.
    pub(crate) fn tidy(&mut self) {
        let flushed = self.flushed;
        self.tables.retain(|_, table| !table.files.is_empty() || table.truncated > flushed);
    }
}

fn put_file(out: &mut Vec<u8>, file: &FileEntry) {
    put_u64(out, file.id);
    put_u64(out, file.run);
    put_u64(out, file.seal);
    put_varint(out, file.owners.len() as u64);
    for owner in &file.owners {
        put_u32(out, owner.sharding.shards);
        put_u32(out, owner.sharding.ignore_msb);
        put_u32(out, owner.shard);
    }
}

fn read_file(reader: &mut Reader) -> Result<FileEntry, Malformed> {
    let (id, run, seal) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let mut owners = Vec::new();
    for _ in 0..reader.count(OWNER_BYTES)? {
        let sharding = Sharding { shards: reader.u32()?, ignore_msb: reader.u32()? };
        owners.push(Owner { sharding, shard: reader.u32()? });
    }
    Ok(FileEntry { id, run, seal, owners, from: i64::MIN })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        let owner = Owner { sharding: Sharding { shards: 2, ignore_msb: 12 }, shard: 1 };
        let shared = FileEntry { id: 7, run: 3, seal: 1, owners: vec![owner, owner], from: -5 };
        let first = TableVersion { truncated: 9, files: vec![FileEntry::new(4, 4), shared] };
        let second = TableVersion { truncated: 0, files: vec![FileEntry::new(5, 4)] };
        let tables = [(TableId(5), first), (TableId(6), second)].into();
        let log = Some(vec![3, 4, 6]);
        Manifest { shard: 1, shards: 2, flushed: 77, next_file: 8, log, durable: 79, tables }
    }

    fn check(old: &Manifest, new: &Manifest) {
        let mut applied = old.clone();
        assert_eq!(applied.apply(new.since(old).into()), Ok(()));
        assert_eq!(applied, *new);
    }

    #[test]
    fn an_edit_makes_the_new_of_the_old() {
        let (empty, full) = (Manifest::empty(1, 2), sample());
        check(&empty, &full);
        check(&full, &full);
        check(&full, &empty);
        let mut other = sample();
        other.tables.remove(&TableId(5));
        let files = &mut other.tables.get_mut(&TableId(6)).expect("there").files;
        files.insert(0, FileEntry::new(9, 4));
        files.remove(1);
        check(&full, &other);
        check(&other, &full);
    }

    #[test]
    fn an_edit_cut_short_is_malformed_or_less() {
        let (empty, full) = (Manifest::empty(1, 2), sample());
        let edit = full.since(&empty);
        for end in 0..edit.len() {
            let mut cut = empty.clone();
            assert!(cut.apply(edit[..end].to_vec().into()).is_err() || cut != full, "cut at {end}");
        }
        assert_eq!(empty.clone().apply(vec![99u8].into()), Err(Malformed));
    }
}
