//! Point reads: what memory knows of a key, merged with what files know.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use crate::block::Block;
use crate::cache::Cache;
use crate::error::StorageError;
use crate::partition::Partition;
use crate::table_file::{Lookup, Step};
use crate::world::LocalBoxFuture;

/// A read: done at once when all it needs is in memory, otherwise a future.
pub enum Read<T> {
    /// The answer.
    Ready(T),
    /// The answer once blocks have been read from disk.
    Pending(LocalBoxFuture<Result<T, StorageError>>),
}

impl<T> fmt::Debug for Read<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// A point read in progress.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    pub(crate) found: Option<Partition>,
    pub(crate) lookups: Vec<Lookup>,
}

impl Gather {
    pub(crate) fn add(&mut self, partition: Partition) {
        self.found = Some(match self.found.take() {
            None => partition,
            Some(found) => found.merge(partition),
        });
    }

    /// Goes on as far as the cache allows, starting with the block asked for last. Answers with the block that has to
    /// be read from disk, or `None` at the end.
    pub(crate) fn advance(
        &mut self,
        cache: &RefCell<Cache>,
        mut block: Option<Arc<Block>>,
    ) -> Result<Option<usize>, StorageError> {
        while let Some(lookup) = self.lookups.last_mut() {
            match lookup.step(block.take().as_deref())? {
                Step::Done(partition) => {
                    self.lookups.pop();
                    partition.into_iter().for_each(|partition| self.add(partition));
                }
                Step::Need(index) => match cache.borrow_mut().get(lookup.file.id, index) {
                    Some(cached) => block = Some(cached),
                    None => return Ok(Some(index)),
                },
            }
        }
        Ok(None)
    }

    /// Reads what the cache lacks. `missing` is what `advance` answered.
    pub(crate) async fn finish(
        mut self,
        cache: &RefCell<Cache>,
        missing: usize,
    ) -> Result<Option<Partition>, StorageError> {
        let mut missing = Some(missing);
        while let Some(index) = missing {
            let file = self.lookups.last().expect("a block is missing for a lookup").file.clone();
            let block = file.read_block(index).await?;
            cache.borrow_mut().insert(file.id, index, block.clone());
            missing = self.advance(cache, Some(block))?;
        }
        Ok(self.found)
    }
}
