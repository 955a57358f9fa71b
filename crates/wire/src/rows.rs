//! RESULT of kind Rows. Cells are written directly into the output buffer, and read without
//! copying.

use crate::body::Body;
use crate::columns::{Columns, ColumnsRef, METADATA_CHANGED, MORE_PAGES, NO_METADATA, read_count};
use crate::read::{Reader, out_of_range};
use crate::{Error, Version};

/// Metadata before the rows of a result.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowsHead<'a> {
    /// Start of the next page. `None` on the last page.
    pub paging_state: Option<&'a [u8]>,
    /// v5: the new id of the result metadata, if the client holds another id. The metadata is then
    /// sent even if the client asked to skip it. Ignored in v4.
    pub new_metadata_id: Option<&'a [u8]>,
    /// Omit the column descriptions, on request of the client.
    pub skip_metadata: bool,
}

/// Writer of rows. Write all cells, row after row, then call [`RowsWriter::end`].
#[derive(Debug)]
pub struct RowsWriter<'e> {
    body: Body<'e>,
    columns: usize,
    cells: usize,
    /// Offset of the row count, which `end` patches.
    count_at: usize,
}

pub(crate) const ROWS_KIND: i32 = 2;

impl<'e> RowsWriter<'e> {
    /// Continues a RESULT body with the metadata of its rows.
    pub(crate) fn begin(mut body: Body<'e>, head: &RowsHead<'_>, columns: &Columns) -> RowsWriter<'e> {
        body.int(ROWS_KIND);
        write_metadata(&mut body, head, columns);
        let count_at = body.position();
        body.int(0);
        RowsWriter { body, columns: columns.len(), cells: 0, count_at }
    }

    /// Appends the next cell of the current row. `None` is null.
    #[inline]
    pub fn cell(&mut self, value: Option<&[u8]>) {
        self.cells += 1;
        self.body.bytes(value);
    }

    /// Appends encoded cells, and counts `rows` rows: the cells of a row may come in several calls.
    /// Each cell is a `[bytes]`: an `i32` length (-1 for null), then the value.
    #[inline]
    pub fn encoded(&mut self, rows: usize, cells: &[u8]) {
        self.cells += rows * self.columns;
        self.body.raw(cells);
    }

    /// Returns the size of the message in bytes so far, for servers that limit pages by size.
    pub fn written(&self) -> usize {
        self.body.position() - self.body.start
    }

    /// Ends the result.
    ///
    /// # Errors
    /// Those of [`Body::end`].
    ///
    /// # Panics
    /// Panics if the cells do not form whole rows, because the client would misread the result.
    pub fn end(mut self) -> Result<(), Error> {
        let rows = match self.columns {
            0 => 0,
            columns => self.cells / columns,
        };
        assert_eq!(self.cells, rows * self.columns, "expected whole rows of {} cells", self.columns);
        let rows = i32::try_from(rows).map_err(|_| Error::TooLong { field: "rows", length: rows })?;
        self.body.patch_int(self.count_at, rows);
        self.body.end()
    }
}

/// Writes `<flags><count>[paging state][new metadata id][columns]`.
pub(crate) fn write_metadata(body: &mut Body<'_>, head: &RowsHead<'_>, columns: &Columns) {
    let new_id = head.new_metadata_id.filter(|_| body.version() >= Version::V5);
    let skip = (head.skip_metadata && new_id.is_none()) || columns.is_empty();
    let mut flags = if skip { NO_METADATA } else { columns.flags() };
    if head.paging_state.is_some() {
        flags |= MORE_PAGES;
    }
    if new_id.is_some() {
        flags |= METADATA_CHANGED;
    }
    body.int(flags);
    match i32::try_from(columns.len()) {
        Ok(count) => body.int(count),
        Err(_) => body.count(columns.len(), "columns"),
    }
    if let Some(state) = head.paging_state {
        body.bytes(Some(state));
    }
    if let Some(id) = new_id {
        body.short_bytes(id);
    }
    if !skip {
        columns.write(body);
    }
}

/// Metadata of a result, as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResultMetadata<'a> {
    /// Cells in each row.
    pub columns_count: usize,
    /// Column descriptions. `None` if the server omitted them.
    pub columns: Option<ColumnsRef<'a>>,
    /// Start of the next page. `None` on the last page.
    pub paging_state: Option<&'a [u8]>,
    /// v5: the new id of the metadata.
    pub new_metadata_id: Option<&'a [u8]>,
}

impl<'a> ResultMetadata<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<ResultMetadata<'a>, Error> {
        let flags = reader.int("metadata flags")?;
        let columns_count = read_count(reader, "number of columns")?;
        let paging_state = if flags & MORE_PAGES != 0 { reader.bytes("paging state")? } else { None };
        let changed = flags & METADATA_CHANGED != 0;
        let new_metadata_id = if changed { Some(reader.short_bytes("metadata id")?) } else { None };
        let columns = match flags & NO_METADATA {
            0 => Some(ColumnsRef::read(reader, flags, columns_count)?),
            _ => None,
        };
        Ok(ResultMetadata { columns_count, columns, paging_state, new_metadata_id })
    }
}

/// Rows as received. The cells are validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceivedRows<'a> {
    /// Metadata before the rows.
    pub metadata: ResultMetadata<'a>,
    count: usize,
    cells: &'a [u8],
}

impl<'a> ReceivedRows<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<ReceivedRows<'a>, Error> {
        let metadata = ResultMetadata::read(reader)?;
        let count = read_count(reader, "number of rows")?;
        if metadata.columns_count == 0 && count > 0 {
            return Err(out_of_range("number of columns", 0));
        }
        let cells = count.saturating_mul(metadata.columns_count);
        reader.check_count(cells, 4, "cells")?;
        let whole = reader.rest();
        for _ in 0..cells {
            reader.bytes("cell")?;
        }
        Ok(ReceivedRows { metadata, count, cells: &whole[..whole.len() - reader.rest().len()] })
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over all cells, row after row. A row has [`ResultMetadata::columns_count`] cells.
    /// `None` is null.
    pub fn cells(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut reader = Reader::new(self.cells);
        // These reads cannot fail: `read` has validated the bytes.
        (0..self.count * self.metadata.columns_count).map_while(move |_| reader.bytes("cell").ok())
    }

    /// Iterates over the rows, each as its cells.
    pub fn iter(&self) -> impl Iterator<Item = Vec<Option<&'a [u8]>>> + use<'a> {
        let mut cells = self.cells();
        let columns = self.metadata.columns_count;
        (0..self.count).map(move |_| cells.by_ref().take(columns).collect())
    }
}
