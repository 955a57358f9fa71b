//! A SQL load from start to end: opens connections and runs the loops of all workers on one thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::LocalSet;

use super::accounting::{Accounting, QueryOutcome, QueryTally, Sent};
use super::client::Client;
use super::connection::Connection;
use super::report::{self, SqlReport};
use super::spec::SqlSpec;
use crate::LoadError;
use crate::arrivals::{Arrivals, Stretch};
use crate::clock::RunClock;
use crate::run::StopFlag;
use crate::spec::Pacing;
use crate::timeline::{Message, Second, Timeline};

/// Interval at which the end, a stop and the end of a second are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Concurrent handshakes while connecting.
const HANDSHAKES_MAX: usize = 8;

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
    pub(crate) clock: RunClock,
    pub(crate) ended_ns: u64,
    pub(crate) tallies: Vec<crate::tally::Tally>,
    pub(crate) queries: Vec<Vec<QueryTally>>,
}

fn collect(
    messages: &Receiver<Message>,
    clock: RunClock,
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
    started: &Sender<RunClock>,
) -> Result<Totals, LoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| LoadError::System(error.to_string()))?;
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let clients = open_all(spec).await?;
        let clock = RunClock::start();
        // The receiver lives until this thread has ended.
        let _ = started.send(clock);
        clock.wait_for_zero();
        let open = matches!(spec.pacing, Pacing::Open(_));
        let mut rng = SmallRng::seed_from_u64(spec.seed);
        let due = if open { stretches.clone() } else { Vec::new() };
        let arrivals = Arrivals::new(due, &mut rng);
        let connections: Vec<Rc<Connection>> = clients.into_iter().map(Rc::new).collect();
        let load = Rc::new(Load {
            spec: spec.clone(),
            open,
            accounting: RefCell::new(Accounting::new(clock, stretches, spec.queries.len(), messages)),
            arrivals: RefCell::new((arrivals, rng)),
            taken: Cell::new(0),
            over: Cell::new(false),
            exhausted: Cell::new(false),
            permits: Semaphore::new(0),
            due: RefCell::default(),
            next: Mutex::new(()),
            idle: Cell::new(spec.in_flight_max()),
            blocked_ns: Cell::new(None),
            abandon: tokio::sync::Notify::new(),
        });
        if !open {
            let now = load.accounting.borrow().now();
            (0..spec.in_flight_max()).for_each(|_| load.issue(now));
        }
        let mut tasks = Vec::new();
        // Workers send in this order, so that all connections are used.
        for index in 0..workers(spec) {
            let load = load.clone();
            let connection = connections[index % connections.len()].clone();
            tasks.push(tokio::task::spawn_local(async move { load.work(&connection).await }));
        }
        load.supervise(stop, &tasks).await;
        for task in tasks {
            task.await.map_err(|_| LoadError::System("a worker of the generator failed".into()))?;
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

/// Returns the number of workers. In an open loop each may send. In a closed loop the one that has
/// waited longest takes the next query, so that all connections are used.
fn workers(spec: &SqlSpec) -> usize {
    match spec.pacing {
        Pacing::Closed { .. } => spec.in_flight_max().next_multiple_of(spec.concurrency),
        Pacing::Open(_) => spec.in_flight_max(),
    }
}

/// Opens all connections, [`HANDSHAKES_MAX`] at a time.
async fn open_all(spec: &SqlSpec) -> Result<Vec<Connection>, LoadError> {
    let mut clients = Vec::with_capacity(spec.concurrency);
    while clients.len() < spec.concurrency {
        let few = (clients.len()..spec.concurrency).take(HANDSHAKES_MAX);
        let hosts: Vec<&String> = few.map(|index| &spec.hosts[index % spec.hosts.len()]).collect();
        let opening = hosts.iter().map(|host| Client::open(spec, host));
        for (opened, host) in futures_util::future::join_all(opening).await.into_iter().zip(&hosts) {
            clients.push(Connection::new((*host).clone(), opened?));
        }
    }
    Ok(clients)
}

/// State shared by the workers, all on one thread.
struct Load {
    spec: SqlSpec,
    open: bool,
    accounting: RefCell<Accounting>,
    arrivals: RefCell<(Arrivals, SmallRng)>,
    /// Queries that became due, of all workers together.
    taken: Cell<u64>,
    /// True once no more queries may be sent.
    over: Cell<bool>,
    /// True once a closed loop has sent all its rounds.
    exhausted: Cell<bool>,
    /// Closed loop: one for each query in `due`. The semaphore is fair, so that workers
    /// alternate. Closed once no more queries may be sent.
    permits: Semaphore,
    /// Closed loop: queries that are due and not sent yet. They count as in flight, since a query
    /// is due when another is answered: the time until a worker runs is the generator's own work.
    due: RefCell<VecDeque<Sent>>,
    /// Open loop: the worker with the guard waits for the next arrival. The mutex is fair.
    next: Mutex<()>,
    /// Open loop: workers that may send.
    idle: Cell<usize>,
    /// Open loop: time at which a worker became free after all were busy.
    blocked_ns: Cell<Option<u64>>,
    /// Notified to abandon the queries in flight.
    abandon: tokio::sync::Notify,
}

impl Load {
    /// Waits for the end or a stop, then for the last answers. Then abandons the other queries.
    async fn supervise(&self, stop: &StopFlag, tasks: &[tokio::task::JoinHandle<()>]) {
        let all_ended = || tasks.iter().all(tokio::task::JoinHandle::is_finished);
        let all_sent = || self.exhausted.get() && self.accounting.borrow().in_flight() == 0;
        // An open loop lasts for its full time, even after its last arrival.
        while !self.over.get() && !all_sent() {
            tokio::time::sleep(CHECK_INTERVAL).await;
            self.accounting.borrow_mut().roll();
            if stop.is_set() || self.accounting.borrow().stretch().is_none() {
                self.over.set(true);
            }
        }
        self.over.set(true);
        self.permits.close();
        let withdrawn = std::mem::take(&mut *self.due.borrow_mut());
        withdrawn.iter().for_each(|_| self.accounting.borrow_mut().withdraw());
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

    /// Runs the loop of one worker.
    async fn work(&self, connection: &Connection) {
        let mut first = true;
        while let Some(client) = connection.client(&self.spec, &self.over).await {
            if self.open && !std::mem::take(&mut first) {
                self.become_idle();
            }
            let next = if self.open { self.next_arrival().await } else { self.next_due().await };
            let Some(sent) = next else { return };
            self.accounting.borrow_mut().sent(&sent);
            let outcome = tokio::select! {
                outcome = client.run(&self.spec.queries[sent.query].text) => outcome,
                () = self.abandon.notified() => {
                    connection.cancel(&client).await;
                    QueryOutcome::Unanswered
                }
            };
            if let QueryOutcome::Lost { reason } = &outcome
                && connection.lose(&client)
            {
                self.accounting.borrow_mut().broke(sent.stretch, reason.clone());
            }
            let now = self.accounting.borrow_mut().ended(sent, outcome);
            if !self.open {
                self.issue(now);
            }
        }
    }

    /// Closed loop: makes the next query due, unless the run is over.
    fn issue(&self, now: u64) {
        let number = self.taken.get();
        let queries = self.spec.queries.len() as u64;
        if self.spec.rounds > 0 && number >= self.spec.rounds * queries {
            self.exhausted.set(true);
            return;
        }
        let mut accounting = self.accounting.borrow_mut();
        let Some((stretch, _)) = accounting.stretch().filter(|_| !self.over.get()) else { return };
        self.taken.set(number + 1);
        accounting.enter(stretch, now);
        let query = (number % queries) as usize;
        self.due.borrow_mut().push_back(Sent { query, stretch, from_ns: now, sent_ns: now });
        self.permits.add_permits(1);
    }

    /// Closed loop: returns the next query that is due. `None`: the run is over.
    async fn next_due(&self) -> Option<Sent> {
        self.permits.acquire().await.ok()?.forget();
        self.due.borrow_mut().pop_front()
    }

    /// Open loop: counts a worker as free again.
    fn become_idle(&self) {
        if self.idle.get() == 0 {
            self.blocked_ns.set(Some(self.accounting.borrow().now()));
        }
        self.idle.set(self.idle.get() + 1);
    }

    /// Open loop: returns the next query once it is due. `None`: the run is over.
    async fn next_arrival(&self) -> Option<Sent> {
        let _guard = self.next.lock().await;
        loop {
            if self.over.get() {
                return None;
            }
            let (due, stretch) = self.arrivals.borrow().0.peek()?;
            let now = self.accounting.borrow().now();
            if now < due {
                tokio::time::sleep(Duration::from_nanos(due - now).min(CHECK_INTERVAL)).await;
                continue;
            }
            let (arrivals, rng) = &mut *self.arrivals.borrow_mut();
            arrivals.advance(rng);
            let number = self.taken.replace(self.taken.get() + 1);
            let query = (number % self.spec.queries.len() as u64) as usize;
            let sent = Sent { query, stretch, from_ns: due, sent_ns: now };
            let mut accounting = self.accounting.borrow_mut();
            accounting.roll();
            accounting.enter(stretch, now);
            accounting.waited(&sent, self.blocked_ns.get().is_some_and(|blocked| due <= blocked));
            self.idle.set(self.idle.get() - 1);
            return Some(sent);
        }
    }
}
