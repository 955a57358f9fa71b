//! Requests to the disk: the fair queue of a core, the bucket of the disk, and the ways to the
//! kernel.

pub(crate) mod bucket;
pub(crate) mod buffer;
pub(crate) mod closer;
pub(crate) mod handle;
pub(crate) mod kernel;
pub(crate) mod op;
pub(crate) mod pool;
pub(crate) mod service;
pub(crate) mod uring;
