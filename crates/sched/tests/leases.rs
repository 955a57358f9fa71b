//! Model of `max_concurrency` over several fronts, in random interleavings of one to four fronts
//! and a store. The scheduler may delay, drop and reorder all messages, also for longer than any
//! time limit. It stops fronts at any point, kills them, and changes the limit. Clocks of fronts
//! differ by 1 %, those of nodes by 0.4 s. The invariants are checked after every step, and at the
//! end the fronts must recover the whole limit. `SEED=n` runs one seed.

use std::collections::BTreeMap;

use sched::cluster::{
    FrontDemand, FrontId, Holder, Lease, LeaseInput, LeaseRow, LeaseWrite, Presence, ROW_TTL_NS, WriteOutcome,
};
use testkit::Random;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Time after which a front gives up a request, by its own clock, ns.
const TIMEOUT_NS: u64 = 2 * SECOND;
/// Largest error of a node's clock, ns.
const SKEW_NS: u64 = 400 * MS;
/// Steps of the random scheduler in a run.
const STEPS: usize = 600;

/// A rule that a run leaves out, to show that the model finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Without {
    Nothing,
    /// A front admits for ever after one renewal.
    EightSeconds,
    /// The eight seconds count from the answer to the renewal.
    CountFromTheRequest,
    /// The store applies each write, whatever its version is.
    Condition,
    /// `fronts` is read before `leases`.
    OrderOfReads,
    /// A restarted front has the number of the one before.
    NewNumber,
    /// A lost answer is taken for the effect of the write.
    UnknownOutcome,
}

#[derive(Clone, Debug)]
enum Request {
    Renew { demand: u32 },
    ReadLeases,
    ReadFronts,
    Write { write: LeaseWrite, limit: u32 },
}

#[derive(Clone, Debug)]
enum Answer {
    Renewed,
    Leases { version: i64, holders: Vec<Holder> },
    Fronts(Vec<FrontDemand>),
    Written(WriteOutcome),
}

#[derive(Debug)]
struct Message {
    call: u64,
    from: FrontId,
    content: Result<Answer, Request>,
}

/// A request without an answer yet.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: u64,
    sent_ns: u64,
}

/// Reads of one round so far.
#[derive(Clone, Default, Debug)]
struct Round {
    leases: Option<(i64, Vec<Holder>)>,
    fronts: Option<Vec<FrontDemand>>,
}

#[derive(Debug)]
struct Front {
    id: FrontId,
    rate_ppm: u64,
    offset_ns: u64,
    is_paused: bool,
    limit: u32,
    waiting: u32,
    presence: Presence,
    lease: Lease,
    renewal: Option<Call>,
    round: Option<(Call, Round)>,
    write: Option<Call>,
}

impl Front {
    fn new(id: FrontId, limit: u32, random: &mut Random) -> Front {
        Front {
            id,
            rate_ppm: random.within(990_000, 1_010_001),
            offset_ns: random.below(1_000 * SECOND),
            is_paused: false,
            limit,
            waiting: random.below(u64::from(limit) + 3) as u32,
            presence: Presence::default(),
            lease: Lease::new(id),
            renewal: None,
            round: None,
            write: None,
        }
    }

    fn clock(&self, now_ns: u64) -> u64 {
        self.offset_ns + now_ns / 1_000 * self.rate_ppm / 1_000
    }
}

/// Row of `fronts`.
#[derive(Clone, Copy, Debug)]
struct Row {
    ends_s: u64,
    demand: u32,
}

/// Statements of a front, alive or dead.
#[derive(Clone, Copy, Default, Debug)]
struct Running {
    /// Admitted, and the front has not been removed since.
    counted: u32,
    /// Admitted before the front was removed.
    lost: u32,
}

#[derive(Debug)]
struct World {
    random: Random,
    without: Without,
    now_ns: u64,
    limit: u32,
    /// Limit known to the front that raised the sum of entries last.
    ceiling: u32,
    /// All versions of the row, from none on.
    history: Vec<(i64, Vec<Holder>)>,
    rows: BTreeMap<FrontId, Row>,
    running: BTreeMap<FrontId, Running>,
    messages: Vec<Message>,
    fronts: Vec<Front>,
    next_number: u64,
    violation: Option<String>,
}

impl World {
    fn new(seed: u64, fronts: usize, limit: u32, without: Without) -> World {
        let mut random = Random::new(seed);
        let fronts = (1..=fronts).map(|id| Front::new(id as FrontId, limit, &mut random)).collect();
        World {
            random,
            without,
            now_ns: 100 * SECOND,
            limit,
            ceiling: limit,
            history: vec![(0, Vec::new())],
            rows: BTreeMap::new(),
            running: BTreeMap::new(),
            messages: Vec::new(),
            fronts,
            next_number: 100,
            violation: None,
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Returns the whole seconds of the clock of some node.
    fn node_clock_s(&mut self) -> u64 {
        (self.now_ns - SKEW_NS + self.random.below(2 * SKEW_NS + 1)) / SECOND
    }

    fn running_of(&self, id: FrontId) -> Running {
        self.running.get(&id).copied().unwrap_or_default()
    }

    fn fail(&mut self, text: String) {
        self.violation.get_or_insert(text);
    }

    fn send(&mut self, at: usize, request: Request) -> Call {
        let number = self.number();
        let front = &self.fronts[at];
        let call = Call { number, sent_ns: front.clock(self.now_ns) };
        self.messages.push(Message { call: number, from: front.id, content: Err(request) });
        call
    }

    /// Executes a request in the store.
    fn execute(&mut self, from: FrontId, request: Request) -> Answer {
        let now_s = self.node_clock_s();
        match request {
            Request::Renew { demand } => {
                self.rows.insert(from, Row { ends_s: now_s + ROW_TTL_NS / SECOND, demand });
                Answer::Renewed
            }
            Request::ReadLeases => {
                let stale = if self.random.one_in(8) { 2 } else { 1 };
                let (version, holders) = self.history[self.history.len().saturating_sub(stale)].clone();
                Answer::Leases { version, holders }
            }
            Request::ReadFronts => {
                let live = self.rows.iter().filter(|(_, row)| now_s < row.ends_s);
                let fronts = live.map(|(&front, row)| FrontDemand { front, demand: row.demand });
                Answer::Fronts(fronts.collect())
            }
            Request::Write { write, limit } => Answer::Written(self.apply(from, write, limit)),
        }
    }

    fn apply(&mut self, from: FrontId, write: LeaseWrite, limit: u32) -> WriteOutcome {
        let (version, before) = self.history.last().expect("the first version stays").clone();
        if write.expected != version && self.without != Without::Condition {
            return WriteOutcome::Refused;
        }
        let sum = |holders: &[Holder]| holders.iter().map(|holder| holder.count).sum::<u32>();
        if sum(&write.holders) > sum(&before) {
            self.ceiling = limit;
        }
        for Holder { front: id, .. } in before {
            if id == from || write.holders.iter().any(|holder| holder.front == id) {
                continue;
            }
            if let Some(front) = self.fronts.iter().find(|front| front.id == id)
                && front.lease.may_run(front.clock(self.now_ns), &front.presence) > 0
            {
                self.fail(format!("front {id} is removed while it may admit"));
            }
            let running = self.running.entry(id).or_default();
            running.lost += std::mem::take(&mut running.counted);
        }
        self.history.push((write.expected + 1, write.holders));
        WriteOutcome::Applied
    }

    /// Delivers a message: a request to the store, or an answer to its front.
    fn deliver(&mut self, index: usize) {
        let Message { from, call, .. } = self.messages[index];
        match self.messages[index].content.clone() {
            Err(request) => {
                let answer = self.execute(from, request);
                self.messages[index].content = Ok(answer);
            }
            Ok(answer) => {
                let at = self.fronts.iter().position(|front| front.id == from);
                if at.is_some_and(|at| self.fronts[at].is_paused) {
                    return;
                }
                self.messages.swap_remove(index);
                if let Some(at) = at {
                    self.answered(at, call, answer);
                }
            }
        }
    }

    fn answered(&mut self, at: usize, number: u64, answer: Answer) {
        let without = self.without;
        let front = &mut self.fronts[at];
        let now_ns = front.clock(self.now_ns);
        let is_of = |call: Option<Call>| call.filter(|call| call.number == number);
        match answer {
            Answer::Renewed => {
                let Some(call) = is_of(front.renewal) else { return };
                front.renewal = None;
                let sent_ns = match without {
                    Without::EightSeconds => u64::MAX,
                    Without::CountFromTheRequest => now_ns,
                    _ => call.sent_ns,
                };
                front.presence.renewed(sent_ns, now_ns);
            }
            Answer::Written(outcome) => {
                if is_of(front.write).is_some() {
                    front.write = None;
                    front.lease.outcome(outcome);
                }
            }
            read => {
                if is_of(front.round.as_ref().map(|round| round.0)).is_none() {
                    return;
                }
                let (_, mut round) = front.round.take().expect("checked above");
                match read {
                    Answer::Leases { version, holders } => round.leases = Some((version, holders)),
                    Answer::Fronts(fronts) => round.fronts = Some(fronts),
                    Answer::Renewed | Answer::Written(_) => {}
                }
                self.go_on(at, round);
            }
        }
    }

    /// Sends the next read of a round, or decides on both.
    fn go_on(&mut self, at: usize, round: Round) {
        let is_reversed = self.without == Without::OrderOfReads;
        let next = match (&round.leases, &round.fronts) {
            (None, None) if is_reversed => Some(Request::ReadFronts),
            (None, _) => Some(Request::ReadLeases),
            (_, None) => Some(Request::ReadFronts),
            _ => None,
        };
        if let Some(request) = next {
            let call = self.send(at, request);
            self.fronts[at].round = Some((call, round));
            return;
        }
        let (Some((version, holders)), Some(fronts)) = (round.leases, round.fronts) else { return };
        let running = self.running_of(self.fronts[at].id);
        let turn = self.now_ns / (10 * SECOND);
        let front = &mut self.fronts[at];
        let running = running.counted + running.lost;
        let input = LeaseInput { limit: front.limit, running, demand: running + front.waiting, turn };
        let row = LeaseRow { version, holders: &holders };
        let now_ns = front.clock(self.now_ns);
        if let Some(write) = front.lease.step(now_ns, &front.presence, input, row, &fronts) {
            let limit = front.limit;
            let call = self.send(at, Request::Write { write, limit });
            self.fronts[at].write = Some(call);
        }
    }

    /// Gives up requests that have no answer for too long.
    fn time_out(&mut self, at: usize) {
        let without = self.without;
        let front = &mut self.fronts[at];
        let now_ns = front.clock(self.now_ns);
        let is_late = |call: &Call| now_ns >= call.sent_ns + TIMEOUT_NS;
        front.renewal.take_if(|call| is_late(call));
        front.round.take_if(|(call, _)| is_late(call));
        if front.write.take_if(|call| is_late(call)).is_some() {
            front.lease.outcome(match without {
                Without::UnknownOutcome => WriteOutcome::Applied,
                _ => WriteOutcome::Unknown,
            });
        }
    }

    fn renew(&mut self, at: usize) {
        if self.fronts[at].renewal.is_none() {
            let Front { id, waiting, .. } = self.fronts[at];
            let running = self.running_of(id);
            let demand = running.counted + running.lost + waiting;
            let call = self.send(at, Request::Renew { demand });
            self.fronts[at].renewal = Some(call);
        }
    }

    fn read(&mut self, at: usize) {
        if self.fronts[at].round.is_none() {
            self.go_on(at, Round::default());
        }
    }

    /// Admits a waiting statement if the lease allows it.
    fn admit(&mut self, at: usize) {
        let front = &mut self.fronts[at];
        let may_run = front.lease.may_run(front.clock(self.now_ns), &front.presence);
        let running = self.running.entry(front.id).or_default();
        if front.waiting > 0 && running.counted + running.lost < may_run {
            front.waiting -= 1;
            running.counted += 1;
        }
    }

    /// Ends a statement of any front, alive or dead.
    fn end(&mut self) {
        let ids: Vec<FrontId> = self.running.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let running = self.running.get_mut(&self.random.pick(&ids)).expect("listed");
        match self.random.one_in(2) {
            true => running.counted = running.counted.saturating_sub(1),
            false => running.lost = running.lost.saturating_sub(1),
        }
    }

    /// Kills a front and starts another one. Statements of the first run on at the nodes.
    fn restart(&mut self, at: usize) {
        let mut id = self.number().into();
        if self.without == Without::NewNumber {
            // The new process does not know of the statements of the other one.
            let running = self.running.remove(&self.fronts[at].id).unwrap_or_default();
            self.running.insert(id, running);
            id = self.fronts[at].id;
        }
        self.fronts[at] = Front::new(id, self.limit, &mut self.random);
    }

    /// Lets a front do one thing.
    fn act(&mut self, at: usize) {
        if self.fronts[at].is_paused {
            return;
        }
        match self.random.below(14) {
            0..=2 => self.renew(at),
            3..=5 => self.read(at),
            6..=9 => (0..4).for_each(|_| self.admit(at)),
            10..=11 => self.time_out(at),
            12 => self.fronts[at].waiting = self.random.below(u64::from(self.limit) + 4) as u32,
            _ => self.fronts[at].limit = self.limit,
        }
    }

    /// Does one random step of the whole system.
    fn step(&mut self, is_altered: bool) {
        let at = self.random.index(self.fronts.len());
        match self.random.below(100) {
            0..=14 => self.now_ns += self.random.pick(&[MS, 50 * MS, 300 * MS, SECOND, SECOND, 3 * SECOND]),
            15 => self.now_ns += self.random.within(6 * SECOND, 12 * SECOND),
            16..=54 if !self.messages.is_empty() => {
                // Mostly in order: else few rounds would ever end.
                let len = self.messages.len();
                let index = if self.random.one_in(3) { self.random.index(len) } else { len - 1 };
                self.deliver(index);
            }
            55 if !self.messages.is_empty() => {
                let index = self.random.index(self.messages.len());
                self.messages.swap_remove(index);
            }
            56..=57 => self.fronts[at].is_paused = !self.fronts[at].is_paused,
            58 if self.random.one_in(5) => self.restart(at),
            59 if is_altered => self.limit = self.random.within(1, 12) as u32,
            60..=64 => self.end(),
            _ => self.act(at),
        }
    }

    /// Checks the promise, and the parts of its proof.
    fn check(&mut self) {
        let holders = self.history.last().expect("the first version stays").1.clone();
        let entries: u32 = holders.iter().map(|holder| holder.count).sum();
        if entries > self.ceiling {
            self.fail(format!("entries add up to {entries}, limit {}", self.ceiling));
        }
        let counted = self.counted();
        if counted > self.ceiling {
            self.fail(format!("{counted} statements are admitted, limit {}", self.ceiling));
        }
        if self.without == Without::NewNumber {
            return;
        }
        for (&id, running) in &self.running {
            let entry = holders.iter().find(|holder| holder.front == id).map_or(0, |holder| holder.count);
            if running.counted > entry {
                self.violation.get_or_insert(format!("front {id} has {} of {entry}", running.counted));
                return;
            }
        }
    }

    /// Runs without failures: each front does all of a round every second.
    fn calm(&mut self, seconds: u64, mut each: impl FnMut(&mut World)) {
        self.messages.clear();
        for front in &mut self.fronts {
            (front.is_paused, front.limit) = (false, self.limit);
        }
        for _ in 0..seconds * 4 {
            self.now_ns += SECOND / 4;
            for at in 0..self.fronts.len() {
                self.time_out(at);
                self.renew(at);
                self.read(at);
                while !self.messages.is_empty() {
                    self.deliver(0);
                }
                (0..self.limit).for_each(|_| self.admit(at));
            }
            self.check();
            each(self);
        }
    }
}

/// Runs a seed. Returns the first violation.
fn run(seed: u64, without: Without, is_altered: bool) -> Result<World, String> {
    let fronts = 1 + (seed % 4) as usize;
    let limit = 1 + (seed / 4 % 9) as u32;
    let mut world = World::new(seed, fronts, limit, without);
    for step in 0..STEPS {
        world.step(is_altered);
        world.check();
        if let Some(violation) = &world.violation {
            return Err(format!("SEED={seed}, step {step}: {violation}"));
        }
    }
    Ok(world)
}

/// Runs a seed with all rules, and then ends all failures. The fronts must use the whole limit.
fn check_kept(seed: u64, is_altered: bool) {
    let mut world = run(seed, Without::Nothing, is_altered).unwrap_or_else(|violation| panic!("{violation}"));
    let refill = |world: &mut World| world.fronts.iter_mut().for_each(|front| front.waiting = 20);
    world.calm(60, |world| {
        refill(world);
        world.end();
        world.end();
    });
    world.running.values_mut().for_each(|running| running.lost = 0);
    world.calm(8, refill);
    assert_eq!(world.violation, None, "SEED={seed}, afterwards");
    assert_eq!(world.counted(), world.limit, "SEED={seed}: the whole limit is used again");
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    match std::env::var("SEED").ok().and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    }
}

#[test]
fn limit_is_kept_in_all_interleavings() {
    seeds(6_000).for_each(|seed| check_kept(seed, false));
}

#[test]
fn changed_limit_is_kept_in_all_interleavings() {
    seeds(6_000).for_each(|seed| check_kept(seed, true));
}

/// Checks that the model finds the failure that a rule prevents.
fn check_needed(without: Without) {
    let found = (0..6_000).find_map(|seed| run(seed, without, false).err());
    println!("{without:?}: {}", found.unwrap_or_else(|| panic!("{without:?} is not found")));
}

#[test]
fn model_finds_a_missing_rule() {
    check_needed(Without::EightSeconds);
    check_needed(Without::CountFromTheRequest);
    check_needed(Without::Condition);
    check_needed(Without::OrderOfReads);
    check_needed(Without::NewNumber);
    check_needed(Without::UnknownOutcome);
}

/// Fronts without failures, whose waiting statements are those of `waiting`.
fn calm_world(limit: u32, waiting: &[u32]) -> World {
    let mut world = World::new(1, waiting.len(), limit, Without::Nothing);
    world.fronts.iter_mut().zip(waiting).for_each(|(front, &waiting)| front.waiting = waiting);
    world
}

impl World {
    fn counted(&self) -> u32 {
        self.running.values().map(|running| running.counted).sum()
    }

    fn counted_of(&self, ids: &[FrontId]) -> Vec<u32> {
        ids.iter().map(|&id| self.running_of(id).counted).collect()
    }

    fn writes(&self) -> usize {
        self.history.len() - 1
    }
}

/// Runs fronts with constant demands and short statements for ten seconds.
fn settle(world: &mut World, waiting: &[u32]) {
    world.calm(10, |world| {
        world.running.clear();
        world.fronts.iter_mut().zip(waiting).for_each(|(front, &waiting)| front.waiting = waiting);
    });
    world.calm(1, |_| {});
}

#[test]
fn busy_fronts_have_equal_parts_and_idle_ones_an_eighth() {
    let mut world = calm_world(40, &[0, 0]);
    settle(&mut world, &[100, 100]);
    assert_eq!(world.counted_of(&[1, 2]), [20, 20]);
    settle(&mut world, &[100, 0]);
    assert_eq!(world.counted_of(&[1, 2]), [38, 0]);
    world.fronts[1].waiting = 9;
    world.calm(1, |world| assert_eq!(world.counted_of(&[2]), [2], "two start without a write"));
}

#[test]
fn limit_of_one_serves_the_fronts_in_turn() {
    let mut world = calm_world(1, &[0, 0, 0]);
    let mut served = [0, 0, 0];
    world.calm(120, |world| {
        for (at, served) in served.iter_mut().enumerate() {
            world.fronts[at].waiting = 5;
            if let Some(running) = world.running.get_mut(&world.fronts[at].id) {
                *served += std::mem::take(&mut running.counted);
            }
        }
    });
    assert!(served.iter().all(|&served| served > 80), "of 480 slots: {served:?}");
}

#[test]
fn places_of_a_dead_front_return_after_its_row_ends() {
    let mut world = calm_world(8, &[0, 0]);
    settle(&mut world, &[20, 20]);
    world.fronts.remove(0);
    world.calm(8, |world| assert_eq!(world.counted_of(&[2]), [4], "the other one may still admit"));
    world.calm(5, |_| {});
    assert_eq!(world.counted_of(&[2]), [8]);
}

#[test]
fn lowered_limit_admits_no_statement_above_it() {
    let mut world = calm_world(8, &[0, 0]);
    settle(&mut world, &[50, 50]);
    assert_eq!(world.counted_of(&[1, 2]), [4, 4]);
    world.limit = 2;
    let mut before = 8;
    world.calm(20, |world| {
        assert!(world.counted() <= before.max(2), "a statement is admitted above the limit");
        before = world.counted().saturating_sub(1).max(2);
        if world.counted() > 2 {
            let id = if world.running_of(1).counted > 0 { 1 } else { 2 };
            world.running.entry(id).or_default().counted -= 1;
        }
    });
    assert_eq!(world.counted(), 2);
}

#[test]
fn demands_that_the_leases_cover_cause_no_writes() {
    let mut world = calm_world(40, &[5, 5]);
    world.calm(5, |_| {});
    let before = world.writes();
    world.calm(60, |world| {
        let waiting = world.random.below(10) as u32;
        world.fronts[0].waiting = waiting;
        world.running.clear();
    });
    assert_eq!(world.writes(), before);
}

/// A lease and its presence, without a store.
struct Alone {
    presence: Presence,
    lease: Lease,
}

impl Alone {
    fn new() -> Alone {
        let mut presence = Presence::default();
        presence.renewed(0, 0);
        Alone { presence, lease: Lease::new(1) }
    }

    /// Makes a step of front 1, which has `before` places and wants `demand` of 9. Returns the new
    /// places.
    fn step(&mut self, now_ns: u64, version: i64, before: u32, demand: u32) -> Option<u32> {
        let input = LeaseInput { limit: 9, running: 0, demand, turn: 0 };
        let holders = [Holder { front: 1, count: before }];
        let row = LeaseRow { version, holders: &holders };
        let fronts = [1, 2].map(|front| FrontDemand { front, demand: 9 });
        let write = self.lease.step(now_ns, &self.presence, input, row, &fronts)?;
        assert_eq!(write.expected, version);
        Some(write.holders.iter().map(|holder| holder.count).sum())
    }
}

#[test]
fn front_writes_a_level_at_most_once_a_second() {
    let mut alone = Alone::new();
    assert_eq!(alone.step(0, 0, 0, 9), Some(5));
    alone.lease.outcome(WriteOutcome::Applied);
    assert_eq!(alone.step(SECOND - 1, 1, 5, 1), None);
    assert_eq!(alone.step(SECOND, 1, 5, 1), Some(1));
}

#[test]
fn next_write_waits_for_the_outcome_of_the_last() {
    let mut alone = Alone::new();
    assert_eq!(alone.step(0, 0, 0, 9), Some(5));
    assert_eq!(alone.step(2 * SECOND, 0, 0, 9), None);
    alone.lease.outcome(WriteOutcome::Unknown);
    assert_eq!(alone.step(2 * SECOND, 0, 0, 9), Some(5));
}

#[test]
fn write_of_an_earlier_epoch_admits_nothing() {
    let mut alone = Alone::new();
    assert_eq!(alone.step(0, 0, 0, 9), Some(5));
    alone.presence.renewed(20 * SECOND, 20 * SECOND);
    assert_eq!(alone.step(20 * SECOND, 1, 5, 9), None);
    alone.lease.outcome(WriteOutcome::Applied);
    assert_eq!(alone.lease.may_run(20 * SECOND, &alone.presence), 0, "another front may remove it by now");
    assert_eq!(alone.step(20 * SECOND, 1, 5, 9), Some(5), "an equal entry, but a higher version");
    alone.lease.outcome(WriteOutcome::Applied);
    assert_eq!(alone.lease.may_run(20 * SECOND, &alone.presence), 5);
    assert_eq!(alone.lease.may_run(28 * SECOND, &alone.presence), 0);
}

#[test]
fn absurd_version_is_not_written() {
    assert_eq!(Alone::new().step(0, i64::MAX, 0, 9), None);
}
