//! Aggregates by column, for long scans: over all rows of a core, or over a long partition.
//!
//! 1. The fast lane takes a snapshot of the core's part of the table.
//! 2. A heavy lane gets the columns that aggregates and filters need, a batch of rows at a time.
//! 3. Filters select runs of rows. Each column is added to its aggregates run by run
//!    ([`functions::Column`]). Arguments that are more than a column are evaluated row by row.
//! 4. After some batches the scan returns to the fast lane, like a portion of rows.
//!
//! The states of the aggregates are those of a scan by rows, so that each core chooses by itself.
//! A partition is long if its first rows did not end it: the states of these go on with columns.
//! Short scans, groups and parts of columns are read by row. So are ranges of one partition, which
//! storage finds faster. The results are the same bytes. If an aggregate rounds, or if it can
//! choose among equal values, partitions come in token order.
//!
//! Columns of numbers have no place for CQL's values without bytes. If there is one, all rows of
//! the scan are read again, by row.
//!
//! **Bounds.** A scan holds one batch of [`PORTION_BYTES_MAX`] and a block's rows, and the
//! snapshot's files and memtables until it ends.

use std::borrow::Cow;
use std::ops::{Bound, Range, RangeInclusive};
use std::rc::Rc;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use bytes::Bytes;
use engine::Error;
use functions::Column;
use schema::{CqlType, TableDef};
use storage::{BatchRequest, BatchScan, ColumnType, ScanColumn, Shard, TableId, Visited};

use crate::bind::expression::groups::{Groups, OpenGroup};
use crate::bind::expression::{Expr, Leaf, Row};
use crate::bind::show::{Show, clustering_part, key_part};
use crate::bind::slice::{self, is_in};
use crate::heavy_lane::heavy;
use crate::read::chunk::Chunk;
use crate::read::partition::{PartitionKey, Slice};
use crate::read::row_answer::units_of_row;
use crate::read::scan::{PORTION_BYTES_MAX, Scan};
use crate::storage_error;
use crate::table_scan::columns::plain_type;
use crate::table_scan::existing_columns;

/// Rows of a core's part of a table from which it is scanned by column. By row they take about a
/// millisecond. Fewer are not worth a snapshot and the way to a heavy lane.
const LONG_ROWS: f64 = 1000.0;

/// Rows of a partition that are read by row before the rest is read by column.
pub(super) const PARTITION_ROWS: usize = 1000;

/// Rows of a batch. A column of numbers then stays in the first caches, and the 2 µs of making a
/// batch are less than 1 ns a row.
const BATCH_ROWS: usize = 4096;

/// Rows that are added to an aggregate between yields: decimals, at 200 ns each, take 0.8 ms.
const ROWS_BETWEEN_YIELDS: usize = 4096;

/// Batches that a core adds before it returns to the coordinator: 130,000 rows, which take some
/// milliseconds. They are added to the end even if the client is gone.
const PORTION_BATCHES: usize = 32;

/// Columns that aggregates and filters name, at most. With more, rows are read one by one.
const NAMED_MAX: usize = 256;

/// Way from storage's column to values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Whole,
    /// Component of the partition key.
    Key(usize),
    /// Component of the clustering key.
    Clustering(usize),
}

/// Values of a column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Input {
    /// Index in the columns of a batch.
    from: usize,
    part: Part,
}

/// Argument of an aggregate.
#[derive(Debug)]
enum Argument {
    /// None: all rows count.
    Rows,
    /// Column, by the number of its input.
    Column(usize),
    /// Expression over the values of inputs, which are [`Leaf::First`], and its work units.
    Computed(Expr, u32),
}

/// Rows of a scan.
struct Extent {
    /// Key of the only partition.
    key: Option<Bytes>,
    /// Ranges of clustering keys.
    ranges: Option<Arc<[slice::Range]>>,
}

/// End of a portion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stopped {
    /// There are more rows.
    Portion,
    /// There are no more rows.
    End,
    /// Columns cannot hold the rows.
    Unfit,
}

/// Scan of one core's part of a table by column.
#[derive(Debug)]
pub(super) struct ColumnScan {
    scan: BatchScan,
    slice: Slice,
    inputs: Vec<Input>,
    /// Partition that is read, and the input with the key of each row.
    key: Option<(Bytes, usize)>,
    /// Ranges of clustering keys that are read, and the input with the clustering key of each row.
    ranges: Option<(Arc<[slice::Range]>, usize)>,
    /// Input of each filter.
    filters: Vec<usize>,
    /// Argument of each aggregate.
    arguments: Vec<Argument>,
    group: OpenGroup,
    visited: Visited,
}

impl ColumnScan {
    /// Starts the scan of all rows of this core. `None`: they are to be read by row.
    pub(super) fn of_core(scan: &Scan, shard: &Rc<Shard>) -> Option<Box<ColumnScan>> {
        let Scan { slice, tokens } = scan;
        let groups = slice.projection.group_of_all().filter(|groups| groups.firsts.shown.is_empty())?;
        let size = shard.table_size(TableId(slice.def.data_id().as_u128()));
        if size.rows as f64 * fraction(tokens) < LONG_ROWS {
            return None;
        }
        let ranges = (!slice.whole).then(|| slice.ranges.clone());
        ColumnScan::open(slice, shard, tokens.clone(), Extent { key: None, ranges }, groups.without_rows())
    }

    /// Starts the scan of the rest of a partition, behind a row. `group` has the rows before that
    /// pass the filters. `None`: it is to be read by row.
    pub(super) fn of_partition(
        slice: &Slice,
        shard: &Rc<Shard>,
        partition: PartitionKey<'_>,
        last: &Bytes,
        group: Option<&OpenGroup>,
    ) -> Option<Box<ColumnScan>> {
        let groups = slice.projection.group_of_all().filter(|_| slice.whole)?;
        let group = match group {
            Some(group) => group.clone(),
            None if groups.firsts.shown.is_empty() => groups.without_rows(),
            None => return None,
        };
        let PartitionKey { token, key } = partition;
        let rest: slice::Range = (Bound::Excluded(last.clone()), Bound::Unbounded);
        let extent = Extent { key: Some(key.clone()), ranges: Some(Arc::from([rest])) };
        ColumnScan::open(slice, shard, token..=token, extent, group)
    }

    fn open(
        slice: &Slice,
        shard: &Rc<Shard>,
        tokens: RangeInclusive<i64>,
        extent: Extent,
        group: OpenGroup,
    ) -> Option<Box<ColumnScan>> {
        let groups = slice.projection.group_of_all()?;
        let has_source = slice.probe.is_some() || slice.view.is_some() || slice.nearest.is_some();
        let is_wide = groups.leaves + slice.filters.len() > NAMED_MAX;
        if has_source || is_wide || slice.distinct || slice.reversed {
            return None;
        }
        let mut inputs = Inputs { def: &slice.def, columns: Vec::new(), all: Vec::new() };
        let arguments = arguments(&mut inputs, groups)?;
        let column = |column: usize| Show::column(column, &slice.def.columns[column]);
        let filters = slice.filters.iter().map(|filter| inputs.number(&column(filter.column)));
        let filters = filters.collect::<Option<_>>()?;
        let key = extent.key.map(|key| (key, inputs.stored(ScanColumn::Key(ColumnType::Binary))));
        let ranges =
            extent.ranges.map(|ranges| (ranges, inputs.stored(ScanColumn::Clustering(ColumnType::Binary))));
        let bounds = ranges.as_ref().and_then(|(ranges, _)| Some((&ranges.first()?.0, &ranges.last()?.1)));
        let request = BatchRequest {
            tokens: vec![tokens],
            clustering: bounds.map_or((Bound::Unbounded, Bound::Unbounded), |(a, b)| (a.clone(), b.clone())),
            known: existing_columns(&slice.def),
            bytes: PORTION_BYTES_MAX,
            in_order: groups.aggregates.iter().any(|call| call.aggregate.depends_on_order()),
            bypass_cache: slice.bypass_cache,
            ..BatchRequest::all(inputs.columns, BATCH_ROWS)
        };
        let table = TableId(slice.def.data_id().as_u128());
        Some(Box::new(ColumnScan {
            scan: shard.batch_snapshot(table, slice.now_s).scan(request),
            inputs: inputs.all,
            key,
            ranges,
            filters,
            arguments,
            group,
            visited: Visited::default(),
            slice: slice.clone(),
        }))
    }

    /// Adds a portion on a heavy lane, and counts its rows.
    pub(super) async fn portion(
        mut self: Box<Self>,
        chunk: &mut Chunk,
    ) -> Result<(Box<ColumnScan>, Stopped), Error> {
        let run = async move {
            let stopped = self.run().await;
            (self, stopped)
        };
        let (mut columns, stopped) = heavy(run).await;
        let visited = std::mem::take(&mut columns.visited);
        columns.slice.reads.add(visited.rows, visited.bytes);
        chunk.count_dead(&columns.slice.def, visited.dead)?;
        Ok((columns, stopped?))
    }

    /// Adds up to [`PORTION_BATCHES`] batches.
    async fn run(&mut self) -> Result<Stopped, Error> {
        for _ in 0..PORTION_BATCHES {
            let batch = self.scan.next().await.map_err(storage_error)?;
            let Visited { rows, dead, bytes, has_empty } = self.scan.take_visited();
            self.visited.rows += rows;
            self.visited.dead += dead;
            self.visited.bytes += bytes;
            if has_empty {
                return Ok(Stopped::Unfit);
            }
            let Some(batch) = batch else { return Ok(Stopped::End) };
            for start in (0..batch.num_rows()).step_by(ROWS_BETWEEN_YIELDS) {
                let rows = ROWS_BETWEEN_YIELDS.min(batch.num_rows() - start);
                self.add(&batch.slice(start, rows)).await?;
            }
        }
        Ok(Stopped::Portion)
    }

    /// Returns the group of all rows that were added.
    pub(super) fn into_group(self) -> OpenGroup {
        self.group
    }

    /// Adds rows to the aggregates.
    async fn add(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let mut columns = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            columns.push(input.values(&self.slice.def, batch)?);
            lanes::heavy_yield().await;
        }
        let runs = self.selected(&columns, batch.num_rows()).await;
        for (argument, at) in self.arguments.iter().zip(0..) {
            let state = &mut self.group.states[at];
            match argument {
                Argument::Rows => state.add_rows(runs.iter().map(Range::len).sum()),
                Argument::Column(input) => {
                    let array = &columns[*input];
                    runs.iter()
                        .for_each(|run| present(array, run, |run| state.add_column(column(array, run))));
                }
                Argument::Computed(expr, units) => {
                    let groups = self.slice.projection.group_of_all().expect("it has been checked");
                    let moment = &groups.aggregates[at].arguments.moment;
                    for row in runs.iter().cloned().flatten() {
                        let row = BatchRow { columns: &columns, row };
                        state.add(&[expr.value(&row, moment)?.as_deref()]);
                        if lanes::spend(*units) {
                            lanes::yield_now().await;
                        }
                    }
                }
            }
            lanes::heavy_yield().await;
        }
        Ok(())
    }

    /// Returns the runs of rows that are to be read and pass all filters. Borrows mutably because
    /// two threads cannot share a scan of storage.
    async fn selected(&mut self, columns: &[ArrayRef], rows: usize) -> Vec<Range<usize>> {
        let every = 0..rows;
        if self.filters.is_empty() && self.key.is_none() && self.ranges.is_none() {
            return vec![every];
        }
        let mut passes = vec![true; rows];
        if let Some((key, input)) = &self.key {
            retain(&mut passes, &columns[*input], |own| own == &key[..]);
        }
        if let Some((ranges, input)) = &self.ranges {
            retain(&mut passes, &columns[*input], |clustering| is_in(ranges, clustering));
        }
        for (filter, input) in self.slice.filters.iter().zip(&self.filters) {
            let ty = &self.slice.def.columns[filter.column].ty;
            retain(&mut passes, &columns[*input], |value| filter.passes(ty, Some(value)));
            lanes::heavy_yield().await;
        }
        let mut end = 0;
        let runs = passes.chunk_by(|one, next| one == next).filter_map(|run| {
            end += run.len();
            run[0].then(|| end - run.len()..end)
        });
        runs.collect()
    }
}

/// Keeps the marks of rows whose values pass. Nulls never do.
fn retain(marks: &mut Vec<bool>, array: &ArrayRef, passes: impl Fn(&[u8]) -> bool) {
    let before = std::mem::replace(marks, vec![false; marks.len()]);
    present(array, &(0..before.len()), |run| {
        let mut row = run.start;
        column(array, run).each(|value| {
            marks[row] = before[row] && passes(value);
            row += 1;
        });
    });
}

/// Returns the fraction of all tokens.
fn fraction(tokens: &RangeInclusive<i64>) -> f64 {
    let count = i128::from(*tokens.end()) - i128::from(*tokens.start()) + 1;
    count as f64 / (u128::from(u64::MAX) + 1) as f64
}

/// Returns the arguments of all aggregates. `None`: one reads more than whole columns.
fn arguments(inputs: &mut Inputs<'_>, groups: &Groups) -> Option<Vec<Argument>> {
    let mut argument = |shown: &[Expr]| match shown {
        [] => Some(Argument::Rows),
        [Expr::Leaf(Leaf::Show(show))] => inputs.number(show).map(Argument::Column),
        [expr] => {
            let (mut expr, mut weight, mut is_fit) = (expr.clone(), 0, true);
            expr.walk(&mut |_| weight += 1);
            expr.replace_leaves(&mut |leaf| {
                let number = match leaf {
                    Expr::Leaf(Leaf::Show(show)) => inputs.number(show),
                    _ => None,
                };
                match number {
                    Some(number) => *leaf = Expr::Leaf(Leaf::First(number)),
                    None => is_fit = false,
                }
            });
            is_fit.then(|| Argument::Computed(expr, units_of_row(weight)))
        }
        _ => None,
    };
    groups.aggregates.iter().map(|call| argument(&call.arguments.shown)).collect()
}

/// Columns of a scan, each once.
struct Inputs<'d> {
    def: &'d TableDef,
    columns: Vec<ScanColumn>,
    all: Vec<Input>,
}

impl Inputs<'_> {
    /// Returns the number of the input with these values. `None`: they are not those of a column
    /// that is stored in one piece.
    fn number(&mut self, show: &Show) -> Option<usize> {
        let (column, part) = source(self.def, show)?;
        Some(self.part(column, part))
    }

    /// Returns the number of the input with the values of storage's column.
    fn stored(&mut self, column: ScanColumn) -> usize {
        self.part(column, Part::Whole)
    }

    fn part(&mut self, column: ScanColumn, part: Part) -> usize {
        let from = number_of(&mut self.columns, column);
        number_of(&mut self.all, Input { from, part })
    }
}

/// Returns the place of an item in a list, where it is added if it is missing.
fn number_of<T: PartialEq>(all: &mut Vec<T>, item: T) -> usize {
    all.iter().position(|own| *own == item).unwrap_or_else(|| {
        all.push(item);
        all.len() - 1
    })
}

/// Returns storage's column of a column.
fn source(def: &TableDef, show: &Show) -> Option<(ScanColumn, Part)> {
    let of_cell = |id: u32| def.columns.iter().find(|column| column.id == id).map(|column| kind(&column.ty));
    Some(match show {
        Show::Key(_) if def.partition_key().count() == 1 => {
            (ScanColumn::Key(kind(&def.partition_key().next()?.ty)), Part::Whole)
        }
        Show::Key(at) => (ScanColumn::Key(ColumnType::Binary), Part::Key(*at)),
        Show::Clustering(at) => (ScanColumn::Clustering(ColumnType::Binary), Part::Clustering(*at)),
        Show::Static(id) => (ScanColumn::Static(*id, of_cell(*id)?), Part::Whole),
        Show::Regular(id) => (ScanColumn::Cell(*id, of_cell(*id)?), Part::Whole),
        Show::Elements(_) | Show::Inside(_) | Show::WriteTime(..) | Show::Ttl(..) | Show::Token => {
            return None;
        }
    })
}

/// Returns the column for values of a type: of numbers, or of bytes as stored.
fn kind(ty: &CqlType) -> ColumnType {
    match plain_type(ty) {
        None | Some(ColumnType::Boolean | ColumnType::Utf8) => ColumnType::Binary,
        Some(number) => number,
    }
}

impl Input {
    /// Returns the values in the rows of a batch.
    fn values(self, def: &TableDef, batch: &RecordBatch) -> Result<ArrayRef, Error> {
        let from = batch.column(self.from);
        if self.part == Part::Whole {
            return Ok(from.clone());
        }
        let keys = from.as_binary::<i32>();
        let mut parts = BinaryBuilder::with_capacity(keys.len(), keys.value_data().len());
        let mut scratch = Vec::new();
        for key in keys {
            match (key, self.part) {
                (Some(key), Part::Key(at)) => parts.append_value(key_part(def, key, at)?),
                (Some(key), Part::Clustering(at)) => {
                    scratch.clear();
                    clustering_part(def, key, at, &mut scratch)?;
                    parts.append_value(&scratch);
                }
                _ => parts.append_null(),
            }
        }
        Ok(Arc::new(parts.finish()))
    }
}

/// Calls `f` with the stretches of rows of a run in which a column is not null.
fn present(array: &ArrayRef, run: &Range<usize>, mut f: impl FnMut(Range<usize>)) {
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => f(run.clone()),
        Some(nulls) => {
            let nulls = nulls.slice(run.start, run.len());
            nulls.valid_slices().for_each(|(start, end)| f(run.start + start..run.start + end));
        }
    }
}

/// Returns the values of rows in which none is null.
fn column(array: &ArrayRef, run: Range<usize>) -> Column<'_> {
    match array.data_type() {
        DataType::Int8 => Column::Int8(&array.as_primitive::<Int8Type>().values()[run]),
        DataType::Int16 => Column::Int16(&array.as_primitive::<Int16Type>().values()[run]),
        DataType::Int32 => Column::Int32(&array.as_primitive::<Int32Type>().values()[run]),
        DataType::Int64 => Column::Int64(&array.as_primitive::<Int64Type>().values()[run]),
        DataType::UInt32 => Column::UInt32(&array.as_primitive::<UInt32Type>().values()[run]),
        DataType::Float32 => Column::Float32(&array.as_primitive::<Float32Type>().values()[run]),
        DataType::Float64 => Column::Float64(&array.as_primitive::<Float64Type>().values()[run]),
        _ => {
            let bytes = array.as_binary::<i32>();
            Column::Bytes { data: bytes.value_data(), offsets: &bytes.value_offsets()[run.start..=run.end] }
        }
    }
}

/// One row of the values of all inputs.
struct BatchRow<'b> {
    columns: &'b [ArrayRef],
    row: usize,
}

impl Row for BatchRow<'_> {
    fn leaf(&self, leaf: &Leaf) -> Result<Option<Cow<'_, [u8]>>, Error> {
        let Leaf::First(input) = leaf else { return Err(Error::Server("a batch has inputs only".into())) };
        let array = &self.columns[*input];
        if array.is_null(self.row) {
            return Ok(None);
        }
        if let Some(bytes) = array.as_binary_opt::<i32>() {
            return Ok(Some(Cow::Borrowed(bytes.value(self.row))));
        }
        let mut number = Vec::new();
        column(array, self.row..self.row + 1).each(|value| number.extend_from_slice(value));
        Ok(Some(Cow::Owned(number)))
    }
}
