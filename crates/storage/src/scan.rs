//! A scan of a token range: live partitions in (token, key) order.
//!
//! The snapshot is taken when the scan starts and costs O(1): later writes are not seen. Sources are read a few
//! entries at a time, so a scan that is dropped early has cost little, and callers may yield between partitions.
//! Blocks of files are read past the cache, so that a scan does not push out what point reads use.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::StorageError;
use crate::merge::MergeStream;
use crate::view::PartitionView;
use crate::world::World;

/// A scan in progress.
#[derive(Debug)]
pub struct Scan {
    stream: MergeStream,
    world: Arc<dyn World>,
    now_s: u32,
    dead: u64,
}

impl Scan {
    pub(crate) fn new(stream: MergeStream, world: Arc<dyn World>, now_s: u32) -> Scan {
        Scan { stream, world, now_s, dead: 0 }
    }

    /// The next partition that has anything alive: its token, key and contents. `None` ends the scan.
    pub async fn next(&mut self) -> Result<Option<(i64, Bytes, PartitionView)>, StorageError> {
        while let Some((token, key, partition)) = self.stream.next().await? {
            let view = PartitionView::new(partition, self.now_s);
            if self.has_live(&view).await {
                return Ok(Some((token, key, view)));
            }
            // A partition that was deleted as a whole is work, and no row that a page passes over.
        }
        Ok(None)
    }

    /// Whether anything is alive in a partition. There may be millions of dead rows in one, and of
    /// dead partitions behind each other.
    async fn has_live(&mut self, view: &PartitionView) -> bool {
        if view.static_cells().next().is_some() {
            return true;
        }
        let mut rows = view.rows();
        loop {
            if let Some(pause) = self.world.spend(1) {
                pause.await;
            }
            match rows.next_stored() {
                Some(Some(_)) => return true,
                Some(None) => self.dead += 1,
                None => return false,
            }
        }
    }

    /// Dead rows and partitions gone through since the last call.
    pub fn take_dead(&mut self) -> u64 {
        std::mem::take(&mut self.dead)
    }
}
