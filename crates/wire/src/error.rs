//! Reasons for rejecting bytes. Every variant states the fault and its offset. Its text can be sent
//! to the peer in an ERROR message with code 0x000A (protocol error).
//!
//! A connection whose *framing* failed cannot be resynchronized and must be closed after the reply.
//! If only a *body* failed to decode, the next envelope is still valid. [`Error::is_fatal`]
//! distinguishes the two.

use std::fmt;

/// A malformed or unacceptable frame or message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The version byte names a protocol version this codec does not speak.
    UnsupportedVersion(u8),
    /// An envelope has another version than the first message of the connection.
    VersionChanged {
        /// The version of the connection.
        expected: u8,
        /// The version of this envelope.
        found: u8,
    },
    /// A request arrived where responses were expected, or the other way round.
    WrongDirection,
    /// The opcode byte is unknown.
    UnknownOpcode(u8),
    /// The opcode is a response where a request is expected, or the reverse.
    UnexpectedOpcode(u8),
    /// A body (as sent, or after decompression) is longer than the limit.
    Oversized {
        /// Announced length, bytes.
        length: u64,
        /// Longest body accepted, bytes.
        max: usize,
    },
    /// The length field of an envelope is negative.
    NegativeLength(i32),
    /// The compression flag is set, but no compression was negotiated.
    CompressionNotNegotiated,
    /// The protocol version does not support this compression.
    CompressionUnsupported,
    /// A compressed body or segment did not decompress.
    Decompression(&'static str),
    /// The CRC24 of a v5 segment header did not match.
    SegmentHeaderChecksum,
    /// The CRC32 of a v5 segment payload did not match.
    SegmentPayloadChecksum,
    /// The contents of a v5 segment contradict its header or the envelopes before it.
    Segment(&'static str),
    /// The body ended before a field was complete.
    Truncated {
        /// Name of the field.
        field: &'static str,
        /// Offset of the field in the body, in bytes.
        offset: usize,
        /// Bytes that the field needs.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// A string is not UTF-8.
    NotUtf8 {
        /// Name of the field.
        field: &'static str,
        /// Offset of the string in the body, in bytes.
        offset: usize,
    },
    /// A number is outside the range of its field.
    OutOfRange {
        /// Name of the field.
        field: &'static str,
        /// Number found.
        value: i64,
    },
    /// A word is none of the values of its field.
    UnknownName {
        /// Name of the field.
        field: &'static str,
        /// Word found, shortened.
        name: String,
    },
    /// A type description nests deeper than [`crate::TYPE_DEPTH_MAX`].
    TypeTooDeep,
    /// A custom type (a class of the server) without a CQL type.
    CustomType(String),
    /// A value to encode does not fit its length field.
    TooLong {
        /// Name of the field.
        field: &'static str,
        /// Length of the value: bytes, or elements of a list.
        length: usize,
    },
    /// The batch uses named values. The protocol defines their encoding ambiguously, so that it
    /// cannot be decoded.
    NamedBatchValues,
}

impl Error {
    /// Returns true if the rest of the byte stream cannot be decoded, so that the connection must
    /// be closed.
    pub fn is_fatal(&self) -> bool {
        !matches!(
            self,
            Error::Truncated { .. }
                | Error::NotUtf8 { .. }
                | Error::OutOfRange { .. }
                | Error::UnknownName { .. }
                | Error::TypeTooDeep
                | Error::CustomType(_)
                | Error::TooLong { .. }
                | Error::NamedBatchValues
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnsupportedVersion(version) => write!(
                f,
                "Invalid or unsupported protocol version ({version}); supported versions are (4/v4, 5/v5)"
            ),
            Error::VersionChanged { expected, found } => write!(
                f,
                "Invalid message version. Got {found}/v{found} but previous messages on this connection \
                 had version {expected}/v{expected}"
            ),
            Error::WrongDirection => f.write_str("Wrong protocol direction bit in the version byte"),
            Error::UnknownOpcode(opcode) => write!(f, "Unknown opcode 0x{opcode:02X}"),
            Error::UnexpectedOpcode(opcode) => {
                write!(f, "Unexpected opcode 0x{opcode:02X} in this direction")
            }
            Error::Oversized { length, max } => {
                write!(f, "Frame body of {length} bytes exceeds the maximum of {max} bytes")
            }
            Error::NegativeLength(length) => write!(f, "Negative frame body length {length}"),
            Error::CompressionNotNegotiated => {
                f.write_str("Compressed frame received, but no compression was negotiated in STARTUP")
            }
            Error::CompressionUnsupported => {
                f.write_str("Compression not supported by this protocol version")
            }
            Error::Decompression(reason) => write!(f, "Cannot decompress: {reason}"),
            Error::SegmentHeaderChecksum => f.write_str("CRC24 mismatch in segment header"),
            Error::SegmentPayloadChecksum => f.write_str("CRC32 mismatch in segment payload"),
            Error::Segment(reason) => write!(f, "Invalid segment: {reason}"),
            Error::Truncated { field, offset, needed, left } => write!(
                f,
                "Message ends too early: {field} at offset {offset} needs {needed} bytes, {left} are left"
            ),
            Error::NotUtf8 { field, offset } => {
                write!(f, "Invalid UTF-8 in {field} at offset {offset}")
            }
            Error::OutOfRange { field, value } => write!(f, "Invalid value {value} for {field}"),
            Error::UnknownName { field, name } => write!(f, "Unknown {field} '{name}'"),
            Error::TypeTooDeep => {
                write!(f, "Type nested deeper than {} levels", crate::TYPE_DEPTH_MAX)
            }
            Error::CustomType(class) => write!(f, "Custom type '{class}' is not known here"),
            Error::TooLong { field, length } => {
                write!(f, "{field} of length {length} does not fit its length field")
            }
            Error::NamedBatchValues => f.write_str("Named values are not supported in BATCH messages"),
        }
    }
}

impl std::error::Error for Error {}
