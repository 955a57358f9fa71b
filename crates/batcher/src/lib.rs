//! Batches of commands with the result of running them one by one.
//!
//! A program takes **commands** in order, for instance from a log of events. A command reads some
//! **slots** of a key-value store or a database, then writes some. It declares them before
//! ([`Footprint`]). The batcher runs many commands at once, and state and outputs equal those of
//! running them one after the other:
//!
//! 1. Take everything that waits, at most [`Limits::commands_max`] commands at once.
//! 2. Read each slot whose first use is a read. All reads run concurrently.
//! 3. Apply a command, in memory, once its slots are known and earlier commands of the same slots
//!    have been applied.
//! 4. Write the last value of each slot. All writes run concurrently. A slot that is being written
//!    is changed in memory meanwhile: its next write sends the last value.
//!
//! So commands take two round trips, however many of them use the same slot, and wait for no
//! operation of other slots. Usual consumers run partitions in parallel and each partition in
//! order. Their throughput is bounded by the number of active partitions, which the data decides.
//! Two other strategies serve comparison: [`Strategy::PerPartition`] is that way, and
//! [`Strategy::Phases`] makes batches whose phases wait for their slowest operation.
//!
//! # Guarantees
//!
//! - **Order.** Commands take effect in the order of [`Handle::push`].
//! - **Acknowledged.** When a command has returned its output, each slot that it wrote is durable,
//!   and so is each slot that it read from an earlier command. An overwritten value
//!   shares the fate of the value that replaced it. [`Handle::acknowledged_up_to`] is the number of
//!   commands at the start of the order that are acknowledged: commit that offset.
//! - **Failure.** When an operation fails for good, nothing more is sent. Each later command ends
//!   with [`Error`]. The caller starts again from `acknowledged_up_to`.
//!
//! # Not guaranteed
//!
//! - Atomicity over slots: after a crash each slot contains the effect of some prefix of the
//!   commands. Prefixes of two slots may differ.
//! - Exactly-once over restarts. A command that uses one slot may keep a sequence number in it, and
//!   skip what the slot has seen.
//! - Several writers. Own a slot, or lease it with a conditional write.
//!
//! The store must let a read observe each acknowledged write. On a replicated cluster, choose
//! consistency levels for reads and writes that overlap, such as `QUORUM` for both.

mod batcher;
mod command;
mod concurrency;
#[cfg(feature = "cql")]
mod cql;
#[cfg(feature = "cql")]
mod cql_table;
mod error;
mod gate;
mod kv;
mod levels;
mod limits;
mod operations;
mod per_partition;
mod phases;
mod pipelined;
mod queue;
mod stamps;
mod store;

pub use batcher::{Batcher, Done, Handle, Reply};
pub use command::{Command, Footprint, View};
#[cfg(feature = "cql")]
pub use cql::{CqlError, CqlStore};
pub use error::Error;
pub use kv::{Kv, KvStore};
pub use levels::{Rules, levels};
pub use limits::{Limits, Strategy};
pub use stamps::BatcherClock;
pub use store::{Order, Store};

/// Compiles the examples of the page.
#[cfg(all(doctest, feature = "cql"))]
#[doc = include_str!("../../../docs/batcher.md")]
struct Page;
