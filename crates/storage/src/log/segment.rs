//! The format of a log segment, as pure functions over bytes.
//!
//! ```text
//!  block 0    magic 8 | version u32 | shard u32 | segment u64 | salt u32 | durable u64 | bytes u64 | crc u32
//!             zeros to 4096
//!  then       batch or note | …     each starts at a multiple of 4096 and is padded with zeros to one
//!  batch      magic u32 | payload bytes u32 | segment u64 | first record u64 | records u32 | crc u32 |
//!             head crc u32 | 0 u32 | payload
//!  payload    (length u32 | mutations) for each record
//!  note       magic u32 | 0 u32 | segment u64 | durable u64 | next segment u64 | crc u32
//! ```
//!
//! 1. A batch has the records that arrived while the previous one was in flight, up to a size. It
//!    is acknowledged as a whole, so it has one checksum, and a torn batch is dropped as a whole. A
//!    long one is several disk writes.
//! 2. Segments are reused without clearing. Checksums are seeded with the random salt of the
//!    segment. So older contents never pass, and no stored value can imitate a batch.
//! 3. Writes never touch an acknowledged block: batches are padded rather than continued.
//! 4. Records are numbered without gaps over the whole life of a shard. After a damaged batch the
//!    reader checks every further block. A later valid batch then shows the gap in the numbers. A
//!    torn tail leaves no gap.
//! 5. Damage at the very end leaves no gap, so later writes confirm that records were durable.
//!    These are the mark of the shard (`manifest/mark.rs`), the headers of later segments, and the
//!    head of a later batch. The head has a checksum of its own, because a batch starts only when
//!    the previous one is durable. Missing records that were durable are damage.
//! 6. The last block of a full segment is a note that names the next one, written before that one
//!    is used. So the loss of a whole segment is noticed. `next segment` is 0 in notes of earlier
//!    versions, which confirmed the last batch of an idle log.
//! 7. A segment has its full length before it is used. The header states it, so that a segment that
//!    was cut is noticed. Version 3 had no `bytes`.

use std::ops::Range;

use bytes::Bytes;

use crate::env::BLOCK;
use crate::model::codec::{Malformed, Reader, put_u32, put_u64};

/// Size of a batch before its payload.
pub(crate) const BATCH_HEADER: usize = 40;

/// Size of the part of a batch header that the head checksum covers.
const HEAD: usize = 32;

const SEGMENT_MAGIC: u64 = 0x3130_474f_4c4c_4146; // "FALLOG01"
const BATCH_MAGIC: u32 = 0x4843_5442; // "BTCH"
const NOTE_MAGIC: u32 = 0x4554_4f4e; // "NOTE"

/// Format version that this program writes.
pub(crate) const VERSION: u32 = 4;

/// Format version without the length of the segment, which is read but not written.
const VERSION_UNSIZED: u32 = 3;

/// The contents of a segment's first block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) shard: u32,
    pub(crate) segment: u64,
    pub(crate) salt: u32,
    /// Records up to this one were durable before the header was written.
    pub(crate) durable: u64,
    /// Length of the segment in bytes. 0: an earlier version wrote the header.
    pub(crate) bytes: u64,
}

/// Encodes the first block of a segment.
pub(crate) fn encode_header(header: &SegmentHeader) -> Vec<u8> {
    let mut out = Vec::with_capacity(BLOCK);
    put_u64(&mut out, SEGMENT_MAGIC);
    put_u32(&mut out, VERSION);
    put_u32(&mut out, header.shard);
    put_u64(&mut out, header.segment);
    put_u32(&mut out, header.salt);
    put_u64(&mut out, header.durable);
    put_u64(&mut out, header.bytes);
    let crc = crc32c::crc32c(&out);
    put_u32(&mut out, crc);
    out.resize(BLOCK, 0);
    out
}

/// Encodes a note: records up to `durable` are durable, and the log continues in segment `next`
/// unless that is 0.
pub(crate) fn encode_note(header: &SegmentHeader, durable: u64, next: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(BLOCK);
    put_u32(&mut out, NOTE_MAGIC);
    put_u32(&mut out, 0);
    put_u64(&mut out, header.segment);
    put_u64(&mut out, durable);
    put_u64(&mut out, next);
    let crc = crc32c::crc32c_append(header.salt, &out);
    put_u32(&mut out, crc);
    out.resize(BLOCK, 0);
    out
}

/// Result of reading a first block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeaderRead {
    Valid(SegmentHeader),
    /// Intact, but of another format version.
    Version(u32),
    /// Never written, torn or damaged.
    Unreadable,
}

/// Reads the first block of a segment.
pub(crate) fn decode_header(block: &Bytes) -> HeaderRead {
    let read = || -> Result<HeaderRead, Malformed> {
        let mut reader = Reader::new(block.clone());
        if reader.u64()? != SEGMENT_MAGIC {
            return Err(Malformed);
        }
        let version = reader.u32()?;
        let shard = reader.u32()?;
        let segment = reader.u64()?;
        let salt = reader.u32()?;
        let durable = reader.u64()?;
        let bytes = if version == VERSION_UNSIZED { 0 } else { reader.u64()? };
        let end = reader.position();
        if reader.u32()? != crc32c::crc32c(&block[..end]) {
            return Err(Malformed);
        }
        if version != VERSION && version != VERSION_UNSIZED {
            return Ok(HeaderRead::Version(version));
        }
        Ok(HeaderRead::Valid(SegmentHeader { shard, segment, salt, durable, bytes }))
    };
    read().unwrap_or(HeaderRead::Unreadable)
}

/// Starts the header of a batch: `batch` has [`BATCH_HEADER`] unused bytes and then the payload.
/// Returns the checksum so far, to which the payload is added.
pub(crate) fn start_batch(batch: &mut [u8], header: &SegmentHeader, first_record: u64, records: u32) -> u32 {
    let payload = u32::try_from(batch.len() - BATCH_HEADER).expect("a batch fits a segment");
    batch[0..4].copy_from_slice(&BATCH_MAGIC.to_le_bytes());
    batch[4..8].copy_from_slice(&payload.to_le_bytes());
    batch[8..16].copy_from_slice(&header.segment.to_le_bytes());
    batch[16..24].copy_from_slice(&first_record.to_le_bytes());
    batch[24..28].copy_from_slice(&records.to_le_bytes());
    crc32c::crc32c_append(header.salt, &batch[..28])
}

/// Returns the payload of a batch that was started.
pub(crate) fn payload_of(batch: &[u8]) -> &[u8] {
    &batch[BATCH_HEADER..]
}

/// Completes a batch with the checksum that includes the payload.
pub(crate) fn complete_batch(batch: &mut Vec<u8>, header: &SegmentHeader, crc: u32) {
    batch[28..32].copy_from_slice(&crc.to_le_bytes());
    let head = crc32c::crc32c_append(header.salt, &batch[..HEAD]);
    batch[32..36].copy_from_slice(&head.to_le_bytes());
    batch.resize(batch.len().next_multiple_of(BLOCK), 0);
}

/// Completes a small batch in place, see [`start_batch`].
pub(crate) fn seal_batch(batch: &mut Vec<u8>, header: &SegmentHeader, first_record: u64, records: u32) {
    let crc = start_batch(batch, header, first_record, records);
    let crc = crc32c::crc32c_append(crc, payload_of(batch));
    complete_batch(batch, header, crc);
}

fn batch_crc(salt: u32, head: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(salt, head), payload)
}

/// A batch found in a segment.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FoundBatch {
    pub(crate) first_record: u64,
    pub(crate) records: u32,
    payload: Bytes,
}

impl FoundBatch {
    /// Returns the number of the last record.
    pub(crate) fn last_record(&self) -> u64 {
        self.first_record + u64::from(self.records) - 1
    }

    /// Returns the encoded records.
    pub(crate) fn payloads(&self) -> Result<Vec<Bytes>, Malformed> {
        let mut reader = Reader::new(self.payload.clone());
        let mut records = Vec::new();
        for _ in 0..self.records {
            let len = reader.u32()? as usize;
            records.push(reader.take(len)?);
        }
        if reader.rest() == 0 { Ok(records) } else { Err(Malformed) }
    }
}

/// The contents of a segment.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// All valid batches, by offset.
    pub(crate) batches: Vec<FoundBatch>,
    /// Records up to this one were durable, as later writes confirm.
    pub(crate) durable: u64,
    /// The segment in which the log continues.
    pub(crate) next: Option<u64>,
    /// Range of the last batch in bytes, padding included.
    pub(crate) last: Option<Range<usize>>,
    /// A torn batch after the last valid one.
    pub(crate) torn: Option<Torn>,
}

/// A batch that reached the disk in part: its head is valid, and its payload is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Torn {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) first_record: u64,
}

/// Reads a segment. Continues after damage, see point 4 above.
pub(crate) fn read_contents(data: &Bytes, header: &SegmentHeader) -> Contents {
    let mut contents = Contents { durable: header.durable, ..Contents::default() };
    let mut at = BLOCK;
    while at + BATCH_HEADER <= data.len() {
        if let Some((batch, end)) = read_batch(data, at, header) {
            let end = end.next_multiple_of(BLOCK);
            contents.last = Some(at..end);
            contents.batches.push(batch);
            contents.torn = None;
            at = end;
            continue;
        }
        if let Some((durable, next)) = read_note(data, at, header) {
            contents.durable = contents.durable.max(durable);
            contents.next = (next > 0).then_some(next).or(contents.next);
        } else if let Some(first_record) = read_head(data, at, header) {
            contents.durable = contents.durable.max(first_record.saturating_sub(1));
            let payload = Reader::at(data.clone(), at + 4).u32().unwrap_or(0);
            let bytes = BATCH_HEADER as u64 + u64::from(payload);
            contents.torn = Some(Torn { offset: at as u64, bytes, first_record });
        }
        at += BLOCK;
    }
    contents
}

/// Returns the first batch of a segment whose header is `header`, if it is valid. `data` has its
/// first bytes: [`first_batch_end`] of them.
pub(crate) fn first_batch(data: &Bytes, header: &SegmentHeader) -> Option<FoundBatch> {
    read_batch(data, BLOCK, header).map(|(batch, _)| batch)
}

/// Returns the end of the first batch of a segment, as its head states it without proof.
pub(crate) fn first_batch_end(data: &Bytes) -> u64 {
    let payload = Reader::at(data.clone(), BLOCK + 4).u32().unwrap_or(0);
    (BLOCK + BATCH_HEADER) as u64 + u64::from(payload)
}

/// Returns a valid batch and its end, padding not included.
fn read_batch(data: &Bytes, at: usize, header: &SegmentHeader) -> Option<(FoundBatch, usize)> {
    let mut reader = Reader::at(data.clone(), at);
    if reader.u32().ok()? != BATCH_MAGIC {
        return None;
    }
    let len = reader.u32().ok()? as usize;
    let segment = reader.u64().ok()?;
    let first_record = reader.u64().ok()?;
    let records = reader.u32().ok()?;
    if segment != header.segment || records == 0 {
        return None;
    }
    let crc = reader.u32().ok()?;
    let head = crc32c::crc32c_append(header.salt, &data[at..at + HEAD]);
    if reader.u32().ok()? != head || reader.u32().ok()? != 0 {
        return None;
    }
    let payload = reader.take(len).ok()?;
    let end = reader.position();
    let is_valid = crc == batch_crc(header.salt, &data[at..at + 28], &payload);
    is_valid.then_some((FoundBatch { first_record, records, payload }, end))
}

/// Returns the first record of a batch whose head is valid.
fn read_head(data: &Bytes, at: usize, header: &SegmentHeader) -> Option<u64> {
    let head = data.get(at..at + BATCH_HEADER)?;
    let mut reader = Reader::at(data.clone(), at);
    let is_batch = reader.u32().ok()? == BATCH_MAGIC && reader.u32().is_ok();
    if !is_batch || reader.u64().ok()? != header.segment {
        return None;
    }
    let first_record = reader.u64().ok()?;
    let crc = crc32c::crc32c_append(header.salt, &head[..HEAD]);
    (head[HEAD..HEAD + 4] == crc.to_le_bytes()).then_some(first_record)
}

/// Returns the durable record that a note confirms, and the next segment or 0.
fn read_note(data: &Bytes, at: usize, header: &SegmentHeader) -> Option<(u64, u64)> {
    let mut reader = Reader::at(data.clone(), at);
    if reader.u32().ok()? != NOTE_MAGIC || reader.u32().ok()? != 0 || reader.u64().ok()? != header.segment {
        return None;
    }
    let (durable, next) = (reader.u64().ok()?, reader.u64().ok()?);
    let crc = crc32c::crc32c_append(header.salt, &data[at..reader.position()]);
    (reader.u32().ok()? == crc).then_some((durable, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader =
        SegmentHeader { shard: 1, segment: 7, salt: 0xfeed_beef, durable: 0, bytes: 65_536 };

    fn batch(first: u64, records: &[&[u8]]) -> Vec<u8> {
        let mut out = vec![0; BATCH_HEADER];
        for record in records {
            put_u32(&mut out, record.len() as u32);
            out.extend_from_slice(record);
        }
        seal_batch(&mut out, &HEADER, first, records.len() as u32);
        out
    }

    fn read_batches(data: &Bytes, header: &SegmentHeader) -> Vec<FoundBatch> {
        read_contents(data, header).batches
    }

    fn segment() -> Vec<u8> {
        let big = vec![9u8; 9000];
        [encode_header(&HEADER), batch(1, &[b"one", b"two"]), batch(3, &[&big]), batch(4, &[b"four"])]
            .concat()
    }

    #[test]
    fn golden_bytes() {
        let expected = [
            b'F', b'A', b'L', b'L', b'O', b'G', b'0', b'1', 4, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
            0xef, 0xbe, 0xed, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0,
        ];
        assert_eq!(encode_header(&HEADER)[..44], expected);
        let batch = batch(1, &[b"x"]);
        assert_eq!(batch.len(), BLOCK);
        assert_eq!(batch[..8], [b'B', b'T', b'C', b'H', 5, 0, 0, 0]);
    }

    #[test]
    fn segment_round_trip_keeps_batches_and_records() {
        let batches = read_batches(&segment().into(), &HEADER);
        let numbers: Vec<_> = batches.iter().map(|b| (b.first_record, b.last_record())).collect();
        assert_eq!(numbers, [(1, 2), (3, 3), (4, 4)]);
        assert_eq!(batches[0].payloads().unwrap(), [&b"one"[..], b"two"]);
    }

    #[test]
    fn tail_torn_at_any_byte_loses_only_the_torn_batch() {
        let whole = segment();
        for end in (BLOCK..whole.len()).step_by(13) {
            let mut torn = whole[..end].to_vec();
            torn.resize(whole.len(), 0x55);
            let batches = read_batches(&torn.into(), &HEADER);
            let expected = [1, 3, 4].iter().zip([BLOCK * 2, BLOCK * 5, BLOCK * 6]);
            // A batch with a complete payload is valid even if its padding is torn.
            for (first, full) in expected {
                let found = batches.iter().any(|batch| batch.first_record == *first);
                if end >= full {
                    assert!(found, "batch {first} lost at {end}");
                }
            }
            assert!(batches.iter().all(|batch| batch.payloads().is_ok()));
        }
    }

    #[test]
    fn damaged_batch_leaves_a_gap() {
        let whole = segment();
        for at in (2 * BLOCK..2 * BLOCK + BATCH_HEADER + 9000).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            let numbers: Vec<_> =
                read_batches(&damaged.into(), &HEADER).iter().map(|b| b.first_record).collect();
            assert_eq!(numbers, [1, 4], "flipped {at}");
        }
    }

    /// Damage at the end looks like a torn tail, unless a later write confirms the records.
    #[test]
    fn later_writes_confirm_durable_records() {
        let durable = |data: Vec<u8>| read_contents(&data.into(), &HEADER).durable;
        let flipped = |mut data: Vec<u8>, at: &[usize]| {
            at.iter().for_each(|at| data[*at] ^= 1);
            data
        };
        let third = 2 * BLOCK + BATCH_HEADER + 5;
        let fourth = 5 * BLOCK + BATCH_HEADER + 5;
        assert_eq!(durable(flipped(segment(), &[fourth])), 3);
        assert_eq!(durable(flipped(segment(), &[third, fourth])), 3, "the fourth was begun");
        assert_eq!(
            durable(flipped(segment(), &[third, fourth, 5 * BLOCK + 20])),
            2,
            "no later write confirms it"
        );
        let noted = [segment(), encode_note(&HEADER, 4, 0)].concat();
        assert_eq!(durable(flipped(noted, &[third, fourth])), 4);
        let full = [segment(), encode_note(&HEADER, 4, 8)].concat();
        assert_eq!(read_contents(&full.clone().into(), &HEADER).next, Some(8));
        for at in 6 * BLOCK..6 * BLOCK + 36 {
            assert_eq!(read_contents(&flipped(full.clone(), &[at]).into(), &HEADER).next, None);
        }
        let other = SegmentHeader { salt: 1, ..HEADER };
        let earlier = read_contents(&full.into(), &other);
        assert_eq!((earlier.durable, earlier.next), (0, None));
    }

    #[test]
    fn other_version_is_refused() {
        for version in [VERSION_UNSIZED - 1, VERSION + 1] {
            let mut other = encode_header(&HEADER);
            other[8] = version as u8;
            let crc = crc32c::crc32c(&other[..44]);
            other[44..48].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(decode_header(&other.into()), HeaderRead::Version(version));
        }
        let mut sizeless = encode_header(&HEADER);
        sizeless[8] = VERSION_UNSIZED as u8;
        let crc = crc32c::crc32c(&sizeless[..36]);
        sizeless[36..40].copy_from_slice(&crc.to_le_bytes());
        let read = decode_header(&sizeless.into());
        assert_eq!(read, HeaderRead::Valid(SegmentHeader { bytes: 0, ..HEADER }));
    }

    #[test]
    fn contents_of_a_reused_segment_are_ignored() {
        let other = SegmentHeader { salt: 1, ..HEADER };
        assert_eq!(read_batches(&segment().into(), &other), []);
        let other = SegmentHeader { segment: 8, ..HEADER };
        assert_eq!(read_batches(&segment().into(), &other), []);
    }

    #[test]
    fn damaged_header_is_unreadable() {
        let whole = encode_header(&HEADER);
        for at in 0..48 {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert_eq!(decode_header(&damaged.into()), HeaderRead::Unreadable, "flipped {at}");
        }
    }
}
