//! Aggregates over groups of rows: all rows of a query, or with `GROUP BY` those of a partition
//! that have an equal prefix of the clustering key.
//!
//! 1. The first row of a group opens it: the values that are selected beside aggregates are kept.
//! 2. Each row of the group, the first too, is added to the states of the aggregates.
//! 3. The group is closed at the first row of another group, or at the end of its partition. Its
//!    states become results, and the selected expressions are computed from both.
//!
//! Groups of a `GROUP BY` are inside of one partition. The core that owns it opens and closes them.
//! A group of all rows is never closed by a core: the coordinator merges the states of all cores.
//! Long scans add whole columns to its states (`read/by_column.rs`).
//! A group in memory is as large as its first row, at most `engine::ROW_BYTES_MAX`, and a state of
//! bounded size for each aggregate.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Error, Value};
use functions::{Aggregate, State};
use schema::{TableDef, value};

use super::{Computed, Expr, Leaf, Row};
use crate::bind::slice::descending;
use crate::bind::term::operand::{Moment, failed};

/// Call of an aggregate.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) aggregate: Arc<Aggregate>,
    pub(crate) arguments: Computed,
}

/// Columns of a `GROUP BY` behind the partition key.
#[derive(Clone, Debug)]
pub(crate) struct GroupBy {
    /// Number of clustering columns.
    pub(crate) columns: usize,
    /// Function of the clustering column after these, if the last group is by one.
    pub(crate) function: Option<Computed>,
}

/// Expressions that are computed for each group.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    /// Selected expressions, over first values and results of aggregates.
    pub(crate) shown: Computed,
    /// Values that are kept of the first row.
    pub(crate) firsts: Computed,
    pub(crate) aggregates: Box<[Call]>,
    /// `None`: one group of all rows.
    pub(crate) by: Option<GroupBy>,
    /// Expressions that are computed for a row.
    pub(crate) weight: usize,
    /// Leaves of these expressions.
    pub(crate) leaves: usize,
}

/// Group whose rows are being read.
#[derive(Clone, Debug)]
pub(crate) struct OpenGroup {
    /// Token and key of the partition of its first row.
    partition: (i64, Bytes),
    /// Clustering key of its first row.
    pub(crate) clustering: Bytes,
    /// Bytes that rows of the group have in common.
    identity: Vec<u8>,
    firsts: Vec<Option<Vec<u8>>>,
    pub(crate) states: Vec<State>,
}

/// Closed group.
struct Closed {
    firsts: Vec<Option<Vec<u8>>>,
    totals: Vec<Option<Vec<u8>>>,
}

impl Row for Closed {
    fn leaf(&self, leaf: &Leaf) -> Result<Option<Cow<'_, [u8]>>, Error> {
        let value = match leaf {
            Leaf::First(at) => &self.firsts[*at],
            Leaf::Total(at) => &self.totals[*at],
            Leaf::Show(_) | Leaf::Times(_) => return Err(Error::Server("a group has no columns".into())),
        };
        Ok(value.as_deref().map(Cow::Borrowed))
    }
}

impl Groups {
    /// Returns the groups of selected expressions.
    pub(crate) fn new(mut shown: Vec<Expr>, aggregates: Vec<Call>, by: Option<GroupBy>) -> Groups {
        let mut firsts = Vec::new();
        for expr in &mut shown {
            expr.replace_leaves(&mut |leaf| {
                if matches!(leaf, Expr::Leaf(Leaf::Show(_) | Leaf::Times(_))) {
                    firsts.push(std::mem::replace(leaf, Expr::Leaf(Leaf::First(firsts.len()))));
                }
            });
        }
        let (shown, firsts) = (Computed::new(shown), Computed::new(firsts));
        let mut groups = Groups { shown, firsts, aggregates: aggregates.into(), by, weight: 1, leaves: 0 };
        let weights = groups.of_row().map(|computed| (computed.weight, computed.leaves));
        let (weight, leaves) = weights.fold((1, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        (groups.weight, groups.leaves) = (weight, leaves);
        groups
    }

    /// Returns everything that is computed for a row.
    fn of_row(&self) -> impl Iterator<Item = &Computed> {
        let by = self.by.iter().filter_map(|by| by.function.as_ref());
        self.aggregates.iter().map(|call| &call.arguments).chain(by).chain([&self.firsts])
    }

    /// Returns true if it depends on the partition's static columns.
    pub(crate) fn shows_statics(&self, def: &TableDef) -> bool {
        self.of_row().any(|computed| computed.shows_statics(def))
    }

    /// Binds the values of an execution.
    pub(crate) fn bound(&self, values: &[Value<'_>], moment: Moment) -> Result<Groups, Error> {
        let bound = |computed: &Computed| computed.bound(values, moment);
        let call =
            |call: &Call| Ok(Call { aggregate: call.aggregate.clone(), arguments: bound(&call.arguments)? });
        let by = match &self.by {
            Some(by) => {
                let function = by.function.as_ref().map(bound).transpose()?;
                Some(GroupBy { columns: by.columns, function })
            }
            None => None,
        };
        Ok(Groups {
            shown: bound(&self.shown)?,
            firsts: bound(&self.firsts)?,
            aggregates: self.aggregates.iter().map(call).collect::<Result<_, Error>>()?,
            by,
            ..*self
        })
    }

    /// Returns the bytes that rows of one group of a partition have in common. `clustering` is
    /// empty for a partition without rows.
    pub(crate) fn identity(
        &self,
        def: &TableDef,
        clustering: &[u8],
        row: &dyn Row,
    ) -> Result<Vec<u8>, Error> {
        let Some(by) = &self.by else { return Ok(Vec::new()) };
        let (mut left, mut scratch) = (clustering, Vec::new());
        let columns = if clustering.is_empty() { 0 } else { by.columns };
        for column in def.clustering().take(columns) {
            scratch.clear();
            value::decode_key_part(&column.ty, descending(column), &mut left, &mut scratch)
                .map_err(|e| Error::Server(format!("a stored clustering key is damaged: {e}")))?;
        }
        self.identity_behind(clustering[..clustering.len() - left.len()].to_vec(), row)
    }

    /// Returns true if a row of the same partition belongs to a group by its clustering key alone.
    /// Keys are encoded column by column, so that rows of a group begin with the same bytes.
    pub(crate) fn begins_with(&self, group: &OpenGroup, clustering: &[u8]) -> bool {
        let has_function = self.by.as_ref().is_some_and(|by| by.function.is_some());
        !has_function && clustering.starts_with(&group.identity)
    }

    /// Returns the bytes that rows of one group have in common, from those of their keys.
    pub(crate) fn identity_behind(&self, mut keys: Vec<u8>, row: &dyn Row) -> Result<Vec<u8>, Error> {
        for value in self.by.iter().filter_map(|by| by.function.as_ref()).map(|function| function.row(row)) {
            for value in value? {
                // A null differs from all values.
                keys.push(u8::from(value.is_some()));
                keys.extend_from_slice(value.as_deref().unwrap_or_default());
            }
        }
        Ok(keys)
    }

    /// Opens a group with its first row.
    pub(crate) fn open(
        &self,
        partition: (i64, Bytes),
        clustering: Bytes,
        identity: Vec<u8>,
        row: &dyn Row,
    ) -> Result<OpenGroup, Error> {
        let firsts = self.firsts.row(row)?.into_iter().map(|value| value.map(Cow::into_owned)).collect();
        let mut open = OpenGroup { partition, clustering, identity, firsts, states: self.states() };
        self.add(&mut open, row)?;
        Ok(open)
    }

    fn states(&self) -> Vec<State> {
        self.aggregates.iter().map(|call| call.aggregate.start()).collect()
    }

    /// Adds a row to a group.
    pub(crate) fn add(&self, group: &mut OpenGroup, row: &dyn Row) -> Result<(), Error> {
        for (call, state) in self.aggregates.iter().zip(&mut group.states) {
            match &call.arguments.shown[..] {
                [] => state.add(&[]),
                [argument] => {
                    let value = argument.value(row, &call.arguments.moment)?;
                    state.add(&[value.as_deref()]);
                }
                _ => {
                    let arguments = call.arguments.row(row)?;
                    state.add(&arguments.iter().map(Option::as_deref).collect::<Vec<_>>());
                }
            }
        }
        Ok(())
    }

    /// Returns the row of a group.
    pub(crate) fn close(&self, group: OpenGroup) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let totals = group.states.into_iter().map(|state| state.finish().map_err(failed));
        let closed = Closed { firsts: group.firsts, totals: totals.collect::<Result<_, Error>>()? };
        let row = self.shown.row(&closed)?;
        Ok(row.into_iter().map(|value| value.map(Cow::into_owned)).collect())
    }

    /// Returns the row of all rows of a query, if there are some.
    pub(crate) fn close_all(&self, group: Option<OpenGroup>) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.close(group.unwrap_or_else(|| self.without_rows()))
    }

    /// Returns the group of all rows of a query before the first one.
    pub(crate) fn without_rows(&self) -> OpenGroup {
        OpenGroup {
            partition: (0, Bytes::new()),
            clustering: Bytes::new(),
            identity: Vec::new(),
            firsts: vec![None; self.firsts.shown.len()],
            states: self.states(),
        }
    }
}

impl OpenGroup {
    /// Returns true if rows with this identity belong to the group.
    pub(crate) fn is(&self, identity: &[u8]) -> bool {
        self.identity == identity
    }

    /// Returns the bytes of the values that it keeps of its first row.
    pub(crate) fn bytes(&self) -> usize {
        self.firsts.iter().map(|value| 4 + value.as_ref().map_or(0, Vec::len)).sum()
    }

    /// Merges the rows of another part of a query into a group of all rows. The first row is the
    /// one with the smaller token and key.
    pub(crate) fn merge(groups: &mut Option<OpenGroup>, other: Option<OpenGroup>) -> Result<(), Error> {
        let Some(other) = other else { return Ok(()) };
        let Some(group) = groups else {
            *groups = Some(other);
            return Ok(());
        };
        if other.partition < group.partition {
            (group.partition, group.firsts) = (other.partition, other.firsts);
        }
        for (state, other) in group.states.iter_mut().zip(other.states) {
            state.merge(other);
        }
        Ok(())
    }
}
