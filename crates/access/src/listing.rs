//! LIST statements: roles, users, permissions and service levels as rows. They read the state in
//! memory only. There may be tens of thousands of roles, each with thousands of grants: the rows
//! are charged as they grow, and made with yields.

use std::sync::Arc;

use cql::Statement;
use cql::ast::{ListPermissions, ListRoles, ListServiceLevels, Permission, Permissions};
use engine::{AnswerGrant, AnswerMemory, ColumnSpec, Error, ResultRows, StatementOutcome};
use schema::CqlType;
use workload::LevelEntry;

use crate::options::OPTIONS;
use crate::plan::{Planner, missing_level};
use crate::resource::{PermissionSet, Resource};
use crate::roles::{Role, RoleName};

/// Work units of a row: its cells are copied.
const ROW_UNITS: u32 = 2;
/// Bytes of rows that are granted at a time.
const GRANT_BYTES: usize = 64 << 10;

/// Builder of rows.
struct ListedTable<'a> {
    rows: ResultRows,
    memory: &'a dyn AnswerMemory,
    grant: Option<Arc<dyn AnswerGrant>>,
    granted: usize,
}

impl<'a> ListedTable<'a> {
    fn new(
        memory: &'a dyn AnswerMemory,
        keyspace: &str,
        table: &str,
        columns: &[(&str, CqlType)],
    ) -> ListedTable<'a> {
        let (keyspace, table): (Arc<str>, Arc<str>) = (keyspace.into(), table.into());
        let column = |(name, ty): &(&str, CqlType)| ColumnSpec {
            keyspace: keyspace.clone(),
            table: table.clone(),
            name: (*name).to_owned(),
            ty: ty.clone(),
        };
        let rows = ResultRows::new(columns.iter().map(column).collect());
        ListedTable { rows, memory, grant: None, granted: GRANT_BYTES }
    }

    /// Adds a row. Yields every few dozen microseconds.
    async fn row(&mut self, cells: &[Option<&[u8]>]) -> Result<(), Error> {
        assert_eq!(cells.len(), self.rows.columns.len(), "one cell per column");
        cells.iter().for_each(|cell| self.rows.push(*cell));
        self.rows.count += 1;
        let bytes = self.rows.cells.len();
        if bytes > self.granted {
            self.granted = bytes.next_multiple_of(GRANT_BYTES);
            self.grant.get_or_insert_with(|| self.memory.open()).grow(self.granted as u64)?;
        }
        skip(ROW_UNITS).await;
        Ok(())
    }

    fn finish(self) -> Result<StatementOutcome, Error> {
        Ok(StatementOutcome::Rows(self.rows))
    }
}

/// Counts what is looked at, and yields every few dozen microseconds.
async fn skip(units: u32) {
    if lanes::spend(units) {
        lanes::yield_now().await;
    }
}

fn truth(truth: bool) -> &'static [u8] {
    if truth { &[1] } else { &[0] }
}

impl Planner<'_> {
    /// Runs a LIST statement, with rows in `memory`. Returns `None` for any other statement.
    pub(crate) async fn list(
        &self,
        statement: &Statement,
        memory: &dyn AnswerMemory,
    ) -> Option<Result<StatementOutcome, Error>> {
        Some(match statement {
            Statement::ListRoles(s) => self.list_roles(s, self.check(statement).is_ok(), memory).await,
            Statement::ListUsers => self.list_users(memory).await,
            Statement::ListPermissions(s) => {
                self.list_permissions(s, self.check(statement).is_ok(), memory).await
            }
            Statement::ListServiceLevels(s) => match self.check(statement) {
                Ok(()) => self.list_levels(s, memory).await,
                Err(error) => Err(error),
            },
            _ => return None,
        })
    }

    /// Returns the roles to list: all, or one role and those granted to it.
    fn listed(&self, of: Option<&str>, recursive: bool) -> Vec<(&RoleName, &Arc<Role>)> {
        let Some(of) = of else { return self.roles.iter().collect() };
        let mut roles = self.roles.with_granted(of);
        if !recursive && let Some((_, role)) = self.roles.get_key_value(of) {
            roles.retain(|(name, _)| ***name == *of || role.member_of.contains(&**name));
        }
        roles.sort_by_key(|(name, _)| *name);
        roles
    }

    async fn list_roles(
        &self,
        statement: &ListRoles,
        may: bool,
        memory: &dyn AnswerMemory,
    ) -> Result<StatementOutcome, Error> {
        let sees_all = self.may(Permission::Describe, &Resource::AllRoles);
        let own = self.actor.role.to_string();
        let of = match &statement.of {
            None if sees_all => None,
            None => Some(own.as_str()),
            Some(of) => {
                if !may {
                    let message = format!("You are not authorized to view roles granted to {of}");
                    return Err(Error::Unauthorized(message));
                }
                self.require_listed(of)?;
                Some(of.as_str())
            }
        };
        let options = CqlType::Map(Box::new(CqlType::Text), Box::new(CqlType::Text));
        let mut table = ListedTable::new(
            memory,
            "system_auth",
            "roles",
            &[
                ("role", CqlType::Text),
                ("super", CqlType::Boolean),
                ("login", CqlType::Boolean),
                ("options", options),
                ("datacenters", CqlType::Text),
            ],
        );
        for (name, role) in self.listed(of, statement.recursive) {
            let superuser = truth(role.is_superuser);
            let login = truth(role.can_login);
            // An empty map is serialized as its length, 0.
            table
                .row(&[Some(name.as_bytes()), Some(superuser), Some(login), Some(&[0; 4]), Some(b"ALL")])
                .await?;
        }
        table.finish()
    }

    async fn list_users(&self, memory: &dyn AnswerMemory) -> Result<StatementOutcome, Error> {
        let columns = [("name", CqlType::Text), ("super", CqlType::Boolean), ("datacenters", CqlType::Text)];
        let mut table = ListedTable::new(memory, "system_auth", "users", &columns);
        let own = self.actor.role.to_string();
        let sees_all = self.may(Permission::Describe, &Resource::AllRoles);
        let users = self.listed((!sees_all).then_some(own.as_str()), true);
        for (name, _) in users.into_iter().filter(|(_, role)| role.can_login) {
            table
                .row(&[Some(name.as_bytes()), Some(truth(self.roles.is_superuser(name))), Some(b"ALL")])
                .await?;
        }
        table.finish()
    }

    async fn list_permissions(
        &self,
        statement: &ListPermissions,
        may: bool,
        memory: &dyn AnswerMemory,
    ) -> Result<StatementOutcome, Error> {
        if !may {
            let subject = statement.of.as_deref().unwrap_or("everyone");
            return Err(Error::Unauthorized(format!(
                "You are not authorized to view {subject}'s permissions"
            )));
        }
        let resource = statement.resource.as_ref();
        let resource = resource.map(|r| Resource::of(r, self.keyspace, self.table_id)).transpose()?;
        if let Some(of) = &statement.of {
            self.require_listed(of)?;
        }
        if let Some(resource) = resource.as_ref().filter(|resource| !self.exists(resource)) {
            return Err(Error::Invalid(format!("{resource} doesn't exist")));
        }
        let wanted = match &statement.permissions {
            Permissions::All => PermissionSet::of(&Permission::ALL),
            Permissions::Some(permissions) => PermissionSet::of(permissions),
        };
        // NORECURSIVE excludes granted roles and the resources above.
        let above: Option<Vec<Resource>> = match (resource, statement.recursive) {
            (None, _) => None,
            (Some(resource), true) => Some(resource.chain().collect()),
            (Some(resource), false) => Some(vec![resource]),
        };
        let columns = ["role", "username", "resource", "permission"].map(|name| (name, CqlType::Text));
        let mut table = ListedTable::new(memory, "system_auth", "permissions", &columns);
        let mut roles = self.listed(statement.of.as_deref(), true);
        roles.retain(|(name, _)| {
            statement.recursive || statement.of.as_ref().is_none_or(|of| ***name == **of)
        });
        for (name, role) in roles {
            for (on, granted) in &role.grants {
                skip(1).await;
                if above.as_ref().is_some_and(|all| !all.contains(on)) {
                    continue;
                }
                let on = on.to_string();
                for permission in granted.iter().filter(|&permission| wanted.contains(permission)) {
                    let permission = permission.name().as_bytes();
                    table
                        .row(&[
                            Some(name.as_bytes()),
                            Some(name.as_bytes()),
                            Some(on.as_bytes()),
                            Some(permission),
                        ])
                        .await?;
                }
            }
        }
        table.finish()
    }

    async fn list_levels(
        &self,
        statement: &ListServiceLevels,
        memory: &dyn AnswerMemory,
    ) -> Result<StatementOutcome, Error> {
        match statement {
            ListServiceLevels::One(level) => {
                let entry = self.levels.get(level).ok_or_else(|| missing_level(level))?;
                self.level_table(&[entry], None, memory).await
            }
            ListServiceLevels::All => {
                let entries: Vec<&Arc<LevelEntry>> = self.levels.entries().collect();
                let total = entries.iter().map(|entry| u32::from(entry.spec.shares)).sum();
                self.level_table(&entries, Some(total), memory).await
            }
            ListServiceLevels::AttachedTo(role) => {
                self.require_role(role)?;
                self.attached_table(self.roles.get_key_value(role), memory).await
            }
            ListServiceLevels::AllAttached => self.attached_table(self.roles.iter(), memory).await,
            ListServiceLevels::EffectiveOf(role) => self.effective_table(role, memory).await,
        }
    }

    /// Lists one level per row. `total` is the sum of all shares, for the column with percentages.
    async fn level_table(
        &self,
        entries: &[&Arc<LevelEntry>],
        total: Option<u32>,
        memory: &dyn AnswerMemory,
    ) -> Result<StatementOutcome, Error> {
        let mut columns = vec![("service_level", CqlType::Text)];
        columns.extend(OPTIONS.iter().map(|option| (option.name, (option.ty)())));
        columns.extend(total.map(|_| ("percentage of all service level shares", CqlType::Text)));
        let mut table = ListedTable::new(memory, "system_distributed", "service_levels", &columns);
        for LevelEntry { spec, .. } in entries.iter().map(|entry| &***entry) {
            let mut cells = vec![Some(spec.name.as_bytes().to_vec())];
            cells.extend(OPTIONS.iter().map(|option| option.cell(spec)));
            cells.extend(total.map(|total| {
                let percentage = f64::from(spec.shares) * 100.0 / f64::from(total);
                Some(format!("{percentage:.2}%").into_bytes())
            }));
            table.row(&cells.iter().map(Option::as_deref).collect::<Vec<_>>()).await?;
        }
        table.finish()
    }

    async fn attached_table<'a>(
        &self,
        roles: impl IntoIterator<Item = (&'a RoleName, &'a Arc<Role>)>,
        memory: &dyn AnswerMemory,
    ) -> Result<StatementOutcome, Error> {
        let columns = ["role", "service_level"].map(|name| (name, CqlType::Text));
        let mut table = ListedTable::new(memory, "system_distributed", "service_levels", &columns);
        for (name, role) in roles {
            skip(1).await;
            if let Some(level) = &role.level {
                table.row(&[Some(name.as_bytes()), Some(level.as_bytes())]).await?;
            }
        }
        table.finish()
    }

    async fn effective_table(
        &self,
        role: &str,
        memory: &dyn AnswerMemory,
    ) -> Result<StatementOutcome, Error> {
        self.require_role(role)?;
        let Some(effective) = self.roles.effective(role, self.levels) else {
            return Err(Error::Invalid(format!("Role {role} doesn't have assigned any service level")));
        };
        let columns =
            ["service_level_option", "effective_service_level", "value"].map(|name| (name, CqlType::Text));
        let mut table = ListedTable::new(memory, "system_distributed", "service_levels", &columns);
        for option in &OPTIONS {
            let (level, value) = option.effective(&effective);
            let value = value.as_deref().map(str::as_bytes);
            table.row(&[Some(option.name.as_bytes()), Some(level.as_bytes()), value]).await?;
        }
        table.finish()
    }
}
