//! Writes that span cores of which a part could not be applied, for example because the disk of
//! another core is full. Their entries stay in the batch log, and this core applies them again
//! until it succeeds, or until the server stops: then the next start does.

use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use engine::Error;
use lanes::Group;
use storage::{BatchInFlight, Event};

use super::entry::{Unfinished, deletion, stored_entry};
use crate::system::own_tables::BATCH_TABLE;
use crate::{ENGINES, Embedded, storage_error};

/// First and longest pause between two attempts.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

impl Embedded {
    /// Applies an entry of this core again, in the background, until all its parts are applied.
    /// Tombstones that may delete its rows are kept until then.
    pub(super) fn finish_later(&self, key: Bytes, number: Option<u32>, in_flight: BatchInFlight) {
        self.batch_log.unfinished.borrow_mut().push_back(Unfinished { key, number, in_flight });
        if !self.batch_log.is_retrying.replace(true) {
            lanes::spawn(Group::COMPACTION, retry(self.me.clone())).detach();
        }
    }

    /// Applies the entries in their order, up to the first one that fails. Returns true if none is
    /// left.
    async fn finish_all(&self) -> bool {
        let mut replayed = 0;
        let is_done = loop {
            let Some(key) = self.batch_log.unfinished.borrow().front().map(|entry| entry.key.clone()) else {
                break true;
            };
            if self.finish(&key).await.is_err() {
                break false;
            }
            let entry = self.batch_log.unfinished.borrow_mut().pop_front().expect("it was in front");
            entry.number.into_iter().for_each(|number| self.batch_log.release(number));
            replayed += 1;
        };
        if replayed > 0 {
            self.event_sink.send(&Event::BatchesReplayed { replayed, left: 0 });
        }
        is_done
    }

    /// Applies one entry and deletes it.
    async fn finish(&self, key: &Bytes) -> Result<(), Error> {
        let token = schema::token::token(key);
        let mut scan = self.shard.scan(BATCH_TABLE, token..=token, None, 0);
        while let Some((_, found, view)) = scan.next().await.map_err(storage_error)? {
            if found == *key {
                let (entry, timestamp) = stored_entry(&view);
                self.replay(entry, &self.data_of_all()).await?.map_err(storage_error)?;
                let deletion = deletion(key, timestamp.saturating_add(1));
                let deleted = self.shard.apply(vec![deletion]).map_err(storage_error)?;
                return deleted.await.map_err(storage_error);
            }
        }
        // It has never become durable, or its deletion was applied after all.
        Ok(())
    }
}

async fn retry(engine: Weak<Embedded>) {
    let mut pause = PAUSES[0];
    loop {
        lanes::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES[1]);
        let Some(engine) = engine.upgrade() else { return };
        // An engine that was opened on these lanes meanwhile has replayed the entries.
        let is_open = ENGINES.with(Weak::upgrade).flatten().is_some_and(|open| Rc::ptr_eq(&open, &engine));
        if !is_open {
            return;
        }
        if engine.finish_all().await {
            engine.batch_log.is_retrying.set(false);
            return;
        }
    }
}
