//! The administrator: once a second a new login that alters a level, over CQL; a new login and a query, over
//! SQL; and a health check, over HTTP. Each runs on a thread of its own, so that one cannot hide another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wire::Compression;

use crate::answers::{Answer, Answers};
use crate::dial::FRIEND;
use crate::http;
use crate::native::Native;
use crate::postgres::Postgres;
use crate::target::{ADMIN, PASSWORD, Target};

/// Between two rounds.
const PERIOD: Duration = Duration::from_secs(1);
/// A round that takes longer has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// One way in: its name, and a round on it.
type Way = (&'static str, fn(&Target) -> Result<(), Answer>);

/// The administrator's ways in.
const WAYS: [Way; 3] = [("CQL", over_cql), ("SQL", over_sql), ("health", over_http)];

/// Logs in, alters the level `dial`.
fn over_cql(target: &Target) -> Result<(), Answer> {
    let mut native = Native::open_for(target, FRIEND, PATIENCE)?;
    native.log_in(ADMIN, Compression::None)?;
    native.must("ALTER SERVICE LEVEL dial WITH shares = 200")
}

/// Logs in, runs a query.
fn over_sql(target: &Target) -> Result<(), Answer> {
    let mut postgres = Postgres::open_for(target, FRIEND, PATIENCE)?;
    postgres.log_in(ADMIN, PASSWORD)?;
    let answer = postgres.query("SELECT 1")?;
    if answer.is_error() { Err(answer) } else { Ok(()) }
}

/// Asks whether the server lives.
fn over_http(target: &Target) -> Result<(), Answer> {
    let answer = http::get(target, FRIEND, "/health/live", PATIENCE)?;
    if answer.label == "200" { Ok(()) } else { Err(answer) }
}

/// One round on each way, one after the other; the first failure with its way.
pub(crate) fn once(target: &Target) -> Result<(), String> {
    for (way, run) in WAYS {
        run(target).map_err(|answer| format!("{way}: {} {}", answer.label, answer.text))?;
    }
    Ok(())
}

/// The results of one way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visits {
    pub(crate) max_ms: f64,
    pub(crate) rounds: u64,
    pub(crate) failures: Answers,
}

/// The administrator at work.
#[derive(Debug)]
pub(crate) struct Admin {
    stops: Arc<AtomicBool>,
    threads: Vec<(&'static str, JoinHandle<Visits>)>,
}

impl Admin {
    pub(crate) fn start(target: Target) -> Admin {
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

    /// Ends the rounds; the results by way.
    pub(crate) fn stop(self) -> Vec<(&'static str, Visits)> {
        self.stops.store(true, Ordering::Relaxed);
        let join =
            |(way, thread): (&'static str, JoinHandle<Visits>)| (way, thread.join().unwrap_or_default());
        self.threads.into_iter().map(join).collect()
    }
}
