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

mod catalog;
mod config;
mod engine;
mod failure;
mod postgres;
mod run;
mod walk;

pub use ::engine::scan::arrow::SCALE_MAX;
pub use config::{LogEvent, SlowStatement, SqlConfig};
pub use postgres::listener::StartError;
pub use postgres::server::Sql;
