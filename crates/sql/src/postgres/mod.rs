//! The Postgres protocol: the listener, connections, sessions, statements and results.

pub(crate) mod audit;
pub(crate) mod cancel_attempts;
mod cluster_login;
mod cluster_viewer;
pub(crate) mod connection;
pub(crate) mod connection_status;
pub(crate) mod counts;
pub(crate) mod error;
pub(crate) mod listener;
pub(crate) mod login;
pub(crate) mod message;
pub(crate) mod numeric;
pub(crate) mod outcome;
pub(crate) mod output;
pub(crate) mod parameters;
mod permits;
pub(crate) mod portal;
pub(crate) mod query;
pub(crate) mod serve;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod session_commands;
pub(crate) mod settings;
pub(crate) mod statement;
pub(crate) mod statement_context;
