//! Counts of one worker in one stretch of a run. The report adds up the counts of all workers, so
//! that every field is a sum, a maximum or a histogram.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::histogram::{Latencies, histogram};

/// Counts of one worker in one stretch.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) latencies: Latencies,
    /// Latencies from the time of sending.
    pub(crate) from_sent: Histogram<u64>,
    /// Delay of requests that no limit delayed: the generator's own part of the latency.
    pub(crate) lag: Histogram<u64>,
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// Answers that arrived during the stretch, including those to requests of an earlier stretch.
    pub(crate) answered_within: u64,
    pub(crate) rows: u64,
    pub(crate) empty_reads: u64,
    pub(crate) errors: BTreeMap<i32, (u64, String)>,
    /// Requests lost with their connection.
    pub(crate) lost: u64,
    pub(crate) unanswered: u64,
    /// Due, but never sent.
    pub(crate) unsent: u64,
    /// Due while their client waited for the time that a refusal named, and never sent.
    pub(crate) turned_away: u64,
    /// Answers that arrived during the stretch within the time limit of their requests.
    pub(crate) in_time: u64,
    /// Sent later than due because a limit on requests in flight was reached.
    pub(crate) delayed: u64,
    pub(crate) connections_broken: u64,
    pub(crate) broken_why: String,
    pub(crate) in_flight_max: usize,
    /// Requests in flight, integrated over the time of the stretch, nanoseconds.
    pub(crate) in_flight_ns: f64,
    pub(crate) cpu_ns: u64,
    pub(crate) wall_ns: u64,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally {
            latencies: Latencies::default(),
            from_sent: histogram(),
            lag: histogram(),
            sent: 0,
            answered: 0,
            answered_within: 0,
            rows: 0,
            empty_reads: 0,
            errors: BTreeMap::new(),
            lost: 0,
            unanswered: 0,
            unsent: 0,
            turned_away: 0,
            in_time: 0,
            delayed: 0,
            connections_broken: 0,
            broken_why: String::new(),
            in_flight_max: 0,
            in_flight_ns: 0.0,
            cpu_ns: 0,
            wall_ns: 0,
        }
    }
}
