//! Checks of what a session may do with data, and see.

use std::sync::Arc;

use cql::Statement;
use cql::ast::{DescribeTarget, Permission, QualifiedName};
use engine::{About, Action, Error, SchemaChange, SchemaTarget, StatementTarget, Viewer};

use crate::access::Access;
use crate::change::Job;
use crate::cluster_roles::AtCluster;
use crate::login::{Login, View, ended};
use crate::needs::{NeedKind, On, Right};
use crate::plan::denied;
use crate::resource::{NO_TABLE, Resource, is_readable};
use crate::rights::TableId;
use crate::store::KEYSPACES;

impl Access {
    /// Checks that the session may perform the actions of a statement.
    ///
    /// # Errors
    /// Returns [`Error::Unauthorized`]. Returns [`Error::Overloaded`] for a new keyspace while
    /// grants on an earlier one of that name still exist.
    pub fn authorize(&self, login: &Login, targets: &[StatementTarget]) -> Result<(), Error> {
        self.authorize_all(login, targets, true)
    }

    /// Checks the actions. `may_be_new` is false for a statement that creates no keyspace. Its
    /// error is then the same for a missing keyspace.
    fn authorize_all(
        &self,
        login: &Login,
        targets: &[StatementTarget],
        may_be_new: bool,
    ) -> Result<(), Error> {
        if !login.is_current() {
            return Err(ended(login.role()));
        }
        let view = self.view(login);
        targets.iter().try_for_each(|target| self.authorize_one(login, &view, target, may_be_new))
    }

    /// Checks the permissions that a statement about data or the schema needs, by the names in it.
    /// This check precedes planning, so that a role without rights does not learn which objects
    /// exist. `keyspace` is that of the session. [`Access::execute`] checks statements about roles,
    /// grants and levels.
    ///
    /// # Errors
    /// Returns the errors of [`Access::authorize`].
    pub fn authorize_statement(
        &self,
        login: &Login,
        statement: &Statement,
        keyspace: Option<&str>,
    ) -> Result<(), Error> {
        if let Statement::Batch(batch) = statement {
            // Check consecutive statements of the same kind on the same table once.
            let mut checked = None;
            return batch.statements.iter().try_for_each(|part| {
                let wanted = Some((NeedKind::of(part), named(part, keyspace)));
                lanes::spend(1);
                match std::mem::replace(&mut checked, wanted) == wanted {
                    true => Ok(()),
                    false => self.authorize_statement(login, part, keyspace),
                }
            });
        }
        let (Some(kind), Some((keyspace, table))) = (NeedKind::of(statement), named(statement, keyspace))
        else {
            return Ok(());
        };
        kind.need().all_of.iter().copied().flatten().try_for_each(|right| match *right {
            Right::Any(_) => self.authorize_sight(login, keyspace),
            Right::May(permission, On::AllKeyspaces) if !self.may_everything(login) => {
                match self.snapshot().roles.may(login.role(), permission, &Resource::AllKeyspaces) {
                    true => Ok(()),
                    false => Err(denied(login.role(), permission, &Resource::AllKeyspaces)),
                }
            }
            Right::May(permission, on) => {
                let table = table.filter(|_| on == On::Table).map(str::to_owned);
                let action = action_of(permission);
                let target = StatementTarget { keyspace: keyspace.to_owned(), table, action };
                let target = std::slice::from_ref(&target);
                let may_be_new = on == On::AllKeyspaces;
                // Permissions on its base table decide for a view. A refusal hides that table.
                self.authorize_all(login, target, may_be_new).or_else(|refused| {
                    match self.base_of(&target[0]) {
                        Some(base) => self.authorize_all(login, &[base], may_be_new).map_err(|_| refused),
                        None => Err(refused),
                    }
                })
            }
            Right::Holds => unreachable!("a statement about data grants nothing"),
        })
    }

    /// Returns the same target on the base table, if the target is a view.
    fn base_of(&self, target: &StatementTarget) -> Option<StatementTarget> {
        let (keyspace, name) = (&target.keyspace, target.table.as_ref()?);
        let schema = self.engine.schema();
        let (base, _) = schema.view(keyspace, name)?;
        Some(StatementTarget { table: Some(base.name.clone()), ..target.clone() })
    }

    /// Checks like [`Access::authorize`], for a caller that returns the rows of virtual tables
    /// unfiltered. Such a role must have the right to see all rows.
    ///
    /// # Errors
    /// Returns the errors of [`Access::authorize`].
    pub fn authorize_unfiltered(&self, login: &Login, targets: &[StatementTarget]) -> Result<(), Error> {
        self.authorize(login, targets)?;
        let viewer = self.viewer(login);
        for StatementTarget { keyspace, table, .. } in targets {
            let found = table.as_ref().and_then(|table| self.engine.registry().get(keyspace, table));
            if found.is_some_and(|table| !table.shows_all(&*viewer)) {
                let table = table.as_deref().unwrap_or_default();
                return Err(Error::Unauthorized(format!(
                    "User {} may read only its own rows of {keyspace}.{table}: use CQL",
                    login.role()
                )));
            }
        }
        Ok(())
    }

    fn authorize_one(
        &self,
        login: &Login,
        view: &View,
        target: &StatementTarget,
        may_be_new: bool,
    ) -> Result<(), Error> {
        let StatementTarget { keyspace, table, action } = target;
        let role = login.role();
        let rights = &view.rights;
        let own = KEYSPACES.contains(&keyspace.as_str());
        let readable = is_readable(keyspace, table.as_deref());
        if *action != Action::Select && (own || readable) {
            return Err(Error::Unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
        }
        let is_new = |keyspace: &String| !self.has_data(&Resource::Keyspace(keyspace.clone()));
        let is_new_keyspace = may_be_new && table.is_none() && *action == Action::Create && is_new(keyspace);
        if is_new_keyspace {
            self.check_old_grants(login, keyspace)?;
        }
        let is_judged_there = *action == Action::Select && self.is_of_cluster(keyspace);
        if readable || rights.is_superuser || is_judged_there {
            return Ok(());
        }
        let permission = permission_of(*action);
        let resource = match (table, action) {
            (Some(table), action) if *action != Action::Create => {
                let id = self.table_id(keyspace, table).unwrap_or(NO_TABLE);
                // Only superusers may read verifiers.
                if !own && rights.may(role, permission, TableId { keyspace, table, id }, || self.snapshot()) {
                    return Ok(());
                }
                let resource = Resource::Table(keyspace.clone(), table.clone(), id);
                return Err(denied(role, permission, &resource));
            }
            (Some(_), _) => Resource::AllTables(keyspace.clone()),
            (None, _) if is_new_keyspace => Resource::AllKeyspaces,
            (None, _) => Resource::Keyspace(keyspace.clone()),
        };
        let may = self.snapshot().roles.may(role, permission, &resource);
        if may { Ok(()) } else { Err(denied(role, permission, &resource)) }
    }

    /// Rejects a new keyspace while grants on an earlier one of that name exist, and starts their
    /// removal. Keyspaces have no identity that grants could refer to.
    fn check_old_grants(&self, login: &Login, keyspace: &str) -> Result<(), Error> {
        if !self.snapshot().roles.have_grants_in(keyspace) {
            return Ok(());
        }
        let change = SchemaChange {
            change: "DROPPED",
            target: SchemaTarget::Keyspace,
            keyspace: keyspace.to_owned(),
            name: String::new(),
            table_id: None,
        };
        lanes::spawn(
            lanes::current_group(),
            self.begin_change(login.actor().clone(), Job::SchemaChange(change)),
        )
        .detach();
        Err(Error::Overloaded(format!(
            "Grants on an earlier keyspace {keyspace} are still being removed. Try again in a second."
        )))
    }

    /// Returns the visibility of rows in virtual tables for a session.
    #[must_use]
    pub fn viewer(&self, login: &Login) -> Arc<dyn Viewer> {
        let visibility = self.view(login).visibility();
        if self.follows_cluster() { Arc::new(AtCluster(visibility)) } else { visibility }
    }

    /// Checks that the session may see a keyspace. Does not check that it exists.
    ///
    /// # Errors
    /// Returns [`Error::Unauthorized`].
    pub fn authorize_sight(&self, login: &Login, keyspace: &str) -> Result<(), Error> {
        if self.viewer(login).sees(About::Keyspace(keyspace)) {
            return Ok(());
        }
        Err(Error::Unauthorized(format!(
            "User {} has no permission on {} or any of its parents",
            login.role(),
            Resource::Keyspace(keyspace.to_owned())
        )))
    }
}

/// Actions of plans and their permissions.
const ACTIONS: [(Action, Permission); 5] = [
    (Action::Select, Permission::Select),
    (Action::Modify, Permission::Modify),
    (Action::Create, Permission::Create),
    (Action::Alter, Permission::Alter),
    (Action::Drop, Permission::Drop),
];

fn permission_of(action: Action) -> Permission {
    ACTIONS.iter().find(|(of, _)| *of == action).expect("ACTIONS has every action").1
}

fn action_of(permission: Permission) -> Action {
    ACTIONS.iter().find(|(_, of)| *of == permission).expect("statements about data need only these").0
}

/// Returns the keyspace and table that a statement about data or the schema names. Names without a
/// keyspace use `keyspace`, that of the session.
pub fn named<'a>(statement: &'a Statement, keyspace: Option<&'a str>) -> Option<(&'a str, Option<&'a str>)> {
    let qualified =
        |name: &'a QualifiedName| Some((name.keyspace.as_deref().or(keyspace)?, Some(name.name.as_str())));
    match statement {
        Statement::Select(s) => qualified(&s.from),
        Statement::Insert(s) => qualified(&s.table),
        Statement::Update(s) => qualified(&s.table),
        Statement::Delete(s) => qualified(&s.table),
        Statement::Truncate(s) => qualified(&s.table),
        Statement::Compact(name) | Statement::Flush(name) | Statement::Scrub(name) => qualified(name),
        Statement::CreateKeyspace(s) => Some((&s.name, None)),
        Statement::AlterKeyspace(s) => Some((&s.name, None)),
        Statement::DropKeyspace(s) => Some((&s.name, None)),
        Statement::CreateTable(s) => qualified(&s.table),
        Statement::AlterTable(s) => qualified(&s.table),
        Statement::DropTable(s) | Statement::DropType(s) => qualified(&s.name),
        // The table of a DROP INDEX is known after planning, by the name of the index.
        Statement::CreateIndex(s) => {
            let of_index = s.name.as_ref().and_then(|name| name.keyspace.as_deref());
            Some((s.table.keyspace.as_deref().or(of_index).or(keyspace)?, Some(&s.table.name)))
        }
        Statement::CreateType(s) => qualified(&s.name),
        Statement::AlterType(s) => qualified(&s.name),
        Statement::Describe(s) => match &s.target {
            DescribeTarget::Keyspace { name, .. } => Some((name.as_deref().or(keyspace)?, None)),
            DescribeTarget::Table(name) | DescribeTarget::Type(name) => qualified(name),
            _ => None,
        },
        _ => None,
    }
}
