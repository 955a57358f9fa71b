//! Measurement of a disk, in five phases of equal length: sequential writes, sequential reads,
//! random reads, random reads one at a time, random writes. Requests bypass the page cache. All but
//! the single reads come from all cores, with many in flight.
//!
//! 1. Create a file and remove its name, so that nothing is left after a crash.
//! 2. In each phase, count the completed requests of every [`Plan::window`].
//! 3. Take the upper quartile of the windows as the rate. Delays by other programs and by the disk
//!    do not lower it, and a short burst into a cache of the disk does not raise it.
//!
//! Requests use `lanes::disk`, as those of the server do, so that the rates are reachable for it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

use lanes::disk::{self, AlignedBuf, File, OpenOptions};
use sched::DiskSpeed;
use sched::disk::{RANDOM_BYTES, RANDOM_DEPTH, SEQUENTIAL_BYTES};

/// Duration and file size of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Length of each phase.
    pub(super) phase: Duration,
    /// Interval of the counts.
    pub(super) window: Duration,
    /// Upper bound of the file, bytes. Half of the free space is another.
    pub(super) file_bytes_max: u64,
}

impl Plan {
    /// Returns the length of all phases together.
    pub(super) fn duration(&self) -> Duration {
        self.phase * PHASES.len() as u32
    }
}

/// Plan of the first start: 1.4 s.
pub(super) const BRIEF: Plan =
    Plan { phase: Duration::from_millis(280), window: Duration::from_millis(40), file_bytes_max: 256 << 20 };
/// Plan of `fairlane probe-disk`: half a minute, and a file larger than the cache of a disk.
pub(super) const LONG: Plan =
    Plan { phase: Duration::from_secs(6), window: Duration::from_millis(250), file_bytes_max: 8 << 30 };

/// Time beyond the phases after which the measurement fails, because the disk does not answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Sequential requests in flight on all cores together: 4 MiB, as read-ahead of scans.
const SEQUENTIAL_DEPTH: usize = 32;
/// Lower bound of the file, bytes. A smaller one fits into caches of disks.
const FILE_BYTES_MIN: u64 = 16 << 20;

/// Offsets of the requests, and how many are in flight.
#[derive(Clone, Copy)]
enum Pattern {
    /// Ascending offsets, from the start again at the end. [`SEQUENTIAL_DEPTH`] on all cores.
    Sequential,
    /// Random offsets, [`RANDOM_DEPTH`] on each core.
    Random,
    /// Random offsets, one request at a time.
    Single,
}

/// Phases in their order: name, true for writes, bytes of a request, pattern.
const PHASES: [(&str, bool, u64, Pattern); 5] = [
    ("sequential writes", true, SEQUENTIAL_BYTES, Pattern::Sequential),
    ("sequential reads", false, SEQUENTIAL_BYTES, Pattern::Sequential),
    ("random reads", false, RANDOM_BYTES, Pattern::Random),
    // Precedes the random writes, because a disk may go on with those by itself afterwards.
    ("random reads, one at a time", false, RANDOM_BYTES, Pattern::Single),
    ("random writes", true, RANDOM_BYTES, Pattern::Random),
];

/// Receives the name of a phase at its start, and again at its end, with the requests a second and
/// the bytes of a request.
pub(super) type Progress = Box<dyn Fn(&str, Option<(u64, u64)>) + Send>;

/// A running phase, shared by all cores.
struct Phase {
    file: File,
    write: bool,
    bytes: u64,
    pattern: Pattern,
    /// Requests that fit into the part of the file that was written.
    places: u64,
    begun: AtomicU64,
    completed: AtomicU64,
    is_over: AtomicBool,
}

/// Measures the disk of `folder`. Call it on core 0. `stop` ends it early.
///
/// # Errors
/// The reason, without a full stop.
pub(super) async fn measure(
    folder: &Path,
    plan: Plan,
    stop: &Arc<AtomicBool>,
    progress: &Progress,
) -> Result<DiskSpeed, String> {
    let limit = plan.duration() + PATIENCE;
    let measured = lanes::time::timeout(limit, measure_all(folder, plan, stop, progress)).await;
    measured.map_err(|_| "the disk stopped answering".to_string())?
}

async fn measure_all(
    folder: &Path,
    plan: Plan,
    stop: &AtomicBool,
    progress: &Progress,
) -> Result<DiskSpeed, String> {
    let (file, len) = unnamed_file(folder, plan.file_bytes_max).await.map_err(|error| error.to_string())?;
    let mut written = len;
    let mut rates = [0; PHASES.len()];
    for (rate, (name, write, bytes, pattern)) in rates.iter_mut().zip(PHASES) {
        progress(name, None);
        let phase = Phase {
            file: file.clone(),
            write,
            bytes,
            pattern,
            places: written / bytes,
            begun: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        };
        let phase = Arc::new(phase);
        *rate = run(&phase, plan, stop).await?;
        if write && matches!(pattern, Pattern::Sequential) {
            // Later phases use this part only: the file system answers reads of a hole without the
            // disk.
            written = (phase.begun.load(Relaxed) * bytes).min(len);
        }
        progress(name, Some((*rate, bytes)));
    }
    let [writes, reads, read_ops, single_reads, write_ops] = rates;
    let [write_bandwidth, read_bandwidth] = [writes, reads].map(|rate| rate * SEQUENTIAL_BYTES);
    let read_latency_ns = 1_000_000_000 / single_reads.clamp(1, 1_000_000_000);
    Ok(DiskSpeed { read_bandwidth, write_bandwidth, read_ops, write_ops, read_latency_ns })
}

/// Creates a file without a name. Returns it and its length.
async fn unnamed_file(folder: &Path, bytes_max: u64) -> std::io::Result<(File, u64)> {
    let (free, _) = disk::space(folder).await?;
    let len = bytes_max.min(free / 2) / SEQUENTIAL_BYTES * SEQUENTIAL_BYTES;
    if len < FILE_BYTES_MIN {
        return Err(std::io::ErrorKind::StorageFull.into());
    }
    let path = folder.join(format!(".probe-disk-{}", std::process::id()));
    let options =
        OpenOptions { write: true, create: true, truncate: true, direct: true, ..OpenOptions::default() };
    let file = disk::open(&path, options).await?;
    disk::remove_file(&path).await?;
    // File systems serialize writes that extend a file.
    file.truncate(len).await?;
    Ok((file, len))
}

/// Runs a phase on all cores. Returns the requests a second.
async fn run(phase: &Arc<Phase>, plan: Plan, stop: &AtomicBool) -> Result<u64, String> {
    let (cores, depth) = match phase.pattern {
        Pattern::Sequential => (lanes::cores(), SEQUENTIAL_DEPTH.div_ceil(lanes::cores())),
        Pattern::Random => (lanes::cores(), RANDOM_DEPTH as usize),
        Pattern::Single => (1, 1),
    };
    let streams = |core| {
        let phase = phase.clone();
        lanes::spawn(lanes::current_group(), async move {
            lanes::call(core, move || run_on_core(phase, depth)).await
        })
    };
    let cores: Vec<_> = (0..cores).map(streams).collect();
    let began_ns = lanes::time::monotonic_ns();
    let rate = count(phase, plan, stop).await;
    phase.is_over.store(true, Relaxed);
    for core in cores {
        core.await.map_err(|error| error.to_string())?;
    }
    if stop.load(Relaxed) {
        return Err("it was stopped".into());
    }
    // On a very slow disk the quartile is 0, because most windows have no completed request.
    let took_ns = (lanes::time::monotonic_ns() - began_ns).max(1);
    let mean = u128::from(phase.completed.load(Relaxed)) * 1_000_000_000 / u128::from(took_ns);
    Ok(if rate > 0 { rate } else { u64::try_from(mean).unwrap_or(u64::MAX).max(1) })
}

/// Counts completed requests in windows until the phase is over. Returns the upper quartile of the
/// rates, in requests a second.
async fn count(phase: &Phase, plan: Plan, stop: &AtomicBool) -> u64 {
    let began_ns = lanes::time::monotonic_ns();
    let (mut windows, mut last_ns, mut last) = (Vec::new(), began_ns, 0);
    loop {
        lanes::time::sleep(plan.window).await;
        let (now_ns, completed) = (lanes::time::monotonic_ns(), phase.completed.load(Relaxed));
        windows.push((completed - last) * 1_000_000_000 / (now_ns - last_ns).max(1));
        (last_ns, last) = (now_ns, completed);
        let is_over = now_ns - began_ns >= plan.phase.as_nanos() as u64;
        if is_over || stop.load(Relaxed) || phase.is_over.load(Relaxed) {
            return upper_quartile(windows);
        }
    }
}

/// Returns the rate that a quarter of the windows reach. 0: there are no windows.
fn upper_quartile(mut rates: Vec<u64>) -> u64 {
    rates.sort_unstable();
    let at = (rates.len() * 3 / 4).min(rates.len().saturating_sub(1));
    rates.get(at).copied().unwrap_or(0)
}

/// Runs `depth` streams on this core until the phase is over.
async fn run_on_core(phase: Arc<Phase>, depth: usize) -> std::io::Result<()> {
    let streams: Vec<_> =
        (0..depth).map(|_| lanes::spawn(lanes::current_group(), stream(phase.clone()))).collect();
    let mut result = Ok(());
    for stream in streams {
        let ended = stream.await;
        if ended.is_err() {
            phase.is_over.store(true, Relaxed);
        }
        result = result.and(ended);
    }
    result
}

/// Sends one request after the other.
async fn stream(phase: Arc<Phase>) -> std::io::Result<()> {
    let mut buffer = AlignedBuf::new(phase.bytes as usize);
    if phase.write {
        fill(&mut buffer);
    }
    while !phase.is_over.load(Relaxed) {
        let n = phase.begun.fetch_add(1, Relaxed);
        let place = if matches!(phase.pattern, Pattern::Sequential) { n } else { scatter(n) } % phase.places;
        let offset = place * phase.bytes;
        if phase.write {
            buffer = phase.file.write_aligned(offset, buffer).await?;
        } else {
            phase.file.read_at(offset, phase.bytes as usize).await?;
        }
        phase.completed.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Fills a buffer with bytes that do not compress: some disks are faster with zeros.
fn fill(buffer: &mut [u8]) {
    let (words, _) = buffer.as_chunks_mut::<8>();
    let start = lanes::random::u64() >> 1;
    words.iter_mut().zip(start..).for_each(|(word, n)| *word = scatter(n).to_ne_bytes());
}

/// Maps successive numbers to pseudo-random ones (splitmix64).
fn scatter(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_and_a_burst_do_not_change_the_rate() {
        assert_eq!(upper_quartile(vec![]), 0);
        assert_eq!(upper_quartile(vec![7]), 7);
        assert_eq!(upper_quartile(vec![900, 100, 0, 101, 102, 99, 10, 103]), 103);
    }

    #[test]
    fn random_places_are_uniform() {
        let mut hit = [0_u32; 16];
        (0..16_000).for_each(|n| hit[(scatter(n) % 16) as usize] += 1);
        assert!(hit.iter().all(|hits| (800..1200).contains(hits)), "{hit:?}");
    }

    #[test]
    fn measurement_leaves_no_file() {
        let folder = std::env::temp_dir().join(format!("fairlane-measure-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let config = lanes::Config { cores: vec![0, 1], pin: false, ..lanes::Config::detect() };
        let lanes = lanes::Lanes::start(config).expect("lanes start");
        let plan = Plan {
            phase: Duration::from_millis(20),
            window: Duration::from_millis(5),
            file_bytes_max: FILE_BYTES_MIN,
        };
        let run = |stop: bool| {
            let folder = folder.clone();
            lanes.block_on(0, lanes::Group::CONTROL, move || async move {
                let progress = Box::new(|_: &str, _| ()) as Progress;
                measure(&folder, plan, &Arc::new(AtomicBool::new(stop)), &progress).await
            })
        };
        let speed = run(false).expect("measured");
        assert!(super::super::kept::values(&speed).iter().all(|value| *value > 0), "{speed:?}");
        assert_eq!(run(true), Err("it was stopped".into()));
        lanes.shutdown();
        assert_eq!(std::fs::read_dir(&folder).expect("there").count(), 0);
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
