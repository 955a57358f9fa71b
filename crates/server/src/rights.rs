//! Rights before work: the tables that a parsed statement names are checked before it is planned, so that a role without rights
//! learns nothing of a table but that it has none, and causes no work and leaves nothing in a cache.
//!
//! The engine's own targets are checked as well, once it has planned the statement (`Session::authorize`).

use cql::ast::{IfClause, Statement as Tree, TableName};
use engine::{Action, Error, Target};

use crate::session::Session;

/// Appends the tables that a statement names with what it does there. Empty for statements about anything else.
fn targets(tree: &Tree, keyspace: Option<&str>, into: &mut Vec<Target>) {
    let mut add = |table: &TableName, action| {
        if let Some(keyspace) = table.keyspace.as_deref().or(keyspace) {
            let (keyspace, table) = (keyspace.to_owned(), Some(table.name.clone()));
            into.push(Target { keyspace, table, action });
        }
    };
    let conditional = |clause: &IfClause| *clause != IfClause::None;
    // The answer to a condition that does not hold shows what is stored.
    match tree {
        Tree::Select(s) => add(&s.from, Action::Select),
        Tree::Insert(s) => {
            add(&s.table, Action::Modify);
            if s.if_not_exists {
                add(&s.table, Action::Select);
            }
        }
        Tree::Update(s) => {
            add(&s.table, Action::Modify);
            if conditional(&s.condition) {
                add(&s.table, Action::Select);
            }
        }
        Tree::Delete(s) => {
            add(&s.table, Action::Modify);
            if conditional(&s.condition) {
                add(&s.table, Action::Select);
            }
        }
        Tree::Batch(batch) => batch.statements.iter().for_each(|part| targets(part, keyspace, into)),
        _ => {}
    }
}

impl Session {
    /// Checks the role's rights on the tables that a statement names, before it is planned.
    ///
    /// # Errors
    /// [`Error::Unauthorized`], whether a table exists or not.
    pub(crate) fn authorize_tree(&self, tree: &Tree, keyspace: Option<&str>) -> Result<(), Error> {
        let mut named = Vec::new();
        targets(tree, keyspace, &mut named);
        named.dedup();
        let Some(login) = self.login() else {
            return Err(Error::Unauthorized("You have not logged in".to_owned()));
        };
        let allowed = self.core.access.authorize(&login, &named);
        allowed.inspect_err(|error| self.audit_denied(tree, error))
    }
}
