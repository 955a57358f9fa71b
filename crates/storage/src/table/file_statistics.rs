//! Statistics of a whole table file, stored in its footer.
//!
//! ```text
//!  statistics   rows u64 | cells u64 | tombstones u64 | least timestamp i64 | greatest timestamp i64 |
//!               first token i64 | last token i64 | first expiry u32 | first deletion u32 | all dead u32 |
//!               written u32 | newest i64 |
//!               deaths: 16 × (second u32, count u64)                                                272 bytes
//! ```
//!
//! *All dead* is the second by which every cell, row marker and tombstone has expired or was made;
//! `u32::MAX` if a cell lives forever. *Newest* is the greatest timestamp that was not in the
//! future when the file was written. One cell dated far ahead then does not decide for the rest.
//!
//! Tombstones are those of cells, rows, ranges and partitions. If there is none of a kind, its
//! least value is the maximum of the type, and its greatest value the minimum.

use crate::model::cells::Head;
use crate::model::codec::{Malformed, Reader, put_i64, put_u32, put_u64};
use crate::model::ranges::Ranges;
use crate::model::row::EncodedRow;
use crate::model::{CellRef, CellValue, Deletion, Expiry};
use crate::options::TableOptions;
use crate::table::deaths::{self, Deaths};

/// Counts and bounds of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileStatistics {
    pub(crate) rows: u64,
    pub(crate) cells: u64,
    pub(crate) tombstones: u64,
    pub(crate) timestamps: (i64, i64),
    /// The tokens of the first and the last partition.
    pub(crate) tokens: (Option<i64>, Option<i64>),
    /// The first second at which a cell expires.
    pub(crate) first_expiry_s: u32,
    /// The first second at which a tombstone was made.
    pub(crate) first_deletion_s: u32,
    /// From this second on the whole file is dead; `u32::MAX` if a cell lives forever.
    pub(crate) all_dead_s: u32,
    /// The time of writing, Unix seconds.
    pub(crate) written_s: u32,
    /// The greatest timestamp up to the time of writing; the time of writing if all are beyond it.
    pub(crate) newest: i64,
    /// The times at which cells expire and tombstones were made.
    pub(crate) deaths: Deaths,
    /// Greater timestamps were in the future at the time of writing. Not stored.
    limit: i64,
}

/// Bytes of statistics in a footer.
pub(crate) const BYTES: usize = 80 + deaths::BYTES;

/// The time at which a file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WriteTime {
    /// Unix seconds.
    pub(crate) now_s: u32,
    /// The same time in units of the table's timestamps. Greater timestamps are in the future.
    pub(crate) timestamp: i64,
}

impl WriteTime {
    /// Returns the time `now_s` for a table with these options.
    pub(crate) fn new(now_s: u32, options: &TableOptions) -> WriteTime {
        WriteTime { now_s, timestamp: options.timestamp_at(now_s) }
    }
}

impl FileStatistics {
    /// Creates the statistics of an empty file that is written at `time`.
    pub(crate) fn new(time: WriteTime) -> FileStatistics {
        FileStatistics {
            rows: 0,
            cells: 0,
            tombstones: 0,
            timestamps: (i64::MAX, i64::MIN),
            tokens: (None, None),
            first_expiry_s: u32::MAX,
            first_deletion_s: u32::MAX,
            all_dead_s: 0,
            written_s: time.now_s,
            newest: i64::MIN,
            deaths: Deaths::default(),
            limit: time.timestamp,
        }
    }

    #[inline]
    fn written(&mut self, timestamp: i64) {
        let (least, greatest) = self.timestamps;
        self.timestamps = (least.min(timestamp), greatest.max(timestamp));
        if timestamp <= self.limit {
            self.newest = self.newest.max(timestamp);
        }
    }

    /// Counts a cell or tombstone that dies at a second; `u32::MAX`: never.
    #[inline]
    fn dies(&mut self, at_s: u32) {
        self.all_dead_s = self.all_dead_s.max(at_s);
        if at_s < u32::MAX {
            self.deaths.add(at_s, 1);
        }
    }

    #[inline]
    fn expires(&mut self, expiry: Option<Expiry>) {
        let at_s = expiry.map_or(u32::MAX, |expiry| expiry.at_s);
        self.first_expiry_s = self.first_expiry_s.min(at_s);
        self.dies(at_s);
    }

    fn deleted(&mut self, deletion: Deletion) {
        self.written(deletion.timestamp);
        self.tombstones += 1;
        self.first_deletion_s = self.first_deletion_s.min(deletion.deleted_at_s);
        self.dies(deletion.deleted_at_s);
    }

    pub(crate) fn add_head(
        &mut self,
        deletion: Option<Deletion>,
        statics: Option<&EncodedRow>,
        ranges: &Ranges,
    ) {
        deletion.into_iter().for_each(|deletion| self.deleted(deletion));
        ranges.iter().for_each(|(_, _, deletion)| self.deleted(deletion));
        statics.into_iter().flat_map(EncodedRow::cells).for_each(|cell| self.add_cell(&cell));
    }

    /// Counts a row without its cells.
    #[inline]
    pub(crate) fn add_row(&mut self, head: &Head<'_>) {
        self.rows += 1;
        if let Some(marker) = head.marker {
            self.written(marker.timestamp);
            self.expires(marker.expiry);
        }
        head.deletion.into_iter().for_each(|deletion| self.deleted(deletion));
    }

    #[inline]
    pub(crate) fn add_cell(&mut self, cell: &CellRef<'_>) {
        self.cells += 1;
        self.written(cell.timestamp);
        match cell.value {
            CellValue::Live { expiry, .. } => self.expires(expiry),
            CellValue::Dead { deleted_at_s } => {
                self.deleted(Deletion { timestamp: cell.timestamp, deleted_at_s });
            }
        }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        [self.rows, self.cells, self.tombstones].iter().for_each(|count| put_u64(out, *count));
        let tokens = (self.tokens.0.unwrap_or(i64::MAX), self.tokens.1.unwrap_or(i64::MIN));
        let (least, greatest) = self.timestamps;
        [least, greatest, tokens.0, tokens.1].iter().for_each(|bound| put_i64(out, *bound));
        put_u32(out, self.first_expiry_s);
        put_u32(out, self.first_deletion_s);
        put_u32(out, self.all_dead_s);
        put_u32(out, self.written_s);
        put_i64(out, if self.newest == i64::MIN { self.limit } else { self.newest });
        self.deaths.put(out);
    }

    pub(crate) fn read(reader: &mut Reader) -> Result<FileStatistics, Malformed> {
        let rows = reader.u64()?;
        let cells = reader.u64()?;
        let tombstones = reader.u64()?;
        let timestamps = (reader.i64()?, reader.i64()?);
        let (first, last) = (reader.i64()?, reader.i64()?);
        let tokens = if first <= last { (Some(first), Some(last)) } else { (None, None) };
        let (first_expiry_s, first_deletion_s) = (reader.u32()?, reader.u32()?);
        let all_dead_s = reader.u32()?;
        let written_s = reader.u32()?;
        let newest = reader.i64()?;
        let deaths = Deaths::read(reader)?;
        Ok(FileStatistics {
            rows,
            cells,
            tombstones,
            timestamps,
            tokens,
            first_expiry_s,
            first_deletion_s,
            all_dead_s,
            written_s,
            newest,
            deaths,
            limit: i64::MAX,
        })
    }
}
