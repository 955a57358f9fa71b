//! Writes that are done and wait for the disk: one queue a session, looked at by its connection's own task. A write costs no task and
//! no timer of its own, and a connection is woken once for each write of the disk.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use engine::{Acks, Error, Outcome, Warnings};

use crate::reply;
use crate::request::Due;
use crate::session::Session;

/// Answers given before others are looked at: a few microseconds' worth.
const ANSWERS_MAX: usize = 128;

/// A session's writes that wait for the disk.
#[derive(Default)]
pub(crate) struct Unacked {
    /// In the order of their numbers.
    waiting: VecDeque<Waiting>,
    acks: Option<Box<dyn Acks>>,
    alarm: Option<Alarm>,
}

struct Waiting {
    write: u64,
    /// When its time is over, ns of the monotonic clock.
    late_ns: u64,
    due: Due,
}

/// Goes off at or before the first `late_ns` of all that wait.
struct Alarm {
    at_ns: u64,
    sleep: Pin<Box<dyn Future<Output = ()>>>,
}

impl Session {
    /// Answers a write when the engine acknowledges it, or its time is over. The session's connection sees to it.
    pub(crate) fn answer_when_acked(self: &Rc<Self>, due: Due, write: u64) {
        self.begin();
        let late_ns = due.times.began_ns.saturating_add(nanoseconds(due.limit));
        let unacked = &mut *self.unacked.borrow_mut();
        unacked.waiting.push_back(Waiting { write, late_ns, due });
        if unacked.alarm.as_ref().is_some_and(|alarm| late_ns < alarm.at_ns) {
            unacked.alarm = None;
        }
    }

    /// Answers the writes that may be answered now, and has the connection woken for the next.
    pub(crate) fn answer_acked(self: &Rc<Self>, cx: &mut Context<'_>) {
        if self.unacked.borrow().waiting.is_empty() {
            return;
        }
        let mut now_ns = None;
        for _ in 0..ANSWERS_MAX {
            let Some(said) = self.poll_oldest(cx) else { return self.answer_late(cx) };
            let now_ns = *now_ns.get_or_insert_with(lanes::time::monotonic_ns);
            let oldest = self.unacked.borrow_mut().waiting.pop_front();
            self.give_acked(oldest.expect("it was asked for").due, said.map(|()| Outcome::Void), now_ns);
        }
        cx.waker().wake_by_ref();
    }

    /// What the engine says of the oldest; `None` while there is nothing to say.
    fn poll_oldest(&self, cx: &mut Context<'_>) -> Option<Result<(), Error>> {
        let unacked = &mut *self.unacked.borrow_mut();
        let write = unacked.waiting.front()?.write;
        let acks = unacked.acks.get_or_insert_with(|| self.core.engine.acks());
        match acks.poll_acked(write, cx) {
            Poll::Ready(said) => Some(said),
            Poll::Pending => None,
        }
    }

    /// Answers those whose time is over, and sees to it that the connection is woken for the next.
    fn answer_late(self: &Rc<Self>, cx: &mut Context<'_>) {
        loop {
            if !self.unacked.borrow_mut().poll_alarm(cx) {
                return;
            }
            let now_ns = lanes::time::monotonic_ns();
            let late = self.unacked.borrow_mut().take_late(now_ns);
            for Waiting { due, .. } in late {
                let error = reply::too_late(due.kind, due.limit);
                self.give_acked(due, Err(error), now_ns);
            }
        }
    }

    fn give_acked(self: &Rc<Self>, due: Due, result: Result<Outcome, Error>, now_ns: u64) {
        Warnings::begin();
        due.warnings.give();
        self.give(due, result, now_ns);
        self.in_flight.set(self.in_flight.get() - 1);
    }
}

impl Unacked {
    /// Takes out the writes whose time is over, in one pass.
    fn take_late(&mut self, now_ns: u64) -> Vec<Waiting> {
        let (late, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|w| w.late_ns <= now_ns);
        self.waiting = waiting;
        Vec::from(late)
    }

    /// Whether the alarm has gone off. Without one it is set, if there is something to wait for.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> bool {
        if self.alarm.is_none() {
            let Some(at_ns) = self.waiting.iter().map(|waiting| waiting.late_ns).min() else { return false };
            let left = Duration::from_nanos(at_ns.saturating_sub(lanes::time::monotonic_ns()));
            self.alarm = Some(Alarm { at_ns, sleep: Box::pin(lanes::time::sleep(left)) });
        }
        let rang = self.alarm.as_mut().is_some_and(|alarm| alarm.sleep.as_mut().poll(cx).is_ready());
        if rang {
            self.alarm = None;
        }
        rang
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
