//! What the lanes have to say to whoever runs the server: rare, bounded in number, and in sentences. `lanes` knows no
//! logger, so a call-back carries them to one.

use std::fmt;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::Arc;

use crate::WakeUp;

/// Something that whoever runs the server should know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Report {
    /// A piece of fast-lane work held up its core. At most one a second and core; [`crate::Lanes::stalls`] counts all.
    Stall {
        /// Where.
        core: usize,
        /// Name of the group whose task it was.
        group: String,
        /// Where in the source that task was spawned.
        spawned_at: &'static Location<'static>,
        /// How long, µs.
        piece_us: u64,
    },
    /// A fast-lane task poll spent more work units than [`crate::UNITS_MAX`]. Reported each time that the maximum of its core rises.
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
    /// A heavy lane was owed its core and hardly got it. At most one in ten seconds and core; [`crate::Lanes::starved`]
    /// counts all.
    Starved {
        /// Where.
        core: usize,
        /// CPUs that its threads are pinned to; empty without pinning.
        cpus: Vec<usize>,
        /// Name of the group that was owed the core.
        group: String,
        /// Times so far.
        times: u64,
    },
    /// A fast lane that measured itself at start wakes late.
    PoorWakeUp {
        /// Where.
        core: usize,
        /// CPUs that its threads are pinned to.
        cpus: Vec<usize>,
        /// What was measured.
        wake_up: WakeUp,
    },
    /// The kernel let io_uring be set up, and then refused to work with it: disk requests go through threads instead.
    RingRefused {
        /// Where.
        core: usize,
        /// What the kernel said.
        error: String,
    },
    /// A file system does not do direct I/O: its files go through the page cache instead. Once for the server.
    DirectRefused {
        /// The first such file.
        path: PathBuf,
    },
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Stall { core, group, spawned_at, piece_us } => write!(
                f,
                "stall: {piece_us} us on the fast lane of core {core} by the task of group {group} spawned at {spawned_at}"
            ),
            Report::LongPoll { core, group, spawned_at, units } => write!(
                f,
                "long poll: {units} work units without a yield on the fast lane of core {core} by the task of group \
                 {group} spawned at {spawned_at}; the bound is {}",
                crate::UNITS_MAX
            ),
            Report::Starved { core, cpus, group, times } => write!(
                f,
                "starved: heavy work of group {group} on core {core}{} was owed the core for 50 ms and hardly got it \
                 ({times} times so far): another program keeps that CPU busy. Logins and flushes go on, queries and \
                 compaction wait. Move the other program elsewhere, or give this server other CPUs",
                On(cpus)
            ),
            Report::PoorWakeUp { core, cpus, wake_up } => write!(
                f,
                "late: the fast lane of core {core}{} wakes {} us after it should at the median, {} us in the worst 1 %: \
                 other programs on that CPU, or a hypervisor short of CPUs. Requests are answered that much later. Move \
                 the other programs elsewhere, or give this server other CPUs",
                On(cpus),
                wake_up.p50_us,
                wake_up.p99_us
            ),
            Report::RingRefused { core, error } => write!(
                f,
                "the kernel refuses io_uring's work on core {core} ({error}): disk requests go through threads from now on"
            ),
            Report::DirectRefused { path } => write!(
                f,
                "the file system of {} does not do direct I/O: its files go through the page cache, where large scans push \
                 out what others need. Keep the data on a disk with ext4 or XFS",
                path.display()
            ),
        }
    }
}

/// ` (CPU 3)`, or nothing without pinning.
struct On<'a>(&'a [usize]);

impl fmt::Display for On<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, rest)) = self.0.split_first() else { return Ok(()) };
        write!(f, " (CPU {first}")?;
        rest.iter().try_for_each(|cpu| write!(f, ", {cpu}"))?;
        f.write_str(")")
    }
}

/// Takes reports to where somebody reads them. It is called on fast lanes, so it must not wait for anything.
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

/// Lines on standard error.
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
    fn a_report_is_a_sentence_that_says_what_to_do() {
        let report = |cpus| Report::Starved { core: 1, cpus, group: "flush".into(), times: 3 }.to_string();
        assert!(report(vec![5]).starts_with("starved: heavy work of group flush on core 1 (CPU 5) was owed"));
        assert!(report(vec![4, 5]).contains("core 1 (CPU 4, 5) was"));
        assert!(report(vec![]).contains("core 1 was") && report(vec![]).contains("Move the other program"));
        let wake_up = WakeUp { samples: 20, p50_us: 2000, p99_us: 4000 };
        let late = Report::PoorWakeUp { core: 0, cpus: vec![0], wake_up }.to_string();
        assert!(late.contains("2000 us after it should at the median, 4000 us in the worst 1 %"), "{late}");
    }
}
