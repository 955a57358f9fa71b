//! An envelope whose body is long: its parts as they arrived. Copying them together and inflating them takes up to tens of
//! milliseconds, so the decoder leaves that to a caller that knows where long work runs.

use bytes::{Bytes, BytesMut};

use crate::compress::{decompress_body, inflated_bytes};
use crate::decoder::envelope;
use crate::frame::Header;
use crate::{Compression, Envelope, Error, Opcode, Version};

/// Parts are filled up to this, bytes, where many small ones arrive.
const PART_BYTES: usize = 128 << 10;

/// Bytes in the order in which they arrived.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    full: Vec<Bytes>,
    /// The part being filled.
    last: BytesMut,
    bytes: usize,
}

impl Parts {
    /// Bytes in all parts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a part without a copy.
    pub(crate) fn push(&mut self, part: Bytes) {
        self.bytes += part.len();
        self.full.push(part);
    }

    /// Appends a copy.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.last.extend_from_slice(bytes);
        if self.last.len() >= PART_BYTES {
            self.full.push(self.last.split().freeze());
        }
    }

    /// All bytes in one piece.
    fn join(mut self) -> Bytes {
        if !self.last.is_empty() {
            self.full.push(self.last.freeze());
        }
        match self.full.len() {
            0 => Bytes::new(),
            1 => self.full.remove(0),
            _ => {
                let mut whole = BytesMut::with_capacity(self.bytes);
                self.full.iter().for_each(|part| whole.extend_from_slice(part));
                whole.freeze()
            }
        }
    }
}

/// An envelope that arrived whole, its body neither copied together nor inflated yet.
#[derive(Debug, PartialEq, Eq)]
pub struct Large {
    header: Header,
    parts: Parts,
    compression: Option<Compression>,
    bytes: usize,
    bytes_max: usize,
}

impl Large {
    /// An envelope of these parts.
    ///
    /// # Errors
    /// The length that the body claims to inflate to is malformed, impossible or over `bytes_max`.
    pub(crate) fn new(
        header: Header,
        parts: Parts,
        compression: Option<Compression>,
        bytes_max: usize,
    ) -> Result<Large, Error> {
        let bytes = match (compression, parts.full.first()) {
            (Some(compression), Some(first)) => inflated_bytes(compression, first, parts.bytes(), bytes_max)?,
            _ => parts.bytes(),
        };
        Ok(Large { header, parts, compression, bytes, bytes_max })
    }

    /// The body's length once inflated, bytes, as claimed by its sender and checked when it is inflated.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Pairs the response with this request.
    pub fn stream(&self) -> i16 {
        self.header.stream
    }

    /// What the body is.
    pub fn opcode(&self) -> Opcode {
        self.header.opcode
    }

    /// Protocol version of the message.
    pub fn version(&self) -> Version {
        self.header.version
    }

    /// Copies the parts together and inflates them. Linear in the inflated body: about 1 ms for each 2 MiB.
    ///
    /// # Errors
    /// The body is malformed.
    pub fn assemble(self) -> Result<Envelope, Error> {
        let body = self.parts.join();
        let body = match self.compression {
            Some(compression) => decompress_body(compression, &body, self.bytes_max)?,
            None => body,
        };
        Ok(envelope(self.header, body))
    }
}
