//! Decoder of envelopes from a read buffer. The owner of the socket appends received bytes to a
//! `BytesMut` and calls [`Decoder::step`] until it returns [`Decoded::Nothing`]. Uncompressed
//! bodies are slices of that buffer, not copies.
//!
//! Memory is bounded by the limit of a body. A header is checked as soon as its nine bytes have
//! arrived, and no claim of the peer sizes a buffer. Time is bounded too: a step takes at most
//! [`CHUNK_BYTES`] or one segment. A body above [`Decoder::set_inline_max`] is neither joined nor
//! inflated here. It is returned as a [`LargeEnvelope`], for the caller to assemble where long work
//! runs.

use bytes::{Buf, Bytes, BytesMut};

use crate::compress::{decompress_body, inflated_bytes, lz4_block};
use crate::frame::{Direction, Envelope, Flags, HEADER_BYTES, Header, Limits, check_version_byte};
use crate::large::{LargeEnvelope, Parts};
use crate::segment::{self, PAYLOAD_BYTES_MAX, SegmentHeader, TRAILER_BYTES};
use crate::{Compression, Error, Framing, Version};

/// Bytes reserved ahead of the received bytes, at most. This is the size of one segment, so that a
/// claim of 256 MiB reserves no more than that.
const RESERVE_BYTES_MAX: usize = 128 << 10;

/// An incremental decoder for one direction of one connection.
#[derive(Debug)]
pub struct Decoder {
    from: Direction,
    limits: Limits,
    framing: Framing,
    /// Stream of the last parsed header.
    stream: i16,
    /// Unread envelopes of the last self-contained segment.
    ready: Bytes,
    /// Bodies longer than this, in bytes, sent or inflated, are returned as [`Decoded::Large`].
    inline_max: usize,
    /// Received part of a large envelope's header (v5, over several segments).
    head: BytesMut,
    /// The large envelope that is being received.
    large: Option<Incoming>,
}

/// A partly received large envelope.
#[derive(Debug)]
struct Incoming {
    header: Header,
    parts: Parts,
}

/// Result of one step of a [`Decoder`].
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// No envelope is complete. More bytes are needed.
    Nothing,
    /// A chunk of a large envelope was consumed. The next step may find more. Callers may yield
    /// here.
    Chunk,
    /// A complete envelope.
    Envelope(Envelope),
    /// An envelope with a body beyond [`Decoder::set_inline_max`].
    Large(LargeEnvelope),
}

/// The most bytes of a large v4 body that one step consumes.
pub const CHUNK_BYTES: usize = 32 << 10;

impl Decoder {
    /// Creates a decoder of messages in direction `from`, in [`Framing::Startup`].
    pub fn new(from: Direction, limits: Limits) -> Decoder {
        Decoder {
            from,
            limits,
            framing: Framing::Startup,
            stream: 0,
            ready: Bytes::new(),
            inline_max: usize::MAX,
            head: BytesMut::new(),
            large: None,
        }
    }

    /// From now on, returns bodies of more than `bytes`, sent or inflated, as [`Decoded::Large`].
    pub fn set_inline_max(&mut self, bytes: usize) {
        self.inline_max = bytes;
    }

    /// Returns the declared body length in bytes of the large envelope being received. 0: there is
    /// none.
    pub fn incoming_bytes(&self) -> usize {
        self.large.as_ref().map_or(0, |coming| coming.header.length)
    }

    /// Returns true if the large envelope being received is dropped.
    pub fn is_skipping(&self) -> bool {
        self.large.as_ref().is_some_and(|coming| coming.parts.is_skipped())
    }

    /// Drops the large envelope being received: the bytes that have arrived, and the others as they
    /// arrive. No step returns it.
    pub fn skip_incoming(&mut self) {
        self.large.iter_mut().for_each(|coming| coming.parts.skip());
    }

    /// Changes the framing of all bytes that are not decoded yet. A server calls this after it has
    /// answered STARTUP and before it decodes further. A client calls it once it has decoded that
    /// answer.
    pub fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// Changes the limits, for instance after authentication.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Returns the stream of the last parsed header, to address an error to it. 0: there was none.
    pub fn last_stream(&self) -> i16 {
        self.stream
    }

    /// Takes the next envelope of any size out of `input`. `None`: the envelope is not complete
    /// yet.
    ///
    /// # Errors
    /// Those of [`Decoder::step`].
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Envelope>, Error> {
        loop {
            match self.step(input)? {
                Decoded::Nothing => return Ok(None),
                Decoded::Chunk => {}
                Decoded::Envelope(envelope) => return Ok(Some(envelope)),
                Decoded::Large(large) => return large.assemble().map(Some),
            }
        }
    }

    /// Takes the next envelope, or a chunk of a large one, out of `input`. If it is not complete
    /// yet, `input` then has capacity for at least some of the missing bytes.
    ///
    /// # Errors
    /// Any framing error. The connection cannot be resynchronized. Answer on
    /// [`Decoder::last_stream`] and close it.
    pub fn step(&mut self, input: &mut BytesMut) -> Result<Decoded, Error> {
        match self.framing {
            Framing::Startup => self.step_v4(input, Compression::None, None),
            Framing::V4(compression) => self.step_v4(input, compression, Some(Version::V4)),
            Framing::V5 { lz4 } => {
                if self.ready.is_empty() {
                    let Some((header, payload)) = self.next_segment(input, lz4)? else {
                        return Ok(Decoded::Nothing);
                    };
                    if !header.self_contained {
                        return self.add_segment(&payload);
                    }
                    if self.large.is_some() || !self.head.is_empty() {
                        return Err(Error::Segment("a large envelope was interrupted"));
                    }
                    self.ready = payload;
                    if self.ready.is_empty() {
                        return Ok(Decoded::Chunk);
                    }
                }
                self.next_of_segment()
            }
        }
    }

    /// Takes an unframed envelope, or the next chunk of a large one, from the front of `input`.
    fn step_v4(
        &mut self,
        input: &mut BytesMut,
        compression: Compression,
        version: Option<Version>,
    ) -> Result<Decoded, Error> {
        if let Some(coming) = &mut self.large {
            let missing = coming.header.length - coming.parts.bytes();
            if input.len() < missing.min(CHUNK_BYTES) {
                input.reserve(missing.min(CHUNK_BYTES) - input.len());
                return Ok(Decoded::Nothing);
            }
            coming.parts.push(input.split_to(missing.min(CHUNK_BYTES)).freeze());
            return self.finish_large(compression);
        }
        let Some(bytes) = input.first_chunk::<HEADER_BYTES>() else {
            // A peer with another protocol may never send nine bytes. Check the version in the
            // first four.
            if input.len() >= 4 {
                self.stream = i16::from_be_bytes([input[2], input[3]]);
                check_version_byte(input[0], self.from)?;
            }
            return Ok(Decoded::Nothing);
        };
        let header = self.header(bytes, version)?;
        let compressed = header.flags.has(Flags::COMPRESSED);
        if compressed && compression == Compression::None {
            return Err(Error::CompressionNotNegotiated);
        }
        if header.length > self.inline_max {
            input.advance(HEADER_BYTES);
            self.large = Some(Incoming { header, parts: Parts::default() });
            return Ok(Decoded::Chunk);
        }
        let total = HEADER_BYTES + header.length;
        if input.len() < total {
            input.reserve((total - input.len()).min(RESERVE_BYTES_MAX));
            return Ok(Decoded::Nothing);
        }
        let mut body = input.split_to(total).freeze();
        body.advance(HEADER_BYTES);
        if compressed {
            let max = self.limits.body_bytes_max;
            if inflated_bytes(compression, &body, body.len(), max)? > self.inline_max {
                let mut parts = Parts::default();
                parts.push(body);
                return Ok(Decoded::Large(LargeEnvelope::new(header, parts, Some(compression), max)?));
            }
            body = decompress_body(compression, &body, max)?;
        }
        Ok(Decoded::Envelope(envelope(header, body)))
    }

    /// Returns the large envelope that is being received, if it is complete.
    fn finish_large(&mut self, compression: Compression) -> Result<Decoded, Error> {
        let whole = |coming: &mut Incoming| coming.parts.bytes() == coming.header.length;
        let Some(Incoming { header, parts }) = self.large.take_if(whole) else { return Ok(Decoded::Chunk) };
        if parts.is_skipped() {
            return Ok(Decoded::Chunk);
        }
        let compression = header.flags.has(Flags::COMPRESSED).then_some(compression);
        let compression = compression.filter(|_| header.version == Version::V4);
        Ok(Decoded::Large(LargeEnvelope::new(header, parts, compression, self.limits.body_bytes_max)?))
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

    /// Takes the next whole segment out of `input`, checked and inflated.
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

    /// Takes the next envelope out of a self-contained segment.
    fn next_of_segment(&mut self) -> Result<Decoded, Error> {
        let Some(bytes) = self.ready.first_chunk::<HEADER_BYTES>().copied() else {
            return Err(Error::Segment("it ends inside an envelope header"));
        };
        let header = self.header(&bytes, Some(Version::V5))?;
        self.ready.advance(HEADER_BYTES);
        if self.ready.len() < header.length {
            return Err(Error::Segment("a self-contained segment ends inside an envelope"));
        }
        let body = self.ready.split_to(header.length);
        if header.length <= self.inline_max {
            return Ok(Decoded::Envelope(envelope(header, body)));
        }
        let mut parts = Parts::default();
        parts.push(body);
        Ok(Decoded::Large(LargeEnvelope::new(header, parts, None, self.limits.body_bytes_max)?))
    }

    /// Adds one segment to a large envelope. Returns the envelope once it is complete.
    fn add_segment(&mut self, mut payload: &[u8]) -> Result<Decoded, Error> {
        if payload.is_empty() {
            return Err(Error::Segment("an empty part of a large envelope"));
        }
        if self.large.is_none() {
            let taken = payload.len().min(HEADER_BYTES - self.head.len());
            self.head.extend_from_slice(&payload[..taken]);
            payload = &payload[taken..];
            let Some(bytes) = self.head.first_chunk::<HEADER_BYTES>().copied() else {
                return Ok(Decoded::Chunk);
            };
            let header = self.header(&bytes, Some(Version::V5))?;
            self.head.clear();
            self.large = Some(Incoming { header, parts: Parts::default() });
        }
        if let Some(coming) = &mut self.large {
            if payload.len() > coming.header.length - coming.parts.bytes() {
                return Err(Error::Segment("bytes after the end of a large envelope"));
            }
            coming.parts.copy(payload);
        }
        match self.finish_large(Compression::None)? {
            // The peer divided an envelope that would have fitted into one segment.
            Decoded::Large(large) if large.bytes() <= self.inline_max => {
                large.assemble().map(Decoded::Envelope)
            }
            decoded => Ok(decoded),
        }
    }
}

pub(crate) fn envelope(header: Header, body: Bytes) -> Envelope {
    let flags = Flags(header.flags.0 & !Flags::COMPRESSED);
    Envelope { version: header.version, flags, stream: header.stream, opcode: header.opcode, body }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Encoder, Query, QueryParams, Request};

    /// Divides `whole` into segments of `each` bytes.
    fn segments(whole: &[u8], each: usize, lz4: bool) -> BytesMut {
        let mut out = BytesMut::new();
        for payload in whole.chunks(each) {
            let header = SegmentHeader { length: payload.len(), uncompressed: 0, self_contained: false };
            let mut head = vec![0; segment::header_bytes(lz4)];
            header.emit(lz4, &mut head);
            out.extend_from_slice(&head);
            out.extend_from_slice(payload);
            out.extend_from_slice(&segment::trailer(payload));
        }
        out
    }

    #[test]
    fn skipped_envelope_is_counted_and_the_next_one_is_whole() {
        for version in [Version::V4, Version::V5] {
            let framing = Framing::after_startup(version, Compression::None).expect("possible");
            let mut encoder = Encoder::new(Direction::Request, version);
            encoder.set_framing(framing);
            let long = "x".repeat(400 << 10);
            for text in [&long, "SELECT v FROM t", &long] {
                let query = Query { text, params: QueryParams::default() };
                encoder.request(7, &Request::Query(query)).expect("fits");
            }
            let mut input = encoder.finish().split();
            let mut decoder = Decoder::new(Direction::Request, Limits::default());
            decoder.set_framing(framing);
            decoder.set_inline_max(128 << 10);
            let (mut found, mut is_skipped) = (Vec::new(), false);
            loop {
                match decoder.step(&mut input).expect("the framing is sound") {
                    Decoded::Envelope(envelope) => found.push(envelope.body.len()),
                    Decoded::Large(large) => found.push(large.bytes()),
                    Decoded::Chunk => {
                        if !std::mem::replace(&mut is_skipped, true) {
                            decoder.skip_incoming();
                        }
                        let Some(coming) = decoder.large.as_ref().filter(|_| decoder.is_skipping()) else {
                            continue;
                        };
                        let mut dropped = Parts::default();
                        dropped.skip();
                        dropped.copy(&vec![0; coming.parts.bytes()]);
                        assert_eq!(coming.parts, dropped, "nothing is kept");
                    }
                    Decoded::Nothing => break,
                }
            }
            assert!(matches!(found[..], [15..=100, 409_600..=410_000]), "{framing:?}: {found:?}");
            assert!(input.is_empty() && decoder.incoming_bytes() == 0);
        }
    }

    /// A client may divide an envelope that would fit into one segment, even within its header.
    #[test]
    fn small_envelope_over_several_segments_is_whole() {
        for lz4 in [false, true] {
            let mut encoder = Encoder::new(Direction::Request, Version::V5);
            encoder.set_framing(Framing::V5 { lz4: false });
            let query = Query { text: "SELECT v FROM t WHERE k = 1", params: QueryParams::default() };
            encoder.request(7, &Request::Query(query)).expect("fits");
            let segment = encoder.finish().split();
            let from = segment::header_bytes(false);
            let whole = segment[from..segment.len() - TRAILER_BYTES].to_vec();
            for each in 1..=whole.len() {
                let mut decoder = Decoder::new(Direction::Request, Limits::default());
                decoder.set_framing(Framing::V5 { lz4 });
                decoder.set_inline_max(1 << 10);
                let mut input = segments(&whole, each, lz4);
                // The next envelope must not be taken for a part of this one.
                input.extend_from_slice(&segments(&whole, whole.len(), lz4));
                let mut found = Vec::new();
                loop {
                    match decoder.step(&mut input).expect("the framing is sound") {
                        Decoded::Envelope(envelope) => found.push(envelope),
                        Decoded::Chunk => {}
                        Decoded::Large(_) => panic!("it is small, in segments of {each} bytes"),
                        Decoded::Nothing => break,
                    }
                }
                assert_eq!(found.len(), 2, "segments of {each} bytes");
                for envelope in found {
                    assert_eq!((envelope.stream, &envelope.body[..]), (7, &whole[HEADER_BYTES..]));
                }
                assert!(input.is_empty() && decoder.incoming_bytes() == 0);
            }
        }
    }
}
