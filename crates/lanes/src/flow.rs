//! Flow: a source of work within a group, such as a connection of a level. A group's turn goes
//! round its flows ([`sched::Rounds`]), so that a connection with thousands of requests delays
//! another one no more than a connection with one request does.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::current::{current_group, in_group};

/// Flow of a task. Tasks that it spawns, its calls to other cores, its heavy tasks and its disk
/// requests belong to the same flow, except for work of the server's own groups, which has none.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Flow(pub(crate) u64);

impl Flow {
    /// No flow: each of its tasks has turns of its own.
    pub const NONE: Flow = Flow(sched::NO_FLOW);

    /// Returns a flow that no other work of this process has.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Flow {
        static NEXT: AtomicU64 = AtomicU64::new(sched::NO_FLOW + 1);
        Flow(NEXT.fetch_add(1, Relaxed))
    }

    /// Returns its number; 0 for no flow.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    /// Calls `f`, and gives this flow to the tasks that it spawns.
    pub fn run<T>(self, f: impl FnOnce() -> T) -> T {
        in_group(current_group(), self, f)
    }
}
