//! Building of indexes: entries for the rows that a table has already.
//!
//! 1. Every core knows the index, and writes entries with its rows. Writes that began before have
//!    ended.
//! 2. A task on core 0 has every core read its rows, a portion at a time in the order of tokens,
//!    and write their entries. It runs in a group of its own, at a lower weight than users.
//! 3. After each round it stores the least token that a core has reached. A restart continues from
//!    there.
//! 4. When all cores have reached their end, the definition changes, and queries use the index.
//!
//! A row that is written meanwhile has its entry from the write. An entry of what it replaced is
//! stale, and harmless. Entries of an index are placed by their rows' cores. A change of the number
//! of cores places rows anew, and storage would place entries by the tokens of their values. So
//! indexes are built anew then, with other data: see [`Embedded::renew_indexes`].

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{Error, Schema};
use schema::TableDef;
use storage::{CellRef, Change, Mutation, RowBuilder, StorageError, TableId, WorkProgress};
use uuid::Uuid;

use crate::bind::term;
use crate::ddl::catalog::Defined;
use crate::ddl::definition::DefinitionStep;
use crate::ddl::restore::with_table;
use crate::index::apply::EntryChunk;
use crate::index::entry::Place;
use crate::index::maintain::{Entries, IndexedTable, RowFacts};
use crate::index::vectors::similarity_of;
use crate::system::own_tables::INDEX_BUILDS;
use crate::{Embedded, storage_error};

/// Entries that are written together.
const CHUNK: EntryChunk = EntryChunk { count: 256, bytes: 256 << 10, is_build: true };

/// Rows that a core reads in one round. A round stores its progress, so that a restart repeats
/// about one.
const ROUND_ROWS: u64 = 20_000;

/// Work units of reading a row and making its entries.
const ROW_UNITS: u32 = 4;

/// Parts that the progress of a build is counted in: of all tokens.
const PARTS: u64 = 1_000_000;

/// Pause before a build that failed is continued.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Time for which a statement waits for its build. Larger tables are built after its answer.
const WAITED: Duration = Duration::from_secs(5);

/// Key of the row with the generation of the data folder, and the format of entries in the lowest
/// eight bits.
const GENERATION: &[u8] = b"generation";

/// Format of entries. Indexes with entries of another one are built anew. 1 has ordered entries, 2
/// tells them from others by their first byte.
const FORMAT: i64 = 2;

/// Position of a build on one core.
#[derive(Clone, Debug)]
enum Reached {
    /// The last partition that was read. `None`: the start.
    After(Option<(i64, Bytes)>),
    End,
}

/// Result of a round on one core.
struct Round {
    reached: Reached,
    /// Partitions that were read.
    partitions: u64,
}

/// Returns an index or a view of a schema that is not built, other than those in `failed`.
fn unbuilt(schema: &Schema, failed: &[Uuid]) -> Option<(Arc<TableDef>, Uuid)> {
    let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let mut found = tables.flat_map(|def| def.builds().map(move |build| (def, build)));
    let (def, (data, _)) = found.find(|(_, (data, is_built))| !is_built && !failed.contains(data))?;
    Some((def.clone(), data))
}

/// Returns the table whose index or view has this data.
fn table_of(schema: &Schema, data: Uuid) -> Option<&Arc<TableDef>> {
    let mut tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    tables.find(|def| def.builds().any(|(built, _)| built == data))
}

/// Returns the least token that a core has reached.
fn least_token(reached: &[Reached]) -> i64 {
    let tokens = reached.iter().filter_map(|reached| match reached {
        Reached::After(after) => Some(after.as_ref().map_or(i64::MIN, |(token, _)| *token)),
        Reached::End => None,
    });
    tokens.min().unwrap_or(i64::MAX)
}

impl Embedded {
    /// Starts the task that builds indexes, on core 0, if there are any to build and it does not
    /// run.
    pub(crate) fn start_builds(self: &Rc<Self>) {
        if unbuilt(&self.current.schema(), &[]).is_none() || self.builds.is_running.replace(true) {
            return;
        }
        let me = self.me.clone();
        let work = async move {
            let mut failed = Vec::new();
            while let Some(engine) = me.upgrade() {
                // Under the lock no core is still to adopt an index.
                let guard = engine.definitions.lock().await;
                let schema = engine.current.schema();
                failed.retain(|data| table_of(&schema, *data).is_some());
                let next = unbuilt(&schema, &failed);
                drop(guard);
                match next {
                    Some((def, data)) => {
                        let built = engine.build(&def, data).await;
                        engine.builds.waiting.borrow_mut().retain(|(waited, _)| *waited != data);
                        engine.builds.progress.borrow_mut().remove(&data);
                        // Others are built before it is tried again.
                        failed.extend(built.is_err().then_some(data));
                    }
                    None if failed.is_empty() => {
                        engine.builds.is_running.set(false);
                        return;
                    }
                    None => {
                        failed.clear();
                        drop(engine);
                        lanes::time::sleep(RETRY_AFTER).await;
                    }
                }
            }
        };
        lanes::spawn(lanes::Group::INDEX, work).detach();
    }

    /// Waits until the indexes and views of a table are built, or the view of this name, but not
    /// for long. Runs on core 0.
    pub(crate) async fn wait_for_builds(self: &Rc<Self>, keyspace: &str, table: &str) {
        let schema = self.current.schema();
        let of_view = || schema.view(keyspace, table).map(|(base, _)| base);
        let Some(def) = schema.table(keyspace, table).or_else(of_view) else { return };
        if def.builds().all(|(_, is_built)| is_built) {
            return;
        }
        self.start_builds();
        let waits: Vec<_> = def
            .builds()
            .filter(|(_, is_built)| !is_built)
            .map(|(data, _)| {
                let (sender, receiver) = lanes::sync::oneshot::channel();
                self.builds.waiting.borrow_mut().push((data, sender));
                receiver
            })
            .collect();
        let all = async {
            for built in waits {
                // The sender is dropped at the end of the build.
                let _ = built.await;
            }
        };
        let _ = lanes::time::timeout(WAITED, all).await;
    }

    /// Builds one index. Returns when it is built, or is gone.
    async fn build(self: &Rc<Self>, def: &Arc<TableDef>, data: Uuid) -> Result<(), Error> {
        if def.indexes.iter().any(|index| index.data == data && similarity_of(def, index).is_some()) {
            // Every core makes its graph, and searches are exact until it is made.
            return self.finish_build(data).await;
        }
        let cores = lanes::cores();
        let progress = WorkProgress::default();
        progress.set_parts(0, PARTS);
        let _listed = self.shard.list_index_build(TableId(def.data_id().as_u128()), progress.clone());
        let start = match self.stored_progress(data.as_bytes()).await? {
            // Partitions with this token are read again: others may have it.
            Some(token) => Reached::After(Some((token, Bytes::new()))),
            None => Reached::After(None),
        };
        for core in 0..cores {
            lanes::call(core, || async {
                if let Some(engine) = Embedded::try_local() {
                    engine.wait_for_writes().await;
                }
            })
            .await;
        }
        let mut reached = vec![start; cores];
        while reached.iter().any(|core| matches!(core, Reached::After(_))) {
            let mut rounds = Vec::with_capacity(cores);
            for (core, at) in reached.iter().enumerate() {
                let Reached::After(after) = at.clone() else { continue };
                let def = def.clone();
                let round = move || async move {
                    match Embedded::try_local() {
                        Some(engine) => engine.build_round(&def, data, after).await,
                        None => Err(storage_error(StorageError::Closed)),
                    }
                };
                rounds.push((core, lanes::spawn(lanes::Group::INDEX, lanes::call(core, round))));
            }
            let mut partitions = 0;
            for (core, round) in rounds {
                let round = round.await?;
                (reached[core], partitions) = (round.reached, partitions + round.partitions);
            }
            let least = least_token(&reached);
            {
                let mut all = self.builds.progress.borrow_mut();
                let own = all.entry(data).or_default();
                (own.partitions, own.token) = (own.partitions + partitions, least);
            }
            progress.set_parts((least as u64 ^ 1 << 63) / (u64::MAX / PARTS), PARTS);
            self.store(data.as_bytes(), Some(least)).await?;
            if table_of(&self.current.schema(), data).is_none() {
                return self.store(data.as_bytes(), None).await;
            }
        }
        self.finish_build(data).await
    }

    /// Writes entries for some rows of this core. They are durable when it returns, so that
    /// progress never is without them.
    async fn build_round(
        self: &Rc<Self>,
        def: &Arc<TableDef>,
        data: Uuid,
        after: Option<(i64, Bytes)>,
    ) -> Result<Round, Error> {
        let base = TableId(def.data_id().as_u128());
        let table = IndexedTable::with_only(def, data);
        let (mut rows, mut partitions) = (0, 0);
        let now_s = self.timestamps.next().now_s;
        let mut scan = self.shard.scan(base, i64::MIN..=i64::MAX, after, now_s);
        let mut entries = Entries::default();
        while let Some(piece) = scan.next_piece().await.map_err(storage_error)? {
            let (token, key) = (piece.token, &piece.key[..]);
            if piece.first {
                let facts = RowFacts { place: Place { token, key, row: None }, marker: None };
                self.add_row(&mut entries, &table, facts, piece.view.static_cells(), CHUNK)
                    .await
                    .map_err(storage_error)?;
            }
            let mut stored = piece.view.rows();
            while let Some(row) = stored.next_stored() {
                rows += 1;
                if let Some(row) = row {
                    let place = Place { token, key, row: Some(row.clustering()) };
                    let facts = RowFacts { place, marker: row.liveness() };
                    self.add_row(&mut entries, &table, facts, row.cells(), CHUNK)
                        .await
                        .map_err(storage_error)?;
                }
                if lanes::spend(ROW_UNITS) {
                    lanes::yield_now().await;
                }
            }
            if lanes::spend(ROW_UNITS) {
                lanes::yield_now().await;
            }
            partitions += u64::from(piece.last);
            if piece.last && rows >= ROUND_ROWS {
                self.write_entries(entries, CHUNK).await.map_err(storage_error)?;
                return Ok(Round { reached: Reached::After(Some((token, piece.key))), partitions });
            }
        }
        self.write_entries(entries, CHUNK).await.map_err(storage_error)?;
        Ok(Round { reached: Reached::End, partitions })
    }

    /// Marks an index as built.
    async fn finish_build(&self, data: Uuid) -> Result<(), Error> {
        let _guard = self.definitions.lock().await;
        let now = self.current.schema();
        let Some(def) = table_of(&now, data) else { return Ok(()) };
        let mut new = TableDef::clone(def);
        new.builds_mut().filter(|(built, _)| **built == data).for_each(|(_, is_built)| *is_built = true);
        let built = now.clone();
        let change = async move { Ok(Some(Defined::new(&built, with_table(&built, new, None, Vec::new())))) };
        self.change(change).await?;
        self.store(data.as_bytes(), None).await
    }

    /// Writes a number to the table of builds, or removes it.
    pub(crate) async fn store(&self, key: &[u8], number: Option<i64>) -> Result<(), Error> {
        let mutation = self.stored_number(key, number);
        // No floor: a start reads the timestamp of the row itself before the next one.
        let written = self.shard.apply_vital(vec![mutation]).await.map_err(storage_error)?;
        written.await.map_err(storage_error)
    }

    fn stored_number(&self, key: &[u8], number: Option<i64>) -> Mutation {
        let times = self.timestamps.next();
        let mut row = RowBuilder::new(key, &[], times.now_us);
        let bytes = number.unwrap_or_default().to_be_bytes();
        row.push(match number {
            Some(_) => CellRef::live(0, times.now_us, &bytes),
            None => CellRef::dead(0, times.now_us, times.now_s),
        });
        let (token, key) = (schema::token::token(key), Bytes::copy_from_slice(key));
        Mutation { table: INDEX_BUILDS, token, key, changes: vec![Change::Row(row.finish())] }
    }

    /// Returns the number of a row of the table of builds.
    pub(crate) async fn stored_progress(&self, key: &[u8]) -> Result<Option<i64>, Error> {
        let token = schema::token::token(key);
        let found = self.shard.read_partition(INDEX_BUILDS, token, key, 0).wait().await;
        let Some(view) = found.map_err(storage_error)? else { return Ok(None) };
        let mut rows = view.rows();
        let Some(row) = rows.next() else { return Ok(None) };
        let Some(cell) = row.cell(0) else { return Ok(None) };
        // It may be read before the floors.
        self.timestamps.raise(cell.timestamp);
        Ok(cell.value().and_then(|value| value.try_into().ok()).map(i64::from_be_bytes))
    }

    /// Gives all indexes other data, to be built anew, if the data folder was distributed over
    /// another number of cores since they were built, or was restored without them, or if their
    /// entries have another format. Runs on core 0
    /// before the other cores open.
    pub(crate) async fn renew_indexes(&self, schema: Arc<Schema>) -> Result<Arc<Schema>, Error> {
        if self.snapshots.dir.is_none() {
            return Ok(schema);
        }
        let generation = (self.shard.generation() as i64) << 8 | FORMAT;
        if self.stored_progress(GENERATION).await? == Some(generation) {
            return Ok(schema);
        }
        let mut renewed = Schema::clone(&schema);
        for keyspace in renewed.keyspaces.values_mut() {
            if !keyspace.tables.values().any(|def| def.has_entries()) {
                continue;
            }
            for def in Arc::make_mut(keyspace).tables.values_mut() {
                if !def.has_entries() {
                    continue;
                }
                for (data, is_built) in Arc::make_mut(def).builds_mut() {
                    (*data, *is_built) = (term::random_uuid(), false);
                }
            }
        }
        let step = DefinitionStep {
            schema: renewed,
            change: None,
            dropped: Vec::new(),
            dropped_indexes: Vec::new(),
        };
        let mut defined = Defined::new(&schema, step);
        if defined.has_edits() {
            self.write_change(&mut defined).await?;
        }
        // After the definitions: a crash in between renews them once more.
        self.store(GENERATION, Some(generation)).await?;
        Ok(Arc::new(defined.into_schema()))
    }
}
