//! The reader of a block. It decodes the directory at once, and decompresses each region on first
//! use.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::model::codec::{Malformed, Reader};
use crate::model::ranges::Ranges;
use crate::model::row::{EncodedRow, RowBuilder};
use crate::model::{CellRef, CellValue, Deletion, Liveness};
use crate::table::columnar::bits::Bits;
use crate::table::columnar::encode::{HEAD_DELETION, HEAD_RANGES, HEAD_STATICS};
use crate::table::columnar::ints::Ints;
use crate::table::columnar::marks::{ElementMarks, MarkState, Marks};
use crate::table::columnar::region::{Directory, FromRegion, Region, RegionEntry, RegionKind, Store, crc};
use crate::table::columnar::values::{ValueLayout, Values};

/// Memory of a block beside its stored and decompressed bytes: structures and region entries.
const OVERHEAD: usize = 512;

/// The tokens and keys of the partitions, and the first row of each.
#[derive(Debug)]
pub(crate) struct Keys {
    data: Bytes,
    firsts: Ints,
    pub(crate) keys: Values,
}

impl FromRegion for Keys {
    fn from_region(data: Bytes, place: &RegionEntry, rows: usize) -> Result<Keys, Malformed> {
        let mut reader = Reader::new(data.clone());
        reader.skip(place.slots().checked_mul(8).ok_or(Malformed)?)?;
        let firsts = Ints::read(&mut reader, place.slots())?;
        let mut last = 0;
        for part in 0..place.slots() {
            let first = firsts.get(&data, part);
            if first < last || first > rows as i64 || (part == 0 && first != 0) {
                return Err(Malformed);
            }
            last = first;
        }
        let keys = Values::read(data.slice(reader.position()..), place.layout, place.slots())?;
        Ok(Keys { data, firsts, keys })
    }
}

impl Keys {
    #[inline]
    pub(crate) fn token(&self, part: usize) -> i64 {
        i64::from_le_bytes(self.data[8 * part..8 * part + 8].try_into().expect("eight bytes"))
    }

    /// Returns true if each partition has one row, given that there are as many rows as partitions,
    /// or if there is one partition only.
    pub(crate) fn one_row_each(&self) -> bool {
        self.firsts.counts_up() || self.keys.count() == 1
    }

    pub(crate) fn first(&self, part: usize) -> usize {
        self.firsts.get(&self.data, part) as usize
    }

    /// Returns the first partition at or after this position.
    pub(crate) fn lower_bound(&self, token: i64, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.keys.count());
        while low < high {
            let middle = low + (high - low) / 2;
            let own = self.token(middle);
            if own < token || own == token && self.keys.raw(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// The deletions and static cells of a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) deletion: Option<Deletion>,
    pub(crate) statics: Option<EncodedRow>,
    pub(crate) ranges: Ranges,
}

/// The heads of the partitions that have one.
#[derive(Debug)]
pub(crate) struct Heads(Vec<(usize, Head)>);

impl FromRegion for Heads {
    fn from_region(data: Bytes, place: &RegionEntry, _: usize) -> Result<Heads, Malformed> {
        let mut reader = Reader::new(data);
        let mut heads: Vec<(usize, Head)> = Vec::new();
        for _ in 0..place.slots() {
            let part = reader.u32()? as usize;
            let flags = reader.u8()?;
            let mut head = Head::default();
            if flags & HEAD_DELETION != 0 {
                head.deletion = Some(reader.deletion()?);
            }
            if flags & HEAD_STATICS != 0 {
                head.statics = Some(EncodedRow::from_bytes(reader.slice()?)?);
            }
            if flags & HEAD_RANGES != 0 {
                head.ranges = reader.ranges()?;
            }
            if heads.last().is_some_and(|(last, _)| *last >= part) {
                return Err(Malformed);
            }
            heads.push((part, head));
        }
        if reader.rest() == 0 { Ok(Heads(heads)) } else { Err(Malformed) }
    }
}

/// Timestamps, markers and deletions of rows.
#[derive(Debug)]
pub(crate) struct BlockRows {
    data: Bytes,
    timestamps: Ints,
    markers: Marks,
    deletions: Marks,
}

impl FromRegion for BlockRows {
    fn from_region(data: Bytes, _: &RegionEntry, rows: usize) -> Result<BlockRows, Malformed> {
        let mut reader = Reader::new(data.clone());
        let timestamps = Ints::read(&mut reader, rows)?;
        let markers = Marks::read(&mut reader, rows)?;
        let deletions = Marks::read(&mut reader, rows)?;
        if reader.rest() == 0 {
            Ok(BlockRows { data, timestamps, markers, deletions })
        } else {
            Err(Malformed)
        }
    }
}

impl BlockRows {
    #[inline]
    pub(crate) fn timestamp(&self, row: usize) -> i64 {
        self.timestamps.get(&self.data, row)
    }

    pub(crate) fn marker(&self, row: usize) -> Option<Liveness> {
        let timestamp = || self.markers.timestamp(&self.data, row, self.timestamp(row));
        match self.markers.state(&self.data, row)? {
            MarkState::Live(expiry) => Some(Liveness { timestamp: timestamp(), expiry }),
            MarkState::Dead(_) => None,
        }
    }

    pub(crate) fn deletion(&self, row: usize) -> Option<Deletion> {
        match self.deletions.state(&self.data, row)? {
            MarkState::Dead(deleted_at_s) => {
                let timestamp = self.deletions.timestamp(&self.data, row, self.timestamp(row));
                Some(Deletion { timestamp, deleted_at_s })
            }
            MarkState::Live(_) => None,
        }
    }

    /// Returns true if no row was deleted.
    pub(crate) fn undeleted(&self) -> bool {
        self.deletions.special == Bits::None
    }

    /// Returns true if every row has a marker that does not expire.
    fn all_marked(&self) -> bool {
        self.markers.all_live()
    }

    fn is_marked(&self, row: usize, now_s: u32) -> bool {
        self.markers.is_live(&self.data, row, now_s)
    }
}

/// The marks of a column, with the bytes that contain them.
#[derive(Debug)]
pub(crate) struct CellMarks {
    pub(crate) data: Bytes,
    pub(crate) marks: Marks,
}

impl FromRegion for CellMarks {
    fn from_region(data: Bytes, place: &RegionEntry, _: usize) -> Result<CellMarks, Malformed> {
        let mut reader = Reader::new(data.clone());
        let marks = Marks::read(&mut reader, place.slots())?;
        if reader.rest() == 0 { Ok(CellMarks { data, marks }) } else { Err(Malformed) }
    }
}

impl FromRegion for Values {
    fn from_region(data: Bytes, place: &RegionEntry, _: usize) -> Result<Values, Malformed> {
        Values::read(data, place.layout, place.slots())
    }
}

/// A column's regions.
#[derive(Debug)]
struct Column {
    column: u32,
    cells: Option<(Region<CellMarks>, Region<Values>)>,
    /// Boxed, because few columns have elements.
    elements: Option<Box<Elements>>,
}

/// Marks, paths, values.
type Elements = (Region<ElementMarks>, Region<Values>, Region<Values>);

/// A block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) store: Store,
    /// The number of partitions, or parts of partitions.
    pub(crate) parts: usize,
    /// The first partition started in an earlier block.
    pub(crate) continued: bool,
    /// The last partition continues in the next block.
    pub(crate) more: bool,
    keys: Region<Keys>,
    heads: Option<Region<Heads>>,
    clustering: Option<Region<Values>>,
    rows: Option<Region<BlockRows>>,
    /// Ascending.
    columns: Vec<Column>,
    /// Bytes of all regions before compression.
    raw: u64,
}

/// Bytes of a block before compression above which its rows are decoded on a heavy lane: a
/// millisecond. Only a row that is larger than a block's size makes one.
const LARGE: u64 = 1 << 20;

/// The columns that a reader wants, ascending, or `None` for all.
pub(crate) type Wanted<'a> = Option<&'a [u32]>;

impl Block {
    /// Opens a block's stored bytes: checks and decodes its directory, whose checksum is `sum`.
    pub(crate) fn open(bytes: Bytes, directory: usize, sum: u32, file: u64) -> Result<Block, Malformed> {
        let head = bytes.get(..directory).ok_or(Malformed)?;
        if crc(file, head) != sum {
            return Err(Malformed);
        }
        let mut places = Directory::read(head, bytes.len())?;
        let parts = places.parts;
        let rows = places.rows;
        let continued = places.continued;
        let more = places.more;
        let keys = places.take(RegionKind::Keys, 0, Some(parts))?.ok_or(Malformed)?;
        let heads = places.take(RegionKind::Heads, 0, None)?;
        let clustering = places.take(RegionKind::Clustering, 0, Some(rows))?;
        let row_marks = places.take(RegionKind::Rows, 0, Some(rows))?;
        if (rows > 0) != clustering.is_some() || (rows > 0) != row_marks.is_some() {
            return Err(Malformed);
        }
        // Rows of one partition have different clusterings, which take space. So damage cannot
        // claim more rows than bytes.
        let empty =
            |place: Option<RegionEntry>| place.is_some_and(|place| place.layout == ValueLayout::Fixed(0));
        if rows > parts && empty(clustering) || heads.is_some_and(|heads| heads.slots() > parts) {
            return Err(Malformed);
        }
        // A column has at least two regions.
        let (mut columns, mut boxed) = (Vec::with_capacity(places.left() / 2), 0);
        while let Some(column) = places.next().map(|place| place.column) {
            let cells = match places.take(RegionKind::Marks, column, Some(rows))? {
                Some(marks) => {
                    let values = places.take(RegionKind::Values, column, Some(rows))?.ok_or(Malformed)?;
                    Some((Region::new(marks), Region::new(values)))
                }
                None => None,
            };
            let elements = match places.take(RegionKind::ElementMarks, column, None)? {
                Some(marks) => {
                    let paths =
                        places.take(RegionKind::Paths, column, Some(marks.slots()))?.ok_or(Malformed)?;
                    if marks.slots() > rows && empty(Some(paths)) {
                        return Err(Malformed);
                    }
                    let values =
                        places.take(RegionKind::Elements, column, Some(marks.slots()))?.ok_or(Malformed)?;
                    boxed += size_of::<Elements>();
                    Some(Box::new((Region::new(marks), Region::new(paths), Region::new(values))))
                }
                None => None,
            };
            if cells.is_none() && elements.is_none() {
                return Err(Malformed); // a region that does not belong here
            }
            columns.push(Column { column, cells, elements });
        }
        let raw = places.raw;
        let store = Store { bytes, file, rows, unpacked: AtomicUsize::new(boxed) };
        Ok(Block {
            store,
            parts,
            continued,
            more,
            keys: Region::new(keys),
            heads: heads.map(Region::new),
            clustering: clustering.map(Region::new),
            rows: row_marks.map(Region::new),
            columns,
            raw,
        })
    }

    /// Returns true if reading its rows may take milliseconds.
    pub(crate) fn is_large(&self) -> bool {
        self.raw > LARGE
    }

    /// Returns the bytes of memory in use, which grow with each region that is decompressed.
    pub(crate) fn bytes(&self) -> usize {
        let columns = self.columns.capacity() * size_of::<Column>();
        OVERHEAD + columns + self.store.bytes.len() + self.store.unpacked.load(Ordering::Relaxed)
    }

    pub(crate) fn row_count(&self) -> usize {
        self.store.rows
    }

    #[inline]
    pub(crate) fn keys(&self) -> Result<&Keys, Malformed> {
        self.keys.get(&self.store)
    }

    /// Returns the index of the partition with this key.
    pub(crate) fn find(&self, token: i64, key: &[u8]) -> Result<Option<usize>, Malformed> {
        let keys = self.keys()?;
        let part = keys.lower_bound(token, key);
        Ok((part < self.parts && keys.token(part) == token && keys.keys.raw(part) == key).then_some(part))
    }

    /// Returns the rows of a partition.
    pub(crate) fn rows_of(&self, part: usize) -> Result<std::ops::Range<usize>, Malformed> {
        let keys = self.keys()?;
        let end = if part + 1 < self.parts { keys.first(part + 1) } else { self.row_count() };
        Ok(keys.first(part)..end)
    }

    /// Returns the deletions and static cells of a partition, if it has any.
    pub(crate) fn head(&self, part: usize) -> Result<Option<&Head>, Malformed> {
        let Some(heads) = &self.heads else { return Ok(None) };
        let heads = &heads.get(&self.store)?.0;
        Ok(heads.binary_search_by_key(&part, |(part, _)| *part).ok().map(|at| &heads[at].1))
    }

    /// Returns true if any partition has a head.
    pub(crate) fn has_heads(&self) -> bool {
        self.heads.is_some()
    }

    /// Returns true if every row has a marker that does not expire.
    pub(crate) fn all_marked(&self) -> Result<bool, Malformed> {
        Ok(self.row_marks()?.all_marked())
    }

    /// Returns true if a row has a live marker, or a live cell in a column that `counts`. The
    /// caller knows that no deletion shadows its cells.
    pub(crate) fn is_alive(
        &self,
        row: usize,
        now_s: u32,
        counts: impl Fn(u32) -> bool,
    ) -> Result<bool, Malformed> {
        if self.row_marks()?.is_marked(row, now_s) {
            return Ok(true);
        }
        for column in self.columns.iter().filter(|column| counts(column.column)) {
            if let Some((marks, _)) = &column.cells {
                let CellMarks { data, marks } = marks.get(&self.store)?;
                if marks.is_live(data, row, now_s) {
                    return Ok(true);
                }
            }
            if let Some((marks, ..)) = column.elements.as_deref() {
                let elements = marks.get(&self.store)?;
                if elements.of_row(row).any(|index| elements.marks.is_live(&elements.data, index, now_s)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns the cells of a column, without elements of collections.
    pub(crate) fn cells(&self, column: u32) -> Result<Option<(&CellMarks, &Values)>, Malformed> {
        match self.column(column).and_then(|column| column.cells.as_ref()) {
            Some((marks, values)) => Ok(Some((marks.get(&self.store)?, values.get(&self.store)?))),
            None => Ok(None),
        }
    }

    /// Returns the elements of a column: marks, paths, values.
    pub(crate) fn elements(
        &self,
        column: u32,
    ) -> Result<Option<(&ElementMarks, &Values, &Values)>, Malformed> {
        match self.column(column).and_then(|column| column.elements.as_deref()) {
            Some((marks, paths, values)) => {
                Ok(Some((marks.get(&self.store)?, paths.get(&self.store)?, values.get(&self.store)?)))
            }
            None => Ok(None),
        }
    }

    pub(crate) fn clustering(&self) -> Result<&Values, Malformed> {
        self.clustering.as_ref().ok_or(Malformed)?.get(&self.store)
    }

    pub(crate) fn row_marks(&self) -> Result<&BlockRows, Malformed> {
        self.rows.as_ref().ok_or(Malformed)?.get(&self.store)
    }

    /// Returns the column's regions, if the block has it.
    fn column(&self, column: u32) -> Option<&Column> {
        let at = self.columns.binary_search_by_key(&column, |own| own.column).ok()?;
        Some(&self.columns[at])
    }

    /// Returns true if the block has columns that are not wanted.
    pub(crate) fn has_others(&self, wanted: Wanted<'_>) -> bool {
        wanted.is_some_and(|wanted| {
            self.columns.iter().any(|column| wanted.binary_search(&column.column).is_err())
        })
    }

    /// Builds a row from the wanted columns. `key` is the partition key, or empty if the row does
    /// not carry it.
    pub(crate) fn row(&self, key: &[u8], row: usize, wanted: Wanted<'_>) -> Result<EncodedRow, Malformed> {
        let marks = self.row_marks()?;
        let timestamp = marks.timestamp(row);
        let mut builder = RowBuilder::new(key, self.clustering()?.raw(row), timestamp);
        builder.deletion(marks.deletion(row));
        builder.marker(marks.marker(row));
        match wanted {
            None => self
                .columns
                .iter()
                .try_for_each(|column| self.push_cells(&mut builder, column, row, timestamp))?,
            Some(wanted) => {
                for column in wanted.iter().filter_map(|column| self.column(*column)) {
                    self.push_cells(&mut builder, column, row, timestamp)?;
                }
            }
        }
        Ok(builder.finish())
    }

    #[inline]
    fn push_cells(
        &self,
        builder: &mut RowBuilder,
        column: &Column,
        row: usize,
        row_timestamp: i64,
    ) -> Result<(), Malformed> {
        let number = column.column;
        let mut push = |marks: &Marks, data: &[u8], values: &Values, index: usize, path: Option<&[u8]>| {
            let Some(state) = marks.state(data, index) else { return };
            let timestamp = marks.timestamp(data, index, row_timestamp);
            match state {
                MarkState::Dead(deleted_at_s) => {
                    let value = CellValue::Dead { deleted_at_s };
                    builder.push(CellRef { column: number, path, timestamp, value });
                }
                MarkState::Live(expiry) => values.with(index, |value| {
                    let value = CellValue::Live { value, expiry };
                    builder.push(CellRef { column: number, path, timestamp, value });
                }),
            }
        };
        if let Some((marks, values)) = &column.cells {
            let CellMarks { data, marks } = marks.get(&self.store)?;
            push(marks, data, values.get(&self.store)?, row, None);
        }
        if let Some((marks, paths, values)) = column.elements.as_deref() {
            let elements = marks.get(&self.store)?;
            let paths = paths.get(&self.store)?;
            let values = values.get(&self.store)?;
            let mut last: Option<&[u8]> = None;
            for index in elements.of_row(row) {
                let path = paths.raw(index);
                if last.is_some_and(|last| last >= path) {
                    return Err(Malformed);
                }
                push(&elements.marks, &elements.data, values, index, Some(path));
                last = Some(path);
            }
        }
        Ok(())
    }
}
