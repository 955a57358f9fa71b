//! File of the manifest: a sequence of edits, each appended and synced.
//!
//! ```text
//!  file     header | sector | sector | …                                              each 512 bytes
//!  header   magic u64 | version u32 | shard u32 | shards u32 | salt u32 | crc u32     zeros to 512
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

use bytes::Bytes;

use crate::manifest::{MAGIC, Manifest, Unusable, VERSION};
use crate::model::codec::{Malformed, Reader, put_u32, put_u64};

/// Unit of writing, in bytes.
pub(crate) const SECTOR: usize = 512;

/// Size of the header without its padding.
const HEADER: usize = 28;

/// Size of a sector's header.
const HEAD: usize = 20;

/// Encodes a new file: the header, and a snapshot as the first edit.
pub(crate) fn begin(manifest: &Manifest, salt: u32) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, MAGIC);
    put_u32(&mut out, VERSION);
    put_u32(&mut out, manifest.shard);
    put_u32(&mut out, manifest.shards);
    put_u32(&mut out, salt);
    let crc = crc32c::crc32c(&out);
    put_u32(&mut out, crc);
    out.resize(SECTOR, 0);
    let empty = Manifest::empty(manifest.shard, manifest.shards);
    out.extend(sectors(&manifest.since(&empty), 1, salt));
    out
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
        let (edit, part, parts, len) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
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
}

/// Reads a manifest and the position of the next edit. An incomplete last edit is ignored; then
/// there is no such position.
///
/// # Errors
/// The file is damaged, at the returned position, or has another version.
pub(crate) fn read(data: &Bytes) -> Result<(Manifest, Option<End>), Unusable> {
    let damaged = |what: &str, at: usize| Unusable::Damaged(format!("{what}, at byte {at}"));
    let numbers = || -> Result<(u64, [u32; 5]), Malformed> {
        let mut reader = Reader::new(data.clone());
        let magic = reader.u64()?;
        Ok((magic, [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?]))
    };
    let (magic, [version, shard, shards, salt, crc]) =
        numbers().map_err(|Malformed| damaged("it is too short", data.len()))?;
    if magic != MAGIC || crc != crc32c::crc32c(&data[..HEADER - 4]) {
        return Err(damaged("its header does not match its checksum", 0));
    }
    if version != VERSION {
        return Err(Unusable::Version(version));
    }
    if data.get(HEADER..SECTOR).is_none_or(|rest| rest.iter().any(|byte| *byte != 0)) {
        return Err(damaged("the padding of its header is not zero", HEADER));
    }
    let mut manifest = Manifest::empty(shard, shards);
    let mut number = 1;
    let mut at = SECTOR;
    let mut first = 0;
    while let Some((edit, next)) = read_edit(data, at, number, salt)? {
        manifest.apply(edit).map_err(|Malformed| damaged("an edit does not decode", at))?;
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
    let is_whole = at == data.len();
    let end = End { salt, next_edit: number, at: at as u64, first };
    Ok((manifest, is_whole.then_some(end)))
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

    /// Successive manifests, of which the first has enough files for several sectors, and the file
    /// with all of them.
    fn history() -> (Vec<Manifest>, Vec<u8>) {
        let files = (1..60).map(|id| (id, FileEntry::new(id, id))).collect();
        let tables = [(TableId(7), TableVersion { truncated: 3, files })].into();
        let mut manifest = Manifest { flushed: 5, next_file: 60, tables, ..Manifest::empty(1, 2) };
        let mut bytes = begin(&manifest, SALT);
        let mut all = vec![manifest.clone()];
        for number in 2..6 {
            let old = manifest.clone();
            let files = &mut manifest.tables.get_mut(&TableId(7)).expect("there").files;
            // Edits of one sector, and the last of several.
            let new = if number == 5 { 40 } else { 1 };
            let added = (0..new).map(|n| FileEntry::new(manifest.next_file + n, 1));
            files.extend(added.map(|file| (file.id, file)));
            files.pop_first();
            manifest.next_file += new;
            bytes.extend(sectors(&manifest.since(&old), number, SALT));
            all.push(manifest.clone());
        }
        (all, bytes)
    }

    fn read_vec(bytes: Vec<u8>) -> Result<Manifest, Unusable> {
        read(&bytes.into()).map(|(manifest, _)| manifest)
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
        let end = |bytes: Vec<u8>| read(&bytes.into()).expect("reads").1;
        let first = begin(&all[0], SALT).len() as u64;
        let whole = End { salt: SALT, next_edit: 6, at: bytes.len() as u64, first };
        assert_eq!(end(bytes.clone()), Some(whole));
        assert_eq!(end(bytes[..bytes.len() - SECTOR].to_vec()), None, "its last edit is torn");
    }

    #[test]
    fn tail_torn_at_any_sector_loses_only_the_torn_edit() {
        let (all, bytes) = history();
        let first = begin(&all[0], SALT).len();
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
        let first = begin(&all[0], SALT).len();
        let mut missing = bytes.clone();
        missing[first..first + SECTOR].fill(0);
        let read = read_vec(missing).expect_err("damage");
        assert_eq!(read, Unusable::Damaged(format!("an edit before valid ones is missing, at byte {first}")));
    }

    #[test]
    fn other_version_is_refused() {
        for version in [VERSION - 1, VERSION + 1] {
            let mut bytes = begin(&Manifest::empty(0, 1), SALT);
            bytes[8] = version as u8;
            let crc = crc32c::crc32c(&bytes[..24]);
            bytes[24..28].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(read_vec(bytes), Err(Unusable::Version(version)));
        }
    }
}
