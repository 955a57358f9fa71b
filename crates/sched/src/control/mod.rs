//! How fast background work goes: controllers that take measurements and return shares, rates and
//! delays. Each is a few integers of state, to be asked every [`INTERVAL_NS`] or so by whoever
//! measures. `docs/scheduler.md` derives them.
//!
//! ```text
//!   memory filled, flushed, left ──▶ Flush ──── rate ──────▶ the flush under way, piece by piece (Pacer)
//!                                      └─────── weight ──┐
//!   backlog, its cost ─────────────▶ Compaction ─ weight ┼▶ divide ──▶ shares of the groups
//!   highest background quota ────────────────────────────┘
//!   memory held ───────────────────▶ Throttle ── delay ────▶ acknowledgements of writes
//!   held back, for measuring ──────▶ Hold ── what may wait ─▶ Flush, pressure
//! ```
//!
//! A *weight* is what a background group is worth beside all users together, who weigh
//! [`USERS_WEIGHT`]: with a weight of 250 it gets a fifth of a saturated core, and whatever is left
//! of any other.

mod compaction;
mod division;
mod flush;
mod hold;
mod pacer;
mod throttle;

pub use compaction::{Compaction, CompactionInput};
pub use division::{Division, divide};
pub use flush::{Flush, FlushDecision, FlushInput};
pub use hold::Hold;
pub use pacer::Pacer;
pub use throttle::{Throttle, pressure_ppm};

/// How often controllers want to be asked, ns: a flush lasts seconds, so a hundred decisions each;
/// a decision costs under a microsecond.
pub const INTERVAL_NS: u64 = 20_000_000;
/// What all users together weigh.
pub const USERS_WEIGHT: u64 = 1000;
/// The least and the highest weight: 2 % and 90 % of a saturated core.
pub const WEIGHT_MIN: u64 = 20;
/// See [`WEIGHT_MIN`].
pub const WEIGHT_MAX: u64 = 9000;
/// As fast as shares allow.
pub const UNLIMITED: u64 = u64::MAX;

const SECOND_NS: u64 = 1_000_000_000;
const PPM: u64 = 1_000_000;
/// Controllers keep weights in thousandths.
const MILLI: u64 = 1000;

/// `a × b ÷ c`, saturating; `u64::MAX` where `c` is 0.
fn scale(a: u64, b: u64, c: u64) -> u64 {
    match u128::from(a) * u128::from(b) {
        _ if c == 0 => u64::MAX,
        product => u64::try_from(product / u128::from(c)).unwrap_or(u64::MAX),
    }
}

/// The weight, in thousandths, that gets this part of a saturated core: `f = w ÷ (w + users)`, so
/// `w = users × f ÷ (1 − f)`.
fn weight_of_part(part_ppm: u64) -> u64 {
    let part_ppm = part_ppm.min(PPM - 1);
    scale(USERS_WEIGHT * MILLI, part_ppm, PPM - part_ppm)
}

/// One step of `interval_ns` from a weight towards another: in `over_ns` it grows at most by a
/// factor of e, by small steps, and falls at most by the root of that.
fn slew(weight: u64, target: u64, interval_ns: u64, over_ns: u64) -> u64 {
    let most = scale(weight, interval_ns.min(over_ns), over_ns);
    target.clamp(weight - most / 2, weight.saturating_add(most))
}

/// An exponential average of a rate: one step of `interval_ns` with time constant `over_ns`.
fn smooth(average: u64, sample: u64, interval_ns: u64, over_ns: u64) -> u64 {
    let step = |far: u64| scale(far, interval_ns, over_ns.saturating_add(interval_ns));
    match sample >= average {
        true => average + step(sample - average),
        false => average - step(average - sample),
    }
}
