//! The rights that no role has to be given, and those that none can have: everyone reads the system's tables, which
//! every driver does on connecting, and nobody writes them.

use engine::{Action, Error, Target};

use crate::gate::Gate;

/// Keyspaces that everyone who has authenticated may read.
const READABLE: [&str; 4] = ["system", "system_schema", "system_virtual_schema", "system_traces"];

/// Whether a role may do what a statement does.
///
/// # Errors
/// What it may not.
pub(crate) fn authorize(gate: &dyn Gate, role: &str, targets: &[Target]) -> Result<(), Error> {
    if let Some(target) = targets.iter().find(|t| t.action != Action::Select && is_system(&t.keyspace)) {
        return Err(Error::Unauthorized(format!("{} keyspace is not user-modifiable.", target.keyspace)));
    }
    let readable = |target: &&Target| READABLE.contains(&&*target.keyspace);
    if !targets.iter().any(|target| readable(&target)) {
        return gate.authorize(role, targets);
    }
    let asked: Vec<Target> = targets.iter().filter(|target| !readable(target)).cloned().collect();
    if asked.is_empty() { Ok(()) } else { gate.authorize(role, &asked) }
}

/// Whether a keyspace is the server's own.
pub(crate) fn is_system(keyspace: &str) -> bool {
    keyspace == "system" || keyspace.starts_with("system_")
}
