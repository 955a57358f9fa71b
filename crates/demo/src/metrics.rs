//! Use of the server's CPU and disk, sampled twice a second: the server's own counters by level
//! from `/metrics`, and the kernel's of the process and the cores from `/proc`. Counters are
//! cumulative, so that any period is a difference of two samples, interpolated at its ends.

use std::collections::BTreeMap;
use std::io::{Error, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use load::{Exposed, scrape, scrape_named};

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
/// Maximum size of a page, bytes.
const PAGE_BYTES_MAX: u64 = 16 << 20;
/// Time between two samples: ten steps. The thread checks after each step whether it should end.
const STEPS: (u32, Duration) = (10, Duration::from_millis(50));
/// Linux reports process times in hundredths of a second on all supported architectures.
const TICKS_PER_S: f64 = 100.0;

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
    storage: activity::Counts,
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

/// Returns a metric for each value of `label` in a page, summed over other labels such as lanes.
/// Lines of another form are skipped.
fn sums(metric: &str, label: &str, page: &str) -> BTreeMap<String, f64> {
    let mark = format!("{label}=\"");
    let mut out = BTreeMap::new();
    for line in page.lines() {
        let labelled = line.strip_prefix(metric).and_then(|rest| rest.strip_prefix('{'));
        let Some((labels, value)) = labelled.and_then(|rest| rest.rsplit_once("} ")) else { continue };
        let level = labels.split(&mark).nth(1).and_then(|rest| rest.split('"').next());
        if let (Some(level), Ok(value)) = (level, value.trim().parse::<f64>()) {
            *out.entry(level.to_string()).or_insert(0.0) += value;
        }
    }
    out
}

/// Returns user and system time from a line of `/proc/PID/stat`, seconds. The name in parentheses
/// may contain any character.
fn process_seconds(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_S)
}

/// Returns the time that these cores were not idle, from `/proc/stat`, seconds.
fn busy_seconds(stat: &str, cores: &[usize]) -> f64 {
    let mut ticks = 0.0;
    for line in stat.lines() {
        let mut fields = line.split_whitespace();
        let core = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse::<usize>().ok());
        if core.is_some_and(|core| cores.contains(&core)) {
            let fields: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
            // user nice system idle iowait irq softirq steal. User includes guest times.
            ticks += fields.iter().take(8).sum::<f64>() - fields.iter().skip(3).take(2).sum::<f64>();
        }
    }
    ticks / TICKS_PER_S
}

/// Sends one GET request and returns the whole answer.
pub(crate) fn get(address: &str, path: &str) -> Result<String, Error> {
    let target = address.parse().map_err(|_| Error::other(format!("`{address}` is not an address")))?;
    let mut stream = TcpStream::connect_timeout(&target, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut page = Vec::new();
    stream.take(PAGE_BYTES_MAX).read_to_end(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
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
    source: Arc<Source>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Source {
    address: String,
    pid: u32,
    cores: Vec<usize>,
    load_cores: Vec<usize>,
    samples: Mutex<Vec<Sample>>,
    histograms: Mutex<Vec<Histograms>>,
    stop: AtomicBool,
}

impl Source {
    fn sample(&self) -> Result<(), Error> {
        let page = get(&self.address, "/metrics")?;
        let process = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        let stat = std::fs::read_to_string("/proc/stat")?;
        let sample = Sample {
            at_s: now_s(),
            levels: sums(CPU, "level", &page),
            groups: sums(CPU, "group", &page),
            disk_bytes: sums(DISK_BYTES, "level", &page),
            disk_queue: sums(DISK_QUEUE, "level", &page),
            storage: activity::counts(&page),
            process: process_seconds(&process).unwrap_or(0.0),
            busy: busy_seconds(&stat, &self.cores),
            loads_busy: busy_seconds(&stat, &self.load_cores),
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
        let source = Arc::new(Source {
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
    fn lanes_of_a_level_are_summed() {
        let page = "# HELP x\nfairlane_cpu_seconds_total{level=\"a\",lane=\"fast\"} 1.5\n\
                    fairlane_cpu_seconds_total{level=\"a\",lane=\"heavy\"} 0.25\n\
                    fairlane_cpu_seconds_total{level=\"b\",lane=\"fast\"} 2\nfairlane_cpu_seconds_total{x 1\n\
                    fairlane_shares{level=\"b\"} 7\n";
        let found = sums(CPU, "level", page);
        assert_eq!(found, BTreeMap::from([("a".to_string(), 1.75), ("b".to_string(), 2.0)]));
        assert!(sums("fairlane_cpu", "level", page).is_empty());
    }

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
            disk_bytes: sums(DISK_BYTES, "level", &page),
            disk_queue: sums(DISK_QUEUE, "level", &page),
            ..Sample::default()
        };
        let found = disk(7.5, &sample(page(100, 1.0)), &sample(page(300, 3.5)));
        assert_eq!((found.at_s, found.bytes_per_s.len()), (7.5, 1));
        assert_eq!((found.bytes_per_s["a"], found.queued["a"]), (200.0, 2.5));
    }

    #[test]
    fn process_and_core_times_are_read() {
        let stat = "42 (a name) with) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0";
        assert_eq!(process_seconds(stat), Some(3.0));
        assert_eq!(process_seconds("nothing"), None);
        let stat = "cpu 9 9 9 9\ncpu0 100 0 100 700 100 0 0 0 0 0\ncpu1 1 1 1 1 1 1 1 1\nintr 5\n";
        assert_eq!(busy_seconds(stat, &[0]), 2.0);
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
