//! Requests. A server decodes them, a client encodes them. They borrow from the body. Only STARTUP
//! and REGISTER, which are rare, allocate a list.

use crate::batch::{Batch, BatchPlace};
use crate::body::Body;
use crate::params::QueryParams;
use crate::prelude::Prelude;
use crate::read::Reader;
use crate::{Encoder, Envelope, Error, Opcode, Version};

/// v5: PREPARE contains a keyspace.
const PREPARE_WITH_KEYSPACE: i32 = 0x01;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    /// Opens the connection. Options are in the order sent.
    Startup(Vec<(&'a str, &'a str)>),
    /// Asks for the supported options.
    Options,
    /// A step of authentication.
    AuthResponse(Option<&'a [u8]>),
    /// A statement as text.
    Query(Query<'a>),
    /// Prepares a statement.
    Prepare(Prepare<'a>),
    /// Runs a prepared statement.
    Execute(Execute<'a>),
    /// Executes several statements together.
    Batch(Batch<'a>),
    /// Subscribes to events by type name.
    Register(Vec<&'a str>),
}

/// Content of a QUERY message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query<'a> {
    /// The statement.
    pub text: &'a str,
    /// Parameters of the statement.
    pub params: QueryParams<'a>,
}

/// Content of a PREPARE message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prepare<'a> {
    /// The statement.
    pub text: &'a str,
    /// v5: the keyspace of the statement.
    pub keyspace: Option<&'a str>,
}

/// Content of an EXECUTE message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Execute<'a> {
    /// Id of the prepared statement.
    pub id: &'a [u8],
    /// v5: the id of the result metadata that the client holds. Empty in v4.
    pub result_metadata_id: &'a [u8],
    /// Parameters of the statement.
    pub params: QueryParams<'a>,
}

impl Envelope {
    /// Decodes the request in this envelope, without its custom payload. See [`Envelope::prelude`].
    ///
    /// # Errors
    /// The fault in the body. The envelopes after this one are not affected.
    pub fn request(&self) -> Result<Request<'_>, Error> {
        let mut reader = Reader::new(&self.body);
        if self.flags.has(crate::Flags::CUSTOM_PAYLOAD) {
            Prelude::read(self, &mut reader)?;
        }
        Request::read(self.version, self.opcode, &mut reader)
    }

    /// Reads the text of a QUERY as bytes, and its parameters. Takes no time for the text, which an
    /// earlier [`Envelope::request`] has checked: 16 MiB of UTF-8 take up to 16 ms.
    ///
    /// # Errors
    /// The fault in the body. [`Error::UnexpectedOpcode`] for another message.
    pub fn checked_query(&self) -> Result<(&[u8], QueryParams<'_>), Error> {
        if self.opcode != Opcode::Query {
            return Err(Error::UnexpectedOpcode(self.opcode as u8));
        }
        let mut reader = Reader::new(&self.body);
        if self.flags.has(crate::Flags::CUSTOM_PAYLOAD) {
            Prelude::read(self, &mut reader)?;
        }
        let text = reader.long_text("query")?;
        Ok((text, QueryParams::read(&mut reader, self.version)?))
    }

    /// Returns the BATCH of this envelope, at the place of an earlier [`Batch::place`]. Takes no
    /// time for its statements.
    ///
    /// # Errors
    /// The fault in the parameters.
    pub fn checked_batch(&self, place: &BatchPlace) -> Result<Batch<'_>, Error> {
        Batch::at(&self.body, place, self.version)
    }

    /// Reads the parts before the message in the body: tracing, warnings, custom payload.
    ///
    /// # Errors
    /// The fault in these parts.
    pub fn prelude(&self) -> Result<Prelude, Error> {
        Prelude::read(self, &mut Reader::new(&self.body))
    }
}

impl<'a> Request<'a> {
    /// Decodes a request body that has no custom payload.
    ///
    /// # Errors
    /// The fault in the body. [`Error::UnexpectedOpcode`] for the opcode of a response.
    pub fn decode(version: Version, opcode: Opcode, body: &'a [u8]) -> Result<Request<'a>, Error> {
        Request::read(version, opcode, &mut Reader::new(body))
    }

    fn read(version: Version, opcode: Opcode, reader: &mut Reader<'a>) -> Result<Request<'a>, Error> {
        Ok(match opcode {
            Opcode::Execute => Request::Execute(Execute::read(reader, version)?),
            Opcode::Query => Request::Query(Query {
                text: reader.long_string("query")?,
                params: QueryParams::read(reader, version)?,
            }),
            Opcode::Prepare => Request::Prepare(Prepare::read(reader, version)?),
            Opcode::Batch => Request::Batch(Batch::read(reader, version)?),
            Opcode::Startup => Request::Startup(reader.string_map("startup options")?),
            Opcode::Options => Request::Options,
            Opcode::AuthResponse => Request::AuthResponse(reader.bytes("token")?),
            Opcode::Register => Request::Register(reader.string_list("event types")?),
            other => return Err(Error::UnexpectedOpcode(other as u8)),
        })
    }

    /// Returns the opcode of this request.
    pub fn opcode(&self) -> Opcode {
        match self {
            Request::Startup(_) => Opcode::Startup,
            Request::Options => Opcode::Options,
            Request::AuthResponse(_) => Opcode::AuthResponse,
            Request::Query(_) => Opcode::Query,
            Request::Prepare(_) => Opcode::Prepare,
            Request::Execute(_) => Opcode::Execute,
            Request::Batch(_) => Opcode::Batch,
            Request::Register(_) => Opcode::Register,
        }
    }

    fn write(&self, body: &mut Body<'_>) {
        match self {
            Request::Startup(options) => body.string_map(options),
            Request::Options => {}
            Request::AuthResponse(token) => body.bytes(*token),
            Request::Query(query) => {
                body.long_string(query.text);
                query.params.write(body);
            }
            Request::Prepare(prepare) => prepare.write(body),
            Request::Execute(execute) => execute.write(body),
            Request::Batch(batch) => batch.write(body),
            Request::Register(types) => body.string_list(types),
        }
    }
}

impl<'a> Prepare<'a> {
    fn read(reader: &mut Reader<'a>, version: Version) -> Result<Prepare<'a>, Error> {
        let text = reader.long_string("query")?;
        let with_keyspace =
            version >= Version::V5 && reader.int("prepare flags")? & PREPARE_WITH_KEYSPACE != 0;
        let keyspace = if with_keyspace { Some(reader.string("keyspace")?) } else { None };
        Ok(Prepare { text, keyspace })
    }

    fn write(&self, body: &mut Body<'_>) {
        body.long_string(self.text);
        if body.version() >= Version::V5 {
            body.int(if self.keyspace.is_some() { PREPARE_WITH_KEYSPACE } else { 0 });
            if let Some(keyspace) = self.keyspace {
                body.string(keyspace);
            }
        }
    }
}

impl<'a> Execute<'a> {
    fn read(reader: &mut Reader<'a>, version: Version) -> Result<Execute<'a>, Error> {
        let id = reader.short_bytes("statement id")?;
        let result_metadata_id = match version {
            Version::V4 => &[],
            Version::V5 => reader.short_bytes("result metadata id")?,
        };
        Ok(Execute { id, result_metadata_id, params: QueryParams::read(reader, version)? })
    }

    fn write(&self, body: &mut Body<'_>) {
        body.short_bytes(self.id);
        if body.version() >= Version::V5 {
            body.short_bytes(self.result_metadata_id);
        }
        self.params.write(body);
    }
}

impl Encoder {
    /// Appends a request.
    ///
    /// # Errors
    /// Fails if a value does not fit its length field. The buffer is then unchanged.
    pub fn request(&mut self, stream: i16, request: &Request<'_>) -> Result<(), Error> {
        self.request_with(stream, request, &Prelude::default())
    }

    /// Appends a request with tracing or a custom payload.
    ///
    /// # Errors
    /// Those of [`Encoder::request`].
    pub fn request_with(
        &mut self,
        stream: i16,
        request: &Request<'_>,
        prelude: &Prelude,
    ) -> Result<(), Error> {
        let mut body = self.begin_with(stream, request.opcode(), prelude);
        request.write(&mut body);
        body.end()
    }
}
