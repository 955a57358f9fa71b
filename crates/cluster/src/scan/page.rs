//! Pages of a scan: requests of a role to nodes, on the fast lane of a core.
//!
//! A page is a request like those of clients: it takes a place in the window of its node, in the
//! order of levels, and a connection of the role carries it, so that the cluster checks its rights.
//! A failed page is asked of the next replica, with half as many rows, [`RETRIES`] times.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use engine::Error;
use sched::control::ClassId;
use schema::Token;
use tokio::sync::OnceCell;
use wire::{
    Consistency, Direction, Encoder, Envelope, Execute, Failure, FailureKind, Flags, HEADER_BYTES, Prepare,
    QueryParams, Request, Response, ResultKind, Value, ValuesBuf,
};
use workload::Effective;

use crate::Refusal;
use crate::choice::{Candidates, ReplicaOrder};
use crate::front::Front;
use crate::prepared::prepared_of;
use crate::reach::Nodes;
use crate::role::Role;
use crate::scan::Access;
use crate::scan::pushed::Condition;
use crate::scan::ranges::TokenRange;
use crate::scan::shape::{ScanText, Shape, is_same};
use crate::send::Outgoing;

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

/// The statement of a scan, once a node has prepared it.
#[derive(Debug)]
struct PreparedScan {
    id: Vec<u8>,
    metadata_id: Vec<u8>,
}

/// A statement of a scan.
struct ScanStatement {
    text: ScanText,
    /// Two pages that need it at first wait for one PREPARE.
    prepared: RefCell<Rc<OnceCell<PreparedScan>>>,
}

impl ScanStatement {
    fn new(text: ScanText) -> ScanStatement {
        ScanStatement { text, prepared: RefCell::default() }
    }
}

/// A scan on one core.
pub(crate) struct CoreScan {
    pub(crate) front: Rc<Front>,
    pub(crate) role: Rc<Role>,
    consistency: Consistency,
    pub(crate) shape: Arc<Shape>,
    of_ranges: ScanStatement,
    of_keys: ScanStatement,
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
    /// Creates a scan with the connections of `access`, on its core. `clustering`: conditions of
    /// both statements.
    pub(crate) fn new(
        access: &Access,
        shape: Arc<Shape>,
        clustering: &[Condition],
        received_bytes: Arc<AtomicU64>,
    ) -> CoreScan {
        CoreScan {
            front: access.front.clone(),
            role: access.role.clone(),
            consistency: access.consistency,
            of_ranges: ScanStatement::new(shape.text_of_range(clustering)),
            of_keys: ScanStatement::new(shape.text_of_key(clustering)),
            shape,
            received_bytes,
        }
    }

    fn statement(&self, of: &PageOf) -> &ScanStatement {
        match of {
            PageOf::Range { .. } => &self.of_ranges,
            PageOf::Key { .. } => &self.of_keys,
        }
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
        let effective = Rc::new(self.effective());
        let tag = effective.spec.tag.as_ref();
        let expected = match self.consistency {
            // Other datacenters may answer, as the scan does not judge their replicas.
            Consistency::One => Some(Consistency::LocalOne),
            other => other.in_one_datacenter(),
        };
        let tag_of_datacenter = tag.filter(|tag| tag.has_datacenter());
        if let (Some(tag), Some(expected)) = (tag_of_datacenter, expected) {
            return Err(Error::Invalid(format!(
                "the tag '{tag}' of the session's service level excludes consistency {}, which depends on other \
                 datacenters: SET consistency = '{expected}'",
                self.consistency
            )));
        }
        let candidates = Candidates::new(&nodes.topology, token, order, self.front.turn());
        let mut candidates = candidates.within(tag);
        let mut rows = request.rows;
        let mut attempts = 0;
        loop {
            if !is_wanted() {
                return Err(Error::Server("the query has ended".to_owned()));
            }
            let attempt = self.ask(&nodes, &mut candidates, &effective, request, rows);
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
                    let asked = candidates.last().map(|node| nodes.nodes[node].address);
                    return Err(kind(self.unread(&request.of, asked, &reason)));
                }
                Failed::Here(..) => rows = (rows / 2).max(1),
            }
        }
    }

    fn unread(&self, of: &PageOf, node: Option<SocketAddr>, reason: &str) -> String {
        let node = node.map_or_else(|| "no node".to_owned(), |node| format!("the node {node}"));
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

    /// Asks the next of the candidates for a page.
    async fn ask(
        &self,
        nodes: &Nodes,
        candidates: &mut Candidates<'_>,
        effective: &Rc<Effective>,
        request: &PageRequest,
        rows: u32,
    ) -> Result<Envelope, Failed> {
        let statement = self.statement(&request.of);
        let prepared = statement.prepared.borrow().clone();
        let known = prepared.get_or_try_init(|| self.prepare(&statement.text, effective)).await?;
        let outgoing = self.execute(known, effective, request, rows)?;
        let answer = self.front.send_to(&self.role, &outgoing, nodes, candidates).await?;
        // The heavy lane reads rows.
        if answer.result_kind() == Some(ResultKind::Rows) {
            return Ok(answer);
        }
        if let Some(FailureKind::Unprepared(_)) = answer.failure().map(|failure| failure.kind) {
            // The front has forgotten it, or its table was altered. Another page may have begun to
            // prepare it again.
            let mut present = statement.prepared.borrow_mut();
            if Rc::ptr_eq(&present, &prepared) {
                *present = Rc::default();
            }
        }
        Err(self.failure(&answer))
    }

    /// Prepares the text. Other nodes are sent it as they need it.
    async fn prepare(&self, text: &ScanText, effective: &Rc<Effective>) -> Result<PreparedScan, Failed> {
        let message = Prepare { text: &text.text, keyspace: None };
        let outgoing = self.outgoing(effective, &Request::Prepare(message))?;
        let answer = self.front.prepare(&self.role, &outgoing, &text.text, None, false).await?;
        let prepared = prepared_of(&answer).ok_or_else(|| self.failure(&answer))?;
        let unreadable = |error| Failed::Finally(self.shape.unreadable(&error));
        let markers = prepared.bind.decode().map_err(unreadable)?;
        let is_same = markers.len() == text.markers.len()
            && text.markers.iter().zip(&markers).all(|(own, theirs)| is_same(own, &theirs.ty));
        if !is_same {
            return Err(Failed::Finally(self.shape.altered()));
        }
        if let Some(columns) = &prepared.result.columns {
            self.shape.check(columns).map_err(Failed::Finally)?;
        }
        let (id, metadata_id) = (prepared.id.to_vec(), prepared.result_metadata_id.to_vec());
        Ok(PreparedScan { id, metadata_id })
    }

    /// Returns the failure for an answer that was not expected.
    fn failure(&self, answer: &Envelope) -> Failed {
        match answer.response() {
            Ok(Response::Error(failure)) => judge(failure),
            Ok(_) => Failed::Here(format!("it answered {:?}", answer.result_kind()), Error::Server),
            Err(error) => Failed::Finally(self.shape.unreadable(&error)),
        }
    }

    /// Returns the EXECUTE of a page.
    fn execute(
        &self,
        prepared: &PreparedScan,
        effective: &Rc<Effective>,
        request: &PageRequest,
        rows: u32,
    ) -> Result<Outgoing, Failed> {
        let mut values = ValuesBuf::new();
        let edges = match &request.of {
            PageOf::Range { range, .. } => [range.after, range.to].map(i64::to_be_bytes),
            PageOf::Key { .. } => [[0; 8]; 2],
        };
        let key: Vec<&[u8]> = match &request.of {
            PageOf::Range { .. } => edges.iter().map(|edge| &edge[..]).collect(),
            PageOf::Key { parts, .. } => parts.iter().map(|part| &part[..]).collect(),
        };
        let conditions = self.statement(&request.of).text.conditions.iter();
        for value in key.into_iter().chain(conditions.map(|value| &value[..])) {
            values.push(Value::Bytes(value)).map_err(|error| self.unsent(&error))?;
        }
        let params = QueryParams {
            consistency: self.consistency,
            values: values.values(),
            page_size: Some(i32::try_from(rows).unwrap_or(i32::MAX)),
            paging_state: request.paging_state.as_deref(),
            ..QueryParams::default()
        };
        let execute = Execute { id: &prepared.id, result_metadata_id: &prepared.metadata_id, params };
        self.outgoing(effective, &Request::Execute(execute))
    }

    /// Returns a message of the scan, as one of a client.
    fn outgoing(&self, effective: &Rc<Effective>, request: &Request<'_>) -> Result<Outgoing, Failed> {
        let (version, opcode) = (self.front.shared().version(), request.opcode());
        let mut encoder = Encoder::new(Direction::Request, version);
        encoder.request(0, request).map_err(|error| self.unsent(&error))?;
        Ok(Outgoing {
            effective: effective.clone(),
            until_ns: lanes::time::monotonic_ns().saturating_add(ATTEMPT_WITHIN.as_nanos() as u64),
            route: None,
            // The classes of statements are for those that clients prepare.
            class: ClassId::of_opcode(opcode as u8),
            order: ReplicaOrder::LeastLoaded,
            was_sent: Cell::new(false),
            // It is repeated here, with fewer rows.
            is_read: false,
            version,
            keyspace: None,
            opcode,
            flags: Flags::default(),
            body: encoder.finish().split_off(HEADER_BYTES).freeze(),
        })
    }

    fn unsent(&self, error: &wire::Error) -> Failed {
        let text = format!("the query of {} cannot be sent: {error}", self.shape.name());
        Failed::Finally(Error::Invalid(text))
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
