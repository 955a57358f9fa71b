//! Envelopes with a long body, kept as the parts that arrived. Joining and inflating these parts
//! takes up to tens of milliseconds. The decoder leaves that to the caller, who can run it outside
//! the fast path.

use bytes::{Bytes, BytesMut};

use crate::compress::{decompress_body, inflated_bytes};
use crate::decoder::envelope;
use crate::frame::Header;
use crate::{Compression, Envelope, Error, Flags, Opcode, Version};

/// Small parts are collected up to this size in bytes.
const PART_BYTES: usize = 128 << 10;

/// Bytes in order of arrival.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    full: Vec<Bytes>,
    /// The part that is being filled.
    last: BytesMut,
    bytes: usize,
    /// True if bytes are counted and dropped.
    is_skipped: bool,
}

impl Parts {
    /// Returns the number of bytes in all parts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops all bytes, also those to come.
    pub(crate) fn skip(&mut self) {
        *self = Parts { bytes: self.bytes, is_skipped: true, ..Parts::default() };
    }

    pub(crate) fn is_skipped(&self) -> bool {
        self.is_skipped
    }

    /// Appends a part without a copy.
    pub(crate) fn push(&mut self, part: Bytes) {
        self.bytes += part.len();
        if !self.is_skipped {
            self.full.push(part);
        }
    }

    /// Appends a copy of `bytes`.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        if self.is_skipped {
            return;
        }
        self.last.extend_from_slice(bytes);
        if self.last.len() >= PART_BYTES {
            self.full.push(self.last.split().freeze());
        }
    }

    /// Returns all bytes in one buffer.
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

/// A complete envelope whose parts are not joined and not inflated yet.
#[derive(Debug, PartialEq, Eq)]
pub struct LargeEnvelope {
    header: Header,
    parts: Parts,
    compression: Option<Compression>,
    bytes: usize,
    bytes_max: usize,
}

impl LargeEnvelope {
    /// Creates an envelope of these parts.
    ///
    /// # Errors
    /// Fails if the length that the body claims to inflate to is malformed, impossible or over
    /// `bytes_max`.
    pub(crate) fn new(
        header: Header,
        parts: Parts,
        compression: Option<Compression>,
        bytes_max: usize,
    ) -> Result<LargeEnvelope, Error> {
        let bytes = match (compression, parts.full.first()) {
            (Some(compression), Some(first)) => inflated_bytes(compression, first, parts.bytes(), bytes_max)?,
            _ => parts.bytes(),
        };
        Ok(LargeEnvelope { header, parts, compression, bytes, bytes_max })
    }

    /// Returns the inflated length of the body in bytes. This is the claim of the sender, and
    /// `assemble` checks it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the stream, which pairs the response with this request.
    pub fn stream(&self) -> i16 {
        self.header.stream
    }

    /// Returns the flags. The compression flag is that of the sender.
    pub fn flags(&self) -> Flags {
        self.header.flags
    }

    /// Returns the kind of message.
    pub fn opcode(&self) -> Opcode {
        self.header.opcode
    }

    /// Returns the protocol version of the message.
    pub fn version(&self) -> Version {
        self.header.version
    }

    /// Joins the parts and inflates them. The time is linear in the inflated body: about 1 ms per 2
    /// MiB.
    ///
    /// # Errors
    /// Fails if the body is malformed.
    pub fn assemble(self) -> Result<Envelope, Error> {
        let body = self.parts.join();
        let body = match self.compression {
            Some(compression) => decompress_body(compression, &body, self.bytes_max)?,
            None => body,
        };
        Ok(envelope(self.header, body))
    }
}
