//! SQL over the stored tables: DataFusion on heavy lanes, behind the Postgres protocol.
//!
//! ```text
//!   client ──messages──▶ session (fast lane)            rights, level, time limit, cancel
//!                          │ a statement      ▲ a chunk of rows, encoded
//!                          ▼                  │
//!                        plan ──▶ run (heavy lane of the least loaded core, in the level's group)
//!                                  │ exchange: the part for core i runs on core i's heavy lane
//!                                  ▼
//!                        scan i: snapshot by a call to core i's fast lane, batches on core i's heavy lane
//! ```
//!
//! No code of DataFusion runs on a fast lane. Tasks that it spawns are caught and run on heavy
//! lanes (`tasks`). Memory of its operators is charged to the statement's level (`memory`). If the
//! level refuses more, they spill (`spill`). The shares of the level schedule the disk requests.
//! Statements are read-only.

mod audit;
mod bounded;
mod catalog;
mod catalog_queries;
mod column_names;
mod config;
mod connection;
mod counts;
mod dialect;
mod dynamic_filters;
mod exact;
mod exchange;
mod extent;
mod failure;
mod filter;
mod functions;
mod guesses;
mod information_schema;
mod interval;
mod login;
mod memory;
mod message;
mod numeric;
mod outcome;
mod output;
mod parameters;
mod passage;
mod pg_catalog;
mod plan;
mod plan_cache;
mod portal;
mod query;
mod run;
mod scan;
mod seen;
mod server;
mod session;
mod session_commands;
mod settings;
mod snapshots;
mod spill;
mod statement;
mod statement_context;
mod table;
mod tasks;
mod text;
mod text_form;
mod to_char;
mod translate;
mod tree;
mod wide;
mod yields;

pub use config::SqlConfig;
pub use engine::scan::arrow::DECIMALS_MAX;
pub use server::{Sql, StartError};
