//! Execution of queries: tables and scans of every core, tasks on heavy lanes, memory and spilling.

pub(crate) mod dynamic_filters;
pub(crate) mod engines;
pub(crate) mod filter;
pub(crate) mod memory;
pub(crate) mod producer;
pub(crate) mod query;
pub(crate) mod scan;
pub(crate) mod sizes;
pub(crate) mod snapshots;
pub(crate) mod spill;
pub(crate) mod table;
pub(crate) mod tasks;
