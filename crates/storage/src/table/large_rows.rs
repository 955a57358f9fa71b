//! Large rows with collections in the files of a table, noted when the files are written. The limit
//! of such rows ([`crate::state::large_rows`]) counts them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::FxHasher;

use crate::model::row::EncodedRow;

/// A version smaller than this fraction (1/8) of the limit is not noted.
const NOTED_PART: usize = 8;

/// Returns the size in bytes from which versions of a row are noted.
pub(crate) fn noted_from(row_bytes_max: usize) -> usize {
    row_bytes_max / NOTED_PART
}

/// A version of a row in a file.
#[derive(Debug)]
pub(crate) struct LargeRow {
    token: i64,
    /// Hashes of the key and of the row ([`hash`]). Two rows with the same count as one.
    pub(crate) key: u64,
    pub(crate) row: u64,
    pub(crate) bytes: usize,
    pub(crate) timestamp: i64,
    /// A deletion shadows it.
    pub(crate) is_deleted: AtomicBool,
}

/// The large rows of a file that is being written, in the order of tokens.
#[derive(Debug)]
pub(crate) struct LargeRowsBuilder {
    from_bytes: usize,
    rows: Vec<LargeRow>,
}

impl LargeRowsBuilder {
    /// Notes rows of at least `from_bytes` bytes.
    pub(crate) fn new(from_bytes: usize) -> LargeRowsBuilder {
        LargeRowsBuilder { from_bytes, rows: Vec::new() }
    }

    /// Notes a row if it is large. `clustering` is `None` for static cells.
    #[inline]
    pub(crate) fn add(&mut self, token: i64, key: &[u8], clustering: Option<&[u8]>, row: &EncodedRow) {
        if row.bytes() < self.from_bytes || !row.has_elements() {
            return;
        }
        let (bytes, timestamp) = (row.bytes(), row.timestamp());
        let (key, row) = (hash(key, None), hash(key, Some(clustering)));
        self.rows.push(LargeRow { token, key, row, bytes, timestamp, is_deleted: AtomicBool::new(false) });
    }

    pub(crate) fn finish(&mut self) -> LargeRows {
        LargeRows(std::mem::take(&mut self.rows).into())
    }
}

/// The large rows of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct LargeRows(Arc<[LargeRow]>);

impl LargeRows {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Marks rows as deleted of which all versions in the inputs of the compaction are. A deletion
    /// in another run is no input.
    pub(crate) fn inherit<'a>(&self, inputs: impl Iterator<Item = &'a LargeRows> + Clone) {
        for row in &*self.0 {
            let versions = inputs.clone().flat_map(|input| input.of(row.token));
            let mut versions = versions.filter(|version| version.row == row.row).peekable();
            let is_known = versions.peek().is_some();
            if is_known && versions.all(|version| version.is_deleted.load(Ordering::Relaxed)) {
                row.is_deleted.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns the rows with this token.
    pub(crate) fn of(&self, token: i64) -> impl Iterator<Item = &LargeRow> {
        let from = self.0.partition_point(|row| row.token < token);
        self.0[from..].iter().take_while(move |row| row.token == token)
    }
}

/// Returns the hash of a key, or of a row of it; `Some(None)` stands for its static cells.
pub(crate) fn hash(key: &[u8], row: Option<Option<&[u8]>>) -> u64 {
    let mut hasher = FxHasher::default();
    (key, row).hash(&mut hasher);
    hasher.finish()
}
