//! Bound values as they stand in a request: a checked slice of the body and an iterator over it, so that
//! a request with any number of values is decoded without allocating.

use crate::read::Reader;
use crate::{Consistency, Error};

/// One bound value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Null: deletes on write.
    Null,
    /// Not set: leaves the column as it is.
    Unset,
    /// A value in its type's encoding; may be empty.
    Bytes(&'a [u8]),
}

/// The values of a request, still encoded; known to be well-formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Values<'a> {
    bytes: &'a [u8],
    count: u16,
    named: bool,
}

impl<'a> Values<'a> {
    /// Reads `[short] n` and n values, each after its name when `named`.
    pub(crate) fn read(reader: &mut Reader<'a>, named: bool) -> Result<Values<'a>, Error> {
        let count = reader.short("number of values")?;
        let bytes = reader.rest();
        for _ in 0..count {
            if named {
                reader.string("value name")?;
            }
            reader.value("value")?;
        }
        let used = bytes.len() - reader.rest().len();
        Ok(Values { bytes: &bytes[..used], count, named: named && count > 0 })
    }

    pub(crate) fn write(&self, body: &mut crate::Body<'_>) {
        body.short(self.count);
        body.raw(self.bytes);
    }

    pub(crate) fn encoded(&self) -> &'a [u8] {
        self.bytes
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether each has a name.
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// The values in order, without their names.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        self.iter_named().map(|(_, value)| value)
    }

    /// The values in order with their names, which are empty when the request named none.
    #[inline]
    pub fn iter_named(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        let named = self.named;
        // The reads cannot fail: `read` and `ValuesBuf` have been through these bytes.
        (0..self.count).map_while(move |_| {
            let name = if named { reader.string("value name").ok()? } else { "" };
            Some((name, reader.value("value").ok()?))
        })
    }
}

/// Values being put together for a request; keep it and [`ValuesBuf::clear`] it between requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValuesBuf {
    bytes: Vec<u8>,
    count: u16,
    named: bool,
}

impl ValuesBuf {
    /// Without values.
    pub fn new() -> ValuesBuf {
        ValuesBuf::default()
    }

    /// Removes all values, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.named = false;
    }

    /// Appends a value without a name.
    ///
    /// # Errors
    /// [`Error::TooLong`] beyond 65,535 values or 2 GiB in one value, and for a nameless value after named.
    pub fn push(&mut self, value: Value<'_>) -> Result<(), Error> {
        if self.named {
            return Err(Error::TooLong { field: "nameless values after named ones", length: 1 });
        }
        self.append(None, value)
    }

    /// Appends a value with a name.
    ///
    /// # Errors
    /// As [`ValuesBuf::push`], and for a name over 65,535 bytes.
    pub fn push_named(&mut self, name: &str, value: Value<'_>) -> Result<(), Error> {
        if !self.named && self.count > 0 {
            return Err(Error::TooLong { field: "named values after nameless ones", length: 1 });
        }
        self.append(Some(name), value)?;
        self.named = true;
        Ok(())
    }

    fn append(&mut self, name: Option<&str>, value: Value<'_>) -> Result<(), Error> {
        let count = self.count.checked_add(1).ok_or(Error::TooLong { field: "values", length: 1 << 16 })?;
        let name_length = name.map_or(0, str::len);
        let name_length_field = u16::try_from(name_length)
            .map_err(|_| Error::TooLong { field: "a value's name", length: name_length })?;
        let length = match value {
            Value::Null => -1,
            Value::Unset => -2,
            Value::Bytes(bytes) => i32::try_from(bytes.len())
                .map_err(|_| Error::TooLong { field: "a value", length: bytes.len() })?,
        };
        if let Some(name) = name {
            self.bytes.extend_from_slice(&name_length_field.to_be_bytes());
            self.bytes.extend_from_slice(name.as_bytes());
        }
        self.bytes.extend_from_slice(&length.to_be_bytes());
        if let Value::Bytes(bytes) = value {
            self.bytes.extend_from_slice(bytes);
        }
        self.count = count;
        Ok(())
    }

    /// The values, to be put into a request.
    pub fn values(&self) -> Values<'_> {
        Values { bytes: &self.bytes, count: self.count, named: self.named }
    }
}

impl Consistency {
    pub(crate) fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Consistency, Error> {
        Consistency::from_number(reader.short(field)?)
    }
}
