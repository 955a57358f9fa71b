//! Snapshots over all cores: of everything, or of tables whose data a statement is about to drop.
//!
//! 1. Every core flushes, so that little of the logs must be copied.
//! 2. From the cut of the first core until the cut of the last one, no core acknowledges a write.
//!    Writes acknowledged before are in the snapshot. Writes that depend on a later acknowledgement
//!    are not. No definition changes meanwhile.
//! 3. Every core writes its part, core 0 last.
//!
//! One snapshot is cut and written at a time: a second cut would wait for the first, and no core
//! would acknowledge a write meanwhile.
//!
//! A snapshot before a DROP or TRUNCATE ([`AutoSnapshot`]) has the schema, and the data of the
//! dropped tables alone. It is a folder `snapshots/dropped-TIME-KEYSPACE-TABLE`
//! (`snapshots/truncated-…`), with the time in milliseconds since 1970. Its statement waits for it,
//! and fails if it fails. The snapshot shares its files with the table. It therefore occupies the
//! space that the statement would have freed, until it is removed by hand or reaches its maximum
//! age.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::Error;
use lanes::disk;
use schema::TableDef;
use storage::TableId;

use crate::ddl::definition::DefinitionStep;
use crate::ddl::state::AutoSnapshot;
use crate::system::own_tables::{BATCH_TABLE, FLOORS, SCHEMA_TABLE};
use crate::{Embedded, storage_error};

/// Reasons, which are prefixes of snapshot names.
const DROPPED: &str = "dropped";
const TRUNCATED: &str = "truncated";

/// Suffix of a snapshot that is being made.
const UNFINISHED: &str = ".making";

/// Interval between two checks for old snapshots.
const CHECK_INTERVAL: Duration = Duration::from_secs(3600);

impl Embedded {
    /// Makes a snapshot of all cores in the folder `to`. It has every write acknowledged before a
    /// moment, and none that depends on a later acknowledgement. At that moment writes wait for a
    /// few disk writes. Runs on any core.
    ///
    /// # Errors
    /// Returns an error if a write fails. The folder is then no data folder.
    pub fn snapshot<'a>(to: &'a Path) -> lanes::LocalBoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let to = to.to_owned();
            lanes::call(0, move || async move {
                flush_all().await?;
                let engine = Embedded::local();
                let definitions = engine.definitions.lock().await;
                let _snapshots = engine.snapshots.lock.lock(()).await;
                let cut = cut_all(None).await;
                drop(definitions);
                write_all(cut, &to).await
            })
            .await
        })
    }

    /// Configures automatic snapshots, and starts removing old ones. Call it once, on core 0.
    pub fn set_auto_snapshot(&self, auto: AutoSnapshot) {
        self.snapshots.auto.set(auto);
        let engine = Rc::downgrade(&self.rc());
        let checks = async move {
            while let Some(engine) = engine.upgrade() {
                // A file that cannot be removed now is found again by the next check.
                drop(engine.remove_old_snapshots().await);
                drop(engine);
                lanes::time::sleep(CHECK_INTERVAL).await;
            }
        };
        lanes::spawn(lanes::current_group(), checks).detach();
    }

    /// Makes a snapshot of the data that a change drops, if configured. The caller holds the
    /// definition lock.
    ///
    /// # Errors
    /// Returns an error if the snapshot fails. The change must not be made then.
    pub(crate) async fn snapshot_dropped_data(&self, step: &DefinitionStep) -> Result<(), Error> {
        let (auto, is_drop) = (self.snapshots.auto.get(), step.change.is_some());
        let is_wanted = if is_drop { auto.before_drop } else { auto.before_truncate };
        let Some(dir) = self.snapshots.dir.as_ref().filter(|_| is_wanted && !step.dropped.is_empty()) else {
            return Ok(());
        };
        let wanted = step.dropped.iter().filter(|def| allows_snapshot(def)).cloned();
        let tables = with_data(wanted.collect()).await;
        let Some(first) = tables.first() else { return Ok(()) };
        let reason = if is_drop { DROPPED } else { TRUNCATED };
        let of = match &step.change {
            Some(change) if change.name.is_empty() => first.keyspace.clone(),
            _ => format!("{}-{}", first.keyspace, first.name),
        };
        let name = format!("{reason}-{}-{of}", self.timestamps.next().now_us / 1000);
        let to = dir.join("snapshots").join(&name);
        let mut data: Vec<TableId> = tables.iter().map(|def| TableId(def.data_id().as_u128())).collect();
        data.extend([SCHEMA_TABLE, FLOORS, BATCH_TABLE]);
        let made = make(&to, data.into()).await;
        made.map_err(|error| {
            Error::Server(format!(
                "nothing was {reason}, as the snapshot before it failed ({error}): free some space and remove \
                 old snapshots, or do without it by ALTER TABLE … WITH allow_auto_snapshot = false"
            ))
        })
    }

    /// Removes old snapshots, and those left unfinished by an earlier run of the server.
    ///
    /// # Errors
    /// Returns an error if a folder cannot be removed.
    pub(crate) async fn remove_old_snapshots(&self) -> std::io::Result<()> {
        let Some(all) = self.snapshots.dir.as_ref().map(|dir| dir.join("snapshots")) else { return Ok(()) };
        let names = match disk::list_dir(&all).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            names => names?,
        };
        let now_ms = lanes::time::unix_micros() / 1000;
        let keep_ms = self.snapshots.auto.get().keep.and_then(|keep| i64::try_from(keep.as_millis()).ok());
        for name in names {
            let Some(made_ms) = made_ms(&name) else { continue };
            let is_old = keep_ms.is_some_and(|keep| now_ms.saturating_sub(made_ms) > keep);
            // A snapshot that is being made is younger than one interval.
            let is_left = name.ends_with(UNFINISHED) && now_ms - made_ms > CHECK_INTERVAL.as_millis() as i64;
            if is_old || is_left {
                remove_all(&all.join(name)).await?;
            }
        }
        Ok(())
    }
}

/// Returns the time in the name of an automatic snapshot, in milliseconds since 1970.
fn made_ms(name: &str) -> Option<i64> {
    let mut parts = name.split('-');
    let reason = parts.next()?;
    (reason == DROPPED || reason == TRUNCATED).then(|| parts.next()?.parse().ok())?
}

/// Returns true if the table's options permit automatic snapshots.
fn allows_snapshot(def: &TableDef) -> bool {
    def.options.other.get("allow_auto_snapshot").is_none_or(|allows| allows != "false")
}

/// Returns the tables that have data on at least one core.
async fn with_data(mut tables: Vec<Arc<TableDef>>) -> Vec<Arc<TableDef>> {
    let mut stored = std::collections::HashSet::new();
    for core in 0..lanes::cores() {
        stored.extend(lanes::call(core, || async { Embedded::local().shard.tables() }).await);
    }
    tables.retain(|def| stored.contains(&TableId(def.data_id().as_u128())));
    tables
}

/// Makes a snapshot of some tables. It gets its final name once it is complete.
async fn make(to: &Path, tables: Arc<[TableId]>) -> Result<(), Error> {
    let mut making = to.as_os_str().to_owned();
    making.push(UNFINISHED);
    let making = PathBuf::from(making);
    let made = async {
        flush_all().await?;
        let engine = Embedded::local();
        let _snapshots = engine.snapshots.lock.lock(()).await;
        write_all(cut_all(Some(tables)).await, &making).await?;
        let put = async {
            disk::rename(&making, to).await?;
            disk::sync_dir(to.parent().expect("a snapshot is in a folder")).await
        };
        put.await.map_err(|error| Error::Server(format!("cannot write {}: {error}", to.display())))
    };
    let made = made.await;
    if made.is_err() {
        drop(remove_all(&making).await);
    }
    made
}

async fn flush_all() -> Result<(), Error> {
    for core in 0..lanes::cores() {
        lanes::call(core, || async { Embedded::local().flush().await }).await?;
    }
    Ok(())
}

/// Cuts every core: all tables, or some. Each core stores its cut.
pub(crate) async fn cut_all(tables: Option<Arc<[TableId]>>) -> Result<(), Error> {
    let cores = 0..lanes::cores();
    for core in cores.clone() {
        lanes::call(core, || async { Embedded::local().shard.hold_acks(true) }).await;
    }
    let mut made = Ok(());
    for core in cores.clone() {
        let tables = tables.clone();
        let cut = lanes::call(core, move || async move {
            let engine = Embedded::local();
            let mut cut = engine.shard.cut().await.map_err(storage_error)?;
            if let Some(tables) = tables {
                cut = cut.only(&tables);
            }
            *engine.snapshots.cut.borrow_mut() = Some(cut);
            Ok(())
        });
        made = made.and(cut.await);
    }
    for core in cores {
        lanes::call(core, || async { Embedded::local().shard.hold_acks(false) }).await;
    }
    made
}

/// Writes the cuts of all cores. Core 0 is last: its part makes the folder a data folder.
pub(crate) async fn write_all(cut: Result<(), Error>, to: &Path) -> Result<(), Error> {
    let mut made = cut;
    for core in (0..lanes::cores()).rev() {
        let to = made.is_ok().then(|| to.to_owned());
        let write = lanes::call(core, move || async move {
            let cut = Embedded::local().snapshots.cut.take();
            match cut.zip(to) {
                Some((cut, to)) => cut.write(&to).await.map_err(storage_error),
                None => Ok(()),
            }
        });
        made = made.and(write.await);
    }
    made
}

/// Removes a folder and its contents.
async fn remove_all(path: &Path) -> std::io::Result<()> {
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.last().cloned() {
        match disk::list_dir(&path).await {
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                disk::remove_paced(&path).await?;
                left.pop();
            }
            Err(error) if error.kind() == ErrorKind::NotFound => drop(left.pop()),
            names => {
                let names = names?;
                if names.is_empty() {
                    disk::remove_dir(&path).await?;
                    left.pop();
                }
                left.extend(names.into_iter().map(|name| path.join(name)));
            }
        }
    }
    Ok(())
}
