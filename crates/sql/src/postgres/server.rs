//! The SQL listener: created once, joined by every core, opened on core 0, stopped. One socket
//! accepts connections and distributes them over the cores round robin.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use access::{Access, CancelTarget, Cancelled};
use bytes::Bytes;
use engine::{Engine, Measure, MemoryUsage, Metric, Progress, RunningStatement, StatementState};
use frontdoor::Connections;
use lanes::net::{TcpListener, TcpStream};
use lanes::sync::Notify;
use lanes::{Group, PerCore, Task};
use rustc_hash::FxHashMap;
use workload::Admission;

use crate::catalog::Tables;
use crate::config::SqlConfig;
use crate::engine::plan::{Planner, Planning};
use crate::engine::run::Run;
use crate::engine::spill::SpillSpace;
use crate::engine::tasks::Handles;
use crate::postgres::connection;
use crate::postgres::counts::{Counts, PlanCacheCounts};
use crate::postgres::guesses::Guesses;
use crate::postgres::seen::{self, Seen};

/// Connections closed in favor of new ones.
static CLOSED: Metric = Metric::counter(
    "fairlane_sql_connections_closed_before_login_total",
    "SQL connections closed before login to make room for others.",
);

/// Reason why the listener could not open.
#[derive(Debug)]
pub enum StartError {
    /// Plain text on an address beyond loopback, without a certificate or permission for it.
    Plaintext(SocketAddr),
    /// The port cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// The spill folder cannot be created or emptied.
    Spill(PathBuf, io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Plaintext(address) => write!(
                f,
                "refusing to speak plain text on {address}, which is beyond this machine: give a certificate and its \
                 key, listen on 127.0.0.1, or allow plain text explicitly"
            ),
            StartError::Listen(address, error) if error.kind() == io::ErrorKind::AddrInUse => {
                let (port, ip) = (address.port(), address.ip());
                write!(f, "port {port} of {ip} is taken: stop what listens there, or choose another")
            }
            StartError::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            StartError::Spill(folder, error) => {
                write!(f, "cannot use {} for spill files: {error}", folder.display())
            }
        }
    }
}

impl std::error::Error for StartError {}

/// The SQL listener. Cheap to clone, and usable from any thread. Its methods state where they must
/// be called.
#[derive(Clone, Debug)]
pub struct Sql {
    shared: Arc<Shared>,
}

struct Shared {
    config: SqlConfig,
    planner: Box<dyn Planning>,
    handles: OnceLock<&'static Handles>,
    space: OnceLock<Arc<SpillSpace>>,
    warn: Arc<Warn>,
    connections: Connections,
    stopping: AtomicBool,
    /// State of each core, from joining to stopping.
    cores: PerCore<Here>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Live {
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
    pub(crate) run: Option<Arc<Run>>,
}

/// Writes a message to the log.
struct Warn(Box<dyn Fn(&str) + Send + Sync>);

impl fmt::Debug for Warn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Warn")
    }
}

/// State of the listener on one core.
pub(crate) struct Here {
    pub(crate) engine: Rc<dyn Engine>,
    pub(crate) access: Rc<Access>,
    pub(crate) admission: Rc<Admission>,
    pub(crate) counts: Rc<Counts>,
    /// All connections, also before login.
    connections: RefCell<FxHashMap<i32, Rc<Seen>>>,
    sessions: RefCell<FxHashMap<i32, Rc<Live>>>,
    next_session: Cell<i32>,
    accepting: RefCell<Option<Task<()>>>,
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
pub(crate) struct Live {
    /// Secret that a cancel request must contain.
    pub(crate) secret: Bytes,
    guesses: Guesses,
    role: String,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The connection.
    pub(crate) seen: Rc<Seen>,
    /// Its queries: suspended ones first, the running one last.
    pub(crate) queries: RefCell<Vec<Rc<RefCell<Query>>>>,
    /// Requested cancellation.
    pub(crate) cancelled: Cell<Cancel>,
    /// Time for which the next message is not read, because a statement was refused, ns.
    pub(crate) pause_ns: Cell<u64>,
    /// The session is to end.
    pub(crate) killed: Cell<bool>,
    /// Its role lost the right to log in.
    pub(crate) role_ended: Cell<bool>,
    pub(crate) bell: Notify,
}

impl Sql {
    /// Creates a listener that is not open yet. Messages for the log are passed to `warn`, on a
    /// fast lane.
    #[must_use]
    pub fn new(config: SqlConfig, warn: impl Fn(&str) + Send + Sync + 'static) -> Sql {
        Sql::make(config, Warn(Box::new(warn)))
    }

    /// Separate from `new`, so that it is compiled once and not for each caller's `warn`.
    fn make(config: SqlConfig, warn: Warn) -> Sql {
        let warn = Arc::new(warn);
        let to_log = warn.clone();
        let connections = Connections::new(config.connections, move |refusals| {
            (to_log.0)(&format!("SQL: {refusals}"));
        });
        let shared = Shared {
            config,
            planner: Box::new(Planner::new()),
            handles: OnceLock::new(),
            space: OnceLock::new(),
            warn,
            connections,
            stopping: AtomicBool::new(false),
            cores: PerCore::new(),
        };
        Sql { shared: Arc::new(shared) }
    }

    pub(crate) fn config(&self) -> &SqlConfig {
        &self.shared.config
    }

    pub(crate) fn planner(&self) -> &Planner {
        self.shared.planner.planner()
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
        (self.shared.warn.0)(text);
    }

    /// Returns the state on this core. `None` before `join` and after `stop`.
    pub(crate) fn here(&self) -> Option<Rc<Here>> {
        self.shared.cores.get()
    }

    /// Adds this core to the listener, on its fast lane. Every core must join before
    /// [`Sql::open`].
    pub fn join(&self, engine: Rc<dyn Engine>, access: Rc<Access>) {
        let here = Here {
            engine,
            access,
            admission: Admission::new(lanes::current_core()),
            counts: Rc::default(),
            connections: RefCell::default(),
            sessions: RefCell::default(),
            next_session: Cell::new(0),
            accepting: RefCell::default(),
        };
        let here = Rc::new(here);
        let seen = Rc::downgrade(&here);
        let statements = move || seen.upgrade().map_or_else(Vec::new, |here| here.running());
        let registry = here.engine.registry();
        registry.add_rows(RunningStatement::table(statements));
        let (counts, core) = (here.counts.clone(), lanes::current_core());
        // All cores share one plan cache. Core 0 reports it.
        let shared = Arc::downgrade(&self.shared);
        let plans = move || match (core, shared.upgrade()) {
            (0, Some(shared)) => shared.planner.planner().plans(),
            _ => PlanCacheCounts::default(),
        };
        let (counted, planned) = (counts.clone(), plans.clone());
        registry.add_measures(move || counted.measures(planned()));
        registry.add_rows(MemoryUsage::table(core, move || counts.held(plans())));
        let connections = self.shared.connections.clone();
        // Counted for all cores. Core 0 reports it.
        let closed = move || if core == 0 { connections.closed() } else { 0 };
        registry.add_measures(move || vec![Measure { metric: &CLOSED, value: closed() as f64 }]);
        let weak = Rc::downgrade(&here);
        here.access.on_cancel(move |target, id, role| match (weak.upgrade(), target) {
            (Some(here), CancelTarget::Statement) => here.cancel(id, role),
            (Some(here), CancelTarget::Session) => seen::cancel(&here, id, role),
            (None, _) => Cancelled::Unknown,
        });
        registry.add_rows(seen::table(&here));
        self.shared.cores.set(here);
    }

    /// Opens the port, on core 0's fast lane. Returns its address.
    ///
    /// # Errors
    /// The port is taken or not allowed. Nothing is open then.
    pub async fn open(&self) -> Result<SocketAddr, StartError> {
        let (config, address) = (&self.shared.config, self.shared.config.listen);
        if !config.takes_plaintext() && config.tls.is_none() {
            return Err(StartError::Plaintext(address));
        }
        let failed = |error| StartError::Listen(address, error);
        let listener = lanes::net::listen(address, false).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        if let Some(folder) = &self.shared.config.spill_dir {
            let space = SpillSpace::open(folder, self.shared.config.spill_bytes_max).await;
            let space = space.map_err(|error| StartError::Spill(folder.clone(), error))?;
            self.shared.space.set(space).expect("the listener is opened once");
        }
        let handles = Handles::find().await;
        self.shared.handles.set(handles).expect("the listener is opened once");
        self.shared.connections.begin();
        let task = lanes::spawn(Group::CONTROL, self.clone().accept(listener));
        let here = self.here().expect("core 0 has joined");
        *here.accepting.borrow_mut() = Some(task);
        Ok(bound)
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.open()
    }

    async fn accept(self, listener: TcpListener) {
        let connections = &self.shared.connections;
        let mut core = 0;
        let take = |stream: TcpStream, peer: SocketAddr| {
            // Messages are written whole, so Nagle's algorithm would only delay them.
            let _ = stream.set_nodelay(true);
            core = (core + 1) % lanes::cores();
            let sql = self.clone();
            connections.hand_over(core, stream, connections.accept(peer.ip()), move |stream, slot| {
                if let Some(here) = sql.here() {
                    lanes::spawn(Group::DRIVER, connection::serve(sql, here, stream, slot)).detach();
                }
            });
        };
        let failed = |error: &io::Error| self.warn(&format!("cannot accept SQL connections: {error}"));
        frontdoor::accept(listener, take, failed).await;
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
            let may = live.guesses.admit(&live.secret, &secret, lanes::time::now());
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

    /// Stops the listener, on core 0's fast lane: accepts no more connections, waits at most
    /// `deadline` for running statements, then ends all sessions. Returns true if all have ended.
    pub async fn stop(&self, deadline: Duration) -> bool {
        self.shared.stopping.store(true, SeqCst);
        if let Some(here) = self.here() {
            drop(here.accepting.take());
        }
        self.on_sessions(|live| live.bell.notify_waiters()).await;
        let _ = lanes::time::timeout(deadline, self.emptied()).await;
        self.on_sessions(|live| {
            live.killed.set(true);
            live.bell.notify_waiters();
        })
        .await;
        let ended = lanes::time::timeout(Duration::from_secs(1), self.emptied()).await.is_ok();
        for core in 0..lanes::cores() {
            let shared = self.shared.clone();
            lanes::call(core, move || async move { drop(shared.cores.take()) }).await;
        }
        self.shared.connections.end();
        ended
    }

    async fn emptied(&self) {
        while self.connections() > 0 {
            lanes::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn on_sessions(&self, f: fn(&Live)) {
        for core in 0..lanes::cores() {
            let sql = self.clone();
            lanes::call(core, move || async move {
                if let Some(here) = sql.here() {
                    here.sessions.borrow().values().for_each(|live| f(live));
                }
            })
            .await;
        }
    }
}

impl Here {
    /// Returns every table, as currently defined.
    pub(crate) fn tables(&self) -> Tables {
        let virtuals = self.engine.registry().all().into_iter().map(|table| table.def).collect();
        Tables { schema: self.engine.schema(), virtuals }
    }

    /// Registers a connection and gives it a number, from which its core follows.
    pub(crate) fn accept(&self, peer: SocketAddr) -> Rc<Seen> {
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
        let seen = Rc::new(Seen::new(number, peer));
        connections.insert(number, seen.clone());
        seen
    }

    /// Returns this core's connections.
    pub(crate) fn connections(&self) -> Vec<Weak<Seen>> {
        self.connections.borrow().values().map(Rc::downgrade).collect()
    }

    /// Returns the connection with this number. `None`: it has ended or belongs to another core.
    pub(crate) fn connection(&self, number: i32) -> Option<Rc<Seen>> {
        self.connections.borrow().get(&number).cloned()
    }

    /// Makes a session check whether it is to end.
    pub(crate) fn wake(&self, number: i32) {
        if let Some(live) = self.sessions.borrow().get(&number) {
            live.bell.notify();
        }
    }

    /// Registers a session for cancel requests, with a secret of `secret_bytes` bytes.
    pub(crate) fn enter(&self, seen: &Rc<Seen>, role: String, secret_bytes: usize) -> Rc<Live> {
        let mut secret = vec![0; secret_bytes];
        lanes::random::fill(&mut secret);
        let live = Rc::new(Live {
            secret: secret.into(),
            guesses: Guesses::default(),
            role,
            peer: seen.peer,
            seen: seen.clone(),
            queries: RefCell::default(),
            cancelled: Cell::default(),
            pause_ns: Cell::new(0),
            killed: Cell::new(false),
            role_ended: Cell::new(false),
            bell: Notify::new(),
        });
        self.sessions.borrow_mut().insert(seen.number, live.clone());
        live
    }

    /// Cancels the queries of the session with this id. If `role` is given, they must be that
    /// role's.
    fn cancel(&self, id: &str, role: Option<&str>) -> Cancelled {
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

    /// Returns the last query of each session on this core, running or suspended.
    fn running(&self) -> Vec<RunningStatement> {
        let core = lanes::current_core() as u32;
        let of = |(number, live): (&i32, &Rc<Live>)| {
            let query = live.queries.borrow().last()?.clone();
            let query = query.borrow();
            let progress = query.run.as_ref().map(|run| Progress {
                memory_bytes: run.memory(),
                spilled_bytes: run.spilled(),
                rows_read: run.rows(),
                rows_expected: run.expected_rows(),
            });
            Some(RunningStatement {
                service_level: query.level.to_string(),
                id: seen::id(*number),
                core,
                role: live.role.clone(),
                client: live.peer.to_string(),
                state: query.state,
                elapsed_us: u64::try_from(query.began.elapsed().as_micros()).unwrap_or(u64::MAX),
                statement: query.what.clone(),
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
