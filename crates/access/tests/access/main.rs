//! Roles, rights and service levels over an engine in memory, by statements and by sessions.

mod clock;
mod common;
mod live;
mod needs;
mod sessions;
mod statements;
