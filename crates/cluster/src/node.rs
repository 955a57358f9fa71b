//! A node of the cluster, as one core sees it: the queue of requests for its places.
//!
//! ```text
//!  request ─▶ Node::place ─┬─ a place, at once ─────────────▶ connection ─▶ node
//!                          └─ waits in the queue of its level ─▲             │
//!                                                              └─ Place dropped, by the answer
//! ```

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use lanes::Group;
use lanes::sync::oneshot::{self, Receiver, Sender};
use rustc_hash::FxHashMap;
use sched::control::{ClassId, NodeSample};
use sched::{NodeId, NodeQueue};
use wire::{Envelope, Opcode};
use workload::{Effective, LevelEntry};

use crate::Refusal;
use crate::choice::NodeLoad;
use crate::part::{CorePart, LevelReport, NodeReport, NodesUse, first_entitlement};

/// Requests of a level that wait for a node on one core, at most. Their bodies are charged to the
/// memory of their connections.
const WAITING_MAX: usize = 1 << 14;

/// Waiting requests that get places in one task poll, at most, those that no client waits for
/// included: thousands of these may stand in line after a pause of the node.
const GIVEN_MAX: usize = 256;

/// Time for which a node that could not be reached is not chosen if there are others.
const AVOIDED: Duration = Duration::from_secs(1);

/// Codes of errors by which a node says that it has too much work (native_protocol_v5.spec, 9).
const OVERLOADED: &[u8] = &[0, 0, 0x10, 0x01];
const WRITE_TIMEOUT: &[u8] = &[0, 0, 0x11, 0x00];
const READ_TIMEOUT: &[u8] = &[0, 0, 0x12, 0x00];

/// A node. The head of this file describes it.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    queue: RefCell<NodeQueue<Waiting>>,
    /// Levels in the queue, by their groups.
    levels: RefCell<FxHashMap<Group, NodeId>>,
    /// Factor of the weights of levels: see [`CorePart::scale`].
    scale: Cell<u32>,
    /// True while waiting requests are given places.
    is_giving: Cell<bool>,
    /// Time until which the node is avoided, ns of the monotonic clock. 0: it never was.
    avoided_until_ns: Cell<u64>,
    /// Answers since the last division, for the limiter. `None`: the window is fixed.
    sample: Option<RefCell<NodeSample>>,
    /// Mark of the last topology.
    is_up: Cell<bool>,
    /// Times that it has come up, as far as this core has prepared statements for it.
    came_up: Cell<u64>,
}

/// A request that waits for a place.
struct Waiting {
    sender: Sender<Place>,
    class: ClassId,
}

/// A request that waits for its place. Dropping it before abandons it.
struct Turn<'a> {
    node: &'a Node,
    level: NodeId,
    receiver: Receiver<Place>,
}

/// A place in the window of a node. Dropping it gives the place to the next request.
pub(crate) struct Place {
    node: Rc<Node>,
    level: NodeId,
    class: ClassId,
    since_ns: u64,
    /// Time at which the request was written to the socket, ns of the monotonic clock.
    written_ns: Cell<u64>,
    /// True once a request was sent with it.
    is_used: Cell<bool>,
}

impl Node {
    /// Creates a node with the window of this core until the next division. `is_limited`: its
    /// answers are counted for the limiter.
    pub(crate) fn new(address: SocketAddr, window: u32, is_limited: bool) -> Node {
        Node {
            address,
            queue: RefCell::new(NodeQueue::new(window, WAITING_MAX)),
            levels: RefCell::default(),
            scale: Cell::new(1),
            is_giving: Cell::new(false),
            avoided_until_ns: Cell::new(0),
            sample: is_limited.then(RefCell::default),
            is_up: Cell::new(true),
            came_up: Cell::new(0),
        }
    }

    /// Takes over the mark of a topology. If the node comes up, this core has at most `window`
    /// places until the next division.
    pub(crate) fn mark(&self, is_up: bool, window: u32) {
        if is_up && !self.is_up.get() {
            let mut queue = self.queue.borrow_mut();
            let window = window.min(queue.window());
            queue.set_window(window, lanes::time::monotonic_ns());
        }
        self.is_up.set(is_up);
    }

    /// Returns true once for each time that the node has come up, by their number.
    pub(crate) fn has_come_up(&self, count: u64) -> bool {
        self.came_up.replace(count) != count
    }

    /// Avoids a node that could not be reached.
    pub(crate) fn avoid(&self) {
        self.avoided_until_ns.set(lanes::time::monotonic_ns() + AVOIDED.as_nanos() as u64);
    }

    /// Avoids the node if it cannot be reached. Returns the refusal for the caller of this crate.
    pub(crate) fn judge(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Unreachable(text) => {
                self.avoid();
                Refusal::Unsent(text)
            }
            other => other,
        }
    }

    /// Returns its requests on this core, for the choice among nodes.
    pub(crate) fn load(&self) -> NodeLoad {
        let queue = self.queue.borrow();
        let until_ns = self.avoided_until_ns.get();
        NodeLoad {
            in_flight: queue.in_flight(),
            queued: u32::try_from(queue.queued()).unwrap_or(u32::MAX),
            part: queue.window(),
            // Requests do not read the clock for a node that was never avoided.
            is_avoided: until_ns > 0 && until_ns > lanes::time::monotonic_ns(),
        }
    }

    /// Returns the use of the node on this core.
    pub(crate) fn report(&self) -> NodeReport {
        let queue = self.queue.borrow();
        let levels = self.levels.borrow();
        let level =
            |(group, level): (&Group, &NodeId)| LevelReport { group: *group, used: queue.use_of(*level) };
        NodeReport { levels: levels.iter().map(level).collect() }
    }

    /// Moves the answers since the last call to the sample of all cores, if the limiter counts
    /// them.
    pub(crate) fn give_sample(&self, all: &mut NodeSample, interval_ns: u64) {
        let Some(sample) = &self.sample else { return };
        let mut queue = self.queue.borrow_mut();
        let full_ns = queue.take_full_ns(lanes::time::monotonic_ns());
        let mut sample = sample.borrow_mut();
        // A core without requests says nothing about the window.
        if full_ns > 0 || queue.in_flight() > 0 {
            sample.used(full_ns, interval_ns);
        }
        all.take(&mut sample);
    }

    /// Takes over what the last division gives to this core. `levels`: the present levels. Adds
    /// their use of the node to `uses`.
    pub(crate) fn apply(
        self: &Rc<Self>,
        part: &CorePart,
        levels: &FxHashMap<Group, Arc<LevelEntry>>,
        uses: &mut FxHashMap<Group, NodesUse>,
    ) {
        self.scale.set(part.scale);
        let mut queue = self.queue.borrow_mut();
        let now_ns = lanes::time::monotonic_ns();
        queue.set_window(part.places, now_ns);
        queue.set_probing(part.is_probing, now_ns);
        self.levels.borrow_mut().retain(|group, level| {
            let Some(entry) = levels.get(group) else {
                // A dropped level: its requests keep what it had.
                return !queue.remove(*level);
            };
            let entitlement = match part.levels.get(group) {
                Some(decided) => *decided,
                None => first_entitlement(&entry.level, &entry.spec, part.scale, part.places),
            };
            queue.set(*level, entitlement.spec);
            queue.set_in_flight_max(*level, entitlement.in_flight_max);
            let sum = uses.entry(*group).or_default();
            sum.occupancy_ns = sum.occupancy_ns.saturating_add(queue.use_of(*level).occupancy_ns);
            sum.places = sum.places.saturating_add(entitlement.places);
            true
        });
        drop(queue);
        self.give();
    }

    /// Takes a place for a request of a level, in its turn. It does not wait if that would probably
    /// take more than half of the time left until `until_ns` of the monotonic clock: the node needs
    /// time as well.
    ///
    /// # Errors
    /// [`Refusal::Unsent`]: the time left does not suffice, or too many of the level wait.
    pub(crate) async fn place(
        self: &Rc<Self>,
        effective: &Effective,
        class: ClassId,
        until_ns: u64,
    ) -> Result<Place, Refusal> {
        let now_ns = lanes::time::monotonic_ns();
        let level = self.level_of(effective, now_ns);
        let mut turn = {
            let mut queue = self.queue.borrow_mut();
            if queue.enter(level, now_ns) {
                return Ok(Place::new(self, level, class, now_ns));
            }
            let wait_ns = queue.expected_wait_ns(level, now_ns);
            let (sender, receiver) = oneshot::channel();
            let is_late = now_ns.saturating_add(wait_ns.saturating_mul(2)) >= until_ns;
            let waiting = Waiting { sender, class };
            if is_late || queue.push(level, lanes::current_flow().number(), waiting).is_err() {
                let waiting = queue.use_of(level).queued;
                return Err(self.full(effective, waiting, wait_ns));
            }
            Turn { node: self, level, receiver }
        };
        // A level that is behind its shares may go at once.
        self.give();
        (&mut turn.receiver).await.map_err(|_| Refusal::Unsent("the front is stopping".to_owned()))
    }

    #[cold]
    fn full(&self, effective: &Effective, waiting: u32, wait_ns: u64) -> Refusal {
        Refusal::Unsent(format!(
            "{waiting} requests of service level '{}' wait for the node {}, come back in {} ms",
            effective.level.name(),
            self.address,
            (wait_ns / 1_000_000).max(1)
        ))
    }

    /// Returns the level in the queue. A new one has its configured shares until the windows are
    /// divided next.
    fn level_of(&self, effective: &Effective, now_ns: u64) -> NodeId {
        let group = effective.group();
        if let Some(level) = self.levels.borrow().get(&group) {
            return *level;
        }
        let mut queue = self.queue.borrow_mut();
        let first = first_entitlement(&effective.level, &effective.spec, self.scale.get(), queue.window());
        let level = queue.add(first.spec, now_ns);
        queue.set_in_flight_max(level, first.in_flight_max);
        self.levels.borrow_mut().insert(group, level);
        level
    }

    /// Gives free places to waiting requests.
    fn give(self: &Rc<Self>) {
        // The place of a request that was cancelled comes back while this runs.
        if self.is_giving.replace(true) {
            return;
        }
        if self.give_some() {
            return self.is_giving.set(false);
        }
        let node = self.clone();
        let rest = async move {
            loop {
                lanes::yield_now().await;
                if node.give_some() {
                    return node.is_giving.set(false);
                }
            }
        };
        lanes::spawn(Group::CONTROL, rest).detach();
    }

    /// Gives free places to at most [`GIVEN_MAX`] waiting requests. Returns true if none is left
    /// that may have a place now.
    fn give_some(self: &Rc<Self>) -> bool {
        for _ in 0..GIVEN_MAX {
            let now_ns = lanes::time::monotonic_ns();
            let Some((level, waiting)) = self.queue.borrow_mut().pop(now_ns) else { return true };
            if waiting.sender.is_closed() {
                self.queue.borrow_mut().skip(level, now_ns);
                continue;
            }
            drop(waiting.sender.send(Place::new(self, level, waiting.class, now_ns)));
        }
        false
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        // A place that has come already is given back by itself.
        if Pin::new(&mut self.receiver).poll(&mut cx).is_pending() {
            self.node.queue.borrow_mut().abandon(self.level);
        }
    }
}

impl Place {
    fn new(node: &Rc<Node>, level: NodeId, class: ClassId, since_ns: u64) -> Place {
        let written_ns = Cell::new(u64::MAX);
        Place { node: node.clone(), level, class, since_ns, written_ns, is_used: Cell::new(false) }
    }

    /// Counts a request as sent with it, or as not sent after all.
    pub(crate) fn set_used(&self, is_used: bool) {
        self.is_used.set(is_used);
    }

    /// Starts the clock of the request: it is written to the socket.
    pub(crate) fn written(&self, now_ns: u64) {
        self.written_ns.set(now_ns);
    }

    /// Counts an answer, whose last byte arrived at `arrived_ns`, for the limiter of the window.
    /// Errors come sooner than rows, and tell nothing about the time of a request. Neither does an
    /// answer that was read together with one from before its request.
    pub(crate) fn count(&self, answer: &Envelope, arrived_ns: u64) {
        let Some(sample) = &self.node.sample else { return };
        let mut sample = sample.borrow_mut();
        if answer.opcode != Opcode::Error {
            let took_ns = arrived_ns.checked_sub(self.written_ns.get()).filter(|took_ns| *took_ns > 0);
            return took_ns.into_iter().for_each(|took_ns| sample.answered(self.class, took_ns));
        }
        match answer.body.get(..4) {
            Some(OVERLOADED) => sample.overloaded(),
            Some(WRITE_TIMEOUT | READ_TIMEOUT) => sample.coordinator_timeout(),
            _ => {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queue = self.node.queue.borrow_mut();
        let now_ns = lanes::time::monotonic_ns();
        match self.is_used.get() {
            true => queue.leave(self.level, self.since_ns, now_ns),
            false => queue.give_back(self.level, now_ns),
        }
        let waits = queue.queued() > 0;
        drop(queue);
        if waits {
            self.node.give();
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::start_lanes;
    use wire::{Direction, Encoder, Prelude, Version};

    use super::*;
    use crate::streams::Streams;

    fn void() -> Envelope {
        let mut encoder = Encoder::new(Direction::Response, Version::V5);
        encoder.void(0, &Prelude::default()).expect("short");
        let mut decoder = wire::Decoder::new(Direction::Response, wire::Limits::default());
        let mut bytes = encoder.finish().split();
        decoder.decode(&mut bytes).expect("well-formed").expect("complete")
    }

    /// Runs a test with a node of one place and the level of its requests.
    fn with_node(test: impl FnOnce(&Rc<Node>, NodeId) + Send + 'static) {
        let lanes = start_lanes(1);
        let levels = workload::Levels::new(lanes.clone());
        lanes.block_on(0, Group::CONTROL, move || async move {
            let node = Rc::new(Node::new(([127, 0, 0, 1], 9042).into(), 1, true));
            let level = node.level_of(&Effective::of(levels.catalog().default_level()), 0);
            test(&node, level);
            // The rest of what was started.
            for _ in 0..1000 {
                lanes::yield_now().await;
            }
            assert_eq!(node.queue.borrow().queued(), 0);
            assert!(!node.is_giving.get());
        });
        lanes.shutdown();
    }

    #[test]
    fn time_of_a_request_starts_when_it_is_written() {
        with_node(|node, level| {
            let answers = |written_ns: u64, arrived_ns: u64| {
                assert!(node.queue.borrow_mut().enter(level, 1));
                let mut streams = Streams::default();
                let place = Place::new(node, level, ClassId::of_opcode(7), 1);
                let (stream, _receiver) = streams.take(Some(place)).expect("free");
                streams.written(written_ns);
                // Requests that are written later do not move it.
                streams.written(u64::MAX);
                let waiting = streams.answered(stream).expect("in flight");
                waiting.place.expect("given").count(&void(), arrived_ns);
                node.sample.as_ref().expect("limited").borrow().answers()
            };
            assert_eq!(answers(1000, 900), 0, "it was read with an earlier answer");
            assert_eq!(answers(1000, 1200), 1);
        });
    }

    #[test]
    fn abandoned_requests_leave_the_line_in_several_polls() {
        with_node(|node, level| {
            assert!(node.queue.borrow_mut().enter(level, 1));
            let place = Place::new(node, level, ClassId::of_opcode(7), 1);
            for _ in 0..3 * GIVEN_MAX {
                let (sender, receiver) = oneshot::channel();
                let waiting = Waiting { sender, class: ClassId::of_opcode(7) };
                assert!(node.queue.borrow_mut().push(level, 1, waiting).is_ok());
                drop(Turn { node, level, receiver });
            }
            assert_eq!(node.queue.borrow().use_of(level).queued, 0, "no client waits");
            drop(place);
            assert_eq!(node.queue.borrow().queued(), 2 * GIVEN_MAX, "the others in later polls");
        });
    }
}
