//! Codec of the CQL native protocol, versions 4 and 5, for clients and servers. Converts frames to
//! and from bytes and does no I/O.
//!
//! The owner of a socket appends received bytes to a `BytesMut`. A [`Decoder`] takes [`Envelope`]s
//! out of it, and their bodies are slices of that buffer. [`Envelope::request`] and
//! [`Envelope::response`] parse a body without copying it. An [`Encoder`] appends messages to one
//! output buffer, so that many messages need one write. Once the buffers have grown, neither
//! allocates for an EXECUTE or for a result of a few rows.
//!
//! ```
//! use bytes::BytesMut;
//! use wire::*;
//!
//! // A client asks …
//! let mut values = ValuesBuf::new();
//! values.push(Value::Bytes(b"key")).unwrap();
//! let params = QueryParams { values: values.values(), ..QueryParams::default() };
//! let mut client = Encoder::new(Direction::Request, Version::V4);
//! client.request(7, &Request::Execute(Execute { id: b"id", params, ..Execute::default() })).unwrap();
//! let mut sent: BytesMut = client.finish().split();
//!
//! // … the server reads …
//! let mut decoder = Decoder::new(Direction::Request, Limits::default());
//! let envelope = decoder.decode(&mut sent).unwrap().expect("a whole envelope");
//! let Request::Execute(execute) = envelope.request().unwrap() else { panic!("an EXECUTE was sent") };
//! assert_eq!(execute.params.values.iter().next(), Some(Value::Bytes(b"key")));
//!
//! // … and answers with one row, its columns encoded once when the statement was prepared.
//! let column = ColumnSpec::new("ks", "t", "v", &schema::CqlType::Text);
//! let columns = Columns::encode(Version::V4, &[column]).unwrap();
//! let mut server = Encoder::new(Direction::Response, Version::V4);
//! let mut rows = server.rows(envelope.stream, &RowsHead::default(), &columns, &Prelude::default());
//! rows.cell(Some(b"hello"));
//! rows.end().unwrap();
//! let to_send: &mut BytesMut = server.finish();
//! # assert_eq!(to_send[4], Opcode::Result as u8);
//! ```
//!
//! STARTUP and its answer travel unframed in either version. Both sides then call `set_framing`
//! with [`Framing::after_startup`]. A malformed *frame* is fatal to the connection, a malformed
//! *body* is not ([`Error::is_fatal`]). Answer either with `Failure::from(&error)` on
//! [`Decoder::last_stream`].
//!
//! No input from a peer panics or reserves memory beyond the bytes that arrived. Counts and lengths
//! are checked against the rest of the body. Claimed sizes of compressed data are checked against
//! the highest ratio of the compression.

mod batch;
mod body;
mod columns;
mod compress;
mod consistency;
mod crc;
mod decoder;
mod encoder;
mod error;
mod event;
mod failure;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod large;
mod params;
mod prelude;
mod read;
mod request;
mod response;
mod rows;
mod segment;
mod types;
mod values;

pub use batch::{Batch, BatchBuf, BatchEntry, BatchKind, BatchPlace, CheckedStatement, Statement};
pub use body::Body;
pub use columns::{ColumnSpec, Columns, ColumnsRef};
pub use compress::{Compression, Framing};
pub use consistency::Consistency;
pub use decoder::{CHUNK_BYTES, Decoded, Decoder};
pub use encoder::Encoder;
pub use error::Error;
pub use event::{ChangeType, EVENT_STREAM, EVENT_TYPES, Event, SchemaChange, SchemaTarget};
pub use failure::{Failure, FailureKind, Failures};
pub use frame::{BODY_BYTES_MAX, Direction, Envelope, Flags, HEADER_BYTES, Header, Limits, Opcode, Version};
pub use large::LargeEnvelope;
pub use params::{BatchParams, QueryParams};
pub use prelude::{CustomPayload, Prelude};
pub use read::Value;
pub use request::{Execute, Prepare, Query, Request};
pub use response::{Prepared, PreparedHead, Response, ResultKind};
pub use rows::{ReceivedRows, ResultMetadata, RowsHead, RowsWriter};
pub use values::{Values, ValuesBuf};

/// The deepest nesting of a type description. Bounds the stack of the recursive parser.
pub const TYPE_DEPTH_MAX: usize = 32;
