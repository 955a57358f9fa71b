//! Simulated time of a cluster: the events of clients, fronts and nodes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sched::control::{ClassId, NODE_TICK_NS};
use testkit::Random;

use crate::front::{Side, Window};
use crate::node::{Node, NodeModel, Request};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;
/// Requests that wait for a node in a front. Others are refused.
const QUEUE_MAX: usize = 10_000;
/// Difference between the clocks of two fronts, ns.
const CLOCK_STEP_NS: u64 = 15 * MS;
/// Part of the time limit that a request may wait outside of the nodes.
const WAIT_OF_TIME_LIMIT: f64 = 0.5;
/// Replicas of a partition.
const REPLICAS: usize = 3;

/// Requests of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) weight: u64,
    /// Mean work, exponentially distributed, ns.
    pub(crate) mean_ns: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// There is always a request to send to every node.
    Saturated,
    /// Poisson arrivals a second at the cluster. A request goes to the best of three nodes, and
    /// waits outside of it, at most to its time limit.
    Open { per_second: f64, time_limit_ns: u64 },
}

/// A change of all nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) at_ns: u64,
    pub(crate) model: NodeModel,
}

#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) nodes: usize,
    pub(crate) fronts: usize,
    /// Fronts with clients; the first ones.
    pub(crate) busy_fronts: usize,
    pub(crate) model: NodeModel,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) load: Load,
    pub(crate) window: Window,
    pub(crate) changes: Vec<Change>,
    /// Requests a second of other clients at each node, of the first kind.
    pub(crate) others_per_second: f64,
    pub(crate) pause: Option<Pause>,
}

/// Pauses of each node, as for the collection of garbage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Pause {
    pub(crate) every_ns: u64,
    pub(crate) length_ns: u64,
}

/// Results of a tenth of a second.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tenth {
    /// Work done at all nodes, in requests at full speed.
    pub(crate) served: f64,
    /// Mean window found for a node by a front.
    pub(crate) window: f64,
    /// Work of requests answered within their time limit, in requests at full speed.
    pub(crate) good: f64,
    /// Answers of the first kind, and the sum of their times at nodes, ns.
    pub(crate) reads: u64,
    pub(crate) reads_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Next(usize, u64),
    Tick(usize),
    Exchange,
    Arrive,
    Other(usize),
    Change(usize),
    Pause(usize, Pause),
    Resume(usize),
    Tenth,
}

pub(crate) struct Cluster {
    setup: Setup,
    random: Random,
    now_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    nodes: Vec<Node>,
    /// By front, then by node.
    fronts: Vec<Vec<Side>>,
    tenth: Tenth,
    served_ns: f64,
}

impl Cluster {
    pub(crate) fn run(setup: &Setup) -> Vec<Tenth> {
        let share = |front: usize| {
            [front, front + 1].map(|at| at.min(setup.busy_fronts) as f64 / setup.busy_fronts as f64)
        };
        let side = |front, node: usize| Side::new(setup.window, node as u64 * 7 * SECOND, share(front));
        let mut cluster = Cluster {
            random: Random::new(setup.seed),
            now_ns: 0,
            events: BinaryHeap::new(),
            number: 0,
            nodes: (0..setup.nodes).map(|_| Node::new(setup.model)).collect(),
            fronts: (0..setup.fronts)
                .map(|front| (0..setup.nodes).map(|node| side(front, node)).collect())
                .collect(),
            tenth: Tenth::default(),
            served_ns: 0.0,
            setup: setup.clone(),
        };
        cluster.start();
        let mut tenths = Vec::new();
        while let Some(Reverse((at_ns, _, event))) = cluster.events.pop() {
            if at_ns > setup.seconds * SECOND {
                break;
            }
            cluster.now_ns = at_ns;
            if event == Event::Tenth {
                tenths.push(cluster.end_tenth());
            }
            cluster.happen(event);
        }
        tenths
    }

    fn start(&mut self) {
        for front in 0..self.setup.fronts {
            let first_ns = self.random_ns(NODE_TICK_NS);
            self.at(first_ns, Event::Tick(front));
        }
        self.at(SECOND, Event::Exchange);
        self.at(NODE_TICK_NS, Event::Tenth);
        for change in 0..self.setup.changes.len() {
            self.at(self.setup.changes[change].at_ns, Event::Change(change));
        }
        for node in 0..self.setup.nodes {
            if self.setup.others_per_second > 0.0 {
                self.at(0, Event::Other(node));
            }
            if let Some(pause) = self.setup.pause {
                self.at(pause.every_ns, Event::Pause(node, pause));
            }
            self.dispatch_all(node);
        }
        if let Load::Open { .. } = self.setup.load {
            self.at(0, Event::Arrive);
        }
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at_ns, self.number, event)));
    }

    fn random_ns(&mut self, below_ns: u64) -> u64 {
        self.random.below(below_ns)
    }

    fn exponential_ns(&mut self, mean_ns: f64) -> u64 {
        (-self.random.fraction().ln() * mean_ns) as u64 + 1
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Next(node, version) if version == self.nodes[node].version => self.answers(node),
            Event::Next(..) => {}
            Event::Tick(front) => self.tick(front),
            Event::Exchange => self.exchange(),
            Event::Arrive => self.arrive(),
            Event::Other(node) => {
                let request = self.request(None, 0, u64::MAX);
                self.nodes[node].advance(self.now_ns);
                self.nodes[node].add(request);
                self.expect(node);
                let wait_ns = self.exponential_ns(SECOND as f64 / self.setup.others_per_second);
                self.at(self.now_ns + wait_ns, Event::Other(node));
            }
            Event::Change(change) => {
                for node in 0..self.setup.nodes {
                    self.nodes[node].advance(self.now_ns);
                    self.nodes[node].model = self.setup.changes[change].model;
                    self.expect(node);
                }
            }
            Event::Pause(node, pause) => {
                self.set_paused(node, true);
                self.at(self.now_ns + pause.length_ns, Event::Resume(node));
                self.at(self.now_ns + pause.every_ns, Event::Pause(node, pause));
            }
            Event::Resume(node) => self.set_paused(node, false),
            Event::Tenth => self.at(self.now_ns + NODE_TICK_NS, Event::Tenth),
        }
    }

    fn set_paused(&mut self, node: usize, is_paused: bool) {
        self.nodes[node].advance(self.now_ns);
        self.nodes[node].is_paused = is_paused;
        self.expect(node);
    }

    fn end_tenth(&mut self) -> Tenth {
        let mut served_ns = 0.0;
        for node in &mut self.nodes {
            node.advance(self.now_ns);
            served_ns += node.served_ns;
        }
        let mut tenth = std::mem::take(&mut self.tenth);
        tenth.served = (served_ns - self.served_ns) / NODE_TICK_NS as f64;
        self.served_ns = served_ns;
        let sides = self.fronts[..self.setup.busy_fronts].iter().flatten();
        let windows: f64 = sides.map(|side| f64::from(side.limiter.window())).sum();
        tenth.window = windows / (self.setup.busy_fronts * self.setup.nodes) as f64;
        tenth.good /= NODE_TICK_NS as f64;
        tenth
    }

    fn request(&mut self, front: Option<usize>, class: usize, due_ns: u64) -> Request {
        let work_ns = self.exponential_ns(self.setup.kinds[class].mean_ns) as f64;
        Request { front, class, work_ns, sent_ns: self.now_ns, due_ns }
    }

    fn class(&mut self) -> usize {
        let total = self.setup.kinds.iter().map(|kind| kind.weight).sum();
        let mut left = self.random.below(total);
        self.setup
            .kinds
            .iter()
            .position(|kind| left.checked_sub(kind.weight).map(|rest| left = rest).is_none())
            .unwrap()
    }

    fn arrive(&mut self) {
        let Load::Open { per_second, time_limit_ns } = self.setup.load else { return };
        let wait_ns = self.exponential_ns(SECOND as f64 / per_second);
        self.at(self.now_ns + wait_ns, Event::Arrive);
        let front = self.random.index(self.setup.busy_fronts);
        let first = self.random.index(self.setup.nodes);
        let load = |node: &usize| {
            let side = &self.fronts[front][*node];
            (u64::from(side.in_flight) + side.queue.len() as u64 + 1) * 1_000_000 / u64::from(side.part)
        };
        let replicas = (0..REPLICAS.min(self.setup.nodes)).map(|next| (first + next) % self.setup.nodes);
        let node = replicas.min_by_key(load).unwrap();
        let class = self.class();
        let request = self.request(Some(front), class, self.now_ns + time_limit_ns);
        let side = &mut self.fronts[front][node];
        let waiting = side.queue.len() as f64 / f64::from(side.part) + 1.0;
        if side.queue.len() < QUEUE_MAX && waiting * side.mean_ns < WAIT_OF_TIME_LIMIT * time_limit_ns as f64
        {
            side.queue.push_back(request);
            self.dispatch(front, node);
        }
    }

    fn dispatch_all(&mut self, node: usize) {
        for front in 0..self.setup.busy_fronts {
            self.dispatch(front, node);
        }
    }

    fn dispatch(&mut self, front: usize, node: usize) {
        self.nodes[node].advance(self.now_ns);
        while self.fronts[front][node].in_flight < self.fronts[front][node].part {
            let request = match self.setup.load {
                Load::Saturated => {
                    let class = self.class();
                    Some(self.request(Some(front), class, u64::MAX))
                }
                Load::Open { .. } => self.fronts[front][node].queue.pop_front(),
            };
            let Some(request) = request else { break };
            if request.due_ns > self.now_ns {
                self.fronts[front][node].in_flight += 1;
                self.nodes[node].add(Request { sent_ns: self.now_ns, ..request });
            }
        }
        self.fronts[front][node].note(self.now_ns);
        self.expect(node);
    }

    /// Expects the next answer of a node.
    fn expect(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        state.version += 1;
        let version = state.version;
        if let Some(next_ns) = state.next_ns() {
            self.at(next_ns, Event::Next(node, version));
        }
    }

    fn answers(&mut self, node: usize) {
        self.nodes[node].advance(self.now_ns);
        while let Some(request) = self.nodes[node].pop() {
            let Some(front) = request.front else { continue };
            let side = &mut self.fronts[front][node];
            let time_ns = self.now_ns - request.sent_ns;
            side.in_flight -= 1;
            side.sample.answered(ClassId::of_statement(request.class as u32, 0), time_ns);
            side.mean_ns += (time_ns as f64 - side.mean_ns) * 0.001;
            if request.class == 0 {
                self.tenth.reads += 1;
                self.tenth.reads_ns += time_ns;
            }
            if request.due_ns >= self.now_ns {
                self.tenth.good += request.work_ns;
            }
            self.dispatch(front, node);
        }
        self.expect(node);
    }

    fn tick(&mut self, front: usize) {
        for node in 0..self.setup.nodes {
            let now_ns = self.now_ns;
            let side = &mut self.fronts[front][node];
            let full_ns = side.take_full_ns(now_ns);
            side.sample.used(full_ns, NODE_TICK_NS);
            side.demand += (u64::from(side.in_flight) + side.queue.len() as u64).min(side.window.into());
            if self.setup.window == Window::Found {
                let clock_ns = now_ns + front as u64 % 4 * CLOCK_STEP_NS;
                side.window = side.limiter.tick(clock_ns, &mut side.sample);
                side.divide();
                side.note(now_ns);
                if front < self.setup.busy_fronts {
                    self.dispatch(front, node);
                }
            }
        }
        self.at(self.now_ns + NODE_TICK_NS, Event::Tick(front));
    }

    /// Exchanges windows and demands, every second.
    fn exchange(&mut self) {
        for node in 0..self.setup.nodes {
            let mut sides: Vec<&mut Side> = self.fronts.iter_mut().map(|front| &mut front[node]).collect();
            let mut windows: Vec<u32> = sides.iter_mut().filter_map(|side| side.limiter.publish()).collect();
            windows.sort_unstable();
            let demands: Vec<f64> = sides.iter_mut().map(|side| side.demand as f64).collect();
            let total = demands.iter().sum::<f64>();
            let mut before = 0.0;
            for (side, demand) in sides.iter_mut().zip(demands) {
                if total > 0.0 && !matches!(self.setup.load, Load::Saturated) {
                    side.share = [before / total, (before + demand) / total];
                    before += demand;
                }
                side.demand /= 2;
                if let Some(&median) = windows.get(windows.len().saturating_sub(1) / 2) {
                    side.limiter.adopt(median);
                }
            }
        }
        self.at(self.now_ns + SECOND, Event::Exchange);
    }
}
