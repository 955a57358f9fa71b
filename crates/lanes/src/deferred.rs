//! Work that tasks defer until their group pauses. A `send` to a socket whose reader sleeps costs
//! several times one to a reader that is awake. So answers to several connections are cheaper sent
//! one after the other than each between two task polls.
//!
//! A group pauses when it has no ready task on the core, when another group gets the core, and
//! after [`DEFER_NS`] at the latest.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::current::{current_group, in_group};
use crate::{Flow, Group, sys};

/// Longest time that answers are deferred, ns.
const DEFER_NS: u64 = 100_000;

/// Work that can be deferred for a moment. It is charged to the group that deferred it.
pub trait DeferredWork {
    /// Does the work, in a few microseconds. The work may be dropped instead, when the lane ends.
    fn run_deferred(self: Rc<Self>);
}

/// Deferred work of one group. It is done before another group gets a slice.
pub(crate) struct Deferred {
    items: RefCell<Vec<Rc<dyn DeferredWork>>>,
    /// Allocation that `items` uses while its work is done.
    spare: RefCell<Vec<Rc<dyn DeferredWork>>>,
    group: Cell<Group>,
    deadline_ns: Cell<u64>,
}

impl Default for Deferred {
    fn default() -> Deferred {
        Deferred {
            items: RefCell::default(),
            spare: RefCell::default(),
            group: Cell::new(Group::CONTROL),
            deadline_ns: Cell::new(0),
        }
    }
}

impl Deferred {
    /// Defers work for at most [`DEFER_NS`] and the task poll in flight then.
    pub(crate) fn push(&self, work: Rc<dyn DeferredWork>) {
        let mut items = self.items.borrow_mut();
        if items.is_empty() {
            self.group.set(current_group());
            self.deadline_ns.set(sys::monotonic_ns() + DEFER_NS);
        }
        items.push(work);
    }

    /// Returns the group of the deferred work, if there is any.
    pub(crate) fn group(&self) -> Option<Group> {
        (!self.items.borrow().is_empty()).then(|| self.group.get())
    }

    /// Returns true if work has been deferred for long enough.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.deadline_ns.get() && !self.items.borrow().is_empty()
    }

    /// Does the work. Returns true if there was any.
    pub(crate) fn run(&self) -> bool {
        let Some(group) = self.group() else { return false };
        let mut items = self.items.replace(self.spare.take());
        in_group(group, Flow::NONE, || items.drain(..).for_each(DeferredWork::run_deferred));
        self.spare.replace(items);
        true
    }

    /// Drops all work, when the lane ends.
    pub(crate) fn clear(&self) {
        drop(self.items.take());
    }
}
