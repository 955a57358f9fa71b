//! Bad input: malformed bytes, partial requests, and many silent connections.

use std::time::Duration;

use crate::common::{ADMIN, Answer, Client, TestServer, settings};
use server::ServerConfig;
use wire::{Compression, Query, QueryParams, Request, Version};

/// Returns a frame with any header fields and body.
fn frame(version: u8, flags: u8, opcode: u8, length: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![version, flags, 0, 7, opcode];
    bytes.extend(length.to_be_bytes());
    bytes.extend(body);
    bytes
}

fn v4_frame(opcode: u8, body: &[u8]) -> Vec<u8> {
    frame(4, 0, opcode, body.len() as i32, body)
}

#[test]
fn damaged_frame_is_answered_and_closes_the_connection() {
    let server = TestServer::start(1, settings());
    let text_of = |answer: Option<(i16, Answer)>| match answer {
        Some((_, Answer::Error(failure))) => (failure.kind.code(), failure.message),
        other => panic!("an error was expected: {other:?}"),
    };
    for (what, bytes, expected) in [
        ("a future version", frame(66, 0, 5, 0, &[]), "Invalid or unsupported protocol version (66)"),
        ("an old version", frame(3, 0, 5, 0, &[]), "Invalid or unsupported protocol version (3)"),
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n".to_vec(), "Invalid or unsupported protocol version (71)"),
        ("an unknown opcode", v4_frame(0x77, &[]), "Unknown opcode 0x77"),
        ("a response", v4_frame(0x08, &[]), "Unexpected opcode 0x08"),
        ("the response bit", frame(0x84, 0, 5, 0, &[]), "Wrong protocol direction"),
        ("a negative length", frame(4, 0, 7, -1, &[]), "Negative frame body length"),
        ("a huge length", frame(4, 0, 7, i32::MAX, &[]), "exceeds the maximum"),
        (
            "compression without negotiation",
            frame(4, 1, 7, 4, &[1, 2, 3, 4]),
            "no compression was negotiated",
        ),
    ] {
        for authenticated in [false, true] {
            let mut client = if authenticated { server.client(Version::V4, ADMIN) } else { server.connect() };
            client.send_raw(&bytes);
            let (code, text) = text_of(client.receive());
            assert_eq!(code, 0x000A, "{what}: {text}");
            assert!(text.contains(expected), "{what}: {text}");
            assert_eq!(client.receive(), None, "{what}: closed");
        }
    }
}

#[test]
fn damaged_segment_closes_a_v5_connection() {
    let server = TestServer::start(1, settings());
    for damage in [0, 4, 8] {
        let mut client = server.client(Version::V5, ADMIN);
        let text = "SELECT * FROM system.local";
        client.queue(&Request::Query(Query { text, params: QueryParams::default() }));
        let mut bytes = client.encoder.finish().split();
        bytes[damage] ^= 0x10;
        client.send_raw(&bytes);
        let Some((_, answer)) = client.receive() else { panic!("an error was expected") };
        assert_eq!(answer.code(), 0x000A);
        assert_eq!(client.receive(), None);
    }
}

#[test]
fn malformed_body_leaves_the_connection_open() {
    let server = TestServer::start(1, settings());
    let mut client = server.client(Version::V4, ADMIN);
    for body in [
        &b""[..],
        b"\0\0\0\x05ab",
        b"\xff\xff\xff\xff\0\x01\0",
        b"\0\0\0\x02\xc3\x28\0\x01\0",
        b"\0\0\0\x08SELECT 1\0\x63\0",
        b"\0\0\0\x08SELECT 1\0\x01\x01\xff\xff",
    ] {
        client.send_raw(&v4_frame(0x07, body));
        let (stream, answer) = client.receive().expect("an answer");
        assert_eq!((stream, answer.code()), (7, 0x000A), "{body:?}");
    }
    for (opcode, body) in
        [(0x0A, &b"\0\x01"[..]), (0x0D, b"\0\xff\xff"), (0x09, b"\x7f"), (0x0B, b"\0\x01\0\x03foo")]
    {
        client.send_raw(&v4_frame(opcode, body));
        assert_eq!(client.receive().expect("an answer").1.code(), 0x000A, "opcode {opcode}");
    }
    client.run("SELECT * FROM system.local");
}

#[test]
fn half_a_request_waits_for_the_rest() {
    let server = TestServer::start(1, settings());
    for version in [Version::V4, Version::V5] {
        let mut client = server.client(version, ADMIN);
        let text = "SELECT key FROM system.local";
        client.queue(&Request::Query(Query { text, params: QueryParams::default() }));
        let bytes = client.encoder.finish().split();
        for byte in &bytes[..bytes.len() - 1] {
            client.send_raw(&[*byte]);
        }
        // The server serves other clients meanwhile.
        server.client(version, ADMIN).run(text);
        client.send_raw(&bytes[bytes.len() - 1..]);
        assert_eq!(client.receive().expect("an answer").1.texts(), [["local"]]);
    }
}

#[test]
fn connection_without_login_is_closed_in_time() {
    let config = ServerConfig { handshake_timeout: Duration::from_millis(50), ..settings() };
    let server = TestServer::start(1, config);
    assert_eq!(server.connect().receive(), None);
}

#[test]
fn server_answers_beside_a_thousand_idle_connections() {
    let server = TestServer::start(2, settings());
    let idle: Vec<Client> = (0..1000).map(|_| server.connect()).collect();
    let mut client = server.client(Version::V4, ADMIN);
    client.run("SELECT * FROM system.local");
    assert_eq!(server.server.connections(), 1001);
    drop(idle);
    client.run("SELECT * FROM system.local");
}

#[test]
fn server_stops_reading_from_a_client_that_does_not_read() {
    // The reads run one after the other. On a busy machine they take longer than usual time limits.
    let request_timeout = Duration::from_secs(600);
    let config = ServerConfig { output_bytes_max: 64 << 10, request_timeout, ..settings() };
    let server = TestServer::start(1, config);
    let mut stalled = server.client(Version::V4, ADMIN);
    let text = "SELECT * FROM system_schema.columns";
    stalled.stream.set_write_timeout(Some(Duration::from_millis(200))).expect("set");
    for _ in 0..200 {
        stalled.queue(&Request::Query(Query { text, params: QueryParams::default() }));
    }
    let requests = stalled.encoder.finish().split();
    let mut rounds = 0;
    while std::io::Write::write_all(&mut stalled.stream, &requests).is_ok() {
        rounds += 1;
        assert!(rounds < 100_000, "the server never stops reading");
    }
    // The server serves other clients, and answers the accepted requests once their client reads.
    server.client(Version::V4, ADMIN).run("SELECT key FROM system.local");
    for _ in 0..200 {
        let answer = stalled.receive();
        assert!(matches!(&answer, Some((_, Answer::Rows { .. }))), "rows were expected: {answer:?}");
    }
}

#[test]
fn malformed_compressed_body_is_an_error() {
    let server = TestServer::start(1, settings());
    for compression in [Compression::Lz4, Compression::Snappy] {
        let mut client = server.connect();
        client.startup(Version::V4, compression);
        client.log_in(ADMIN.0, ADMIN.1);
        client.send_raw(&frame(4, 1, 7, 8, &[0x7f, 0xff, 0xff, 0xff, 1, 2, 3, 4]));
        assert_eq!(client.receive().expect("an answer").1.code(), 0x000A);
        assert_eq!(client.receive(), None);
    }
}
