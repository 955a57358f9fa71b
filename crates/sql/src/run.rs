//! One run of a query: what it may have, what it has put aside, and how far it has come. The parts of its plan, on whatever core,
//! find it in their task's context.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::config::SpillCompression;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::SendableRecordBatchStream;
use lanes::Group;
use uuid::Uuid;
use workload::{Account, Effective};

use crate::memory::StatementMemory;
use crate::plan::Physical;
use crate::snapshots::Snapshots;
use crate::spill::{Files, SpillSpace, Spills};

/// See the head of this file.
pub(crate) struct Run {
    account: Arc<Account>,
    memory: Arc<StatementMemory>,
    /// None if its level did not let it spill when it began.
    spills: Option<Arc<Spills>>,
    rows: AtomicU64,
    bytes: AtomicU64,
    /// Rows that its scans will have given when they end, as far as that can be told.
    expected_rows: AtomicU64,
    /// Some of its rows were given to the client.
    has_given: AtomicBool,
    /// It is to go on in another group.
    has_moved: AtomicBool,
    group: Mutex<Option<Group>>,
}

impl Run {
    /// A run in a level; where it spills to, if anywhere.
    pub(crate) fn new(effective: &Effective, space: Option<Arc<SpillSpace>>) -> Arc<Run> {
        let account = Arc::new(effective.level.account());
        let space = space.filter(|_| effective.spec.spill);
        let spills = space.map(|space| Spills::new(space, account.clone()));
        let memory = Arc::new(StatementMemory::new(account.clone()));
        let run = Run {
            account,
            memory,
            spills,
            rows: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            expected_rows: AtomicU64::new(0),
            has_given: AtomicBool::new(false),
            has_moved: AtomicBool::new(false),
            group: Mutex::new(None),
        };
        run.let_spill(effective.spec.spill);
        Arc::new(run)
    }

    /// The run that a part of a plan belongs to.
    pub(crate) fn of(context: &TaskContext) -> Option<Arc<Run>> {
        context.session_config().get_extension()
    }

    /// Executes a plan, whose scans of a table all see one moment.
    ///
    /// # Errors
    /// As DataFusion says.
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
        // What a sort keeps to merge with: no more than every operator may have.
        execution.sort_spill_reservation_bytes = if self.can_spill() { 1 << 20 } else { 0 };
        let context = TaskContext::from(state).with_session_config(config).with_runtime(runtime);
        Ok(Arc::new(context))
    }

    /// Whether its level lets it spill.
    pub(crate) fn can_spill(&self) -> bool {
        self.memory.spills()
    }

    /// Whether its level lets it spill from now on; it does so only if it did when the query began, which was planned to. What was put
    /// aside stays where it is.
    pub(crate) fn let_spill(&self, may: bool) {
        self.memory.let_spill(may && self.spills.is_some());
    }

    /// Counts what a scan has given, and lets it go on when what is under way to the disk allows it.
    pub(crate) async fn has_read(&self, rows: usize, bytes: usize) {
        self.rows.fetch_add(rows as u64, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
        if let Some(spills) = &self.spills {
            spills.room().await;
        }
        self.follow().await;
    }

    /// A scan begins that gives about so many rows.
    pub(crate) fn expect(&self, rows: u64) {
        self.expected_rows.fetch_add(rows, Relaxed);
    }

    /// Begins to count anew, for another attempt.
    pub(crate) fn begin_again(&self) {
        for count in [&self.rows, &self.bytes, &self.expected_rows] {
            count.store(0, Relaxed);
        }
    }

    /// Notes that rows are given to the client: from here on the query cannot be begun again.
    pub(crate) fn give(&self) {
        self.has_given.store(true, Relaxed);
    }

    /// Whether rows were given to the client.
    pub(crate) fn has_given(&self) -> bool {
        self.has_given.load(Relaxed)
    }

    /// Rows that its scans have given.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Relaxed)
    }

    /// Rows that its scans give in all, roughly; no fewer than they have given.
    pub(crate) fn expected_rows(&self) -> u64 {
        self.expected_rows.load(Relaxed).max(self.rows())
    }

    /// Bytes that its scans have given, as they lie in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Why its level had no more memory for it, if that was ever said.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.memory.refusal()
    }

    /// Memory it has, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.account.used()
    }

    /// What it has put aside on disk, bytes.
    pub(crate) fn spilled(&self) -> u64 {
        self.spills.as_ref().map_or(0, |spills| spills.written())
    }

    /// From now on its work is done in that group.
    pub(crate) fn move_to(&self, group: Group) {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner) = Some(group);
        self.has_moved.store(true, Release);
    }

    /// The group that the running task is to go on in, if it is in another.
    pub(crate) fn elsewhere(&self) -> Option<Group> {
        if !self.has_moved.load(Acquire) {
            return None;
        }
        let group = *self.group.lock().unwrap_or_else(PoisonError::into_inner);
        group.filter(|group| *group != lanes::current_group())
    }

    /// Takes the running task to the group that the run has been moved to. To be awaited by tasks of the run, where they would
    /// give way to others.
    pub(crate) async fn follow(&self) {
        if let Some(group) = self.elsewhere() {
            lanes::switch_group(group).await;
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Run({} bytes, {} rows)", self.memory(), self.rows())
    }
}
