//! A row of a partition in memory. A large row, such as one with a map of thousands of elements, is
//! kept in layers, so that a write of one element does not copy all of them.
//!
//! ```text
//!  layers   oldest ████████████████████ ████████ ███ █  newest   each write adds one
//!  merged   none until the first read                           kept for later readers
//! ```
//!
//! 1. A write adds a layer. While the second newest layer is at most twice as large as the newest,
//!    the two are merged. So a cell is copied once each time its layer doubles.
//! 2. Layers above [`MERGED_BYTES_MAX`] are merged only if there are more than [`LAYERS_MAX`]. A
//!    write then merges the two neighbours that are smallest together: at most 1/64 of the row.
//! 3. A reader merges all layers in the same order, the smallest neighbours first, and the next
//!    write starts from the result. So a cell is copied about once for each doubling of its layer,
//!    whether layers are equal or each is larger than the next.
//!
//! Readers on both lanes share a row, so the merged row is set without a lock. Two readers may
//! merge at the same time, and one result is kept.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

use once_cell::race::OnceBox;

use crate::model::reconcile::{LAYERED_BYTES, floor_of, merge_rows};
use crate::model::row::EncodedRow;

/// Layers with more bytes in total are not merged by a write: about 2,000 cells, at 25 ns each 50
/// µs.
const MERGED_BYTES_MAX: usize = 64 << 10;

/// Maximum number of layers. With one more, a row at the limit of 64 MiB has two neighbours of
/// together 1 MiB at most, which take 1 ms.
const LAYERS_MAX: usize = 128;

/// Bytes of a row with elements, up to which a reader opens it at once: about 8,000 dead cells, at
/// 5 ns each 40 µs.
const OPENED_BYTES: usize = 64 << 10;

/// Bytes of layers that a reader merges at once: about 1,000 cells, at 25 ns each 25 µs.
const READ_BYTES: usize = 16 << 10;

/// A row, ordered by its clustering alone.
#[derive(Clone, Debug)]
pub(crate) enum Placed {
    /// In one allocation.
    Row(EncodedRow),
    /// In layers.
    Layered(Arc<Layered>),
}

/// Versions of a row, at least two, oldest first.
#[derive(Debug)]
pub(crate) struct Layered {
    layers: Vec<EncodedRow>,
    merged: OnceBox<EncodedRow>,
}

// A partition has one for each row.
const _: () = assert!(size_of::<Placed>() == 16);

impl Layered {
    fn merged(&self) -> &EncodedRow {
        self.merged.get_or_init(|| Box::new(merged(&self.layers)))
    }
}

/// Merges all layers into a row, the smallest neighbours first.
fn merged(layers: &[EncodedRow]) -> EncodedRow {
    let mut layers = layers.to_vec();
    while layers.len() > 1 {
        merge_smallest(&mut layers);
    }
    layers.pop().expect("a row has a layer")
}

/// Merges the two neighbours that are smallest together. Of equal ones, the newest.
fn merge_smallest(layers: &mut Vec<EncodedRow>) {
    let together = |at: &usize| layers[*at].bytes() + layers[*at + 1].bytes();
    let Some(at) = (0..layers.len() - 1).rev().min_by_key(together) else { return };
    let newer = layers.remove(at + 1);
    layers[at] = merge_rows(&layers[at], &newer);
}

impl Placed {
    pub(crate) fn clustering(&self) -> &[u8] {
        match self {
            Placed::Row(row) => row.clustering(),
            Placed::Layered(layered) => layered.layers[0].clustering(),
        }
    }

    /// Returns the row. Merges the layers, unless an earlier call did.
    #[inline]
    pub(crate) fn row(&self) -> &EncodedRow {
        match self {
            Placed::Row(row) => row,
            Placed::Layered(layered) => layered.merged(),
        }
    }

    /// Returns true if readers may open the row within a task poll. Otherwise a heavy lane opens
    /// it.
    #[inline]
    pub(crate) fn opens_at_once(&self) -> bool {
        match self {
            Placed::Row(row) => opens_at_once(row),
            Placed::Layered(layered) => {
                layered.merged.get().map_or_else(|| self.bytes() <= READ_BYTES, opens_at_once)
            }
        }
    }

    /// Returns the bytes of memory in use, without the merged row that readers made.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Placed::Row(row) => row.bytes(),
            Placed::Layered(layered) => layered.layers.iter().map(EncodedRow::bytes).sum(),
        }
    }

    /// Returns the bytes of the layers that no deletion shadows: neither one up to the timestamp
    /// `floor`, nor one of the row. Does not merge layers.
    pub(crate) fn bytes_above(&self, floor: i64) -> usize {
        let of_row = |row: &EncodedRow, floor: i64| if row.timestamp() > floor { row.bytes() } else { 0 };
        match self {
            Placed::Row(row) => of_row(row, floor),
            Placed::Layered(layered) => {
                let deletions = layered.layers.iter().map(|layer| floor_of(layer.deletion()));
                let floor = deletions.fold(floor, i64::max);
                layered.layers.iter().map(|layer| of_row(layer, floor)).sum()
            }
        }
    }

    /// Returns the row after writes of another version, without a merge of large layers.
    pub(crate) fn with_all(self, other: &Placed) -> Placed {
        match other {
            Placed::Row(row) => self.with(row),
            Placed::Layered(layered) => match layered.merged.get() {
                Some(row) => self.with(row),
                None => layered.layers.iter().fold(self, Placed::with),
            },
        }
    }

    /// Returns the row after a write of `row`.
    pub(crate) fn with(self, row: &EncodedRow) -> Placed {
        let mut layers = match self {
            Placed::Row(old) if old.bytes().max(row.bytes()) < LAYERED_BYTES || row.supersedes(&old) => {
                return Placed::Row(merge_rows(&old, row));
            }
            Placed::Row(old) => vec![old],
            Placed::Layered(layered) => match layered.merged.get() {
                Some(merged) => vec![merged.clone()],
                None => layered.layers.clone(),
            },
        };
        layers.push(row.clone());
        while let [.., older, newer] = &layers[..]
            && older.bytes() <= 2 * newer.bytes()
            && older.bytes() + newer.bytes() <= MERGED_BYTES_MAX
        {
            let both = merge_rows(older, newer);
            layers.truncate(layers.len() - 2);
            layers.push(both);
        }
        if layers.len() > LAYERS_MAX {
            merge_smallest(&mut layers);
        }
        match layers.pop() {
            Some(row) if layers.is_empty() => Placed::Row(row),
            last => {
                layers.extend(last);
                Placed::Layered(Arc::new(Layered { layers, merged: OnceBox::new() }))
            }
        }
    }
}

#[inline]
fn opens_at_once(row: &EncodedRow) -> bool {
    row.bytes() <= OPENED_BYTES || !row.has_elements()
}

impl PartialEq for Placed {
    fn eq(&self, other: &Placed) -> bool {
        self.clustering() == other.clustering()
    }
}

impl Eq for Placed {}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Placed) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Placed) -> Ordering {
        self.clustering().cmp(other.clustering())
    }
}

impl Borrow<[u8]> for Placed {
    fn borrow(&self) -> &[u8] {
        self.clustering()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::partition::Partition;
    use crate::model::reconcile::MERGED_CELLS;
    use crate::model::row::RowBuilder;
    use crate::model::{CellRef, Change};

    fn put(element: u32, timestamp: i64) -> EncodedRow {
        let mut row = RowBuilder::new(&[], b"", timestamp);
        row.push(CellRef::live(1, timestamp, &timestamp.to_be_bytes()).at(&element.to_be_bytes()));
        row.finish()
    }

    /// Writes elements in a scattered order. Returns the number of cells copied.
    fn write(partition: &mut Partition, elements: u32, round: i64) -> u64 {
        let before = MERGED_CELLS.get();
        for n in 0..elements {
            let element = n.wrapping_mul(7_919) % elements;
            partition.apply(&Change::Row(put(element, round)));
        }
        MERGED_CELLS.get() - before
    }

    #[test]
    fn element_writes_copy_few_cells() {
        let mut partition = Partition::from_changes(&[Change::Row(put(0, 1))]).0;
        let copied = write(&mut partition, 40_000, 1);
        assert!(copied < 40_000 * 20, "{copied} cells copied");
        let copied = write(&mut partition, 40_000, 2);
        assert!(copied < 40_000 * 20, "{copied} cells copied by overwriting");
        let row = partition.row(b"").expect("there").clone();
        let seen: Vec<i64> = row.cells().map(|cell| cell.timestamp).collect();
        assert_eq!(seen, [2; 40_000]);
        let before = MERGED_CELLS.get();
        assert_eq!(partition.row(b""), Some(&row));
        assert_eq!(MERGED_CELLS.get(), before, "readers share the merged row");
    }

    #[test]
    fn writes_of_many_elements_copy_a_small_part_of_the_row() {
        const ELEMENTS: u32 = 2_000;
        let mut partition = Partition::from_changes(&[Change::Row(put(0, 1))]).0;
        let mut most = 0;
        for n in 0..600 {
            let mut row = RowBuilder::new(&[], b"", 1);
            for element in n * ELEMENTS..(n + 1) * ELEMENTS {
                row.push(CellRef::live(1, 1, &[7; 24]).at(&element.to_be_bytes()));
            }
            let before = MERGED_CELLS.get();
            partition.apply(&Change::Row(row.finish()));
            most = most.max(MERGED_CELLS.get() - before);
        }
        assert!(most <= 600 * u64::from(ELEMENTS) / 32, "{most} cells copied by one write");
        let before = MERGED_CELLS.get();
        assert_eq!(partition.row(b"").map(|row| row.cells().count()), Some(600 * ELEMENTS as usize));
        let copied = MERGED_CELLS.get() - before;
        assert!(copied <= 8 * 600 * u64::from(ELEMENTS), "{copied} cells copied by a reader");
    }

    #[test]
    fn static_element_writes_copy_few_cells() {
        let mut partition = Partition::empty();
        let before = MERGED_CELLS.get();
        for n in 0..40_000u32 {
            partition.apply(&Change::Static(put(n.wrapping_mul(7_919) % 40_000, 1)));
        }
        let copied = MERGED_CELLS.get() - before;
        assert!(copied < 40_000 * 20, "{copied} cells copied");
        let Partition::Full(full) = &partition else { panic!("a partition with static cells") };
        assert_eq!(full.statics().map(|row| row.cells().count()), Some(40_000));
    }

    #[test]
    fn layers_equal_the_merge_of_all_writes() {
        let (mut random, mut whole) = (testkit::Random::new(5), put(0, 1));
        let mut partition = Partition::from_changes(&[Change::Row(put(0, 1))]).0;
        for step in 0..20_000 {
            let element = random.below(2_000) as u32;
            let timestamp = random.below(9) as i64;
            let row = match random.below(16) {
                0 => {
                    let mut row = RowBuilder::new(&[], b"", timestamp);
                    row.push(CellRef::dead(1, timestamp, 7));
                    row.finish()
                }
                _ => put(element, timestamp),
            };
            whole = merge_rows(&whole, &row);
            partition.apply(&Change::Row(row));
            if step % 997 == 0 {
                assert_eq!(partition.row(b""), Some(&whole), "after {step} writes");
            }
        }
        assert_eq!(partition.row(b""), Some(&whole));
    }
}
