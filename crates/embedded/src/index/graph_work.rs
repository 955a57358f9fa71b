//! Background work on a graph of vectors: making it of the rows of this core, and giving it the
//! rows that were written. The head of [`crate::index::graph`] has the steps.

use std::collections::HashSet;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use lanes::Group;
use storage::{Pick, StorageError};
use vectors::Graph;

use crate::Embedded;
use crate::index::entry::Entry;
use crate::index::graph::{NodeChange, State, TAKEN_MAX, VectorGraph};
use crate::index::vectors::place_of;

/// Bytes of vectors that are taken from a scan at a time.
const TAKEN_BYTES_MAX: usize = 256 << 10;

/// Rows after which a scan is opened again, so that it holds no files for long.
const ROUND_ROWS: u64 = 4096;

/// Work units of reading a row.
const ROW_UNITS: u32 = 4;

/// Pause after a failed read.
const RETRY_AFTER: Duration = Duration::from_secs(5);

impl VectorGraph {
    /// Keeps the graph up to date until it is closed, or has no memory.
    pub(crate) async fn maintain(self: Rc<Self>, engine: Weak<Embedded>, bytes_max: usize) {
        loop {
            let Some(own) = engine.upgrade() else { return };
            let done = match self.state.get() {
                State::Building => self.build(&own, bytes_max).await,
                State::Ready => self.drain(&own, bytes_max).await,
                State::Full | State::Closed => {
                    drop(own);
                    self.free().await;
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
                Ok(()) => {}
            }
        }
    }

    /// Puts the vectors of all rows of this core into the graph.
    async fn build(&self, engine: &Rc<Embedded>, bytes_max: usize) -> Result<(), StorageError> {
        // The scan has the rows that were queued before it.
        self.queue.take();
        let mut after = None;
        loop {
            after = match self.build_round(engine, after, bytes_max).await? {
                Some(after) if self.state.get() == State::Building => Some(after),
                _ => break,
            };
        }
        if self.state.get() == State::Building && !self.queue.borrow().has_overflown {
            self.state.set(State::Ready);
        }
        Ok(())
    }

    /// Scans some rows. Returns the last partition, unless it has reached the end.
    async fn build_round(
        &self,
        engine: &Rc<Embedded>,
        after: Option<(i64, Bytes)>,
        bytes_max: usize,
    ) -> Result<Option<(i64, Bytes)>, StorageError> {
        let now_s = engine.timestamps.next().now_s;
        let mut scan = engine.shard.scan(self.column.table, i64::MIN..=i64::MAX, after, now_s);
        let (mut changes, mut bytes, mut rows) = (Vec::new(), 0, 0);
        while let Some(piece) = scan.next_piece().await? {
            let mut stored = piece.view.rows();
            while let Some(row) = stored.next_stored() {
                rows += 1;
                let cell = row.as_ref().and_then(|row| row.cell(self.column.column));
                if let (Some(row), Some(vector)) = (&row, cell.and_then(|cell| cell.value())) {
                    bytes += vector.len();
                    let place = place_of(piece.token, &piece.key, row.clustering());
                    changes.push((place, Some(Bytes::copy_from_slice(vector))));
                }
                if changes.len() >= TAKEN_MAX || bytes >= TAKEN_BYTES_MAX {
                    bytes = 0;
                    self.store(std::mem::take(&mut changes), bytes_max).await;
                }
                if lanes::spend(ROW_UNITS) {
                    lanes::yield_now().await;
                }
            }
            if piece.last && rows >= ROUND_ROWS {
                self.store(changes, bytes_max).await;
                return Ok(Some((piece.token, piece.key)));
            }
        }
        self.store(changes, bytes_max).await;
        Ok(None)
    }

    /// Gives the graph the vectors that queued rows have now.
    async fn drain(&self, engine: &Rc<Embedded>, bytes_max: usize) -> Result<(), StorageError> {
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
            self.store(changes, bytes_max).await;
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

    /// Changes the graph on the heavy lane. Frees it beyond `bytes_max`.
    async fn store(&self, changes: Vec<NodeChange>, bytes_max: usize) {
        if changes.is_empty() {
            return;
        }
        let (nodes, column) = (self.nodes.clone(), self.column.clone());
        let bytes = lanes::heavy(Group::INDEX, async move {
            for change in changes {
                if !nodes.change(&column, change) {
                    return None;
                }
                lanes::heavy_yield().await;
            }
            Some(nodes.read().as_ref().map_or(0, Graph::bytes))
        });
        let bytes = bytes.await;
        self.count(bytes.unwrap_or(self.bytes.get()));
        if bytes.is_none() || self.all_bytes.get() > bytes_max {
            self.state.set(State::Full);
            self.queue.take();
        }
    }

    /// Frees the nodes.
    async fn free(&self) {
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
