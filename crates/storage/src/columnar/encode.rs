//! Gathers the rows of a block and lays them out by column.

use crate::codec::{put_bytes, put_deletion, put_i64, put_ranges, put_u32};
use crate::columnar::bounds::BlockBounds;
use crate::columnar::ints::Ints;
use crate::columnar::layout::{ColumnLayout, encoding_of};
use crate::columnar::marks::{MarksBuilder, State};
use crate::columnar::region::{Kind, Packing, RegionsBuilder};
use crate::columnar::values::{Lie, ValuesBuilder};
use crate::model::{CellRef, CellValue, Deletion};
use crate::ranges::Ranges;
use crate::row::Row;

/// What is known of a partition beside its rows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadRef<'a> {
    pub(crate) deletion: Option<Deletion>,
    pub(crate) statics: Option<&'a Row>,
    pub(crate) ranges: Option<&'a Ranges>,
}

pub(crate) const HEAD_DELETION: u8 = 1;
pub(crate) const HEAD_STATICS: u8 = 2;
pub(crate) const HEAD_RANGES: u8 = 4;

/// Bytes that a row, or a cell, is taken to need beside its strings.
const SLOT: usize = 4;

#[derive(Debug, Default)]
struct CellsBuilder {
    marks: MarksBuilder,
    values: ValuesBuilder,
}

impl CellsBuilder {
    fn push(&mut self, cell: &CellRef<'_>, row_timestamp: i64) {
        let (state, value): (State, &[u8]) = match cell.value {
            CellValue::Live { value, expiry } => (State::Live(expiry), value),
            CellValue::Dead { deleted_at_s } => (State::Dead(deleted_at_s), &[]),
        };
        self.marks.push(state, cell.timestamp, row_timestamp);
        self.values.push(value);
    }

    fn pad(&mut self, len: usize) {
        self.marks.pad(len);
        self.values.pad(len);
    }
}

#[derive(Debug, Default)]
struct ColumnBuilder {
    column: u32,
    cells: CellsBuilder,
    /// The first element of each row.
    starts: Vec<i64>,
    elements: CellsBuilder,
    paths: ValuesBuilder,
}

impl ColumnBuilder {
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

/// A block being gathered.
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
    /// Ascending.
    columns: Vec<ColumnBuilder>,
    bytes: usize,
}

/// What the index says of a finished block.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) directory: u32,
    pub(crate) crc: u32,
    pub(crate) rows: u32,
    pub(crate) bounds: BlockBounds,
}

impl BlockBuilder {
    /// About how many bytes have been gathered.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Starts a partition; `head` is absent when it goes on from the block before.
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
    }

    /// Adds a row to the partition started last.
    pub(crate) fn push_row(&mut self, row: &Row) {
        let (index, timestamp) = (self.timestamps.len(), row.timestamp());
        self.clustering.push(row.clustering());
        self.timestamps.push(timestamp);
        self.bytes += row.clustering().len() + SLOT;
        if let Some(marker) = row.marker() {
            self.markers.pad(index);
            self.markers.push(State::Live(marker.expiry), marker.timestamp, timestamp);
        }
        if let Some(deletion) = row.deletion() {
            self.deletions.pad(index);
            self.deletions.push(State::Dead(deletion.deleted_at_s), deletion.timestamp, timestamp);
        }
        let mut at = 0;
        for cell in row.cells() {
            // Cells ascend, so the search goes on where it stopped.
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

    /// Ends the partition, or its piece in this block.
    pub(crate) fn end_part(&mut self, more: bool) {
        self.more = more;
    }

    /// Appends the finished block to `out`; the builder is empty again.
    pub(crate) fn finish(
        &mut self,
        file: u64,
        packing: Packing,
        layouts: &[ColumnLayout],
        out: &mut Vec<u8>,
    ) -> Finished {
        let mut block = std::mem::take(self);
        let (parts, rows) = (block.tokens.len(), block.timestamps.len());
        let mut regions = RegionsBuilder::new(file, packing);
        let mut raw = Vec::with_capacity(block.bytes);

        block.tokens.iter().for_each(|token| put_i64(&mut raw, *token));
        Ints::put(&mut raw, &block.firsts);
        let lie = block.keys.put(&mut raw, None, None);
        regions.push(Kind::Keys, 0, parts, lie, &raw);
        if block.heads_count > 0 {
            regions.push(Kind::Heads, 0, block.heads_count, Lie::Strings, &block.heads);
        }
        if rows > 0 {
            raw.clear();
            let lie = block.clustering.put(&mut raw, None, None);
            regions.push(Kind::Clustering, 0, rows, lie, &raw);
            raw.clear();
            Ints::put(&mut raw, &block.timestamps);
            for marks in [&mut block.markers, &mut block.deletions] {
                marks.pad(rows);
                marks.put(&mut raw);
            }
            regions.push(Kind::Rows, 0, rows, Lie::Strings, &raw);
        }
        let mut bounds = BlockBounds::of_clustering(&block.clustering);
        for column in &mut block.columns {
            let encoding = encoding_of(layouts, column.column);
            let number = encoding.number();
            bounds.add(
                column.column,
                encoding,
                &column.cells.values,
                &column.cells.marks.valid,
                column.paths.len() > 0,
            );
            put_column(&mut regions, column, rows, number);
        }
        let (directory, crc) = regions.finish(out, (block.continued, block.more), parts, rows);
        Finished { directory, crc, rows: rows as u32, bounds }
    }
}

fn put_column(regions: &mut RegionsBuilder, column: &mut ColumnBuilder, rows: usize, number: Option<u8>) {
    let mut raw = Vec::new();
    let mut put_cells =
        |cells: &mut CellsBuilder, kinds: (Kind, Kind), len: usize, starts: Option<&[i64]>| {
            raw.clear();
            if let Some(starts) = starts {
                Ints::put(&mut raw, starts);
            }
            cells.marks.put(&mut raw);
            regions.push(kinds.0, column.column, len, Lie::Strings, &raw);
            if let Some(paths) = starts.map(|_| &column.paths) {
                raw.clear();
                let lie = paths.put(&mut raw, None, None);
                regions.push(Kind::Paths, column.column, len, lie, &raw);
            }
            raw.clear();
            let lie = cells.values.put(&mut raw, Some(&cells.marks.valid), number);
            regions.push(kinds.1, column.column, len, lie, &raw);
        };
    if column.cells.marks.any() {
        column.cells.pad(rows);
        put_cells(&mut column.cells, (Kind::Marks, Kind::Values), rows, None);
    }
    let elements = column.elements.marks.len();
    if elements > 0 {
        column.starts.resize(rows, elements as i64);
        put_cells(&mut column.elements, (Kind::ElementMarks, Kind::Elements), elements, Some(&column.starts));
    }
}

/// All slots have a value.
#[cfg(test)]
pub(crate) fn all_of(count: usize) -> crate::columnar::bits::BitsBuilder {
    let mut bits = crate::columnar::bits::BitsBuilder::default();
    (0..count).for_each(|_| bits.push(true));
    bits
}
