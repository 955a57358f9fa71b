//! Postgres clients at a real listener, over an engine in memory. One program: linking DataFusion takes
//! minutes for each.

mod common;
mod ended_sessions;
mod limits;
mod queries;
mod sessions;
mod spilling;
mod visibility;
