//! Attribution of waits to the groups that had the core meanwhile. A core keeps its last slices on
//! a timeline. A group that gets the core walks the timeline back to the time at which it became
//! ready. The time that other groups had since then is its wait for them.
//!
//! ```text
//!          oltp is ready                    oltp's slice
//!               ▼                               ▼
//!   ──── olap ──────┼─ control ─┼──── olap ─────┼────▶ time
//!               └30─┴─── 5 ─────┴────── 50 ─────┘         oltp: 80 µs for olap, 5 µs for control
//! ```
//!
//! Waits are wall time: a slice counts from when the core was given to when it came back, whatever
//! the kernel did meanwhile. Adjacent slices of one group are one span, so a walk takes about as
//! many steps as groups had a slice since.
//!
//! *Exact or sampled.* Every group that waited during a span visits it. While at most [`EXACT_MAX`]
//! groups are ready at once, all of them walk the timeline. With more, a group that gets the core
//! does so with probability `EXACT_MAX / ready`, and counts `ready / EXACT_MAX` times the result.
//! That is right on average, and keeps the cost of a slice at `EXACT_MAX` steps.
//!
//! *Bounded.* A core remembers [`SPANS`] spans. If a wait began before, the remembered part stands
//! for all of it. Such long waits are those of groups with few shares, whose neighbours do much the
//! same all the time. Each group counts waits for [`TARGETS`] other groups on a core. They are the
//! first ones, until a more frequent group evicts the one with the least wait. The rest are
//! "others", as are groups that have been dropped when waits are read.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::counters::count;
use crate::group::NO_GROUP;

/// Number of groups ready at once up to which every wait is counted.
const EXACT_MAX: u32 = 3;
/// Number of spans that a core remembers; a power of two.
const SPANS: usize = 256;
/// Number of groups that a group counts waits for on one core: their ids fill a cache line.
const TARGETS: usize = 16;
/// Evict the smallest entry on one miss in `EVICT_EVERY`. An eviction costs more than walking the
/// whole timeline.
const EVICT_EVERY: u32 = 16;

/// Weight of a wait that is counted once.
const WEIGHT_ONE: u64 = 1 << 10;

/// Returns a wait scaled by its weight, ns.
pub(crate) fn weighted(ns: u64, weight: u64) -> u64 {
    ns.saturating_mul(weight) / WEIGHT_ONE
}

/// Time in which one group had the core, from the end of the span before.
#[derive(Clone, Copy)]
struct Span {
    until_ns: u64,
    group: u32,
}

/// Recent spans of a core.
pub(crate) struct Timeline {
    spans: Box<[Span; SPANS]>,
    /// Index of the last span, before the modulo.
    last: usize,
    random: u32,
}

impl Timeline {
    pub(crate) fn new() -> Timeline {
        let none = Span { until_ns: 0, group: NO_GROUP };
        Timeline { spans: Box::new([none; SPANS]), last: 0, random: 0x9e37_79b9 }
    }

    /// Records that the group had the core until `until_ns`.
    pub(crate) fn record_slice(&mut self, group: u32, until_ns: u64) {
        if self.span(0).group != group {
            self.last = self.last.wrapping_add(1);
        }
        self.spans[self.last % SPANS] = Span { until_ns, group };
    }

    /// Returns the end of the last span, ns.
    pub(crate) fn now_ns(&self) -> u64 {
        self.span(0).until_ns
    }

    /// Returns the weight of a walk from `now_ns` back to `since_ns`, in [`WEIGHT_ONE`]ths, while
    /// `ready` groups are ready. `None`: the walk is not sampled.
    pub(crate) fn weight(&mut self, ready: u32, since_ns: u64, now_ns: u64) -> Option<u64> {
        let mut weight = WEIGHT_ONE;
        if ready > EXACT_MAX {
            if !self.is_sampled(ready) {
                return None;
            }
            weight = WEIGHT_ONE * u64::from(ready) / u64::from(EXACT_MAX);
        }
        let oldest_ns = self.span(SPANS - 1).until_ns;
        if since_ns < oldest_ns && oldest_ns < now_ns {
            weight = (weight as f64 * (now_ns - since_ns) as f64 / (now_ns - oldest_ns) as f64) as u64;
        }
        Some(weight)
    }

    /// Returns true in `EXACT_MAX` of `ready` cases, at random, so that the sample does not fall in
    /// step with groups that alternate.
    fn is_sampled(&mut self, ready: u32) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        (u64::from(self.random) * u64::from(ready)) >> 32 < u64::from(EXACT_MAX)
    }

    /// Calls `found` with each group that had the core since `since_ns`, as far as remembered,
    /// latest first, and with the time that it had, ns.
    pub(crate) fn walk_back(&self, since_ns: u64, mut found: impl FnMut(u32, u64)) {
        for back in 0..SPANS - 1 {
            let (span, before) = (self.span(back), self.span(back + 1));
            let from_ns = before.until_ns.max(since_ns);
            if span.until_ns > from_ns {
                found(span.group, span.until_ns - from_ns);
            }
            if before.until_ns <= since_ns {
                return;
            }
        }
    }

    fn span(&self, back: usize) -> Span {
        self.spans[self.last.wrapping_sub(back) % SPANS]
    }
}

/// Waits of one group on one core. Written by the core's fast lane, allocated at the first wait.
#[derive(Default)]
pub(crate) struct Waits(OnceLock<Box<WaitTable>>);

struct WaitTable {
    groups: [AtomicU32; TARGETS],
    /// Parallel to `groups`.
    waited_ns: [AtomicU64; TARGETS],
    others_ns: AtomicU64,
    /// Number of entries of `groups` in use.
    used: AtomicU32,
    misses: AtomicU32,
}

impl Waits {
    pub(crate) fn add(&self, group: u32, ns: u64) {
        self.0.get_or_init(Box::default).add(group, ns);
    }

    /// Clears the table for the next group in the slot.
    pub(crate) fn reset(&self) {
        self.0.get().into_iter().for_each(|table| table.clear());
    }

    /// Returns each group and its time, ns; [`NO_GROUP`] for others. Read while the group works,
    /// the times are not of one instant.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.0.get().into_iter().flat_map(|table| table.all()).filter(|&(_, ns)| ns > 0)
    }
}

impl Default for WaitTable {
    fn default() -> WaitTable {
        WaitTable {
            groups: [const { AtomicU32::new(NO_GROUP) }; TARGETS],
            waited_ns: [const { AtomicU64::new(0) }; TARGETS],
            others_ns: AtomicU64::new(0),
            used: AtomicU32::new(0),
            misses: AtomicU32::new(0),
        }
    }
}

impl WaitTable {
    fn add(&self, group: u32, ns: u64) {
        let known = || self.groups.iter().position(|known| known.load(Relaxed) == group);
        match if group == NO_GROUP { None } else { known().or_else(|| self.entry_for(group)) } {
            Some(at) => count(&self.waited_ns[at], ns),
            None => count(&self.others_ns, ns),
        }
    }

    /// Returns a free entry, or at an eviction the entry with the least wait, which is added to the
    /// others.
    fn entry_for(&self, group: u32) -> Option<usize> {
        let used = self.used.load(Relaxed) as usize;
        let misses = self.misses.load(Relaxed).wrapping_add(1);
        let at = if used < TARGETS {
            self.used.store(used as u32 + 1, Relaxed);
            used
        } else {
            self.misses.store(misses, Relaxed);
            let least = || (0..TARGETS).min_by_key(|&at| self.waited_ns[at].load(Relaxed));
            misses.is_multiple_of(EVICT_EVERY).then(least)??
        };
        count(&self.others_ns, self.waited_ns[at].load(Relaxed));
        self.waited_ns[at].store(0, Relaxed);
        self.groups[at].store(group, Relaxed);
        Some(at)
    }

    fn clear(&self) {
        self.groups.iter().for_each(|group| group.store(NO_GROUP, Relaxed));
        self.waited_ns.iter().chain([&self.others_ns]).for_each(|ns| ns.store(0, Relaxed));
        self.used.store(0, Relaxed);
    }

    fn all(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let known = self.groups.iter().zip(&self.waited_ns);
        let others = [(NO_GROUP, self.others_ns.load(Relaxed))];
        known.map(|(group, ns)| (group.load(Relaxed), ns.load(Relaxed))).chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(timeline: &Timeline, since_ns: u64) -> Vec<(u32, u64)> {
        let mut all = Vec::new();
        timeline.walk_back(since_ns, |group, ns| all.push((group, ns)));
        all
    }

    #[test]
    fn walk_finds_groups_that_had_the_core_since() {
        let mut timeline = Timeline::new();
        for (group, until_ns) in [(1, 100), (1, 150), (2, 155), (1, 205)] {
            timeline.record_slice(group, until_ns);
        }
        assert_eq!(found(&timeline, 120), [(1, 50), (2, 5), (1, 30)]);
        assert_eq!(found(&timeline, 150), [(1, 50), (2, 5)]);
        assert_eq!(found(&timeline, 204), [(1, 1)]);
        assert_eq!(found(&timeline, 205), []);
        assert_eq!(found(&timeline, 300), []);
    }

    #[test]
    fn remembered_spans_stand_for_forgotten_ones() {
        let mut timeline = Timeline::new();
        (1..=1000_u64).for_each(|n| timeline.record_slice(n as u32 % 2, n * 10));
        let sum = |since_ns: u64| found(&timeline, since_ns).iter().map(|&(_, ns)| ns).sum::<u64>();
        let remembered_ns = 10 * (SPANS as u64 - 1);
        assert_eq!((sum(9_000), sum(0)), (1_000, remembered_ns));
        assert_eq!(timeline.weight(2, 9_000, 10_000), Some(WEIGHT_ONE));
        assert_eq!(timeline.weight(2, 0, 10_000), Some(WEIGHT_ONE * 10_000 / remembered_ns));
    }

    /// More groups are ready than are counted exactly, and they alternate strictly. Each waits
    /// equally long for each of the others, within 5 %.
    #[test]
    fn sampled_waits_are_right_on_average() {
        const GROUPS: u64 = 12;
        let mut timeline = Timeline::new();
        let waits: Vec<Waits> = (0..GROUPS).map(|_| Waits::default()).collect();
        for slice in 0..GROUPS * 20_000 {
            let (group, now_ns) = (slice % GROUPS, slice * 100);
            let since_ns = now_ns.saturating_sub((GROUPS - 1) * 100);
            if let Some(weight) = timeline.weight(GROUPS as u32, since_ns, now_ns) {
                timeline
                    .walk_back(since_ns, |other, ns| waits[group as usize].add(other, weighted(ns, weight)));
            }
            timeline.record_slice(group as u32, now_ns + 100);
        }
        for waits in &waits {
            let all: Vec<_> = waits.all().filter(|&(group, _)| group != NO_GROUP).collect();
            assert_eq!(all.len() as u64, GROUPS - 1);
            assert!(all.iter().all(|&(_, ns)| ns.abs_diff(2_000_000) < 100_000), "{all:?}");
        }
    }

    #[test]
    fn frequent_group_evicts_the_least_and_no_time_is_lost() {
        let waits = Waits::default();
        (0..TARGETS as u32).for_each(|group| waits.add(group, 1_000 + u64::from(group)));
        (0..EVICT_EVERY).for_each(|_| waits.add(99, 5));
        waits.add(7, 1);
        let all: Vec<_> = waits.all().collect();
        let others = 1_000 + 5 * u64::from(EVICT_EVERY - 1);
        assert!(all.contains(&(99, 5)) && all.contains(&(7, 1_008)), "{all:?}");
        assert!(all.contains(&(NO_GROUP, others)) && all.len() == TARGETS + 1, "{all:?}");
        waits.reset();
        assert_eq!(waits.all().count(), 0);
    }
}
