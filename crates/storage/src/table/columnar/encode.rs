//! The writer of a block: collects rows and encodes them by column.

use crate::model::codec::{put_bytes, put_deletion, put_i64, put_ranges, put_u32};
use crate::model::ranges::Ranges;
use crate::model::row::EncodedRow;
use crate::model::{CellRef, CellValue, Deletion};
use crate::options::Compression;
use crate::table::columnar::bounds::ZoneMapBuilder;
use crate::table::columnar::ints::Ints;
use crate::table::columnar::layout::{ColumnLayout, encoding_of};
use crate::table::columnar::marks::{MarkState, MarksBuilder};
use crate::table::columnar::region::{RegionBuffers, RegionKind, RegionMax, RegionsBuilder};
use crate::table::columnar::values::{ValueLayout, ValuesBuilder};
use crate::table::file_statistics::FileStatistics;

/// The deletions and static cells of a partition.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadRef<'a> {
    pub(crate) deletion: Option<Deletion>,
    pub(crate) statics: Option<&'a EncodedRow>,
    pub(crate) ranges: Option<&'a Ranges>,
}

pub(crate) const HEAD_DELETION: u8 = 1;
pub(crate) const HEAD_STATICS: u8 = 2;
pub(crate) const HEAD_RANGES: u8 = 4;

/// Estimated bytes of a row, or of a cell, beside its strings.
const SLOT: usize = 4;

/// Buffers of larger blocks, which a few large values make, are freed after the block.
const KEPT_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
struct CellsBuilder {
    marks: MarksBuilder,
    values: ValuesBuilder,
}

impl CellsBuilder {
    fn push(&mut self, cell: &CellRef<'_>, row_timestamp: i64) {
        let (state, value): (MarkState, &[u8]) = match cell.value {
            CellValue::Live { value, expiry } => (MarkState::Live(expiry), value),
            CellValue::Dead { deleted_at_s } => (MarkState::Dead(deleted_at_s), &[]),
        };
        self.marks.push(state, cell.timestamp, row_timestamp);
        self.values.push(value);
    }

    fn pad(&mut self, len: usize) {
        self.marks.pad(len);
        self.values.pad(len);
    }

    fn clear(&mut self) {
        self.marks.clear();
        self.values.clear();
    }
}

#[derive(Debug, Default)]
struct ColumnBuilder {
    column: u32,
    cells: CellsBuilder,
    /// The index of the first element of each row.
    starts: Vec<i64>,
    elements: CellsBuilder,
    paths: ValuesBuilder,
}

impl ColumnBuilder {
    /// Returns true if the block has cells or elements of the column.
    fn any(&self) -> bool {
        self.cells.marks.any() || self.elements.marks.len() > 0
    }

    fn clear(&mut self) {
        self.cells.clear();
        self.starts.clear();
        self.elements.clear();
        self.paths.clear();
    }

    fn push(&mut self, row: usize, cell: &CellRef<'_>, row_timestamp: i64) {
        match cell.path {
            None => {
                self.cells.pad(row);
                self.cells.push(cell, row_timestamp);
            }
            Some(path) => {
                if self.starts.len() <= row {
                    self.starts.resize(row + 1, self.elements.marks.len() as i64);
                }
                self.elements.push(cell, row_timestamp);
                self.paths.push(path);
            }
        }
    }
}

/// Builds a block. Its memory is reused for the next one.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    tokens: Vec<i64>,
    keys: ValuesBuilder,
    firsts: Vec<i64>,
    continued: bool,
    more: bool,
    heads: Vec<u8>,
    heads_count: usize,
    clustering: ValuesBuilder,
    timestamps: Vec<i64>,
    markers: MarksBuilder,
    deletions: MarksBuilder,
    /// Ascending. Some may have no cells in this block.
    columns: Vec<ColumnBuilder>,
    bytes: usize,
    raw: Vec<u8>,
    buffers: RegionBuffers,
    max: RegionMax,
    /// True if a row, or the head of a partition, was left out because no region can hold it.
    is_too_large: bool,
}

/// The finished block's fields of the index entry.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) directory: u32,
    pub(crate) crc: u32,
    pub(crate) rows: u32,
    pub(crate) zone_map: ZoneMapBuilder,
    /// True if data was left out because it exceeds the limits of a region. The block must not be
    /// used then.
    pub(crate) is_too_large: bool,
}

impl BlockBuilder {
    /// Creates a builder with other limits.
    #[cfg(test)]
    pub(crate) fn with_max(max: RegionMax) -> BlockBuilder {
        BlockBuilder { max, ..BlockBuilder::default() }
    }

    /// Returns the approximate size of the collected rows, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Starts a partition. `head` is `None` if it continues from the block before.
    pub(crate) fn start_part(&mut self, token: i64, key: &[u8], head: Option<HeadRef<'_>>) {
        self.continued |= head.is_none();
        let part = self.tokens.len();
        self.tokens.push(token);
        self.keys.push(key);
        self.firsts.push(self.timestamps.len() as i64);
        self.bytes += 8 + key.len() + SLOT;
        let Some(head) = head else { return };
        let ranges = head.ranges.filter(|ranges| !ranges.is_empty());
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(head.deletion.is_some(), HEAD_DELETION)
            | flag(head.statics.is_some(), HEAD_STATICS)
            | flag(ranges.is_some(), HEAD_RANGES);
        if flags == 0 {
            return;
        }
        let before = self.heads.len();
        self.heads_count += 1;
        put_u32(&mut self.heads, part as u32);
        self.heads.push(flags);
        if let Some(deletion) = &head.deletion {
            put_deletion(&mut self.heads, deletion);
        }
        if let Some(statics) = head.statics {
            put_bytes(&mut self.heads, statics.as_bytes());
        }
        if let Some(ranges) = ranges {
            put_ranges(&mut self.heads, ranges);
        }
        self.bytes += self.heads.len() - before;
        self.is_too_large |= self.heads.len() > self.max.raw;
    }

    /// Adds a row to the last partition, and counts it in the file's statistics.
    pub(crate) fn push_row(&mut self, row: &EncodedRow, statistics: &mut FileStatistics) {
        if row.bytes() > self.max.raw {
            // Offsets have 32 bits, so the row must not even be buffered.
            self.is_too_large = true;
            return;
        }
        let (head, cells) = row.open();
        statistics.add_row(&head);
        let (index, timestamp) = (self.timestamps.len(), head.timestamp);
        self.clustering.push(head.clustering);
        self.timestamps.push(timestamp);
        self.bytes += head.clustering.len() + SLOT;
        if let Some(marker) = head.marker {
            self.markers.pad(index);
            self.markers.push(MarkState::Live(marker.expiry), marker.timestamp, timestamp);
        }
        if let Some(deletion) = head.deletion {
            self.deletions.pad(index);
            self.deletions.push(MarkState::Dead(deletion.deleted_at_s), deletion.timestamp, timestamp);
        }
        let mut at = 0;
        for cell in cells {
            statistics.add_cell(&cell);
            // Cells ascend, so the search continues where it stopped.
            while self.columns.get(at).is_some_and(|builder| builder.column < cell.column) {
                at += 1;
            }
            if self.columns.get(at).is_none_or(|builder| builder.column != cell.column) {
                self.columns.insert(at, ColumnBuilder { column: cell.column, ..ColumnBuilder::default() });
            }
            self.columns[at].push(index, &cell, timestamp);
            self.bytes += cell.path.map_or(0, <[u8]>::len) + cell.value().map_or(0, <[u8]>::len) + SLOT;
        }
    }

    /// Ends the partition, or its part in this block if `more`.
    pub(crate) fn end_part(&mut self, more: bool) {
        self.more = more;
    }

    /// Appends the finished block to `out` and empties the builder.
    pub(crate) fn finish(
        &mut self,
        file: u64,
        compression: Compression,
        layouts: &[ColumnLayout],
        out: &mut Vec<u8>,
    ) -> Finished {
        let (parts, rows) = (self.tokens.len(), self.timestamps.len());
        let mut regions = RegionsBuilder::new(file, compression, &mut self.buffers, self.max);
        let raw = &mut self.raw;

        raw.clear();
        self.tokens.iter().for_each(|token| put_i64(raw, *token));
        Ints::put(raw, &self.firsts);
        let layout = self.keys.put(raw, None, None);
        regions.push(RegionKind::Keys, 0, parts, layout, raw);
        if self.heads_count > 0 {
            regions.push(RegionKind::Heads, 0, self.heads_count, ValueLayout::Strings, &self.heads);
        }
        if rows > 0 {
            raw.clear();
            let layout = self.clustering.put(raw, None, None);
            regions.push(RegionKind::Clustering, 0, rows, layout, raw);
            raw.clear();
            Ints::put(raw, &self.timestamps);
            for marks in [&mut self.markers, &mut self.deletions] {
                marks.pad(rows);
                marks.put(raw);
            }
            regions.push(RegionKind::Rows, 0, rows, ValueLayout::Strings, raw);
        }
        let mut zone_map = ZoneMapBuilder::of_clustering(&self.clustering);
        for column in self.columns.iter_mut().filter(|column| column.any()) {
            let encoding = encoding_of(layouts, column.column);
            let number = encoding.number();
            zone_map.add(
                column.column,
                encoding,
                &column.cells.values,
                &column.cells.marks.valid,
                column.paths.len() > 0,
            );
            put_column(&mut regions, raw, column, rows, number);
        }
        let is_too_large = self.is_too_large || regions.is_too_large();
        let (directory, crc) = regions.finish(out, self.continued, self.more, parts, rows);
        self.clear();
        Finished { directory, crc, rows: rows as u32, zone_map, is_too_large }
    }

    fn clear(&mut self) {
        if self.bytes > KEPT_BYTES {
            return *self = BlockBuilder { max: self.max, ..BlockBuilder::default() };
        }
        let BlockBuilder {
            tokens,
            keys,
            firsts,
            continued,
            more,
            heads,
            heads_count,
            clustering,
            timestamps,
            markers,
            deletions,
            columns,
            bytes,
            raw: _,
            buffers: _,
            max: _,
            is_too_large,
        } = self;
        [tokens, firsts, timestamps].into_iter().for_each(Vec::clear);
        [keys, clustering].into_iter().for_each(ValuesBuilder::clear);
        [markers, deletions].into_iter().for_each(MarksBuilder::clear);
        heads.clear();
        columns.iter_mut().for_each(ColumnBuilder::clear);
        (*continued, *more, *is_too_large) = (false, false, false);
        (*heads_count, *bytes) = (0, 0);
    }
}

fn put_column(
    regions: &mut RegionsBuilder<'_>,
    raw: &mut Vec<u8>,
    column: &mut ColumnBuilder,
    rows: usize,
    number: Option<u8>,
) {
    let mut put_cells =
        |cells: &mut CellsBuilder, kinds: (RegionKind, RegionKind), len: usize, starts: Option<&[i64]>| {
            raw.clear();
            if let Some(starts) = starts {
                Ints::put(raw, starts);
            }
            cells.marks.put(raw);
            regions.push(kinds.0, column.column, len, ValueLayout::Strings, raw);
            if let Some(paths) = starts.map(|_| &column.paths) {
                raw.clear();
                let layout = paths.put(raw, None, None);
                regions.push(RegionKind::Paths, column.column, len, layout, raw);
            }
            raw.clear();
            let layout = cells.values.put(raw, Some(&cells.marks.valid), number);
            regions.push(kinds.1, column.column, len, layout, raw);
        };
    if column.cells.marks.any() {
        column.cells.pad(rows);
        put_cells(&mut column.cells, (RegionKind::Marks, RegionKind::Values), rows, None);
    }
    let elements = column.elements.marks.len();
    if elements > 0 {
        column.starts.resize(rows, elements as i64);
        put_cells(
            &mut column.elements,
            (RegionKind::ElementMarks, RegionKind::Elements),
            elements,
            Some(&column.starts),
        );
    }
}

/// Returns a bitmap with all slots set.
#[cfg(test)]
pub(crate) fn all_of(count: usize) -> crate::table::columnar::bits::BitsBuilder {
    let mut bits = crate::table::columnar::bits::BitsBuilder::default();
    (0..count).for_each(|_| bits.push(true));
    bits
}
