//! The header of nine bytes before every message, with its versions, flags and opcodes.
//!
//! ```text
//!   0         1        2        3        4        5                                   9
//!   +---------+--------+--------+--------+--------+--------+--------+--------+--------+------
//!   | version | flags  |      stream     | opcode |          length of body           | body
//!   +---------+--------+-----------------+--------+-----------------------------------+------
//!     bit 7: 1 = response
//! ```
//!
//! Protocol v4 sends envelopes (header and body) back to back. v5 wraps them in checksummed
//! segments (see `segment`).

use bytes::Bytes;

use crate::Error;

/// Bytes in an envelope header.
pub const HEADER_BYTES: usize = 9;

/// The longest body the protocol allows: 256 MiB.
pub const BODY_BYTES_MAX: usize = 256 << 20;

/// A protocol version that this codec supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Version 4. Envelopes are sent back to back.
    V4,
    /// Version 5. Envelopes are sent in checksummed segments once STARTUP is answered.
    V5,
}

impl Version {
    /// Returns the number in the version byte, without the direction bit.
    pub fn number(self) -> u8 {
        match self {
            Version::V4 => 4,
            Version::V5 => 5,
        }
    }

    /// Returns the version with this number.
    ///
    /// # Errors
    /// [`Error::UnsupportedVersion`] with the number.
    pub fn from_number(number: u8) -> Result<Version, Error> {
        match number {
            4 => Ok(Version::V4),
            5 => Ok(Version::V5),
            other => Err(Error::UnsupportedVersion(other)),
        }
    }
}

/// Direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    Request,
    /// From server to client.
    Response,
}

impl Direction {
    /// Returns the direction bit of the version byte.
    pub(crate) fn bit(self) -> u8 {
        match self {
            Direction::Request => 0x00,
            Direction::Response => 0x80,
        }
    }
}

/// Flags of an envelope header. Unknown bits are kept and ignored, as the protocol requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The body is compressed (v4). Ignored in v5 segments.
    pub const COMPRESSED: u8 = 0x01;
    /// Request: asks for a trace. Response: a tracing id is first in the body.
    pub const TRACING: u8 = 0x02;
    /// A custom payload precedes the message.
    pub const CUSTOM_PAYLOAD: u8 = 0x04;
    /// Warnings precede the message (responses).
    pub const WARNING: u8 = 0x08;
    /// The client accepts a beta version.
    pub const BETA: u8 = 0x10;

    /// Returns true if every bit of `mask` is set.
    pub fn has(self, mask: u8) -> bool {
        self.0 & mask == mask
    }
}

/// Kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are those of the protocol specification")]
pub enum Opcode {
    Error = 0x00,
    Startup = 0x01,
    Ready = 0x02,
    Authenticate = 0x03,
    Options = 0x05,
    Supported = 0x06,
    Query = 0x07,
    Result = 0x08,
    Prepare = 0x09,
    Execute = 0x0A,
    Register = 0x0B,
    Event = 0x0C,
    Batch = 0x0D,
    AuthChallenge = 0x0E,
    AuthResponse = 0x0F,
    AuthSuccess = 0x10,
}

impl Opcode {
    /// Returns the opcode with this number.
    ///
    /// # Errors
    /// [`Error::UnknownOpcode`] for any other number.
    pub fn from_number(number: u8) -> Result<Opcode, Error> {
        Ok(match number {
            0x00 => Opcode::Error,
            0x01 => Opcode::Startup,
            0x02 => Opcode::Ready,
            0x03 => Opcode::Authenticate,
            0x05 => Opcode::Options,
            0x06 => Opcode::Supported,
            0x07 => Opcode::Query,
            0x08 => Opcode::Result,
            0x09 => Opcode::Prepare,
            0x0A => Opcode::Execute,
            0x0B => Opcode::Register,
            0x0C => Opcode::Event,
            0x0D => Opcode::Batch,
            0x0E => Opcode::AuthChallenge,
            0x0F => Opcode::AuthResponse,
            0x10 => Opcode::AuthSuccess,
            other => return Err(Error::UnknownOpcode(other)),
        })
    }

    /// Returns the direction of messages of this kind.
    pub fn direction(self) -> Direction {
        match self {
            Opcode::Startup
            | Opcode::Options
            | Opcode::Query
            | Opcode::Prepare
            | Opcode::Execute
            | Opcode::Register
            | Opcode::Batch
            | Opcode::AuthResponse => Direction::Request,
            _ => Direction::Response,
        }
    }
}

/// Limits of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest body in bytes, before and after decompression.
    pub body_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { body_bytes_max: BODY_BYTES_MAX }
    }
}

/// A parsed envelope header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Protocol version of the message.
    pub version: Version,
    /// Flags of the message.
    pub flags: Flags,
    /// Pairs a response with its request. Negative for events.
    pub stream: i16,
    /// Kind of message.
    pub opcode: Opcode,
    /// Length of the body in bytes.
    pub length: usize,
}

impl Header {
    /// Parses a header from the nine bytes at the start of an envelope.
    ///
    /// # Errors
    /// An unsupported version, the wrong direction, an unknown opcode or one of the other
    /// direction, and a length beyond `limits`, in this order.
    pub fn parse(bytes: &[u8; HEADER_BYTES], from: Direction, limits: Limits) -> Result<Header, Error> {
        check_version_byte(bytes[0], from)?;
        let opcode = Opcode::from_number(bytes[4])?;
        if opcode.direction() != from {
            return Err(Error::UnexpectedOpcode(bytes[4]));
        }
        let length = i32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
        let length = usize::try_from(length).map_err(|_| Error::NegativeLength(length))?;
        if length > limits.body_bytes_max {
            return Err(Error::Oversized { length: length as u64, max: limits.body_bytes_max });
        }
        Ok(Header {
            version: Version::from_number(bytes[0] & 0x7F)?,
            flags: Flags(bytes[1]),
            stream: i16::from_be_bytes([bytes[2], bytes[3]]),
            opcode,
            length,
        })
    }

    /// Encodes this header in nine bytes.
    ///
    /// # Panics
    /// Panics if `length` exceeds [`BODY_BYTES_MAX`]. Callers have checked it.
    pub fn emit(&self, direction: Direction) -> [u8; HEADER_BYTES] {
        assert!(
            self.length <= BODY_BYTES_MAX,
            "expected a body of at most {BODY_BYTES_MAX} bytes, got {}",
            self.length
        );
        let stream = self.stream.to_be_bytes();
        let length = (self.length as u32).to_be_bytes();
        [
            self.version.number() | direction.bit(),
            self.flags.0,
            stream[0],
            stream[1],
            self.opcode as u8,
            length[0],
            length[1],
            length[2],
            length[3],
        ]
    }
}

/// Checks the first byte of an envelope. Checks the version before the direction, because the error
/// for a peer with another version must name the version.
pub(crate) fn check_version_byte(byte: u8, from: Direction) -> Result<(), Error> {
    Version::from_number(byte & 0x7F)?;
    if byte & 0x80 != from.bit() {
        return Err(Error::WrongDirection);
    }
    Ok(())
}

/// One message: header fields and an uncompressed body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Protocol version of the message.
    pub version: Version,
    /// Flags. The compression flag is cleared.
    pub flags: Flags,
    /// Pairs a response with its request. Negative for events.
    pub stream: i16,
    /// Kind of message.
    pub opcode: Opcode,
    /// Uncompressed body. [`Bytes::slice_ref`] converts a slice borrowed from it to an owned one.
    pub body: Bytes,
}
