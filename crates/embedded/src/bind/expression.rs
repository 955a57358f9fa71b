//! Expressions over a row: selectors that are more than a column, typed when the statement is
//! prepared, and evaluated by value.
//!
//! An expression is a tree over [`Leaf`]s, which a [`Row`] knows: columns of a stored or a virtual
//! row, write times of elements, or the results of aggregates for a group of rows. Bind markers
//! become constants before the expression is sent to the cores that own the rows.

pub(crate) mod groups;
pub(crate) mod operand;
pub(crate) mod times;

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Error, ROW_BYTES_MAX, Value};
use functions::Function;
use schema::{CqlType, TableDef, value};

use crate::bind::elements;
use crate::bind::show::{PathStep, RowSource, Show, inside};
use crate::bind::term::operand::{Moment, failed};
use crate::bind::term::{Bind, Given};
use times::Times;

/// Input of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Leaf {
    /// Column, or a part or property of one.
    Show(Show),
    /// Write times or times to live of elements and fields.
    Times(Box<Times>),
    /// Value of the first row of a group, or of a row of a batch of columns, by number.
    First(usize),
    /// Result of an aggregate over a group, by number.
    Total(usize),
}

/// Typed expression.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Leaf(Leaf),
    /// Constant, marker, or call of a function by these.
    Bind(Bind),
    /// Call of a function.
    Call(Arc<Function>, Box<[Expr]>),
    /// Element or field of a value.
    Step(Box<Expr>, PathStep),
    /// Elements of a set or map of this type between two keys, both included.
    Slice(Box<Expr>, CqlType, Option<Bind>, Option<Bind>),
    /// Collection, tuple or value of a user type of this type, of its parts. Keys and values of a
    /// map alternate.
    Parts(CqlType, Box<[Expr]>),
}

/// Source of the values of leaves.
pub(crate) trait Row {
    /// Returns the value of a leaf. `None` is null.
    fn leaf(&self, leaf: &Leaf) -> Result<Option<Cow<'_, [u8]>>, Error>;
}

/// Expressions that are computed for each row.
#[derive(Clone, Debug)]
pub(crate) struct Computed {
    pub(crate) shown: Box<[Expr]>,
    /// Expressions of all trees.
    pub(crate) weight: usize,
    /// Leaves of all trees.
    pub(crate) leaves: usize,
    pub(crate) moment: Moment,
}

impl Computed {
    pub(crate) fn new(shown: Vec<Expr>) -> Computed {
        let (mut weight, mut leaves) = (0, 0);
        for expr in &shown {
            expr.walk(&mut |expr| {
                weight += 1;
                leaves += usize::from(matches!(expr, Expr::Leaf(_)));
            });
        }
        Computed { shown: shown.into(), weight, leaves, moment: Moment::now() }
    }

    /// Replaces expressions. Returns true if `f` returned true for one.
    pub(crate) fn replace(&mut self, mut f: impl FnMut(&mut Expr) -> bool) -> bool {
        let mut shown = std::mem::take(&mut self.shown);
        let replaced = shown.iter_mut().fold(false, |any, expr| f(expr) | any);
        *self = Computed::new(shown.into_vec());
        replaced
    }

    /// Binds the values of an execution.
    pub(crate) fn bound(&self, values: &[Value<'_>], moment: Moment) -> Result<Computed, Error> {
        let shown = self.shown.iter().map(|expr| expr.bound(values)).collect::<Result<_, _>>()?;
        Ok(Computed { shown, moment, ..*self })
    }

    /// Returns the values of a row.
    ///
    /// # Errors
    /// Returns an error if a function fails, or if the row is larger than any answer may be.
    pub(crate) fn row<'r>(&'r self, row: &'r dyn Row) -> Result<Vec<Option<Cow<'r, [u8]>>>, Error> {
        let mut bytes = 0;
        let mut out = Vec::with_capacity(self.shown.len());
        for expr in &self.shown {
            let value = expr.value(row, &self.moment)?;
            bytes += 4 + value.as_ref().map_or(0, |value| value.len());
            check_size(bytes)?;
            out.push(value);
        }
        Ok(out)
    }

    /// Returns the numbers of the columns whose cells in the row it needs, with duplicates.
    pub(crate) fn cells_of(&self, def: &TableDef) -> Vec<u32> {
        let mut columns = Vec::new();
        for expr in &self.shown {
            expr.walk(&mut |expr| match expr {
                Expr::Leaf(Leaf::Show(show)) => columns.extend(show.cells_of(def)),
                Expr::Leaf(Leaf::Times(times)) => columns.push(def.columns[times.column].id),
                _ => {}
            });
        }
        columns
    }

    /// Returns true if an expression depends on the partition's static columns.
    pub(crate) fn shows_statics(&self, def: &TableDef) -> bool {
        self.shown.iter().any(|expr| expr.shows_statics(def))
    }
}

impl Row for RowSource<'_> {
    fn leaf(&self, leaf: &Leaf) -> Result<Option<Cow<'_, [u8]>>, Error> {
        match leaf {
            Leaf::Show(show) => self.value(show),
            Leaf::Times(times) => Ok(times.value(self)?.map(Cow::Owned)),
            Leaf::First(_) | Leaf::Total(_) => Err(Error::Server("a row has no group".into())),
        }
    }
}

/// Returns the error for a row that no answer can hold.
pub(crate) fn too_large(bytes: usize) -> Error {
    Error::Invalid(format!(
        "expected at most {ROW_BYTES_MAX} bytes in one row of an answer, got {bytes} or more: \
         select fewer columns, and each of them once"
    ))
}

/// Checks the bytes of a value or a row that is being computed.
fn check_size(bytes: usize) -> Result<(), Error> {
    if bytes > ROW_BYTES_MAX { Err(too_large(bytes)) } else { Ok(()) }
}

impl Expr {
    /// Returns the value for a row; `None` is null.
    ///
    /// # Errors
    /// Returns an error if a function fails, or if the row is damaged.
    pub(crate) fn value<'r>(
        &'r self,
        row: &'r dyn Row,
        moment: &Moment,
    ) -> Result<Option<Cow<'r, [u8]>>, Error> {
        match self {
            Expr::Leaf(leaf) => row.leaf(leaf),
            Expr::Bind(bind) => constant(bind),
            Expr::Call(function, arguments) => {
                let given = arguments.iter().map(|argument| argument.value(row, moment));
                let given = given.collect::<Result<Vec<_>, Error>>()?;
                let given: Vec<Option<&[u8]>> = given.iter().map(Option::as_deref).collect();
                let result = function.call(&given, moment).map_err(failed)?;
                // Nested calls could double the bytes each time.
                check_size(result.as_ref().map_or(0, Vec::len))?;
                Ok(result.map(Cow::Owned))
            }
            Expr::Step(base, step) => match base.value(row, moment)? {
                Some(whole) => step_into(step, whole),
                None => Ok(None),
            },
            Expr::Slice(base, ty, from, to) => {
                let Some(whole) = base.value(row, moment)? else { return Ok(None) };
                let bound = |bind: &'r Option<Bind>| bind.as_ref().map(constant).transpose();
                let (from, to) = (bound(from)?, bound(to)?);
                let (from, to) = (from.as_ref().map(Option::as_deref), to.as_ref().map(Option::as_deref));
                Ok(match slice_of(ty, &whole, from, to)? {
                    Some(slice) => Some(Cow::Owned(slice)),
                    // As in Cassandra, a column of elements without elements is null.
                    None if ty.is_multi_cell() => None,
                    None => Some(Cow::Borrowed(&[0; 4])),
                })
            }
            Expr::Parts(ty, parts) => {
                let parts =
                    parts.iter().map(|part| part.value(row, moment)).collect::<Result<Vec<_>, _>>()?;
                assemble(ty, &parts).map(|value| Some(Cow::Owned(value)))
            }
        }
    }

    /// Binds the values of an execution.
    pub(crate) fn bound(&self, values: &[Value<'_>]) -> Result<Expr, Error> {
        let all = |exprs: &[Expr]| exprs.iter().map(|expr| expr.bound(values)).collect::<Result<_, _>>();
        let fixed = |bind: &Option<Bind>| bind.as_ref().map(|bind| bind.fixed(values)).transpose();
        Ok(match self {
            Expr::Leaf(Leaf::Show(show)) => Expr::Leaf(Leaf::Show(show.bound(values)?)),
            Expr::Leaf(Leaf::Times(times)) => Expr::Leaf(Leaf::Times(Box::new(times.bound(values)?))),
            Expr::Leaf(leaf) => Expr::Leaf(leaf.clone()),
            Expr::Bind(bind) if bind.get(values)? == Given::Unset => {
                return Err(Error::Invalid("Invalid unset value for argument in a selection".into()));
            }
            Expr::Bind(bind) => Expr::Bind(bind.fixed(values)?),
            Expr::Call(function, arguments) => Expr::Call(function.clone(), all(arguments)?),
            Expr::Step(base, step) => Expr::Step(Box::new(base.bound(values)?), step.bound(values)?),
            Expr::Slice(base, ty, from, to) => {
                Expr::Slice(Box::new(base.bound(values)?), ty.clone(), fixed(from)?, fixed(to)?)
            }
            Expr::Parts(ty, parts) => Expr::Parts(ty.clone(), all(parts)?),
        })
    }

    /// Calls `f` with each expression of the tree. The parser bounds its depth.
    pub(crate) fn walk<'e>(&'e self, f: &mut impl FnMut(&'e Expr)) {
        f(self);
        match self {
            Expr::Leaf(_) | Expr::Bind(_) => {}
            Expr::Step(base, _) | Expr::Slice(base, ..) => base.walk(f),
            Expr::Call(_, parts) | Expr::Parts(_, parts) => parts.iter().for_each(|part| part.walk(f)),
        }
    }

    /// Calls `f` with each leaf, to replace it.
    pub(crate) fn replace_leaves(&mut self, f: &mut impl FnMut(&mut Expr)) {
        match self {
            Expr::Leaf(_) => f(self),
            Expr::Bind(_) => {}
            Expr::Step(base, _) | Expr::Slice(base, ..) => base.replace_leaves(f),
            Expr::Call(_, parts) | Expr::Parts(_, parts) => {
                parts.iter_mut().for_each(|part| part.replace_leaves(f));
            }
        }
    }

    /// Returns true if it depends on the partition's static columns.
    pub(crate) fn shows_statics(&self, def: &TableDef) -> bool {
        let mut found = false;
        self.walk(&mut |expr| match expr {
            Expr::Leaf(Leaf::Show(show)) => found |= show.is_static(def),
            Expr::Leaf(Leaf::Times(times)) => found |= times.is_static(def),
            _ => {}
        });
        found
    }
}

/// Returns the value of a constant, or of a call by constants.
fn constant(bind: &Bind) -> Result<Option<Cow<'_, [u8]>>, Error> {
    match bind.get(&[])? {
        Given::Bytes(bytes) => Ok(Some(bytes)),
        Given::Null | Given::Unset => Ok(None),
    }
}

/// Returns an element or a field of a value.
fn step_into<'v>(step: &PathStep, whole: Cow<'v, [u8]>) -> Result<Option<Cow<'v, [u8]>>, Error> {
    let steps = std::slice::from_ref(step);
    Ok(match whole {
        Cow::Borrowed(whole) => inside(steps, whole)?.map(Cow::Borrowed),
        Cow::Owned(whole) => inside(steps, &whole)?.map(|part| Cow::Owned(part.to_vec())),
    })
}

/// Bound of a slice: missing, null, or a key.
type Edge<'k> = Option<Option<&'k [u8]>>;

/// Returns the elements of a set or a map between two keys, both included. `None`: there are none.
fn slice_of(ty: &CqlType, whole: &[u8], from: Edge<'_>, to: Edge<'_>) -> Result<Option<Vec<u8>>, Error> {
    let (CqlType::Map(key_type, _) | CqlType::Set(key_type)) = ty.thawed() else {
        return Err(Error::Server(format!("{ty} has no slices")));
    };
    if from == Some(None) || to == Some(None) {
        return Ok(None);
    }
    let is_inside = |key: &[u8]| {
        from.flatten().is_none_or(|from| value::compare(key_type, key, from).is_ge())
            && to.flatten().is_none_or(|to| value::compare(key_type, key, to).is_le())
    };
    Ok(match ty.thawed() {
        CqlType::Map(..) => {
            let pairs: Vec<_> =
                value::pairs(whole).filter_map(Result::ok).filter(|(key, _)| is_inside(key)).collect();
            (!pairs.is_empty()).then(|| value::encode_map(pairs.into_iter()))
        }
        _ => {
            let members: Vec<_> =
                value::elements(whole).filter_map(Result::ok).filter(|key| is_inside(key)).collect();
            (!members.is_empty()).then(|| value::encode_list(members.into_iter()))
        }
    })
}

/// Assembles a value of its parts.
fn assemble(ty: &CqlType, parts: &[Option<Cow<'_, [u8]>>]) -> Result<Vec<u8>, Error> {
    let bytes = parts.iter().map(|part| part.as_ref().map_or(0, |part| part.len()) + 4).sum::<usize>();
    check_size(bytes)?;
    // As in Cassandra, a list may have nulls here.
    if let CqlType::List(_) = ty.thawed()
        && parts.iter().any(Option::is_none)
    {
        return Ok(list_with_nulls(parts));
    }
    if ty.is_collection() && parts.iter().any(Option::is_none) {
        return Err(Error::Invalid("null is not supported inside collections".into()));
    }
    let all = || parts.iter().map(|part| part.as_deref().unwrap_or_default());
    let value = match ty.thawed() {
        CqlType::Map(..) => {
            let pairs: Vec<_> = all().step_by(2).zip(all().skip(1).step_by(2)).collect();
            value::encode_map(pairs.into_iter())
        }
        CqlType::List(_) | CqlType::Set(_) => value::encode_list(all().collect::<Vec<_>>().into_iter()),
        _ => value::encode_tuple(parts.iter().map(Option::as_deref)),
    };
    let canonical = value::canonical(ty, &value).map_err(|error| Error::Invalid(error.to_string()))?;
    Ok(canonical.into_owned())
}

/// Returns a list of values, some of which are null.
fn list_with_nulls(parts: &[Option<Cow<'_, [u8]>>]) -> Vec<u8> {
    let mut list = (parts.len() as i32).to_be_bytes().to_vec();
    // A tuple has the same parts without their number.
    list.extend(value::encode_tuple(parts.iter().map(Option::as_deref)));
    list
}

/// Returns the path of an element that a step names in a column of elements.
pub(crate) fn path_of_step(ty: &CqlType, step: &PathStep) -> Result<Option<Vec<u8>>, Error> {
    match step {
        PathStep::Key(_, bind) => constant(bind)?.map(|key| elements::path_of(ty, &key)).transpose(),
        PathStep::Field(at) => Ok(Some((*at as u16).to_be_bytes().to_vec())),
    }
}
