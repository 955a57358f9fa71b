//! Tests of the CQL listener with real clients, over an engine in memory.

mod answers;
mod bad_input;
mod common;
mod connections;
mod describe;
mod front;
mod handshake;
mod limits;
mod long;
mod masks;
mod requests;
mod rights;
mod rude;
mod running;
mod schema;
mod slots;
mod system_views;
mod tracing;
mod waiting;
mod warnings;
