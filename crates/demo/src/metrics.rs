//! Use of the server's CPU and disk, sampled twice a second: the server's own counters by level
//! from `/metrics`, and the kernel's of the process and the cores from `/proc`. Counters are
//! cumulative, so that any period is a difference of two samples, interpolated at its ends.

use std::collections::BTreeMap;
use std::io::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use load::{Exposed, scrape, scrape_named};
use server_process::kernel::{Busy, process_cpu_s};
use server_process::metrics::{fetch, sums};

use crate::activity;
use crate::results::{Cpu, CpuPoint, DiskPoint, Served, StoragePoint};
use crate::server::NICE;

/// Counter of CPU by level and lane.
const CPU: &str = "fairlane_cpu_seconds_total";
/// Counters of the disk by level: bytes by direction, and time of requests in the queue, whose rate
/// is the mean number of queued requests.
const DISK_BYTES: &str = "fairlane_disk_bytes_total";
const DISK_QUEUE: &str = "fairlane_disk_queue_seconds_total";
/// Histogram of the time that requests spend in the queue.
const QUEUE: &str = "fairlane_queue_time_seconds";
/// Time limit of a scrape. A saturated server answers well within it.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Time between two samples: ten steps. The thread checks after each step whether it should end.
const STEPS: (u32, Duration) = (10, Duration::from_millis(50));

/// Returns the time, seconds since 1970.
pub(crate) fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Cumulative CPU at one moment, seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    at_s: f64,
    levels: BTreeMap<String, f64>,
    groups: BTreeMap<String, f64>,
    /// Bytes of the disk and seconds in its queue, by level.
    disk_bytes: BTreeMap<String, f64>,
    disk_queue: BTreeMap<String, f64>,
    /// Metrics of storage.
    storage: activity::StorageCounts,
    process: f64,
    busy: f64,
    loads_busy: f64,
}

/// Histograms of each level at one moment. They are cumulative too, but cannot be interpolated.
#[derive(Clone, Debug, Default)]
struct Histograms {
    at_s: f64,
    service: BTreeMap<String, Exposed>,
    queue: BTreeMap<String, Exposed>,
}

/// Returns the times of requests between two moments, from the first and last histograms in
/// between.
fn served(samples: &[Histograms], begin_s: f64, end_s: f64) -> BTreeMap<String, Served> {
    let inside = |sample: &&Histograms| (begin_s - 0.01..=end_s + 0.01).contains(&sample.at_s);
    let mut inside = samples.iter().filter(inside);
    let (Some(first), Some(last)) = (inside.next(), inside.next_back()) else { return BTreeMap::new() };
    let during = |after: Option<&Exposed>, before: Option<&Exposed>| {
        after.map(|after| after.since(before.unwrap_or(&Exposed::default()))).unwrap_or_default()
    };
    let us = |seconds: f64| seconds * 1e6;
    let level = |(name, service): (&String, &Exposed)| {
        let service = during(Some(service), first.service.get(name));
        let queue = during(last.queue.get(name), first.queue.get(name));
        let times = Served {
            service_mean_us: us(service.mean_s()),
            service_p99_us: us(service.quantile_s(0.99)),
            queue_mean_us: us(queue.mean_s()),
            queue_p99_us: us(queue.quantile_s(0.99)),
        };
        (service.count() > 0.0).then(|| (name.clone(), times))
    };
    last.service.iter().filter_map(level).collect()
}

/// Returns the counters at a moment, linear between samples. `None` after the last sample, or more
/// than a second before the first.
fn at(samples: &[Sample], at_s: f64) -> Option<Sample> {
    let after = samples.iter().position(|sample| sample.at_s >= at_s)?;
    let b = &samples[after];
    if after == 0 {
        return (b.at_s - at_s < 1.0).then(|| b.clone());
    }
    let a = &samples[after - 1];
    let part = (at_s - a.at_s) / (b.at_s - a.at_s).max(1e-9);
    let between = |a: f64, b: f64| a + (b - a) * part;
    let all = |a: &BTreeMap<String, f64>, b: &BTreeMap<String, f64>| {
        let one = |(name, value): (&String, &f64)| {
            (name.clone(), between(a.get(name).copied().unwrap_or(0.0), *value))
        };
        b.iter().map(one).collect()
    };
    Some(Sample {
        at_s,
        levels: all(&a.levels, &b.levels),
        groups: all(&a.groups, &b.groups),
        disk_bytes: all(&a.disk_bytes, &b.disk_bytes),
        disk_queue: all(&a.disk_queue, &b.disk_queue),
        storage: std::array::from_fn(|place| between(a.storage[place], b.storage[place])),
        process: between(a.process, b.process),
        busy: between(a.busy, b.busy),
        loads_busy: between(a.loads_busy, b.loads_busy),
    })
}

/// Returns the CPU between two moments, in cores.
fn between(samples: &[Sample], begin_s: f64, end_s: f64, cores: usize) -> Cpu {
    let last = samples.last().map_or(0.0, |sample| sample.at_s);
    let (Some(a), Some(b)) = (at(samples, begin_s), at(samples, end_s.min(last))) else {
        return Cpu { cores, ..Cpu::default() };
    };
    let seconds = (b.at_s - a.at_s).max(1e-9);
    let all = |a: &BTreeMap<String, f64>, b: &BTreeMap<String, f64>| {
        let one = |(name, value): (&String, &f64)| {
            (name.clone(), (value - a.get(name).copied().unwrap_or(0.0)) / seconds)
        };
        b.iter().map(one).filter(|(_, used)| *used > 0.0005).collect()
    };
    Cpu {
        levels: all(&a.levels, &b.levels),
        groups: all(&a.groups, &b.groups),
        process: (b.process - a.process) / seconds,
        busy: (b.busy - a.busy) / seconds,
        cores,
        loads_busy: (b.loads_busy - a.loads_busy) / seconds,
        served: BTreeMap::new(),
    }
}

/// Returns the use of the disk in the second between `a` and `b`.
fn disk(at_s: f64, a: &Sample, b: &Sample) -> DiskPoint {
    let increase = |a: &BTreeMap<String, f64>, b: &BTreeMap<String, f64>| {
        let one = |(name, value): (&String, &f64)| {
            (name.clone(), (value - a.get(name).copied().unwrap_or(0.0)).max(0.0))
        };
        b.iter().map(one).collect()
    };
    DiskPoint {
        at_s,
        bytes_per_s: increase(&a.disk_bytes, &b.disk_bytes),
        queued: increase(&a.disk_queue, &b.disk_queue),
    }
}

/// Samples one server until it is dropped.
#[derive(Debug)]
pub(crate) struct Probe {
    source: Arc<SampledServer>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct SampledServer {
    address: String,
    pid: u32,
    cores: Vec<usize>,
    load_cores: Vec<usize>,
    samples: Mutex<Vec<Sample>>,
    histograms: Mutex<Vec<Histograms>>,
    stop: AtomicBool,
}

impl SampledServer {
    fn sample(&self) -> Result<(), Error> {
        let page = fetch(&self.address, TIMEOUT)?;
        let busy_s = |cores: &[usize]| Busy::of_cores(cores).map(|busy| busy.own_s + busy.stolen_s);
        let sample = Sample {
            at_s: now_s(),
            levels: sums(&page, CPU, "level"),
            groups: sums(&page, CPU, "group"),
            disk_bytes: sums(&page, DISK_BYTES, "level"),
            disk_queue: sums(&page, DISK_QUEUE, "level"),
            storage: activity::counts(&page),
            process: process_cpu_s(self.pid)?,
            busy: busy_s(&self.cores)?,
            loads_busy: busy_s(&self.load_cores)?,
        };
        let (service, queue) = (scrape(&page), scrape_named(&page, QUEUE));
        let mut histograms = self.histograms.lock().expect("no thread panics with this lock");
        histograms.push(Histograms { at_s: sample.at_s, service, queue });
        drop(histograms);
        let mut samples = self.samples.lock().expect("no thread panics with this lock");
        if samples.last().is_none_or(|last| last.at_s < sample.at_s) {
            samples.push(sample);
        }
        Ok(())
    }
}

impl Probe {
    /// Starts sampling.
    ///
    /// # Errors
    /// The first sample failed.
    pub(crate) fn start(
        address: &str,
        pid: u32,
        cores: &[usize],
        load_cores: &[usize],
    ) -> Result<Probe, Error> {
        let source = Arc::new(SampledServer {
            address: address.to_string(),
            pid,
            cores: cores.to_vec(),
            load_cores: load_cores.to_vec(),
            samples: Mutex::default(),
            histograms: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        source.sample()?;
        let own = source.clone();
        let thread = std::thread::spawn(move || {
            // A sample takes 2 ms, measured 2026-11-28. At equal priority it delayed four requests
            // of a thousand by that time: half of those that decide a p99.
            let _refused = rustix::process::nice(NICE);
            while !own.stop.load(Ordering::Relaxed) {
                for _ in 0..STEPS.0 {
                    std::thread::sleep(STEPS.1);
                    if own.stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
                // A missed sample is interpolated from its neighbours.
                let _missed = own.sample();
            }
        });
        Ok(Probe { source, thread: Some(thread) })
    }

    /// Takes a sample now and returns its time, so that a phase can begin or end with it.
    pub(crate) fn mark(&self) -> f64 {
        let _missed = self.source.sample();
        self.source
            .samples
            .lock()
            .expect("no thread panics with this lock")
            .last()
            .map_or(0.0, |last| last.at_s)
    }

    /// Returns CPU and request times between two moments.
    pub(crate) fn between(&self, begin_s: f64, end_s: f64) -> Cpu {
        let histograms = self.source.histograms.lock().expect("no thread panics with this lock");
        Cpu { served: served(&histograms, begin_s, end_s), ..self.cpu(begin_s, end_s) }
    }

    fn cpu(&self, begin_s: f64, end_s: f64) -> Cpu {
        let samples = self.source.samples.lock().expect("no thread panics with this lock");
        between(&samples, begin_s, end_s, self.source.cores.len())
    }

    /// Returns the CPU of each second.
    pub(crate) fn points(&self, begin_s: f64, end_s: f64) -> Vec<CpuPoint> {
        let count = ((end_s - begin_s).max(0.0)) as usize;
        let point = |second: usize| {
            let from = begin_s + second as f64;
            let Cpu { levels, groups, process, busy, .. } = self.cpu(from, from + 1.0);
            CpuPoint { at_s: from + 0.5, levels, groups, process, busy }
        };
        (0..count).map(point).collect()
    }

    /// Returns the activity of storage in each second.
    pub(crate) fn storage(&self, begin_s: f64, end_s: f64) -> Vec<StoragePoint> {
        self.seconds(begin_s, end_s, |at_s, a, b| activity::point(at_s, &a.storage, &b.storage))
    }

    /// Returns the use of the disk in each second.
    pub(crate) fn disk(&self, begin_s: f64, end_s: f64) -> Vec<DiskPoint> {
        self.seconds(begin_s, end_s, disk)
    }

    /// Returns what changed in each second, from its middle, its first and its last sample.
    fn seconds<T>(&self, begin_s: f64, end_s: f64, change: impl Fn(f64, &Sample, &Sample) -> T) -> Vec<T> {
        let samples = self.source.samples.lock().expect("no thread panics with this lock");
        let count = ((end_s - begin_s).max(0.0)) as usize;
        let point = |second: usize| {
            let from = begin_s + second as f64;
            Some(change(from + 0.5, &at(&samples, from)?, &at(&samples, from + 1.0)?))
        };
        (0..count).filter_map(point).collect()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.source.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_of_a_level_is_an_increase() {
        let page = |bytes: u32, seconds: f64| {
            format!(
                "fairlane_disk_bytes_total{{level=\"a\",direction=\"read\"}} {bytes}\n\
                 fairlane_disk_bytes_total{{level=\"a\",direction=\"write\"}} 5\n\
                 fairlane_disk_bytes_total{{group=\"log\",direction=\"write\"}} 9\n\
                 fairlane_disk_queue_seconds_total{{level=\"a\"}} {seconds}\n"
            )
        };
        let sample = |page: String| Sample {
            disk_bytes: sums(&page, DISK_BYTES, "level"),
            disk_queue: sums(&page, DISK_QUEUE, "level"),
            ..Sample::default()
        };
        let found = disk(7.5, &sample(page(100, 1.0)), &sample(page(300, 3.5)));
        assert_eq!((found.at_s, found.bytes_per_s.len()), (7.5, 1));
        assert_eq!((found.bytes_per_s["a"], found.queued["a"]), (200.0, 2.5));
    }

    fn sample(at_s: f64, level: f64) -> Sample {
        let levels = BTreeMap::from([("a".to_string(), level)]);
        Sample { at_s, levels, process: level, busy: 2.0 * level, ..Sample::default() }
    }

    #[test]
    fn period_is_a_difference_interpolated_at_its_ends() {
        let samples = [sample(0.0, 0.0), sample(1.0, 1.0), sample(2.0, 1.0), sample(3.0, 2.0)];
        let used = |begin, end| between(&samples, begin, end, 1).levels.get("a").copied().unwrap_or(0.0);
        assert_eq!((used(0.0, 1.0), used(1.0, 2.0), used(0.5, 2.5)), (1.0, 0.0, 0.5));
        assert_eq!(between(&samples, 0.0, 3.0, 2).busy, 4.0 / 3.0);
        assert_eq!(between(&[], 0.0, 3.0, 2), Cpu { cores: 2, ..Cpu::default() });
    }
}
