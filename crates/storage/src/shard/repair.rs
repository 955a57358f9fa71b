//! Repair of a data folder that a server cannot start with, because files of system tables are
//! damaged.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use crate::compaction::scrub::Scrubbed;
use crate::env::Env;
use crate::error::StorageError;
use crate::event::EventSink;
use crate::manifest::layout::enter;
use crate::model::TableId;
use crate::on_lanes::OnLanes;
use crate::options::StorageOptions;
use crate::shard::Shard;
use crate::state::batches::BatchesInFlight;
use crate::state::progress::WorkProgress;

/// Scrubs all tables of a folder that no server has open, as [`Shard::scrub`] does. Runs on a fast
/// lane of an otherwise idle process. Calls `progress` before every table, with the number of the
/// shard. Returns the sum over all tables.
///
/// # Errors
/// The folder is in use, is not a data folder, or was written by a newer version. The manifest or
/// the log is damaged. Or a file cannot be written. Tables repaired by then stay so.
pub async fn repair(
    dir: &Path,
    event_sink: EventSink,
    progress: impl FnMut(u32, TableId),
) -> Result<Scrubbed, StorageError> {
    let options = StorageOptions { event_sink: event_sink.clone(), ..StorageOptions::in_dir(dir, 0, 1) };
    let env = Arc::new(OnLanes::new(options.groups, event_sink));
    repair_in(env, dir, &options, progress).await
}

pub(crate) async fn repair_in(
    env: Arc<dyn Env>,
    root: &Path,
    options: &StorageOptions,
    mut progress: impl FnMut(u32, TableId),
) -> Result<Scrubbed, StorageError> {
    let (layout, held) = enter(&*env, root).await?;
    drop(held);
    // Entries of the batch log are not applied here, and their rows may be deleted by tombstones.
    let batches = Arc::<BatchesInFlight>::default();
    let _all_tombstones = batches.begin(0);
    let shards = layout.sharding.shards;
    let mut opened: Vec<Rc<Shard>> = Vec::new();
    let mut sum = Scrubbed::default();
    let mut result = Ok(());
    'shards: for number in 0..shards {
        let dir = Some(root.to_owned());
        let options =
            StorageOptions { dir, shard: number, shards, batches: batches.clone(), ..options.clone() };
        let shard = match Shard::open_in(options, env.clone()).await {
            Ok(shard) => shard,
            Err(error) => {
                result = Err(error);
                break;
            }
        };
        // Shard 0 holds the lock of the folder, so all stay open.
        opened.push(shard.clone());
        for table in shard.tables() {
            progress(number, table);
            match shard.scrub(table, lanes::Group::COMPACTION, &WorkProgress::default()).await {
                Ok(scrubbed) => sum.add(scrubbed),
                Err(error) => {
                    result = Err(error);
                    break 'shards;
                }
            }
        }
    }
    for shard in opened.into_iter().rev() {
        result = result.and(shard.shutdown().await);
    }
    result.map(|()| sum)
}
