//! A front before a Cassandra or ScyllaDB cluster: passes the requests of clients on to nodes, and
//! their answers back, body for body. Of these it decodes neither statements nor rows.
//!
//! ```text
//!  session ─▶ Front::send ─▶ Role ─▶ NodeConnection (role, version, keyspace) ─▶ node
//!                 │                        stream → request
//!                 └ UNPREPARED: PREPARE, then the request again   (again.rs)
//! ```
//!
//! The cluster authenticates and authorizes: each connection for requests is opened with the
//! credentials of the client whose requests it carries. A role of the front's own only reads the
//! system tables.
//!
//! ```text
//!  thread `control` ─▶ PublishedTopology ─▶ CoreTopology ─▶ Candidates ─▶ node
//!       (control.rs)                                            ▲
//!                           RoutingKey: values ─▶ token ────────┘
//! ```
//!
//! ```text
//!  SQL ─▶ ClusterEngine ─▶ scan/ ─▶ pages over the role's connections ─▶ batches of columns
//! ```
//!
//! Every core has its own front with its own connections. Cores share the prepared statements.

mod again;
mod catalog;
mod choice;
mod coming_up;
mod connection;
mod control;
mod engine;
mod events;
mod fleet;
mod front;
mod granted;
mod key;
mod logins;
mod memory;
mod node;
mod nodes;
mod open;
mod part;
mod preparation;
mod prepared;
mod reach;
mod reader;
mod refused;
mod role;
mod scan;
mod schema_tables;
mod send;
mod shared;
mod sizes;
mod streams;
mod tls;
mod topology;
mod windows;

pub use catalog::{Catalog, TableSizes};
pub use choice::ReplicaOrder;
pub use control::{Account, Control, ControlOptions, Notice, Refresh};
pub use engine::{ClusterEngine, OWN_TABLES};
pub use events::{Heard, follow_events};
pub use fleet::{CatalogOutcome, EntryChange, EntryKind, Fleet, FleetCatalog, FleetOptions, Peer};
pub use front::Front;
pub use granted::ClusterRole;
pub use key::RoutingKey;
pub use prepared::{RemotePlan, StatementClass, WORD_WITHIN_BYTES};
pub use reader::{Reader, SessionRoles};
pub use role::Role;
pub use send::{Outgoing, Route};
pub use shared::{FrontOptions, Shared};
pub use tls::{NodeTls, NodeTlsFiles, OwnCertificate};
pub use topology::{ClusterNode, PublishedTopology, Ring, Topology};
pub use windows::{LevelUsage, NodeUsage};

use std::fmt;
use std::net::SocketAddr;

use wire::Envelope;

/// Reason why a request has no answer of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Nothing was sent: no node can be reached, or all are full.
    Unsent(String),
    /// Nothing was sent: no node of the level's tag is live.
    Unavailable(String),
    /// The node cannot be reached, or is silent: it is avoided for a while. Callers of this crate
    /// get it as [`Refusal::Unsent`].
    Unreachable(String),
    /// The connection ended with the request in flight. It may have been executed.
    Lost(SocketAddr),
    /// The node's own answer: an ERROR while the connection was opened.
    Answered(Envelope),
    /// The node's own ERROR about the credentials: they are wrong, or their role may not log in.
    Credentials(Envelope),
    /// The answer is too large for the memory that is left.
    NoMemory(String),
    /// A node has refused the credentials that were kept for the role's sessions: these end.
    Ended,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unsent(reason)
            | Refusal::Unavailable(reason)
            | Refusal::Unreachable(reason)
            | Refusal::NoMemory(reason) => f.write_str(reason),
            Refusal::Lost(node) => {
                write!(f, "The connection to the node {node} was lost before it answered")
            }
            Refusal::Ended => f.write_str("a node refuses the credentials of the session"),
            Refusal::Answered(answer) | Refusal::Credentials(answer) => match answer.failure() {
                Some(failure) => f.write_str(&failure.message),
                None => f.write_str("a node refuses the connection"),
            },
        }
    }
}
