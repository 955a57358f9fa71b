//! Optional parts before a message in its body: a tracing id, warnings, and a custom payload.
//! Header flags announce each of them. A request carries only the payload, and its tracing flag
//! asks for a trace.

use bytes::Bytes;

use crate::body::Body;
use crate::frame::{Direction, Flags};
use crate::read::Reader;
use crate::{Envelope, Error};

/// Custom payload: names and values that the server does not interpret.
pub type CustomPayload = Vec<(String, Option<Bytes>)>;

/// Optional parts before a message. The default has none and does not allocate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prelude {
    /// Request: true if the client requests a trace.
    pub tracing: bool,
    /// Response: the id of the trace, a UUID.
    pub tracing_id: Option<[u8; 16]>,
    /// Response: warnings for the client to log.
    pub warnings: Vec<String>,
    /// Request and response: a custom payload. Empty for none.
    pub payload: CustomPayload,
}

impl Prelude {
    /// Creates the prelude of a response with these warnings.
    pub fn with_warnings(warnings: Vec<String>) -> Prelude {
        Prelude { warnings, ..Prelude::default() }
    }

    pub(crate) fn flags(&self, direction: Direction) -> u8 {
        let mut flags = 0;
        let response = direction == Direction::Response;
        if (response && self.tracing_id.is_some()) || (!response && self.tracing) {
            flags |= Flags::TRACING;
        }
        if response && !self.warnings.is_empty() {
            flags |= Flags::WARNING;
        }
        if !self.payload.is_empty() {
            flags |= Flags::CUSTOM_PAYLOAD;
        }
        flags
    }

    pub(crate) fn write(&self, direction: Direction, body: &mut Body<'_>) {
        if direction == Direction::Response {
            if let Some(id) = &self.tracing_id {
                body.raw(id);
            }
            if !self.warnings.is_empty() {
                body.string_list(&self.warnings);
            }
        }
        if !self.payload.is_empty() {
            body.count(self.payload.len(), "a custom payload");
            for (name, value) in &self.payload {
                body.string(name);
                body.bytes(value.as_deref());
            }
        }
    }

    /// Reads the parts that the flags of the envelope announce. `reader` is then at the message.
    pub(crate) fn read(envelope: &Envelope, reader: &mut Reader<'_>) -> Result<Prelude, Error> {
        let mut prelude = Prelude::default();
        match envelope.opcode.direction() {
            Direction::Request => prelude.tracing = envelope.flags.has(Flags::TRACING),
            Direction::Response => {
                if envelope.flags.has(Flags::TRACING) {
                    prelude.tracing_id = Some(reader.uuid("tracing id")?);
                }
                if envelope.flags.has(Flags::WARNING) {
                    prelude.warnings = reader.owned_list("warnings")?;
                }
            }
        }
        if envelope.flags.has(Flags::CUSTOM_PAYLOAD) {
            let count = reader.count(6, "custom payload")?;
            prelude.payload = (0..count)
                .map(|_| {
                    let name = reader.string("custom payload name")?.to_owned();
                    let value = reader.bytes("custom payload value")?;
                    Ok((name, value.map(|bytes| envelope.body.slice_ref(bytes))))
                })
                .collect::<Result<_, Error>>()?;
        }
        Ok(prelude)
    }
}
