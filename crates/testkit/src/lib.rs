//! Shared parts of tests: random numbers from a seed, temporary folders, waiting for a condition,
//! a simulated disk, and a server without listeners. Only a development dependency: no crate may
//! use it outside of tests, benchmarks and examples.
//!
//! The standard part needs no other crate, so that tests of every crate can use it. The rest are
//! features, and are built of crates below the one under test. Integration tests may enable those
//! that are built of their own crate. Its unit tests may not use them: they are compiled with
//! another copy of the crate, whose types differ.

#[cfg(feature = "engine")]
mod engines;
mod folder;
mod random;
#[cfg(feature = "access")]
mod roles;
#[cfg(feature = "sim")]
pub mod sim;
mod until;

#[cfg(feature = "engine")]
pub use engines::{KEYSPACE, Setup, close_engines, engine, run, texts};
pub use folder::Folder;
pub use random::Random;
#[cfg(feature = "access")]
pub use roles::{ADMIN, open_roles};
pub use until::{TIMEOUT, until};

/// Starts lanes of `cores` cores that share the CPUs with other tests.
#[cfg(feature = "lanes")]
#[must_use]
pub fn start_lanes(cores: usize) -> lanes::Lanes {
    let config = lanes::Config { cores: vec![0; cores], pin: false, ..lanes::Config::detect() };
    lanes::Lanes::start(config).expect("lanes start")
}
