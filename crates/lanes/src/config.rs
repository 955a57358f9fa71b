//! What the server was given: which CPUs, and how much of them. Found once at start-up, printed,
//! and overridden by `--cores` and `--overprovisioned`.

use std::fmt;
use std::path::PathBuf;

use sched::{DiskModel, Policy};

use crate::Reporter;

/// How lanes are laid out on this machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// CPU numbers, one fast and one heavy lane for each. Without pinning only their count matters.
    pub cores: Vec<usize>,
    /// Pin each core's threads to its CPU.
    pub pin: bool,
    /// Where the disk service is to try out whether io_uring works; none skips the trial.
    pub disk_dir: Option<PathBuf>,
    /// Which way disk requests take.
    pub disk_backend: DiskBackend,
    /// The disk's maxima.
    pub disk: DiskModel,
    /// Has each lane measure at start how late it wakes, for [`crate::Lanes::wake_up`], and say so
    /// when that is much: takes 50 ms at most. Nothing is measured without pinning.
    pub self_check: bool,
    /// Takes what the lanes have to say; by default to standard error.
    pub reporter: Reporter,
    /// Numbers of the scheduler's rules. Other numbers than [`Policy::DEFAULT`] are for
    /// comparisons.
    pub policy: Policy,
    /// CPUs this process may run on, as found.
    pub affinity_cpus: usize,
    /// The cgroup's quota in CPUs, as found; none is no quota.
    pub quota_cpus: Option<f64>,
}

/// Which way disk requests take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiskBackend {
    /// io_uring where the kernel allows it, else threads.
    #[default]
    Auto,
    /// A small pool of threads.
    Threads,
    /// An io_uring that may not write.
    #[cfg(test)]
    Restricted,
}

/// Bounds nothing but the number of requests: for whoever measures a disk, meanwhile.
pub const DISK_BOUNDLESS: DiskModel = DiskModel {
    read_bandwidth_max: 1 << 50,
    write_bandwidth_max: 1 << 50,
    read_ops_max: 1 << 30,
    write_ops_max: 1 << 30,
    latency_ns: 1 << 30,
};

/// Assumed of a disk nobody has measured, deliberately high: what is under way bounds it then.
pub const DISK_UNMEASURED: DiskModel = DiskModel {
    read_bandwidth_max: 4_000_000_000,
    write_bandwidth_max: 4_000_000_000,
    read_ops_max: 500_000,
    write_ops_max: 500_000,
    latency_ns: 250_000,
};

impl Config {
    /// The CPU set of this process, and as many of its CPUs as the cgroup's quota holds whole (v1
    /// and v2; at least one).
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
            policy: Policy::DEFAULT,
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

/// Cores to use, from the CPU set's size and the quota.
fn whole_cores(cpus: usize, quota_cpus: Option<f64>) -> usize {
    let quota = quota_cpus.map_or(usize::MAX, |quota| quota.floor().max(1.0) as usize);
    cpus.max(1).min(quota)
}

/// The least quota from this process's cgroup up to the root, in CPUs.
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

/// Mount points and paths of the cgroups that may hold a CPU quota, from the text of
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

/// `cpu.max` of cgroup v2: "max 100000" or "150000 100000".
fn quota_v2(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    quota_v1(words.next()?, words.next()?)
}

/// Quota and period in microseconds; a quota that is no positive number is none.
fn quota_v1(quota: &str, period: &str) -> Option<f64> {
    let quota: u64 = quota.trim().parse().ok()?;
    let period: u64 = period.trim().parse().ok()?;
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_in_both_versions_and_rounded_to_whole_cores() {
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
    fn both_kinds_of_cgroup_line_are_understood() {
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
