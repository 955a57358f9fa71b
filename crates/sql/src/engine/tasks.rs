//! Runs DataFusion's work on heavy lanes, including the tasks that it spawns.
//!
//! DataFusion calls `tokio::spawn`, which needs a tokio runtime. A heavy lane that polls
//! DataFusion's code has therefore entered the runtime of its core's fast lane. DataFusion passes
//! each future to a tracer before it spawns it. The tracer starts the future as a heavy task in
//! the spawner's group, and leaves to tokio a future that waits for its end. Tokio's part is a
//! wake-up on the fast lane, about a microsecond. The work is done by heavy lanes and charged
//! there.
//!
//! Aborting a tokio task drops that waiting future, which cancels the heavy task.

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

/// Hidden tables recorded for the audit log, for each statement.
const HIDDEN_MAX: usize = 16;

thread_local! {
    /// Tasks spawned by the current task poll.
    static SPAWNED: Cell<usize> = const { Cell::new(0) };
    /// Runtimes that the current task poll has entered, for tasks that it spawns.
    static RUNTIME: Cell<Option<&'static Handles>> = const { Cell::new(None) };
    /// Statement of the current task poll: for slow functions, for the catalog, and for tasks that
    /// it spawns.
    static STATEMENT: RefCell<Option<Arc<Polled>>> = const { RefCell::new(None) };
}

/// State of a statement for code that DataFusion calls.
#[derive(Debug)]
struct Polled {
    has_ended: AtomicBool,
    viewer: Arc<dyn Viewer>,
    /// Hidden tables that it named, at most [`HIDDEN_MAX`].
    hidden: Mutex<Vec<(String, String)>>,
}

/// Guard of a running statement. When it is dropped, the statement's functions stop at their next
/// chunk, its tasks at their next yield.
#[derive(Debug)]
pub(crate) struct End(Arc<Polled>);

impl End {
    /// Creates the guard of a statement that sees what `viewer` allows.
    pub(crate) fn of(viewer: Arc<dyn Viewer>) -> End {
        End(Arc::new(Polled { has_ended: AtomicBool::new(false), viewer, hidden: Mutex::default() }))
    }

    /// Returns the hidden tables that the statement named, by keyspace and name.
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

/// Returns the viewer of the statement of the current task poll. `None` outside of statements.
pub(crate) fn viewer() -> Option<Arc<dyn Viewer>> {
    polled().map(|polled| polled.viewer.clone())
}

/// Records that the statement of the current task poll named a hidden table.
pub(crate) fn hide(keyspace: &str, table: &str) {
    let Some(polled) = polled() else { return };
    let mut hidden = polled.hidden.lock().unwrap_or_else(PoisonError::into_inner);
    if hidden.len() < HIDDEN_MAX {
        hidden.push((keyspace.to_owned(), table.to_owned()));
    }
}

/// Calls `f` as a statement with this viewer would.
#[cfg(test)]
pub(crate) fn shown_to<T>(viewer: Option<Arc<dyn Viewer>>, f: impl FnOnce() -> T) -> T {
    let end = viewer.map(End::of);
    let outer = STATEMENT.replace(end.as_ref().map(|end| end.0.clone()));
    let result = f();
    STATEMENT.set(outer);
    result
}

/// Checks that the statement of the current task poll has not ended.
///
/// # Errors
/// The statement has ended. Its client has its answer already.
pub(crate) fn check_end() -> Result<(), DataFusionError> {
    let has_ended =
        STATEMENT.with_borrow(|polled| polled.as_ref().is_some_and(|polled| polled.has_ended.load(Relaxed)));
    if has_ended { Err(DataFusionError::Execution("the statement has ended".to_owned())) } else { Ok(()) }
}

/// Runtimes of all cores' fast lanes. Created once for a server and never freed: some hundred
/// bytes.
#[derive(Debug)]
pub(crate) struct Handles(pub(crate) Vec<Handle>);

impl Handles {
    /// Collects the runtimes of all cores. Must be called on a fast lane.
    pub(crate) async fn find() -> &'static Handles {
        let mut handles = Vec::with_capacity(lanes::cores());
        for core in 0..lanes::cores() {
            handles.push(lanes::call(core, || async { Handle::current() }).await);
        }
        // An earlier server of this process has set the same tracer.
        let _ = set_join_set_tracer(&ToHeavyLanes);
        Box::leak(Box::new(Handles(handles)))
    }
}

/// A future that enters a runtime whenever a heavy lane polls it.
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

/// Starts work of DataFusion on this core's heavy lane, for the statement of the current task
/// poll, if any.
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
    // State that a panic leaves inconsistent belongs to the query, which ends.
    lanes::heavy(group, lanes::catch_panic(entered))
}

/// Like [`heavy`], on core `core`, from either lane of any core. Returns the task's handle.
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

/// Like [`heavy_on`], for the statement that ends with `end`.
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

/// Returns the runtimes of the current task poll. `None` outside of [`heavy`].
pub(crate) fn handles() -> Option<&'static Handles> {
    RUNTIME.get()
}

struct ToHeavyLanes;

type Erased = Box<dyn Any + Send>;

impl JoinSetTracer for ToHeavyLanes {
    fn trace_future(&self, future: BoxFuture<'static, Erased>) -> BoxFuture<'static, Erased> {
        let Some(handles) = RUNTIME.get().filter(|_| lanes::on_heavy_lane()) else { return future };
        let nth = SPAWNED.replace(SPAWNED.get() + 1);
        let core = (lanes::current_core() + core_offset(nth)) % lanes::cores();
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

    /// Not called. DataFusion spawns blocking work for stream tables, which do not exist here, and
    /// for its own spill files, which ours replace (`spill.rs`).
    fn trace_block(&self, work: Box<dyn FnOnce() -> Erased + Send>) -> Box<dyn FnOnce() -> Erased + Send> {
        work
    }
}

/// Returns the distance in cores from the spawner to its nth task of a task poll. A repartition
/// starts two tasks for each input, one after the other: the first splits batches, the second
/// waits for the first. Going by pairs distributes the splitting over the cores.
fn core_offset(nth: usize) -> usize {
    nth / 2
}

/// A value of a statement that a session on a fast lane keeps. Dropping it may take long, and
/// therefore happens on a heavy lane.
pub(crate) struct HeavyDrop<T: Send + 'static> {
    value: Option<T>,
    handles: &'static Handles,
    group: Group,
}

impl<T: Send + 'static> HeavyDrop<T> {
    /// Keeps a value. `group` pays for dropping it.
    pub(crate) fn new(value: T, handles: &'static Handles, group: Group) -> HeavyDrop<T> {
        HeavyDrop { value: Some(value), handles, group }
    }

    /// Returns the value, to be used on a heavy lane.
    pub(crate) fn take(mut self) -> T {
        self.value.take().expect("there until dropped")
    }

    pub(crate) fn get(&self) -> &T {
        self.value.as_ref().expect("there until dropped")
    }
}

impl<T: Send + 'static> Drop for HeavyDrop<T> {
    fn drop(&mut self) {
        // While the lanes shut down, any thread may drop it.
        if let Some(value) = self.value.take().filter(|_| lanes::on_lane()) {
            heavy(self.handles, self.group, async move { drop(value) }).detach();
        }
    }
}
