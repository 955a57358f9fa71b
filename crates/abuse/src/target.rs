//! The server under attack, as its clients know it: addresses and passwords.

use std::net::SocketAddr;
use std::time::Duration;

/// The superuser.
pub(crate) const ADMIN: &str = "admin";
/// The password of every role of a run. The server lives on loopback and for minutes only.
pub(crate) const PASSWORD: &str = "password of a run";

/// How long a client waits for an answer before it reports silence. Longer than any bounded statement should
/// take, short enough that a frozen server ends an attack.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// Where the listeners are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) cql: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) sql: SocketAddr,
}

impl Target {
    /// `CQL,HTTP,SQL`, to be read by [`Target::parse`] in another process.
    pub(crate) fn text(&self) -> String {
        format!("{},{},{}", self.cql, self.http, self.sql)
    }

    pub(crate) fn parse(text: &str) -> Option<Target> {
        let mut addresses = text.split(',').map(str::parse);
        let mut next = || addresses.next()?.ok();
        Some(Target { cql: next()?, http: next()?, sql: next()? })
    }

    /// Reads the line in which the server reports that it is ready.
    pub(crate) fn ready(line: &str) -> Option<Target> {
        let address = |mark: &str| {
            let rest = line.split(mark).nth(1)?;
            rest.split([',', ' ']).next()?.trim_end_matches('.').parse().ok()
        };
        line.contains("is ready:").then_some(())?;
        Some(Target { cql: address("CQL ")?, http: address("HTTP ")?, sql: address("SQL ")? })
    }
}

/// Whose password and rights an attack uses. Roles are made by `setup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// No login at all.
    Stranger,
    /// May log in, and nothing else.
    Nobody,
    /// May read, write and change the tables of the keyspace `yard`.
    Rude,
    /// May read the keyspace `yard`, in a level of one statement at a time.
    Narrow,
    /// As [`Role::Nobody`], apart from it because its password is destroyed by the attack.
    Forger,
    /// As [`Role::Nobody`], apart from it because it changes its password, and must not be locked out.
    Changer,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Stranger => "stranger",
            Role::Nobody => "nobody",
            Role::Rude => "rude",
            Role::Narrow => "narrow",
            Role::Forger => "forger",
            Role::Changer => "changer",
        }
    }

    /// The rights, for the table of results.
    pub(crate) fn needs(self) -> &'static str {
        match self {
            Role::Stranger => "nothing",
            Role::Nobody | Role::Forger | Role::Changer => "a login",
            Role::Rude => "rights on one keyspace",
            Role::Narrow => "SELECT, level with one slot",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_names_all_listeners() {
        let line = "fairlane 0.1.0 is ready: CQL 127.0.0.1:1, HTTP 127.0.0.1:2, SQL 127.0.0.1:3.";
        let target = Target::ready(line).expect("three addresses");
        assert_eq!(target.text(), "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3");
        assert_eq!(Target::parse(&target.text()), Some(target));
        assert_eq!(Target::ready("starting: CQL 127.0.0.1:1"), None);
    }
}
