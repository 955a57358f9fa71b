//! Readers of the notations of the protocol, without copying. Lengths are checked before any slice
//! or reservation. Each error names the field and its offset.

use std::net::{IpAddr, SocketAddr};

use crate::Error;

/// One bound value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Null. A write deletes the column.
    Null,
    /// Not set. A write leaves the column unchanged.
    Unset,
    /// A value in the encoding of its type, possibly empty.
    Bytes(&'a [u8]),
}

/// A cursor over one body.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// Length of the whole body in bytes, to derive offsets.
    whole: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Reader<'a> {
        Reader { rest: body, whole: body.len() }
    }

    /// Returns the bytes that have not been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn offset(&self) -> usize {
        self.whole - self.rest.len()
    }

    #[cold]
    fn truncated(&self, field: &'static str, needed: usize) -> Error {
        Error::Truncated { field, offset: self.offset(), needed, left: self.rest.len() }
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], Error> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(self.truncated(field, count)),
        }
    }

    #[inline]
    fn chunk<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Error> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Err(self.truncated(field, N)),
        }
    }

    #[inline]
    pub(crate) fn byte(&mut self, field: &'static str) -> Result<u8, Error> {
        Ok(self.chunk::<1>(field)?[0])
    }

    #[inline]
    pub(crate) fn short(&mut self, field: &'static str) -> Result<u16, Error> {
        Ok(u16::from_be_bytes(self.chunk(field)?))
    }

    #[inline]
    pub(crate) fn int(&mut self, field: &'static str) -> Result<i32, Error> {
        Ok(i32::from_be_bytes(self.chunk(field)?))
    }

    #[inline]
    pub(crate) fn long(&mut self, field: &'static str) -> Result<i64, Error> {
        Ok(i64::from_be_bytes(self.chunk(field)?))
    }

    pub(crate) fn uuid(&mut self, field: &'static str) -> Result<[u8; 16], Error> {
        self.chunk(field)
    }

    fn utf8(&mut self, count: usize, field: &'static str) -> Result<&'a str, Error> {
        let offset = self.offset();
        let bytes = self.take(count, field)?;
        std::str::from_utf8(bytes).map_err(|_| Error::NotUtf8 { field, offset })
    }

    /// Reads a `[string]`.
    pub(crate) fn string(&mut self, field: &'static str) -> Result<&'a str, Error> {
        let count = self.short(field)? as usize;
        self.utf8(count, field)
    }

    /// Reads the bytes of a `[long string]`, unchecked.
    pub(crate) fn long_text(&mut self, field: &'static str) -> Result<&'a [u8], Error> {
        let count = self.int(field)?;
        self.take(usize::try_from(count).map_err(|_| out_of_range(field, count))?, field)
    }

    /// Reads a `[long string]`.
    pub(crate) fn long_string(&mut self, field: &'static str) -> Result<&'a str, Error> {
        let count = self.int(field)?;
        let count = usize::try_from(count).map_err(|_| out_of_range(field, count))?;
        self.utf8(count, field)
    }

    /// Reads a `[bytes]`. `None`: the length is negative.
    #[inline]
    pub(crate) fn bytes(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, Error> {
        match usize::try_from(self.int(field)?) {
            Ok(count) => self.take(count, field).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Reads a `[short bytes]`.
    #[inline]
    pub(crate) fn short_bytes(&mut self, field: &'static str) -> Result<&'a [u8], Error> {
        let count = self.short(field)? as usize;
        self.take(count, field)
    }

    /// Reads a `[value]`: bytes, null (-1) or not set (-2).
    #[inline]
    pub(crate) fn value(&mut self, field: &'static str) -> Result<Value<'a>, Error> {
        match self.int(field)? {
            -1 => Ok(Value::Null),
            -2 => Ok(Value::Unset),
            count => match usize::try_from(count) {
                Ok(count) => self.take(count, field).map(Value::Bytes),
                Err(_) => Err(out_of_range(field, count)),
            },
        }
    }

    /// Reads a `[short]` count of elements of at least `least` bytes each. The caller may reserve
    /// that many.
    pub(crate) fn count(&mut self, least: usize, field: &'static str) -> Result<usize, Error> {
        let count = self.short(field)? as usize;
        self.check_count(count, least, field)?;
        Ok(count)
    }

    /// Rejects a count of elements that exceeds the rest of the body.
    pub(crate) fn check_count(&self, count: usize, least: usize, field: &'static str) -> Result<(), Error> {
        let needed = count.saturating_mul(least);
        if needed > self.rest.len() { Err(self.truncated(field, needed)) } else { Ok(()) }
    }

    /// Reads a `[string list]`.
    pub(crate) fn string_list(&mut self, field: &'static str) -> Result<Vec<&'a str>, Error> {
        let count = self.count(2, field)?;
        (0..count).map(|_| self.string(field)).collect()
    }

    /// Reads a `[string list]` into owned strings.
    pub(crate) fn owned_list(&mut self, field: &'static str) -> Result<Vec<String>, Error> {
        let count = self.count(2, field)?;
        (0..count).map(|_| self.string(field).map(str::to_owned)).collect()
    }

    /// Reads an `[inetaddr]`.
    pub(crate) fn inetaddr(&mut self, field: &'static str) -> Result<IpAddr, Error> {
        match self.byte(field)? {
            4 => Ok(IpAddr::from(self.chunk::<4>(field)?)),
            16 => Ok(IpAddr::from(self.chunk::<16>(field)?)),
            other => Err(out_of_range(field, other)),
        }
    }

    /// Reads an `[inet]`.
    pub(crate) fn inet(&mut self, field: &'static str) -> Result<SocketAddr, Error> {
        let address = self.inetaddr(field)?;
        let port = self.int(field)?;
        let port = u16::try_from(port).map_err(|_| out_of_range(field, port))?;
        Ok(SocketAddr::new(address, port))
    }

    /// Reads a `[string map]`, in the order sent.
    pub(crate) fn string_map(&mut self, field: &'static str) -> Result<Vec<(&'a str, &'a str)>, Error> {
        let count = self.count(4, field)?;
        (0..count).map(|_| Ok((self.string(field)?, self.string(field)?))).collect()
    }
}

/// Creates the error for a number outside the range of its field.
#[cold]
pub(crate) fn out_of_range(field: &'static str, value: impl Into<i64>) -> Error {
    Error::OutOfRange { field, value: value.into() }
}

/// Creates the error for an unknown word. The word is cut to 64 characters.
#[cold]
pub(crate) fn unknown_name(field: &'static str, name: &str) -> Error {
    Error::UnknownName { field, name: name.chars().take(64).collect() }
}
