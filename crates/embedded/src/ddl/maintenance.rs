//! `COMPACT t`, `FLUSH t` and `SCRUB t`: work on the files of every core. It runs in the group of
//! the caller and ends with the statement.
//!
//! All cores work in parallel. Cancelling the statement, or its timeout, cancels the work; files
//! finished by then stay. The first error is returned, and cancels the work of the other cores.

use std::rc::Rc;
use std::sync::Arc;

use engine::{ColumnSpec, Columns, Error, ResultRows, StatementOutcome};
use schema::{CqlType, TableDef};
use storage::{Scrubbed, Shard, StorageError, TableId, WorkProgress};

use crate::{Embedded, storage_error};

/// Damaged files named in the result for each core. The count includes all of them.
const NAMED_MAX: usize = 16;

/// Cancels the work on all cores when the statement ends.
struct CancelOnDrop(WorkProgress);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Compacts all runs of a table to one.
pub(crate) async fn compact(table: TableId) -> Result<StatementOutcome, Error> {
    let compact = move |shard: Rc<Shard>, group, progress: WorkProgress| async move {
        shard.compact(table, i64::MIN..=i64::MAX, group, &progress).await
    };
    on_all_cores(compact).await.map(|_| StatementOutcome::Void)
}

/// Flushes all tables: they share the log, so flushing one alone would not shorten it.
pub(crate) async fn flush() -> Result<StatementOutcome, Error> {
    let flush =
        |shard: Rc<Shard>, _, progress: WorkProgress| async move { shard.flush_with(&progress).await };
    on_all_cores(flush).await.map(|_| StatementOutcome::Void)
}

/// Rewrites the readable data of a table's damaged files. The result has one row per core.
pub(crate) async fn scrub(table: TableId, columns: Columns) -> Result<StatementOutcome, Error> {
    let scrub = move |shard: Rc<Shard>, group, progress: WorkProgress| async move {
        shard.scrub(table, group, &progress).await
    };
    let scrubbed = on_all_cores(scrub).await?;
    Ok(StatementOutcome::Rows(scrub_rows(&scrubbed, columns)))
}

/// Runs the work on every core. Returns their results.
async fn on_all_cores<T, Fut, F>(work: F) -> Result<Vec<T>, Error>
where
    F: FnOnce(Rc<Shard>, lanes::Group, WorkProgress) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<T, StorageError>> + 'static,
    T: Send + 'static,
{
    let progress = CancelOnDrop(WorkProgress::default());
    let group = lanes::current_group();
    let cores: Vec<_> = (0..lanes::cores())
        .map(|core| {
            let (work, progress) = (work.clone(), progress.0.clone());
            let work = move || async move { work(Embedded::local().shard.clone(), group, progress).await };
            lanes::spawn(group, lanes::call(core, work))
        })
        .collect();
    let (mut answers, mut failed) = (Vec::with_capacity(cores.len()), None);
    for core in cores {
        match core.await {
            Ok(answer) => answers.push(answer),
            // The others failed because the first error cancelled them.
            Err(error) if failed.is_none() => {
                progress.0.cancel();
                failed = Some(storage_error(error));
            }
            Err(_) => {}
        }
    }
    failed.map_or(Ok(answers), Err)
}

/// Columns of the result of `SCRUB`.
const SCRUB_COLUMNS: [(&str, CqlType); 8] = [
    ("core", CqlType::Int),
    ("files", CqlType::BigInt),
    ("files_damaged", CqlType::BigInt),
    ("files_lost", CqlType::BigInt),
    ("blocks_lost", CqlType::BigInt),
    ("rows_lost", CqlType::BigInt),
    ("rows_saved", CqlType::BigInt),
    ("partitions_saved", CqlType::BigInt),
];

/// Returns the columns of the result of `SCRUB` for a table.
pub(crate) fn scrub_columns(def: &TableDef) -> Columns {
    let (keyspace, table): (Arc<str>, Arc<str>) = (def.keyspace.as_str().into(), def.name.as_str().into());
    let column = |name: &str, ty| ColumnSpec {
        keyspace: keyspace.clone(),
        table: table.clone(),
        name: name.to_owned(),
        ty,
    };
    let damage = column("damage", CqlType::List(Box::new(CqlType::Text)));
    SCRUB_COLUMNS.into_iter().map(|(name, ty)| column(name, ty)).chain([damage]).collect()
}

fn scrub_rows(scrubbed: &[Scrubbed], columns: Columns) -> ResultRows {
    let mut rows = ResultRows::new(columns);
    for (core, of_core) in scrubbed.iter().enumerate() {
        rows.push(Some(&(core as i32).to_be_bytes()));
        let counts = [
            of_core.files,
            of_core.damaged.len() as u64,
            of_core.files_lost,
            of_core.blocks_lost,
            of_core.rows_lost,
            of_core.rows_saved,
            of_core.partitions_saved,
        ];
        for count in counts {
            rows.push(Some(&i64::try_from(count).unwrap_or(i64::MAX).to_be_bytes()));
        }
        let damage: Vec<String> = of_core.damaged.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        rows.push(Some(&schema::value::encode_list(damage.iter().map(String::as_bytes))));
        rows.count += 1;
    }
    rows
}
