//! Cost of the first writes of a fresh process, with and without [`lanes::MemoryAhead`]: page
//! faults, and the CPU time of 64 KiB. `first_writes 96` keeps 96 MiB prefaulted, 0 none.
#![expect(unsafe_code, reason = "allocations that are never freed; two calls of libc")]
#![expect(clippy::disallowed_methods, reason = "a thread that stands for a fast lane")]

use std::time::{Duration, Instant};

/// Memory written in all, bytes.
const BYTES: usize = 1 << 30;
/// Memory written at a time, bytes, in allocations of 256.
const CHUNK: usize = 1 << 16;
/// Rate, bytes a second: that of a core with small rows.
const RATE: usize = 150_000_000;

/// Returns the page faults of this thread.
fn faults() -> i64 {
    // SAFETY: all-zero is a valid `rusage`, and it is valid for writes.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_minflt
}

/// Returns the CPU time of this thread, ns.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn main() {
    let ahead_mib: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    assert!(lanes::keep_freed_memory(), "MIMALLOC_PURGE_DELAY is not set");
    // SAFETY: it is never freed. It makes mimalloc reserve its first arena.
    assert!(!unsafe { libmimalloc_sys::mi_malloc(256) }.is_null());
    let _ahead =
        (ahead_mib > 0).then(|| lanes::MemoryAhead::start(ahead_mib << 20, u64::MAX).expect("a thread"));
    std::thread::sleep(Duration::from_secs(1));
    let (faults_before, began) = (faults(), Instant::now());
    let mut chunks_ns: Vec<u64> = vec![0; BYTES / CHUNK];
    for (index, chunk_ns) in chunks_ns.iter_mut().enumerate() {
        let deadline = Duration::from_nanos((index * CHUNK) as u64 * 1_000_000_000 / RATE as u64);
        std::thread::sleep(deadline.saturating_sub(began.elapsed()));
        let began_ns = cpu_ns();
        for _ in 0..CHUNK / 256 {
            // SAFETY: the memory is allocated, and written within its length.
            unsafe { libmimalloc_sys::mi_malloc(256).cast::<u8>().write_bytes(1, 256) };
        }
        *chunk_ns = cpu_ns() - began_ns;
    }
    let count = faults() - faults_before;
    let sum_ns = chunks_ns.iter().sum::<u64>();
    chunks_ns.sort_unstable();
    let at = |part: f64| chunks_ns[((chunks_ns.len() - 1) as f64 * part) as usize] / 1000;
    println!(
        "{ahead_mib} MiB ahead: {count} faults, {} ms of CPU; 64 KiB take p50 {} p99 {} p99.9 {} max {} us",
        sum_ns / 1_000_000,
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}
