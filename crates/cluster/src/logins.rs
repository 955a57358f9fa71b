//! Places for logins and connections at nodes, on one core. A login costs a node 50 to 100 ms of
//! CPU (bcrypt), so that a front which opens all its connections at once would keep a node from
//! its work. Each connection costs a node memory.
//!
//! Cores divide the connections to a node evenly, without a message between them. Sessions spread
//! over the cores, and the connections of their roles with them.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Refusal;
use crate::connection::NodeConnection;

/// Logins in flight from a core to a node, at most.
const IN_FLIGHT_MAX: usize = 8;

/// Logins that wait for their turn at a node, at most. Clients' logins on a core are fewer
/// (`access::attempts`: 224), so that they leave turns to connections of sessions.
const WAITING_MAX: usize = 256;

/// Connections of roles from all cores to a node, at most. Each core has one at least.
const CONNECTIONS_MAX: usize = 512;

/// Time limit of the wait for a turn, and for a connection that may be closed for another: as much
/// as one login has.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of the search for a connection that may be closed, while all are in use: much less than
/// the time of the login that follows.
const ROOM_EVERY: Duration = Duration::from_millis(20);

/// Logins and connections of one core.
#[derive(Default)]
pub(crate) struct Logins {
    at_nodes: RefCell<FxHashMap<SocketAddr, Rc<AtNode>>>,
}

/// Logins and connections at one node. Each login, in flight or waiting, has a reference to it.
struct AtNode {
    turns: Arc<Semaphore>,
    /// Logins in flight that have room for their connection.
    opening: Cell<usize>,
    /// Open connections, and those that have closed since room was needed last.
    connections: RefCell<Vec<Weak<NodeConnection>>>,
}

/// Place of a login, with room for its connection. Dropping it gives the place to the next login.
pub(crate) struct LoginPlace {
    at_node: Rc<AtNode>,
    _turn: OwnedSemaphorePermit,
}

impl Logins {
    /// Waits for a place at a node, in the order of arrival, and for room for one more connection.
    /// If there is none, the connection without requests in flight that was used least recently is
    /// closed, whichever role it has. Dropping the wait leaves the line.
    ///
    /// # Errors
    /// [`Refusal::Unsent`]: too many wait already, or the wait took too long.
    pub(crate) async fn enter(&self, node: SocketAddr) -> Result<LoginPlace, Refusal> {
        let at_node = self.at(node);
        // Without the references of the map and of this login.
        if Rc::strong_count(&at_node) - 2 >= IN_FLIGHT_MAX + WAITING_MAX {
            return Err(Refusal::Unsent(format!("{WAITING_MAX} logins wait for the node {node} already")));
        }
        let connections_max = (CONNECTIONS_MAX / lanes::cores()).max(1);
        let is_full = Cell::new(false);
        let entered = async {
            let turn = at_node.turns.clone().acquire_owned().await.expect("turns are never closed");
            while !at_node.make_room(connections_max) {
                is_full.set(true);
                lanes::time::sleep(ROOM_EVERY).await;
            }
            LoginPlace { at_node: at_node.clone(), _turn: turn }
        };
        match lanes::time::timeout(TURN_TIMEOUT, entered).await {
            Ok(place) => Ok(place),
            Err(_) if is_full.get() => Err(Refusal::Unsent(format!(
                "all {connections_max} connections of a core to the node {node} have requests in flight"
            ))),
            Err(_) => Err(Refusal::Unsent(format!(
                "the node {node} had no place for another login within {} s",
                TURN_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Forgets the nodes without logins and connections: nodes come and go.
    pub(crate) fn forget_unused(&self) {
        self.at_nodes.borrow_mut().retain(|_, at_node| {
            at_node.forget_closed();
            Rc::strong_count(at_node) > 1 || !at_node.connections.borrow().is_empty()
        });
    }

    fn at(&self, node: SocketAddr) -> Rc<AtNode> {
        let new = || {
            let turns = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
            Rc::new(AtNode { turns, opening: Cell::new(0), connections: RefCell::default() })
        };
        self.at_nodes.borrow_mut().entry(node).or_insert_with(new).clone()
    }
}

impl AtNode {
    /// Counts one more opening, if there is room for its connection, or another one may be closed
    /// for it.
    fn make_room(&self, connections_max: usize) -> bool {
        let is_full = || self.connections.borrow().len() + self.opening.get() >= connections_max;
        if is_full() {
            self.forget_closed();
        }
        if is_full() && !self.close_oldest() {
            return false;
        }
        self.opening.set(self.opening.get() + 1);
        true
    }

    fn forget_closed(&self) {
        self.connections.borrow_mut().retain(is_open);
    }

    /// Closes the connection without requests in flight that was used least recently. Returns false
    /// if there is none.
    fn close_oldest(&self) -> bool {
        let mut connections = self.connections.borrow_mut();
        let idle = connections.iter().enumerate().filter_map(|(at, connection)| {
            let connection = connection.upgrade().filter(|connection| connection.in_flight() == 0)?;
            Some((connection.used_ns(), at))
        });
        let Some((_, at)) = idle.min() else { return false };
        let oldest = connections.swap_remove(at);
        drop(connections);
        oldest.upgrade().iter().for_each(|oldest| oldest.close());
        true
    }
}

impl LoginPlace {
    /// Counts the connection that was opened in this place.
    pub(crate) fn opened(self, connection: &Rc<NodeConnection>) {
        self.at_node.connections.borrow_mut().push(Rc::downgrade(connection));
    }
}

impl Drop for LoginPlace {
    fn drop(&mut self) {
        self.at_node.opening.set(self.at_node.opening.get() - 1);
    }
}

fn is_open(connection: &Weak<NodeConnection>) -> bool {
    connection.upgrade().is_some_and(|connection| connection.is_open())
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use testkit::start_lanes;

    use super::*;

    const NODE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9042);

    type Entering<'a> = Pin<Box<dyn Future<Output = Result<LoginPlace, Refusal>> + 'a>>;

    fn poll(entering: &mut Entering<'_>) -> Poll<Result<LoginPlace, Refusal>> {
        entering.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn on_lane(test: impl FnOnce() + Send + 'static) {
        let lanes = start_lanes(1);
        lanes.block_on(0, lanes::Group::CONTROL, || async { test() });
        lanes.shutdown();
    }

    #[test]
    fn cancelled_login_leaves_the_line_and_the_others_keep_their_order() {
        on_lane(|| {
            let logins = Logins::default();
            let mut entering: Vec<Entering<'_>> =
                (0..IN_FLIGHT_MAX + 3).map(|_| Box::pin(logins.enter(NODE)) as Entering<'_>).collect();
            let mut polled: Vec<_> = entering.iter_mut().map(poll).collect();
            let in_flight = polled.iter().filter(|polled| polled.is_ready()).count();
            assert_eq!(in_flight, IN_FLIGHT_MAX);
            drop(entering.remove(IN_FLIGHT_MAX));
            drop(std::mem::replace(&mut polled[0], Poll::Pending));
            let [first, second] = &mut entering[IN_FLIGHT_MAX..] else { panic!("two are left") };
            assert!(poll(second).is_pending(), "another came before it");
            let place = poll(first);
            assert!(place.is_ready() && poll(second).is_pending());
        });
    }

    #[test]
    fn line_of_a_node_is_bounded_and_other_nodes_have_their_own() {
        on_lane(|| {
            let logins = Logins::default();
            let mut entering: Vec<Entering<'_>> = (0..IN_FLIGHT_MAX + WAITING_MAX)
                .map(|_| Box::pin(logins.enter(NODE)) as Entering<'_>)
                .collect();
            let polled: Vec<_> = entering.iter_mut().map(poll).collect();
            let mut beyond: Entering<'_> = Box::pin(logins.enter(NODE));
            assert!(
                matches!(poll(&mut beyond), Poll::Ready(Err(Refusal::Unsent(text))) if text.contains("256"))
            );
            let mut elsewhere: Entering<'_> = Box::pin(logins.enter(([127, 0, 0, 2], 9042).into()));
            let place = poll(&mut elsewhere);
            assert!(place.is_ready());
            drop((place, elsewhere, beyond, entering.pop()));
            let mut last: Entering<'_> = Box::pin(logins.enter(NODE));
            assert!(poll(&mut last).is_pending(), "it has the place of the one that left");
            drop((last, polled, entering));
            assert_eq!(logins.at_nodes.borrow().len(), 2);
            logins.forget_unused();
            assert!(logins.at_nodes.borrow().is_empty(), "nodes without logins are forgotten");
        });
    }
}
