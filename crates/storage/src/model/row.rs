//! A row in one allocation: all its data and tombstones.
//!
//! ```text
//!  row        key string | clustering string | flags u8 | timestamp i64 |
//!             [marker i64] | [marker expiry] | [deletion] |
//!             directory bytes varint | directory | payload
//!  directory  for each cell: column varint | kind u8 | [timestamp i64] | [expiry] | [deleted at u32] |
//!             [path bytes varint] | [value bytes varint]
//!  payload    path and value of each cell, in the directory's order
//! ```
//!
//! A row is built once, when a request is bound, and its bytes are copied to the log and the
//! memtable. So a write costs a few copies and one allocation, or none if it overwrites a row of
//! the same length. A read in memory follows one pointer and finds the directory in the first cache
//! line. A *string* is a varint length and its bytes. Only memtables store the key, and only in a
//! row that is the only one of its partition. Most cells have the timestamp of the row; others have
//! a flag and their own.
//!
//! Cells are in ascending order of (column, path). An element of a collection, or a field of a user
//! type, is a cell with a path. A dead cell without a path shadows elements of its column with
//! timestamps up to its own.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::model::cells::{
    CHECKED, Cells, DEAD, DELETION, ELEMENTS, EXPIRING, FLAGS, Head, LIVE, MARKER, MARKER_EXPIRY,
    MARKER_TIMESTAMP, MIXED, OWN_TIMESTAMP, PATH, clustering_of, has_elements, head, key_of,
};
use crate::model::codec::{Malformed, put_bytes, put_deletion, put_expiry, put_i64, put_u32, put_varint};
use crate::model::reconcile::{LAYERED_BYTES, floor_of, merge_rows};
use crate::model::{CellRef, CellValue, Deletion, Liveness};

/// Cells that a builder adds in one work unit, at about 25 ns each.
const BUILT_PER_UNIT: u32 = 4;

/// Cells that a search passes in one work unit, at about 5 ns each.
pub(crate) const PASSED_PER_UNIT: u32 = 16;

/// A row. Cheap to clone; a clone never changes.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedRow(Arc<[u8]>);

fn newest(row: &[u8]) -> i64 {
    let head = head(row).expect(CHECKED);
    let of_cells = match head.flags & MIXED {
        0 if head.directory.is_empty() => i64::MIN,
        0 => head.timestamp,
        _ => Cells::new(row, &head).map(|cell| cell.timestamp).max().unwrap_or(i64::MIN),
    };
    let marker = head.marker.map_or(i64::MIN, |marker| marker.timestamp);
    of_cells.max(marker).max(floor_of(head.deletion))
}

/// Size of a cache line, in bytes.
const CACHE_LINE: usize = 64;
/// Lines of a row to prefetch. The hardware prefetcher finds the sequence in longer rows.
const LINES_FETCHED: usize = 8;

impl EncodedRow {
    /// Checks and copies an encoded row.
    ///
    /// # Errors
    /// The bytes are not those of a row.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<EncodedRow, Malformed> {
        let head = head(bytes).filter(|head| head.flags & !FLAGS == 0).ok_or(Malformed)?;
        let mut cells = Cells::new(bytes, &head);
        let mut last: Option<CellRef<'_>> = None;
        while cells.at < cells.end {
            let cell = cells.decode().ok_or(Malformed)?;
            if last.is_some_and(|last| last.place() >= cell.place()) {
                return Err(Malformed);
            }
            last = Some(cell);
        }
        if cells.at == cells.end && cells.payload == bytes.len() {
            Ok(EncodedRow(bytes.into()))
        } else {
            Err(Malformed)
        }
    }

    /// Returns the bytes of the row, for log and files.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    #[inline]
    fn head(&self) -> Head<'_> {
        head(&self.0).expect(CHECKED)
    }

    /// Returns the head and the cells after decoding the head once.
    #[inline]
    pub(crate) fn open(&self) -> (Head<'_>, Cells<'_>) {
        let head = self.head();
        let cells = Cells::new(&self.0, &head);
        (head, cells)
    }

    /// Returns the key of the partition, if the row contains it.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        key_of(&self.0)
    }

    /// Returns the order-preserving encoding of the clustering key. It is empty for the only row of
    /// a table without clustering.
    #[inline]
    pub fn clustering(&self) -> &[u8] {
        clustering_of(&self.0)
    }

    /// Returns the write time of most cells, in microseconds.
    pub fn timestamp(&self) -> i64 {
        self.head().timestamp
    }

    /// Returns the greatest timestamp of the row's cells, marker and deletion, dead or alive;
    /// `i64::MIN` if it has none. Walks the cells if their timestamps differ.
    pub(crate) fn newest(&self) -> i64 {
        newest(&self.0)
    }

    /// Returns the row marker.
    pub fn marker(&self) -> Option<Liveness> {
        self.head().marker
    }

    /// Returns the deletion of the whole row. All other contents are newer.
    pub fn deletion(&self) -> Option<Deletion> {
        self.head().deletion
    }

    /// Returns the cells in ascending order of (column, path).
    pub fn cells(&self) -> Cells<'_> {
        Cells::new(&self.0, &self.head())
    }

    /// Returns true if the row has no marker, deletion or cell.
    pub(crate) fn is_empty(&self) -> bool {
        let head = self.head();
        head.marker.is_none() && head.deletion.is_none() && head.directory.is_empty()
    }

    /// Prefetches the first and last bytes.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.0.first().into_iter().chain(self.0.last()).for_each(lanes::prefetch);
    }

    /// Prefetches the whole row, for a caller that reads all of it.
    #[inline]
    pub(crate) fn prefetch_all(&self) {
        self.0.iter().step_by(CACHE_LINE).take(LINES_FETCHED).chain(self.0.last()).for_each(lanes::prefetch);
    }

    /// Returns true if some cell is an element of a collection or a field of a user type.
    #[inline]
    pub(crate) fn has_elements(&self) -> bool {
        has_elements(&self.0)
    }

    /// Returns the bytes of memory in use: the row and two reference counts.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len() + 16
    }

    /// Returns the row as a draft.
    #[cfg(test)]
    pub(crate) fn draft(&self) -> Draft {
        Draft(Some(Box::new(Parts { out: self.0.to_vec(), ..Parts::default() })))
    }

    /// Returns the row with the key of its partition.
    pub(crate) fn with_key(&self, key: &[u8]) -> EncodedRow {
        if self.key() == key {
            return self.clone();
        }
        let head = self.head();
        let mut builder = RowBuilder::new(key, head.clustering, head.timestamp);
        builder.deletion(head.deletion);
        builder.marker(head.marker);
        self.cells().for_each(|cell| builder.push(cell));
        builder.finish()
    }

    /// Returns true if this row replaces everything in `old`.
    pub(crate) fn supersedes(&self, old: &EncodedRow) -> bool {
        supersedes(&self.0, &old.0)
    }

    /// Returns true if merging a write into this row is cheap: both are small, or the write
    /// replaces all of it.
    #[inline]
    pub(crate) fn takes_in(&self, draft: &Draft) -> bool {
        self.bytes().max(draft.as_bytes().len()) < LAYERED_BYTES || supersedes(draft.as_bytes(), &self.0)
    }

    /// Merges a write to the same row. A write that replaces everything with the same length goes
    /// into the same memory, unless a snapshot shares it.
    pub(crate) fn absorb(&mut self, draft: &Draft) {
        let bytes = draft.as_bytes();
        if !supersedes(bytes, &self.0) {
            *self = merge_rows(self, &draft.row());
            return;
        }
        match Arc::get_mut(&mut self.0) {
            Some(own) if own.len() == bytes.len() => own.copy_from_slice(bytes),
            _ => self.0 = bytes.into(),
        }
    }
}

/// Returns true if a row replaces everything in an older one. Detects the common overwrite without
/// comparing values.
#[inline]
fn supersedes(row: &[u8], old: &[u8]) -> bool {
    const SPECIAL: u8 = MARKER_TIMESTAMP | DELETION | MIXED | ELEMENTS;
    let new_head = head(row).expect(CHECKED);
    let old_head = head(old).expect(CHECKED);
    if (new_head.flags | old_head.flags) & SPECIAL != 0 || new_head.timestamp <= old_head.timestamp {
        return false;
    }
    if old_head.flags & MARKER != 0 && new_head.flags & MARKER == 0 {
        return false;
    }
    if row[new_head.directory.clone()] == old[old_head.directory.clone()] {
        return true;
    }
    let mut ours = Cells::new(row, &new_head);
    Cells::new(old, &old_head).all(|cell| ours.any(|our| our.column == cell.column))
}

impl fmt::Debug for EncodedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.head();
        f.debug_struct("Row")
            .field("clustering", &head.clustering)
            .field("marker", &head.marker)
            .field("deletion", &head.deletion)
            .field("cells", &self.cells().collect::<Vec<_>>())
            .finish()
    }
}

/// Finds cells of a row by column, continuing after the last search. Searches in ascending order
/// walk the row once in total.
#[derive(Clone, Debug)]
pub(crate) struct Finder {
    /// The largest column that was skipped, and the positions after it in directory and payload.
    behind: Cell<(u32, u32, u32)>,
    start: u32,
    end: u32,
    timestamp: i64,
}

impl Finder {
    #[inline]
    pub(crate) fn new(cells: &Cells<'_>) -> Finder {
        let (start, end) = (cells.at as u32, cells.end as u32);
        Finder { behind: Cell::new((0, start, end)), start, end, timestamp: cells.timestamp }
    }

    /// Returns the cells from a column on.
    #[inline]
    pub(crate) fn from<'a>(&self, row: &'a EncodedRow, column: u32) -> Cells<'a> {
        let (passed, at, payload) = self.behind.get();
        let (at, payload) = if column > passed { (at, payload) } else { (self.start, self.end) };
        let mut cells = Cells {
            bytes: &row.0,
            at: at as usize,
            end: self.end as usize,
            payload: payload as usize,
            timestamp: self.timestamp,
        };
        cells.seek(column).expect(CHECKED);
        // The position is valid for every column from this one on.
        self.behind.set((column.saturating_sub(1), cells.at as u32, cells.payload as u32));
        cells
    }
}

/// Positions of the columns of a row that has elements, for searches in any order.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Each column, and the positions of its first cell in directory and payload.
    starts: Arc<[(u32, u32, u32)]>,
    end: u32,
    timestamp: i64,
}

impl Places {
    /// Walks the row once.
    pub(crate) fn of(row: &EncodedRow) -> Places {
        let mut cells = row.cells();
        let (mut starts, mut passed): (Vec<(u32, u32, u32)>, u32) = (Vec::new(), 0);
        while cells.at < cells.end {
            let place = (cells.at as u32, cells.payload as u32);
            let column = cells.decode().expect(CHECKED).column;
            passed += 1;
            if starts.last().is_none_or(|(last, ..)| *last != column) {
                starts.push((column, place.0, place.1));
            }
        }
        lanes::count(passed / PASSED_PER_UNIT);
        Places { starts: starts.into(), end: cells.end as u32, timestamp: cells.timestamp }
    }

    /// Returns the cells from a column on.
    pub(crate) fn from<'a>(&self, row: &'a EncodedRow, column: u32) -> Cells<'a> {
        let at = self.starts.partition_point(|(other, ..)| *other < column);
        let (at, payload) = self.starts.get(at).map_or((self.end, self.end), |start| (start.1, start.2));
        Cells {
            bytes: &row.0,
            at: at as usize,
            end: self.end as usize,
            payload: payload as usize,
            timestamp: self.timestamp,
        }
    }
}

/// Builder of a row. Drops cells that the row's own deletions shadow.
#[derive(Debug)]
pub struct RowBuilder {
    parts: Box<Parts>,
    /// Cells pushed so far.
    pushed: u32,
    timestamp: i64,
    flags: u8,
    marker: Option<Liveness>,
    deletion: Option<Deletion>,
    /// Column of the last cell, and range of its path in the payload.
    last: Option<(u32, Option<Range<usize>>)>,
    /// The last column whose elements were deleted, and the timestamp.
    dead: Option<(u32, i64)>,
}

#[derive(Debug, Default)]
struct Parts {
    out: Vec<u8>,
    directory: Vec<u8>,
    payload: Vec<u8>,
}

/// Maximum size of a buffer that is kept for the next row.
const SPARE_MAX: usize = 64 << 10;

thread_local! {
    static SPARE: Cell<Option<Box<Parts>>> = const { Cell::new(None) };
}

/// An encoded row in a reused buffer, without an allocation of its own.
#[derive(Debug)]
pub struct Draft(Option<Box<Parts>>);

impl Draft {
    /// Returns the encoded row.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0.as_ref().expect("there until it is dropped").out
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        key_of(self.as_bytes())
    }

    #[inline]
    pub(crate) fn clustering(&self) -> &[u8] {
        clustering_of(self.as_bytes())
    }

    /// Returns the greatest timestamp, as [`EncodedRow::newest`] does.
    #[inline]
    pub(crate) fn newest(&self) -> i64 {
        newest(self.as_bytes())
    }

    /// Copies the row into an allocation of its own.
    #[must_use]
    pub fn row(&self) -> EncodedRow {
        EncodedRow(self.as_bytes().into())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let spare = self.0.take().filter(|parts| parts.out.capacity() <= SPARE_MAX);
        // A thread that ends keeps no buffer.
        let _ = SPARE.try_with(|kept| kept.set(spare));
    }
}

impl RowBuilder {
    /// Starts a row at `clustering`. `key` is that of the partition if this is its only row, else
    /// empty. Most cells are written at `timestamp`, in microseconds.
    pub fn new(key: &[u8], clustering: &[u8], timestamp: i64) -> RowBuilder {
        let mut parts = SPARE.with(Cell::take).unwrap_or_default();
        parts.out.clear();
        parts.directory.clear();
        parts.payload.clear();
        put_bytes(&mut parts.out, key);
        put_bytes(&mut parts.out, clustering);
        RowBuilder {
            parts,
            pushed: 0,
            timestamp,
            flags: 0,
            marker: None,
            deletion: None,
            last: None,
            dead: None,
        }
    }

    /// Deletes the row: later calls drop cells and markers that it shadows. Call this before adding
    /// a marker or cells.
    pub fn deletion(&mut self, deletion: Option<Deletion>) {
        assert!(self.last.is_none() && self.marker.is_none(), "a deletion comes before what it may shadow");
        self.deletion = deletion;
    }

    /// Adds a marker: the row exists even without cells.
    pub fn marker(&mut self, marker: Option<Liveness>) {
        self.marker = marker.filter(|marker| !self.shadows(marker.timestamp));
    }

    #[inline]
    fn shadows(&self, timestamp: i64) -> bool {
        self.deletion.is_some_and(|deletion| timestamp <= deletion.timestamp)
    }

    /// Adds a cell. Cells must be in ascending order of (column, path).
    #[inline]
    pub fn push(&mut self, cell: CellRef<'_>) {
        let path_of = |range: &Option<Range<usize>>| range.clone().map(|range| &self.parts.payload[range]);
        let ascends = match &self.last {
            Some((column, path)) => (*column, path_of(path)) < cell.place(),
            None => true,
        };
        assert!(ascends, "cells of a row ascend by column and path");
        // One instruction, unlike a checked addition. A row has fewer cells than 2^32.
        self.pushed = self.pushed.wrapping_add(1);
        if self.shadows(cell.timestamp) {
            return;
        }
        if cell.path.is_some()
            && self.dead.is_some_and(|(column, at)| column == cell.column && cell.timestamp <= at)
        {
            return;
        }
        if cell.path.is_none() && matches!(cell.value, CellValue::Dead { .. }) {
            self.dead = Some((cell.column, cell.timestamp));
        }
        let Parts { directory, payload, .. } = &mut *self.parts;
        put_varint(directory, u64::from(cell.column));
        let mut kind = match &cell.value {
            CellValue::Live { expiry: None, .. } => LIVE,
            CellValue::Live { .. } => EXPIRING,
            CellValue::Dead { .. } => DEAD,
        };
        if cell.timestamp != self.timestamp {
            kind |= OWN_TIMESTAMP;
            self.flags |= MIXED;
        }
        if cell.path.is_some() {
            kind |= PATH;
            self.flags |= ELEMENTS;
        }
        directory.push(kind);
        if cell.timestamp != self.timestamp {
            put_i64(directory, cell.timestamp);
        }
        match &cell.value {
            CellValue::Live { expiry: Some(expiry), .. } => put_expiry(directory, expiry),
            CellValue::Dead { deleted_at_s } => put_u32(directory, *deleted_at_s),
            CellValue::Live { .. } => {}
        }
        let path = cell.path.map(|path| {
            put_varint(directory, path.len() as u64);
            payload.extend_from_slice(path);
            payload.len() - path.len()..payload.len()
        });
        if let CellValue::Live { value, .. } = &cell.value {
            put_varint(directory, value.len() as u64);
            payload.extend_from_slice(value);
        }
        self.last = Some((cell.column, path));
    }

    /// Returns the bytes of paths and values so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.payload.len()
    }

    /// Returns true if no cell has been added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Returns the finished row.
    pub fn finish(self) -> EncodedRow {
        self.draft().row()
    }

    /// Returns the finished row in a buffer that the next row will reuse.
    #[must_use]
    pub fn draft(mut self) -> Draft {
        if self.pushed >= BUILT_PER_UNIT {
            lanes::count(self.pushed / BUILT_PER_UNIT);
        }
        lanes::count_copied(self.parts.payload.len());
        let Parts { out, directory, payload } = &mut *self.parts;
        let own = self.marker.filter(|marker| marker.timestamp != self.timestamp);
        let expiry = self.marker.and_then(|marker| marker.expiry);
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        out.push(
            self.flags
                | flag(self.marker.is_some(), MARKER)
                | flag(own.is_some(), MARKER_TIMESTAMP)
                | flag(expiry.is_some(), MARKER_EXPIRY)
                | flag(self.deletion.is_some(), DELETION),
        );
        put_i64(out, self.timestamp);
        if let Some(marker) = own {
            put_i64(out, marker.timestamp);
        }
        if let Some(expiry) = &expiry {
            put_expiry(out, expiry);
        }
        if let Some(deletion) = &self.deletion {
            put_deletion(out, deletion);
        }
        put_bytes(out, directory);
        out.extend_from_slice(payload);
        Draft(Some(self.parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Expiry;

    fn sample() -> EncodedRow {
        let mut row = RowBuilder::new(b"key", b"place", 7);
        row.deletion(Some(Deletion { timestamp: 3, deleted_at_s: 4 }));
        row.marker(Some(Liveness { timestamp: 9, expiry: Some(Expiry { ttl_s: 1, at_s: 2 }) }));
        row.push(CellRef::live(0, 7, &[1; 200]));
        row.push(CellRef::live(1, 3, b"shadowed"));
        row.push(CellRef::expiring(2, 8, b"soon", Expiry { ttl_s: 5, at_s: 6 }));
        row.push(CellRef::dead(300, 7, 11));
        row.push(CellRef::live(300, 7, b"shadowed").at(b"a"));
        row.push(CellRef::live(300, 8, b"element").at(b"b"));
        row.finish()
    }

    #[test]
    fn row_round_trip_keeps_all_parts() {
        let row = sample();
        let cells = [
            CellRef::live(0, 7, &[1; 200]),
            CellRef::expiring(2, 8, b"soon", Expiry { ttl_s: 5, at_s: 6 }),
            CellRef::dead(300, 7, 11),
            CellRef::live(300, 8, b"element").at(b"b"),
        ];
        assert_eq!((row.key(), row.clustering(), row.timestamp()), (&b"key"[..], &b"place"[..], 7));
        assert_eq!(row.deletion(), Some(Deletion { timestamp: 3, deleted_at_s: 4 }));
        assert_eq!(row.marker().expect("a marker").timestamp, 9);
        assert_eq!(row.cells().collect::<Vec<_>>(), cells);
        assert_eq!(EncodedRow::from_bytes(row.as_bytes()), Ok(row.clone()));
        let finder = Finder::new(&row.cells());
        for column in [0, 2, 300, 1, 300, 0, 2, 301, 5, 300] {
            let expected = cells.iter().find(|cell| cell.column >= column).copied();
            assert_eq!(finder.from(&row, column).next(), expected, "column {column}");
            assert_eq!(Places::of(&row).from(&row, column).next(), expected, "column {column}");
        }
        assert_eq!(row.with_key(b"other").with_key(b"key"), row);
    }

    #[test]
    fn damaged_row_is_refused_or_readable() {
        let good = sample();
        let good = good.as_bytes();
        let mut passed = 0;
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.to_vec();
                bytes[at] ^= 1 << bit;
                if let Ok(row) = EncodedRow::from_bytes(&bytes) {
                    passed += row.cells().count().min(1);
                    let _ = (row.key(), row.clustering(), row.marker(), row.deletion());
                }
            }
            assert!(EncodedRow::from_bytes(&good[..at]).is_err(), "cut at {at}");
        }
        assert!(passed > 1000, "values carry no structure: {passed}");
    }
}
