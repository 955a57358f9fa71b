//! Operations on the store, with further attempts and a bound on those in flight.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;

use crate::command::Overlay;
use crate::stamps::Stamps;
use crate::{Limits, Order, Store};

/// The store and the limits on its use.
#[derive(Debug)]
pub(crate) struct Operations<S> {
    store: S,
    pub(crate) limits: Limits,
    stamps: Mutex<Stamps>,
    /// Operations that may still begin.
    free: Semaphore,
}

/// Fate of the last value of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    NotSent,
    /// The write was sent and did not succeed: it may be applied.
    Unknown,
    Durable,
}

impl<S: Store> Operations<S> {
    pub(crate) fn new(store: S, limits: Limits, stamps: Stamps) -> Operations<S> {
        let free = Semaphore::new(limits.iops_in_flight.min(Semaphore::MAX_PERMITS));
        Operations { store, limits, stamps: Mutex::new(stamps), free }
    }

    /// Returns a stamp for writes that begin now.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamps.lock().unwrap_or_else(PoisonError::into_inner).next(self.store.stamp_seen())
    }

    /// Reads slots concurrently. Returns their values in the order of completion.
    ///
    /// # Errors
    /// A read failed for good. Reads that had not begun are not sent.
    pub(crate) async fn read_all<'a>(
        &self,
        slots: impl IntoIterator<Item = &'a S::Slot>,
    ) -> Result<Vec<(&'a S::Slot, Option<S::Value>)>, Arc<S::Error>>
    where
        S::Slot: 'a,
    {
        let mut slots = slots.into_iter();
        let mut values = Vec::new();
        let mut in_flight = FuturesUnordered::new();
        loop {
            while in_flight.len() < self.limits.iops_in_flight
                && let Some(slot) = slots.next()
            {
                in_flight.push(async move { self.read(slot).await.map(|value| (slot, value)) });
            }
            match in_flight.next().await {
                None => return Ok(values),
                Some(read) => values.push(read.map_err(Arc::new)?),
            }
        }
    }

    /// Writes the last values of an overlay concurrently, with one stamp. Returns the fate of each
    /// written slot, and the first failure. After it no further write begins, and those in flight
    /// are awaited.
    pub(crate) async fn write_all<'a>(
        &self,
        overlay: &'a Overlay<S::Slot, S::Value>,
    ) -> (Vec<(&'a S::Slot, Fate)>, Option<Arc<S::Error>>) {
        let stamp = self.stamp();
        let written = overlay.iter().filter(|(_, current)| current.is_written);
        let mut fates: Vec<(&S::Slot, Fate)> = Vec::new();
        let mut values = Vec::new();
        for (slot, current) in written {
            fates.push((slot, Fate::NotSent));
            values.push(&current.value);
        }
        let (mut next, mut failure) = (0, None);
        let mut in_flight = FuturesUnordered::new();
        loop {
            while failure.is_none() && in_flight.len() < self.limits.iops_in_flight && next < values.len() {
                let (index, slot, value) = (next, fates[next].0, values[next]);
                fates[index].1 = Fate::Unknown;
                in_flight.push(async move { (index, self.write(slot, value, stamp).await) });
                next += 1;
            }
            let Some((index, done)) = in_flight.next().await else { return (fates, failure) };
            match done {
                Ok(()) => fates[index].1 = Fate::Durable,
                Err(reason) => drop(failure.get_or_insert_with(|| Arc::new(reason))),
            }
        }
    }

    async fn read(&self, slot: &S::Slot) -> Result<Option<S::Value>, S::Error> {
        let mut left = self.limits.retries;
        loop {
            let permit = self.free.acquire().await;
            let read = self.store.read(slot).await;
            drop(permit);
            match read {
                Err(_) if left > 0 => left -= 1,
                read => return read,
            }
        }
    }

    /// Writes a value. A further attempt sends the same value with the same stamp, so that a late
    /// copy of an earlier attempt changes nothing.
    async fn write(&self, slot: &S::Slot, value: &Option<S::Value>, stamp: u64) -> Result<(), S::Error> {
        let mut left = self.limits.retries;
        loop {
            let permit = self.free.acquire().await;
            let written = self.store.write(slot, value.clone(), stamp).await;
            drop(permit);
            match written {
                Err(error)
                    if left > 0 && (S::ORDER == Order::Stamps || self.store.is_without_effect(&error)) =>
                {
                    left -= 1;
                }
                written => return written,
            }
        }
    }
}
