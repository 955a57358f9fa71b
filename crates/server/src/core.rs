//! State shared by the sessions of one core, and the small state shared by all cores.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use access::Access;
use bytes::BytesMut;
use engine::{Engine, Error, Warnings};
use frontdoor::Connections;
use lanes::PerCore;
use rustc_hash::FxHashMap;
use wire::{Event, Failure};
use workload::Admission;

use crate::config::ServerConfig;
use crate::counters::Counters;
use crate::logging::{Level, Logger};
use crate::long::INLINE_TEXT_BYTES;
use crate::plans::Plans;
use crate::server::{CoreState, Server};
use crate::session::Session;
use crate::statement::{self, Bound, Id, Parsed, ParsedTree, Statement};

/// State shared by all cores. Written at start and at stop, otherwise only read.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) logger: Logger,
    /// Counters, by core.
    pub(crate) counters: Box<[Arc<Counters>]>,
    pub(crate) connections: Connections,
    pub(crate) ready: AtomicBool,
    pub(crate) stopping: AtomicBool,
    pub(crate) bound: OnceLock<Listening>,
    /// State of each core, from joining to stopping.
    pub(crate) core_states: PerCore<CoreState>,
    /// Creation time of the server, seconds since 1970.
    pub(crate) started_s: i64,
}

/// Addresses that a server has bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listening {
    /// CQL.
    pub cql: SocketAddr,
    /// CQL with the core chosen by the client's source port. `None` if it is off.
    pub shard_aware: Option<SocketAddr>,
    /// Metrics and health. `None` if it is off.
    pub http: Option<SocketAddr>,
}

/// State shared by the sessions of one core.
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) engine: Rc<dyn Engine>,
    pub(crate) access: Rc<Access>,
    pub(crate) admission: Rc<Admission>,
    pub(crate) plans: Plans,
    pub(crate) sessions: RefCell<FxHashMap<u64, Rc<Session>>>,
    pub(crate) next_session: Cell<u64>,
    /// Second of the monotonic clock in which a server failure was last logged.
    failure_logged_s: Cell<u64>,
    pub(crate) buffers: Buffers,
    pub(crate) counters: Arc<Counters>,
    /// Numbers of the roles that have authenticated on this core, from 1. Bounded by the number of
    /// roles.
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
        let config = &shared.config;
        let (prepared_max, unprepared_max) = (config.prepared_max, config.unprepared_max);
        let plans = Plans::new(prepared_max, config.prepared_bytes_max, unprepared_max, counters.clone());
        Rc::new(Core {
            shared,
            index,
            engine,
            access,
            admission: Admission::new(index),
            plans,
            sessions: RefCell::default(),
            next_session: Cell::new(1),
            failure_logged_s: Cell::new(u64::MAX),
            buffers: Buffers::default(),
            counters,
            roles: RefCell::default(),
        })
    }

    /// Logs a failure of the server itself, such as a full disk. Logs at most once a second,
    /// because under load every statement can fail this way.
    #[cold]
    pub(crate) fn log_failure(&self, failure: &Failure) {
        let now_s = lanes::time::monotonic_ns() / 1_000_000_000;
        if self.failure_logged_s.replace(now_s) != now_s {
            self.shared.logger.log(Level::Error, "statements fail", &[("error", &failure.message)]);
        }
    }

    /// Returns the role's number on this core. Assigns the next number to a new role.
    pub(crate) fn role_number(&self, role: &Arc<str>) -> u32 {
        let mut roles = self.roles.borrow_mut();
        let next = u32::try_from(roles.len() + 1).expect("fewer roles than 2^32");
        *roles.entry(role.clone()).or_insert(next)
    }

    /// Sends an event to the sessions that registered for it. Yields between sessions: there may be
    /// thousands.
    pub(crate) async fn report(&self, event: &Event) {
        // Collect only ids: cloning each session's `Rc` here would cost a cache miss each.
        let ids: Vec<u64> = self.sessions.borrow().keys().copied().collect();
        for id in ids {
            let session = self.sessions.borrow().get(&id).cloned();
            let sent = session.is_some_and(|session| session.send_event(event));
            if lanes::spend(if sent { EVENT_UNITS } else { 1 }) {
                lanes::yield_now().await;
            }
        }
    }

    /// Prepares a statement on the other cores, as far as they can.
    pub(crate) async fn prepare_elsewhere(&self, statement: &Statement, role: &Arc<str>) {
        let server = Server::of(self.shared.clone());
        for core in (0..lanes::cores()).filter(|core| *core != self.index) {
            let (server, text, role) = (server.clone(), statement.text.to_string(), role.clone());
            let (id, keyspace) = (statement.id, statement.keyspace.as_deref().map(str::to_owned));
            let prepare = move || async move {
                let (text, parsed) = parse(text).await;
                let Some(core) = server.here() else { return };
                let keyspace: Option<Rc<str>> = keyspace.map(Rc::from);
                if core.prepared(&id).is_some() {
                    return;
                }
                // Ignore errors: the preparing core reports its own.
                if let Ok(parsed) = parsed
                    && let Ok(bound) = core.bind(&text, keyspace.as_ref(), parsed).await
                {
                    let _ = core.store_prepared(id, &text, keyspace.as_ref(), bound, core.role_number(&role));
                }
            };
            // Ignore warnings: the preparing core returns its own.
            lanes::call(core, move || Warnings::collect(Warnings::NONE, prepare())).await;
        }
    }

    /// Returns a prepared statement that still fits the schema, or `None`.
    pub(crate) fn prepared(&self, id: &Id) -> Option<Rc<Statement>> {
        self.plans.prepared(id).filter(|statement| statement.is_current())
    }

    /// Binds a parsed text. Binds a long text on the heavy lane.
    async fn bind(&self, text: &str, keyspace: Option<&Rc<str>>, parsed: ParsedTree) -> Result<Bound, Error> {
        if text.len() <= INLINE_TEXT_BYTES {
            return Bound::of(parsed, keyspace, &*self.engine);
        }
        Bound::of_long(parsed, keyspace, &*self.engine).await
    }

    /// Stores a bound text as a prepared statement.
    ///
    /// # Errors
    /// An encoding error, or [`Error::Invalid`] if the statement takes too much memory.
    pub(crate) fn store_prepared(
        &self,
        id: Id,
        text: &str,
        keyspace: Option<&Rc<str>>,
        bound: Bound,
        role: u32,
    ) -> Result<Rc<Statement>, Error> {
        let mut statement = Statement::of(id, text, keyspace, bound)?;
        if let Some(old) = self.plans.prepared(&statement.id) {
            // The statement's plan is stale. Clients that have not prepared it again know the old
            // columns.
            statement.result_changed = old.result_changed || old.result() != statement.result();
        }
        let statement = Rc::new(statement);
        let (bytes, bytes_max) = (statement.bytes(), self.shared.config.prepared_statement_bytes_max());
        if bytes > bytes_max {
            return Err(too_large(text, bytes, bytes_max));
        }
        self.plans.add_prepared(statement.clone(), role);
        Ok(statement)
    }

    /// Returns the statement if its plan fits the schema, otherwise binds it again.
    ///
    /// # Errors
    /// The statement no longer fits the schema. Its client has to prepare it again.
    pub(crate) fn current(&self, statement: Rc<Statement>) -> Result<Rc<Statement>, Error> {
        if statement.is_current() { Ok(statement) } else { self.rebind(&statement) }
    }

    /// Binds a long prepared statement again, on the heavy lane, and stores it.
    ///
    /// # Errors
    /// Same as [`Core::current`].
    pub(crate) async fn rebind_long(&self, statement: &Statement) -> Result<(), Error> {
        let (_, parsed) = parse(statement.text.to_string()).await;
        let parsed = parsed.map_err(|error| Error::Server(format!("a prepared text is no CQL: {error}")))?;
        let bound = Bound::of_long(parsed, statement.keyspace.as_ref(), &*self.engine).await?;
        self.plans.replace_prepared(Rc::new(statement.renewed(bound)?));
        Ok(())
    }

    /// Binds a prepared statement again and stores it.
    ///
    /// # Errors
    /// Same as [`Core::current`].
    #[cold]
    pub(crate) fn rebind(&self, statement: &Statement) -> Result<Rc<Statement>, Error> {
        let _ = lanes::spend((statement.text.len() / REBIND_BYTES_PER_UNIT) as u32);
        let rebound = Rc::new(statement.rebound(&*self.engine)?);
        self.plans.replace_prepared(rebound.clone());
        Ok(rebound)
    }
}

/// Bytes of text that count as one work unit when a statement is bound again. A term takes about
/// 0.2 µs.
const REBIND_BYTES_PER_UNIT: usize = 2;

/// Work units to encode an event for one session and to wake its connection.
const EVENT_UNITS: u32 = 10;

/// Maximum length of a text that can be prepared, bytes. Its id is a hash of the whole text.
pub(crate) const PREPARED_TEXT_BYTES_MAX: usize = 256 << 10;

/// Returns Cassandra's error for a statement that takes too much memory to be stored.
pub(crate) fn too_large(text: &str, bytes: usize, bytes_max: usize) -> Error {
    let begin: String = text.chars().take(200).collect();
    Error::Invalid(format!(
        "Prepared statement of size {bytes} bytes is larger than allowed maximum of {bytes_max} bytes: {begin}..."
    ))
}

/// Parses a text. Parses a long text on the heavy lane.
async fn parse(text: String) -> (String, Parsed) {
    if text.len() <= INLINE_TEXT_BYTES {
        let parsed = statement::parse(&text);
        return (text, parsed);
    }
    let parse = async move {
        let parsed = statement::parse(&text);
        (text, parsed)
    };
    lanes::heavy(lanes::current_group(), parse).await
}

/// Pool of read and write buffers, so that an idle connection holds none.
#[derive(Default)]
pub(crate) struct Buffers(RefCell<Vec<BytesMut>>);

/// Capacity of a new buffer, bytes: about 100 requests.
pub(crate) const BUFFER_BYTES: usize = 32 << 10;
/// Maximum capacity of a pooled buffer, bytes. Larger buffers are freed.
const BUFFER_BYTES_MAX: usize = 256 << 10;
/// Maximum number of pooled buffers: with [`BUFFER_BYTES`] each, 2 MiB a core.
const BUFFERS_MAX: usize = 64;

impl Buffers {
    /// Returns an empty buffer with capacity.
    pub(crate) fn take(&self) -> BytesMut {
        self.0.borrow_mut().pop().unwrap_or_else(|| BytesMut::with_capacity(BUFFER_BYTES))
    }

    /// Returns a buffer to the pool and discards its contents.
    pub(crate) fn give(&self, mut buffer: BytesMut) {
        buffer.clear();
        // Reclaims memory that was split off, unless another owner still references it.
        if buffer.capacity() < BUFFER_BYTES && !buffer.try_reclaim(BUFFER_BYTES) {
            return;
        }
        let mut pool = self.0.borrow_mut();
        if pool.len() < BUFFERS_MAX && buffer.capacity() <= BUFFER_BYTES_MAX {
            pool.push(buffer);
        }
    }
}
