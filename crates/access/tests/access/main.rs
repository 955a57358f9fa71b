//! Roles, permissions and service levels on an engine in memory, through statements and sessions.

mod cancel;
mod clock;
mod common;
mod live;
mod needs;
mod sessions;
mod statements;
mod weight;
