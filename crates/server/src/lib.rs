//! The CQL front door: connections, sessions and requests over any engine, with the system tables that drivers read,
//! DESCRIBE, metrics and health.
//!
//! A [`Server`] is made once, joined on every core with that core's engine and gate, and opened on core 0. It knows no
//! storage, no grammar of roles and no arithmetic of shares: a [`Gate`] says who a client is, what it may do and in
//! which group it runs.

mod batch;
mod config;
mod connection;
mod core;
mod counters;
mod describe;
mod gate;
mod handshake;
mod http;
pub mod logging;
mod plans;
mod reply;
mod request;
mod rights;
mod server;
mod session;
mod statement;
mod system;

pub use config::ServerConfig;
pub use core::Listening;
pub use gate::{Answer, Effective, Gate, Sample};
pub use server::{PerCore, Server, StartError};
