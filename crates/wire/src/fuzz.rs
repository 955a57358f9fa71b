//! The fuzz target: whatever the bytes, decoding ends in envelopes or an error, and what decodes as a
//! message encodes to a message that decodes the same. A plain function, so that a test can run it over a
//! mutated corpus and a fuzzer can call it.

use bytes::BytesMut;

use crate::{
    Compression, Decoder, Direction, Encoder, Envelope, Framing, Limits, Prelude, Request, Response,
};

const LIMITS: Limits = Limits { body_bytes_max: 1 << 20 };

/// Decodes `data` in every framing, from both sides, whole and in two pieces.
///
/// # Panics
/// When decoding in pieces differs from decoding at once, or a request does not survive re-encoding: a
/// fault of this crate.
pub fn decode_everything(data: &[u8]) {
    let framings = [
        Framing::Startup,
        Framing::V4(Compression::Lz4),
        Framing::V4(Compression::Snappy),
        Framing::V5 { lz4: false },
        Framing::V5 { lz4: true },
    ];
    for framing in framings {
        for from in [Direction::Request, Direction::Response] {
            let whole = decode(data, from, framing, data.len());
            let pieces = decode(data, from, framing, data.len() / 2);
            assert_eq!(whole, pieces, "decoding in pieces differs");
            whole.iter().for_each(check_message);
        }
    }
}

/// The envelopes up to the first error, the bytes arriving in two pieces.
fn decode(data: &[u8], from: Direction, framing: Framing, cut: usize) -> Vec<Envelope> {
    let mut decoder = Decoder::new(from, LIMITS);
    decoder.set_framing(framing);
    let mut input = BytesMut::new();
    let mut envelopes = Vec::new();
    for piece in [&data[..cut], &data[cut..]] {
        input.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut input) {
                Ok(Some(envelope)) => envelopes.push(envelope),
                Ok(None) => break,
                Err(_) => return envelopes,
            }
        }
    }
    envelopes
}

fn check_message(envelope: &Envelope) {
    let _ = envelope.prelude();
    match envelope.opcode.direction() {
        Direction::Request => {
            if let Ok(request) = envelope.request() {
                check_request(envelope, &request);
            }
        }
        Direction::Response => {
            if let Ok(response) = envelope.response() {
                walk_response(&response);
            }
        }
    }
}

/// A decoded request, encoded again and decoded again, is the same.
fn check_request(envelope: &Envelope, request: &Request<'_>) {
    let mut encoder = Encoder::new(Direction::Request, envelope.version);
    let prelude = Prelude::default();
    encoder.request_with(envelope.stream, request, &prelude).expect("what was decoded fits");
    let bytes = encoder.finish().split();
    let again = decode(&bytes, Direction::Request, Framing::Startup, bytes.len());
    assert_eq!(again.len(), 1, "one envelope was encoded");
    assert_eq!(again[0].request().as_ref(), Ok(request), "a request changed by encoding");
    if let Request::Batch(batch) = request {
        assert_eq!(batch.iter().count(), batch.len());
        assert!(batch.iter().all(|entry| entry.values.iter().count() == entry.values.len()));
    }
}

fn walk_response(response: &Response<'_>) {
    match response {
        Response::Rows(rows) => {
            assert_eq!(rows.cells().count(), rows.len() * rows.metadata.columns_count);
            let _ = rows.metadata.columns.map(|columns| columns.decode());
        }
        Response::Prepared(prepared) => {
            let _ = prepared.bind.decode();
            let _ = prepared.result.columns.map(|columns| columns.decode());
        }
        _ => {}
    }
}
