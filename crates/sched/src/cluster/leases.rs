//! Leases of `max_concurrency`. Each front holds a part of the level's limit in a row of the
//! cluster, and admits at most that many statements at once.
//!
//! ```text
//!   leases   level 'etl' │ version 7 │ { front A: 3, front B: 5 }     changed IF version = 7
//!   fronts   front A │ row with a TTL of 10 s │ demands                written every second
//!
//!   sent   renewed                 8 s: A stops                 10 s: its row ends, B removes A
//!    ├────────●──────────────────────┤- - - - - - - - - - - - - - -┤
//!    └ A admits, by its own clock ───┘  clock rates, whole seconds, skew of nodes
//! ```
//!
//! Every second a front does, in this order:
//!
//! 1. It writes its row in `fronts` at QUORUM. On success it calls [`Presence::renewed`] with the
//!    time before the request.
//! 2. It reads `leases` at QUORUM, and after that `fronts` at QUORUM. The order is essential, see
//!    below. The reads may be stale: the condition of the write detects it.
//! 3. [`Lease::step`] returns a conditional write if the holders should change. One write of a
//!    level is in flight at a time, at most one a second.
//! 4. [`Lease::outcome`] gets its result. A lost answer is no error: the effect may have happened,
//!    or may still happen, and the next applied write excludes it.
//!
//! **Promise.** Statements that fronts have admitted under leases, and that have not ended, are at
//! most the limit. A front that is removed takes its running statements out of this count: at most
//! its lease, admitted before it stopped, and each ends within its own time limit. So the caller
//! checks the time limit between admission and sending: the process may have been stopped there. A
//! node may work on after a time limit. That work has no slot, here as without fronts.
//!
//! **Lowered limit.** Running statements keep their places until they end. Once each front has made
//! a step with the new limit, and has no older write in flight, no statement is admitted above it.
//! Until then the old limit holds.
//!
//! **Proof.**
//! 1. *Holders have the places.* A front admits at most the least count that its entry may have,
//!    for every order of effects: it lowers its bound before it sends a lower entry, and raises it
//!    after a higher entry was applied. An applied write proves that no earlier write of this front
//!    can take effect any more: versions only rise. A write that raises an entry keeps the sum of
//!    all within the limit.
//! 2. *A front that may admit is not removed.* A front may admit within an *epoch*: a time without
//!    a gap in which it was renewed, by an entry that it wrote in this epoch. Its row exists all
//!    that time. Suppose B removes A on version n. B read n, and then found no row of A: outside of
//!    A's epoch. If the epoch was over, A does not admit. If it had yet to begin, the write of A in
//!    that epoch made the version higher than n, and that of B is not applied, or it comes after
//!    B's. With the reads in the other order, B could remove an entry that is newer than its
//!    evidence.
//!
//! **Assumptions.** The 2 s between [`RENEWED_FOR_NS`] and [`ROW_TTL_NS`] cover 1 s that Cassandra
//! may cut off a TTL (it counts whole seconds), 80 ms of a clock that is 1 % slow, and 0.9 s of
//! difference between clocks of nodes. The clock of a front counts the time of a suspended machine.
//! Conditional writes are SERIAL, not LOCAL_SERIAL. A front that ends has no statements and admits
//! none before it deletes its row in `fronts`. A [`FrontId`] is new at each start of a front. Rows
//! of `leases` are never deleted: versions of a new row could repeat.

/// Number of a front, new at each start: a process that is taken for dead must not share it.
pub type FrontId = u128;

/// Time after which a front without a renewal stops admitting, counted from before the request of
/// the last successful renewal, ns.
pub const RENEWED_FOR_NS: u64 = 8_000_000_000;
/// Time to live of a row in `fronts`, ns.
pub const ROW_TTL_NS: u64 = 10_000_000_000;
const _: () = assert!(RENEWED_FOR_NS + RENEWED_FOR_NS / 100 + 1_900_000_000 < ROW_TTL_NS);
/// Least time between writes of one front to the row of one level, ns.
const WRITE_EVERY_NS: u64 = 1_000_000_000;
/// A front without demand counts as if it wanted this part of its even part, so that its first
/// statements need no write. All idle fronts together hold at most 1/8 of the limit.
const IDLE_DIVISOR: u32 = 8;

/// Time in which a front may use its leases. One serves all levels.
#[derive(Clone, Copy, Default, Debug)]
pub struct Presence {
    until_ns: u64,
    epoch: u64,
}

impl Presence {
    /// Notes a successful write of the front's row, whose request was sent at `sent_ns`. Both times
    /// are of the front's monotonic clock.
    pub fn renewed(&mut self, sent_ns: u64, now_ns: u64) {
        if self.epoch(now_ns).is_none() {
            self.epoch += 1;
        }
        self.until_ns = self.until_ns.max(sent_ns.saturating_add(RENEWED_FOR_NS));
    }

    /// Returns the end of the time in which the front may use its leases.
    #[must_use]
    pub fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// Returns the number of the current epoch. `None`: the front must not admit by leases.
    fn epoch(&self, now_ns: u64) -> Option<u64> {
        (now_ns < self.until_ns).then_some(self.epoch)
    }
}

/// Entry of a front in the row of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The front.
    pub front: FrontId,
    /// Number of statements that it may admit at once.
    pub count: u32,
}

/// Row of a level, as read.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRow<'a> {
    /// Its version; 0 for no row.
    pub version: i64,
    /// Its entries, in any order.
    pub holders: &'a [Holder],
}

/// Demand of a front, from its row in `fronts`.
#[derive(Clone, Copy, Debug)]
pub struct FrontDemand {
    /// The front.
    pub front: FrontId,
    /// Its running and waiting statements of the level, as last published.
    pub demand: u32,
}

/// State of this front for a step.
#[derive(Clone, Copy, Debug)]
pub struct LeaseInput {
    /// `max_concurrency` of the level, as this front last read it.
    pub limit: u32,
    /// Statements that run here, also those that were admitted under an earlier lease.
    pub running: u32,
    /// Running and waiting statements here.
    pub demand: u32,
    /// Number of the current turn: time of day ÷ 10 s. Fronts that cannot have equal parts change
    /// places with it. Only fairness depends on it.
    pub turn: u64,
}

/// Conditional write: `SET version = expected + 1, holders = … IF version = expected`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseWrite {
    /// Version that the row must have; 0 for no row (`IF version = null`).
    pub expected: i64,
    /// All entries of the new row, at most one a live front.
    pub holders: Vec<Holder>,
}

/// Outcome of a conditional write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOutcome {
    /// The node answered that it was applied.
    Applied,
    /// The node answered that the version was another one.
    Refused,
    /// An error or no answer. The write may have been applied, or may yet be.
    Unknown,
}

/// Lease of this front in one level. The head of this file describes the rules.
#[derive(Debug)]
pub struct Lease {
    front: FrontId,
    /// Most statements that the front may run at once to admit another, in `epoch`.
    allowed: u32,
    epoch: u64,
    /// Version after the last applied write of this front.
    version: i64,
    in_flight: Option<Grant>,
    next_write_ns: u64,
}

/// Result of a write once it is applied.
#[derive(Clone, Copy, Debug)]
struct Grant {
    allowed: u32,
    /// Epoch in which the write was decided. In another one it gives nothing.
    epoch: u64,
    version: i64,
}

impl Lease {
    /// Creates the lease of a front, which admits nothing yet.
    #[must_use]
    pub fn new(front: FrontId) -> Lease {
        Lease { front, allowed: 0, epoch: 0, version: 0, in_flight: None, next_write_ns: 0 }
    }

    /// Returns the number of statements of the level that may run here. Another one may be admitted
    /// while fewer run.
    #[must_use]
    pub fn may_run(&self, now_ns: u64, presence: &Presence) -> u32 {
        if presence.epoch(now_ns) == Some(self.epoch) { self.allowed } else { 0 }
    }

    /// Decides on what was read: first `row`, then `fronts`, sorted by front. Returns a write to
    /// send, whose outcome is due to [`Lease::outcome`] before the next one.
    ///
    /// Costs O(fronts × log(fronts × limit)).
    ///
    /// # Panics
    ///
    /// If `fronts` is not sorted.
    pub fn step(
        &mut self,
        now_ns: u64,
        presence: &Presence,
        input: LeaseInput,
        row: LeaseRow<'_>,
        fronts: &[FrontDemand],
    ) -> Option<LeaseWrite> {
        assert!(fronts.is_sorted_by_key(|front| front.front), "fronts are sorted");
        let epoch = presence.epoch(now_ns)?;
        if self.epoch != epoch {
            (self.epoch, self.allowed) = (epoch, 0);
        }
        let position = |front: FrontId| fronts.binary_search_by_key(&front, |other| other.front).ok();
        // Without its own row, or with a row older than its own write, the reads are of the past.
        let own = position(self.front).filter(|_| row.version >= self.version)?;
        let mut counts = vec![0; fronts.len()];
        // Entries of absent fronts end with this write. They stay until a front lacks places.
        for holder in row.holders {
            if let Some(at) = position(holder.front) {
                counts[at] = holder.count;
            }
        }
        let before = counts[own];
        let others = counts.iter().map(|&count| u64::from(count)).sum::<u64>() - u64::from(before);
        let free = u64::from(input.limit).saturating_sub(others) as u32;
        let goal = goal(own, input, &counts, fronts).min(free);
        // The entry follows once statements have ended.
        self.allowed = self.allowed.min(goal);
        let count = goal.max(input.running.min(before));
        let is_done = count == before && goal == self.allowed;
        if is_done || self.in_flight.is_some() || now_ns < self.next_write_ns {
            return None;
        }
        self.in_flight = Some(Grant { allowed: goal, epoch, version: row.version.checked_add(1)? });
        self.next_write_ns = now_ns.saturating_add(WRITE_EVERY_NS);
        counts[own] = count;
        let entries = fronts.iter().zip(counts).map(|(front, count)| Holder { front: front.front, count });
        let holders = entries.filter(|holder| holder.count > 0).collect();
        Some(LeaseWrite { expected: row.version, holders })
    }

    /// Notes the outcome of the write that [`Lease::step`] returned last.
    pub fn outcome(&mut self, outcome: WriteOutcome) {
        let Some(grant) = self.in_flight.take() else { return };
        if outcome == WriteOutcome::Applied {
            (self.allowed, self.epoch, self.version) = (grant.allowed, grant.epoch, grant.version);
        }
    }
}

/// Returns the count that this front should have. It is its present one as long as no front lacks
/// places, so that varying demands cause no writes.
fn goal(own: usize, input: LeaseInput, counts: &[u32], fronts: &[FrontDemand]) -> u32 {
    let idle = input.limit / IDLE_DIVISOR / fronts.len() as u32;
    let mut demands: Vec<u32> = fronts.iter().map(|front| front.demand.max(idle)).collect();
    demands[own] = input.demand.max(idle);
    let parts = divide(input.limit, &demands, input.turn);
    let lacks = |at: usize| counts[at] < parts[at].min(demands[at]);
    let (before, part) = (counts[own], parts[own]);
    let gives = || (0..fronts.len()).any(|at| at != own && lacks(at));
    if (part > before && lacks(own)) || (part < before && gives()) { part } else { before }
}

/// Divides the limit by max-min fairness, each front at most its demand. What no demand claims is
/// spread evenly. Fronts with a place more than others change with `turn`.
fn divide(limit: u32, demands: &[u32], turn: u64) -> Vec<u32> {
    let sum = |most: u32| demands.iter().map(|&demand| u64::from(demand.min(most))).sum::<u64>();
    let (limit, count) = (u64::from(limit), demands.len() as u64);
    let claimed = sum(u32::MAX);
    if claimed <= limit {
        let spare = |at: u64| (limit - claimed) / count + u64::from(at < (limit - claimed) % count);
        return (0..).zip(demands).map(|(at, demand)| demand + spare(at) as u32).collect();
    }
    // The highest level of water that the limit fills: below `above`, which it does not.
    let (mut level, mut above) = (0, u32::MAX);
    while above - level > 1 {
        let middle = level + (above - level) / 2;
        if sum(middle) <= limit { level = middle } else { above = middle }
    }
    let rest = limit - sum(level);
    let wanting = demands.iter().filter(|&&demand| demand > level).count() as u64;
    let mut place = turn % wanting;
    let part = |&demand: &u32| {
        if demand <= level {
            return demand;
        }
        place += 1;
        level + u32::from((place - 1) % wanting < rest)
    };
    demands.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(limit: u32, demands: &[u32], turn: u64, expected: &[u32]) {
        assert_eq!(divide(limit, demands, turn), expected, "{limit} among {demands:?} in turn {turn}");
    }

    #[test]
    fn limit_is_divided_by_demand_and_in_turn() {
        check(10, &[2, 90, 90], 0, &[2, 4, 4]);
        check(10, &[1, 0, 2], 0, &[4, 2, 4]);
        check(10, &[0, 0, 0], 5, &[4, 3, 3]);
        check(10, &[90, 90, 90], 0, &[4, 3, 3]);
        check(10, &[90, 90, 90], 1, &[3, 3, 4]);
        check(1, &[u32::MAX, 7], 0, &[1, 0]);
        check(1, &[u32::MAX, 7], 1, &[0, 1]);
        check(u32::MAX, &[u32::MAX, u32::MAX], 0, &[u32::MAX / 2 + 1, u32::MAX / 2]);
        check(0, &[1, 1], 0, &[0, 0]);
    }
}
