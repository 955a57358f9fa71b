//! What a group's tasks put off until the group pauses. A `send` to a socket whose reader sleeps
//! costs several times one to a reader who is awake, so that the answers of several connections are
//! cheaper sent one after the other than each between two pieces of work.
//!
//! A group pauses when it has no task ready on the core, when another gets its turn, and after
//! [`sched::Policy::defer_ns`] at the latest.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::context::{fast, in_group};
use crate::executor::Core;
use crate::{Group, sys};

/// Something that can be put off for a moment. What it does is charged to the group that put it
/// off.
pub trait AtPause {
    /// Does it, in a few microseconds. It may be dropped instead, when the lane ends.
    fn at_pause(self: Rc<Self>);
}

/// Has `what` done when this core's running group pauses: as soon as it has nothing else to run
/// here, when another group gets its turn, and after 100 µs at the latest. To be called by a task
/// of a fast lane; panics elsewhere.
pub fn at_pause(what: Rc<dyn AtPause>) {
    fast(|core| core.put_off.push(what, core.lanes.config().policy.defer_ns));
}

/// What one group has put off: another's turn does not begin before it is done.
pub(crate) struct PutOff {
    items: RefCell<Vec<Rc<dyn AtPause>>>,
    /// The room of `items` while they are done.
    spare: RefCell<Vec<Rc<dyn AtPause>>>,
    group: Cell<Group>,
    due_ns: Cell<u64>,
}

impl Default for PutOff {
    fn default() -> PutOff {
        PutOff {
            items: RefCell::default(),
            spare: RefCell::default(),
            group: Cell::new(Group::CONTROL),
            due_ns: Cell::new(0),
        }
    }
}

impl PutOff {
    /// Puts off for at most `defer_ns`, and the task poll that is under way then.
    fn push(&self, what: Rc<dyn AtPause>, defer_ns: u64) {
        let mut items = self.items.borrow_mut();
        if items.is_empty() {
            self.group.set(crate::current_group());
            self.due_ns.set(sys::monotonic_ns() + defer_ns);
        }
        items.push(what);
    }

    /// Whose it is, if anything is put off.
    pub(crate) fn group(&self) -> Option<Group> {
        (!self.items.borrow().is_empty()).then(|| self.group.get())
    }

    /// Whether something has been put off for long enough.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns.get() && !self.items.borrow().is_empty()
    }

    /// Forgets all of it; the lane ends.
    pub(crate) fn clear(&self) {
        drop(self.items.take());
    }
}

impl Core {
    /// Does what was put off; whether there was anything.
    pub(crate) fn pause(&self) -> bool {
        let put_off = &self.put_off;
        let Some(group) = put_off.group() else { return false };
        let mut items = put_off.items.replace(put_off.spare.take());
        in_group(group, || items.drain(..).for_each(AtPause::at_pause));
        put_off.spare.replace(items);
        true
    }
}
