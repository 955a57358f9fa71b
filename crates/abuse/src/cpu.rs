//! CPU time of processes and of the machine, from `/proc`. It shows whether the tool, other
//! programs or the host may explain a missed bound.

use crate::results::Cpu;

/// Ticks of `/proc` per second: USER_HZ, which is 100 on every supported architecture.
const TICKS: f64 = 100.0;

/// Returns the CPU time of a process, seconds. Available until its parent waits for it, then zero.
pub(crate) fn of_process(pid: u32) -> f64 {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(|stat| process(&stat)).unwrap_or(0.0)
}

/// Parses `pid (name) state …`. User and system time are the 12th and 13th fields after the name,
/// which may contain spaces.
fn process(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

/// Parses `cpu user nice system idle iowait irq softirq steal …`. Returns busy and stolen seconds.
fn machine(stat: &str) -> Option<(f64, f64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> = line.split_whitespace().map_while(|ticks| ticks.parse().ok()).collect();
    let &[user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks.as_slice() else {
        return None;
    };
    Some(((user + nice + system + irq + softirq) / TICKS, steal / TICKS))
}

/// Counters at the beginning of a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    server: u32,
    began: std::time::Instant,
    server_s: f64,
    tool_s: f64,
    busy_s: f64,
    stolen_s: f64,
}

impl Phase {
    pub(crate) fn begin(server: u32) -> Phase {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let (busy_s, stolen_s) = machine(&stat).unwrap_or_default();
        let (server_s, tool_s) = (of_process(server), of_process(std::process::id()));
        Phase { server, began: std::time::Instant::now(), server_s, tool_s, busy_s, stolen_s }
    }

    /// Returns the CPU time since the beginning. `attacker_s` is that of the ended attacker.
    pub(crate) fn end(self, attacker_s: f64) -> Cpu {
        let now = Phase::begin(self.server);
        // A dead server has no counter.
        let server_s = (now.server_s - self.server_s).max(0.0);
        let tool_s = now.tool_s - self.tool_s;
        Cpu {
            wall_s: self.began.elapsed().as_secs_f64(),
            server_s,
            attacker_s,
            tool_s,
            others_s: (now.busy_s - self.busy_s - server_s - attacker_s - tool_s).max(0.0),
            stolen_s: now.stolen_s - self.stolen_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_after_any_name() {
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0";
        assert_eq!(process(stat), Some(2.0));
        assert_eq!(machine("cpu  100 200 300 9 9 50 50 70 0 0\ncpu0 1"), Some((7.0, 0.7)));
        assert_eq!(machine("cpu  1 2"), None);
        let (own, before) = (std::process::id(), of_process(std::process::id()));
        let used = (0..100_000_000_u64).any(|n| {
            std::hint::black_box(n);
            n % 100_000 == 0 && of_process(own) > before
        });
        assert!(used, "the CPU time of this process grows while it computes");
        assert_eq!(of_process(0), 0.0, "no such process");
    }
}
