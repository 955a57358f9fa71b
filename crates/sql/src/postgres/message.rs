//! Decodes messages of clients. A connection splits a message off by its length. This file decodes
//! the body and checks every length against its end. Invalid input causes an error, never a
//! panic, and never affects the next message.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};
use frontdoor::Charge;
use pgwire::messages::extendedquery::{Bind, Describe, Execute, Parse};

use crate::failure::{Failure, state};

/// Length in bytes above which bodies are decoded, split and classified on a heavy lane. 4 KiB of
/// text take about 40 µs.
pub(crate) const LARGE_BYTES: usize = 4 << 10;

/// A complete message.
pub(crate) struct Frame {
    /// Its type, or 0 for messages without a type before login.
    pub(crate) kind: u8,
    pub(crate) body: Body,
    /// Its charge to the session's account, if it is large.
    pub(crate) charge: Option<Charge>,
    /// Error if the account was full and the body was discarded.
    pub(crate) refused: Option<Failure>,
}

impl Frame {
    /// Returns the message, unless its body was discarded.
    ///
    /// # Errors
    /// SQLSTATE 53200: the body was discarded.
    pub(crate) fn kept(self) -> Result<Frame, Failure> {
        match self.refused {
            Some(failure) => Err(failure),
            None => Ok(self),
        }
    }
}

/// Body of a message, in the chunks in which it was received.
pub(crate) struct Body(Vec<Bytes>);

impl Body {
    pub(crate) fn new(chunks: Vec<Bytes>) -> Body {
        Body(chunks)
    }

    /// Returns the length, bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Returns the body as one buffer. Copies it if it has several chunks.
    fn joined(mut self) -> Bytes {
        if self.0.len() <= 1 {
            return self.0.pop().unwrap_or_default();
        }
        let mut joined = BytesMut::with_capacity(self.len());
        self.0.into_iter().for_each(|chunk| joined.extend_from_slice(&chunk));
        joined.freeze()
    }

    fn read<T>(self, f: impl FnOnce(&mut Reader) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut reader = Reader(self.joined());
        let message = f(&mut reader)?;
        if reader.0.is_empty() { Ok(message) } else { Err(invalid("bytes behind its last field")) }
    }

    /// Reads a message without fields: Sync, Flush, Terminate.
    pub(crate) fn nothing(self) -> Result<(), Failure> {
        self.read(|_| Ok(()))
    }

    /// Reads the text of a Query.
    pub(crate) fn query(self) -> Result<String, Failure> {
        self.read(Reader::text)
    }

    /// Reads a Parse.
    pub(crate) fn parse(self) -> Result<Parse, Failure> {
        self.read(|reader| {
            let (name, query) = (reader.text()?, reader.text()?);
            let types = (0..reader.u16()?).map(|_| reader.u32()).collect::<Result<_, _>>()?;
            Ok(Parse::new(Some(name), query, types))
        })
    }

    /// Reads a Bind.
    pub(crate) fn bind(self) -> Result<Bind, Failure> {
        self.read(|reader| {
            let (portal, statement) = (reader.text()?, reader.text()?);
            let formats = reader.formats()?;
            let values = (0..reader.u16()?).map(|_| reader.value()).collect::<Result<_, _>>()?;
            Ok(Bind::new(Some(portal), Some(statement), formats, values, reader.formats()?))
        })
    }

    /// Reads a Describe, or a Close, which has the same fields.
    pub(crate) fn named(self) -> Result<Describe, Failure> {
        self.read(|reader| match reader.u8()? {
            target @ (b'S' | b'P') => Ok(Describe::new(target, Some(reader.text()?))),
            _ => Err(invalid("neither a statement nor a portal")),
        })
    }

    /// Reads an Execute.
    pub(crate) fn execute(self) -> Result<Execute, Failure> {
        self.read(|reader| Ok(Execute::new(Some(reader.text()?), reader.u32()?.cast_signed())))
    }

    /// Reads the password of a login in clear text.
    pub(crate) fn password(self) -> Result<String, Failure> {
        self.read(Reader::text)
    }

    /// Reads the first message of a login by SASL: the mechanism and its data.
    pub(crate) fn sasl_begin(self) -> Result<(String, Bytes), Failure> {
        self.read(|reader| Ok((reader.text()?, reader.value()?.unwrap_or_default())))
    }

    /// Returns the data of a later message of a login by SASL.
    pub(crate) fn sasl_data(self) -> Bytes {
        self.joined()
    }

    /// Reads the startup message, or a request that a client may send before it.
    pub(crate) fn first(self) -> Result<First, Failure> {
        let startup =
            |text: &str| Failure::fatal(state::PROTOCOL, format!("Invalid startup message: {text}"));
        self.read(|reader| match reader.u32()? {
            80_877_103 => Ok(First::WantsTls),
            80_877_104 => Ok(First::WantsGss),
            80_877_102 => {
                let session = reader.u32()?.cast_signed();
                Ok(First::Cancel { session, secret: std::mem::take(&mut reader.0) })
            }
            version => {
                let mut parameters = BTreeMap::new();
                loop {
                    let name =
                        reader.text().map_err(|_| startup("expected a terminator as its last byte"))?;
                    if name.is_empty() {
                        break;
                    }
                    parameters.insert(name, reader.text()?);
                }
                let [major, minor] = [version >> 16, version & 0xffff];
                Ok(First::Startup { major, minor, parameters })
            }
        })
    }
}

/// The startup message, or a request before it.
pub(crate) enum First {
    WantsTls,
    WantsGss,
    Cancel { session: i32, secret: Bytes },
    Startup { major: u32, minor: u32, parameters: BTreeMap<String, String> },
}

fn invalid(what: &str) -> Failure {
    Failure::fatal(state::PROTOCOL, format!("invalid message format: {what}"))
}

/// Reads fields. Fails at a field that exceeds the remaining bytes.
struct Reader(Bytes);

impl Reader {
    fn take(&mut self, bytes: usize) -> Result<Bytes, Failure> {
        if bytes <= self.0.len() {
            Ok(self.0.split_to(bytes))
        } else {
            Err(invalid("it ends within a field"))
        }
    }

    fn u8(&mut self) -> Result<u8, Failure> {
        Ok(self.take(1)?.get_u8())
    }

    fn u16(&mut self) -> Result<u16, Failure> {
        Ok(self.take(2)?.get_u16())
    }

    fn u32(&mut self) -> Result<u32, Failure> {
        Ok(self.take(4)?.get_u32())
    }

    /// Reads a text up to its terminating zero.
    fn text(&mut self) -> Result<String, Failure> {
        let end =
            self.0.iter().position(|byte| *byte == 0).ok_or_else(|| invalid("a text without its end"))?;
        let bytes = self.take(end + 1)?;
        match std::str::from_utf8(&bytes[..end]) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Failure::new("22021", "invalid byte sequence for encoding \"UTF8\"")),
        }
    }

    /// Reads a length and as many bytes. `None` for null.
    fn value(&mut self) -> Result<Option<Bytes>, Failure> {
        match self.u32()?.cast_signed() {
            -1 => Ok(None),
            bytes => {
                let bytes = usize::try_from(bytes).map_err(|_| invalid("a value of negative length"))?;
                self.take(bytes).map(Some)
            }
        }
    }

    fn formats(&mut self) -> Result<Vec<i16>, Failure> {
        let format = |reader: &mut Reader| match reader.u16()? {
            code @ (0 | 1) => Ok(code.cast_signed()),
            _ => Err(invalid("expected format 0 or 1")),
        };
        (0..self.u16()?).map(|_| format(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(bytes: &[u8]) -> Body {
        Body::new(vec![Bytes::copy_from_slice(bytes)])
    }

    fn code<T>(result: Result<T, Failure>) -> &'static str {
        result.err().map_or("", |failure| failure.code)
    }

    /// Checks every reader with every prefix of a valid message, and with one byte too many.
    #[test]
    fn truncated_messages_are_refused() {
        fn check<T>(what: &str, valid: &[u8], read: impl Fn(Body) -> Result<T, Failure>) {
            assert_eq!(code(read(body(valid))), "", "{what}");
            for end in 0..valid.len() {
                assert_eq!(code(read(body(&valid[..end]))), state::PROTOCOL, "{what}, {end} bytes");
            }
            assert_eq!(code(read(body(&[valid, &[7]].concat()))), state::PROTOCOL, "{what}, a byte more");
        }
        check("Query", b"SELECT 1\0", Body::query);
        check("Parse", b"a\0SELECT $1\0\0\x01\0\0\0\x17", Body::parse);
        check("Bind", b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\x01\0\0", Body::bind);
        check("Describe", b"Sname\0", Body::named);
        check("Execute", b"p\0\0\0\0\x05", Body::execute);
        check("SASL", b"SCRAM-SHA-256\0\0\0\0\x02ab", Body::sasl_begin);
        check("Startup", b"\0\x03\0\0user\0a\0\0", Body::first);
        assert_eq!(code(body(b"x").nothing()), state::PROTOCOL);
    }

    #[test]
    fn lengths_beyond_the_message_are_refused() {
        for bytes in [
            &b"p\0s\0\0\0\0\x01\x7f\xff\xff\xffab\0\0"[..],
            &b"p\0s\0\0\0\0\x01\xff\xff\xff\xfe\0\0"[..],
            &b"p\0s\0\xff\xff\0\0"[..],
            &b"p\0s\0\0\x01\0\x02\0\0\0\0"[..],
        ] {
            assert_eq!(code(body(bytes).bind()), state::PROTOCOL, "{bytes:?}");
        }
        assert_eq!(code(body(b"Xname\0").named()), state::PROTOCOL);
        assert_eq!(code(body(b"\xc3\x28\0").query()), "22021");
    }

    #[test]
    fn chunks_are_read_as_one_message() {
        let chunks = [&b"SEL"[..], b"", b"ECT 1", b"\0"].map(Bytes::from_static);
        assert_eq!(Body::new(chunks.to_vec()).query().ok().as_deref(), Some("SELECT 1"));
        let Ok(First::Cancel { session, secret }) =
            body(b"\x04\xd2\x16\x2e\0\0\0\x07key of any length").first()
        else {
            panic!("a cancel request")
        };
        assert_eq!((session, &secret[..]), (7, &b"key of any length"[..]));
    }
}
