//! Writer of one message: appends the notations of the protocol to the buffer of the encoder. Its
//! methods do not fail. A value too long for its length field is remembered. [`Body::end`] then
//! returns that error and removes the whole message.

use std::net::{IpAddr, SocketAddr};

use crate::encoder::Encoder;
use crate::{Error, Value};

/// A message begun with [`Encoder::begin`]. Dropping it without [`Body::end`] removes it.
#[derive(Debug)]
pub struct Body<'e> {
    pub(crate) encoder: &'e mut Encoder,
    pub(crate) start: usize,
    pub(crate) opened_segment: bool,
    pub(crate) fault: Option<Error>,
    pub(crate) ended: bool,
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.encoder.abandon(self.start, self.opened_segment);
        }
    }
}

impl Body<'_> {
    /// Ends the message.
    ///
    /// # Errors
    /// Fails if a field was too long for its length field, or if the body is over 256 MiB. The
    /// message is then removed from the buffer, so that the caller can send an ERROR instead.
    pub fn end(mut self) -> Result<(), Error> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        self.encoder.complete(self.start)?;
        self.ended = true;
        Ok(())
    }

    /// Returns the protocol version being written.
    pub fn version(&self) -> crate::Version {
        self.encoder.version()
    }

    /// Returns the number of bytes in the encoder's buffer, for [`Body::patch_int`].
    pub(crate) fn position(&self) -> usize {
        self.encoder.written()
    }

    /// Overwrites an `[int]` that was written at `position`.
    pub(crate) fn patch_int(&mut self, position: usize, value: i32) {
        self.encoder.out()[position..position + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Appends `bytes` unchanged.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.encoder.out().extend_from_slice(bytes);
    }

    /// Appends a `[byte]`.
    pub fn byte(&mut self, value: u8) {
        self.raw(&[value]);
    }

    /// Appends a `[short]`.
    #[inline]
    pub fn short(&mut self, value: u16) {
        self.raw(&value.to_be_bytes());
    }

    /// Appends an `[int]`.
    #[inline]
    pub fn int(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    /// Appends a `[long]`.
    pub fn long(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    #[cold]
    fn too_long(&mut self, field: &'static str, length: usize) {
        self.fault.get_or_insert(Error::TooLong { field, length });
    }

    /// Appends a `[short]` count.
    pub fn count(&mut self, count: usize, field: &'static str) {
        match u16::try_from(count) {
            Ok(count) => self.short(count),
            Err(_) => self.too_long(field, count),
        }
    }

    /// Appends a `[string]`, at most 65,535 bytes.
    pub fn string(&mut self, text: &str) {
        self.short_bytes(text.as_bytes());
    }

    /// Appends a `[short bytes]`, at most 65,535 bytes.
    #[inline]
    pub fn short_bytes(&mut self, bytes: &[u8]) {
        match u16::try_from(bytes.len()) {
            Ok(length) => {
                self.short(length);
                self.raw(bytes);
            }
            Err(_) => self.too_long("a string or short bytes", bytes.len()),
        }
    }

    /// Appends a `[long string]`.
    pub fn long_string(&mut self, text: &str) {
        self.bytes(Some(text.as_bytes()));
    }

    /// Appends a `[bytes]`. `None` is null.
    #[inline]
    pub fn bytes(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.int(-1),
            Some(bytes) => match i32::try_from(bytes.len()) {
                Ok(length) => {
                    self.int(length);
                    self.raw(bytes);
                }
                Err(_) => self.too_long("bytes", bytes.len()),
            },
        }
    }

    /// Appends a `[value]`.
    pub fn value(&mut self, value: Value<'_>) {
        match value {
            Value::Null => self.int(-1),
            Value::Unset => self.int(-2),
            Value::Bytes(bytes) => self.bytes(Some(bytes)),
        }
    }

    /// Appends a `[string list]`.
    pub fn string_list<S: AsRef<str>>(&mut self, list: &[S]) {
        self.count(list.len(), "a string list");
        for text in list {
            self.string(text.as_ref());
        }
    }

    /// Appends a `[string map]`.
    pub fn string_map(&mut self, map: &[(&str, &str)]) {
        self.count(map.len(), "a string map");
        for (key, value) in map {
            self.string(key);
            self.string(value);
        }
    }

    /// Appends an `[inetaddr]`.
    pub fn inetaddr(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => {
                self.byte(4);
                self.raw(&address.octets());
            }
            IpAddr::V6(address) => {
                self.byte(16);
                self.raw(&address.octets());
            }
        }
    }

    /// Appends an `[inet]`.
    pub fn inet(&mut self, address: SocketAddr) {
        self.inetaddr(address.ip());
        self.int(i32::from(address.port()));
    }
}
