//! Storage of roles and levels in tables. Every column is a plain scalar, so that any engine can
//! store them:
//!
//! ```text
//!   system_auth.roles              role │ can_login  is_superuser  salted_hash
//!   system_auth.role_members       role, member │                    `member` was granted `role`
//!   system_auth.role_permissions   role, resource, permission │        one row per permission; tables with identity
//!   system_auth.role_attributes    role, name │ value                  name 'service_level': the attached level
//!   system_auth.secrets            name │ value                        name 'decoy': derives decoy verifiers
//!   system_distributed.service_levels   service_level │ shares  timeout_ms  workload_type  cpu_limit  options
//!                                                       options: all of them as CQL; the others are for reading
//! ```
//!
//! The edits of one statement are written as one batch.

use std::rc::Rc;
use std::sync::Arc;

use cql::ast::Permission;
use engine::{BatchKind, Engine, Error, ParsedTree, Plan, Request, StatementOutcome, Value};
use workload::LevelSpec;

use crate::options;
use crate::resource::{NO_TABLE, PermissionSet, Resource};
use crate::roles::{Edit, Roles};
use crate::scram::Key;
use crate::verifier::Verifier;

/// Keyspaces and tables. Every start creates the missing ones.
const DEFINITIONS: [&str; 8] = [
    "CREATE KEYSPACE IF NOT EXISTS system_auth \
     WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE KEYSPACE IF NOT EXISTS system_distributed \
     WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE IF NOT EXISTS system_auth.roles \
     (role text PRIMARY KEY, can_login boolean, is_superuser boolean, salted_hash text)",
    "CREATE TABLE IF NOT EXISTS system_auth.role_members (role text, member text, PRIMARY KEY (role, member))",
    "CREATE TABLE IF NOT EXISTS system_auth.role_permissions \
     (role text, resource text, permission text, PRIMARY KEY (role, resource, permission))",
    "CREATE TABLE IF NOT EXISTS system_auth.role_attributes \
     (role text, name text, value text, PRIMARY KEY (role, name))",
    "CREATE TABLE IF NOT EXISTS system_auth.secrets (name text PRIMARY KEY, value blob)",
    "CREATE TABLE IF NOT EXISTS system_distributed.service_levels \
     (service_level text PRIMARY KEY, shares int, timeout_ms bigint, workload_type text, cpu_limit text, options text)",
];

/// The keyspaces that only this crate changes.
pub(crate) const KEYSPACES: [&str; 2] = ["system_auth", "system_distributed"];

const PUT_ROLE: &str =
    "INSERT INTO system_auth.roles (role, can_login, is_superuser, salted_hash) VALUES (?, ?, ?, ?)";
const DROP_ROLE: [&str; 3] = [
    "DELETE FROM system_auth.role_permissions WHERE role = ?",
    "DELETE FROM system_auth.role_attributes WHERE role = ?",
    "DELETE FROM system_auth.roles WHERE role = ?",
];
const ADD_MEMBER: &str = "INSERT INTO system_auth.role_members (role, member) VALUES (?, ?)";
const REMOVE_MEMBER: &str = "DELETE FROM system_auth.role_members WHERE role = ? AND member = ?";
const PERMIT: &str = "INSERT INTO system_auth.role_permissions (role, resource, permission) VALUES (?, ?, ?)";
const FORBID: &str =
    "DELETE FROM system_auth.role_permissions WHERE role = ? AND resource = ? AND permission = ?";
const ATTACH: &str =
    "INSERT INTO system_auth.role_attributes (role, name, value) VALUES (?, 'service_level', ?)";
const DETACH: &str = "DELETE FROM system_auth.role_attributes WHERE role = ? AND name = 'service_level'";
const PUT_LEVEL: &str = "INSERT INTO system_distributed.service_levels \
     (service_level, shares, timeout_ms, workload_type, cpu_limit, options) VALUES (?, ?, ?, ?, ?, ?)";
const DECOY_SECRET: &str = "SELECT value FROM system_auth.secrets WHERE name = 'decoy'";
const PUT_DECOY_SECRET: &str = "INSERT INTO system_auth.secrets (name, value) VALUES ('decoy', ?)";
const DROP_LEVEL: &str = "DELETE FROM system_distributed.service_levels WHERE service_level = ?";

/// A row to write: a statement and its serialized values.
type StoredRow = (&'static str, Vec<Option<Vec<u8>>>);

/// The tables, on core 0.
pub(crate) struct Store {
    engine: Rc<dyn Engine>,
}

impl Store {
    /// Creates missing keyspaces and tables.
    pub(crate) async fn open(engine: Rc<dyn Engine>) -> Result<Store, Error> {
        for definition in DEFINITIONS {
            run(&*engine, definition).await?;
        }
        Ok(Store { engine })
    }

    /// Returns the secret from which decoys are derived. Creates it at the first start. If decoys
    /// changed with a restart, they would reveal which names do not exist.
    pub(crate) async fn decoy_secret(&self) -> Result<Key, Error> {
        if let StatementOutcome::Rows(rows) = run(&*self.engine, DECOY_SECRET).await?
            && let Some(Some(secret)) = rows.decoded().first().map(|row| row[0])
            && let Ok(secret) = secret.try_into()
        {
            return Ok(secret);
        }
        let mut secret = Key::default();
        lanes::random::fill(&mut secret);
        let plan = prepare(&*self.engine, PUT_DECOY_SECRET)?;
        let request = Request { values: &[Value::Bytes(&secret)], ..Request::EMPTY };
        self.engine.execute(&plan, &request).outcome(&*self.engine).await?;
        Ok(secret)
    }

    /// Loads all tables. `before` has the known roles. `table_id` looks up tables. Skips grants on
    /// tables that no longer exist, and deletes their rows.
    pub(crate) async fn load(
        &self,
        before: &Roles,
        table_id: &dyn Fn(&str, &str) -> Option<u128>,
    ) -> Result<(Roles, Vec<LevelSpec>), Error> {
        let mut roles = Roles::before_loading(before);
        let mut read = Vec::new();
        let mut corrections = Vec::new();
        for (columns, table, decode) in TABLES {
            let rows = run(&*self.engine, &format!("SELECT {columns} FROM {table}")).await?;
            let StatementOutcome::Rows(rows) = rows else { continue };
            for row in rows.decoded() {
                read.extend(decode(&row).ok_or_else(|| {
                    Error::Server(format!(
                        "cannot decode a row of {table}: restore or delete rows that this server did not write"
                    ))
                })?);
            }
        }
        let mut levels = Vec::new();
        for edit in read {
            match edit {
                Edit::PutLevel(spec) => levels.push(spec),
                Edit::Permit { role, resource: Resource::Table(keyspace, table, id), permissions } => {
                    let now = table_id(&keyspace, &table);
                    let on = |id| Resource::Table(keyspace.clone(), table.clone(), id);
                    let valid_id = now.filter(|now| *now == id || id == NO_TABLE);
                    if let Some(now) = valid_id {
                        let permit = Edit::Permit { role: role.clone(), resource: on(now), permissions };
                        roles.apply(&permit);
                        corrections.extend((now != id).then_some(permit));
                    }
                    if valid_id != Some(id) {
                        corrections.push(Edit::Forbid { role, resource: on(id), permissions });
                    }
                }
                edit => roles.apply(&edit),
            }
        }
        roles.after_loading(before);
        // A failed correction is repeated at the next start. Until then its row has no effect.
        for edit in &corrections {
            if self.write(std::slice::from_ref(edit)).await.is_err() {
                break;
            }
        }
        Ok((roles, levels))
    }

    /// Writes edits as one batch. The engine assigns the timestamp. It increases even if the wall
    /// clock steps back or the server restarts.
    pub(crate) async fn write(&self, edits: &[Edit]) -> Result<(), Error> {
        let rows: Vec<StoredRow> = edits.iter().flat_map(rows).collect();
        let mut plans = Vec::with_capacity(rows.len());
        let mut values = Vec::with_capacity(rows.len());
        for (statement, cells) in &rows {
            plans.push(prepare(&*self.engine, statement)?);
            values.push(
                cells
                    .iter()
                    .map(|cell| cell.as_deref().map_or(Value::Null, Value::Bytes))
                    .collect::<Vec<_>>(),
            );
        }
        let parts: Vec<(Rc<dyn Plan>, &[Value<'_>])> =
            plans.into_iter().zip(values.iter().map(Vec::as_slice)).collect();
        let execution = match parts.as_slice() {
            [] => return Ok(()),
            [(plan, values)] => self.engine.execute(plan, &Request { values, ..Request::EMPTY }),
            parts => self.engine.execute_batch(BatchKind::Logged, parts, &Request::EMPTY),
        };
        execution.outcome(&*self.engine).await.map(drop)
    }
}

fn prepare(engine: &dyn Engine, text: &str) -> Result<Rc<dyn Plan>, Error> {
    let statement = ParsedTree::parse(text).expect("the statements of this crate are valid");
    engine.prepare(Arc::new(statement), None)
}

async fn run(engine: &dyn Engine, text: &str) -> Result<StatementOutcome, Error> {
    let plan = prepare(engine, text)?;
    engine.execute(&plan, &Request::EMPTY).outcome(engine).await
}

/// Returns the rows that an edit writes.
fn rows(edit: &Edit) -> Vec<StoredRow> {
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let truth = |truth: bool| Some(vec![u8::from(truth)]);
    match edit {
        Edit::PutRole { role, can_login, is_superuser, verifier } => {
            let hash = verifier.as_ref().map(|verifier| verifier.to_text().into_bytes());
            vec![(PUT_ROLE, vec![text(role), truth(*can_login), truth(*is_superuser), hash])]
        }
        Edit::DropRole(role) => DROP_ROLE.iter().map(|statement| (*statement, vec![text(role)])).collect(),
        Edit::AddMember { role, member } => vec![(ADD_MEMBER, vec![text(role), text(member)])],
        Edit::RemoveMember { role, member } => vec![(REMOVE_MEMBER, vec![text(role), text(member)])],
        Edit::Permit { role, resource, permissions } => {
            let row = |permission: Permission| {
                (PERMIT, vec![text(role), text(&resource.to_name()), text(permission.name())])
            };
            permissions.iter().map(row).collect()
        }
        Edit::Forbid { role, resource, permissions } => {
            let row = |permission: Permission| {
                (FORBID, vec![text(role), text(&resource.to_name()), text(permission.name())])
            };
            permissions.iter().map(row).collect()
        }
        Edit::Attach { role, level } => vec![(ATTACH, vec![text(role), text(level)])],
        Edit::Detach { role } => vec![(DETACH, vec![text(role)])],
        Edit::PutLevel(spec) => vec![(PUT_LEVEL, level_row(spec))],
        Edit::DropLevel(level) => vec![(DROP_LEVEL, vec![text(level)])],
    }
}

fn level_row(spec: &LevelSpec) -> Vec<Option<Vec<u8>>> {
    let timeout_ms = spec.timeout.map(|timeout| i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX));
    vec![
        Some(spec.name.as_bytes().to_vec()),
        Some(i32::from(spec.shares).to_be_bytes().to_vec()),
        timeout_ms.map(|ms| ms.to_be_bytes().to_vec()),
        spec.workload_type.map(|kind| kind.name().into()),
        spec.cpu_limit_ppm.map(|ppm| units::percent_text(ppm).into_bytes()),
        Some(options::to_text(spec).into_bytes()),
    ]
}

/// Columns, table, and row decoder.
type TableReader = (&'static str, &'static str, fn(&Cells<'_>) -> Option<Option<Edit>>);
/// Cells of a row.
type Cells<'a> = [Option<&'a [u8]>];

/// Tables to load, with a row decoder. `None`: the row is corrupt. `Some(None)`: ignore it.
/// `Some(Some(edit))`: apply it. Roles come before the rows that refer to them. A crash between two
/// rows of an engine without batches may leave rows of a missing role. They are ignored.
const TABLES: [TableReader; 5] = [
    ("role, can_login, is_superuser, salted_hash", "system_auth.roles", |row| {
        let verifier = match row[3] {
            Some(hash) => Some(Arc::new(Verifier::parse(text(Some(hash))?)?)),
            None => None,
        };
        let truth = |cell: Option<&[u8]>| cell.is_some_and(|cell| cell != [0]);
        let can_login = truth(row[1]);
        let is_superuser = truth(row[2]);
        Some(Some(Edit::PutRole { role: text(row[0])?.into(), can_login, is_superuser, verifier }))
    }),
    ("role, member", "system_auth.role_members", |row| {
        Some(Some(Edit::AddMember { role: text(row[0])?.into(), member: text(row[1])?.into() }))
    }),
    ("role, resource, permission", "system_auth.role_permissions", |row| {
        let name = text(row[2])?;
        let permission = Permission::ALL.into_iter().find(|permission| permission.name() == name)?;
        let permissions = PermissionSet::of(&[permission]);
        let role = text(row[0])?.into();
        let resource = Resource::from_name(text(row[1])?)?;
        Some(Some(Edit::Permit { role, resource, permissions }))
    }),
    ("role, name, value", "system_auth.role_attributes", |row| {
        let role = text(row[0])?.into();
        match (text(row[1])?, row[2]) {
            ("service_level", value @ Some(_)) => {
                Some(Some(Edit::Attach { role, level: text(value)?.into() }))
            }
            // Ignore attributes of later versions.
            _ => Some(None),
        }
    }),
    ("service_level, options", "system_distributed.service_levels", |row| {
        read_level(row).map(|spec| Some(Edit::PutLevel(spec)))
    }),
];

fn text(cell: Option<&[u8]>) -> Option<&str> {
    std::str::from_utf8(cell?).ok()
}

fn read_level(row: &Cells<'_>) -> Option<LevelSpec> {
    options::of_text(text(row[0])?, text(row[1])?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use workload::WorkloadType;

    use super::*;

    #[test]
    fn statements_parse_and_have_one_marker_per_value() {
        for text in DEFINITIONS {
            cql::parse(text).expect(text);
        }
        for text in [DECOY_SECRET, PUT_DECOY_SECRET] {
            cql::parse(text).expect(text);
        }
        for (columns, table, _) in TABLES {
            cql::parse(&format!("SELECT {columns} FROM {table}")).expect(table);
        }
        let role: Arc<str> = "r".into();
        let permissions = PermissionSet::of(&[Permission::Select, Permission::Modify]);
        let resource = Resource::AllRoles;
        for edit in [
            Edit::PutRole { role: role.clone(), can_login: true, is_superuser: false, verifier: None },
            Edit::DropRole(role.clone()),
            Edit::AddMember { role: role.clone(), member: role.clone() },
            Edit::RemoveMember { role: role.clone(), member: role.clone() },
            Edit::Permit { role: role.clone(), resource: resource.clone(), permissions },
            Edit::Forbid { role: role.clone(), resource, permissions },
            Edit::Attach { role: role.clone(), level: role.clone() },
            Edit::Detach { role: role.clone() },
            Edit::PutLevel(LevelSpec::new("x")),
            Edit::DropLevel(role.clone()),
        ] {
            for (text, values) in rows(&edit) {
                cql::parse(text).expect(text);
                assert_eq!(text.matches('?').count(), values.len(), "{text}");
            }
        }
    }

    #[test]
    fn level_survives_its_row() {
        let mut spec = LevelSpec::new("olap");
        let check = |spec: &LevelSpec| {
            let row = level_row(spec);
            let cells = [row[0].as_deref(), row[5].as_deref()];
            assert_eq!(read_level(&cells).as_ref(), Some(spec));
        };
        check(&spec);
        spec.shares = 7;
        spec.timeout = Some(Duration::from_millis(1500));
        spec.workload_type = Some(WorkloadType::Batch);
        spec.cpu_limit_ppm = Some(125_000);
        check(&spec);
        assert_eq!(read_level(&[Some(b"x"), Some(b"nonsense")]), None);
        assert_eq!(read_level(&[Some(b"x"), None]), None);
    }
}
