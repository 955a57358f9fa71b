//! Rounds of operations that a list of commands needs, by different rules. It only counts: for
//! documentation, tests and the choice of a strategy.

use std::collections::{BTreeMap, BTreeSet};

use crate::Footprint;

/// Rules by which operations may run together. By all of them a read observes each earlier write of
/// its slot and no later one, and a command writes after its own reads.
#[derive(Clone, Copy, Debug)]
pub enum Rules<S> {
    /// Commands of one partition run one after the other.
    PerPartition(fn(&S) -> u64),
    /// Only operations that share a slot are ordered: each write is sent.
    HappensBefore,
    /// As [`Rules::HappensBefore`], but overwritten values are not sent, and a read of a slot that
    /// an earlier command wrote takes its value from memory.
    Folded,
}

/// Returns the number of rounds: the length of the longest chain of operations of which each must
/// wait for the one before it.
pub fn levels<S: Ord>(footprints: &[Footprint<S>], rules: Rules<S>) -> usize {
    match rules {
        Rules::PerPartition(partition) => per_partition(footprints, partition),
        Rules::HappensBefore => happens_before(footprints),
        Rules::Folded => folded(footprints),
    }
}

/// A command starts when all its partitions are free, and takes a round for its reads and a round
/// for its writes.
fn per_partition<S>(footprints: &[Footprint<S>], partition: fn(&S) -> u64) -> usize {
    let mut ends: BTreeMap<u64, usize> = BTreeMap::new();
    let mut most = 0;
    for footprint in footprints {
        let used = || footprint.reads.iter().chain(&footprint.writes).map(partition);
        let start = used().filter_map(|partition| ends.get(&partition)).max().copied().unwrap_or(0);
        let rounds = usize::from(!footprint.reads.is_empty()) + usize::from(!footprint.writes.is_empty());
        for partition in used() {
            ends.insert(partition, start + rounds);
        }
        most = most.max(start + rounds);
    }
    most
}

fn happens_before<S: Ord>(footprints: &[Footprint<S>]) -> usize {
    // Rounds of the last write of a slot, and of the last read since.
    let mut rounds: BTreeMap<&S, (usize, usize)> = BTreeMap::new();
    let mut most = 0;
    for footprint in footprints {
        let mut own_reads = 0;
        for slot in &footprint.reads {
            let (written, read) = rounds.entry(slot).or_default();
            let round = *written + 1;
            *read = round.max(*read);
            own_reads = own_reads.max(round);
        }
        most = most.max(own_reads);
        for slot in footprint.writes.iter().collect::<BTreeSet<&S>>() {
            let (written, read) = rounds.entry(slot).or_default();
            let round = own_reads.max(*written).max(*read) + 1;
            (*written, *read) = (round, 0);
            most = most.max(round);
        }
    }
    most
}

fn folded<S: Ord>(footprints: &[Footprint<S>]) -> usize {
    /// State of a slot.
    #[derive(Default)]
    struct SlotUse {
        /// Round of the read from the store, 0 without one.
        read: usize,
        /// Round after which the written value is known in memory. `None`: not written yet.
        known: Option<usize>,
    }
    let mut slots: BTreeMap<&S, SlotUse> = BTreeMap::new();
    for footprint in footprints {
        let mut known = 0;
        for slot in &footprint.reads {
            let slot = slots.entry(slot).or_default();
            known = known.max(slot.known.unwrap_or(1));
            if slot.known.is_none() {
                slot.read = 1;
            }
        }
        for slot in &footprint.writes {
            slots.entry(slot).or_default().known = Some(known);
        }
    }
    // The last value is written in the round after it is known and the slot has been read.
    let rounds = slots.values().map(|slot| slot.known.map_or(slot.read, |known| known.max(slot.read) + 1));
    rounds.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Commands = &'static [(&'static str, &'static str)];

    fn counts(commands: Commands) -> [usize; 3] {
        // Slots a to c are of one tenant, the others of another.
        let partition = |slot: &char| u64::from(*slot > 'c');
        let footprint = |(reads, writes): &(&str, &str)| Footprint {
            reads: reads.chars().collect(),
            writes: writes.chars().collect(),
        };
        let footprints: Vec<Footprint<char>> = commands.iter().map(footprint).collect();
        [Rules::PerPartition(partition), Rules::HappensBefore, Rules::Folded]
            .map(|rules| levels(&footprints, rules))
    }

    #[test]
    fn worked_example_takes_four_three_or_two_rounds() {
        assert_eq!(counts(&[("a", "b"), ("c", "b"), ("d", "e")]), [4, 3, 2]);
    }

    #[test]
    fn read_of_a_written_slot_needs_no_round() {
        assert_eq!(counts(&[("", "b"), ("b", "e")]), [3, 3, 1]);
    }

    #[test]
    fn write_waits_for_earlier_reads() {
        assert_eq!(counts(&[("a", "c"), ("", "a")]), [3, 2, 2]);
        assert_eq!(counts(&[("", "")]), [0, 0, 0]);
    }
}
