//! Tests of the CQL listener with real clients, over an engine in memory.

mod answers;
mod bad_input;
mod common;
mod connections;
mod front;
mod handshake;
mod limits;
mod long;
mod requests;
mod rights;
mod rude;
mod running;
mod schema;
mod slots;
mod waiting;
mod warnings;
