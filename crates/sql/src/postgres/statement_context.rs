//! Runs a session's statements on heavy lanes: plans them, checks rights here, and executes them a
//! chunk at a time. Meanwhile the session waits for the first of these: the work's result, a
//! cancel request, the statement's time limit, or the end of the connection.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Refusal;
use datafusion::common::ParamValues;
use engine::{About, Action, AnswerGrant, AnswerMemory, StatementOutcome, StatementState, StatementTarget};
use lanes::Group;
use workload::{
    Action as Consequence, Arrived, Effective, Entrance, InFlight, Level, LevelEntry, RequestKind, Ticket,
    Watch,
};

use crate::catalog::no_table;
use crate::config::{SlowStatement, SqlConfig};
use crate::engine::parse::dialect::{is_of_drivers, reads_server_only};
use crate::engine::parse::masked_text::masked;
use crate::engine::plan::{NotPlanned, PlanOptions, Planned};
use crate::failure::{Failure, state};
use crate::postgres::cluster_login::unreachable;
use crate::postgres::connection::ClientConnection;
use crate::postgres::counts::add;
use crate::postgres::error::{End, RequestError};
use crate::postgres::output::Shape;
use crate::postgres::permits::{Permit, RefusedStatement, StartingStatement};
use crate::postgres::query::{self, ChunkEnd, Running};
use crate::postgres::server::{Cancel, LiveSession, Query};
use crate::postgres::session::Session;
use crate::run::query::QueryRun;
use crate::run::tasks::{self, HeavyDrop, Panicked};

/// Interval of checks of a statement against its level's `query_limit`, and for changes of its
/// level.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A statement in progress, in its level.
pub(crate) struct StatementContext {
    rules: RefCell<Rules>,
    group: Cell<Group>,
    /// Core whose heavy lane plans it, and runs the unpartitioned part of its plan.
    core: usize,
    began: Instant,
    /// Last time when its client asked for rows or got them. Its time limit counts from here.
    since: Instant,
    /// Time it had run before `since`.
    ran: Duration,
    /// Time for which it waited before its work, as far as `ran` and `since` include it.
    waited: Duration,
    /// Time of its planning, which they do not include.
    planned: Duration,
    /// Time from its arrival to its work, ns.
    queue_ns: u64,
    is_suspended: bool,
    /// Its run, once started.
    run: Option<Arc<QueryRun>>,
    /// The tables that its run reads.
    targets: Vec<StatementTarget>,
    /// Its entry in `system.running_statements`, if it has one.
    shown: Option<Rc<RefCell<Query>>>,
    /// Stops its functions when dropped.
    end: tasks::End,
    /// Counts it as in flight. `None` before its admission.
    in_flight: RefCell<Option<InFlight>>,
    /// `Some` while it is in the level `driver`, as one of those by which its driver connects.
    starting: RefCell<Option<StartingStatement>>,
    /// Its slot, if it runs a query. CQL and SQL statements share the slots of a level.
    slot: RefCell<Option<Rc<Ticket>>>,
}

/// Settings of the level that apply to a statement.
struct Rules {
    effective: Rc<Effective>,
    /// Version of the levels' catalog when `effective` was read.
    version: u64,
    /// Level chosen by the session when the statement began. `None`: the role's.
    chosen: Option<String>,
    /// True once a `query_limit` has moved the statement to another level.
    is_moved: bool,
    own_limit: Option<Duration>,
    /// Server limits: the default if neither session nor level sets one, and the maximum.
    default_limit: Duration,
    limit_max: Duration,
    /// Watch over the level's `query_limit`. `None` without one.
    watch: Option<Watch>,
}

impl Rules {
    fn new(session: &Session, version: u64, effective: Rc<Effective>) -> Rules {
        let chosen = session.settings.service_level().map(str::to_owned);
        let own_limit = session.settings.statement_timeout();
        let watch = Watch::of(&effective);
        let SqlConfig { statement_time_default: default_limit, statement_time_max: limit_max, .. } =
            *session.sql.config();
        Rules { effective, version, chosen, is_moved: false, own_limit, default_limit, limit_max, watch }
    }

    /// Returns the time limit of the statement. The session's limit cannot exceed that of its
    /// level.
    fn limit(&self) -> Duration {
        let limit = self.own_limit.into_iter().chain(self.effective.spec.timeout).min();
        limit.unwrap_or(self.default_limit).min(self.limit_max)
    }

    /// Returns the message for a statement that exceeded its time limit.
    fn timeout_message(&self) -> String {
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
    /// Begins a statement in the session's current level, or in `driver` if `is_starting`: it is
    /// one by which the session's driver connects. Waits while the level holds it. A statement for
    /// which `is_of_server` is true reads only the server's own tables, and is always admitted.
    /// It is called only if the level does not admit the statement.
    ///
    /// # Errors
    /// The level refuses it, or it must end while it waits.
    pub(crate) async fn begin_statement(
        &self,
        connection: &ClientConnection,
        is_starting: bool,
        is_of_server: impl Fn() -> bool,
    ) -> Result<StatementContext, RequestError> {
        let mut context = self.new_statement(is_starting).await?;
        let (effective, admission) = (context.effective(), &self.here.admission);
        if let Some(permit) = self.permits.take_planned(&effective.level) {
            context.in_flight = RefCell::new(Some(permit.in_flight));
            (context.queue_ns, context.planned) = (permit.queue_ns, permit.planned);
            return Ok(context);
        }
        let time_limit_ns = nanoseconds(context.rules.borrow().limit());
        let arrived = Arrived { since_ns: connection.since_ns(), time_limit_ns, is_only: true };
        let mut began_ns = lanes::time::monotonic_ns();
        let admitted = match admission.enter(&effective, arrived, began_ns, is_of_server) {
            Entrance::In(admitted) => Ok(admitted),
            Entrance::Refused(rejected) => Err(rejected),
            Entrance::Held(held) => {
                let admitted = context.attend(self, connection, held).await?;
                began_ns = lanes::time::monotonic_ns();
                admitted
            }
        };
        let mut admitted = admitted.map_err(|rejected| {
            let (level, pause_ns) = (effective.level.clone(), rejected.pause_ns);
            self.permits.refuse(RefusedStatement { level, pause_ns, began_ns });
            Failure::new(state::OVERLOADED, rejected.text)
        })?;
        if context.has_left(&effective.level) {
            admitted.move_to(&context.effective());
        }
        context.in_flight = RefCell::new(Some(admitted));
        context.queue_ns = began_ns.saturating_sub(arrived.since_ns);
        context.waited = context.began.elapsed();
        Ok(context)
    }

    /// Creates a statement in the session's current level, or in `driver`, before its admission.
    async fn new_statement(&self, is_starting: bool) -> Result<StatementContext, Failure> {
        let version = self.here.access.version();
        let (effective, group) = self.enter_level(is_starting).await?;
        let now = lanes::time::now();
        Ok(StatementContext {
            rules: RefCell::new(Rules::new(self, version, effective)),
            starting: RefCell::new(is_starting.then(|| self.starting.begin())),
            group: Cell::new(group),
            core: lanes::least_loaded_core(),
            began: now,
            since: now,
            ran: Duration::ZERO,
            waited: Duration::ZERO,
            planned: Duration::ZERO,
            queue_ns: 0,
            is_suspended: false,
            run: None,
            targets: Vec::new(),
            shown: None,
            end: tasks::End::of(self.viewer()),
            in_flight: RefCell::default(),
            slot: RefCell::default(),
        })
    }

    /// Plans a query with the parameter types that the client declared, and checks that the role
    /// may read its tables.
    pub(crate) async fn plan(
        &self,
        connection: &mut ClientConnection,
        text: &str,
        asks_settings: bool,
        declared: &[u32],
    ) -> Result<HeavyDrop<Arc<Planned>>, RequestError> {
        let is_starting = self.is_starting() && is_of_drivers(text);
        if !is_starting {
            self.starting.end();
        }
        let context = self.begin_statement(connection, is_starting, || reads_server_only(text)).await?;
        let options = PlanOptions {
            schema: self.settings.schema(),
            user: self.login.role().to_string(),
            session: self.live.status.number,
            time_zone: self.settings.time_zone(),
            scan: self.scan_options(),
            declared: declared.to_vec(),
            settings: if asks_settings { self.all_set() } else { BTreeMap::new() },
        };
        let sql = self.sql.clone();
        let text = text.to_owned();
        let tables = self.here.tables();
        let guardrails = self.guardrails();
        context.end.charge_to(context.effective().level.clone(), None);
        let planning = async move { sql.planner().plan(&text, tables, &options, &guardrails).await };
        let planned = context.on_heavy_lane(self, connection, planning).await?;
        let planned = planned.map_err(|NotPlanned { failure, of_catalog }| {
            self.audit_hidden(&context.end.hidden());
            add(&self.here.counts.catalog_failures, u64::from(of_catalog));
            failure
        })?;
        let planned = HeavyDrop::new(planned, self.sql.handles(), context.group.get());
        self.authorize(&read_by(planned.get()), false)?;
        self.permits.keep_planned(context.into_permit());
        Ok(planned)
    }

    /// Audits reads of hidden tables, which were reported to the client as missing.
    fn audit_hidden(&self, hidden: &[(String, String)]) {
        let targets: Vec<StatementTarget> = hidden.iter().map(selected).collect();
        if let Err(denied) = self.here.access.authorize(&self.login, &targets) {
            self.sql.audit_query(self.live.peer, self.login.role(), &targets, Some(&denied));
        }
    }

    /// Checks the rights to a query's tables. `begins`: the query runs next, so audit it.
    fn authorize(&self, targets: &[StatementTarget], begins: bool) -> Result<(), Failure> {
        let allowed = self.here.access.authorize(&self.login, targets);
        if begins || allowed.is_err() {
            self.sql.audit_query(self.live.peer, self.login.role(), targets, allowed.as_ref().err());
        }
        let Err(denied) = allowed else { return Ok(()) };
        // The keyspace was visible when the query was planned. It is hidden now, so report it as
        // missing.
        let viewer = self.here.access.viewer(&self.login);
        match targets.iter().find(|target| !viewer.sees(About::Keyspace(&target.keyspace))) {
            Some(StatementTarget { keyspace, table, .. }) => {
                Err(no_table(keyspace, table.as_deref().unwrap_or_default()))
            }
            None => Err(denied.into()),
        }
    }

    /// Counts and logs a statement that ends, if it was slow.
    pub(crate) fn log_if_slow(&self, context: &StatementContext, text: &str) {
        let service = context.service();
        if self.sql.config().slow_statement.is_none_or(|slow| service < slow) {
            return;
        }
        add(&self.here.counts.slow, 1);
        let run = context.run.as_ref();
        self.sql.log_slow(&SlowStatement {
            ms: u64::try_from(service.as_millis()).unwrap_or(u64::MAX),
            queue_ms: context.queue_ns / 1_000_000,
            rows_read: run.map_or(0, |run| run.rows()),
            bytes_read: run.map_or(0, |run| run.bytes()),
            level: context.effective().level.name(),
            role: self.login.role(),
            client: self.live.peer,
            text: &masked(text),
        });
    }

    /// Executes a statement about roles, grants or levels.
    pub(crate) async fn access(&self, text: &str) -> Result<StatementOutcome, RequestError> {
        let mut context = self.new_statement(false).await?;
        // Operators must be able to change the level that is overloaded.
        context.in_flight = RefCell::new(Some(self.here.admission.admit_always(&context.effective())));
        let learned = match lanes::time::timeout(context.left(), self.learn_role(text)).await {
            Ok(learned) => learned,
            Err(_) => Err(Failure::new(state::CANCELED, context.rules.borrow().timeout_message())),
        };
        if let Err(failure) = learned {
            self.permits.keep_unsent(context.end(&self.live, true));
            return Err(failure.into());
        }
        let outcome = self.here.access.execute_text(&self.login, text, &Listed).await;
        self.permits.keep_unsent(context.end(&self.live, outcome.is_err()));
        self.sql.audit_access(self.live.peer, self.login.role(), text, outcome.as_ref().err());
        Ok(outcome?)
    }

    /// Asks the cluster in front of which the server stands for the role that a statement on levels
    /// names, unless it is known.
    async fn learn_role(&self, text: &str) -> Result<(), Failure> {
        let asker = self.roles.as_ref().and_then(|roles| roles.here());
        let (Some(front), Some(of)) = (&self.here.front, asker) else { return Ok(()) };
        let Some(role) = self.here.access.unknown_role_in(&self.login, text) else { return Ok(()) };
        match self.here.access.learn_role(front, &of, front.shared().version(), &role).await {
            // The cluster does not know it either.
            Ok(()) | Err(Refusal::Answered(_)) => Ok(()),
            Err(refusal) => Err(unreachable(&refusal)),
        }
    }
}

impl StatementContext {
    /// Lists the statement in `system.running_statements`, waiting for a slot.
    pub(crate) fn show(&mut self, live: &LiveSession, what: String) {
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

    /// Suspends the statement: its client has the rows it asked for. It does no work until then, so
    /// that it does not count as in flight. Returns what counted it, to be dropped when the rows
    /// are sent.
    pub(crate) fn suspend(&mut self) -> Option<InFlight> {
        self.is(StatementState::Suspended);
        (self.ran, self.is_suspended) = (self.ran_for(), true);
        self.since = lanes::time::now();
        self.in_flight.get_mut().take()
    }

    /// Resumes the statement: its client asks for more rows. It was admitted before.
    pub(crate) async fn resume(&mut self, session: &Session) {
        let live = &session.live;
        let admitted = session.here.admission.admit_always(&self.effective());
        *self.in_flight.get_mut() = Some(admitted);
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

    /// Returns how long it has run, without the time it was suspended.
    fn ran_for(&self) -> Duration {
        self.ran + if self.is_suspended { Duration::ZERO } else { self.since.elapsed() }
    }

    /// Returns its slot, if that belongs to `level`.
    pub(crate) fn slot_of(&self, level: &Arc<Level>) -> Option<Rc<Ticket>> {
        self.slot.borrow().clone().filter(|_| !self.has_left(level))
    }

    /// Returns true if the statement is in another level than `level`.
    fn has_left(&self, level: &Arc<Level>) -> bool {
        !Arc::ptr_eq(&self.rules.borrow().effective.level, level)
    }

    fn effective(&self) -> Rc<Effective> {
        self.rules.borrow().effective.clone()
    }

    /// Waits for a slot of the level, if `max_concurrency` limits them.
    pub(crate) async fn enter(
        &mut self,
        session: &Session,
        connection: &ClientConnection,
    ) -> Result<(), RequestError> {
        let effective = self.effective();
        let lent = session.lent_slot(&effective.level);
        if lent.is_some() {
            *self.slot.get_mut() = lent;
            return Ok(());
        }
        let time_limit = self.rules.borrow().limit();
        let began = lanes::time::now();
        let level = effective.level.clone();
        let admitting = Box::pin(async move { workload::admit(&effective, time_limit).await });
        let admitted = self.attend(session, connection, admitting).await?;
        let waited = began.elapsed();
        self.waited += waited;
        self.queue_ns = self.queue_ns.saturating_add(nanoseconds(waited));
        let mut slot = admitted.map_err(|refused| Failure::new(state::OVERLOADED, refused.0))?;
        if self.has_left(&level) {
            slot = workload::enter_running(&self.effective());
        }
        *self.slot.get_mut() = Some(Rc::new(slot));
        self.core = lanes::least_loaded_core(); // waiting may have taken long
        Ok(())
    }

    /// Starts a planned query. Checks rights again, since they may have changed.
    pub(crate) async fn start(
        &mut self,
        session: &Session,
        connection: &mut ClientConnection,
        planned: &Arc<Planned>,
        values: Option<ParamValues>,
        shape: Shape,
    ) -> Result<HeavyDrop<Running>, RequestError> {
        self.targets = read_by(planned);
        session.authorize(&self.targets, true)?;
        let run = QueryRun::new(&self.effective(), session.sql.space());
        self.is(StatementState::Running);
        self.shown.iter().for_each(|query| query.borrow_mut().run = Some(run.clone()));
        self.run = Some(run.clone());
        self.end.charge_to(self.effective().level.clone(), Some(run.account().clone()));
        self.end.charge_values_to(run.statement_memory());
        let starting = query::start(planned.clone(), values, shape, run);
        let running = self.on_heavy_lane(session, connection, starting).await??;
        Ok(HeavyDrop::new(running, session.sql.handles(), self.group.get()))
    }

    /// Adds a chunk of rows to the connection's output. Returns the query, the number of rows, and
    /// the progress.
    pub(crate) async fn chunk(
        &mut self,
        session: &Session,
        connection: &mut ClientConnection,
        running: HeavyDrop<Running>,
        rows_max: u64,
    ) -> Result<(HeavyDrop<Running>, u64, ChunkEnd), RequestError> {
        let mut running = running.take();
        let mut output = connection.take_output();
        let encoding = async move {
            let result = running.chunk(&mut output, rows_max).await;
            (running, output, result)
        };
        let (running, output, result) = self.on_heavy_lane(session, connection, encoding).await?;
        connection.give_output(output);
        let running = HeavyDrop::new(running, session.sql.handles(), self.group.get());
        let (rows, progress) = result?;
        Ok((running, rows, progress))
    }

    /// Writes the output buffer. If the client does not read, the statement waits here
    /// (backpressure), at most until it must end.
    pub(crate) async fn flush(
        &self,
        session: &Session,
        connection: &mut ClientConnection,
    ) -> Result<(), RequestError> {
        let mut writing = pin!(connection.flush());
        loop {
            self.check(session, session.live.cancelled.get() != Cancel::Nothing).await?;
            let left = self.left();
            tokio::select! { biased;
                written = &mut writing => return Ok(written?),
                () = session.live.bell.notified() => {}
                () = lanes::time::sleep(left) => {}
                () = lanes::time::sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    /// Runs work on the statement's core and waits for it.
    pub(crate) async fn on_heavy_lane<F>(
        &self,
        session: &Session,
        connection: &ClientConnection,
        work: F,
    ) -> Result<F::Output, RequestError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let starting = tasks::heavy_of(&self.end, self.core, session.sql.handles(), self.group.get(), work);
        let task = self.attend(session, connection, Box::pin(starting)).await?;
        let done = self.attend(session, connection, task).await?;
        done.map_err(|Panicked| Failure::new(state::INTERNAL, "the query failed inside the server").into())
    }

    /// Waits for work. Cancels it if the statement must end first.
    async fn attend<F: Future + Unpin>(
        &self,
        session: &Session,
        connection: &ClientConnection,
        mut work: F,
    ) -> Result<F::Output, RequestError> {
        loop {
            self.check(session, session.live.cancelled.get() != Cancel::Nothing).await?;
            let left = self.left();
            tokio::select! { biased;
                done = &mut work => return Ok(done),
                () = session.live.bell.notified() => {}
                () = connection.gone() => return Err(End::Gone.into()),
                () = lanes::time::sleep(left) => {}
                () = lanes::time::sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    /// Returns the time left, suspended or not: a client must not keep a slot for ever without
    /// asking for more rows.
    fn left(&self) -> Duration {
        self.rules.borrow().limit().saturating_sub(self.since.elapsed())
    }

    /// Checks that the statement may go on.
    ///
    /// # Errors
    /// It was canceled, has exceeded a limit, or its session is to end.
    pub(crate) async fn check(&self, session: &Session, is_cancelled: bool) -> Result<(), RequestError> {
        session.live.status.check()?;
        if session.live.killed.get() {
            let text = "terminating connection: the server is stopping";
            return Err(Failure::fatal(state::SHUTDOWN, text).into());
        }
        if is_cancelled {
            return Err(Failure::new(state::CANCELED, "canceling statement due to user request").into());
        }
        self.leave_driver(session).await;
        self.check_query_limit(session).await?;
        match self.left() {
            Duration::ZERO => {
                Err(Failure::new(state::CANCELED, self.rules.borrow().timeout_message()).into())
            }
            _ => Ok(()),
        }
    }

    /// Applies changes of rights and levels since the last check.
    ///
    /// # Errors
    /// Its role may not read its tables any more.
    fn follow_changes(&self, session: &Session) -> Result<(), Failure> {
        let version = session.here.access.version();
        if std::mem::replace(&mut self.rules.borrow_mut().version, version) != version {
            session.authorize(&self.targets, false)?;
            self.follow_level(session);
        }
        Ok(())
    }

    /// Applies changes of its level. A statement stays in the level that it began in.
    fn follow_level(&self, session: &Session) {
        let rules = &mut *self.rules.borrow_mut();
        let same = |now: &Rc<Effective>| Arc::ptr_eq(&now.level, &rules.effective.level);
        let of_session = || session.effective_with(rules.chosen.as_deref()).ok();
        let now = (!rules.is_moved).then(of_session).flatten().filter(same).or_else(|| {
            // The statement was moved, or its role or session has another level by now.
            let levels = session.here.access.levels().catalog();
            let entry = levels.get(rules.effective.level.name())?;
            let of_level =
                if rules.is_moved { rules.effective.moved_to(entry) } else { Effective::of(entry) };
            Some(Rc::new(of_level)).filter(same)
        });
        // After DROP, running statements keep the last settings of their level.
        let Some(effective) = now else { return };
        self.run.iter().for_each(|run| run.let_spill(effective.spec.spill));
        let is_other_limit = effective.spec.query_limit != rules.effective.spec.query_limit;
        // A watch acts once. Keep it unless the limit changed, so that it does not act again.
        if is_other_limit {
            rules.watch = Watch::of(&effective);
        }
        rules.effective = effective;
    }

    /// Checks the statement against its level's `query_limit`, and performs the limit's action.
    async fn check_query_limit(&self, session: &Session) -> Result<(), Failure> {
        self.follow_changes(session)?;
        let mut progress = workload::StatementProgress { elapsed: self.ran_for(), ..Default::default() };
        if let Some(run) = &self.run {
            (progress.rows, progress.bytes, progress.memory) = (run.rows(), run.bytes(), run.memory());
        }
        let exceeded = {
            let watch = &mut self.rules.borrow_mut().watch;
            let exceeded = watch.as_mut().and_then(|watch| watch.check(progress));
            // Without a watch, too: the level may have lost its limit since.
            let is_suspended = watch.as_ref().is_some_and(Watch::is_suspended);
            let state = if is_suspended { StatementState::Suspended } else { StatementState::Running };
            if self.run.as_ref().is_some_and(|run| run.set_suspended(is_suspended) != is_suspended) {
                self.is(state);
            }
            exceeded
        };
        let Some(exceeded) = exceeded else { return Ok(()) };
        let role = session.login.role();
        session.sql.warn(&format!("{exceeded}, by role {role} over SQL: {}", exceeded.action));
        match &exceeded.action {
            Consequence::Cancel => {
                Err(Failure::new(state::CANCELED, format!("{exceeded}. It was cancelled.")))
            }
            // The run is suspended above.
            Consequence::Log | Consequence::Suspend => Ok(()),
            Consequence::Demote(level) => {
                // The target level may have been dropped: the statement then stays.
                let entry = session.here.access.levels().catalog().get(level).cloned();
                if let Some(entry) = entry.filter(|entry| self.has_left(&entry.level)) {
                    self.move_to(&entry).await;
                }
                Ok(())
            }
        }
    }

    /// Moves a statement by which a driver connects to the session's level, once the session's time
    /// in `driver` is over. The limits of that level hold from here.
    async fn leave_driver(&self, session: &Session) {
        if self.starting.borrow().as_ref().is_none_or(|starting| !starting.is_over()) {
            return;
        }
        drop(self.starting.take());
        let own = session.effective().unwrap_or_else(|_| session.of_role());
        let entry = session.here.access.levels().catalog().get(own.level.name()).cloned();
        let Some(entry) = entry else { return };
        self.move_to(&entry).await;
        let rules = &mut *self.rules.borrow_mut();
        rules.watch = Watch::of(&own);
        (rules.effective, rules.is_moved) = (own, false);
    }

    /// Moves the statement to another level with everything that counts it: its watch, permit, slot
    /// and memory. Otherwise its old level would keep them, and the new one would measure work of
    /// which no statement ends.
    async fn move_to(&self, entry: &LevelEntry) {
        let effective = {
            let rules = &mut *self.rules.borrow_mut();
            rules.effective = Rc::new(rules.effective.moved_to(entry));
            rules.is_moved = true;
            rules.watch.iter_mut().for_each(|watch| watch.move_to(entry));
            rules.effective.clone()
        };
        self.in_flight.borrow_mut().iter_mut().for_each(|in_flight| in_flight.move_to(&effective));
        self.slot
            .borrow_mut()
            .iter_mut()
            .for_each(|slot| *slot = Rc::new(workload::enter_running(&effective)));
        match &self.run {
            Some(run) => run.move_to(&effective),
            None => self.end.charge_to(effective.level.clone(), None),
        }
        self.shown.iter().for_each(|query| query.borrow_mut().level = effective.level.name().clone());
        self.group.set(effective.group());
        lanes::switch_group(effective.group()).await;
    }

    /// Returns the permit of a statement that was planned, for its execution.
    fn into_permit(self) -> Permit {
        let (level, planned) = (self.effective().level.clone(), self.ran_for().saturating_sub(self.waited));
        let in_flight = self.in_flight.into_inner().expect("a statement is admitted before it is planned");
        Permit { in_flight, level, queue_ns: self.queue_ns, planned }
    }

    /// Returns the time of its planning and execution so far.
    fn service(&self) -> Duration {
        self.planned + self.ran_for().saturating_sub(self.waited)
    }

    /// Records the statement in its level's metrics, and removes it from
    /// `system.running_statements`. Returns what counts it as in flight, to be dropped when its
    /// answer is sent.
    pub(crate) fn end(self, live: &LiveSession, failed: bool) -> Option<InFlight> {
        if let Some(own) = &self.shown {
            live.queries.borrow_mut().retain(|query| !Rc::ptr_eq(query, own));
        }
        let (core, service_ns) = (lanes::current_core(), nanoseconds(self.service()));
        self.effective().level.record(core, RequestKind::Read, service_ns, self.queue_ns, failed);
        self.in_flight.into_inner()
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the reads of a query, for a check of rights.
fn read_by(planned: &Planned) -> Vec<StatementTarget> {
    planned.tables.iter().map(selected).collect()
}

/// Returns the read of a table, for a check of rights.
fn selected((keyspace, table): &(String, String)) -> StatementTarget {
    StatementTarget { keyspace: keyspace.clone(), table: Some(table.clone()), action: Action::Select }
}

/// Most bytes of the rows of a LIST, which are converted and sent in one piece.
const LISTED_BYTES_MAX: u64 = 1 << 20;

/// Memory of the rows of a LIST.
#[derive(Debug)]
struct Listed;

impl AnswerMemory for Listed {
    fn open(&self) -> Arc<dyn AnswerGrant> {
        Arc::new(Listed)
    }
}

impl AnswerGrant for Listed {
    fn grow(&self, bytes: u64) -> Result<(), engine::Error> {
        if bytes <= LISTED_BYTES_MAX {
            return Ok(());
        }
        Err(engine::Error::Invalid(format!(
            "expected at most {LISTED_BYTES_MAX} bytes of rows of a LIST over SQL, got {bytes} or more: \
             list one role, or use CQL"
        )))
    }
}
