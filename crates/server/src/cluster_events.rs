//! Events of the cluster in front of which this server stands: changes of its schema go to the
//! clients that registered for them, once the nodes agree on the new schema. What happens to nodes
//! is for this server alone.
//!
//! A node sends events of the past to no new connection. After a gap with another version of the
//! schema, each keyspace is reported as created, dropped or updated. Drivers then read it again, or
//! all keyspaces, or, as the one for Python, its options without its tables.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Front, Heard, Shared, Topology};
use lanes::sync::mpsc::{self, Receiver};
use uuid::Uuid;
use wire::{ChangeType, Event, SchemaChange, SchemaTarget};

use crate::core::ServerShared;
use crate::logging::{Level, Logger};
use crate::sessions;

/// Changes of the schema that wait for the agreement of the nodes, at most. Drivers that miss one
/// see it when they next read the schema.
const WAITING_MAX: usize = 1024;

/// Keyspaces that are reported after a gap, at most.
const KEYSPACES_MAX: usize = 1000;

/// Time for which a change waits for the agreement of the nodes.
const AGREE_WITHIN: Duration = Duration::from_secs(5);
/// Time for which a version that was reported already waits for another one. The control thread
/// looks at the nodes 50 ms after an event.
const SAME_WITHIN: Duration = Duration::from_millis(500);
/// Interval of the checks whether they agree.
const AGREE_EVERY: Duration = Duration::from_millis(50);

/// Follows the events of the cluster, until the server stops. Called on core 0.
pub(crate) async fn follow(shared: Arc<ServerShared>, front: Rc<Front>) {
    let cluster = front.shared().clone();
    drop(front);
    let (sender, changes) = mpsc::channel(WAITING_MAX);
    let reporting = report_all(shared.clone(), cluster.clone(), changes);
    lanes::spawn(lanes::Group::CONTROL, reporting).detach();
    let (logger, of_cluster) = (shared.logger.clone(), cluster.clone());
    drop(shared);
    let mut is_lost = false;
    let hear = move |heard: Heard<'_>| {
        match heard {
            Heard::Lost(reason) => return log_lost(&logger, reason, std::mem::replace(&mut is_lost, true)),
            Heard::Registered(_) => {
                if std::mem::take(&mut is_lost) {
                    // A full queue has an event with which the schema is compared.
                    let _ = sender.try_send(Change::Gap);
                    logger.log(Level::Info, "events of the cluster are heard again", &[]);
                }
            }
            Heard::Event { event: change @ Event::Schema(_), .. } => {
                // A full queue loses the newest.
                let _ = sender.try_send(Change::One(change));
            }
            Heard::Event { .. } => {}
        }
        of_cluster.refresh();
    };
    cluster.events(hear).await;
}

/// News about the schema.
enum Change {
    /// An event of a node.
    One(Event),
    /// Events may have been lost.
    Gap,
}

/// The schema that was last reported to clients.
struct Reported {
    version: Option<Uuid>,
    keyspaces: BTreeSet<Box<str>>,
}

impl Reported {
    fn of(topology: &Topology) -> Reported {
        let keyspaces = topology.keyspaces().map(Box::from).collect();
        Reported { version: topology.schema_version(), keyspaces }
    }

    /// Returns the events that lead to the schema `now`. None: its version is the same.
    fn changes_to(&self, now: &Reported) -> Vec<Event> {
        if self.version == now.version {
            return Vec::new();
        }
        let change = |keyspace: &str| {
            let change = match (self.keyspaces.contains(keyspace), now.keyspaces.contains(keyspace)) {
                (true, false) => ChangeType::Dropped,
                (false, _) => ChangeType::Created,
                (true, true) => ChangeType::Updated,
            };
            let keyspace = keyspace.to_string();
            Event::Schema(SchemaChange { change, target: SchemaTarget::Keyspace, keyspace })
        };
        self.keyspaces.union(&now.keyspaces).take(KEYSPACES_MAX).map(|keyspace| change(keyspace)).collect()
    }
}

/// Logs the first of several failures in a row.
fn log_lost(logger: &Logger, reason: &str, is_known: bool) {
    if !is_known {
        logger.log(Level::Warn, "events of the cluster are missed", &[("reason", reason.to_owned().into())]);
    }
}

/// Sends changes of the schema to the clients of all cores, in order.
async fn report_all(shared: Arc<ServerShared>, cluster: Arc<Shared>, mut changes: Receiver<Change>) {
    let mut reported = Reported::of(&cluster.topology().snapshot());
    while let Some(first) = std::future::poll_fn(|cx| changes.poll_recv(cx)).await {
        let version = agreed_on_another(&cluster, reported.version).await;
        let now = Reported { version, ..Reported::of(&cluster.topology().snapshot()) };
        let (mut all, mut has_gap) = (Vec::new(), false);
        let mut next = Some(first);
        while let Some(change) = next {
            match change {
                Change::One(event) => all.push(event),
                Change::Gap => has_gap = true,
            }
            next = changes.try_recv();
        }
        if has_gap {
            all.extend(reported.changes_to(&now));
        }
        reported = now;
        sessions::report_on_all_cores(&shared, &all).await;
    }
}

/// Waits until the nodes agree on a version of the schema other than the one reported, and returns
/// it. Several events of one version wait for another one only shortly.
async fn agreed_on_another(cluster: &Shared, reported: Option<Uuid>) -> Option<Uuid> {
    let began_ns = lanes::time::monotonic_ns();
    loop {
        lanes::time::sleep(AGREE_EVERY).await;
        let agreed = cluster.topology().snapshot().schema_version();
        let waited = Duration::from_nanos(lanes::time::monotonic_ns().saturating_sub(began_ns));
        let limit = if agreed.is_some() { SAME_WITHIN } else { AGREE_WITHIN };
        let is_another = agreed.is_some() && reported.is_some() && agreed != reported;
        if is_another || waited >= limit {
            return agreed.or(reported);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_reports_each_keyspace_if_the_version_is_another() {
        let schema = |version, keyspaces: &[&str]| Reported {
            version: Some(Uuid::from_u128(version)),
            keyspaces: keyspaces.iter().map(|name| Box::from(*name)).collect(),
        };
        let check = |before: &Reported, now: &Reported, expected: &[(ChangeType, &str)]| {
            let event = |(change, keyspace): &(ChangeType, &str)| {
                let keyspace = (*keyspace).to_owned();
                Event::Schema(SchemaChange { change: *change, target: SchemaTarget::Keyspace, keyspace })
            };
            assert_eq!(before.changes_to(now), expected.iter().map(event).collect::<Vec<_>>());
        };
        let before = schema(1, &["a", "b"]);
        check(&before, &schema(1, &["a", "b"]), &[]);
        let expected = [(ChangeType::Dropped, "a"), (ChangeType::Updated, "b"), (ChangeType::Created, "c")];
        check(&before, &schema(2, &["b", "c"]), &expected);
    }
}
