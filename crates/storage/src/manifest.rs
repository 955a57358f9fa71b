//! The manifest: which table files are alive, and how far the log has been flushed. The only source of truth on
//! restart; a file it does not name is not there.
//!
//! ```text
//!  magic u64 | version u32 | shard u32 | shards u32 | flushed record u64 | next file u64 |
//!  tables: count, then for each: id u128 | truncated at record u64 | files: count, then id u64 | crc u32
//! ```
//!
//! Every edit writes the whole manifest to `manifest.new`, syncs it, and renames it over `manifest`: a few hundred
//! bytes once a flush or compaction, with no torn state to reason about. (An append-only log of edits would only pay
//! off with tens of thousands of files.)

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::codec::{Malformed, Reader, put_u32, put_u64, put_u128, put_varint};
use crate::model::TableId;

const MAGIC: u64 = 0x3130_4e41_4d4c_4146; // "FALMAN01"
/// The newest version of the format this program reads and writes.
pub(crate) const VERSION: u32 = 1;

/// What the manifest says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Manifest {
    pub(crate) shard: u32,
    pub(crate) shards: u32,
    /// Log records up to this one are in table files.
    pub(crate) flushed: u64,
    /// No file has this number or a higher one.
    pub(crate) next_file: u64,
    pub(crate) tables: BTreeMap<TableId, TableVersion>,
}

/// The files of one table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TableVersion {
    /// Log records up to this one do not count for this table: it was truncated or dropped then.
    pub(crate) truncated: u64,
    pub(crate) files: Vec<u64>,
}

/// Why a manifest cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unusable {
    Damaged,
    Newer(u32),
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, MAGIC);
        put_u32(&mut out, VERSION);
        put_u32(&mut out, self.shard);
        put_u32(&mut out, self.shards);
        put_u64(&mut out, self.flushed);
        put_u64(&mut out, self.next_file);
        put_varint(&mut out, self.tables.len() as u64);
        for (id, table) in &self.tables {
            put_u128(&mut out, id.0);
            put_u64(&mut out, table.truncated);
            put_varint(&mut out, table.files.len() as u64);
            table.files.iter().for_each(|file| put_u64(&mut out, *file));
        }
        let crc = crc32c::crc32c(&out);
        put_u32(&mut out, crc);
        out
    }

    pub(crate) fn decode(bytes: &Bytes) -> Result<Manifest, Unusable> {
        let body = bytes.len().checked_sub(4).ok_or(Unusable::Damaged)?;
        let crc = Reader::at(bytes.clone(), body).u32().map_err(|_| Unusable::Damaged)?;
        if crc != crc32c::crc32c(&bytes[..body]) {
            return Err(Unusable::Damaged);
        }
        let read = || -> Result<Result<Manifest, u32>, Malformed> {
            let mut reader = Reader::new(bytes.slice(..body));
            if reader.u64()? != MAGIC {
                return Err(Malformed);
            }
            let version = reader.u32()?;
            if version > VERSION {
                return Ok(Err(version));
            }
            let (shard, shards) = (reader.u32()?, reader.u32()?);
            let (flushed, next_file) = (reader.u64()?, reader.u64()?);
            let mut tables = BTreeMap::new();
            for _ in 0..reader.count(25)? {
                let id = TableId(reader.u128()?);
                let truncated = reader.u64()?;
                let files = (0..reader.count(8)?).map(|_| reader.u64()).collect::<Result<_, _>>()?;
                tables.insert(id, TableVersion { truncated, files });
            }
            let manifest = Manifest { shard, shards, flushed, next_file, tables };
            if reader.rest() == 0 { Ok(Ok(manifest)) } else { Err(Malformed) }
        };
        match read() {
            Ok(Ok(manifest)) => Ok(manifest),
            Ok(Err(version)) => Err(Unusable::Newer(version)),
            Err(Malformed) => Err(Unusable::Damaged),
        }
    }

    /// Forgets what no longer matters: truncations that lie before everything still in the log.
    pub(crate) fn tidy(&mut self) {
        let flushed = self.flushed;
        self.tables.retain(|_, table| !table.files.is_empty() || table.truncated > flushed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_survives_and_every_damaged_byte_is_noticed() {
        let version = TableVersion { truncated: 9, files: vec![4, 7] };
        let tables = [(TableId(5), version), (TableId(6), TableVersion::default())].into();
        let manifest = Manifest { shard: 1, shards: 2, flushed: 77, next_file: 8, tables };
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes.clone().into()), Ok(manifest));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert_eq!(Manifest::decode(&damaged.into()), Err(Unusable::Damaged), "flipped {at}");
            assert_eq!(Manifest::decode(&bytes[..at].to_vec().into()), Err(Unusable::Damaged), "cut at {at}");
        }
    }
}
