//! Encoder of messages into one output buffer. Envelopes are written in place: first the header,
//! whose length is patched when the body ends. Uncompressed messages are therefore not copied. In
//! protocol v5, envelopes collect in an open segment, which [`Encoder::finish`] seals. A hundred
//! small answers need one segment and one write to the socket.

use bytes::BytesMut;

use crate::body::Body;
use crate::compress::Compressor;
use crate::frame::{BODY_BYTES_MAX, Direction, Flags, HEADER_BYTES, Header, Opcode};
use crate::prelude::Prelude;
use crate::segment::{self, PAYLOAD_BYTES_MAX, SegmentHeader, TRAILER_BYTES};
use crate::{Compression, Error, Framing, Version};

/// Shorter bodies and segments, in bytes, are sent uncompressed. Compressing them costs more than
/// it saves.
const COMPRESS_BYTES_MIN: usize = 256;

/// An encoder for one direction of one connection.
#[derive(Debug)]
pub struct Encoder {
    direction: Direction,
    version: Version,
    framing: Framing,
    out: BytesMut,
    /// Start of the open segment's header in `out`.
    segment: Option<usize>,
    compressor: Compressor,
}

impl Encoder {
    /// Creates an encoder of messages in this direction and version, in [`Framing::Startup`].
    pub fn new(direction: Direction, version: Version) -> Encoder {
        Encoder {
            direction,
            version,
            framing: Framing::Startup,
            out: BytesMut::new(),
            segment: None,
            compressor: Compressor::default(),
        }
    }

    /// Returns the version of the messages.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the framing of the messages begun from now on.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Changes the version. Until STARTUP fixes the version, a server answers in the version of the
    /// request.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Changes the framing of all messages begun from now on, and the version to that of the
    /// framing. Earlier messages are unchanged, so a server calls this directly after it has
    /// written its answer to STARTUP.
    pub fn set_framing(&mut self, framing: Framing) {
        self.seal();
        self.framing = framing;
        match framing {
            Framing::Startup => {}
            Framing::V4(_) => self.version = Version::V4,
            Framing::V5 { .. } => self.version = Version::V5,
        }
    }

    /// Begins a message. Write its body, then call [`Body::end`]. Dropping the body instead removes
    /// the message.
    pub fn begin(&mut self, stream: i16, opcode: Opcode) -> Body<'_> {
        self.begin_flagged(stream, opcode, 0)
    }

    /// Begins a message that carries tracing, warnings or a custom payload before its body.
    pub fn begin_with(&mut self, stream: i16, opcode: Opcode, prelude: &Prelude) -> Body<'_> {
        let direction = self.direction;
        let mut body = self.begin_flagged(stream, opcode, prelude.flags(direction));
        prelude.write(direction, &mut body);
        body
    }

    /// Appends a message that another connection received, on another stream. Its flags and its
    /// body are copied, and not read.
    ///
    /// # Errors
    /// The body is too long for the protocol. The buffer is then unchanged.
    pub fn relay(&mut self, stream: i16, opcode: Opcode, flags: Flags, body: &[u8]) -> Result<(), Error> {
        let mut message = self.begin_flagged(stream, opcode, flags.0 & !Flags::COMPRESSED);
        message.raw(body);
        message.end()
    }

    fn begin_flagged(&mut self, stream: i16, opcode: Opcode, flags: u8) -> Body<'_> {
        debug_assert_eq!(opcode.direction(), self.direction);
        let opened_segment = match self.framing {
            Framing::V5 { lz4 } if self.segment.is_none() => {
                self.segment = Some(self.out.len());
                self.out.extend_from_slice(&[0; 8][..segment::header_bytes(lz4)]);
                true
            }
            _ => false,
        };
        let start = self.out.len();
        let header = Header { version: self.version, flags: Flags(flags), stream, opcode, length: 0 };
        self.out.extend_from_slice(&header.emit(self.direction));
        Body { encoder: self, start, opened_segment, fault: None, ended: false }
    }

    /// Reserves memory for messages of `bytes`. A buffer that grows is copied each time.
    pub fn reserve(&mut self, bytes: usize) {
        self.out.reserve(bytes);
    }

    /// Returns the number of bytes to send, including an open segment.
    pub fn pending(&self) -> usize {
        self.out.len()
    }

    /// Seals the open segment and lends the buffer of bytes to send. Write it, then `advance`,
    /// `clear` or `split` it by the number of bytes written. New messages may be begun before all
    /// bytes are sent.
    pub fn finish(&mut self) -> &mut BytesMut {
        self.seal();
        &mut self.out
    }

    pub(crate) fn out(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    pub(crate) fn written(&self) -> usize {
        self.out.len()
    }

    /// Removes a message begun at `start`.
    pub(crate) fn abandon(&mut self, start: usize, opened_segment: bool) {
        self.out.truncate(start);
        if opened_segment && let Some(segment) = self.segment.take() {
            self.out.truncate(segment);
        }
    }

    /// Completes the envelope begun at `start`. On an error, the caller removes it.
    pub(crate) fn complete(&mut self, start: usize) -> Result<(), Error> {
        let length = self.out.len() - start - HEADER_BYTES;
        if length > BODY_BYTES_MAX {
            return Err(Error::Oversized { length: length as u64, max: BODY_BYTES_MAX });
        }
        match self.framing {
            Framing::Startup | Framing::V4(Compression::None) => self.patch_length(start, length),
            Framing::V4(compression) => {
                let body = start + HEADER_BYTES;
                if length >= COMPRESS_BYTES_MIN
                    && let Some(shorter) = self.compressor.body(compression, &self.out[body..])
                {
                    self.out.truncate(body);
                    self.out.extend_from_slice(shorter);
                    self.out[start + 1] |= Flags::COMPRESSED;
                }
                self.patch_length(start, self.out.len() - body);
            }
            Framing::V5 { lz4 } => {
                self.patch_length(start, length);
                self.fit_segment(start, lz4);
            }
        }
        Ok(())
    }

    fn patch_length(&mut self, start: usize, length: usize) {
        let at = start + HEADER_BYTES - 4;
        self.out[at..at + 4].copy_from_slice(&(length as u32).to_be_bytes());
    }

    /// Divides the open segment if the envelope at `start` does not fit into it.
    ///
    /// 1. The envelope fits: nothing is to be done.
    /// 2. It does not fit: seal the segment before it and begin the next one with it.
    /// 3. It does not fit even alone: divide it into segments that are not self-contained.
    fn fit_segment(&mut self, start: usize, lz4: bool) {
        let segment = self.segment.expect("an envelope is written into an open segment");
        let header_bytes = segment::header_bytes(lz4);
        if self.out.len() - segment - header_bytes <= PAYLOAD_BYTES_MAX {
            return;
        }
        let envelope = self.out.split_off(start);
        if start > segment + header_bytes {
            self.seal();
        } else {
            self.segment = None;
            self.out.truncate(segment);
        }
        if envelope.len() <= PAYLOAD_BYTES_MAX {
            self.segment = Some(self.out.len());
            self.out.extend_from_slice(&[0; 8][..header_bytes]);
            self.out.extend_from_slice(&envelope);
            return;
        }
        for part in envelope.chunks(PAYLOAD_BYTES_MAX) {
            let at = self.out.len();
            self.out.extend_from_slice(&[0; 8][..header_bytes]);
            self.out.extend_from_slice(part);
            self.seal_at(at, lz4, false);
        }
    }

    /// Seals the open segment, if any.
    fn seal(&mut self) {
        if let (Some(at), Framing::V5 { lz4 }) = (self.segment.take(), self.framing) {
            self.seal_at(at, lz4, true);
        }
    }

    /// Compresses the payload of the segment at `at`, which extends to the end of `out`. Writes its
    /// header and trailer.
    fn seal_at(&mut self, at: usize, lz4: bool, self_contained: bool) {
        let payload_at = at + segment::header_bytes(lz4);
        let whole = self.out.len() - payload_at;
        let mut uncompressed = 0;
        if lz4
            && whole >= COMPRESS_BYTES_MIN
            && let Some(shorter) = self.compressor.lz4(&self.out[payload_at..])
        {
            self.out.truncate(payload_at);
            self.out.extend_from_slice(shorter);
            uncompressed = whole;
        }
        let length = self.out.len() - payload_at;
        SegmentHeader { length, uncompressed, self_contained }.emit(lz4, &mut self.out[at..payload_at]);
        let trailer: [u8; TRAILER_BYTES] = segment::trailer(&self.out[payload_at..]);
        self.out.extend_from_slice(&trailer);
    }
}
