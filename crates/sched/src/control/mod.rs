//! Controllers that set the pace of background work, and limit the statements in flight. They take
//! measurements and return shares, rates, delays and limits. Each has a few integers of state, and
//! its caller asks it about every [`INTERVAL_NS`], [`Latency`] every second, [`NodeWindow`] every
//! [`NODE_TICK_NS`]. `docs/scheduler.md` derives them.
//!
//! ```text
//!   memory filled, flushed, left ──▶ Flush ──── rate ──────▶ the flush in flight, chunk by chunk (Pacer)
//!                                      └─────── weight ──┐
//!   backlog, its cost ─────────────▶ Compaction ─ weight ┼▶ divide ──▶ shares of the groups
//!   highest background quota ────────────────────────────┘
//!   memory held ───────────────────▶ Throttle ── delay ────▶ acknowledgements of writes
//!   work of statements, shares ────▶ Concurrency ─ limit ──▶ admission of statements
//!   latency, its target ───────────▶ Latency ─── shares ───▶ the group of the level
//!   answers of a node ─────────────▶ NodeWindow ─ window ──▶ requests in flight at the node
//! ```
//!
//! A *weight* is the entitlement of a background group alongside all users together, who weigh
//! [`USERS_WEIGHT`]. With a weight of 250 it gets a fifth of a saturated core, and what is left of
//! any other.

mod compaction;
mod concurrency;
mod division;
mod flush;
mod latency;
mod node_window;
mod pacer;
mod throttle;

pub use compaction::{Compaction, CompactionInput};
pub use concurrency::{
    Arriving, Concurrency, ConcurrencyInput, ConcurrencyLimit, LevelBounds, LimitChange, Overload, Spread,
    StandingQueue, Verdict, entitlement_ppm,
};
pub use division::{Division, divide};
pub use flush::{Flush, FlushDecision, FlushInput};
pub use latency::{Latency, LatencyInput, LatencyReason};
pub use node_window::{ClassId, NODE_TICK_NS, NodeSample, NodeWindow, WindowBounds};
pub use pacer::Pacer;
pub use throttle::{Pressure, Throttle, pressure_ppm};

/// Interval of decisions, ns. A flush lasts seconds, so it gets a hundred decisions. A decision
/// costs under a microsecond.
pub const INTERVAL_NS: u64 = 20_000_000;
/// Weight of all users together.
pub const USERS_WEIGHT: u64 = 1000;
/// Lowest weight: 2 % of a saturated core.
pub const WEIGHT_MIN: u64 = 20;
/// Highest weight: 90 % of a saturated core.
pub const WEIGHT_MAX: u64 = 9000;
/// Rate without a bound: as fast as shares allow.
pub const UNLIMITED: u64 = u64::MAX;

const SECOND_NS: u64 = 1_000_000_000;
const PPM: u64 = 1_000_000;
/// Thousandths in one unit of weight. Controllers keep weights in thousandths.
const MILLI: u64 = 1000;

/// Returns `a × b ÷ c`, saturating; `u64::MAX` if `c` is 0.
fn scale(a: u64, b: u64, c: u64) -> u64 {
    match u128::from(a) * u128::from(b) {
        _ if c == 0 => u64::MAX,
        product => u64::try_from(product / u128::from(c)).unwrap_or(u64::MAX),
    }
}

/// Returns the weight, in thousandths, that gets this part of a saturated core: `f = w ÷ (w +
/// users)`, so `w = users × f ÷ (1 − f)`.
fn weight_of_part(part_ppm: u64) -> u64 {
    let part_ppm = part_ppm.min(PPM - 1);
    scale(USERS_WEIGHT * MILLI, part_ppm, PPM - part_ppm)
}

/// Moves a weight towards a target for a step of `interval_ns`. In `over_ns` it grows at most by a
/// factor of e, by small steps, and falls at most by the root of that.
fn slew(weight: u64, target: u64, interval_ns: u64, over_ns: u64) -> u64 {
    let most = scale(weight, interval_ns.min(over_ns), over_ns);
    target.clamp(weight - most / 2, weight.saturating_add(most))
}

/// Updates an exponential average of a rate by a step of `interval_ns`, with time constant
/// `over_ns`.
fn smooth(average: u64, sample: u64, interval_ns: u64, over_ns: u64) -> u64 {
    let step = |far: u64| scale(far, interval_ns, over_ns.saturating_add(interval_ns));
    match sample >= average {
        true => average + step(sample - average),
        false => average - step(average - sample),
    }
}
