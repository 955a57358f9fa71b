//! Events of the cluster in front of which this server stands: changes of its schema go to the
//! clients that registered for them, once the nodes agree on the new schema. What happens to nodes
//! is for this server alone.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Front, Heard, Shared};
use lanes::sync::mpsc::{self, Receiver};
use wire::Event;

use crate::core::ServerShared;
use crate::logging::{Level, Logger};
use crate::sessions;

/// Changes of the schema that wait for the agreement of the nodes, at most. Drivers that miss one
/// see it when they next read the schema.
const WAITING_MAX: usize = 1024;

/// Time for which a change waits for the agreement of the nodes.
const AGREE_WITHIN: Duration = Duration::from_secs(5);
/// Interval of the checks whether they agree.
const AGREE_EVERY: Duration = Duration::from_millis(50);

/// Follows the events of the cluster, until the server stops. Called on core 0.
pub(crate) async fn follow(shared: Arc<ServerShared>, front: Rc<Front>) {
    let cluster = front.shared_by_cores();
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
            Heard::Registered(_) => is_lost = false,
            Heard::Event { event: change @ Event::Schema(_), .. } => {
                // A full queue loses the newest.
                let _ = sender.try_send(change);
            }
            Heard::Event { .. } => {}
        }
        of_cluster.refresh();
    };
    cluster.events(hear).await;
}

/// Logs the first of several failures in a row.
fn log_lost(logger: &Logger, reason: &str, is_known: bool) {
    if !is_known {
        logger.log(Level::Warn, "events of the cluster are missed", &[("reason", reason.to_owned().into())]);
    }
}

/// Sends changes of the schema to the clients of all cores, in order.
async fn report_all(shared: Arc<ServerShared>, cluster: Arc<Shared>, mut changes: Receiver<Event>) {
    while let Some(change) = std::future::poll_fn(|cx| changes.poll_recv(cx)).await {
        let until_ns = lanes::time::monotonic_ns() + AGREE_WITHIN.as_nanos() as u64;
        // The control thread looks 50 ms after the event.
        loop {
            lanes::time::sleep(AGREE_EVERY).await;
            let agree = cluster.topology().snapshot().schema_version().is_some();
            if agree || lanes::time::monotonic_ns() >= until_ns {
                break;
            }
        }
        for core in 0..lanes::cores() {
            let (shared, change) = (shared.clone(), change.clone());
            let report = move || async move {
                if let Some(sessions) = sessions::here(&shared) {
                    sessions.report(&change).await;
                }
            };
            lanes::call(core, report).await;
        }
    }
}
