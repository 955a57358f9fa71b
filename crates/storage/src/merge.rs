//! Memtables and files of one table as a single stream of partitions in (token, key) order, each the merge of
//! all its versions. Scans, flushes and compactions are this stream with different ends; either lane may run it.
//!
//! A partition that is larger than a block in a file comes in stretches of clustering, so that merging a wide one takes a block of each file
//! and not all of it. Every source gives what its block has; rows up to the least of the places where those that go on stopped are
//! complete, and make the piece:
//!
//! ```text
//!  file 1    a  c  d |  goes on behind d
//!  file 2    b  c  h |  goes on behind h        piece: a b c d, then h waits for what file 1 has next
//! ```
//!
//! What covers rows, deletions of the partition and of ranges, is known from the first blocks and comes with each piece.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::error::StorageError;
use crate::memtable::{Entry, Memtable, ScanFrom};
use crate::model::Deletion;
use crate::partition::{Full, Partition};
use crate::ranges::Ranges;
use crate::table_file::{FileCursor, TableFile};

/// Entries taken from a memtable at a time: enough to spread the cost of the search, few enough to stay far below
/// the bound of a piece of work (64 × about 50 ns).
const CHUNK: usize = 64;

/// The merged stream.
#[derive(Debug)]
pub(crate) struct MergeStream {
    sources: Vec<Source>,
    going: Option<Going>,
}

/// The partition of which a piece was given and more is to come.
#[derive(Debug)]
struct Going {
    token: i64,
    key: Bytes,
    deletion: Option<Deletion>,
    ranges: Ranges,
}

/// A partition, or a stretch of one.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) token: i64,
    pub(crate) key: Bytes,
    /// Its rows, and what covers them; in the first piece the static cells too.
    pub(crate) partition: Partition,
    pub(crate) first: bool,
    pub(crate) last: bool,
}

#[derive(Debug)]
struct Source {
    kind: Kind,
    head: VecDeque<Entry>,
    /// The partition at hand goes on in the file, behind this row.
    more: Option<Bytes>,
    done: bool,
}

#[derive(Debug)]
enum Kind {
    Memory {
        table: Memtable,
        from: ScanFrom,
        last: i64,
    },
    /// A run: the fragment being read, and those after it.
    Run {
        cursor: Box<FileCursor>,
        rest: VecDeque<Arc<TableFile>>,
        last: i64,
    },
}

impl Source {
    async fn fill(&mut self) -> Result<(), StorageError> {
        if self.done || !self.head.is_empty() {
            return Ok(());
        }
        if let (Some(after), Kind::Run { cursor, .. }) = (self.more.take(), &mut self.kind) {
            let (entry, more) = cursor.go_on(&after).await?;
            self.head.push_back(entry);
            self.more = more;
            return Ok(());
        }
        match &mut self.kind {
            Kind::Memory { table, from, last } => {
                table.collect(from, *last, CHUNK, &mut self.head);
                self.done = self.head.len() < CHUNK;
                if let Some((token, key, _)) = self.head.back() {
                    *from = ScanFrom::After(*token, key.clone());
                }
            }
            Kind::Run { cursor, rest, last } => loop {
                if let Some((entry, more)) = cursor.next().await? {
                    self.head.push_back(entry);
                    self.more = more;
                    break;
                }
                let Some(next) = rest.pop_front() else {
                    self.done = true;
                    break;
                };
                **cursor = FileCursor::new(next, ScanFrom::Token(i64::MIN), *last);
            },
        }
        Ok(())
    }
}

impl Source {
    fn is_at(&self, token: i64, key: &Bytes) -> bool {
        self.head.front().is_some_and(|(own, own_key, _)| *own == token && own_key == key)
    }

    /// Takes what is at hand of the partition in front, up to the row `end` if there is one.
    fn take(&mut self, end: Option<&[u8]>) -> Partition {
        let (_, _, partition) = self.head.front_mut().expect("a head was seen");
        let beyond = |row: &[u8]| end.is_some_and(|end| row > end);
        if let Partition::Full(full) = partition
            && full.rows.last().is_some_and(|row| beyond(row.clustering()))
        {
            let end = end.expect("something is beyond it");
            let (taken, left) = full.rows.split(end);
            let covers = Full { deletion: full.deletion, ranges: full.ranges.clone(), ..Full::default() };
            let whole =
                std::mem::replace(partition, Partition::Full(Arc::new(Full { rows: left, ..covers })));
            let Partition::Full(mut whole) = whole else { unreachable!("matched above") };
            Arc::make_mut(&mut whole).rows = taken;
            return Partition::Full(whole);
        }
        if let Partition::Single(row) = partition
            && beyond(row.clustering())
        {
            return Partition::empty();
        }
        self.head.pop_front().expect("a head was seen").2
    }
}

impl MergeStream {
    /// Everything from `from` to the token `last`.
    pub(crate) fn new(
        tables: impl IntoIterator<Item = Memtable>,
        files: &[Arc<TableFile>],
        from: ScanFrom,
        last: i64,
    ) -> MergeStream {
        let memory = tables.into_iter().map(|table| Kind::Memory { table, from: from.clone(), last });
        let run = |mut rest: VecDeque<Arc<TableFile>>| {
            let first = rest.pop_front().expect("a run has a fragment");
            Kind::Run { cursor: Box::new(FileCursor::new(first, from.clone(), last)), rest, last }
        };
        let disk = runs_from(files, &from, last).into_iter().map(run);
        let source = |kind| Source { kind, head: VecDeque::new(), more: None, done: false };
        MergeStream { sources: memory.chain(disk).map(source).collect(), going: None }
    }

    /// The next partition, dead or alive.
    pub(crate) async fn next(&mut self) -> Result<Option<Entry>, StorageError> {
        let Some(Piece { token, key, mut partition, mut last, .. }) = self.next_piece().await? else {
            return Ok(None);
        };
        while !last {
            let piece = self.next_piece().await?.expect("it goes on");
            partition = partition.merge(piece.partition);
            last = piece.last;
        }
        Ok(Some((token, key, partition)))
    }

    /// The next partition, or the next stretch of the one that the last piece was of.
    pub(crate) async fn next_piece(&mut self) -> Result<Option<Piece>, StorageError> {
        for source in &mut self.sources {
            source.fill().await?;
        }
        let going = self.going.take();
        let first = going.is_none();
        let place = match &going {
            Some(going) => Some((going.token, going.key.clone())),
            None => self.least(),
        };
        let Some((token, key)) = place else { return Ok(None) };
        let going_on =
            self.sources.iter().filter(|source| source.more.is_some() && source.is_at(token, &key));
        let end = going_on.filter_map(|source| source.more.clone()).min();
        let covered = going.as_ref().map(|going| {
            let (deletion, ranges) = (going.deletion, going.ranges.clone());
            Partition::Full(Arc::new(Full { deletion, ranges, ..Full::default() }))
        });
        let here = self.sources.iter_mut().filter(|source| source.is_at(token, &key));
        let taken = here.map(|source| source.take(end.as_deref()));
        let partition = covered.into_iter().chain(taken).reduce(Partition::merge);
        let partition = partition.expect("one source had the key");
        if end.is_some() {
            let (deletion, ranges) = match (going, &partition) {
                (Some(going), _) => (going.deletion, going.ranges),
                (None, Partition::Full(full)) => (full.deletion, full.ranges.clone()),
                (None, Partition::Single(_)) => (None, Ranges::default()),
            };
            self.going = Some(Going { token, key: key.clone(), deletion, ranges });
            return Ok(Some(Piece { token, key, partition, first, last: false }));
        }
        Ok(Some(Piece { token, key, partition, first, last: true }))
    }

    fn least(&self) -> Option<(i64, Bytes)> {
        let heads = self.sources.iter().filter_map(|source| source.head.front());
        let least = heads.map(|(token, key, _)| (*token, key)).min()?;
        Some((least.0, least.1.clone()))
    }
}

/// The fragments of each run that a stream from `from` to the token `last` has to read, in order.
fn runs_from(files: &[Arc<TableFile>], from: &ScanFrom, last: i64) -> Vec<VecDeque<Arc<TableFile>>> {
    let (ScanFrom::Token(first) | ScanFrom::After(first, _)) = from;
    let mut runs: BTreeMap<u64, Vec<&Arc<TableFile>>> = BTreeMap::new();
    for file in files {
        let (start, end) = file.tokens();
        if start <= last && end >= *first {
            runs.entry(file.entry.run).or_default().push(file);
        }
    }
    let mut chains = Vec::new();
    for mut run in runs.into_values() {
        run.sort_by_key(|file| file.tokens());
        let mut chain: VecDeque<Arc<TableFile>> = VecDeque::new();
        for file in run {
            // Fragments of a run do not overlap; where a version of the format does not tell its last token, they might.
            if chain.back().is_some_and(|before| before.tokens().1 >= file.tokens().0) {
                chains.push(std::mem::take(&mut chain));
            }
            chain.push_back(file.clone());
        }
        chains.push(chain);
    }
    chains
}
