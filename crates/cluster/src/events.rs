//! Events of the cluster: a connection of the front's own role to one node, which sends changes of
//! its schema and of the state of nodes. The driver keeps the events of its own connection to
//! itself.
//!
//! A node sends the events of the whole cluster. After a lost connection the next live node is
//! asked, and what happened in between is lost: the caller then has to compare.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wire::{Event, Opcode, Request, Response, Version};

use crate::choice::{Candidates, NodeLoad, ReplicaOrder};
use crate::open::{Opening, open_for_events};
use crate::tls::NodeTls;
use crate::topology::PublishedTopology;

/// Time before the second attempt to connect. It doubles with each attempt.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Time between two attempts, at most.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Silence after which a node is asked for a sign of life.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Time limit of that sign.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Message from the connection for events.
#[derive(Debug)]
pub enum Heard<'a> {
    /// This node sends its events from now on. Earlier ones may have been lost.
    Registered(SocketAddr),
    /// An event. Events that this version of the protocol does not know are left out.
    Event {
        /// Body of the message, as the node sent it: the same in protocol v4 and v5.
        body: &'a Bytes,
        /// Its content.
        event: Event,
    },
    /// The connection was lost or cannot be opened, with one sentence. Another attempt follows.
    Lost(&'a str),
}

/// Follows the events of the cluster, on the fast lane of one core, until the future is dropped.
/// `token`: SASL token of the front's own role. `tls`: `None` for plain text. `hear` is called in
/// the task of the future.
pub async fn follow_events(
    topology: Arc<PublishedTopology>,
    version: Version,
    token: Option<Bytes>,
    tls: Option<Arc<NodeTls>>,
    mut hear: impl FnMut(Heard<'_>),
) {
    let mut attempts = 0;
    loop {
        let reason = match live_node(&topology) {
            None => "no node is known".to_owned(),
            Some(node) => match open_for_events(node, version, token.as_ref(), tls.as_deref()).await {
                Ok(connection) => {
                    attempts = 0;
                    hear(Heard::Registered(node));
                    listen(connection, node, &mut hear).await
                }
                Err(refusal) => refusal.to_string(),
            },
        };
        hear(Heard::Lost(&reason));
        lanes::time::sleep(pause(attempts, lanes::random::u64())).await;
        attempts += 1;
    }
}

/// Passes events on until the connection is lost. Returns the reason.
async fn listen(mut connection: Opening, node: SocketAddr, hear: &mut impl FnMut(Heard<'_>)) -> String {
    let mut is_asked = false;
    loop {
        let limit = if is_asked { ANSWER_WITHIN } else { SILENCE_MAX };
        let message = match lanes::time::timeout(limit, connection.receive()).await {
            Ok(Ok(message)) => message,
            Ok(Err(refusal)) => return refusal.to_string(),
            Err(_) if is_asked => return format!("the node {node} is silent"),
            Err(_) => {
                if let Err(refusal) = connection.send(&Request::Options).await {
                    return refusal.to_string();
                }
                is_asked = true;
                continue;
            }
        };
        is_asked = false;
        if message.opcode == Opcode::Event
            && let Ok(Response::Event(event)) = message.response()
        {
            hear(Heard::Event { body: &message.body, event });
        }
        // A storm of events must not keep the lane.
        if lanes::spend(1) {
            lanes::yield_now().await;
        }
    }
}

/// Returns a live node by chance, of the own datacenter if there is one.
fn live_node(topology: &PublishedTopology) -> Option<SocketAddr> {
    let topology = topology.snapshot();
    let turn = lanes::random::u64() as usize;
    let mut candidates = Candidates::new(&topology, None, ReplicaOrder::LeastLoaded, turn);
    let node = candidates.next(|_| NodeLoad { in_flight: 0, queued: 0, part: 1, is_avoided: false })?;
    Some(topology.nodes()[node].address)
}

/// Returns the time before the next attempt: a random part between half and all of 100 ms, doubled
/// for each attempt before, up to 10 s.
fn pause(attempts: u32, random: u64) -> Duration {
    let doubled = RETRY_MIN.saturating_mul(1 << attempts.min(16)).min(RETRY_MAX);
    let half_ns = u64::try_from(doubled.as_nanos() / 2).expect("at most 5 s");
    Duration::from_nanos(half_ns + random % (half_ns + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_up_to_ten_seconds_with_jitter() {
        let check = |attempts, least_ms, most_ms| {
            let [least, most] = [least_ms, most_ms].map(Duration::from_millis);
            let half_ns = u64::try_from(most.as_nanos() / 2).expect("short");
            assert_eq!([pause(attempts, 0), pause(attempts, half_ns)], [least, most], "{attempts}");
            assert!((least..=most).contains(&pause(attempts, u64::MAX)), "{attempts}");
        };
        check(0, 50, 100);
        check(1, 100, 200);
        check(6, 3_200, 6_400);
        check(7, 5_000, 10_000);
        check(u32::MAX, 5_000, 10_000);
    }
}
