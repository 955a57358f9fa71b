//! Distribution of a level's work over cores, and measurements that decay.

use super::super::{PPM, scale};

/// Time constant of the measurements, ns: ten decisions.
const MEASURED_OVER_NS: u64 = 200_000_000;

/// The part of a level's work that its busiest core does. The work of a parallel statement is on
/// all cores, whichever core admitted it.
#[derive(Clone, Debug)]
pub struct Spread {
    /// Work on each core, decayed, ns.
    cores_ns: Vec<u64>,
}

impl Spread {
    /// Creates the measurement of a level that has done nothing, for `cores` cores.
    #[must_use]
    pub fn new(cores: usize) -> Spread {
        Spread { cores_ns: vec![0; cores] }
    }

    /// Adds the work on each core in the last interval, ns. Returns the part of the busiest core,
    /// in millionths: all of it if the level has done nothing.
    pub fn add(&mut self, interval_ns: u64, work_ns: &[u64]) -> u32 {
        for (sum_ns, new_ns) in self.cores_ns.iter_mut().zip(work_ns) {
            *sum_ns = decayed(*sum_ns, interval_ns).saturating_add(*new_ns);
        }
        let all_ns = self.cores_ns.iter().fold(0, |all: u64, one| all.saturating_add(*one));
        let most_ns = self.cores_ns.iter().max().copied().unwrap_or(0);
        if all_ns == 0 { PPM as u32 } else { scale(most_ns, PPM, all_ns).clamp(1, PPM) as u32 }
    }
}

/// Returns what is left of a measurement after `interval_ns`.
pub(super) fn decayed(sum: u64, interval_ns: u64) -> u64 {
    scale(sum, MEASURED_OVER_NS, MEASURED_OVER_NS.saturating_add(interval_ns))
}
