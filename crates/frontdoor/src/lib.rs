//! Connection handling shared by all listeners: limits of connections, transfer of accepted sockets
//! to cores, and TLS for servers and clients.
//!
//! 1. [`Connections::accept`] counts a connection that has not logged in. These have a limit of
//!    their own, so that a flood of them never blocks logins. At the limit, the oldest connection
//!    of the address with the most is closed.
//! 2. [`Connections::hand_over`] sends the socket to a core without waiting for that core.
//!    [`Limits::within`] bounds the sockets of all listeners by the descriptors of the process.
//! 3. [`ConnectionSlot::enter`] counts a session once its role is known. Superusers have reserved
//!    sessions when all others are in use.
//! 4. Dropping the [`ConnectionSlot`] releases all counts, also if its task panics.
//!
//! This crate knows no protocol. Core 0 accepts sockets and owns the counts of a listener. Other
//! cores send messages to it, so that no lock is needed.

mod accept;
mod account;
mod certificate;
mod client;
mod connections;
mod limits;
mod listen;
mod occupancy;
mod refusals;
mod stream;
mod tls;

pub use accept::accept;
pub use account::{Account, Accounts, Charge, Full};
pub use client::{ClientFiles, TlsClient, handshake_failure};
pub use connections::{CLOSING_MAX, ConnectionSlot, Connections, TRANSFERS_MAX};
pub use limits::Limits;
pub use listen::{ListenError, check_address, listen};
pub use occupancy::Refused;
pub use refusals::Refusals;
pub use stream::{ClientCertificates, Encrypted, ReadHalf, Stream, WriteHalf};
pub use tls::{RefusedTls, Tls, TlsFiles};
