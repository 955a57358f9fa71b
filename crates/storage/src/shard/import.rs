//! Imports a table of a snapshot into a running shard. The snapshot may have any number of shards.
//!
//! 1. Files of the snapshot that may have tokens of this shard are linked into its folder, as in
//!    resharding (`reshard.rs`). Nothing is copied if the file system supports links. Tokens of
//!    other shards are ignored (`FileEntry::owners`), and compaction rewrites such files.
//! 2. Records that are only in the logs of the snapshot are written like other writes.
//! 3. One edit of the manifest names the files and makes them visible.
//!
//! No client may read or write the new table yet. After a crash or an error it may contain a part
//! of the snapshot, and its owner drops it. The snapshot is only read.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use schema::Sharding;

use crate::error::StorageError;
use crate::log::replay::Replay;
use crate::manifest::layout::{self, IGNORE_MSB, Layout};
use crate::manifest::{Edit, FileEntry, Owner};
use crate::model::{Mutation, TableId};
use crate::recovery::reshard::{OldFile, link_or_copy};
use crate::recovery::shard_files::read_manifest;
use crate::shard::Shard;
use crate::table::file::{TableFile, table_name, tokens_of};
use crate::table::shared::folder_key;
use crate::table::store::NewFile;

impl Shard {
    /// Imports this shard's part of a table of the snapshot in the folder `from` into a new table;
    /// with `whole`, the parts of all shards. Durable when this returns.
    ///
    /// # Errors
    /// The folder is not a snapshot, one of its files is damaged or unreadable, a write fails, or
    /// the shard is in memory.
    pub fn import<'a>(
        self: &'a Rc<Self>,
        from: &'a Path,
        table: TableId,
        into: TableId,
        whole: bool,
    ) -> lanes::LocalBoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let Some(root) = self.jobs.options.dir.clone().filter(|_| self.log.is_some()) else {
                return Err(StorageError::Closed);
            };
            let env = self.env.clone();
            let none = || StorageError::corrupt(from, "it is no snapshot: it has no file `shards`");
            let layout = Layout::read(&*env, from).await?.ok_or_else(none)?;
            let own = (!whole).then(|| Owner {
                sharding: Sharding { shards: self.jobs.options.shards, ignore_msb: IGNORE_MSB },
                shard: self.jobs.options.shard,
            });
            let mut files = Vec::new();
            let result = async {
                for shard in 0..layout.sharding.shards {
                    files.append(&mut self.link_files(from, &layout, shard, table, own.as_ref()).await?);
                    self.import_log(from, &layout, shard, table, into, own.as_ref()).await?;
                }
                if files.is_empty() {
                    return Ok(());
                }
                layout::sync(&*env, &self.store.dir.join("tables")).await?;
                let mut open = Vec::new();
                for entry in &mut files {
                    let path = self.store.path_of(entry.id);
                    let opened =
                        TableFile::open_shared(&*env, path, entry.clone(), folder_key(&root)).await?;
                    // A snapshot of an earlier version has no identities.
                    entry.identity = opened.identity();
                    open.push(Arc::new(opened));
                }
                let name = |edit: &mut Edit| {
                    files.iter().for_each(|entry| edit.add(into, entry.clone()));
                };
                self.store.edit(name).await?;
                let state = &mut *self.state.borrow_mut();
                let to = state.tables.entry(into).or_default();
                open.into_iter().for_each(|file| to.files.push_new(file));
                Ok(())
            };
            let result = result.await;
            if result.is_err() {
                for entry in &files {
                    // Files that cannot be removed here are removed by the next start.
                    drop(env.remove(&self.store.path_of(entry.id)).await);
                }
            }
            self.background.compactor.update_run_pressure();
            self.jobs.work.wake();
            result
        })
    }

    /// Links the files of one shard of a snapshot that have tokens of this shard.
    async fn link_files(
        &self,
        from: &Path,
        layout: &Layout,
        shard: u32,
        table: TableId,
        own: Option<&Owner>,
    ) -> Result<Vec<FileEntry>, StorageError> {
        let env = &*self.env;
        let dir = layout.shard_dir(from, shard);
        let manifest = read_manifest(env, &dir, shard, layout.sharding.shards).await?;
        let Some(version) = manifest.tables.get(&table) else { return Ok(Vec::new()) };
        // Shards number their runs independently.
        let mut runs: BTreeMap<u64, u64> = BTreeMap::new();
        let mut linked = Vec::new();
        for entry in version.files.values() {
            let path = dir.join("tables").join(table_name(entry.id));
            let tokens = tokens_of(env, &path, entry).await?;
            let old = OldFile::new(table, entry, path, tokens, layout, shard, manifest.stamp);
            let Some(entry) = old.entry_for(own) else { continue };
            let NewFile { id, path: to, .. } = self.store.next_file();
            let made = link_or_copy(env, old.path(), &to).await;
            made.map_err(|error| StorageError::io("link the table file", &to, error))?;
            let run = *runs.entry(entry.run).or_insert(id);
            linked.push(FileEntry { id, run, ..entry });
        }
        Ok(linked)
    }

    /// Writes the records of the table that one shard of a snapshot has only in its log.
    async fn import_log(
        self: &Rc<Self>,
        from: &Path,
        layout: &Layout,
        shard: u32,
        table: TableId,
        into: TableId,
        own: Option<&Owner>,
    ) -> Result<(), StorageError> {
        let env = &*self.env;
        let dir = layout.shard_dir(from, shard);
        let manifest = read_manifest(env, &dir, shard, layout.sharding.shards).await?;
        let truncated = manifest.tables.get(&table).map_or(0, |version| version.truncated);
        let mut replay = Replay::open(env, &dir.join("log"), shard, &manifest).await?;
        let mut last = None;
        while let Some((number, mutations)) = replay.next().await? {
            let counts = |m: &Mutation| {
                m.table == table && number > truncated && own.is_none_or(|own| own.owns(m.token))
            };
            let own = mutations.into_iter().filter(counts);
            let own: Vec<_> = own.map(|mutation| Mutation { table: into, ..mutation }).collect();
            if !own.is_empty() {
                last = Some(self.apply_yielding(own).await?);
            }
            if let Some(yield_now) = env.spend(1) {
                yield_now.await;
            }
        }
        // The log keeps their order: if the last is durable, all are.
        match last {
            Some(last) => last.await,
            None => Ok(()),
        }
    }
}
