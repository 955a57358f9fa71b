//! From a read buffer to envelopes. The owner of the socket appends what arrives to a `BytesMut` and calls
//! [`Decoder::step`] until it yields nothing. Uncompressed bodies are slices of that buffer, not copies.
//!
//! Memory is bounded by the limit on a body: a header is checked as soon as its nine bytes are there, and no buffer is sized
//! by a claim of the peer. Time is bounded too: a step takes in at most [`CHUNK_BYTES`] or one segment, and a body above
//! [`Decoder::set_inline_max`] is neither copied together nor inflated here, but returned as a [`Large`] for the caller to
//! assemble where long work runs.

use bytes::{Buf, Bytes, BytesMut};

use crate::compress::{decompress_body, inflated_bytes, lz4_block};
use crate::frame::{Direction, Envelope, Flags, HEADER_BYTES, Header, Limits, check_version_byte};
use crate::large::{Large, Parts};
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
    /// Bodies beyond this, bytes as sent or inflated, are returned as [`Decoded::Large`].
    inline_max: usize,
    /// Bytes of a large envelope's header that came so far (v5, over several segments).
    head: BytesMut,
    /// The large envelope that is coming in.
    large: Option<Coming>,
}

/// A large envelope of which some parts have arrived.
#[derive(Debug)]
struct Coming {
    header: Header,
    parts: Parts,
}

/// What one step of a [`Decoder`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// No envelope is complete: more bytes must be read.
    Nothing,
    /// A chunk of a large envelope was taken in. The next step may find more: a good place to yield.
    Chunk,
    /// A whole envelope.
    Envelope(Envelope),
    /// An envelope with a body beyond [`Decoder::set_inline_max`].
    Large(Large),
}

/// The most that one step takes in of a large v4 body, bytes.
pub const CHUNK_BYTES: usize = 32 << 10;

impl Decoder {
    /// A decoder of what comes from that side, in [`Framing::Startup`].
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

    /// Returns bodies of more than `bytes`, as sent or inflated, as [`Decoded::Large`] from now on.
    pub fn set_inline_max(&mut self, bytes: usize) {
        self.inline_max = bytes;
    }

    /// Declared body length of the large envelope that is coming in, bytes; 0 while none is.
    pub fn coming_bytes(&self) -> usize {
        self.large.as_ref().map_or(0, |coming| coming.header.length)
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

    /// Takes the next envelope out of `input`, or nothing when it is not complete yet, whatever its size.
    ///
    /// # Errors
    /// As [`Decoder::step`].
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

    /// Takes the next envelope, or a chunk of a large one, out of `input`. Where that is not complete yet, `input` then has
    /// room for at least some of what is missing.
    ///
    /// # Errors
    /// Any framing error. The connection cannot be resynchronized: answer on [`Decoder::last_stream`] and
    /// close it.
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

    /// An unframed envelope at the front of `input`, or the next chunk of a large one.
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
            // An old or foreign protocol may never send nine bytes: judge the version by the first four.
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
            self.large = Some(Coming { header, parts: Parts::default() });
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
                return Ok(Decoded::Large(Large::new(header, parts, Some(compression), max)?));
            }
            body = decompress_body(compression, &body, max)?;
        }
        Ok(Decoded::Envelope(envelope(header, body)))
    }

    /// Returns the large envelope that is coming in, if it is whole.
    fn finish_large(&mut self, compression: Compression) -> Result<Decoded, Error> {
        let whole = |coming: &mut Coming| coming.parts.bytes() == coming.header.length;
        let Some(Coming { header, parts }) = self.large.take_if(whole) else { return Ok(Decoded::Chunk) };
        let compression = header.flags.has(Flags::COMPRESSED).then_some(compression);
        let compression = compression.filter(|_| header.version == Version::V4);
        Ok(Decoded::Large(Large::new(header, parts, compression, self.limits.body_bytes_max)?))
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
        Ok(Decoded::Large(Large::new(header, parts, None, self.limits.body_bytes_max)?))
    }

    /// Adds one segment to a large envelope; returns that once it is whole.
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
            self.large = Some(Coming { header, parts: Parts::default() });
        }
        if let Some(coming) = &mut self.large {
            if payload.len() > coming.header.length - coming.parts.bytes() {
                return Err(Error::Segment("bytes after the end of a large envelope"));
            }
            coming.parts.copy(payload);
        }
        match self.finish_large(Compression::None)? {
            // One that was cut up without need.
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

    /// Segments that each hold so many bytes of a whole.
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

    /// A client may cut up what would fit into one segment, even the header of the envelope.
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
                // The next envelope is not mistaken for a part of this one.
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
                assert!(input.is_empty() && decoder.coming_bytes() == 0);
            }
        }
    }
}
