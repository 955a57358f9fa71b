//! Tables of the fleet in the cluster, over the session of the control thread.
//!
//! Reads and writes of `fronts` and `leases` are at QUORUM over all datacenters, conditional writes
//! at SERIAL: leases depend on it, see `sched::cluster`.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sched::cluster::{Holder, LeaseWrite, WriteOutcome};
use schema::names::always_quoted;
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::unprepared::Statement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row};
use uuid::Uuid;

use super::{ENTRIES_MAX, EntryChange, EntryKind, Peer, Report};
use crate::refused::one_line;

/// Session of the control thread, which replaces it when addresses of nodes change.
pub(crate) type CurrentSession = Rc<RefCell<Arc<Session>>>;

/// Time limit of one question. Leases end 8 s after the last row of a front was written.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);

/// Form of the catalog. A front refuses newer ones.
const FORMAT: i32 = 1;

/// Most fronts of a fleet that are read.
const FRONTS_MAX: usize = 1000;

/// Levels whose leases one statement reads.
const LEASES_READ: usize = 100;

/// Time to live of a row in `fronts`, seconds.
const ROW_TTL_S: i32 = (sched::cluster::ROW_TTL_NS / 1_000_000_000) as i32;

/// Copies of the tables in a datacenter, at most.
const COPIES_MAX: usize = 3;

/// A table and its definition.
const DEFINITIONS: [(&str, &str); 3] = [
    (
        "catalog",
        "(id int, kind text, name text, value text, version bigint STATIC, format int STATIC, \
         PRIMARY KEY (id, kind, name))",
    ),
    (
        "fronts",
        "(id int, front uuid, host_id uuid, address inet, port int, datacenter text, rack text, beat bigint, \
         state text, PRIMARY KEY (id, front)) WITH gc_grace_seconds = 3600",
    ),
    ("leases", "(service_level text PRIMARY KEY, version bigint, holders map<uuid, int>)"),
];

/// Catalog as it is in the table.
pub(super) struct CatalogRows {
    pub(super) version: i64,
    pub(super) entries: BTreeMap<(EntryKind, String), String>,
}

/// Row of a front.
pub(super) struct FrontRow {
    pub(super) peer: Peer,
    pub(super) beat: i64,
    pub(super) report: Report,
}

/// Row of a level's lease.
pub(super) struct LeaseRow {
    pub(super) version: i64,
    pub(super) holders: Vec<Holder>,
}

/// Tables of the fleet.
pub(crate) struct Tables {
    session: CurrentSession,
    keyspace: String,
}

impl Tables {
    /// Creates what is missing. `nodes`: the number of nodes in each datacenter.
    ///
    /// # Errors
    /// One sentence with the remedy: the role may not, or the cluster does not answer.
    pub(crate) async fn open(
        session: CurrentSession,
        keyspace: &str,
        user: Option<&str>,
        nodes: &BTreeMap<&str, usize>,
    ) -> Result<Tables, String> {
        let tables = Tables { session, keyspace: always_quoted(keyspace) };
        let known = tables.known(keyspace).await?;
        let replication = replication(nodes);
        let refused = |error: ExecutionError| match of_node(&error) {
            Some(DbError::Unauthorized) => {
                let role = always_quoted(user.unwrap_or("anonymous"));
                format!(
                    "the role of this front may not create its tables ({}): let a superuser of the cluster run \
                     CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication}; GRANT ALL ON \
                     KEYSPACE {keyspace} TO {role}",
                    one_line(&error),
                    keyspace = tables.keyspace
                )
            }
            _ => tables.failed(&error),
        };
        if known.is_none() {
            let text =
                format!("CREATE KEYSPACE IF NOT EXISTS {} WITH replication = {replication}", tables.keyspace);
            tables.define(text).await.map_err(refused)?;
        }
        let known = known.unwrap_or_default();
        for (name, definition) in DEFINITIONS.iter().filter(|(name, _)| !known.iter().any(|at| at == name)) {
            let text = format!("CREATE TABLE IF NOT EXISTS {}.{name} {definition}", tables.keyspace);
            tables.define(text).await.map_err(refused)?;
        }
        Ok(tables)
    }

    /// Returns the names of the tables that are there. `None`: the keyspace is not.
    async fn known(&self, keyspace: &str) -> Result<Option<Vec<String>>, String> {
        let of_keyspace = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
        let found: Vec<(String,)> = self.rows(of_keyspace, Consistency::One, (keyspace,)).await?;
        if found.is_empty() {
            return Ok(None);
        }
        let of_tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
        let found: Vec<(String,)> = self.rows(of_tables, Consistency::One, (keyspace,)).await?;
        Ok(Some(found.into_iter().map(|(name,)| name).collect()))
    }

    /// Changes the schema. The driver waits until the nodes agree.
    async fn define(&self, text: String) -> Result<(), ExecutionError> {
        let session = self.session();
        session.query_unpaged(Statement::new(text), &[]).await.map(drop)
    }

    /// Returns the version of the catalog. `None`: it was never written.
    ///
    /// # Errors
    /// One sentence. A newer form is an error.
    pub(super) async fn version(&self) -> Result<Option<i64>, String> {
        let text = format!("SELECT version, format FROM {}.catalog WHERE id = 0 LIMIT 1", self.keyspace);
        let rows: Vec<(Option<i64>, Option<i32>)> = self.rows(&text, Consistency::Quorum, &[]).await?;
        let Some((version, format)) = rows.into_iter().next() else { return Ok(None) };
        self.check_format(format)?;
        Ok(version)
    }

    fn check_format(&self, format: Option<i32>) -> Result<(), String> {
        match format {
            Some(newer) if newer > FORMAT => Err(format!(
                "the catalog in {} has the form {newer}, and this version knows {FORMAT}: install the version of the \
                 other fronts here",
                self.keyspace
            )),
            _ => Ok(()),
        }
    }

    /// Reads the catalog as it is now, with all changes that were acknowledged.
    ///
    /// # Errors
    /// One sentence. An entry of an unknown kind is an error.
    pub(super) async fn catalog(&self) -> Result<CatalogRows, String> {
        type Entry = (Option<i64>, Option<i32>, Option<String>, Option<String>, Option<String>);
        let text = format!(
            "SELECT version, format, kind, name, value FROM {}.catalog WHERE id = 0 LIMIT {}",
            self.keyspace,
            ENTRIES_MAX + 1
        );
        let rows: Vec<Entry> = self.rows(&text, Consistency::Serial, &[]).await?;
        if rows.len() > ENTRIES_MAX {
            return Err(format!("the catalog in {} has more than {ENTRIES_MAX} entries", self.keyspace));
        }
        let mut read = CatalogRows { version: 0, entries: BTreeMap::new() };
        for (version, format, kind, name, value) in rows {
            self.check_format(format)?;
            read.version = version.unwrap_or(0);
            // Without entries, the version stands in a row of its own.
            let (Some(kind), Some(name), Some(value)) = (kind, name, value) else { continue };
            let kind = EntryKind::of_name(&kind).ok_or_else(|| {
                format!("the catalog in {} has an entry of the unknown kind `{kind}`", self.keyspace)
            })?;
            read.entries.insert((kind, name), value);
        }
        Ok(read)
    }

    /// Changes the catalog, if it has the version `expected` (0: none).
    ///
    /// # Errors
    /// One sentence: nodes refuse the change, such as one with too many entries at once.
    pub(super) async fn change(
        &self,
        expected: i64,
        changes: &[EntryChange],
    ) -> Result<WriteOutcome, String> {
        let table = format!("{}.catalog", self.keyspace);
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_consistency(Consistency::Quorum);
        batch.set_serial_consistency(Some(SerialConsistency::Serial));
        batch.set_request_timeout(Some(ANSWER_WITHIN));
        let (condition, version) = (condition(expected), expected + 1);
        batch.append_statement(Statement::new(format!(
            "UPDATE {table} SET version = {version}, format = {FORMAT} WHERE id = 0 IF version = {condition}"
        )));
        let mut values: Vec<Vec<CqlValue>> = vec![Vec::new()];
        let text = |text: &str| CqlValue::Text(text.to_owned());
        for EntryChange { kind, name, value } in changes {
            let key = [text(kind.name()), text(name)];
            let statement = match value {
                Some(_) => format!("INSERT INTO {table} (id, kind, name, value) VALUES (0, ?, ?, ?)"),
                None => format!("DELETE FROM {table} WHERE id = 0 AND kind = ? AND name = ?"),
            };
            batch.append_statement(Statement::new(statement));
            values.push(key.into_iter().chain(value.as_deref().map(text)).collect());
        }
        let session = self.session();
        let answer = session.batch(&batch, &values).await;
        let judged = answer.as_ref().err().filter(|error| {
            let of_node = of_node(error);
            matches!(of_node, Some(DbError::Invalid | DbError::Unauthorized | DbError::ConfigError))
        });
        match judged {
            Some(error) => Err(self.failed(error)),
            None => Ok(outcome(answer)),
        }
    }

    /// Writes the row of a front.
    ///
    /// # Errors
    /// One sentence.
    pub(super) async fn beat(&self, peer: &Peer, beat: i64, report: &str) -> Result<(), String> {
        let text = format!(
            "INSERT INTO {}.fronts (id, front, host_id, address, port, datacenter, rack, beat, state) \
             VALUES (0, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL {ROW_TTL_S}",
            self.keyspace
        );
        let Peer { front, host_id, address, datacenter, rack } = peer;
        let values =
            (front, host_id, address.ip(), i32::from(address.port()), &**datacenter, &**rack, beat, report);
        self.send(&text, Consistency::Quorum, values).await.map(drop).map_err(|error| self.failed(&error))
    }

    /// Removes the row of a front.
    ///
    /// # Errors
    /// One sentence.
    pub(super) async fn leave(&self, front: Uuid) -> Result<(), String> {
        let text = format!("DELETE FROM {}.fronts WHERE id = 0 AND front = ?", self.keyspace);
        self.send(&text, Consistency::Quorum, (front,)).await.map(drop).map_err(|error| self.failed(&error))
    }

    /// Reads the rows of all fronts. Rows that are not complete are left out.
    ///
    /// # Errors
    /// One sentence.
    pub(super) async fn fronts(&self) -> Result<Vec<FrontRow>, String> {
        type FrontColumns = (
            Uuid,
            Option<Uuid>,
            Option<IpAddr>,
            Option<i32>,
            Option<String>,
            Option<String>,
            Option<i64>,
            Option<String>,
        );
        let text = format!(
            "SELECT front, host_id, address, port, datacenter, rack, beat, state FROM {}.fronts WHERE id = 0 \
             LIMIT {FRONTS_MAX}",
            self.keyspace
        );
        let rows: Vec<FrontColumns> = self.rows(&text, Consistency::Quorum, &[]).await?;
        let row = |(front, host_id, ip, port, datacenter, rack, beat, report): FrontColumns| {
            let address = SocketAddr::new(ip?, u16::try_from(port?).ok()?);
            let (datacenter, rack) = (datacenter?.into(), rack?.into());
            let peer = Peer { front, host_id: host_id?, address, datacenter, rack };
            Some(FrontRow { peer, beat: beat?, report: Report::of_text(&report?) })
        };
        Ok(rows.into_iter().filter_map(row).collect())
    }

    /// Reads the leases of levels. A level without a row is not in the result.
    ///
    /// # Errors
    /// One sentence.
    pub(super) async fn leases(&self, levels: &[Arc<str>]) -> Result<HashMap<String, LeaseRow>, String> {
        type LeaseColumns = (String, Option<i64>, Option<HashMap<Uuid, i32>>);
        let text = format!(
            "SELECT service_level, version, holders FROM {}.leases WHERE service_level IN ?",
            self.keyspace
        );
        let mut leases = HashMap::new();
        for names in levels.chunks(LEASES_READ) {
            let names: Vec<&str> = names.iter().map(|name| &**name).collect();
            let rows: Vec<LeaseColumns> = self.rows(&text, Consistency::Quorum, (names,)).await?;
            for (level, version, holders) in rows {
                let holder = |(front, count): (Uuid, i32)| Holder {
                    front: front.as_u128(),
                    count: u32::try_from(count).unwrap_or(0),
                };
                let holders = holders.unwrap_or_default().into_iter().map(holder).collect();
                leases.insert(level, LeaseRow { version: version.unwrap_or(0), holders });
            }
        }
        Ok(leases)
    }

    /// Writes the lease of a level, if it has the expected version.
    pub(super) async fn write_lease(&self, level: &str, write: &LeaseWrite) -> WriteOutcome {
        let condition = condition(write.expected);
        let text = format!(
            "UPDATE {}.leases SET version = {}, holders = ? WHERE service_level = ? IF version = {condition}",
            self.keyspace,
            write.expected.saturating_add(1)
        );
        let count = |holder: &Holder| i32::try_from(holder.count).unwrap_or(i32::MAX);
        let holders: HashMap<Uuid, i32> =
            write.holders.iter().map(|holder| (Uuid::from_u128(holder.front), count(holder))).collect();
        outcome(self.send(&text, Consistency::Quorum, (holders, level)).await)
    }

    fn session(&self) -> Arc<Session> {
        self.session.borrow().clone()
    }

    async fn send(
        &self,
        text: &str,
        consistency: Consistency,
        values: impl SerializeRow,
    ) -> Result<QueryResult, ExecutionError> {
        let mut statement = Statement::new(text);
        statement.set_consistency(consistency);
        statement.set_serial_consistency(Some(SerialConsistency::Serial));
        statement.set_request_timeout(Some(ANSWER_WITHIN));
        let session = self.session();
        session.query_unpaged(statement, values).await
    }

    async fn rows<R: for<'a> DeserializeRow<'a, 'a>>(
        &self,
        text: &str,
        consistency: Consistency,
        values: impl SerializeRow,
    ) -> Result<Vec<R>, String> {
        let result = self.send(text, consistency, values).await.map_err(|error| self.failed(&error))?;
        let result = result.into_rows_result().map_err(|error| self.failed(&error))?;
        let rows = result.rows::<R>().map_err(|error| self.failed(&error))?;
        rows.collect::<Result<_, _>>().map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> String {
        format!("the tables of the fleet in {} cannot be used: {}", self.keyspace, one_line(error))
    }
}

/// Returns the value in the condition of a write to a row with this version; 0: there is none.
fn condition(version: i64) -> String {
    if version == 0 { "null".to_owned() } else { version.to_string() }
}

/// Returns the error of a node, if it is one.
fn of_node(error: &ExecutionError) -> Option<&DbError> {
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) => Some(error),
        _ => None,
    }
}

/// Returns the outcome of a conditional write, from the first column of its answer.
fn outcome(answer: Result<QueryResult, ExecutionError>) -> WriteOutcome {
    let applied = |result: QueryResult| -> Option<bool> {
        let rows = result.into_rows_result().ok()?;
        let row: Row = rows.first_row().ok()?;
        match row.columns.into_iter().next()?? {
            CqlValue::Boolean(applied) => Some(applied),
            _ => None,
        }
    };
    match answer.ok().and_then(applied) {
        Some(true) => WriteOutcome::Applied,
        Some(false) => WriteOutcome::Refused,
        None => WriteOutcome::Unknown,
    }
}

/// Returns the replication of the keyspace: in all datacenters, so that one of them may be lost.
fn replication(nodes: &BTreeMap<&str, usize>) -> String {
    let copies = |(datacenter, nodes): (&&str, &usize)| {
        format!(", '{}': {}", datacenter.replace('\'', "''"), (*nodes).clamp(1, COPIES_MAX))
    };
    let copies: String = nodes.iter().map(copies).collect();
    format!("{{'class': 'NetworkTopologyStrategy'{copies}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_three_copies_in_each_datacenter_with_three_nodes() {
        let nodes = BTreeMap::from([("dc1", 5), ("o'dc", 1)]);
        let expected = "{'class': 'NetworkTopologyStrategy', 'dc1': 3, 'o''dc': 1}";
        assert_eq!(replication(&nodes), expected);
    }
}
