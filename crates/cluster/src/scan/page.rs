//! Pages of a scan: requests of a role to nodes, on the fast lane of a core.
//!
//! A page is a request like those of clients: it takes a place in the window of its node, in the
//! order of levels, and a connection of the role carries it, so that the cluster checks its rights.
//! A failed page is asked of the next replica, with half as many rows, [`RETRIES`] times.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use engine::Error;
use sched::control::ClassId;
use schema::Token;
use wire::{
    Consistency, Direction, Encoder, Envelope, Execute, Failure, FailureKind, Flags, HEADER_BYTES, Opcode,
    Prepare, QueryParams, Request, Response, ResultKind, Value, ValuesBuf,
};
use workload::Effective;

use crate::Refusal;
use crate::choice::{Candidates, ReplicaOrder};
use crate::connection::NodeConnection;
use crate::front::Front;
use crate::node::Node;
use crate::role::Role;
use crate::scan::ranges::TokenRange;
use crate::scan::shape::{ScanText, Shape, is_same};

/// Attempts after a failed one.
const RETRIES: u32 = 3;

/// Time limit of one attempt, with its wait for a place. Nodes give up after 10 s.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(30);

/// A page to be read.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    pub(crate) of: PageOf,
    /// End of the page before.
    pub(crate) paging_state: Option<Bytes>,
    /// Rows, at most.
    pub(crate) rows: u32,
}

/// Rows that a page is part of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PageOf {
    /// A range of tokens. `is_of_one_token`: its partitions have the same replicas.
    Range { range: TokenRange, is_of_one_token: bool },
    /// A partition, with the values of its key.
    Key { token: Token, parts: Vec<Bytes> },
}

impl std::fmt::Display for PageOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PageOf::Range { range, .. } => write!(f, "the tokens above {} up to {}", range.after, range.to),
            PageOf::Key { token, .. } => write!(f, "the partition with token {token}"),
        }
    }
}

/// A page as a node sent it.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) answer: Envelope,
    /// Rows that it was asked for.
    pub(crate) rows: u32,
}

/// A statement that a node has prepared.
struct PreparedScan {
    id: Vec<u8>,
    metadata_id: Vec<u8>,
}

/// A scan on one core.
pub(crate) struct CoreScan {
    pub(crate) front: Rc<Front>,
    pub(crate) role: Rc<Role>,
    consistency: Consistency,
    pub(crate) shape: Arc<Shape>,
    text: ScanText,
    prepared: RefCell<Option<Rc<PreparedScan>>>,
    /// Bytes of pages that were received, and not converted yet.
    pub(crate) received_bytes: Arc<AtomicU64>,
}

/// Failure of an attempt.
enum Failed {
    /// Other nodes would fail as well.
    Finally(Error),
    /// Another node may do it. The second is the kind of the error, if none does.
    Here(String, fn(String) -> Error),
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Failed {
        let text = refusal.to_string();
        match refusal {
            Refusal::Ended | Refusal::Credentials(_) => Failed::Finally(Error::Unauthorized(text)),
            // No node of the level's tag is live.
            Refusal::Unavailable(_) => Failed::Finally(Error::Overloaded(text)),
            Refusal::Unsent(_) | Refusal::Unreachable(_) | Refusal::NoMemory(_) => {
                Failed::Here(text, Error::Overloaded)
            }
            Refusal::Lost(_) | Refusal::Answered(_) => Failed::Here(text, Error::Server),
        }
    }
}

impl CoreScan {
    pub(crate) fn new(
        front: Rc<Front>,
        role: Rc<Role>,
        consistency: Consistency,
        shape: Arc<Shape>,
        text: ScanText,
        received_bytes: Arc<AtomicU64>,
    ) -> CoreScan {
        let prepared = RefCell::default();
        CoreScan { front, role, consistency, shape, text, prepared, received_bytes }
    }

    /// Reads a page, in the level of the running group. `is_wanted` is asked before each attempt.
    ///
    /// # Errors
    /// All attempts have failed, with the last reason. Its text names the rows and the node.
    pub(crate) async fn page(
        &self,
        request: &PageRequest,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Page, Error> {
        let nodes = self.front.nodes();
        let token = match &request.of {
            PageOf::Range { range, is_of_one_token } => is_of_one_token.then_some(range.to),
            PageOf::Key { token, .. } => Some(*token),
        };
        let token = token.map(|token| (self.shape.keyspace(), token));
        let order = ReplicaOrder::LeastLoaded;
        let effective = self.effective();
        let tag = effective.spec.tag.as_ref();
        // ONE may be answered by other datacenters, as the scan does not judge their replicas.
        let is_one = self.consistency == Consistency::One;
        let expected =
            self.consistency.in_one_datacenter().or_else(|| is_one.then_some(Consistency::LocalOne));
        let tag_of_datacenter = tag.filter(|tag| tag.datacenters().next().is_some());
        if let (Some(tag), Some(expected)) = (tag_of_datacenter, expected) {
            return Err(Error::Invalid(format!(
                "the tag '{tag}' of the session's service level excludes consistency {}, which depends on other \
                 datacenters: SET consistency = '{expected}'",
                self.consistency
            )));
        }
        let candidates = Candidates::new(&nodes.topology, token, order, self.front.turn());
        let mut candidates = candidates.within(tag);
        self.role.set_group(effective.group());
        let mut rows = request.rows;
        let mut attempts = 0;
        loop {
            if !is_wanted() {
                return Err(Error::Server("the query has ended".to_owned()));
            }
            let connect = |node| self.role.connection(node, self.front.shared().version(), None);
            let mut asked = None;
            let attempt = async {
                let node = nodes.next(&mut candidates)?;
                let (node, connection) = nodes.reach(node, &mut candidates, connect).await?;
                asked = Some(node.address);
                self.ask(&node, &connection, &effective, request, rows).await
            };
            let late = |_| Err(Failed::Here("it does not answer in time".to_owned(), Error::ReadTimeout));
            let failed = match lanes::time::timeout(ATTEMPT_WITHIN, attempt).await.unwrap_or_else(late) {
                Ok(answer) => {
                    self.received_bytes.fetch_add(answer.body.len() as u64, Relaxed);
                    return Ok(Page { answer, rows });
                }
                Err(failed) => failed,
            };
            attempts += 1;
            match failed {
                Failed::Finally(error) => return Err(error),
                Failed::Here(reason, kind) if attempts > RETRIES => {
                    return Err(kind(self.unread(&request.of, asked, &reason)));
                }
                Failed::Here(..) => rows = (rows / 2).max(1),
            }
        }
    }

    fn unread(&self, of: &PageOf, node: Option<SocketAddr>, reason: &str) -> String {
        let node =
            node.map_or_else(|| "no node can be reached".to_owned(), |node| format!("the node {node}"));
        let attempts = RETRIES + 1;
        format!(
            "{of} of {} could not be read in {attempts} attempts, the last by {node}: {reason}",
            self.shape.name()
        )
    }

    /// Returns the level in whose group this task runs. It was dropped: the default.
    fn effective(&self) -> Effective {
        let (catalog, group) = (self.front.shared().levels.catalog(), lanes::current_group());
        let own = catalog.entries().find(|entry| entry.level.group() == group);
        Effective::of(own.unwrap_or(catalog.default_level()))
    }

    /// Asks a node for a page.
    async fn ask(
        &self,
        node: &Rc<Node>,
        connection: &Rc<NodeConnection>,
        effective: &Effective,
        request: &PageRequest,
        rows: u32,
    ) -> Result<Envelope, Failed> {
        let until_ns = lanes::time::monotonic_ns().saturating_add(ATTEMPT_WITHIN.as_nanos() as u64);
        let mut is_new = false;
        loop {
            let known = self.prepared.borrow().clone();
            let prepared = match known {
                Some(prepared) => prepared,
                None => {
                    is_new = true;
                    self.prepare(connection).await?
                }
            };
            let body = self.body(connection, &prepared, request, rows)?;
            // The classes of statements are for those that clients prepare.
            let class = ClassId::of_opcode(Opcode::Execute as u8);
            let place = node.place(effective, class, until_ns).await?;
            let sent = connection.send(Opcode::Execute, Flags::default(), &body, place).await?;
            let lost = Err(Refusal::Lost(connection.node));
            let answer = sent.await.unwrap_or(lost).inspect_err(|refusal| {
                if matches!(refusal, Refusal::Lost(_)) {
                    node.avoid();
                }
            })?;
            // The heavy lane reads rows.
            if answer.result_kind() == Some(ResultKind::Rows) {
                return Ok(answer);
            }
            let failure = match answer.response() {
                Ok(Response::Error(failure)) => failure,
                Ok(_) => return Err(Failed::Here("its answer has no rows".to_owned(), Error::Server)),
                Err(error) => return Err(Failed::Finally(self.shape.unreadable(&error))),
            };
            if matches!(failure.kind, FailureKind::Unprepared(_)) && !is_new {
                *self.prepared.borrow_mut() = None;
                continue;
            }
            return Err(judge(failure));
        }
    }

    /// Prepares the text at a node that does not know it.
    async fn prepare(&self, connection: &Rc<NodeConnection>) -> Result<Rc<PreparedScan>, Failed> {
        let message = Prepare { text: &self.text.text, keyspace: None };
        let lost = Err(Refusal::Lost(connection.node));
        let answer = connection.ask(&Request::Prepare(message))?.await.unwrap_or(lost)?;
        let prepared = match answer.response() {
            Ok(Response::Prepared(prepared)) => prepared,
            Ok(Response::Error(failure)) => return Err(judge(failure)),
            Ok(_) => return Err(Failed::Here("it does not prepare the statement".to_owned(), Error::Server)),
            Err(error) => return Err(Failed::Finally(self.shape.unreadable(&error))),
        };
        let unreadable = |error| Failed::Finally(self.shape.unreadable(&error));
        let markers = prepared.bind.decode().map_err(unreadable)?;
        let is_same = markers.len() == self.text.markers.len()
            && self.text.markers.iter().zip(&markers).all(|(own, theirs)| is_same(own, &theirs.ty));
        if !is_same {
            return Err(Failed::Finally(self.shape.altered()));
        }
        if let Some(columns) = &prepared.result.columns {
            self.shape.check(columns).map_err(Failed::Finally)?;
        }
        let prepared = Rc::new(PreparedScan {
            id: prepared.id.to_vec(),
            metadata_id: prepared.result_metadata_id.to_vec(),
        });
        *self.prepared.borrow_mut() = Some(prepared.clone());
        Ok(prepared)
    }

    /// Returns the body of an EXECUTE.
    fn body(
        &self,
        connection: &NodeConnection,
        prepared: &PreparedScan,
        request: &PageRequest,
        rows: u32,
    ) -> Result<Bytes, Failed> {
        let mut values = ValuesBuf::new();
        let edges = match &request.of {
            PageOf::Range { range, .. } => [range.after, range.to].map(i64::to_be_bytes),
            PageOf::Key { .. } => [[0; 8]; 2],
        };
        let key: Vec<&[u8]> = match &request.of {
            PageOf::Range { .. } => edges.iter().map(|edge| &edge[..]).collect(),
            PageOf::Key { parts, .. } => parts.iter().map(|part| &part[..]).collect(),
        };
        let unsent = |error: wire::Error| {
            Failed::Finally(Error::Invalid(format!(
                "the query of {} cannot be sent: {error}",
                self.shape.name()
            )))
        };
        for value in key.into_iter().chain(self.text.conditions.iter().map(|value| &value[..])) {
            values.push(Value::Bytes(value)).map_err(unsent)?;
        }
        let params = QueryParams {
            consistency: self.consistency,
            values: values.values(),
            page_size: Some(i32::try_from(rows).unwrap_or(i32::MAX)),
            paging_state: request.paging_state.as_deref(),
            ..QueryParams::default()
        };
        let execute = Execute { id: &prepared.id, result_metadata_id: &prepared.metadata_id, params };
        let mut encoder = Encoder::new(Direction::Request, connection.version());
        encoder.request(0, &Request::Execute(execute)).map_err(unsent)?;
        Ok(encoder.finish().split_off(HEADER_BYTES).freeze())
    }
}

/// Judges an ERROR of a node: those about the statement and the role are the same at all nodes.
fn judge(failure: Failure) -> Failed {
    let Failure { kind, message, .. } = failure;
    match kind {
        FailureKind::Unauthorized | FailureKind::Authentication => {
            Failed::Finally(Error::Unauthorized(message))
        }
        FailureKind::Invalid | FailureKind::Syntax | FailureKind::Config => {
            Failed::Finally(Error::Invalid(message))
        }
        FailureKind::ReadTimeout { .. } => Failed::Here(message, Error::ReadTimeout),
        FailureKind::Overloaded => Failed::Here(message, Error::Overloaded),
        _ => Failed::Here(message, Error::Server),
    }
}
