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

    /// Returns these limits, reduced to at most `sockets_max` sockets: all reserved sessions, and
    /// of the rest a quarter for connections that have not logged in.
    #[must_use]
    pub fn within(self, sockets_max: usize) -> Limits {
        if self.sockets_max() <= sockets_max {
            return self;
        }
        let reserved_max = self.reserved_max.min(sockets_max / 4);
        let left = sockets_max - reserved_max;
        let logins_max = self.logins_max.min(left / 4).max(1);
        let sessions_max = self.sessions_max.min(left.saturating_sub(logins_max));
        Limits {
            sessions_max,
            reserved_max,
            logins_max,
            logins_per_address_max: self.logins_per_address_max.min(logins_max.div_ceil(2)),
            per_address_max: self.per_address_max.min(sessions_max),
            per_role_max: self.per_role_max.min(sessions_max),
        }
    }

    /// Returns the highest number of sockets.
    #[must_use]
    pub fn sockets_max(&self) -> usize {
        self.sessions_max + self.reserved_max + self.logins_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduced_limits_keep_reserved_sessions_and_logins() {
        let all = Limits::of_sessions(16_384);
        assert_eq!(all.within(all.sockets_max()), all);
        for sockets in 4..2000 {
            let limits = all.within(sockets);
            assert!(limits.sockets_max() <= sockets, "{limits:?}");
            assert!(limits.logins_max > 0 && limits.logins_per_address_max > 0 && limits.reserved_max > 0);
            assert!(limits.sessions_max >= sockets / 4 && limits.per_address_max <= limits.sessions_max);
        }
    }
}
