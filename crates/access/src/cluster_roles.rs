//! Roles of a cluster in front of which this server stands. The cluster authenticates them and
//! decides what they may do with its data. Copies here carry their levels, and whether they may
//! change levels.

use cluster::ClusterRole;
use engine::Error;

use crate::access::Access;
use crate::change::Job;
use crate::login::Login;
use crate::plan::{Actor, copy_edits};

impl Access {
    /// Lets the roles of this server be copies of those of a cluster.
    pub fn follow_cluster(&self) {
        self.shared.follows_cluster.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns true if a role is known.
    #[must_use]
    pub fn knows_role(&self, role: &str) -> bool {
        self.snapshot().roles.get(role).is_some()
    }

    /// Takes over what a cluster says about a role. `granted`: the role itself, and all roles that
    /// it was granted, directly or indirectly.
    ///
    /// # Errors
    /// The tables in memory cannot be written, or all roles would exceed their memory.
    pub fn copy_role<'a>(
        &'a self,
        role: &'a str,
        granted: Vec<ClusterRole>,
    ) -> lanes::LocalBoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            if copy_edits(&self.snapshot().roles, role, &granted).is_empty() {
                return Ok(());
            }
            let front = Actor { role: "anonymous".into(), id: 0, anonymous: true };
            self.change(front, Job::CopyRole { role: role.to_owned(), granted }).await
        })
    }

    /// Opens a session of a role that a cluster has authenticated. `None`: the role is not known.
    #[must_use]
    pub fn relayed(&self, role: &str) -> Option<Login> {
        let snapshot = self.snapshot();
        let (name, known) = snapshot.roles.get_key_value(role)?;
        let actor = Actor { role: name.clone(), id: known.id, anonymous: false };
        Some(self.log_in(actor, known.verifier.clone()))
    }
}
