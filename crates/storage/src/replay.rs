//! Reading a log back: every segment of a shard, and the records above those that are flushed, in order and without gaps.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::codec::Reader;
use crate::error::StorageError;
use crate::layout::{list, read_all};
use crate::log::segment_path;
use crate::model::Mutation;
use crate::segment::{self, BLOCK, Batch, HeaderRead, SegmentHeader};
use crate::world::World;

/// A segment read back.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) segment: u64,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// `None`: free.
    pub(crate) header: Option<SegmentHeader>,
    pub(crate) batches: Vec<Batch>,
}

impl Found {
    /// The last record in it, 0 if there is none.
    pub(crate) fn last_record(&self) -> u64 {
        self.batches.iter().map(Batch::last_record).max().unwrap_or(0)
    }
}

/// Reads all segments of a log.
pub(crate) async fn read_segments(
    world: &dyn World,
    dir: &Path,
    shard: u32,
) -> Result<Vec<Found>, StorageError> {
    let mut found = Vec::new();
    for name in list(world, dir).await? {
        let segment = name.strip_suffix(".log").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        if let Some(segment) = segment {
            found.push(read_segment(world, dir, segment, shard).await?);
        }
    }
    Ok(found)
}

async fn read_segment(
    world: &dyn World,
    dir: &Path,
    segment: u64,
    shard: u32,
) -> Result<Found, StorageError> {
    let path = segment_path(dir, segment);
    let data = read_all(world, &path).await?;
    let header = match segment::decode_header(&data.slice(..data.len().min(BLOCK))) {
        HeaderRead::Valid(header) if header.shard != shard => {
            return Err(StorageError::corrupt(path, format!("it belongs to shard {}", header.shard)));
        }
        HeaderRead::Valid(header) => (header.segment == segment).then_some(header),
        HeaderRead::Newer(found) => {
            return Err(StorageError::NewerFormat { path, found, known: segment::VERSION });
        }
        HeaderRead::Unreadable if segment::holds_batches_of(&data, segment) => {
            return Err(StorageError::corrupt(path, "its header does not match its checksum"));
        }
        HeaderRead::Unreadable => None,
    };
    let batches = header.map_or_else(Vec::new, |header| segment::read_batches(&data, &header));
    Ok(Found { segment, path, bytes: data.len() as u64, header, batches })
}

/// The records above a number, one after the other.
#[derive(Debug)]
pub(crate) struct Replay {
    batches: VecDeque<(Batch, PathBuf)>,
    records: VecDeque<Bytes>,
    path: PathBuf,
    /// The number of the next of `records`.
    next: u64,
    /// The last record given out, or what was flushed.
    pub(crate) last: u64,
}

impl Replay {
    pub(crate) fn new(found: Vec<Found>, flushed: u64) -> Replay {
        let all = found.into_iter().flat_map(|found| {
            let path = found.path;
            found.batches.into_iter().map(move |batch| (batch, path.clone()))
        });
        let mut batches: Vec<_> = all.filter(|(batch, _)| batch.last_record() > flushed).collect();
        batches.sort_by_key(|(batch, _)| batch.first_record);
        let (records, path) = Default::default();
        Replay { batches: batches.into(), records, path, next: 0, last: flushed }
    }

    fn undecodable(&self) -> StorageError {
        StorageError::corrupt(&self.path, "a record with a valid checksum does not decode")
    }

    /// The next record and its number.
    ///
    /// # Errors
    /// Records are missing ahead of it, or it does not decode.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Vec<Mutation>)>, StorageError> {
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
            let Some((batch, path)) = self.batches.pop_front() else { return Ok(None) };
            if batch.first_record > self.last + 1 {
                let (from, to) = (self.last + 1, batch.first_record - 1);
                let what = format!("records {from} to {to} ahead of valid ones are missing");
                return Err(StorageError::corrupt(path, what));
            }
            self.path = path;
            self.next = batch.first_record;
            self.records = batch.payloads().map_err(|_| self.undecodable())?.into();
        }
    }
}
