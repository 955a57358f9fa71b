//! Roles of the cluster in front of which this server stands: what the cluster says about them
//! decides their levels here.

use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use cluster::{Front, Refusal};
use tokio::sync::Semaphore;

use crate::core::Core;
use crate::session::Session;
use crate::{failure, sessions};

/// Interval of the search for roles about which the cluster has to be asked again.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Questions for roles in flight from a core, at most: slow ones do not delay the others.
const ASKED_MAX: usize = 8;
/// Time limit of one question in the background.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Interval of the searches for copies that nothing needs. Those that two searches in a row find
/// are dropped.
const DROP_EVERY: Duration = Duration::from_secs(300);

/// Asks the cluster for the roles granted to a role that has logged in, unless it was asked a
/// moment ago. If a node refuses its password, its sessions end.
///
/// # Errors
/// Errors of [`access::Access::follow_role`].
pub(crate) async fn follow(core: &Core, front: &Front, remote: &Rc<cluster::Role>) -> Result<(), Refusal> {
    let followed = core.access.follow_role(front, remote).await;
    if followed == Err(Refusal::Ended) {
        end_sessions(core, remote);
    }
    followed
}

/// Ends the sessions of a role whose password a node has refused. Those of the same name with
/// another password go on.
fn end_sessions(core: &Core, remote: &Rc<cluster::Role>) {
    let Some(sessions) = sessions::here(&core.shared) else { return };
    let is_its = |session: &Rc<Session>| session.remote().is_some_and(|own| Rc::ptr_eq(&own, remote));
    let all: Vec<Rc<Session>> = sessions.by_id.borrow().values().filter(|s| is_its(s)).cloned().collect();
    all.iter().for_each(|session| session.end_with(&failure::unbound(access::ended(remote.name()))));
}

/// Follows the roles with sessions on this core, until the server stops.
pub(crate) async fn follow_all(core: Weak<Core>) {
    loop {
        lanes::time::sleep(LOOK_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        let Some(front) = &core.front else { return };
        if front.shared().authenticator().is_none() {
            return;
        }
        let ask = |remote| {
            let (core, front) = (core.clone(), front.clone());
            async move {
                // Stays as it was until a node answers. A role whose password is refused ends.
                let _ = lanes::time::timeout(ANSWER_WITHIN, follow(&core, &front, &remote)).await;
            }
        };
        // A role that was never used on this core has no connection, which asking would open.
        let is_used = |remote: &Rc<cluster::Role>| remote.is_connected() || remote.is_ended();
        each(front.roles().into_iter().filter(is_used).collect(), ask).await;
    }
}

/// Begins some work for each item, in order. At most [`ASKED_MAX`] are in progress at once.
async fn each<T, F: Future<Output = ()> + 'static>(items: Vec<T>, work: impl Fn(T) -> F) {
    let places = Arc::new(Semaphore::new(ASKED_MAX));
    for item in items {
        let place = places.clone().acquire_owned().await.expect("places are never closed");
        let work = work(item);
        let task = async move {
            work.await;
            drop(place);
        };
        lanes::spawn(lanes::current_group(), task).detach();
    }
}

/// Drops copies of roles that nothing needs, until the server stops. Called on core 0.
pub(crate) async fn drop_unused(core: Weak<Core>) {
    let mut before = BTreeSet::new();
    loop {
        lanes::time::sleep(DROP_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        let now = core.access.unused_copies().await;
        let twice = before.intersection(&now).cloned().collect();
        // The next search finds copies that could not be dropped.
        let _ = core.access.drop_copies(twice).await;
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn slow_work_does_not_delay_the_others() {
        let lanes = testkit::start_lanes(1);
        lanes.block_on(0, lanes::Group::CONTROL, || async {
            let done = Rc::new(RefCell::new(Vec::new()));
            let work = |item: usize| {
                let done = done.clone();
                async move {
                    if item < ASKED_MAX - 1 {
                        std::future::pending::<()>().await;
                    }
                    done.borrow_mut().push(item);
                }
            };
            each((0..2 * ASKED_MAX).collect(), work).await;
            while done.borrow().len() < ASKED_MAX + 1 {
                lanes::yield_now().await;
            }
            assert!(done.borrow().is_sorted());
        });
        lanes.shutdown();
    }
}
