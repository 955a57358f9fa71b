//! Verification of a data folder without opening it: the manifest, every block of the table files,
//! the log.
//!
//! Only the lock files are written. Damage does not end the check: it is reported, and the check
//! continues with the next block, file or shard.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::env::Env;
use crate::error::StorageError;
use crate::event::EventSink;
use crate::log::replay::{Other, Replay};
use crate::log::segment_path;
use crate::manifest::layout::{enter, lock};
use crate::manifest::{FileEntry, Manifest};
use crate::on_lanes::OnLanes;
use crate::options::Groups;
use crate::recovery::generations::check_generations;
use crate::recovery::leftovers::table_leftovers;
use crate::recovery::shard_files::read_shard;
use crate::table::file::{TableFile, table_name};
use crate::table::part::BlockPart;

/// Maximum number of damages listed per shard. Further ones are only counted.
const DAMAGES_MAX: usize = 1000;

/// Result for one shard.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// The shard's number.
    pub shard: u32,
    /// Live table files.
    pub files: u64,
    /// Table files checked so far.
    pub files_done: u64,
    /// Bytes in the table files checked.
    pub bytes: u64,
    /// Blocks in the table files checked.
    pub blocks: u64,
    /// Partitions in table files. A partition in several files counts once for each.
    pub partitions: u64,
    /// Log records that are not in a table file.
    pub records: u64,
    /// The first thousand damages.
    pub damages: Vec<StorageError>,
    /// Number of damages.
    pub damages_count: u64,
}

impl Checked {
    fn damage(&mut self, error: StorageError) {
        self.damages_count += 1;
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(error);
        }
    }
}

/// Checks a data folder that no server has open. Runs on a fast lane of an otherwise idle process.
/// Calls `progress` after every file.
///
/// # Errors
/// The folder is in use, is not a data folder, or was written by a newer version. Damage is
/// returned in the results, one for each shard.
pub async fn check(
    dir: &Path,
    groups: Groups,
    progress: impl FnMut(&Checked),
) -> Result<Vec<Checked>, StorageError> {
    check_in(&OnLanes::new(groups, EventSink::default()), dir, progress).await
}

pub(crate) async fn check_in(
    env: &dyn Env,
    root: &Path,
    mut progress: impl FnMut(&Checked),
) -> Result<Vec<Checked>, StorageError> {
    let (layout, held) = enter(env, root).await?;
    check_generations(env, root, &layout).await?;
    let mut locks = vec![held];
    let mut all = Vec::new();
    for shard in 0..layout.sharding.shards {
        let dir = layout.shard_dir(root, shard);
        let mut checked = Checked { shard, ..Checked::default() };
        match lock(env, root, &dir).await {
            Ok(held) => {
                locks.push(held);
                let result = check_shard(env, &dir, layout.sharding.shards, &mut checked, &mut progress);
                if let Err(error) = result.await {
                    checked.damage(error);
                }
            }
            Err(locked @ StorageError::Locked { .. }) => return Err(locked),
            Err(error) => checked.damage(error),
        }
        all.push(checked);
    }
    Ok(all)
}

async fn check_shard(
    env: &dyn Env,
    dir: &Path,
    shards: u32,
    checked: &mut Checked,
    progress: &mut impl FnMut(&Checked),
) -> Result<(), StorageError> {
    let files = read_shard(env, dir, checked.shard, shards).await?;
    if let Some(files) = &files {
        files.mark_damage.iter().for_each(|error| checked.damage(error.clone()));
        for leftover in table_leftovers(env, dir, files).await? {
            leftover.damage().into_iter().for_each(|error| checked.damage(error));
        }
    }
    let empty = || Manifest::empty(checked.shard, shards);
    let manifest = files.map_or_else(empty, |files| files.history.manifest);
    checked.files = manifest.files().count() as u64;
    for (_, file) in manifest.files() {
        let path = dir.join("tables").join(table_name(file.id));
        check_file(env, path, file, checked).await;
        checked.files_done += 1;
        progress(checked);
    }
    let mut replay = Replay::open(env, &dir.join("log"), checked.shard, &manifest).await?;
    checked.records = replay.finish().await?;
    for (segment, other) in replay.others {
        if let Other::Unknown(because) = other {
            let path = segment_path(&dir.join("log"), segment);
            checked.damage(StorageError::corrupt(path, because));
        }
    }
    Ok(())
}

async fn check_file(env: &dyn Env, path: PathBuf, entry: &FileEntry, checked: &mut Checked) {
    let file = match TableFile::open(env, path, entry.clone()).await {
        Ok(file) => Arc::new(file),
        Err(error) => return checked.damage(error),
    };
    checked.bytes += file.bytes;
    let mut last = None;
    for index in 0..file.index.len() {
        checked.blocks += 1;
        if let Err(error) = check_block(&file, index, &mut last, checked).await {
            // The damaged block may have had any keys, so do not compare with earlier ones.
            last = None;
            checked.damage(error);
        }
    }
}

/// Decodes a whole block, and checks its order and that the filter contains its partitions.
async fn check_block(
    file: &TableFile,
    index: usize,
    last: &mut Option<(i64, bytes::Bytes)>,
    checked: &mut Checked,
) -> Result<(), StorageError> {
    let block = file.read_block(index).await?;
    let wrong = |what: &str| {
        StorageError::corrupt(
            &file.path,
            format!("{what}, in the block at byte {}", file.index[index].offset),
        )
    };
    for part in 0..block.parts {
        let part = BlockPart::new(&block, part).map_err(file.malformed(index))?;
        part.partition().map_err(file.malformed(index))?;
        let (token, key) = part.place();
        let here = (token, key.clone());
        let in_order = match &last {
            Some(before) if part.continued() => *before == here,
            Some(before) => *before < here,
            None => true,
        };
        if !in_order {
            return Err(wrong("partitions are not in order"));
        }
        if !file.filter_has(token) {
            return Err(wrong("the filter lacks a partition that the file has"));
        }
        checked.partitions += u64::from(!part.continued());
        *last = Some(here);
    }
    Ok(())
}
