//! BATCH: several statements, each prepared or as text, each with its values. The statements stay encoded
//! and are walked by an iterator, so a batch of thousands is decoded without allocating.

use crate::body::Body;
use crate::params::BatchParams;
use crate::read::{Reader, out_of_range};
use crate::{Error, Values, Version};

/// What a batch promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BatchKind {
    /// All or nothing, through the batch log.
    #[default]
    Logged,
    /// No such promise.
    Unlogged,
    /// Counter updates.
    Counter,
}

/// The statement of one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statement<'a> {
    /// As text.
    Text(&'a str),
    /// By the id of a prepared statement.
    Prepared(&'a [u8]),
}

/// One element of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEntry<'a> {
    /// What to run.
    pub statement: Statement<'a>,
    /// Its bound values, nameless.
    pub values: Values<'a>,
}

/// BATCH.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch<'a> {
    /// What it promises.
    pub kind: BatchKind,
    entries: &'a [u8],
    count: u16,
    /// Parameters for all of its statements.
    pub params: BatchParams<'a>,
}

impl<'a> BatchEntry<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<BatchEntry<'a>, Error> {
        let statement = match reader.byte("statement kind")? {
            0 => Statement::Text(reader.long_string("query")?),
            1 => Statement::Prepared(reader.short_bytes("statement id")?),
            other => return Err(out_of_range("statement kind", other)),
        };
        Ok(BatchEntry { statement, values: Values::read(reader, false)? })
    }
}

impl<'a> Batch<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, version: Version) -> Result<Batch<'a>, Error> {
        let kind = match reader.byte("batch type")? {
            0 => BatchKind::Logged,
            1 => BatchKind::Unlogged,
            2 => BatchKind::Counter,
            other => return Err(out_of_range("batch type", other)),
        };
        let count = reader.short("number of statements")?;
        let whole = reader.rest();
        for _ in 0..count {
            BatchEntry::read(reader)?;
        }
        let entries = &whole[..whole.len() - reader.rest().len()];
        Ok(Batch { kind, entries, count, params: BatchParams::read(reader, version)? })
    }

    pub(crate) fn write(&self, body: &mut Body<'_>) {
        body.byte(self.kind as u8);
        body.short(self.count);
        body.raw(self.entries);
        self.params.write(body);
    }

    /// A batch of the statements collected in `entries`.
    pub fn new(kind: BatchKind, entries: &'a BatchBuf, params: BatchParams<'a>) -> Batch<'a> {
        Batch { kind, entries: &entries.bytes, count: entries.count, params }
    }

    /// How many statements there are.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The statements in order.
    pub fn iter(&self) -> impl Iterator<Item = BatchEntry<'a>> + use<'a> {
        let mut reader = Reader::new(self.entries);
        // The reads cannot fail: `read` and `BatchBuf` have been through these bytes.
        (0..self.count).map_while(move |_| BatchEntry::read(&mut reader).ok())
    }
}

/// Statements being put together for a batch; keep it and [`BatchBuf::clear`] it between batches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchBuf {
    bytes: Vec<u8>,
    count: u16,
}

impl BatchBuf {
    /// Without statements.
    pub fn new() -> BatchBuf {
        BatchBuf::default()
    }

    /// Removes all statements, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Appends a statement with its values.
    ///
    /// # Errors
    /// [`Error::TooLong`] beyond 65,535 statements, for text over 2 GiB or an id over 65,535 bytes;
    /// [`Error::NamedBatchValues`] for named values.
    pub fn push(&mut self, entry: BatchEntry<'_>) -> Result<(), Error> {
        if entry.values.is_named() && !entry.values.is_empty() {
            return Err(Error::NamedBatchValues);
        }
        let too_long = |field, length| Error::TooLong { field, length };
        let count = self.count.checked_add(1).ok_or(too_long("statements of a batch", 1 << 16))?;
        match entry.statement {
            Statement::Text(text) => {
                let length = i32::try_from(text.len()).map_err(|_| too_long("a query", text.len()))?;
                self.bytes.push(0);
                self.bytes.extend_from_slice(&length.to_be_bytes());
                self.bytes.extend_from_slice(text.as_bytes());
            }
            Statement::Prepared(id) => {
                let length = u16::try_from(id.len()).map_err(|_| too_long("a statement id", id.len()))?;
                self.bytes.push(1);
                self.bytes.extend_from_slice(&length.to_be_bytes());
                self.bytes.extend_from_slice(id);
            }
        }
        self.bytes.extend_from_slice(&(entry.values.len() as u16).to_be_bytes());
        self.bytes.extend_from_slice(entry.values.encoded());
        self.count = count;
        Ok(())
    }
}
