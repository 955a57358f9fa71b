//! Limits of the connections of a listener.

/// The limits of one listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Sessions of all roles.
    pub sessions_max: usize,
    /// Additional sessions for superusers, when `sessions_max` are in use.
    pub reserved_max: usize,
    /// Connections that have not logged in. One more closes the oldest one of the address with the
    /// most.
    pub logins_max: usize,
    /// Connections of one address that have not logged in. One more closes its oldest.
    pub logins_per_address_max: usize,
    /// Sessions from one address. Superusers are exempt.
    pub per_address_max: usize,
    /// Sessions of one role. Superusers are exempt.
    pub per_role_max: usize,
}

/// Sessions reserved for superusers by default.
const RESERVED: usize = 8;

/// Lower bound for connections that have not logged in: a driver opens a few dozen at once when it
/// starts.
const LOGINS_MIN: usize = 64;

impl Limits {
    /// Derives limits from the number of sessions. A quarter of that number, and at least 64, may
    /// be logging in, half of them from one address. One address and one role may use all sessions.
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

    /// Returns the highest number of sockets.
    #[must_use]
    pub fn sockets_max(&self) -> usize {
        self.sessions_max + self.reserved_max + self.logins_max
    }
}
