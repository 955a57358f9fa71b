//! The simulated database. A response takes R = 10 · S: the network's part is constant, and the
//! service time S follows the Universal Scalability Law.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::rc::Rc;

use batcher::{Order, Store};

use crate::executor::{now_us, sleep_us};

/// Response time of a single operation, µs.
pub(crate) const RESPONSE_US: u64 = 2000;
const SERVICE_US: f64 = RESPONSE_US as f64 / 10.0;
/// Contention and coherence of the service time. Those of the response time are a tenth.
const SIGMA: f64 = 0.02;
const KAPPA: f64 = 0.0001;

/// Operations in flight with the highest throughput: √((1 − σ) ÷ κ) with σ = 0.002, κ = 0.00001.
pub(crate) const PEAK_N: f64 = 315.9;
/// Throughput there: 500 · N ÷ (1 + σ · (N − 1) + κ · N · (N − 1)).
pub(crate) const PEAK_PER_S: f64 = 60_194.0;

#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) values: HashMap<u32, u64>,
    in_flight: usize,
    /// Since the last call of [`Database::take`].
    operations: u64,
    most: usize,
    /// Integral of the operations in flight over time, µs.
    integral: f64,
    since_us: u64,
}

/// Observations of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    pub(crate) operations: u64,
    pub(crate) in_flight_most: usize,
    /// Integral of the operations in flight over time, µs.
    pub(crate) integral_us: f64,
}

/// The database. Clones share the content.
#[derive(Clone, Debug, Default)]
pub(crate) struct Database(pub(crate) Rc<RefCell<Content>>);

impl Content {
    fn change(&mut self, by: isize) {
        let now = now_us();
        self.integral += self.in_flight as f64 * (now - self.since_us) as f64;
        self.since_us = now;
        self.in_flight = self.in_flight.checked_add_signed(by).expect("no more end than began");
        self.most = self.most.max(self.in_flight);
    }
}

impl Database {
    /// Returns the observations since the last call.
    pub(crate) fn take(&self) -> Observed {
        let mut content = self.0.borrow_mut();
        content.change(0);
        let found = Observed {
            operations: content.operations,
            in_flight_most: content.most,
            integral_us: content.integral,
        };
        (content.operations, content.most, content.integral) = (0, content.in_flight, 0.0);
        found
    }

    async fn operation(&self) {
        let latency_us = {
            let mut content = self.0.borrow_mut();
            content.change(1);
            let n = content.in_flight as f64;
            let law = 1.0 + SIGMA * (n - 1.0) + KAPPA * n * (n - 1.0);
            RESPONSE_US as f64 - SERVICE_US + SERVICE_US * law
        };
        sleep_us(latency_us as u64).await;
        let mut content = self.0.borrow_mut();
        content.operations += 1;
        content.change(-1);
    }
}

impl Store for Database {
    type Slot = u32;
    type Value = u64;
    type Error = Infallible;

    const ORDER: Order = Order::Stamps;

    async fn read(&self, slot: &u32) -> Result<Option<u64>, Infallible> {
        self.operation().await;
        Ok(self.0.borrow().values.get(slot).copied())
    }

    async fn write(&self, slot: &u32, value: Option<u64>, _stamp: u64) -> Result<(), Infallible> {
        self.operation().await;
        let mut content = self.0.borrow_mut();
        match value {
            Some(value) => content.values.insert(*slot, value),
            None => content.values.remove(slot),
        };
        Ok(())
    }
}
