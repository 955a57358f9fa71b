//! What a SELECT shows of a row: a column, a part of one, or something about one; and how it is found in what storage has.

use std::borrow::Cow;

use engine::{Error, Rows, Value};
use schema::{ColumnDef, ColumnKind, CqlType, TableDef, token, value};
use storage::{CellRef, PartitionView, RowView};

use crate::change::Seen;
use crate::elements;
use crate::slice::descending;
use crate::term::{Bind, Given};

/// One column of the result.
#[derive(Clone, Debug)]
pub(crate) enum Show {
    /// Component of the partition key.
    Key(usize),
    /// Component of the clustering key.
    Clustering(usize),
    /// A static column's cell, by column number.
    Static(u32),
    /// A cell of the row, by column number.
    Regular(u32),
    /// A column of elements, by its place in the table's `columns`.
    Elements(usize),
    /// A part of a column.
    Inside(Box<Inside>),
    /// Write time of a cell, and whether the cell is static.
    WriteTime(u32, bool),
    /// Seconds left of a cell, and whether the cell is static.
    Ttl(u32, bool),
    /// The partition's token.
    Token,
}

/// `c[k]`, `c.f`, or one of them of the other.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    /// The column's place in the table's `columns`.
    pub(crate) column: usize,
    pub(crate) steps: Vec<Step>,
}

/// One step into a value.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// What a map of this type has under a key, or a set if it has it.
    Key(CqlType, Bind),
    /// A field of a user type, by number.
    Field(usize),
}

impl Show {
    /// A whole column, by its place in the table's `columns`.
    pub(crate) fn column(at: usize, column: &ColumnDef) -> Show {
        match column.kind {
            ColumnKind::PartitionKey(at) => Show::Key(at),
            ColumnKind::Clustering(at, _) => Show::Clustering(at),
            _ if column.ty.is_multi_cell() => Show::Elements(at),
            ColumnKind::Static => Show::Static(column.id),
            ColumnKind::Regular => Show::Regular(column.id),
        }
    }

    /// Whether it looks at what the partition has rather than the row.
    pub(crate) fn is_static(&self, def: &TableDef) -> bool {
        match self {
            Show::Static(_) | Show::WriteTime(_, true) | Show::Ttl(_, true) => true,
            Show::Elements(at) => def.columns[*at].kind == ColumnKind::Static,
            Show::Inside(inside) => def.columns[inside.column].kind == ColumnKind::Static,
            _ => false,
        }
    }

    /// The column whose cells in the row it looks at, if any.
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

    /// Whether it depends on the values of an execution.
    pub(crate) fn is_open(&self) -> bool {
        let Show::Inside(inside) = self else { return false };
        inside.steps.iter().any(|step| matches!(step, Step::Key(_, key) if !key.is_constant()))
    }

    /// The same with the values of an execution in it.
    pub(crate) fn bound(&self, values: &[Value<'_>]) -> Result<Show, Error> {
        let Show::Inside(inside) = self else { return Ok(self.clone()) };
        let step = |step: &Step| match step {
            Step::Key(ty, key) => Ok(Step::Key(ty.clone(), key.fixed(values)?)),
            Step::Field(at) => Ok(Step::Field(*at)),
        };
        let steps = inside.steps.iter().map(step).collect::<Result<_, Error>>()?;
        Ok(Show::Inside(Box::new(Inside { column: inside.column, steps })))
    }
}

/// Steps into a value.
pub(crate) fn inside<'v>(steps: &[Step], mut value: &'v [u8]) -> Result<Option<&'v [u8]>, Error> {
    for step in steps {
        let part = match step {
            Step::Key(ty, key) => match key.get(&[])? {
                Given::Bytes(key) => elements::under_key(ty, value, &key),
                _ => None,
            },
            Step::Field(at) => value::components(value).nth(*at).and_then(Result::ok).flatten(),
        };
        match part {
            Some(part) => value = part,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

/// A row in its partition, or a partition without one.
#[derive(Clone, Copy)]
pub(crate) struct Source<'v> {
    pub(crate) def: &'v TableDef,
    pub(crate) token: i64,
    pub(crate) key: &'v [u8],
    pub(crate) row: Option<&'v RowView>,
    /// Where static columns are; a reader that shows none has no use for it.
    pub(crate) view: Option<&'v PartitionView>,
    pub(crate) now_s: u32,
}

impl<'v> Source<'v> {
    /// Whether the row is there: one with nothing but cells of dropped columns is not.
    pub(crate) fn is_there(&self) -> bool {
        let Some(row) = self.row else { return true };
        if self.def.next_column_id as usize == self.def.columns.len() {
            return true;
        }
        let known = |id| self.def.columns.iter().any(|c| c.id == id && c.kind == ColumnKind::Regular);
        row.liveness().is_some() || row.cells().any(|cell| known(cell.column))
    }

    /// Whether the partition has static cells; those of dropped columns do not count.
    pub(crate) fn has_statics(&self) -> bool {
        let known = |id| self.def.columns.iter().any(|c| c.id == id && c.kind == ColumnKind::Static);
        let all = self.def.next_column_id as usize == self.def.columns.len();
        self.view.is_some_and(|view| view.static_cells().any(|cell| all || known(cell.column)))
    }

    fn cell(&self, id: u32, is_static: bool) -> Option<CellRef<'v>> {
        match is_static {
            true => self.view.and_then(|view| view.static_cell(id)),
            false => self.row.and_then(|row| row.cell(id)),
        }
    }

    /// The live cells of a column, by its number.
    pub(crate) fn seen(&self, id: u32, is_static: bool) -> Vec<Seen> {
        let seen = |cell: CellRef<'_>| {
            let path = cell.path.unwrap_or_default().to_vec();
            Some(Seen { path, value: cell.value()?.to_vec(), timestamp: cell.timestamp })
        };
        let mut all: Vec<Seen> = self.cell(id, is_static).and_then(seen).into_iter().collect();
        match (is_static, self.view, self.row) {
            (true, Some(view), _) => all.extend(view.static_elements(id).filter_map(seen)),
            (false, _, Some(row)) => all.extend(row.elements(id).filter_map(seen)),
            _ => {}
        }
        all
    }

    /// The value of a column that is kept as elements.
    fn elements(&self, column: &ColumnDef) -> Result<Option<Vec<u8>>, Error> {
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

    /// The value of a column, by its place in the table's `columns`.
    pub(crate) fn column(&self, at: usize) -> Result<Option<Cow<'v, [u8]>>, Error> {
        let column = &self.def.columns[at];
        let of_cell = |cell: Option<CellRef<'v>>| cell.and_then(|cell| cell.value()).map(Cow::Borrowed);
        Ok(match Show::column(at, column) {
            Show::Key(at) => Some(Cow::Borrowed(key_part(self.def, self.key, at)?)),
            Show::Clustering(at) => match self.row {
                Some(row) => {
                    let mut part = Vec::new();
                    clustering_part(self.def, row.clustering(), at, &mut part)?;
                    Some(Cow::Owned(part))
                }
                None => None,
            },
            Show::Static(id) => of_cell(self.cell(id, true)),
            Show::Regular(id) => of_cell(self.cell(id, false)),
            _ => self.elements(column)?.map(Cow::Owned),
        })
    }

    /// Appends what is to be shown.
    pub(crate) fn push(&self, show: &Show, rows: &mut Rows, scratch: &mut Vec<u8>) -> Result<(), Error> {
        match show {
            Show::Key(at) => rows.push(Some(key_part(self.def, self.key, *at)?)),
            Show::Clustering(at) => match self.row {
                Some(row) => {
                    scratch.clear();
                    clustering_part(self.def, row.clustering(), *at, scratch)?;
                    rows.push(Some(scratch));
                }
                None => rows.push(None),
            },
            Show::Static(id) => rows.push(self.cell(*id, true).and_then(|c| c.value())),
            Show::Regular(id) => rows.push(self.cell(*id, false).and_then(|c| c.value())),
            Show::Elements(at) => rows.push(self.elements(&self.def.columns[*at])?.as_deref()),
            Show::Inside(part) => {
                let value = self.column(part.column)?;
                rows.push(value.as_deref().map(|value| inside(&part.steps, value)).transpose()?.flatten());
            }
            Show::WriteTime(id, is_static) => match self.cell(*id, *is_static) {
                Some(cell) => rows.push(Some(&cell.timestamp.to_be_bytes())),
                None => rows.push(None),
            },
            Show::Ttl(id, is_static) => match self.cell(*id, *is_static).and_then(|c| c.expiry()) {
                Some(expiry) => {
                    rows.push(Some(&(expiry.at_s.saturating_sub(self.now_s) as i32).to_be_bytes()));
                }
                None => rows.push(None),
            },
            Show::Token => rows.push(Some(&self.token.to_be_bytes())),
        }
        Ok(())
    }
}

fn key_part<'a>(def: &TableDef, key: &'a [u8], at: usize) -> Result<&'a [u8], Error> {
    let count = def.partition_key().count();
    if count == 1 {
        return Ok(key);
    }
    let part = token::partition_key_components(count, key).nth(at).expect("the key has all components");
    part.map_err(|e| Error::Server(format!("a stored partition key is damaged: {e}")))
}

fn clustering_part(def: &TableDef, mut key: &[u8], at: usize, out: &mut Vec<u8>) -> Result<(), Error> {
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
