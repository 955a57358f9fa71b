//! A run from start to end: creates tables, prepares statements, opens connections, starts workers,
//! and builds the report from their counts.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use crate::LoadError;
use crate::arrivals::Stretch;
use crate::clock::RunClock;
use crate::connector;
use crate::plan::{Channels, Opened, Plan, Templates, prepare_frame};
use crate::report::{self, Report};
use crate::routing::{self, Shards};
use crate::scrape::Scraper;
use crate::session::{Prepared, Session};
use crate::spec::{Pacing, Spec, Workload};
use crate::statement::{self, Role, Template};
use crate::timeline::{Message, Second, Timeline};
use crate::worker::Worker;

/// Concurrent handshakes while connecting. Eight hide the round trips without overloading the
/// server's log-in.
const HANDSHAKES_MAX: usize = 8;

/// Request to stop a run early. Results until then are reported. Clones share one flag.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Returns a flag that is not set.
    pub fn new() -> StopFlag {
        StopFlag::default()
    }

    /// Stops the run within 0.1 s plus its wait for answers.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true after [`StopFlag::set`].
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the inner flag, for a signal handler.
    pub(crate) fn shared(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

/// Runs a load. Calls `observer` with each second after its end, on the calling thread.
///
/// # Errors
/// Fails if the load cannot start: the spec is invalid, a server is unreachable or rejects the
/// log-in, or the table cannot be created. Later failures are counted and not returned.
pub fn run(spec: &Spec, stop: &StopFlag, mut observer: impl FnMut(&Second)) -> Result<Report, LoadError> {
    spec.check()?;
    let spec = Arc::new(spec.clone());
    let (templates, shards) = prepare_all(&spec)?;
    let sockets = connect_all(&spec, &shards)?;
    let clock = RunClock::start_at(spec.begin_unix_ms.unwrap_or_default());
    let plans = plans(&spec, clock, &templates, &shards, sockets);
    let stretches = stretches(&spec);
    let warmup = stretches.len() - spec.steps().len();
    let (message_in, message_out) = channel();
    let (wanted_in, wanted_out) = channel();
    let (ready, mut reopened): (Vec<_>, Vec<_>) =
        plans.iter().map(|_| channel::<(usize, TcpStream)>()).unzip();
    reopened.reverse();
    let spec_ref = &spec;
    let outcome = std::thread::scope(|scope| {
        let connector = spec.clone();
        scope.spawn(move || connector::serve(&connector, &wanted_out, &ready));
        let mut workers = Vec::new();
        for plan in plans {
            let channels = Channels {
                messages: message_in.clone(),
                wanted: wanted_in.clone(),
                reopened: reopened.pop().expect("one channel for each plan"),
                stop: stop.clone(),
            };
            workers.push(scope.spawn(move || Worker::new(plan, channels)?.run()));
        }
        drop((message_in, wanted_in));
        let collected = collect(spec_ref, clock, warmup, stretches.len(), &message_out, &mut observer);
        let mut tallies = Vec::new();
        for worker in workers {
            let outcome = worker.join().map_err(|_| LoadError::System("a worker thread failed".into()))?;
            tallies.push(outcome.map_err(|error| LoadError::System(error.to_string()))?);
        }
        Ok((tallies, collected))
    });
    let (tallies, (seconds, services)) = outcome?;
    let ended = clock.now_ns();
    Ok(report::build(&report::Measured {
        spec: &spec,
        clock,
        ended_ns: ended,
        stopped: stop.is_set(),
        stretches: &stretches,
        warmup,
        tallies,
        seconds,
        services,
    }))
}

/// Collects seconds until every worker has ended. Scrapes the server's metrics before and after
/// the measured steps.
fn collect(
    spec: &Spec,
    clock: RunClock,
    warmup: usize,
    stretches: usize,
    messages: &Receiver<Message>,
    observer: &mut impl FnMut(&Second),
) -> (Vec<Second>, Scraper) {
    let mut timeline = Timeline::new(spec.threads);
    let mut scraper = Scraper::new(spec.metrics.clone());
    let mut seconds = Vec::new();
    let step = |stretch: usize| match stretch {
        stretch if stretch >= stretches => -2,
        stretch => stretch as i64 - warmup as i64,
    };
    if warmup == 0 {
        scraper.begin();
    }
    while let Ok(message) = messages.recv() {
        timeline.push(message);
        while let Some(second) = timeline.pop(step, |ns| clock.unix_ms(ns)) {
            if second.step >= 0 && !scraper.begun() {
                scraper.begin();
            }
            // Skip the empty seconds while waiting for the last answers.
            if second.step != -2 || second.all.ops + second.errors > 0 {
                observer(&second);
                seconds.push(second);
            }
        }
    }
    scraper.end();
    (seconds, scraper)
}

/// Returns the stretches of the run: the warm-up, if any, at the first rate, then the steps.
fn stretches(spec: &Spec) -> Vec<Stretch> {
    let mut at = 0;
    let mut out = Vec::new();
    let steps = spec.steps();
    let first_rate = steps.first().map_or(0.0, |step| step.rate_per_s);
    let mut push = |rate_per_s: f64, seconds: f64| {
        let end = at + (seconds * 1e9) as u64;
        out.push(Stretch { begin_ns: at, end_ns: end, rate_per_s });
        at = end;
    };
    if spec.workload == Workload::Prefill {
        // A prefill ends by itself. 3.2e9 s (a century) stand for "no end".
        push(0.0, 3.2e9);
        return out;
    }
    if spec.warmup_s > 0.0 {
        push(first_rate, spec.warmup_s);
    }
    for step in steps {
        push(step.rate_per_s, step.seconds);
    }
    out
}

/// Creates missing tables, prepares the statements on every host, and reads the sharding of each.
fn prepare_all(spec: &Spec) -> Result<(Vec<Templates>, Vec<Option<Shards>>), LoadError> {
    let mut out = Vec::new();
    let mut shards = Vec::new();
    for host in 0..spec.hosts.len() {
        let mut session = routing::open(spec, host, None)?;
        if host == 0 && spec.create {
            for definition in statement::definitions(&spec.rows) {
                session.query(&definition)?;
            }
        }
        out.push(prepare_on(&mut session, spec)?);
        shards.push(routing::shards(session.supported()).filter(|_| spec.route));
    }
    Ok((out, shards))
}

fn prepare_on(session: &mut Session, spec: &Spec) -> Result<Templates, LoadError> {
    let roles: &[Role] = match spec.workload {
        Workload::Read | Workload::Slice => &[Role::Read],
        Workload::Write | Workload::Prefill => &[Role::Write],
        Workload::Mixed => &[Role::Read, Role::Write],
    };
    let mut templates = Templates::default();
    let mut texts = Vec::new();
    for role in roles {
        let text = statement::text(spec, *role);
        let prepared = prepare(session, spec, &text)?;
        let template = Template::new(spec, *role, &prepared)?;
        match role {
            Role::Read => templates.read = Some(template),
            Role::Write => templates.write = Some(template),
        }
        texts.push(text);
    }
    templates.prepare = prepare_frame(&texts).map_err(|error| LoadError::Usage(error.to_string()))?;
    Ok(templates)
}

fn prepare(session: &mut Session, spec: &Spec, text: &str) -> Result<Prepared, LoadError> {
    session.prepare(text).map_err(|error| match error {
        // The text differs between servers. Code "invalid" without --create means a missing table.
        LoadError::Statement { code: 0x2200, .. } if !spec.create => {
            LoadError::NoTable(statement::table(&spec.rows))
        }
        other => other,
    })
}

/// An open connection with its target.
struct Socket {
    index: usize,
    host: usize,
    shard: Option<(Shards, u32)>,
    owner: Option<u32>,
    stream: TcpStream,
}

/// Returns host and shard for connection `index`. The connections of each worker (index modulo
/// workers) rotate over hosts and shards, so that every worker reaches as many as possible.
fn target(spec: &Spec, shards: &[Option<Shards>], index: usize) -> (usize, Option<(Shards, u32)>) {
    let per_worker = spec.connections.div_ceil(spec.threads);
    let position = (index % spec.threads) * per_worker + index / spec.threads;
    let host = position % spec.hosts.len();
    let shard =
        shards[host].map(|found| (found, (position / spec.hosts.len()) as u32 % found.sharding.shards));
    (host, shard)
}

/// Opens all connections, [`HANDSHAKES_MAX`] at a time.
fn connect_all(spec: &Spec, shards: &[Option<Shards>]) -> Result<Vec<Socket>, LoadError> {
    let next = AtomicUsize::new(0);
    let opened = Mutex::new(Vec::new());
    let connect = || -> Result<(), LoadError> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= spec.connections {
                return Ok(());
            }
            let (host, shard) = target(spec, shards, index);
            let session = routing::open(spec, host, shard)?;
            let owner = routing::shard_of(&session);
            let socket = Socket { index, host, shard, owner, stream: session.into_stream() };
            opened.lock().expect("no thread panics with the guard").push(socket);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..HANDSHAKES_MAX.min(spec.connections)).map(|_| scope.spawn(connect)).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        for result in results {
            result.map_err(|_| LoadError::System("a thread failed while connecting".into()))??;
        }
        Ok(())
    })?;
    let mut opened = opened.into_inner().expect("no thread panicked with the guard");
    opened.sort_by_key(|socket| socket.index);
    Ok(opened)
}

/// Returns part `index` of `of` nearly equal parts of `whole`.
fn share(whole: usize, index: usize, of: usize) -> usize {
    whole / of + usize::from(index < whole % of)
}

/// Distributes connections, rates and limits over the workers: connection i to worker i modulo
/// workers.
///
/// In a closed loop each connection gets an equal part of the requests in flight: 256 in flight
/// over 16 connections are 16 each. With routing by key, a quota per connection would bias the
/// keys. The worker then limits the requests in flight instead.
fn plans(
    spec: &Arc<Spec>,
    clock: RunClock,
    templates: &[Templates],
    shards: &[Option<Shards>],
    sockets: Vec<Socket>,
) -> Vec<Plan> {
    let workers = spec.threads;
    let open = matches!(spec.pacing, Pacing::Open(_));
    // Hosts with different sharding would need the token ring too. Use any connection then.
    let first = shards[0].map(|found| found.sharding);
    let sharding = first.filter(|_| shards.iter().all(|host| host.map(|found| found.sharding) == first));
    let in_flight = match spec.pacing {
        Pacing::Closed { in_flight, .. } => in_flight.min(spec.max_in_flight),
        Pacing::Open(_) => spec.max_in_flight,
    };
    let plan = |worker: usize| Plan {
        worker,
        spec: spec.clone(),
        clock,
        stretches: stretches(spec)
            .into_iter()
            .map(|stretch| Stretch { rate_per_s: stretch.rate_per_s / workers as f64, ..stretch })
            .collect(),
        open,
        in_flight_max: share(in_flight, worker, workers),
        templates: templates.to_vec(),
        sharding,
        connections: Vec::new(),
    };
    let mut plans: Vec<Plan> = (0..workers).map(plan).collect();
    for socket in sockets {
        let Socket { index, host, shard, owner, stream } = socket;
        let quota = match (open, sharding) {
            (true, _) | (_, Some(_)) => spec.streams,
            _ if spec.in_turn => spec.streams,
            _ => share(in_flight, index, spec.connections).min(spec.streams),
        };
        plans[index % workers].connections.push(Opened { host, shard, owner, quota, stream });
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::RateStep;

    #[test]
    fn shares_sum_to_the_whole() {
        for (whole, of) in [(0, 3), (7, 3), (256, 16), (5, 16)] {
            let parts: Vec<usize> = (0..of).map(|index| share(whole, index, of)).collect();
            assert_eq!(parts.iter().sum::<usize>(), whole);
            assert!(parts.iter().max().copied().unwrap_or(0) <= whole / of + 1);
        }
    }

    #[test]
    fn warm_up_uses_the_first_rate() {
        let steps =
            vec![RateStep { rate_per_s: 10.0, seconds: 1.0 }, RateStep { rate_per_s: 20.0, seconds: 2.0 }];
        let spec = Spec { pacing: Pacing::Open(steps), warmup_s: 0.5, ..Spec::default() };
        let found: Vec<_> = stretches(&spec).iter().map(|s| (s.begin_ns, s.end_ns, s.rate_per_s)).collect();
        let ms = 1_000_000;
        assert_eq!(found, [(0, 500 * ms, 10.0), (500 * ms, 1500 * ms, 10.0), (1500 * ms, 3500 * ms, 20.0)]);
    }
}
