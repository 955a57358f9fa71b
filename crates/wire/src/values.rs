//! Bound values of a request, as a validated slice of the body with an iterator over it. Decoding a
//! request therefore allocates nothing, whatever its number of values.

use crate::body::Body;
use crate::read::Reader;
use crate::{Consistency, Error, Value};

/// The encoded values of a request, validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Values<'a> {
    bytes: &'a [u8],
    count: u16,
    named: bool,
}

impl<'a> Values<'a> {
    /// Reads `[short] n` and `n` values, each preceded by its name if `named`.
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

    pub(crate) fn write(&self, body: &mut Body<'_>) {
        body.short(self.count);
        body.raw(self.bytes);
    }

    pub(crate) fn encoded(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns true if there are no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns true if every value has a name.
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// Iterates over the values in order, without their names.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        self.iter_named().map(|(_, value)| value)
    }

    /// Iterates over names and values in order. Names are empty if the request has none.
    #[inline]
    pub fn iter_named(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        let named = self.named;
        // These reads cannot fail: `read` and `ValuesBuf` have validated the bytes.
        (0..self.count).map_while(move |_| {
            let name = if named { reader.string("value name").ok()? } else { "" };
            Some((name, reader.value("value").ok()?))
        })
    }
}

/// Builder of the values of a request. Reuse it with [`ValuesBuf::clear`] to keep its memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValuesBuf {
    bytes: Vec<u8>,
    count: u16,
    named: bool,
}

impl ValuesBuf {
    /// Creates a builder without values.
    pub fn new() -> ValuesBuf {
        ValuesBuf::default()
    }

    /// Removes all values and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.named = false;
    }

    /// Appends a value without a name.
    ///
    /// # Errors
    /// [`Error::TooLong`] for more than 65,535 values, for a value over 2 GiB, and for a value
    /// without a name after named values.
    pub fn push(&mut self, value: Value<'_>) -> Result<(), Error> {
        if self.named {
            return Err(Error::TooLong { field: "nameless values after named ones", length: 1 });
        }
        self.append(None, value)
    }

    /// Appends a value with a name.
    ///
    /// # Errors
    /// Those of [`ValuesBuf::push`], and [`Error::TooLong`] for a name over 65,535 bytes.
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

    /// Returns the values in the form that requests borrow.
    pub fn values(&self) -> Values<'_> {
        Values { bytes: &self.bytes, count: self.count, named: self.named }
    }
}

impl Consistency {
    pub(crate) fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Consistency, Error> {
        Consistency::from_number(reader.short(field)?)
    }
}
