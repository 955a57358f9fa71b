//! Reports of the lanes to the operator: rare, bounded in number, and in sentences. `lanes` uses no
//! logger, so a callback carries them to one.

use std::fmt;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::Arc;

use crate::WakeUp;

/// Event that the operator of the server should know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Report {
    /// Fast-lane task polls blocked their core for more than 200 µs each. At most one report a
    /// minute and core; [`crate::Lanes::stalls`] counts all.
    Stalls {
        /// The core.
        core: usize,
        /// Stalls since the last report.
        times: u64,
        /// Length of the longest of them, µs.
        longest_us: u64,
        /// Name of the group whose task that was.
        group: String,
    },
    /// A fast-lane task poll spent more work units than [`crate::UNITS_MAX`]. Reported each time
    /// that the maximum of its core rises.
    LongPoll {
        /// The core.
        core: usize,
        /// Name of the group whose task it was.
        group: String,
        /// Where in the source that task was spawned.
        spawned_at: &'static Location<'static>,
        /// Work units spent, of about 100 ns.
        units: u32,
    },
    /// A heavy lane had its core and got nearly no CPU. At most one report in ten seconds and core;
    /// [`crate::Lanes::starved`] counts all.
    Starved {
        /// The core.
        core: usize,
        /// CPUs that its threads are pinned to; empty without pinning.
        cpus: Vec<usize>,
        /// Name of the group that had the core.
        group: String,
        /// Times so far.
        times: u64,
    },
    /// A fast lane wakes late, as measured at start.
    PoorWakeUp {
        /// The core.
        core: usize,
        /// CPUs that its threads are pinned to.
        cpus: Vec<usize>,
        /// The measurement.
        wake_up: WakeUp,
    },
    /// The kernel allowed io_uring to be set up and then rejected its requests. Threads serve disk
    /// requests instead.
    RingRefused {
        /// The core.
        core: usize,
        /// The error of the kernel.
        error: String,
    },
    /// A file system does not support direct I/O: its files use the page cache instead. Reported
    /// once for the server.
    DirectRefused {
        /// The first such file.
        path: PathBuf,
    },
}

impl Report {
    /// Returns true if the operator has nothing to do.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        matches!(self, Report::Stalls { .. })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Stalls { core, times, longest_us, group } => write!(
                f,
                "stalls: {times} times since the last such line the fast lane of core {core} worked for more than \
                 200 us without a turn for others; the longest took {longest_us} us, for group {group}"
            ),
            Report::LongPoll { core, group, spawned_at, units } => write!(
                f,
                "long poll: {units} work units without a yield on the fast lane of core {core} by the task of group \
                 {group} spawned at {spawned_at}; the bound is {}",
                crate::UNITS_MAX
            ),
            Report::Starved { core, cpus, group, times } => write!(
                f,
                "starved: heavy work of group {group} on core {core}{} had the core for 50 ms and got nearly no CPU \
                 ({times} times so far): another program keeps that CPU busy. Logins and flushes continue, queries and \
                 compaction wait. Move the other program elsewhere, or give this server other CPUs",
                On(cpus)
            ),
            Report::PoorWakeUp { core, cpus, wake_up } => write!(
                f,
                "late wake-ups: the fast lane of core {core}{} wakes {} us late at the median, {} us in the worst \
                 1 %: other programs run on that CPU, or the hypervisor is short of CPUs. Requests are answered \
                 that much later. Move the other programs elsewhere, or give this server other CPUs",
                On(cpus),
                wake_up.p50_us,
                wake_up.p99_us
            ),
            Report::RingRefused { core, error } => write!(
                f,
                "the kernel rejects io_uring requests on core {core} ({error}): threads serve disk requests from \
                 now on"
            ),
            Report::DirectRefused { path } => write!(
                f,
                "the file system of {} does not support direct I/O: its files use the page cache, where large \
                 scans evict the data of other users. Keep the data on a disk with ext4 or XFS",
                path.display()
            ),
        }
    }
}

/// Display of ` (CPU 3)`, or of nothing without pinning.
struct On<'a>(&'a [usize]);

impl fmt::Display for On<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, rest)) = self.0.split_first() else { return Ok(()) };
        write!(f, " (CPU {first}")?;
        rest.iter().try_for_each(|cpu| write!(f, ", {cpu}"))?;
        f.write_str(")")
    }
}

/// Callback that receives reports. It is called on fast lanes, so it must not block.
#[derive(Clone)]
pub struct Reporter(Arc<dyn Fn(&Report) + Send + Sync>);

impl Reporter {
    /// Calls `take` with each report.
    #[must_use]
    pub fn new(take: impl Fn(&Report) + Send + Sync + 'static) -> Reporter {
        Reporter(Arc::new(take))
    }

    pub(crate) fn report(&self, report: &Report) {
        (self.0)(report);
    }
}

/// Prints lines to standard error.
impl Default for Reporter {
    fn default() -> Reporter {
        Reporter::new(|report| eprintln!("{report}"))
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reporter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_names_the_core_and_the_remedy() {
        let report = |cpus| Report::Starved { core: 1, cpus, group: "flush".into(), times: 3 }.to_string();
        assert!(
            report(vec![5]).starts_with("starved: heavy work of group flush on core 1 (CPU 5) had the core")
        );
        assert!(report(vec![4, 5]).contains("core 1 (CPU 4, 5) had"));
        assert!(report(vec![]).contains("core 1 had") && report(vec![]).contains("Move the other program"));
        let wake_up = WakeUp { samples: 20, p50_us: 2000, p99_us: 4000 };
        let late = Report::PoorWakeUp { core: 0, cpus: vec![0], wake_up }.to_string();
        assert!(late.contains("2000 us late at the median, 4000 us in the worst 1 %"), "{late}");
    }
}
