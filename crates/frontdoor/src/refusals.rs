//! Refused connections, collected into one log message per second. One message each would displace
//! all others from the log.

use std::fmt;
use std::net::IpAddr;

/// Connections that one listener refused or closed within a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals {
    /// Connections closed before login, to admit newer ones.
    pub closed: u64,
    /// Connections refused after authentication, because a limit of sessions was reached.
    pub refused: u64,
    /// Address of the last one.
    pub last: Option<IpAddr>,
}

impl Refusals {
    pub(crate) fn is_empty(&self) -> bool {
        self.closed + self.refused == 0
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusals { closed, refused, last } = self;
        write!(f, "connections refused: {refused} over a limit of sessions")?;
        write!(f, ", {closed} closed before login to make room")?;
        last.map_or(Ok(()), |last| write!(f, "; the last from {last}"))
    }
}
