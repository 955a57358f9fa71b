//! Measuring a disk: a file of random bytes is written in order, read in order, read and written anywhere, each for a stated
//! time, past the page cache, from all cores, with many requests in flight; and read anywhere by one request after another.
//!
//! 1. The file loses its name as soon as it is open, so that nothing of it is left whatever happens.
//! 2. Every [`Plan::window`] it is looked how many requests were done meanwhile.
//! 3. The rate is that of the upper quartile of those windows: what the disk does again and again, beside other programs' hiccups
//!    and its own, but not what it did once, out of a cache.
//!
//! Requests go through `lanes` as those of the server will, so what is measured is what the server can have.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

use lanes::disk::{self, AlignedBuf, File, OpenOptions};
use sched::DiskSpeed;
use sched::disk::{RANDOM_BYTES, RANDOM_DEPTH, SEQUENTIAL_BYTES};

/// How long to measure, and on how much.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// For each of the measurements.
    pub(super) phase: Duration,
    pub(super) window: Duration,
    /// Length of the file, at most, bytes; at most half of what is free as well.
    pub(super) file_bytes_max: u64,
}

impl Plan {
    /// How long all of it takes, if the disk answers.
    pub(super) fn takes(&self) -> Duration {
        self.phase * PHASES.len() as u32
    }
}

/// At first start: well under two seconds.
pub(super) const BRIEF: Plan =
    Plan { phase: Duration::from_millis(280), window: Duration::from_millis(40), file_bytes_max: 256 << 20 };
/// By `fairlane probe-disk`: half a minute, and more than a disk's own cache.
pub(super) const LONG: Plan =
    Plan { phase: Duration::from_secs(6), window: Duration::from_millis(250), file_bytes_max: 8 << 30 };

/// Beyond the phases themselves, a measurement that takes so much longer is given up: the disk has stopped answering.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests in flight, of all cores, reading or writing in order: some MiB, as a scan's read-ahead.
const SEQUENTIAL_DEPTH: usize = 32;
/// With less space than this nothing can be said, bytes.
const FILE_BYTES_MIN: u64 = 16 << 20;

/// How many requests are in flight.
#[derive(Clone, Copy)]
enum Depth {
    /// [`SEQUENTIAL_DEPTH`] by all cores, in order, around and around.
    InOrder,
    /// [`RANDOM_DEPTH`] by each core, anywhere.
    Anywhere,
    /// One at a time, anywhere.
    One,
}

/// The measurements in their order, as they are called, whether they write, in requests of how many bytes.
const PHASES: [(&str, bool, u64, Depth); 5] = [
    ("writing in order", true, SEQUENTIAL_BYTES, Depth::InOrder),
    ("reading in order", false, SEQUENTIAL_BYTES, Depth::InOrder),
    ("reading anywhere", false, RANDOM_BYTES, Depth::Anywhere),
    // Before many small writes, which a disk may go on with for a while by itself.
    ("reading anywhere, one at a time", false, RANDOM_BYTES, Depth::One),
    ("writing anywhere", true, RANDOM_BYTES, Depth::Anywhere),
];

/// What is told meanwhile: what is being done, and once it was, how many requests a second of how many bytes.
pub(super) type Say = Box<dyn Fn(&str, Option<(u64, u64)>) + Send>;

/// One measurement under way, on all cores.
struct Work {
    file: File,
    write: bool,
    bytes: u64,
    depth: Depth,
    /// Requests that fit in the part of the file that is used.
    places: u64,
    begun: AtomicU64,
    done: AtomicU64,
    over: AtomicBool,
}

/// Measures the disk that holds `folder`. On core 0's fast lane. `stop` ends it early.
///
/// # Errors
/// Half a sentence: why nothing was measured.
pub(super) async fn measure(
    folder: &Path,
    plan: Plan,
    stop: &Arc<AtomicBool>,
    say: &Say,
) -> Result<DiskSpeed, String> {
    let patience = plan.takes() + PATIENCE;
    let measured = lanes::time::timeout(patience, measure_all(folder, plan, stop, say)).await;
    measured.map_err(|_| "the disk stopped answering".to_string())?
}

async fn measure_all(folder: &Path, plan: Plan, stop: &AtomicBool, say: &Say) -> Result<DiskSpeed, String> {
    let (file, len) = scratch(folder, plan.file_bytes_max).await.map_err(|error| error.to_string())?;
    let mut written = len;
    let mut rates = [0; PHASES.len()];
    for (rate, (what, write, bytes, depth)) in rates.iter_mut().zip(PHASES) {
        say(what, None);
        let work = Work {
            file: file.clone(),
            write,
            bytes,
            depth,
            places: written / bytes,
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            over: AtomicBool::new(false),
        };
        let work = Arc::new(work);
        *rate = phase(&work, plan, stop).await?;
        if write && matches!(depth, Depth::InOrder) {
            // What comes next keeps to what is there: a hole is read without the disk.
            written = (work.begun.load(Relaxed) * bytes).min(len);
        }
        say(what, Some((*rate, bytes)));
    }
    let [writes, reads, read_ops, lone_reads, write_ops] = rates;
    let [write_bandwidth, read_bandwidth] = [writes, reads].map(|rate| rate * SEQUENTIAL_BYTES);
    let read_latency_ns = 1_000_000_000 / lone_reads.clamp(1, 1_000_000_000);
    Ok(DiskSpeed { read_bandwidth, write_bandwidth, read_ops, write_ops, read_latency_ns })
}

/// A file without a name, and its length.
async fn scratch(folder: &Path, bytes_max: u64) -> std::io::Result<(File, u64)> {
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
    // Writes that make a file longer go one at a time, whatever is in flight.
    file.truncate(len).await?;
    Ok((file, len))
}

/// Requests a second.
async fn phase(work: &Arc<Work>, plan: Plan, stop: &AtomicBool) -> Result<u64, String> {
    let (cores, depth) = match work.depth {
        Depth::InOrder => (lanes::cores(), SEQUENTIAL_DEPTH.div_ceil(lanes::cores())),
        Depth::Anywhere => (lanes::cores(), RANDOM_DEPTH as usize),
        Depth::One => (1, 1),
    };
    let streams = |core| {
        let work = work.clone();
        lanes::spawn(lanes::current_group(), async move {
            lanes::call(core, move || stream_all(work, depth)).await
        })
    };
    let cores: Vec<_> = (0..cores).map(streams).collect();
    let began_ns = lanes::time::monotonic_ns();
    let rate = watch(work, plan, stop).await;
    work.over.store(true, Relaxed);
    for core in cores {
        core.await.map_err(|error| error.to_string())?;
    }
    if stop.load(Relaxed) {
        return Err("it was stopped".into());
    }
    // A disk may be so slow, or stuck for so long, that most windows pass without a request done.
    let took_ns = (lanes::time::monotonic_ns() - began_ns).max(1);
    let mean = u128::from(work.done.load(Relaxed)) * 1_000_000_000 / u128::from(took_ns);
    Ok(if rate > 0 { rate } else { u64::try_from(mean).unwrap_or(u64::MAX).max(1) })
}

/// Looks at each window's end how much was done in it, until the time is over or nothing is being done any more.
async fn watch(work: &Work, plan: Plan, stop: &AtomicBool) -> u64 {
    let began_ns = lanes::time::monotonic_ns();
    let (mut windows, mut last_ns, mut last) = (Vec::new(), began_ns, 0);
    loop {
        lanes::time::sleep(plan.window).await;
        let (now_ns, done) = (lanes::time::monotonic_ns(), work.done.load(Relaxed));
        windows.push((done - last) * 1_000_000_000 / (now_ns - last_ns).max(1));
        (last_ns, last) = (now_ns, done);
        let over = now_ns - began_ns >= plan.phase.as_nanos() as u64;
        if over || stop.load(Relaxed) || work.over.load(Relaxed) {
            return upper_quartile(windows);
        }
    }
}

/// What a quarter of them reach; 0 of none.
fn upper_quartile(mut rates: Vec<u64>) -> u64 {
    rates.sort_unstable();
    let at = (rates.len() * 3 / 4).min(rates.len().saturating_sub(1));
    rates.get(at).copied().unwrap_or(0)
}

/// One core's part: so many requests in flight until it is over.
async fn stream_all(work: Arc<Work>, depth: usize) -> std::io::Result<()> {
    let streams: Vec<_> =
        (0..depth).map(|_| lanes::spawn(lanes::current_group(), stream(work.clone()))).collect();
    let mut result = Ok(());
    for stream in streams {
        let ended = stream.await;
        if ended.is_err() {
            work.over.store(true, Relaxed);
        }
        result = result.and(ended);
    }
    result
}

async fn stream(work: Arc<Work>) -> std::io::Result<()> {
    let mut buffer = AlignedBuf::new(work.bytes as usize);
    if work.write {
        fill(&mut buffer);
    }
    while !work.over.load(Relaxed) {
        let turn = work.begun.fetch_add(1, Relaxed);
        let place = if matches!(work.depth, Depth::InOrder) { turn } else { scatter(turn) } % work.places;
        let offset = place * work.bytes;
        if work.write {
            buffer = work.file.write_aligned(offset, buffer).await?;
        } else {
            work.file.read_at(offset, work.bytes as usize).await?;
        }
        work.done.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// With what does not compress: some disks are quicker with zeros.
fn fill(buffer: &mut [u8]) {
    let (words, _) = buffer.as_chunks_mut::<8>();
    let start = lanes::random::u64() >> 1;
    words.iter_mut().zip(start..).for_each(|(word, n)| *word = scatter(n).to_ne_bytes());
}

/// Spreads successive numbers over all there are (splitmix64).
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
    fn hiccups_and_a_burst_do_not_count() {
        assert_eq!(upper_quartile(vec![]), 0);
        assert_eq!(upper_quartile(vec![7]), 7);
        assert_eq!(upper_quartile(vec![900, 100, 0, 101, 102, 99, 10, 103]), 103);
    }

    #[test]
    fn places_are_spread() {
        let mut hit = [0_u32; 16];
        (0..16_000).for_each(|n| hit[(scatter(n) % 16) as usize] += 1);
        assert!(hit.iter().all(|hits| (800..1200).contains(hits)), "{hit:?}");
    }

    #[test]
    fn a_disk_is_measured_and_nothing_is_left_of_it() {
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
                let (stop, say) = (Arc::new(AtomicBool::new(stop)), Box::new(|_: &str, _| ()) as Say);
                measure(&folder, plan, &stop, &say).await
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
