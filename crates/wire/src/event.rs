//! Events that a server pushes to registered clients. A schema change is also the result of a
//! schema statement.

use std::net::SocketAddr;

use crate::body::Body;
use crate::read::{Reader, unknown_name};
use crate::{Error, Opcode};

/// The stream of every EVENT.
pub const EVENT_STREAM: i16 = -1;

/// Event for registered clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A node joined or left.
    Topology {
        /// True for NEW_NODE, false for REMOVED_NODE.
        added: bool,
        /// The node.
        node: SocketAddr,
    },
    /// A node came up or went down.
    Status {
        /// True for UP, false for DOWN.
        up: bool,
        /// The node.
        node: SocketAddr,
    },
    /// The schema changed.
    Schema(SchemaChange),
}

/// Event types that REGISTER accepts.
pub const EVENT_TYPES: [&str; 3] = ["TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE"];

/// Kind of change of a schema object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeType {
    /// It was created.
    Created,
    /// It was altered.
    Updated,
    /// It was dropped.
    Dropped,
}

/// A schema change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaChange {
    /// Kind of change.
    pub change: ChangeType,
    /// Changed object.
    pub target: SchemaTarget,
    /// Keyspace of the object, or the changed keyspace itself.
    pub keyspace: String,
}

/// Object of a schema change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaTarget {
    /// The keyspace itself.
    Keyspace,
    /// A table (or an index or view of that table), by name.
    Table(String),
    /// A user type, by name.
    Type(String),
    /// A function, by name and argument types.
    Function(String, Vec<String>),
    /// An aggregate, by name and argument types.
    Aggregate(String, Vec<String>),
}

impl SchemaChange {
    pub(crate) fn write(&self, body: &mut Body<'_>) {
        body.string(match self.change {
            ChangeType::Created => "CREATED",
            ChangeType::Updated => "UPDATED",
            ChangeType::Dropped => "DROPPED",
        });
        let (target, name, arguments) = match &self.target {
            SchemaTarget::Keyspace => ("KEYSPACE", None, None),
            SchemaTarget::Table(name) => ("TABLE", Some(name), None),
            SchemaTarget::Type(name) => ("TYPE", Some(name), None),
            SchemaTarget::Function(name, arguments) => ("FUNCTION", Some(name), Some(arguments)),
            SchemaTarget::Aggregate(name, arguments) => ("AGGREGATE", Some(name), Some(arguments)),
        };
        body.string(target);
        body.string(&self.keyspace);
        if let Some(name) = name {
            body.string(name);
        }
        if let Some(arguments) = arguments {
            body.string_list(arguments);
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<SchemaChange, Error> {
        let change = match reader.string("change type")? {
            "CREATED" => ChangeType::Created,
            "UPDATED" => ChangeType::Updated,
            "DROPPED" => ChangeType::Dropped,
            other => return Err(unknown_name("change type", other)),
        };
        let target = reader.string("change target")?;
        let keyspace = reader.string("keyspace")?.to_owned();
        let name = |reader: &mut Reader<'_>| reader.string("object name").map(str::to_owned);
        let target = match target {
            "KEYSPACE" => SchemaTarget::Keyspace,
            "TABLE" => SchemaTarget::Table(name(reader)?),
            "TYPE" => SchemaTarget::Type(name(reader)?),
            "FUNCTION" => SchemaTarget::Function(name(reader)?, reader.owned_list("argument types")?),
            "AGGREGATE" => SchemaTarget::Aggregate(name(reader)?, reader.owned_list("argument types")?),
            other => return Err(unknown_name("change target", other)),
        };
        Ok(SchemaChange { change, target, keyspace })
    }
}

impl Event {
    /// Returns the event type under which clients register for this event.
    pub fn type_name(&self) -> &'static str {
        match self {
            Event::Topology { .. } => EVENT_TYPES[0],
            Event::Status { .. } => EVENT_TYPES[1],
            Event::Schema(_) => EVENT_TYPES[2],
        }
    }

    pub(crate) fn write(&self, body: &mut Body<'_>) {
        body.string(self.type_name());
        match self {
            Event::Topology { added, node } => {
                body.string(if *added { "NEW_NODE" } else { "REMOVED_NODE" });
                body.inet(*node);
            }
            Event::Status { up, node } => {
                body.string(if *up { "UP" } else { "DOWN" });
                body.inet(*node);
            }
            Event::Schema(change) => change.write(body),
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Event, Error> {
        match reader.string("event type")? {
            "TOPOLOGY_CHANGE" => {
                let added = match reader.string("topology change")? {
                    "NEW_NODE" => true,
                    "REMOVED_NODE" => false,
                    other => return Err(unknown_name("topology change", other)),
                };
                Ok(Event::Topology { added, node: reader.inet("node")? })
            }
            "STATUS_CHANGE" => {
                let up = match reader.string("status change")? {
                    "UP" => true,
                    "DOWN" => false,
                    other => return Err(unknown_name("status change", other)),
                };
                Ok(Event::Status { up, node: reader.inet("node")? })
            }
            "SCHEMA_CHANGE" => SchemaChange::read(reader).map(Event::Schema),
            other => Err(unknown_name("event type", other)),
        }
    }
}

impl crate::Encoder {
    /// Appends an EVENT.
    ///
    /// # Errors
    /// Fails if a name does not fit its length field. The buffer is then unchanged.
    pub fn event(&mut self, event: &Event) -> Result<(), Error> {
        let mut body = self.begin(EVENT_STREAM, Opcode::Event);
        event.write(&mut body);
        body.end()
    }
}
