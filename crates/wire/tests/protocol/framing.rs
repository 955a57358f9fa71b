//! Frames, segments and compression with input in chunks of any size, corrupted, oversized, or as a
//! decompression bomb.

use crate::corpus::*;
use bytes::BytesMut;
use wire::*;

/// Feeds `bytes` in chunks of `step` bytes and returns the envelopes.
fn feed(from: Direction, framing: Framing, bytes: &[u8], step: usize) -> Vec<Envelope> {
    let mut decoder = Decoder::new(from, Limits::default());
    decoder.set_framing(framing);
    let mut input = BytesMut::new();
    let mut envelopes = Vec::new();
    for piece in bytes.chunks(step) {
        input.extend_from_slice(piece);
        while let Some(envelope) = decoder.decode(&mut input).unwrap() {
            envelopes.push(envelope);
        }
    }
    assert!(input.is_empty());
    envelopes
}

fn refuse(from: Direction, framing: Framing, bytes: &[u8]) -> Error {
    decode_all(from, framing, bytes).expect_err("these bytes are wrong")
}

/// Encodes requests with bodies of these lengths.
fn queries(framing: Framing, version: Version, lengths: &[usize]) -> BytesMut {
    let mut encoder = encoder(Direction::Request, version, framing);
    for (stream, length) in lengths.iter().enumerate() {
        let text: String = (0..*length).map(|i| char::from(b'a' + (i * i % 23) as u8)).collect();
        let query = Query { text: &text, params: QueryParams::default() };
        encoder.request(stream as i16, &Request::Query(query)).unwrap();
    }
    encoder.finish().split()
}

#[test]
fn chunks_of_any_size_decode_to_the_same_envelopes() {
    for (version, framing) in FRAMINGS {
        let bytes = queries(framing, version, &[0, 1, 500, 3, 70, 2000]);
        let whole = feed(Direction::Request, framing, &bytes, bytes.len());
        assert_eq!(whole.len(), 6);
        for step in [1, 2, 3, 7, 9, 64, 1000] {
            assert_eq!(feed(Direction::Request, framing, &bytes, step), whole, "{framing:?} {step}");
        }
    }
}

/// Feeds `bytes` in chunks of `step` bytes to a decoder with an inline limit. Returns the
/// envelopes, each with `true` if it was large.
fn feed_steps(framing: Framing, bytes: &[u8], step: usize, inline_max: usize) -> Vec<(bool, Envelope)> {
    let mut decoder = Decoder::new(Direction::Request, Limits::default());
    decoder.set_framing(framing);
    decoder.set_inline_max(inline_max);
    let mut input = BytesMut::new();
    let mut envelopes = Vec::new();
    for piece in bytes.chunks(step) {
        input.extend_from_slice(piece);
        loop {
            let before = input.len();
            match decoder.step(&mut input).unwrap() {
                Decoded::Nothing => break,
                Decoded::Chunk => {}
                Decoded::Envelope(envelope) => envelopes.push((false, envelope)),
                Decoded::Large(large) => {
                    let (bytes, stream) = (large.bytes(), large.stream());
                    let envelope = large.assemble().unwrap();
                    assert_eq!((bytes, stream), (envelope.body.len(), envelope.stream));
                    envelopes.push((true, envelope));
                }
            }
            assert!(before - input.len() <= (128 << 10) + 64, "one step took {} bytes", before - input.len());
        }
    }
    assert!(input.is_empty());
    envelopes
}

#[test]
fn bodies_above_the_inline_limit_are_returned_as_large() {
    let lengths = [0, 100, 3000, 200_000, 5, 1_000_000, 2000];
    for (version, framing) in FRAMINGS {
        let bytes = queries(framing, version, &lengths);
        let whole = feed(Direction::Request, framing, &bytes, bytes.len());
        for step in [1, 1000, 50_000, bytes.len()] {
            let stepped = feed_steps(framing, &bytes, step, 2500);
            let large: Vec<bool> = stepped.iter().map(|(large, _)| *large).collect();
            assert_eq!(large, lengths.map(|length| length >= 3000), "{framing:?} {step}");
            let envelopes: Vec<Envelope> = stepped.into_iter().map(|(_, envelope)| envelope).collect();
            assert_eq!(envelopes, whole, "{framing:?} {step}");
        }
    }
}

#[test]
fn body_inflating_above_the_inline_limit_is_returned_as_large() {
    for compression in [Compression::Lz4, Compression::Snappy] {
        let framing = Framing::V4(compression);
        let mut encoder = encoder(Direction::Request, Version::V4, framing);
        let text = "a".repeat(1 << 20);
        let query = Query { text: &text, params: QueryParams::default() };
        encoder.request(1, &Request::Query(query)).unwrap();
        let bytes = encoder.finish().split();
        assert!(bytes.len() < 64 << 10);
        for inline_max in [1 << 10, 65 << 10] {
            let envelopes = feed_steps(framing, &bytes, bytes.len(), inline_max);
            assert!(matches!(&envelopes[..], [(true, envelope)] if envelope.body.len() > 1 << 20));
        }
    }
}

#[test]
fn truncated_stream_returns_neither_message_nor_error() {
    for (version, framing) in FRAMINGS {
        let bytes = queries(framing, version, &[400]);
        for cut in 0..bytes.len() {
            assert_eq!(decode_all(Direction::Request, framing, &bytes[..cut]), Ok(vec![]));
        }
    }
}

#[test]
fn truncated_body_is_an_error_or_a_shorter_message() {
    for version in [Version::V4, Version::V5] {
        let mut requests = Encoder::new(Direction::Request, version);
        all_requests(&mut requests, |_| ());
        let mut responses = Encoder::new(Direction::Response, version);
        all_responses(&mut responses);
        let requests = decode_all(Direction::Request, Framing::Startup, requests.finish()).unwrap();
        let responses = decode_all(Direction::Response, Framing::Startup, responses.finish()).unwrap();
        for whole in requests.iter().chain(&responses) {
            for cut in 0..whole.body.len() {
                let part = Envelope { body: whole.body.slice(..cut), ..whole.clone() };
                let error = match part.opcode.direction() {
                    Direction::Request => part.request().map(drop),
                    Direction::Response => part.response().map(drop),
                };
                let error = error.expect_err("every byte of these bodies is needed");
                assert!(!error.is_fatal() && !error.to_string().is_empty(), "{error}");
            }
        }
    }
}

#[test]
fn checksums_detect_every_flipped_bit_of_a_segment() {
    for lz4 in [false, true] {
        let framing = Framing::V5 { lz4 };
        let bytes = queries(framing, Version::V5, &[20, 700]);
        for bit in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            let error = refuse(Direction::Request, framing, &broken);
            assert!(matches!(error, Error::SegmentHeaderChecksum | Error::SegmentPayloadChecksum), "{error}");
            assert!(error.is_fatal());
        }
    }
}

#[test]
fn segments_hold_many_envelopes_or_a_part_of_a_large_one() {
    let small = Framing::V5 { lz4: false };
    // Header 6, trailer 4. A QUERY is 9 + 4 + text + 2 + 4.
    assert_eq!(queries(small, Version::V5, &[0; 100]).len(), 6 + 100 * 19 + 4);
    let lengths = [10, 131_071 - 19, 131_072, 5, 400_000, 1, 60_000, 60_000, 60_000];
    for lz4 in [false, true] {
        let framing = Framing::V5 { lz4 };
        let bytes = queries(framing, Version::V5, &lengths);
        let envelopes = feed(Direction::Request, framing, &bytes, 10_000);
        let found: Vec<usize> = envelopes.iter().map(|envelope| envelope.body.len() - 10).collect();
        assert_eq!(found, lengths);
    }
    // The maximum fits into one segment, one byte more does not.
    assert_eq!(queries(small, Version::V5, &[131_071 - 19]).len(), 131_071 + 10);
    assert_eq!(queries(small, Version::V5, &[131_071 - 18]).len(), 131_072 + 20);
}

#[test]
fn startup_is_unframed_and_the_rest_is_framed() {
    let framing = Framing::after_startup(Version::V5, Compression::Lz4).unwrap();
    let mut server = Encoder::new(Direction::Response, Version::V5);
    server.ready(0);
    server.set_framing(framing);
    server.void(1, &Prelude::default()).unwrap();
    server.void(2, &Prelude::default()).unwrap();
    let mut input = server.finish().split();
    assert_eq!(&input[..9], b"\x85\0\0\0\x02\0\0\0\0");

    let mut client = Decoder::new(Direction::Response, Limits::default());
    let ready = client.decode(&mut input).unwrap().unwrap();
    assert_eq!(ready.response(), Ok(Response::Ready));
    client.set_framing(framing);
    for stream in 1..=2 {
        let void = client.decode(&mut input).unwrap().unwrap();
        assert_eq!((void.stream, void.response()), (stream, Ok(Response::Void)));
    }
    assert_eq!(client.decode(&mut input), Ok(None));
    assert_eq!(Framing::after_startup(Version::V5, Compression::Snappy), Err(Error::CompressionUnsupported));
}

#[test]
fn compression_shortens_repetitive_bodies() {
    for (framing, version) in [
        (Framing::V4(Compression::Lz4), Version::V4),
        (Framing::V4(Compression::Snappy), Version::V4),
        (Framing::V5 { lz4: true }, Version::V5),
    ] {
        assert!(queries(framing, version, &[20_000]).len() < 4_000, "{framing:?}");
    }
}

#[test]
fn malformed_headers_return_specific_errors() {
    let check = |bytes: &[u8], expected: Error| {
        let mut decoder = Decoder::new(Direction::Request, Limits { body_bytes_max: 1000 });
        let mut input = BytesMut::from(bytes);
        assert_eq!(decoder.decode(&mut input), Err(expected));
        assert_eq!(decoder.last_stream(), 0x0305);
    };
    check(b"\x42\0\x03\x05\x05\0\0\0\0", Error::UnsupportedVersion(66));
    check(b"\x03\0\x03\x05", Error::UnsupportedVersion(3));
    check(b"\x84\0\x03\x05\x05\0\0\0\0", Error::WrongDirection);
    check(b"\x04\0\x03\x05\x04\0\0\0\0", Error::UnknownOpcode(4));
    check(b"\x04\0\x03\x05\x02\0\0\0\0", Error::UnexpectedOpcode(2));
    check(b"\x04\0\x03\x05\x07\0\0\x03\xE9", Error::Oversized { length: 1001, max: 1000 });
    check(b"\x04\0\x03\x05\x07\xFF\xFF\xFF\xFF", Error::NegativeLength(-1));
    check(b"\x04\x01\x03\x05\x07\0\0\0\0", Error::CompressionNotNegotiated);
    let changed = decode_all(Direction::Request, Framing::V4(Compression::None), b"\x05\0\0\0\x05\0\0\0\0");
    assert_eq!(changed, Err(Error::VersionChanged { expected: 4, found: 5 }));
}

/// A few bytes that claim to inflate to megabytes are refused before memory is reserved for them.
#[test]
fn decompression_bombs_are_refused() {
    let check = |compression, body: &[u8], expected: Error| {
        let mut bytes = b"\x04\x01\0\0\x07\0\0\0".to_vec();
        bytes.push(body.len() as u8);
        bytes.extend_from_slice(body);
        assert_eq!(refuse(Direction::Request, Framing::V4(compression), &bytes), expected);
    };
    let impossible = || Error::Decompression("the uncompressed length is impossible");
    check(Compression::Lz4, &[0x0F, 0, 0, 0, 0, 0], impossible());
    check(
        Compression::Lz4,
        &[0xFF, 0xFF, 0xFF, 0xFF, 0],
        Error::Oversized { length: 0xFFFF_FFFF, max: BODY_BYTES_MAX },
    );
    check(Compression::Lz4, &[0, 0], Error::Decompression("the LZ4 body is shorter than its length field"));
    check(Compression::Lz4, &[0, 0, 0, 9, 0xFF], Error::Decompression("the LZ4 block is malformed"));
    check(
        Compression::Lz4,
        &[0, 0, 0, 9, 0x10, b'a'],
        Error::Decompression("the LZ4 block is shorter than announced"),
    );
    check(Compression::Snappy, &[0x80, 0x80, 0x80, 0x40, 0], impossible());
    check(Compression::Snappy, &[0xFF; 12], Error::Decompression("the Snappy length is malformed"));
    check(Compression::Snappy, &[9, 0xFF], Error::Decompression("the Snappy block is malformed"));
}

/// Some drivers set the compression flag on messages without a body.
#[test]
fn empty_body_with_the_compression_flag_is_accepted() {
    for compression in [Compression::Lz4, Compression::Snappy] {
        let envelopes =
            decode_all(Direction::Request, Framing::V4(compression), b"\x04\x01\0\x05\x05\0\0\0\0");
        assert_eq!(envelopes.unwrap()[0].request(), Ok(Request::Options));
    }
}

/// A real bomb (a long run of one byte) is inflated up to the limit and refused above it.
#[test]
fn inflated_bodies_respect_the_limit() {
    for compression in [Compression::Lz4, Compression::Snappy] {
        let framing = Framing::V4(compression);
        let mut encoder = encoder(Direction::Request, Version::V4, framing);
        let text = "a".repeat(1 << 20);
        let query = Query { text: &text, params: QueryParams::default() };
        encoder.request(0, &Request::Query(query)).unwrap();
        let bytes = encoder.finish().split();
        assert_eq!(decode_all(Direction::Request, framing, &bytes).unwrap().len(), 1);
        let mut decoder = Decoder::new(Direction::Request, Limits { body_bytes_max: 1 << 20 });
        decoder.set_framing(framing);
        let refused = decoder.decode(&mut bytes.clone());
        assert!(matches!(refused, Err(Error::Oversized { .. })), "{refused:?}");
    }
}

/// A claimed length reserves no more than a segment's worth before its bytes arrive.
#[test]
fn large_claimed_length_reserves_one_segment() {
    let mut decoder = Decoder::new(Direction::Request, Limits::default());
    let mut input = BytesMut::from(b"\x04\0\0\0\x07\x0F\xFF\xFF\xFF".as_slice());
    assert_eq!(decoder.decode(&mut input), Ok(None));
    assert!(input.capacity() <= 1 << 18, "{}", input.capacity());
}

#[test]
fn impossible_counts_are_refused() {
    let check = |opcode, body: &[u8]| {
        let refused = match Opcode::direction(opcode) {
            Direction::Request => Request::decode(Version::V4, opcode, body).map(drop),
            Direction::Response => Response::decode(Version::V4, opcode, body).map(drop),
        };
        assert!(refused.is_err(), "{opcode:?} {body:?}");
    };
    check(Opcode::Startup, &[0xFF, 0xFF, 0, 0]);
    check(Opcode::Register, &[0xFF, 0xFF, 0]);
    check(Opcode::Query, b"\x7F\xFF\xFF\xFFabc");
    check(Opcode::Query, b"\xFF\xFF\xFF\xFF");
    check(Opcode::Query, b"\0\0\0\x01\xFF\0\x01\0");
    check(Opcode::Query, b"\0\0\0\x01a\0\x0B\0");
    check(Opcode::Query, b"\0\0\0\x01a\0\x01\x01\0\x01\xFF\xFF\xFF\xFD");
    check(Opcode::Batch, b"\x03\0\0\0\x01\0");
    check(Opcode::Batch, b"\0\0\0\0\x01\x40");
    check(Opcode::Supported, &[0xFF, 0xFF]);
    check(Opcode::Result, b"\0\0\0\x02\0\0\0\x04\0\0\0\0\x7F\xFF\xFF\xFF");
    check(Opcode::Result, b"\0\0\0\x02\0\0\0\x04\x7F\xFF\xFF\xFF\x7F\xFF\xFF\xFF");
    check(Opcode::Result, b"\0\0\0\x02\0\0\0\x00\x7F\xFF\xFF\xFF\x7F\xFF\xFF\xFF");
    // A deeply nested list type is refused before the parser recurses deeply.
    let mut deep = b"\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0".to_vec();
    deep.extend([0x00, 0x20].repeat(100_000));
    check(Opcode::Result, &deep);
}
