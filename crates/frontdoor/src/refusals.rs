//! Refused connections, gathered to one log line a second: a line for each would crowd out all others.

use std::fmt;
use std::net::IpAddr;

/// The connections that one listener refused or closed within a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals {
    /// Closed before they had logged in, to make room for others.
    pub closed: u64,
    /// Refused after they had authenticated, as a limit of sessions was reached.
    pub refused: u64,
    /// The address of the last of them.
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
