//! Roles in memory, as one immutable value, and the edits that change them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cql::ast::Permission;
use workload::{Catalog, Effective};

use crate::resource::{PermissionSet, Resource};
use crate::scram::{self, Key};
use crate::verifier::Verifier;

/// Name of a role.
pub(crate) type RoleName = Arc<str>;

/// A role with its memberships, level and grants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Role {
    /// Distinguishes the role from earlier and later roles of its name while the server runs.
    pub(crate) id: u64,
    pub(crate) can_login: bool,
    pub(crate) is_superuser: bool,
    pub(crate) verifier: Option<Arc<Verifier>>,
    /// The roles granted to it.
    pub(crate) member_of: BTreeSet<RoleName>,
    /// The service level attached to it.
    pub(crate) level: Option<Arc<str>>,
    pub(crate) grants: BTreeMap<Resource, PermissionSet>,
}

/// All roles. A clone copies one pointer per role.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roles {
    roles: BTreeMap<RoleName, Arc<Role>>,
    /// The number of verifiers, by iterations. Decoys get iterations from the same distribution.
    iterations: BTreeMap<u32, usize>,
    /// The latest id.
    last_id: u64,
    /// The memory of all roles, bytes.
    bytes: u64,
}

/// Bytes of a role without its name and grants: two map entries, its verifier and its row.
const ROLE_BYTES: u64 = 768;
/// Bytes of a grant or membership without its names: a map entry and its row.
const GRANT_BYTES: u64 = 192;

impl Role {
    /// Returns its memory, bytes.
    fn bytes(&self, name: &str) -> u64 {
        let names = self.member_of.iter().map(|granted| granted.len());
        let grants = self.grants.keys().map(Resource::name_bytes);
        let entries = (self.member_of.len() + self.grants.len()) as u64;
        ROLE_BYTES + name.len() as u64 + entries * GRANT_BYTES + names.chain(grants).sum::<usize>() as u64
    }
}

/// A change of the state in memory and of the tables.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// Creates a role, or changes these three fields of an existing one.
    PutRole {
        role: RoleName,
        can_login: bool,
        is_superuser: bool,
        verifier: Option<Arc<Verifier>>,
    },
    /// Drops a role and its grants. Memberships in it and grants on it stay.
    DropRole(RoleName),
    AddMember {
        role: RoleName,
        member: RoleName,
    },
    RemoveMember {
        role: RoleName,
        member: RoleName,
    },
    Permit {
        role: RoleName,
        resource: Resource,
        permissions: PermissionSet,
    },
    Forbid {
        role: RoleName,
        resource: Resource,
        permissions: PermissionSet,
    },
    Attach {
        role: RoleName,
        level: Arc<str>,
    },
    Detach {
        role: RoleName,
    },
    PutLevel(workload::LevelSpec),
    DropLevel(Arc<str>),
}

impl Roles {
    /// Returns an empty set to load into. New ids follow those of `before`.
    pub(crate) fn before_loading(before: &Roles) -> Roles {
        Roles { last_id: before.last_id, ..Roles::default() }
    }

    /// Restores the ids of known roles, and removes memberships in missing roles. Otherwise a later
    /// role of that name would be granted implicitly.
    pub(crate) fn after_loading(&mut self, before: &Roles) {
        let names: BTreeSet<RoleName> = self.roles.keys().cloned().collect();
        for (name, role) in &mut self.roles {
            let role = Arc::make_mut(role);
            role.id = before.get(name).map_or(role.id, |before| before.id);
            role.member_of.retain(|granted| names.contains(granted));
        }
        self.bytes = self.roles.iter().map(|(name, role)| role.bytes(name)).sum();
    }

    /// True if any role has grants on a keyspace or on its tables.
    pub(crate) fn have_grants_in(&self, keyspace: &str) -> bool {
        let first = Resource::Keyspace(keyspace.to_owned());
        self.roles.values().any(|role| role.grants.keys().any(|on| on.chain().any(|above| above == first)))
    }

    /// Returns the memory of all roles with their grants, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn get(&self, role: &str) -> Option<&Arc<Role>> {
        self.roles.get(role)
    }

    /// Returns a role with its shared name.
    pub(crate) fn get_key_value(&self, role: &str) -> Option<(&RoleName, &Arc<Role>)> {
        self.roles.get_key_value(role)
    }

    /// Returns the iterations of the decoy of a name. Chooses from the iterations of the verifiers,
    /// by secret and name. Neither the iterations nor the duration of a check then reveal if a name
    /// exists.
    pub(crate) fn decoy_iterations(&self, secret: &Key, name: &str) -> u32 {
        let total: usize = self.iterations.values().sum();
        let mut rank = scram::spread(secret, name, total);
        for (iterations, count) in &self.iterations {
            match rank.checked_sub(*count) {
                Some(rest) => rank = rest,
                None => return *iterations,
            }
        }
        scram::ITERATIONS
    }

    fn count_verifier(&mut self, old: Option<Arc<Verifier>>, new: Option<&Arc<Verifier>>) {
        if let Some(old) = old
            && let Some(count) = self.iterations.get_mut(&old.iterations())
        {
            *count -= 1;
            if *count == 0 {
                self.iterations.remove(&old.iterations());
            }
        }
        if let Some(new) = new {
            *self.iterations.entry(new.iterations()).or_default() += 1;
        }
    }

    /// Iterates over all roles by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&RoleName, &Arc<Role>)> {
        self.roles.iter()
    }

    /// Returns the role and all roles granted to it, directly or indirectly. Nearer ones come
    /// first, and each comes once. Returns an empty list for a missing role.
    pub(crate) fn with_granted(&self, role: &str) -> Vec<(&RoleName, &Arc<Role>)> {
        let mut found: Vec<_> = self.roles.get_key_value(role).into_iter().collect();
        let mut at = 0;
        while at < found.len() {
            for granted in &found[at].1.member_of {
                if let Some(granted) = self.roles.get_key_value(granted)
                    && !found.iter().any(|(name, _)| *name == granted.0)
                {
                    found.push(granted);
                }
            }
            at += 1;
        }
        found
    }

    /// Returns the role, and every role that it is granted to, directly or indirectly.
    pub(crate) fn members_of(&self, role: &str) -> BTreeSet<&RoleName> {
        let mut found: BTreeSet<&RoleName> =
            self.roles.get_key_value(role).map(|(name, _)| name).into_iter().collect();
        let mut newest = found.clone();
        while !newest.is_empty() {
            let members = self
                .roles
                .iter()
                .filter(|(_, member)| newest.iter().any(|of| member.member_of.contains(*of)));
            newest = members.map(|(name, _)| name).filter(|name| !found.contains(name)).collect();
            found.extend(&newest);
        }
        found
    }

    /// True if `role` is `other`, or `other` is granted to it.
    pub(crate) fn has_role(&self, role: &str, other: &str) -> bool {
        self.with_granted(role).iter().any(|(name, _)| &***name == other)
    }

    /// True if the role or one granted to it is a superuser.
    pub(crate) fn is_superuser(&self, role: &str) -> bool {
        self.with_granted(role).iter().any(|(_, role)| role.is_superuser)
    }

    /// Returns the permissions of the role on a resource. Includes grants of granted roles, and
    /// grants on the resources above.
    pub(crate) fn permissions(&self, role: &str, resource: &Resource) -> PermissionSet {
        let roles = self.with_granted(role);
        let grants = resource.chain().flat_map(|resource| {
            roles.iter().filter_map(move |(_, role)| role.grants.get(&resource).copied())
        });
        grants.fold(PermissionSet::NONE, PermissionSet::union)
    }

    /// True if the role has the permission. Superusers have every permission.
    pub(crate) fn may(&self, role: &str, permission: Permission, resource: &Resource) -> bool {
        self.is_superuser(role) || self.permissions(role, resource).contains(permission)
    }

    /// Returns the effective settings of a role's statements. `None` if neither the role nor a role
    /// granted to it has a level.
    pub(crate) fn effective(&self, role: &str, levels: &Catalog) -> Option<Effective> {
        let roles = self.with_granted(role);
        let attached = roles.iter().filter_map(|(_, role)| levels.get(role.level.as_deref()?));
        let mut attached = attached.peekable();
        attached.peek()?;
        Some(workload::merge(attached.map(|entry| &**entry), levels.default_level()))
    }

    /// Applies an edit. Ignores edits of levels and of missing roles.
    pub(crate) fn apply(&mut self, edit: &Edit) {
        match edit {
            Edit::PutRole { role, can_login, is_superuser, verifier } => {
                let last_id = &mut self.last_id;
                let bytes = &mut self.bytes;
                let entry = self.roles.entry(role.clone()).or_insert_with(|| {
                    *last_id += 1;
                    let new = Role { id: *last_id, ..Role::default() };
                    *bytes += new.bytes(role);
                    Arc::new(new)
                });
                let entry = Arc::make_mut(entry);
                entry.can_login = *can_login;
                entry.is_superuser = *is_superuser;
                let old = std::mem::replace(&mut entry.verifier, verifier.clone());
                self.count_verifier(old, verifier.as_ref());
            }
            Edit::DropRole(role) => {
                let name = role;
                if let Some(role) = self.roles.remove(role) {
                    self.bytes -= role.bytes(name);
                    self.count_verifier(role.verifier.clone(), None);
                }
            }
            Edit::AddMember { role, member } => {
                self.change(member, |member| {
                    member.member_of.insert(role.clone());
                });
            }
            Edit::RemoveMember { role, member } => {
                self.change(member, |member| {
                    member.member_of.remove(role);
                });
            }
            Edit::Permit { role, resource, permissions } => self.change(role, |role| {
                let granted = role.grants.entry(resource.clone()).or_default();
                *granted = granted.union(*permissions);
            }),
            Edit::Forbid { role, resource, permissions } => self.change(role, |role| {
                let left = role.grants.get(resource).copied().unwrap_or_default().without(*permissions);
                if left.is_empty() {
                    role.grants.remove(resource);
                } else {
                    role.grants.insert(resource.clone(), left);
                }
            }),
            Edit::Attach { role, level } => self.change(role, |role| role.level = Some(level.clone())),
            Edit::Detach { role } => self.change(role, |role| role.level = None),
            Edit::PutLevel(_) | Edit::DropLevel(_) => {}
        }
    }

    fn change(&mut self, role: &str, change: impl FnOnce(&mut Role)) {
        let name = role;
        if let Some(role) = self.roles.get_mut(name) {
            let before = role.bytes(name);
            change(Arc::make_mut(role));
            self.bytes = self.bytes - before + role.bytes(name);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Parses roles written as `name` or `name < granted granted …`. A `!` after the name marks a
    /// superuser.
    pub(crate) fn roles(text: &[&str]) -> Roles {
        let mut roles = Roles::default();
        for line in text {
            let name = line.split(" < ").next().unwrap();
            let (role, is_superuser) = (name.trim_end_matches('!').into(), name.ends_with('!'));
            roles.apply(&Edit::PutRole { role, can_login: true, is_superuser, verifier: None });
        }
        for (member, granted) in text.iter().filter_map(|line| line.split_once(" < ")) {
            for role in granted.split(' ') {
                let member = member.trim_end_matches('!').into();
                roles.apply(&Edit::AddMember { role: role.into(), member });
            }
        }
        roles
    }

    #[test]
    fn granted_roles_are_found_once_despite_a_cycle() {
        let roles = roles(&["a < b c", "b < d", "c < d", "d < a", "e!", "f < e"]);
        let names =
            |role| roles.with_granted(role).iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
        assert_eq!(names("a"), ["a", "b", "c", "d"]);
        assert_eq!(names("e"), ["e"]);
        assert!(names("unknown").is_empty());
        let members = |role| roles.members_of(role).into_iter().map(|name| &**name).collect::<Vec<_>>();
        assert_eq!(members("d"), ["a", "b", "c", "d"]);
        assert_eq!(members("e"), ["e", "f"]);
        assert!(members("unknown").is_empty());
        assert!(roles.is_superuser("f") && !roles.is_superuser("a") && !roles.is_superuser("unknown"));
    }

    #[test]
    fn decoys_have_the_iterations_of_verifiers() {
        let mut roles = Roles::default();
        let mut spread = |puts: &[(&str, u32)]| {
            for (role, iterations) in puts {
                let verifier = Some(Arc::new(Verifier::decoy(&[1; 32], role, *iterations)));
                let role = (*role).into();
                roles.apply(&Edit::PutRole { role, can_login: true, is_superuser: false, verifier });
            }
            let of_name = |i: i32| roles.decoy_iterations(&[7; 32], &format!("name {i}"));
            (0..1000).filter(|i| of_name(*i) == 65_536).count()
        };
        assert_eq!(spread(&[]), 0);
        assert_eq!(spread(&[("a", 4096)]), 0);
        let half = spread(&[("b", 65_536)]);
        assert!((400..600).contains(&half), "{half} of 1000");
        assert_eq!(spread(&[("b", 4096)]), 0);
        assert_eq!(spread(&[("a", 65_536), ("b", 65_536)]), 1000);
        roles.apply(&Edit::DropRole("a".into()));
        roles.apply(&Edit::DropRole("b".into()));
        assert!(roles.iterations.is_empty());
    }

    #[test]
    fn grants_are_inherited_from_roles_and_resources() {
        let mut roles = roles(&["ann < readers", "bob", "readers", "root!"]);
        let table = Resource::Table("k".into(), "t".into(), 1);
        let permit = |role: &str, resource: Resource, permission| Edit::Permit {
            role: role.into(),
            resource,
            permissions: PermissionSet::of(&[permission]),
        };
        let check = |roles: &Roles, role, permission, expected| {
            assert_eq!(roles.may(role, permission, &table), expected, "{role} {permission:?}");
        };
        check(&roles, "ann", Permission::Select, false);
        check(&roles, "root", Permission::Select, true);
        roles.apply(&permit("readers", Resource::Keyspace("k".into()), Permission::Select));
        roles.apply(&permit("bob", Resource::Table("k".into(), "other".into(), 2), Permission::Select));
        roles.apply(&permit("bob", Resource::AllTables("k".into()), Permission::Modify));
        check(&roles, "ann", Permission::Select, true);
        check(&roles, "ann", Permission::Modify, false);
        check(&roles, "bob", Permission::Select, false);
        check(&roles, "bob", Permission::Modify, true);
        roles.apply(&Edit::RemoveMember { role: "readers".into(), member: "ann".into() });
        check(&roles, "ann", Permission::Select, false);
    }
}
