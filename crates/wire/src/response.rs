//! Responses. A server encodes each with one method of [`Encoder`], a client decodes them.

use crate::columns::{Columns, ColumnsRef, NO_METADATA, read_count};
use crate::event::{Event, SchemaChange};
use crate::failure::Failure;
use crate::frame::Flags;
use crate::prelude::Prelude;
use crate::read::Reader;
use crate::rows::{ROWS_KIND, ReceivedRows, ResultMetadata, RowsHead, RowsWriter, write_metadata};
use crate::{Encoder, Envelope, Error, Opcode, Version};

const VOID_KIND: i32 = 1;
const SET_KEYSPACE_KIND: i32 = 3;
const PREPARED_KIND: i32 = 4;
const SCHEMA_CHANGE_KIND: i32 = 5;

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response<'a> {
    /// The request failed.
    Error(Failure),
    /// The connection is ready for statements.
    Ready,
    /// The client must authenticate with the authenticator of this class.
    Authenticate(&'a str),
    /// Supported options with their values, in the order sent.
    Supported(Vec<(&'a str, Vec<&'a str>)>),
    /// A result without content.
    Void,
    /// Rows.
    Rows(ReceivedRows<'a>),
    /// The keyspace in use from now on.
    SetKeyspace(&'a str),
    /// A statement was prepared.
    Prepared(Prepared<'a>),
    /// The schema was changed.
    SchemaChange(SchemaChange),
    /// An event that the client registered for.
    Event(Event),
    /// A further step of authentication.
    AuthChallenge(Option<&'a [u8]>),
    /// Authentication succeeded.
    AuthSuccess(Option<&'a [u8]>),
}

/// A prepared statement as received by a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prepared<'a> {
    /// Id of the statement.
    pub id: &'a [u8],
    /// v5: the id of the result metadata. Empty in v4.
    pub result_metadata_id: &'a [u8],
    /// Bind markers.
    pub bind: ColumnsRef<'a>,
    /// The bind marker of each partition key column. Empty if some are not bound.
    pub partition_key_indexes: Vec<u16>,
    /// Metadata of the results.
    pub result: ResultMetadata<'a>,
}

/// A prepared statement as sent by a server.
#[derive(Debug, Clone, Copy)]
pub struct PreparedHead<'a> {
    /// Id of the statement.
    pub id: &'a [u8],
    /// v5: the id of the result metadata. Ignored in v4.
    pub result_metadata_id: &'a [u8],
    /// Bind markers.
    pub bind: &'a Columns,
    /// The bind marker of each partition key column. Empty if some are not bound.
    pub partition_key_indexes: &'a [u16],
    /// Result columns. Empty if the statement returns no rows.
    pub result: &'a Columns,
}

impl Encoder {
    /// Appends a response with the body that `write` writes.
    fn respond(
        &mut self,
        stream: i16,
        opcode: Opcode,
        prelude: &Prelude,
        write: impl FnOnce(&mut crate::Body<'_>),
    ) -> Result<(), Error> {
        let mut body = self.begin_with(stream, opcode, prelude);
        write(&mut body);
        body.end()
    }

    /// Appends ERROR. Its text is cut to the maximum of a `[string]`.
    ///
    /// # Errors
    /// Fails if another field does not fit. The buffer is then unchanged.
    pub fn error(&mut self, stream: i16, failure: &Failure, prelude: &Prelude) -> Result<(), Error> {
        self.respond(stream, Opcode::Error, prelude, |body| failure.write(body))
    }

    /// Appends READY.
    pub fn ready(&mut self, stream: i16) {
        let ended = self.respond(stream, Opcode::Ready, &Prelude::default(), |_| {});
        ended.expect("an empty body always fits");
    }

    /// Appends AUTHENTICATE.
    ///
    /// # Errors
    /// Fails if the class name is over 65,535 bytes.
    pub fn authenticate(&mut self, stream: i16, class: &str) -> Result<(), Error> {
        self.respond(stream, Opcode::Authenticate, &Prelude::default(), |body| body.string(class))
    }

    /// Appends SUPPORTED.
    ///
    /// # Errors
    /// Fails if a string or list does not fit its length field.
    pub fn supported<S: AsRef<str>>(&mut self, stream: i16, options: &[(S, Vec<S>)]) -> Result<(), Error> {
        self.respond(stream, Opcode::Supported, &Prelude::default(), |body| {
            body.count(options.len(), "supported options");
            for (option, values) in options {
                body.string(option.as_ref());
                body.string_list(values);
            }
        })
    }

    /// Appends AUTH_CHALLENGE.
    ///
    /// # Errors
    /// Fails if the token is over 256 MiB.
    pub fn auth_challenge(&mut self, stream: i16, token: Option<&[u8]>) -> Result<(), Error> {
        self.respond(stream, Opcode::AuthChallenge, &Prelude::default(), |body| body.bytes(token))
    }

    /// Appends AUTH_SUCCESS.
    ///
    /// # Errors
    /// Fails if the token is over 256 MiB.
    pub fn auth_success(&mut self, stream: i16, token: Option<&[u8]>) -> Result<(), Error> {
        self.respond(stream, Opcode::AuthSuccess, &Prelude::default(), |body| body.bytes(token))
    }

    /// Appends RESULT, Void.
    ///
    /// # Errors
    /// Fails if the prelude does not fit.
    pub fn void(&mut self, stream: i16, prelude: &Prelude) -> Result<(), Error> {
        self.respond(stream, Opcode::Result, prelude, |body| body.int(VOID_KIND))
    }

    /// Appends RESULT, Set_keyspace.
    ///
    /// # Errors
    /// Fails if the name or the prelude does not fit.
    pub fn set_keyspace(&mut self, stream: i16, keyspace: &str, prelude: &Prelude) -> Result<(), Error> {
        self.respond(stream, Opcode::Result, prelude, |body| {
            body.int(SET_KEYSPACE_KIND);
            body.string(keyspace);
        })
    }

    /// Appends RESULT, Schema_change.
    ///
    /// # Errors
    /// Fails if a name or the prelude does not fit.
    pub fn schema_change(
        &mut self,
        stream: i16,
        change: &SchemaChange,
        prelude: &Prelude,
    ) -> Result<(), Error> {
        self.respond(stream, Opcode::Result, prelude, |body| {
            body.int(SCHEMA_CHANGE_KIND);
            change.write(body);
        })
    }

    /// Appends RESULT, Prepared.
    ///
    /// # Errors
    /// Fails if the id or the prelude does not fit.
    pub fn prepared(
        &mut self,
        stream: i16,
        prepared: &PreparedHead<'_>,
        prelude: &Prelude,
    ) -> Result<(), Error> {
        self.respond(stream, Opcode::Result, prelude, |body| {
            body.int(PREPARED_KIND);
            body.short_bytes(prepared.id);
            if body.version() >= Version::V5 {
                body.short_bytes(prepared.result_metadata_id);
            }
            body.int(prepared.bind.flags());
            body.int(prepared.bind.len() as i32);
            body.int(prepared.partition_key_indexes.len() as i32);
            for index in prepared.partition_key_indexes {
                body.short(*index);
            }
            prepared.bind.write(body);
            write_metadata(body, &RowsHead::default(), prepared.result);
        })
    }

    /// Begins RESULT, Rows.
    pub fn rows(
        &mut self,
        stream: i16,
        head: &RowsHead<'_>,
        columns: &Columns,
        prelude: &Prelude,
    ) -> RowsWriter<'_> {
        RowsWriter::begin(self.begin_with(stream, Opcode::Result, prelude), head, columns)
    }
}

impl Envelope {
    /// Decodes the response in this envelope. Read tracing id, warnings and custom payload with
    /// [`Envelope::prelude`].
    ///
    /// # Errors
    /// The fault in the body. The envelopes after this one are not affected.
    pub fn response(&self) -> Result<Response<'_>, Error> {
        let mut reader = Reader::new(&self.body);
        if self.flags.0 & (Flags::TRACING | Flags::WARNING | Flags::CUSTOM_PAYLOAD) != 0 {
            Prelude::read(self, &mut reader)?;
        }
        Response::read(self.version, self.opcode, &mut reader)
    }

    /// Returns the failure of an ERROR. `None`: it is another message, or cannot be read.
    pub fn failure(&self) -> Option<Failure> {
        match (self.opcode == Opcode::Error).then(|| self.response())? {
            Ok(Response::Error(failure)) => Some(failure),
            _ => None,
        }
    }
}

/// Kind of a RESULT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the protocol specification")]
pub enum ResultKind {
    Void,
    Rows,
    SetKeyspace,
    Prepared,
    SchemaChange,
}

impl Envelope {
    /// Returns the kind of a RESULT, without decoding the rest. `None` for another message, and for
    /// a kind that is not known.
    pub fn result_kind(&self) -> Option<ResultKind> {
        if self.opcode != Opcode::Result {
            return None;
        }
        let mut reader = Reader::new(&self.body);
        if self.flags.0 & (Flags::TRACING | Flags::WARNING | Flags::CUSTOM_PAYLOAD) != 0 {
            Prelude::read(self, &mut reader).ok()?;
        }
        Some(match reader.int("result kind").ok()? {
            VOID_KIND => ResultKind::Void,
            ROWS_KIND => ResultKind::Rows,
            SET_KEYSPACE_KIND => ResultKind::SetKeyspace,
            PREPARED_KIND => ResultKind::Prepared,
            SCHEMA_CHANGE_KIND => ResultKind::SchemaChange,
            _ => return None,
        })
    }
}

impl<'a> Response<'a> {
    /// Decodes a response body that has neither tracing id, warnings nor custom payload.
    ///
    /// # Errors
    /// The fault in the body. [`Error::UnexpectedOpcode`] for the opcode of a request.
    pub fn decode(version: Version, opcode: Opcode, body: &'a [u8]) -> Result<Response<'a>, Error> {
        Response::read(version, opcode, &mut Reader::new(body))
    }

    fn read(version: Version, opcode: Opcode, reader: &mut Reader<'a>) -> Result<Response<'a>, Error> {
        Ok(match opcode {
            Opcode::Result => Response::read_result(version, reader)?,
            Opcode::Error => Response::Error(Failure::read(reader, version)?),
            Opcode::Ready => Response::Ready,
            Opcode::Authenticate => Response::Authenticate(reader.string("authenticator")?),
            Opcode::Supported => {
                let count = reader.count(4, "supported options")?;
                let option =
                    |_| Ok((reader.string("supported option")?, reader.string_list("supported values")?));
                Response::Supported((0..count).map(option).collect::<Result<_, Error>>()?)
            }
            Opcode::Event => Response::Event(Event::read(reader)?),
            Opcode::AuthChallenge => Response::AuthChallenge(reader.bytes("token")?),
            Opcode::AuthSuccess => Response::AuthSuccess(reader.bytes("token")?),
            other => return Err(Error::UnexpectedOpcode(other as u8)),
        })
    }

    fn read_result(version: Version, reader: &mut Reader<'a>) -> Result<Response<'a>, Error> {
        Ok(match reader.int("result kind")? {
            VOID_KIND => Response::Void,
            ROWS_KIND => Response::Rows(ReceivedRows::read(reader)?),
            SET_KEYSPACE_KIND => Response::SetKeyspace(reader.string("keyspace")?),
            PREPARED_KIND => Response::Prepared(Prepared::read(reader, version)?),
            SCHEMA_CHANGE_KIND => Response::SchemaChange(SchemaChange::read(reader)?),
            kind => return Err(Error::OutOfRange { field: "result kind", value: i64::from(kind) }),
        })
    }
}

impl<'a> Prepared<'a> {
    fn read(reader: &mut Reader<'a>, version: Version) -> Result<Prepared<'a>, Error> {
        let id = reader.short_bytes("statement id")?;
        let result_metadata_id = match version {
            Version::V4 => &[],
            Version::V5 => reader.short_bytes("result metadata id")?,
        };
        let flags = reader.int("metadata flags")?;
        let columns = read_count(reader, "number of bind markers")?;
        let indexes = read_count(reader, "number of partition key indexes")?;
        reader.check_count(indexes, 2, "partition key indexes")?;
        let partition_key_indexes =
            (0..indexes).map(|_| reader.short("partition key index")).collect::<Result<_, _>>()?;
        let bind = match flags & NO_METADATA {
            0 => ColumnsRef::read(reader, flags, columns)?,
            _ => ColumnsRef::default(),
        };
        let result = ResultMetadata::read(reader)?;
        Ok(Prepared { id, result_metadata_id, bind, partition_key_indexes, result })
    }
}
