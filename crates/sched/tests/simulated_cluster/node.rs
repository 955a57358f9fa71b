//! A simulated node: processor sharing with a capacity, a cost that grows with concurrency, and
//! pauses.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Rules of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeModel {
    /// Requests that it serves at full speed together.
    pub(crate) capacity: f64,
    /// True: others wait, first in, first out. False: all share the capacity.
    pub(crate) has_queue: bool,
    /// Speed of a request alone; 1 is normal.
    pub(crate) speed: f64,
    /// Contention of the Universal Scalability Law: n requests cost 1 + σ(n − 1) + κn(n − 1).
    pub(crate) sigma: f64,
    /// Coherency of that law.
    pub(crate) kappa: f64,
}

/// A request at a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Front that sent it. `None`: another client.
    pub(crate) front: Option<usize>,
    /// Index of its class.
    pub(crate) class: usize,
    /// Time at full speed, ns.
    pub(crate) work_ns: f64,
    /// Write to the node, ns.
    pub(crate) sent_ns: u64,
    /// End of its time limit, ns.
    pub(crate) due_ns: u64,
}

pub(crate) struct Node {
    pub(crate) model: NodeModel,
    pub(crate) is_paused: bool,
    /// Number of the event that is expected from it. Events with other numbers are void.
    pub(crate) version: u64,
    /// Work done, ns.
    pub(crate) served_ns: f64,
    /// Work that each request present since the start would have got, ns.
    attained_ns: f64,
    at_ns: u64,
    /// Attained work at which requests end, as ordered bits, and their places.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    waiting: VecDeque<Request>,
    places: Vec<Request>,
    free: Vec<usize>,
}

impl Node {
    pub(crate) fn new(model: NodeModel) -> Node {
        Node {
            model,
            is_paused: false,
            version: 0,
            served_ns: 0.0,
            attained_ns: 0.0,
            at_ns: 0,
            ends: BinaryHeap::new(),
            waiting: VecDeque::new(),
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Returns the speed of each request.
    fn rate(&self) -> f64 {
        let (n, model) = (self.ends.len() as f64, self.model);
        let cost = 1.0 + model.sigma * (n - 1.0) + model.kappa * n * (n - 1.0);
        if self.is_paused { 0.0 } else { model.speed * (model.capacity / n).min(1.0) / cost }
    }

    /// Advances the work to a time.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        let passed_ns = (now_ns - self.at_ns) as f64;
        self.at_ns = now_ns;
        if !self.ends.is_empty() {
            let step_ns = passed_ns * self.rate();
            self.attained_ns += step_ns;
            self.served_ns += step_ns * self.ends.len() as f64;
        }
    }

    /// Adds a request. The caller has advanced the work.
    pub(crate) fn add(&mut self, request: Request) {
        if self.model.has_queue && self.ends.len() as f64 >= self.model.capacity {
            self.waiting.push_back(request);
            return;
        }
        let place = self.free.pop().unwrap_or(self.places.len());
        if place == self.places.len() {
            self.places.push(request);
        }
        self.places[place] = request;
        self.ends.push(Reverse(((self.attained_ns + request.work_ns).to_bits(), place)));
    }

    /// Removes a request that has ended.
    pub(crate) fn pop(&mut self) -> Option<Request> {
        let Reverse((end, place)) = *self.ends.peek()?;
        // Times are whole nanoseconds: less than that is done.
        if f64::from_bits(end) > self.attained_ns + 0.5 {
            return None;
        }
        self.ends.pop();
        self.free.push(place);
        let request = self.places[place];
        if let Some(next) = self.waiting.pop_front() {
            self.add(next);
        }
        Some(request)
    }

    /// Returns the time at which the next request ends if nothing changes.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let Reverse((end, _)) = self.ends.peek()?;
        let left_ns = (f64::from_bits(*end) - self.attained_ns).max(0.0) / self.rate();
        left_ns.is_finite().then(|| self.at_ns + left_ns.ceil() as u64)
    }
}
