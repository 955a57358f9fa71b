//! A probe: prepared reads at a fixed rate on one connection to each core, of keys that the core
//! owns. It measures the latency of a well-behaved client of one level.
//!
//! 1. A sender sends each read at its due time, independent of earlier answers.
//! 2. A receiver takes the answers and their times.
//! 3. Latency starts when a read was due, so that a sender delayed by the server hides nothing.
//! 4. A read without an answer counts until the end, so that a frozen server does not look fast.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use schema::Sharding;
use wire::{Compression, Execute, Prepare, QueryParams, Request, Value, ValuesBuf};

use crate::answers::{Answers, SILENCE, ServerAnswer};
use crate::dial::FRIEND;
use crate::late::{Late, now_us};
use crate::native::{Native, label, lost, on_stream};
use crate::results::Reads;
use crate::setup::PROBE_ROWS;
use crate::target::AttackTarget;

/// Cores of the server.
pub(crate) const CORES: u32 = 2;
/// The server's mapping of tokens to cores.
const SHARDING: Sharding = Sharding { shards: CORES, ignore_msb: 12 };
/// Interval between two reads on one core, for 1,000 a second.
const PERIOD: Duration = Duration::from_millis(1);
/// Streams used in turn. At most this many reads are in flight, sent within 30 s.
const STREAMS: u64 = 30_000;
/// Stream for preparing a statement again after the server evicted it.
const PREPARE_STREAM: i16 = 30_001;
/// Connections tried to reach a given core. The server assigns them round-robin.
const TRIES: usize = 64;
/// Longest wait for answers after the last read.
const DRAIN: Duration = Duration::from_secs(2);
/// Longest single wait for an answer.
const WAIT: Duration = Duration::from_millis(50);

const TEXT: &str = "SELECT v FROM yard.t WHERE k = ?";

/// Results of one probe over all cores.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readings {
    /// End and duration of each read, microseconds.
    reads: Vec<(u64, u64)>,
    /// Answers other than rows.
    failures: Answers,
    unanswered: u64,
    /// Late wake-ups of the senders.
    pub(crate) late: Late,
}

impl Readings {
    fn add(&mut self, other: Readings) {
        self.reads.extend(other.reads);
        other.failures.each(|answer| self.failures.add(answer));
        self.unanswered += other.unanswered;
        self.late.add(other.late);
    }

    /// Summarizes the reads with and without the delays in `late`, whose spans must be merged.
    pub(crate) fn summary(&self, late: &Late) -> Reads {
        let net = |&(end, us): &(u64, u64)| us - late.within(end.saturating_sub(us), end).min(us);
        let mut gross: Vec<u64> = self.reads.iter().map(|read| read.1).collect();
        let mut net: Vec<u64> = self.reads.iter().map(net).collect();
        gross.sort_unstable();
        net.sort_unstable();
        let mut failures = self.failures.clone();
        (0..self.unanswered).for_each(|_| failures.add(ServerAnswer::new("unanswered")));
        let failed = !failures.is_empty();
        Reads {
            reads: self.reads.len() as u64,
            failures: if failed { failures.summary() } else { String::new() },
            p50_ms: quantile_ms(&gross, 0.5),
            p99_ms: quantile_ms(&gross, 0.99),
            max_ms: quantile_ms(&gross, 1.0),
            net_p99_ms: quantile_ms(&net, 0.99),
            net_max_ms: quantile_ms(&net, 1.0),
        }
    }
}

/// Returns the quantile `part` of ascending times, milliseconds. Zero without times.
fn quantile_ms(times_us: &[u64], part: f64) -> f64 {
    let last = times_us.len().saturating_sub(1);
    times_us.get((last as f64 * part).round() as usize).map_or(0.0, |us| *us as f64 / 1_000.0)
}

/// A running probe.
#[derive(Debug)]
pub(crate) struct Probe {
    stops: Arc<AtomicBool>,
    threads: Vec<(JoinHandle<Late>, JoinHandle<Readings>)>,
}

impl Probe {
    /// Connects as `role` to every core and starts reading.
    pub(crate) fn start(target: &AttackTarget, role: &str) -> Result<Probe, String> {
        let stops = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for core in 0..CORES {
            let connection = connect(target, role, core)
                .map_err(|answer| format!("a probe cannot start: {} {}", answer.label, answer.text))?;
            threads.push(connection.begin(&stops));
        }
        Ok(Probe { stops, threads })
    }

    /// Stops reading and returns the results.
    pub(crate) fn stop(self) -> Readings {
        self.stops.store(true, Ordering::Relaxed);
        let mut sum = Readings::default();
        for (sender, receiver) in self.threads {
            sum.late.add(sender.join().unwrap_or_default());
            if let Ok(readings) = receiver.join() {
                sum.add(readings);
            }
        }
        sum
    }
}

/// A connection to one core, and the frames it sends in turn.
struct ProbeConnection {
    native: Native,
    stream: TcpStream,
    frames: Vec<Vec<u8>>,
    prepare: Vec<u8>,
}

/// Connects until the server assigns a connection to this core.
fn connect(target: &AttackTarget, role: &str, core: u32) -> Result<ProbeConnection, ServerAnswer> {
    let mut others = Vec::new();
    for _ in 0..TRIES {
        let mut native = Native::open(target, FRIEND)?;
        native.log_in(role, Compression::None)?;
        if native.shard == Some(core) {
            return prepared(native, core);
        }
        // Keep it open, so that the server assigns the next core.
        others.push(native);
    }
    Err(ServerAnswer::error("of the probe", &format!("no connection came to core {core}")))
}

fn prepared(mut native: Native, core: u32) -> Result<ProbeConnection, ServerAnswer> {
    let id = native.prepare(TEXT)?;
    let own = |key: &i32| SHARDING.shard_of(schema::token::token(&key.to_be_bytes())) == core;
    let keys: Vec<i32> = (0..PROBE_ROWS).filter(own).collect();
    let frames = keys.iter().map(|key| {
        let mut values = ValuesBuf::new();
        values.push(Value::Bytes(&key.to_be_bytes())).expect("one value fits");
        let params = QueryParams { values: values.values(), skip_metadata: true, ..QueryParams::default() };
        native.encode(0, &Request::Execute(Execute { id: &id, params, ..Execute::default() }))
    });
    let frames = frames.collect();
    let prepare = native.encode(PREPARE_STREAM, &Request::Prepare(Prepare { text: TEXT, keyspace: None }));
    let stream = native.stream.try_clone().map_err(|error| lost(&error))?;
    native.stream.set_read_timeout(Some(WAIT)).map_err(|error| lost(&error))?;
    Ok(ProbeConnection { native, stream, frames, prepare })
}

/// Due time of the read in flight on each stream, by [`now_us`]. Zero: no read.
type InFlight = Arc<Vec<AtomicU64>>;

impl ProbeConnection {
    fn begin(self, stops: &Arc<AtomicBool>) -> (JoinHandle<Late>, JoinHandle<Readings>) {
        let start = now_us();
        let in_flight: InFlight = Arc::new((0..STREAMS).map(|_| AtomicU64::new(0)).collect());
        let ProbeConnection { native, stream, frames, prepare } = self;
        let (sent, ends) = (Arc::clone(&in_flight), Arc::clone(stops));
        let mut writer = stream;
        let again = writer.try_clone();
        let sender = std::thread::spawn(move || {
            let mut late = Late::default();
            for n in 0u64.. {
                let due = start + PERIOD.as_micros() as u64 * n;
                let before = now_us();
                std::thread::sleep(Duration::from_micros(due.saturating_sub(before)));
                // If `before` is past `due`, the server delayed the last write. That is no late
                // wake-up.
                if before <= due {
                    late.record(due, now_us());
                }
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let stream = n % STREAMS;
                sent[stream as usize].store(due, Ordering::Relaxed);
                let frame = on_stream(frames[n as usize % frames.len()].clone(), stream as i16);
                if writer.write_all(&frame).is_err() {
                    break;
                }
            }
            late
        });
        let ends = Arc::clone(stops);
        let receiver = std::thread::spawn(move || receive(native, again.ok(), &prepare, &in_flight, &ends));
        (sender, receiver)
    }
}

fn receive(
    mut native: Native,
    mut writer: Option<TcpStream>,
    prepare: &[u8],
    in_flight: &InFlight,
    ends: &AtomicBool,
) -> Readings {
    let (mut reads, mut failures) = (Vec::new(), Answers::default());
    let mut drains: Option<Instant> = None;
    loop {
        if ends.load(Ordering::Relaxed) {
            let since = *drains.get_or_insert_with(Instant::now);
            let idle = in_flight.iter().all(|sent| sent.load(Ordering::Relaxed) == 0);
            if idle || since.elapsed() > DRAIN {
                break;
            }
        }
        let envelope = match native.envelope() {
            Ok(envelope) => envelope,
            Err(answer) if answer.label == SILENCE => continue,
            Err(answer) => {
                failures.add(answer);
                break;
            }
        };
        let answer = label(&envelope);
        if let Some(sent) = in_flight.get(envelope.stream as usize) {
            let (now, due) = (now_us(), sent.swap(0, Ordering::Relaxed));
            // Zero: the answer to a PREPARE, or one without a request.
            if due > 0 {
                reads.push((now, now.saturating_sub(due)));
            }
        }
        // A server may evict a prepared statement. A driver then prepares it again.
        if answer.label == "error 0x2500"
            && let Some(writer) = &mut writer
        {
            drop(writer.write_all(prepare));
        }
        if answer.is_error() {
            failures.add(answer);
        }
    }
    let now = now_us();
    let left = in_flight.iter().map(|sent| sent.load(Ordering::Relaxed)).filter(|sent| *sent > 0);
    let left: Vec<(u64, u64)> = left.map(|due| (now, now.saturating_sub(due))).collect();
    let unanswered = left.len() as u64;
    reads.extend(left);
    Readings { reads, failures, unanswered, late: Late::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_from_the_sorted_times() {
        let reads = (1..=101).rev().map(|ms| (1_000_000, ms * 1_000)).collect();
        let readings = Readings { reads, unanswered: 2, ..Readings::default() };
        let reads = readings.summary(&Late::default());
        assert_eq!((reads.p50_ms, reads.p99_ms, reads.max_ms), (51.0, 100.0, 101.0));
        assert_eq!((reads.net_p99_ms, reads.net_max_ms), (100.0, 101.0));
        assert_eq!(reads.failures, "unanswered ×2");
        assert_eq!(Readings::default().summary(&Late::default()), Reads::default());
    }

    #[test]
    fn net_times_exclude_late_wake_ups() {
        let readings = Readings { reads: vec![(50_000, 1_000), (90_000, 30_000)], ..Readings::default() };
        let mut late = Late::default();
        late.record(40_000, 85_000);
        let reads = readings.summary(&late.merged());
        assert_eq!((reads.max_ms, reads.net_max_ms), (30.0, 5.0));
    }
}
