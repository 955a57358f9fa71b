//! The books of a SQL load: what was due, sent and answered, in the stretch and the second it belongs to, and for each query by itself.

use std::sync::mpsc::Sender;

use hdrhistogram::Histogram;

use crate::arrivals::Stretch;
use crate::clock::{Clock, SECOND_NS, thread_cpu_ns};
use crate::histogram::{OpKind, histogram};
use crate::tally::Tally;
use crate::timeline::{Message, Window};

/// What was counted of one query in one stretch.
#[derive(Clone, Debug)]
pub(crate) struct OfQuery {
    pub(crate) latencies: Histogram<u64>,
    pub(crate) rows: u64,
    pub(crate) failed: u64,
}

/// A query under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) query: usize,
    pub(crate) stretch: usize,
    pub(crate) from_ns: u64,
    pub(crate) sent_ns: u64,
}

/// How a query ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With so many rows.
    Done { rows: u64 },
    /// With this SQLSTATE and message.
    Failed { state: String, message: String },
    /// With the connection.
    Lost { why: String },
    /// Not before the end of the run.
    Unanswered,
}

/// The books.
pub(crate) struct Book {
    clock: Clock,
    stretches: Vec<Stretch>,
    stretch: usize,
    /// For each stretch, and for the wait after the last.
    pub(crate) tallies: Vec<Tally>,
    /// For each stretch and query, as `tallies`.
    pub(crate) queries: Vec<Vec<OfQuery>>,
    in_flight: usize,
    window: Window,
    window_cpu_ns: u64,
    messages: Sender<Message>,
}

/// An error's number for a tally: its SQLSTATE read in base 36.
pub(crate) fn number(state: &str) -> i32 {
    i32::from_str_radix(state, 36).unwrap_or(0)
}

/// The SQLSTATE of [`number`].
pub(crate) fn state(number: i32) -> String {
    let digit = |place: u32| char::from_digit(number as u32 / 36u32.pow(place) % 36, 36);
    (0..5).rev().filter_map(digit).collect::<String>().to_ascii_uppercase()
}

fn window(index: u64, begin_ns: u64, stretch: usize) -> Window {
    Window {
        index,
        begin_ns,
        end_ns: begin_ns,
        stretch,
        latencies: Default::default(),
        sent: 0,
        errors: 0,
        in_flight: 0,
        in_flight_max: 0,
        cpu_ns: 0,
    }
}

impl Book {
    pub(crate) fn new(
        clock: Clock,
        stretches: Vec<Stretch>,
        queries: usize,
        messages: Sender<Message>,
    ) -> Book {
        let counted = stretches.len() + 1;
        let of_query = OfQuery { latencies: histogram(), rows: 0, failed: 0 };
        Book {
            clock,
            stretches,
            stretch: 0,
            tallies: vec![Tally::new(); counted],
            queries: vec![vec![of_query; queries]; counted],
            in_flight: 0,
            window: window(0, 0, 0),
            window_cpu_ns: thread_cpu_ns(),
            messages,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now_ns()
    }

    /// The stretch it is in, and when that ends; nothing after the last.
    pub(crate) fn stretch(&self) -> Option<(usize, u64)> {
        self.stretches.get(self.stretch).map(|stretch| (self.stretch, stretch.end_ns))
    }

    /// Closes the windows and stretches that are over.
    pub(crate) fn roll(&mut self) {
        let now = self.now();
        while now >= self.window_end() {
            let end = self.window_end();
            self.close_window(end);
            if self.stretch().is_some_and(|(_, over)| over == end) {
                self.stretch += 1;
                self.window.stretch = self.stretch;
            }
        }
    }

    /// Ends all stretches: from now on there is only waiting.
    pub(crate) fn wait_only(&mut self) {
        self.roll();
        if self.stretch < self.stretches.len() {
            self.close_window(self.now());
            self.stretch = self.stretches.len();
            self.window.stretch = self.stretch;
        }
    }

    fn window_end(&self) -> u64 {
        (self.window.begin_ns + SECOND_NS).min(self.stretch().map_or(u64::MAX, |(_, end)| end))
    }

    fn close_window(&mut self, end: u64) {
        let cpu = thread_cpu_ns();
        let next = window(self.window.index + 1, end, self.stretch);
        let mut closed = std::mem::replace(&mut self.window, next);
        closed.end_ns = end;
        closed.in_flight = self.in_flight;
        closed.cpu_ns = cpu - self.window_cpu_ns;
        self.window_cpu_ns = cpu;
        self.window.in_flight_max = self.in_flight;
        let tally = &mut self.tallies[closed.stretch];
        tally.cpu_ns += closed.cpu_ns;
        tally.wall_ns += end - closed.begin_ns;
        // A run whose collector has gone has nobody to tell.
        drop(self.messages.send(Message::Window(0, Box::new(closed))));
    }

    /// Closes the last window; nothing is counted afterwards.
    pub(crate) fn end(&mut self) {
        self.roll();
        self.close_window(self.now());
        drop(self.messages.send(Message::Ended(0)));
    }

    /// Counts a query as sent. `late` says that it was due before a connection was free for it.
    pub(crate) fn sent(&mut self, query: usize, stretch: usize, due_ns: Option<u64>, late: bool) -> Sent {
        let now = self.now();
        self.in_flight += 1;
        self.window.sent += 1;
        self.window.in_flight_max = self.window.in_flight_max.max(self.in_flight);
        let tally = &mut self.tallies[stretch];
        tally.sent += 1;
        tally.in_flight_max = tally.in_flight_max.max(self.in_flight);
        if late {
            tally.held_back += 1;
        } else if let Some(due) = due_ns {
            tally.lag.saturating_record(now.saturating_sub(due));
        }
        Sent { query, stretch, from_ns: due_ns.unwrap_or(now), sent_ns: now }
    }

    /// Counts how it ended.
    pub(crate) fn ended(&mut self, sent: Sent, outcome: Outcome) {
        self.roll();
        self.in_flight -= 1;
        let now = self.now();
        let tally = &mut self.tallies[sent.stretch];
        let of_query = &mut self.queries[sent.stretch][sent.query];
        let failed = match outcome {
            Outcome::Done { rows } => {
                let latency = now.saturating_sub(sent.from_ns);
                tally.latencies.record(OpKind::Read, latency);
                tally.from_sent.saturating_record(now.saturating_sub(sent.sent_ns));
                tally.answered += 1;
                tally.rows += rows;
                of_query.latencies.saturating_record(latency);
                of_query.rows += rows;
                self.window.latencies.record(OpKind::Read, latency);
                self.tallies[self.stretch].answered_within += 1;
                return;
            }
            Outcome::Failed { state, message } => {
                tally.errors.entry(number(&state)).or_insert((0, message)).0 += 1;
                true
            }
            Outcome::Lost { why } => {
                tally.lost += 1;
                tally.connections_broken += 1;
                tally.broken_why = why;
                true
            }
            Outcome::Unanswered => {
                tally.unanswered += 1;
                false
            }
        };
        of_query.failed += u64::from(failed);
        self.window.errors += u64::from(failed);
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
    fn states_and_back() {
        for text in ["53200", "57014", "0A000", "XX000", "42P01"] {
            assert_eq!(state(number(text)), text);
        }
    }
}
