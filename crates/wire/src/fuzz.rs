//! Fuzz target. Decoding any bytes returns envelopes or an error. A decoded message encodes to a
//! message that decodes to the same value. It is a plain function, so that tests run it over a
//! mutated corpus and a fuzzer can call it.

use bytes::BytesMut;

use crate::{
    Compression, Decoder, Direction, Encoder, Envelope, Framing, Limits, Prelude, Request, Response,
};

const LIMITS: Limits = Limits { body_bytes_max: 1 << 20 };

/// Decodes `data` in every framing, from both sides, in one chunk and in two.
///
/// # Panics
/// Panics if chunked decoding returns another result, or if a request changes when re-encoded. Both
/// are bugs of this crate.
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
            let chunked = decode(data, from, framing, data.len() / 2);
            assert_eq!(whole, chunked, "decoding in two chunks returns another result");
            whole.iter().for_each(check_message);
        }
    }
}

/// Returns the envelopes before the first error. `data` arrives in two chunks, divided at `cut`.
fn decode(data: &[u8], from: Direction, framing: Framing, cut: usize) -> Vec<Envelope> {
    let mut decoder = Decoder::new(from, LIMITS);
    decoder.set_framing(framing);
    let mut input = BytesMut::new();
    let mut envelopes = Vec::new();
    for chunk in [&data[..cut], &data[cut..]] {
        input.extend_from_slice(chunk);
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

/// Checks that an encoded request decodes to the same request.
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
