//! Events of SQL sessions for the audit log (`access::AuditLog`): logins, statements about roles,
//! rights and levels with their outcome, and queries that read audited keyspaces or were denied.
//! A query is logged as the tables that it reads, because its text may contain data.

use std::fmt;
use std::net::SocketAddr;

use access::{AuditEvent, AuditKind};
use engine::{Error, StatementTarget};

use crate::postgres::server::Sql;

/// Tables of a query, printed for the log.
struct Reads<'a>(&'a [StatementTarget]);

impl fmt::Display for Reads<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SELECT FROM")?;
        for (at, target) in self.0.iter().enumerate() {
            let table = target.table.as_deref().unwrap_or("*");
            write!(f, "{} {}.{table}", if at == 0 { "" } else { "," }, target.keyspace)?;
        }
        Ok(())
    }
}

fn event<'a>(kind: AuditKind, client: SocketAddr, role: &'a str, error: Option<&'a str>) -> AuditEvent<'a> {
    AuditEvent { kind, listener: "sql", client, role, error }
}

impl Sql {
    /// Logs the outcome of a login with a name.
    pub(crate) fn audit_login(&self, client: SocketAddr, name: &str, error: Option<&str>) {
        if let Some(audit) = &self.config().audit {
            let kind = if error.is_none() { AuditKind::Login } else { AuditKind::LoginFailed };
            audit.log(&event(kind, client, name, error));
        }
    }

    /// Logs a query that was denied, or that reads an audited keyspace.
    pub(crate) fn audit_query(
        &self,
        client: SocketAddr,
        role: &str,
        targets: &[StatementTarget],
        error: Option<&Error>,
    ) {
        let Some(audit) = &self.config().audit else { return };
        if error.is_some() || targets.iter().any(|target| audit.is_audited(&target.keyspace)) {
            let text = error.map(Error::to_string);
            audit.log_text(&event(AuditKind::Read, client, role, text.as_deref()), &Reads(targets));
        }
    }

    /// Logs the outcome of a statement about roles, rights or levels.
    pub(crate) fn audit_access(&self, client: SocketAddr, role: &str, text: &str, error: Option<&Error>) {
        let Some(audit) = &self.config().audit else { return };
        let error = error.map(Error::to_string);
        audit.log_cql(&event(AuditKind::Access, client, role, error.as_deref()), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Action;

    #[test]
    fn query_is_logged_as_its_tables() {
        let target = |table: &str| StatementTarget {
            keyspace: "shop".into(),
            table: Some(table.into()),
            action: Action::Select,
        };
        assert_eq!(Reads(&[target("a"), target("b")]).to_string(), "SELECT FROM shop.a, shop.b");
        assert_eq!(Reads(&[]).to_string(), "SELECT FROM");
    }
}
