//! The file of the manifest.
//!
//! An edit is appended to the file of the manifest and synced. A new file, which starts with a
//! snapshot, replaces the old one in two cases: when the file has grown to several times the size
//! of its snapshot, and after a failed write, because its effect on the file is unknown.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::env::{Env, File, Mode};
use crate::error::StorageError;
use crate::manifest::Manifest;
use crate::manifest::edits::{self, End};
use crate::manifest::mark::{Facts, create_mark};

/// A manifest below this many bytes is not rewritten: 126 edits of one sector after the smallest
/// snapshot.
const REWRITE_BYTES_MIN: u64 = 64 << 10;

/// A manifest is rewritten at this many times the size of its snapshot. So snapshots cost at most a
/// third of what edits do.
const REWRITE_FACTOR: u64 = 4;

/// The file of the manifest, open at its end.
#[derive(Debug)]
pub(crate) struct Versions {
    file: Arc<dyn File>,
    salt: u32,
    next_edit: u32,
    end: u64,
    rewrite_at: u64,
    /// Number of the last edit over the life of the shard, and its chain.
    pub(crate) last: u64,
    pub(crate) chain: u32,
}

impl Versions {
    /// Writes a new file and replaces the old one. `number` is that of its first edit. `removed`
    /// are files that earlier edits removed and that may still be on the disk, with their seals.
    pub(crate) async fn begin(
        env: &dyn Env,
        dir: &Path,
        manifest: &Manifest,
        number: u64,
        removed: &[(u64, u64)],
    ) -> Result<Versions, StorageError> {
        let salt = env.random() as u32;
        let (bytes, chain) = edits::begin(manifest, salt, number, removed);
        let end = bytes.len() as u64;
        let file = put_file(env, dir, "manifest", bytes).await?;
        let rewrite_at = REWRITE_BYTES_MIN.max(REWRITE_FACTOR * end);
        Ok(Versions { file, salt, next_edit: 2, end, rewrite_at, last: number, chain })
    }

    /// Continues a complete file. Its contents are rewritten in place and synced: an edit whose
    /// sync failed may be in the page cache only, and from here on others rely on it. `None` if the
    /// disk is full: the next edit then writes a new file.
    pub(crate) async fn resume(
        env: &dyn Env,
        dir: &Path,
        data: Bytes,
        end: End,
    ) -> Result<Option<Versions>, StorageError> {
        let path = dir.join("manifest");
        let keep = async {
            let file = env.open(&path, Mode::Update).await?;
            file.write(0, data).await?;
            file.sync().await?;
            env.sync_dir(dir).await?;
            Ok(file)
        };
        let End { salt, next_edit, at, first, last, chain } = end;
        let rewrite_at = REWRITE_BYTES_MIN.max(REWRITE_FACTOR * first);
        match keep.await.map_err(|error| StorageError::io("write", &path, error)) {
            Ok(file) => Ok(Some(Versions { file, salt, next_edit, end: at, rewrite_at, last, chain })),
            Err(error) if error.is_full() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns true if the next edit should rewrite the file.
    pub(crate) fn is_long(&self) -> bool {
        self.end >= self.rewrite_at
    }

    pub(crate) async fn append(mut self, dir: &Path, edit: &[u8]) -> Result<Versions, StorageError> {
        let bytes = edits::sectors(edit, self.next_edit, self.salt);
        let len = bytes.len() as u64;
        let write = async {
            self.file.write(self.end, Bytes::from(bytes)).await?;
            self.file.sync().await
        };
        write.await.map_err(|error| StorageError::io("write", dir.join("manifest"), error))?;
        self.next_edit += 1;
        self.end += len;
        self.last += 1;
        self.chain = edits::chain_after(self.chain, edit);
        Ok(self)
    }
}

/// Writes the first manifest of a shard, and its mark.
pub(crate) async fn create(
    env: &dyn Env,
    dir: &Path,
    manifest: &Manifest,
) -> Result<(Versions, Facts), StorageError> {
    let versions = Versions::begin(env, dir, manifest, 1, &[]).await?;
    let Manifest { shard, stamp, durable, .. } = *manifest;
    let facts = Facts { shard, stamp, edit: versions.last, chain: versions.chain, durable };
    create_mark(env, dir, &facts).await?;
    Ok((versions, facts))
}

/// Writes a file under another name, syncs it and renames it into place.
pub(crate) async fn replace_file(
    env: &dyn Env,
    dir: &Path,
    name: &str,
    bytes: Vec<u8>,
) -> Result<(), StorageError> {
    put_file(env, dir, name, bytes).await.map(drop)
}

async fn put_file(
    env: &dyn Env,
    dir: &Path,
    name: &str,
    bytes: Vec<u8>,
) -> Result<Arc<dyn File>, StorageError> {
    let (path, new) = (dir.join(name), dir.join(format!("{name}.new")));
    let write = async {
        let file = env.open(&new, Mode::Create).await?;
        file.write(0, bytes.into()).await?;
        file.sync().await?;
        env.rename(&new, &path).await?;
        env.sync_dir(dir).await?;
        Ok(file)
    };
    write.await.map_err(|error| StorageError::io("write", &path, error))
}
