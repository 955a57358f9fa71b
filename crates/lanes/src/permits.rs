//! Permits for calls from one core to another: their number is bounded, and they are taken and
//! given back from any lane without a lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::task::{Context, Poll, Waker};

use crate::Flow;
use crate::queue::Inbox;

/// Largest number of calls in flight from one core to another. Beyond it the caller waits, except
/// for one call of each of [`BEYOND_MAX`] flows: those that pour calls do not keep others out.
pub const CALLS_MAX: u32 = 16 * 1024;
/// Flows that may have a call beyond [`CALLS_MAX`], by their number modulo this.
const BEYOND_MAX: u64 = 1024;

/// Permits from one core to one other.
pub(crate) struct Permits {
    taken: AtomicU32,
    /// One bit for each call beyond the bound.
    beyond: [AtomicU64; (BEYOND_MAX / 64) as usize],
    /// Tasks that found no permit. All are woken when one comes back, since a waiter may have been
    /// dropped since.
    waiting: Inbox<Waker>,
}

/// A permit, to be given back by [`Permits::give_back`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Taken {
    Within,
    /// Beyond the bound, with the number of its bit.
    Beyond(u64),
}

impl Permits {
    pub(crate) fn new() -> Permits {
        let beyond = std::array::from_fn(|_| AtomicU64::new(0));
        Permits { taken: AtomicU32::new(0), beyond, waiting: Inbox::new() }
    }

    /// Takes a permit for a task of this flow. If there is none, the task is woken when one comes
    /// back.
    pub(crate) fn poll_take(&self, flow: Flow, cx: &Context<'_>) -> Poll<Taken> {
        if self.try_take() {
            return Poll::Ready(Taken::Within);
        }
        if let Some(taken) = self.take_beyond(flow) {
            return Poll::Ready(taken);
        }
        // The inbox is never closed, so this cannot fail. Check again after it: a permit may have
        // come back in between.
        let _ = self.waiting.push(cx.waker().clone());
        if self.try_take() { Poll::Ready(Taken::Within) } else { Poll::Pending }
    }

    fn try_take(&self) -> bool {
        self.taken.fetch_update(SeqCst, SeqCst, |taken| (taken < CALLS_MAX).then_some(taken + 1)).is_ok()
    }

    /// Takes the permit beyond the bound that one call of a flow may have.
    #[cold]
    fn take_beyond(&self, flow: Flow) -> Option<Taken> {
        if flow == Flow::NONE {
            return None;
        }
        let at = flow.0 % BEYOND_MAX;
        let before = self.beyond[(at / 64) as usize].fetch_or(1 << (at % 64), SeqCst);
        (before & 1 << (at % 64) == 0).then_some(Taken::Beyond(at))
    }

    pub(crate) fn give_back(&self, taken: Taken) {
        match taken {
            Taken::Within => drop(self.taken.fetch_sub(1, SeqCst)),
            Taken::Beyond(at) => drop(self.beyond[(at / 64) as usize].fetch_and(!(1 << (at % 64)), SeqCst)),
        }
        if !self.waiting.is_empty() {
            self.waiting.take().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn flow_that_pours_calls_keeps_no_other_flow_out() {
        let permits = Permits::new();
        let (pours, polite) = (Flow(7), Flow(8));
        let cx = Context::from_waker(Waker::noop());
        let take = |flow| permits.poll_take(flow, &cx);
        let all = (0..CALLS_MAX).filter(|_| take(pours) == Poll::Ready(Taken::Within)).count();
        assert_eq!(all as u32, CALLS_MAX);
        assert_eq!(take(pours), Poll::Ready(Taken::Beyond(7)), "one beyond the bound");
        assert_eq!([take(pours), take(Flow::NONE)], [Poll::Pending; 2]);
        assert_eq!([take(polite), take(polite)], [Poll::Ready(Taken::Beyond(8)), Poll::Pending]);
        permits.give_back(Taken::Beyond(8));
        assert_eq!(take(polite), Poll::Ready(Taken::Beyond(8)));
        permits.give_back(Taken::Within);
        assert_eq!(take(polite), Poll::Ready(Taken::Within));
    }
}
