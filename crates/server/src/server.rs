//! The whole server: created once, joined by every core, opened on core 0, stopped.
//!
//! One listener on core 0 assigns connections to the cores round-robin, so that few connections are
//! spread evenly. The kernel's own spreading, by a hash, often puts 11 of 16 on one of two cores.
//! The shard-aware port assigns each connection to the core chosen by the client's source port.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use access::Access;
use cluster::Front;
use engine::Engine;
use frontdoor::{ConnectionSlot, Connections, ListenError};
use lanes::net::{TcpListener, TcpStream};
use lanes::time::Instant;
use lanes::{Group, Lanes};
use wire::Event;

use crate::config::ServerConfig;
use crate::core::{Core, Listening, ServerShared};
use crate::counters::Counters;
use crate::logging::{FieldValue, Level, Logger};
use crate::serve::serve;
use crate::session::Session;
use crate::sessions::{self, Sessions};
use crate::{cluster_events, cluster_roles, fleet};
use crate::{http, idle, reply, system};

/// State that one core contributes to a server.
pub struct PerCore {
    /// The core's engine.
    pub engine: Rc<dyn Engine>,
    /// The core's view of roles and levels.
    pub access: Rc<Access>,
    /// The core's connections to the nodes of a cluster, for a server in front of one.
    pub front: Option<Rc<Front>>,
}

/// A server. Cheap to clone and usable from any thread. Each method documents where it must be
/// called.
#[derive(Clone)]
pub struct Server {
    shared: Arc<ServerShared>,
}

/// Time limit for killed connections to close, and for each core to drop its state.
const CLOSING: Duration = Duration::from_secs(1);

fn left_until(end: Instant) -> Duration {
    end.saturating_duration_since(lanes::time::now())
}

impl Server {
    /// Creates a server for `cores` cores, the value of [`lanes::Lanes::cores`].
    pub fn new(config: ServerConfig, logger: Logger, cores: usize) -> Server {
        let log = logger.clone();
        let connections = Connections::new(config.connections, move |refusals| {
            log.log(Level::Warn, &format!("CQL: {refusals}"), &[]);
        });
        let shared = ServerShared {
            config,
            logger,
            counters: (0..cores).map(|_| Arc::new(Counters::default())).collect(),
            connections,
            ready: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            bound: OnceLock::new(),
            sessions: lanes::PerCore::new(),
            started_s: lanes::time::unix_micros() / 1_000_000,
        };
        Server { shared: Arc::new(shared) }
    }

    /// Adds this core to the server: adds the system tables to the engine's registry and listens to
    /// schema changes. Call it on the fast lane of every core before [`Server::open`].
    pub fn join(&self, per_core: PerCore) {
        let index = lanes::current_core();
        let core = Core::new(self.shared.clone(), index, per_core.engine, per_core.access, per_core.front);
        if index == 0 {
            let (levels, time_limit) = (core.access.levels().clone(), self.shared.config.request_timeout);
            lanes::spawn(Group::CONTROL, workload::limit_levels(levels, time_limit)).detach();
        }
        let sessions = Sessions::join(core);
        system::register(&sessions);
        let weak = Rc::downgrade(&sessions);
        sessions.core.engine.on_schema_change(Rc::new(move |change| {
            let event = Event::Schema(reply::schema_change(change));
            let sessions = weak.clone();
            Box::pin(async move {
                if let Some(sessions) = sessions.upgrade() {
                    sessions.report(&event).await;
                }
            })
        }));
        if sessions.core.front.is_some() {
            let follow = cluster_roles::follow_all(Rc::downgrade(&sessions.core));
            lanes::spawn(Group::CONTROL, follow).detach();
        }
        if let Some(front) = sessions.core.front.clone().filter(|_| index == 0) {
            let mut following = sessions.following.borrow_mut();
            if let Some(fleet) = front.shared().fleet() {
                let follow = fleet::follow(self.shared.clone(), sessions.core.access.clone(), fleet.clone());
                following.push(lanes::spawn(Group::CONTROL, follow));
            }
            let drop_unused = cluster_roles::drop_unused(Rc::downgrade(&sessions.core));
            lanes::spawn(Group::CONTROL, drop_unused).detach();
            let follow = cluster_events::follow(self.shared.clone(), front);
            following.push(lanes::spawn(Group::CONTROL, follow));
        }
        if let Some(limit) = self.shared.config.idle_timeout {
            lanes::spawn(Group::CONTROL, idle::close_idle(Rc::downgrade(&sessions), limit)).detach();
        }
    }

    /// Opens the ports and starts to serve clients. Call it on core 0's fast lane.
    ///
    /// # Errors
    /// A port is taken or not permitted. No port is open then.
    pub fn open(&self) -> lanes::LocalBoxFuture<'_, Result<Listening, ListenError>> {
        Box::pin(async move {
            let config = &self.shared.config;
            let check_plaintext = |address: SocketAddr| {
                if config.takes_plaintext(address) || config.tls.is_some() {
                    Ok(())
                } else {
                    Err(ListenError::Plaintext(address))
                }
            };
            check_plaintext(config.listen)?;
            config.http.map_or(Ok(()), check_plaintext)?;
            let (cql, cql_at) = frontdoor::listen(config.listen)?;
            let shard_aware = config
                .shard_aware_port
                .map(|port| frontdoor::listen(SocketAddr::new(config.listen.ip(), port)))
                .transpose()?;
            let metrics = config.http.map(frontdoor::listen).transpose()?;
            let bound = Listening {
                cql: cql_at,
                shard_aware: shard_aware.as_ref().map(|(_, at)| *at),
                http: metrics.as_ref().map(|(_, at)| *at),
            };
            self.shared.bound.set(bound).expect("a server is opened once");
            self.shared.connections.begin();
            let mut tasks = vec![lanes::spawn(Group::CONTROL, self.clone().accept(cql, false))];
            if let Some((listener, _)) = shard_aware {
                tasks.push(lanes::spawn(Group::CONTROL, self.clone().accept(listener, true)));
            }
            self.shared.ready.store(true, SeqCst);
            let here = sessions::here(&self.shared).expect("core 0 has joined");
            *here.accepting.borrow_mut() = tasks;
            if let Some(fleet) = here.fleet() {
                fleet.join(config.advertised(cql_at));
            }
            if let Some((listener, _)) = metrics {
                // Keep this task out of `accepting`: health must be served until the process ends.
                lanes::spawn(Group::CONTROL, http::serve(here, listener)).detach();
            }
            Ok(bound)
        })
    }

    /// Returns the bound addresses, or `None` before [`Server::open`].
    pub fn listening(&self) -> Option<Listening> {
        self.shared.bound.get().copied()
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.connections.open()
    }

    /// Returns true while clients are served: after opening and before a stop.
    pub fn is_ready(&self) -> bool {
        self.shared.ready.load(SeqCst)
    }

    async fn accept(self, listener: TcpListener, by_port: bool) {
        let (cores, connections) = (self.shared.counters.len(), &self.shared.connections);
        let mut next = 0;
        let take = |stream, peer: SocketAddr| {
            let core = if by_port { usize::from(peer.port()) } else { next } % cores;
            next = next.wrapping_add(usize::from(!by_port));
            let (server, slot) = (self.clone(), connections.accept(peer.ip()));
            connections.hand_over(core, stream, slot, move |stream, slot| server.begin(stream, peer, slot));
        };
        let failed = |error: &io::Error| {
            self.shared.logger.log(
                Level::Error,
                "cannot accept connections",
                &[("error", FieldValue::text(error))],
            );
        };
        frontdoor::accept(listener, connections, take, failed).await;
    }

    /// Serves a connection on this core.
    fn begin(&self, stream: TcpStream, peer: SocketAddr, slot: ConnectionSlot) {
        if let Some(sessions) = sessions::here(&self.shared) {
            lanes::spawn(Group::DRIVER, serve(sessions, stream, peer, slot)).detach();
        }
    }

    /// Stops the server, on core 0's fast lane. It accepts no more connections, reports not ready,
    /// and lets requests finish for at most `deadline`. Then it closes the remaining connections,
    /// which takes at most twice [`CLOSING`]. Returns true if everything finished in time. A core
    /// that does not answer in time is logged and skipped.
    pub fn stop(&self, deadline: Duration) -> lanes::LocalBoxFuture<'_, bool> {
        Box::pin(async move {
            self.shared.ready.store(false, SeqCst);
            self.shared.stopping.store(true, SeqCst);
            if let Some(here) = sessions::here(&self.shared) {
                drop(here.accepting.take());
                here.fleet().iter().for_each(|fleet| fleet.leave());
            }
            let end = lanes::time::now() + deadline;
            self.on_sessions(end, |session| session.life.draining.set(true)).await;
            let finished =
                lanes::time::timeout(left_until(end), self.shared.connections.emptied()).await.is_ok();
            let end = lanes::time::now() + CLOSING;
            self.on_sessions(end, |session| session.life.killed.set(true)).await;
            let closed =
                lanes::time::timeout(left_until(end), self.shared.connections.emptied()).await.is_ok();
            let shared = self.shared.clone();
            let leave = move || sessions::leave(&shared);
            let silent = self.on_cores(lanes::time::now() + CLOSING, leave).await;
            for core in &silent {
                self.shared.logger.log(
                    Level::Error,
                    "a core does not answer: its sessions end with the process",
                    &[("core", (*core).into())],
                );
            }
            self.shared.connections.end();
            finished && closed && silent.is_empty()
        })
    }

    async fn on_sessions(&self, end: Instant, f: fn(&Session)) {
        let shared = self.shared.clone();
        let on_core = move || {
            let Some(here) = sessions::here(&shared) else { return };
            for session in here.by_id.borrow().values() {
                f(session);
                session.wake();
            }
        };
        self.on_cores(end, on_core).await;
    }

    /// Runs `f` on all cores at once. Returns the cores that have not answered at `end`.
    async fn on_cores(&self, end: Instant, f: impl Fn() + Clone + Send + 'static) -> Vec<usize> {
        let call = |core| {
            let f = f.clone();
            lanes::spawn(Group::CONTROL, lanes::call(core, move || async move { f() }))
        };
        let calls: Vec<_> = (0..self.shared.counters.len()).map(call).collect();
        let mut silent = Vec::new();
        for (core, call) in calls.into_iter().enumerate() {
            if lanes::time::timeout(left_until(end), call).await.is_err() {
                silent.push(core);
            }
        }
        silent
    }

    /// Opens the server from a thread outside the lanes. All cores must have joined.
    ///
    /// # Errors
    /// Same as [`Server::open`].
    pub fn open_on(&self, lanes: &Lanes) -> Result<Listening, ListenError> {
        let server = self.clone();
        lanes.block_on(0, Group::CONTROL, move || async move { server.open().await })
    }
}
