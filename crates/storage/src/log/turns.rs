//! Turns to append to a full log. A writer that finds no room waits, and is called once there is
//! room for its record.
//!
//! ```text
//!   level a ──▶ flow 7 │▒▒▒▒▒▒▒▒│   each level is called for the whole room, so that none waits
//!               flow 9 │▒│          for writers of another one that get no CPU; within it turn
//!   level b ──▶ flow 3 │▒│          goes round the flows, by bytes
//! ```
//!
//! 1. The lanes run the called writers by the shares of their levels. One that finds no room after
//!    all, since other levels were faster, waits again.
//! 2. A level is called for no more bytes than there is room, counting those that were called and
//!    have not run. So few are called in vain, however many wait.
//! 3. While writers of a level wait, others of this level wait behind them.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use lanes::{Flow, Group};
use sched::Rounds;

use crate::log::Log;

/// Bytes of records that a flow is called for before the next one.
const TURN_BYTES: u32 = 64 << 10;

/// Writers that wait, by level.
#[derive(Default)]
pub(crate) struct Turns {
    levels: RefCell<Vec<Level>>,
}

struct Level {
    group: Group,
    waiting: Rounds<Rc<WaitingWriter>>,
    /// Bytes of writers that were called and have not run since.
    called_bytes: usize,
}

struct WaitingWriter {
    bytes: usize,
    is_called: Cell<bool>,
    waker: RefCell<Waker>,
}

/// A turn of a called writer. Its end, also by a writer that gave up, makes room for the next.
pub(crate) struct Turn<'a> {
    log: &'a Log,
    group: Group,
    waiting: Rc<WaitingWriter>,
}

impl Log {
    /// Waits to be called, as a writer of a record of `bytes` in the running task's level and flow.
    pub(crate) async fn turn(&self, bytes: usize) -> Turn<'_> {
        let group = lanes::current_group();
        let waker = RefCell::new(Waker::noop().clone());
        let waiting = Rc::new(WaitingWriter { bytes, is_called: Cell::default(), waker });
        self.turns.push(group, lanes::current_flow(), waiting.clone());
        let turn = Turn { log: self, group, waiting };
        // There may be room by now.
        self.call_waiting();
        poll_fn(|cx| {
            turn.waiting.waker.borrow_mut().clone_from(cx.waker());
            if turn.waiting.is_called.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        turn
    }

    /// Calls the writers for which there is room; all of them if the log accepts no record.
    pub(crate) fn call_waiting(&self) {
        if !self.turns.levels.borrow().is_empty() {
            self.turns.call(self.state.borrow().room(self.waits_max()));
        }
    }
}

impl Turns {
    /// Returns true if writers of the running task's level wait.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        let levels = self.levels.borrow();
        !levels.is_empty() && {
            let group = lanes::current_group();
            levels.iter().any(|level| level.group == group && !level.waiting.is_empty())
        }
    }

    fn push(&self, group: Group, flow: Flow, waiting: Rc<WaitingWriter>) {
        let levels = &mut *self.levels.borrow_mut();
        let at = levels.iter().position(|level| level.group == group).unwrap_or_else(|| {
            levels.push(Level { group, waiting: Rounds::new(TURN_BYTES), called_bytes: 0 });
            levels.len() - 1
        });
        levels[at].waiting.push(flow.number(), waiting);
    }

    /// Calls the next writers of each level for `room` bytes.
    fn call(&self, room: usize) {
        let mut taken = Vec::new();
        let mut levels = self.levels.borrow_mut();
        levels.iter_mut().for_each(|level| level.take(room, &mut taken));
        levels.retain(|level| !level.waiting.is_empty() || level.called_bytes > 0);
        drop(levels);
        taken.iter().for_each(|waiting| waiting.waker.borrow().wake_by_ref());
    }
}

impl Level {
    /// Takes the writers to call, and those that gave up before them.
    fn take(&mut self, room: usize, taken: &mut Vec<Rc<WaitingWriter>>) {
        while self.called_bytes < room {
            let Some(next) = self.waiting.pop() else { return };
            if Rc::strong_count(&next) > 1 {
                self.waiting.charge(next.bytes as u64);
                self.called_bytes = self.called_bytes.saturating_add(next.bytes);
                next.is_called.set(true);
            }
            taken.push(next);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.waiting.is_called.get() {
            return;
        }
        let mut levels = self.log.turns.levels.borrow_mut();
        if let Some(level) = levels.iter_mut().find(|level| level.group == self.group) {
            level.called_bytes -= self.waiting.bytes;
        }
        drop(levels);
        self.log.call_waiting();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(turns: &Turns, group: Group, flow: Flow, bytes: usize) -> Rc<WaitingWriter> {
        let waker = RefCell::new(Waker::noop().clone());
        let waiting = Rc::new(WaitingWriter { bytes, is_called: Cell::default(), waker });
        turns.push(group, flow, waiting.clone());
        waiting
    }

    #[test]
    fn no_level_waits_for_called_writers_of_another_one() {
        let turns = Turns::default();
        let called = |all: &[Rc<WaitingWriter>]| all.iter().filter(|one| one.is_called.get()).count();
        let (pours, other) = (Flow::new(), Flow::new());
        let many: Vec<_> = (0..1_000).map(|_| waiting(&turns, Group::DEFAULT, pours, 100)).collect();
        turns.call(1_000);
        assert_eq!(called(&many), 10);
        // None of them runs: the level has no CPU. No more are called for the same room.
        turns.call(1_000);
        let vital = waiting(&turns, Group::CONTROL, other, 100);
        let late = waiting(&turns, Group::DEFAULT, other, 100);
        turns.call(1_000);
        assert_eq!((called(&many), vital.is_called.get(), late.is_called.get()), (10, true, false));
        turns.call(TURN_BYTES as usize + 1_000);
        assert!(late.is_called.get(), "after a turn of the flow that pours");
    }
}
