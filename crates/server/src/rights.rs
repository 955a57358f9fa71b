//! Checks of rights before any work. The tables that a parsed statement names are checked before it
//! is planned. A role without rights then learns only that it has none. It causes no work and adds
//! nothing to a cache.
//!
//! The targets reported by the engine are also checked after planning (`Session::authorize`).

use cql::ast::Statement as Tree;
use engine::Error;

use crate::session::Session;

impl Session {
    /// Checks the rights that a statement needs on the objects that it names, before it is planned
    /// (`access::NEEDS`).
    ///
    /// # Errors
    /// [`Error::Unauthorized`], whether or not the object exists.
    pub(crate) fn authorize_tree(&self, tree: &Tree, keyspace: Option<&str>) -> Result<(), Error> {
        let Some(login) = self.login() else {
            return Err(Error::Unauthorized("You have not logged in".to_owned()));
        };
        let allowed = self.core.access.authorize_statement(&login, tree, keyspace);
        allowed.inspect_err(|error| self.audit_denied(tree, error))
    }
}
