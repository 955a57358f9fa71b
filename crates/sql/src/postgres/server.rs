//! State of the SQL listener: what all cores share, each core's connections and sessions, and the
//! cancel requests for them. `listener` opens and stops it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use access::{Access, Cancelled};
use bytes::Bytes;
use cluster::Front;
use engine::{Engine, QueryProgress, RunningStatement, StatementState};
use frontdoor::Connections;
use lanes::sync::Notify;
use lanes::{PerCore, Task};
use rustc_hash::FxHashMap;
use workload::Admission;

use crate::catalog::Tables;
use crate::config::{LogEvent, SlowStatement, SqlConfig};
use crate::engine::plan::{Planner, Planning};
use crate::postgres::cancel_attempts::CancelAttempts;
use crate::postgres::connection_status::{self, ConnectionStatus, Ended};
use crate::postgres::counts::SqlCounters;
use crate::run::engines::Engines;
use crate::run::query::QueryRun;
use crate::run::spill::SpillSpace;
use crate::run::tasks::Handles;

/// The SQL listener. Cheap to clone, and usable from any thread. Its methods state where they must
/// be called.
#[derive(Clone, Debug)]
pub struct Sql {
    pub(super) shared: Arc<ListenerState>,
}

pub(super) struct ListenerState {
    pub(super) config: SqlConfig,
    planner: Box<dyn Planning>,
    pub(super) handles: OnceLock<&'static Handles>,
    pub(super) space: OnceLock<Arc<SpillSpace>>,
    log: Arc<Log>,
    pub(super) connections: Connections,
    pub(super) stopping: AtomicBool,
    /// State of each core, from joining to stopping.
    pub(super) cores: PerCore<CoreState>,
    /// The engine of each core, from joining to stopping.
    pub(super) engines: Engines,
}

impl fmt::Debug for ListenerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerState").field("config", &self.config).finish_non_exhaustive()
    }
}

impl ListenerState {
    pub(super) fn planner(&self) -> &Planner {
        self.planner.planner()
    }
}

impl LiveSession {
    fn cancel(&self, what: Cancel) {
        if self.cancelled.get() != Cancel::All {
            self.cancelled.set(what);
        }
        self.bell.notify_waiters();
    }
}

/// A running query, as `system.running_statements` shows it.
pub(crate) struct Query {
    pub(crate) level: Arc<str>,
    pub(crate) began: Instant,
    pub(crate) state: StatementState,
    pub(crate) what: String,
    pub(crate) run: Option<Arc<QueryRun>>,
}

/// Writes to the log.
struct Log(Box<dyn Fn(LogEvent<'_>) + Send + Sync>);

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

/// State of the listener on one core.
pub(crate) struct CoreState {
    pub(crate) engine: Rc<dyn Engine>,
    pub(crate) access: Rc<Access>,
    /// Connections to the nodes of a cluster. `None`: the engine has the data.
    pub(crate) front: Option<Rc<Front>>,
    pub(crate) admission: Rc<Admission>,
    pub(crate) counts: Rc<SqlCounters>,
    /// All connections, also before login.
    pub(super) connections: RefCell<FxHashMap<i32, Rc<ConnectionStatus>>>,
    pub(super) sessions: RefCell<FxHashMap<i32, Rc<LiveSession>>>,
    pub(super) next_session: Cell<i32>,
    pub(super) accepting: RefCell<Option<Task<()>>>,
}

/// Queries of a session to be canceled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Cancel {
    #[default]
    Nothing,
    /// The running statement, as a client's cancel request asks.
    Running,
    /// The running statement and the suspended ones, as `CANCEL STATEMENT` asks.
    All,
}

/// State of a session for cancel requests and for a stop.
pub(crate) struct LiveSession {
    /// Secret that a cancel request must contain.
    pub(crate) secret: Bytes,
    cancel_attempts: CancelAttempts,
    role: String,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The connection.
    pub(crate) status: Rc<ConnectionStatus>,
    /// Its queries: suspended ones first, the running one last.
    pub(crate) queries: RefCell<Vec<Rc<RefCell<Query>>>>,
    /// Requested cancellation.
    pub(crate) cancelled: Cell<Cancel>,
    /// The session is to end.
    pub(crate) killed: Cell<bool>,
    pub(crate) bell: Notify,
}

impl Sql {
    /// Creates a listener that is not open yet. Events for the log are passed to `log`, on a
    /// fast lane.
    #[must_use]
    pub fn new(config: SqlConfig, log: impl Fn(LogEvent<'_>) + Send + Sync + 'static) -> Sql {
        Sql::make(config, Log(Box::new(log)))
    }

    /// Separate from `new`, so that it is compiled once and not for each caller's `log`.
    fn make(config: SqlConfig, log: Log) -> Sql {
        let log = Arc::new(log);
        let to_log = log.clone();
        let connections = Connections::new(config.connections, move |refusals| {
            (to_log.0)(LogEvent::Warning(&format!("SQL: {refusals}")));
        });
        let engines = Engines::default();
        let planner = Planner::new(engines.clone(), &config);
        let shared = ListenerState {
            config,
            planner: Box::new(planner),
            handles: OnceLock::new(),
            space: OnceLock::new(),
            log,
            connections,
            stopping: AtomicBool::new(false),
            cores: PerCore::new(),
            engines,
        };
        Sql { shared: Arc::new(shared) }
    }

    pub(crate) fn config(&self) -> &SqlConfig {
        &self.shared.config
    }

    pub(crate) fn planner(&self) -> &Planner {
        self.shared.planner()
    }

    /// Returns the runtimes that heavy work enters.
    pub(crate) fn handles(&self) -> &'static Handles {
        self.shared.handles.get().expect("found before the listener opens")
    }

    /// Returns the space that queries spill to. `None`: they may not spill.
    pub(crate) fn space(&self) -> Option<Arc<SpillSpace>> {
        self.shared.space.get().cloned()
    }

    pub(crate) fn warn(&self, text: &str) {
        (self.shared.log.0)(LogEvent::Warning(text));
    }

    pub(crate) fn log_slow(&self, statement: &SlowStatement<'_>) {
        (self.shared.log.0)(LogEvent::Slow(statement));
    }

    /// Returns the state on this core. `None` before `join` and after `stop`.
    pub(crate) fn here(&self) -> Option<Rc<CoreState>> {
        self.shared.cores.get()
    }

    /// Cancels the running statement of the session that a client's cancel request names, if the
    /// request has that session's secret. Returns false if it does not, or if there is no such
    /// session.
    pub(crate) async fn cancel(&self, session: i32, secret: Bytes) -> bool {
        let Ok(number) = usize::try_from(session) else { return false };
        let sql = self.clone();
        let ring = move || async move {
            let live = sql.here().and_then(|here| here.sessions.borrow().get(&session).cloned());
            let Some(live) = live else { return false };
            let may = live.cancel_attempts.admit(&live.secret, &secret, lanes::time::now());
            if may {
                live.cancel(Cancel::Running);
            }
            may
        };
        lanes::call(number % lanes::cores(), ring).await
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.stopping.load(SeqCst)
    }
}

impl CoreState {
    /// Returns every table, as currently defined.
    pub(crate) fn tables(&self) -> Tables {
        Tables { schema: self.engine.schema(), virtuals: self.engine.scanned_virtual_tables().into() }
    }

    /// Registers a connection and gives it a number, from which its core follows.
    pub(crate) fn accept(&self, peer: SocketAddr) -> Rc<ConnectionStatus> {
        let (cores, core) = (lanes::cores() as i32, lanes::current_core() as i32);
        let mut connections = self.connections.borrow_mut();
        let number = loop {
            let next = self.next_session.get() % (i32::MAX / cores - 1) + 1;
            self.next_session.set(next);
            let number = next * cores + core;
            if !connections.contains_key(&number) {
                break number;
            }
        };
        let status = Rc::new(ConnectionStatus::new(number, peer));
        connections.insert(number, status.clone());
        status
    }

    /// Returns this core's connections.
    pub(crate) fn connections(&self) -> Vec<Weak<ConnectionStatus>> {
        self.connections.borrow().values().map(Rc::downgrade).collect()
    }

    /// Returns the connection with this number. `None`: it has ended or belongs to another core.
    pub(crate) fn connection(&self, number: i32) -> Option<Rc<ConnectionStatus>> {
        self.connections.borrow().get(&number).cloned()
    }

    /// Makes a session check whether it is to end.
    pub(crate) fn wake(&self, number: i32) {
        if let Some(live) = self.sessions.borrow().get(&number) {
            live.bell.notify();
        }
    }

    /// Registers a session for cancel requests, with a secret of `secret_bytes` bytes.
    pub(crate) fn enter(
        &self,
        status: &Rc<ConnectionStatus>,
        role: String,
        secret_bytes: usize,
    ) -> Rc<LiveSession> {
        let mut secret = vec![0; secret_bytes];
        lanes::random::fill(&mut secret);
        let live = Rc::new(LiveSession {
            secret: secret.into(),
            cancel_attempts: CancelAttempts::default(),
            role,
            peer: status.peer,
            status: status.clone(),
            queries: RefCell::default(),
            cancelled: Cell::default(),
            killed: Cell::new(false),
            bell: Notify::new(),
        });
        self.sessions.borrow_mut().insert(status.number, live.clone());
        live
    }

    /// Cancels the queries of the session with this id. If `role` is given, they must be that
    /// role's.
    pub(super) fn cancel(&self, id: &str, role: Option<&str>) -> Cancelled {
        let number = id.strip_prefix("sql-").and_then(|number| number.parse().ok());
        let live = number.and_then(|number: i32| self.sessions.borrow().get(&number).cloned());
        match live.filter(|live| !live.queries.borrow().is_empty()) {
            None => Cancelled::Unknown,
            Some(live) if role.is_some_and(|role| live.role != role) => Cancelled::OfOther,
            Some(live) => {
                live.cancel(Cancel::All);
                Cancelled::Done
            }
        }
    }

    /// Ends a session of this core, for `CANCEL SESSION`. If `role` is given, it must be that
    /// role's.
    pub(crate) fn end_session(&self, wanted: &str, role: Option<&str>) -> Cancelled {
        let number = wanted.strip_prefix("sql-").and_then(|number| number.parse().ok());
        let status = number
            .and_then(|number: i32| self.connection(number))
            .filter(|status| connection_status::id(status.number) == wanted);
        match status {
            None => Cancelled::Unknown,
            Some(status) if role.is_some_and(|role| !status.is_of(role)) => Cancelled::OfOther,
            Some(status) => {
                status.end(Ended::ByRequest);
                self.wake(status.number);
                Cancelled::Done
            }
        }
    }

    /// Returns the last query of each session on this core, running or suspended.
    pub(super) fn running(&self) -> Vec<RunningStatement> {
        let core = lanes::current_core() as u32;
        let of = |(number, live): (&i32, &Rc<LiveSession>)| {
            let query = live.queries.borrow().last()?.clone();
            let query = query.borrow();
            let progress = query.run.as_ref().map(|run| QueryProgress {
                memory_bytes: run.memory(),
                spilled_bytes: run.spilled(),
                rows_expected: run.expected_rows(),
            });
            Some(RunningStatement {
                service_level: query.level.to_string(),
                id: connection_status::id(*number),
                core,
                role: live.role.clone(),
                client: live.peer.to_string(),
                state: query.state,
                elapsed_us: u64::try_from(query.began.elapsed().as_micros()).unwrap_or(u64::MAX),
                statement: query.what.clone(),
                rows_read: query.run.as_ref().map(|run| run.rows()),
                progress,
            })
        };
        self.sessions.borrow().iter().filter_map(of).collect()
    }

    pub(crate) fn leave(&self, number: i32) {
        self.sessions.borrow_mut().remove(&number);
        self.connections.borrow_mut().remove(&number);
    }
}
