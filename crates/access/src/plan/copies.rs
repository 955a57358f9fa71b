//! Copies of the roles of a cluster.

use std::collections::BTreeSet;

use cluster::ClusterRole;

use crate::roles::{Edit, Role, RoleName, Roles};

/// Copies that one change drops, at most.
const DROPPED_MAX: usize = 1000;

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

/// Returns the roles that are kept for nothing: without sessions (`in_use`), levels and grants, no
/// superusers, and not granted to any other. Superusers stay known for their reserved logins.
pub(crate) fn unused_copies(roles: &Roles, in_use: &BTreeSet<RoleName>) -> BTreeSet<RoleName> {
    let is_kept =
        |name: &RoleName, role: &Role| in_use.contains(name) || !is_bare(role) || roles.is_superuser(name);
    let kept = roles.iter().filter(|(name, role)| is_kept(name, role)).map(|(name, _)| name);
    let kept: BTreeSet<&str> =
        kept.flat_map(|name| roles.with_granted(name)).map(|(name, _)| &**name).collect();
    roles.iter().map(|(name, _)| name).filter(|name| !kept.contains(&***name)).cloned().collect()
}

/// Returns the edits that drop copies which are still without level and grants. A membership in
/// one of them stays: the cluster says the same when it is asked next.
pub(crate) fn drop_edits(roles: &Roles, unused: &BTreeSet<RoleName>) -> Vec<Edit> {
    let known = unused.iter().filter_map(|name| Some((name, roles.get(name)?)));
    let mut edits = Vec::new();
    for (name, role) in known.filter(|(_, role)| is_bare(role)).take(DROPPED_MAX) {
        let left = |role: &RoleName| Edit::RemoveMember { role: role.clone(), member: name.clone() };
        edits.extend(role.member_of.iter().map(left));
        edits.push(Edit::DropRole(name.clone()));
    }
    edits
}

fn is_bare(role: &Role) -> bool {
    role.level.is_none() && role.grants.is_empty() && !role.is_superuser
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
    fn copies_without_sessions_levels_and_members_are_dropped() {
        let mut roles = Roles::default();
        let [ann, bob, team, admin] =
            [role("ann", false), role("bob", false), role("team", false), role("admin", true)];
        for (of, granted) in [
            ("ann", vec![ann, team.clone()]),
            ("bob", vec![bob, team]),
            ("chief", vec![role("chief", false), admin]),
            ("carol", vec![role("carol", false)]),
        ] {
            copy_edits(&roles, of, &granted).iter().for_each(|edit| roles.apply(edit));
        }
        roles.apply(&Edit::Attach { role: "carol".into(), level: "gold".into() });
        let check = |in_use: &[&str], expected: &str| {
            let in_use = in_use.iter().map(|name| RoleName::from(*name)).collect();
            let unused = unused_copies(&roles, &in_use);
            let names: Vec<&str> = unused.iter().map(|name| &**name).collect();
            assert_eq!(names.join(" "), expected, "{in_use:?}");
            unused
        };
        check(&["ann", "bob"], "");
        check(&["ann"], "bob");
        let unused = check(&[], "ann bob team");
        roles.apply(&Edit::Attach { role: "bob".into(), level: "gold".into() });
        drop_edits(&roles, &unused).iter().for_each(|edit| roles.apply(edit));
        let left: Vec<&str> = roles.iter().map(|(name, _)| &**name).collect();
        assert_eq!(left, ["admin", "bob", "carol", "chief"], "bob got a level meanwhile");
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
