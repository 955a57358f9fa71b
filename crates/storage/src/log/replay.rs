//! Reading a log, one segment at a time: the records that are not flushed, in order and without
//! gaps.
//!
//! The manifest names the segments that may contain records that are not in a table file. The last
//! of them may continue in others (see [`crate::log::segment`]). Of other segments only the first
//! batch is read: free ones contain nothing of value, so damage in them does not matter. If one has
//! records that are not flushed, the segment that led to it has lost its end.
//!
//! Memory is one segment, and time is that of reading the named segments. Both depend on the writes
//! since the last flush, which [`crate::log::bound`] bounds, and not on the age or size of the
//! folder.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::env::{BLOCK, Env, Mode};
use crate::error::StorageError;
use crate::log::segment::{self, Contents, FoundBatch, HeaderRead, SegmentHeader, Torn};
use crate::log::segment_path;
use crate::manifest::Manifest;
use crate::manifest::layout::{list, read_all};
use crate::model::Mutation;
use crate::model::codec::Reader;

/// A segment that was read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) header: SegmentHeader,
    /// The last record in it, 0 if it has none.
    pub(crate) last_record: u64,
    /// Offset and bytes of the last batch of the whole log, if this segment contains it.
    pub(crate) last_batch: Option<(u64, Vec<u8>)>,
    /// A torn batch after the last valid one.
    torn: Option<Torn>,
}

/// Returns the numbers of all segments in the folder of a log, in ascending order.
pub(crate) async fn segments_in(env: &dyn Env, dir: &Path) -> Result<Vec<u64>, StorageError> {
    let number = |name: &String| u64::from_str_radix(name.strip_suffix(".log")?, 16).ok();
    let mut all: Vec<u64> = list(env, dir).await?.iter().filter_map(number).collect();
    all.sort_unstable();
    Ok(all)
}

/// Iterator over the records that are not flushed.
#[derive(Debug)]
pub(crate) struct Replay<'w> {
    env: &'w dyn Env,
    dir: PathBuf,
    shard: u32,
    /// Numbers of all segments in the folder.
    pub(crate) all: Vec<u64>,
    /// Segments still to read, in order.
    left: VecDeque<u64>,
    flushed: u64,
    batches: VecDeque<FoundBatch>,
    records: VecDeque<Bytes>,
    path: PathBuf,
    /// The number of the first record in `records`.
    next: u64,
    /// The last record returned, or the last flushed one.
    pub(crate) last: u64,
    /// Records up to this one were durable.
    durable: u64,
    /// The segments read so far, in order.
    pub(crate) found: Vec<Found>,
    /// The other segments of the folder, once all records are read.
    pub(crate) others: Vec<(u64, Other)>,
}

/// A segment that the manifest and the other segments do not lead to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Other {
    /// This shard's, without records that are not flushed.
    Free,
    /// Nothing was written to it yet.
    Empty,
    /// It cannot be proven to be this shard's, for this reason.
    Unknown(String),
}

impl<'w> Replay<'w> {
    /// Finds the segments of a shard's log.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) async fn open(
        env: &'w dyn Env,
        dir: &Path,
        shard: u32,
        manifest: &Manifest,
    ) -> Result<Replay<'w>, StorageError> {
        let all = segments_in(env, dir).await?;
        let (batches, records, path, found, others) = Default::default();
        Ok(Replay {
            env,
            dir: dir.to_owned(),
            shard,
            left: manifest.log.iter().copied().collect(),
            all,
            flushed: manifest.flushed,
            batches,
            records,
            path,
            next: 0,
            last: manifest.flushed,
            durable: manifest.durable,
            found,
            others,
        })
    }

    fn undecodable(&self) -> StorageError {
        StorageError::corrupt(&self.path, "a record with a valid checksum does not decode")
    }

    /// Returns the next record and its number.
    ///
    /// # Errors
    /// Records before it, or at the end, are missing, or it does not decode.
    pub(crate) async fn next(&mut self) -> Result<Option<(u64, Vec<Mutation>)>, StorageError> {
        loop {
            while let Some(record) = self.records.pop_front() {
                let number = self.next;
                self.next += 1;
                if number > self.last {
                    self.last = number;
                    let mutations = Reader::new(record).mutations().map_err(|_| self.undecodable())?;
                    return Ok(Some((number, mutations)));
                }
            }
            let Some(batch) = self.batches.pop_front() else {
                match self.left.pop_front() {
                    Some(segment) => self.read(segment).await?,
                    None => {
                        self.read_others().await?;
                        if self.last < self.durable {
                            return Err(self.missing(self.durable));
                        }
                        return Ok(None);
                    }
                }
                continue;
            };
            if batch.last_record() <= self.flushed {
                continue;
            }
            if batch.first_record > self.last + 1 {
                return Err(self.missing(batch.first_record - 1));
            }
            self.next = batch.first_record;
            self.records = batch.payloads().map_err(|_| self.undecodable())?.into();
        }
    }

    /// Reads the rest, only to find the segments. Returns the number of records.
    pub(crate) async fn finish(&mut self) -> Result<u64, StorageError> {
        let mut records = 0;
        while self.next().await?.is_some() {
            records += 1;
        }
        Ok(records)
    }

    /// Returns the torn batch at the end of the log, which was dropped, and its segment. None of it
    /// was acknowledged.
    pub(crate) fn torn_tail(&self) -> Option<(&Path, Torn)> {
        let found = self.found.last()?;
        let torn = found.torn.filter(|torn| torn.first_record == self.last + 1)?;
        Some((&found.path, torn))
    }

    fn missing(&self, to: u64) -> StorageError {
        let from = self.last + 1;
        let path = if self.path.as_os_str().is_empty() { &self.dir } else { &self.path };
        let what = format!(
            "records {from} to {to}, which were durable, are missing: the log was cut, or is an older copy"
        );
        StorageError::corrupt(path, what)
    }

    async fn read(&mut self, segment: u64) -> Result<(), StorageError> {
        let path = segment_path(&self.dir, segment);
        if !self.all.contains(&segment) {
            return Err(StorageError::corrupt(path, "it is missing, although records may be in it"));
        }
        let data = read_all(self.env, &path).await?;
        let header = self.header(segment, &path, &data)?;
        if (data.len() as u64) < header.bytes {
            let what = format!("it was cut: expected {} bytes, got {}", header.bytes, data.len());
            return Err(StorageError::corrupt(path, what));
        }
        let Contents { batches, durable, next, last, torn } = segment::read_contents(&data, &header);
        let last_record = batches.iter().map(FoundBatch::last_record).max().unwrap_or(0);
        let last_batch = last.map(|place| {
            self.found.iter_mut().for_each(|found| found.last_batch = None);
            let mut batch = data[place.start..place.end.min(data.len())].to_vec();
            batch.resize(place.len(), 0);
            (place.start as u64, batch)
        });
        let bytes = data.len() as u64;
        self.found.push(Found { path: path.clone(), bytes, header, last_record, last_batch, torn });
        self.path = path;
        self.durable = self.durable.max(durable);
        self.batches = batches.into();
        if self.left.is_empty() {
            self.left.extend(next.filter(|next| *next > segment));
        }
        Ok(())
    }

    /// Reads the beginnings of all other segments.
    async fn read_others(&mut self) -> Result<(), StorageError> {
        self.others.clear();
        let is_other = |segment: &u64| !self.found.iter().any(|found| found.header.segment == *segment);
        for segment in self.all.iter().copied().filter(is_other).collect::<Vec<_>>() {
            let other = match self.read_other(segment).await {
                Err(StorageError::Io { error, .. }) => Other::Unknown(format!("it cannot be read: {error}")),
                other => other?,
            };
            self.others.push((segment, other));
        }
        Ok(())
    }

    async fn read_other(&mut self, segment: u64) -> Result<Other, StorageError> {
        let path = segment_path(&self.dir, segment);
        let io = |error| StorageError::io("read", &path, error);
        let file = self.env.open(&path, Mode::Read).await.map_err(io)?;
        let len = file.len().await.map_err(io)?;
        let begin = async |bytes: u64| -> Result<Bytes, StorageError> {
            match bytes.min(len) as usize {
                0 => Ok(Bytes::new()),
                bytes => file.read(0, bytes).await.map_err(io),
            }
        };
        let data = begin(2 * BLOCK as u64).await?;
        let header = match segment::decode_header(&data.slice(..data.len().min(BLOCK))) {
            HeaderRead::Valid(header) => header,
            HeaderRead::Version(found) => {
                return Err(StorageError::UnknownFormat { path, found, known: segment::VERSION });
            }
            HeaderRead::Unreadable if data.iter().all(|byte| *byte == 0) => return Ok(Other::Empty),
            HeaderRead::Unreadable => {
                return Ok(Other::Unknown("its header does not match its checksum".to_owned()));
            }
        };
        if header.shard != self.shard {
            return Ok(Other::Unknown(format!("it belongs to shard {}", header.shard)));
        }
        self.durable = self.durable.max(header.durable);
        let data = begin(segment::first_batch_end(&data)).await?;
        match segment::first_batch(&data, &header) {
            Some(batch) if batch.last_record() > self.flushed => {
                let what = format!(
                    "it has records from {} on, but no segment ahead of it names it: one of them was cut, or is \
                     an older copy",
                    batch.first_record
                );
                Err(StorageError::corrupt(path, what))
            }
            _ => Ok(Other::Free),
        }
    }

    /// Returns the header of a segment. The manifest or the previous segment names this segment, so
    /// any defect of the header is damage.
    fn header(&self, segment: u64, path: &Path, data: &Bytes) -> Result<SegmentHeader, StorageError> {
        match segment::decode_header(&data.slice(..data.len().min(BLOCK))) {
            HeaderRead::Valid(header) if header.shard != self.shard => {
                Err(StorageError::corrupt(path, format!("it belongs to shard {}", header.shard)))
            }
            HeaderRead::Valid(header) if header.segment == segment => Ok(header),
            HeaderRead::Version(found) => {
                Err(StorageError::UnknownFormat { path: path.into(), found, known: segment::VERSION })
            }
            HeaderRead::Valid(_) => Err(StorageError::corrupt(path, "it is another segment under this name")),
            HeaderRead::Unreadable => {
                Err(StorageError::corrupt(path, "its header does not match its checksum"))
            }
        }
    }
}
