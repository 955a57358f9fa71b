//! Slots for the statements of a level with `max_concurrency`. A statement that waits for a slot is
//! a task of its own, so that the connection's other requests continue. The end of the connection
//! cancels it.

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

/// Reason why a statement cannot begin now.
pub(crate) enum NoSlot {
    /// The statement is in the wait queue and begins by itself.
    Waits,
    /// The statement must be answered with this error.
    Refused(Box<(Admitted, Failure)>),
}

/// Keyspaces of the server itself. Statements on them take no slot: drivers read them when they
/// connect.
const OF_SERVER: [&str; 7] = [
    "system",
    "system_auth",
    "system_distributed",
    "system_schema",
    "system_traces",
    "system_views",
    "system_virtual_schema",
];

/// Estimated memory of a waiting request beside its body, bytes: its task and its entry in the wait
/// queue.
pub(crate) const WAITING_BYTES: usize = 1 << 10;

/// Returns true if a statement takes a slot: any statement on data does. A statement on the
/// server's own keyspaces, or one that changes levels, never waits for a full level.
pub(crate) fn needs_slot(statement: &Statement) -> bool {
    let of_server = |target: &engine::Target| OF_SERVER.contains(&&*target.keyspace);
    matches!(&statement.work, Work::Engine(plan) if !plan.targets().iter().all(of_server))
}

impl Session {
    /// Takes the slot that the level requires for a statement that is about to run. The statement
    /// waits for at most `limit`, unless the level configures a time.
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
                let charged = self.account.borrow().charge(bytes);
                let charge = match charged {
                    Ok(charge) => charge,
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
                self.begin_with_slot(waiting, (detached(envelope), charge), running, times, admitted);
                Err(NoSlot::Waits)
            }
            SlotRequest::Full(refused) => {
                let failure = Failure::new(FailureKind::Overloaded, refused.0);
                Err(NoSlot::Refused(Box::new((admitted, failure))))
            }
        }
    }

    /// Runs a request once it has its slot.
    fn begin_with_slot(
        self: &Rc<Self>,
        waiting: Waiting,
        (envelope, charge): (Envelope, Charge),
        running: Running,
        times: Times,
        mut admitted: Admitted,
    ) {
        let session = self.clone();
        let stream = envelope.stream;
        let group = admitted.effective.group();
        let key = self.cancellable_tasks.borrow_mut().reserve();
        self.begin();
        let work = async move {
            let slot = waiting.await;
            admitted.charges.push(charge);
            // From here on the kind of the request decides if the end of the connection cancels it.
            session.cancellable_tasks.borrow_mut().done(key);
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
        self.cancellable_tasks.borrow_mut().store(key, task, running);
    }
}
