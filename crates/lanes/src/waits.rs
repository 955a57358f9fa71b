//! Whom a group waited for. A core keeps its last turns on a timeline; a group that gets its turn looks back along it to where it
//! became ready, and what others had there it waited for.
//!
//! ```text
//!          oltp is ready                    oltp's turn
//!               ▼                               ▼
//!   ──── olap ──────┼─ control ─┼──── olap ─────┼────▶ time
//!               └30─┴─── 5 ─────┴────── 50 ─────┘         oltp: 80 µs for olap, 5 µs for control
//! ```
//!
//! It is wall time: a turn counts from when the core was given to when it came back, whatever the kernel did meanwhile. Turns of
//! one group in a row are one passage, so looking back costs about as many steps as there are groups that had a turn since.
//!
//! *Exact or sampled.* Each passage is met by all who waited during it. While no more than [`EXACT_MAX`] groups are ready at once, all of
//! them look back. Of more, each that gets its turn does so with probability `EXACT_MAX / ready`, and counts `ready / EXACT_MAX` times
//! what it finds: right on average, and the cost of a turn stays that of `EXACT_MAX` steps.
//!
//! *Bounded.* A core remembers [`PASSAGES`] passages. Of a wait that began before, what is remembered stands for all of it: waits so
//! long are those of groups with few shares, whose neighbours do much the same all the time. And
//! [`RUNNERS`] groups are told apart that a group waited for on a core: the first ones, until one who comes often takes the place of the one
//! waited for least. The rest are "others", as are, for who reads it, groups that have been dropped.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::registry::{NOBODY, count};

/// Groups ready at once up to which everything is counted.
const EXACT_MAX: u32 = 3;
/// Passages that a core remembers; a power of two.
const PASSAGES: usize = 256;
/// Groups that a group waited for, on one core, that are told apart: their numbers are a cache line.
const RUNNERS: usize = 16;
/// Of so many times that others are met, one puts somebody in the place of the least: changing places costs more than a whole look back.
const CHANGE_EVERY: u32 = 16;

/// Weight of a wait that stands for itself.
const WEIGHT_ONE: u64 = 1 << 10;

/// So much of a wait, by its weight, ns.
pub(crate) fn weighted(ns: u64, weight: u64) -> u64 {
    ns.saturating_mul(weight) / WEIGHT_ONE
}

/// Somebody had the core until then, from where the passage before ended.
#[derive(Clone, Copy)]
struct Passage {
    until_ns: u64,
    group: u32,
}

/// Who had a core, lately.
pub(crate) struct Timeline {
    passages: Box<[Passage; PASSAGES]>,
    /// Index of the last one, not reduced.
    last: usize,
    random: u32,
}

impl Timeline {
    pub(crate) fn new() -> Timeline {
        let nobody = Passage { until_ns: 0, group: NOBODY };
        Timeline { passages: Box::new([nobody; PASSAGES]), last: 0, random: 0x9e37_79b9 }
    }

    /// The core was the group's until now.
    pub(crate) fn passed(&mut self, group: u32, until_ns: u64) {
        if self.passage(0).group != group {
            self.last = self.last.wrapping_add(1);
        }
        self.passages[self.last % PASSAGES] = Passage { until_ns, group };
    }

    /// The time, as far as turns have come.
    pub(crate) fn now_ns(&self) -> u64 {
        self.passage(0).until_ns
    }

    /// What a look back from now to then counts, in [`WEIGHT_ONE`]ths, while so many are ready; none if it is left out.
    pub(crate) fn weight(&mut self, ready: u32, since_ns: u64, now_ns: u64) -> Option<u64> {
        let mut weight = WEIGHT_ONE;
        if ready > EXACT_MAX {
            if !self.draws(ready) {
                return None;
            }
            weight = WEIGHT_ONE * u64::from(ready) / u64::from(EXACT_MAX);
        }
        let oldest_ns = self.passage(PASSAGES - 1).until_ns;
        if since_ns < oldest_ns && oldest_ns < now_ns {
            weight = (weight as f64 * (now_ns - since_ns) as f64 / (now_ns - oldest_ns) as f64) as u64;
        }
        Some(weight)
    }

    /// True in `EXACT_MAX` of `ready` cases, at random: not to fall in step with those who take turns.
    fn draws(&mut self, ready: u32) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        (u64::from(self.random) * u64::from(ready)) >> 32 < u64::from(EXACT_MAX)
    }

    /// Who had the core since then, as far as it is remembered, latest first, and for how long, ns.
    pub(crate) fn look_back(&self, since_ns: u64, mut found: impl FnMut(u32, u64)) {
        for back in 0..PASSAGES - 1 {
            let (passage, before) = (self.passage(back), self.passage(back + 1));
            let from_ns = before.until_ns.max(since_ns);
            if passage.until_ns > from_ns {
                found(passage.group, passage.until_ns - from_ns);
            }
            if before.until_ns <= since_ns {
                return;
            }
        }
    }

    fn passage(&self, back: usize) -> Passage {
        self.passages[self.last.wrapping_sub(back) % PASSAGES]
    }
}

/// Whom one group waited for on one core. Written by the core's fast lane, made when it first waits.
#[derive(Default)]
pub(crate) struct Waits(OnceLock<Box<Table>>);

struct Table {
    groups: [AtomicU32; RUNNERS],
    /// Beside `groups`.
    waited_ns: [AtomicU64; RUNNERS],
    others_ns: AtomicU64,
    /// Places of `groups` in use.
    used: AtomicU32,
    others_met: AtomicU32,
}

impl Waits {
    pub(crate) fn add(&self, group: u32, ns: u64) {
        self.0.get_or_init(Box::default).add(group, ns);
    }

    /// For the next group in the slot.
    pub(crate) fn reset(&self) {
        self.0.get().into_iter().for_each(|table| table.clear());
    }

    /// Each group and its time, ns; [`NOBODY`] for others. Read while it works, it is not of one instant.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.0.get().into_iter().flat_map(|table| table.all()).filter(|&(_, ns)| ns > 0)
    }
}

impl Default for Table {
    fn default() -> Table {
        Table {
            groups: [const { AtomicU32::new(NOBODY) }; RUNNERS],
            waited_ns: [const { AtomicU64::new(0) }; RUNNERS],
            others_ns: AtomicU64::new(0),
            used: AtomicU32::new(0),
            others_met: AtomicU32::new(0),
        }
    }
}

impl Table {
    fn add(&self, group: u32, ns: u64) {
        let known = || self.groups.iter().position(|known| known.load(Relaxed) == group);
        match if group == NOBODY { None } else { known().or_else(|| self.make_room(group)) } {
            Some(at) => count(&self.waited_ns[at], ns),
            None => count(&self.others_ns, ns),
        }
    }

    /// A place that is free; or now and then that of the one waited for least, who is one of the others from now on.
    fn make_room(&self, group: u32) -> Option<usize> {
        let used = self.used.load(Relaxed) as usize;
        let met = self.others_met.load(Relaxed).wrapping_add(1);
        let at = if used < RUNNERS {
            self.used.store(used as u32 + 1, Relaxed);
            used
        } else {
            self.others_met.store(met, Relaxed);
            let least = || (0..RUNNERS).min_by_key(|&at| self.waited_ns[at].load(Relaxed));
            met.is_multiple_of(CHANGE_EVERY).then(least)??
        };
        count(&self.others_ns, self.waited_ns[at].load(Relaxed));
        self.waited_ns[at].store(0, Relaxed);
        self.groups[at].store(group, Relaxed);
        Some(at)
    }

    fn clear(&self) {
        self.groups.iter().for_each(|group| group.store(NOBODY, Relaxed));
        self.waited_ns.iter().chain([&self.others_ns]).for_each(|ns| ns.store(0, Relaxed));
        self.used.store(0, Relaxed);
    }

    fn all(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let known = self.groups.iter().zip(&self.waited_ns);
        let others = [(NOBODY, self.others_ns.load(Relaxed))];
        known.map(|(group, ns)| (group.load(Relaxed), ns.load(Relaxed))).chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(timeline: &Timeline, since_ns: u64) -> Vec<(u32, u64)> {
        let mut all = Vec::new();
        timeline.look_back(since_ns, |group, ns| all.push((group, ns)));
        all
    }

    #[test]
    fn a_look_back_finds_who_had_the_core_since() {
        let mut timeline = Timeline::new();
        for (group, until_ns) in [(1, 100), (1, 150), (2, 155), (1, 205)] {
            timeline.passed(group, until_ns);
        }
        assert_eq!(found(&timeline, 120), [(1, 50), (2, 5), (1, 30)]);
        assert_eq!(found(&timeline, 150), [(1, 50), (2, 5)]);
        assert_eq!(found(&timeline, 204), [(1, 1)]);
        assert_eq!(found(&timeline, 205), []);
        assert_eq!(found(&timeline, 300), []);
    }

    #[test]
    fn what_is_remembered_stands_for_what_is_forgotten() {
        let mut timeline = Timeline::new();
        (1..=1000_u64).for_each(|n| timeline.passed(n as u32 % 2, n * 10));
        let sum = |since_ns: u64| found(&timeline, since_ns).iter().map(|&(_, ns)| ns).sum::<u64>();
        let remembered_ns = 10 * (PASSAGES as u64 - 1);
        assert_eq!((sum(9_000), sum(0)), (1_000, remembered_ns));
        assert_eq!(timeline.weight(2, 9_000, 10_000), Some(WEIGHT_ONE));
        assert_eq!(timeline.weight(2, 0, 10_000), Some(WEIGHT_ONE * 10_000 / remembered_ns));
    }

    /// With more groups ready than are counted exactly, in strict turns: each waited for each of the others as long, within 5 %.
    #[test]
    fn a_sample_is_right_on_average() {
        const GROUPS: u64 = 12;
        let mut timeline = Timeline::new();
        let waits: Vec<Waits> = (0..GROUPS).map(|_| Waits::default()).collect();
        for turn in 0..GROUPS * 20_000 {
            let (group, now_ns) = (turn % GROUPS, turn * 100);
            let since_ns = now_ns.saturating_sub((GROUPS - 1) * 100);
            if let Some(weight) = timeline.weight(GROUPS as u32, since_ns, now_ns) {
                timeline
                    .look_back(since_ns, |other, ns| waits[group as usize].add(other, weighted(ns, weight)));
            }
            timeline.passed(group as u32, now_ns + 100);
        }
        for waits in &waits {
            let all: Vec<_> = waits.all().filter(|&(group, _)| group != NOBODY).collect();
            assert_eq!(all.len() as u64, GROUPS - 1);
            assert!(all.iter().all(|&(_, ns)| ns.abs_diff(2_000_000) < 100_000), "{all:?}");
        }
    }

    #[test]
    fn the_least_makes_room_for_who_comes_often_and_nothing_is_lost() {
        let waits = Waits::default();
        (0..RUNNERS as u32).for_each(|group| waits.add(group, 1_000 + u64::from(group)));
        (0..CHANGE_EVERY).for_each(|_| waits.add(99, 5));
        waits.add(7, 1);
        let all: Vec<_> = waits.all().collect();
        let others = 1_000 + 5 * u64::from(CHANGE_EVERY - 1);
        assert!(all.contains(&(99, 5)) && all.contains(&(7, 1_008)), "{all:?}");
        assert!(all.contains(&(NOBODY, others)) && all.len() == RUNNERS + 1, "{all:?}");
        waits.reset();
        assert_eq!(waits.all().count(), 0);
    }
}
