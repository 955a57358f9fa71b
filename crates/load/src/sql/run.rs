//! A SQL load from start to end: opens connections and runs the loops of all clients on one thread.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use super::accounting::{Accounting, Outcome, QueryTally};
use super::client::Client;
use super::report::{self, SqlReport};
use super::spec::SqlSpec;
use crate::LoadError;
use crate::arrivals::{Arrivals, Stretch};
use crate::clock::Clock;
use crate::run::StopFlag;
use crate::spec::Pacing;
use crate::timeline::{Message, Second, Timeline};

/// Interval at which the end, a stop and the end of a second are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Concurrent handshakes while connecting.
const HANDSHAKES_MAX: usize = 8;
/// Wait between attempts to open a connection again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Runs a load. Calls `observer` with each second after its end, on the calling thread.
///
/// # Errors
/// Fails if the load cannot start: a server is unreachable or rejects the log-in, or a statement of
/// the set-up fails. Later failures are counted and not returned.
pub fn run(
    spec: &SqlSpec,
    stop: &StopFlag,
    mut observer: impl FnMut(&Second),
) -> Result<SqlReport, LoadError> {
    let stretches = stretches(spec);
    let warmup = stretches.len() - spec.steps().len();
    let (messages, received) = channel();
    let (started, starting) = channel();
    std::thread::scope(|scope| {
        let generator = {
            let stretches = stretches.clone();
            scope.spawn(move || drive(spec, stop, stretches, messages, &started))
        };
        let mut seconds = Vec::new();
        // An error means that the load could not start. `outcome` then has the reason.
        if let Ok(clock) = starting.recv() {
            seconds = collect(&received, clock, warmup, stretches.len(), &mut observer);
        }
        let outcome =
            generator.join().map_err(|_| LoadError::System("the generator's thread failed".into()))?;
        let totals = outcome?;
        Ok(report::build(spec, &totals, &stretches, warmup, seconds, stop.is_set()))
    })
}

/// Counts of a finished run.
pub(crate) struct Totals {
    pub(crate) clock: Clock,
    pub(crate) ended_ns: u64,
    pub(crate) tallies: Vec<crate::tally::Tally>,
    pub(crate) queries: Vec<Vec<QueryTally>>,
}

fn collect(
    messages: &Receiver<Message>,
    clock: Clock,
    warmup: usize,
    stretches: usize,
    observer: &mut impl FnMut(&Second),
) -> Vec<Second> {
    let mut timeline = Timeline::new(1);
    let mut seconds = Vec::new();
    let step = |stretch: usize| match stretch {
        stretch if stretch >= stretches => -2,
        stretch => stretch as i64 - warmup as i64,
    };
    while let Ok(message) = messages.recv() {
        timeline.push(message);
        while let Some(second) = timeline.pop(step, |ns| clock.unix_ms(ns)) {
            if second.step != -2 || second.all.ops + second.errors > 0 {
                observer(&second);
                seconds.push(second);
            }
        }
    }
    seconds
}

/// Returns the stretches of the run: the warm-up, if any, at the first rate, then the steps.
fn stretches(spec: &SqlSpec) -> Vec<Stretch> {
    let steps = spec.steps();
    let first_rate = steps.first().map_or(0.0, |step| step.rate_per_s);
    let warmup = (spec.warmup_s > 0.0).then_some((first_rate, spec.warmup_s));
    let mut at = 0;
    let parts = warmup.into_iter().chain(steps.iter().map(|step| (step.rate_per_s, step.seconds)));
    let stretch = |(rate_per_s, seconds): (f64, f64)| {
        let begin_ns = at;
        at += (seconds * 1e9) as u64;
        Stretch { begin_ns, end_ns: at, rate_per_s }
    };
    parts.map(stretch).collect()
}

/// Runs the generator's thread.
fn drive(
    spec: &SqlSpec,
    stop: &StopFlag,
    stretches: Vec<Stretch>,
    messages: Sender<Message>,
    started: &Sender<Clock>,
) -> Result<Totals, LoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| LoadError::System(error.to_string()))?;
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let clients = open_all(spec).await?;
        let clock = Clock::start();
        // The receiver lives until this thread has ended.
        let _ = started.send(clock);
        clock.wait_for_zero();
        let open = matches!(spec.pacing, Pacing::Open(_));
        let mut rng = SmallRng::seed_from_u64(spec.seed);
        let due = if open { stretches.clone() } else { Vec::new() };
        let arrivals = Arrivals::new(due, &mut rng);
        let load = Rc::new(Load {
            spec: spec.clone(),
            open,
            accounting: RefCell::new(Accounting::new(clock, stretches, spec.queries.len(), messages)),
            arrivals: RefCell::new((arrivals, rng)),
            taken: Cell::new(0),
            over: Cell::new(false),
            permits: Semaphore::new(permits(spec)),
            abandon: tokio::sync::Notify::new(),
        });
        let mut tasks = Vec::new();
        for (index, client) in clients.into_iter().enumerate() {
            let load = load.clone();
            tasks.push(tokio::task::spawn_local(async move { load.client(index, client).await }));
        }
        load.supervise(stop, &tasks).await;
        for task in tasks {
            task.await.map_err(|_| LoadError::System("a client of the generator failed".into()))?;
        }
        let mut accounting = load.accounting.borrow_mut();
        accounting.end();
        Ok(Totals {
            clock,
            ended_ns: accounting.now(),
            tallies: std::mem::take(&mut accounting.tallies),
            queries: std::mem::take(&mut accounting.queries),
        })
    })
}

/// Returns the number of queries that may be in flight. A connection has at most one.
fn permits(spec: &SqlSpec) -> usize {
    match spec.pacing {
        Pacing::Closed { in_flight, .. } => in_flight.min(spec.concurrency),
        Pacing::Open(_) => spec.concurrency,
    }
}

/// Opens all connections, [`HANDSHAKES_MAX`] at a time.
async fn open_all(spec: &SqlSpec) -> Result<Vec<Client>, LoadError> {
    let mut clients = Vec::with_capacity(spec.concurrency);
    while clients.len() < spec.concurrency {
        let few = (clients.len()..spec.concurrency).take(HANDSHAKES_MAX);
        let opening = few.map(|index| Client::open(spec, &spec.hosts[index % spec.hosts.len()]));
        for opened in futures_util::future::join_all(opening).await {
            clients.push(opened?);
        }
    }
    Ok(clients)
}

/// State shared by the clients, all on one thread.
struct Load {
    spec: SqlSpec,
    open: bool,
    accounting: RefCell<Accounting>,
    arrivals: RefCell<(Arrivals, SmallRng)>,
    /// Queries started by all clients together.
    taken: Cell<u64>,
    /// True once no more queries may be sent.
    over: Cell<bool>,
    /// Queries that may be in flight. The semaphore is fair, so that connections take turns. Closed
    /// once no more queries may be sent.
    permits: Semaphore,
    /// Notified to abandon the queries in flight.
    abandon: tokio::sync::Notify,
}

/// The next query of a client: when it is due, and whether it is late.
struct Next {
    query: usize,
    stretch: usize,
    due_ns: Option<u64>,
    late: bool,
}

impl Load {
    /// Waits for the end or a stop, then for the last answers. Then abandons the other queries.
    async fn supervise(&self, stop: &StopFlag, tasks: &[tokio::task::JoinHandle<()>]) {
        let all_ended = || tasks.iter().all(tokio::task::JoinHandle::is_finished);
        // An open loop lasts for its full time, even after its last arrival.
        while !self.over.get() && (self.open || !all_ended()) {
            tokio::time::sleep(CHECK_INTERVAL).await;
            self.accounting.borrow_mut().roll();
            if stop.is_set() || self.accounting.borrow().stretch().is_none() {
                self.over.set(true);
            }
        }
        self.over.set(true);
        self.permits.close();
        self.count_unsent();
        let wait_from = {
            let mut accounting = self.accounting.borrow_mut();
            accounting.wait_only();
            accounting.now()
        };
        let until = wait_from + (self.spec.drain_s * 1e9) as u64;
        while !all_ended() && self.accounting.borrow().now() < until {
            tokio::time::sleep(CHECK_INTERVAL).await;
            self.accounting.borrow_mut().roll();
        }
        self.abandon.notify_waiters();
        while !all_ended() {
            tokio::time::sleep(CHECK_INTERVAL).await;
            self.abandon.notify_waiters();
        }
    }

    /// Counts every arrival that is due by now and was never sent.
    fn count_unsent(&self) {
        let mut accounting = self.accounting.borrow_mut();
        let now = accounting.now();
        let (arrivals, rng) = &mut *self.arrivals.borrow_mut();
        while let Some((due, stretch)) = arrivals.peek() {
            if due > now {
                return;
            }
            accounting.unsent(stretch);
            arrivals.advance(rng);
        }
    }

    /// Runs the loop of one connection.
    async fn client(&self, index: usize, client: Client) {
        let host = self.spec.hosts[index % self.spec.hosts.len()].clone();
        let mut client = Some(client);
        while !self.over.get() {
            let Some(open) = &client else {
                match Client::open(&self.spec, &host).await {
                    Ok(opened) => client = Some(opened),
                    Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
                }
                continue;
            };
            let Ok(_permit) = self.permits.acquire().await else { return };
            let Some(next) = self.next().await else { return };
            let sent = self.accounting.borrow_mut().sent(next.query, next.stretch, next.due_ns, next.late);
            let outcome = tokio::select! {
                outcome = open.run(&self.spec.queries[next.query].text) => outcome,
                () = self.abandon.notified() => {
                    open.cancel().await;
                    Outcome::Unanswered
                }
            };
            let lost = matches!(outcome, Outcome::Lost { .. });
            self.accounting.borrow_mut().ended(sent, outcome);
            if lost {
                client = None;
            }
        }
    }

    /// Returns the next query for a free client once it is due. `None`: the run is over.
    async fn next(&self) -> Option<Next> {
        if !self.open {
            let number = self.taken.get();
            let queries = self.spec.queries.len() as u64;
            self.taken.set(number + 1);
            if self.spec.rounds > 0 && number >= self.spec.rounds * queries {
                return None;
            }
            let (stretch, _) = {
                let mut accounting = self.accounting.borrow_mut();
                accounting.roll();
                accounting.stretch()?
            };
            return Some(Next { query: (number % queries) as usize, stretch, due_ns: None, late: false });
        }
        let (due, stretch) = {
            let (arrivals, rng) = &mut *self.arrivals.borrow_mut();
            let next = arrivals.peek()?;
            arrivals.advance(rng);
            next
        };
        let number = self.taken.replace(self.taken.get() + 1);
        let query = (number % self.spec.queries.len() as u64) as usize;
        let late = self.accounting.borrow().now() > due;
        loop {
            let now = self.accounting.borrow().now();
            if now >= due {
                return Some(Next { query, stretch, due_ns: Some(due), late });
            }
            if self.over.get() {
                return None;
            }
            tokio::time::sleep(Duration::from_nanos(due - now).min(CHECK_INTERVAL)).await;
        }
    }
}
