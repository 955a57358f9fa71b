//! Cells of an answer, in chunks. An answer grows to many megabytes, and one buffer would be copied
//! whole each time it grows. A chunk holds whole cells, so that a cell is one slice.

use std::ops::Range;

/// Size of a chunk, bytes, unless one cell is larger. Growing a chunk to it copies 128 KiB at most.
const CHUNK_BYTES: usize = 256 << 10;

/// Encoded cells, row by row. Each is a `[bytes]` of CQL: a big-endian `i32` length (−1 for null),
/// then the value.
#[derive(Clone, Debug, Default)]
pub struct Cells {
    /// Chunks that take no more cells, each with the offset of its end.
    full: Vec<(usize, Vec<u8>)>,
    last: Vec<u8>,
}

impl PartialEq for Cells {
    fn eq(&self, other: &Cells) -> bool {
        self.len() == other.len() && self.chunks().flatten().eq(other.chunks().flatten())
    }
}

impl Cells {
    /// Creates an empty value with capacity for `bytes`, up to one chunk.
    #[must_use]
    #[inline]
    pub fn with_capacity(bytes: usize) -> Cells {
        Cells { last: Vec::with_capacity(bytes.min(CHUNK_BYTES)), ..Cells::default() }
    }

    /// Returns the number of bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.full_bytes() + self.last.len()
    }

    #[inline]
    fn full_bytes(&self) -> usize {
        self.full.last().map_or(0, |(end, _)| *end)
    }

    /// Returns true if there is no cell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reserves capacity for `bytes` more, up to one chunk.
    pub fn reserve(&mut self, bytes: usize) {
        self.last.reserve(bytes.min(CHUNK_BYTES.saturating_sub(self.last.len())));
    }

    /// Appends a cell. `None` is null.
    ///
    /// # Panics
    /// Panics if the value has 2 GiB or more.
    #[inline]
    pub fn push(&mut self, cell: Option<&[u8]>) {
        let Some(value) = cell else { return self.extend(&(-1i32).to_be_bytes()) };
        let len = i32::try_from(value.len()).expect("a value is bounded by the frame it came in");
        self.make_room(4 + value.len());
        self.last.extend_from_slice(&len.to_be_bytes());
        self.last.extend_from_slice(value);
    }

    /// Appends whole cells.
    pub fn extend(&mut self, cells: &[u8]) {
        self.make_room(cells.len());
        self.last.extend_from_slice(cells);
    }

    /// Appends the bytes of `range` of other cells. The range consists of whole cells.
    pub fn extend_from(&mut self, other: &Cells, range: Range<usize>) {
        let first = other.full.partition_point(|(end, _)| *end <= range.start);
        let mut start = first.checked_sub(1).map_or(0, |before| other.full[before].0);
        for chunk in other.full[first..].iter().map(|(_, chunk)| chunk).chain([&other.last]) {
            let end = start + chunk.len();
            let from = range.start.max(start);
            let to = range.end.min(end);
            if from < to {
                self.extend(&chunk[from - start..to - start]);
            }
            start = end;
            if start >= range.end {
                return;
            }
        }
    }

    /// Appends other cells without a copy of their chunks.
    pub fn append(&mut self, other: Cells) {
        if self.is_empty() && self.last.capacity() == 0 {
            *self = other;
            return;
        }
        for chunk in other.into_chunks() {
            if chunk.len() < CHUNK_BYTES / 2 {
                self.extend(&chunk);
            } else {
                self.seal();
                self.last = chunk;
            }
        }
    }

    /// Removes the bytes from `len` on. They are whole cells.
    pub fn truncate(&mut self, len: usize) {
        while self.full_bytes() > len {
            self.last = self.full.pop().map(|(_, chunk)| chunk).unwrap_or_default();
        }
        self.last.truncate(len - self.full_bytes());
    }

    /// Returns all cells, if they are in one chunk.
    #[must_use]
    #[inline]
    pub fn as_one(&self) -> Option<&[u8]> {
        self.full.is_empty().then_some(&self.last)
    }

    /// Iterates over the chunks in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.full
            .iter()
            .map(|(_, chunk)| chunk)
            .chain([&self.last])
            .map(Vec::as_slice)
            .filter(|chunk| !chunk.is_empty())
    }

    /// Iterates over the chunks in order, each of which can be freed before the next one is read.
    pub fn into_chunks(self) -> impl Iterator<Item = Vec<u8>> {
        self.full.into_iter().map(|(_, chunk)| chunk).chain([self.last]).filter(|chunk| !chunk.is_empty())
    }

    /// Iterates over the cells. `None` is null.
    pub fn iter(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.chunks().flat_map(|chunk| {
            let mut left = chunk;
            std::iter::from_fn(move || {
                let (len, rest) = left.split_first_chunk::<4>()?;
                let len = usize::try_from(i32::from_be_bytes(*len)).ok();
                let (cell, rest) = rest.split_at(len.unwrap_or(0));
                left = rest;
                Some(len.map(|_| cell))
            })
        })
    }

    /// Begins a chunk unless `bytes` more fit into the last one.
    #[inline]
    fn make_room(&mut self, bytes: usize) {
        if self.last.len() + bytes > CHUNK_BYTES {
            self.begin_chunk(bytes);
        }
    }

    #[cold]
    fn begin_chunk(&mut self, bytes: usize) {
        if !self.last.is_empty() {
            self.seal();
            self.last.reserve_exact(bytes);
        }
    }

    #[cold]
    fn seal(&mut self) {
        if !self.last.is_empty() {
            let end = self.len();
            self.full.push((end, std::mem::take(&mut self.last)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(sizes: &[usize]) -> Cells {
        let mut cells = Cells::default();
        sizes.iter().for_each(|size| cells.push(Some(&vec![7; *size])));
        cells
    }

    #[test]
    fn chunks_hold_whole_cells_in_order() {
        let sizes = [3, CHUNK_BYTES, 0, 5, 2 * CHUNK_BYTES, 100];
        let mut all = cells(&sizes);
        all.push(None);
        let found: Vec<_> = all.iter().map(|cell| cell.map(<[u8]>::len)).collect();
        let expected: Vec<_> = sizes.iter().map(|size| Some(*size)).chain([None]).collect();
        assert_eq!(found, expected);
        assert_eq!(all.len(), sizes.iter().sum::<usize>() + 4 * expected.len());
        assert!(all.chunks().count() >= 4);
    }

    #[test]
    fn small_cells_fill_chunks() {
        let all = cells(&[96; 10_000]);
        assert_eq!(all.len(), 1_000_000);
        assert_eq!(all.chunks().count(), 4);
        assert!(all.chunks().all(|chunk| chunk.len() <= CHUNK_BYTES));
    }

    #[test]
    fn ranges_and_truncation_match_one_buffer() {
        let sizes = [10, CHUNK_BYTES, 20, CHUNK_BYTES - 4, 30];
        let mut ends = vec![0];
        sizes.iter().for_each(|size| ends.push(ends[ends.len() - 1] + 4 + size));
        let all = cells(&sizes);
        for from in 0..ends.len() {
            for to in from..ends.len() {
                let mut part = cells(&[1]);
                part.extend_from(&all, ends[from]..ends[to]);
                let expected = [&[1], &sizes[from..to]].concat();
                assert_eq!(part, cells(&expected), "{from}..{to}");
                part.truncate(5);
                assert_eq!(part, cells(&[1]), "{from}..{to}");
                let mut whole = cells(&[1]);
                whole.append(cells(&sizes[from..to]));
                assert_eq!(whole, cells(&expected), "{from}..{to}");
            }
            let mut cut = all.clone();
            cut.truncate(ends[from]);
            assert_eq!(cut, cells(&sizes[..from]), "{from}");
        }
    }
}
