//! A statement's way to heavy lanes and back: planned there, its rights checked here, run there a chunk at a time. While it is there, the session
//! waits for what comes first: the work, a cancel request, the end of the time it has, or of the client.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::ParamValues;
use engine::{About, Action, Outcome, StatementState, Target};
use lanes::Group;
use workload::{Action as Consequence, Effective, InFlight, Kind, Level, Refused, Ticket, Watch};

use crate::config::SqlConfig;
use crate::connection::{Connection, End};
use crate::failure::{Failure, state};
use crate::output::Shape;
use crate::plan::{PlanOptions, Planned};
use crate::query::{self, Progress, Running};
use crate::run::Run;
use crate::server::{Cancel, Live, Query};
use crate::session::{Session, Wrong};
use crate::tasks::{self, Kept, Panicked};

/// How often it is looked at whether a statement has gone beyond its level's `query_limit`, and whether its level was altered.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A statement at work, in its level.
pub(crate) struct Work {
    rules: RefCell<Rules>,
    group: Cell<Group>,
    /// The core whose heavy lane plans it, or runs what is one part of its plan.
    core: usize,
    began: Instant,
    /// When its client last asked for rows, or had them: its time is limited from then on.
    since: Instant,
    /// How long it ran before that.
    ran: Duration,
    is_suspended: bool,
    /// What it computes with, once it runs.
    run: Option<Arc<Run>>,
    /// How it is seen by others, if it is.
    shown: Option<Rc<RefCell<Query>>>,
    /// Ends its functions with it.
    end: tasks::End,
    _in_flight: InFlight,
    /// Its slot, if it runs a query: statements of CQL and SQL share a level's.
    slot: Option<Rc<Ticket>>,
}

/// What holds for a statement, as its level says now.
struct Rules {
    effective: Rc<Effective>,
    /// Of the catalog, which it was said in.
    version: u64,
    /// The level that the session had chosen when the statement began, and its own limit then.
    chosen: Option<String>,
    own_limit: Option<Duration>,
    /// The server's limits: where neither session nor level sets one, and the one that holds for all.
    default_limit: Duration,
    limit_max: Duration,
    /// The level's `query_limit`, unless the statement went beyond it already.
    watch: Option<Watch>,
}

impl Rules {
    fn new(session: &Session, version: u64, effective: Rc<Effective>) -> Rules {
        let chosen = session.settings.service_level().map(str::to_owned);
        let own_limit = session.settings.statement_timeout();
        let watch = watch_of(&effective);
        let SqlConfig { statement_time_default: default_limit, statement_time_max: limit_max, .. } =
            *session.sql.config();
        Rules { effective, version, chosen, own_limit, default_limit, limit_max, watch }
    }

    /// How long the statement may take. The session's limit cannot exceed that of its level.
    fn limit(&self) -> Duration {
        let limit = self.own_limit.into_iter().chain(self.effective.spec.timeout).min();
        limit.unwrap_or(self.default_limit).min(self.limit_max)
    }

    /// Why a statement that took too long was ended.
    fn late(&self) -> String {
        let limit = self.limit();
        let ms = limit.as_millis();
        match (&self.effective.timeout_from, self.effective.spec.timeout) {
            (Some(level), Some(timeout)) if timeout == limit => {
                format!("canceling statement due to the timeout of service level '{level}' ({ms} ms)")
            }
            _ => format!("canceling statement due to statement timeout ({ms} ms)"),
        }
    }
}

impl Session {
    /// Begins work in the level that holds for the session now.
    pub(crate) async fn begin_work(&self) -> Result<Work, Failure> {
        let version = self.here.access.version();
        let (effective, group) = self.enter_level().await?;
        let in_flight = self.here.admission.admit(&effective).map_err(|refused| match refused {
            Refused::Overloaded(text) => Failure::new(state::OVERLOADED, text),
            Refused::Hold => {
                let text = format!("The service level '{}' has too much to do.", effective.level.name());
                Failure::new(state::OVERLOADED, text)
            }
        })?;
        let now = lanes::time::now();
        Ok(Work {
            rules: RefCell::new(Rules::new(self, version, effective)),
            group: Cell::new(group),
            core: lanes::least_loaded_core(),
            began: now,
            since: now,
            ran: Duration::ZERO,
            is_suspended: false,
            run: None,
            shown: None,
            end: tasks::End::of(self.here.access.viewer(&self.login)),
            _in_flight: in_flight,
            slot: None,
        })
    }

    /// Plans a query, and checks that the role may read what it reads.
    pub(crate) async fn plan(
        &self,
        connection: &mut Connection,
        text: &str,
        asks_settings: bool,
    ) -> Result<Kept<Arc<Planned>>, Wrong> {
        let work = self.begin_work().await?;
        let options = PlanOptions {
            schema: self.settings.schema(),
            user: self.login.role().to_string(),
            time_zone: self.settings.time_zone(),
            scan: self.scan_options(),
            settings: if asks_settings { self.all_set() } else { BTreeMap::new() },
        };
        let (sql, text, tables) = (self.sql.clone(), text.to_owned(), self.here.tables());
        let guardrails = self.guardrails();
        let planning = async move { sql.planner().plan(&sql, &text, tables, &options, &guardrails).await };
        let planned = work.on_heavy_lane(self, connection, planning).await?;
        let planned = planned.inspect_err(|_| self.audit_hidden(&work.end.hidden()))?;
        let planned = Kept::new(planned, self.sql.handles(), work.group.get());
        self.authorize(planned.get(), false)?;
        Ok(planned)
    }

    /// Logs reads of tables that the role is not shown, of which it was told that they do not exist.
    fn audit_hidden(&self, hidden: &[(String, String)]) {
        let targets: Vec<Target> = hidden.iter().map(selected).collect();
        if let Err(denied) = self.here.access.authorize(&self.login, &targets) {
            self.sql.audit_query(self.live.peer, self.login.role(), &targets, Some(&denied));
        }
    }

    /// Checks the rights on what a query reads. `begins`: it runs next.
    fn authorize(&self, planned: &Planned, begins: bool) -> Result<(), Failure> {
        let targets: Vec<Target> = planned.tables.iter().map(selected).collect();
        let allowed = self.here.access.authorize(&self.login, &targets);
        if begins || allowed.is_err() {
            self.sql.audit_query(self.live.peer, self.login.role(), &targets, allowed.as_ref().err());
        }
        let Err(denied) = allowed else { return Ok(()) };
        // It was planned while the role was shown this keyspace. Now it is as one that does not exist.
        let viewer = self.here.access.viewer(&self.login);
        match planned.tables.iter().find(|(keyspace, _)| !viewer.sees(About::Keyspace(keyspace))) {
            Some((keyspace, table)) => Err(Failure::no_table(keyspace, table)),
            None => Err(denied.into()),
        }
    }

    /// Runs a statement about roles, grants or levels.
    pub(crate) async fn access(&self, text: &str) -> Result<Outcome, Wrong> {
        let work = self.begin_work().await?;
        let outcome = self.here.access.execute_text(&self.login, text).await;
        work.end(&self.live, outcome.is_err());
        self.sql.audit_access(self.live.peer, self.login.role(), text, outcome.as_ref().err());
        Ok(outcome?)
    }
}

impl Work {
    /// Has the statement seen among those that run, as one that waits for a slot.
    pub(crate) fn show(&mut self, live: &Live, what: String) {
        let (level, began) = (self.effective().level.name().clone(), self.began);
        let query = Query { level, began, state: StatementState::Queued, what, run: None };
        let query = Rc::new(RefCell::new(query));
        live.queries.borrow_mut().push(query.clone());
        self.shown = Some(query);
    }

    fn is(&self, state: StatementState) {
        if let Some(query) = &self.shown {
            query.borrow_mut().state = state;
        }
    }

    /// Its client has the rows it asked for, and may ask for more.
    pub(crate) fn suspend(&mut self) {
        self.is(StatementState::Suspended);
        (self.ran, self.is_suspended) = (self.ran_for(), true);
        self.since = lanes::time::now();
    }

    /// Its client asks for more.
    pub(crate) async fn resume(&mut self, live: &Live) {
        self.is(StatementState::Running);
        if let Some(own) = &self.shown {
            let mut queries = live.queries.borrow_mut();
            queries.retain(|query| !Rc::ptr_eq(query, own));
            queries.push(own.clone());
        }
        (self.since, self.is_suspended) = (lanes::time::now(), false);
        if self.group.get() != lanes::current_group() {
            lanes::switch_group(self.group.get()).await;
        }
    }

    /// How long it has run, without what its client took to come back.
    fn ran_for(&self) -> Duration {
        self.ran + if self.is_suspended { Duration::ZERO } else { self.since.elapsed() }
    }

    /// Its slot, if that is one of the level.
    pub(crate) fn slot_of(&self, level: &Arc<Level>) -> Option<Rc<Ticket>> {
        self.slot.clone().filter(|_| Arc::ptr_eq(&self.rules.borrow().effective.level, level))
    }

    fn effective(&self) -> Rc<Effective> {
        self.rules.borrow().effective.clone()
    }

    /// Waits for a slot of the level, if the level has so many only.
    pub(crate) async fn enter(&mut self, session: &Session, connection: &Connection) -> Result<(), Wrong> {
        let effective = self.effective();
        self.slot = session.lent_slot(&effective.level);
        if self.slot.is_some() {
            return Ok(());
        }
        let patience = self.rules.borrow().limit();
        let admitting = Box::pin(async move { workload::admit(&effective, patience).await });
        let admitted = self.attend(session, connection, admitting).await?;
        let slot = admitted.map_err(|refused| Failure::new(state::OVERLOADED, refused.0))?;
        self.slot = Some(Rc::new(slot));
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
        session.authorize(planned, true)?;
        let run = Run::new(&self.effective(), session.sql.space());
        self.is(StatementState::Running);
        self.shown.iter().for_each(|query| query.borrow_mut().run = Some(run.clone()));
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
    pub(crate) async fn on_heavy_lane<F>(
        &self,
        session: &Session,
        connection: &Connection,
        work: F,
    ) -> Result<F::Output, Wrong>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let starting = tasks::heavy_of(&self.end, self.core, session.sql.handles(), self.group.get(), work);
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
        loop {
            self.check(session, session.live.cancelled.get() != Cancel::Nothing).await?;
            let left = self.left();
            tokio::select! { biased;
                done = &mut work => return Ok(done),
                () = session.live.bell.notified() => {}
                () = connection.gone() => return Err(End::Gone.into()),
                () = lanes::time::sleep(left) => {}
                () = lanes::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// The time it still has, suspended or not: no client keeps a slot for ever without asking for more.
    fn left(&self) -> Duration {
        self.rules.borrow().limit().saturating_sub(self.since.elapsed())
    }

    /// Whether it may go on, unless somebody has cancelled it.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) async fn check(&self, session: &Session, is_cancelled: bool) -> Result<(), Wrong> {
        session.live.seen.check()?;
        if session.live.killed.get() {
            let text = "terminating connection: the server is stopping";
            return Err(Failure::fatal(state::SHUTDOWN, text).into());
        }
        if is_cancelled {
            return Err(Failure::new(state::CANCELED, "canceling statement due to user request").into());
        }
        self.look(session).await?;
        match self.left() {
            Duration::ZERO => Err(Failure::new(state::CANCELED, self.rules.borrow().late()).into()),
            _ => Ok(()),
        }
    }

    /// Takes over what was altered about its level since it was last looked. A statement stays in the level that it began in.
    fn follow_level(&self, session: &Session) {
        let version = session.here.access.version();
        let rules = &mut *self.rules.borrow_mut();
        if rules.version == version {
            return;
        }
        rules.version = version;
        let same = |now: &Rc<Effective>| Arc::ptr_eq(&now.level, &rules.effective.level);
        let now = session.effective_with(rules.chosen.as_deref()).ok().filter(same).or_else(|| {
            // Others of the role or the session have another by now.
            let levels = session.here.access.levels().catalog();
            let entry = levels.get(rules.effective.level.name())?;
            Some(Rc::new(Effective::of(entry))).filter(same)
        });
        // A level that was dropped goes on as it was for those it has.
        let Some(effective) = now else { return };
        self.run.iter().for_each(|run| run.let_spill(effective.spec.spill));
        let is_other_limit = effective.spec.query_limit != rules.effective.spec.query_limit;
        // What it was told of once it is not told of again.
        if is_other_limit {
            rules.watch = watch_of(&effective);
        }
        rules.effective = effective;
    }

    /// Looks whether the statement has gone too far, and does what is to be done then.
    async fn look(&self, session: &Session) -> Result<(), Failure> {
        self.follow_level(session);
        let (rows, bytes) = self.run.as_ref().map_or((0, 0), |run| (run.rows(), run.bytes()));
        let exceeded = match &mut self.rules.borrow_mut().watch {
            Some(watch) => watch.check(self.ran_for(), rows, bytes),
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
                let entry = session.here.access.levels().catalog().get(level).cloned();
                if let Some(entry) = entry {
                    let group = entry.level.group();
                    self.group.set(group);
                    self.run.iter().for_each(|run| run.move_to(group));
                    if let Some(query) = &self.shown {
                        query.borrow_mut().level = entry.level.name().clone();
                    }
                    lanes::switch_group(group).await;
                }
                Ok(())
            }
        }
    }

    /// Counts the statement for its level; nobody sees it any more.
    pub(crate) fn end(self, live: &Live, failed: bool) {
        if let Some(own) = &self.shown {
            live.queries.borrow_mut().retain(|query| !Rc::ptr_eq(query, own));
        }
        let service_ns = u64::try_from(self.ran_for().as_nanos()).unwrap_or(u64::MAX);
        self.effective().level.record(lanes::current_core(), Kind::Read, service_ns, 0, failed);
    }
}

/// A read of a table, as rights are checked for it.
fn selected((keyspace, table): &(String, String)) -> Target {
    Target { keyspace: keyspace.clone(), table: Some(table.clone()), action: Action::Select }
}

/// What looks after a statement of a level with a `query_limit`.
fn watch_of(effective: &Effective) -> Option<Watch> {
    let limit = effective.spec.query_limit.clone()?;
    Some(Watch::new(effective.level.name().clone(), limit))
}
