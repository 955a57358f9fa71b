//! Simulation of a core under the scheduler: one thread of the fast lane, one heavy worker, a
//! network that is seen only when it is polled, and costs of polls and lane switches. All times are
//! simulated. The same seed gives the same numbers.
//!
//! 1. Requests arrive at the network, each with a CPU cost, from open loops (Poisson) or closed
//!    loops of clients.
//! 2. The fast lane works as in `lanes`: it polls, runs slices, and yields the core to heavy work.
//! 3. While heavy work has the core, an arrival interrupts it, unless polls are coalesced until
//!    later.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use sched::{Class, CoreScheduler, Decision, Lane, LeafSpec, NodeId, NodeSpec, Parent, Queued, cap};

/// Cost of a poll of the network between slices, ns.
const POLL_NS: u64 = 1_500;
/// Cost of taking the core from heavy work and giving it back, ns: measured as 9 to 17 µs.
const SWITCH_NS: u64 = 17_000;
/// Cost of waking a core that slept, ns.
const WAKE_NS: u64 = 5_000;
/// Cost of cold caches after a change from one group to another, ns: 8 % of a slice of 50 µs.
const COLD_NS: u64 = 4_000;
/// Time after which heavy work of a group goes on with the group's next task, ns.
const ROTATE_NS: u64 = 1_000_000;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Arrivals of a group.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// Requests of the fast lane, Poisson.
    Open { per_second: u64, cpu_ns: u64 },
    /// Clients that send the next request `think_ns` after the answer.
    Closed { clients: u64, cpu_ns: u64, think_ns: u64 },
    /// Queries of the heavy lane, one after another for each client. Each leaves the core
    /// `absences` times for `away_ns`.
    Queries { clients: u64, cpu_ns: u64, absences: u64, away_ns: u64 },
}

pub(crate) struct Group {
    pub(crate) parent: Parent,
    pub(crate) node: NodeSpec,
    pub(crate) limit_ppm: u32,
    pub(crate) loads: Vec<Load>,
}

impl Group {
    pub(crate) fn level(shares: u32, class: Class, loads: &[Load]) -> Group {
        let node = NodeSpec::new(shares, class);
        Group { parent: Parent::Users, node, limit_ppm: 0, loads: loads.to_vec() }
    }

    pub(crate) fn system(shares: u32, class: Class, loads: &[Load]) -> Group {
        Group { parent: Parent::System, ..Group::level(shares, class, loads) }
    }
}

/// Results of a group.
#[derive(Default)]
pub(crate) struct Results {
    /// Latencies of fast-lane requests from arrival to end, ns.
    pub(crate) latencies_ns: Vec<u64>,
    /// CPU that its requests and queries needed, ns.
    pub(crate) useful_ns: u64,
    pub(crate) queries: u64,
}

impl Results {
    /// Returns the 99th percentile of the latency, µs.
    pub(crate) fn p99_us(&mut self) -> f64 {
        if self.latencies_ns.is_empty() {
            return 0.0;
        }
        self.latencies_ns.sort_unstable();
        let at = (self.latencies_ns.len() - 1) * 990 / 1000;
        self.latencies_ns[at] as f64 / 1000.0
    }
}

#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) groups: Vec<Results>,
    pub(crate) lane_switches: u64,
    pub(crate) polls: u64,
    pub(crate) lasted_ns: u64,
}

#[derive(Clone, Copy)]
struct Request {
    arrived_ns: u64,
    cpu_ns: u64,
    load: Load,
}

struct Query {
    left_ns: u64,
    part_ns: u64,
    absences_left: u64,
    load: Load,
}

enum Event {
    Request(usize, Request),
    Heavy(usize, Query),
}

struct Local {
    leaf: NodeId,
    limit_ppm: u32,
    budget: u64,
    fast: VecDeque<Request>,
    heavy: VecDeque<Query>,
}

/// Simulated core. The head of this file describes it.
pub(crate) struct Core {
    now_ns: u64,
    scheduler: CoreScheduler,
    control: NodeId,
    locals: Vec<Local>,
    /// Times of future events, each with the event's index.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    events: Vec<Option<Event>>,
    random: u64,
    /// The group that ran last.
    warm: usize,
    totals: Totals,
}

impl Core {
    pub(crate) fn new(groups: &[Group], seed: u64) -> Core {
        let spec = |shares| NodeSpec::new(shares, Class::Normal);
        let mut scheduler = CoreScheduler::new(spec(1000), spec(200));
        let control = LeafSpec { node: NodeSpec::new(1000, Class::Latency), cpu_limit_ppm: 0 };
        let control = scheduler.add(Parent::System, control);
        let mut core = Core {
            now_ns: SECOND,
            scheduler,
            control,
            locals: Vec::new(),
            due: BinaryHeap::new(),
            events: Vec::new(),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            warm: usize::MAX,
            totals: Totals::default(),
        };
        for group in groups {
            let spec = LeafSpec { node: group.node, cpu_limit_ppm: group.limit_ppm };
            let leaf = core.scheduler.add(group.parent, spec);
            let at = core.locals.len();
            core.locals.push(Local {
                leaf,
                limit_ppm: group.limit_ppm,
                budget: 0,
                fast: VecDeque::new(),
                heavy: VecDeque::new(),
            });
            core.totals.groups.push(Results::default());
            group.loads.iter().for_each(|&load| core.begin(at, load));
        }
        core
    }

    /// Runs the core for `for_ns`.
    pub(crate) fn run(mut self, for_ns: u64) -> Totals {
        let began_ns = self.now_ns;
        while self.now_ns < began_ns + for_ns {
            self.run_to_next_poll();
        }
        self.totals.lasted_ns = self.now_ns - began_ns;
        self.totals
    }

    fn random_ns(&mut self, mean_ns: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let uniform =
            ((self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        (-uniform.ln() * mean_ns as f64) as u64
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.due.push(Reverse((at_ns, self.events.len() as u64)));
        self.events.push(Some(event));
    }

    fn begin(&mut self, group: usize, load: Load) {
        let clients = match load {
            Load::Open { .. } => 1,
            Load::Closed { clients, .. } | Load::Queries { clients, .. } => clients,
        };
        for client in 0..clients {
            let at_ns = self.now_ns + client * 37 * US;
            self.send(group, load, at_ns);
        }
    }

    /// Sends the next request of a load.
    fn send(&mut self, group: usize, load: Load, at_ns: u64) {
        match load {
            Load::Open { cpu_ns, .. } | Load::Closed { cpu_ns, .. } => {
                // Half of the cost is fixed, half is random.
                let cpu_ns = cpu_ns / 2 + self.random_ns(cpu_ns / 2);
                self.push(at_ns, Event::Request(group, Request { arrived_ns: at_ns, cpu_ns, load }));
            }
            Load::Queries { cpu_ns, absences, .. } => {
                let part_ns = cpu_ns / (absences + 1);
                let query = Query { left_ns: part_ns, part_ns, absences_left: absences, load };
                self.push(at_ns, Event::Heavy(group, query));
            }
        }
    }

    /// Delivers the events that are due. Returns true if a wake-up takes the core back from heavy
    /// work.
    fn deliver(&mut self, yielded: Option<&sched::Yielded>) -> bool {
        let mut preempts = false;
        while let Some(&Reverse((at_ns, sequence))) = self.due.peek()
            && at_ns <= self.now_ns
        {
            self.due.pop();
            let event = self.events[sequence as usize].take().expect("taken once");
            let group = match event {
                Event::Request(group, request) => {
                    if let Load::Open { per_second, .. } = request.load {
                        let next_ns = at_ns + self.random_ns(SECOND / per_second);
                        self.send(group, request.load, next_ns);
                    }
                    self.locals[group].fast.push_back(request);
                    group
                }
                Event::Heavy(group, query) => {
                    self.locals[group].heavy.push_back(query);
                    preempts = true; // a message to the fast lane
                    group
                }
            };
            let leaf = self.locals[group].leaf;
            let woke = self.scheduler.woke(leaf);
            let fast = !self.locals[group].fast.is_empty();
            preempts |= yielded.is_none_or(|yielded| self.scheduler.preempts(leaf, woke, fast, yielded));
        }
        preempts
    }

    fn next_event_ns(&self) -> u64 {
        let event_ns = self.due.peek().map(|&Reverse((at_ns, _))| at_ns);
        event_ns.into_iter().chain(self.scheduler.next_unthrottle_ns()).min().expect("loads have no end")
    }

    fn index(&self, leaf: NodeId) -> usize {
        self.locals.iter().position(|local| local.leaf == leaf).expect("a group's leaf")
    }

    /// Runs from one poll of the network to the next.
    fn run_to_next_poll(&mut self) {
        self.now_ns += POLL_NS;
        self.scheduler.used(self.control, Lane::Fast, POLL_NS);
        self.totals.polls += 1;
        self.deliver(None);
        let began_ns = self.now_ns;
        let mut poll: Option<usize> = None; // the group whose heavy work a poll took the core from
        loop {
            while self.scheduler.unthrottle(self.now_ns).is_some() {}
            let locals = &self.locals;
            let queued = |leaf: NodeId| {
                let local = locals.iter().find(|local| local.leaf == leaf).expect("a group's leaf");
                Queued { fast: !local.fast.is_empty(), heavy: !local.heavy.is_empty() }
            };
            match self.scheduler.next(self.now_ns, queued) {
                Decision::Sleep => {
                    if poll.is_some() {
                        self.scheduler.used(self.control, Lane::Fast, SWITCH_NS);
                    }
                    let until_ns = self.next_event_ns().max(self.now_ns);
                    self.now_ns = until_ns + WAKE_NS;
                    let payer = self.scheduler.wake_up_payer(None, true, self.now_ns).unwrap_or(self.control);
                    self.scheduler.used(payer, Lane::Fast, WAKE_NS);
                    return;
                }
                Decision::Empty(leaf) => self.mark_idle(leaf),
                Decision::Lease(leaf, cpu_ns) => {
                    let at = self.index(leaf);
                    let Local { budget, limit_ppm, .. } = &mut self.locals[at];
                    match cap::take(*budget, self.now_ns, cpu_ns, *limit_ppm, 1, cap::BURST_NS) {
                        Ok(paid) => {
                            *budget = paid;
                            self.scheduler.granted(leaf, cpu_ns);
                        }
                        Err(until_ns) => self.scheduler.throttle(leaf, until_ns),
                    }
                }
                Decision::Run(leaf, slice_ns) => {
                    if let Some(had_core) = poll.take() {
                        let had_core = self.locals[had_core].leaf;
                        self.scheduler.polled(self.now_ns, SWITCH_NS, leaf, Some(had_core));
                        self.scheduler.used(leaf, Lane::Fast, SWITCH_NS);
                    }
                    self.run_slice(leaf, slice_ns);
                }
                Decision::Yield(leaf, budget_ns) => {
                    if poll.take().is_some() {
                        self.scheduler.used(self.control, Lane::Fast, SWITCH_NS);
                    }
                    poll = self.run_heavy(leaf, budget_ns);
                    continue; // the network was polled on the way back
                }
            }
            if self.now_ns - began_ns >= sched::LATENCY_SLICE_NS && poll.is_none() {
                return;
            }
        }
    }

    fn mark_idle(&mut self, leaf: NodeId) {
        let at = self.index(leaf);
        let unused_ns = self.scheduler.mark_idle(leaf);
        let local = &mut self.locals[at];
        local.budget = cap::give_back(local.budget, unused_ns, local.limit_ppm, 1);
    }

    /// Returns the time lost because another group's data is in the caches.
    fn warm_up(&mut self, group: usize) -> u64 {
        if std::mem::replace(&mut self.warm, group) == group { 0 } else { COLD_NS }
    }

    fn run_slice(&mut self, leaf: NodeId, slice_ns: u64) {
        let at = self.index(leaf);
        let began_ns = self.now_ns;
        self.now_ns += self.warm_up(at);
        while let Some(request) = self.locals[at].fast.pop_front() {
            self.now_ns += request.cpu_ns;
            let results = &mut self.totals.groups[at];
            results.useful_ns += request.cpu_ns;
            results.latencies_ns.push(self.now_ns - request.arrived_ns);
            if let Load::Closed { think_ns, .. } = request.load {
                let next_ns = self.now_ns + think_ns / 2 + self.random_ns(think_ns / 2);
                self.send(at, request.load, next_ns);
            }
            if self.now_ns - began_ns >= slice_ns {
                break;
            }
        }
        let cpu_ns = self.now_ns - began_ns;
        self.scheduler.ran(leaf, cpu_ns);
        if self.locals[at].fast.is_empty() && self.locals[at].heavy.is_empty() {
            self.mark_idle(leaf);
        }
    }

    /// Runs heavy work until it ends, its slice ends, or a wake-up takes the core back. Returns the
    /// group.
    fn run_heavy(&mut self, leaf: NodeId, budget_ns: u64) -> Option<usize> {
        let at = self.index(leaf);
        let fast = !self.locals[at].fast.is_empty();
        let yielded = self.scheduler.yield_core(leaf, budget_ns, fast, true, self.now_ns);
        let poll_ns = self.scheduler.poll_after_ns(self.now_ns);
        self.totals.lane_switches += 1;
        self.now_ns += SWITCH_NS / 2;
        let mut cold_ns = self.warm_up(at);
        loop {
            let until_ns = yielded.until_ns.min(self.scheduler.next_unthrottle_ns().unwrap_or(u64::MAX));
            let until_ns = until_ns.min(poll_ns.unwrap_or(u64::MAX)).max(self.now_ns);
            let event_ns = match poll_ns {
                None => self.due.peek().map(|&Reverse((at_ns, _))| at_ns),
                // Only events of heavy work end the wait.
                Some(_) => self.next_heavy_ns(until_ns),
            };
            let stop_ns = until_ns.min(event_ns.unwrap_or(u64::MAX)).max(self.now_ns);
            let drained = self.work(at, &mut cold_ns, stop_ns);
            self.now_ns += SWITCH_NS / 2;
            self.totals.polls += 1;
            let preempted = self.deliver(Some(&yielded));
            if drained || preempted || self.now_ns >= until_ns {
                break;
            }
            self.now_ns += SWITCH_NS / 2; // back to heavy work
            self.scheduler.used(self.control, Lane::Fast, SWITCH_NS);
        }
        let payer = self.scheduler.wake_up_payer(Some(&yielded), false, self.now_ns);
        let local = &self.locals[at];
        if local.fast.is_empty() && local.heavy.is_empty() {
            self.mark_idle(leaf);
        }
        match payer {
            Some(payer) => {
                self.scheduler.used(payer, Lane::Fast, SWITCH_NS);
                None
            }
            None => Some(at),
        }
    }

    /// Returns the time of the next event of heavy work, if before `before_ns`.
    fn next_heavy_ns(&self, before_ns: u64) -> Option<u64> {
        let due = self.due.iter().filter(|Reverse((at_ns, _))| *at_ns < before_ns);
        let heavy = due.filter(|Reverse((_, sequence))| {
            matches!(self.events[*sequence as usize], Some(Event::Heavy(..)))
        });
        heavy.map(|&Reverse((at_ns, _))| at_ns).min()
    }

    /// Runs the group's heavy tasks until `stop_ns`. Returns true if none are left.
    fn work(&mut self, at: usize, cold_ns: &mut u64, stop_ns: u64) -> bool {
        let began_ns = self.now_ns;
        let mut drained = self.locals[at].heavy.is_empty();
        while self.now_ns < stop_ns && !drained {
            let warming_ns = (*cold_ns).min(stop_ns - self.now_ns);
            *cold_ns -= warming_ns;
            self.now_ns += warming_ns;
            let mut query = self.locals[at].heavy.pop_front().expect("there is one");
            let ns = query.left_ns.min(stop_ns - self.now_ns).min(ROTATE_NS);
            self.now_ns += ns;
            query.left_ns -= ns;
            self.totals.groups[at].useful_ns += ns;
            match query {
                Query { left_ns: 1.., .. } if ns == ROTATE_NS => self.locals[at].heavy.push_back(query),
                Query { left_ns: 1.., .. } => self.locals[at].heavy.push_front(query),
                Query { absences_left: 1.., load, .. } => {
                    query.absences_left -= 1;
                    query.left_ns = query.part_ns;
                    let Load::Queries { away_ns, .. } = load else { unreachable!("a query") };
                    let back_ns = self.now_ns + away_ns / 2 + self.random_ns(away_ns / 2);
                    self.push(back_ns, Event::Heavy(at, query));
                }
                Query { load, .. } => {
                    self.totals.groups[at].queries += 1;
                    let client_ns = self.now_ns + 500 * US;
                    self.send(at, load, client_ns);
                }
            }
            drained = self.locals[at].heavy.is_empty();
        }
        let cpu_ns = self.now_ns - began_ns;
        if cpu_ns > 0 {
            self.scheduler.used(self.locals[at].leaf, Lane::Heavy, cpu_ns);
        }
        drained
    }
}
