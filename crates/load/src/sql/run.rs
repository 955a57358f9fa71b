//! A SQL load from beginning to end: connections, the clients' loops on one thread, and the books they keep.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::task::LocalSet;

use super::book::{Book, Outcome};
use super::client::Client;
use super::report::{self, SqlReport};
use super::spec::SqlSpec;
use crate::LoadError;
use crate::arrivals::{Arrivals, Stretch};
use crate::clock::Clock;
use crate::run::StopFlag;
use crate::spec::Pacing;
use crate::timeline::{Message, Second, Timeline};

/// How often the end, a stop and the turn of a second are looked for.
const TICK: Duration = Duration::from_millis(20);
/// Handshakes under way at once.
const HANDSHAKES_MAX: usize = 8;
/// Between attempts to open a connection again.
const AGAIN: Duration = Duration::from_millis(500);

/// Runs a load. `observer` is called with each second once it is over, on the calling thread.
///
/// # Errors
/// When it cannot be begun: a server cannot be reached or logged in to, a statement of set-up fails. Once queries flow, failures are
/// counted and not returned.
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
        // Nothing comes when the load could not be begun.
        if let Ok(clock) = starting.recv() {
            seconds = collect(&received, clock, warmup, stretches.len(), &mut observer);
        }
        let outcome =
            generator.join().map_err(|_| LoadError::System("the generator's thread failed".into()))?;
        let book = outcome?;
        Ok(report::build(spec, &book, &stretches, warmup, seconds, stop.is_set()))
    })
}

/// What the generator hands back.
pub(crate) struct Books {
    pub(crate) clock: Clock,
    pub(crate) ended_ns: u64,
    pub(crate) tallies: Vec<crate::tally::Tally>,
    pub(crate) queries: Vec<Vec<super::book::OfQuery>>,
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

/// The run in stretches: the warm-up, if any, at the first rate, then the steps.
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

/// The generator's thread.
fn drive(
    spec: &SqlSpec,
    stop: &StopFlag,
    stretches: Vec<Stretch>,
    messages: Sender<Message>,
    started: &Sender<Clock>,
) -> Result<Books, LoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| LoadError::System(error.to_string()))?;
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let clients = open_all(spec).await?;
        let clock = Clock::start();
        // Whoever waits for it lives as long as this thread.
        let _ = started.send(clock);
        clock.wait_for_zero();
        let open = matches!(spec.pacing, Pacing::Open(_));
        let mut rng = SmallRng::seed_from_u64(spec.seed);
        let due = if open { stretches.clone() } else { Vec::new() };
        let arrivals = Arrivals::new(due, &mut rng);
        let load = Rc::new(Load {
            spec: spec.clone(),
            open,
            book: RefCell::new(Book::new(clock, stretches, spec.queries.len(), messages)),
            arrivals: RefCell::new((arrivals, rng)),
            turn: Cell::new(0),
            over: Cell::new(false),
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
        let mut book = load.book.borrow_mut();
        book.end();
        Ok(Books {
            clock,
            ended_ns: book.now(),
            tallies: std::mem::take(&mut book.tallies),
            queries: std::mem::take(&mut book.queries),
        })
    })
}

/// Opens all connections, a few at a time.
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

/// What the clients share; all on one thread.
struct Load {
    spec: SqlSpec,
    open: bool,
    book: RefCell<Book>,
    arrivals: RefCell<(Arrivals, SmallRng)>,
    /// Queries taken, all clients together.
    turn: Cell<u64>,
    /// Nothing more is to be sent.
    over: Cell<bool>,
    /// What is under way is to be given up.
    abandon: tokio::sync::Notify,
}

/// A query a client is to run, when, and whether that is past.
struct Next {
    query: usize,
    stretch: usize,
    due_ns: Option<u64>,
    late: bool,
}

impl Load {
    /// Waits for the end or a stop, then for the last answers, and then has the rest given up.
    async fn supervise(&self, stop: &StopFlag, tasks: &[tokio::task::JoinHandle<()>]) {
        let all_ended = || tasks.iter().all(tokio::task::JoinHandle::is_finished);
        // Behind its last arrival an open loop still lasts as long as it was to last.
        while !self.over.get() && (self.open || !all_ended()) {
            tokio::time::sleep(TICK).await;
            self.book.borrow_mut().roll();
            if stop.is_set() || self.book.borrow().stretch().is_none() {
                self.over.set(true);
            }
        }
        self.over.set(true);
        self.count_unsent();
        let wait_from = {
            let mut book = self.book.borrow_mut();
            book.wait_only();
            book.now()
        };
        let until = wait_from + (self.spec.drain_s * 1e9) as u64;
        while !all_ended() && self.book.borrow().now() < until {
            tokio::time::sleep(TICK).await;
            self.book.borrow_mut().roll();
        }
        self.abandon.notify_waiters();
        while !all_ended() {
            tokio::time::sleep(TICK).await;
            self.abandon.notify_waiters();
        }
    }

    /// Whatever was due by now and never left is counted, arrival by arrival.
    fn count_unsent(&self) {
        let mut book = self.book.borrow_mut();
        let now = book.now();
        let (arrivals, rng) = &mut *self.arrivals.borrow_mut();
        while let Some((due, stretch)) = arrivals.peek() {
            if due > now {
                return;
            }
            book.unsent(stretch);
            arrivals.advance(rng);
        }
    }

    /// One connection's loop.
    async fn client(&self, index: usize, client: Client) {
        let host = self.spec.hosts[index % self.spec.hosts.len()].clone();
        let mut client = Some(client);
        while !self.over.get() {
            let Some(open) = &client else {
                match Client::open(&self.spec, &host).await {
                    Ok(opened) => client = Some(opened),
                    Err(_) => tokio::time::sleep(AGAIN).await,
                }
                continue;
            };
            let Some(next) = self.next().await else { return };
            let sent = self.book.borrow_mut().sent(next.query, next.stretch, next.due_ns, next.late);
            let outcome = tokio::select! {
                outcome = open.run(&self.spec.queries[next.query].text) => outcome,
                () = self.abandon.notified() => {
                    open.cancel().await;
                    Outcome::Unanswered
                }
            };
            let lost = matches!(outcome, Outcome::Lost { .. });
            self.book.borrow_mut().ended(sent, outcome);
            if lost {
                client = None;
            }
        }
    }

    /// The next query for a client that is free, once it is due; nothing when the run is over.
    async fn next(&self) -> Option<Next> {
        if !self.open {
            let turn = self.turn.get();
            let queries = self.spec.queries.len() as u64;
            self.turn.set(turn + 1);
            if self.spec.rounds > 0 && turn >= self.spec.rounds * queries {
                return None;
            }
            let (stretch, _) = {
                let mut book = self.book.borrow_mut();
                book.roll();
                book.stretch()?
            };
            return Some(Next { query: (turn % queries) as usize, stretch, due_ns: None, late: false });
        }
        let (due, stretch) = {
            let (arrivals, rng) = &mut *self.arrivals.borrow_mut();
            let next = arrivals.peek()?;
            arrivals.advance(rng);
            next
        };
        let turn = self.turn.replace(self.turn.get() + 1);
        let query = (turn % self.spec.queries.len() as u64) as usize;
        let late = self.book.borrow().now() > due;
        loop {
            let now = self.book.borrow().now();
            if now >= due {
                return Some(Next { query, stretch, due_ns: Some(due), late });
            }
            if self.over.get() {
                return None;
            }
            tokio::time::sleep(Duration::from_nanos(due - now).min(TICK)).await;
        }
    }
}
