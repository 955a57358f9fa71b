//! Background work on a graph of vectors: making it of the rows of this core, and giving it the
//! rows that were written. The head of [`crate::index::graph`] has the steps.

use std::collections::HashSet;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use lanes::Group;
use storage::{Pick, StorageError, WorkProgress};
use vectors::Graph;

use crate::Embedded;
use crate::index::entry::Entry;
use crate::index::graph::{Changed, NodeChange, State, TAKEN_MAX, VectorGraph};
use crate::index::graph_counts::add;
use crate::index::graph_room::CHECKED_EVERY;
use crate::index::vectors::place_of;

/// Bytes of vectors that are taken from a scan at a time.
const TAKEN_BYTES_MAX: usize = 256 << 10;

/// Rows after which a scan is opened again, so that it holds no files for long.
const ROUND_ROWS: u64 = 4096;

/// Work units of reading a row.
const ROW_UNITS: u32 = 4;

/// Pause after a failed read.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Parts that the progress of a scan is counted in: of all tokens.
const PARTS: u64 = 1_000_000;

/// Part of a scan.
struct Round {
    /// The last partition, unless the scan has reached the end.
    next: Option<(i64, Bytes)>,
    /// Rows that have a vector.
    vectors: u64,
}

/// Effect of changes, and the size of the graph afterwards.
#[derive(Default)]
struct Stored {
    inserted: u64,
    removed: u64,
    /// The library had no memory.
    has_failed: bool,
    bytes: usize,
    nodes: usize,
}

impl VectorGraph {
    /// Keeps the graph up to date until it is closed.
    pub(crate) async fn maintain(self: Rc<Self>, engine: Weak<Embedded>, bytes_max: usize) {
        loop {
            let Some(own) = engine.upgrade() else { return };
            let was_full = self.is_full();
            let done = match self.state.get() {
                State::New => {
                    self.load(&own, bytes_max).await;
                    Ok(())
                }
                State::Building => self.build(&own, bytes_max).await,
                State::Ready => self.drain(&own, bytes_max).await,
                State::Full => self.await_room(&own, bytes_max).await,
                State::Closed => {
                    self.remove_saved(&own).await;
                    drop(own);
                    self.free().await;
                    if let Some(own) = engine.upgrade() {
                        self.share_cache(&own);
                    }
                    return;
                }
            };
            drop(own);
            match done {
                Err(StorageError::Closed) => return,
                Err(_) => lanes::time::sleep(RETRY_AFTER).await,
                Ok(()) if self.state.get() == State::Ready && self.queue.borrow().count == 0 => {
                    self.changed.notified().await;
                }
                Ok(()) if was_full && self.is_full() => {
                    let _ = lanes::time::timeout(CHECKED_EVERY, self.changed.notified()).await;
                }
                Ok(()) => {}
            }
        }
    }

    /// Puts the vectors of all rows of this core into the graph, and removes the others.
    async fn build(self: &Rc<Self>, engine: &Rc<Embedded>, bytes_max: usize) -> Result<(), StorageError> {
        // The scan has the rows that were queued before it.
        self.queue.take();
        let progress = WorkProgress::default();
        progress.set_parts(0, PARTS);
        let _listed = engine.shard.list_index_build(self.column.table, progress.clone());
        let nodes = self.nodes.clone();
        lanes::heavy(Group::INDEX, async move {
            if let Some(graph) = &mut *nodes.write() {
                graph.begin_scan();
            }
        })
        .await;
        let mut after = None;
        while self.state.get() == State::Building {
            let round = self.scan_round(engine, after, Some(bytes_max)).await?;
            if round.next.is_none() {
                self.remove_unmet(engine, bytes_max).await;
                break;
            }
            let token = round.next.as_ref().map_or(0, |(token, _)| *token);
            progress.set_parts((token as u64 ^ 1 << 63) / (u64::MAX / PARTS), PARTS);
            after = round.next;
        }
        if self.state.get() == State::Building && !self.queue.borrow().has_overflown {
            self.state.set(State::Ready);
        }
        Ok(())
    }

    /// Removes the nodes that a scan did not meet. A row that was written behind the scan is in the
    /// queue.
    async fn remove_unmet(self: &Rc<Self>, engine: &Rc<Embedded>, bytes_max: usize) {
        let nodes = self.nodes.clone();
        let unmet = async move { nodes.read().as_ref().map_or_else(Vec::new, Graph::unmet) };
        let unmet = lanes::heavy(Group::INDEX, unmet).await;
        for places in unmet.chunks(TAKEN_MAX) {
            if self.state.get() == State::Building {
                let changes = places.iter().map(|place| (place.clone(), None)).collect();
                self.store(engine, changes, bytes_max).await;
            }
        }
    }

    /// Scans some rows behind a partition. Puts their vectors into the graph, or counts them only
    /// if `bytes_max` is `None`.
    async fn scan_round(
        self: &Rc<Self>,
        engine: &Rc<Embedded>,
        after: Option<(i64, Bytes)>,
        bytes_max: Option<usize>,
    ) -> Result<Round, StorageError> {
        let now_s = engine.timestamps.next().now_s;
        let mut scan = engine.shard.scan(self.column.table, i64::MIN..=i64::MAX, after, now_s);
        let (mut changes, mut bytes, mut rows) = (Vec::new(), 0, 0);
        let mut round = Round { next: None, vectors: 0 };
        while let Some(piece) = scan.next_piece().await? {
            let mut stored = piece.view.rows();
            while let Some(row) = stored.next_stored() {
                rows += 1;
                let cell = row.as_ref().and_then(|row| row.cell(self.column.column));
                if let (Some(row), Some(vector)) = (&row, cell.and_then(|cell| cell.value())) {
                    round.vectors += 1;
                    if bytes_max.is_some() {
                        bytes += vector.len();
                        let place = place_of(piece.token, &piece.key, row.clustering());
                        changes.push((place, Some(Bytes::copy_from_slice(vector))));
                    }
                }
                if let Some(max) = bytes_max
                    && (changes.len() >= TAKEN_MAX || bytes >= TAKEN_BYTES_MAX)
                {
                    bytes = 0;
                    self.store(engine, std::mem::take(&mut changes), max).await;
                }
                if lanes::spend(ROW_UNITS) {
                    lanes::yield_now().await;
                }
            }
            if piece.last && rows >= ROUND_ROWS {
                round.next = Some((piece.token, piece.key));
                break;
            }
        }
        self.store(engine, changes, bytes_max.unwrap_or_default()).await;
        Ok(round)
    }

    /// Counts the rows of this core that have a vector.
    pub(super) async fn count_rows(self: &Rc<Self>, engine: &Rc<Embedded>) -> Result<u64, StorageError> {
        let (mut rows, mut after) = (0, None);
        loop {
            let round = self.scan_round(engine, after, None).await?;
            rows += round.vectors;
            after = round.next;
            if after.is_none() || !self.is_full() {
                return Ok(rows);
            }
        }
    }

    /// Gives the graph the vectors that queued rows have now.
    async fn drain(self: &Rc<Self>, engine: &Rc<Embedded>, bytes_max: usize) -> Result<(), StorageError> {
        loop {
            let taken = {
                let mut queue = self.queue.borrow_mut();
                if queue.sealed.is_empty() {
                    queue.seal();
                }
                match queue.sealed.front() {
                    Some(front) if self.state.get() == State::Ready => front.clone(),
                    _ => return Ok(()),
                }
            };
            let now_s = engine.timestamps.next().now_s;
            let (mut changes, mut seen) = (Vec::with_capacity(taken.len()), HashSet::new());
            for written in taken.iter().filter(|written| seen.insert(&written.place)) {
                if let Some(entry) = Entry::decode(&Bytes::new(), &written.place) {
                    let vector = self.vector_of(engine, &entry, now_s).await?;
                    changes.push((written.place.clone(), vector));
                }
                if lanes::spend(ROW_UNITS) {
                    lanes::yield_now().await;
                }
            }
            self.store(engine, changes, bytes_max).await;
            self.queue.borrow_mut().pop(&taken);
        }
    }

    /// Returns the vector of a row.
    async fn vector_of(
        &self,
        engine: &Rc<Embedded>,
        entry: &Entry,
        now_s: u32,
    ) -> Result<Option<Bytes>, StorageError> {
        let (columns, clustering) = ([self.column.column], entry.row.as_deref().unwrap_or_default());
        let pick = Pick { columns: Some(&columns), bypass_cache: true };
        let read = engine.shard.read_row(self.column.table, entry.token, &entry.key, clustering, pick, now_s);
        let row = read.wait().await?;
        let cell = row.as_ref().and_then(|row| row.cell(self.column.column));
        Ok(cell.and_then(|cell| cell.value().map(Bytes::copy_from_slice)))
    }

    /// Changes the graph on the heavy lane. Frees it beyond `bytes_max`. Saves it if enough has
    /// changed.
    async fn store(self: &Rc<Self>, engine: &Rc<Embedded>, changes: Vec<NodeChange>, bytes_max: usize) {
        if changes.is_empty() || !matches!(self.state.get(), State::Building | State::Ready) {
            return;
        }
        let (nodes, column) = (self.nodes.clone(), self.column.clone());
        let stored = lanes::heavy(Group::INDEX, async move {
            let mut stored = Stored::default();
            for change in changes {
                match nodes.change(&column, change) {
                    Some(Changed::Nothing) => {}
                    Some(Changed::Inserted) => stored.inserted += 1,
                    Some(Changed::Removed) => stored.removed += 1,
                    None => {
                        stored.has_failed = true;
                        break;
                    }
                }
                lanes::heavy_yield().await;
            }
            if let Some(graph) = &*nodes.read() {
                (stored.bytes, stored.nodes) = (graph.bytes(), graph.len());
            }
            stored
        });
        let stored = stored.await;
        self.count(stored.bytes);
        self.share_cache(engine);
        add(&self.counts.inserted, stored.inserted);
        add(&self.counts.removed, stored.removed);
        self.saves.count_changes(stored.inserted + stored.removed);
        if stored.has_failed || self.all_bytes.get() > bytes_max {
            self.set_full(engine, stored.nodes, bytes_max);
        } else {
            self.save_if_due(engine, stored.nodes, bytes_max);
        }
    }

    /// Takes the memory of all graphs of this core from its cache of table files.
    pub(super) fn share_cache(&self, engine: &Embedded) {
        engine.shard.lend_cache(self.all_bytes.get());
    }

    /// Frees the nodes.
    pub(super) async fn free(&self) {
        let nodes = self.nodes.clone();
        lanes::heavy(Group::INDEX, async move { drop(nodes.write().take()) }).await;
        self.queue.take();
        self.count(0);
    }
}

impl Embedded {
    /// Starts the background work of graphs that have none.
    pub(crate) fn start_graphs(&self) {
        for graph in self.indexes.new_graphs() {
            let work = graph.maintain(self.me.clone(), self.indexes.graph_bytes_max.get());
            lanes::spawn(Group::INDEX, work).detach();
        }
    }
}
