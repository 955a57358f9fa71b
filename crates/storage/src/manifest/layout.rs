//! Layout of a data folder.
//!
//! ```text
//!  DIR/LOCK                   held by shard 0 of the server that has the folder open
//!  DIR/shards                 layout version, sharding, current generation, checksum
//!  DIR/marks/shard-0003.2     how far manifest and log of that shard go, see mark.rs
//!  DIR/aside/                 files that a start could not prove to be superseded
//!  DIR/shard-0003/            a shard of generation 0
//!  DIR/shard-0003.2/          a shard of generation 2
//!    LOCK                     held by the server that has the shard open
//!    manifest                 see edits.rs
//!    log/                     see log/segment.rs
//!    tables/                  see table/mod.rs
//! ```
//!
//! A generation is the data split for one number of cores. Opening with another number makes a new
//! generation (`reshard.rs`). The file `shards` names the current one, and shards of any other are
//! leftovers.

use std::fmt::Debug;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use schema::Sharding;

use crate::env::{Env, Mode};
use crate::error::StorageError;
use crate::manifest::versions::replace_file;

/// Layout version that this program reads and writes.
const VERSION: u32 = 2;

/// Default of ScyllaDB: the token range is cut into 2^12 parts, each divided among all shards, so
/// that data spreads evenly.
pub const IGNORE_MSB: u32 = 12;

/// Contents of the file `shards`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) generation: u64,
    pub(crate) sharding: Sharding,
}

impl Layout {
    /// Returns the layout for `shards` shards.
    pub(crate) fn new(generation: u64, shards: u32) -> Layout {
        Layout { generation, sharding: Sharding { shards, ignore_msb: IGNORE_MSB } }
    }

    pub(crate) fn shard_dir(&self, root: &Path, shard: u32) -> PathBuf {
        match self.generation {
            0 => root.join(format!("shard-{shard:04}")),
            generation => root.join(format!("shard-{shard:04}.{generation}")),
        }
    }

    /// Reads the file `shards`; `None` if the folder is new.
    pub(crate) async fn read(env: &dyn Env, root: &Path) -> Result<Option<Layout>, StorageError> {
        let path = root.join("shards");
        let names = list(env, root).await?;
        if !names.iter().any(|name| name == "shards") {
            for dir in names.iter().filter(|name| generation_of(name).is_some()).map(|name| root.join(name)) {
                if list(env, &dir).await?.iter().any(|name| name == "manifest") {
                    return Err(StorageError::corrupt(path, "it is missing, although the folder holds data"));
                }
            }
            // A mark is written when its shard has a manifest.
            let marks = env.list(&root.join("marks")).await.unwrap_or_default();
            if marks.iter().any(|name| generation_of(name).is_some()) {
                return Err(StorageError::corrupt(path, "it is missing, although shards have been in use"));
            }
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&read_all(env, &path).await?).into_owned();
        let number = |name: &str| -> Option<u64> {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        };
        let small = |name: &str| number(name).and_then(|number| u32::try_from(number).ok());
        let damaged =
            || StorageError::corrupt(&path, "expected a layout version, a sharding and a generation");
        let version = small("layout").ok_or_else(damaged)?;
        if version != VERSION {
            return Err(StorageError::UnknownFormat { path, found: version, known: VERSION });
        }
        let shards = small("shards").filter(|shards| *shards > 0).ok_or_else(damaged)?;
        // Shards of other generations are removed, so check that the file is intact.
        let sum = text.rsplit_once("crc ").filter(|(body, sum)| checksum(body) == sum.trim_end());
        sum.ok_or_else(|| StorageError::corrupt(&path, "it does not match its checksum"))?;
        let ignore_msb = small("ignored-bits").ok_or_else(damaged)?;
        let generation = number("generation").ok_or_else(damaged)?;
        Ok(Some(Layout { generation, sharding: Sharding { shards, ignore_msb } }))
    }

    /// Writes the file `shards`. `writer` is the number of the writing shard, because several may
    /// start at the same time.
    pub(crate) async fn write(&self, env: &dyn Env, root: &Path, writer: u32) -> Result<(), StorageError> {
        let Sharding { shards, ignore_msb } = self.sharding;
        let generation = self.generation;
        let mut text = format!(
            "layout {VERSION}\nshards {shards}\nignored-bits {ignore_msb}\ngeneration {generation}\n"
        );
        text = format!("{text}crc {}\n", checksum(&text));
        let path = root.join("shards");
        let own = format!("shards.{writer}");
        replace_file(env, root, &own, text.into_bytes()).await?;
        let put = async {
            env.rename(&root.join(&own), &path).await?;
            env.sync_dir(root).await
        };
        put.await.map_err(|error| StorageError::io("write", &path, error))
    }

    /// Removes the shards of other generations, and their marks. `recovery/generations.rs` proves
    /// before that they are superseded.
    pub(crate) async fn clear(&self, env: &dyn Env, root: &Path) -> Result<(), StorageError> {
        let mut removed = false;
        for name in list(env, root).await? {
            if generation_of(&name).is_some_and(|generation| generation != self.generation) {
                remove_shard(env, &root.join(name)).await?;
                removed = true;
            }
        }
        if removed {
            sync(env, root).await?;
        }
        // Marks go last: a shard without one is not in use.
        let marks = root.join("marks");
        for name in env.list(&marks).await.unwrap_or_default() {
            if generation_of(&name).is_some_and(|generation| generation != self.generation) {
                let gone = env.remove(&marks.join(name)).await;
                gone.map_err(|error| StorageError::io("remove a leftover", &marks, error))?;
            }
        }
        Ok(())
    }
}

fn checksum(text: &str) -> String {
    format!("{:08x}", crc32c::crc32c(text.as_bytes()))
}

/// Returns the generation of a shard's folder by its name; `None` if it is not a shard's.
pub(crate) fn generation_of(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("shard-")?;
    let (shard, generation) = rest.split_once('.').unwrap_or((rest, "0"));
    shard.parse::<u32>().ok()?;
    generation.parse().ok()
}

/// Removes the folder of a shard. The manifest goes first: a folder without it does not count as
/// data.
async fn remove_shard(env: &dyn Env, dir: &Path) -> Result<(), StorageError> {
    let io = |error| StorageError::io("remove a leftover", dir, error);
    let gone = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    };
    gone(env.remove(&dir.join("manifest")).await).map_err(io)?;
    for inner in [dir.join("log"), dir.join("tables"), dir.to_owned()] {
        let names = match env.list(&inner).await {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            names => names.map_err(io)?,
        };
        for name in names {
            gone(env.remove(&inner.join(name)).await).map_err(io)?;
        }
        gone(env.remove_dir(&inner).await).map_err(io)?;
    }
    Ok(())
}

/// Creates the folders of a shard and makes their names durable.
pub(crate) async fn make_shard(env: &dyn Env, dir: &Path) -> Result<(), StorageError> {
    for folder in [dir, &dir.join("log"), &dir.join("tables")] {
        let made = env.create_dir_all(folder).await;
        made.map_err(|error| StorageError::io("create the data folder", folder, error))?;
    }
    sync_folders(env, dir).await
}

/// Makes the names of a shard's folders durable, up to the root: everything in a lost folder is
/// lost, synced or not.
async fn sync_folders(env: &dyn Env, dir: &Path) -> Result<(), StorageError> {
    for folder in dir.ancestors() {
        // A relative path ends in an empty one: the working directory.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match env.sync_dir(folder).await {
            // The server may not open folders far above its own. It did not create them either.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
            synced => synced.map_err(|error| StorageError::io("sync the folder", folder, error))?,
        }
    }
    Ok(())
}

/// Locks a data folder and returns its layout.
pub(crate) async fn enter(env: &dyn Env, root: &Path) -> Result<(Layout, Box<dyn Debug>), StorageError> {
    let none = || StorageError::corrupt(root, "it is no data folder: it has no file `shards`");
    // Check first, so that no lock file is created in other folders.
    Layout::read(env, root).await?.ok_or_else(none)?;
    let held = lock(env, root, root).await?;
    Ok((Layout::read(env, root).await?.ok_or_else(none)?, held))
}

/// Takes the lock of a data folder or of a shard's folder.
pub(crate) async fn lock(env: &dyn Env, root: &Path, dir: &Path) -> Result<Box<dyn Debug>, StorageError> {
    env.lock(&dir.join("LOCK")).await.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => StorageError::Locked { path: root.into() },
        _ => StorageError::io("lock the data folder", dir, error),
    })
}

pub(crate) async fn sync(env: &dyn Env, dir: &Path) -> Result<(), StorageError> {
    env.sync_dir(dir).await.map_err(|error| StorageError::io("sync the folder", dir, error))
}

/// Reads a whole file.
pub(crate) async fn read_all(env: &dyn Env, path: &Path) -> Result<Bytes, StorageError> {
    let read = async {
        let file = env.open(path, Mode::Read).await?;
        let len = file.len().await?;
        if len == 0 { Ok(Bytes::new()) } else { file.read(0, len as usize).await }
    };
    read.await.map_err(|error| StorageError::io("read", path, error))
}

pub(crate) async fn list(env: &dyn Env, dir: &Path) -> Result<Vec<String>, StorageError> {
    env.list(dir).await.map_err(|error| StorageError::io("list the folder", dir, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_is_part_of_the_folder_name() {
        for (name, generation) in [
            ("shard-0003", Some(0)),
            ("shard-0003.2", Some(2)),
            ("shard-12345.18446744073709551615", Some(u64::MAX)),
            ("shards", None),
            ("shard-backup", None),
            ("shard-0003.old", None),
            ("snapshots", None),
        ] {
            assert_eq!(generation_of(name), generation, "{name}");
        }
        let dir = |generation| Layout::new(generation, 4).shard_dir(Path::new("/d"), 3);
        assert_eq!([dir(0), dir(2)], [PathBuf::from("/d/shard-0003"), "/d/shard-0003.2".into()]);
    }
}
