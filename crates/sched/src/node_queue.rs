//! Requests of one core to one node of a cluster: at most as many in flight as the window has
//! places, and the rest in the order of their levels' shares.
//!
//! ```text
//!   enter ──▶ a place, at once, if the level is the next one and the window has a place
//!   push ───▶ level a │▒▒▒▒▒│ ─┐
//!   push ───▶ level b │▒│     ─┼─▶ Tree::pick ──▶ limit of the level? ──▶ place free? ──▶ pop
//!   push ───▶ level c │▒▒▒│   ─┘
//!             leave ◀── an answer, after the time for which the request held its place
//! ```
//!
//! **Charge.** A level is charged with *occupancy*: the time for which its requests hold places. A
//! request pays the mean time of the node's requests when it is sent. Use beyond that is charged as
//! it passes, and what is left unused pays for the next requests. So levels that always have
//! requests waiting hold places in the ratio of their shares, whatever their requests cost, and
//! slow requests delay other levels no longer than their answers take. The mean is that of all
//! levels: after a pause of the node, the level with the first answers would pay more than others
//! with one of its own, and they would get all places.
//!
//! **One place beyond the window.** The next level in order, if it has nothing in flight, does not
//! wait for a place: all of them may be held by slow requests of other levels. The window is
//! exceeded by at most one place for each level.
//!
//! **Batch levels** hold places only as far as the requests of other levels take hardly longer:
//! `batch_pace.rs`.
//!
//! **Expected wait.** The waiting requests of the level times its *pace*: the time for an answer
//! while others wait. The pace is the lower of the last two measurements, so that a node that
//! paused once is not taken for a slow one. The mean time of requests does not tell: it is
//! that of all levels, and remembers a pause for long.

use crate::batch_pace::{BatchPace, Weights};
use crate::rounds::Rounds;
use crate::tree::{NodeId, NodeSpec, Tree};
use crate::virtual_time::Class;

/// Turn of a client in its level, in requests.
const TURN: u32 = 1;
/// Interval at which levels are charged for requests that are still in flight, ns.
const CHARGE_EVERY_NS: u64 = 1_000_000;
/// Weight of the last request in the mean time of requests, as a power of two: 1 ÷ 256.
const MEAN_LOG2: u32 = 8;
/// Answers of a measurement of the pace: it is exact to a quarter if their times are exponential.
const PACE_ANSWERS: u32 = 16;
/// Time after which a measurement ends with fewer answers, ns.
const PACE_MEASURED_NS: u64 = 100_000_000;
/// Time for which the pace counts when no request has to wait any more, ns.
const PACE_KEPT_NS: u64 = 1_000_000_000;
/// Time of a request of a node without answers, ns.
const MEAN_FIRST_NS: u64 = 500_000;

/// Queue of one node on one core. The head of this file describes it.
#[derive(Debug)]
pub struct NodeQueue<T> {
    tree: Tree,
    /// Indexed by node of the tree. The first stands for its root.
    levels: Vec<Level<T>>,
    window: u32,
    in_flight: u32,
    queued: usize,
    /// Most requests that one level may have waiting.
    depth_max: usize,
    /// Time at which all levels were charged last, ns.
    charged_ns: u64,
    /// Recent mean time of a request, ns.
    mean_ns: u64,
    /// Time for which the whole window was in use, ns.
    full_ns: u64,
    /// Time since which it is in use as a whole, ns. `None`: there are free places.
    full_since_ns: Option<u64>,
    /// Pace of batch levels, and these levels.
    pace: BatchPace,
    batch: Vec<NodeId>,
    batch_in_flight: u32,
    /// True while batch levels have to wait for their pace.
    is_batch_held: bool,
}

#[derive(Debug)]
struct Level<T> {
    spec: NodeSpec,
    /// In memory of its own: most levels do not wait for most nodes.
    waiting: Option<Box<Rounds<T>>>,
    /// Waiting requests that no client waits for any more.
    abandoned: u32,
    pace: Pace,
    in_flight: u32,
    /// Most requests in flight.
    in_flight_max: u32,
    /// Occupancy that is paid and not used yet, ns.
    paid_ns: u64,
    /// Time up to which its occupancy was counted, ns.
    counted_ns: u64,
    /// Occupancy so far, ns.
    occupancy_ns: u64,
    /// Answers so far.
    answers: u64,
}

/// Time for an answer of a level while its requests wait.
#[derive(Clone, Copy, Default, Debug)]
struct Pace {
    /// Begin of the measurement, an answer, ns. `None`: no request waits.
    since_ns: Option<u64>,
    /// Answers since then.
    answers: u32,
    /// Results of the last two measurements, ns.
    measured_ns: [Option<u64>; 2],
    /// Time of the last answer while requests waited, ns.
    answered_ns: u64,
}

impl Pace {
    /// Counts an answer while requests wait.
    fn answered(&mut self, now_ns: u64) {
        if !self.is_known(now_ns) {
            self.measured_ns = [None; 2];
        }
        self.answered_ns = now_ns;
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        let took_ns = now_ns.saturating_sub(since_ns);
        if self.answers >= PACE_ANSWERS || took_ns >= PACE_MEASURED_NS {
            self.measured_ns = [Some(took_ns / u64::from(self.answers.max(1))), self.measured_ns[0]];
            (self.since_ns, self.answers) = (Some(now_ns), 0);
        }
        self.answers += 1;
    }

    /// Ends the measurement: no request waits.
    fn stop(&mut self) {
        (self.since_ns, self.answers) = (None, 0);
    }

    fn is_known(&self, now_ns: u64) -> bool {
        self.since_ns.is_some() || now_ns.saturating_sub(self.answered_ns) <= PACE_KEPT_NS
    }

    /// Returns the pace, ns. `None`: it was not measured lately.
    fn now(&self, now_ns: u64) -> Option<u64> {
        let [last_ns, before_ns] = self.measured_ns;
        self.is_known(now_ns).then_some(last_ns?.min(before_ns?))
    }
}

/// Use of a node by a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeUse {
    /// Requests in flight.
    pub in_flight: u32,
    /// Requests that wait for a place.
    pub queued: u32,
    /// Time for which its requests held places, ns.
    pub occupancy_ns: u64,
    /// Requests that have ended.
    pub answers: u64,
}

impl NodeUse {
    /// Adds the use on another core.
    pub fn add(&mut self, other: NodeUse) {
        self.in_flight = self.in_flight.saturating_add(other.in_flight);
        self.queued = self.queued.saturating_add(other.queued);
        self.occupancy_ns = self.occupancy_ns.saturating_add(other.occupancy_ns);
        self.answers = self.answers.saturating_add(other.answers);
    }
}

impl<T> NodeQueue<T> {
    /// Creates a queue without levels. `depth_max`: most requests that one level may have waiting.
    #[must_use]
    pub fn new(window: u32, depth_max: usize) -> NodeQueue<T> {
        NodeQueue {
            tree: Tree::new(),
            levels: vec![Level::new(NodeSpec::new(1, Class::Normal), 0)],
            window: window.max(1),
            in_flight: 0,
            queued: 0,
            depth_max,
            charged_ns: 0,
            mean_ns: MEAN_FIRST_NS,
            full_ns: 0,
            full_since_ns: None,
            pace: BatchPace::default(),
            batch: Vec::new(),
            batch_in_flight: 0,
            is_batch_held: false,
        }
    }

    /// Adds a level. Panics on shares out of range.
    pub fn add(&mut self, spec: NodeSpec, now_ns: u64) -> NodeId {
        let id = self.tree.add(Tree::ROOT, spec);
        let level = Level::new(spec, now_ns);
        match self.levels.get_mut(id.0 as usize) {
            Some(free) => *free = level,
            None => self.levels.push(level),
        }
        self.note_class(id);
        id
    }

    /// Removes a level if it has no request here. Returns true if it is gone.
    pub fn remove(&mut self, level: NodeId) -> bool {
        let of = &self.levels[level.0 as usize];
        let is_unused = of.in_flight == 0 && of.queued() == 0;
        if is_unused {
            self.tree.remove(level);
            self.batch.retain(|batch| *batch != level);
        }
        is_unused
    }

    /// Changes the entitlement of a level at once. Panics on shares out of range.
    pub fn set(&mut self, level: NodeId, spec: NodeSpec) {
        self.tree.set(level, spec);
        let of = &mut self.levels[level.0 as usize];
        let was_batch = std::mem::replace(&mut of.spec, spec).class == Class::Batch;
        let in_flight = of.in_flight;
        if was_batch != self.is_batch(level) {
            self.batch_in_flight =
                if was_batch { self.batch_in_flight - in_flight } else { self.batch_in_flight + in_flight };
            self.note_class(level);
        }
    }

    /// Keeps the list of batch levels.
    fn note_class(&mut self, level: NodeId) {
        self.batch.retain(|batch| *batch != level);
        if self.is_batch(level) {
            self.batch.push(level);
        }
        self.throttle_as_due(level);
    }

    fn is_batch(&self, level: NodeId) -> bool {
        self.levels[level.0 as usize].spec.class == Class::Batch
    }

    /// Begins or ends a probe: batch levels start nothing, so that the time of the others' requests
    /// without them is known.
    pub fn set_probing(&mut self, is_probing: bool, now_ns: u64) {
        self.pace.set_probing(is_probing, now_ns);
    }

    /// Returns the shares of the levels with requests.
    fn weights(&self) -> Weights {
        let mut weights = Weights { batch: 0, others: 0 };
        for level in self.levels.iter().filter(|level| level.in_flight > 0 || level.queued() > 0) {
            let shares = u64::from(level.spec.shares);
            match level.spec.class {
                Class::Batch => weights.batch += shares,
                Class::Latency | Class::Normal => weights.others += shares,
            }
        }
        weights
    }

    /// Decides whether batch levels may start a request now.
    fn pace_batch(&mut self, now_ns: u64) {
        if self.batch.is_empty() {
            return;
        }
        if self.pace.is_due(now_ns) {
            let weights = self.weights();
            self.pace.measure(weights, now_ns);
        }
        let is_held = !self.pace.may_start(self.batch_in_flight, now_ns);
        if is_held != self.is_batch_held {
            self.is_batch_held = is_held;
            for at in 0..self.batch.len() {
                self.throttle_as_due(self.batch[at]);
            }
        }
    }

    /// Limits the requests in flight of a level, at least 1.
    pub fn set_in_flight_max(&mut self, level: NodeId, max: u32) {
        self.levels[level.0 as usize].in_flight_max = max.max(1);
        self.throttle_as_due(level);
    }

    /// Changes the window, at least 1. Requests in flight beyond it stay.
    pub fn set_window(&mut self, places: u32, now_ns: u64) {
        self.window = places.max(1);
        self.note_full(now_ns);
    }

    /// Returns the window.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the number of requests that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Returns the time for which the whole window was in use since the last call, ns.
    pub fn take_full_ns(&mut self, now_ns: u64) -> u64 {
        self.note_full(now_ns);
        std::mem::take(&mut self.full_ns)
    }

    /// Counts the time for which the whole window was in use, and looks whether it is now.
    fn note_full(&mut self, now_ns: u64) {
        let since_ns = self.full_since_ns.take();
        let full_ns = since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        self.full_ns = self.full_ns.saturating_add(full_ns);
        self.full_since_ns = (self.in_flight >= self.window).then_some(now_ns);
    }

    /// Returns the use of the node by a level.
    #[must_use]
    pub fn use_of(&self, level: NodeId) -> NodeUse {
        let level = &self.levels[level.0 as usize];
        NodeUse {
            in_flight: level.in_flight,
            queued: level.live(),
            occupancy_ns: level.occupancy_ns,
            answers: level.answers,
        }
    }

    /// Returns the time that a request of this level would wait now, ns: those before it, at the
    /// pace at which the level's requests are answered. 0 without recent evidence of a wait.
    #[must_use]
    pub fn expected_wait_ns(&self, level: NodeId, now_ns: u64) -> u64 {
        if self.in_flight == 0 {
            return 0;
        }
        let level = &self.levels[level.0 as usize];
        let before = u64::from(level.live());
        level.pace.now(now_ns).map_or(0, |pace_ns| before.saturating_mul(pace_ns))
    }

    /// Counts a waiting request as one that no client waits for. It keeps its turn, and the caller
    /// of [`NodeQueue::pop`] then [skips](NodeQueue::skip) it.
    pub fn abandon(&mut self, level: NodeId) {
        self.levels[level.0 as usize].abandoned += 1;
    }

    /// Gives back the place of an abandoned request.
    pub fn skip(&mut self, level: NodeId, now_ns: u64) {
        let of = &mut self.levels[level.0 as usize];
        of.abandoned = of.abandoned.saturating_sub(1);
        self.give_back(level, now_ns);
    }

    /// Takes a place for a request, if it need not wait. Otherwise push it.
    pub fn enter(&mut self, level: NodeId, now_ns: u64) -> bool {
        if self.is_batch(level) {
            self.charge_all(now_ns);
            self.pace_batch(now_ns);
            if self.is_batch_held {
                return false;
            }
        }
        let of = &self.levels[level.0 as usize];
        if of.in_flight >= of.in_flight_max || self.tree.is_awake(level) {
            return false;
        }
        let may = match self.tree.eligible() {
            0 => self.in_flight < self.window || of.in_flight == 0,
            _ if of.in_flight == 0 => self.would_be_next(level, now_ns),
            _ => false,
        };
        if may {
            self.take(level, now_ns);
        }
        may
    }

    /// Queues a request of a client, `flow`. Clients of a level take turns.
    ///
    /// # Errors
    /// The queue of the level is full: returns the item.
    pub fn push(&mut self, level: NodeId, flow: u64, item: T) -> Result<(), T> {
        let of = &mut self.levels[level.0 as usize];
        let waiting = of.waiting.get_or_insert_with(|| Box::new(Rounds::new(TURN)));
        if waiting.len() >= self.depth_max {
            return Err(item);
        }
        waiting.push(flow, item);
        self.queued += 1;
        self.tree.wake(level);
        Ok(())
    }

    /// Takes the next waiting request, with its place. `None`: there is none, or no place.
    pub fn pop(&mut self, now_ns: u64) -> Option<(NodeId, T)> {
        if self.queued == 0 {
            return None;
        }
        self.charge_all(now_ns);
        self.pace_batch(now_ns);
        let level = self.tree.pick()?;
        let of = &mut self.levels[level.0 as usize];
        if self.in_flight >= self.window && of.in_flight > 0 {
            return None;
        }
        let waiting = of.waiting.as_mut().expect("an awake level has a queue");
        let item = waiting.pop().expect("an awake level has a request");
        waiting.charge(u64::from(TURN));
        let is_drained = waiting.is_empty();
        self.queued -= 1;
        self.take(level, now_ns);
        if is_drained {
            self.levels[level.0 as usize].pace.stop();
            self.tree.idle(level);
        }
        Some((level, item))
    }

    /// Gives back the place of a request that was answered, and held it since `since_ns`.
    pub fn leave(&mut self, level: NodeId, since_ns: u64, now_ns: u64) {
        self.give_back(level, now_ns);
        let of = &mut self.levels[level.0 as usize];
        of.answers += 1;
        if of.queued() > 0 {
            of.pace.answered(now_ns);
        }
        let took_ns = now_ns.saturating_sub(since_ns);
        if of.spec.class != Class::Batch {
            self.pace.answered(took_ns);
        }
        self.mean_ns = self.mean_ns - (self.mean_ns >> MEAN_LOG2) + (took_ns >> MEAN_LOG2);
    }

    /// Gives back a place that no request was sent with.
    pub fn give_back(&mut self, level: NodeId, now_ns: u64) {
        self.count(level, now_ns);
        self.in_flight -= 1;
        self.batch_in_flight -= u32::from(self.is_batch(level));
        if self.in_flight + 1 == self.window {
            self.note_full(now_ns);
        }
        let of = &mut self.levels[level.0 as usize];
        of.in_flight -= 1;
        if self.tree.is_throttled(level) {
            self.throttle_as_due(level);
        }
    }

    /// Returns true if a level without a waiting request would be the next one.
    fn would_be_next(&mut self, level: NodeId, now_ns: u64) -> bool {
        self.charge_all(now_ns);
        self.tree.wake(level);
        let is_next = self.tree.pick() == Some(level);
        self.tree.idle(level);
        is_next
    }

    /// Counts a request as sent.
    fn take(&mut self, level: NodeId, now_ns: u64) {
        self.count(level, now_ns);
        self.in_flight += 1;
        self.batch_in_flight += u32::from(self.is_batch(level));
        let of = &mut self.levels[level.0 as usize];
        of.in_flight += 1;
        // Less what earlier requests have paid and not used.
        let needed_ns = self.mean_ns.saturating_mul(u64::from(of.in_flight));
        let due_ns = self.mean_ns.min(needed_ns.saturating_sub(of.paid_ns));
        of.paid_ns += due_ns;
        self.charge(level, due_ns);
        self.throttle_as_due(level);
        if self.in_flight == self.window {
            self.note_full(now_ns);
        }
    }

    /// Counts the occupancy of a level until now, and charges what is not paid.
    fn count(&mut self, level: NodeId, now_ns: u64) {
        let of = &mut self.levels[level.0 as usize];
        let used_ns = u64::from(of.in_flight).saturating_mul(now_ns.saturating_sub(of.counted_ns));
        of.counted_ns = of.counted_ns.max(now_ns);
        of.occupancy_ns = of.occupancy_ns.saturating_add(used_ns);
        match of.spec.class {
            Class::Batch => self.pace.used_by_batch(used_ns),
            Class::Latency | Class::Normal => self.pace.used_by_others(used_ns),
        }
        let unpaid_ns = used_ns.saturating_sub(of.paid_ns);
        of.paid_ns = of.paid_ns.saturating_sub(used_ns);
        if unpaid_ns > 0 {
            self.charge(level, unpaid_ns);
        }
    }

    /// Charges a level. One without waiting requests is charged as if it had some: its use of free
    /// places is then no debt when others come.
    fn charge(&mut self, level: NodeId, ns: u64) {
        if self.is_batch(level) {
            self.pace.charge(ns);
        }
        let is_awake = self.tree.is_awake(level);
        self.tree.wake(level);
        self.tree.charge_exact(level, ns);
        if !is_awake {
            self.tree.idle(level);
        }
    }

    /// Charges all levels for their requests in flight, once in [`CHARGE_EVERY_NS`].
    fn charge_all(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.charged_ns) < CHARGE_EVERY_NS {
            return;
        }
        self.charged_ns = now_ns;
        for at in 1..self.levels.len() {
            if self.levels[at].in_flight > 0 {
                self.count(NodeId(at as u32), now_ns);
            }
        }
    }

    /// Throttles a level at its limit, and a batch level that has to wait for its pace.
    fn throttle_as_due(&mut self, level: NodeId) {
        let of = &self.levels[level.0 as usize];
        let is_due = of.in_flight >= of.in_flight_max || self.is_batch_held && self.is_batch(level);
        if self.tree.is_throttled(level) != is_due {
            self.tree.throttle(level, is_due);
        }
    }
}

impl<T> Level<T> {
    fn new(spec: NodeSpec, now_ns: u64) -> Level<T> {
        Level {
            spec,
            waiting: None,
            abandoned: 0,
            pace: Pace::default(),
            in_flight: 0,
            in_flight_max: u32::MAX,
            paid_ns: 0,
            counted_ns: now_ns,
            occupancy_ns: 0,
            answers: 0,
        }
    }

    fn queued(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.len())
    }

    /// Returns the number of waiting requests that are not abandoned.
    fn live(&self) -> u32 {
        u32::try_from(self.queued()).unwrap_or(u32::MAX).saturating_sub(self.abandoned)
    }
}
