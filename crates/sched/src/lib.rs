//! Scheduling as arithmetic. Everything here takes numbers (nanoseconds, bytes) and returns
//! decisions; there is no clock, thread, lock or I/O, so that every rule is tested with integers
//! and simulated time. `docs/scheduler.md` derives the rules and proves their bounds.
//!
//! - [`Tree`]: one core's groups in virtual time: which group runs next, and for how long.
//! - [`cap`]: a hard limit on the CPU of a group, one for all cores, whose state is a single `u64`.
//! - [`disk`]: what a request costs the disk, and when the disk can take it; again one `u64` for
//!   all cores.
//! - [`Claim`]: how cores share that, and any other budget, in turn.
//! - [`IoQueue`]: one core's disk requests, ordered by the same tree.
//! - [`CoreScheduler`]: one core: which group runs next, on which lane, for how long, and when the
//!   core polls.
//! - [`Starvation`]: whether another program keeps heavy work from its CPU.
//! - [`Policy`]: the numbers of these rules.
//! - [`control`]: how fast background work goes, and when writes are slowed for it.
//!
//! This crate does not measure, wait, or know what a group stands for.

pub mod cap;
pub mod control;
mod core_scheduler;
pub mod disk;
pub mod gcra;
mod heap;
mod io_claim;
mod io_queue;
mod minimum;
mod policy;
mod poll_budget;
mod recently_active;
mod starvation;
mod tree;
mod virtual_time;

pub use cap::Cap;
pub use core_scheduler::{CoreScheduler, Decision, Lane, LeafSpec, Parent, Queued, Yielded};
pub use disk::{DiskModel, DiskSpeed, Kind, UnderWay};
pub use io_claim::{Budget, Claim};
pub use io_queue::{IoQueue, Pop};
pub use policy::Policy;
pub use poll_budget::POLL_EVERY_NS;
pub use recently_active::RECENTLY_ACTIVE_NS;
pub use starvation::{Outcome, Starvation, Starving, WorkerKind};
pub use tree::{LATENCY_SLICE_NS, NodeId, NodeSpec, SLICE_NS, Tree};
pub use virtual_time::{CHARGE_MIN_NS, Class, LAG_NS_MAX, SHARES_MAX, SHARES_MIN};
