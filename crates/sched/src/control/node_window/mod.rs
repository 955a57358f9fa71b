//! Limiter of the window of a node: the number of requests that may be in flight at it. A window
//! that is too small wastes the node. One that is too large makes requests wait in the node, in an
//! order that no service level decides.
//!
//! 1. *Base.* The time of a class of requests at half of the window. Every 30 s, a window that is
//!    the limit is halved for 0.6 s. A window at or below that of the bases measures as well:
//!    longer times than the bases then mean that the node became slower.
//! 2. *Ratio.* `r` is the mean of base ÷ time over the answers, weighted with the root of the base.
//!    Means are geometric, so that the requests which a pause of the node meets hardly count.
//! 3. *Step.* If the window was the limit for half of the time, `W ← 0.8 W + 0.2 (r W + √W)`. At
//!    rest `(1 − r) W = √W` requests wait in the node (FAST TCP, Wei et al., 2006; PARDA, FAST '09,
//!    equation 2). A step is within 0.8 and 1.1 by itself from a window of 4 on.
//! 4. *Slow start.* The window begins at its lowest value and doubles while r is at least 0.7, the
//!    middle between 1 (the node is idle) and ½ (it is full). The times at a window are the bases
//!    of the next one.
//! 5. *Overload.* An error Overloaded, or over 1 % of timeouts, makes it `W ← 0.7 W`, and it rests
//!    for a second.
//!
//! ```text
//!   requests that wait outside ──▶ W places ──▶ node ──▶ answers ──▶ NodeSample, each core
//!                                     ▲                                │ take
//!                                     └──── tick, every 100 ms ── NodeWindow, one a front
//!                                                 publish, adopt ◀──▶ other fronts, every second
//! ```
//!
//! Fronts share a window, so they must halve it together: a single one would still see the load of
//! the others. The time of a tick is that of the day, by which fronts find the same moment. Clocks
//! may differ by 0.3 s; beyond that, windows grow from hour to hour. All else is counted in ticks:
//! a clock that stops or steps back moves only the next drain.
//!
//! Limits: r cannot distinguish a full node from one whose requests slow each other from the first
//! one on. A node without a knee gets a smaller window than it could use. Without bases, as after
//! an overload in the slow start, the window waits for the next drain.

mod bases;
mod overload;
mod sample;

pub use sample::{ClassId, NodeSample};

use self::bases::Bases;
use self::overload::Timeouts;
use super::{MILLI, PPM, SECOND_NS, scale};

/// Interval of ticks, ns.
pub const NODE_TICK_NS: u64 = SECOND_NS / TICKS_PER_SECOND as u64;
const TICKS_PER_SECOND: u32 = 10;
/// Effective answers of a decision: the mean of 16 exponential times is within 32 %, and steps
/// average about five decisions. After a second a decision takes what there is.
const ANSWERS_MIN: u64 = 16;
/// Effective answers of a doubling: the error of `r` is below 0.16, half of the distance of 0.7
/// from 1 and from ½.
const ANSWERS_OF_DOUBLING: u64 = 128;
/// Least r of a doubling, in millionths.
const DOUBLING_PPM: u64 = 700_000;
/// Interval of drains, ns. They cost 2 % of the time, and at most half of the node in it.
const DRAIN_EVERY_NS: u64 = 30 * SECOND_NS;
/// Ticks of a drain.
const DRAIN_TICKS: u32 = 6;
/// Ticks of a drain that measure. Before them, earlier requests end. Between, before and after
/// them, the clocks of fronts may differ.
const MEASURED_TICKS: std::ops::Range<u32> = 2..5;

/// Bounds of the window of a node, in requests; at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowBounds {
    /// Lowest window, with which a node starts.
    pub min: u32,
    /// Highest window.
    pub max: u32,
}

/// Limiter of the window of a node, in one front. A node that comes up gets a new one.
#[derive(Clone, Debug)]
pub struct NodeWindow {
    bounds: WindowBounds,
    /// In thousandths, so that small steps add up.
    window_milli: u64,
    phase: Phase,
    bases: Bases,
    /// Answers that no decision has used yet.
    sample: NodeSample,
    timeouts: Timeouts,
    /// Ticks since the last decision.
    waited: u32,
    drain_offset_ns: u64,
    /// Number of the interval of drains.
    slot: u64,
    /// True if the window was the limit since the last [`NodeWindow::publish`].
    was_limited: bool,
    /// Result of the last [`NodeWindow::publish`].
    published: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    SlowStart,
    /// The tick after a doubling, whose answers belong to the window before.
    Doubled,
    Steady,
    /// Ticks since the window was halved.
    Drain(u32),
    /// Ticks left after an overload.
    Rest(u32),
}

impl NodeWindow {
    /// Creates the limiter of a node, with the lowest window. `drain_offset_ns` moves its drains,
    /// so that nodes do not drain at once. It has to be the same in all fronts, such as a hash of
    /// the host id.
    #[must_use]
    pub fn new(bounds: WindowBounds, drain_offset_ns: u64) -> NodeWindow {
        let min = bounds.min.max(1);
        NodeWindow {
            bounds: WindowBounds { min, max: bounds.max.max(min) },
            window_milli: u64::from(min) * MILLI,
            phase: Phase::SlowStart,
            bases: Bases::default(),
            sample: NodeSample::default(),
            timeouts: Timeouts::default(),
            waited: 0,
            drain_offset_ns,
            slot: 0,
            was_limited: false,
            published: None,
        }
    }

    /// Takes the answers of all cores since the last tick, at the time `now_ns` since 1970. Returns
    /// the window in force until the next tick, which comes after [`NODE_TICK_NS`].
    pub fn tick(&mut self, now_ns: u64, sample: &mut NodeSample) -> u32 {
        let is_overload = sample.overloaded > 0 || self.timeouts.is_overload(sample.timeouts, sample.answers);
        self.sample.take(sample);
        let slot = now_ns.wrapping_add(self.drain_offset_ns) / DRAIN_EVERY_NS;
        let drain_is_due = slot != std::mem::replace(&mut self.slot, slot);
        let is_limited = self.sample.is_limited();
        self.was_limited |= is_limited;
        match self.phase {
            Phase::Rest(1) => self.enter(Phase::Steady),
            Phase::Rest(left) => self.enter(Phase::Rest(left - 1)),
            _ if is_overload => {
                self.set(scale(self.window_milli, 7, 10));
                self.timeouts = Timeouts::default();
                self.enter(Phase::Rest(TICKS_PER_SECOND));
            }
            Phase::Drain(ticks) => self.drain(ticks),
            Phase::Steady if drain_is_due && is_limited => self.enter(Phase::Drain(0)),
            Phase::Doubled => self.enter(Phase::SlowStart),
            Phase::SlowStart if self.waits_for(ANSWERS_OF_DOUBLING) => self.waited += 1,
            Phase::SlowStart if is_limited => self.slow_start(),
            Phase::SlowStart => self.enter(Phase::SlowStart),
            Phase::Steady if self.waits_for(ANSWERS_MIN) => self.waited += 1,
            Phase::Steady => self.steady(is_limited),
        }
        self.in_force()
    }

    /// Returns the window, without the effect of a drain.
    #[must_use]
    pub fn window(&self) -> u32 {
        u32::try_from(self.window_milli / MILLI).unwrap_or(u32::MAX)
    }

    /// Returns the window for the other fronts, every second. `None`: it has not been the limit
    /// since the last call, so that it says nothing about the node.
    pub fn publish(&mut self) -> Option<u32> {
        self.published = std::mem::take(&mut self.was_limited).then(|| self.window());
        self.published
    }

    /// Adopts the median of the windows that the fronts published together with the last
    /// [`NodeWindow::publish`] of this one; of an even number, the lower one. The higher one of two
    /// windows grows by their noise. Keeps what has changed since. A front that published
    /// nothing has no slow start any more.
    pub fn adopt(&mut self, median: u32) {
        match self.published {
            Some(published) => self.set(scale(self.window_milli, median.into(), published.into())),
            None => {
                self.set(u64::from(median) * MILLI);
                if self.phase == Phase::SlowStart {
                    self.enter(Phase::Steady);
                }
            }
        }
        self.published = Some(median.max(1));
    }

    fn in_force(&self) -> u32 {
        match self.phase {
            Phase::Drain(_) => (self.window() / 2).max(self.bounds.min),
            _ => self.window(),
        }
    }

    /// Begins a phase, or a decision in it, without the answers so far.
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.sample.clear();
        self.waited = 0;
    }

    /// Returns true if a decision waits for more answers.
    fn waits_for(&self, answers: u64) -> bool {
        self.waited + 1 < TICKS_PER_SECOND && self.bases.effective(&self.sample) < answers
    }

    fn drain(&mut self, ticks: u32) {
        if ticks + 1 == MEASURED_TICKS.end {
            self.measure_at_new_window();
        }
        let is_measuring = MEASURED_TICKS.contains(&ticks) && MEASURED_TICKS.contains(&(ticks + 1));
        match ticks + 1 {
            DRAIN_TICKS => self.enter(Phase::Steady),
            next if is_measuring => self.phase = Phase::Drain(next),
            next => self.enter(Phase::Drain(next)),
        }
    }

    fn slow_start(&mut self) {
        match self.bases.r_ppm(&self.sample) {
            Some(r_ppm) if r_ppm < DOUBLING_PPM => {
                self.step(r_ppm);
                self.enter(Phase::Steady);
            }
            _ => {
                self.measure_at_new_window();
                self.set(self.window_milli * 2);
                self.enter(Phase::Doubled);
            }
        }
    }

    fn steady(&mut self, is_limited: bool) {
        if self.window() <= self.bases.window {
            self.bases.measure(&self.sample);
        }
        if is_limited && let Some(r_ppm) = self.bases.r_ppm(&self.sample) {
            self.step(r_ppm);
        }
        self.enter(Phase::Steady);
    }

    /// Measures the bases, at a window that replaces that of the bases.
    fn measure_at_new_window(&mut self) {
        self.bases.measure(&self.sample);
        self.bases.window = self.in_force();
    }

    /// Moves the window by a fifth of its distance from `r W + √W`.
    fn step(&mut self, r_ppm: u64) {
        let window = self.window_milli;
        let aim = scale(window, r_ppm, PPM) + (window * MILLI).isqrt();
        self.set((8 * window + 2 * aim) / 10);
    }

    fn set(&mut self, window_milli: u64) {
        let WindowBounds { min, max } = self.bounds;
        self.window_milli = window_milli.clamp(u64::from(min) * MILLI, u64::from(max) * MILLI);
    }
}
