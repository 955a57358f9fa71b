//! BATCH: several statements, each prepared or as text, each with its values. The statements stay
//! encoded and an iterator walks them. Decoding a batch of thousands of statements therefore
//! allocates nothing.

use std::ops::Range;

use crate::body::Body;
use crate::params::BatchParams;
use crate::read::{Reader, out_of_range};
use crate::{Error, Values, Version};

/// Atomicity of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BatchKind {
    /// All statements or none, through the batch log.
    #[default]
    Logged,
    /// No atomicity across partitions.
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
    /// The statement to execute.
    pub statement: Statement<'a>,
    /// Bound values, without names.
    pub values: Values<'a>,
}

/// BATCH.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch<'a> {
    /// Atomicity of the batch.
    pub kind: BatchKind,
    entries: &'a [u8],
    count: u16,
    /// Parameters of all statements.
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

/// The statement of an element whose text was checked before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckedStatement<'a> {
    /// As text, in bytes.
    Text(&'a [u8]),
    /// By the id of a prepared statement.
    Prepared(&'a [u8]),
}

/// Place of a checked BATCH in its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPlace {
    kind: BatchKind,
    entries: Range<usize>,
    count: u16,
}

impl<'a> Batch<'a> {
    /// Returns the place of this batch in `body`, from which it was read.
    ///
    /// # Panics
    /// Panics if it was read from another body.
    pub fn place(&self, body: &[u8]) -> BatchPlace {
        let start = self.entries.as_ptr() as usize - body.as_ptr() as usize;
        let entries = start..start + self.entries.len();
        assert!(entries.end <= body.len(), "the batch was read from this body");
        BatchPlace { kind: self.kind, entries, count: self.count }
    }

    pub(crate) fn at(body: &'a [u8], place: &BatchPlace, version: Version) -> Result<Batch<'a>, Error> {
        let BatchPlace { kind, ref entries, count } = *place;
        let mut reader = Reader::new(&body[entries.end..]);
        let params = BatchParams::read(&mut reader, version)?;
        Ok(Batch { kind, entries: &body[entries.clone()], count, params })
    }

    /// Returns the statements and their values in order, of a batch that was checked before. Takes
    /// no time for texts.
    pub fn iter_checked(&self) -> impl Iterator<Item = (CheckedStatement<'a>, Values<'a>)> + use<'a> {
        let mut reader = Reader::new(self.entries);
        // These reads cannot fail, as those of `iter`.
        (0..self.count).map_while(move |_| {
            let statement = match reader.byte("statement kind").ok()? {
                0 => CheckedStatement::Text(reader.long_text("query").ok()?),
                _ => CheckedStatement::Prepared(reader.short_bytes("statement id").ok()?),
            };
            Some((statement, Values::read(&mut reader, false).ok()?))
        })
    }

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

    /// Creates a batch of the statements collected in `entries`.
    pub fn new(kind: BatchKind, entries: &'a BatchBuf, params: BatchParams<'a>) -> Batch<'a> {
        Batch { kind, entries: &entries.bytes, count: entries.count, params }
    }

    /// Returns the number of statements.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns true if the batch has no statements.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the statements in order.
    pub fn iter(&self) -> impl Iterator<Item = BatchEntry<'a>> + use<'a> {
        let mut reader = Reader::new(self.entries);
        // These reads cannot fail: `read` and `BatchBuf` have validated the bytes.
        (0..self.count).map_while(move |_| BatchEntry::read(&mut reader).ok())
    }
}

/// Builder of the statements of a batch. Reuse it with [`BatchBuf::clear`] to keep its memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchBuf {
    bytes: Vec<u8>,
    count: u16,
}

impl BatchBuf {
    /// Creates a builder without statements.
    pub fn new() -> BatchBuf {
        BatchBuf::default()
    }

    /// Removes all statements and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Appends a statement with its values.
    ///
    /// # Errors
    /// [`Error::TooLong`] for more than 65,535 statements, for text over 2 GiB, or for an id over
    /// 65,535 bytes. [`Error::NamedBatchValues`] for named values.
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
