//! Traces of requests, for `TRACING ON` of cqlsh and for drivers: the stages of a request with
//! their times. `trace_tables.rs` shows them.
//!
//! 1. A request with the flag of the protocol gets a [`Trace`]. Others have none, and the stages
//!    check for that.
//! 2. Stages add events, in the group of the request. The engine adds notes of its own
//!    ([`engine::note`]).
//! 3. The answer carries the id of the trace. When the request is recorded, its trace goes into a
//!    ring of its core.
//!
//! The rings are in memory, and bounded by a number, by bytes and by an age. As texts of statements
//! have values in them, a role sees its own traces only, unless it may describe all roles.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use engine::TraceNote;
use schema::value;
use wire::{Consistency, Opcode};

/// Most traces of a core.
const TRACES_MAX: usize = 256;
/// Most bytes of the texts of a core's traces.
const TRACES_BYTES_MAX: usize = 1 << 20;
/// Age at which a trace is dropped, ns. Cassandra's default.
const AGE_MAX_NS: u64 = 24 * 3600 * 1_000_000_000;
/// Most events of a trace.
const EVENTS_MAX: usize = 96;
/// Most bytes of a statement's text in a trace.
pub(crate) const TEXT_BYTES_MAX: usize = 1000;

/// Events of a request in flight.
pub(crate) struct Trace {
    /// A `timeuuid`.
    pub(crate) id: [u8; 16],
    opcode: Opcode,
    /// Arrival of the request, ns of the monotonic clock and µs since 1970.
    began_ns: u64,
    began_us: i64,
    events: Vec<TraceNote>,
}

impl Trace {
    /// Begins the trace of a request that arrived at `arrived_ns`.
    #[cold]
    pub(crate) fn begin(opcode: Opcode, body_bytes: usize, arrived_ns: u64) -> Box<Trace> {
        let waited_us = lanes::time::monotonic_ns().saturating_sub(arrived_ns) / 1000;
        let began_us = lanes::time::unix_micros().saturating_sub_unsigned(waited_us);
        let id = value::timeuuid(began_us * 10, lanes::random::u64());
        let mut trace = Trace { id, opcode, began_ns: arrived_ns, began_us, events: Vec::new() };
        trace.add(arrived_ns, format!("Receiving {opcode:?} with a body of {body_bytes} bytes"));
        Box::new(trace)
    }

    /// Runs work of the engine, and adds its notes.
    pub(crate) fn collect<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let mut notes = Vec::new();
        let result = engine::collect_notes(&mut notes, work);
        self.extend(notes);
        result
    }

    /// Ends the trace at `ended_ns`.
    #[cold]
    pub(crate) fn finish(self, client: TracedClient, parameters: Parameters, ended_ns: u64) -> Traced {
        let Trace { id, opcode, began_ns, began_us, mut events } = self;
        // Notes of the engine come after the stage that collected them.
        events.sort_by_key(|event| event.at_ns);
        let request = match opcode {
            Opcode::Batch => "Execute batch of CQL3 queries",
            Opcode::Execute => "Execute CQL3 prepared query",
            _ => "Execute CQL3 query",
        };
        let duration_us = ended_ns.saturating_sub(began_ns) / 1000;
        Traced { id, client, request, parameters, began_ns, began_us, duration_us, events }
    }

    fn add(&mut self, at_ns: u64, text: String) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(TraceNote { at_ns, text });
        }
    }

    /// Adds an event of now.
    #[cold]
    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        self.add(lanes::time::monotonic_ns(), text());
    }

    /// Adds notes of the engine.
    pub(crate) fn extend(&mut self, notes: Vec<TraceNote>) {
        let free = EVENTS_MAX.saturating_sub(self.events.len());
        self.events.extend(notes.into_iter().take(free));
    }
}

/// Pairs of the column `parameters`.
pub(crate) type Parameters = Vec<(&'static str, String)>;

/// Sender of a request.
pub(crate) struct TracedClient {
    pub(crate) role: Option<Arc<str>>,
    pub(crate) address: SocketAddr,
}

/// A finished trace.
pub(crate) struct Traced {
    pub(crate) id: [u8; 16],
    pub(crate) client: TracedClient,
    pub(crate) request: &'static str,
    pub(crate) parameters: Parameters,
    pub(crate) began_ns: u64,
    pub(crate) began_us: i64,
    pub(crate) duration_us: u64,
    pub(crate) events: Vec<TraceNote>,
}

impl Traced {
    fn bytes(&self) -> usize {
        let events = self.events.iter().map(|event| size_of::<TraceNote>() + event.text.len());
        let parameters = self.parameters.iter().map(|(_, value)| 64 + value.len());
        size_of::<Traced>() + events.sum::<usize>() + parameters.sum::<usize>()
    }
}

/// Ring of the traces of a core.
#[derive(Default)]
pub(crate) struct Traces(RefCell<VecDeque<Traced>>);

impl Traces {
    /// Adds a trace, and drops the oldest beyond the bounds.
    pub(crate) fn add(&self, traced: Traced) {
        let mut ring = self.0.borrow_mut();
        ring.push_back(traced);
        let mut bytes: usize = ring.iter().map(Traced::bytes).sum();
        while ring.len() > TRACES_MAX || bytes > TRACES_BYTES_MAX && ring.len() > 1 {
            bytes -= ring.pop_front().map_or(0, |oldest| oldest.bytes());
        }
    }

    /// Returns a value for each trace that the viewer sees. Drops those that are too old.
    pub(crate) fn each<T>(
        &self,
        sees: &dyn Fn(&str) -> bool,
        mut make: impl FnMut(&Traced, &mut Vec<T>),
    ) -> Vec<T> {
        let now_ns = lanes::time::monotonic_ns();
        let mut ring = self.0.borrow_mut();
        ring.retain(|traced| now_ns.saturating_sub(traced.began_ns) < AGE_MAX_NS);
        let mut made = Vec::new();
        for traced in ring.iter().filter(|traced| sees(traced.client.role.as_deref().unwrap_or_default())) {
            make(traced, &mut made);
        }
        made
    }
}

/// Returns a consistency by its name in CQL.
pub(crate) fn consistency(consistency: Consistency) -> String {
    consistency.name().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(role: &str, text_bytes: usize) -> Traced {
        Traced {
            id: [0; 16],
            client: TracedClient { role: Some(role.into()), address: ([127, 0, 0, 1], 9042).into() },
            request: "Execute CQL3 query",
            parameters: vec![("query", "x".repeat(text_bytes))],
            began_ns: 0,
            began_us: 0,
            duration_us: 7,
            events: Vec::new(),
        }
    }

    #[test]
    fn ring_keeps_the_last_traces_within_its_bounds() {
        let traces = Traces::default();
        (0..TRACES_MAX + 10).for_each(|_| traces.add(traced("a", 10)));
        assert_eq!(traces.0.borrow().len(), TRACES_MAX);
        (0..10).for_each(|_| traces.add(traced("b", TRACES_BYTES_MAX / 4)));
        let ring = traces.0.borrow();
        assert!(ring.iter().map(Traced::bytes).sum::<usize>() <= TRACES_BYTES_MAX);
        assert_eq!(ring.len(), 3, "the last three fit");
        assert!(ring.iter().all(|traced| traced.client.role.as_deref() == Some("b")));
    }

    #[test]
    fn consistency_has_its_name_of_cql() {
        assert_eq!(consistency(Consistency::One), "ONE");
        assert_eq!(consistency(Consistency::LocalQuorum), "LOCAL_QUORUM");
    }
}
