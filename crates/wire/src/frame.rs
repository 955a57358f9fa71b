//! The nine bytes before every message, and the words used in them.
//!
//! ```text
//!   0         1        2        3        4        5                                   9
//!   +---------+--------+--------+--------+--------+--------+--------+--------+--------+------
//!   | version | flags  |      stream     | opcode |          length of body           | body
//!   +---------+--------+-----------------+--------+-----------------------------------+------
//!     bit 7: 1 = response
//! ```
//!
//! Protocol v4 puts envelopes (header and body) on the wire back to back; v5 wraps them in checksummed
//! segments (see `segment`).

use bytes::Bytes;

use crate::Error;

/// Bytes in an envelope header.
pub const HEADER_BYTES: usize = 9;

/// The longest body the protocol allows: 256 MiB.
pub const BODY_BYTES_MAX: usize = 256 << 20;

/// A protocol version this codec speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Version 4: envelopes on the wire as they are.
    V4,
    /// Version 5: envelopes inside checksummed segments once STARTUP is answered.
    V5,
}

impl Version {
    /// The number in the version byte, direction bit off.
    pub fn number(self) -> u8 {
        match self {
            Version::V4 => 4,
            Version::V5 => 5,
        }
    }

    /// The version with this number.
    ///
    /// # Errors
    /// [`Error::UnsupportedVersion`], carrying the number.
    pub fn from_number(number: u8) -> Result<Version, Error> {
        match number {
            4 => Ok(Version::V4),
            5 => Ok(Version::V5),
            other => Err(Error::UnsupportedVersion(other)),
        }
    }
}

/// Which way a message travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    Request,
    /// From server to client.
    Response,
}

impl Direction {
    /// The direction bit of the version byte.
    pub(crate) fn bit(self) -> u8 {
        match self {
            Direction::Request => 0x00,
            Direction::Response => 0x80,
        }
    }
}

/// The flags byte of an envelope header. Unknown bits are kept and ignored, as the protocol asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The body is compressed (v4; ignored in v5 segments).
    pub const COMPRESSED: u8 = 0x01;
    /// Request: trace this. Response: a tracing id comes first in the body.
    pub const TRACING: u8 = 0x02;
    /// A custom payload precedes the message.
    pub const CUSTOM_PAYLOAD: u8 = 0x04;
    /// Warnings precede the message (responses).
    pub const WARNING: u8 = 0x08;
    /// The client accepts a beta version.
    pub const BETA: u8 = 0x10;

    /// Whether every bit of `mask` is set.
    pub fn has(self, mask: u8) -> bool {
        self.0 & mask == mask
    }
}

/// What a message is.
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
    /// The opcode with this number.
    ///
    /// # Errors
    /// [`Error::UnknownOpcode`].
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

    /// Which way messages of this kind travel.
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

/// What a decoder accepts at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest body, before and after decompression, bytes.
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
    /// Flags.
    pub flags: Flags,
    /// Pairs a response with its request; negative for events.
    pub stream: i16,
    /// What the body is.
    pub opcode: Opcode,
    /// Bytes of body that follow.
    pub length: usize,
}

impl Header {
    /// Reads a header from the nine bytes at the front of an envelope.
    ///
    /// # Errors
    /// An unsupported version, the wrong direction, an unknown opcode or one of the other direction, and
    /// a length beyond `limits`, in this order.
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

    /// The nine bytes of this header.
    ///
    /// # Panics
    /// If `length` exceeds [`BODY_BYTES_MAX`]: whoever writes headers has checked that.
    pub fn emit(&self, direction: Direction) -> [u8; HEADER_BYTES] {
        assert!(self.length <= BODY_BYTES_MAX, "a body of {} bytes was not refused earlier", self.length);
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

/// Checks the first byte of an envelope: the version before the direction, because a peer that speaks
/// another version must hear about the version.
pub(crate) fn check_version_byte(byte: u8, from: Direction) -> Result<(), Error> {
    Version::from_number(byte & 0x7F)?;
    if byte & 0x80 != from.bit() {
        return Err(Error::WrongDirection);
    }
    Ok(())
}

/// One message as it travels: header fields and an uncompressed body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Protocol version of the message.
    pub version: Version,
    /// Flags; the compression flag is already dealt with.
    pub flags: Flags,
    /// Pairs a response with its request; negative for events.
    pub stream: i16,
    /// What the body is.
    pub opcode: Opcode,
    /// The body, uncompressed. Slices borrowed from it can be made to own it with [`Bytes::slice_ref`].
    pub body: Bytes,
}
