//! Runtime of the server. Each core has a cooperative fast lane, which owns its shard of the data,
//! and a heavy lane of the kernel's idle class for long computations. One scheduler for each core
//! (`sched`) governs both by measured CPU time, so that every group gets its shares. The same
//! shares order requests to the disk.
//!
//! ```text
//!   outside ──block_on──▶ fast lane ◀──call──▶ fast lane of another core
//!                          │    ▲
//!                    heavy │    │ disk, sleep
//!                          ▼    │
//!                         heavy lane
//! ```
//!
//! The group of a task goes with its calls to other cores, its heavy tasks and its disk requests.
//! So does its flow, by which turn goes round the connections of a group.
//!
//! This crate alone uses the clock, threads, the disk and random numbers, and it alone has
//! `unsafe`.

pub mod disk;
pub mod net;
pub mod random;
pub mod sync;
pub mod time;

mod call;
mod config;
mod context;
mod counters;
mod current;
mod deferred;
mod executor;
mod flow;
mod group;
mod groups;
mod heavy;
mod heavy_control;
mod heavy_worker;
mod lanes;
mod memory;
mod memory_ahead;
mod outside;
mod panics;
mod per_core;
mod permits;
mod queue;
mod registry;
mod report;
mod self_check;
mod shared;
mod spawn;
mod start;
mod sys;
mod task;
mod timer;
mod units;
mod waits;
mod wake;
mod wake_up;
mod yielding;

pub use call::{Ended, call, try_call};
pub use config::{Config, DISK_BOUNDLESS, DISK_UNMEASURED, DiskBackend};
pub use context::{
    cores, current_core, current_shares, defer, handle, least_loaded_core, on_heavy_lane, on_lane,
};
pub use counters::Usage;
pub use current::{current_flow, current_group};
pub use deferred::DeferredWork;
pub use flow::Flow;
pub use group::{Group, GroupSpec};
pub use lanes::Lanes;
pub use memory::{FREED_MEMORY_CHECK_EVERY, FreedMemory, keep_freed_memory, prefetch};
pub use memory_ahead::MemoryAhead;
pub use panics::{CatchPanic, Panicked, catch_panic, catch_panic_in};
pub use per_core::PerCore;
pub use permits::CALLS_MAX;
pub use report::{Report, Reporter};
pub use spawn::{heavy, heavy_urgent, spawn};
pub use start::StartError;
pub use task::{Task, ready_since_ns};
pub use units::{UNITS_MAX, UNITS_PER_POLL};
pub use wake_up::WakeUp;
pub use yielding::{
    count, count_copied, heavy_yield, should_yield, should_yield_at, slice_is_over, spend, spend_bytes,
    switch_group, units_of_copy, yield_now,
};

/// A future of the fast lane whose type is erased.
///
/// Public functions that run seldom return it. An `async fn` would be compiled again by each crate
/// that awaits it, with all that it calls: the compiler emits the code of an anonymous future where
/// it is polled.
pub type LocalBoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + 'a>>;
