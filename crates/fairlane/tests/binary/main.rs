//! The built binary, as operators and clients use it. One test program, so that it is linked once.
#![expect(clippy::disallowed_methods, reason = "clients, which stand outside the lanes")]

mod driver;
mod folders;
mod kills;
mod probe;
mod server;
mod serving;
mod troubles;
