//! Flushes held back on purpose, to measure what they cost, and their gentle way back: what waited
//! meanwhile is given as long to be written as it was held back, beside what comes in by then.
//!
//! ```text
//!   may wait │       most ┌────────────────┐                         1. held: nothing is flushed while what waits is within `most`
//!            │            │                │╲                         2. let go: what waits beyond a flush's own straight line
//!            │            │              ▒▒│  ╲  ▒ what waits              may wait still, less and less, until
//!            │            │          ▒▒▒▒▒▒│▒▒▒▒╲                     3. as much time has passed as it was held back.
//!            │            │      ▒▒▒▒▒▒▒▒▒▒│▒▒▒▒▒▒▒╲
//!            └────────────┴────────────────┴──────────╲──▶ time
//! ```
//!
//! So a flush that goes on gets the rate it would have had, and on top of it a constant one. The
//! bound on memory holds throughout: what may wait is never more than `most`, and pressure begins
//! beyond it as it does beyond nothing without a hold.

use super::{SECOND_NS, scale};

/// The least time that a way back takes, ns.
const BACK_NS_MIN: u64 = SECOND_NS;

/// What may wait, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Free,
    Held {
        since_ns: u64,
    },
    Back {
        bytes: u64,
        from_ns: u64,
        over_ns: u64,
    },
}

/// The state of a hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hold {
    most_bytes: u64,
    state: State,
}

impl Hold {
    /// Nothing is held; when it is, so many bytes may wait beyond what always may.
    #[must_use]
    pub fn new(most_bytes: u64) -> Hold {
        Hold { most_bytes, state: State::Free }
    }

    /// Whether work is held back.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// Holds work back from now on.
    pub fn hold(&mut self, now_ns: u64) {
        if !self.is_held() {
            self.state = State::Held { since_ns: now_ns };
        }
    }

    /// Lets it go on, with so many bytes in frozen memtables and so many free in the one that
    /// fills: of those as many as these are to be flushed until it is full, as ever.
    pub fn let_go(&mut self, now_ns: u64, left_bytes: u64, room_bytes: u64) {
        let State::Held { since_ns } = self.state else { return };
        let bytes = left_bytes.saturating_sub(room_bytes).min(self.most_bytes);
        let over_ns = now_ns.saturating_sub(since_ns).max(BACK_NS_MIN);
        self.state = State::Back { bytes, from_ns: now_ns, over_ns };
    }

    /// Bytes that may wait now, beyond what always may.
    #[must_use]
    pub fn may_wait(&self, now_ns: u64) -> u64 {
        match self.state {
            State::Free => 0,
            State::Held { .. } => self.most_bytes,
            State::Back { bytes, from_ns, over_ns } => {
                let passed_ns = now_ns.saturating_sub(from_ns).min(over_ns);
                scale(bytes, over_ns - passed_ns, over_ns)
            }
        }
    }

    /// By how many bytes a second that shrinks.
    #[must_use]
    pub fn shrinks(&self, now_ns: u64) -> u64 {
        match self.state {
            State::Back { bytes, from_ns, over_ns } if now_ns.saturating_sub(from_ns) < over_ns => {
                scale(bytes, SECOND_NS, over_ns)
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_may_wait_less_and_less_for_as_long_as_it_was_held_back() {
        let mut hold = Hold::new(1000);
        assert_eq!((hold.may_wait(0), hold.is_held()), (0, false));
        hold.hold(10 * SECOND_NS);
        assert_eq!(
            (hold.may_wait(39 * SECOND_NS), hold.shrinks(39 * SECOND_NS), hold.is_held()),
            (1000, 0, true)
        );
        hold.hold(20 * SECOND_NS); // it is already
        // Of 700 bytes 100 are what a flush that is just due always has.
        hold.let_go(40 * SECOND_NS, 700, 100);
        let at = |second: u64| (hold.may_wait(second * SECOND_NS), hold.shrinks(second * SECOND_NS));
        assert_eq!([40, 55, 69, 70, 99].map(at), [(600, 20), (300, 20), (20, 20), (0, 0), (0, 0)]);
    }

    #[test]
    fn never_more_than_the_most_may_wait() {
        let mut hold = Hold::new(50);
        hold.hold(0);
        hold.let_go(1, u64::MAX, 0);
        assert_eq!((hold.may_wait(1), hold.shrinks(1)), (50, 50), "over a second at least");
        let mut hold = Hold::new(50);
        hold.let_go(1, 1000, 0);
        assert_eq!(hold.may_wait(1), 0, "nothing was held");
    }
}
