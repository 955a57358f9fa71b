//! The CQL native protocol, versions 4 and 5: frames to and from bytes, for both sides, without I/O.

mod batch;
mod body;
mod compress;
mod consistency;
mod crc;
mod decoder;
mod encoder;
mod error;
mod frame;
mod params;
mod prelude;
mod read;
mod request;
mod segment;
mod values;

pub use batch::{Batch, BatchBuf, BatchEntry, BatchKind, Statement};
pub use body::Body;
pub use compress::{Compression, Framing};
pub use consistency::Consistency;
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use error::Error;
pub use frame::{BODY_BYTES_MAX, Direction, Envelope, Flags, HEADER_BYTES, Header, Limits, Opcode, Version};
pub use params::{BatchParams, QueryParams};
pub use prelude::{CustomPayload, Prelude};
pub use request::{Execute, Prepare, Query, Request};
pub use values::{Value, Values, ValuesBuf};

/// How deep a type description may nest.
pub const TYPE_DEPTH_MAX: usize = 32;
