//! One row of an answer. A statement of some kilobytes can show a value of a megabyte thousands of
//! times, in each of thousands of rows:
//!
//! 1. If the stored row is so small that its answer is small too, the answer is built at once.
//! 2. Otherwise collections are assembled, each once, and the bytes of the answer are counted.
//! 3. A row over [`ROW_BYTES_MAX`] is refused. A page ends before a row that does not fit.
//! 4. The bytes are charged, and then copied.
//!
//! A heavy lane does all but the first.

use std::borrow::Cow;
use std::collections::BTreeMap;

use engine::{Error, ROW_BYTES_MAX, ResultRows};

pub(crate) use crate::bind::expression::too_large;

use crate::bind::expression::Computed;
use crate::bind::projection::Projection;
use crate::bind::show::{RowSource, Show, Shows, inside};
use crate::read::chunk::Chunk;

/// Largest row of an answer that is built without counting its bytes first, on the fast lane.
const SMALL_BYTES: usize = 128 << 10;

/// Columns of a row that cost one work unit to find.
const COLUMNS_PER_UNIT: usize = 4;

/// Returns true if the answer of a row is small, judging by the stored row alone. Otherwise a heavy
/// lane adds it.
#[inline]
pub(crate) fn is_small(projection: &Projection, source: &RowSource<'_>) -> bool {
    projection.fits(source, SMALL_BYTES)
}

/// Adds a row to the chunk. Returns false if it does not fit: the page ends before it. Rows of
/// groups are added by their groups.
///
/// # Errors
/// Returns an error if the row is too large for any answer, or if there is no memory for it.
pub(crate) fn add(projection: &Projection, source: &RowSource<'_>, chunk: &mut Chunk) -> Result<bool, Error> {
    let before = chunk.rows.cells.len();
    let is_added = match projection {
        Projection::Rows(shows) if !is_small(projection, source) => add_large(shows, source, chunk)?,
        Projection::Rows(shows) => {
            chunk.begin_row();
            push_small(shows, source, &mut chunk.rows)?;
            chunk.bound()?;
            true
        }
        Projection::Computed(computed) => add_computed(computed, source, chunk)?,
        Projection::Groups(_) => return Err(Error::Server("a row was added without its group".into())),
    };
    lanes::count_copied(chunk.rows.cells.len().saturating_sub(before));
    Ok(is_added)
}

/// Adds a row of expressions, as [`add`] does.
fn add_computed(computed: &Computed, source: &RowSource<'_>, chunk: &mut Chunk) -> Result<bool, Error> {
    let row = computed.row(source)?;
    let bytes = row.iter().map(|value| 4 + value.as_ref().map_or(0, |value| value.len())).sum();
    if !chunk.admits(bytes, bytes)? {
        return Ok(false);
    }
    chunk.begin_row();
    row.iter().for_each(|value| chunk.rows.push(value.as_deref()));
    chunk.bound()?;
    Ok(true)
}

/// Appends the cells of a row that [`is_small`].
#[inline]
pub(crate) fn push_small(shows: &Shows, source: &RowSource<'_>, rows: &mut ResultRows) -> Result<(), Error> {
    if !shows.are_simple() {
        return push_assembled(shows, source, rows);
    }
    let mut scratch = Vec::new();
    for show in shows.iter() {
        rows.push(match show {
            // Most columns, without the way through a result.
            Show::Regular(id) => source.cell(*id, false).and_then(|cell| cell.value()),
            show => source.simple(show, &mut scratch)?,
        });
    }
    Ok(())
}

/// Appends the cells of a row with columns that are assembled.
fn push_assembled(shows: &Shows, source: &RowSource<'_>, rows: &mut ResultRows) -> Result<(), Error> {
    let (mut scratch, mut wholes) = (Vec::new(), Wholes::default());
    for show in shows.iter() {
        match assembled(show) {
            None => rows.push(source.simple(show, &mut scratch)?),
            Some(_) => rows.push(wholes.value(source, show)?),
        }
    }
    Ok(())
}

/// Adds a row of any size, as [`add`] does.
fn add_large(shows: &Shows, source: &RowSource<'_>, chunk: &mut Chunk) -> Result<bool, Error> {
    let (mut scratch, mut wholes) = (Vec::new(), Wholes::default());
    let mut bytes = 0;
    for show in shows.iter() {
        let value = match assembled(show) {
            None => source.simple(show, &mut scratch)?,
            Some(_) => wholes.value(source, show)?,
        };
        bytes += 4 + value.map_or(0, <[u8]>::len);
        if bytes > ROW_BYTES_MAX {
            return Err(too_large(bytes));
        }
        chunk.grants.cover(chunk.rows.cells.len() + wholes.bytes)?;
    }
    if !chunk.admits(bytes, wholes.bytes)? {
        return Ok(false);
    }
    chunk.begin_row();
    for show in shows.iter() {
        match assembled(show) {
            None => chunk.rows.push(source.simple(show, &mut scratch)?),
            Some(_) => chunk.rows.push(wholes.value(source, show)?),
        }
    }
    chunk.bound()?;
    Ok(true)
}

/// Returns the work units of the columns of a row, and of its filters.
pub(crate) fn units_of_row(columns: usize) -> u32 {
    1 + (columns / COLUMNS_PER_UNIT) as u32
}

/// Returns the column of which a part or the elements are shown, by its index.
fn assembled(show: &Show) -> Option<usize> {
    match show {
        Show::Elements(at) => Some(*at),
        Show::Inside(part) => Some(part.column),
        _ => None,
    }
}

/// Values of columns that are stored as elements or shown in parts, each assembled once.
#[derive(Default)]
struct Wholes<'v> {
    values: BTreeMap<usize, Option<Cow<'v, [u8]>>>,
    /// Bytes of the values that were assembled.
    bytes: usize,
}

impl<'v> Wholes<'v> {
    /// Returns the value of a show for which [`assembled`] returns a column.
    fn value(&mut self, source: &RowSource<'v>, show: &Show) -> Result<Option<&[u8]>, Error> {
        let column = assembled(show).expect("the caller has checked it");
        let whole = match self.values.entry(column) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                let value = source.column(column)?;
                if let Some(Cow::Owned(value)) = &value {
                    self.bytes += value.len();
                }
                place.insert(value)
            }
        };
        let whole = whole.as_deref();
        match show {
            Show::Inside(part) => Ok(whole.map(|value| inside(&part.steps, value)).transpose()?.flatten()),
            _ => Ok(whole),
        }
    }
}
