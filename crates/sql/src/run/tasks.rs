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
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use datafusion::error::DataFusionError;
use engine::Viewer;
use futures::FutureExt;
use futures::future::BoxFuture;
pub(crate) use lanes::Panicked;
use lanes::{Group, Task};
use tokio::runtime::Handle;
use workload::{Account, Level};

use crate::run::memory::{Held, StatementMemory};
use crate::run::sizes::BATCH_BYTES;

/// Hidden tables recorded for the audit log, for each statement.
const HIDDEN_MAX: usize = 16;
/// Memory for planning that is not charged, bytes: a query of dashboards or administrators has some
/// hundred nodes. Charging it would make a level count as active, which takes from the entitlement
/// of other levels.
const PLANNING_FREE_BYTES: u64 = 1 << 20;
/// Memory for planning that a statement gets even if its level has none left, bytes.
const PLANNING_FLOOR_BYTES: u64 = 4 << 20;

thread_local! {
    /// Tasks spawned by the current task poll.
    static SPAWNED: Cell<usize> = const { Cell::new(0) };
    /// Runtimes that the current task poll has entered, for tasks that it spawns.
    static RUNTIME: Cell<Option<&'static Handles>> = const { Cell::new(None) };
    /// Statement of the current task poll: for slow functions, for the catalog, and for tasks that
    /// it spawns.
    static STATEMENT: RefCell<Option<Arc<Polled>>> = const { RefCell::new(None) };
    /// Memory of values that the current task poll has made, until it ends.
    static MADE: RefCell<Option<Made>> = const { RefCell::new(None) };
}

/// Memory of values that a task poll has made.
#[derive(Debug)]
struct Made {
    held: Held,
    /// Bytes of the last result of each call in the plan.
    results: HashMap<CallPlace, u64>,
}

impl Made {
    fn new() -> Made {
        Made { held: Held::of(memory()), results: HashMap::new() }
    }
}

/// Identifies a call of a function in a plan: the address of its field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CallPlace(usize);

impl CallPlace {
    /// Returns the place of the call that returns `field`. An address that is used again makes at
    /// most the release of one charge early.
    pub(crate) fn of(field: &FieldRef) -> CallPlace {
        CallPlace(Arc::as_ptr(field) as usize)
    }
}

/// State of a statement for code that DataFusion calls.
#[derive(Debug)]
struct Polled {
    has_ended: AtomicBool,
    viewer: Arc<dyn Viewer>,
    /// Hidden tables that it named, at most [`HIDDEN_MAX`].
    hidden: Mutex<Vec<(String, String)>>,
    /// Memory of its planning.
    planning: Mutex<Option<Charged>>,
    /// Memory of its values. Set when it is executed.
    memory: OnceLock<Arc<StatementMemory>>,
}

/// Memory of planning, charged to a statement's account and released when dropped.
#[derive(Debug)]
struct Charged {
    level: Arc<Level>,
    /// `None` until something is charged: an account more makes the parts of a level's other
    /// statements smaller.
    account: Option<Arc<Account>>,
    bytes: u64,
}

impl Charged {
    fn grow(&mut self, bytes: u64) -> Result<(), String> {
        let more = bytes.saturating_sub(self.bytes);
        if bytes <= PLANNING_FREE_BYTES || more == 0 {
            return Ok(());
        }
        let account = self.account.get_or_insert_with(|| Arc::new(self.level.account()));
        if bytes <= PLANNING_FLOOR_BYTES {
            account.grow(more);
        } else {
            account.try_grow_unspillable(more).map_err(|refusal| refusal.to_string())?;
        }
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.account.iter().for_each(|account| account.shrink(self.bytes));
    }
}

/// Guard of a running statement. When it is dropped, the statement's functions stop at their next
/// chunk, its tasks at their next yield.
#[derive(Debug)]
pub(crate) struct End(Arc<Polled>);

impl End {
    /// Creates the guard of a statement that sees what `viewer` allows.
    pub(crate) fn of(viewer: Arc<dyn Viewer>) -> End {
        End(Arc::new(Polled {
            has_ended: AtomicBool::new(false),
            viewer,
            hidden: Mutex::default(),
            planning: Mutex::default(),
            memory: OnceLock::new(),
        }))
    }

    /// Charges the memory of planning to `level` from now on: to `account`, if the statement has
    /// one already.
    pub(crate) fn charge_to(&self, level: Arc<Level>, account: Option<Arc<Account>>) {
        let charged = Charged { level, account, bytes: 0 };
        *self.0.planning.lock().unwrap_or_else(PoisonError::into_inner) = Some(charged);
    }

    /// Charges the values of the statement's functions and aggregates to `memory` from now on.
    pub(crate) fn charge_values_to(&self, memory: Arc<StatementMemory>) {
        // A statement is executed once.
        let _ = self.0.memory.set(memory);
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

/// Returns the memory of the statement of the current task poll. `None` outside of statements, and
/// while one is planned.
pub(crate) fn memory() -> Option<Arc<StatementMemory>> {
    STATEMENT.with_borrow(|polled| polled.as_ref()?.memory.get().cloned())
}

/// Charges `bytes` of a value until the current task poll ends. After that, those charge it that
/// keep it: channels between lanes, operators, and the statement's answer.
///
/// # Errors
/// The level refuses them.
pub(crate) fn charge_poll(bytes: u64) -> Result<(), DataFusionError> {
    MADE.with_borrow_mut(|made| made.get_or_insert_with(Made::new).held.grow(bytes))
}

/// Charges `bytes` of a function's result until its call is evaluated again, for the next batch, or
/// the current task poll ends. A poll may take many batches from nodes that do not yield.
///
/// # Errors
/// The level refuses them.
pub(crate) fn charge_result(place: CallPlace, bytes: u64) -> Result<(), DataFusionError> {
    MADE.with_borrow_mut(|made| {
        let made = made.get_or_insert_with(Made::new);
        made.held.grow(bytes)?;
        *made.results.entry(place).or_default() += bytes;
        Ok(())
    })
}

/// Releases the result of the last batch of a call, which is evaluated again.
pub(crate) fn release_result(place: CallPlace) {
    MADE.with_borrow_mut(|made| {
        let Some(made) = made else { return };
        if let Some(bytes) = made.results.remove(&place) {
            made.held.shrink(bytes);
        }
    });
}

/// Returns true if the current task poll has made values of a large batch. It should end, as the
/// values of earlier batches are gone by then, but charged.
pub(crate) fn has_made_much() -> bool {
    MADE.with_borrow(|made| made.as_ref().is_some_and(|made| made.held.bytes() >= BATCH_BYTES))
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

#[cfg(test)]
thread_local! {
    /// Checks for the end of the statement so far, and the number of the one that finds it.
    static CHECKS: Cell<(usize, usize)> = const { Cell::new((0, usize::MAX)) };
}

/// Calls `f` as a statement would that ends before its check number `checks`. Returns the number
/// of checks.
#[cfg(test)]
pub(crate) fn ending_after<T>(checks: usize, f: impl FnOnce() -> T) -> (T, usize) {
    CHECKS.set((0, checks));
    let result = f();
    (result, CHECKS.replace((0, usize::MAX)).0)
}

/// Checks that the statement of the current task poll has not ended.
///
/// # Errors
/// The statement has ended. Its client has its answer already.
pub(crate) fn check_end() -> Result<(), DataFusionError> {
    let has_ended =
        STATEMENT.with_borrow(|polled| polled.as_ref().is_some_and(|polled| polled.has_ended.load(Relaxed)));
    #[cfg(test)]
    let has_ended = has_ended || {
        let (checks, last) = CHECKS.get();
        CHECKS.set((checks + 1, last));
        checks + 1 >= last
    };
    if has_ended { Err(DataFusionError::Execution("the statement has ended".to_owned())) } else { Ok(()) }
}

/// Charges memory for planning the statement of the current task poll, up to `bytes` in total, as
/// long as the statement lasts. Nothing is charged outside of statements.
///
/// # Errors
/// The reason why the level refuses it.
pub(crate) fn charge(bytes: u64) -> Result<(), String> {
    let Some(polled) = polled() else { return Ok(()) };
    let mut planning = polled.planning.lock().unwrap_or_else(PoisonError::into_inner);
    planning.as_mut().map_or(Ok(()), |charged| charged.grow(bytes))
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
        drop(MADE.take());
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
