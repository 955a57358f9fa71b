//! Changes by other writes to partitions that are being changed in a copy, see
//! [`crate::Shard::apply_yielding`].

use bytes::Bytes;

use crate::model::{Change, Mutation, TableId};

/// The copies in progress, and what other writes change in their partitions.
#[derive(Debug, Default)]
pub(crate) struct Recordings(Vec<Recorded>);

/// Changes by other writes of a partition, while a copy of it is changed.
#[derive(Debug)]
struct Recorded {
    number: u64,
    table: TableId,
    token: i64,
    key: Bytes,
    changes: Vec<Change>,
}

impl Recorded {
    fn is_of(&self, mutation: &Mutation) -> bool {
        self.token == mutation.token && self.table == mutation.table && self.key == mutation.key
    }
}

impl Recordings {
    /// Returns true if no copy is being changed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records a write for the copies of its partition.
    #[inline]
    pub(crate) fn record(&mut self, mutation: &Mutation) {
        for recorded in self.0.iter_mut().filter(|recorded| recorded.is_of(mutation)) {
            recorded.changes.extend_from_slice(&mutation.changes);
        }
    }

    /// Returns true if a copy of the partition is being changed.
    pub(crate) fn has(&self, mutation: &Mutation) -> bool {
        self.0.iter().any(|recorded| recorded.is_of(mutation))
    }

    /// Starts to record changes of a partition. Returns the number of the recording.
    pub(crate) fn begin(&mut self, mutation: &Mutation) -> u64 {
        let number = self.0.last().map_or(1, |last| last.number + 1);
        let Mutation { table, token, ref key, .. } = *mutation;
        self.0.push(Recorded { number, table, token, key: key.clone(), changes: Vec::new() });
        number
    }

    /// Takes the changes recorded so far.
    pub(crate) fn take(&mut self, number: u64) -> Vec<Change> {
        let own = self.0.iter_mut().find(|recorded| recorded.number == number);
        own.map(|own| std::mem::take(&mut own.changes)).unwrap_or_default()
    }

    /// Ends a recording.
    pub(crate) fn end(&mut self, number: u64) {
        self.0.retain(|recorded| recorded.number != number);
    }
}
