//! Visibility of rows in virtual tables and in DESCRIBE. A role sees facts about objects on which
//! it has a right.
//!
//! - A keyspace is visible to roles with any permission on it, above it, or on a table in it. The
//!   server's own keyspaces are visible to all roles.
//! - A table is visible to roles with any permission on it or above it.
//! - Masked columns of a table are visible to roles with UNMASK on it or above it. Roles with
//!   SELECT_MASKED may use them in conditions.
//! - Data of a table is visible to roles with SELECT on it or above it. In the server's own
//!   keyspaces, it is visible to superusers only.
//! - Rows of a table may be read by roles with SELECT on it or above it. Every role may read its
//!   own rows of some tables of the server.
//! - A role is visible to itself and to every role that it is granted to, and to roles with
//!   DESCRIBE on all roles.
//! - A service level is visible to roles whose statements run in it, to roles with a permission on
//!   it, and to roles with DESCRIBE on all levels.
//!
//! Superusers see everything. Cassandra and Postgres show the names of all keyspaces to every role.
//! Both hide the statements of other roles.

use std::collections::{BTreeMap, BTreeSet};

use cql::ast::Permission;
use cql::ast::Permission::{Select, SelectMasked, Unmask};
use engine::{About, Viewer};

use crate::resource::{PermissionSet, Resource, is_readable};
use crate::rights::Rights;
use crate::roles::RoleName;
use crate::store::KEYSPACES;

/// Rights of a role that decide visibility.
#[derive(Debug)]
pub(crate) struct Visibility {
    role: Option<RoleName>,
    is_superuser: bool,
    /// Permissions on all keyspaces.
    all_keyspaces: PermissionSet,
    keyspaces: BTreeSet<String>,
    /// Permissions on all tables of a keyspace.
    whole_keyspaces: BTreeMap<String, PermissionSet>,
    /// Permissions on a table, by keyspace, name and identity.
    tables: BTreeMap<(String, String, u128), PermissionSet>,
    describes_roles: bool,
    roles: BTreeSet<RoleName>,
    describes_levels: bool,
    levels: BTreeSet<String>,
}

impl Visibility {
    /// Derives the visibility for a role with these rights. `level` is that of its statements.
    pub(crate) fn of(rights: &Rights, level: &str) -> Visibility {
        let mut visibility = Visibility {
            role: rights.roles().first().map(|(name, _)| name.clone()),
            is_superuser: rights.is_superuser,
            all_keyspaces: PermissionSet::NONE,
            keyspaces: BTreeSet::new(),
            whole_keyspaces: BTreeMap::new(),
            tables: BTreeMap::new(),
            describes_roles: false,
            roles: rights.roles().iter().map(|(name, _)| name.clone()).collect(),
            describes_levels: false,
            levels: BTreeSet::from([level.to_owned()]),
        };
        for (_, role) in rights.roles() {
            visibility.levels.extend(role.level.as_deref().map(str::to_owned));
            for (resource, permissions) in &role.grants {
                let describes = permissions.contains(Permission::Describe);
                let granted = match resource {
                    Resource::AllKeyspaces => Some(&mut visibility.all_keyspaces),
                    Resource::Keyspace(keyspace) | Resource::AllTables(keyspace) => {
                        Some(visibility.whole_keyspaces.entry(keyspace.clone()).or_default())
                    }
                    Resource::Table(keyspace, table, id) => {
                        let table = (keyspace.clone(), table.clone(), *id);
                        Some(visibility.tables.entry(table).or_default())
                    }
                    _ => None,
                };
                if let Some(granted) = granted {
                    *granted = granted.union(*permissions);
                }
                match resource {
                    Resource::AllKeyspaces => {}
                    Resource::Keyspace(keyspace)
                    | Resource::AllTables(keyspace)
                    | Resource::Table(keyspace, ..) => {
                        if !visibility.keyspaces.contains(keyspace) {
                            visibility.keyspaces.insert(keyspace.clone());
                        }
                    }
                    Resource::AllRoles => visibility.describes_roles |= describes,
                    Resource::AllServiceLevels => visibility.describes_levels |= describes,
                    Resource::ServiceLevel(level) => drop(visibility.levels.insert(level.clone())),
                    Resource::Role(_) => {}
                }
            }
        }
        visibility
    }
}

impl Viewer for Visibility {
    fn sees(&self, about: About<'_>) -> bool {
        self.is_superuser
            || match about {
                About::Keyspace(keyspace) => {
                    self.has_all_keyspaces() || is_public(keyspace) || self.keyspaces.contains(keyspace)
                }
                About::AllKeyspaces => self.has_all_keyspaces(),
                About::Table(keyspace, table, id) => !self.on(keyspace, table, id).is_empty(),
                About::Data(keyspace, table, id) => {
                    self.on(keyspace, table, id).contains(Select) && !is_public(keyspace)
                }
                About::Rows(keyspace, table, id) => {
                    let selects = self.on(keyspace, table, id).contains(Select);
                    is_readable(keyspace, Some(table)) || selects && !KEYSPACES.contains(&keyspace)
                }
                About::Unmasked(keyspace, table, id) => self.on(keyspace, table, id).contains(Unmask),
                About::MaskedConditions(keyspace, table, id) => {
                    let permissions = self.on(keyspace, table, id);
                    permissions.contains(Unmask) || permissions.contains(SelectMasked)
                }
                About::AllData => self.all_keyspaces.contains(Select),
                About::AllRoles => self.describes_roles,
                About::Role(role) => self.describes_roles || self.roles.contains(role),
                About::Level(level) => self.describes_levels || self.levels.contains(level),
                About::AllLevels => self.describes_levels,
            }
    }

    fn role(&self) -> &str {
        self.role.as_deref().unwrap_or_default()
    }
}

impl Visibility {
    fn has_all_keyspaces(&self) -> bool {
        !self.all_keyspaces.is_empty()
    }

    /// Returns the permissions on a table: on it, and on what is above it.
    fn on(&self, keyspace: &str, table: &str, id: u128) -> PermissionSet {
        let whole = self.whole_keyspaces.get(keyspace).copied().unwrap_or_default();
        let table = self.tables.get(&(keyspace.to_owned(), table.to_owned(), id)).copied();
        self.all_keyspaces.union(whole).union(table.unwrap_or_default())
    }
}

/// True for keyspaces whose tables are the same in every server, and therefore not secret.
fn is_public(keyspace: &str) -> bool {
    engine::is_of_server(keyspace)
}

#[cfg(test)]
mod tests {
    use cql::ast::Permission::{Alter, Create, Describe, Execute, Modify};

    use super::*;
    use crate::resource::PermissionSet;
    use crate::roles::{Edit, tests::roles};

    /// Objects of the tests. Table `t` has identity 1. Identity 2 is a later table of its name.
    const OBJECTS: [About<'static>; 33] = [
        About::Keyspace("ks"),
        About::Keyspace("other"),
        About::Keyspace("system_auth"),
        About::AllKeyspaces,
        About::Table("ks", "t", 1),
        About::Table("ks", "t", 2),
        About::Table("ks", "u", 3),
        About::Table("other", "t", 1),
        About::Data("ks", "t", 1),
        About::Data("ks", "t", 2),
        About::Data("ks", "u", 3),
        About::Data("other", "t", 1),
        About::Data("system_auth", "roles", 4),
        About::Data("system_views", "clients", 5),
        About::AllData,
        About::Rows("ks", "t", 1),
        About::Rows("ks", "t", 2),
        About::Rows("ks", "u", 3),
        About::Rows("other", "t", 1),
        About::Rows("system_auth", "roles", 4),
        About::Rows("system_views", "clients", 5),
        About::Rows("system_views", "sstable_tasks", 6),
        About::Rows("system_schema", "tables", 7),
        About::Role("ann"),
        About::Role("readers"),
        About::Role("bob"),
        About::AllRoles,
        About::Level("default"),
        About::Level("own"),
        About::Level("granted"),
        About::Level("other"),
        About::AllLevels,
        About::Table("system_auth", "roles", 4),
    ];

    /// Objects that `ann` sees without any grant. Its statements run in level `default`.
    const ALWAYS: [About<'static>; 8] = [
        About::Keyspace("system_auth"),
        About::Rows("system_views", "sstable_tasks", 6),
        About::Rows("system_schema", "tables", 7),
        About::Role("ann"),
        About::Role("readers"),
        About::Level("default"),
        About::Level("own"),
        About::Level("granted"),
    ];

    /// Returns the objects that `ann`, a member of `readers`, sees. Bit `n` of `of_ann` gives the
    /// grant `n` to `ann`, and the others are those of `readers`.
    fn seen(grants: &[(Permission, Resource)], of_ann: usize) -> Vec<About<'static>> {
        let mut roles = roles(&["ann < readers", "readers", "bob < ann"]);
        for (role, level) in [("ann", "own"), ("readers", "granted"), ("bob", "other")] {
            roles.apply(&Edit::Attach { role: role.into(), level: level.into() });
        }
        for (n, (permission, resource)) in grants.iter().enumerate() {
            let role = if of_ann >> n & 1 == 1 { "ann" } else { "readers" }.into();
            let permissions = PermissionSet::of(&[*permission]);
            roles.apply(&Edit::Permit { role, resource: resource.clone(), permissions });
        }
        let visibility = Visibility::of(&Rights::of(1, "ann", &roles), "default");
        OBJECTS.into_iter().filter(|object| visibility.sees(*object)).collect()
    }

    /// Checks that grants show exactly `expected` besides the objects that are always visible,
    /// whichever of the two roles has each of them.
    fn check(grants: &[(Permission, Resource)], expected: &[About<'static>]) {
        let expects = |object: &About<'_>| expected.contains(object) || ALWAYS.contains(object);
        let expected: Vec<About<'_>> = OBJECTS.into_iter().filter(expects).collect();
        for of_ann in 0..1 << grants.len() {
            assert_eq!(seen(grants, of_ann), expected, "{grants:?}, {of_ann:b}");
        }
    }

    fn keyspace(name: &str) -> Resource {
        Resource::Keyspace(name.to_owned())
    }

    fn table(keyspace: &str, table: &str, id: u128) -> Resource {
        Resource::Table(keyspace.to_owned(), table.to_owned(), id)
    }

    #[test]
    fn role_without_grants_sees_itself_and_the_server() {
        check(&[], &[]);
        let superuser = Visibility::of(&Rights::of(1, "root", &roles(&["root!"])), "default");
        assert!(OBJECTS.into_iter().all(|object| superuser.sees(object)));
        let ended = Visibility::of(&Rights::new(1, false, Vec::new()), "default");
        let seen: Vec<About<'_>> = OBJECTS.into_iter().filter(|object| ended.sees(*object)).collect();
        let public = ALWAYS
            .into_iter()
            .filter(|object| !matches!(object, About::Role(_) | About::Level("own" | "granted")));
        assert_eq!(seen, public.collect::<Vec<_>>());
    }

    #[test]
    fn grant_on_a_table_shows_that_table_only() {
        let shown = [About::Keyspace("ks"), About::Table("ks", "t", 1)];
        check(&[(Modify, table("ks", "t", 1))], &shown);
        let read = [About::Data("ks", "t", 1), About::Rows("ks", "t", 1)];
        check(&[(Select, table("ks", "t", 1))], &[&shown[..], &read].concat());
        let both = [(Modify, table("ks", "t", 1)), (Select, table("ks", "t", 1))];
        check(&both, &[&shown[..], &read].concat());
        // SELECT on one table and another permission on a second one do not mix.
        let mixed = [(Select, table("ks", "t", 1)), (Alter, table("ks", "u", 3))];
        check(&mixed, &[&shown[..], &read, &[About::Table("ks", "u", 3)]].concat());
    }

    #[test]
    fn grant_on_a_keyspace_shows_its_tables_only() {
        let shown = [
            About::Keyspace("ks"),
            About::Table("ks", "t", 1),
            About::Table("ks", "t", 2),
            About::Table("ks", "u", 3),
        ];
        let data = [About::Data("ks", "t", 1), About::Data("ks", "t", 2), About::Data("ks", "u", 3)];
        let rows = [About::Rows("ks", "t", 1), About::Rows("ks", "t", 2), About::Rows("ks", "u", 3)];
        for whole in [keyspace("ks"), Resource::AllTables("ks".to_owned())] {
            check(&[(Create, whole.clone())], &shown);
            check(&[(Select, whole.clone())], &[&shown[..], &data, &rows].concat());
            // The stronger of two grants decides, in either order.
            let one = [About::Data("ks", "t", 1), About::Rows("ks", "t", 1)];
            let weak_above = [(Modify, whole.clone()), (Select, table("ks", "t", 1))];
            check(&weak_above, &[&shown[..], &one].concat());
            let weak_below = [(Select, whole), (Modify, table("ks", "t", 1))];
            check(&weak_below, &[&shown[..], &data, &rows].concat());
        }
        let all_tables = Resource::AllTables("ks".to_owned());
        for (above, below) in [(Select, Modify), (Modify, Select)] {
            let both = [(above, keyspace("ks")), (below, all_tables.clone())];
            check(&both, &[&shown[..], &data, &rows].concat());
        }
    }

    #[test]
    fn grant_on_all_keyspaces_shows_no_verifiers() {
        let of_data = |object: &About<'_>| {
            matches!(object, About::Keyspace(_) | About::AllKeyspaces | About::Table(..))
        };
        let shown: Vec<About<'_>> = OBJECTS.into_iter().filter(of_data).collect();
        check(&[(Modify, Resource::AllKeyspaces)], &shown);
        let is_read = |object: &About<'_>| match object {
            About::Data(keyspace, ..) => !keyspace.starts_with("system"),
            About::Rows(keyspace, ..) => *keyspace != "system_auth",
            other => of_data(other) || *other == About::AllData,
        };
        let read: Vec<About<'_>> = OBJECTS.into_iter().filter(is_read).collect();
        check(&[(Select, Resource::AllKeyspaces)], &read);
        // A grant on the keyspace of the verifiers shows neither them nor their keys.
        check(&[(Select, keyspace("system_auth"))], &[About::Table("system_auth", "roles", 4)]);
        let clients = table("system_views", "clients", 5);
        check(&[(Select, clients)], &[About::Rows("system_views", "clients", 5)]);
    }

    #[test]
    fn masks_are_lifted_by_their_permissions_alone() {
        let (clear, conditions) = (About::Unmasked("ks", "t", 1), About::MaskedConditions("ks", "t", 1));
        let check = |permission, resource: &Resource, expected: [bool; 2]| {
            let mut roles = roles(&["ann"]);
            let permissions = PermissionSet::of(&[permission]);
            roles.apply(&Edit::Permit { role: "ann".into(), resource: resource.clone(), permissions });
            let visibility = Visibility::of(&Rights::of(1, "ann", &roles), "default");
            assert_eq!([clear, conditions].map(|about| visibility.sees(about)), expected, "{resource}");
        };
        for resource in [Resource::AllKeyspaces, keyspace("ks"), table("ks", "t", 1)] {
            check(Select, &resource, [false, false]);
            check(Modify, &resource, [false, false]);
            check(SelectMasked, &resource, [false, true]);
            check(Unmask, &resource, [true, true]);
        }
        check(Unmask, &table("ks", "t", 2), [false, false]);
        check(Unmask, &keyspace("other"), [false, false]);
    }

    #[test]
    fn only_describe_shows_other_roles_and_levels() {
        let all_roles = [About::Role("bob"), About::AllRoles];
        check(&[(Describe, Resource::AllRoles)], &all_roles);
        check(&[(Alter, Resource::AllRoles)], &[]);
        check(&[(Alter, Resource::Role("bob".to_owned()))], &[]);
        let all_levels = [About::Level("other"), About::AllLevels];
        check(&[(Describe, Resource::AllServiceLevels)], &all_levels);
        check(&[(Execute, Resource::AllServiceLevels)], &[]);
        check(&[(Execute, Resource::ServiceLevel("other".to_owned()))], &[About::Level("other")]);
        let both = [(Describe, Resource::AllRoles), (Describe, Resource::AllServiceLevels)];
        check(&both, &[&all_roles[..], &all_levels].concat());
        let other = [(Describe, Resource::AllRoles), (Alter, Resource::AllRoles)];
        check(&other, &all_roles);
    }
}
