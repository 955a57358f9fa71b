//! Statements of a level with `max_concurrency` begin when they have a slot. One that waits for it is a task of its own, so that
//! the connection's other requests go on; it is gone with its connection.

use std::rc::Rc;
use std::time::Duration;

use engine::Warnings;
use frontdoor::Charge;
use wire::{Envelope, Failure, FailureKind};
use workload::{SlotRequest, Waiting};

use crate::request::{Admitted, Times, detached};
use crate::running::Running;
use crate::session::Session;
use crate::statement::{Statement, Work};

/// A statement that cannot begin now.
pub(crate) enum NoSlot {
    /// It is in the queue, and begins by itself.
    Waits,
    /// It is to be answered with this.
    Refused(Box<(Admitted, Failure)>),
}

/// The keyspaces of the server itself. A statement about them takes no slot: drivers read them when they connect.
const OF_SERVER: [&str; 7] = [
    "system",
    "system_auth",
    "system_distributed",
    "system_schema",
    "system_traces",
    "system_views",
    "system_virtual_schema",
];

/// Memory of a request that waits, beside its body, bytes: its task and its place in the wait queue.
pub(crate) const WAITING_BYTES: usize = 1 << 10;

/// Returns whether a statement takes a slot: one about data does. A statement about the server, or one that changes levels, never
/// waits for a level that is full.
pub(crate) fn needs_slot(statement: &Statement) -> bool {
    let of_server = |target: &engine::Target| OF_SERVER.contains(&&*target.keyspace);
    matches!(&statement.work, Work::Engine(plan) if !plan.targets().iter().all(of_server))
}

impl Session {
    /// Gives a statement that is about to run the slot that its level wants it to have. It may wait for `limit` where the level
    /// does not say how long.
    pub(crate) fn take_slot(
        self: &Rc<Self>,
        envelope: &Envelope,
        statement: Option<&Rc<Statement>>,
        times: Times,
        admitted: Admitted,
        limit: Duration,
    ) -> Result<Admitted, NoSlot> {
        if admitted.effective.spec.slots.max_concurrency.is_none() || admitted.slot.is_some() {
            return Ok(admitted);
        }
        match workload::enter(&admitted.effective, limit) {
            SlotRequest::In(slot) => Ok(Admitted { slot: Some(slot), ..admitted }),
            SlotRequest::Waits(waiting) => {
                let bytes = (envelope.body.len() + WAITING_BYTES) as u64;
                let held = self.account.borrow().charge(bytes);
                let held = match held {
                    Ok(held) => held,
                    Err(full) => {
                        return Err(NoSlot::Refused(Box::new((admitted, crate::long::overloaded(full)))));
                    }
                };
                let running = Running {
                    stream: envelope.stream,
                    statement: statement.cloned(),
                    effective: admitted.effective.clone(),
                    since_ns: times.read_ns,
                    waits: true,
                };
                self.begin_with_slot(waiting, (detached(envelope), held), running, times, admitted);
                Err(NoSlot::Waits)
            }
            SlotRequest::Full(refused) => {
                let failure = Failure::new(FailureKind::Overloaded, refused.0);
                Err(NoSlot::Refused(Box::new((admitted, failure))))
            }
        }
    }

    /// Works on a request once it has its slot.
    fn begin_with_slot(
        self: &Rc<Self>,
        waiting: Waiting,
        (envelope, held): (Envelope, Charge),
        running: Running,
        times: Times,
        mut admitted: Admitted,
    ) {
        let session = self.clone();
        let stream = envelope.stream;
        let group = admitted.effective.group();
        let key = self.reads.borrow_mut().reserve();
        self.begin();
        let work = async move {
            let slot = waiting.await;
            admitted.held.push(held);
            // From here on it is not given up with the connection, but by what it turns out to be.
            session.reads.borrow_mut().done(key);
            let times = Times { began_ns: lanes::time::monotonic_ns(), ..times };
            match slot {
                Ok(slot) => {
                    session.warm_output();
                    let done = session.request(&envelope, times, Admitted { slot: Some(slot), ..admitted });
                    if let Some(done) = done {
                        session.record_envelope(done, times, &envelope, lanes::time::monotonic_ns());
                    }
                }
                Err(refused) => {
                    session.refuse(envelope.stream, &Failure::new(FailureKind::Overloaded, refused.0));
                }
            }
        };
        let work = Warnings::within(Warnings::take(), work);
        let task = lanes::spawn(group, self.clone().guarded(stream, work));
        self.reads.borrow_mut().keep(key, task, running);
    }
}
