//! Addresses and passwords of the server under attack.

use std::net::SocketAddr;
use std::time::Duration;

use server_process::Addresses;

/// Name of the superuser.
pub(crate) const ADMIN: &str = "admin";
/// Password of every role of a run. The server listens on loopback and for minutes only.
pub(crate) const PASSWORD: &str = "password of a run";

/// Longest wait of a client for an answer before it reports silence. Longer than any bounded
/// statement, short enough that an attack on a frozen server ends.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// Addresses of the listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttackTarget {
    pub(crate) cql: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) sql: SocketAddr,
}

impl AttackTarget {
    /// Formats the addresses as `CQL,HTTP,SQL`, for [`AttackTarget::parse`] in another process.
    pub(crate) fn text(&self) -> String {
        format!("{},{},{}", self.cql, self.http, self.sql)
    }

    pub(crate) fn parse(text: &str) -> Option<AttackTarget> {
        let mut addresses = text.split(',').map(str::parse);
        let mut next = || addresses.next()?.ok();
        Some(AttackTarget { cql: next()?, http: next()?, sql: next()? })
    }

    /// Returns the addresses of a ready server. `None`: a listener is off.
    pub(crate) fn of(addresses: &Addresses) -> Option<AttackTarget> {
        let parse = |address: &str| address.parse().ok();
        let Addresses { cql, http, sql } = addresses;
        Some(AttackTarget { cql: parse(cql)?, http: parse(http)?, sql: parse(sql.as_ref()?)? })
    }
}

/// Role whose password and rights an attack uses. Module `setup` creates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// No login.
    Stranger,
    /// May log in, and nothing else.
    LoginOnly,
    /// May read, write and change the tables of the keyspace `yard`.
    Rude,
    /// May read the keyspace `yard`, in a level of one statement at a time.
    Narrow,
    /// May do anything. Attacks by what its scripts do, not by its rights.
    Superuser,
    /// As [`Role::LoginOnly`]. Separate, because the attack destroys its password.
    Forger,
    /// As [`Role::LoginOnly`]. Separate, because it changes its password and must not be locked
    /// out.
    Changer,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Stranger => "stranger",
            Role::LoginOnly => "nobody",
            Role::Rude => "rude",
            Role::Narrow => "narrow",
            Role::Superuser => ADMIN,
            Role::Forger => "forger",
            Role::Changer => "changer",
        }
    }

    /// Returns the rights, for the table of results.
    pub(crate) fn needs(self) -> &'static str {
        match self {
            Role::Stranger => "nothing",
            Role::LoginOnly | Role::Forger | Role::Changer => "a login",
            Role::Rude => "rights on one keyspace",
            Role::Narrow => "SELECT, level with one slot",
            Role::Superuser => "a superuser",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_passed_to_another_process() {
        let line = "fairlane 0.1.0 is ready: CQL 127.0.0.1:1, HTTP 127.0.0.1:2, SQL 127.0.0.1:3.";
        let target =
            Addresses::parse(line).and_then(|found| AttackTarget::of(&found)).expect("three addresses");
        assert_eq!(target.text(), "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3");
        assert_eq!(AttackTarget::parse(&target.text()), Some(target));
    }
}
