//! Connections of one listener: counted on core 0, handed over to the cores, and released by a
//! guard.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use lanes::net::TcpStream;
use lanes::sync::cross;
use lanes::{Flow, Group, Lanes, PerCore};
use rustc_hash::FxHashMap;

use crate::occupancy::{Id, Occupancy};
use crate::{Limits, Refusals, Refused};

/// Bound of the sockets that are in flight to one core. A core at this bound is not running, and is
/// skipped.
pub const TRANSFERS_MAX: usize = 64;

/// Most sockets of a listener that are being closed to admit others.
pub const CLOSING_MAX: usize = 16;

/// Interval for which refusals are collected into one report.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Connections of one listener. Clones are cheap. Any thread may use them, but some methods require
/// a core.
#[derive(Clone)]
pub struct Connections(Arc<SharedConnections>);

struct SharedConnections {
    limits: Limits,
    report: Box<dyn Fn(&Refusals) + Send + Sync>,
    /// Handle to the lanes, set by `begin`.
    lanes: OnceLock<Lanes>,
    /// Number of open slots.
    open: AtomicUsize,
    /// Number of sockets in flight to each core.
    transfers: OnceLock<Box<[AtomicUsize]>>,
    closed: AtomicU64,
    refused: AtomicU64,
    /// State on core 0, between `begin` and `end`.
    state: PerCore<AdmissionState>,
}

/// State on core 0.
struct AdmissionState {
    occupancy: RefCell<Occupancy>,
    /// Channel to close each connection that has not logged in.
    closers: RefCell<FxHashMap<Id, cross::Sender<()>>>,
    refusals: Cell<Refusals>,
    /// True while a task is waiting to report refusals.
    reporting: Cell<bool>,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("open", &self.open()).field("limits", &self.0.limits).finish()
    }
}

impl Connections {
    /// Creates the connections of a listener. Calls `report` on core 0's fast lane, at most once
    /// per second.
    pub fn new(limits: Limits, report: impl Fn(&Refusals) + Send + Sync + 'static) -> Connections {
        Connections(Arc::new(SharedConnections {
            limits,
            report: Box::new(report),
            lanes: OnceLock::new(),
            open: AtomicUsize::new(0),
            transfers: OnceLock::new(),
            closed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            state: PerCore::new(),
        }))
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Returns the most sockets that are open at once: the connections of [`Limits`], and those
    /// that are being closed to admit others.
    #[must_use]
    pub fn sockets_max(&self) -> usize {
        self.0.limits.sockets_max() + CLOSING_MAX
    }

    /// Returns the number of connections, before and after login.
    #[must_use]
    pub fn open(&self) -> usize {
        self.0.open.load(SeqCst)
    }

    /// Waits until no connection is open.
    pub async fn emptied(&self) {
        while self.open() > 0 {
            lanes::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the number of connections so far that were closed before login, to admit newer ones.
    #[must_use]
    pub fn closed(&self) -> u64 {
        self.0.closed.load(Relaxed)
    }

    /// Returns the number of connections so far that a limit of sessions refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Relaxed)
    }

    /// Starts counting, on core 0's fast lane.
    pub fn begin(&self) {
        assert_eq!(lanes::current_core(), 0, "connections are counted on core 0");
        self.0.lanes.get_or_init(lanes::handle);
        self.0.transfers.get_or_init(|| (0..lanes::cores()).map(|_| AtomicUsize::new(0)).collect());
        let state = AdmissionState {
            occupancy: RefCell::new(Occupancy::new(self.0.limits)),
            closers: RefCell::default(),
            refusals: Cell::default(),
            reporting: Cell::new(false),
        };
        self.0.state.set(Rc::new(state));
    }

    /// Stops counting, on core 0's fast lane. Remaining slots release nothing.
    pub fn end(&self) {
        drop(self.0.state.take());
    }

    /// Counts an accepted connection that has not logged in, on core 0's fast lane. At the limit,
    /// it closes an older one instead.
    ///
    /// # Panics
    /// Panics before [`Connections::begin`].
    #[must_use]
    pub fn accept(&self, peer: IpAddr) -> ConnectionSlot {
        let state = self.0.state.get().expect("connections are accepted between begin and end");
        let (id, closed) = state.occupancy.borrow_mut().accept(peer);
        let (closer, closing) = cross::oneshot();
        state.closers.borrow_mut().insert(id, closer);
        if let Some(closed) = closed {
            if let Some(closer) = state.closers.borrow_mut().remove(&closed) {
                closer.send(());
            }
            self.0.closed.fetch_add(1, Relaxed);
            self.record_refusals(&state, |refusals| Refusals {
                closed: refusals.closed + 1,
                last: Some(peer),
                ..refusals
            });
        }
        self.0.open.fetch_add(1, SeqCst);
        ConnectionSlot { connections: self.clone(), id, peer, closing: Cell::new(Some(closing)) }
    }

    /// Adds to the refusals, and starts the task that reports them.
    fn record_refusals(&self, state: &Rc<AdmissionState>, add: impl FnOnce(Refusals) -> Refusals) {
        state.refusals.set(add(state.refusals.get()));
        if state.reporting.replace(true) {
            return;
        }
        let (connections, state) = (self.clone(), Rc::downgrade(state));
        let reporting = async move {
            loop {
                lanes::time::sleep(REPORT_EVERY).await;
                let Some(state) = state.upgrade() else { return };
                let refusals = state.refusals.take();
                if refusals.is_empty() {
                    state.reporting.set(false);
                    return;
                }
                (connections.0.report)(&refusals);
            }
        };
        lanes::spawn(Group::CONTROL, reporting).detach();
    }

    /// Sends a socket to core `first`, or to the next one with a short enough queue, without
    /// waiting for that core. Calls `begin` there on the fast lane with the socket. Tasks that it
    /// spawns have a flow of their own, by which turn goes round the connections of a level. Call
    /// it on core 0's fast lane.
    pub fn hand_over<F>(&self, first: usize, stream: TcpStream, slot: ConnectionSlot, begin: F)
    where
        F: FnOnce(TcpStream, ConnectionSlot) + Send + 'static,
    {
        let transfers = self.0.transfers.get().expect("set by begin");
        let (own, cores) = (lanes::current_core(), transfers.len());
        // This core is running, so it takes the socket if no other core can.
        let can_take = |core: &usize| *core == own || transfers[*core].load(Relaxed) < TRANSFERS_MAX;
        let core = (0..cores).map(|next| (first + next) % cores).find(can_take).unwrap_or(own);
        let flow = Flow::new();
        if core == own {
            return flow.run(|| begin(stream, slot));
        }
        let Ok(stream) = stream.into_std() else { return };
        let transfer = Transfer::begin(self, core);
        let adopt = move || {
            drop(transfer);
            if let Ok(stream) = TcpStream::from_std(stream) {
                flow.run(|| begin(stream, slot));
            }
        };
        self.0.lanes.get().expect("set by begin").run_on_core(core, Group::CONTROL, adopt);
    }

    fn leave(&self, id: Id) {
        let Some(lanes) = self.0.lanes.get() else { return };
        let connections = self.clone();
        let leave = move || {
            if let Some(state) = connections.0.state.get() {
                state.occupancy.borrow_mut().leave(id);
                state.closers.borrow_mut().remove(&id);
            }
        };
        lanes.run_on_core(0, Group::CONTROL, leave);
    }
}

/// A socket in flight to a core.
struct Transfer {
    connections: Connections,
    core: usize,
}

impl Transfer {
    fn begin(connections: &Connections, core: usize) -> Transfer {
        let transfer = Transfer { connections: connections.clone(), core };
        transfer.count().fetch_add(1, Relaxed);
        transfer
    }

    fn count(&self) -> &AtomicUsize {
        &self.connections.0.transfers.get().expect("set by begin")[self.core]
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.count().fetch_sub(1, Relaxed);
    }
}

/// A counted connection. Dropping it releases its counts.
pub struct ConnectionSlot {
    connections: Connections,
    id: Id,
    peer: IpAddr,
    closing: Cell<Option<cross::Receiver<()>>>,
}

impl fmt::Debug for ConnectionSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionSlot")
            .field("id", &self.id)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl ConnectionSlot {
    /// Runs `login` for at most `limit`. `None`: the time is over, or the connection was closed to
    /// admit newer ones.
    pub async fn log_in<T>(&self, limit: Duration, login: impl Future<Output = T>) -> Option<T> {
        let mut closing = self.closing.take();
        let mut login = pin!(login);
        let either = poll_fn(|cx| {
            if let Some(receiver) = &mut closing {
                match Pin::new(receiver).poll(cx) {
                    Poll::Ready(Ok(())) => return Poll::Ready(None),
                    Poll::Ready(Err(_)) => closing = None,
                    Poll::Pending => {}
                }
            }
            login.as_mut().poll(cx).map(Some)
        });
        lanes::time::timeout(limit, either).await.ok().flatten()
    }

    /// Returns the address of the client.
    #[must_use]
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Counts the connection as a session of `role` after authentication. Callable from the fast
    /// lane of any core.
    ///
    /// # Errors
    /// [`Refused`] if a limit is reached.
    pub async fn enter(&self, role: &str, is_superuser: bool) -> Result<(), Refused> {
        let connections = self.connections.clone();
        let (id, peer) = (self.id, self.peer);
        let role: Arc<str> = role.into();
        let enter = move || async move {
            let Some(state) = connections.0.state.get() else { return Err(Refused::Closed) };
            let entered = state.occupancy.borrow_mut().enter(id, &role, is_superuser);
            match entered {
                Ok(()) => drop(state.closers.borrow_mut().remove(&id)),
                Err(_) => {
                    connections.0.refused.fetch_add(1, Relaxed);
                    let more = |refusals: Refusals| Refusals {
                        refused: refusals.refused + 1,
                        last: Some(peer),
                        ..refusals
                    };
                    connections.record_refusals(&state, more);
                }
            }
            entered
        };
        // Without core 0 the server has ended.
        lanes::try_call(0, enter).await.unwrap_or(Err(Refused::Closed))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        // Keep this order: once the count is zero, all messages that release slots have been sent.
        self.connections.leave(self.id);
        self.connections.0.open.fetch_sub(1, SeqCst);
    }
}
