//! The administrator. Once a second: a login that alters a level over CQL, a login and a query over
//! SQL, and a health check over HTTP. Each has a thread of its own, so that a slow one does not
//! delay the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wire::Compression;

use crate::answers::{Answers, ServerAnswer};
use crate::dial::FRIEND;
use crate::http;
use crate::native::Native;
use crate::postgres::Postgres;
use crate::target::{ADMIN, AttackTarget, PASSWORD};

/// Interval between two rounds.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest accepted round.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A way of access: its name, and the function that makes one round.
type Way = (&'static str, fn(&AttackTarget) -> Result<(), ServerAnswer>);

/// All ways of access.
const WAYS: [Way; 3] = [("CQL", over_cql), ("SQL", over_sql), ("health", over_http)];

/// Logs in and alters level `dial`.
fn over_cql(target: &AttackTarget) -> Result<(), ServerAnswer> {
    let mut native = Native::open_for(target, FRIEND, PATIENCE)?;
    native.log_in(ADMIN, Compression::None)?;
    native.must("ALTER SERVICE LEVEL dial WITH shares = 200")
}

/// Logs in and runs a query.
fn over_sql(target: &AttackTarget) -> Result<(), ServerAnswer> {
    let mut postgres = Postgres::open_for(target, FRIEND, PATIENCE)?;
    postgres.log_in(ADMIN, PASSWORD)?;
    let answer = postgres.query("SELECT 1")?;
    if answer.is_error() { Err(answer) } else { Ok(()) }
}

/// Checks that the server reports itself alive.
fn over_http(target: &AttackTarget) -> Result<(), ServerAnswer> {
    let answer = http::get(target, FRIEND, "/health/live", PATIENCE)?;
    if answer.label == "200" { Ok(()) } else { Err(answer) }
}

/// Makes one round by each way of access. Returns the first failure with its way.
pub(crate) fn once(target: &AttackTarget) -> Result<(), String> {
    for (way, run) in WAYS {
        run(target).map_err(|answer| format!("{way}: {} {}", answer.label, answer.text))?;
    }
    Ok(())
}

/// Longest time in which flushes and serving must be back after an attack.
const BACK: Duration = Duration::from_secs(5);

/// Writes and flushes, and makes a round by each way of access, until all of it succeeds. Returns
/// the last failure after [`BACK`].
pub(crate) fn flush(target: &AttackTarget) -> Result<(), String> {
    let started = Instant::now();
    let write = || {
        let mut native = Native::open_for(target, FRIEND, PATIENCE)?;
        native.log_in(ADMIN, Compression::None)?;
        native.must("INSERT INTO yard.b (id, v) VALUES (-1, 'after the attack')")?;
        native.must("FLUSH yard.b")
    };
    loop {
        let outcome = write().map_err(|answer| format!("{} {}", answer.label, answer.text));
        let outcome = outcome.and_then(|()| once(target));
        if outcome.is_ok() || started.elapsed() > BACK {
            return outcome.map_err(|why| format!("{why} ({} s after the attack)", BACK.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Results of one way of access.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visits {
    pub(crate) max_ms: f64,
    pub(crate) rounds: u64,
    pub(crate) failures: Answers,
}

/// A running administrator.
#[derive(Debug)]
pub(crate) struct Admin {
    stops: Arc<AtomicBool>,
    threads: Vec<(&'static str, JoinHandle<Visits>)>,
}

impl Admin {
    pub(crate) fn start(target: AttackTarget) -> Admin {
        let stops = Arc::new(AtomicBool::new(false));
        let begin = |(way, run): Way| {
            let ends = Arc::clone(&stops);
            let visit = move || {
                let mut visits = Visits::default();
                while !ends.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    if let Err(answer) = run(&target) {
                        visits.failures.add(answer);
                    }
                    visits.rounds += 1;
                    visits.max_ms = visits.max_ms.max(start.elapsed().as_secs_f64() * 1000.0);
                    let next = start + PERIOD;
                    while !ends.load(Ordering::Relaxed) && Instant::now() < next {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
                visits
            };
            (way, std::thread::spawn(visit))
        };
        let threads = WAYS.map(begin).into_iter().collect();
        Admin { stops, threads }
    }

    /// Ends the rounds. Returns the results by way of access.
    pub(crate) fn stop(self) -> Vec<(&'static str, Visits)> {
        self.stops.store(true, Ordering::Relaxed);
        let join =
            |(way, thread): (&'static str, JoinHandle<Visits>)| (way, thread.join().unwrap_or_default());
        self.threads.into_iter().map(join).collect()
    }
}
