//! Nodes of the cluster as the system tables of one node describe them.
//!
//! The driver reads `system.peers`, which has no ports, and neither release nor schema versions.
//! `system.peers_v2` has them. ScyllaDB does not have that table, nor the port in `system.local`:
//! it answers with the error Invalid, and is asked in the older form from then on.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::cluster::Node;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::response::query_result::QueryResult;
use scylla::statement::unprepared::Statement;
use scylla::value::{CqlValue, Row};

use crate::refused::one_line;
use crate::topology::{ClusterNode, NODES_MAX};

/// Time limit of one question.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A question in both forms. Their columns are equal, but for the port at the end.
struct Question {
    newer: &'static str,
    older: &'static str,
}

const LOCAL: Question = Question {
    newer: "SELECT host_id, rpc_address, data_center, rack, release_version, schema_version, rpc_port \
            FROM system.local WHERE key = 'local'",
    older: "SELECT host_id, rpc_address, data_center, rack, release_version, schema_version \
            FROM system.local WHERE key = 'local'",
};

const PEERS: Question = Question {
    newer: "SELECT host_id, native_address, data_center, rack, release_version, schema_version, native_port \
            FROM system.peers_v2",
    older: "SELECT host_id, rpc_address, data_center, rack, release_version, schema_version \
            FROM system.peers",
};

/// Failure of a question.
#[derive(Debug)]
pub(crate) enum AskError {
    /// The role may not read the system tables. The node's own message.
    Forbidden(String),
    /// One sentence.
    Failed(String),
}

/// Reader of the system tables. It remembers the form that the cluster understands.
#[derive(Default, Debug)]
pub(crate) struct SystemTables {
    local_is_older: Cell<bool>,
    peers_is_older: Cell<bool>,
}

impl SystemTables {
    /// Asks a node for all nodes of the cluster, itself included, sorted by host id. They are
    /// marked as down. `port`: of nodes whose port is not in the tables.
    ///
    /// # Errors
    /// The node does not answer, or refuses.
    pub(crate) async fn nodes(
        &self,
        session: &Session,
        node: &Arc<Node>,
        port: u16,
    ) -> Result<Vec<ClusterNode>, AskError> {
        let mut rows = ask(&LOCAL, &self.local_is_older, session, node).await?;
        rows.extend(ask(&PEERS, &self.peers_is_older, session, node).await?);
        let mut nodes: Vec<ClusterNode> =
            rows.into_iter().filter_map(|row| cluster_node(row, port)).collect();
        nodes.sort_by_key(|node| node.host_id);
        nodes.dedup_by_key(|node| node.host_id);
        nodes.truncate(NODES_MAX);
        if nodes.is_empty() {
            return Err(AskError::Failed(format!("the system tables of {} show no node", node.address)));
        }
        Ok(nodes)
    }
}

/// Reads a row. `None`: the row is not complete, because the node is joining or leaving. `port`: if
/// the row has none.
fn cluster_node(row: Row, port: u16) -> Option<ClusterNode> {
    let mut columns = row.columns.into_iter();
    let mut next = || columns.next().flatten();
    let host_id = next()?.as_uuid()?;
    let ip = next()?.as_inet().filter(|ip: &IpAddr| !ip.is_unspecified())?;
    let datacenter = next()?.into_string()?.into();
    let rack = next()?.into_string()?.into();
    let release_version = next().and_then(CqlValue::into_string).map(Into::into);
    let schema_version = next().and_then(|value| value.as_uuid());
    let own_port = next().and_then(|value| u16::try_from(value.as_int()?).ok());
    let address = SocketAddr::new(ip, own_port.unwrap_or(port));
    Some(ClusterNode { host_id, address, datacenter, rack, release_version, schema_version, is_up: false })
}

async fn ask(
    question: &Question,
    is_older: &Cell<bool>,
    session: &Session,
    node: &Arc<Node>,
) -> Result<Vec<Row>, AskError> {
    if !is_older.get() {
        match send(question.newer, session, node).await {
            Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Invalid, _))) => {}
            answered => return rows(answered, node),
        }
    }
    let answered = send(question.older, session, node).await;
    is_older.set(answered.is_ok());
    rows(answered, node)
}

/// Sends a statement to one node, which alone answers for its system tables.
async fn send(text: &str, session: &Session, node: &Arc<Node>) -> Result<QueryResult, ExecutionError> {
    let mut statement = Statement::new(text);
    statement.set_execution_profile_handle(Some(at_node(node)));
    session.query_unpaged(statement, &[]).await
}

/// Returns the profile of a statement that only one node answers.
pub(crate) fn at_node(node: &Arc<Node>) -> ExecutionProfileHandle {
    let policy = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(node.clone()), None);
    let profile = ExecutionProfile::builder().load_balancing_policy(policy);
    profile.request_timeout(Some(ANSWER_WITHIN)).build().into_handle()
}

fn rows(answered: Result<QueryResult, ExecutionError>, node: &Node) -> Result<Vec<Row>, AskError> {
    let failed = |error: &dyn std::fmt::Display| {
        let error = one_line(error);
        AskError::Failed(format!("the node {} does not show its system tables: {error}", node.address))
    };
    let result = answered.map_err(|error| match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unauthorized, text)) => {
            AskError::Forbidden(text)
        }
        other => failed(&other),
    })?;
    let result = result.into_rows_result().map_err(|error| failed(&error))?;
    let rows = result.rows::<Row>().map_err(|error| failed(&error))?;
    rows.collect::<Result<_, _>>().map_err(|error| failed(&error))
}
