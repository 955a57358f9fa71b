//! The client: a program that takes commands in order and runs them with the library `batcher`,
//! over the driver `scylla` and the delay line. It is one thread with a runtime.

use std::collections::HashMap;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use batcher::{Batcher, CqlStore, Handle, Limits, Strategy};
use load::StopFlag;
use scylla::client::PoolSize;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::response::PagingState;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::keys::{Change, Key, Keys, Model, Random, RowValues};
use super::observed::{Commands, CountedStore, OperationCounts, in_flight};
use crate::error::DemoError;
use crate::metrics::now_s;
use crate::results::{Batches, InFlight, Point, WindowLoad};
use crate::server::ADMIN;
use crate::stage::KEYSPACE;

/// Time after which commands that were accepted must have ended.
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// Time between two checks: of Ctrl-C, and whether commands have ended. It is the resolution of the
/// runtime's timers.
const CHECK_EVERY: Duration = Duration::from_millis(1);
/// A point of the charts each second.
const SECOND: Duration = Duration::from_secs(1);
/// Columns of the table beside its key.
const COLUMNS: [&str; 2] = ["changes", "digest"];

pub(super) fn failed(error: impl std::fmt::Display) -> DemoError {
    DemoError::Failed(error.to_string())
}

/// Way of running the commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) strategy: Strategy<Key>,
    pub(super) limits: Limits,
}

/// Results of a phase.
#[derive(Debug, Default)]
pub(super) struct Phase {
    pub(super) begin_s: f64,
    pub(super) end_s: f64,
    pub(super) load: WindowLoad,
    pub(super) batches: Batches,
    pub(super) points: Vec<Point>,
    pub(super) in_flight: Vec<InFlight>,
}

/// A client with its table.
pub(super) struct Client {
    session: Arc<Session>,
    handle: Handle<CountedStore, Change>,
    table: String,
    counts: Rc<OperationCounts>,
    commands: Rc<Commands>,
    model: Model,
    random: Random,
    pushed: u64,
    in_flight_limit: u64,
    stop: StopFlag,
}

/// Runs a program of the client on a runtime of this thread.
pub(super) fn on_runtime<T>(program: impl Future<Output = Result<T, DemoError>>) -> Result<T, DemoError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    tokio::task::LocalSet::new().block_on(&runtime, program)
}

/// Returns the CPU time of this thread, seconds. 0 if the kernel does not tell.
fn cpu_s() -> f64 {
    server_process::kernel::thread_cpu_s(Path::new("/proc/thread-self")).unwrap_or(0.0)
}

impl Client {
    /// Connects through `address` and starts a batcher over an empty table.
    pub(super) async fn start(
        address: &str,
        password: &str,
        table: &str,
        way: Way,
        stop: &StopFlag,
    ) -> Result<Client, DemoError> {
        let one = std::num::NonZeroUsize::MIN;
        let builder = SessionBuilder::new()
            .known_node(address)
            .user(ADMIN, password)
            .pool_size(PoolSize::PerHost(one))
            .disallow_shard_aware_port(true);
        let session = Arc::new(builder.build().await.map_err(failed)?);
        let create = format!(
            "CREATE TABLE IF NOT EXISTS {KEYSPACE}.{table} (id int PRIMARY KEY, changes bigint, digest bigint)"
        );
        session.query_unpaged(create, ()).await.map_err(failed)?;
        let store = CqlStore::new(session.clone(), KEYSPACE, table, &COLUMNS).await.map_err(failed)?;
        let counts = Rc::new(OperationCounts::new());
        let counted = CountedStore { store, counts: counts.clone() };
        let (handle, drive) = Batcher::new(counted, way.limits).with_strategy(way.strategy).start();
        // A failure of the batcher is also the answer to its commands.
        tokio::task::spawn_local(async move { drop(drive.await) });
        Ok(Client {
            session,
            handle,
            table: table.to_string(),
            counts,
            commands: Rc::default(),
            model: Model::default(),
            random: Random(1),
            pushed: 0,
            in_flight_limit: way.limits.iops_in_flight as u64,
            stop: stop.clone(),
        })
    }

    /// Runs commands over keys for some time, at a rate or without pause. Waits until all have
    /// ended, and compares the table with the model.
    pub(super) async fn phase(
        &mut self,
        keys: &Keys,
        per_s: Option<f64>,
        seconds: f64,
    ) -> Result<Phase, DemoError> {
        self.commands.clear();
        self.counts.take();
        let begin = Instant::now();
        let begin_s = now_s();
        let cpu_before_s = cpu_s();
        let end = begin + Duration::from_secs_f64(seconds);
        let pushed_before = self.pushed;
        let ticks = tokio::task::spawn_local(ticks(self.commands.clone(), self.counts.clone(), end));
        self.feed(keys, per_s, begin, end).await?;
        sleep_until(end).await;
        let (points, in_flight, batches) = ticks.await.map_err(failed)?;
        let (ended, latency) = self.commands.phase();
        let (end_s, used_s) = (now_s(), cpu_s() - cpu_before_s);
        let pushed = self.pushed - pushed_before;
        self.drain().await?;
        // The rest of the phase's commands, which ended after it, is in no result.
        let wrong = self.model.differences(&self.table().await?) as u64 + self.commands.wrong.take();
        let asked_per_s = per_s.map(|per_s| per_s + keys.backlog as f64 / seconds);
        let due = asked_per_s.map_or(pushed, |per_s| (per_s * seconds) as u64);
        Ok(Phase {
            begin_s,
            end_s,
            load: WindowLoad {
                load: crate::names::COMMANDS.to_string(),
                throughput_per_s: ended as f64 / seconds,
                asked_per_s,
                latency: Some(latency),
                generator_cpu: used_s / (end_s - begin_s).max(1e-9),
                ..WindowLoad::default()
            },
            batches: Batches {
                window: keys.id.to_string(),
                keys: keys.count,
                left: due.saturating_sub(pushed),
                // A read and a write each.
                asked: 2 * ended as u64,
                in_flight_limit: self.in_flight_limit,
                rows: self.model.rows() as u64,
                wrong,
                ..batches
            },
            points,
            in_flight,
        })
    }

    /// Pushes the commands that are due between `begin` and `end`.
    async fn feed(
        &mut self,
        keys: &Keys,
        per_s: Option<f64>,
        begin: Instant,
        end: Instant,
    ) -> Result<(), DemoError> {
        let first = self.pushed;
        loop {
            let due = match per_s {
                Some(per_s) => {
                    let of_rate = (self.pushed - first).saturating_sub(keys.backlog);
                    begin + Duration::from_secs_f64(of_rate as f64 / per_s)
                }
                None => Instant::now(),
            };
            while due > Instant::now() && due < end {
                self.check()?;
                sleep(CHECK_EVERY).await;
            }
            if due.max(Instant::now()) >= end {
                return self.check();
            }
            let change = Change { key: keys.draw(&mut self.random), number: self.pushed };
            // Waits while the batcher is full. The command that waits at the end has no place.
            let Ok(pushed) = timeout_at(end, self.handle.push(change)).await else { return self.check() };
            let reply = pushed.map_err(failed)?;
            self.pushed += 1;
            let expected = self.model.run(change);
            let commands = self.commands.clone();
            commands.open.set(commands.open.get() + 1);
            tokio::task::spawn_local(async move {
                match reply.await {
                    Ok(row) if row == expected => {}
                    Ok(_) => commands.wrong.set(commands.wrong.get() + 1),
                    Err(error) => drop(commands.failure.borrow_mut().get_or_insert(error.to_string())),
                }
                commands.ended(due.elapsed().as_secs_f64() * 1e6);
                commands.open.set(commands.open.get() - 1);
            });
            if self.pushed.is_multiple_of(256) {
                self.check()?;
                // Without pause, the queue is full before another task runs.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Waits until all accepted commands have ended.
    async fn drain(&self) -> Result<(), DemoError> {
        let until = Instant::now() + DRAIN_MAX;
        while self.commands.open.get() > 0 {
            self.check()?;
            if Instant::now() > until {
                return Err(failed(format!(
                    "{} commands had not ended {} s after their phase.",
                    self.commands.open.get(),
                    DRAIN_MAX.as_secs()
                )));
            }
            sleep(CHECK_EVERY).await;
        }
        Ok(())
    }

    /// Fails after Ctrl-C, or after a failure of the batcher.
    fn check(&self) -> Result<(), DemoError> {
        if self.stop.is_set() {
            return Err(DemoError::Interrupted);
        }
        self.commands.failure.borrow().as_ref().map_or(Ok(()), |reason| Err(failed(reason)))
    }

    /// Reads the table.
    async fn table(&self) -> Result<HashMap<Key, RowValues>, DemoError> {
        let select = format!("SELECT id, changes, digest FROM {KEYSPACE}.{}", self.table);
        let prepared = self.session.prepare(select).await.map_err(failed)?;
        let (mut found, mut state) = (HashMap::new(), PagingState::start());
        loop {
            self.check()?;
            let page = self.session.execute_single_page(&prepared, (), state).await;
            let (page, next) = page.map_err(failed)?;
            let page = page.into_rows_result().map_err(failed)?;
            for row in page.rows::<(i32, i64, i64)>().map_err(failed)? {
                let (id, changes, digest) = row.map_err(failed)?;
                found.insert((id,), (changes, digest));
            }
            match next.into_paging_control_flow() {
                std::ops::ControlFlow::Break(()) => return Ok(found),
                std::ops::ControlFlow::Continue(next) => state = next,
            }
        }
    }
}

/// Returns a point for each second until `end`, and the operations of the whole phase.
async fn ticks(
    commands: Rc<Commands>,
    counts: Rc<OperationCounts>,
    end: Instant,
) -> (Vec<Point>, Vec<InFlight>, Batches) {
    let mut points = Vec::new();
    let mut flights = Vec::new();
    let mut all = Batches::default();
    let mut last = Instant::now();
    let mut sum_s = 0.0;
    let mut whole_s = 0.0;
    while last < end {
        sleep_until((last + SECOND).min(end)).await;
        let now = Instant::now();
        let seconds = (now - last).as_secs_f64();
        last = now;
        let taken = counts.take();
        points.push(commands.second(seconds));
        flights.push(in_flight(taken, seconds));
        all.operations += taken.done;
        all.in_flight_most = all.in_flight_most.max(taken.most);
        sum_s += taken.mean * seconds;
        whole_s += seconds;
    }
    all.in_flight_mean = sum_s / f64::max(whole_s, 1e-9);
    (points, flights, all)
}
