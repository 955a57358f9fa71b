//! Collects rows into a record batch: by column from blocks, or row by row from merged partitions.

use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;

use crate::model::CellRef;
use crate::model::codec::Malformed;
use crate::model::view::{PartitionView, RowView};
use crate::scan::batch_request::{BATCH_BYTES_MAX, BatchRequest, ScanColumn};
use crate::scan::batches::{ColumnOut, ColumnType, ElementsOut};
use crate::scan::file_source::Position;
use crate::table::columnar::Block;

/// Bytes that a column reserves for a row, at most, without texts: a number, or its end.
const ROW_BYTES_RESERVED: usize = 8;

/// Rows appended one by one between checks of the batch's bytes.
const ROWS_BETWEEN_CHECKS: usize = 16;

/// Rows of a partition visited between yields, dead or alive: at some 500 ns each, half a
/// millisecond.
const ROWS_BETWEEN_YIELDS: usize = 1024;

/// The columns of the current batch.
#[derive(Debug)]
pub(crate) struct Gather {
    pub(crate) request: BatchRequest,
    schema: SchemaRef,
    now_s: u32,
    out: Vec<Out>,
    /// (column, index in the request) of the columns of the rows' cells, ascending by column.
    cells: Vec<(u32, usize)>,
    /// Indexes in the request of the other columns.
    others: Vec<usize>,
    rows: usize,
    visited: Visited,
}

/// Rows that a scan has visited since they were last taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Visited {
    /// Rows, dead or alive. Those outside of the request's bounds may be among them.
    pub rows: u64,
    /// Dead rows within the bounds: tombstones, and rows of which everything has expired.
    pub dead: u64,
    /// Bytes of the columns of the batches.
    pub bytes: u64,
    /// True if a number without bytes became null in a batch: the column's type has no such value.
    pub has_empty: bool,
}

#[derive(Debug)]
enum Out {
    Cells(ColumnOut),
    Elements(ElementsOut),
}

impl Out {
    fn new(column: ScanColumn, rows: usize) -> Out {
        match column {
            ScanColumn::Token => Out::Cells(ColumnOut::new(ColumnType::Int64, rows)),
            ScanColumn::Key(kind)
            | ScanColumn::Clustering(kind)
            | ScanColumn::Cell(_, kind)
            | ScanColumn::Static(_, kind) => Out::Cells(ColumnOut::new(kind, rows)),
            ScanColumn::Elements(_) | ScanColumn::StaticElements(_) => Out::Elements(ElementsOut::new(rows)),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Out::Cells(out) => out.bytes(),
            Out::Elements(out) => out.bytes(),
        }
    }

    fn push(&mut self, value: Option<&[u8]>) {
        match self {
            Out::Cells(out) => out.push(value),
            Out::Elements(out) => out.push_nulls(1),
        }
    }

    fn push_nulls(&mut self, count: usize) {
        match self {
            Out::Cells(out) => out.push_nulls(count),
            Out::Elements(out) => out.push_nulls(count),
        }
    }

    fn push_elements<'a>(&mut self, elements: impl Iterator<Item = CellRef<'a>>) {
        let Out::Elements(out) = self else { return self.push(None) };
        for cell in elements {
            if let (Some(path), Some(value)) = (cell.path, cell.value()) {
                out.push(path, value);
            }
        }
        out.end_row();
    }

    fn has_empty(&self) -> bool {
        matches!(self, Out::Cells(out) if out.has_empty())
    }

    fn finish(self) -> Option<ArrayRef> {
        match self {
            Out::Cells(out) => out.finish(),
            Out::Elements(out) => out.finish(),
        }
    }
}

impl Gather {
    pub(crate) fn new(request: BatchRequest, now_s: u32) -> Gather {
        let fields: Vec<_> = request.columns.iter().map(|column| column.field()).collect();
        let (mut cells, mut others) = (Vec::new(), Vec::new());
        for (place, column) in request.columns.iter().enumerate() {
            match column {
                ScanColumn::Cell(column, _) | ScanColumn::Elements(column) => cells.push((*column, place)),
                _ => others.push(place),
            }
        }
        cells.sort_unstable();
        let schema = Arc::new(Schema::new(fields));
        let visited = Visited::default();
        Gather { request, schema, now_s, out: Vec::new(), cells, others, rows: 0, visited }
    }

    /// Returns what was visited since the last call.
    pub(crate) fn take_visited(&mut self) -> Visited {
        std::mem::take(&mut self.visited)
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns true if the batch is full.
    pub(crate) fn is_full(&self) -> bool {
        self.rows >= self.request.rows.max(1) || self.bytes() >= self.request.bytes
    }

    /// Returns the bytes of the batch so far, without those that were reserved for more rows.
    pub(crate) fn bytes(&self) -> usize {
        self.out.iter().map(Out::bytes).sum()
    }

    /// Appends the rows of these parts of a plain block.
    pub(crate) fn append(&mut self, block: &Block, parts: Range<usize>) -> Result<(), Malformed> {
        if block.row_count() == 0 {
            return Ok(());
        }
        let rows = block.rows_of(parts.start)?.start..block.rows_of(parts.end - 1)?.end;
        self.visited.rows += rows.len() as u64;
        self.start();
        let mut from = rows.start;
        while from < rows.end {
            let mut to = from;
            if block.all_marked()? {
                (from, to) = (rows.start, rows.end);
            } else {
                while to < rows.end && block.is_alive(to, self.now_s, |column| self.request.counts(column))? {
                    to += 1;
                }
                self.visited.dead += u64::from(to < rows.end && self.is_dead(block, to)?);
            }
            if to > from {
                self.append_run(block, parts.clone(), from..to)?;
            }
            // The row that ended the run is dead.
            from = to + 1;
        }
        Ok(())
    }

    /// Returns true if a row that is not alive has not even cells of columns that do not count, and
    /// is within the request's bounds.
    fn is_dead(&self, block: &Block, row: usize) -> Result<bool, Malformed> {
        if self.request.known.is_some() && block.is_alive(row, self.now_s, |_| true)? {
            return Ok(false);
        }
        let is_inside = |key: &[u8]| RangeBounds::<[u8]>::contains(&self.request.clustering(), key);
        Ok(!self.request.is_bounded() || block.clustering()?.with(row, is_inside))
    }

    /// Appends rows that are all alive.
    fn append_run(
        &mut self,
        block: &Block,
        parts: Range<usize>,
        rows: Range<usize>,
    ) -> Result<(), Malformed> {
        let keys = block.keys()?;
        let single = block.row_count() == block.parts && keys.one_row_each();
        for (column, out) in self.request.columns.iter().zip(&mut self.out) {
            match (column, out) {
                (ScanColumn::Token, Out::Cells(out)) if single => {
                    rows.clone().for_each(|row| out.push(Some(&keys.token(row).to_be_bytes())));
                }
                (ScanColumn::Key(_), Out::Cells(out)) if single => {
                    out.push_stretch(&keys.keys, rows.clone(), None, 0);
                }
                (ScanColumn::Token | ScanColumn::Key(_), Out::Cells(out)) => {
                    for part in parts.clone() {
                        let own = block.rows_of(part)?;
                        let count = own.end.min(rows.end).saturating_sub(own.start.max(rows.start));
                        match column {
                            ScanColumn::Token => out.push_repeated(&keys.token(part).to_be_bytes(), count),
                            _ => out.push_repeated(keys.keys.raw(part), count),
                        }
                    }
                }
                (ScanColumn::Clustering(_), Out::Cells(out)) => {
                    out.push_stretch(block.clustering()?, rows.clone(), None, 0);
                }
                (ScanColumn::Cell(column, _), Out::Cells(out)) => match block.cells(*column)? {
                    Some((marks, values)) => out.push_stretch(values, rows.clone(), Some(marks), self.now_s),
                    None => out.push_nulls(rows.len()),
                },
                (ScanColumn::Elements(column), Out::Elements(out)) => {
                    append_elements(block, *column, rows.clone(), self.now_s, out)?;
                }
                // `append` never gets a block whose partitions have static cells.
                (_, out) => out.push_nulls(rows.len()),
            }
        }
        self.rows += rows.len();
        Ok(())
    }

    /// Appends rows of a partition, behind the row `after`, until the batch is full or
    /// [`ROWS_BETWEEN_YIELDS`] rows were visited. Returns the row behind which to continue, or
    /// `None` at the end of `view`. `statics` has the partition's static cells. Sets `any` with the
    /// first row.
    pub(crate) fn append_rows(
        &mut self,
        place: &Position,
        view: &PartitionView,
        statics: &PartitionView,
        after: Option<Bytes>,
        any: &mut bool,
    ) -> Option<Bytes> {
        self.start();
        let (mut start, end) = self.request.clustering();
        if let Some(after) = &after
            && is_below(start, after)
        {
            start = Bound::Excluded(after);
        }
        let statics = Statics::of(&self.request, statics);
        let mut rows = view.range(start, end, false);
        let mut visited = 0;
        while let Some((clustering, row)) = rows.next_placed() {
            visited += 1;
            self.visited.rows += 1;
            self.visited.dead += u64::from(row.is_none());
            let is_there = |row: &RowView| {
                self.request.known.is_none()
                    || row.liveness().is_some()
                    || row.cells().any(|cell| self.request.counts(cell.column))
            };
            if let Some(row) = row.filter(is_there) {
                *any = true;
                self.push_row(place, &row, &statics);
            }
            // Checking the bytes of all columns costs more than a row.
            let is_full = match visited % ROWS_BETWEEN_CHECKS {
                0 => self.is_full(),
                _ => self.rows >= self.request.rows.max(1),
            };
            if is_full || visited == ROWS_BETWEEN_YIELDS {
                return Some(Bytes::copy_from_slice(clustering));
            }
        }
        None
    }

    fn push_row(&mut self, place: &Position, row: &RowView, statics: &Statics<'_>) {
        self.rows += 1;
        for at in &self.others {
            let (column, out) = (self.request.columns[*at], &mut self.out[*at]);
            match column {
                ScanColumn::Clustering(_) => out.push(Some(row.clustering())),
                column => push_of_partition(column, place, statics, out),
            }
        }
        // Both ascend, so one walk over the row's cells serves all columns.
        for (column, at) in &self.cells {
            match &mut self.out[*at] {
                Out::Cells(out) => out.push(row.cell(*column).and_then(|cell| cell.value())),
                out => out.push_elements(row.elements(*column)),
            }
        }
    }

    /// Appends one row for a partition that has static cells and no rows.
    pub(crate) fn append_statics(&mut self, place: &Position, view: &PartitionView, any: bool) {
        let counts = |cell: CellRef<'_>| self.request.counts(cell.column);
        if any || self.request.is_bounded() || !view.static_cells().any(counts) {
            return;
        }
        self.rows += 1;
        let statics = Statics::of(&self.request, view);
        for (column, out) in self.request.columns.iter().zip(&mut self.out) {
            push_of_partition(*column, place, &statics, out);
        }
    }

    fn start(&mut self) {
        if self.out.is_empty() {
            // Thousands of columns would reserve hundreds of megabytes for a full batch of rows.
            let each = BATCH_BYTES_MAX / (ROW_BYTES_RESERVED * self.request.columns.len().max(1));
            let rows = self.request.rows.min(each);
            self.out = self.request.columns.iter().map(|column| Out::new(*column, rows)).collect();
        }
    }

    /// Returns the batch. An error describes the damage.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, String> {
        let rows = std::mem::take(&mut self.rows);
        self.visited.bytes += self.bytes() as u64;
        self.visited.has_empty |= self.out.iter().any(Out::has_empty);
        let arrays: Option<Vec<ArrayRef>> =
            std::mem::take(&mut self.out).into_iter().map(Out::finish).collect();
        let odd = "a value in it or in another file of the table is not UTF-8 or does not have the length of its type";
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays.ok_or(odd)?, &options)
            .map_err(|error| error.to_string())
    }
}

/// Returns true if the bound excludes neither `row` nor the rows before it.
fn is_below(start: Bound<&[u8]>, row: &[u8]) -> bool {
    match start {
        Bound::Unbounded => true,
        Bound::Included(start) | Bound::Excluded(start) => start <= row,
    }
}

/// The live static cells of a partition, ascending by column, collected once for all rows.
struct Statics<'a>(Vec<CellRef<'a>>);

impl<'a> Statics<'a> {
    /// Collects them if the request has static columns.
    fn of(request: &BatchRequest, view: &'a PartitionView) -> Statics<'a> {
        let is_static =
            |column: &ScanColumn| matches!(column, ScanColumn::Static(..) | ScanColumn::StaticElements(_));
        match request.columns.iter().any(is_static) {
            true => Statics(view.static_cells().collect()),
            false => Statics(Vec::new()),
        }
    }

    fn of_column(&self, column: u32) -> impl Iterator<Item = CellRef<'a>> {
        let from = self.0.partition_point(|cell| cell.column < column);
        self.0[from..].iter().copied().take_while(move |cell| cell.column == column)
    }
}

/// Appends a column that is equal in all rows of a partition. Columns of rows get null.
fn push_of_partition(column: ScanColumn, (token, key): &Position, statics: &Statics<'_>, out: &mut Out) {
    match column {
        ScanColumn::Token => out.push(Some(&token.to_be_bytes())),
        ScanColumn::Key(_) => out.push(Some(key)),
        ScanColumn::Static(column, _) => {
            let cell = statics.of_column(column).find(|cell| cell.path.is_none());
            out.push(cell.and_then(|cell| cell.value()));
        }
        ScanColumn::StaticElements(column) => {
            out.push_elements(statics.of_column(column).filter(|cell| cell.path.is_some()));
        }
        ScanColumn::Clustering(_) | ScanColumn::Cell(..) | ScanColumn::Elements(_) => out.push(None),
    }
}

/// Appends the live elements of a column in these rows.
fn append_elements(
    block: &Block,
    column: u32,
    rows: Range<usize>,
    now_s: u32,
    out: &mut ElementsOut,
) -> Result<(), Malformed> {
    let Some((elements, paths, values)) = block.elements(column)? else {
        out.push_nulls(rows.len());
        return Ok(());
    };
    for row in rows {
        for index in elements.of_row(row) {
            if elements.marks.is_live(&elements.data, index, now_s) {
                values.with(index, |value| out.push(paths.raw(index), value));
            }
        }
        out.end_row();
    }
    Ok(())
}
