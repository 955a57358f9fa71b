//! Clocks of the generator: nanoseconds since the run began, the wall clock at that moment (to
//! align several loads), and the CPU time of a thread.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds in a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Time between the start of the workers and zero. Allocating histograms and buffers takes a few
/// milliseconds.
const READY: Duration = Duration::from_millis(20);

/// Clock that begins with the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClock {
    start: Instant,
    start_unix_ms: u64,
}

impl RunClock {
    /// Returns a clock whose zero is [`READY`] from now. The first requests would be late
    /// otherwise.
    pub(crate) fn start() -> RunClock {
        RunClock::start_at(0)
    }

    /// Returns a clock whose zero is a time in milliseconds since 1970, or [`READY`] from now if
    /// that is later.
    pub(crate) fn start_at(unix_ms: u64) -> RunClock {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wait = READY.max(Duration::from_millis(unix_ms).saturating_sub(now));
        RunClock { start: Instant::now() + wait, start_unix_ms: (now + wait).as_millis() as u64 }
    }

    /// Sleeps until zero.
    pub(crate) fn wait_for_zero(&self) {
        std::thread::sleep(self.start.saturating_duration_since(Instant::now()));
    }

    /// Returns the nanoseconds since zero.
    pub(crate) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Returns the wall clock at `ns` after zero, milliseconds since 1970.
    pub(crate) fn unix_ms(&self, ns: u64) -> u64 {
        self.start_unix_ms + ns / 1_000_000
    }
}

/// Returns the CPU time of the calling thread, nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
}
