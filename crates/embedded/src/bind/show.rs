//! Columns of a SELECT's result: a column, a part of one, or a property of one; and how to find it
//! in a row.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Deref;

use engine::{Error, Value};
use schema::{ColumnDef, ColumnKind, CqlType, TableDef, token, value};
use storage::{CellRef, PartitionView, RowView};

use crate::bind::change::Seen;
use crate::bind::elements;
use crate::bind::slice::descending;
use crate::bind::term::{Bind, Given};

/// Column of the result.
#[derive(Clone, Debug)]
pub(crate) enum Show {
    /// Component of the partition key.
    Key(usize),
    /// Component of the clustering key.
    Clustering(usize),
    /// Cell of a static column, by column number.
    Static(u32),
    /// Cell of the row, by column number.
    Regular(u32),
    /// Column of elements, by its index in the table's `columns`.
    Elements(usize),
    /// Part of a column.
    Inside(Box<Inside>),
    /// Write time of a cell, by column number; true for a static cell.
    WriteTime(u32, bool),
    /// Remaining seconds of a cell, by column number; true for a static cell.
    Ttl(u32, bool),
    /// Token of the partition.
    Token,
}

/// Columns of a result.
#[derive(Clone, Debug)]
pub(crate) struct Shows {
    all: Box<[Show]>,
    /// Most often that one column of the table is shown.
    repeats: usize,
    /// Bytes of a row of nulls, with the fields of user types.
    null_bytes: usize,
    are_simple: bool,
}

impl Shows {
    pub(crate) fn new(def: &TableDef, all: Vec<Show>) -> Shows {
        let mut shown: HashMap<(u8, usize), usize> = HashMap::new();
        let mut null_bytes = 0;
        for show in &all {
            *shown.entry(show.source_column(def)).or_default() += 1;
            let fields = match show {
                Show::Elements(at) => match &def.columns[*at].ty {
                    CqlType::Udt(udt) => udt.fields.len(),
                    _ => 1,
                },
                _ => 0,
            };
            null_bytes += FIXED_BYTES + NULL_BYTES * fields;
        }
        let are_simple = !all.iter().any(|show| matches!(show, Show::Elements(_) | Show::Inside(_)));
        Shows { all: all.into(), repeats: shown.into_values().max().unwrap_or(0), null_bytes, are_simple }
    }

    /// Returns how often one column of the table is shown, at most.
    pub(crate) fn repeats(&self) -> usize {
        self.repeats
    }

    /// Returns true if a row of the result has at most `limit` bytes, judging by the sizes of the
    /// row and of the static cells.
    #[inline]
    pub(crate) fn fits(&self, source: &RowSource<'_>, limit: usize) -> bool {
        // An element has at least 3 bytes in the directory of its row, and up to 8 in the result.
        let with_elements = |times: usize| {
            let row = source.row.map_or(0, RowView::bytes) * times;
            let statics = source.view.map_or(0, PartitionView::static_bytes) * 4;
            let stored = row + source.key.len() + statics;
            stored.saturating_mul(self.repeats).saturating_add(self.null_bytes)
        };
        // Most rows are so small that it need not be known if they have elements.
        with_elements(4) <= limit
            || source.row.is_some_and(|row| !row.has_elements()) && with_elements(1) <= limit
    }

    /// Returns true if no column is assembled from elements or shown in parts.
    pub(crate) fn are_simple(&self) -> bool {
        self.are_simple
    }

    /// Binds the values of an execution.
    pub(crate) fn bound(&self, values: &[Value<'_>]) -> Result<Shows, Error> {
        let all = self.all.iter().map(|show| show.bound(values)).collect::<Result<_, _>>()?;
        Ok(Shows { all, ..*self })
    }
}

impl Deref for Shows {
    type Target = [Show];

    fn deref(&self) -> &[Show] {
        &self.all
    }
}

/// Bytes of a null, or of the number of elements.
const NULL_BYTES: usize = 4;

/// Bytes of a cell without a value, or with a timestamp or a token.
const FIXED_BYTES: usize = 4 + 8;

/// `c[k]`, `c.f`, or a nested combination of them.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    /// Index in the table's `columns`.
    pub(crate) column: usize,
    pub(crate) steps: Vec<PathStep>,
}

/// Step into a value.
#[derive(Clone, Debug)]
pub(crate) enum PathStep {
    /// Map value, or set member, at a key of a collection of this type.
    Key(CqlType, Bind),
    /// Field of a user type, by number.
    Field(usize),
}

impl Show {
    /// Returns a whole column, by its index in the table's `columns`.
    pub(crate) fn column(at: usize, column: &ColumnDef) -> Show {
        match column.kind {
            ColumnKind::PartitionKey(at) => Show::Key(at),
            ColumnKind::Clustering(at, _) => Show::Clustering(at),
            _ if column.ty.is_multi_cell() => Show::Elements(at),
            ColumnKind::Static => Show::Static(column.id),
            ColumnKind::Regular => Show::Regular(column.id),
        }
    }

    /// Returns the kind and the number of the column that it is made of.
    fn source_column(&self, def: &TableDef) -> (u8, usize) {
        let whole = |at: usize| match def.columns[at].kind {
            ColumnKind::PartitionKey(at) => (0, at),
            ColumnKind::Clustering(at, _) => (1, at),
            ColumnKind::Static | ColumnKind::Regular => (2, def.columns[at].id as usize),
        };
        match self {
            Show::Key(at) => (0, *at),
            Show::Clustering(at) => (1, *at),
            Show::Static(id) | Show::Regular(id) | Show::WriteTime(id, _) | Show::Ttl(id, _) => {
                (2, *id as usize)
            }
            Show::Elements(at) => whole(*at),
            Show::Inside(inside) => whole(inside.column),
            Show::Token => (3, 0),
        }
    }

    /// Returns true if it depends on the partition and not on the row.
    pub(crate) fn is_static(&self, def: &TableDef) -> bool {
        match self {
            Show::Static(_) | Show::WriteTime(_, true) | Show::Ttl(_, true) => true,
            Show::Elements(at) => def.columns[*at].kind == ColumnKind::Static,
            Show::Inside(inside) => def.columns[inside.column].kind == ColumnKind::Static,
            _ => false,
        }
    }

    /// Returns the number of the column whose cells in the row it needs, if any.
    pub(crate) fn cells_of(&self, def: &TableDef) -> Option<u32> {
        match self {
            Show::Regular(id) | Show::WriteTime(id, false) | Show::Ttl(id, false) => Some(*id),
            Show::Elements(at) => Some(def.columns[*at].id),
            Show::Inside(inside) => {
                let column = &def.columns[inside.column];
                matches!(column.kind, ColumnKind::Regular).then_some(column.id)
            }
            Show::Key(_) | Show::Clustering(_) | Show::Static(_) | Show::Token => None,
            Show::WriteTime(_, true) | Show::Ttl(_, true) => None,
        }
    }

    /// Returns true if it depends on the values of an execution.
    pub(crate) fn is_open(&self) -> bool {
        let Show::Inside(inside) = self else { return false };
        inside.steps.iter().any(|step| matches!(step, PathStep::Key(_, key) if !key.is_constant()))
    }

    /// Binds the values of an execution.
    pub(crate) fn bound(&self, values: &[Value<'_>]) -> Result<Show, Error> {
        let Show::Inside(inside) = self else { return Ok(self.clone()) };
        let steps = inside.steps.iter().map(|step| step.bound(values)).collect::<Result<_, Error>>()?;
        Ok(Show::Inside(Box::new(Inside { column: inside.column, steps })))
    }
}

impl PathStep {
    /// Binds the values of an execution.
    pub(crate) fn bound(&self, values: &[Value<'_>]) -> Result<PathStep, Error> {
        match self {
            PathStep::Key(ty, key) => Ok(PathStep::Key(ty.clone(), key.fixed(values)?)),
            PathStep::Field(at) => Ok(PathStep::Field(*at)),
        }
    }
}

/// Applies steps to a value.
pub(crate) fn inside<'v>(steps: &[PathStep], mut value: &'v [u8]) -> Result<Option<&'v [u8]>, Error> {
    for step in steps {
        let part = match step {
            PathStep::Key(ty, key) => match key.get(&[])? {
                Given::Bytes(key) => elements::value_at_key(ty, value, &key),
                _ => None,
            },
            PathStep::Field(at) => value::components(value).nth(*at).and_then(Result::ok).flatten(),
        };
        match part {
            Some(part) => value = part,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

/// Row in its partition, or a partition without rows.
#[derive(Clone, Copy)]
pub(crate) struct RowSource<'v> {
    pub(crate) def: &'v TableDef,
    pub(crate) token: i64,
    pub(crate) key: &'v [u8],
    pub(crate) row: Option<&'v RowView>,
    /// Clustering key, if it is not that of `row`: rows of a view have one of their own.
    pub(crate) place: Option<&'v [u8]>,
    /// Source of static cells; `None` if the reader shows none.
    pub(crate) view: Option<&'v PartitionView>,
    pub(crate) now_s: u32,
}

impl<'v> RowSource<'v> {
    /// Returns the clustering key. It is empty for a partition without rows.
    #[inline]
    pub(crate) fn clustering(&self) -> &'v [u8] {
        match (self.place, self.row) {
            (Some(place), _) => place,
            (None, Some(row)) => row.clustering(),
            (None, None) => &[],
        }
    }

    /// Returns true if the row exists. A row with nothing but cells of dropped columns does not.
    pub(crate) fn exists(&self) -> bool {
        let Some(row) = self.row else { return true };
        if self.def.next_column_id as usize == self.def.columns.len() {
            return true;
        }
        let known = |id| self.def.columns.iter().any(|c| c.id == id && c.kind == ColumnKind::Regular);
        row.liveness().is_some() || row.cells().any(|cell| known(cell.column))
    }

    /// Returns true if the partition has static cells, not counting those of dropped columns.
    pub(crate) fn has_statics(&self) -> bool {
        let known = |id| self.def.columns.iter().any(|c| c.id == id && c.kind == ColumnKind::Static);
        let all = self.def.next_column_id as usize == self.def.columns.len();
        self.view.is_some_and(|view| view.static_cells().any(|cell| all || known(cell.column)))
    }

    pub(crate) fn cell(&self, id: u32, is_static: bool) -> Option<CellRef<'v>> {
        match is_static {
            true => self.view.and_then(|view| view.static_cell(id)),
            false => self.row.and_then(|row| row.cell(id)),
        }
    }

    /// Returns true if a static or regular column has a value.
    pub(crate) fn has(&self, column: &ColumnDef) -> bool {
        let is_static = column.kind == ColumnKind::Static;
        let has_elements = || match (is_static, self.view, self.row) {
            (true, Some(view), _) => view.static_elements(column.id).next().is_some(),
            (false, _, Some(row)) => row.elements(column.id).next().is_some(),
            _ => false,
        };
        self.cell(column.id, is_static).is_some() || has_elements()
    }

    /// Returns the cells of the elements of a column, by number, in the order of their paths.
    pub(crate) fn element_cells(&self, id: u32, is_static: bool) -> Vec<CellRef<'v>> {
        let is_live = |cell: &CellRef<'v>| cell.path.is_some() && cell.value().is_some();
        match (is_static, self.view, self.row) {
            (true, Some(view), _) => view.static_elements(id).filter(is_live).collect(),
            (false, _, Some(row)) => row.elements(id).filter(is_live).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the live cells of a column, by number.
    pub(crate) fn seen(&self, id: u32, is_static: bool) -> Vec<Seen<'v>> {
        let seen = |cell: CellRef<'v>| {
            let path = cell.path.unwrap_or_default();
            Some(Seen { path, value: cell.value()?, timestamp: cell.timestamp })
        };
        let mut all: Vec<Seen<'v>> = self.cell(id, is_static).and_then(seen).into_iter().collect();
        match (is_static, self.view, self.row) {
            (true, Some(view), _) => all.extend(view.static_elements(id).filter_map(seen)),
            (false, _, Some(row)) => all.extend(row.elements(id).filter_map(seen)),
            _ => {}
        }
        lanes::count(all.len() as u32);
        all
    }

    /// Returns the value of a column that is stored as elements.
    pub(crate) fn elements(&self, column: &ColumnDef) -> Result<Option<Vec<u8>>, Error> {
        fn pair<'e>(cell: CellRef<'e>) -> Option<(&'e [u8], &'e [u8])> {
            Some((cell.path?, cell.value()?))
        }
        match (column.kind, self.view, self.row) {
            (ColumnKind::Static, Some(view), _) => {
                elements::to_value(&column.ty, view.static_elements(column.id).filter_map(pair))
            }
            (ColumnKind::Regular, _, Some(row)) => {
                elements::to_value(&column.ty, row.elements(column.id).filter_map(pair))
            }
            _ => Ok(None),
        }
    }

    /// Returns the value of a column, by its index in the table's `columns`.
    pub(crate) fn column(&self, at: usize) -> Result<Option<Cow<'v, [u8]>>, Error> {
        let column = &self.def.columns[at];
        let of_cell = |cell: Option<CellRef<'v>>| cell.and_then(|cell| cell.value()).map(Cow::Borrowed);
        Ok(match Show::column(at, column) {
            Show::Key(at) => Some(Cow::Borrowed(key_part(self.def, self.key, at)?)),
            Show::Clustering(at) => match self.row {
                Some(_) => {
                    let mut part = Vec::new();
                    clustering_part(self.def, self.clustering(), at, &mut part)?;
                    Some(Cow::Owned(part))
                }
                None => None,
            },
            Show::Static(id) => of_cell(self.cell(id, true)),
            Show::Regular(id) => of_cell(self.cell(id, false)),
            _ => self.elements(column)?.map(Cow::Owned),
        })
    }

    /// Returns the value of any column of the result.
    pub(crate) fn value(&self, show: &Show) -> Result<Option<Cow<'v, [u8]>>, Error> {
        let of_cell = |cell: Option<CellRef<'v>>| cell.and_then(|cell| cell.value()).map(Cow::Borrowed);
        match show {
            Show::Static(id) => Ok(of_cell(self.cell(*id, true))),
            Show::Regular(id) => Ok(of_cell(self.cell(*id, false))),
            Show::Key(at) => Ok(Some(Cow::Borrowed(key_part(self.def, self.key, *at)?))),
            Show::Elements(at) => self.column(*at),
            Show::Inside(part) => Ok(match self.column(part.column)? {
                Some(Cow::Borrowed(whole)) => inside(&part.steps, whole)?.map(Cow::Borrowed),
                Some(Cow::Owned(whole)) => inside(&part.steps, &whole)?.map(|part| Cow::Owned(part.to_vec())),
                None => None,
            }),
            _ => {
                let mut scratch = Vec::new();
                Ok(self.simple(show, &mut scratch)?.map(|value| Cow::Owned(value.to_vec())))
            }
        }
    }

    /// Returns the value of a column of the result that is stored in one piece. Values that are not
    /// stored so are made in `scratch`.
    ///
    /// # Panics
    /// Panics for elements and parts of a column.
    #[inline]
    pub(crate) fn simple<'s>(&self, show: &Show, scratch: &'s mut Vec<u8>) -> Result<Option<&'s [u8]>, Error>
    where
        'v: 's,
    {
        let mut made = |bytes: &[u8]| {
            scratch.clear();
            scratch.extend_from_slice(bytes);
        };
        match show {
            Show::Key(at) => return Ok(Some(key_part(self.def, self.key, *at)?)),
            Show::Static(id) => return Ok(self.cell(*id, true).and_then(|c| c.value())),
            Show::Regular(id) => return Ok(self.cell(*id, false).and_then(|c| c.value())),
            Show::Clustering(at) => {
                if self.row.is_none() {
                    return Ok(None);
                }
                scratch.clear();
                clustering_part(self.def, self.clustering(), *at, scratch)?;
            }
            Show::WriteTime(id, is_static) => match self.cell(*id, *is_static) {
                Some(cell) => made(&cell.timestamp.to_be_bytes()),
                None => return Ok(None),
            },
            Show::Ttl(id, is_static) => match self.cell(*id, *is_static).and_then(|c| c.expiry()) {
                Some(expiry) => made(&(expiry.at_s.saturating_sub(self.now_s) as i32).to_be_bytes()),
                None => return Ok(None),
            },
            Show::Token => made(&self.token.to_be_bytes()),
            Show::Elements(_) | Show::Inside(_) => unreachable!("the caller assembles elements"),
        }
        Ok(Some(scratch))
    }
}

pub(crate) fn key_part<'a>(def: &TableDef, key: &'a [u8], at: usize) -> Result<&'a [u8], Error> {
    let count = def.partition_key().count();
    if count == 1 {
        return Ok(key);
    }
    let part = token::partition_key_components(count, key).nth(at).expect("the key has all components");
    part.map_err(|e| Error::Server(format!("a stored partition key is damaged: {e}")))
}

pub(crate) fn clustering_part(
    def: &TableDef,
    mut key: &[u8],
    at: usize,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    for (place, column) in def.clustering().enumerate() {
        let before = out.len();
        value::decode_key_part(&column.ty, descending(column), &mut key, out)
            .map_err(|e| Error::Server(format!("a stored clustering key is damaged: {e}")))?;
        if place == at {
            return Ok(());
        }
        out.truncate(before);
    }
    Ok(())
}
