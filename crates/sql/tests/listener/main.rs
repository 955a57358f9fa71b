//! Postgres clients of a SQL listener over an engine in memory. All tests are one program, since
//! linking DataFusion takes minutes for each.

mod common;
mod concurrency;
mod ended_sessions;
mod functions;
mod limits;
mod memory;
mod overload;
mod planning;
mod queries;
mod sessions;
mod spilling;
mod views;
mod visibility;
