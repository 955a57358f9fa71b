//! Configuration of the lanes: the CPUs of the server, and how much of them. It is detected once at
//! start-up, printed, and overridden by `--cores` and `--overprovisioned`.

use std::fmt;
use std::path::PathBuf;

use sched::DiskModel;

use crate::Reporter;

/// Configuration of the lanes on this machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// CPU numbers, one fast and one heavy lane for each. Without pinning only their count matters.
    pub cores: Vec<usize>,
    /// Pin each core's threads to its CPU.
    pub pin: bool,
    /// Folder in which the disk service tests whether io_uring works; `None` skips the test.
    pub disk_dir: Option<PathBuf>,
    /// Backend of disk requests.
    pub disk_backend: DiskBackend,
    /// Maxima of the disk.
    pub disk: DiskModel,
    /// True if each lane measures the delay of its wake-ups at start, for
    /// [`crate::Lanes::wake_up`], and reports a long one. Takes 50 ms at most. Nothing is measured
    /// without pinning.
    pub self_check: bool,
    /// Receiver of reports; by default prints to standard error.
    pub reporter: Reporter,
    /// Detected number of CPUs that this process may run on.
    pub affinity_cpus: usize,
    /// Detected quota of the cgroup in CPUs; `None`: no quota.
    pub quota_cpus: Option<f64>,
}

/// Backend of disk requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiskBackend {
    /// io_uring where the kernel allows it, else threads.
    #[default]
    Auto,
    /// A small pool of threads.
    Threads,
    /// An io_uring without permission to write.
    #[cfg(test)]
    Restricted,
}

/// Model that bounds only the number of requests, for use while a disk is measured.
pub const DISK_BOUNDLESS: DiskModel = DiskModel {
    read_bandwidth_max: 1 << 50,
    write_bandwidth_max: 1 << 50,
    read_ops_max: 1 << 30,
    write_ops_max: 1 << 30,
    latency_ns: 1 << 30,
};

/// Model of a disk that was not measured, deliberately fast: the window of requests in flight then
/// bounds it.
pub const DISK_UNMEASURED: DiskModel = DiskModel {
    read_bandwidth_max: 4_000_000_000,
    write_bandwidth_max: 4_000_000_000,
    read_ops_max: 500_000,
    write_ops_max: 500_000,
    latency_ns: 250_000,
};

impl Config {
    /// Detects the CPU set of this process, and uses as many of its CPUs as the cgroup's quota (v1
    /// and v2) covers in full, at least one.
    #[must_use]
    pub fn detect() -> Config {
        let cpus = crate::sys::affinity().unwrap_or_else(|_| vec![0]);
        let quota_cpus = quota();
        let affinity_cpus = cpus.len();
        let cores = cpus.into_iter().take(whole_cores(affinity_cpus, quota_cpus)).collect();
        Config {
            cores,
            pin: true,
            disk_dir: None,
            disk_backend: DiskBackend::Auto,
            disk: DISK_UNMEASURED,
            self_check: false,
            reporter: Reporter::default(),
            affinity_cpus,
            quota_cpus,
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} core(s) {:?} of {} in the CPU set", self.cores.len(), self.cores, self.affinity_cpus)?;
        match self.quota_cpus {
            Some(quota) => write!(f, ", cgroup quota {quota:.2} CPUs")?,
            None => f.write_str(", no cgroup quota")?,
        }
        f.write_str(if self.pin { ", pinned" } else { ", not pinned" })
    }
}

/// Returns the number of cores to use, from the CPU set's size and the quota.
fn whole_cores(cpus: usize, quota_cpus: Option<f64>) -> usize {
    let quota = quota_cpus.map_or(usize::MAX, |quota| quota.floor().max(1.0) as usize);
    cpus.max(1).min(quota)
}

/// Returns the least quota from this process's cgroup up to the root, in CPUs.
#[expect(
    clippy::disallowed_methods,
    reason = "a few reads of /proc and /sys at start-up, before any lane runs"
)]
fn quota() -> Option<f64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut least: Option<f64> = None;
    for (root, path) in cgroup_paths(&own) {
        let mut at = Some(std::path::Path::new(&path));
        while let Some(path) = at {
            let folder = format!("{root}{}", path.display());
            let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).ok();
            let found = read("cpu.max")
                .and_then(|text| quota_v2(&text))
                .or_else(|| quota_v1(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?));
            if let Some(found) = found {
                least = Some(least.map_or(found, |least| least.min(found)));
            }
            at = path.parent();
        }
    }
    least
}

/// Returns mount points and paths of the cgroups that may have a CPU quota, from the text of
/// `/proc/self/cgroup`.
fn cgroup_paths(text: &str) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if controllers.is_empty() {
            found.push(("/sys/fs/cgroup", path.to_string()));
            found.push(("/sys/fs/cgroup/unified", path.to_string()));
        } else if controllers.split(',').any(|controller| controller == "cpu") {
            found.push(("/sys/fs/cgroup/cpu", path.to_string()));
            found.push(("/sys/fs/cgroup/cpu,cpuacct", path.to_string()));
        }
    }
    found
}

/// Parses `cpu.max` of cgroup v2: "max 100000" or "150000 100000".
fn quota_v2(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    quota_v1(words.next()?, words.next()?)
}

/// Parses a quota and a period in microseconds. `None` if the quota is not a positive number.
fn quota_v1(quota: &str, period: &str) -> Option<f64> {
    let quota: u64 = quota.trim().parse().ok()?;
    let period: u64 = period.trim().parse().ok()?;
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_both_versions_are_rounded_to_whole_cores() {
        assert_eq!(quota_v2("max 100000\n"), None);
        assert_eq!(quota_v2("150000 100000\n"), Some(1.5));
        assert_eq!(quota_v1("-1\n", "100000\n"), None);
        assert_eq!(quota_v1("50000\n", "100000\n"), Some(0.5));
        let cases =
            [((4, None), 4), ((4, Some(0.5)), 1), ((4, Some(2.9)), 2), ((2, Some(64.0)), 2), ((0, None), 1)];
        for ((cpus, quota), expected) in cases {
            assert_eq!(whole_cores(cpus, quota), expected, "{cpus} {quota:?}");
        }
    }

    #[test]
    fn both_kinds_of_cgroup_line_are_parsed() {
        let paths = cgroup_paths("4:memory:/a\n1:cpu,cpuacct:/b/c\n0::/d\nnonsense\n");
        assert!(paths.contains(&("/sys/fs/cgroup/cpu", "/b/c".into())));
        assert!(paths.contains(&("/sys/fs/cgroup", "/d".into())));
        assert!(!paths.iter().any(|(_, path)| path == "/a"));
    }

    #[test]
    fn this_machine_has_at_least_one_core() {
        let config = Config::detect();
        assert!(!config.cores.is_empty());
        assert!(config.to_string().contains("in the CPU set"));
    }
}
