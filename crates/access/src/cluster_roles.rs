//! Roles of a cluster in front of which this server stands. The cluster authenticates them and
//! decides what they may do with its data. Copies here carry their levels, and whether they may
//! change levels.

use std::collections::BTreeSet;

use cluster::ClusterRole;
use engine::Error;

use crate::access::Access;
use crate::change::Job;
use crate::login::Login;
use crate::plan::Actor;
use crate::roles::{Edit, Role, RoleName, Roles};

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
            if edits(&self.snapshot().roles, role, &granted).is_empty() {
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
        Some(self.log_in(Actor { role: name.clone(), id: known.id, anonymous: false }, None))
    }
}

/// Returns the edits after which the roles are as the cluster says.
pub(crate) fn edits(roles: &Roles, role: &str, granted: &[ClusterRole]) -> Vec<Edit> {
    let mut edits = Vec::new();
    for ClusterRole { name, can_login, is_superuser } in granted {
        let (can_login, is_superuser) = (*can_login, *is_superuser);
        let is_same = |known: &Role| known.can_login == can_login && known.is_superuser == is_superuser;
        if !roles.get(name).is_some_and(|known| is_same(known)) {
            edits.push(Edit::PutRole { role: name.as_str().into(), can_login, is_superuser, verifier: None });
        }
    }
    let now: BTreeSet<&str> = granted.iter().map(|of| &*of.name).filter(|name| *name != role).collect();
    let member: RoleName = role.into();
    let before = roles.get(role).map(|known| known.member_of.clone()).unwrap_or_default();
    let new = now.iter().filter(|name| !before.contains(**name));
    edits.extend(new.map(|name| Edit::AddMember { role: (*name).into(), member: member.clone() }));
    let lost = before.into_iter().filter(|name| !now.contains(&**name));
    edits.extend(lost.map(|role| Edit::RemoveMember { role, member: member.clone() }));
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, is_superuser: bool) -> ClusterRole {
        ClusterRole { name: name.to_owned(), can_login: true, is_superuser }
    }

    #[test]
    fn roles_become_as_the_cluster_says() {
        let mut roles = Roles::default();
        let mut copy = |granted: &[ClusterRole]| {
            let edits = edits(&roles, "ann", granted);
            edits.iter().for_each(|edit| roles.apply(edit));
            let names =
                roles.with_granted("ann").iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
            (edits.len(), names.join(" "), roles.is_superuser("ann"))
        };
        assert_eq!(copy(&[role("ann", false)]), (1, "ann".to_owned(), false));
        assert_eq!(copy(&[role("ann", false)]), (0, "ann".to_owned(), false));
        let both = [role("ann", false), role("team", false), role("admin", true)];
        assert_eq!(copy(&both), (4, "ann admin team".to_owned(), true));
        assert_eq!(copy(&both[..2]), (1, "ann team".to_owned(), false));
        let locked = ClusterRole { can_login: false, ..role("ann", false) };
        assert_eq!(copy(&[locked]), (2, "ann".to_owned(), false));
        assert!(!roles.get("ann").expect("kept for its level").can_login);
    }
}
