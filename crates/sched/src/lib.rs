//! Scheduling rules as pure arithmetic. Every function takes numbers (nanoseconds, bytes) and
//! returns decisions. The crate has no clock, thread, lock or I/O, so tests check each rule with
//! integers and simulated time. `docs/scheduler.md` derives the rules and proves their bounds.
//!
//! - [`Tree`]: picks the group that runs next on one core, by virtual time.
//! - [`cap`]: limits the CPU of a group on all cores together, with one `u64` of state.
//! - [`disk`]: computes the cost of a request, and when the disk can take it, with one `u64` for
//!   all cores.
//! - [`Claim`]: lets cores share a budget, such as that of the disk, in turn.
//! - [`IoQueue`]: orders the disk requests of one core by the same tree.
//! - [`NodeQueue`]: orders the requests of one core to one node of a cluster, within a window.
//! - [`Rounds`]: serves the connections of a group in turn.
//! - [`CoreScheduler`]: decides for one core which group runs next, on which lane, for how long,
//!   and when the core polls.
//! - [`Starvation`]: detects another program that keeps the CPU from heavy work.
//! - [`cluster`]: divides windows and concurrency among several fronts.
//! - [`control`]: sets the pace of background work, the delay of writes, the limit of statements in
//!   flight, and the window of a node of a cluster.
//!
//! This crate does not measure or wait, and does not know the meaning of a group.

mod batch_pace;
pub mod cap;
pub mod cluster;
pub mod control;
mod core_scheduler;
pub mod disk;
pub mod gcra;
mod heap;
mod io_claim;
mod io_queue;
mod log2;
mod minimum;
mod node_queue;
mod poll_budget;
mod recently_active;
mod rounds;
mod starvation;
mod tree;
mod virtual_time;

pub use cap::Cap;
pub use core_scheduler::{CoreScheduler, Decision, Lane, LeafSpec, Parent, Queued, Yielded};
pub use disk::{DiskDirection, DiskModel, DiskSpeed, InFlight};
pub use io_claim::{Budget, Claim};
pub use io_queue::{IoQueue, Pop};
pub use node_queue::{NodeQueue, NodeUse};
pub use poll_budget::POLL_EVERY_NS;
pub use recently_active::RECENTLY_ACTIVE_NS;
pub use rounds::{NO_FLOW, Rounds};
pub use starvation::{HeavyOutcome, Starvation, Starving, WorkerKind};
pub use tree::{NodeId, NodeSpec, Tree};
pub use virtual_time::{
    CHARGE_MIN_NS, Class, LAG_NS_MAX, LATENCY_SLICE_NS, SHARES_MAX, SHARES_MIN, SLICE_NS,
};
