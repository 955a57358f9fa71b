//! Resident memory of the server, sampled from `/proc` while attacks run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use server_process::kernel::resident_bytes;

/// Configured memory of the server.
pub(crate) const CONFIGURED: &str = "1GiB";
/// Largest resident memory in a run, bytes: the configured memory, and 256 MiB for code, stacks and
/// sockets.
pub(crate) const RESIDENT_MAX: u64 = (1 << 30) + (256 << 20);
/// Largest resident memory beside several attacks on memory at once, bytes: 1.3 times the
/// configured memory.
pub(crate) const TOGETHER_MAX: u64 = (13 << 30) / 10;
/// Resident memory at which the server is killed to keep the machine usable, bytes.
const KILL: u64 = 4 << 30;

/// Interval between samples. A server that takes 5 GB/s grows by 50 MB meanwhile.
const SAMPLE: Duration = Duration::from_millis(10);

/// A thread that samples the memory of one process until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    shared: Arc<WatchedMemory>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct WatchedMemory {
    peak: AtomicU64,
    ends: AtomicBool,
    killed: AtomicBool,
}

impl Watch {
    pub(crate) fn start(pid: u32) -> Watch {
        let shared = Arc::new(WatchedMemory::default());
        let watched = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while !watched.ends.load(Ordering::Relaxed) {
                let now = resident_bytes(pid).unwrap_or(0);
                watched.peak.fetch_max(now, Ordering::Relaxed);
                if now > KILL && !watched.killed.swap(true, Ordering::Relaxed) {
                    kill(pid);
                }
                std::thread::sleep(SAMPLE);
            }
        });
        Watch { shared, thread: Some(thread) }
    }

    /// Returns the peak since the last call, bytes.
    pub(crate) fn take_peak(&self) -> u64 {
        self.shared.peak.swap(0, Ordering::Relaxed)
    }

    /// Returns true if the process was killed for its memory.
    pub(crate) fn killed(&self) -> bool {
        self.shared.killed.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // It may have ended already.
    let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
}
