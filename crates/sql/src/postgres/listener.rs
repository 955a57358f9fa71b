//! The SQL listener: created once, joined by every core, opened on core 0, stopped. One socket
//! accepts connections and distributes them over the cores round robin.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use access::{Access, CancelTarget, Cancelled};
use cluster::Front;
use engine::{ClientSession, Engine, Measure, MemoryUsage, Metric, RunningStatement, VirtualTable};
use frontdoor::ListenError;
use lanes::Group;
use lanes::net::{TcpListener, TcpStream};
use workload::Admission;

use crate::engine::plan_cache::PlanCacheCounts;
use crate::postgres::serve::serve;
use crate::postgres::server::{CoreState, LiveSession, Sql};
use crate::run::spill::SpillSpace;
use crate::run::tasks::Handles;

/// Connections closed in favor of new ones.
static CLOSED: Metric = Metric::counter(
    "fairlane_sql_connections_closed_before_login_total",
    "SQL connections closed before login to make room for others.",
);

/// Reason why the listener could not open.
#[derive(Debug)]
pub enum StartError {
    /// The port could not be opened.
    Listen(ListenError),
    /// The spill folder cannot be created or emptied.
    Spill(PathBuf, io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen(error) => error.fmt(f),
            StartError::Spill(folder, error) => {
                write!(f, "cannot use {} for spill files: {error}", folder.display())
            }
        }
    }
}

impl std::error::Error for StartError {}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> StartError {
        StartError::Listen(error)
    }
}

impl Sql {
    /// Adds this core to the listener, on its fast lane. Every core must join before
    /// [`Sql::open`]. `front`: this core's connections to the nodes of a cluster, for a server in
    /// front of one.
    pub fn join(&self, engine: Rc<dyn Engine>, access: Rc<Access>, front: Option<Rc<Front>>) {
        self.shared.engines.set(engine.clone());
        let here = CoreState {
            engine,
            access,
            front,
            admission: Admission::new(lanes::current_core()),
            counts: Rc::default(),
            connections: RefCell::default(),
            sessions: RefCell::default(),
            next_session: Cell::new(0),
            accepting: RefCell::default(),
        };
        let here = Rc::new(here);
        let weak = Rc::downgrade(&here);
        let statements = move || weak.upgrade().map_or_else(Vec::new, |here| here.running());
        let registry = here.engine.registry();
        registry.add_rows(RunningStatement::table(statements));
        let (counts, core) = (here.counts.clone(), lanes::current_core());
        // All cores share one plan cache. Core 0 reports it.
        let shared = Arc::downgrade(&self.shared);
        let plans = move || match (core, shared.upgrade()) {
            (0, Some(shared)) => shared.planner().plans(),
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
            (Some(here), CancelTarget::Session) => here.end_session(id, role),
            (None, _) => Cancelled::Unknown,
        });
        registry.add_rows(connections_table(&here));
        self.shared.cores.set(here);
    }

    /// Opens the port, on core 0's fast lane. Returns its address.
    ///
    /// # Errors
    /// The port is taken or not allowed. Nothing is open then.
    pub fn open(&self) -> lanes::LocalBoxFuture<'_, Result<SocketAddr, StartError>> {
        Box::pin(async move {
            let (config, address) = (&self.shared.config, self.shared.config.listen);
            if !config.takes_plaintext() && config.tls.is_none() {
                return Err(ListenError::Plaintext(address).into());
            }
            let (listener, bound) = frontdoor::listen(address)?;
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
        })
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
                    lanes::spawn(Group::DRIVER, serve(sql, here, stream, slot)).detach();
                }
            });
        };
        let failed = |error: &io::Error| self.warn(&format!("cannot accept SQL connections: {error}"));
        frontdoor::accept(listener, connections, take, failed).await;
    }

    /// Stops the listener, on core 0's fast lane: accepts no more connections, waits at most
    /// `deadline` for running statements, then ends all sessions. Returns true if all have ended.
    pub fn stop(&self, deadline: Duration) -> lanes::LocalBoxFuture<'_, bool> {
        Box::pin(async move {
            self.shared.stopping.store(true, SeqCst);
            if let Some(here) = self.here() {
                drop(here.accepting.take());
            }
            self.on_sessions(|live| live.bell.notify_waiters()).await;
            let _ = lanes::time::timeout(deadline, self.shared.connections.emptied()).await;
            self.on_sessions(|live| {
                live.killed.set(true);
                live.bell.notify_waiters();
            })
            .await;
            let ended =
                lanes::time::timeout(Duration::from_secs(1), self.shared.connections.emptied()).await.is_ok();
            for core in 0..lanes::cores() {
                let shared = self.shared.clone();
                lanes::call(core, move || async move {
                    drop(shared.cores.take());
                    shared.engines.remove();
                })
                .await;
            }
            self.shared.connections.end();
            ended
        })
    }

    async fn on_sessions(&self, f: fn(&LiveSession)) {
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

/// Returns the table `system.connections`, for a core's registry.
fn connections_table(here: &Rc<CoreState>) -> VirtualTable {
    let (listing, looking) = (Rc::downgrade(here), Rc::downgrade(here));
    let list = move || listing.upgrade().map_or_else(Vec::new, |here| here.connections());
    ClientSession::table(
        list,
        |status| status.upgrade()?.role(),
        move |status| Some(status.upgrade()?.described(&looking.upgrade()?.access)),
    )
}
