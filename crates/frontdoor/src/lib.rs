//! The part that all listeners share: how many connections there may be and of whom, how an accepted socket gets to its
//! core, and which certificate connections are encrypted with.
//!
//! 1. [`Connections::accept`] counts a connection that has not logged in. Such connections are bounded on their own, so
//!    that piling them up never keeps a login out: one more closes the oldest of the address with the most.
//! 2. [`Connections::hand_over`] gives the socket to a core without waiting for that core.
//! 3. [`Slot::enter`] counts a session once the role is known. Superusers have further places when all others are taken.
//! 4. The [`Slot`] gives everything back when it is dropped, however its task ends.
//!
//! Nothing here knows a protocol. The counts of one listener belong to core 0, where sockets are accepted; other cores
//! send messages, so that there is no lock.

mod accept;
mod account;
mod certificate;
mod connections;
mod limits;
mod occupancy;
mod refusals;
mod stream;
mod tls;

pub use accept::accept;
pub use account::{Account, Accounts, Charge, Full};
pub use connections::{Connections, HANDOVERS_MAX, Slot};
pub use limits::Limits;
pub use occupancy::Refused;
pub use refusals::Refusals;
pub use stream::{ClientCertificates, Encrypted, ReadHalf, Stream, WriteHalf};
pub use tls::{Tls, TlsFiles};
