//! Sessions of one core. Each core finds its own in the server's shared state.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use cluster::Fleet;
use lanes::Task;
use rustc_hash::FxHashMap;
use wire::Event;

use crate::core::{Core, ServerShared};
use crate::session::Session;

/// Work units to encode an event for one session and to wake its connection.
const EVENT_UNITS: u32 = 10;

/// Sessions of one core.
pub(crate) struct Sessions {
    pub(crate) core: Rc<Core>,
    pub(crate) by_id: RefCell<FxHashMap<u64, Rc<Session>>>,
    pub(crate) next_id: Cell<u64>,
    /// Tasks that accept connections. They are on core 0.
    pub(crate) accepting: RefCell<Vec<Task<()>>>,
    /// Tasks that follow a cluster and the other servers in front of it. They are on core 0, and
    /// end with this value.
    pub(crate) following: RefCell<Vec<Task<()>>>,
}

/// Returns a server's sessions on this core, or `None` before the core joined and after the server
/// stopped.
pub(crate) fn here(shared: &ServerShared) -> Option<Rc<Sessions>> {
    let here = shared.sessions.get()?;
    Some(Rc::clone(&*here).downcast().expect("`join` has set it"))
}

/// Sends events to the sessions of all cores that registered for them, in order.
pub(crate) async fn report_on_all_cores(shared: &Arc<ServerShared>, events: &[Event]) {
    for core in 0..lanes::cores() {
        let (shared, events) = (shared.clone(), events.to_vec());
        let report = move || async move {
            let Some(sessions) = here(&shared) else { return };
            for event in &events {
                sessions.report(event).await;
            }
        };
        lanes::call(core, report).await;
    }
}

/// Removes a server from this core. The sessions end with their connections.
pub(crate) fn leave(shared: &ServerShared) {
    drop(shared.sessions.take());
}

impl Sessions {
    /// Creates the list of a core and registers it on this core.
    pub(crate) fn join(core: Core) -> Rc<Sessions> {
        let sessions = Rc::new(Sessions {
            core: Rc::new(core),
            by_id: RefCell::default(),
            next_id: Cell::new(1),
            accepting: RefCell::default(),
            following: RefCell::default(),
        });
        sessions.core.shared.sessions.set(Rc::new(sessions.clone()));
        sessions
    }

    /// Returns the fleet of a server in front of a cluster.
    pub(crate) fn fleet(&self) -> Option<Arc<Fleet>> {
        self.core.front.as_ref().and_then(|front| front.shared().fleet().cloned())
    }

    /// Sends an event to the sessions that registered for it. Yields between sessions: there may be
    /// thousands.
    pub(crate) async fn report(&self, event: &Event) {
        // Collect only ids: cloning each session's `Rc` here would cost a cache miss each.
        let ids: Vec<u64> = self.by_id.borrow().keys().copied().collect();
        for id in ids {
            let session = self.by_id.borrow().get(&id).cloned();
            let sent = session.is_some_and(|session| session.send_event(event));
            if lanes::spend(if sent { EVENT_UNITS } else { 1 }) {
                lanes::yield_now().await;
            }
        }
    }
}
