//! Identity of a level from creation to end, across alterations: name, group, and counters per
//! core. Only the fast lane of a core writes its counters, with plain loads and stores.
//!
//! Memory: 256 bytes per level and core, and about 14 KiB more once that core has served the level.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lanes::{Group, Lanes};
use sched::control::{LimitChange, StandingQueue};

use crate::admission::LEVEL_IN_FLIGHT_MAX;
use crate::candidates::{Candidate, Candidates};
use crate::gate::{Gate, SlotUse};
use crate::histogram::{Histogram, Merged, count};
use crate::limits::{DefaultLimit, LatencyUse, LimitCell, LimitUse};
use crate::{Account, LevelMemory, LevelSpec, Memory, MemoryLimits, SlotLimits};

/// Kind of a request, for the statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Anything else.
    Other,
}

impl RequestKind {
    /// Every kind.
    pub const ALL: [RequestKind; 3] = [RequestKind::Read, RequestKind::Write, RequestKind::Other];

    /// Returns the name of the kind in the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Other => "other",
        }
    }
}

/// A service level. Holders may use it after DROP until their statements end.
pub struct Level {
    /// Number that no other level of this process has.
    id: u64,
    name: Arc<str>,
    group: Group,
    cores: Box<[OnCore]>,
    pub(crate) gate: Gate,
    /// The core that owns the wait queue.
    pub(crate) home: usize,
    memory: Arc<Memory>,
    own_memory: Arc<LevelMemory>,
    /// Statements with actions for overload, of all levels.
    candidates: Arc<Candidates>,
    /// True if the limiter bounds its statements in flight.
    is_limited: AtomicBool,
    /// Bound of its statements in flight on each core, apart from the limiter.
    in_flight_max: AtomicU32,
    /// Number of changes of its limits, by [`LimitChange`].
    limit_changes: [AtomicU64; LimitChange::ALL.len()],
    /// Recent mean queue delay, ns, with a limiter.
    queue_delay_ns: AtomicU64,
    /// True with a `latency_target`.
    has_target: AtomicBool,
    /// The last decision of the latency controller.
    latency: Mutex<Option<LatencyUse>>,
}

/// A level with its present options.
#[derive(Clone, Debug)]
pub struct LevelEntry {
    /// Identity and counters.
    pub level: Arc<Level>,
    /// Options.
    pub spec: LevelSpec,
}

/// Counters of a level on one core. Aligned to 128 bytes: the prefetcher loads cache lines in
/// pairs.
#[repr(align(128))]
#[derive(Default)]
struct OnCore {
    in_flight: AtomicU32,
    /// Admitted requests that have ended.
    ended: AtomicU64,
    /// CPU time of refusals, ns.
    refusal_ns: AtomicU64,
    /// A [`StandingQueue`] as words.
    queue: [AtomicU64; 4],
    limit: LimitCell,
    /// Part of the core that is not due to the level, in millionths. 0 before the first decision.
    not_entitled_ppm: AtomicU32,
    /// Longest time limit of the statements that arrived since the last decision, ns.
    time_limit_ns: AtomicU64,
    /// Time for which its requests were in flight at nodes of a cluster, ns.
    node_ns: AtomicU64,
    /// Its part of the windows of those nodes, in places. 0: none was divided.
    node_places: AtomicU32,
    /// Response times, with a `latency_target`.
    response: OnceLock<Box<Histogram>>,
    stats: OnceLock<Box<Stats>>,
}

struct Stats {
    service: [Histogram; 3],
    errors: [AtomicU64; 3],
    queue: Histogram,
    shed: AtomicU64,
}

/// Counters of a level, summed over all cores.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) service: [Merged; 3],
    pub(crate) errors: [u64; 3],
    pub(crate) queue: Merged,
    pub(crate) shed: u64,
    pub(crate) in_flight: u64,
}

impl Level {
    /// Creates a level in `group` on a server with `cores` cores and this query memory.
    pub(crate) fn new(name: Arc<str>, group: Group, cores: usize, memory: &Arc<Memory>) -> Level {
        let core = |_| OnCore::default();
        let home =
            name.bytes().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % cores;
        let own_memory = memory.add(&name, 1000, &MemoryLimits::NONE);
        let cores = (0..cores).map(core).collect();
        let memory = memory.clone();
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let id = NEXT_ID.fetch_add(1, Relaxed);
        Level {
            id,
            name,
            group,
            cores,
            gate: Gate::new(),
            home,
            memory,
            own_memory,
            candidates: Arc::default(),
            is_limited: AtomicBool::new(false),
            in_flight_max: AtomicU32::new(LEVEL_IN_FLIGHT_MAX),
            limit_changes: Default::default(),
            queue_delay_ns: AtomicU64::new(0),
            has_target: AtomicBool::new(false),
            latency: Mutex::new(None),
        }
    }

    /// Lets the level's statements be found among those of all levels.
    pub(crate) fn with_candidates(mut self, candidates: &Arc<Candidates>) -> Level {
        self.candidates = candidates.clone();
        self
    }

    /// Adds a running statement with a number of actions for overload.
    pub(crate) fn candidate(&self, actions: usize) -> Arc<Candidate> {
        self.candidates.add(self.id, actions)
    }

    /// Returns the number of refused requests.
    pub(crate) fn shed(&self) -> u64 {
        let stats = self.cores.iter().filter_map(|core| core.stats.get());
        stats.map(|stats| stats.shed.load(Relaxed)).sum()
    }

    /// Returns a number that no other level of this process has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the name of the level.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the group of the level in the lanes.
    #[must_use]
    pub fn group(&self) -> Group {
        self.group
    }

    /// Counts a finished request: its service time without queues, and its time in queues. Call it
    /// on the fast lane of `core` only.
    pub fn record(&self, core: usize, kind: RequestKind, service_ns: u64, queue_ns: u64, failed: bool) {
        let stats = self.stats(core);
        stats.service[kind as usize].record(service_ns);
        stats.queue.record(queue_ns);
        if self.has_target.load(Relaxed) {
            let response = self.cores[core].response.get_or_init(|| Box::new(Histogram::new()));
            response.record(service_ns.saturating_add(queue_ns));
        }
        if failed {
            count(&stats.errors[kind as usize], 1);
        }
    }

    /// Counts a refused request. Call it on the fast lane of `core` only.
    pub(crate) fn record_shed(&self, core: usize) {
        count(&self.stats(core).shed, 1);
    }

    /// Returns the number of admitted requests on `core` that have not ended.
    pub(crate) fn in_flight(&self, core: usize) -> u32 {
        self.cores[core].in_flight.load(Relaxed)
    }

    /// Sets the number of requests in flight. Call it on the fast lane of `core` only.
    pub(crate) fn set_in_flight(&self, core: usize, in_flight: u32) {
        self.cores[core].in_flight.store(in_flight, Relaxed);
    }

    /// Counts the end of an admitted request. Call it on the fast lane of `core` only.
    pub(crate) fn end(&self, core: usize) {
        let on_core = &self.cores[core];
        on_core.in_flight.store(on_core.in_flight.load(Relaxed) - 1, Relaxed);
        count(&on_core.ended, 1);
    }

    /// Returns the number of admitted requests that have ended on `core`.
    pub(crate) fn ended(&self, core: usize) -> u64 {
        self.cores[core].ended.load(Relaxed)
    }

    /// Adds the CPU time of a refusal. Call it on the fast lane of `core` only.
    pub fn add_refusal_ns(&self, core: usize, cpu_ns: u64) {
        count(&self.cores[core].refusal_ns, cpu_ns);
    }

    /// Returns the CPU time of refusals on `core`, ns.
    pub(crate) fn refusal_ns(&self, core: usize) -> u64 {
        self.cores[core].refusal_ns.load(Relaxed)
    }

    /// Returns true if the queue of the level on `core` stands: see [`StandingQueue::stands`]. Call
    /// it on the fast lane of `core` only.
    pub(crate) fn queue_stands(&self, core: usize, now_ns: u64, age_ns: u64, late_ns: u64) -> bool {
        let words = &self.cores[core].queue;
        let mut queue = StandingQueue::from_words(words.each_ref().map(|word| word.load(Relaxed)));
        let stands = queue.stands(now_ns, age_ns, late_ns);
        words.iter().zip(queue.to_words()).for_each(|(word, value)| word.store(value, Relaxed));
        stands
    }

    /// Returns the limit of the level on `core`.
    pub(crate) fn limit(&self, core: usize) -> &LimitCell {
        &self.cores[core].limit
    }

    /// Returns true if the limiter bounds its statements in flight.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.is_limited.load(Relaxed)
    }

    /// Returns the bound of its statements in flight on each core, apart from the limiter.
    pub(crate) fn in_flight_max(&self) -> u32 {
        self.in_flight_max.load(Relaxed)
    }

    /// Returns the part of `core` that is due to the level, in millionths: all of it before the
    /// first decision.
    pub(crate) fn entitlement_ppm(&self, core: usize) -> u32 {
        1_000_000_u32.saturating_sub(self.cores[core].not_entitled_ppm.load(Relaxed))
    }

    pub(crate) fn set_entitlement_ppm(&self, core: usize, ppm: u32) {
        self.cores[core].not_entitled_ppm.store(1_000_000_u32.saturating_sub(ppm), Relaxed);
    }

    /// Records the time limit of an arriving statement. Call it on the fast lane of `core` only.
    pub(crate) fn note_time_limit_ns(&self, core: usize, ns: u64) {
        let longest_ns = &self.cores[core].time_limit_ns;
        if ns > longest_ns.load(Relaxed) {
            longest_ns.store(ns, Relaxed);
        }
    }

    /// Returns the longest time limit of the statements that arrived on all cores since the last
    /// call, ns. 0: none arrived.
    pub(crate) fn take_time_limit_ns(&self) -> u64 {
        self.cores.iter().map(|core| core.time_limit_ns.swap(0, Relaxed)).max().unwrap_or(0)
    }

    /// Sets the use of the nodes of a cluster: the time for which its requests from `core` were in
    /// flight there so far, and its part of the windows of all nodes, in places. Call it on the
    /// fast lane of `core` only.
    pub fn set_node_use(&self, core: usize, time_ns: u64, places: u32) {
        self.cores[core].node_ns.store(time_ns, Relaxed);
        self.cores[core].node_places.store(places, Relaxed);
    }

    /// Returns the time for which its requests from `core` were in flight at nodes of a cluster,
    /// ns.
    pub(crate) fn node_ns(&self, core: usize) -> u64 {
        self.cores[core].node_ns.load(Relaxed)
    }

    /// Returns its part of the windows of nodes, in places. `None`: there are none.
    pub(crate) fn node_places(&self, core: usize) -> Option<u32> {
        Some(self.cores[core].node_places.load(Relaxed)).filter(|places| *places > 0)
    }

    /// Counts a change of the limit on a core.
    pub(crate) fn count_limit_change(&self, change: LimitChange) {
        count(&self.limit_changes[change as usize], 1);
    }

    fn latency_use_mut(&self) -> MutexGuard<'_, Option<LatencyUse>> {
        self.latency.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last decision of the latency controller. `None`: there is no target, or no
    /// decision yet.
    #[must_use]
    pub fn latency_use(&self) -> Option<LatencyUse> {
        *self.latency_use_mut()
    }

    pub(crate) fn set_latency_use(&self, latency: LatencyUse) {
        *self.latency_use_mut() = Some(latency);
    }

    /// Returns the present shares: the configured ones, unless a latency target has moved them.
    #[must_use]
    pub fn shares_now(&self, spec: &LevelSpec) -> u32 {
        self.latency_use().map_or(spec.shares.into(), |latency| latency.shares)
    }

    /// Returns the response times of all cores.
    pub(crate) fn response(&self) -> Merged {
        let mut merged = Merged::default();
        self.cores.iter().filter_map(|core| core.response.get()).for_each(|response| merged.add(response));
        merged
    }

    pub(crate) fn set_queue_delay_ns(&self, ns: u64) {
        self.queue_delay_ns.store(ns, Relaxed);
    }

    /// Returns the present limit. `None`: the level has no limiter, or it has not decided yet.
    #[must_use]
    pub fn limit_use(&self) -> Option<LimitUse> {
        let limits: Vec<_> = self.cores.iter().filter_map(|core| core.limit.get()).collect();
        let most = limits.iter().max_by_key(|limit| limit.target_ns)?;
        Some(LimitUse {
            statements: limits.iter().map(|limit| u64::from(limit.statements)).sum(),
            target_ns: most.target_ns,
            work_ns: most.work_ns,
            queue_delay_ns: self.queue_delay_ns.load(Relaxed),
        })
    }

    /// Returns the present limit on each core, by its number, and the changes so far.
    pub(crate) fn limit_of_cores(&self) -> (Vec<(usize, u32)>, [u64; LimitChange::ALL.len()]) {
        let limits = self.cores.iter().enumerate();
        let limits = limits.filter_map(|(core, of)| Some((core, of.limit.get()?.statements))).collect();
        (limits, self.limit_changes.each_ref().map(|changes| changes.load(Relaxed)))
    }

    /// Applies the options for slots and memory, also to running and waiting statements. `default`
    /// is the limit of levels without `max_concurrency`.
    pub(crate) fn set(self: &Arc<Self>, lanes: &Lanes, spec: &LevelSpec, default: DefaultLimit) {
        self.memory.alter(&self.own_memory, spec.shares, &spec.memory);
        self.has_target.store(spec.latency.target.is_some(), Relaxed);
        // Altering the group has set the configured shares.
        *self.latency_use_mut() = None;
        self.set_limit(spec, default);
        self.set_slots(lanes, &spec.slots);
    }

    /// Applies the limit of statements in flight.
    pub(crate) fn set_limit(&self, spec: &LevelSpec, default: DefaultLimit) {
        let own = spec.slots.is_auto || spec.slots.max_concurrency.is_some();
        let default = if own { DefaultLimit::Off } else { default };
        let is_limited = spec.slots.is_auto || default == DefaultLimit::Auto;
        self.is_limited.store(is_limited, Relaxed);
        if !is_limited {
            self.cores.iter().for_each(|core| core.limit.clear());
        }
        let max = match default {
            DefaultLimit::Statements(max) => max.clamp(1, LEVEL_IN_FLIGHT_MAX),
            DefaultLimit::Off | DefaultLimit::Auto => LEVEL_IN_FLIGHT_MAX,
        };
        self.in_flight_max.store(max, Relaxed);
    }

    /// Retires a dropped level: admits all waiting statements. Memory of running statements is
    /// counted until they end.
    pub(crate) fn retire(self: &Arc<Self>, lanes: &Lanes) {
        self.memory.remove(&self.own_memory);
        self.set_slots(lanes, &SlotLimits::NONE);
    }

    /// Creates the memory account of a statement.
    #[must_use]
    pub fn account(&self) -> Account {
        self.memory.account(&self.own_memory)
    }

    /// Returns the query memory of the level.
    #[must_use]
    pub fn memory(&self) -> &Arc<LevelMemory> {
        &self.own_memory
    }

    /// Returns the use of the slots. Only levels with a `max_concurrency` use them.
    #[must_use]
    pub fn slot_use(&self) -> SlotUse {
        self.gate.slot_use()
    }

    /// Returns the mean service time on `core` in ns. 0: it served nothing.
    pub(crate) fn mean_service_ns(&self, core: usize) -> u64 {
        mean_ns(&self.cores[core..=core])
    }

    /// Returns the mean service time on all cores in ns. 0: no core served anything.
    pub(crate) fn mean_service_of_all_ns(&self) -> u64 {
        mean_ns(&self.cores)
    }

    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for core in &self.cores {
            totals.in_flight += u64::from(core.in_flight.load(Relaxed));
            let Some(stats) = core.stats.get() else { continue };
            for kind in 0..RequestKind::ALL.len() {
                totals.service[kind].add(&stats.service[kind]);
                totals.errors[kind] += stats.errors[kind].load(Relaxed);
            }
            totals.queue.add(&stats.queue);
            totals.shed += stats.shed.load(Relaxed);
        }
        totals
    }

    /// Allocates the statistics on first use. Only the writing thread calls this, so that no caller
    /// waits.
    fn stats(&self, core: usize) -> &Stats {
        self.cores[core].stats.get_or_init(|| {
            Box::new(Stats {
                service: std::array::from_fn(|_| Histogram::new()),
                errors: std::array::from_fn(|_| AtomicU64::new(0)),
                queue: Histogram::new(),
                shed: AtomicU64::new(0),
            })
        })
    }
}

fn mean_ns(cores: &[OnCore]) -> u64 {
    let stats = cores.iter().filter_map(|core| core.stats.get());
    let sums = stats.flat_map(|stats| stats.service.iter().map(Histogram::sum_and_count));
    let (sum_ns, count) =
        sums.fold((0, 0), |all: (u64, u64), one| (all.0.wrapping_add(one.0), all.1 + one.1));
    sum_ns.checked_div(count).unwrap_or(0)
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Level({}, {:?})", self.name, self.group)
    }
}
