//! The store: what the batcher needs of a database.

use std::future::Future;

/// Order of two writes of the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each write carries a stamp, and the write with the larger stamp wins in whatever order they
    /// arrive. Cassandra and ScyllaDB: `USING TIMESTAMP`. A write may be sent again.
    Stamps,
    /// The write that arrives last wins. Two writes of a slot are never in flight together, and a
    /// write of unknown outcome is not sent again: the late copy would overwrite newer values.
    OneInFlight,
}

/// A key-value store or a database.
///
/// Bounds on the time of an operation, and pauses between attempts, are the store's: it knows its
/// driver and its runtime.
pub trait Store {
    /// Name of a slot: partition key and clustering key.
    type Slot: Ord + Clone;
    /// Content of a slot.
    type Value: Clone;
    /// Failure of an operation.
    type Error;

    /// Order of two writes of the same slot.
    const ORDER: Order;

    /// Reads a slot. `None`: it is empty. The result contains each write that was acknowledged
    /// before the call.
    ///
    /// # Errors
    /// The value could not be read. The batcher reads again, at most [`crate::Limits::retries`]
    /// times.
    fn read(&self, slot: &Self::Slot) -> impl Future<Output = Result<Option<Self::Value>, Self::Error>>;

    /// Writes a whole slot, or deletes it with `None`. Returns when the write is durable. `stamp`
    /// is larger than that of each earlier write of the slot, and at least the wall clock, in µs
    /// since 1970, at which the write began.
    ///
    /// # Errors
    /// The write may have been applied, or may be applied later, unless
    /// [`Store::is_without_effect`] says otherwise.
    fn write(
        &self,
        slot: &Self::Slot,
        value: Option<Self::Value>,
        stamp: u64,
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// Returns true if the write that failed has had no effect and never will. With
    /// [`Order::OneInFlight`] only such writes are sent again.
    fn is_without_effect(&self, error: &Self::Error) -> bool {
        let _ = error;
        false
    }

    /// Returns the largest stamp that reads have returned so far, 0 without one. Stamps of later
    /// writes are larger, so that they win even if the clock stepped back since the last run. A
    /// slot that is written without having been read remains at risk.
    fn stamp_seen(&self) -> u64 {
        0
    }
}
