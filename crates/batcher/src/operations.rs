//! Operations on the store, with further attempts. Once one has failed for good, none begins.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::command::Overlay;
use crate::gate::Gate;
use crate::stamps::{BatcherClock, Stamps};
use crate::{Limits, Order, Store};

/// The store and the limits on its use.
pub(crate) struct Operations<S: Store> {
    store: S,
    pub(crate) limits: Limits,
    stamps: Mutex<Stamps>,
    gate: Arc<Gate>,
    /// The first failure for good.
    failure: OnceLock<Arc<S::Error>>,
}

/// Fate of the last value of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The write was not sent, or had no effect.
    NotSent,
    /// The write was sent and did not succeed: it may be applied.
    Unknown,
    Durable,
}

impl<S: Store> Operations<S> {
    pub(crate) fn new(store: S, limits: Limits, clock: BatcherClock, gate: Arc<Gate>) -> Operations<S> {
        Operations { store, limits, stamps: Mutex::new(Stamps::new(clock)), gate, failure: OnceLock::new() }
    }

    /// Returns the failure after which nothing is sent.
    pub(crate) fn failure(&self) -> Option<Arc<S::Error>> {
        self.failure.get().cloned()
    }

    /// Notes a failure for good. Returns the first one.
    fn fail(&self, error: S::Error) -> Arc<S::Error> {
        self.failure.get_or_init(|| Arc::new(error)).clone()
    }

    /// Returns a stamp for writes that begin now.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamps.lock().unwrap_or_else(PoisonError::into_inner).next(self.store.stamp_seen())
    }

    /// Returns the number of operations that may be in flight now.
    pub(crate) fn in_flight_max(&self) -> usize {
        self.gate.limit()
    }

    /// Returns the number of operations that are polled together: those in flight, and as many that
    /// wait at the gate.
    fn polled_max(&self) -> usize {
        self.limits.iops_in_flight.saturating_mul(2)
    }

    /// Reads slots concurrently. Returns their values in the order of completion.
    ///
    /// # Errors
    /// An operation has failed for good. Reads that had not begun are not sent.
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
            while in_flight.len() < self.polled_max()
                && let Some(slot) = slots.next()
            {
                in_flight.push(async move { self.read(slot).await.map(|value| (slot, value)) });
            }
            match in_flight.next().await {
                None => return Ok(values),
                Some(read) => values.push(read?),
            }
        }
    }

    /// Writes the last values of an overlay concurrently, with one stamp. Returns the fate of each
    /// written slot. After a failure no further write begins, and those in flight are awaited.
    pub(crate) async fn write_all<'a>(
        &self,
        overlay: &'a Overlay<S::Slot, S::Value>,
    ) -> Vec<(&'a S::Slot, Fate)> {
        let stamp = self.stamp();
        let mut written = overlay.iter().filter(|(_, current)| current.is_written);
        let mut fates = Vec::new();
        let mut in_flight = FuturesUnordered::new();
        loop {
            while in_flight.len() < self.polled_max()
                && let Some((slot, current)) = written.next()
            {
                in_flight.push(async move { (slot, self.write(slot, &current.value, stamp).await) });
            }
            match in_flight.next().await {
                None => return fates,
                Some(fate) => fates.push(fate),
            }
        }
    }

    /// Reads a slot.
    ///
    /// # Errors
    /// An operation has failed for good.
    pub(crate) async fn read(&self, slot: &S::Slot) -> Result<Option<S::Value>, Arc<S::Error>> {
        let mut left = self.limits.retries;
        loop {
            let permit = self.gate.enter().await;
            if let Some(reason) = self.failure() {
                return Err(reason);
            }
            let read = self.store.read(slot).await;
            permit.end(read.is_ok());
            match read {
                Ok(value) => return Ok(value),
                Err(_) if left > 0 => left -= 1,
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// Writes a value. A further attempt sends the same value with the same stamp, so that a late
    /// copy of an earlier attempt changes nothing.
    pub(crate) async fn write(&self, slot: &S::Slot, value: &Option<S::Value>, stamp: u64) -> Fate {
        let mut left = self.limits.retries;
        let mut fate = Fate::NotSent;
        loop {
            let permit = self.gate.enter().await;
            if self.failure.get().is_some() {
                return fate;
            }
            let written = self.store.write(slot, value.clone(), stamp).await;
            permit.end(written.is_ok());
            let Err(error) = written else { return Fate::Durable };
            let is_without_effect = self.store.is_without_effect(&error);
            if !is_without_effect {
                fate = Fate::Unknown;
            }
            if left == 0 || !(is_without_effect || S::ORDER == Order::Stamps) {
                self.fail(error);
                return fate;
            }
            left -= 1;
        }
    }
}
