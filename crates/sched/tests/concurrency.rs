//! The limiter of concurrency in simulated time: one core with levels under shares, their
//! connections, and a disk. The work of a statement grows with everything that the core holds (`κ`
//! of the Universal Scalability Law), so that a core without a limit collapses under overload.
//!
//! ```text
//!   client ─▶ socket ─▶ run queue of connections ─admit─▶ CPU ─▶ disk ─▶ CPU ─▶ answer sent
//!               ▲            │ refuse: costs CPU, and the connection pauses
//!               └────────────┘ hold: the connection is not read until a statement ends
//! ```

mod common;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use sched::LATENCY_SLICE_NS;
use sched::control::{
    Arriving, Concurrency, ConcurrencyInput, ConcurrencyLimit, INTERVAL_NS, LevelBounds, Overload,
    StandingQueue, Verdict, entitlement_ppm,
};
use testkit::Random;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const LIMIT_MAX: u32 = 16_384;
/// CPU of a refusal, ns: measured on a server, to read, decode and refuse a statement
/// (docs/decisions/0022-rules-of-the-limiter.md).
const REFUSAL_NS: u64 = 2500;
/// Statements that wait in a socket. The client drops others.
const SOCKET_MAX: usize = 64;
/// Statements in one read of a connection.
const READ_MAX: usize = 16;
const ROUND_TRIP_NS: u64 = 100_000;
/// Largest part of the core that refusals may take.
const REFUSALS_MAX: f64 = 0.45;
/// Overloads of the tests, as multiples of what one core can do.
const OVERLOADS: [f64; 3] = [1.4, 2.0, 10.0];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Statement {
    due_ns: u64,
    work_ns: u64,
    disk: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The next arrival of an open loop.
    Next,
    /// A client of a closed loop sends.
    Send,
    Resume(usize),
    DiskDone(Statement),
    Sent(Statement),
}

/// A level and its clients.
#[derive(Clone, Debug)]
struct Load {
    shares: u32,
    overload: Overload,
    /// Work of statements, ns; each is as frequent as the others.
    work_ns: Vec<u64>,
    /// Arrivals of the open loop, as a multiple of what one core can do.
    offered: f64,
    connections: usize,
    /// Clients of a closed loop.
    clients: usize,
    disk: bool,
    time_limit_ns: u64,
    latency_target_ns: Option<u64>,
    /// Time from an answer to its last byte in the socket, ns.
    send_ns: u64,
}

fn load(overload: Overload, work_ns: &[u64], offered: f64) -> Load {
    Load {
        shares: 100,
        overload,
        work_ns: work_ns.to_vec(),
        offered,
        connections: 64,
        clients: 0,
        disk: false,
        time_limit_ns: 200 * MS,
        latency_target_ns: None,
        send_ns: 0,
    }
}

impl Load {
    fn bounds(&self) -> LevelBounds {
        let Load { time_limit_ns, latency_target_ns, .. } = *self;
        LevelBounds { time_limit_ns, latency_target_ns, limit_max: LIMIT_MAX }
    }

    /// Returns the mean work of a statement, ns.
    fn mean_ns(&self) -> f64 {
        self.work_ns.iter().sum::<u64>() as f64 / self.work_ns.len() as f64
    }

    /// Returns the part of the core that refusals take if a level with this part of it refuses
    /// exactly what it cannot answer: `x` answers and `y` refusals with `x s + y c = part` and `x +
    /// y` arrivals. More than the part: it cannot even refuse them.
    fn refusals_needed(&self, part: f64) -> f64 {
        let (work_ns, refusal_ns) = (self.mean_ns(), REFUSAL_NS as f64);
        (self.offered - part).max(0.0) * refusal_ns / (work_ns - refusal_ns).max(1.0)
    }
}

/// Results of an interval.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    begun: u64,
    age_ns: u64,
    /// Work of answers within their time limit, ns, as it is without contention.
    good_ns: u64,
    /// Work that was done for answers after their time limit, ns.
    wasted_ns: u64,
    refused: u64,
    expired: u64,
    in_flight_max: u32,
    /// Longest time for which the level was held.
    held_max_ns: u64,
    limit: u32,
    target_ns: u64,
}

#[derive(Clone, Default)]
struct Connection {
    socket: VecDeque<Statement>,
    /// In the run queue, or paused.
    busy: bool,
    /// Middle and end of the last pause. What arrives between them counts from its end.
    pause_ns: (u64, u64),
    /// Statements left of the present read.
    unread: usize,
}

struct Level {
    load: Load,
    connections: Vec<Connection>,
    ready: VecDeque<usize>,
    returned: VecDeque<Statement>,
    held: bool,
    held_since_ns: Option<u64>,
    queue: StandingQueue,
    /// Tasks run in turn: those that the disk woke, and connections.
    disk_first: bool,
    virtual_time: f64,
    in_flight: u32,
    /// Answers that were not sent yet, and the most of them.
    unsent: u32,
    unsent_max: u32,
    control: Concurrency,
    input: ConcurrencyInput,
    limit: ConcurrencyLimit,
    /// Decisions to come, if inputs are late.
    later: VecDeque<ConcurrencyLimit>,
    window: Window,
    windows: Vec<Window>,
}

struct Core {
    now_ns: u64,
    random: Random,
    levels: Vec<Level>,
    events: BinaryHeap<Reverse<(u64, u64, usize, Event)>>,
    number: u64,
    tick_ns: u64,
    running: (usize, u64),
    kappa: f64,
    limited: bool,
    late_intervals: usize,
    disk_cost_ns: u64,
    disk_latency_ns: u64,
    disk_free_ns: u64,
    disk_still_until_ns: u64,
}

impl Core {
    fn new(seed: u64, kappa: f64, loads: &[Load]) -> Core {
        let mut core = Core {
            now_ns: 0,
            random: Random::new(seed + 1),
            levels: Vec::new(),
            events: BinaryHeap::new(),
            number: 0,
            tick_ns: INTERVAL_NS,
            running: (0, 0),
            kappa,
            limited: true,
            late_intervals: 0,
            disk_cost_ns: 2_000,
            disk_latency_ns: 400_000,
            disk_free_ns: 0,
            disk_still_until_ns: 0,
        };
        loads.iter().for_each(|load| core.add(load.clone()));
        core
    }

    fn add(&mut self, load: Load) {
        let at = self.levels.len();
        let mut control = Concurrency::default();
        let bounds = load.bounds();
        let input = ConcurrencyInput { bounds, ..ConcurrencyInput::default() };
        let limit = control.decide(ConcurrencyInput { entitlement_ppm: 1_000_000, ..input });
        let (connections, clients) = (load.connections, load.clients);
        self.levels.push(Level {
            load,
            connections: vec![Connection::default(); connections],
            ready: VecDeque::new(),
            returned: VecDeque::new(),
            held: false,
            held_since_ns: None,
            queue: StandingQueue::default(),
            disk_first: false,
            virtual_time: self.levels.iter().map(|level| level.virtual_time).fold(0.0, f64::max),
            in_flight: 0,
            unsent: 0,
            unsent_max: 0,
            control,
            input,
            limit,
            later: VecDeque::new(),
            window: Window::default(),
            windows: Vec::new(),
        });
        (0..clients).for_each(|_| self.schedule(self.now_ns, at, Event::Send));
        self.schedule(self.now_ns, at, Event::Next);
    }

    fn schedule(&mut self, at_ns: u64, level: usize, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at_ns, self.number, level, event)));
    }

    /// Returns the statements in flight, and those read and not answered.
    fn held_by_core(&self) -> usize {
        let read = |level: &Level| level.ready.front().map_or(0, |at| level.connections[*at].unread);
        self.levels.iter().map(|level| level.in_flight as usize + read(level)).sum()
    }

    fn run(&mut self, for_ns: u64) {
        let end_ns = self.now_ns + for_ns;
        while self.now_ns < end_ns {
            while let Some(&Reverse((at_ns, _, level, event))) = self.events.peek()
                && at_ns <= self.now_ns
            {
                self.events.pop();
                self.happen(at_ns, level, event);
            }
            if self.tick_ns <= self.now_ns {
                self.decide();
                self.tick_ns += INTERVAL_NS;
            }
            let Some(at) = self.pick() else {
                let next_ns = self.events.peek().map_or(u64::MAX, |Reverse(event)| event.0);
                self.now_ns = next_ns.min(self.tick_ns).max(self.now_ns);
                continue;
            };
            let used_ns = self.step(at);
            self.now_ns += used_ns;
            self.running = (at, self.running.1.saturating_sub(used_ns));
            let level = &mut self.levels[at];
            level.virtual_time += used_ns as f64 / f64::from(level.load.shares);
            level.input.cpu_ns = level.input.cpu_ns.wrapping_add(used_ns);
        }
    }

    fn happen(&mut self, at_ns: u64, at: usize, event: Event) {
        match event {
            Event::Next => {
                let load = &self.levels[at].load;
                let mean_ns = load.work_ns.iter().sum::<u64>() as f64 / load.work_ns.len() as f64;
                if load.offered > 0.0 {
                    let part = (self.random.within(0, 1 << 30) + 1) as f64 / f64::from(1 << 30);
                    let gap_ns = (-part.ln() * mean_ns / load.offered) as u64;
                    self.arrive(at, at_ns);
                    self.schedule(at_ns + gap_ns, at, Event::Next);
                } else {
                    self.schedule(at_ns + MS, at, Event::Next);
                }
            }
            Event::Send => self.arrive(at, at_ns),
            Event::Resume(connection) => {
                let level = &mut self.levels[at];
                level.connections[connection].busy = false;
                self.make_ready(at, connection);
            }
            Event::DiskDone(statement) => self.wake(at).returned.push_back(statement),
            Event::Sent(statement) => {
                let level = &mut self.levels[at];
                level.in_flight -= 1;
                level.unsent -= 1;
                level.held = false;
                level.input.ended += 1;
                let in_time = at_ns - statement.due_ns <= level.load.time_limit_ns;
                let window = &mut level.window;
                *(if in_time { &mut window.good_ns } else { &mut window.wasted_ns }) += statement.work_ns;
                self.client_goes_on(at);
            }
        }
    }

    /// Schedules the next statement of a client of a closed loop.
    fn client_goes_on(&mut self, at: usize) {
        if self.levels[at].load.clients > 0 {
            self.schedule(self.now_ns + ROUND_TRIP_NS, at, Event::Send);
        }
    }

    fn arrive(&mut self, at: usize, due_ns: u64) {
        let connection = self.random.within(0, self.levels[at].load.connections as u64) as usize;
        let work_ns = self.random.pick(&self.levels[at].load.work_ns);
        let level = &mut self.levels[at];
        let socket = &mut level.connections[connection].socket;
        if socket.len() < SOCKET_MAX || level.load.clients > 0 {
            socket.push_back(Statement { due_ns, work_ns, disk: level.load.disk });
        }
        self.make_ready(at, connection);
    }

    /// Puts a connection into the run queue, if it has statements and is neither there nor paused.
    fn make_ready(&mut self, at: usize, connection: usize) {
        let known = &self.levels[at].connections[connection];
        if known.busy || known.socket.is_empty() {
            return;
        }
        let level = self.wake(at);
        let known = &mut level.connections[connection];
        known.busy = true;
        level.ready.push_back(connection);
    }

    /// Moves the clock of a level that slept to the least of the others, less one slice.
    fn wake(&mut self, at: usize) -> &mut Level {
        if !self.levels[at].is_ready() {
            let ready = self.levels.iter().filter(|level| level.is_ready());
            let least = ready.map(|level| level.virtual_time).fold(f64::INFINITY, f64::min);
            let level = &mut self.levels[at];
            let credit = LATENCY_SLICE_NS as f64 / f64::from(level.load.shares);
            if least.is_finite() {
                level.virtual_time = level.virtual_time.max(least - credit);
            }
        }
        &mut self.levels[at]
    }

    fn pick(&mut self) -> Option<usize> {
        let (last, left_ns) = self.running;
        if left_ns > 0 && self.levels[last].is_ready() {
            return Some(last);
        }
        let ready = (0..self.levels.len()).filter(|at| self.levels[*at].is_ready());
        let clock = |at: &usize| self.levels[*at].virtual_time;
        let next = ready.min_by(|a, b| clock(a).total_cmp(&clock(b)))?;
        self.running = (next, LATENCY_SLICE_NS);
        Some(next)
    }

    /// Runs one task poll of the level. Returns its CPU time, ns.
    fn step(&mut self, at: usize) -> u64 {
        let slower = 1.0 + self.kappa * self.held_by_core() as f64;
        let cost = |work_ns: u64| (work_ns as f64 * slower) as u64;
        let level = &mut self.levels[at];
        let no_other = level.held || level.ready.is_empty();
        if (level.disk_first || no_other)
            && let Some(statement) = level.returned.pop_front()
        {
            level.disk_first = false;
            let used_ns = cost(statement.work_ns / 2);
            self.answer(at, statement, used_ns);
            return used_ns;
        }
        let (now_ns, limited) = (self.now_ns, self.limited);
        let random = self.random.within(0, 1 << 32) as u32;
        let level = &mut self.levels[at];
        if level.ready.is_empty() || level.held {
            return 0;
        }
        let number = level.ready[0];
        let connection = &mut level.connections[number];
        if connection.unread == 0 {
            connection.unread = connection.socket.len().min(READ_MAX);
        }
        let due_ns = connection.socket.front().map_or(now_ns, |statement| statement.due_ns);
        let (middle_ns, end_ns) = connection.pause_ns;
        let since_ns = if (middle_ns..end_ns).contains(&due_ns) { end_ns } else { due_ns };
        let age_ns = now_ns.saturating_sub(since_ns);
        let queue_stands = level.queue.stands(now_ns, age_ns, level.limit.late_ns());
        let verdict = match limited {
            true => level.limit.admit(Arriving {
                age_ns,
                time_limit_ns: level.load.time_limit_ns,
                level_in_flight: level.in_flight,
                queue_stands,
                overload: level.load.overload,
                random,
            }),
            false => Verdict::Admit,
        };
        if matches!(verdict, Verdict::Hold | Verdict::Wait) {
            level.held = true;
            level.held_since_ns.get_or_insert(now_ns);
            return 0;
        }
        let held_ns = level.held_since_ns.take().map_or(0, |since_ns| now_ns - since_ns);
        level.window.held_max_ns = level.window.held_max_ns.max(held_ns);
        let statement = connection.socket.pop_front().expect("a ready connection has a statement");
        connection.unread -= 1;
        if let Verdict::Refuse { retry_ns } | Verdict::Expired { retry_ns } = verdict {
            connection.pause_ns = (now_ns + retry_ns / 2, now_ns + retry_ns);
        }
        if connection.unread == 0 {
            level.disk_first = true;
            level.ready.pop_front();
            let resume_ns = connection.pause_ns.1;
            if resume_ns > now_ns && connection.socket.is_empty() {
                self.schedule(resume_ns, at, Event::Resume(number));
            } else {
                connection.busy = false;
                self.make_ready(at, number);
            }
        }
        let level = &mut self.levels[at];
        match verdict {
            Verdict::Admit => {
                level.window.begun += 1;
                level.window.age_ns += age_ns;
                level.in_flight += 1;
                level.window.in_flight_max = level.window.in_flight_max.max(level.in_flight);
                if !statement.disk {
                    let used_ns = cost(statement.work_ns);
                    self.answer(at, statement, used_ns);
                    return used_ns;
                }
                let used_ns = cost(statement.work_ns / 2);
                let start_ns = (now_ns + used_ns).max(self.disk_free_ns);
                self.disk_free_ns = start_ns + self.disk_cost_ns;
                let done_ns = start_ns.max(self.disk_still_until_ns) + self.disk_latency_ns;
                level.input.disk_ns += self.disk_cost_ns;
                level.input.device_ns += done_ns - start_ns;
                self.schedule(done_ns, at, Event::DiskDone(statement));
                used_ns
            }
            Verdict::Hold | Verdict::Wait => unreachable!(),
            Verdict::Refuse { .. } => {
                level.window.refused += 1;
                level.input.refusal_ns += REFUSAL_NS;
                level.input.cpu_ns = level.input.cpu_ns.wrapping_sub(REFUSAL_NS);
                REFUSAL_NS
            }
            Verdict::Expired { .. } => {
                level.window.expired += 1;
                level.input.refusal_ns += REFUSAL_NS;
                level.input.cpu_ns = level.input.cpu_ns.wrapping_sub(REFUSAL_NS);
                self.client_goes_on(at);
                REFUSAL_NS
            }
        }
    }

    fn answer(&mut self, at: usize, statement: Statement, used_ns: u64) {
        let level = &mut self.levels[at];
        level.unsent += 1;
        level.unsent_max = level.unsent_max.max(level.unsent);
        let sent_ns = self.now_ns + used_ns + level.load.send_ns;
        self.schedule(sent_ns, at, Event::Sent(statement));
    }

    /// Decides for the next interval, and ends a window of the results.
    fn decide(&mut self) {
        let is_active = |level: &Level| level.input.cpu_ns > 0 || level.in_flight > 0 || level.is_ready();
        let active: u32 =
            self.levels.iter().filter(|level| is_active(level)).map(|level| level.load.shares).sum();
        for level in &mut self.levels {
            let input = ConcurrencyInput {
                interval_ns: INTERVAL_NS,
                entitlement_ppm: entitlement_ppm(level.load.shares, active, 0, 0, None),
                bounds: level.load.bounds(),
                ..level.input
            };
            level.later.push_back(level.control.decide(input));
            if level.later.len() > self.late_intervals {
                level.limit = level.later.pop_front().expect("pushed");
            }
            level.input = ConcurrencyInput::default();
            level.held = false;
            level.window.limit = level.limit.statements;
            level.window.target_ns = level.limit.target_ns;
            level.windows.push(std::mem::take(&mut level.window));
        }
    }
}

impl Level {
    fn is_ready(&self) -> bool {
        !self.returned.is_empty() || !(self.held || self.ready.is_empty())
    }

    /// Returns the results from `from_ns` on.
    fn since(&self, from_ns: u64) -> &[Window] {
        &self.windows[(from_ns / INTERVAL_NS) as usize..]
    }

    /// Returns the useful work from `from_ns` on, as a part of one core.
    fn goodput(&self, from_ns: u64) -> f64 {
        let windows = self.since(from_ns);
        sum(windows, |window| window.good_ns) as f64 / (windows.len() as u64 * INTERVAL_NS) as f64
    }

    /// Returns the CPU time of refusals from `from_ns` on, as a part of one core.
    fn refusals(&self, from_ns: u64) -> f64 {
        let windows = self.since(from_ns);
        let refused = sum(windows, |window| window.refused + window.expired);
        (refused * REFUSAL_NS) as f64 / (windows.len() as u64 * INTERVAL_NS) as f64
    }

    /// Checks that from `from_ns` on no statement was refused, or held for longer than twice the
    /// target.
    fn check_calm(&self, from_ns: u64, what: &str) {
        for (at, window) in self.since(from_ns).iter().enumerate() {
            assert_eq!(window.refused + window.expired, 0, "{what}: interval {at}: {window:?}");
            assert!(window.held_max_ns <= 2 * window.target_ns, "{what}: interval {at}: {window:?}");
        }
    }

    /// Checks that statements begin in each interval, and that their mean queue delay is at most
    /// twice the target, which follows from their work. If refusals cannot but take a third of the
    /// core, the delay is at most a quarter of the time limit.
    fn check_delay(&self, from_ns: u64, part: f64, what: &str) {
        let Load { time_limit_ns, latency_target_ns, .. } = self.load;
        let work_ns = (self.load.mean_ns() / part) as u64;
        let target_ns = latency_target_ns.unwrap_or((8 * work_ns).max(5 * MS)).min(time_limit_ns / 4);
        let most_ns = match self.load.refusals_needed(part) > part / 3.0 {
            true => time_limit_ns / 4,
            // A mean of mixed work is measured within some percent.
            false => target_ns * 9 / 4,
        };
        for (at, window) in self.since(from_ns).iter().enumerate() {
            assert!(window.begun > 0, "{what}: interval {at}: nothing begins");
            let mean_ns = window.age_ns / window.begun;
            assert!(mean_ns <= most_ns, "{what}: interval {at}: {mean_ns} of {most_ns} ns, {window:?}");
        }
    }

    /// Returns the smallest and largest limit from `from_ns` on.
    fn limits(&self, from_ns: u64) -> (u32, u32) {
        let limits = self.since(from_ns).iter().map(|window| window.limit);
        (limits.clone().min().expect("a window"), limits.max().expect("a window"))
    }
}

fn sum(windows: &[Window], of: impl Fn(&Window) -> u64) -> u64 {
    windows.iter().map(of).sum()
}

/// Returns true if both ends are within `percent` of their middle.
fn within(limits: (u32, u32), percent: u32) -> bool {
    let (least, most) = (f64::from(limits.0), f64::from(limits.1));
    let middle = (least + most) / 2.0;
    // A limit is a whole number: one statement is no oscillation.
    most - middle <= (middle * f64::from(percent) / 100.0).max(1.0)
}

use Overload::{Hold, Queue, Refuse};

/// Returns a contention for which the work of a statement doubles with `statements` on the core.
fn doubles_with(statements: u64) -> f64 {
    1.0 / statements as f64
}

/// Returns the number of runs of a test: 16 take some seconds in release, 150 more than a minute.
fn seeds() -> u64 {
    let set = std::env::var("FAIRLANE_SEEDS").ok();
    set.map_or(16, |seeds| seeds.parse().expect("FAIRLANE_SEEDS is a number"))
}

/// Runs 40 % load for two seconds, in which nothing may be refused or held for long. Then runs
/// overload, and checks L2 for it.
fn check_overload(seed: u64, work_ns: &[u64], offered: f64, disk: bool) {
    let mean_ns = work_ns.iter().sum::<u64>() / work_ns.len() as u64;
    let kappa = doubles_with((100 * MS / mean_ns).max(400));
    let what = format!("seed {seed}, {work_ns:?} ns, offered {offered}, disk {disk}");
    let mut core = Core::new(seed, kappa, &[Load { disk, ..load(Refuse, work_ns, 0.4) }]);
    core.run(2 * SECOND);
    core.levels[0].check_calm(0, &what);
    core.levels[0].load.offered = offered;
    core.run(800 * MS);
    let level = &core.levels[0];
    let from_ns = 2400 * MS;
    level.check_delay(from_ns, 1.0, &what);
    // A core that always has a statement to run holds `1 + r ÷ s` of them.
    let held = 1.0 + if disk { core.disk_latency_ns as f64 / mean_ns as f64 } else { 0.0 };
    let (goodput, refusals) = (level.goodput(from_ns), level.refusals(from_ns));
    // Requests that the core cannot even refuse stay in sockets, so that clients are blocked.
    let needed = level.load.refusals_needed(1.0).min(REFUSALS_MAX);
    assert!(refusals <= 1.1 * needed + 0.02, "{what}: refusals take {refusals} of the core, {needed} needed");
    let best = (1.0 - needed) / (1.0 + kappa * held);
    assert!(goodput >= 0.93 * best, "{what}: goodput {goodput}, best {best}, refusals {refusals}");
    println!("{what}: goodput {goodput:.3}, best {best:.3}, refusals {refusals:.3}, {needed:.3} needed");
}

#[test]
fn core_without_a_limit_collapses() {
    let of_level = Load { disk: true, ..load(Refuse, &[30_000], 1.4) };
    let mut core = Core::new(1, doubles_with(3333), &[of_level]);
    core.limited = false;
    core.run(2 * SECOND);
    let goodput = core.levels[0].goodput(1600 * MS);
    assert!(goodput < 0.3, "the model has no retrograde region: {goodput}");
}

#[test]
fn l1_limit_is_at_least_one_and_at_most_the_constant() {
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let mut any = || {
            let most = random.pick(&[1, 10, 1000, MS, SECOND, u64::MAX]);
            random.within(0, most)
        };
        let mut control = Concurrency::default();
        for _ in 0..3 {
            let limit_max = any() as u32;
            let limit = control.decide(ConcurrencyInput {
                interval_ns: any(),
                ended: any(),
                refusal_ns: any(),
                cpu_ns: any(),
                disk_ns: any(),
                device_ns: any(),
                running: any() as u32,
                elsewhere: any() as u32,
                busiest_ppm: any() as u32,
                entitlement_ppm: any() as u32,
                bounds: LevelBounds {
                    time_limit_ns: any(),
                    latency_target_ns: Some(any()).filter(|ns| ns % 2 == 0),
                    limit_max,
                },
            });
            assert!(limit.statements >= 1 && limit.statements <= limit_max.max(1), "{limit_max}: {limit:?}");
        }
    }
    let huge = ConcurrencyInput { ended: 1_000_000, cpu_ns: 1, ..of_level(1_000_000) };
    assert_eq!(Concurrency::default().decide(huge).statements, LIMIT_MAX);
    let slow = ConcurrencyInput { ended: 1, cpu_ns: 10 * SECOND, ..of_level(1) };
    assert_eq!(Concurrency::default().decide(slow).statements, 1);
}

#[test]
fn l2_overload_ends_within_400_ms() {
    for seed in 0..seeds() {
        let work_ns = 1000 * Random::new(seed + 100).pick(&[10, 30, 100, 369]);
        for offered in OVERLOADS {
            check_overload(seed, &[work_ns], offered, seed % 2 == 0);
        }
    }
}

#[test]
fn l2_four_connections_keep_the_core_busy() {
    for seed in 0..seeds() {
        let disk = seed % 2 == 0;
        let of_level = Load { connections: 4, disk, ..load(Refuse, &[10_000], 1.4) };
        let mut core = Core::new(seed, 0.0, &[of_level]);
        core.run(800 * MS);
        let goodput = core.levels[0].goodput(400 * MS);
        assert!(goodput >= 0.95, "seed {seed}, disk {disk}: goodput {goodput}");
    }
}

#[test]
fn l2_refusals_alone_do_not_fill_the_core() {
    for seed in 0..seeds() {
        // Ten times capacity are two cores of refusals. Full sockets hold 0.6 s of work, and 0.16 s
        // of refusals: whatever a core reads is old.
        for (time_limit_ns, least) in [(200 * MS, 0.15), (10 * SECOND, 0.55)] {
            let of_level = Load { connections: 1000, time_limit_ns, ..load(Refuse, &[10_000], 10.0) };
            let mut core = Core::new(seed, 0.0, &[of_level]);
            core.run(2 * SECOND);
            let goodput = core.levels[0].goodput(SECOND);
            println!("time limit {time_limit_ns} goodput {goodput}");
            assert!(goodput >= least, "seed {seed}: goodput {goodput}");
        }
    }
}

/// A target bounds the queue whatever a statement costs, as long as refusals take no more than a
/// third of the core: at 1.2 times capacity they would fill it with statements of 3 µs.
#[test]
fn latency_target_bounds_the_queue_of_cheap_statements() {
    for seed in 0..seeds() {
        for (work_ns, offered, least) in
            [(3_000, 1.05, 0.6), (9_000, 1.4, 0.8), (9_000, 1.8, 0.6), (30_000, 2.0, 0.85)]
        {
            let of_level = Load {
                latency_target_ns: Some(5 * MS),
                time_limit_ns: 10 * SECOND,
                connections: 1000,
                ..load(Refuse, &[work_ns], offered)
            };
            let mut core = Core::new(seed, 0.0, &[of_level]);
            core.run(2 * SECOND);
            let level = &core.levels[0];
            let what = format!("seed {seed}, {work_ns} ns, offered {offered}");
            let windows = level.since(SECOND);
            let mean_ns = sum(windows, |window| window.age_ns) / sum(windows, |window| window.begun).max(1);
            let goodput = level.goodput(SECOND);
            println!("{what}: mean age {mean_ns} ns, goodput {goodput:.3}");
            assert!(mean_ns <= 10 * MS, "{what}: {mean_ns} ns");
            assert!(goodput >= least, "{what}: goodput {goodput}");
        }
    }
}

#[test]
fn l2_disk_is_busy_and_has_no_long_queue() {
    for seed in 0..seeds() {
        let of_level = load(Hold, &[6000], 0.0);
        let of_level = Load { clients: 2000, disk: true, time_limit_ns: 10 * SECOND, ..of_level };
        let mut core = Core::new(seed, 0.0, &[of_level]);
        (core.disk_cost_ns, core.disk_latency_ns) = (19_000, 1_200_000);
        core.run(SECOND);
        let level = &core.levels[0];
        let disk = level.goodput(400 * MS) * 19.0 / 6.0;
        assert!(disk >= 0.95, "seed {seed}: {disk} of the disk");
        let limits = level.limits(400 * MS);
        assert!(limits.1 <= 130, "seed {seed}: limit {limits:?}, 116 expected");
    }
}

#[test]
fn l3_limit_is_steady_for_ten_minutes() {
    for seed in 0..seeds() {
        // With a target that does not follow `s`, the limit shows each error of `s`.
        let work_ns = Random::new(seed + 200).within(2 * MS, 4 * MS);
        let of_level = load(Refuse, &[work_ns, work_ns / 2], 2.0);
        let latency_target_ns = Some(40 * work_ns);
        let of_level = Load { time_limit_ns: SECOND, disk: true, latency_target_ns, ..of_level };
        let mut core = Core::new(seed, 0.0, &[of_level]);
        core.run(600 * SECOND);
        let limits = core.levels[0].limits(SECOND);
        assert!(within(limits, 20), "seed {seed}, {work_ns} ns: limit {limits:?}");
    }
}

#[test]
fn l4_unused_limit_does_not_grow() {
    for seed in 0..seeds() {
        let mut of_level = load(Refuse, &[100_000], 0.4);
        of_level.disk = true;
        let mut core = Core::new(seed, 0.0, &[of_level]);
        core.run(SECOND);
        let before = core.levels[0].limits(500 * MS).1;
        for offered in [0.01, 0.0, 0.01] {
            core.levels[0].load.offered = offered;
            core.run(20 * SECOND);
        }
        let after = core.levels[0].limits(SECOND).1;
        assert!(after <= before + before / 10 + 1, "seed {seed}: limit {before} grew to {after}");
    }
}

/// Runs a level alone, then alongside one with nine times the shares. Returns the useful work of
/// both, as parts of the core, and the least of it if each refuses no more than it must.
fn wake_a_larger_level(seed: u64, work_ns: u64, small: Load) -> [(f64, f64); 2] {
    let small = Load { disk: true, work_ns: vec![work_ns], ..small };
    let large = Load { shares: 900, ..load(Refuse, &[work_ns], 0.0) };
    let mut core = Core::new(seed, 0.0, &[small, large]);
    core.run(400 * MS);
    core.levels[1].load.offered = 1.4;
    core.run(2 * SECOND);
    [(0, 0.1), (1, 0.9)].map(|(at, part)| {
        let level = &core.levels[at];
        // Full sockets hold more than the time limit if the level cannot even refuse in time.
        let needed = level.load.refusals_needed(part);
        let least = if needed > part / 3.0 { 0.15 * part } else { 0.95 * (part - needed) };
        (level.goodput(800 * MS), least)
    })
}

#[test]
fn l5_level_gets_its_part_beside_nine_times_its_shares() {
    for (seed, work_ns) in (0..seeds()).flat_map(|seed| [30_000, 100_000, 369_000].map(|ns| (seed, ns))) {
        let what = format!("seed {seed}, {work_ns} ns");
        // Clients that wait for their answers, so that only the limit decides.
        let waiting = Load { clients: 100, time_limit_ns: 10 * SECOND, ..load(Queue, &[1], 0.0) };
        for small in [waiting, load(Refuse, &[1], 1.4)] {
            let parts = wake_a_larger_level(seed, work_ns, small.clone());
            println!("{what}, {:?}: {parts:.3?}", small.overload);
            for (goodput, least) in parts {
                assert!(goodput >= least, "{what}, {:?}: {parts:?}", small.overload);
            }
        }
    }
}

#[test]
fn l5_level_within_its_part_is_never_refused() {
    for seed in 0..seeds() {
        let work_ns = 1000 * Random::new(seed + 400).pick(&[30, 100, 369]);
        let small = load(Refuse, &[work_ns], 0.04);
        let waiting =
            Load { shares: 900, clients: 300, time_limit_ns: 10 * SECOND, ..load(Hold, &[work_ns], 0.0) };
        let mut core = Core::new(seed, 0.0, &[small, Load { disk: true, ..waiting }]);
        core.run(2 * SECOND);
        let [small, large] = &core.levels[..] else { unreachable!() };
        let measured = small.since(INTERVAL_NS);
        assert_eq!(sum(measured, |window| window.refused + window.expired), 0, "seed {seed}");
        let goodput = small.goodput(SECOND);
        assert!((0.03..0.05).contains(&goodput), "seed {seed}: {goodput} of 0.04 answered in time");
        assert!(large.goodput(SECOND) > 0.85, "seed {seed}: {}", large.goodput(SECOND));
    }
}

#[test]
fn l6_mixed_work_is_as_good() {
    for seed in 0..seeds() {
        let cheap = Random::new(seed + 500).within(1, 40) as usize;
        let mix: Vec<u64> = [vec![3000; cheap], vec![369_000]].concat();
        for offered in OVERLOADS {
            check_overload(seed, &mix, offered, seed % 2 == 0);
        }
    }
}

/// Statements that waited for a core that another program had are old, and the core can do them.
#[test]
fn l6_core_that_stood_still_refuses_nothing() {
    for seed in 0..seeds() {
        let work_ns = 1000 * Random::new(seed + 700).pick(&[10, 30, 100, 369]);
        let mut core = Core::new(seed, 0.0, &[load(Refuse, &[work_ns], 2.0)]);
        // An overload that has ended counts no longer.
        core.run(400 * MS);
        core.levels[0].load.offered = 0.4;
        core.run(800 * MS);
        for _ in 0..10 {
            core.run(200 * MS);
            core.now_ns += 50 * MS;
        }
        core.levels[0].check_calm(1200 * MS, &format!("seed {seed}, {work_ns} ns"));
    }
}

#[test]
fn l7_disk_that_stood_still_is_normal_after_two_seconds() {
    for seed in 0..seeds() {
        let mut of_level = load(Refuse, &[100_000], 1.2);
        of_level.disk = true;
        let mut core = Core::new(seed, doubles_with(400), &[of_level]);
        core.run(SECOND);
        let normal = core.levels[0].limits(500 * MS).1;
        core.disk_still_until_ns = core.now_ns + SECOND;
        core.run(4 * SECOND);
        let level = &core.levels[0];
        let what = format!("seed {seed}");
        let still = level.since(SECOND).iter().map(|window| window.in_flight_max).max().expect("a window");
        level.check_delay(4 * SECOND, 1.0, &what);
        let (goodput, limits) = (level.goodput(4 * SECOND), level.limits(4 * SECOND));
        assert!(goodput >= 0.95, "{what}: goodput {goodput}");
        assert!(limits.1 <= normal + normal / 10 + 1, "{what}: limit {normal}, now {limits:?}");
        assert!(still <= 1000, "{what}: {still} in flight");
    }
}

#[test]
fn l8_late_inputs_cause_no_oscillation() {
    for seed in 0..seeds() {
        let work_ns = 1000 * Random::new(seed + 600).pick(&[30, 100, 369]);
        let mut of_level = load(Refuse, &[work_ns], 1.4);
        of_level.disk = true;
        let mut core = Core::new(seed, doubles_with((100 * MS / work_ns).max(400)), &[of_level]);
        core.late_intervals = 1;
        core.run(4 * SECOND);
        let level = &core.levels[0];
        let limits = level.limits(400 * MS);
        assert!(within(limits, 30), "seed {seed}, {work_ns} ns: limit {limits:?}");
        level.check_delay(400 * MS, 1.0, "late inputs");
    }
}

fn of_level(part_ppm: u32) -> ConcurrencyInput {
    ConcurrencyInput {
        interval_ns: INTERVAL_NS,
        entitlement_ppm: part_ppm,
        bounds: LevelBounds { time_limit_ns: 10 * SECOND, latency_target_ns: None, limit_max: LIMIT_MAX },
        ..ConcurrencyInput::default()
    }
}
#[test]
fn batch_is_held_and_never_refused() {
    for seed in 0..seeds() {
        let held =
            Load { clients: 1500, disk: true, time_limit_ns: 10 * SECOND, ..load(Hold, &[100_000], 0.0) };
        let mut core = Core::new(seed, doubles_with(400), &[held]);
        core.run(2 * SECOND);
        let level = &core.levels[0];
        assert_eq!(sum(level.since(0), |window| window.refused + window.expired), 0, "seed {seed}");
        let first = level.since(0)[0].in_flight_max;
        assert!(first <= 60, "seed {seed}: {first} in flight before the first decision");
        let most = level.since(400 * MS).iter().map(|window| window.in_flight_max).max();
        assert!(most <= Some(level.limits(400 * MS).1), "seed {seed}: {most:?} in flight");
        assert!(level.goodput(400 * MS) >= 0.95, "seed {seed}: {}", level.goodput(400 * MS));
    }
}

#[test]
fn expired_statements_are_dropped_before_their_work() {
    for seed in 0..seeds() {
        let held = Load { disk: true, connections: 1000, ..load(Hold, &[100_000], 0.8) };
        let mut core = Core::new(seed, 0.0, &[held]);
        core.run(400 * MS);
        core.disk_still_until_ns = core.now_ns + SECOND;
        core.run(2 * SECOND);
        let level = &core.levels[0];
        let (expired, wasted_ns) =
            (sum(level.since(0), |window| window.expired), sum(level.since(0), |window| window.wasted_ns));
        assert!(expired > 500, "seed {seed}: {expired} expired");
        // Those in flight when the disk stood still, and those that waited in a read behind others.
        assert!(wasted_ns < 20 * MS, "seed {seed}: {wasted_ns} ns of work were wasted");
        assert!(level.goodput(1600 * MS) > 0.75, "seed {seed}: {}", level.goodput(1600 * MS));
    }
}

#[test]
fn unread_answers_count_against_the_limit() {
    let slow_readers = Load { send_ns: 50 * MS, clients: 1000, ..load(Hold, &[100_000], 0.0) };
    let mut core = Core::new(1, 0.0, &[slow_readers]);
    core.run(300 * MS);
    core.levels[0].unsent_max = 0;
    core.run(SECOND);
    let level = &core.levels[0];
    let limit = level.limits(300 * MS).1;
    assert!(level.unsent_max <= limit, "{} answers unsent, limit {limit}", level.unsent_max);
}
