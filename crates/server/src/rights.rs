//! Rights before work: the tables that a parsed statement names are checked before it is planned, so that a role without rights
//! learns nothing of a table but that it has none, and causes no work and leaves nothing in a cache.
//!
//! The engine's own targets are checked as well, once it has planned the statement (`Session::authorize`).

use cql::ast::Statement as Tree;
use engine::Error;

use crate::session::Session;

impl Session {
    /// Checks the rights that a statement needs on what it names, before it is planned
    /// (`access::NEEDS`).
    ///
    /// # Errors
    /// [`Error::Unauthorized`], whether or not there is anything of that name.
    pub(crate) fn authorize_tree(&self, tree: &Tree, keyspace: Option<&str>) -> Result<(), Error> {
        let Some(login) = self.login() else {
            return Err(Error::Unauthorized("You have not logged in".to_owned()));
        };
        let allowed = self.core.access.authorize_statement(&login, tree, keyspace);
        allowed.inspect_err(|error| self.audit_denied(tree, error))
    }
}
