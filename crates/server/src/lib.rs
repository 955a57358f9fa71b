//! The CQL listener: connections, sessions and requests over any engine. Also serves the system
//! tables that drivers read, DESCRIBE, metrics and health.
//!
//! A [`Server`] is created once, joined on every core with that core's engine and `access`, and
//! opened on core 0. This crate contains no storage, no rules for roles and no scheduling. `access`
//! authenticates a client and decides its rights and its group. `workload` admits its requests.

mod account;
mod acks;
mod answers;
mod arrivals;
mod audit;
mod authorize;
mod batch;
mod bind;
mod cells;
mod client_facts;
mod clients;
mod cluster_events;
mod cluster_roles;
mod config;
mod connection;
mod core;
mod counters;
mod decode;
mod describe;
mod execute;
mod exposition;
mod failure;
mod fast;
mod fleet;
mod guardrails;
mod handshake;
mod held;
mod http;
mod idle;
mod lane_metrics;
mod level_usage;
pub mod logging;
mod long;
mod memory;
mod nodes;
mod options;
mod output;
mod panics;
mod pending;
mod plans;
mod prepare;
mod read_permits;
mod record;
mod relay;
mod reply;
mod request;
mod running;
mod serve;
mod server;
mod session;
mod sessions;
mod slots;
mod slow;
mod statement;
mod system;
mod system_views;
mod tag;
mod tasks;
mod trace;
mod trace_tables;
mod unacked;
mod values;
mod view_status;
mod watch;

pub use config::{ServerConfig, largest_request_bytes};
pub use core::Listening;
pub use frontdoor::ListenError;
pub use server::{PerCore, Server};
