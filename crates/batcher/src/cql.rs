//! A table of Cassandra, ScyllaDB or fairlane as a [`Store`]. A slot is a row.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use scylla::client::session::Session;
use scylla::cluster::metadata::Column;
use scylla::deserialize::row::{ColumnIterator, DeserializeRow};
use scylla::deserialize::value::DeserializeValue;
use scylla::deserialize::{DeserializationError, TypeCheckError};
use scylla::errors::{ExecutionError, PrepareError};
use scylla::frame::response::result::ColumnSpec;
use scylla::serialize::SerializationError;
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;

use crate::cql_table::{self, Copies};
use crate::{Order, Store};

/// Pause after a failed operation, before the batcher tries again: an overloaded server needs it.
/// With the default of three further attempts, a server may be away for 0.3 s.
const PAUSE: Duration = Duration::from_millis(100);

/// A table. `K` has the columns of the primary key, for instance `(i32,)` or `(String, i64)`, in
/// the order of the table's definition. `V` has the other columns, in the order of
/// [`CqlStore::new`]. Both may be structs that derive the driver's `SerializeRow`, and `V` also
/// `DeserializeRow`.
///
/// Each write carries the batcher's stamp as its timestamp, and replaces the whole row. Other
/// writers of the same rows, `IF` among them, would be ordered by their own timestamps.
///
/// If the clock stepped back since the last run of the program, new writes could lose against older
/// ones. Reads therefore return the time at which the row was written, and later writes are above
/// it. A row that is written without having been read, was deleted, or has only nulls remains at
/// risk.
pub struct CqlStore<K, V> {
    session: Arc<Session>,
    select: PreparedStatement,
    insert: PreparedStatement,
    delete: PreparedStatement,
    keys: usize,
    copies: Copies,
    /// The largest time of a write that was read.
    seen: AtomicU64,
    row: PhantomData<fn() -> (K, V)>,
}

/// Failure of a [`CqlStore`].
#[derive(Debug)]
pub enum CqlError {
    /// The table or its options cannot be used. The text says why.
    Table(String),
    /// A statement could not be prepared.
    Prepare(Box<PrepareError>),
    /// The driver or the server refused or lost an operation.
    Execution(Box<ExecutionError>),
    /// An answer has other columns than the types of the store.
    Answer(String),
}

impl fmt::Display for CqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CqlError::Table(reason) | CqlError::Answer(reason) => f.write_str(reason),
            CqlError::Prepare(reason) => reason.fmt(f),
            CqlError::Execution(reason) => reason.fmt(f),
        }
    }
}

impl std::error::Error for CqlError {}

impl<K, V> fmt::Debug for CqlStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqlStore").field("select", &self.select.get_statement()).finish_non_exhaustive()
    }
}

impl<K, V> CqlStore<K, V> {
    /// Prepares statements for a table, with the consistency level `QUORUM`. `values` names all
    /// columns beside the primary key.
    ///
    /// # Errors
    /// The table does not exist, has other columns than `values`, or columns that cannot be
    /// replaced as a whole: counters, static columns, and collections or types that are not frozen.
    pub async fn new(
        session: Arc<Session>,
        keyspace: &str,
        table: &str,
        values: &[&str],
    ) -> Result<CqlStore<K, V>, CqlError> {
        session.refresh_metadata().await.map_err(|error| CqlError::Table(error.to_string()))?;
        let state = session.get_cluster_state();
        let described =
            state.get_keyspace(keyspace).and_then(|found| Some((found, found.tables.get(table)?)));
        let Some((found, described)) = described else {
            return Err(CqlError::Table(format!("expected an existing table, got `{keyspace}.{table}`")));
        };
        let columns = described.columns.iter().map(|(name, Column { typ, kind, .. })| (&**name, kind, typ));
        cql_table::check(columns, values).map_err(CqlError::Table)?;
        let copies = Copies::new(&found.strategy);
        let keys: Vec<&str> =
            described.partition_key.iter().chain(&described.clustering_key).map(String::as_str).collect();
        let [select, insert, delete] = cql_table::statements(keyspace, table, &keys, values);
        let prepare = async |text: String| {
            let mut prepared =
                session.prepare(text).await.map_err(|error| CqlError::Prepare(Box::new(error)))?;
            prepared.set_consistency(Consistency::Quorum);
            // A write that is sent twice carries the same stamp.
            prepared.set_is_idempotent(true);
            Ok(prepared)
        };
        let (select, insert, delete) =
            (prepare(select).await?, prepare(insert).await?, prepare(delete).await?);
        let keys = keys.len();
        let seen = AtomicU64::new(0);
        Ok(CqlStore { session, select, insert, delete, keys, copies, seen, row: PhantomData })
    }

    /// Sets the consistency levels. `LOCAL_QUORUM` needs a driver that uses one datacenter.
    ///
    /// # Errors
    /// A read might not observe an acknowledged write: the levels do not overlap, given the
    /// replication factor of the keyspace.
    pub fn with_consistency(mut self, read: Consistency, write: Consistency) -> Result<Self, CqlError> {
        self.copies.check(read, write).map_err(CqlError::Table)?;
        self.select.set_consistency(read);
        self.insert.set_consistency(write);
        self.delete.set_consistency(write);
        Ok(self)
    }
}

impl<K, V> Store for CqlStore<K, V>
where
    K: SerializeRow + Ord + Clone,
    V: SerializeRow + for<'frame, 'metadata> DeserializeRow<'frame, 'metadata> + Clone,
{
    type Slot = K;
    type Value = V;
    type Error = CqlError;

    const ORDER: Order = Order::Stamps;

    async fn read(&self, slot: &K) -> Result<Option<V>, CqlError> {
        let done = match self.session.execute_unpaged(&self.select, slot).await {
            Ok(done) => done,
            Err(error) => return Err(failed(error).await),
        };
        let rows = done.into_rows_result().map_err(|error| CqlError::Answer(error.to_string()))?;
        let found =
            rows.maybe_first_row::<Found<V>>().map_err(|error| CqlError::Answer(error.to_string()))?;
        Ok(found.map(|found| {
            self.seen.fetch_max(found.written_us, Ordering::Relaxed);
            found.value
        }))
    }

    async fn write(&self, slot: &K, value: Option<V>, stamp: u64) -> Result<(), CqlError> {
        let mut statement = if value.is_some() { &self.insert } else { &self.delete }.clone();
        let stamp = i64::try_from(stamp).map_err(|_| {
            CqlError::Answer(
                "expected rows with a time of writing near the present, got the highest".to_owned(),
            )
        })?;
        statement.set_timestamp(Some(stamp));
        let done = match value {
            Some(value) => {
                let row = InsertedRow { keys: self.keys, key: slot, value: &value };
                self.session.execute_unpaged(&statement, row).await
            }
            None => self.session.execute_unpaged(&statement, slot).await,
        };
        match done {
            Ok(_) => Ok(()),
            Err(error) => Err(failed(error).await),
        }
    }

    fn stamp_seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }
}

/// Pauses after a failure, and returns it.
async fn failed(error: ExecutionError) -> CqlError {
    tokio::time::sleep(PAUSE).await;
    CqlError::Execution(Box::new(error))
}

/// A whole row as the values of an INSERT: the key, then the value.
struct InsertedRow<'a, K, V> {
    /// Number of columns of the key.
    keys: usize,
    key: &'a K,
    value: &'a V,
}

impl<K: SerializeRow, V: SerializeRow> SerializeRow for InsertedRow<'_, K, V> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        let (keys, values) = context.columns().split_at(self.keys);
        self.key.serialize(&RowSerializationContext::from_specs(keys), writer)?;
        self.value.serialize(&RowSerializationContext::from_specs(values), writer)
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// A row as the SELECT returns it: the times at which its columns were written, then the columns.
struct Found<V> {
    written_us: u64,
    value: V,
}

impl<'frame, 'metadata, V> DeserializeRow<'frame, 'metadata> for Found<V>
where
    V: DeserializeRow<'frame, 'metadata>,
{
    fn type_check(specs: &[ColumnSpec<'_>]) -> Result<(), TypeCheckError> {
        let (times, values) = specs.split_at(specs.len() / 2);
        let mut times = times.iter();
        times.try_for_each(|spec| <Option<i64> as DeserializeValue>::type_check(spec.typ()))?;
        V::type_check(values)
    }

    fn deserialize(mut row: ColumnIterator<'frame, 'metadata>) -> Result<Found<V>, DeserializationError> {
        let mut written_us = 0;
        for _ in 0..row.columns_remaining() / 2 {
            let Some(column) = row.next().transpose()? else { break };
            // Null for a column that is null.
            let time: Option<i64> = DeserializeValue::deserialize(column.spec.typ(), column.slice)?;
            written_us = written_us.max(time.and_then(|time| u64::try_from(time).ok()).unwrap_or(0));
        }
        V::deserialize(row).map(|value| Found { written_us, value })
    }
}
