//! Accounting of a SQL load: counts of queries per stretch, per second and per query.

use std::sync::mpsc::Sender;

use hdrhistogram::Histogram;

use crate::arrivals::Stretch;
use crate::clock::{RunClock, SECOND_NS, thread_cpu_ns};
use crate::histogram::{OpKind, histogram};
use crate::tally::Tally;
use crate::timeline::{Message, Window};

/// Counts of one query in one stretch.
#[derive(Clone, Debug)]
pub(crate) struct QueryTally {
    pub(crate) latencies: Histogram<u64>,
    pub(crate) rows: u64,
    pub(crate) failed: u64,
}

/// A query in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) query: usize,
    pub(crate) stretch: usize,
    pub(crate) from_ns: u64,
    pub(crate) sent_ns: u64,
}

/// Outcome of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueryOutcome {
    /// Success, with the number of rows.
    Done { rows: u64 },
    /// Error with this SQLSTATE and message.
    Failed { state: String, message: String },
    /// Lost with the connection.
    Lost { reason: String },
    /// Not answered by the end of the run.
    Unanswered,
}

/// Accounting of a run.
pub(crate) struct Accounting {
    clock: RunClock,
    stretches: Vec<Stretch>,
    stretch: usize,
    /// Counts of each stretch, and of the wait after the last.
    pub(crate) tallies: Vec<Tally>,
    /// Counts of each query, by stretch as in `tallies`.
    pub(crate) queries: Vec<Vec<QueryTally>>,
    in_flight: usize,
    /// Time up to which `in_flight` is integrated.
    in_flight_since_ns: u64,
    window: Window,
    window_cpu_ns: u64,
    messages: Sender<Message>,
}

/// Encodes a SQLSTATE as an error number for a tally: its text read in base 36.
pub(crate) fn number(state: &str) -> i32 {
    i32::from_str_radix(state, 36).unwrap_or(0)
}

/// Decodes the SQLSTATE from a number of [`number`].
pub(crate) fn state(number: i32) -> String {
    let digit = |place: u32| char::from_digit(number as u32 / 36u32.pow(place) % 36, 36);
    (0..5).rev().filter_map(digit).collect::<String>().to_ascii_uppercase()
}

impl Accounting {
    pub(crate) fn new(
        clock: RunClock,
        stretches: Vec<Stretch>,
        queries: usize,
        messages: Sender<Message>,
    ) -> Accounting {
        let counted = stretches.len() + 1;
        let of_query = QueryTally { latencies: histogram(), rows: 0, failed: 0 };
        Accounting {
            clock,
            stretches,
            stretch: 0,
            tallies: vec![Tally::new(); counted],
            queries: vec![vec![of_query; queries]; counted],
            in_flight: 0,
            in_flight_since_ns: 0,
            window: Window::new(0, 0, 0),
            window_cpu_ns: thread_cpu_ns(),
            messages,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Returns the current stretch and its end, nanoseconds since the run began. `None`: after the
    /// last.
    pub(crate) fn stretch(&self) -> Option<(usize, u64)> {
        self.stretches.get(self.stretch).map(|stretch| (self.stretch, stretch.end_ns))
    }

    /// Closes the windows and stretches that have ended.
    pub(crate) fn roll(&mut self) {
        let now = self.now();
        while now >= self.window_end() {
            let end = self.window_end();
            self.close_window(end);
            if self.stretch().is_some_and(|(_, over)| over == end) {
                self.integrate(end);
                self.stretch += 1;
                self.window.stretch = self.stretch;
            }
        }
    }

    /// Ends all stretches. From now on the run only waits for answers.
    pub(crate) fn wait_only(&mut self) {
        self.roll();
        if self.stretch < self.stretches.len() {
            self.close_window(self.now());
            self.integrate(self.now());
            self.stretch = self.stretches.len();
            self.window.stretch = self.stretch;
        }
    }

    /// Adds the queries in flight since the last call to the mean of this stretch, until its end.
    fn integrate(&mut self, now: u64) {
        let now = self.stretch().map_or(now, |(_, end)| now.min(end));
        let elapsed = now.saturating_sub(self.in_flight_since_ns);
        self.tallies[self.stretch].in_flight_ns += self.in_flight as f64 * elapsed as f64;
        let end = self.window_end();
        let since = self.in_flight_since_ns;
        self.in_flight_since_ns = since.max(now);
        self.window.integrate(self.in_flight, since..self.in_flight_since_ns, end);
    }

    fn window_end(&self) -> u64 {
        (self.window.begin_ns + SECOND_NS).min(self.stretch().map_or(u64::MAX, |(_, end)| end))
    }

    fn close_window(&mut self, end: u64) {
        let cpu = thread_cpu_ns();
        self.integrate(end);
        let next = self.window.next(end, self.stretch, self.in_flight);
        let mut closed = std::mem::replace(&mut self.window, next);
        closed.end_ns = end;
        closed.in_flight = self.in_flight;
        closed.cpu_ns = cpu - self.window_cpu_ns;
        self.window_cpu_ns = cpu;
        let tally = &mut self.tallies[closed.stretch];
        tally.cpu_ns += closed.cpu_ns;
        tally.wall_ns += end - closed.begin_ns;
        // Without a receiver the run has failed.
        drop(self.messages.send(Message::Window(0, Box::new(closed))));
    }

    /// Closes the last window. Nothing may be counted afterwards.
    pub(crate) fn end(&mut self) {
        self.roll();
        self.close_window(self.now());
        drop(self.messages.send(Message::Ended(0)));
    }

    /// Counts a query of a stretch as in flight from `now` on.
    pub(crate) fn enter(&mut self, stretch: usize, now: u64) {
        self.integrate(now);
        self.in_flight += 1;
        self.window.in_flight_max = self.window.in_flight_max.max(self.in_flight);
        let tally = &mut self.tallies[stretch];
        tally.in_flight_max = tally.in_flight_max.max(self.in_flight);
    }

    /// Takes back a query that was in flight and will not be sent.
    pub(crate) fn withdraw(&mut self) {
        self.integrate(self.now());
        self.in_flight -= 1;
    }

    /// Returns the number of queries in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Counts a query as sent.
    pub(crate) fn sent(&mut self, sent: &Sent) {
        self.window.sent += 1;
        self.tallies[sent.stretch].sent += 1;
    }

    /// Counts the wait of a query in an open loop. `late`: it was due before a worker was free.
    pub(crate) fn waited(&mut self, sent: &Sent, late: bool) {
        let tally = &mut self.tallies[sent.stretch];
        if late {
            tally.delayed += 1;
        } else {
            tally.lag.saturating_record(sent.sent_ns.saturating_sub(sent.from_ns));
        }
    }

    /// Counts a broken connection.
    pub(crate) fn broke(&mut self, stretch: usize, reason: String) {
        let tally = &mut self.tallies[stretch];
        tally.connections_broken += 1;
        tally.broken_why = reason;
    }

    /// Counts the outcome of a query. Returns the time of it.
    pub(crate) fn ended(&mut self, sent: Sent, outcome: QueryOutcome) -> u64 {
        self.roll();
        let now = self.now();
        self.integrate(now);
        self.in_flight -= 1;
        let tally = &mut self.tallies[sent.stretch];
        let of_query = &mut self.queries[sent.stretch][sent.query];
        let failed = match outcome {
            QueryOutcome::Done { rows } => {
                let latency = now.saturating_sub(sent.from_ns);
                tally.latencies.record(OpKind::Read, latency);
                tally.from_sent.saturating_record(now.saturating_sub(sent.sent_ns));
                tally.answered += 1;
                tally.rows += rows;
                of_query.latencies.saturating_record(latency);
                of_query.rows += rows;
                self.window.latencies.record(OpKind::Read, latency);
                self.tallies[self.stretch].answered_within += 1;
                return now;
            }
            QueryOutcome::Failed { state, message } => {
                tally.errors.entry(number(&state)).or_insert((0, message)).0 += 1;
                true
            }
            QueryOutcome::Lost { .. } => {
                tally.lost += 1;
                true
            }
            QueryOutcome::Unanswered => {
                tally.unanswered += 1;
                false
            }
        };
        of_query.failed += u64::from(failed);
        self.window.errors += u64::from(failed);
        now
    }

    /// Counts an arrival that was due and never sent.
    pub(crate) fn unsent(&mut self, stretch: usize) {
        self.tallies[stretch].unsent += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_survive_the_encoding() {
        for text in ["53200", "57014", "0A000", "XX000", "42P01"] {
            assert_eq!(state(number(text)), text);
        }
    }
}
