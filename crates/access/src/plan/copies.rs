//! Copies of the roles of a cluster.

use std::collections::BTreeSet;

use cluster::ClusterRole;

use crate::roles::{Edit, Role, RoleName, Roles};

/// Returns the edits after which the roles are as the cluster says.
pub(crate) fn copy_edits(roles: &Roles, role: &str, granted: &[ClusterRole]) -> Vec<Edit> {
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
    // The list is complete. What a listed role had besides, it has lost.
    for listed in &now {
        let stale = roles.get(listed).map(|known| known.member_of.clone()).unwrap_or_default();
        let stale = stale.into_iter().filter(|name| **name != *role && !now.contains(&**name));
        edits.extend(stale.map(|role| Edit::RemoveMember { role, member: (*listed).into() }));
    }
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
            let edits = copy_edits(&roles, "ann", granted);
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

    #[test]
    fn role_loses_what_a_role_granted_to_it_has_lost() {
        let mut roles = Roles::default();
        let mut copy = |of: &str, granted: &[ClusterRole]| {
            copy_edits(&roles, of, granted).iter().for_each(|edit| roles.apply(edit));
            roles.is_superuser("ann")
        };
        let (ann, team, admin) = (role("ann", false), role("team", false), role("admin", true));
        copy("team", &[team.clone(), admin.clone()]);
        assert!(copy("ann", &[ann.clone(), team.clone(), admin]));
        assert!(!copy("ann", &[ann, team]), "the cluster has revoked admin from team");
    }
}
