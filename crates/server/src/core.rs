//! What the sessions of one core share, and the little that all cores share.

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
use rustc_hash::FxHashMap;
use wire::{Event, Failure};
use workload::Admission;

use crate::config::ServerConfig;
use crate::counters::Counters;
use crate::logging::{Level, Logger};
use crate::long::INLINE_TEXT_BYTES;
use crate::plans::Plans;
use crate::server::Server;
use crate::session::Session;
use crate::statement::{self, Bound, Fresh, Id, Parsed, Statement};

/// What all cores share. Written at start and at stop; otherwise only read.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) logger: Logger,
    /// One a core.
    pub(crate) counters: Box<[Arc<Counters>]>,
    pub(crate) connections: Connections,
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
    /// Numbers of the roles that have authenticated here, from 1; as many as there are roles.
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

    /// The number of a role on this core, which it has from now on if not before.
    pub(crate) fn role_number(&self, role: &Arc<str>) -> u32 {
        let mut roles = self.roles.borrow_mut();
        let next = u32::try_from(roles.len() + 1).expect("fewer roles than 2^32");
        *roles.entry(role.clone()).or_insert(next)
    }

    /// Reports an event to the sessions that registered for it. Yields between them: there may be thousands.
    pub(crate) async fn report(&self, event: &Event) {
        // Only numbers are collected: a session in use elsewhere would cost a cache miss here.
        let ids: Vec<u64> = self.sessions.borrow().keys().copied().collect();
        for id in ids {
            let session = self.sessions.borrow().get(&id).cloned();
            let told = session.is_some_and(|session| session.tell(event));
            if lanes::spend(if told { EVENT_UNITS } else { 1 }) {
                lanes::yield_now().await;
            }
        }
    }

    /// Makes a statement ready on the other cores, as far as they can.
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
                // Its errors are those of the core that asks.
                if let Ok(parsed) = parsed
                    && let Ok(bound) = core.bind(&text, keyspace.as_ref(), parsed).await
                {
                    let _ = core.keep(id, &text, keyspace.as_ref(), bound, core.role_number(&role));
                }
            };
            // The core that asks warns of it.
            lanes::call(core, move || Warnings::collect(Warnings::NONE, prepare())).await;
        }
    }

    /// The prepared statement of an id, if it was prepared here and still fits the schema.
    pub(crate) fn prepared(&self, id: &Id) -> Option<Rc<Statement>> {
        self.plans.prepared(id).filter(|statement| statement.is_current())
    }

    /// Binds a parsed text: a long one on the heavy lane.
    async fn bind(&self, text: &str, keyspace: Option<&Rc<str>>, parsed: Fresh) -> Result<Bound, Error> {
        if text.len() <= INLINE_TEXT_BYTES {
            return Bound::of(parsed, keyspace, &*self.engine);
        }
        Bound::of_long(parsed, keyspace, &*self.engine).await
    }

    /// Keeps a bound text as a prepared statement.
    ///
    /// # Errors
    /// What is wrong with it, or it takes too much memory.
    pub(crate) fn keep(
        &self,
        id: Id,
        text: &str,
        keyspace: Option<&Rc<str>>,
        bound: Bound,
        role: u32,
    ) -> Result<Rc<Statement>, Error> {
        let mut statement = Statement::of(id, text, keyspace, bound)?;
        if let Some(old) = self.plans.prepared(&statement.id) {
            // It takes other values than before. Clients that have not prepared it again know the old columns.
            statement.result_changed = old.result_changed || old.result() != statement.result();
        }
        let statement = Rc::new(statement);
        let (bytes, bytes_max) = (statement.bytes(), self.shared.config.prepared_statement_bytes_max());
        if bytes > bytes_max {
            return Err(too_large(text, bytes, bytes_max));
        }
        self.plans.keep_prepared(statement.clone(), role);
        Ok(statement)
    }

    /// The statement itself while its plan fits the schema, else the same bound anew.
    ///
    /// # Errors
    /// It does not fit the schema any more: its client has to prepare it again.
    pub(crate) fn current(&self, statement: Rc<Statement>) -> Result<Rc<Statement>, Error> {
        if statement.is_current() { Ok(statement) } else { self.rebind(&statement) }
    }

    /// Binds a long prepared statement anew on the heavy lane, and keeps it.
    ///
    /// # Errors
    /// As [`Core::current`].
    pub(crate) async fn rebind_long(&self, statement: &Statement) -> Result<(), Error> {
        let (_, parsed) = parse(statement.text.to_string()).await;
        let parsed = parsed.map_err(|error| Error::Server(format!("a prepared text is no CQL: {error}")))?;
        let bound = Bound::of_long(parsed, statement.keyspace.as_ref(), &*self.engine).await?;
        self.plans.replace_prepared(Rc::new(statement.renewed(bound)?));
        Ok(())
    }

    /// Binds a prepared statement anew and keeps it.
    ///
    /// # Errors
    /// As [`Core::current`].
    #[cold]
    pub(crate) fn rebind(&self, statement: &Statement) -> Result<Rc<Statement>, Error> {
        let _ = lanes::spend((statement.text.len() / REBIND_BYTES_PER_UNIT) as u32);
        let fresh = Rc::new(statement.rebound(&*self.engine)?);
        self.plans.replace_prepared(fresh.clone());
        Ok(fresh)
    }
}

/// Bytes of text that count as one work unit when a statement is bound anew: a term takes about 0.2 µs.
const REBIND_BYTES_PER_UNIT: usize = 2;

/// Work units of an event for one session: encoding it and waking the connection.
const EVENT_UNITS: u32 = 10;

/// The longest text that can be prepared, bytes: the id is a hash of all of it.
pub(crate) const PREPARED_TEXT_BYTES_MAX: usize = 256 << 10;

/// The error of a statement that takes too much memory to be kept, in Cassandra's words.
pub(crate) fn too_large(text: &str, bytes: usize, bytes_max: usize) -> Error {
    let begin: String = text.chars().take(200).collect();
    Error::Invalid(format!(
        "Prepared statement of size {bytes} bytes is larger than allowed maximum of {bytes_max} bytes: {begin}..."
    ))
}

/// Parses a text: a long one on the heavy lane.
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
