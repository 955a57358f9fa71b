//! Reading the manifest of a shard, and proving by its mark that nothing is missing from its end.

use std::path::Path;

use bytes::Bytes;

use crate::env::Env;
use crate::error::StorageError;
use crate::manifest::edits::{self, History};
use crate::manifest::layout::{list, read_all};
use crate::manifest::mark::{Facts, MarkRead, mark_path, read_mark};
use crate::manifest::{self, Manifest, Unusable};

/// The manifest of a shard, and its mark.
#[derive(Debug)]
pub(crate) struct ShardFiles {
    pub(crate) history: History,
    /// The file of the manifest.
    pub(crate) data: Bytes,
    pub(crate) mark: MarkRead,
    /// The damage to the mark, unless a crash explains it.
    pub(crate) mark_damage: Option<StorageError>,
    /// The mark proves that no edit is missing from the end of the manifest.
    pub(crate) is_proven: bool,
}

/// Reads the manifest of a shard; `None` if the shard is new.
///
/// # Errors
/// The manifest is missing, damaged, of another version or shard, or it has lost edits at its end.
pub(crate) async fn read_shard(
    env: &dyn Env,
    dir: &Path,
    shard: u32,
    shards: u32,
) -> Result<Option<ShardFiles>, StorageError> {
    let path = dir.join("manifest");
    let mark = read_mark(env, dir).await?;
    if !list(env, dir).await?.iter().any(|name| name == "manifest") {
        // The manifest is the first file written, and its mark the second.
        let mut others = list(env, &dir.join("tables")).await?;
        others.append(&mut list(env, &dir.join("log")).await?);
        return match mark {
            MarkRead::Missing if others.is_empty() => Ok(None),
            MarkRead::Missing => {
                Err(StorageError::corrupt(&path, "it is missing, although the folder holds data"))
            }
            _ => Err(StorageError::corrupt(&path, "it is missing, although the shard has been in use")),
        };
    }
    let data = read_all(env, &path).await?;
    let mut history = edits::read(&data).map_err(|why| match why {
        Unusable::Damaged(what) => StorageError::corrupt(&path, what),
        Unusable::Version(found) => {
            StorageError::UnknownFormat { path: path.clone(), found, known: manifest::VERSION }
        }
    })?;
    let manifest = &mut history.manifest;
    if (manifest.shard, manifest.shards) != (shard, shards) {
        return Err(StorageError::corrupt(
            &path,
            format!("it belongs to shard {} of {}", manifest.shard, manifest.shards),
        ));
    }
    manifest.tidy();
    let mut files = ShardFiles { history, data, mark, mark_damage: None, is_proven: false };
    files.compare(dir)?;
    Ok(Some(files))
}

impl ShardFiles {
    /// Compares the manifest with the mark.
    fn compare(&mut self, dir: &Path) -> Result<(), StorageError> {
        let (path, mark) = (dir.join("manifest"), mark_path(dir));
        let manifest = &self.history.manifest;
        let foreign = |facts: &Facts| {
            let is_own = facts.shard == manifest.shard && facts.stamp == manifest.stamp;
            let what = format!("it is the mark of another shard: number {}", facts.shard);
            (!is_own).then(|| StorageError::corrupt(&mark, what))
        };
        let Some((last, _)) = self.history.last() else {
            // The first edit of this version replaces the file of an earlier one, and the mark
            // follows.
            return match &self.mark {
                MarkRead::Missing => Ok(()),
                _ => Err(StorageError::corrupt(path, "it is an older copy, of an earlier version")),
            };
        };
        let facts = match &self.mark {
            // The first edit is durable before the mark is written, and nothing relies on it
            // before. A new shard has no files then. One of an earlier version may have.
            MarkRead::Missing if last == 1 => {
                self.is_proven = manifest.next_file == 1 && manifest.log.is_empty();
                return Ok(());
            }
            MarkRead::Missing => {
                self.mark_damage = Some(StorageError::corrupt(mark, "it is missing"));
                return Ok(());
            }
            MarkRead::Damaged(error, facts) => {
                self.mark_damage = Some(error.clone());
                *facts
            }
            MarkRead::Valid(facts, _) => Some(*facts),
        };
        let Some(facts) = facts else { return Ok(()) };
        if let Some(error) = foreign(&facts) {
            self.mark_damage = Some(error);
            return Ok(());
        }
        if last < facts.edit {
            let what = format!(
                "it ends with edit {last}, but edit {} was durable: it was cut, or is an older copy",
                facts.edit
            );
            return Err(StorageError::corrupt(path, what));
        }
        if self.history.chain_of(facts.edit).is_some_and(|chain| chain != facts.chain) {
            let what = format!("edit {} is another one than was durable: it is another file", facts.edit);
            return Err(StorageError::corrupt(path, what));
        }
        let manifest = &mut self.history.manifest;
        manifest.durable = manifest.durable.max(facts.durable);
        self.is_proven = self.mark_damage.is_none();
        Ok(())
    }

    /// Returns what is known of this shard from its mark, which may be damaged in part.
    pub(crate) fn known_facts(&self) -> Option<Facts> {
        self.mark.facts().copied().filter(|facts| facts.stamp == self.history.manifest.stamp)
    }

    /// Returns true if a crash came between the first edit and the mark.
    pub(crate) fn awaits_mark(&self) -> bool {
        matches!(self.mark, MarkRead::Missing) && self.mark_damage.is_none() && self.history.last().is_some()
    }

    /// Returns the count of the mark. `None`: there is no intact one of this shard.
    pub(crate) fn mark_count(&self) -> Option<u64> {
        match self.mark {
            MarkRead::Valid(_, count) if self.mark_damage.is_none() => Some(count),
            _ => None,
        }
    }
}

/// Reads the manifest of a shard; an empty one if the shard is new.
///
/// # Errors
/// As [`read_shard`].
pub(crate) async fn read_manifest(
    env: &dyn Env,
    dir: &Path,
    shard: u32,
    shards: u32,
) -> Result<Manifest, StorageError> {
    let read = read_shard(env, dir, shard, shards).await?;
    Ok(read.map_or_else(|| Manifest::empty(shard, shards), |files| files.history.manifest))
}
