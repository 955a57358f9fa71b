//! Roles of the cluster in front of which this server stands: what the cluster says about them
//! decides their levels here.

use std::rc::{Rc, Weak};
use std::time::Duration;

use cluster::{ClusterRole, Front, Refusal};
use engine::Error;

use crate::core::Core;

/// Interval at which the cluster is asked for the roles granted to a role with sessions.
const ASK_EVERY: Duration = Duration::from_secs(60);

/// Asks the cluster for the roles granted to a role that has logged in, unless it was asked a
/// moment ago.
///
/// # Errors
/// No node answers, or all roles would exceed their memory.
pub(crate) async fn follow(core: &Core, front: &Front, remote: &Rc<cluster::Role>) -> Result<(), Refusal> {
    let name = remote.name();
    let is_due = remote.begin_asking_for_roles(ASK_EVERY.as_nanos() as u64);
    if !is_due && core.access.knows_role(name) {
        return Ok(());
    }
    let granted = match front.granted_roles(remote, front.shared().version(), name).await {
        Ok(granted) => granted,
        // A cluster that lists no roles: the role has no others.
        Err(Refusal::Answered(_)) => Vec::new(),
        Err(other) => return Err(other),
    };
    copy(core, name, granted).await.map_err(|error| Refusal::Unsent(error.to_string()))
}

/// Lets the role here be as in the cluster.
pub(crate) async fn copy(core: &Core, name: &str, mut granted: Vec<ClusterRole>) -> Result<(), Error> {
    if !granted.iter().any(|role| role.name == name) {
        granted.push(ClusterRole { name: name.to_owned(), can_login: true, is_superuser: false });
    }
    core.access.copy_role(name, granted).await
}

/// Follows the roles with sessions on this core, until the server stops.
pub(crate) async fn follow_all(core: Weak<Core>) {
    loop {
        lanes::time::sleep(ASK_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        let Some(front) = &core.front else { return };
        if front.shared().authenticator().is_none() {
            return;
        }
        for remote in front.roles() {
            // Stays as it was until a node answers.
            let _ = follow(&core, front, &remote).await;
        }
    }
}
