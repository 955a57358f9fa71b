//! One run of a query: its memory, its spilled data, and its progress. The operators of its plan,
//! on any core, find it in their task's context.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datafusion::common::config::SpillCompression;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use lanes::Group;
use uuid::Uuid;
use workload::{Account, Effective};

use crate::run::memory::{Held, StatementMemory};
use crate::run::snapshots::Snapshots;
use crate::run::spill::{Files, SpillSpace, Spills};

/// Interval at which a suspended task looks whether it may go on.
const SUSPENDED_EVERY: Duration = Duration::from_millis(20);

/// A plan to be executed.
pub(crate) struct Physical {
    /// Plan with one partition.
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// State it was planned with.
    pub(crate) state: Arc<SessionState>,
    /// Ids of the tables that it reads more than once.
    pub(crate) repeated: Arc<HashSet<Uuid>>,
}

/// State shared by all operators of one query.
pub(crate) struct QueryRun {
    account: Arc<Account>,
    memory: Arc<StatementMemory>,
    /// Values that its plan keeps, such as those of subqueries.
    kept: Mutex<Held>,
    /// `None` if the level did not allow spilling when the query began.
    spills: Option<Arc<Spills>>,
    rows: AtomicU64,
    bytes: AtomicU64,
    /// Estimate of the rows that all scans return in total.
    expected_rows: AtomicU64,
    /// Some rows were sent to the client.
    has_given: AtomicBool,
    /// The server is overloaded, and this query waits until that is over.
    is_suspended: AtomicBool,
    /// `group` was set: tasks must switch to it.
    has_moved: AtomicBool,
    group: Mutex<Option<Group>>,
}

impl QueryRun {
    /// Creates a run in a level. It spills to `space`, if that is given and the level allows it.
    pub(crate) fn new(effective: &Effective, space: Option<Arc<SpillSpace>>) -> Arc<QueryRun> {
        let account = Arc::new(effective.level.account());
        let space = space.filter(|_| effective.spec.spill);
        let spills = space.map(|space| Spills::new(space, account.clone()));
        let memory = Arc::new(StatementMemory::new(account.clone()));
        let run = QueryRun {
            account,
            kept: Mutex::new(Held::of(Some(memory.clone()))),
            memory,
            spills,
            rows: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            expected_rows: AtomicU64::new(0),
            has_given: AtomicBool::new(false),
            is_suspended: AtomicBool::new(false),
            has_moved: AtomicBool::new(false),
            group: Mutex::new(None),
        };
        run.let_spill(effective.spec.spill);
        Arc::new(run)
    }

    /// Returns the run that an operator belongs to.
    pub(crate) fn of(context: &TaskContext) -> Option<Arc<QueryRun>> {
        context.session_config().get_extension()
    }

    /// Executes a plan. All scans of a table read the same snapshot.
    ///
    /// # Errors
    /// Errors of DataFusion.
    pub(crate) fn execute(self: &Arc<Self>, physical: &Physical) -> Result<SendableRecordBatchStream> {
        physical.plan.execute(0, self.context(&physical.state, &physical.repeated)?)
    }

    fn context(
        self: &Arc<Self>,
        state: &SessionState,
        repeated: &Arc<HashSet<Uuid>>,
    ) -> Result<Arc<TaskContext>> {
        let disk = match &self.spills {
            Some(spills) => {
                let files = Files { spills: spills.clone(), memory: self.memory.clone() };
                DiskManagerBuilder::default().with_temp_file_factory(Arc::new(files))
            }
            None => DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled),
        };
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(self.memory.clone())
            .with_disk_manager_builder(disk)
            .build_arc()?;
        let snapshots = Arc::new(Snapshots::new(repeated.clone()));
        let mut config = state.config().clone().with_extension(self.clone()).with_extension(snapshots);
        let execution = &mut config.options_mut().execution;
        execution.spill_compression = SpillCompression::Lz4Frame;
        // Memory that a sort reserves for its merge: not more than each operator gets without
        // asking.
        execution.sort_spill_reservation_bytes = if self.can_spill() { 1 << 20 } else { 0 };
        let context = TaskContext::from(state).with_session_config(config).with_runtime(runtime);
        Ok(Arc::new(context))
    }

    /// Returns true if the query may spill.
    pub(crate) fn can_spill(&self) -> bool {
        self.memory.spills()
    }

    /// Allows or forbids further spilling. Has no effect on a query that began without spilling,
    /// since it was planned for that. Data spilled already stays on disk.
    pub(crate) fn let_spill(&self, may: bool) {
        self.memory.let_spill(may && self.spills.is_some());
    }

    /// Counts a batch returned by a scan. Waits while too much spilled data is in flight to the
    /// disk.
    pub(crate) async fn has_read(&self, rows: usize, bytes: usize) {
        self.rows.fetch_add(rows as u64, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
        if let Some(spills) = &self.spills {
            spills.backpressure().await;
        }
        self.follow().await;
    }

    /// Adds a starting scan's estimate of `rows`.
    pub(crate) fn expect(&self, rows: u64) {
        self.expected_rows.fetch_add(rows, Relaxed);
    }

    fn kept(&self) -> MutexGuard<'_, Held> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges a value of `bytes` until the run ends.
    ///
    /// # Errors
    /// The level refuses it.
    pub(crate) fn keep(&self, bytes: u64) -> Result<()> {
        self.kept().grow(bytes)
    }

    /// Resets the counters, and releases what a failed attempt kept, for another attempt.
    pub(crate) fn reset_counts(&self) {
        self.kept().shrink(u64::MAX);
        for count in [&self.rows, &self.bytes, &self.expected_rows] {
            count.store(0, Relaxed);
        }
    }

    /// Records that rows are sent to the client. The query cannot be restarted afterwards.
    pub(crate) fn give(&self) {
        self.has_given.store(true, Relaxed);
    }

    /// Returns true if rows were sent to the client.
    pub(crate) fn has_given(&self) -> bool {
        self.has_given.load(Relaxed)
    }

    /// Returns the rows read by its scans.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Relaxed)
    }

    /// Returns the estimated total rows of its scans, at least the rows read so far.
    pub(crate) fn expected_rows(&self) -> u64 {
        self.expected_rows.load(Relaxed).max(self.rows())
    }

    /// Returns the bytes read by its scans, as Arrow arrays in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Returns why its level refused memory. `None` if it never did.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.memory.refusal()
    }

    /// Returns the account that its memory is charged to.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Returns the memory that its operators share.
    pub(crate) fn statement_memory(&self) -> Arc<StatementMemory> {
        self.memory.clone()
    }

    /// Returns the memory in use, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.account.used()
    }

    /// Returns the bytes spilled to disk.
    pub(crate) fn spilled(&self) -> u64 {
        self.spills.as_ref().map_or(0, |spills| spills.written())
    }

    /// Moves its memory and the remaining work to a level.
    pub(crate) fn move_to(&self, effective: &Effective) {
        self.account.move_to(effective.level.memory());
        self.let_spill(effective.spec.spill);
        *self.group.lock().unwrap_or_else(PoisonError::into_inner) = Some(effective.group());
        self.has_moved.store(true, Release);
    }

    /// Returns the group that the running task must switch to. `None` if it is in the right one.
    fn elsewhere(&self) -> Option<Group> {
        if !self.has_moved.load(Acquire) {
            return None;
        }
        let group = *self.group.lock().unwrap_or_else(PoisonError::into_inner);
        group.filter(|group| *group != lanes::current_group())
    }

    /// Stops its tasks where they yield, or lets them go on. Returns whether it was suspended
    /// before.
    pub(crate) fn set_suspended(&self, is_suspended: bool) -> bool {
        self.is_suspended.swap(is_suspended, Relaxed)
    }

    /// Returns true if [`QueryRun::follow`] would wait or switch the group.
    pub(crate) fn must_follow(&self) -> bool {
        self.is_suspended.load(Relaxed) || self.elsewhere().is_some()
    }

    /// Switches the running task to the group of the run, and waits while the run is suspended.
    /// Tasks of the run await this where they yield.
    pub(crate) async fn follow(&self) {
        while self.is_suspended.load(Relaxed) {
            lanes::time::sleep(SUSPENDED_EVERY).await;
        }
        if let Some(group) = self.elsewhere() {
            lanes::switch_group(group).await;
        }
    }
}

impl fmt::Debug for QueryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueryRun({} bytes, {} rows)", self.memory(), self.rows())
    }
}
