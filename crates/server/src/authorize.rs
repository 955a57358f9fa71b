//! Authorize stage. The tables that a parsed statement names are checked before it is planned. A
//! role without rights then learns only that it has none. It causes no work and adds nothing to a
//! cache. The targets reported by the engine are also checked, before each run of the plan.

use cql::ast::Statement as Tree;
use engine::Error;

use crate::audit;
use crate::session::Session;
use crate::statement::{Statement, Work};

/// Checks the rights that a statement needs on the objects that it names, before it is planned
/// (`access::NEEDS`).
///
/// # Errors
/// [`Error::Unauthorized`], whether or not the object exists.
pub(crate) fn authorize_tree(session: &Session, tree: &Tree, keyspace: Option<&str>) -> Result<(), Error> {
    let login = session.login().ok_or_else(not_logged_in)?;
    let allowed = session.core.access.authorize_statement(&login, tree, keyspace);
    allowed.inspect_err(|error| audit::denied(session, tree, error))
}

/// Checks the role's rights on a statement. Remembers the result until roles or rights change.
pub(crate) fn authorize(session: &Session, statement: &Statement) -> Result<(), Error> {
    let Work::Engine(plan) = &statement.work else { return Ok(()) };
    let role = session.role.borrow();
    let role = role.as_ref().ok_or_else(not_logged_in)?;
    let now = (role.number, session.core.access.rights(&role.login));
    if statement.allowed.get() != now {
        let allowed = session.core.access.authorize(&role.login, plan.targets());
        allowed.inspect_err(|error| audit::denied(session, &statement.tree, error))?;
        statement.allowed.set(now);
    }
    Ok(())
}

fn not_logged_in() -> Error {
    Error::Unauthorized("You have not logged in".to_owned())
}
