//! State shared by the sessions of one core, and the small state shared by all cores.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use access::Access;
use bytes::BytesMut;
use cluster::Front;
use engine::Engine;
use frontdoor::Connections;
use lanes::PerCore;
use wire::Failure;
use workload::Admission;

use crate::config::ServerConfig;
use crate::counters::Counters;
use crate::logging::{Level, Logger};
use crate::plans::Plans;
use crate::read_permits::ReadPermits;
use crate::trace::Traces;

/// State shared by all cores. Written at start and at stop, otherwise only read.
pub(crate) struct ServerShared {
    pub(crate) config: ServerConfig,
    pub(crate) logger: Logger,
    /// Counters, by core.
    pub(crate) counters: Box<[Arc<Counters>]>,
    pub(crate) connections: Connections,
    pub(crate) ready: AtomicBool,
    pub(crate) stopping: AtomicBool,
    pub(crate) bound: OnceLock<Listening>,
    /// `Sessions` of each core, from joining to stopping. Without its type, which needs this file.
    pub(crate) sessions: PerCore<Rc<dyn Any>>,
    /// Creation time of the server, seconds since 1970.
    pub(crate) started_s: i64,
}

impl ServerShared {
    /// Returns the address at which clients find this server.
    pub(crate) fn advertised(&self) -> SocketAddr {
        self.config.advertised(self.bound.get().map_or(self.config.listen, |bound| bound.cql))
    }
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
    pub(crate) shared: Arc<ServerShared>,
    pub(crate) index: usize,
    pub(crate) engine: Rc<dyn Engine>,
    pub(crate) access: Rc<Access>,
    pub(crate) admission: Rc<Admission>,
    /// Connections to the nodes of a cluster. `None`: the engine has the data.
    pub(crate) front: Option<Rc<Front>>,
    pub(crate) plans: Plans,
    pub(crate) read_permits: ReadPermits,
    pub(crate) traces: Traces,
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
        shared: Arc<ServerShared>,
        index: usize,
        engine: Rc<dyn Engine>,
        access: Rc<Access>,
        front: Option<Rc<Front>>,
    ) -> Core {
        let counters = shared.counters[index].clone();
        let config = &shared.config;
        let (prepared_max, unprepared_max) = (config.prepared_max, config.unprepared_max);
        let plans = Plans::new(prepared_max, config.prepared_bytes_max, unprepared_max, counters.clone());
        let read_permits = ReadPermits::new(config.read_bytes_max);
        Core {
            shared,
            index,
            engine,
            access,
            admission: Admission::new(index),
            front,
            plans,
            read_permits,
            traces: Traces::default(),
            failure_logged_s: Cell::new(u64::MAX),
            buffers: Buffers::default(),
            counters,
            roles: RefCell::default(),
        }
    }

    /// Logs a failure of the server itself, such as a full disk. Logs at most once a second,
    /// because under load every statement can fail this way.
    #[cold]
    pub(crate) fn log_failure(&self, failure: &Failure) {
        let now_s = lanes::time::monotonic_ns() / 1_000_000_000;
        if self.failure_logged_s.replace(now_s) != now_s {
            self.shared.logger.log(Level::Error, "statements fail", &[("error", (&*failure.message).into())]);
        }
    }

    /// Returns the role's number on this core. Assigns the next number to a new role.
    pub(crate) fn role_number(&self, role: &Arc<str>) -> u32 {
        let mut roles = self.roles.borrow_mut();
        let next = u32::try_from(roles.len() + 1).expect("fewer roles than 2^32");
        *roles.entry(role.clone()).or_insert(next)
    }
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
