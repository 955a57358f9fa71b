//! Counts behind [`crate::Connections`], as a pure value. It takes events and returns decisions,
//! without clock, sockets or locks.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use crate::Limits;

/// Reason for refusing a session to an authenticated client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The connection was closed meanwhile to admit newer ones.
    Closed,
    /// All sessions are in use. The field is the limit.
    Sessions(usize),
    /// Too many sessions of this address. The field is the limit.
    Address(usize),
    /// Too many sessions of this role. The field is the limit.
    Role(usize),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Closed => f.write_str("the connection was closed to make room for other logins"),
            Refused::Sessions(max) => write!(f, "{max} connections are the limit"),
            Refused::Address(max) => write!(f, "{max} connections from one address are the limit"),
            Refused::Role(max) => write!(f, "{max} connections of one role are the limit"),
        }
    }
}

/// Number of a connection, in the order of arrival.
pub(crate) type Id = u64;

/// Counts of connections and sessions, by address and role.
#[derive(Debug)]
pub(crate) struct Occupancy {
    limits: Limits,
    next: Id,
    connections: HashMap<Id, OpenConnection>,
    addresses: HashMap<IpAddr, Address>,
    /// Addresses with connections that have not logged in: their number, the oldest one, and the
    /// address. The last entry has the highest number, and the oldest connection among equal
    /// numbers.
    busiest: BTreeSet<(usize, Reverse<Id>, IpAddr)>,
    roles: HashMap<Arc<str>, usize>,
    sessions: usize,
    logins: usize,
}

#[derive(Debug)]
struct OpenConnection {
    address: IpAddr,
    /// `None`: the connection has not logged in.
    role: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct Address {
    /// Connections that have not logged in, oldest first.
    logins: BTreeSet<Id>,
    sessions: usize,
}

impl Occupancy {
    pub(crate) fn new(limits: Limits) -> Occupancy {
        Occupancy {
            limits,
            next: 0,
            connections: HashMap::new(),
            addresses: HashMap::new(),
            busiest: BTreeSet::new(),
            roles: HashMap::new(),
            sessions: 0,
            logins: 0,
        }
    }

    /// Counts a connection that has not logged in. Returns its number, and that of the connection
    /// to close in exchange, which is no longer counted.
    pub(crate) fn accept(&mut self, ip: IpAddr) -> (Id, Option<Id>) {
        let (id, address) = (self.next, network(ip));
        self.next += 1;
        self.connections.insert(id, OpenConnection { address, role: None });
        self.logins += 1;
        let own = self.change_logins(address, |logins| {
            logins.insert(id);
        });
        let busiest = if own > self.limits.logins_per_address_max {
            Some(address)
        } else if self.logins > self.limits.logins_max {
            self.busiest.last().map(|(_, _, address)| *address)
        } else {
            None
        };
        let oldest = busiest.and_then(|address| self.addresses[&address].logins.first().copied());
        if let Some(oldest) = oldest {
            self.leave(oldest);
        }
        (id, oldest)
    }

    /// Counts a connection as a session of `role` from now on.
    pub(crate) fn enter(&mut self, id: Id, role: &Arc<str>, is_superuser: bool) -> Result<(), Refused> {
        let address = match self.connections.get(&id) {
            Some(OpenConnection { address, role: None }) => *address,
            Some(_) => return Ok(()),
            None => return Err(Refused::Closed),
        };
        let Limits { sessions_max, reserved_max, per_address_max, per_role_max, .. } = self.limits;
        let of_address = self.addresses[&address].sessions;
        let of_role = self.roles.get(role).copied().unwrap_or(0);
        if is_superuser {
            if self.sessions >= sessions_max + reserved_max {
                return Err(Refused::Sessions(sessions_max + reserved_max));
            }
        } else if self.sessions >= sessions_max {
            return Err(Refused::Sessions(sessions_max));
        } else if of_address >= per_address_max {
            return Err(Refused::Address(per_address_max));
        } else if of_role >= per_role_max {
            return Err(Refused::Role(per_role_max));
        }
        self.change_logins(address, |logins| {
            logins.remove(&id);
        });
        self.logins -= 1;
        self.sessions += 1;
        self.addresses.entry(address).or_default().sessions += 1;
        *self.roles.entry(role.clone()).or_default() += 1;
        self.connections.insert(id, OpenConnection { address, role: Some(role.clone()) });
        Ok(())
    }

    /// Removes a connection. Does nothing for a connection that was closed in exchange for another.
    pub(crate) fn leave(&mut self, id: Id) {
        let Some(OpenConnection { address, role }) = self.connections.remove(&id) else { return };
        let Some(role) = role else {
            self.logins -= 1;
            self.change_logins(address, |logins| {
                logins.remove(&id);
            });
            return;
        };
        self.sessions -= 1;
        let of_address = self.addresses.get_mut(&address).expect("an address with a session is counted");
        of_address.sessions -= 1;
        if of_address.sessions == 0 && of_address.logins.is_empty() {
            self.addresses.remove(&address);
        }
        let of_role = self.roles.get_mut(&role).expect("a role with a session is counted");
        *of_role -= 1;
        if *of_role == 0 {
            self.roles.remove(&role);
        }
    }

    /// Changes the set of connections of an address that have not logged in, and updates the order
    /// of addresses. Returns the size of the set.
    fn change_logins(&mut self, address: IpAddr, change: impl FnOnce(&mut BTreeSet<Id>)) -> usize {
        let entry = self.addresses.entry(address).or_default();
        let key =
            |logins: &BTreeSet<Id>| logins.first().map(|first| (logins.len(), Reverse(*first), address));
        let before = key(&entry.logins);
        change(&mut entry.logins);
        let (after, count) = (key(&entry.logins), entry.logins.len());
        if count == 0 && entry.sessions == 0 {
            self.addresses.remove(&address);
        }
        if let Some(before) = before {
            self.busiest.remove(&before);
        }
        self.busiest.extend(after);
        count
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        (self.logins, self.sessions)
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.connections.is_empty()
            && self.addresses.is_empty()
            && self.busiest.is_empty()
            && self.roles.is_empty()
            && self.counts() == (0, 0)
    }
}

/// Returns the network by which a client is counted: an IPv4 address, or the upper 64 bits of an
/// IPv6 address. Providers assign IPv6 networks of that size to one client.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        sessions_max: 4,
        reserved_max: 2,
        logins_max: 4,
        logins_per_address_max: 3,
        per_address_max: 3,
        per_role_max: 2,
    };

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn role(name: &str) -> Arc<str> {
        name.into()
    }

    #[test]
    fn full_logins_close_the_oldest_of_the_busiest_address() {
        let mut occupancy = Occupancy::new(LIMITS);
        let (quiet, closed) = occupancy.accept(ip(1));
        assert_eq!(closed, None);
        let (first, _) = occupancy.accept(ip(2));
        occupancy.accept(ip(2));
        occupancy.accept(ip(2));
        // A new client is accepted at the expense of the busiest address, not of a quiet one.
        assert_eq!(occupancy.accept(ip(3)).1, Some(first));
        assert_eq!(occupancy.enter(first, &role("a"), true), Err(Refused::Closed));
        assert_eq!(occupancy.enter(quiet, &role("a"), false), Ok(()));
        assert_eq!(occupancy.counts(), (3, 1));
    }

    #[test]
    fn busy_address_closes_its_own_oldest_login() {
        let mut occupancy = Occupancy::new(LIMITS);
        let first = occupancy.accept(ip(1)).0;
        occupancy.accept(ip(1));
        occupancy.accept(ip(1));
        assert_eq!(occupancy.accept(ip(1)).1, Some(first));
        assert_eq!(occupancy.counts(), (3, 0));
    }

    #[test]
    fn oldest_login_is_closed_among_equally_busy_addresses() {
        let mut occupancy = Occupancy::new(LIMITS);
        let ids: Vec<Id> = (0..4).map(|n| occupancy.accept(ip(n)).0).collect();
        assert_eq!(occupancy.accept(ip(9)).1, Some(ids[0]));
        assert_eq!(occupancy.accept(ip(8)).1, Some(ids[1]));
    }

    #[test]
    fn reserved_sessions_are_for_superusers() {
        let mut occupancy = Occupancy::new(LIMITS);
        let mut login = |n: u8, name: &str, is_superuser| {
            let id = occupancy.accept(ip(n)).0;
            let entered = occupancy.enter(id, &role(name), is_superuser);
            if entered.is_err() {
                occupancy.leave(id);
            }
            entered
        };
        for (n, name) in [(1, "a"), (1, "a"), (2, "b"), (2, "b")] {
            assert_eq!(login(n, name, false), Ok(()));
        }
        assert_eq!(login(3, "c", false), Err(Refused::Sessions(4)));
        assert_eq!(login(3, "admin", true), Ok(()));
        assert_eq!(login(3, "admin", true), Ok(()));
        assert_eq!(login(3, "admin", true), Err(Refused::Sessions(6)));
    }

    #[test]
    fn address_and_role_have_separate_limits() {
        let mut occupancy = Occupancy::new(LIMITS);
        let mut login = |n: u8, name: &str, is_superuser| {
            let id = occupancy.accept(ip(n)).0;
            occupancy.enter(id, &role(name), is_superuser)
        };
        assert_eq!(login(1, "a", false), Ok(()));
        assert_eq!(login(1, "a", false), Ok(()));
        assert_eq!(login(1, "a", false), Err(Refused::Role(2)));
        assert_eq!(login(1, "b", false), Ok(()));
        assert_eq!(login(1, "b", false), Err(Refused::Address(3)));
        assert_eq!(login(1, "admin", true), Ok(()));
    }

    #[test]
    fn closed_connections_release_all_counts() {
        let mut occupancy = Occupancy::new(LIMITS);
        let mut ids = Vec::new();
        for n in 0..20 {
            let (id, _) = occupancy.accept(ip(n % 3));
            let _ = occupancy.enter(id, &role(["a", "b", "c"][usize::from(n) % 3]), n % 5 == 0);
            ids.push(id);
        }
        for id in ids {
            occupancy.leave(id);
            occupancy.leave(id);
        }
        assert!(occupancy.is_empty(), "{occupancy:?}");
    }

    #[test]
    fn ipv6_clients_are_counted_by_their_network() {
        let parse = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(parse("2001:db8:0:1::1"), parse("2001:db8:0:1:ffff::2"));
        assert_ne!(parse("2001:db8:0:1::1"), parse("2001:db8:0:2::1"));
        assert_eq!(parse("::ffff:10.0.0.1"), parse("10.0.0.1"));
    }
}
