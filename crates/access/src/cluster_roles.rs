//! Roles of a cluster in front of which this server stands. The cluster authenticates them and
//! decides what they may do with its data. Copies here carry their levels, and whether they may
//! change levels.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::{ClusterRole, Fleet, PublishedTopology};
use engine::{About, Error, Viewer};

use crate::access::Access;
use crate::catalog::Membership;
use crate::change::Job;
use crate::login::Login;
use crate::plan::{Actor, copy_edits, unused_copies};
use crate::roles::RoleName;
use crate::visibility::Visibility;

/// Visibility in front of a cluster: names of its keyspaces and tables are visible, as they are to
/// every role of it. The cluster checks each read of their rows.
#[derive(Debug)]
pub(crate) struct AtCluster(pub(crate) Arc<Visibility>);

impl Viewer for AtCluster {
    fn sees(&self, about: About<'_>) -> bool {
        match about {
            About::Keyspace(keyspace) | About::Table(keyspace, ..) | About::Rows(keyspace, ..)
                if !engine::is_of_server(keyspace) =>
            {
                true
            }
            about => self.0.sees(about),
        }
    }

    fn role(&self) -> &str {
        self.0.role()
    }
}

impl Access {
    /// Lets the roles of this server be copies of those of a cluster with these nodes, and its
    /// levels those of a fleet. On core 0, once. Without a fleet, the levels are this server's own.
    ///
    /// # Errors
    /// Those of [`Access::adopt_catalog`].
    pub async fn follow_cluster(
        &self,
        topology: Arc<PublishedTopology>,
        fleet: Option<Arc<Fleet>>,
    ) -> Result<(), Error> {
        let _ = self.shared.cluster.set(topology);
        if let Some(fleet) = fleet {
            let _ = self.shared.membership.set(Membership::new(fleet));
        }
        self.adopt_catalog().await
    }

    pub(crate) fn follows_cluster(&self) -> bool {
        self.shared.cluster.get().is_some()
    }

    /// Returns true for a keyspace of a cluster, which checks the rights itself at each request.
    pub(crate) fn is_of_cluster(&self, keyspace: &str) -> bool {
        self.follows_cluster() && !engine::is_of_server(keyspace)
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

    /// Returns the copies that nothing needs: roles without sessions on any core, level and grants,
    /// which are no superusers and not granted to a role that is needed.
    pub fn unused_copies(&self) -> lanes::LocalBoxFuture<'_, BTreeSet<Arc<str>>> {
        Box::pin(async move {
            let mut in_use = BTreeSet::new();
            for core in 0..lanes::cores() {
                let shared = self.shared.clone();
                let names = move || async move { shared.on_this_core().map(|local| local.names_in_use()) };
                in_use.extend(lanes::call(core, names).await.unwrap_or_default());
            }
            let snapshot = self.snapshot();
            let search = async move { unused_copies(&snapshot.roles, &in_use) };
            lanes::heavy(lanes::current_group(), search).await
        })
    }

    /// Returns the names of the roles with sessions on this core, and forgets those without.
    fn names_in_use(&self) -> Vec<RoleName> {
        let mut logins = self.logins.borrow_mut();
        logins.retain(|_, of_role| of_role.iter().any(|login| login.strong_count() > 0));
        logins.keys().cloned().collect()
    }

    /// Drops copies, at most 1,000 at once. Those that have got a level meanwhile stay.
    ///
    /// # Errors
    /// The tables in memory cannot be written.
    pub fn drop_copies(&self, unused: BTreeSet<Arc<str>>) -> lanes::LocalBoxFuture<'_, Result<(), Error>> {
        let front = Actor { role: "anonymous".into(), id: 0, anonymous: true };
        Box::pin(self.change(front, Job::DropCopies(unused)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::Rights;
    use crate::roles::tests::roles;

    #[test]
    fn names_of_the_cluster_are_visible_and_other_roles_are_not() {
        let rights = Rights::of(1, "ann", &roles(&["ann", "bob"]));
        let viewer = AtCluster(Arc::new(Visibility::of(&rights, "default")));
        let seen = [
            About::Keyspace("shop"),
            About::Table("shop", "t", 1),
            About::Rows("shop", "t", 1),
            About::Role("ann"),
        ];
        assert!(seen.into_iter().all(|about| viewer.sees(about)));
        let hidden = [
            About::Rows("system_auth", "roles", 1),
            About::Role("bob"),
            About::AllRoles,
            About::Level("other"),
        ];
        assert!(hidden.into_iter().all(|about| !viewer.sees(about)));
    }
}
