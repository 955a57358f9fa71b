//! How DataFusion's work gets onto heavy lanes and stays there.
//!
//! DataFusion spawns tasks with `tokio::spawn`, so there must be a tokio runtime at hand: while a heavy lane polls DataFusion's code it
//! has entered the runtime of its core's fast lane. What is spawned goes through a tracer first, which DataFusion offers to wrap
//! such tasks: it starts the task itself as a heavy task in the group of whoever spawned it, and leaves to tokio only a future that waits for
//! its end. So tokio's part is a wake-up on the fast lane, a microsecond or so; the work is on heavy lanes and charged there.
//!
//! An aborted tokio task drops what waits, and that cancels the heavy task.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use datafusion::error::DataFusionError;
use engine::Viewer;
use futures::FutureExt;
use futures::future::BoxFuture;
pub(crate) use lanes::Panicked;
use lanes::{Group, Task};
use tokio::runtime::Handle;

/// Hidden tables that are remembered of a statement, for the audit log.
const HIDDEN_MAX: usize = 16;

thread_local! {
    /// Tasks spawned since the running poll began.
    static SPAWNED: Cell<usize> = const { Cell::new(0) };
    /// The runtime that the poll under way has entered, for tasks that it spawns.
    static RUNTIME: Cell<Option<&'static Handles>> = const { Cell::new(None) };
    /// The statement that is being polled, for functions that take long, for the catalog, and for tasks that it spawns.
    static STATEMENT: RefCell<Option<Arc<Polled>>> = const { RefCell::new(None) };
}

/// What code of DataFusion's finds out about the statement that it is polled for.
#[derive(Debug)]
struct Polled {
    has_ended: AtomicBool,
    viewer: Arc<dyn Viewer>,
    /// Tables that it named and is not shown, at most [`HIDDEN_MAX`].
    hidden: Mutex<Vec<(String, String)>>,
}

/// The end of a statement: when this is dropped, its functions stop at their next chunk. Its tasks end at their next yield by
/// themselves.
#[derive(Debug)]
pub(crate) struct End(Arc<Polled>);

impl End {
    /// The end of a statement of a role with this sight.
    pub(crate) fn of(viewer: Arc<dyn Viewer>) -> End {
        End(Arc::new(Polled { has_ended: AtomicBool::new(false), viewer, hidden: Mutex::default() }))
    }

    /// Returns the tables that the statement named and is not shown, by keyspace and name.
    pub(crate) fn hidden(&self) -> Vec<(String, String)> {
        self.0.hidden.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Relaxed);
    }
}

fn polled() -> Option<Arc<Polled>> {
    STATEMENT.with_borrow(Clone::clone)
}

/// Decides what the statement that is being polled is shown. `None` outside of statements.
pub(crate) fn viewer() -> Option<Arc<dyn Viewer>> {
    polled().map(|polled| polled.viewer.clone())
}

/// Remembers that the statement that is being polled named a table that it is not shown.
pub(crate) fn hide(keyspace: &str, table: &str) {
    let Some(polled) = polled() else { return };
    let mut hidden = polled.hidden.lock().unwrap_or_else(PoisonError::into_inner);
    if hidden.len() < HIDDEN_MAX {
        hidden.push((keyspace.to_owned(), table.to_owned()));
    }
}

/// Calls `f` as a statement of a role with this sight would.
#[cfg(test)]
pub(crate) fn shown_to<T>(viewer: Option<Arc<dyn Viewer>>, f: impl FnOnce() -> T) -> T {
    let end = viewer.map(End::of);
    let outer = STATEMENT.replace(end.as_ref().map(|end| end.0.clone()));
    let result = f();
    STATEMENT.set(outer);
    result
}

/// Checks that the statement that is being polled has not ended.
///
/// # Errors
/// It has: its client was told already.
pub(crate) fn check_end() -> Result<(), DataFusionError> {
    let has_ended =
        STATEMENT.with_borrow(|polled| polled.as_ref().is_some_and(|polled| polled.has_ended.load(Relaxed)));
    if has_ended { Err(DataFusionError::Execution("the statement has ended".to_owned())) } else { Ok(()) }
}

/// The runtime of each core's fast lane. Made once for a server and never freed: some hundred bytes.
#[derive(Debug)]
pub(crate) struct Handles(pub(crate) Vec<Handle>);

impl Handles {
    /// Those of all cores. To be called on a fast lane.
    pub(crate) async fn find() -> &'static Handles {
        let mut handles = Vec::with_capacity(lanes::cores());
        for core in 0..lanes::cores() {
            handles.push(lanes::call(core, || async { Handle::current() }).await);
        }
        // Whether ours or that of an earlier server of this process, it is the same tracer.
        let _ = set_join_set_tracer(&ToHeavyLanes);
        Box::leak(Box::new(Handles(handles)))
    }
}

/// A future that is polled on heavy lanes within a runtime.
struct Entered<F> {
    handles: &'static Handles,
    statement: Option<Arc<Polled>>,
    inner: Pin<Box<F>>,
}

impl<F: Future> Future for Entered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _entered = self.handles.0[lanes::current_core()].enter();
        SPAWNED.set(0);
        let outer = RUNTIME.replace(Some(self.handles));
        let outer_statement = STATEMENT.replace(self.statement.clone());
        let result = self.inner.as_mut().poll(cx);
        RUNTIME.set(outer);
        STATEMENT.set(outer_statement);
        result
    }
}

/// Starts work of DataFusion's on the heavy lane of this core, for the statement that is being polled, if one is.
pub(crate) fn heavy<F>(handles: &'static Handles, group: Group, work: F) -> Task<Result<F::Output, Panicked>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    heavy_until(handles, group, polled(), work)
}

fn heavy_until<F>(
    handles: &'static Handles,
    group: Group,
    statement: Option<Arc<Polled>>,
    work: F,
) -> Task<Result<F::Output, Panicked>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let entered = Entered { handles, statement, inner: Box::pin(work) };
    // What a panic leaves half done belongs to the query, which ends.
    lanes::heavy(group, lanes::catch_panic(entered))
}

/// As [`heavy`], on that core, from either lane of any core; the task's handle comes back.
pub(crate) async fn heavy_on<F>(
    core: usize,
    handles: &'static Handles,
    group: Group,
    work: F,
) -> Task<Result<F::Output, Panicked>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    start_on(core, handles, group, polled(), work).await
}

/// As [`heavy_on`], for the statement that ends with `end`.
pub(crate) async fn heavy_of<F>(
    end: &End,
    core: usize,
    handles: &'static Handles,
    group: Group,
    work: F,
) -> Task<Result<F::Output, Panicked>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    start_on(core, handles, group, Some(end.0.clone()), work).await
}

#[expect(clippy::async_yields_async, reason = "the handle is what is wanted: the work goes on")]
async fn start_on<F>(
    core: usize,
    handles: &'static Handles,
    group: Group,
    statement: Option<Arc<Polled>>,
    work: F,
) -> Task<Result<F::Output, Panicked>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    if core == lanes::current_core() {
        return heavy_until(handles, group, statement, work);
    }
    lanes::call(core, move || async move { heavy_until(handles, group, statement, work) }).await
}

/// The runtimes of the work that is being polled. Only within [`heavy`].
pub(crate) fn handles() -> Option<&'static Handles> {
    RUNTIME.get()
}

struct ToHeavyLanes;

type Erased = Box<dyn Any + Send>;

impl JoinSetTracer for ToHeavyLanes {
    fn trace_future(&self, future: BoxFuture<'static, Erased>) -> BoxFuture<'static, Erased> {
        let Some(handles) = RUNTIME.get().filter(|_| lanes::on_heavy_lane()) else { return future };
        let nth = SPAWNED.replace(SPAWNED.get() + 1);
        let core = (lanes::current_core() + turn(nth)) % lanes::cores();
        let group = lanes::current_group();
        let statement = polled();
        async move {
            match start_on(core, handles, group, statement, future).await.await {
                Ok(output) => output,
                Err(Panicked) => std::panic::resume_unwind(Box::new("a task of a query panicked")),
            }
        }
        .boxed()
    }

    /// Not called: DataFusion spawns blocking work for stream tables only, of which there are none here, and for spill files of its own, whose
    /// place ours take (`spill.rs`).
    fn trace_block(&self, work: Box<dyn FnOnce() -> Erased + Send>) -> Box<dyn FnOnce() -> Erased + Send> {
        work
    }
}

/// How many cores further the nth task of a poll goes. A repartition starts two tasks for each of its inputs, one after the other: the first
/// splits its batches, the second only waits for the first. In pairs, the splitting is spread over the cores.
fn turn(nth: usize) -> usize {
    nth / 2
}

/// What a session on a fast lane keeps of a statement: much to free perhaps, so that is done on a heavy lane.
pub(crate) struct Kept<T: Send + 'static> {
    value: Option<T>,
    handles: &'static Handles,
    group: Group,
}

impl<T: Send + 'static> Kept<T> {
    /// Keeps a value; whoever frees it pays in `group`.
    pub(crate) fn new(value: T, handles: &'static Handles, group: Group) -> Kept<T> {
        Kept { value: Some(value), handles, group }
    }

    /// The value, to be worked on.
    pub(crate) fn take(mut self) -> T {
        self.value.take().expect("there until dropped")
    }

    pub(crate) fn get(&self) -> &T {
        self.value.as_ref().expect("there until dropped")
    }
}

impl<T: Send + 'static> Drop for Kept<T> {
    fn drop(&mut self) {
        // While the lanes shut down it does not matter who frees what.
        if let Some(value) = self.value.take().filter(|_| lanes::on_lane()) {
            heavy(self.handles, self.group, async move { drop(value) }).detach();
        }
    }
}
