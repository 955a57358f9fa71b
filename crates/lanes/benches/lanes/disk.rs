//! Benchmark of the disk, without the page cache, on a file of 1 GiB in the current folder. First
//! it measures the disk, as `fairlane probe-disk` does. Then two groups each have hundreds of
//! queued reads. Then a reader of one block at a time runs beside a sequential scan at full speed.
//! The models are: none, the measured rate, and the measured rate with a bound on requests in
//! flight.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

use lanes::disk::{AlignedBuf, File, OpenOptions};
use lanes::{DISK_BOUNDLESS, DISK_UNMEASURED, Group, GroupSpec, Lanes};
use result_file::ResultRun;
use sched::disk::{RANDOM_BYTES, SEQUENTIAL_BYTES};
use sched::{Class, DiskModel, DiskSpeed};

const FILE_BYTES: u64 = 1 << 30;
/// Reads that a backlogged group has queued or in flight. Two groups exceed the most that a core
/// may have in flight.
const DEPTH: usize = 512;

/// Load of `depth` tasks of a group. Each makes one request after another until `stop`.
#[derive(Clone)]
struct Load {
    group: Group,
    file: File,
    bytes: u64,
    depth: usize,
    is_sequential: bool,
    stop: Arc<AtomicBool>,
    begun: Arc<AtomicU64>,
}

impl Load {
    fn new(group: Group, file: &File, bytes: u64, depth: usize) -> Load {
        let (stop, begun) = (Arc::default(), Arc::default());
        Load { group, file: file.clone(), bytes, depth, is_sequential: bytes > RANDOM_BYTES, stop, begun }
    }

    fn start(&self, lanes: &Lanes) {
        let load = self.clone();
        lanes.block_on(0, self.group, move || async move {
            for _ in 0..load.depth {
                lanes::spawn(load.group, load.clone().run()).detach();
            }
        });
    }

    async fn run(self) {
        while !self.stop.load(Relaxed) {
            let number = self.begun.fetch_add(1, Relaxed);
            let place = if self.is_sequential { number } else { lanes::random::u64() };
            let offset = place % (FILE_BYTES / self.bytes) * self.bytes;
            self.file.read_at(offset, self.bytes as usize).await.expect("the file can be read");
        }
    }

    fn end(&self) {
        self.stop.store(true, Relaxed);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the reads a second of a load that runs alone.
fn rate(lanes: &Lanes, load: &Load, time: Duration) -> u64 {
    load.start(lanes);
    std::thread::sleep(time / 5);
    let before = lanes.usage(load.group).disk_read_ops;
    let began = std::time::Instant::now();
    std::thread::sleep(time);
    let done = lanes.usage(load.group).disk_read_ops - before;
    load.end();
    (done as f64 / began.elapsed().as_secs_f64()) as u64
}

fn measure(run: &mut ResultRun, lanes: &Lanes, file: &File, time: Duration) -> DiskModel {
    let large = rate(lanes, &Load::new(Group::DEFAULT, file, SEQUENTIAL_BYTES, 32), time);
    let small = rate(lanes, &Load::new(Group::DEFAULT, file, RANDOM_BYTES, 128), time);
    let lone = rate(lanes, &Load::new(Group::DEFAULT, file, RANDOM_BYTES, 1), time);
    run.row("sequential reads alone", &(large * SEQUENTIAL_BYTES / 1_000_000).to_string(), "MB/s");
    run.row("random 4 KiB reads alone, at once and one at a time", &format!("{small} · {lone}"), "a second");
    let read_bandwidth = large * SEQUENTIAL_BYTES;
    DiskSpeed {
        read_bandwidth,
        read_ops: small,
        // Nothing is written.
        write_bandwidth: read_bandwidth,
        write_ops: small,
        read_latency_ns: 1_000_000_000 / lone.max(1),
    }
    .model()
}

fn by_shares(run: &mut ResultRun, lanes: &Lanes, file: &File, model_name: &str, time: Duration) {
    let groups = [100, 400].map(|shares| lanes.create_group(Group::USERS, GroupSpec::new("disk", shares)));
    let loads = groups.map(|group| Load::new(group, file, RANDOM_BYTES, DEPTH));
    loads.iter().for_each(|load| load.start(lanes));
    std::thread::sleep(time / 5);
    let usage = || groups.map(|group| lanes.usage(group));
    let before = usage();
    std::thread::sleep(time);
    let after = usage();
    loads.iter().for_each(Load::end);
    let grown = |of: fn(&lanes::Usage) -> u64| [0, 1].map(|at| (of(&after[at]) - of(&before[at])) as f64);
    let ops = grown(|usage| usage.disk_read_ops);
    let disk = grown(|usage| usage.disk_ns);
    let ratios = [ops[1] / ops[0], disk[1] / disk[0]];
    let what = format!("small reads of two groups, shares 1:4, {model_name}: operations and disk time");
    run.row(&what, &format!("1:{:.3} · 1:{:.3}", ratios[0], ratios[1]), "ratio");
    let reads = (ops[0] + ops[1]) / time.as_secs_f64();
    run.row(&format!("both of them, {model_name}"), &format!("{reads:.0}"), "reads a second");
    groups.into_iter().for_each(|group| lanes.drop_group(group));
}

/// Reads one block after another. Returns the median and the 99th percentile, µs.
fn latency(lanes: &Lanes, file: &File, time: Duration) -> [u64; 2] {
    let spec = GroupSpec { class: Class::Latency, ..GroupSpec::new("reader", 1000) };
    let group = lanes.create_group(Group::USERS, spec);
    let file = file.clone();
    let mut took = lanes.block_on(0, group, move || async move {
        let (began_ns, mut took) = (lanes::time::monotonic_ns(), Vec::new());
        loop {
            let asked_ns = lanes::time::monotonic_ns();
            let offset = lanes::random::u64() % (FILE_BYTES / RANDOM_BYTES) * RANDOM_BYTES;
            file.read_at(offset, RANDOM_BYTES as usize).await.expect("the file can be read");
            let now_ns = lanes::time::monotonic_ns();
            took.push((now_ns - asked_ns) / 1_000);
            if now_ns - began_ns > time.as_nanos() as u64 {
                return took;
            }
            lanes::time::sleep(Duration::from_millis(1)).await;
        }
    });
    lanes.drop_group(group);
    took.sort_unstable();
    [took.len() / 2, took.len() * 99 / 100].map(|at| took[at])
}

fn latencies(run: &mut ResultRun, lanes: &Lanes, file: &File, model_name: &str, time: Duration) {
    let alone = latency(lanes, file, time);
    let cell = |took: [u64; 2]| format!("{} · {}", took[0], took[1]);
    run.row(&format!("4 KiB read alone, {model_name}: p50 and p99"), &cell(alone), "µs");
    for (bytes, depth) in [(SEQUENTIAL_BYTES, 32), (1 << 20, 8)] {
        let spec = GroupSpec { class: Class::Batch, ..GroupSpec::new("scan", 100) };
        let group = lanes.create_group(Group::USERS, spec);
        let scan = Load::new(group, file, bytes, depth);
        scan.start(lanes);
        std::thread::sleep(time / 5);
        let before = lanes.usage(group).disk_read_bytes;
        let beside = latency(lanes, file, time);
        let moved = lanes.usage(group).disk_read_bytes - before;
        scan.end();
        lanes.drop_group(group);
        let what = format!("beside {depth} reads of {} KiB at once, {model_name}", bytes >> 10);
        run.row(&format!("{what}: p50 and p99"), &cell(beside), "µs");
        let scan_mb = moved as f64 / time.as_secs_f64() / 1e6;
        run.row(
            &format!("the scan of {} KiB reads, {model_name}", bytes >> 10),
            &format!("{scan_mb:.0}"),
            "MB/s",
        );
    }
}

async fn make(path: PathBuf) -> File {
    let options = OpenOptions { write: true, create: true, direct: true, ..OpenOptions::default() };
    let file = lanes::disk::open(&path, options).await.expect("a file in this folder");
    lanes::disk::remove_file(&path).await.expect("just made");
    file.truncate(FILE_BYTES).await.expect("space");
    let mut buffer = AlignedBuf::new(1 << 20);
    lanes::random::fill(&mut buffer);
    for at in 0..FILE_BYTES >> 20 {
        buffer = file.write_aligned(at << 20, buffer).await.expect("space");
    }
    file.sync_all().await.expect("written");
    if !file.is_direct() {
        println!("  this folder has no direct I/O: the results are those of the page cache");
    }
    file
}

pub(crate) fn all(run: &mut ResultRun, lanes: &Lanes, time: Duration) {
    lanes.set_disk(DISK_BOUNDLESS);
    let file = lanes.block_on(0, Group::DEFAULT, || make("lanes-bench.disk".into()));
    let measured = measure(run, lanes, &file, time);
    let rate_only = DiskModel { latency_ns: DISK_BOUNDLESS.latency_ns, ..measured };
    let models = [("no model", DISK_UNMEASURED), ("measured rate", rate_only), ("measured model", measured)];
    for (model_name, model) in models {
        lanes.set_disk(model);
        by_shares(run, lanes, &file, model_name, time);
        latencies(run, lanes, &file, model_name, time);
    }
}
