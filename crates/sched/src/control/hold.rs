//! Pause of flushes, to measure their cost. Afterwards the bytes that waited are flushed over as
//! much time as the pause took, beside the bytes written by then.
//!
//! ```text
//!   may wait │       most ┌────────────────┐           1. paused: nothing is flushed up to `most` bytes
//!            │            │                │╲          2. resumed: bytes beyond the flush's own line
//!            │            │              ▒▒│  ╲           may still wait, fewer and fewer, until
//!            │            │          ▒▒▒▒▒▒│▒▒▒▒╲      3. as much time has passed as the pause took
//!            │            │      ▒▒▒▒▒▒▒▒▒▒│▒▒▒▒▒▒▒╲
//!            └────────────┴────────────────┴──────────╲──▶ time         ▒ waiting bytes
//! ```
//!
//! So a resumed flush has the rate that it would have had, and a constant rate on top. The bound on
//! memory holds throughout: at most `most` bytes may wait. Pressure begins beyond them, as it
//! begins beyond 0 without a pause.

use super::{SECOND_NS, scale};

/// Shortest time over which waiting bytes are flushed after a pause, ns.
const RESUME_NS_MIN: u64 = SECOND_NS;

/// Phase of a pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Normal,
    Paused {
        since_ns: u64,
    },
    Resuming {
        bytes: u64,
        from_ns: u64,
        over_ns: u64,
    },
}

/// State of a pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hold {
    most_bytes: u64,
    state: State,
}

impl Hold {
    /// Creates the state without a pause. In a pause, `most_bytes` may wait beyond those that
    /// always may.
    #[must_use]
    pub fn new(most_bytes: u64) -> Hold {
        Hold { most_bytes, state: State::Normal }
    }

    /// Returns true if work is paused.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Paused { .. })
    }

    /// Pauses work from now on. Does nothing during a pause.
    pub fn hold(&mut self, now_ns: u64) {
        if !self.is_held() {
            self.state = State::Paused { since_ns: now_ns };
        }
    }

    /// Ends the pause. `left_bytes` are in frozen memtables, and `room_bytes` are free in the
    /// active one. Bytes of the former up to the latter are due in the normal way, until the active
    /// memtable is full. The rest may wait.
    pub fn let_go(&mut self, now_ns: u64, left_bytes: u64, room_bytes: u64) {
        let State::Paused { since_ns } = self.state else { return };
        let bytes = left_bytes.saturating_sub(room_bytes).min(self.most_bytes);
        let over_ns = now_ns.saturating_sub(since_ns).max(RESUME_NS_MIN);
        self.state = State::Resuming { bytes, from_ns: now_ns, over_ns };
    }

    /// Returns the bytes that may wait now, beyond those that always may.
    #[must_use]
    pub fn may_wait(&self, now_ns: u64) -> u64 {
        match self.state {
            State::Normal => 0,
            State::Paused { .. } => self.most_bytes,
            State::Resuming { bytes, from_ns, over_ns } => {
                let passed_ns = now_ns.saturating_sub(from_ns).min(over_ns);
                scale(bytes, over_ns - passed_ns, over_ns)
            }
        }
    }

    /// Returns the bytes a second by which [`Hold::may_wait`] shrinks.
    #[must_use]
    pub fn shrinks(&self, now_ns: u64) -> u64 {
        match self.state {
            State::Resuming { bytes, from_ns, over_ns } if now_ns.saturating_sub(from_ns) < over_ns => {
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
    fn waiting_bytes_shrink_over_the_length_of_the_pause() {
        let mut hold = Hold::new(1000);
        assert_eq!((hold.may_wait(0), hold.is_held()), (0, false));
        hold.hold(10 * SECOND_NS);
        assert_eq!(
            (hold.may_wait(39 * SECOND_NS), hold.shrinks(39 * SECOND_NS), hold.is_held()),
            (1000, 0, true)
        );
        hold.hold(20 * SECOND_NS); // ignored: already paused
        // A flush that has just become due always has 100 of the 700 bytes.
        hold.let_go(40 * SECOND_NS, 700, 100);
        let at = |second: u64| (hold.may_wait(second * SECOND_NS), hold.shrinks(second * SECOND_NS));
        assert_eq!([40, 55, 69, 70, 99].map(at), [(600, 20), (300, 20), (20, 20), (0, 0), (0, 0)]);
    }

    #[test]
    fn waiting_bytes_stay_within_the_bound() {
        let mut hold = Hold::new(50);
        hold.hold(0);
        hold.let_go(1, u64::MAX, 0);
        assert_eq!((hold.may_wait(1), hold.shrinks(1)), (50, 50), "over a second at least");
        let mut hold = Hold::new(50);
        hold.let_go(1, 1000, 0);
        assert_eq!(hold.may_wait(1), 0, "nothing was paused");
    }
}
