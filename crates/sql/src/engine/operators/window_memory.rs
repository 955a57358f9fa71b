//! Memory of window nodes, for which DataFusion reserves none. They keep the rows of a partition,
//! or of its frames, two or three times. The functions over them keep a state for each partition,
//! and a result for each row. A result may be as long as all rows together, so it is charged when
//! it is made, not when the column of all results is there.
//!
//! ```text
//!   WindowMemoryExec     sets the ledger for functions; releases rows that come out
//!     WindowAggExec      charges states, results (`aggregate_memory`, `window_functions`)
//!       WindowInputExec  charges rows before they go in; hides the ledger from nodes below
//! ```

use std::cell::RefCell;
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use datafusion::scalar::ScalarValue;
use futures::Stream;

use crate::engine::operators::pass_through::{PassThrough, PassThroughExec, with_extension, with_inputs};
use crate::run::memory::Held;
use crate::run::query::QueryRun;
use crate::run::sizes::{batch_bytes, heap_bytes, shared_bytes};

/// Copies of its input that a window node over whole partitions holds: batches, and one that they
/// are joined to.
const INPUT_COPIES: u64 = 2;
/// Copies that other window nodes hold: rows in order, rows by partition, and either of them once
/// more, joined to the next batch.
const BOUNDED_INPUT_COPIES: u64 = 3;
/// Copies of a result: the value, and its row of the column.
const RESULT_COPIES: u64 = 2;
/// State of a window function for one partition, beside what it collects: entries of tables, the
/// key, frames. An estimate from the sizes of their types, not measured.
const STATE_BYTES: u64 = 1024;

thread_local! {
    /// Ledger of the window node that the current task poll is in.
    static LEDGER: RefCell<Option<Arc<Ledger>>> = const { RefCell::new(None) };
}

/// Returns the ledger of the window node that the current task poll is in.
pub(crate) fn ledger() -> Option<Arc<Ledger>> {
    LEDGER.with_borrow(Clone::clone)
}

/// Charges of a partition of a window node.
#[derive(Debug)]
pub(crate) struct Ledger {
    book: Mutex<Book>,
    input_copies: u64,
    /// Bytes of literals, which are copied into each row.
    literal_bytes: u64,
    /// Names of functions with one result for all rows of a partition.
    constant: HashSet<String>,
    /// Results of one function may wait for those of another.
    has_several: bool,
}

#[derive(Debug)]
struct Book {
    /// Rows charged, and their charge.
    rows: u64,
    input: Held,
    /// Rows that went in and have not come out.
    inside: u64,
    /// Rows that functions may refer to after they came out. `None`: all of them.
    kept: Option<u64>,
    results: Held,
    states: Held,
    /// Texts of views, of rows and of results, which arrays share. Joining arrays keeps all of
    /// them, and a slice does not release any. So they are held until the node ends.
    shared: Held,
}

impl Ledger {
    fn new(node: &Arc<dyn ExecutionPlan>, run: Option<&Arc<QueryRun>>) -> Ledger {
        let exprs = window_exprs(node);
        let held = || Held::of(run.map(|run| run.statement_memory()));
        // A node over whole partitions keeps all rows until it ends.
        let kept = |expr: &Arc<dyn WindowExpr>| kept_rows(expr);
        let kept_rows = if node.is::<WindowAggExec>() { None } else { exprs.iter().map(kept).sum() };
        let is_constant = |frame: &WindowFrame| {
            let (start, end) = (&frame.start_bound, &frame.end_bound);
            start.is_unbounded() && end.is_unbounded()
        };
        let constant = exprs.iter().filter(|expr| is_constant(expr.get_window_frame()));
        Ledger {
            book: Mutex::new(Book {
                rows: 0,
                input: held(),
                inside: 0,
                kept: kept_rows,
                results: held(),
                states: held(),
                shared: held(),
            }),
            has_several: exprs.len() > 1,
            input_copies: if node.is::<WindowAggExec>() { INPUT_COPIES } else { BOUNDED_INPUT_COPIES },
            literal_bytes: exprs.iter().flat_map(|expr| expr.expressions()).map(|expr| literals(&expr)).sum(),
            constant: constant.map(|expr| expr.name().to_owned()).collect(),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the function of this name has one result for all rows of a partition.
    pub(crate) fn is_constant(&self, name: &str) -> bool {
        self.constant.contains(name)
    }

    /// Returns the number of rows that went in and have not come out.
    pub(crate) fn rows_inside(&self) -> u64 {
        self.book().inside
    }

    /// Charges the rows of a batch that goes in.
    fn enter(&self, batch: &RecordBatch) -> Result<()> {
        let rows = batch.num_rows() as u64;
        let literals = rows.saturating_mul(self.literal_bytes);
        let shared = batch.columns().iter().fold(0, |sum: u64, column| sum + shared_bytes(column.as_ref()));
        let copied = batch_bytes(batch).saturating_sub(shared);
        let mut book = self.book();
        book.shared.grow(shared)?;
        book.input.grow(copied.saturating_mul(self.input_copies).saturating_add(literals))?;
        (book.rows, book.inside) = (book.rows + rows, book.inside + rows);
        Ok(())
    }

    /// Releases rows that came out, and their results.
    fn leave(&self, rows: u64) {
        let mut book = self.book();
        let inside = book.inside.max(1);
        let results = part(book.results.bytes(), rows.min(inside), inside);
        book.results.shrink(results);
        book.inside = book.inside.saturating_sub(rows);
        let Some(kept) = book.kept else { return };
        let needed = book.inside.saturating_add(kept).min(book.rows);
        let bytes = part(book.input.bytes(), book.rows - needed, book.rows.max(1));
        book.input.shrink(bytes);
        book.rows = needed;
    }

    /// Keeps at least `rows` rows charged after they came out: a function refers to them.
    pub(crate) fn keep_rows(&self, rows: u64) {
        let mut book = self.book();
        book.kept = book.kept.map(|kept| kept.max(rows));
    }

    /// Charges the growth of a function's state.
    ///
    /// # Errors
    /// The level refuses it.
    pub(crate) fn grow_state(&self, bytes: u64) -> Result<()> {
        self.book().states.grow(bytes)
    }

    /// Releases a function's state.
    pub(crate) fn shrink_state(&self, bytes: u64) {
        self.book().states.shrink(bytes);
    }

    /// Charges a result of `bytes`, for `rows` rows each. `shared` of them are texts of views.
    ///
    /// # Errors
    /// The level refuses it.
    pub(crate) fn add_result(&self, bytes: u64, rows: u64, shared: u64) -> Result<()> {
        let mut book = self.book();
        if self.has_several {
            book.shared.grow(shared.saturating_mul(rows))?;
        }
        book.results.grow(bytes.saturating_mul(rows).saturating_mul(RESULT_COPIES))
    }
}

/// State of a window function for one partition. Dropping it releases its charge.
#[derive(Debug)]
pub(crate) struct StateCharge {
    pub(crate) ledger: Arc<Ledger>,
    bytes: u64,
}

impl StateCharge {
    /// Charges a state that has collected nothing yet.
    ///
    /// # Errors
    /// The level refuses it.
    pub(crate) fn new(ledger: Arc<Ledger>) -> Result<StateCharge> {
        ledger.grow_state(STATE_BYTES)?;
        Ok(StateCharge { ledger, bytes: STATE_BYTES })
    }

    /// Charges a state that has collected `bytes`.
    ///
    /// # Errors
    /// The level refuses them.
    pub(crate) fn resize(&mut self, bytes: u64) -> Result<()> {
        let after = bytes.saturating_add(STATE_BYTES);
        match after.checked_sub(self.bytes) {
            Some(more) => self.ledger.grow_state(more)?,
            None => self.ledger.shrink_state(self.bytes - after),
        }
        self.bytes = after;
        Ok(())
    }
}

impl Drop for StateCharge {
    fn drop(&mut self) {
        self.ledger.shrink_state(self.bytes);
    }
}

fn part(bytes: u64, rows: u64, of: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(rows) / u128::from(of)).unwrap_or(bytes)
}

fn window_exprs(node: &Arc<dyn ExecutionPlan>) -> &[Arc<dyn WindowExpr>] {
    match (node.downcast_ref::<WindowAggExec>(), node.downcast_ref::<BoundedWindowAggExec>()) {
        (Some(window), _) => window.window_expr(),
        (None, Some(window)) => window.window_expr(),
        (None, None) => &[],
    }
}

/// Returns the bytes of the literals in an expression.
fn literals(expr: &Arc<dyn PhysicalExpr>) -> u64 {
    let own = expr.downcast_ref::<Literal>().map_or(0, |literal| heap_bytes(literal.value()));
    expr.children().into_iter().fold(own, |sum, child| sum.saturating_add(literals(child)))
}

/// Returns the rows before the current one that a function's frame may have. `None`: any number.
fn kept_rows(expr: &Arc<dyn WindowExpr>) -> Option<u64> {
    let frame = expr.get_window_frame();
    match &frame.start_bound {
        // Functions over a frame that only grows keep a state instead of its rows.
        WindowFrameBound::Preceding(value) if value.is_null() => Some(0),
        WindowFrameBound::Preceding(ScalarValue::UInt64(rows)) if frame.units == WindowFrameUnits::Rows => {
            *rows
        }
        WindowFrameBound::Preceding(_) => None,
        WindowFrameBound::CurrentRow | WindowFrameBound::Following(_) => Some(0),
    }
}

/// See the head of this file.
#[derive(Debug)]
struct WindowMemory;

/// See the head of this file.
#[derive(Debug)]
struct WindowInput;

/// Puts nodes above and below a window node that charge its memory.
///
/// # Errors
/// Errors of DataFusion.
pub(crate) fn charged(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if window_exprs(&node).is_empty() {
        return Ok(node);
    }
    let inputs = node.children().into_iter().cloned().map(PassThroughExec::<WindowInput>::over).collect();
    Ok(PassThroughExec::<WindowMemory>::over(with_inputs(node, inputs)?))
}

impl PassThrough for WindowMemory {
    const NAME: &'static str = "WindowMemoryExec";

    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let ledger = Arc::new(Ledger::new(input, QueryRun::of(&context).as_ref()));
        let context = with_extension(&context, ledger.clone());
        let input = input.execute(partition, context)?;
        let schema = input.schema();
        let stream = Windowed { input, ledger: Some(ledger), is_inside: true, left: 0 };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }
}

impl PassThrough for WindowInput {
    const NAME: &'static str = "WindowInputExec";

    fn run(
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let ledger = context.session_config().get_extension::<Ledger>();
        let input = input.execute(partition, context)?;
        let schema = input.schema();
        let stream = Windowed { input, ledger, is_inside: false, left: 0 };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }
}

/// Stream above a window node (`is_inside`), or below it.
struct Windowed {
    input: SendableRecordBatchStream,
    ledger: Option<Arc<Ledger>>,
    is_inside: bool,
    /// Rows of the last batch that came out. Its consumer is done with them when it asks again.
    left: u64,
}

impl Stream for Windowed {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        if let Some(ledger) = stream.ledger.as_ref().filter(|_| stream.left > 0) {
            ledger.leave(std::mem::take(&mut stream.left));
        }
        let outer = LEDGER.replace(stream.ledger.clone().filter(|_| stream.is_inside));
        let polled = stream.input.as_mut().poll_next(cx);
        LEDGER.set(outer);
        let Poll::Ready(Some(Ok(batch))) = &polled else { return polled };
        if stream.is_inside {
            stream.left = batch.num_rows() as u64;
        } else if let Some(ledger) = &stream.ledger
            && let Err(error) = ledger.enter(batch)
        {
            return Poll::Ready(Some(Err(error)));
        }
        polled
    }
}
