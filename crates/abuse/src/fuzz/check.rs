//! Checks of the server between two sessions.

use crate::dial::FRIEND;
use crate::run::{POLL_UNITS, POLL_UNITS_MAX};
use crate::server::AttackedServer;
use crate::{admin, http};

/// Largest resident memory, bytes: 256 MiB as configured, and as much for code, stacks, sockets and
/// the rows of the set-up.
const RESIDENT_MAX: u64 = 512 << 20;

/// Returns a fault of the server, if any. A `full` check also makes a round of the administrator
/// and reads the metrics.
pub(super) fn fault(server: &mut AttackedServer, full: bool) -> Option<String> {
    // A process killed by a signal is reaped after a moment. The administrator's round takes
    // longer.
    let admin = if full { admin::once(&server.target).err() } else { None };
    if let Err(how) = server.check() {
        return Some(format!("the server died: {how}"));
    }
    if let Some(panic) = server.panics().pop() {
        return Some(format!("the server panicked: {panic}"));
    }
    if let Some(why) = admin {
        return Some(format!("the administrator: {why}"));
    }
    let peak = server.memory.take_peak();
    if peak > RESIDENT_MAX {
        return Some(format!("{} MiB resident, at most {}", peak >> 20, RESIDENT_MAX >> 20));
    }
    if full {
        let metrics = http::get(&server.target, FRIEND, "/metrics", admin::PATIENCE);
        return units_fault(&metrics.map(|answer| answer.text).unwrap_or_default());
    }
    None
}

/// Returns a fault for a long task poll. A missing metric is a fault too, since it hides long
/// polls.
fn units_fault(metrics: &str) -> Option<String> {
    match http::metric(metrics, POLL_UNITS) {
        Some(units) if units <= POLL_UNITS_MAX => None,
        Some(units) => Some(format!("a task poll of {units} work units, at most {POLL_UNITS_MAX}")),
        None => Some(format!("expected the metric {POLL_UNITS}, got none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_task_poll_and_missing_metric_are_faults() {
        assert_eq!(units_fault(&format!("{POLL_UNITS} {POLL_UNITS_MAX}\n")), None);
        let long =
            units_fault(&format!("{POLL_UNITS} {}\n", POLL_UNITS_MAX + 1.0)).expect("beyond the bound");
        assert!(long.contains("2001 work units"), "{long}");
        assert!(units_fault("other 1\n").is_some());
    }
}
