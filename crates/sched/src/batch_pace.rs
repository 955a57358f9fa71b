//! Pace of batch levels at a node of a cluster, beside levels whose clients wait. A node serves
//! all its requests at once, so that a read takes longer beside scans, whatever its shares are; and
//! places that reads leave free for a moment would be held by scans for long.
//!
//! While other levels have requests, batch levels may hold `P` places on average. Each place gives
//! them a nanosecond of occupancy in a nanosecond, and a request starts if they owe none and hold
//! fewer than `P` places. `P` may be less than one: a request is then followed by a break.
//!
//! ```text
//!   time of the others ÷ their base      P
//!   ─────────────────────────────────────────────────────────────────────────
//!   above 5/4                            three quarters of it
//!   below 9/8, and batch waits           an eighth more
//!   always                               at least their shares beside the others, and 1/8
//! ```
//!
//! Shares count beside the occupancy that the others would have at their base: what batch levels
//! themselves add to it entitles them to nothing.
//!
//! **Base.** The mean time of the others' requests in a *probe*, in which batch levels start
//! nothing; the least of the last three, as the node may pause in one. Until the first one it is
//! that of a measurement without batch requests. Means are geometric, so that pauses hardly count.
//! Without a base, `P` stays at its lower bound, unless the others have too few requests for one:
//! it grows then.
//!
//! Alone, batch levels have the whole window: the others had no request for a second then.
//!
//! Limits: each core of a front decides for itself, so that the lower bound holds for each. Times
//! that grow because the others have more work of their own slow batch levels, too.

use crate::log2::{ONE, exp2, log2};

/// Logarithms of 5/4 and of 9/8.
const ABOVE: u64 = ONE * 322 / 1000;
const BELOW: u64 = ONE * 170 / 1000;
/// Probes that count.
const PROBES: usize = 3;
/// Thousandths of a place.
const MILLI: u64 = 1000;
/// Lower bound of `P`, thousandths.
const LEAST_MILLI: u64 = MILLI / 8;
/// Upper bound of `P`: more than any window has.
const MOST_MILLI: u64 = 4096 * MILLI;
/// Answers and time of a measurement, at least: the mean of 32 exponential times is within 18 %.
const ANSWERS_MIN: u64 = 32;
const MEASURED_NS: u64 = 100_000_000;
/// Time after which a measurement ends with fewer answers, ns.
const MEASURED_MAX_NS: u64 = 1_000_000_000;
/// Time for which unused places count, ns: queues are looked through at least so often.
const KEPT_NS: u64 = 100_000_000;
/// Part of a probe for earlier batch requests to end, ns.
const PROBE_AFTER_NS: u64 = 100_000_000;

/// Pace of all batch levels. The head of this file describes it.
#[derive(Debug, Default)]
pub(crate) struct BatchPace {
    /// `P`, thousandths.
    places_milli: u64,
    /// Occupancy that batch levels may use, ns; negative: owed.
    budget_ns: i64,
    budgeted_ns: u64,
    /// Logarithms of the others' mean times in the last probes, and of their least.
    probes: [Option<u64>; PROBES],
    base: Option<u64>,
    measured: Measured,
    /// Begin of the probe, ns.
    probe_ns: Option<u64>,
    /// Shares at the end of the last measurement at which the others had requests.
    weights: Weights,
    /// False: the others had no request lately.
    is_on: bool,
}

/// A measurement.
#[derive(Debug, Default)]
struct Measured {
    since_ns: u64,
    /// Answers to the others, and the sum of the logarithms of their times.
    answers: u64,
    logs: u64,
    /// Occupancy of the others and of batch levels, ns.
    others_ns: u64,
    batch_ns: u64,
    /// True if batch levels had to wait.
    has_waited: bool,
}

/// Shares of the levels with requests.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Weights {
    pub(crate) batch: u64,
    pub(crate) others: u64,
}

impl BatchPace {
    /// Begins or ends a probe.
    pub(crate) fn set_probing(&mut self, is_probing: bool, now_ns: u64) {
        match (is_probing, self.probe_ns) {
            (true, None) => self.probe_ns = Some(now_ns),
            (false, Some(_)) => {
                self.probe_ns = None;
                let measured = self.measured.take(now_ns);
                if measured.answers >= ANSWERS_MIN {
                    self.probes.rotate_right(1);
                    self.probes[0] = Some(measured.mean());
                    self.base = self.probes.iter().flatten().min().copied();
                }
            }
            _ => {}
        }
    }

    /// Counts occupancy of other levels.
    pub(crate) fn used_by_others(&mut self, ns: u64) {
        self.measured.others_ns = self.measured.others_ns.saturating_add(ns);
        self.is_on |= ns > 0;
    }

    /// Counts an answer to another level.
    pub(crate) fn answered(&mut self, took_ns: u64) {
        self.measured.answers += 1;
        self.measured.logs = self.measured.logs.saturating_add(log2(took_ns));
        self.is_on = true;
    }

    /// Counts occupancy of batch levels.
    pub(crate) fn used_by_batch(&mut self, ns: u64) {
        self.measured.batch_ns = self.measured.batch_ns.saturating_add(ns);
    }

    /// Charges batch levels, ahead or afterwards.
    pub(crate) fn charge(&mut self, ns: u64) {
        self.budget_ns = self.budget_ns.saturating_sub_unsigned(ns);
    }

    /// Returns true if a batch request may start beside `in_flight` others of batch levels.
    /// Otherwise it waits.
    pub(crate) fn may_start(&mut self, in_flight: u32, now_ns: u64) -> bool {
        if !self.is_on {
            (self.budgeted_ns, self.budget_ns) = (now_ns, 0);
            return true;
        }
        let passed_ns = now_ns.saturating_sub(self.budgeted_ns);
        self.budgeted_ns = self.budgeted_ns.max(now_ns);
        let of = |ns: u64| i64::try_from(ns.saturating_mul(self.places_milli) / MILLI).unwrap_or(i64::MAX);
        self.budget_ns = self.budget_ns.saturating_add(of(passed_ns)).min(of(KEPT_NS));
        // Nothing is known yet about the time of a level's first requests.
        let is_below = u64::from(in_flight) < self.places_milli.div_ceil(MILLI);
        let may = self.probe_ns.is_none() && self.budget_ns >= 0 && is_below;
        self.measured.has_waited |= !may;
        may
    }

    /// Returns true if the measurement has enough, so that [`BatchPace::measure`] ends it.
    pub(crate) fn is_due(&mut self, now_ns: u64) -> bool {
        if let Some(begun_ns) = self.probe_ns {
            // Measure what comes after the requests from before the probe.
            let from_ns = begun_ns + PROBE_AFTER_NS;
            if self.measured.since_ns < from_ns && now_ns >= from_ns {
                self.measured.take(now_ns);
            }
            return false;
        }
        let passed_ns = now_ns.saturating_sub(self.measured.since_ns);
        passed_ns >= MEASURED_NS && self.measured.answers >= ANSWERS_MIN || passed_ns >= MEASURED_MAX_NS
    }

    /// Ends the measurement, and moves `P`.
    pub(crate) fn measure(&mut self, weights: Weights, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.measured.since_ns).max(1);
        let measured = self.measured.take(now_ns);
        self.is_on = measured.answers > 0 || measured.others_ns > 0;
        // Without the time for which the others' requests are slowed.
        let undelayed_ns = measured.answers.saturating_mul(self.base.map_or(0, exp2));
        let others_milli = measured.others_ns.min(undelayed_ns).saturating_mul(MILLI) / passed_ns;
        if weights.others > 0 {
            self.weights = weights;
        }
        let Weights { batch, others } = self.weights;
        let least_milli = others_milli.saturating_mul(batch) / others.max(1);
        let has_enough = measured.answers >= ANSWERS_MIN;
        let mean = measured.mean();
        let grows = match self.base {
            None if has_enough && measured.batch_ns == 0 => {
                self.base = Some(mean);
                false
            }
            None => !has_enough,
            Some(base) if has_enough && mean > base + ABOVE => {
                self.places_milli = self.places_milli * 3 / 4;
                false
            }
            Some(base) => has_enough && mean < base + BELOW,
        };
        if grows && measured.has_waited {
            self.places_milli += (self.places_milli / 8).max(LEAST_MILLI);
        }
        self.places_milli = self.places_milli.max(least_milli).clamp(LEAST_MILLI, MOST_MILLI);
    }
}

impl Measured {
    /// Returns what was measured, and begins again.
    fn take(&mut self, now_ns: u64) -> Measured {
        std::mem::replace(self, Measured { since_ns: now_ns, ..Measured::default() })
    }

    /// Returns the logarithm of the others' mean time.
    fn mean(&self) -> u64 {
        self.logs / self.answers.max(1)
    }
}
