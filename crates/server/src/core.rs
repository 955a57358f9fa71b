//! What the sessions of one core share, and the little that all cores share.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock};

use access::Access;
use bytes::BytesMut;
use engine::{Engine, Error};
use rustc_hash::FxHashMap;
use wire::Failure;
use workload::Admission;

use crate::config::ServerConfig;
use crate::counters::Counters;
use crate::logging::{Level, Logger};
use crate::plans::Plans;
use crate::server::Server;
use crate::session::Session;
use crate::statement::{PrepareError, Statement};

/// What all cores share. Written at start and at stop; otherwise only read.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) logger: Logger,
    /// One a core.
    pub(crate) counters: Box<[Arc<Counters>]>,
    pub(crate) connections: AtomicUsize,
    pub(crate) ready: AtomicBool,
    pub(crate) stopping: AtomicBool,
    pub(crate) bound: OnceLock<Listening>,
    /// When it was made, seconds since 1970.
    pub(crate) started_s: i64,
}

/// The addresses a server has bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listening {
    /// CQL.
    pub cql: SocketAddr,
    /// CQL, where the source port chooses the core.
    pub shard_aware: Option<SocketAddr>,
    /// Metrics and health.
    pub http: Option<SocketAddr>,
}

/// What the sessions of one core share.
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) engine: Rc<dyn Engine>,
    pub(crate) access: Rc<Access>,
    pub(crate) admission: Rc<Admission>,
    pub(crate) plans: Plans,
    pub(crate) sessions: RefCell<FxHashMap<u64, Rc<Session>>>,
    pub(crate) next_session: Cell<u64>,
    /// The second in which a trouble was last told, of the monotonic clock.
    trouble_told_s: Cell<u64>,
    pub(crate) buffers: Buffers,
    pub(crate) counters: Arc<Counters>,
    /// Numbers of roles that have authenticated here, from 1; as many as there are roles.
    roles: RefCell<HashMap<Arc<str>, u32>>,
}

impl Core {
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        engine: Rc<dyn Engine>,
        access: Rc<Access>,
    ) -> Rc<Core> {
        let counters = shared.counters[index].clone();
        let plans = Plans::new(shared.config.prepared_max, shared.config.unprepared_max, counters.clone());
        Rc::new(Core {
            shared,
            index,
            engine,
            access,
            admission: Admission::new(index),
            plans,
            sessions: RefCell::default(),
            next_session: Cell::new(1),
            trouble_told_s: Cell::new(u64::MAX),
            buffers: Buffers::default(),
            counters,
            roles: RefCell::default(),
        })
    }

    /// Tells the operator of a trouble of the server's own, such as a full disk: at most once a second, as under load every
    /// statement meets it.
    #[cold]
    pub(crate) fn tell_trouble(&self, failure: &Failure) {
        let now_s = lanes::time::monotonic_ns() / 1_000_000_000;
        if self.trouble_told_s.replace(now_s) != now_s {
            self.shared.logger.log(Level::Error, "statements fail", &[("error", &failure.message)]);
        }
    }

    /// The number of a role on this core, never 0.
    pub(crate) fn role_number(&self, role: &Arc<str>) -> u32 {
        let mut roles = self.roles.borrow_mut();
        let next = u32::try_from(roles.len() + 1).expect("fewer roles than 2^32");
        *roles.entry(role.clone()).or_insert(next)
    }

    /// Makes a statement ready on the other cores, as far as they can.
    pub(crate) async fn prepare_elsewhere(&self, statement: &Statement) {
        let server = Server::of(self.shared.clone());
        for core in (0..lanes::cores()).filter(|core| *core != self.index) {
            let (server, text) = (server.clone(), statement.text.to_string());
            let keyspace = statement.keyspace.as_deref().map(str::to_owned);
            let prepare = move || async move {
                let Some(core) = server.here() else { return };
                // What it says here, it said there.
                let _ = core.prepare(&text, keyspace.map(Rc::from).as_ref());
            };
            lanes::call(core, prepare).await;
        }
    }

    /// Makes a text ready, as a prepared statement; with it, whether it was so before.
    pub(crate) fn prepare(
        &self,
        text: &str,
        keyspace: Option<&Rc<str>>,
    ) -> Result<(Rc<Statement>, bool), PrepareError> {
        let id = crate::statement::id(keyspace.map(|k| &**k), text);
        if let Some(found) = self.plans.prepared(&id) {
            return Ok((self.current(found).map_err(PrepareError::Engine)?, true));
        }
        let statement = Rc::new(Statement::prepare(text, keyspace, &*self.engine)?);
        self.plans.keep_prepared(statement.clone());
        Ok((statement, false))
    }

    /// The statement itself while its plan fits the schema, else the same bound anew.
    pub(crate) fn current(&self, statement: Rc<Statement>) -> Result<Rc<Statement>, Error> {
        if statement.is_current() { Ok(statement) } else { self.rebind(&statement) }
    }

    /// Binds a prepared statement anew and keeps it.
    #[cold]
    pub(crate) fn rebind(&self, statement: &Statement) -> Result<Rc<Statement>, Error> {
        let fresh = Rc::new(statement.rebound(&*self.engine)?);
        self.plans.keep_prepared(fresh.clone());
        Ok(fresh)
    }

    /// Makes a text ready to run once, or many times if it comes again.
    pub(crate) fn text(&self, text: &str, keyspace: Option<&Rc<str>>) -> Result<Rc<Statement>, PrepareError> {
        if let Some(found) = self.plans.text(keyspace.map(|k| &**k), text) {
            return Ok(found);
        }
        let statement = Rc::new(Statement::prepare(text, keyspace, &*self.engine)?);
        if matches!(statement.work, crate::statement::Work::Engine(_))
            && statement.kind != crate::statement::Kind::Other
        {
            self.plans.keep_text(statement.clone());
        }
        Ok(statement)
    }
}

/// Read and write buffers that no connection is using, so that an idle connection has none.
#[derive(Default)]
pub(crate) struct Buffers(RefCell<Vec<BytesMut>>);

/// What a fresh buffer holds, bytes: some hundred requests.
pub(crate) const BUFFER_BYTES: usize = 32 << 10;
/// Larger ones are given back to the allocator.
const BUFFER_BYTES_MAX: usize = 256 << 10;
/// Buffers kept: 2 MiB a core.
const BUFFERS_MAX: usize = 64;

impl Buffers {
    /// An empty buffer with room.
    pub(crate) fn take(&self) -> BytesMut {
        self.0.borrow_mut().pop().unwrap_or_else(|| BytesMut::with_capacity(BUFFER_BYTES))
    }

    /// Gives a buffer back; what is in it is forgotten.
    pub(crate) fn give(&self, mut buffer: BytesMut) {
        buffer.clear();
        // Regains what was split off, where nobody holds on to that.
        if buffer.capacity() < BUFFER_BYTES && !buffer.try_reclaim(BUFFER_BYTES) {
            return;
        }
        let mut kept = self.0.borrow_mut();
        if kept.len() < BUFFERS_MAX && buffer.capacity() <= BUFFER_BYTES_MAX {
            kept.push(buffer);
        }
    }
}
