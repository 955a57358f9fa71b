//! Time, as the generator needs it: nanoseconds since the run began, the wall clock at that moment (so that
//! several loads can be laid on one axis), and the CPU a thread has used.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds in a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// What workers are given to get ready: allocating histograms and buffers takes a few milliseconds.
const READY: Duration = Duration::from_millis(20);

/// The zero of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    start_unix_ms: u64,
}

impl Clock {
    /// Zero is as long from now as workers need to get ready; the first requests would be late otherwise.
    pub(crate) fn start() -> Clock {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + READY;
        Clock { start: Instant::now() + READY, start_unix_ms: unix.as_millis() as u64 }
    }

    /// Sleeps until zero.
    pub(crate) fn wait_for_zero(&self) {
        std::thread::sleep(self.start.saturating_duration_since(Instant::now()));
    }

    /// Nanoseconds since zero.
    pub(crate) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// The wall clock at `ns` after zero, milliseconds since 1970.
    pub(crate) fn unix_ms(&self, ns: u64) -> u64 {
        self.start_unix_ms + ns / 1_000_000
    }
}

/// The CPU time the calling thread has used, nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
}
