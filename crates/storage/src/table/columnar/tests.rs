//! Blocks round-trip, and damage is an error and never a panic.

use bytes::Bytes;

use crate::model::codec::Malformed;
use crate::model::partition::Partition;
use crate::model::ranges::{Position, Ranges};
use crate::model::row::{EncodedRow, RowBuilder};
use crate::model::{CellRef, Deletion, Expiry, Liveness};
use crate::options::Compression;
use crate::table::TableWriter;
use crate::table::columnar::encode::Finished;
use crate::table::columnar::layout::{ColumnEncoding, ColumnLayout};
use crate::table::columnar::region::{RegionMax, crc};
use crate::table::columnar::{Block, BlockBuilder, HeadRef};
use crate::table::file_statistics::{FileStatistics, WriteTime};
use testkit::Random;

const FILE: u64 = 77;

const WRITTEN: WriteTime = WriteTime { now_s: 10, timestamp: 10_000_000 };

const LAYOUTS: [ColumnLayout; 2] = [
    ColumnLayout { column: 1, encoding: ColumnEncoding::Signed(4) },
    ColumnLayout { column: 3, encoding: ColumnEncoding::Float(8) },
];

struct TestPart {
    token: i64,
    key: Vec<u8>,
    deletion: Option<Deletion>,
    statics: Option<EncodedRow>,
    ranges: Ranges,
    rows: Vec<EncodedRow>,
}

/// Returns a row with all kinds of cells; `odd` of eight are unusual.
fn row(random: &mut Random, clustering: &[u8], odd: u64) -> EncodedRow {
    let timestamp = 1000 + random.below(3) as i64;
    let mut builder = RowBuilder::new(&[], clustering, timestamp);
    let strange = |random: &mut Random| random.below(8) < odd;
    if strange(random) {
        builder.deletion(Some(Deletion { timestamp: random.below(1001) as i64, deleted_at_s: 5 }));
    }
    let expiry =
        |random: &mut Random| Expiry { ttl_s: random.below(9) as u32, at_s: random.next_u64() as u32 };
    if !strange(random) {
        let expiry = strange(random).then(|| expiry(random));
        let timestamp = if strange(random) { timestamp + 1 } else { timestamp };
        builder.marker(Some(Liveness { timestamp, expiry }));
    }
    for column in 0..6u32 {
        let width = match column {
            1 => 4,
            3 => 8,
            _ if column % 2 == 0 => 3,
            _ => random.below(40) as usize,
        };
        let width = if strange(random) && strange(random) { width + 1 } else { width };
        let bytes: Vec<u8> = (0..width).map(|_| random.below(7) as u8).collect();
        let timestamp = if strange(random) { random.next_u64() as i64 } else { timestamp };
        let cell = match strange(random) {
            false => Some(CellRef::live(column, timestamp, &bytes)),
            true if random.below(3) == 0 => Some(CellRef::dead(column, timestamp, random.next_u64() as u32)),
            true if random.below(2) == 0 => {
                Some(CellRef::expiring(column, timestamp, &bytes, expiry(random)))
            }
            true => None,
        };
        cell.into_iter().for_each(|cell| builder.push(cell));
        if column >= 4 {
            for path in 0..random.below(5) {
                let path = [path as u8, column as u8];
                let cell = match strange(random) {
                    true => CellRef::dead(column, timestamp, 3),
                    false => CellRef::live(column, timestamp, &bytes),
                };
                builder.push(cell.at(&path[..1 + random.below(2) as usize]));
            }
        }
    }
    builder.finish()
}

fn parts(random: &mut Random, odd: u64) -> Vec<TestPart> {
    let mut parts = Vec::new();
    for number in 0..1 + random.below(6) {
        let deletion =
            |random: &mut Random| Deletion { timestamp: random.below(900) as i64, deleted_at_s: 1 };
        let mut ranges = Ranges::default();
        if odd > 0 && random.below(3) == 0 {
            let at = |random: &mut Random| {
                Position::At(Bytes::from(vec![random.below(9) as u8]), random.below(2) == 0)
            };
            let (start, end) = (at(random), at(random));
            ranges.insert(start, end, deletion(random));
        }
        let statics = (odd > 0 && random.below(3) == 0).then(|| row(random, &[], odd));
        let rows = match odd {
            0 => vec![row(random, &[], 0)],
            _ => (0..random.below(9)).map(|at| row(random, &[at as u8], odd)).collect(),
        };
        let deletion = (odd > 0 && random.below(3) == 0).then(|| deletion(random));
        let key = vec![b'k'; 1 + random.below(5) as usize];
        parts.push(TestPart {
            token: number as i64 * 1_000_000_007 - 9,
            key,
            deletion,
            statics,
            ranges,
            rows,
        });
    }
    parts
}

fn encode(parts: &[TestPart], compression: Compression) -> (Bytes, Finished) {
    encode_with(&mut BlockBuilder::default(), parts, compression)
}

fn encode_with(
    builder: &mut BlockBuilder,
    parts: &[TestPart],
    compression: Compression,
) -> (Bytes, Finished) {
    let mut statistics = FileStatistics::new(WRITTEN);
    for part in parts {
        let head =
            HeadRef { deletion: part.deletion, statics: part.statics.as_ref(), ranges: Some(&part.ranges) };
        builder.start_part(part.token, &part.key, Some(head));
        part.rows.iter().for_each(|row| builder.push_row(row, &mut statistics));
        builder.end_part(false);
    }
    let mut out = Vec::new();
    let finished = builder.finish(FILE, compression, &LAYOUTS, &mut out);
    assert!(builder.is_empty());
    (Bytes::from(out), finished)
}

/// Decodes a whole block.
fn read(bytes: Bytes, directory: u32, crc: u32) -> Result<Vec<TestPart>, Malformed> {
    let block = Block::open(bytes, directory as usize, crc, FILE)?;
    let mut parts = Vec::new();
    for part in 0..block.parts {
        let keys = block.keys()?;
        let head = block.head(part)?.cloned().unwrap_or_default();
        let rows = block.rows_of(part)?.map(|row| block.row(&[], row, None)).collect::<Result<_, _>>()?;
        parts.push(TestPart {
            token: keys.token(part),
            key: keys.keys.raw(part).to_vec(),
            deletion: head.deletion,
            statics: head.statics,
            ranges: head.ranges,
            rows,
        });
    }
    Ok(parts)
}

fn check(seed: u64) {
    let mut random = Random::new(seed);
    let odd = random.below(5);
    let wanted = parts(&mut random, odd);
    let compression = [Compression::None, Compression::Lz4, Compression::Zstd][random.below(3) as usize];
    let (bytes, finished) = encode(&wanted, compression);
    let mut used = BlockBuilder::default();
    encode_with(&mut used, &parts(&mut random, 4), compression);
    assert_eq!(
        encode_with(&mut used, &wanted, compression).0,
        bytes,
        "check({seed}): nothing is left of the block before"
    );
    let read =
        read(bytes.clone(), finished.directory, finished.crc).unwrap_or_else(|_| panic!("check({seed})"));
    assert_eq!(read.len(), wanted.len(), "check({seed})");
    for (read, wanted) in read.iter().zip(&wanted) {
        assert_eq!((read.token, &read.key), (wanted.token, &wanted.key), "check({seed})");
        assert_eq!((read.deletion, &read.statics), (wanted.deletion, &wanted.statics), "check({seed})");
        assert_eq!(read.ranges, wanted.ranges, "check({seed})");
        assert_eq!(read.rows, wanted.rows, "check({seed})");
    }
    let block = Block::open(bytes, finished.directory as usize, finished.crc, FILE).unwrap();
    for (index, part) in wanted.iter().enumerate() {
        assert_eq!(block.find(part.token, &part.key), Ok(Some(index)), "check({seed})");
        assert_eq!(block.find(part.token, b"absent"), Ok(None), "check({seed})");
        for (at, row) in block.rows_of(index).unwrap().zip(&part.rows) {
            let some = block.row(&[], at, Some(&[1, 4])).unwrap();
            let expected: Vec<_> = row.cells().filter(|cell| [1, 4].contains(&cell.column)).collect();
            assert_eq!(some.cells().collect::<Vec<_>>(), expected, "check({seed})");
        }
    }
}

#[test]
fn blocks_round_trip() {
    (0..400).for_each(check);
}

#[test]
fn reading_one_column_leaves_the_others_packed() {
    let wanted: Vec<TestPart> = (0..2000)
        .map(|number: i64| {
            let mut builder = RowBuilder::new(&[], &[], 5);
            (0..8).for_each(|column| builder.push(CellRef::live(column, 5, &[7; 20])));
            let (ranges, rows) = (Ranges::default(), vec![builder.finish()]);
            let key = number.to_be_bytes().to_vec();
            TestPart { token: number, key, deletion: None, statics: None, ranges, rows }
        })
        .collect();
    let (bytes, finished) = encode(&wanted, Compression::Lz4);
    let block = Block::open(bytes.clone(), finished.directory as usize, finished.crc, FILE).unwrap();
    let part = block.find(1234, &1234i64.to_be_bytes()).unwrap().unwrap();
    let row = block.row(&[], block.rows_of(part).unwrap().start, Some(&[3])).unwrap();
    assert_eq!(row.cells().collect::<Vec<_>>(), [CellRef::live(3, 5, &[7; 20])]);
    let unpacked = block.bytes() - bytes.len();
    assert!(unpacked < 2000 * (8 + 8 + 20) + 10_000, "{unpacked} bytes were unpacked of {}", 2000 * 176);
}

#[test]
fn flipped_bit_is_an_error() {
    let mut random = Random::new(3);
    let (bytes, finished) = encode(&parts(&mut random, 2), Compression::Lz4);
    let mut unnoticed = 0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1 << random.below(8);
        unnoticed += usize::from(read(Bytes::from(damaged), finished.directory, finished.crc).is_ok());
    }
    // Only the zeros between regions carry no data.
    assert!(unnoticed < 7 * 40, "{unnoticed} of {} went unnoticed", bytes.len());
}

/// Recomputes the checksums of regions. Returns the directory's.
fn mend(bytes: &mut [u8], directory: usize) -> u32 {
    let u32_at = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut offset = directory;
    for place in (13..directory).step_by(24) {
        let start = offset.next_multiple_of(8);
        offset = start + u32_at(bytes, place + 12);
        let Some(region) = bytes.get(start..offset) else { break };
        let sum = crc(FILE, region);
        bytes[place + 20..place + 24].copy_from_slice(&sum.to_le_bytes());
    }
    crc(FILE, &bytes[..directory])
}

/// Damages bytes of the directory and of regions, and recomputes the checksums, which hides the
/// damage.
fn check_damaged(seed: u64) {
    let mut random = Random::new(seed);
    let odd = random.below(5);
    let compression = if random.below(4) == 0 { Compression::Zstd } else { Compression::None };
    let (bytes, finished) = encode(&parts(&mut random, odd), compression);
    for _ in 0..60 {
        let mut damaged = bytes.to_vec();
        for _ in 0..1 + random.below(3) {
            let end = if random.below(2) == 0 { finished.directory as usize } else { damaged.len() };
            let at = random.below(end as u64) as usize;
            damaged[at] = match random.below(3) {
                0 => random.next_u64() as u8,
                1 => 0xff,
                _ => damaged[at].wrapping_add(1),
            };
        }
        let crc = mend(&mut damaged, finished.directory as usize);
        // Any result is allowed, but no panic and no long loop.
        let _ = read(Bytes::from(damaged), finished.directory, crc);
    }
}

#[test]
fn damage_with_valid_checksums_does_not_panic() {
    (0..300).for_each(check_damaged);
}

#[test]
fn rows_beyond_the_limits_of_a_region_are_not_written() {
    let row = |elements: u32, value: &[u8]| {
        let mut row = RowBuilder::new(&[], &[], 1);
        for element in 0..elements {
            row.push(CellRef::live(0, 1, value).at(&element.to_be_bytes()));
        }
        row.finish()
    };
    let max = RegionMax { raw: 4096, slots: 100 };
    let statics = |bytes: usize| {
        let statics = Some(crate::model::layers::Placed::Row(row(1, &vec![7; bytes])));
        Partition::Full(std::sync::Arc::new(crate::model::partition::Full { statics, ..Default::default() }))
    };
    let write = |large: Partition| {
        let mut writer = TableWriter::new(FILE, 1 << 10, WRITTEN).with_max(max);
        for (token, partition) in [(1, Partition::Single(row(9, &[1]))), (2, large)] {
            writer.begin(token, &Bytes::from_static(b"k"), &partition);
            writer.rows(&partition);
            writer.end();
        }
        writer.finish().map(drop).map_err(|error| error.to_string())
    };
    let single = |elements, value: &[u8]| Partition::Single(row(elements, value));
    for fits in [single(91, &[1]), single(1, &[7; 4000]), statics(4000)] {
        assert_eq!(write(fits), Ok(()));
    }
    for refused in [single(101, &[]), single(92, &[1]), single(1, &[7; 4200]), statics(4200)] {
        let error = write(refused).expect_err("it would not be readable");
        assert!(error.contains("a row of the partition with token 2 has more than"), "{error}");
    }
}
