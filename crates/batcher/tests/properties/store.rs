//! A simulated store: random latencies and faults. It checks the order of writes (P4) and the
//! operations in flight (P7).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use batcher::{Order, Store};
use tokio::sync::oneshot;

use crate::executor::{now_us, sleep_us, spawn};
use crate::history::Value;
use testkit::Random;

/// Faults, in percent of operations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Failures without effect, known as such.
    pub(crate) refused: u64,
    /// Failures with unknown outcome: the request or the answer was lost, or the write is late.
    pub(crate) unknown: u64,
    /// Successful writes of which a late copy arrives. Only stores with stamps can bear it.
    pub(crate) copied: u64,
}

/// Reason of a failed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Refused,
    Unknown,
}

/// A read or a write that a batcher sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) at_us: u64,
    pub(crate) slot: u32,
    pub(crate) is_write: bool,
}

/// The content of the store, and observations.
#[derive(Debug)]
pub(crate) struct Content {
    random: Random,
    pub(crate) faults: Faults,
    /// Latency of an operation: `fixed_us`, and at random up to `random_us` more.
    pub(crate) fixed_us: u64,
    pub(crate) random_us: u64,
    /// Exponent of Pareto's law, if the random part of latencies follows it. The mean is the same.
    pub(crate) tail: Option<f64>,
    /// A slot whose operations take this many µs.
    pub(crate) slow: Option<(u32, u64)>,
    /// Contention and coherence of the server: latencies rise with the operations in flight.
    pub(crate) law: Option<(f64, f64)>,
    /// Maximum number of operations in flight.
    pub(crate) in_flight_max: usize,
    in_flight: usize,
    /// Largest number of operations in flight so far.
    pub(crate) in_flight_most: usize,
    values: BTreeMap<u32, (u64, Option<Value>)>,
    /// The largest stamp that reads have returned.
    stamp_seen: u64,
    /// Writes of a slot in flight, and the stamp and value of the last write sent.
    writes: BTreeMap<u32, usize>,
    last_sent: BTreeMap<u32, (u64, Option<Value>)>,
    pub(crate) sent: Vec<Sent>,
    /// Values that were ever written.
    pub(crate) applied: Vec<(u32, Option<Value>)>,
}

/// The store, with stamps or without. Clones share the content.
#[derive(Clone, Debug)]
pub(crate) struct Sim<const STAMPS: bool>(pub(crate) Rc<RefCell<Content>>);

impl<const STAMPS: bool> Sim<STAMPS> {
    pub(crate) fn new(seed: u64, in_flight_max: usize) -> Sim<STAMPS> {
        Sim(Rc::new(RefCell::new(Content {
            random: Random::new(seed ^ 0x5151),
            faults: Faults::default(),
            fixed_us: 100,
            random_us: 2000,
            tail: None,
            slow: None,
            law: None,
            in_flight_max,
            in_flight: 0,
            in_flight_most: 0,
            values: BTreeMap::new(),
            stamp_seen: 0,
            writes: BTreeMap::new(),
            last_sent: BTreeMap::new(),
            sent: Vec::new(),
            applied: Vec::new(),
        })))
    }

    /// Returns the slots that are not empty.
    pub(crate) fn values(&self) -> BTreeMap<u32, Value> {
        let content = self.0.borrow();
        content.values.iter().filter_map(|(slot, (_, value))| Some((*slot, (*value)?))).collect()
    }

    /// Prepares for another program: that before has ended. Its writes may still be in flight.
    pub(crate) fn restart(&self) {
        let mut content = self.0.borrow_mut();
        content.in_flight = 0;
        content.writes.clear();
        content.last_sent.clear();
    }

    fn begin(&self, slot: u32, is_write: bool) {
        let mut content = self.0.borrow_mut();
        content.in_flight += 1;
        content.in_flight_most = content.in_flight_most.max(content.in_flight);
        assert!(content.in_flight <= content.in_flight_max, "more operations in flight than the limit");
        content.sent.push(Sent { at_us: now_us(), slot, is_write });
    }

    fn latency_us(&self, slot: u32) -> u64 {
        let mut content = self.0.borrow_mut();
        if let Some((_, us)) = content.slow.filter(|(slow, _)| *slow == slot) {
            return us;
        }
        let random_us = match content.tail {
            None => {
                let most = content.random_us + 1;
                content.random.below(most)
            }
            Some(alpha) => {
                let least_us = content.random_us as f64 / 2.0 * (alpha - 1.0) / alpha;
                (least_us * content.random.fraction().powf(-1.0 / alpha)) as u64
            }
        };
        let latency_us = content.fixed_us + random_us;
        let Some((sigma, kappa)) = content.law else { return latency_us };
        let n = content.in_flight as f64;
        (latency_us as f64 * (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0))) as u64
    }

    fn chance(&self, percent: impl Fn(&Faults) -> u64) -> bool {
        let mut content = self.0.borrow_mut();
        let percent = percent(&content.faults);
        content.random.below(100) < percent
    }

    fn apply(&self, slot: u32, value: Option<Value>, stamp: u64) {
        let mut content = self.0.borrow_mut();
        let known = content.values.get(&slot).map_or(0, |known| known.0);
        if !STAMPS || stamp > known {
            content.values.insert(slot, (stamp, value));
            content.applied.push((slot, value));
        }
    }

    /// Applies a write at a later time, as a delayed packet would.
    fn apply_late(&self, slot: u32, value: Option<Value>, stamp: u64) {
        let store = self.clone();
        let after_us = 10 * self.latency_us(slot);
        spawn(async move {
            sleep_us(after_us).await;
            store.apply(slot, value, stamp);
        });
    }

    async fn write_one(&self, slot: u32, value: Option<Value>, stamp: u64) -> Result<(), Fault> {
        sleep_us(self.latency_us(slot)).await;
        if self.chance(|faults| faults.refused) {
            return Err(Fault::Refused);
        }
        if self.chance(|faults| faults.unknown) {
            let fate = self.0.borrow_mut().random.below(3);
            match fate {
                0 => self.apply(slot, value, stamp),
                1 => self.apply_late(slot, value, stamp),
                _ => {}
            }
            sleep_us(self.latency_us(slot)).await;
            return Err(Fault::Unknown);
        }
        self.apply(slot, value, stamp);
        if self.chance(|faults| faults.copied) {
            self.apply_late(slot, value, stamp);
        }
        Ok(())
    }
}

impl<const STAMPS: bool> Store for Sim<STAMPS> {
    type Slot = u32;
    type Value = Value;
    type Error = Fault;

    const ORDER: Order = if STAMPS { Order::Stamps } else { Order::OneInFlight };

    async fn read(&self, slot: &u32) -> Result<Option<Value>, Fault> {
        self.begin(*slot, false);
        sleep_us(self.latency_us(*slot)).await;
        let is_lost = self.chance(|faults| faults.refused + faults.unknown);
        let mut content = self.0.borrow_mut();
        content.in_flight -= 1;
        let (stamp, value) = content.values.get(slot).copied().unwrap_or_default();
        content.stamp_seen = content.stamp_seen.max(stamp);
        if is_lost { Err(Fault::Unknown) } else { Ok(value) }
    }

    async fn write(&self, slot: &u32, value: Option<Value>, stamp: u64) -> Result<(), Fault> {
        self.begin(*slot, true);
        {
            let mut content = self.0.borrow_mut();
            let writes = content.writes.entry(*slot).or_default();
            *writes += 1;
            assert_eq!(*writes, 1, "two writes of a slot are in flight");
            if let Some(before) = content.last_sent.insert(*slot, (stamp, value)) {
                // The same value with the same stamp is a further attempt.
                assert!(stamp > before.0 || (stamp, value) == before, "stamps of a slot increase");
            }
        }
        // The server goes on if the program ends.
        let (answer, answered) = oneshot::channel();
        let store = self.clone();
        let slot = *slot;
        spawn(async move { _ = answer.send(store.write_one(slot, value, stamp).await) });
        let written = answered.await.unwrap_or(Err(Fault::Unknown));
        let mut content = self.0.borrow_mut();
        content.in_flight -= 1;
        *content.writes.get_mut(&slot).unwrap() -= 1;
        written
    }

    fn stamp_seen(&self) -> u64 {
        self.0.borrow().stamp_seen
    }

    fn is_without_effect(&self, error: &Fault) -> bool {
        *error == Fault::Refused
    }
}
