//! File of the manifest: a sequence of edits, each appended and synced.
//!
//! ```text
//!  file     header | sector | sector | …                                              each 512 bytes
//!  header   magic u64 | version u32 | shard u32 | shards u32 | salt u32 |
//!           stamp u64 | number of the first edit u64 | crc u32                         zeros to 512
//!  sector   crc u32 | edit u32 | part u32 | parts u32 | bytes u32 | part of the edit  zeros to 512
//! ```
//!
//! 1. An edit occupies as many sectors as it needs. Edits are numbered from 1; the first is a
//!    snapshot of everything. A file replaces the previous one only when its first edit is durable,
//!    so the first edit is always complete.
//! 2. A disk writes a sector completely or not at all. So a sector is valid, never written (zeros,
//!    or beyond the end), or damaged. A damaged one is an error wherever it is.
//! 3. The last edit may lack sectors: its write was interrupted before anyone relied on it, and it
//!    is ignored. If a later edit exists, missing sectors are damage.
//! 4. Checksums are seeded with the random salt of the file, and a sector contains the number of
//!    its edit. So no sector passes in another position.
//! 5. Edits are also numbered over the whole life of the shard, from the number in the header on.
//!    The *chain* of an edit is the checksum over the header and all edits up to it. The mark of
//!    the shard (`mark.rs`) has both of the last edit, so that a file that was cut is noticed.
//!
//! Version 4 had neither stamp nor number in the header.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::manifest::{MAGIC, Manifest, Unusable, VERSION, put_removed};
use crate::model::codec::{Malformed, Reader, put_u32, put_u64};

/// Unit of writing, in bytes.
pub(crate) const SECTOR: usize = 512;

/// Format version without stamp and numbers, which is read but not written.
const VERSION_UNNUMBERED: u32 = 4;

/// Size of the header without its padding, and of that of [`VERSION_UNNUMBERED`].
const HEADER: usize = 44;
const HEADER_UNNUMBERED: usize = 28;

/// Size of a sector's header.
const HEAD: usize = 20;

/// Encodes a new file: the header, and a snapshot as the first edit, which has this number.
/// `removed` are files that earlier edits removed and that may still be on the disk, by number,
/// with their seals. Returns the file and its chain.
pub(crate) fn begin(manifest: &Manifest, salt: u32, number: u64, removed: &[(u64, u64)]) -> (Vec<u8>, u32) {
    let mut out = Vec::new();
    put_u64(&mut out, MAGIC);
    put_u32(&mut out, VERSION);
    put_u32(&mut out, manifest.shard);
    put_u32(&mut out, manifest.shards);
    put_u32(&mut out, salt);
    put_u64(&mut out, manifest.stamp);
    put_u64(&mut out, number);
    let crc = crc32c::crc32c(&out);
    put_u32(&mut out, crc);
    out.resize(SECTOR, 0);
    let empty = Manifest::empty(manifest.shard, manifest.shards);
    let mut snapshot = manifest.since(&empty);
    removed.iter().for_each(|(file, seal)| put_removed(&mut snapshot, *file, *seal));
    let chain = chain_after(crc, &snapshot);
    out.extend(sectors(&snapshot, 1, salt));
    (out, chain)
}

/// Returns the chain of an edit, given that of the edit before.
pub(crate) fn chain_after(chain: u32, edit: &[u8]) -> u32 {
    crc32c::crc32c_append(chain, edit)
}

/// Encodes an edit as sectors.
pub(crate) fn sectors(edit: &[u8], number: u32, salt: u32) -> Vec<u8> {
    let parts = edit.chunks(SECTOR - HEAD);
    let count = u32::try_from(parts.len()).expect("an edit has fewer than 2^32 sectors");
    let mut out = Vec::with_capacity(parts.len() * SECTOR);
    for (part, bytes) in (0..).zip(parts) {
        let at = out.len();
        put_u32(&mut out, 0);
        put_u32(&mut out, number);
        put_u32(&mut out, part);
        put_u32(&mut out, count);
        put_u32(&mut out, bytes.len() as u32);
        out.extend_from_slice(bytes);
        out.resize(at + SECTOR, 0);
        let crc = crc32c::crc32c_append(salt, &out[at + 4..]);
        out[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    out
}

/// A sector as read.
#[derive(Clone, PartialEq, Debug)]
enum Sector {
    Valid { edit: u32, part: u32, parts: u32, bytes: Bytes },
    Absent,
    Damaged,
}

fn sector(data: &Bytes, at: usize, salt: u32) -> Sector {
    let Some(whole) = data.get(at..at + SECTOR) else { return Sector::Absent };
    if whole.iter().all(|byte| *byte == 0) {
        return Sector::Absent;
    }
    let read = || -> Result<Sector, Malformed> {
        let mut reader = Reader::at(data.slice(..at + SECTOR), at);
        let crc = reader.u32()?;
        let edit = reader.u32()?;
        let part = reader.u32()?;
        let parts = reader.u32()?;
        let len = reader.u32()?;
        let bytes = reader.take(len as usize)?;
        if crc != crc32c::crc32c_append(salt, &whole[4..]) {
            return Err(Malformed);
        }
        Ok(Sector::Valid { edit, part, parts, bytes })
    };
    read().unwrap_or(Sector::Damaged)
}

/// Position of the next edit in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct End {
    pub(crate) salt: u32,
    pub(crate) next_edit: u32,
    pub(crate) at: u64,
    /// Size of the header and the first edit.
    pub(crate) first: u64,
    /// Number of the last edit over the life of the shard.
    pub(crate) last: u64,
    /// Chain of the last edit.
    pub(crate) chain: u32,
}

/// A manifest as read.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct History {
    pub(crate) manifest: Manifest,
    /// Position of the next edit. `None`: the last edit is incomplete and ignored, or the file has
    /// an old version.
    pub(crate) end: Option<End>,
    /// Number of the first edit in the file. `None`: the file has an old version.
    first: Option<u64>,
    /// The chains of all complete edits in the file.
    chains: Vec<u32>,
    /// Files that edits removed, by number, with their seals.
    pub(crate) removed: BTreeMap<u64, u64>,
}

impl History {
    /// Returns the number and the chain of the last edit. `None`: the file has an old version.
    pub(crate) fn last(&self) -> Option<(u64, u32)> {
        Some((self.first? + self.chains.len() as u64 - 1, *self.chains.last()?))
    }

    /// Returns the chain of an edit that is in the file.
    pub(crate) fn chain_of(&self, edit: u64) -> Option<u32> {
        let at = edit.checked_sub(self.first?)?;
        self.chains.get(usize::try_from(at).ok()?).copied()
    }

    /// Returns the number of edits in the file, its snapshot included.
    pub(crate) fn edits(&self) -> usize {
        self.chains.len()
    }
}

/// The numbers in a header.
struct Header {
    version: u32,
    shard: u32,
    shards: u32,
    salt: u32,
    stamp: u64,
    first: u64,
    crc: u32,
}

fn read_header(data: &Bytes) -> Result<Header, Unusable> {
    let damaged = |what: &str, at: usize| Unusable::Damaged(format!("{what}, at byte {at}"));
    let numbers = || -> Result<(u64, Header, usize), Malformed> {
        let mut reader = Reader::new(data.clone());
        let magic = reader.u64()?;
        let version = reader.u32()?;
        let shard = reader.u32()?;
        let shards = reader.u32()?;
        let salt = reader.u32()?;
        let is_old = version == VERSION_UNNUMBERED;
        let (stamp, first) = if is_old { (0, 0) } else { (reader.u64()?, reader.u64()?) };
        let end = reader.position();
        let crc = reader.u32()?;
        Ok((magic, Header { version, shard, shards, salt, stamp, first, crc }, end))
    };
    let (magic, header, end) = numbers().map_err(|Malformed| damaged("it is too short", data.len()))?;
    if magic != MAGIC || header.crc != crc32c::crc32c(&data[..end]) {
        return Err(damaged("its header does not match its checksum", 0));
    }
    if header.version != VERSION && header.version != VERSION_UNNUMBERED {
        return Err(Unusable::Version(header.version));
    }
    let bytes = if header.version == VERSION { HEADER } else { HEADER_UNNUMBERED };
    if data.get(bytes..SECTOR).is_none_or(|rest| rest.iter().any(|byte| *byte != 0)) {
        return Err(damaged("the padding of its header is not zero", bytes));
    }
    Ok(header)
}

/// Reads a manifest. An incomplete last edit is ignored.
///
/// # Errors
/// The file is damaged, at the returned position, or has another version.
pub(crate) fn read(data: &Bytes) -> Result<History, Unusable> {
    let damaged = |what: &str, at: usize| Unusable::Damaged(format!("{what}, at byte {at}"));
    let header = read_header(data)?;
    let salt = header.salt;
    let mut manifest = Manifest { stamp: header.stamp, ..Manifest::empty(header.shard, header.shards) };
    let mut chain = header.crc;
    let mut chains = Vec::new();
    let mut removed = BTreeMap::new();
    let mut number = 1;
    let mut at = SECTOR;
    let mut first = 0;
    while let Some((edit, next)) = read_edit(data, at, number, salt)? {
        chain = chain_after(chain, &edit);
        chains.push(chain);
        let applied = manifest.apply_noting(edit, |file, seal| {
            removed.insert(file, seal);
        });
        applied.map_err(|Malformed| damaged("an edit does not decode", at))?;
        if number == 1 {
            first = next as u64;
        }
        (at, number) = (next, number + 1);
    }
    // After the last complete edit only parts of one interrupted edit are allowed.
    for behind in (at..data.len()).step_by(SECTOR) {
        match sector(data, behind, salt) {
            Sector::Absent => {}
            Sector::Valid { edit, .. } if edit == number && number > 1 => {}
            Sector::Valid { .. } => return Err(damaged("an edit before valid ones is missing", at)),
            Sector::Damaged => return Err(damaged("an edit does not match its checksum", behind)),
        }
    }
    if number == 1 {
        return Err(damaged("its first edit is missing", at));
    }
    let is_present = header.version == VERSION;
    let is_whole = at == data.len() && is_present;
    let last = header.first + u64::from(number) - 2;
    let end = End { salt, next_edit: number, at: at as u64, first, last, chain };
    let first = is_present.then_some(header.first);
    Ok(History { manifest, end: is_whole.then_some(end), first, chains, removed })
}

/// Reads the edit that starts at `at`, and the position of the next one. `None`: the edit is
/// missing or incomplete.
fn read_edit(data: &Bytes, at: usize, number: u32, salt: u32) -> Result<Option<(Bytes, usize)>, Unusable> {
    let mut whole = Vec::new();
    let (mut next, mut count) = (at, 1);
    let mut expected = 0;
    while expected < count {
        match sector(data, next, salt) {
            Sector::Valid { edit, part, parts, bytes } if edit == number && part == expected => {
                count = parts;
                whole.extend_from_slice(&bytes);
            }
            Sector::Absent | Sector::Valid { .. } => return Ok(None),
            Sector::Damaged => {
                let what = format!("an edit does not match its checksum, at byte {next}");
                return Err(Unusable::Damaged(what));
            }
        }
        expected += 1;
        next += SECTOR;
    }
    Ok(Some((whole.into(), next)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{FileEntry, TableVersion};
    use crate::model::TableId;

    const SALT: u32 = 0xfeed_beef;
    /// Number of the first edit.
    const FIRST: u64 = 40;

    /// Successive manifests, of which the first has enough files for several sectors, and the file
    /// with all of them.
    fn history() -> (Vec<Manifest>, Vec<u8>) {
        let files = (1..60).map(|id| (id, FileEntry::new(id, id, id))).collect();
        let tables = [(TableId(7), TableVersion { truncated: 3, files })].into();
        let mut manifest = Manifest { flushed: 5, next_file: 60, tables, ..Manifest::empty(1, 2) };
        let (mut bytes, _) = begin(&manifest, SALT, FIRST, &[]);
        let mut all = vec![manifest.clone()];
        for number in 2..6 {
            let old = manifest.clone();
            let files = &mut manifest.tables.get_mut(&TableId(7)).expect("there").files;
            // Edits of one sector, and the last of several.
            let new = if number == 5 { 40 } else { 1 };
            let added = (0..new).map(|n| FileEntry::new(manifest.next_file + n, 1, manifest.next_file + n));
            files.extend(added.map(|file| (file.id, file)));
            files.pop_first();
            manifest.next_file += new;
            bytes.extend(sectors(&manifest.since(&old), number, SALT));
            all.push(manifest.clone());
        }
        (all, bytes)
    }

    fn read_vec(bytes: Vec<u8>) -> Result<Manifest, Unusable> {
        read(&bytes.into()).map(|history| history.manifest)
    }

    #[test]
    fn every_damaged_byte_of_the_manifest_is_reported() {
        let (all, bytes) = history();
        assert_eq!(read_vec(bytes.clone()).as_ref(), Ok(all.last().expect("some")));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            let read = read_vec(damaged);
            assert!(
                matches!(read, Err(Unusable::Damaged(_) | Unusable::Version(_))),
                "flipped {at}: {read:?}"
            );
        }
    }

    #[test]
    fn torn_manifest_is_not_continued() {
        let (all, bytes) = history();
        let end = |bytes: Vec<u8>| read(&bytes.into()).expect("reads").end;
        let first = begin(&all[0], SALT, FIRST, &[]).0.len() as u64;
        let chain = *read(&bytes.clone().into()).expect("reads").chains.last().expect("some");
        let (at, last) = (bytes.len() as u64, FIRST + 4);
        let whole = End { salt: SALT, next_edit: 6, at, first, last, chain };
        assert_eq!(end(bytes.clone()), Some(whole));
        assert_eq!(end(bytes[..bytes.len() - SECTOR].to_vec()), None, "its last edit is torn");
    }

    #[test]
    fn tail_torn_at_any_sector_loses_only_the_torn_edit() {
        let (all, bytes) = history();
        let first = begin(&all[0], SALT, FIRST, &[]).0.len();
        for end in first..bytes.len() {
            let read = read_vec(bytes[..end].to_vec()).expect("a torn tail is no damage");
            assert!(all[..all.len() - 1].contains(&read), "cut at {end}");
        }
        // The sectors of the last edit may reach the disk in any order.
        let last = bytes.len() - 3 * SECTOR;
        let mut torn = bytes.clone();
        torn[last..last + SECTOR].fill(0);
        assert_eq!(read_vec(torn).as_ref(), Ok(&all[all.len() - 2]));
        for end in [0, SECTOR, 2 * SECTOR] {
            assert!(matches!(read_vec(bytes[..end].to_vec()), Err(Unusable::Damaged(_))), "cut at {end}");
        }
    }

    #[test]
    fn missing_edit_before_others_is_damage() {
        let (all, bytes) = history();
        let first = begin(&all[0], SALT, FIRST, &[]).0.len();
        let mut missing = bytes.clone();
        missing[first..first + SECTOR].fill(0);
        let read = read_vec(missing).expect_err("damage");
        assert_eq!(read, Unusable::Damaged(format!("an edit before valid ones is missing, at byte {first}")));
    }

    /// A file cut behind a whole edit is valid by itself. Its last number tells that it was cut.
    #[test]
    fn cut_changes_the_last_number_and_no_chain() {
        let (_, bytes) = history();
        let whole = read(&bytes.clone().into()).expect("reads");
        assert_eq!((whole.last().map(|last| last.0), whole.edits()), (Some(FIRST + 4), 5));
        let mut numbers = Vec::new();
        for end in (SECTOR..bytes.len()).step_by(SECTOR) {
            let Ok(cut) = read(&Bytes::copy_from_slice(&bytes[..end])) else { continue };
            let (last, chain) = cut.last().expect("it has numbers");
            assert_eq!(whole.chain_of(last), Some(chain));
            assert_eq!(cut.chain_of(last + 1), None);
            numbers.push(last);
        }
        numbers.dedup();
        assert_eq!(numbers, [FIRST, FIRST + 1, FIRST + 2, FIRST + 3]);
        assert_eq!((whole.chain_of(FIRST - 1), whole.chain_of(FIRST + 5)), (None, None));
    }

    #[test]
    fn removed_files_are_noted_with_their_seals() {
        let (all, bytes) = history();
        let removed = read(&bytes.into()).expect("reads").removed;
        let gone = |id: &u64| !all.last().expect("some").tables[&TableId(7)].files.contains_key(id);
        let expected: BTreeMap<u64, u64> = (1..60).filter(gone).map(|id| (id, id)).collect();
        assert_eq!(removed, expected);
        let (bytes, _) = begin(&all[0], SALT, FIRST, &[(900, 7)]);
        let again = read(&bytes.into()).expect("reads");
        assert_eq!((again.removed, again.manifest), ([(900, 7)].into(), all[0].clone()));
    }

    #[test]
    fn other_version_is_refused() {
        for version in [VERSION_UNNUMBERED - 1, VERSION + 1] {
            let (mut bytes, _) = begin(&Manifest::empty(0, 1), SALT, FIRST, &[]);
            bytes[8] = version as u8;
            let crc = crc32c::crc32c(&bytes[..40]);
            bytes[40..44].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(read_vec(bytes), Err(Unusable::Version(version)));
        }
    }
}
