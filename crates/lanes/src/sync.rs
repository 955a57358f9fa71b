//! Channels between tasks. [`Notify`], [`oneshot`] and [`mpsc`] connect tasks of one fast lane:
//! single-threaded, without atomics, not `Send`. [`cross`] carries one value from any lane to any
//! other.

pub mod cross;
pub mod mpsc;
mod notify;
pub mod oneshot;

pub use notify::Notify;

/// The other side was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the other side is gone")
    }
}

impl std::error::Error for Closed {}
