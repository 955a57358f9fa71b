//! Any key-value store with three functions as a [`Store`].

use std::future::Future;

use crate::{Order, Store};

/// A key-value store without stamps: the write that arrives last wins.
pub trait Kv {
    /// Name of a value.
    type Key: Ord + Clone;
    /// Content.
    type Value: Clone;
    /// Failure of an operation.
    type Error;

    /// Returns the value of a key. The result contains each write that was acknowledged before.
    ///
    /// # Errors
    /// The value could not be read.
    fn get(&self, key: &Self::Key) -> impl Future<Output = Result<Option<Self::Value>, Self::Error>>;

    /// Sets the value of a key. Returns when it is durable.
    ///
    /// # Errors
    /// See [`Kv::is_without_effect`].
    fn set(&self, key: &Self::Key, value: Self::Value) -> impl Future<Output = Result<(), Self::Error>>;

    /// Removes a key. Returns when the removal is durable.
    ///
    /// # Errors
    /// See [`Kv::is_without_effect`].
    fn del(&self, key: &Self::Key) -> impl Future<Output = Result<(), Self::Error>>;

    /// Returns true if a `set` or `del` that failed has had no effect and never will, for instance
    /// because the connection was refused. Only such operations are tried again. A second copy of
    /// any other could overwrite a newer value.
    fn is_without_effect(&self, error: &Self::Error) -> bool {
        let _ = error;
        false
    }
}

/// A [`Kv`] as a [`Store`] with [`Order::OneInFlight`].
#[derive(Clone, Debug)]
pub struct KvStore<K>(pub K);

impl<K: Kv> Store for KvStore<K> {
    type Slot = K::Key;
    type Value = K::Value;
    type Error = K::Error;

    const ORDER: Order = Order::OneInFlight;

    async fn read(&self, key: &K::Key) -> Result<Option<K::Value>, K::Error> {
        self.0.get(key).await
    }

    async fn write(&self, key: &K::Key, value: Option<K::Value>, _stamp: u64) -> Result<(), K::Error> {
        match value {
            Some(value) => self.0.set(key, value).await,
            None => self.0.del(key).await,
        }
    }

    fn is_without_effect(&self, error: &K::Error) -> bool {
        self.0.is_without_effect(error)
    }
}
