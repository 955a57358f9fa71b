//! Events of CQL sessions for the audit log (`access::AuditLog`). It records logins, the outcome of
//! statements about roles, rights, levels and schema, and all denied statements. In audited
//! keyspaces it also records the start of reads and writes.

use access::{Access, AuditEvent, AuditKind};
use cql::ast::Statement as Tree;
use engine::{Error, StatementTarget};

use crate::session::Session;
use crate::statement::{Statement, Work};

/// Returns the kind of a statement's event, or `None` if it neither changes nor shows data.
fn kind_of(tree: &Tree) -> Option<AuditKind> {
    Some(match tree {
        Tree::Select(_) => AuditKind::Read,
        Tree::Insert(_) | Tree::Update(_) | Tree::Delete(_) | Tree::Batch(_) => AuditKind::Write,
        Tree::Use(_) | Tree::Describe(_) => return None,
        other if Access::handles(other) => AuditKind::Access,
        _ => AuditKind::Schema,
    })
}

fn event<'a>(session: &Session, kind: AuditKind, role: &'a str, error: Option<&'a str>) -> AuditEvent<'a> {
    AuditEvent { kind, listener: "cql", client: session.peer, role, error }
}

/// Logs the outcome of a login with a name.
pub(crate) fn login(session: &Session, name: &str, error: Option<&str>) {
    if let Some(audit) = &session.core.shared.config.audit {
        let kind = if error.is_none() { AuditKind::Login } else { AuditKind::LoginFailed };
        audit.log(&event(session, kind, name, error));
    }
}

/// Logs the start of a read or a write, if its keyspace is audited.
pub(crate) fn begin(session: &Session, statement: &Statement) {
    let Some(audit) = &session.core.shared.config.audit else { return };
    let Some(kind @ (AuditKind::Read | AuditKind::Write)) = kind_of(&statement.tree) else { return };
    let Work::Engine(plan) = &statement.work else { return };
    let is_audited = |target: &StatementTarget| audit.is_audited(&target.keyspace);
    if let Some(login) = session.login().filter(|_| plan.targets().iter().any(is_audited)) {
        audit.log_statement(&event(session, kind, login.role(), None), &statement.tree);
    }
}

/// Logs the outcome of a statement about roles, rights, levels or schema.
pub(crate) fn outcome(session: &Session, tree: &Tree, error: Option<&Error>) {
    let Some(audit) = &session.core.shared.config.audit else { return };
    let Some(kind @ (AuditKind::Access | AuditKind::Schema)) = kind_of(tree) else { return };
    let text = error.map(Error::to_string);
    if let Some(login) = session.login() {
        audit.log_statement(&event(session, kind, login.role(), text.as_deref()), tree);
    }
}

/// Logs a statement that the role has no right to.
pub(crate) fn denied(session: &Session, tree: &Tree, error: &Error) {
    let Some(audit) = &session.core.shared.config.audit else { return };
    let Some(kind) = kind_of(tree) else { return };
    let text = error.to_string();
    if let Some(login) = session.login() {
        audit.log_statement(&event(session, kind, login.role(), Some(&text)), tree);
    }
}
