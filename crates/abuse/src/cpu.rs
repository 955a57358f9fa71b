//! CPU time of processes and of the machine, from `/proc`. It shows whether the tool, other
//! programs or the host may explain a missed bound.

use server_process::kernel::{Busy, process_cpu_s};

use crate::results::Cpu;

/// Returns the CPU time of a process, seconds. Available until its parent waits for it, then zero.
pub(crate) fn of_process(pid: u32) -> f64 {
    process_cpu_s(pid).unwrap_or(0.0)
}

/// Counters at the beginning of a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    server: u32,
    began: std::time::Instant,
    server_s: f64,
    tool_s: f64,
    machine: Busy,
}

impl Phase {
    pub(crate) fn begin(server: u32) -> Phase {
        Phase {
            server,
            machine: Busy::of_machine(),
            server_s: of_process(server),
            tool_s: of_process(std::process::id()),
            began: std::time::Instant::now(),
        }
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
            others_s: (now.machine.own_s - self.machine.own_s - server_s - attacker_s - tool_s).max(0.0),
            stolen_s: now.machine.stolen_s - self.machine.stolen_s,
        }
    }
}
