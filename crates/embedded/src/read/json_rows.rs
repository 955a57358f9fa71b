//! SELECT JSON: each row of a result as one JSON text.
//!
//! This is the last step of a SELECT, over the cells of a page. It is therefore the same for all
//! selectors, aggregates, groups and tables. The page of cells is smaller than one of texts would
//! be, by the growth that names and notation cause. A text of an unusual form may still be longer:
//! a page of texts has at most about ten times the bytes of other pages.
//!
//! The cells and the texts are charged together. A heavy lane makes the texts of long results.

use std::sync::Arc;

use engine::{
    ANSWER_BYTES_MAX, AnswerGrant, AnswerMemory, Columns, Error, Execution, Guardrail, Guardrails, Request,
    ResultRows, StatementOutcome,
};
use schema::value::json::{JsonError, push_name, to_json};

use crate::Embedded;
use crate::bind::select::SelectPlan;
use crate::heavy_lane::heavy;
use crate::read::chunk::answer_too_large;
use crate::system::own_tables::is_server_keyspace;

/// Bytes of cells whose texts one task poll makes, at about 5 ns each.
const BYTES_AT_ONCE: usize = 4 << 10;

/// Columns whose texts one task poll makes, at about 50 ns each.
const COLUMNS_AT_ONCE: usize = 250;

/// Bytes of a short value with its length as a cell.
const CELL_BYTES: usize = 8;

/// Writer of the texts of one result.
struct Texts {
    columns: Columns,
    grant: Option<Arc<dyn AnswerGrant>>,
    /// Limits of an answer without pages.
    limits: Option<Arc<Guardrails>>,
}

impl Embedded {
    /// Runs a SELECT JSON. `columns` has its only column.
    pub(crate) fn select_json(
        &self,
        plan: &Arc<SelectPlan>,
        columns: &Columns,
        request: &Request<'_>,
    ) -> Execution {
        let grant = request.room.map(AnswerMemory::open);
        let inner = Request {
            page_bytes_max: (request.page_bytes_max / growth(&plan.columns)).max(1),
            room: grant.as_ref().map(|grant| grant as &dyn AnswerMemory),
            ..*request
        };
        let is_limited = request.page_size.is_none() && !is_server_keyspace(&plan.def.keyspace);
        let limits = is_limited.then(|| self.guardrails().clone());
        let execution = self.select(plan, &inner);
        let texts = Texts { columns: columns.clone(), grant, limits };
        match execution {
            Execution::Ready(Ok(StatementOutcome::Rows(rows))) if is_short(&rows) => {
                Execution::Ready(texts.of(rows))
            }
            Execution::Ready(Ok(outcome)) => {
                Execution::Pending(Box::pin(async move { texts.on_a_lane(outcome).await }))
            }
            Execution::Pending(later) => {
                Execution::Pending(Box::pin(async move { texts.on_a_lane(later.await?).await }))
            }
            Execution::Reading { later, bytes, reads } => {
                let later = Box::pin(async move { texts.on_a_lane(later.await?).await });
                Execution::Reading { later, bytes, reads }
            }
            other => other,
        }
    }
}

/// Returns the factor by which a row grows from cells to a text, for short values.
fn growth(columns: &Columns) -> usize {
    let names: usize = columns.iter().map(|column| column.name.len()).sum();
    3 + names / (CELL_BYTES * columns.len().max(1))
}

/// Returns true if one task poll makes the texts.
fn is_short(rows: &ResultRows) -> bool {
    rows.cells.len() <= BYTES_AT_ONCE && rows.count as usize * rows.columns.len() <= COLUMNS_AT_ONCE
}

impl Texts {
    async fn on_a_lane(self, outcome: StatementOutcome) -> Result<StatementOutcome, Error> {
        match outcome {
            StatementOutcome::Rows(rows) if is_short(&rows) => self.of(rows),
            StatementOutcome::Rows(rows) => heavy(self.of_long(rows)).await,
            other => Ok(other),
        }
    }

    /// Returns the result with a text in place of the columns of each row.
    ///
    /// # Errors
    /// Returns an error if a text or the result is too long, or if there is no memory for it.
    fn of(self, rows: ResultRows) -> Result<StatementOutcome, Error> {
        let mut out = self.empty(&rows);
        let (names, mut cells) = (names(&rows.columns)?, rows.cells.iter());
        for _ in 0..rows.count {
            let _ = lanes::spend(self.push_row(&rows, &names, &mut cells, &mut out)?);
        }
        self.finish(rows.paging_state.clone(), out)
    }

    /// Returns the result as [`Texts::of`] does, with yields.
    async fn of_long(self, rows: ResultRows) -> Result<StatementOutcome, Error> {
        let mut out = self.empty(&rows);
        let (names, mut cells) = (names(&rows.columns)?, rows.cells.iter());
        for _ in 0..rows.count {
            if lanes::spend(self.push_row(&rows, &names, &mut cells, &mut out)?) {
                lanes::yield_now().await;
            }
        }
        self.finish(rows.paging_state.clone(), out)
    }

    fn empty(&self, rows: &ResultRows) -> ResultRows {
        ResultRows { count: rows.count, ..ResultRows::new(self.columns.clone()) }
    }

    /// Appends the text of the next row. Returns its work units.
    fn push_row<'r>(
        &self,
        rows: &ResultRows,
        names: &[String],
        cells: &mut impl Iterator<Item = Option<&'r [u8]>>,
        out: &mut ResultRows,
    ) -> Result<u32, Error> {
        let mut text = String::from("{");
        for (column, name) in rows.columns.iter().zip(names) {
            text.push_str(name);
            match cells.next().flatten() {
                Some(value) => to_json(&column.ty, value, &mut text).map_err(invalid)?,
                None => text.push_str("null"),
            }
        }
        text.push('}');
        out.push(Some(text.as_bytes()));
        let (before, bytes) = (rows.cells.len(), out.cells.len());
        if bytes > ANSWER_BYTES_MAX {
            return Err(answer_too_large(bytes));
        }
        if let Some(grant) = self.grant.as_ref().filter(|_| before + bytes > BYTES_AT_ONCE) {
            grant.grow((before + bytes) as u64)?;
        }
        Ok((names.len() / COLUMNS_PER_UNIT + text.len() / BYTES_PER_UNIT) as u32)
    }

    fn finish(self, paging_state: Option<Vec<u8>>, out: ResultRows) -> Result<StatementOutcome, Error> {
        if let Some(limits) = &self.limits {
            limits.check(Guardrail::UnpagedBytes, out.cells.len() as u64)?;
        }
        Ok(StatementOutcome::Rows(ResultRows { paging_state, ..out }))
    }
}

/// Columns whose names are written in one work unit.
const COLUMNS_PER_UNIT: usize = 4;

/// Bytes of a text that are made in one work unit.
const BYTES_PER_UNIT: usize = 20;

/// Returns the text before the value of each column.
fn names(columns: &Columns) -> Result<Vec<String>, Error> {
    let name = |(at, column): (usize, &engine::ColumnSpec)| {
        let mut name = if at == 0 { String::new() } else { ", ".to_owned() };
        push_name(&column.name, &mut name).map_err(invalid)?;
        name.push_str(": ");
        Ok(name)
    };
    columns.iter().enumerate().map(name).collect()
}

fn invalid(error: JsonError) -> Error {
    Error::Invalid(error.to_string())
}
