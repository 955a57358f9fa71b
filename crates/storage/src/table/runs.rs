//! The files of a table, by run. A run is a chain of files (fragments) whose token ranges do not
//! overlap. A binary search finds the only fragment that may have a token. So a read costs one
//! search for each run, and nothing for each file.
//!
//! ```text
//!  run 7    [ a … f ][ g … m ][ n … z ]        token k: one search in each run,
//!  run 9    [ b ………… k ][ l ………… y ]           at most one fragment of each
//! ```
//!
//! Snapshots share the runs with the table: a clone copies one pointer for each run. A run that a
//! snapshot holds is copied before it changes.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::table::deaths::Deaths;
use crate::table::file::TableFile;

/// The files of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    /// Ascending by number. Only files that cannot be opened may overlap others of their run. The
    /// run then has several entries with the same number.
    runs: Vec<Arc<FileRun>>,
    len: usize,
    /// The number of large rows in the files.
    large_rows: usize,
    /// The number of changes, which invalidates results that callers cached.
    version: u64,
    /// The greatest sequence of a file that was added with new data.
    newest_sequence: u64,
}

/// The fragments of one run, and their combined statistics.
#[derive(Clone, Debug)]
pub(crate) struct FileRun {
    pub(crate) number: u64,
    /// Ascending by token.
    files: Vec<Arc<TableFile>>,
    pub(crate) bytes: u64,
    pub(crate) blocks: usize,
    /// Memory of filters and indexes, bytes.
    pub(crate) resident_bytes: usize,
    /// The number of fragments that compactions leave out because of damage.
    excluded: usize,
    pub(crate) known: RunStatistics,
}

/// The combined statistics of a run. They stay unchanged when a fragment is removed. Minima may
/// then be too small and maxima too large, which every reader of them allows for.
#[derive(Clone, Debug)]
pub(crate) struct RunStatistics {
    pub(crate) timestamps: (i64, i64),
    /// The greatest timestamp that was not in the future when its file was written.
    pub(crate) newest: i64,
    pub(crate) cells: u64,
    pub(crate) rows: u64,
    pub(crate) deaths: Deaths,
    /// The first second at which all of some fragment is dead; `u32::MAX` if there is none.
    pub(crate) first_dead_s: u32,
    /// The time when the last fragment was written, Unix seconds; 0 if that is not recorded.
    pub(crate) written_s: u32,
    /// True if some fragment has partitions that other shards own.
    pub(crate) is_shared: bool,
}

impl Default for RunStatistics {
    fn default() -> RunStatistics {
        RunStatistics {
            timestamps: (i64::MAX, i64::MIN),
            newest: i64::MIN,
            cells: 0,
            rows: 0,
            deaths: Deaths::default(),
            first_dead_s: u32::MAX,
            written_s: 0,
            is_shared: false,
        }
    }
}

impl RunStatistics {
    fn add(&mut self, file: &TableFile) {
        self.is_shared |= !file.entry.owners.is_empty();
        let Some(statistics) = &file.statistics else {
            // A file that cannot be opened may contain any timestamp.
            self.timestamps = (i64::MIN, i64::MAX);
            return;
        };
        let (least, greatest) = statistics.timestamps;
        self.timestamps = (self.timestamps.0.min(least), self.timestamps.1.max(greatest));
        self.cells += statistics.cells;
        self.rows += statistics.rows;
        self.newest = self.newest.max(statistics.newest);
        self.deaths.merge(&statistics.deaths);
        self.first_dead_s = self.first_dead_s.min(statistics.all_dead_s);
        self.written_s = self.written_s.max(statistics.written_s);
    }
}

impl FileRun {
    fn new(file: Arc<TableFile>) -> FileRun {
        let (number, known) = (file.entry.run, RunStatistics::default());
        let mut run =
            FileRun { number, files: Vec::new(), bytes: 0, blocks: 0, resident_bytes: 0, excluded: 0, known };
        run.insert(0, file);
        run
    }

    /// Returns the fragments, ascending by token.
    pub(crate) fn files(&self) -> &[Arc<TableFile>] {
        &self.files
    }

    /// Returns the fragments that compactions may read.
    pub(crate) fn sound(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.files.iter().filter(|file| !file.is_excluded())
    }

    pub(crate) fn has_sound(&self) -> bool {
        self.excluded < self.files.len()
    }

    /// Returns the bytes of the fragments that compactions may read.
    pub(crate) fn sound_bytes(&self) -> u64 {
        // Hardly any run has a damaged fragment, and callers call this often.
        if self.excluded == 0 { self.bytes } else { self.sound().map(|file| file.bytes).sum() }
    }

    /// Returns the index of the first fragment that starts behind `token`.
    fn behind(&self, token: i64) -> usize {
        self.files.partition_point(|file| {
            count_step();
            file.tokens().0 <= token
        })
    }

    /// Returns the fragment whose range contains this token.
    #[inline]
    pub(crate) fn at(&self, token: i64) -> Option<&Arc<TableFile>> {
        let file = &self.files[self.behind(token).checked_sub(1)?];
        (token <= file.tokens().1).then_some(file)
    }

    /// Returns the fragments whose ranges contain tokens from `first` to `last`.
    pub(crate) fn between(&self, first: i64, last: i64) -> &[Arc<TableFile>] {
        let mut start = self.behind(first);
        if start > 0 && self.files[start - 1].tokens().1 >= first {
            start -= 1;
        }
        let end = self.behind(last);
        self.files.get(start..end).unwrap_or(&[])
    }

    /// Returns the index at which to insert a file. `None` if it overlaps a fragment.
    fn place_of(&self, file: &TableFile) -> Option<usize> {
        let (first, last) = file.tokens();
        let place = self.behind(first);
        let clear_before = place == 0 || self.files[place - 1].tokens().1 < first;
        let clear_behind = self.files.get(place).is_none_or(|next| next.tokens().0 > last);
        (clear_before && clear_behind).then_some(place)
    }

    fn insert(&mut self, place: usize, file: Arc<TableFile>) {
        self.bytes += file.bytes;
        self.blocks += file.index.len();
        self.resident_bytes += file.resident_bytes;
        self.excluded += usize::from(file.is_excluded());
        self.known.add(&file);
        self.files.insert(place, file);
    }

    /// Returns the index of a fragment.
    fn find(&self, file: &TableFile) -> Option<usize> {
        let place = self.behind(file.tokens().0).checked_sub(1)?;
        (self.files[place].id == file.id).then_some(place)
    }

    fn remove(&mut self, place: usize) -> Arc<TableFile> {
        let file = self.files.remove(place);
        self.bytes -= file.bytes;
        self.blocks -= file.index.len();
        self.resident_bytes -= file.resident_bytes;
        self.excluded -= usize::from(file.is_excluded());
        file
    }
}

impl Files {
    /// Returns the number of files.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of files in which damage was found. Costs a step for each file.
    pub(crate) fn damaged(&self) -> usize {
        self.iter().filter(|file| file.is_damaged()).count()
    }

    /// Makes compactions leave a file out.
    pub(crate) fn exclude(&mut self, id: u64) {
        for run in &mut self.runs {
            let file = run.sound().find(|file| file.id == id).cloned();
            if let Some(file) = file {
                // After `make_mut` copied a shared run, so that the copy does not count the file as
                // well.
                Arc::make_mut(run).excluded += 1;
                file.exclude();
                self.version += 1;
                return;
            }
        }
    }

    /// Returns the number of large rows that the files are known to have.
    #[inline]
    pub(crate) fn large_rows(&self) -> usize {
        self.large_rows
    }

    /// Returns a number that changes whenever the files do.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn runs(&self) -> &[Arc<FileRun>] {
        &self.runs
    }

    /// Returns all files, run by run, ascending by token in each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.runs.iter().flat_map(|run| &run.files)
    }

    /// Returns the files whose ranges contain this token, without asking their filters.
    #[inline]
    pub(crate) fn spanning(&self, token: i64) -> impl Iterator<Item = &Arc<TableFile>> {
        self.runs.iter().filter_map(move |run| run.at(token))
    }

    /// Returns the files that may contain a partition with this token that this shard owns.
    #[inline]
    pub(crate) fn holding(&self, token: i64) -> impl Iterator<Item = &Arc<TableFile>> {
        self.spanning(token).filter(move |file| file.may_contain(token))
    }

    /// Returns the greatest timestamp in the files, as [`TableFile::greatest_timestamp`] does.
    #[inline]
    pub(crate) fn greatest_timestamp(&self) -> i64 {
        self.runs.iter().map(|run| run.known.timestamps.1).max().unwrap_or(i64::MIN)
    }

    /// Returns the number of blocks of all files.
    pub(crate) fn blocks(&self) -> usize {
        self.runs.iter().map(|run| run.blocks).sum()
    }

    /// Adds a file with new data to its run: cached rows do not cover it.
    pub(crate) fn push_new(&mut self, file: Arc<TableFile>) {
        self.newest_sequence = self.version + 1;
        file.set_sequence(self.newest_sequence);
        self.push(file);
    }

    /// Returns true if a cached row with this sequence, and with nothing of what it covers below
    /// the timestamp `settled`, is all that files have of its partition.
    #[inline]
    pub(crate) fn are_covered(&self, sequence: u64, token: i64, settled: i64) -> bool {
        let changes_it = |file: &&Arc<TableFile>| {
            file.sequence() > sequence && file.greatest_timestamp() >= settled && file.may_contain(token)
        };
        self.newest_sequence <= sequence || !self.spanning(token).any(|file| changes_it(&file))
    }

    /// Adds a file to its run.
    pub(crate) fn push(&mut self, file: Arc<TableFile>) {
        self.len += 1;
        self.large_rows += file.large_rows.len();
        self.version += 1;
        let start = self.runs.partition_point(|run| run.number < file.entry.run);
        let same = self.runs[start..].iter_mut().take_while(|run| run.number == file.entry.run);
        for run in same {
            if let Some(place) = run.place_of(&file) {
                return Arc::make_mut(run).insert(place, file);
            }
        }
        self.runs.insert(start, Arc::new(FileRun::new(file)));
    }

    /// Returns the index of a file's run, and the file's index in it.
    fn find(&self, file: &TableFile) -> Option<(usize, usize)> {
        let start = self.runs.partition_point(|run| run.number < file.entry.run);
        let same = self.runs[start..].iter().take_while(|run| run.number == file.entry.run);
        (start..).zip(same).find_map(|(at, run)| Some((at, run.find(file)?)))
    }

    /// Returns true if a file is here, in this state or cut further.
    pub(crate) fn contains(&self, file: &TableFile) -> bool {
        self.find(file).is_some()
    }

    /// Removes a file.
    pub(crate) fn remove(&mut self, file: &TableFile) -> Option<Arc<TableFile>> {
        let (run, place) = self.find(file)?;
        self.len -= 1;
        self.large_rows -= self.runs[run].files[place].large_rows.len();
        self.version += 1;
        let removed = Arc::make_mut(&mut self.runs[run]).remove(place);
        if self.runs[run].files.is_empty() {
            self.runs.remove(run);
        }
        Some(removed)
    }

    /// Removes and returns all files.
    pub(crate) fn take(&mut self) -> Vec<Arc<TableFile>> {
        let files = self.iter().cloned().collect();
        *self = Files { version: self.version + 1, ..Files::default() };
        files
    }

    /// Returns the files without those with the numbers in `gone`, which are in `runs`.
    pub(crate) fn without(&self, runs: &[u64], gone: &FxHashSet<u64>) -> Files {
        let mut left = Files::default();
        for run in &self.runs {
            if runs.contains(&run.number) {
                let files = run.files.iter().filter(|file| !gone.contains(&file.id));
                files.for_each(|file| left.push(file.clone()));
            } else {
                left.len += run.files.len();
                left.large_rows += run.files.iter().map(|file| file.large_rows.len()).sum::<usize>();
                left.runs.push(run.clone());
            }
        }
        left
    }
}

impl FromIterator<Arc<TableFile>> for Files {
    fn from_iter<T: IntoIterator<Item = Arc<TableFile>>>(files: T) -> Files {
        let mut out = Files::default();
        files.into_iter().for_each(|file| out.push(file));
        out
    }
}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a comparison of a search, for tests.
#[inline]
fn count_step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

/// Returns the comparisons of searches on this thread so far.
#[cfg(test)]
pub(crate) fn steps() -> u64 {
    STEPS.get()
}
