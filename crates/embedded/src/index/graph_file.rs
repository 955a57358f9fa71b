//! Saved graphs: files in the folder of this core's shard, from which a start makes graphs without
//! computing distances. `vectors` has their format.
//!
//! A saved graph is a hint. A start loads it and then scans all rows, as it does without one. So
//! the file may be of any age, may be lost, and never makes an answer wrong.
//!
//! 1. An orderly stop saves each graph that has changed. While the server runs, a graph is saved
//!    when as many nodes have changed as a quarter of it has, and at least 1024. So a save
//!    writes at most four times the nodes that have changed.
//! 2. A copy of the graph is made on the heavy lane, in one task poll of some seconds a GiB, for
//!    which the lane has spare workers. It is written to `graph-ID.new`, synced, and renamed to
//!    `graph-ID`: the ID is that of the index's data, which changes with TRUNCATE, a restore, and
//!    another number of cores.
//! 3. One graph of a core is copied or loaded at a time. While the server runs, the copy and all
//!    graphs keep to the limit of memory: a graph of more than half of it is saved by an orderly
//!    stop only. At a start and a stop the copy comes on top, while caches are empty or not needed.
//! 4. A save that fails is logged once, and counted. It leaves as much of the disk free as it
//!    writes.
//! 5. A file that is damaged, too large, or of another folder or version is removed, as is that of
//!    a dropped index. Only files are removed or replaced that have the name of a saved graph, and
//!    begin as one.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use lanes::Group;
use lanes::disk::{self, OpenOptions};
use storage::{Event, TableId};
use vectors::{Graph, OWNER_BYTES, Owner};

use crate::Embedded;
use crate::index::graph::{State, VectorGraph, measure};
use crate::index::graph_counts::add;
use crate::index::vectors::VectorColumn;

/// Prefix of the name of a saved graph, ahead of the ID in 32 hexadecimal digits.
const PREFIX: &str = "graph-";

/// Suffix of a file that is being written.
const UNFINISHED: &str = ".new";

/// Bytes that are read or written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes at the beginning of a file by which it is known.
const MAGIC_BYTES: usize = 8;

/// File of the graph of an index.
struct GraphFile {
    dir: PathBuf,
    path: PathBuf,
    owner: Owner,
}

/// Returns the index of a file's name, and true if the file is being written. `None`: the name is
/// not one of a saved graph.
fn index_of(name: &str) -> Option<(TableId, bool)> {
    let id = name.strip_prefix(PREFIX)?;
    let (id, is_unfinished) = id.strip_suffix(UNFINISHED).map_or((id, false), |id| (id, true));
    let is_digit = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
    let is_id = id.len() == 32 && id.bytes().all(is_digit);
    is_id.then(|| Some((TableId(u128::from_str_radix(id, 16).ok()?), is_unfinished)))?
}

impl GraphFile {
    /// Returns the file of an index on this core. `None`: the shard is in memory.
    fn of(engine: &Embedded, index: TableId) -> Option<GraphFile> {
        let (dir, stamp) = engine.shard.folder()?;
        let (core, cores) = (lanes::current_core() as u32, engine.sharding.shards);
        let mut owner = [0; OWNER_BYTES];
        owner[..8].copy_from_slice(&stamp.to_le_bytes());
        owner[8..24].copy_from_slice(&index.0.to_le_bytes());
        owner[24..28].copy_from_slice(&core.to_le_bytes());
        owner[28..].copy_from_slice(&cores.to_le_bytes());
        Some(GraphFile { dir: dir.to_owned(), path: dir.join(format!("{PREFIX}{:032x}", index.0)), owner })
    }

    /// Returns the contents. `None`: there is no file.
    ///
    /// # Errors
    /// It has more than `bytes_max` bytes, or those of the kernel.
    async fn read(&self, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let file = match disk::open(&self.path, OpenOptions { direct: true, ..OpenOptions::default() }).await
        {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let len = usize::try_from(file.len().await?).unwrap_or(usize::MAX);
        if len > bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(io::Error::other)?;
        while bytes.len() < len {
            let chunk = file.read_at(bytes.len() as u64, CHUNK_BYTES.min(len - bytes.len())).await?;
            bytes.extend_from_slice(&chunk);
        }
        Ok(Some(bytes))
    }

    /// Returns the saved graph. `None`: there is no file.
    ///
    /// # Errors
    /// It is damaged or of another index, or takes more than `bytes_max`, or those of the kernel.
    async fn load(&self, column: &VectorColumn, bytes_max: usize) -> io::Result<Option<Graph>> {
        let Some(bytes) = self.read(bytes_max).await? else { return Ok(None) };
        let graph = Graph::load(&bytes, &self.owner, column.dimension, measure(column.similarity));
        let graph = graph.map_err(io::Error::other)?;
        match graph.bytes() <= bytes_max {
            true => Ok(Some(graph)),
            false => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }

    /// Replaces the file, and makes it durable.
    ///
    /// # Errors
    /// The disk is too full, or there is a file of this name that is no saved graph, or those of
    /// the kernel.
    async fn write(&self, bytes: Bytes) -> io::Result<()> {
        let new = self.path.with_extension(&UNFINISHED[1..]);
        for path in [&self.path, &new] {
            if !may_replace(path).await? {
                return Err(io::Error::other(format!("{} is no saved graph: move it away", path.display())));
            }
        }
        let (free, _) = disk::space(&self.dir).await?;
        if free < 2 * bytes.len() as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let options =
            OpenOptions { write: true, create: true, truncate: true, direct: true, ..Default::default() };
        let written = async {
            let file = disk::open(&new, options).await?;
            for at in (0..bytes.len()).step_by(CHUNK_BYTES) {
                let chunk = bytes.slice(at..bytes.len().min(at + CHUNK_BYTES));
                file.write_at(at as u64, chunk).await?;
            }
            file.sync_all().await?;
            disk::rename(&new, &self.path).await?;
            disk::sync_dir(&self.dir).await
        };
        let written = written.await;
        if written.is_err() {
            drop(disk::remove_file(&new).await);
        }
        written
    }

    async fn remove(&self) -> io::Result<()> {
        remove(&self.path).await
    }
}

/// Returns true if there is no file of this path, or it begins as a saved graph, or as one whose
/// first bytes a crash has lost.
async fn may_replace(path: &Path) -> io::Result<bool> {
    let file = match disk::open(path, OpenOptions::default()).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        file => file?,
    };
    let len = file.len().await?.min(MAGIC_BYTES as u64) as usize;
    if len == 0 {
        return Ok(true);
    }
    let start = file.read_at(0, len).await?;
    Ok(vectors::is_saved(&start) || start.iter().all(|byte| *byte == 0))
}

/// Removes a saved graph, if there is one of this path.
async fn remove(path: &Path) -> io::Result<()> {
    if !may_replace(path).await? {
        return Ok(());
    }
    match disk::remove_file(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

impl VectorGraph {
    /// Loads the saved graph, if there is one that fits, and has the rows scanned.
    pub(super) async fn load(&self, engine: &Rc<Embedded>, bytes_max: usize) {
        if let Some(file) = GraphFile::of(engine, self.column.data) {
            let saves = &engine.indexes.saves;
            let _turn = saves.lock.lock(()).await;
            if !saves.have_ended.get() {
                self.load_from(file, bytes_max.saturating_sub(self.all_bytes.get())).await;
                self.share_cache(engine);
            }
        }
        if self.state.get() == State::New {
            self.state.set(State::Building);
        }
    }

    async fn load_from(&self, file: GraphFile, bytes_max: usize) {
        let (nodes, column) = (self.nodes.clone(), self.column.clone());
        let load = async move {
            let loaded = match file.load(&column, bytes_max).await {
                Ok(graph) => Ok(graph.map(|graph| nodes.write().insert(graph).bytes())),
                Err(_) => Err(file.remove().await),
            };
            loaded.map_err(drop)
        };
        match lanes::heavy(Group::INDEX, load).await {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                self.count(bytes);
                add(&self.counts.loaded, 1);
            }
            Err(()) => add(&self.counts.ignored, 1),
        }
    }

    /// Starts a save if enough of the graph has changed, and memory has space for a copy.
    pub(super) fn save_if_due(self: &Rc<Self>, engine: &Rc<Embedded>, nodes: usize, bytes_max: usize) {
        let has_space = self.all_bytes.get() + self.bytes.get() <= bytes_max;
        if !self.saves.is_due(nodes) || !has_space || engine.shard.folder().is_none() {
            return;
        }
        if self.saves.set_saving(true) {
            return;
        }
        let (graph, engine) = (self.clone(), engine.clone());
        let save = async move {
            graph.save(&engine, false).await;
            graph.saves.set_saving(false);
        };
        lanes::spawn(Group::INDEX, save).detach();
    }

    /// Saves the graph if it has changed. At the stop of the server this is urgent.
    async fn save(&self, engine: &Embedded, is_stop: bool) {
        let Some(file) = GraphFile::of(engine, self.column.data) else { return };
        let _turn = engine.indexes.saves.lock.lock(()).await;
        let changes = self.saves.changes();
        let is_wanted = matches!(self.state.get(), State::Building | State::Ready) && changes > 0;
        if !is_wanted || engine.indexes.saves.have_ended.get() {
            return;
        }
        let nodes = self.nodes.clone();
        let save = async move {
            let bytes = match &*nodes.read() {
                Some(graph) if !graph.is_empty() => Some(graph.save(&file.owner).map_err(io::Error::other)?),
                _ => None,
            };
            let Some(bytes) = bytes else { return file.remove().await.map(|()| 0) };
            let len = bytes.len() as u64;
            file.write(bytes.into()).await.map(|()| len)
        };
        let saved = match is_stop {
            true => lanes::heavy_urgent(Group::INDEX, save).await,
            false => lanes::heavy(Group::INDEX, save).await,
        };
        let is_reported = self.saves.ended(changes, saved.is_ok());
        match saved {
            Ok(bytes) => {
                add(&self.counts.saved, 1);
                add(&self.counts.saved_bytes, bytes);
            }
            Err(error) => {
                add(&self.counts.saves_failed, 1);
                if is_reported {
                    let index = engine.indexes.named(self.column.data);
                    engine.event_sink.send(&Event::GraphNotSaved { index, error: error.to_string() });
                }
            }
        }
    }

    /// Removes the saved graph of an index that was dropped. A start removes one that is left.
    pub(super) async fn remove_saved(&self, engine: &Embedded) {
        let Some(file) = GraphFile::of(engine, self.column.data) else { return };
        let _turn = engine.indexes.saves.lock.lock(()).await;
        if !engine.indexes.saves.have_ended.get() {
            drop(file.remove().await);
        }
    }
}

impl Embedded {
    /// Saves the graphs of this core that have changed, for the last time.
    pub(crate) async fn save_graphs(&self) {
        for graph in self.indexes.all_graphs() {
            graph.save(self, true).await;
        }
        let saves = &self.indexes.saves;
        let _turn = saves.lock.lock(()).await;
        saves.have_ended.set(true);
    }

    /// Removes saved graphs of indexes that are gone, and those that a crash has left unfinished.
    pub(crate) async fn clear_saved_graphs(&self) {
        let Some(dir) = self.shard.folder().map(|(dir, _)| dir.to_owned()) else { return };
        // The next start finds again those that cannot be removed now.
        for name in disk::list_dir(&dir).await.unwrap_or_default() {
            let Some((index, is_unfinished)) = index_of(&name) else { continue };
            if is_unfinished || self.indexes.graph(index).is_none() {
                drop(remove(&dir.join(name)).await);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_saved_graphs_have_an_index() {
        let id = "0123456789abcdef0123456789abcdef";
        let index = TableId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        for (name, expected) in [
            (format!("graph-{id}"), Some((index, false))),
            (format!("graph-{id}.new"), Some((index, true))),
            (format!("graph-{id}.old"), None),
            (format!("graph-{id}0"), None),
            (format!("graph-{}", id.to_uppercase()), None),
            (format!("graph-+{}", &id[1..]), None),
            (format!("graphs-{id}"), None),
            ("graph-".to_owned(), None),
            (id.to_owned(), None),
        ] {
            assert_eq!(index_of(&name), expected, "{name}");
        }
    }
}
