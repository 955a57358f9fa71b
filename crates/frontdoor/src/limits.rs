//! How many connections a listener takes.

/// The limits of one listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Sessions of all roles.
    pub sessions_max: usize,
    /// Further sessions, of superusers only, when `sessions_max` are taken.
    pub reserved_max: usize,
    /// Connections that have not logged in. One more closes the oldest of the address with the most of them.
    pub logins_max: usize,
    /// Connections of one address that have not logged in. One more closes its oldest.
    pub logins_per_address_max: usize,
    /// Sessions from one address, superusers not counted against.
    pub per_address_max: usize,
    /// Sessions of one role, superusers not counted against.
    pub per_role_max: usize,
}

/// Sessions reserved for superusers unless configured otherwise.
const RESERVED: usize = 8;

/// The least number of connections that may be logging in: a driver opens a few dozen at once when it starts.
const LOGINS_MIN: usize = 64;

impl Limits {
    /// Limits derived from the number of sessions: a quarter more may be logging in, half of those from one address. One address and
    /// one role may have all sessions.
    #[must_use]
    pub fn of_sessions(sessions_max: usize) -> Limits {
        let logins_max = (sessions_max / 4).max(LOGINS_MIN);
        Limits {
            sessions_max,
            reserved_max: RESERVED,
            logins_max,
            logins_per_address_max: logins_max / 2,
            per_address_max: sessions_max,
            per_role_max: sessions_max,
        }
    }

    /// The most sockets there may be.
    #[must_use]
    pub fn sockets_max(&self) -> usize {
        self.sessions_max + self.reserved_max + self.logins_max
    }
}
