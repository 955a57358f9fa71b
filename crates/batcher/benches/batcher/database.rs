//! A simulated database of counters, and the command that counts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::rc::Rc;

use batcher::{Command, Footprint, Order, Store, View};

use crate::executor::{now_us, sleep_us};

/// Response times of a database.
pub(crate) trait ResponseTimes {
    /// Returns the response time of the next operation, µs. `in_flight` includes it.
    fn next_us(&mut self, in_flight: usize) -> u64;
}

#[derive(Debug)]
struct Content<T> {
    times: T,
    values: HashMap<u32, u64>,
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
#[derive(Debug)]
pub(crate) struct Database<T>(Rc<RefCell<Content<T>>>);

impl<T> Clone for Database<T> {
    fn clone(&self) -> Self {
        Database(self.0.clone())
    }
}

impl<T> Content<T> {
    fn change(&mut self, by: isize) {
        let now = now_us();
        self.integral += self.in_flight as f64 * (now - self.since_us) as f64;
        self.since_us = now;
        self.in_flight = self.in_flight.checked_add_signed(by).expect("no more end than began");
        self.most = self.most.max(self.in_flight);
    }
}

impl<T: ResponseTimes> Database<T> {
    /// Returns an empty database.
    pub(crate) fn new(times: T) -> Self {
        Database(Rc::new(RefCell::new(Content {
            times,
            values: HashMap::new(),
            in_flight: 0,
            operations: 0,
            most: 0,
            integral: 0.0,
            since_us: 0,
        })))
    }

    /// Returns the observations since the last call.
    pub(crate) fn take(&self) -> Observed {
        let mut content = self.0.borrow_mut();
        content.change(0);
        let found = Observed {
            operations: content.operations,
            in_flight_most: content.most,
            integral_us: content.integral,
        };
        content.operations = 0;
        content.most = content.in_flight;
        content.integral = 0.0;
        found
    }

    /// Returns the sum of all counters.
    pub(crate) fn sum(&self) -> u64 {
        self.0.borrow().values.values().sum()
    }

    async fn operation(&self) {
        let us = {
            let content = &mut *self.0.borrow_mut();
            content.change(1);
            content.times.next_us(content.in_flight)
        };
        sleep_us(us).await;
        let mut content = self.0.borrow_mut();
        content.operations += 1;
        content.change(-1);
    }
}

impl<T: ResponseTimes> Store for Database<T> {
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

/// Adds 1 to its key. Returns the count.
pub(crate) struct Count(pub(crate) u32);

impl Command<u32, u64> for Count {
    type Out = u64;

    fn footprint(&self, footprint: &mut Footprint<u32>) {
        footprint.reads.push(self.0);
        footprint.writes.push(self.0);
    }

    fn apply(self, view: &mut View<'_, u32, u64>) -> u64 {
        let count = view.get(&self.0).copied().unwrap_or(0) + 1;
        view.set(&self.0, count);
        count
    }
}
