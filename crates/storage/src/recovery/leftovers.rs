//! Files in a shard's folder that neither the manifest nor the log names, as crashes leave them.
//!
//! A start removes such a file only if it is proven to be superseded:
//!
//! 1. An edit of the manifest removed it: the manifest has its number and its seal.
//! 2. Or this shard wrote it, and no edit ever named it. Its seal, derived from the stamp of the
//!    shard, proves the first. The mark, which shows that no edit is missing, proves the second.
//! 3. Or it was never completed: it has no footer, and the mark shows that no edit is missing.
//! 4. A segment of the log: it is this shard's, and its records are in table files.
//!
//! Any other file may be all that is left of acknowledged data, such as a file of another shard
//! under this name. It is moved to the folder `aside` of the data folder, and reported.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;

use crate::env::Env;
use crate::error::StorageError;
use crate::event::{Event, EventSink};
use crate::manifest::layout::list;
use crate::manifest::seal_of;
use crate::recovery::shard_files::ShardFiles;
use crate::table::file::{seal_in, table_name};

/// A table file that the manifest does not name.
#[derive(Debug)]
pub(crate) struct Leftover {
    pub(crate) path: PathBuf,
    /// The file's number, if its name is one.
    id: Option<u64>,
    /// The reason to keep it. `None`: it is superseded.
    pub(crate) kept: Option<String>,
}

impl Leftover {
    /// Returns the damage that a leftover stands for, if it is kept.
    pub(crate) fn damage(&self) -> Option<StorageError> {
        let because = self.kept.as_ref()?;
        Some(StorageError::corrupt(&self.path, format!("no manifest names it, and {because}")))
    }
}

/// Finds the table files that the manifest does not name.
pub(crate) async fn table_leftovers(
    env: &dyn Env,
    dir: &Path,
    files: &ShardFiles,
) -> Result<Vec<Leftover>, StorageError> {
    let dir = dir.join("tables");
    let manifest = &files.history.manifest;
    let named: FxHashSet<String> = manifest.files().map(|(_, file)| table_name(file.id)).collect();
    let mut found = Vec::new();
    for name in list(env, &dir).await? {
        if name.ends_with(".table") && !named.contains(&name) {
            let id = name.strip_suffix(".table").and_then(|number| u64::from_str_radix(number, 16).ok());
            let path = dir.join(&name);
            let kept = reason_to_keep(env, &path, id, files).await?;
            found.push(Leftover { path, id, kept });
        }
    }
    Ok(found)
}

async fn reason_to_keep(
    env: &dyn Env,
    path: &Path,
    id: Option<u64>,
    files: &ShardFiles,
) -> Result<Option<String>, StorageError> {
    let Some(id) = id else { return Ok(Some("its name is not one of a table file".to_owned())) };
    let seal = match seal_in(env, path).await {
        Err(StorageError::Io { error, .. }) if error.kind() != ErrorKind::NotFound => {
            return Ok(Some(format!("it cannot be read ({error})")));
        }
        seal => seal?,
    };
    let history = &files.history;
    let was_removed = seal.is_some() && history.removed.get(&id).copied() == seal;
    let is_own = seal.is_none_or(|seal| seal == seal_of(history.manifest.stamp, id));
    Ok(match () {
        () if was_removed || (is_own && files.is_proven) => None,
        () if !files.is_proven => {
            Some("without a mark the manifest does not prove that it is superseded".to_owned())
        }
        () => Some("this shard did not write it under this name".to_owned()),
    })
}

/// Removes leftovers that are superseded, and moves the others aside. On a full disk, one that
/// cannot be removed or moved stays. Returns a number above those of all files that stay.
pub(crate) async fn clear_leftovers(
    env: &dyn Env,
    leftovers: Vec<Leftover>,
    event_sink: &EventSink,
) -> Result<u64, StorageError> {
    let mut above = 0;
    for Leftover { path, id, kept } in leftovers {
        let done = match kept {
            Some(because) => move_aside(env, &path, because, event_sink).await,
            None => {
                let removed = env.remove(&path).await;
                removed.map_err(|error| StorageError::io("remove a leftover", &path, error))
            }
        };
        match done {
            Err(error) if !error.is_full() => return Err(error),
            Err(_) => above = above.max(id.map_or(0, |id| id + 1)),
            Ok(()) => {}
        }
    }
    Ok(above)
}

/// Moves a file of a shard's folder, or a mark, to the folder `aside` of the data folder.
pub(crate) async fn move_aside(
    env: &dyn Env,
    path: &Path,
    because: String,
    event_sink: &EventSink,
) -> Result<(), StorageError> {
    let mut above = path.ancestors().skip(1);
    let is_shard =
        |dir: &&Path| dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with("shard-"));
    let shard = above.clone().find(is_shard);
    let root = match shard {
        Some(shard) => shard.parent(),
        None => above.nth(1),
    };
    let root = root.expect("a file of a shard is in a data folder");
    let dir = root.join("aside");
    let below = path.strip_prefix(root).expect("an ancestor").to_string_lossy().replace('/', "-");
    let io = |error| StorageError::io("move a file aside", path, error);
    env.create_dir_all(&dir).await.map_err(io)?;
    let taken = list(env, &dir).await?;
    let numbered = (1..).map(|number| format!("{below}.{number}"));
    let name = std::iter::once(below.clone()).chain(numbered).find(|name| !taken.contains(name));
    let aside = dir.join(name.expect("numbers do not end"));
    env.rename(path, &aside).await.map_err(io)?;
    for folder in [Some(&*dir), Some(root), path.parent()].into_iter().flatten() {
        env.sync_dir(folder).await.map_err(io)?;
    }
    event_sink.send(&Event::MovedAside { file: path.to_owned(), aside, because });
    Ok(())
}
