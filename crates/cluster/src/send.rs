//! Path of a request: a node, a place in its window, a connection, the answer. What was certainly
//! not executed is sent to another node.

use std::cell::Cell;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rustc_hash::FxBuildHasher;
use sched::control::ClassId;
use schema::Token;
use wire::{Envelope, Failure, FailureKind, Flags, Opcode, Query, Request, ResultKind, Values, Version};
use workload::Effective;

use crate::Refusal;
use crate::choice::{Candidates, ReplicaOrder};
use crate::front::Front;
use crate::key::RoutingKey;
use crate::prepared::{RemotePlan, StatementClass, prepared_of};
use crate::reach::Nodes;
use crate::role::Role;

/// Time for which a change of the schema waits for the agreement of the nodes. The rest of the
/// default time limit is for the change.
const AGREE_WITHIN: Duration = Duration::from_secs(5);
/// Interval of the questions whether they agree.
const AGREE_EVERY: Duration = Duration::from_millis(50);
/// Question for the version of a node's schema. Equal answers are equal versions.
const SCHEMA_VERSION: &str = "SELECT schema_version FROM system.local WHERE key = 'local'";

/// Text of the ERROR Overloaded by which Cassandra refuses, before it executes, all requests of
/// connections that are open while it shuts down (`Dispatcher.dispatch` of 5.0). Other texts of
/// that code may follow a part of a write.
const SHUTTING_DOWN: &str = "Server is shutting down";

/// Statements of one request that are prepared again, at most: those of the longest BATCH that
/// drivers build. A node that forgets faster gets the rest from the driver.
const PREPARED_AGAIN_MAX: usize = 100;

/// A request to be passed on.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Level of the request.
    pub effective: Rc<Effective>,
    /// Time at which it is too late to be sent, ns of the monotonic clock.
    pub until_ns: u64,
    /// Statement of an EXECUTE and the token of its partition, if they are known.
    pub route: Option<Route>,
    /// Class of similar requests, for the window of the node.
    pub class: ClassId,
    /// Order in which replicas are tried.
    pub order: ReplicaOrder,
    /// Set once the request was sent: it may be executed.
    pub was_sent: Cell<bool>,
    /// True for a statement that changes nothing: it is sent to another node if the connection is
    /// lost before the answer.
    pub is_read: bool,
    /// Protocol version of the client.
    pub version: Version,
    /// Keyspace of the client's session.
    pub keyspace: Option<Rc<str>>,
    /// QUERY, PREPARE, EXECUTE or BATCH.
    pub opcode: Opcode,
    /// Flags: tracing, custom payload.
    pub flags: Flags,
    /// Body.
    pub body: Bytes,
}

/// Partition of a request.
#[derive(Clone, Debug)]
pub struct Route {
    /// Statement, which names the keyspace.
    pub plan: Rc<RemotePlan>,
    /// Token of the partition.
    pub token: Token,
}

impl Route {
    /// Returns the partition of bound values. `None`: they do not tell.
    #[must_use]
    pub fn of(plan: &Rc<RemotePlan>, values: &Values<'_>) -> Option<Route> {
        let token = plan.routing.as_ref()?.token(values)?;
        Some(Route { plan: plan.clone(), token })
    }

    fn keyspace_and_token(&self) -> Option<(&str, Token)> {
        Some((self.plan.routing.as_ref()?.keyspace(), self.token))
    }
}

impl Front {
    /// Passes a request on to a node, and returns its answer. A node that does not know a prepared
    /// statement is asked to prepare it, and gets the request again. A read whose connection is
    /// lost is sent once more.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub async fn send(&self, role: &Rc<Role>, request: &Outgoing) -> Result<Envelope, Refusal> {
        let nodes = self.nodes();
        let token = request.route.as_ref().and_then(Route::keyspace_and_token);
        let candidates = Candidates::new(&nodes.topology, token, request.order, self.turn());
        let mut candidates = candidates.within(request.effective.spec.tag.as_ref());
        self.send_to(role, request, &nodes, &mut candidates).await
    }

    /// Passes a request on to the next of the candidates among `nodes`, as [`Front::send`] does.
    ///
    /// # Errors
    /// Those of [`Front::send`].
    pub(crate) async fn send_to(
        &self,
        role: &Rc<Role>,
        request: &Outgoing,
        nodes: &Nodes,
        candidates: &mut Candidates<'_>,
    ) -> Result<Envelope, Refusal> {
        role.set_group(request.effective.group());
        let mut prepared: Vec<Bytes> = Vec::new();
        let mut may_repeat = request.is_read;
        let mut attempts = nodes.nodes.len();
        let (version, keyspace) = (request.version, request.keyspace.as_ref());
        let connect = |node| role.connection(node, version, keyspace);
        // Connection of a node that has just prepared the statement.
        let mut known = None;
        loop {
            let (node, connection) = match known.take() {
                Some(known) => known,
                None => {
                    let node = nodes.next(candidates)?;
                    match role.open_connection(node.address, version, keyspace) {
                        Some(connection) => (node.clone(), connection),
                        None => Box::pin(nodes.reach(node, candidates, connect)).await?,
                    }
                }
            };
            let place = node.place(&request.effective, request.class, request.until_ns).await?;
            let connection = match connection.is_open() {
                true => Ok(connection),
                // It was lost during the wait.
                false => Box::pin(connect(node.address)).await,
            };
            let sent = match connection {
                Ok(connection) => {
                    let sent = connection.send(request.opcode, request.flags, &request.body, place).await;
                    sent.map(|sent| (connection, sent))
                }
                Err(refusal) => Err(refusal),
            };
            let (connection, sent) = match sent.map_err(|refusal| node.judge(refusal)) {
                // The node is not reached any more.
                Err(Refusal::Unsent(_)) if attempts > 1 => {
                    attempts -= 1;
                    continue;
                }
                sent => sent?,
            };
            request.was_sent.set(true);
            let answer = match sent.await.unwrap_or(Err(Refusal::Lost(connection.node))) {
                Err(lost @ Refusal::Lost(_)) => {
                    node.avoid();
                    match std::mem::take(&mut may_repeat) {
                        true => continue,
                        false => return Err(lost),
                    }
                }
                answered => answered?,
            };
            if answer.result_kind() == Some(ResultKind::SchemaChange) {
                // The answer must come within the time limit of the request.
                let left_ns = request.until_ns.saturating_sub(lanes::time::monotonic_ns());
                let within = AGREE_WITHIN.min(Duration::from_nanos(left_ns / 2));
                let agreed = Box::pin(self.agree(role, version));
                let _ = lanes::time::timeout(within, agreed).await;
            }
            let id = match answer.failure() {
                Some(Failure { kind: FailureKind::Unprepared(id), .. }) => Bytes::from(id),
                Some(failure) if attempts > 1 && is_away(&failure) => {
                    node.avoid();
                    attempts -= 1;
                    continue;
                }
                _ => return Ok(answer),
            };
            let is_new = !prepared.contains(&id) && prepared.len() < PREPARED_AGAIN_MAX;
            let Some(plan) = self.plan(&id, Some(role), version).filter(|_| is_new) else {
                return Ok(answer);
            };
            match Box::pin(self.preparing.prepare(role, version, connection.node, &plan)).await {
                // Its table was altered. A client of v4 may read rows by the columns that it knows,
                // because only v5 has an id for them. So it prepares the statement itself.
                Some(columns) if columns != plan.columns && version == Version::V4 => {
                    return Ok(answer);
                }
                Some(_) => {}
                // The client prepares it, and then gets the reason.
                None => return Ok(answer),
            }
            prepared.push(id);
            known = Some((node, connection));
        }
    }

    /// Passes a PREPARE on, and remembers the statement.
    ///
    /// # Errors
    /// Those of [`Front::send`].
    pub async fn prepare(
        &self,
        role: &Rc<Role>,
        request: &Outgoing,
        text: &str,
        given_keyspace: Option<&str>,
        is_conditional: bool,
    ) -> Result<Envelope, Refusal> {
        let answer = self.send(role, request).await?;
        if let Some(prepared) = prepared_of(&answer) {
            let plan = RemotePlan {
                id: Bytes::copy_from_slice(prepared.id),
                text: text.into(),
                connection_keyspace: request.keyspace.as_deref().map(Into::into),
                given_keyspace: given_keyspace.map(Into::into),
                class: StatementClass::of(text).unwrap_or(StatementClass::Other),
                is_conditional,
                number: self.shared.plans.number_of(prepared.id),
                routing: RoutingKey::of(&prepared),
                columns: FxBuildHasher.hash_one(prepared.result.columns),
            };
            self.plans.add(&self.shared.plans, plan, Some(role), request.version);
        }
        Ok(answer)
    }

    /// Waits until all nodes that can be reached have the same schema. The next request of the
    /// client may go to another node, and drivers ask only the front whether nodes agree.
    async fn agree(&self, role: &Rc<Role>, version: Version) {
        loop {
            let mut versions: Vec<Envelope> = Vec::new();
            let nodes = self.nodes();
            for (node, _) in nodes.nodes.iter().zip(nodes.topology.nodes()).filter(|(_, of)| of.is_up) {
                versions.extend(self.schema_version(role, version, node.address).await);
            }
            if versions.windows(2).all(|pair| pair[0].body == pair[1].body) {
                return;
            }
            lanes::time::sleep(AGREE_EVERY).await;
        }
    }

    /// Asks a node for the version of its schema. `None`: it does not answer.
    async fn schema_version(&self, role: &Rc<Role>, version: Version, node: SocketAddr) -> Option<Envelope> {
        let connection = role.connection(node, version, None).await.ok()?;
        let query = Query { text: SCHEMA_VERSION, ..Query::default() };
        let sent = connection.ask(&Request::Query(query)).ok()?;
        sent.await.ok()?.ok().filter(|answer| answer.opcode == Opcode::Result)
    }
}

/// Returns true if a node that is starting or shutting down has refused a request, which was
/// certainly not executed.
fn is_away(failure: &Failure) -> bool {
    match failure.kind {
        FailureKind::Bootstrapping => true,
        FailureKind::Overloaded => failure.message == SHUTTING_DOWN,
        _ => false,
    }
}
