//! From a read buffer to envelopes. Whoever owns the socket appends what arrives to a `BytesMut` and
//! calls [`Decoder::decode`] until it yields nothing. Uncompressed bodies are slices of that buffer, not
//! copies. Memory is bounded by the limit on a body: a header is judged as soon as its nine bytes are
//! there, and no buffer is sized by what a peer merely claims.

use bytes::{Buf, Bytes, BytesMut};

use crate::compress::{decompress_body, lz4_block};
use crate::frame::{Direction, Envelope, Flags, HEADER_BYTES, Header, Limits, check_version_byte};
use crate::segment::{self, PAYLOAD_BYTES_MAX, SegmentHeader, TRAILER_BYTES};
use crate::{Compression, Error, Framing, Version};

/// How far ahead of the bytes that arrived the read buffer is grown: one segment's worth, so that a claim
/// of 256 MiB costs its sender the bytes.
const RESERVE_BYTES_MAX: usize = 128 << 10;

/// An incremental decoder for one direction of one connection.
#[derive(Debug)]
pub struct Decoder {
    from: Direction,
    limits: Limits,
    framing: Framing,
    /// Stream of the last header looked at.
    stream: i16,
    /// Unread envelopes of the last self-contained segment.
    ready: Bytes,
    /// Parts of an envelope too large for one segment.
    large: BytesMut,
}

impl Decoder {
    /// A decoder of what comes from that side, in [`Framing::Startup`].
    pub fn new(from: Direction, limits: Limits) -> Decoder {
        Decoder {
            from,
            limits,
            framing: Framing::Startup,
            stream: 0,
            ready: Bytes::new(),
            large: BytesMut::new(),
        }
    }

    /// Changes the framing of all bytes not yet decoded. A server calls this once it has answered STARTUP
    /// and before decoding any further, a client once it has decoded that answer.
    pub fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// Changes the limits, as after authentication.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The stream of the last header looked at, so that a refusal can be addressed; zero when there was
    /// none.
    pub fn last_stream(&self) -> i16 {
        self.stream
    }

    /// Takes the next envelope out of `input`, or nothing when it is not complete yet. `input` then has
    /// room for at least some of what is missing.
    ///
    /// # Errors
    /// Any framing error. The connection cannot be resynchronized: answer on [`Decoder::last_stream`] and
    /// close it.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Envelope>, Error> {
        match self.framing {
            Framing::Startup => self.decode_envelope(input, Compression::None, None),
            Framing::V4(compression) => self.decode_envelope(input, compression, Some(Version::V4)),
            Framing::V5 { lz4 } => loop {
                if !self.ready.is_empty() {
                    return self.next_of_segment().map(Some);
                }
                let Some((header, payload)) = self.next_segment(input, lz4)? else {
                    return Ok(None);
                };
                if header.self_contained {
                    if !self.large.is_empty() {
                        return Err(Error::Segment("a large envelope was interrupted"));
                    }
                    self.ready = payload;
                } else if let Some(envelope) = self.add_large(&payload)? {
                    return Ok(Some(envelope));
                }
            },
        }
    }

    /// An unframed envelope at the front of `input`.
    fn decode_envelope(
        &mut self,
        input: &mut BytesMut,
        compression: Compression,
        version: Option<Version>,
    ) -> Result<Option<Envelope>, Error> {
        let Some(bytes) = input.first_chunk::<HEADER_BYTES>() else {
            // An old or foreign protocol may never send nine bytes: judge the version by the first four.
            if input.len() >= 4 {
                self.stream = i16::from_be_bytes([input[2], input[3]]);
                check_version_byte(input[0], self.from)?;
            }
            return Ok(None);
        };
        let header = self.header(bytes, version)?;
        if header.flags.has(Flags::COMPRESSED) && compression == Compression::None {
            return Err(Error::CompressionNotNegotiated);
        }
        let total = HEADER_BYTES + header.length;
        if input.len() < total {
            input.reserve((total - input.len()).min(RESERVE_BYTES_MAX));
            return Ok(None);
        }
        let mut body = input.split_to(total).freeze();
        body.advance(HEADER_BYTES);
        if header.flags.has(Flags::COMPRESSED) {
            body = decompress_body(compression, &body, self.limits.body_bytes_max)?;
        }
        Ok(Some(envelope(header, body)))
    }

    fn header(&mut self, bytes: &[u8; HEADER_BYTES], version: Option<Version>) -> Result<Header, Error> {
        self.stream = i16::from_be_bytes([bytes[2], bytes[3]]);
        let header = Header::parse(bytes, self.from, self.limits)?;
        match version {
            Some(expected) if expected != header.version => {
                Err(Error::VersionChanged { expected: expected.number(), found: header.version.number() })
            }
            _ => Ok(header),
        }
    }

    /// The next whole segment of `input`, checked and inflated.
    fn next_segment(
        &mut self,
        input: &mut BytesMut,
        lz4: bool,
    ) -> Result<Option<(SegmentHeader, Bytes)>, Error> {
        let header_bytes = segment::header_bytes(lz4);
        if input.len() < header_bytes {
            return Ok(None);
        }
        let header = SegmentHeader::parse(&input[..header_bytes], lz4)?;
        let total = header_bytes + header.length + TRAILER_BYTES;
        if input.len() < total {
            input.reserve(total - input.len());
            return Ok(None);
        }
        let mut bytes = input.split_to(total).freeze();
        bytes.advance(header_bytes);
        let trailer = bytes.split_off(header.length);
        segment::check_payload(&bytes, &trailer)?;
        if header.uncompressed != 0 {
            bytes = lz4_block(&bytes, header.uncompressed, PAYLOAD_BYTES_MAX)?;
        }
        Ok(Some((header, bytes)))
    }

    /// The next envelope of a self-contained segment.
    fn next_of_segment(&mut self) -> Result<Envelope, Error> {
        let Some(bytes) = self.ready.first_chunk::<HEADER_BYTES>().copied() else {
            return Err(Error::Segment("it ends inside an envelope header"));
        };
        let header = self.header(&bytes, Some(Version::V5))?;
        self.ready.advance(HEADER_BYTES);
        if self.ready.len() < header.length {
            return Err(Error::Segment("a self-contained segment ends inside an envelope"));
        }
        Ok(envelope(header, self.ready.split_to(header.length)))
    }

    /// Adds one part of a large envelope; yields it once it is whole.
    fn add_large(&mut self, part: &[u8]) -> Result<Option<Envelope>, Error> {
        if part.is_empty() {
            return Err(Error::Segment("an empty part of a large envelope"));
        }
        self.large.extend_from_slice(part);
        let Some(bytes) = self.large.first_chunk::<HEADER_BYTES>().copied() else {
            return Ok(None);
        };
        let header = self.header(&bytes, Some(Version::V5))?;
        match self.large.len() - HEADER_BYTES {
            length if length < header.length => Ok(None),
            length if length > header.length => {
                Err(Error::Segment("bytes after the end of a large envelope"))
            }
            _ => {
                let mut body = std::mem::take(&mut self.large).freeze();
                body.advance(HEADER_BYTES);
                Ok(Some(envelope(header, body)))
            }
        }
    }
}

fn envelope(header: Header, body: Bytes) -> Envelope {
    let flags = Flags(header.flags.0 & !Flags::COMPRESSED);
    Envelope { version: header.version, flags, stream: header.stream, opcode: header.opcode, body }
}
