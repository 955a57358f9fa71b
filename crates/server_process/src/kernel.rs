//! Counters of processes and of the machine in `/proc`.

use std::io::{Error, ErrorKind};
use std::path::Path;

/// Ticks of `/proc` per second: USER_HZ, which is 100 on every supported architecture.
const TICKS_PER_S: f64 = 100.0;

/// Returns user and system time of a process, seconds. They are available until its parent waits
/// for it.
///
/// # Errors
/// There is no such process.
pub fn process_cpu_s(pid: u32) -> Result<f64, Error> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    cpu_s_of(&stat).ok_or_else(|| ErrorKind::InvalidData.into())
}

fn cpu_s_of(stat: &str) -> Option<f64> {
    let ticks = |place: usize| field(stat, place)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_S)
}

/// Returns a field after the name of `pid (name) state parent …`. The name may contain spaces and
/// parentheses.
fn field(stat: &str, place: usize) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(place)
}

/// Returns the parent of a process. `None`: the process has ended.
pub fn parent(pid: u32) -> Option<u32> {
    field(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, 1)?.parse().ok()
}

/// Returns the resident memory of a process, bytes. `None`: the process has ended.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    kib(&status(&pid.to_string(), "VmRSS")?)
}

fn kib(value: &str) -> Option<u64> {
    Some(value.strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Returns a value of a process's status. `process` is an id or `self`.
pub fn status(process: &str, key: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    value(&status, key).map(str::to_owned)
}

/// Returns the first value of a key in lines of the form `key : value`.
fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(found, value)| (found.trim(), value.trim()))
        .find(|(found, _)| *found == key)
        .map(|pair| pair.1)
}

/// Returns the CPU time of a thread, seconds. `thread` is its folder in `/proc`. `None`: the thread
/// has ended.
pub fn thread_cpu_s(thread: &Path) -> Option<f64> {
    let times = std::fs::read_to_string(thread.join("schedstat")).ok()?;
    Some(times.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

/// Time that cores were not idle since the machine started, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// Programs and the kernel.
    pub own_s: f64,
    /// Other guests of the host, which held these cores meanwhile.
    pub stolen_s: f64,
}

impl Busy {
    /// Returns the time of all cores.
    pub fn of_machine() -> Busy {
        Busy::parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default(), |name| name == "cpu")
    }

    /// Returns the time of these cores.
    ///
    /// # Errors
    /// The kernel does not have the counters.
    pub fn of_cores(cores: &[usize]) -> Result<Busy, Error> {
        let is_one = |name: &str| name.strip_prefix("cpu").and_then(|core| core.parse().ok());
        let stat = std::fs::read_to_string("/proc/stat")?;
        Ok(Busy::parse(&stat, |name| is_one(name).is_some_and(|core| cores.contains(&core))))
    }

    /// Sums lines of the form `cpu user nice system idle iowait irq softirq steal …`. User time
    /// includes that of guests.
    fn parse(stat: &str, is_counted: impl Fn(&str) -> bool) -> Busy {
        let mut busy = Busy::default();
        for line in stat.lines() {
            let mut fields = line.split_whitespace();
            if !fields.next().is_some_and(&is_counted) {
                continue;
            }
            let ticks: Vec<f64> = fields.map_while(|ticks| ticks.parse().ok()).collect();
            if let &[user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks.as_slice() {
                busy.own_s += (user + nice + system + irq + softirq) / TICKS_PER_S;
                busy.stolen_s += steal / TICKS_PER_S;
            }
        }
        busy
    }
}

/// Returns a value of the first CPU, such as its `model name`.
pub fn cpu_value(key: &str) -> Option<String> {
    value(&std::fs::read_to_string("/proc/cpuinfo").ok()?, key).map(str::to_owned)
}

/// Returns the release of the kernel. `None`: the kernel does not tell.
pub fn release() -> Option<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(release.trim().to_owned()).filter(|release| !release.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_after_any_name() {
        let stat = "7 (a b) c) S 12 2 3 4 5 6 7 8 9 10 150 50 0 0";
        assert_eq!((cpu_s_of(stat), field(stat, 1)), (Some(2.0), Some("12")));
        assert_eq!(cpu_s_of("nothing"), None);
        let (own, before) = (std::process::id(), process_cpu_s(std::process::id()).expect("its own times"));
        let used = (0..100_000_000_u64).any(|n| {
            std::hint::black_box(n);
            n % 100_000 == 0 && process_cpu_s(own).is_ok_and(|now| now > before)
        });
        assert!(used, "the CPU time of this process grows while it computes");
        assert!(process_cpu_s(0).is_err() && parent(0).is_none(), "no such process");
        assert!(parent(own).is_some());
    }

    #[test]
    fn busy_time_has_no_idle_time() {
        let stat = "cpu  101 201 301 9 9 51 51 71 0 0\ncpu0 100 200 300 9 9 50 50 70 0 0\ncpu1 1 1 1 1 1 1 1 1\n\
                    cpu2 1 2\nintr 5\n";
        assert_eq!(Busy::parse(stat, |name| name == "cpu0"), Busy { own_s: 7.0, stolen_s: 0.7 });
        assert_eq!(Busy::parse(stat, |name| name == "cpu"), Busy { own_s: 7.05, stolen_s: 0.71 });
        assert_eq!(Busy::parse(stat, |name| name == "cpu2"), Busy::default());
    }

    #[test]
    fn values_are_found_by_their_whole_key() {
        let status = "Name:\tx\nVmRSSx:\t1 kB\nVmRSS:\t  12 kB\n";
        assert_eq!(value(status, "VmRSS").and_then(kib), Some(12 << 10));
        assert_eq!(value("Name:\tx\n", "VmRSS"), None);
        assert!(resident_bytes(std::process::id()).is_some_and(|bytes| bytes > 0));
    }
}
