//! The embedded engine over several cores: statements, scans, restarts and damage.

mod bounds;
mod cassandra;
mod clock;
#[path = "../common/mod.rs"]
mod common;
mod graphs;
mod index_bounds;
mod index_crashes;
mod indexes;
mod json;
mod masks;
mod nearest;
mod order;
mod pages;
mod relations;
mod restart;
mod scans;
mod scrub;
mod selectors;
mod statements;
mod task_tables;
mod views;
mod wide;
