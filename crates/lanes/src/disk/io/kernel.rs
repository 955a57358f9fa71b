//! Threads that the kernel adds to this process for io_uring requests that would block (`iou-wrk`).
//! They have normal priority and run beside the lanes, so each ring limits them to its core's CPU
//! and to a few. No clock of a lane has their CPU time. It is read here from `/proc`, on request.

use std::fs;
use std::io;

use rustc_hash::FxHashMap;

/// Usage of these threads since the lanes were started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelUse {
    /// Number of threads now. The kernel ends idle ones after some seconds.
    pub threads: usize,
    /// CPU time of all threads so far, ns. For a thread that has ended, it is the time at the last
    /// reading.
    pub cpu_ns: u64,
}

/// Accounting of these threads.
#[derive(Default)]
pub(crate) struct KernelThreads {
    /// CPU time of living threads, ns, by thread number.
    alive: FxHashMap<u32, u64>,
    /// CPU time of threads that ended, ns.
    ended_ns: u64,
}

impl KernelThreads {
    /// Reads the usage. It blocks, so it is for threads of the pool.
    #[expect(clippy::disallowed_methods, reason = "this is the disk service")]
    pub(crate) fn read(&mut self) -> io::Result<KernelUse> {
        let mut found = FxHashMap::default();
        for entry in fs::read_dir("/proc/self/task")? {
            let path = entry?.path();
            let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
            // A thread that ends meanwhile has no files any more.
            let (Some(number), Ok(name)) = (number, fs::read_to_string(path.join("comm"))) else { continue };
            if !name.starts_with("iou-wrk") {
                continue;
            }
            if let Some(cpu_ns) =
                fs::read_to_string(path.join("schedstat")).ok().and_then(|text| cpu_ns(&text))
            {
                found.insert(number, cpu_ns);
            }
        }
        Ok(self.update(found))
    }

    fn update(&mut self, found: FxHashMap<u32, u64>) -> KernelUse {
        for (number, cpu_ns) in std::mem::take(&mut self.alive) {
            // Less CPU time under the same number means another thread.
            if found.get(&number).is_none_or(|&now_ns| now_ns < cpu_ns) {
                self.ended_ns += cpu_ns;
            }
        }
        self.alive = found;
        let cpu_ns = self.ended_ns + self.alive.values().sum::<u64>();
        KernelUse { threads: self.alive.len(), cpu_ns }
    }
}

/// Returns the first number of a thread's `schedstat`: CPU time, ns.
fn cpu_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_of_ended_threads_stays_counted() {
        let mut threads = KernelThreads::default();
        let mut seen = |now: &[(u32, u64)]| {
            let used = threads.update(now.iter().copied().collect());
            (used.threads, used.cpu_ns)
        };
        assert_eq!(seen(&[]), (0, 0));
        assert_eq!(seen(&[(7, 100), (8, 50)]), (2, 150));
        assert_eq!(seen(&[(7, 130)]), (1, 180));
        assert_eq!(seen(&[(7, 20)]), (1, 200), "number 7 is another thread now");
        assert_eq!(seen(&[]), (0, 200));
        assert_eq!(cpu_ns("123456 789 10\n"), Some(123_456));
        assert_eq!(cpu_ns(""), None);
    }
}
