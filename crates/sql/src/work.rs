//! A statement's way to heavy lanes and back: planned there, its rights checked here, run there a chunk at a time. While it is there, the session
//! waits for what comes first: the work, a cancel request, the end of the time it has, or of the client.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::ParamValues;
use engine::{Action, Outcome, Target};
use lanes::Group;
use workload::{Action as Consequence, Effective, InFlight, Kind, Refused, Ticket, Watch};

use crate::connection::{Connection, End};
use crate::failure::{Failure, state};
use crate::output::Shape;
use crate::plan::{PlanOptions, Planned};
use crate::query::{self, Progress, Running};
use crate::run::Run;
use crate::server::{Live, Query};
use crate::session::{Session, Wrong};
use crate::tasks::{self, Kept, Panicked};

/// Longest wait for a slot where neither level nor session set a time limit.
const PATIENCE: Duration = Duration::from_secs(3600);
/// How often it is looked at whether a statement has gone beyond its level's `query_limit`.
const WATCH_EVERY: Duration = Duration::from_millis(20);

/// A statement at work, in its level.
pub(crate) struct Work {
    effective: Rc<Effective>,
    group: Cell<Group>,
    /// The core whose heavy lane plans it, or runs what is one part of its plan.
    core: usize,
    began: Instant,
    limit: Option<Duration>,
    /// What it computes with, once it runs.
    run: Option<Arc<Run>>,
    /// Its level's `query_limit`.
    watch: RefCell<Option<Watch>>,
    _in_flight: InFlight,
    /// Its slot, if it runs a query: statements of CQL and SQL share a level's.
    slot: Option<Ticket>,
}

impl Session {
    /// Begins work in the level that holds for the session now.
    pub(crate) async fn begin_work(&self) -> Result<Work, Failure> {
        let (effective, group) = self.enter_level().await?;
        let own = self.settings.statement_timeout();
        let limit = own.into_iter().chain(effective.spec.timeout).min();
        let in_flight = self.here.admission.admit(&effective).map_err(|refused| match refused {
            Refused::Overloaded(text) => Failure::new(state::OVERLOADED, text),
            Refused::Hold => {
                let text = format!("The service level '{}' has too much to do.", effective.level.name());
                Failure::new(state::OVERLOADED, text)
            }
        })?;
        let watch = effective.spec.query_limit.clone();
        let watch = watch.map(|limit| Watch::new(effective.level.name().clone(), limit));
        Ok(Work {
            group: Cell::new(group),
            core: lanes::least_loaded_core(),
            began: lanes::time::now(),
            limit,
            run: None,
            watch: RefCell::new(watch),
            _in_flight: in_flight,
            slot: None,
            effective,
        })
    }

    /// Plans a query, and checks that the role may read what it reads.
    pub(crate) async fn plan(
        &self,
        connection: &mut Connection,
        text: &str,
    ) -> Result<Kept<Arc<Planned>>, Wrong> {
        let work = self.begin_work().await?;
        let options = PlanOptions {
            schema: self.settings.schema(),
            user: self.login.role().to_string(),
            time_zone: self.settings.time_zone(),
            scan: self.scan_options(),
        };
        let (sql, text, tables) = (self.sql.clone(), text.to_owned(), self.here.tables());
        let planning = async move { sql.planner().plan(&sql, &text, tables, &options).await };
        let planned = work.on_heavy_lane(self, connection, planning).await??;
        let planned = Kept::new(planned, self.sql.handles(), work.group.get());
        self.authorize(planned.get())?;
        Ok(planned)
    }

    fn authorize(&self, planned: &Planned) -> Result<(), Failure> {
        let target = |(keyspace, table): &(String, String)| Target {
            keyspace: keyspace.clone(),
            table: Some(table.clone()),
            action: Action::Select,
        };
        let targets: Vec<Target> = planned.tables.iter().map(target).collect();
        Ok(self.here.access.authorize(&self.login, &targets)?)
    }

    /// Runs a statement about roles, grants or levels.
    pub(crate) async fn access(&self, text: &str) -> Result<Outcome, Wrong> {
        let work = self.begin_work().await?;
        let outcome = self.here.access.execute_text(&self.login, text).await;
        work.end(outcome.is_err());
        Ok(outcome?)
    }
}

impl Work {
    /// Has the statement seen among those that run, as one that waits for a slot.
    pub(crate) fn show(&self, live: &Live, what: String) {
        let (level, began) = (self.effective.level.name().clone(), self.began);
        live.query.replace(Some(Query { level, began, waits: true, what, run: None }));
    }

    /// It runs now.
    fn show_run(&self, live: &Live, run: &Arc<Run>) {
        if let Some(query) = &mut *live.query.borrow_mut() {
            (query.waits, query.run) = (false, Some(run.clone()));
        }
    }

    /// Waits for a slot of the level, if the level has so many only.
    pub(crate) async fn enter(&mut self, session: &Session, connection: &Connection) -> Result<(), Wrong> {
        let effective = self.effective.clone();
        let patience = self.limit.unwrap_or(PATIENCE);
        let admitting = Box::pin(async move { workload::admit(&effective, patience).await });
        let admitted = self.attend(session, connection, admitting).await?;
        self.slot = Some(admitted.map_err(|refused| Failure::new(state::OVERLOADED, refused.0))?);
        self.core = lanes::least_loaded_core(); // that may have been a while
        Ok(())
    }

    /// Starts a planned query; rights may have changed since it was planned.
    pub(crate) async fn start(
        &mut self,
        session: &Session,
        connection: &mut Connection,
        planned: &Arc<Planned>,
        values: Option<ParamValues>,
        shape: Shape,
    ) -> Result<Kept<Running>, Wrong> {
        session.authorize(planned)?;
        let run = Run::new(&self.effective, session.sql.space());
        self.show_run(&session.live, &run);
        self.run = Some(run.clone());
        let starting = query::start(planned.clone(), values, shape, run);
        let running = self.on_heavy_lane(session, connection, starting).await??;
        Ok(Kept::new(running, session.sql.handles(), self.group.get()))
    }

    /// Adds a chunk of rows to the connection's output: the query again, how many, and how far it is.
    pub(crate) async fn chunk(
        &mut self,
        session: &Session,
        connection: &mut Connection,
        running: Kept<Running>,
        rows_max: u64,
    ) -> Result<(Kept<Running>, u64, Progress), Wrong> {
        let run = running.get().run.clone();
        self.show_run(&session.live, &run);
        self.run = Some(run);
        let mut running = running.take();
        let mut output = connection.take_output();
        let encoding = async move {
            let result = running.chunk(&mut output, rows_max).await;
            (running, output, result)
        };
        let (running, output, result) = self.on_heavy_lane(session, connection, encoding).await?;
        connection.give_output(output);
        let running = Kept::new(running, session.sql.handles(), self.group.get());
        let (rows, progress) = result?;
        Ok((running, rows, progress))
    }

    /// Has work done on the statement's core, and waits for it.
    async fn on_heavy_lane<F>(
        &self,
        session: &Session,
        connection: &Connection,
        work: F,
    ) -> Result<F::Output, Wrong>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let starting = tasks::heavy_on(self.core, session.sql.handles(), self.group.get(), work);
        let task = self.attend(session, connection, Box::pin(starting)).await?;
        let done = self.attend(session, connection, task).await?;
        done.map_err(|Panicked| Failure::new(state::INTERNAL, "the query failed inside the server").into())
    }

    /// Waits for work. If something else comes first, the work is cancelled.
    async fn attend<F: Future + Unpin>(
        &self,
        session: &Session,
        connection: &Connection,
        mut work: F,
    ) -> Result<F::Output, Wrong> {
        let canceled = |why: &str| Wrong::from(Failure::new(state::CANCELED, why));
        loop {
            if session.live.killed.get() {
                let text = "terminating connection: the server is stopping";
                return Err(Failure::fatal(state::SHUTDOWN, text).into());
            }
            if session.live.cancelled.get() {
                return Err(canceled("canceling statement due to user request"));
            }
            self.look(session).await?;
            let left = self.limit.map(|limit| limit.saturating_sub(self.began.elapsed()));
            let look = self.watch.borrow().is_some().then_some(WATCH_EVERY);
            tokio::select! { biased;
                done = &mut work => return Ok(done),
                () = session.live.bell.notified() => {}
                () = connection.gone() => return Err(End::Gone.into()),
                () = wait(look) => {}
                () = wait(left) => return Err(canceled(&self.late())),
            }
        }
    }

    /// Looks whether the statement has gone too far, and does what is to be done then.
    async fn look(&self, session: &Session) -> Result<(), Failure> {
        let (rows, bytes) = self.run.as_ref().map_or((0, 0), |run| (run.rows(), run.bytes()));
        let exceeded = match &mut *self.watch.borrow_mut() {
            Some(watch) => watch.look(self.began.elapsed(), rows, bytes),
            None => None,
        };
        let Some(exceeded) = exceeded else { return Ok(()) };
        let role = session.login.role();
        session.sql.warn(&format!("{exceeded}, by role {role} over SQL: {}", exceeded.action));
        match &exceeded.action {
            Consequence::Cancel => {
                Err(Failure::new(state::CANCELED, format!("{exceeded}. It was cancelled.")))
            }
            Consequence::Log => Ok(()),
            Consequence::Demote(level) => {
                // One that was dropped since has nobody to go to.
                let entry = session.here.access.levels().catalogue().get(level).cloned();
                if let Some(entry) = entry {
                    let group = entry.level.group();
                    self.group.set(group);
                    self.run.iter().for_each(|run| run.move_to(group));
                    lanes::switch_group(group).await;
                }
                Ok(())
            }
        }
    }

    /// Why a statement that took too long was ended.
    fn late(&self) -> String {
        let ms = self.limit.unwrap_or_default().as_millis();
        match (&self.effective.timeout_from, self.effective.spec.timeout) {
            (Some(level), timeout) if timeout == self.limit => {
                format!("canceling statement due to the timeout of service level '{level}' ({ms} ms)")
            }
            _ => format!("canceling statement due to statement timeout ({ms} ms)"),
        }
    }

    /// Counts the statement for its level.
    pub(crate) fn end(self, failed: bool) {
        let service_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.effective.level.record(lanes::current_core(), Kind::Read, service_ns, 0, failed);
    }
}

async fn wait(left: Option<Duration>) {
    match left {
        Some(left) => lanes::time::sleep(left).await,
        None => std::future::pending().await,
    }
}
