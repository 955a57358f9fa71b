//! Proof that the file `shards` is the present one, and that the generation it names is whole.
//!
//! A start removes the shards of all other generations: an earlier one that a reshard has replaced,
//! or a later one that was not completed. With an older copy of `shards` it would remove the data
//! instead. So it checks first:
//!
//! 1. No shard of a later generation has been in use. An unused one has the single edit that the
//!    reshard wrote. Shards register their log with the second.
//! 2. If there are other generations, each shard of the present one has its manifest.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::env::Env;
use crate::error::StorageError;
use crate::manifest::edits;
use crate::manifest::layout::{Layout, generation_of, list, read_all};
use crate::manifest::mark::{marks_dir, read_mark};

/// Checks that shards of other generations are superseded.
///
/// # Errors
/// The file `shards` is an older copy, or a shard of its generation has lost its manifest.
pub(crate) async fn check_generations(
    env: &dyn Env,
    root: &Path,
    layout: &Layout,
) -> Result<(), StorageError> {
    let others = others(env, root, layout).await?;
    for (dir, generation) in &others {
        if *generation > layout.generation && was_in_use(env, dir).await? {
            let what = format!(
                "it names generation {}, but {} of generation {generation} has been in use: it is an older copy",
                layout.generation,
                dir.display()
            );
            return Err(StorageError::corrupt(root.join("shards"), what));
        }
    }
    if others.is_empty() {
        return Ok(());
    }
    for shard in 0..layout.sharding.shards {
        let dir = layout.shard_dir(root, shard);
        // Generation 0 is made by the shards themselves, and an interrupted first start may lack
        // some. They are empty then, and have no mark.
        if layout.generation > 0 && !has_manifest(env, &dir).await? {
            return Err(StorageError::corrupt(dir.join("manifest"), "it is missing, and so is the shard"));
        }
    }
    Ok(())
}

/// Returns the folders of shards of other generations, also those that only have a mark.
async fn others(env: &dyn Env, root: &Path, layout: &Layout) -> Result<Vec<(PathBuf, u64)>, StorageError> {
    let mut names = list(env, root).await?;
    names.append(&mut list_if_there(env, &marks_dir(root)).await?);
    names.sort();
    names.dedup();
    let is_other = |name: String| {
        let generation = generation_of(&name).filter(|generation| *generation != layout.generation)?;
        Some((root.join(name), generation))
    };
    Ok(names.into_iter().filter_map(is_other).collect())
}

/// Returns true if the shard with this folder was opened, or cannot be proven not to have been.
async fn was_in_use(env: &dyn Env, dir: &Path) -> Result<bool, StorageError> {
    let mark = read_mark(env, dir).await?;
    if mark.facts().is_some_and(|facts| facts.edit > 1) {
        return Ok(true);
    }
    if !has_manifest(env, dir).await? {
        return Ok(false);
    }
    let data = read_all(env, &dir.join("manifest")).await?;
    let unused = edits::read(&data).is_ok_and(|history| {
        let last = history.last().map_or(history.edits() as u64, |(last, _)| last);
        last == 1
    });
    Ok(!unused)
}

async fn has_manifest(env: &dyn Env, dir: &Path) -> Result<bool, StorageError> {
    Ok(list_if_there(env, dir).await?.iter().any(|name| name == "manifest"))
}

async fn list_if_there(env: &dyn Env, dir: &Path) -> Result<Vec<String>, StorageError> {
    match list(env, dir).await {
        Err(StorageError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        names => names,
    }
}
