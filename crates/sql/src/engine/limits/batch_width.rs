//! Bounds the bytes of a batch by its number of rows. A constant is copied into every row of a
//! batch. A join copies a value once for each matching row, UNNEST once for each element. A value
//! that is small once can become gigabytes in a batch of 8192 rows, memory that no operator asks
//! its level for.
//!
//! 1. Before a plan is made, the constants of the statement determine the rows of a batch
//!    ([`rows_for`]).
//! 2. While it runs, the inputs of joins and of UNNEST are measured (`wide_batches`). Values too
//!    wide for the rows of a batch are charged as a full batch of them. If there is no memory for
//!    it, or it has more bytes than Arrow's offsets reach, the run ends. A query that has returned
//!    no rows yet is restarted with fewer rows in a batch (`query`). Others run out of memory.

use std::fmt;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::engine::limits::function_bounds::{BATCH_BYTES_MAX, widest};
use crate::run::sizes::BATCH_BYTES;

/// Bytes of a batch in one input of a join, beyond which it is charged, or the run ends. Half of
/// the bound on functions, since a join has two inputs. Well above [`BATCH_BYTES`], so that a
/// restarted run does not end for values that are a little wider.
const INPUT_BYTES_MAX: u64 = BATCH_BYTES_MAX / 2;
/// Bytes of a batch that no memory suffices for: Arrow's offsets of 32 bits end there. Joins panic
/// where they repeat texts beyond that.
const OFFSETS_MAX: u64 = i32::MAX as u64;
/// Largest constant that is ignored, bytes.
const SMALL_BYTES: usize = 64;

/// Returns the rows of a batch with rows of `row_bytes` bytes, at most `rows_max`.
pub(crate) fn rows_for(row_bytes: u64, rows_max: usize) -> usize {
    let rows = BATCH_BYTES / row_bytes.max(1);
    usize::try_from(rows).unwrap_or(usize::MAX).clamp(1, rows_max)
}

/// Returns the most bytes that the constants of a plan add to a row. Those of lists and of VALUES
/// occur once only.
pub(crate) fn constant_bytes(plan: &LogicalPlan) -> Result<u64> {
    let mut bytes = 0_u64;
    plan.apply_with_subqueries(|node| {
        if !matches!(node, LogicalPlan::Values(_)) {
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    match expr {
                        // The operand is in every row, the list is not.
                        Expr::InList(list) if is_literals(&list.list) => {
                            bytes = bytes.saturating_add(literal_bytes(&list.expr));
                            return Ok(TreeNodeRecursion::Jump);
                        }
                        Expr::Literal(..) => bytes = bytes.saturating_add(literal_bytes(expr)),
                        _ => {}
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(bytes)
}

fn is_literals(list: &[Expr]) -> bool {
    list.iter().all(|expr| matches!(expr, Expr::Literal(..)))
}

/// Returns the bytes of an expression's literals, without small ones.
fn literal_bytes(expr: &Expr) -> u64 {
    let mut bytes = 0_u64;
    let counted = expr.apply(|expr| {
        if let Expr::Literal(value, _) = expr {
            let size = value.size().saturating_sub(size_of_val(value));
            if size > SMALL_BYTES {
                bytes = bytes.saturating_add(size as u64);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    counted.map_or(u64::MAX, |_| bytes)
}

/// Returns the error of a function without memory for its results for `rows` rows, of which the
/// widest has `row_bytes`. Other functions may have as wide ones: a restarted run has a quarter of
/// the rows, or fewer.
pub(crate) fn too_wide(row_bytes: u64, rows: usize) -> TooWide {
    let row_bytes = row_bytes.max(BATCH_BYTES * 4 / rows.max(1) as u64);
    TooWide { row_bytes, rows, batch_bytes: row_bytes.saturating_mul(rows as u64) }
}

/// Error of a run with values too wide for the rows of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooWide {
    pub(crate) row_bytes: u64,
    /// Rows of a batch in that run.
    pub(crate) rows: usize,
    /// Bytes of a batch of that many rows.
    pub(crate) batch_bytes: u64,
}

impl fmt::Display for TooWide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooWide { row_bytes, batch_bytes, .. } = self;
        write!(
            f,
            "expected at most {INPUT_BYTES_MAX} bytes in a batch of a join or UNNEST, got {batch_bytes}, \
             with values of up to {row_bytes} bytes in a row: join first and build long values afterwards"
        )
    }
}

impl std::error::Error for TooWide {}

impl TooWide {
    /// Returns the `TooWide` that an error contains.
    pub(crate) fn of(error: &DataFusionError) -> Option<TooWide> {
        match error.find_root() {
            DataFusionError::External(inner) => inner.downcast_ref().copied(),
            _ => None,
        }
    }

    /// Returns true if a batch may be too large for Arrow, however much memory there is.
    pub(crate) fn exceeds_offsets(self) -> bool {
        self.batch_bytes > OFFSETS_MAX
    }

    /// Returns the rows of a batch for a restart of the query. `None`: a restart would not make
    /// batches smaller.
    pub(crate) fn fewer_rows(self) -> Option<usize> {
        let rows = rows_for(self.row_bytes, self.rows);
        (rows < self.rows).then_some(rows)
    }
}

/// Checks a batch whose rows a join copies into batches of `rows` rows. One row is always allowed.
pub(crate) fn joined(batch: &RecordBatch, rows: usize) -> Result<(), TooWide> {
    let row_bytes = batch.columns().iter().fold(0_u64, |sum, column| sum.saturating_add(widest(column)));
    let batch_bytes = row_bytes.saturating_mul(rows as u64);
    if batch_bytes <= INPUT_BYTES_MAX || rows <= 1 {
        return Ok(());
    }
    Err(TooWide { row_bytes, rows, batch_bytes })
}

/// Checks a batch whose rows UNNEST copies for each element of their lists. The longest list may
/// have more elements than a batch has rows.
pub(crate) fn unnested(batch: &RecordBatch, rows: usize) -> Result<(), TooWide> {
    let longest = |column: &ArrayRef| elements_max(column).max(1);
    let (mut copies, mut row_bytes) = (rows as u64, 0_u64);
    for column in batch.columns() {
        let elements = longest(column);
        // UNNEST splits a list, or copies it whole like any other value.
        copies = copies.max(elements);
        row_bytes = row_bytes.saturating_add(widest(column) / elements);
    }
    let batch_bytes = row_bytes.saturating_mul(copies);
    if batch_bytes <= INPUT_BYTES_MAX {
        return Ok(());
    }
    Err(TooWide { row_bytes, rows, batch_bytes })
}

/// Returns the elements of the longest list, or 0 for other types.
fn elements_max(column: &ArrayRef) -> u64 {
    let longest = |lengths: &mut dyn Iterator<Item = i64>| lengths.max().unwrap_or(0);
    let length = match column.data_type() {
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            longest(&mut (0..lists.len()).map(|row| i64::from(lists.value_length(row))))
        }
        DataType::LargeList(_) => {
            let lists = column.as_list::<i64>();
            longest(&mut (0..lists.len()).map(|row| lists.value_length(row)))
        }
        DataType::FixedSizeList(_, length) => i64::from(*length),
        _ => 0,
    };
    u64::try_from(length).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use datafusion::arrow::array::{Int64Array, ListArray, StringArray};
    use datafusion::arrow::datatypes::Int64Type;

    fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
        let named = columns.into_iter().enumerate().map(|(place, column)| (place.to_string(), column));
        RecordBatch::try_from_iter(named).expect("columns of one length")
    }

    #[test]
    fn rows_of_a_batch_follow_from_the_bytes_of_a_row() {
        for (row_bytes, expected) in [(0, 8192), (2 << 10, 8192), (1 << 20, 16), (1 << 30, 1)] {
            assert_eq!(rows_for(row_bytes, 8192), expected, "{row_bytes}");
        }
    }

    #[test]
    fn wide_value_counts_for_every_row_of_a_join() {
        let texts: StringArray = [Some("x".repeat(1 << 20)), Some("y".into()), None].into_iter().collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(texts), Arc::new(Int64Array::from(vec![1, 2, 3]))];
        let wide = joined(&batch(columns.clone()), 8192).expect_err("8 GiB");
        assert_eq!(wide.fewer_rows(), Some(16));
        assert!(wide.exceeds_offsets());
        assert_eq!(joined(&batch(columns.clone()), 16), Ok(()));
        let narrow: Vec<ArrayRef> = columns.iter().map(|column| column.slice(1, 2)).collect();
        assert_eq!(joined(&batch(narrow), 8192), Ok(()));
    }

    #[test]
    fn unnest_copies_values_for_the_longest_list() {
        let list = |length: i64| -> ArrayRef {
            let items = Some((0..length).map(Some).collect::<Vec<_>>());
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(vec![items]))
        };
        let text = |bytes: usize| -> ArrayRef { Arc::new(StringArray::from(vec!["x".repeat(bytes)])) };
        assert_eq!(unnested(&batch(vec![list(100_000), text(10)]), 8192), Ok(()));
        let wide = unnested(&batch(vec![list(100_000), text(10_000)]), 16).expect_err("1 GB");
        assert_eq!(wide.fewer_rows(), None);
    }
}
