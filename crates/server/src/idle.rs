//! Closes sessions that are idle for a configured time. Each core checks its own sessions
//! periodically, which is cheaper than a timer for each request.

use std::rc::Weak;
use std::time::Duration;

use crate::sessions::Sessions;
use crate::unacked::nanoseconds;

/// Number of checks within one idle time.
const CHECKS: u32 = 8;

/// Closes idle sessions of a core until the server stops.
pub(crate) async fn close_idle(sessions: Weak<Sessions>, limit: Duration) {
    let limit_ns = nanoseconds(limit);
    loop {
        lanes::time::sleep((limit / CHECKS).max(Duration::from_millis(1))).await;
        let Some(sessions) = sessions.upgrade() else { return };
        let listed: Vec<_> = sessions.by_id.borrow().values().cloned().collect();
        for session in listed {
            let now_ns = lanes::time::monotonic_ns();
            if session.requests.in_flight.get() > 0 || session.role.borrow().is_none() {
                session.life.active_ns.set(now_ns);
            } else if is_idle(session.life.active_ns.get(), now_ns, limit_ns) {
                session.life.killed.set(true);
                session.wake();
            }
            if lanes::spend(1) {
                lanes::yield_now().await;
            }
        }
    }
}

fn is_idle(active_ns: u64, now_ns: u64, limit_ns: u64) -> bool {
    now_ns.saturating_sub(active_ns) >= limit_ns
}
