//! Places for logins at nodes, on one core. A login costs a node 50 to 100 ms of CPU (bcrypt), so
//! that a front which opens all its connections at once would keep a node from its work.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Refusal;

/// Logins in flight from a core to a node, at most.
const IN_FLIGHT_MAX: usize = 8;

/// Logins that wait for their turn at a node, at most. Clients' logins on a core are fewer
/// (`access::attempts`: 224), so that they leave turns to connections of sessions.
const WAITING_MAX: usize = 256;

/// Time limit of the wait for a turn: as much as one login has.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// Logins of one core. Each of them, in flight or waiting, has a reference to its node's places.
#[derive(Default)]
pub(crate) struct Logins {
    places: RefCell<FxHashMap<SocketAddr, Arc<Semaphore>>>,
}

impl Logins {
    /// Waits for a place at a node, in the order of arrival. Dropping the place gives it to the
    /// next, and dropping the wait leaves the line.
    ///
    /// # Errors
    /// [`Refusal::Unsent`]: too many wait already, or the wait took too long.
    pub(crate) async fn enter(&self, node: SocketAddr) -> Result<OwnedSemaphorePermit, Refusal> {
        let places = self.places(node);
        // Without the references of the map and of this login.
        if Arc::strong_count(&places) - 2 >= IN_FLIGHT_MAX + WAITING_MAX {
            return Err(Refusal::Unsent(format!("{WAITING_MAX} logins wait for the node {node} already")));
        }
        match lanes::time::timeout(TURN_TIMEOUT, places.acquire_owned()).await {
            Ok(place) => Ok(place.expect("places are never closed")),
            Err(_) => Err(Refusal::Unsent(format!(
                "the node {node} had no place for another login within {} s",
                TURN_TIMEOUT.as_secs()
            ))),
        }
    }

    fn places(&self, node: SocketAddr) -> Arc<Semaphore> {
        let mut places = self.places.borrow_mut();
        if let Some(known) = places.get(&node) {
            return known.clone();
        }
        // Nodes come and go: keep those with logins.
        places.retain(|_, places| Arc::strong_count(places) > 1);
        places.entry(node).or_insert_with(|| Arc::new(Semaphore::new(IN_FLIGHT_MAX))).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use testkit::start_lanes;

    use super::*;

    const NODE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9042);

    type Entering<'a> = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, Refusal>> + 'a>>;

    fn poll(entering: &mut Entering<'_>) -> Poll<Result<OwnedSemaphorePermit, Refusal>> {
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
            drop(poll(&mut (Box::pin(logins.enter(([127, 0, 0, 3], 9042).into())) as Entering<'_>)));
            assert_eq!(logins.places.borrow().len(), 1, "nodes without logins are forgotten");
        });
    }
}
