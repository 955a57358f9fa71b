//! Starvation of a heavy lane by another program. Its workers are of the kernel's idle class, so a
//! program that keeps the CPU busy leaves them next to nothing. Once that has lasted for
//! [`STARVED_NS`], urgent work goes to a worker of normal priority. A trial each second
//! shows whether the idle class gets CPU again.

use crate::virtual_time::SLICE_NS;

/// Time with nearly no CPU for heavy work after which a lane counts as starved by another program,
/// ns.
const STARVED_NS: u64 = 50_000_000;
/// Time for which a starved lane counts as starved, ns. Then a slice of the idle class is a trial.
/// (A moment of CPU is no sign of recovery: a busy program leaves the idle class a slice of a few
/// ms in each second.)
const STARVED_FOR_NS: u64 = 1_000_000_000;

/// The worker that gets the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerKind {
    /// The active worker of the idle class.
    IdleClass,
    /// The active worker of the idle class, to test whether it gets CPU again.
    Trial,
    /// The worker of normal priority, for urgent work.
    Normal,
}

/// Start of the time in which heavy work of one group had the core and got nearly no CPU, ns. 0 if
/// it got CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Starving(u64);

/// Result of heavy work after it had the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeavyOutcome {
    /// It got CPU, or had the core too briefly to tell.
    Ran,
    /// It got nearly none. Others come first for a slice.
    Waited,
    /// It got nearly none for so long that the lane counts as starved.
    Starved,
}

/// Detector of a starved heavy lane, one for each core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Starvation {
    /// End of the time in which the lane counts as starved, ns; 0 if it does not.
    until_ns: u64,
}

impl Starvation {
    /// Chooses the worker for heavy work that is `urgent` or not.
    #[must_use]
    pub const fn worker(&self, urgent: bool, now_ns: u64) -> WorkerKind {
        match urgent {
            true if self.until_ns > now_ns => WorkerKind::Normal,
            true if self.until_ns > 0 => WorkerKind::Trial,
            _ => WorkerKind::IdleClass,
        }
    }

    /// Records a trial that ended after `lasted_ns`. `ran`: the worker got CPU. Returns true if the
    /// lane is still starved.
    pub fn tried(&mut self, ran: bool, lasted_ns: u64, now_ns: u64) -> bool {
        self.until_ns = match ran {
            true => 0,
            false if lasted_ns < SLICE_NS / 2 => now_ns + 10 * SLICE_NS, // too short to tell: try again soon
            false => now_ns + STARVED_FOR_NS,
        };
        !ran
    }

    /// Records that heavy work of a group, not yet finished, had the core from `began_ns` until
    /// `now_ns` and used `used_ns` of it.
    pub fn returned(
        &mut self,
        group: &mut Starving,
        began_ns: u64,
        used_ns: u64,
        now_ns: u64,
    ) -> HeavyOutcome {
        let had_ns = now_ns.saturating_sub(began_ns);
        if used_ns.saturating_mul(10) >= had_ns {
            *group = Starving::default();
            return HeavyOutcome::Ran;
        }
        if had_ns < SLICE_NS / 2 {
            return HeavyOutcome::Ran; // too short to tell
        }
        if group.0 == 0 {
            group.0 = began_ns;
        } else if now_ns.saturating_sub(group.0) >= STARVED_NS {
            group.0 = now_ns;
            self.until_ns = now_ns + STARVED_FOR_NS;
            return HeavyOutcome::Starved;
        }
        HeavyOutcome::Waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn starved_lane_is_detected_and_tried_each_second() {
        let (mut lane, mut group) = (Starvation::default(), Starving::default());
        let mut returned =
            |at_ms: u64, used_ns| lane.returned(&mut group, at_ms * MS, used_ns, (at_ms + 1) * MS);
        assert_eq!(returned(1_000, MS), HeavyOutcome::Ran);
        assert!((1_001..1_050).all(|at_ms| returned(at_ms, MS / 11) == HeavyOutcome::Waited));
        assert_eq!(returned(1_050, 0), HeavyOutcome::Starved);
        assert_eq!(lane.worker(false, 1_100 * MS), WorkerKind::IdleClass);
        assert_eq!(lane.worker(true, 1_100 * MS), WorkerKind::Normal);
        assert_eq!(lane.worker(true, 2_100 * MS), WorkerKind::Trial);
        assert!(lane.tried(false, MS, 2_101 * MS));
        assert_eq!(lane.worker(true, 3_101 * MS - 1), WorkerKind::Normal);
        assert_eq!(lane.worker(true, 3_101 * MS), WorkerKind::Trial, "a second has passed");
        // A trial that was too short to tell is repeated after ten slices.
        let tried_ns = 3_101 * MS;
        assert!(lane.tried(false, SLICE_NS / 2 - 1, tried_ns));
        assert_eq!(lane.worker(true, tried_ns + 10 * SLICE_NS - 1), WorkerKind::Normal);
        assert_eq!(lane.worker(true, tried_ns + 10 * SLICE_NS), WorkerKind::Trial);
        assert!(!lane.tried(true, MS, 3_200 * MS));
        assert_eq!(lane.worker(true, 3_200 * MS), WorkerKind::IdleClass);
    }

    #[test]
    fn core_taken_back_at_once_is_no_starvation() {
        let (mut lane, mut group) = (Starvation::default(), Starving::default());
        let short = |at: u64| (at * MS, at * MS + 100_000);
        for (began_ns, now_ns) in (1_000..2_000).map(short) {
            assert_eq!(lane.returned(&mut group, began_ns, 0, now_ns), HeavyOutcome::Ran);
        }
        assert_eq!(lane.worker(true, 2_000 * MS), WorkerKind::IdleClass);
    }
}
