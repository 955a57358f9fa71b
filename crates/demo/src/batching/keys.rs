//! Keys of a phase, the command that uses them, and the model that its results must equal.

use std::collections::HashMap;

use batcher::{Command, Footprint, View};

/// Key of a row.
pub(super) type Key = (i32,);
/// Values of a row: the number of changes, and a digest of them that depends on their order.
pub(super) type RowValues = (i64, i64);

/// Keys of a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) id: &'static str,
    pub(super) label: &'static str,
    /// Number of keys, each used equally often.
    pub(super) count: u64,
    /// Commands of the first key, in percent, beside its part of the rest.
    pub(super) hot_percent: u64,
    /// Commands that are due at the begin of the phase, beside those of the rate.
    pub(super) backlog: u64,
}

impl Keys {
    /// Returns the key of a command.
    pub(super) fn draw(&self, random: &mut Random) -> Key {
        let is_hot = random.next() % 100 < self.hot_percent;
        let key = if is_hot { 0 } else { random.next() % self.count };
        (i32::try_from(key).expect("fewer keys than 2³¹"),)
    }
}

/// The generator splitmix64.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }
}

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Adds its number to the digest of a row. Any other order has another result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) key: Key,
    pub(super) number: u64,
}

impl Change {
    fn after(self, (changes, digest): RowValues) -> RowValues {
        (changes + 1, mix(digest.cast_unsigned() ^ self.number).cast_signed())
    }
}

impl Command<Key, RowValues> for Change {
    type Out = RowValues;

    fn footprint(&self, footprint: &mut Footprint<Key>) {
        footprint.reads.push(self.key);
        footprint.writes.push(self.key);
    }

    fn apply(self, view: &mut View<'_, Key, RowValues>) -> RowValues {
        let row = self.after(view.get(&self.key).copied().unwrap_or_default());
        view.set(&self.key, row);
        row
    }
}

/// The rows after running all commands one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Model(HashMap<Key, RowValues>);

impl Model {
    /// Runs a command. Returns its output.
    pub(super) fn run(&mut self, change: Change) -> RowValues {
        let row = self.0.entry(change.key).or_default();
        *row = change.after(*row);
        *row
    }

    pub(super) fn rows(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of rows that differ from those of a table, or are in one of both only.
    pub(super) fn differences(&self, table: &HashMap<Key, RowValues>) -> usize {
        let missing = self.0.keys().filter(|key| !table.contains_key(*key)).count();
        missing + table.iter().filter(|(key, row)| self.0.get(*key) != Some(*row)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Key = (1,);
    const B: Key = (2,);

    fn change(key: Key, number: u64) -> Change {
        Change { key, number }
    }

    #[test]
    fn model_differs_from_lost_swapped_and_added_changes() {
        let mut model = Model::default();
        let outs = [change(A, 1), change(B, 2), change(A, 3)].map(|change| model.run(change));
        let table = HashMap::from([(A, outs[2]), (B, outs[1])]);
        assert_eq!((model.rows(), model.differences(&table)), (2, 0));
        let swapped = change(A, 1).after(change(A, 3).after(RowValues::default()));
        let lost = outs[0];
        for wrong in [swapped, lost] {
            assert_eq!(model.differences(&HashMap::from([(A, wrong), (B, outs[1])])), 1);
        }
        assert_eq!(model.differences(&HashMap::from([(A, outs[2])])), 1);
        assert_eq!(model.differences(&HashMap::from([(A, outs[2]), (B, outs[1]), ((3,), (1, 1))])), 1);
    }

    #[test]
    fn hot_key_gets_its_part() {
        let keys = Keys { id: "hot", label: "hot", count: 1000, hot_percent: 50, backlog: 0 };
        let mut random = Random(1);
        let drawn: Vec<Key> = (0..10_000).map(|_| keys.draw(&mut random)).collect();
        let hot = drawn.iter().filter(|key| **key == (0,)).count();
        assert!((4_500..5_600).contains(&hot), "{hot}");
        assert!(drawn.iter().all(|key| (0..1000).contains(&key.0)));
    }
}
