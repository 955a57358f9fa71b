//! A probe: prepared reads at a fixed rate on one connection to each core, of keys that the core owns. It
//! measures what a polite client of one level feels.
//!
//! 1. A sender sends each read at its time, whatever became of those before.
//! 2. A receiver takes answers and the time that each read took.
//! 3. A read without an answer counts with the time up to the end, so a frozen server cannot look fast.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use schema::Sharding;
use wire::{Compression, Execute, Prepare, QueryParams, Request, Value, ValuesBuf};

use crate::answers::{Answer, Answers, SILENCE};
use crate::dial::FRIEND;
use crate::native::{Native, label, lost, on_stream};
use crate::setup::PROBE_ROWS;
use crate::target::Target;

/// Cores of the server.
pub(crate) const CORES: u32 = 2;
/// The server's rule that gives tokens to cores.
const SHARDING: Sharding = Sharding { shards: CORES, ignore_msb: 12 };
/// Between two reads on one core: 1,000 a second.
const PERIOD: Duration = Duration::from_millis(1);
/// Streams used in turn; so many reads are in flight at most, 30 s of them.
const STREAMS: u64 = 30_000;
/// The stream on which a statement that the server dropped is prepared again.
const PREPARE_STREAM: i16 = 30_001;
/// Connections tried to reach a given core. The server hands them out in turn.
const TRIES: usize = 64;
/// How long answers are waited for after the last read, and how long one wait lasts.
const DRAIN: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_millis(50);

const TEXT: &str = "SELECT v FROM yard.t WHERE k = ?";

/// Results of one probe over all cores.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readings {
    /// Times of all reads, microseconds, ascending.
    times_us: Vec<u64>,
    /// Answers that were not rows.
    pub(crate) failures: Answers,
    pub(crate) unanswered: u64,
}

impl Readings {
    /// The time that `part` of the reads do not exceed, milliseconds. Zero without reads.
    pub(crate) fn quantile_ms(&self, part: f64) -> f64 {
        let last = self.times_us.len().saturating_sub(1);
        let index = (last as f64 * part).round() as usize;
        self.times_us.get(index).map_or(0.0, |us| *us as f64 / 1000.0)
    }

    pub(crate) fn max_ms(&self) -> f64 {
        self.quantile_ms(1.0)
    }

    pub(crate) fn reads(&self) -> usize {
        self.times_us.len()
    }

    pub(crate) fn failed(&self) -> bool {
        self.unanswered > 0 || self.failures.labels().next().is_some()
    }

    fn of(times_us: Vec<u64>, failures: Answers, unanswered: u64) -> Readings {
        let mut readings = Readings { times_us, failures, unanswered };
        readings.times_us.sort_unstable();
        readings
    }

    #[cfg(test)]
    pub(crate) fn of_ms(times_ms: &[u64]) -> Readings {
        Readings::of(times_ms.iter().map(|ms| ms * 1000).collect(), Answers::default(), 0)
    }

    fn add(&mut self, other: Readings) {
        self.times_us.extend(other.times_us);
        self.times_us.sort_unstable();
        other.failures.each(|answer| self.failures.add(answer));
        self.unanswered += other.unanswered;
    }
}

/// A probe at work.
#[derive(Debug)]
pub(crate) struct Probe {
    stops: Arc<AtomicBool>,
    threads: Vec<(JoinHandle<()>, JoinHandle<Readings>)>,
}

impl Probe {
    /// Connects as `role` to every core and begins to read.
    pub(crate) fn start(target: &Target, role: &str) -> Result<Probe, String> {
        let stops = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for core in 0..CORES {
            let connection = connect(target, role, core)
                .map_err(|answer| format!("a probe cannot start: {} {}", answer.label, answer.text))?;
            threads.push(connection.begin(&stops));
        }
        Ok(Probe { stops, threads })
    }

    /// Stops reading and returns what was measured.
    pub(crate) fn stop(self) -> Readings {
        self.stops.store(true, Ordering::Relaxed);
        let mut sum = Readings::default();
        for (sender, receiver) in self.threads {
            drop(sender.join());
            if let Ok(readings) = receiver.join() {
                sum.add(readings);
            }
        }
        sum
    }
}

/// A connection to one core and the frames it sends in turn.
struct Connection {
    native: Native,
    stream: TcpStream,
    frames: Vec<Vec<u8>>,
    prepare: Vec<u8>,
}

/// Connects until the server puts the connection on this core.
fn connect(target: &Target, role: &str, core: u32) -> Result<Connection, Answer> {
    let mut others = Vec::new();
    for _ in 0..TRIES {
        let mut native = Native::open(target, FRIEND)?;
        native.log_in(role, Compression::None)?;
        if native.shard == Some(core) {
            return prepared(native, core);
        }
        // Kept open, so that the server's turn goes on.
        others.push(native);
    }
    Err(Answer::error("of the probe", &format!("no connection came to core {core}")))
}

fn prepared(mut native: Native, core: u32) -> Result<Connection, Answer> {
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
    Ok(Connection { native, stream, frames, prepare })
}

/// When each read in flight was sent, microseconds since the probe's start; zero when there is none.
type InFlight = Arc<Vec<AtomicU64>>;

impl Connection {
    fn begin(self, stops: &Arc<AtomicBool>) -> (JoinHandle<()>, JoinHandle<Readings>) {
        let start = Instant::now();
        let in_flight: InFlight = Arc::new((0..STREAMS).map(|_| AtomicU64::new(0)).collect());
        let Connection { native, stream, frames, prepare } = self;
        let (sent, ends) = (Arc::clone(&in_flight), Arc::clone(stops));
        let mut writer = stream;
        let again = writer.try_clone();
        let sender = std::thread::spawn(move || {
            for n in 0.. {
                let due = PERIOD * n;
                std::thread::sleep(due.saturating_sub(start.elapsed()));
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let stream = u64::from(n) % STREAMS;
                // At least 1: zero means that nothing is in flight.
                let now = start.elapsed().as_micros() as u64 + 1;
                sent[stream as usize].store(now, Ordering::Relaxed);
                let frame = on_stream(frames[n as usize % frames.len()].clone(), stream as i16);
                if writer.write_all(&frame).is_err() {
                    return;
                }
            }
        });
        let ends = Arc::clone(stops);
        let receiver =
            std::thread::spawn(move || receive(native, again.ok(), &prepare, start, &in_flight, &ends));
        (sender, receiver)
    }
}

fn receive(
    mut native: Native,
    mut writer: Option<TcpStream>,
    prepare: &[u8],
    start: Instant,
    in_flight: &InFlight,
    ends: &AtomicBool,
) -> Readings {
    let (mut times, mut failures) = (Vec::new(), Answers::default());
    let mut drains: Option<Instant> = None;
    let now = || start.elapsed().as_micros() as u64 + 1;
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
            times.push(now().saturating_sub(sent.swap(0, Ordering::Relaxed)));
        }
        // A server may drop a prepared statement; a driver prepares it again and repeats the read.
        if answer.label == "error 0x2500"
            && let Some(writer) = &mut writer
        {
            drop(writer.write_all(prepare));
        }
        if answer.is_error() {
            failures.add(answer);
        }
    }
    let left = in_flight.iter().map(|sent| sent.load(Ordering::Relaxed)).filter(|sent| *sent > 0);
    let left: Vec<u64> = left.map(|sent| now().saturating_sub(sent)).collect();
    let unanswered = left.len() as u64;
    times.extend(left);
    Readings::of(times, failures, unanswered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let readings = Readings::of_ms(&(1..=101).rev().collect::<Vec<_>>());
        assert_eq!(readings.quantile_ms(0.5), 51.0);
        assert_eq!(readings.quantile_ms(0.99), 100.0);
        assert_eq!(readings.max_ms(), 101.0);
        assert_eq!(Readings::default().max_ms(), 0.0);
    }
}
