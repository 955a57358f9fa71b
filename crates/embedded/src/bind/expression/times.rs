//! `writetime`, `maxwritetime` and `ttl` of columns of elements, and of parts of columns.
//!
//! 1. The cells of the column are collected: one, or one for each element.
//! 2. Steps select among elements: a slice keeps several, a key or a field one. Further steps go
//!    into the value of that one cell. If they find nothing, the result is null.
//! 3. Several cells give a list, with nulls for missing fields of a user type; one cell a number.

use std::borrow::Cow;

use engine::{Error, Value};
use schema::{ColumnKind, CqlType, TableDef};
use storage::CellRef;

use super::{Edge, constant, path_of_step, slice_of, step_into};
use crate::bind::elements;
use crate::bind::show::{PathStep, RowSource};
use crate::bind::term::Bind;

/// Property of cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Property {
    WriteTime,
    MaxWriteTime,
    Ttl,
}

/// Step from a column towards a part of it.
#[derive(Clone, Debug)]
pub(crate) enum TimesStep {
    /// An element or a field.
    Into(PathStep),
    /// Elements of a collection of this type between two keys.
    Slice(CqlType, Option<Bind>, Option<Bind>),
}

/// Property of the cells of a part of a column.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    pub(crate) property: Property,
    /// Index in the table's `columns`.
    pub(crate) column: usize,
    pub(crate) steps: Vec<TimesStep>,
}

impl Property {
    /// Returns the property of a function's name.
    pub(crate) fn named(name: &str) -> Option<Property> {
        match name {
            "writetime" => Some(Property::WriteTime),
            "maxwritetime" => Some(Property::MaxWriteTime),
            "ttl" => Some(Property::Ttl),
            _ => None,
        }
    }

    /// Returns the name of its function.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Property::WriteTime => "writetime",
            Property::MaxWriteTime => "maxwritetime",
            Property::Ttl => "ttl",
        }
    }

    fn of(self, cell: &CellRef<'_>, now_s: u32) -> Option<Vec<u8>> {
        match self {
            Property::WriteTime | Property::MaxWriteTime => Some(cell.timestamp.to_be_bytes().to_vec()),
            Property::Ttl => {
                let expiry = cell.expiry()?;
                Some((expiry.at_s.saturating_sub(now_s) as i32).to_be_bytes().to_vec())
            }
        }
    }
}

impl Times {
    /// Returns the type of the result.
    pub(crate) fn result(&self, def: &TableDef) -> CqlType {
        let is_whole = self.steps.iter().all(|step| matches!(step, TimesStep::Slice(..)));
        let of_several = is_whole && def.columns[self.column].ty.is_multi_cell();
        match self.property {
            Property::WriteTime if of_several => CqlType::List(Box::new(CqlType::BigInt)),
            Property::WriteTime | Property::MaxWriteTime => CqlType::BigInt,
            Property::Ttl if of_several => CqlType::List(Box::new(CqlType::Int)),
            Property::Ttl => CqlType::Int,
        }
    }

    /// Returns true if it depends on the partition and not on the row.
    pub(crate) fn is_static(&self, def: &TableDef) -> bool {
        def.columns[self.column].kind == ColumnKind::Static
    }

    /// Binds the values of an execution.
    pub(crate) fn bound(&self, values: &[Value<'_>]) -> Result<Times, Error> {
        let fixed = |bind: &Option<Bind>| bind.as_ref().map(|bind| bind.fixed(values)).transpose();
        let step = |step: &TimesStep| match step {
            TimesStep::Into(step) => Ok(TimesStep::Into(step.bound(values)?)),
            TimesStep::Slice(ty, from, to) => Ok(TimesStep::Slice(ty.clone(), fixed(from)?, fixed(to)?)),
        };
        let steps = self.steps.iter().map(step).collect::<Result<_, Error>>()?;
        Ok(Times { property: self.property, column: self.column, steps })
    }

    /// Returns the value for a row.
    pub(crate) fn value(&self, source: &RowSource<'_>) -> Result<Option<Vec<u8>>, Error> {
        let column = &source.def.columns[self.column];
        let is_static = column.kind == ColumnKind::Static;
        if !column.ty.is_multi_cell() {
            let cell = source.cell(column.id, is_static);
            let value = cell.and_then(|cell| cell.value()).map(Cow::Borrowed);
            return self.of_one(cell, value, &self.steps, source.now_s);
        }
        let mut cells = source.element_cells(column.id, is_static);
        lanes::count(cells.len() as u32);
        for (at, step) in self.steps.iter().enumerate() {
            match step {
                TimesStep::Slice(_, from, to) => narrow(&column.ty, from, to, &mut cells)?,
                TimesStep::Into(step) => {
                    let Some(path) = path_of_step(&column.ty, step)? else { return Ok(None) };
                    let cell = cells.iter().find(|cell| cell.path == Some(&path)).copied();
                    let value = match (step, &column.ty) {
                        (PathStep::Key(_, member), CqlType::Set(_)) => constant(member)?,
                        _ => cell.and_then(|cell| cell.value()).map(Cow::Borrowed),
                    };
                    return self.of_one(cell, value, &self.steps[at + 1..], source.now_s);
                }
            }
        }
        self.of_several(&column.ty, &cells, source.now_s)
    }

    /// Returns the property of one cell, if the steps find something in its value.
    fn of_one(
        &self,
        cell: Option<CellRef<'_>>,
        mut part: Option<Cow<'_, [u8]>>,
        steps: &[TimesStep],
        now_s: u32,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(cell) = cell else { return Ok(None) };
        for step in steps {
            let Some(whole) = part else { return Ok(None) };
            part = match step {
                TimesStep::Into(step) => step_into(step, whole)?,
                TimesStep::Slice(ty, from, to) => {
                    let (from, to) = (edge(from)?, edge(to)?);
                    slice_of(ty, &whole, as_edge(&from), as_edge(&to))?.map(Cow::Owned)
                }
            };
        }
        Ok(part.and_then(|_| self.property.of(&cell, now_s)))
    }

    fn of_several(&self, ty: &CqlType, cells: &[CellRef<'_>], now_s: u32) -> Result<Option<Vec<u8>>, Error> {
        if cells.is_empty() {
            return Ok(None);
        }
        if self.property == Property::MaxWriteTime {
            return Ok(cells.iter().map(|cell| cell.timestamp).max().map(|t| t.to_be_bytes().to_vec()));
        }
        let of = |cell: &CellRef<'_>| self.property.of(cell, now_s);
        let all: Vec<Option<Vec<u8>>> = match ty {
            CqlType::Udt(udt) => {
                let mut fields = vec![None; udt.fields.len()];
                for cell in cells {
                    let at = cell.path.and_then(|path| path.try_into().ok()).map(u16::from_be_bytes);
                    if let Some(field) = at.and_then(|at| fields.get_mut(usize::from(at))) {
                        *field = of(cell);
                    }
                }
                fields
            }
            _ => cells.iter().map(of).collect(),
        };
        let mut out = (all.len() as i32).to_be_bytes().to_vec();
        for value in &all {
            let length = value.as_ref().map_or(-1, |value| value.len() as i32);
            out.extend(length.to_be_bytes());
            out.extend(value.iter().flatten());
        }
        Ok(Some(out))
    }
}

/// Bound of a slice in one execution.
type OwnEdge<'b> = Option<Option<Cow<'b, [u8]>>>;

fn edge(bind: &Option<Bind>) -> Result<OwnEdge<'_>, Error> {
    bind.as_ref().map(constant).transpose()
}

fn as_edge<'e>(edge: &'e OwnEdge<'_>) -> Edge<'e> {
    edge.as_ref().map(Option::as_deref)
}

/// Keeps the elements between two keys. Their paths have the order of the keys.
fn narrow(
    ty: &CqlType,
    from: &Option<Bind>,
    to: &Option<Bind>,
    cells: &mut Vec<CellRef<'_>>,
) -> Result<(), Error> {
    let (from, to) = (edge(from)?, edge(to)?);
    if from == Some(None) || to == Some(None) {
        cells.clear();
        return Ok(());
    }
    let path = |edge: OwnEdge<'_>| edge.flatten().map(|key| elements::path_of(ty, &key)).transpose();
    let (from, to) = (path(from)?, path(to)?);
    cells.retain(|cell| {
        let path = cell.path.unwrap_or_default();
        from.as_deref().is_none_or(|from| path >= from) && to.as_deref().is_none_or(|to| path <= to)
    });
    Ok(())
}
