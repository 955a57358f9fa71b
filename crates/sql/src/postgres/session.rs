//! A client's session, on its core's fast lane: its role, settings, prepared statements, and one
//! statement at a time. Work that takes CPU runs on heavy lanes (`statement_context`). This file
//! handles messages to and from the client.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use access::Login;
use cluster::{Reader, SessionRoles};
use engine::{About, Viewer};
use frontdoor::{Account, Charge};
use lanes::Group;
use pgwire::api::Type;
use pgwire::messages::data::ParameterDescription;
use pgwire::messages::extendedquery::{BindComplete, CloseComplete, Describe, Execute, ParseComplete};
use pgwire::messages::response::{EmptyQueryResponse, ReadyForQuery, TransactionStatus};
use workload::Effective;

use crate::catalog::CATALOG;
use crate::engine::plan::Planned;
use crate::failure::{Failure, state};
use crate::postgres::cluster_viewer::ClusterViewer;
use crate::postgres::connection::ClientConnection;
use crate::postgres::error::{End, RequestError};
use crate::postgres::login::Client;
use crate::postgres::message::{Frame, LARGE_BYTES};
use crate::postgres::output::Shape;
use crate::postgres::parameters;
use crate::postgres::permits::{Permits, Starting};
use crate::postgres::portal::{Portal, no_portal};
use crate::postgres::server::{Cancel, CoreState, LiveSession, Sql};
use crate::postgres::settings::Settings;
use crate::postgres::statement::{Read, SessionCommand, Statement, read};
use crate::postgres::statement_context::CHECK_INTERVAL;
use crate::run::table::ScanOptions;
use crate::run::tasks::HeavyDrop;

/// Memory of a portal without its parameter values, bytes.
const PORTAL_BYTES: u64 = 1 << 10;
/// Longest name of a prepared statement or a portal, bytes. Drivers use some tens.
const NAME_BYTES_MAX: usize = 1 << 10;
/// Interval at which an idle session in front of a cluster checks whether a node has refused its
/// password. Nodes may refuse it on any core.
const ROLE_CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// Work units charged for a statement of a Query message on the fast lane.
const UNITS_PER_STATEMENT: u32 = 50;

/// A statement prepared by Parse.
pub(crate) struct Prepared {
    pub(crate) text: String,
    pub(crate) kind: Option<Statement>,
    pub(crate) planned: Option<HeavyDrop<Arc<Planned>>>,
    types: Vec<Type>,
    /// Memory of its text and plan.
    charges: Vec<Charge>,
}

/// State of a client after login.
pub(crate) struct Session {
    pub(crate) sql: Sql,
    pub(crate) here: Rc<CoreState>,
    pub(crate) login: Login,
    /// Its role at the cluster in front of which the server stands.
    pub(crate) roles: Option<Arc<SessionRoles>>,
    pub(crate) live: Rc<LiveSession>,
    pub(crate) settings: Settings,
    pub(crate) transaction: TransactionStatus,
    pub(crate) prepared: HashMap<String, Rc<Prepared>>,
    pub(crate) portals: HashMap<String, Portal>,
    /// An extended query failed: messages are skipped until Sync.
    skips: bool,
    /// Admission of its statement.
    pub(crate) permits: Permits,
    /// Statements by which its driver connects.
    pub(crate) starting: Rc<Starting>,
    /// Account of memory held between statements.
    account: Arc<Account>,
}

/// Name of the database that tools connect to if they are not told another.
const MAINTENANCE: &str = "postgres";

impl Session {
    /// Begins the session of a client that has logged in.
    ///
    /// # Errors
    /// There is no database of the name that it gave, or its role must not know.
    pub(crate) fn new(
        sql: Sql,
        here: Rc<CoreState>,
        client: Client,
        live: Rc<LiveSession>,
        account: Arc<Account>,
    ) -> Result<Session, Failure> {
        let mut settings = Settings::new(here.front.is_some());
        let database = client.parameters.get("database");
        for (name, value) in &client.parameters {
            // Postgres rejects unknown settings here. Clients may send some for other servers, so
            // they are ignored.
            if !matches!(name.as_str(), "user" | "database" | "options" | "replication") {
                let _ = settings.set(name, Some(value));
            }
        }
        let viewer = here.access.viewer(&client.login);
        let is_seen = |name: &str| viewer.sees(About::Keyspace(name)) && here.tables().has_keyspace(name);
        match database {
            // A database named like a keyspace becomes the keyspace of unqualified names.
            Some(keyspace) if is_seen(keyspace) => _ = settings.set("search_path", Some(keyspace)),
            // Clients that are given no database name the user's.
            Some(name) if name != CATALOG && name != MAINTENANCE && **name != **client.login.role() => {
                let text = format!("database \"{name}\" does not exist");
                let hint = format!("Connect to \"{CATALOG}\", or to a keyspace.");
                return Err(Failure::new(state::NO_DATABASE, text).with_hint(&hint));
            }
            _ => {}
        }
        live.status.logged_in(client.login.clone(), client.roles.clone(), account.clone(), &settings);
        Ok(Session {
            sql,
            here,
            login: client.login,
            roles: client.roles,
            live,
            settings,
            transaction: TransactionStatus::Idle,
            prepared: HashMap::new(),
            portals: HashMap::new(),
            skips: false,
            permits: Permits::default(),
            starting: Rc::default(),
            account,
        })
    }

    /// Serves the client until one side ends the session. Returns the reason.
    pub(crate) async fn run(mut self, connection: &mut ClientConnection, number: i32) -> End {
        match self.serve(connection, number).await {
            Ok(()) => End::Gone,
            Err(end) => end,
        }
    }

    async fn serve(&mut self, connection: &mut ClientConnection, number: i32) -> Result<(), End> {
        for (name, value) in self.settings.reported() {
            connection.put_parameter(name, value)?;
        }
        connection.put_parameter("session_authorization", self.login.role())?;
        connection.put_parameter("is_superuser", "off")?;
        connection.put_key(number, self.live.secret.clone())?;
        self.ready(connection).await?;
        // Leave the `driver` level, even if the level that the client wants is refused: the client
        // has authenticated.
        let _ = self.enter_level(false).await;
        loop {
            let message = self.wait(connection).await?;
            self.live.status.begin(&message);
            if message.kind == b'X' {
                return Ok(());
            }
            // A cancel request that came after its statement had ended.
            if self.live.cancelled.get() == Cancel::Running {
                self.live.cancelled.take();
            }
            if let Err(wrong) = self.handle(connection, message).await {
                let failure = match wrong {
                    RequestError::Connection(end) => return Err(end),
                    RequestError::Statement(failure) => failure,
                };
                self.put_failure(connection, &failure)?;
                self.skips = true;
                self.flush(connection).await?;
            }
            if connection.is_full() {
                self.flush(connection).await?;
            }
            self.pause(connection).await;
            // A client whose next message is always ready would otherwise keep the core.
            if lanes::spend(0) || lanes::should_yield() {
                lanes::yield_now().await;
            }
        }
    }

    /// Waits for the next message. Meanwhile checks the limits of suspended queries, and ends the
    /// session when it exceeds its idle limit. A stopping server ends the session here, before
    /// another message begins.
    async fn wait(&mut self, connection: &mut ClientConnection) -> Result<Frame, End> {
        let began = lanes::time::now();
        let of_server = self.sql.config().idle_timeout;
        self.live.status.rest(&self.settings);
        loop {
            self.live.status.check().map_err(End::Failed)?;
            if self.live.killed.get() || self.sql.is_stopping() {
                let text = "terminating connection: the server is stopping";
                return Err(End::Failed(Failure::fatal(state::SHUTDOWN, text)));
            }
            let any = self.check_suspended().await?;
            let in_transaction = self.transaction != TransactionStatus::Idle;
            let limit = self.settings.idle_limit(in_transaction, of_server);
            let left = limit.as_ref().map(|(limit, _)| limit.saturating_sub(began.elapsed()));
            tokio::select! { biased;
                () = self.live.bell.notified() => {}
                message = connection.next() => return message,
                // Its client takes its time between two messages of a statement.
                () = std::future::ready(()), if self.permits.any() => self.permits.release(),
                () = lanes::time::sleep(CHECK_INTERVAL), if any => {}
                () = lanes::time::sleep(ROLE_CHECK_INTERVAL), if self.roles.is_some() => {}
                () = lanes::time::sleep(left.unwrap_or(Duration::MAX)), if left.is_some() => {
                    let Some((_, failure)) = limit else { continue };
                    return Err(End::Failed(failure));
                }
            }
        }
    }

    async fn ready(&mut self, connection: &mut ClientConnection) -> Result<(), End> {
        if self.transaction == TransactionStatus::Idle {
            self.close_portals();
        }
        connection.put(&ReadyForQuery::new(self.transaction))?;
        self.flush(connection).await?;
        connection.rest();
        Ok(())
    }

    /// Writes the output buffer. The session's statement is admitted until then, or until the
    /// socket takes no more: a client that does not read must not use up the limit of others.
    async fn flush(&self, connection: &mut ClientConnection) -> Result<(), End> {
        let mut writing = pin!(connection.flush());
        poll_fn(|cx| {
            let polled = writing.as_mut().poll(cx);
            self.permits.release();
            polled
        })
        .await
    }

    /// Reports the failure of a statement, and ends the transaction.
    fn put_failure(&mut self, connection: &mut ClientConnection, failure: &Failure) -> Result<(), End> {
        connection.put_failure(failure)?;
        self.permits.refused();
        self.close_portals();
        if self.transaction == TransactionStatus::Transaction {
            self.transaction = TransactionStatus::Error;
        }
        Ok(())
    }

    /// Does not read the connection for the time that the error of a refused statement names. Ends
    /// early if the session is to end, or its client is gone.
    async fn pause(&self, connection: &mut ClientConnection) {
        let pause = self.permits.pause();
        if pause.is_zero() {
            return;
        }
        let until = lanes::time::now() + pause;
        loop {
            let left = until.saturating_duration_since(lanes::time::now());
            let is_ending = self.live.killed.get() || self.sql.is_stopping();
            if left.is_zero() || is_ending || self.live.status.check().is_err() {
                break;
            }
            tokio::select! { biased;
                () = self.live.bell.notified() => {}
                () = connection.gone() => break,
                () = lanes::time::sleep(left) => {}
            }
        }
        connection.rest();
    }

    async fn handle(
        &mut self,
        connection: &mut ClientConnection,
        message: Frame,
    ) -> Result<(), RequestError> {
        match message.kind {
            b'Q' => {
                self.skips = false;
                match self.simple(connection, message).await {
                    Err(RequestError::Statement(failure)) => self.put_failure(connection, &failure)?,
                    other => other?,
                }
                Ok(self.ready(connection).await?)
            }
            b'S' => {
                message.body.nothing()?;
                self.skips = false;
                Ok(self.ready(connection).await?)
            }
            _ if self.skips => Ok(()),
            b'P' => self.parse(connection, message).await,
            b'B' => self.bind(connection, message).await,
            b'D' => self.describe(connection, &message.body.named()?).await,
            b'E' => self.execute(connection, &message.body.execute()?).await,
            b'C' => {
                let close = message.body.named()?;
                let name = close.name.unwrap_or_default();
                match close.target_type {
                    b'S' => drop(self.prepared.remove(&name)),
                    _ => self.close_portal(&name),
                }
                Ok(connection.put(&CloseComplete::new())?)
            }
            b'H' => {
                message.body.nothing()?;
                Ok(self.flush(connection).await?)
            }
            _ => Err(Failure::fatal(state::PROTOCOL, "unexpected message").into()),
        }
    }

    /// Runs `f` here, or for a large message on a heavy lane in the session's level.
    async fn apart<T: Send + 'static>(
        &self,
        connection: &ClientConnection,
        is_large: bool,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, RequestError> {
        if !is_large {
            return Ok(f());
        }
        let context = self.begin_statement(connection, false, || false).await?;
        context.on_heavy_lane(self, connection, async move { f() }).await
    }

    /// Executes a Query message: its statements one after the other, until one fails.
    async fn simple(
        &mut self,
        connection: &mut ClientConnection,
        message: Frame,
    ) -> Result<(), RequestError> {
        let Frame { body, charge, .. } = message.kept()?;
        let guardrails = self.guardrails();
        let reading = move || read(&body.query()?, &guardrails);
        let statements = self.apart(connection, charge.is_some(), reading).await??;
        if statements.is_empty() {
            connection.put(&EmptyQueryResponse::new())?;
        }
        for statement in statements {
            let prepared = Rc::new(self.prepare(connection, statement, &[]).await?);
            if !prepared.types.is_empty() {
                let text = format!("there is no parameter ${}", prepared.types.len());
                return Err(Failure::new(state::SYNTAX, text).into());
            }
            let mut portal = Portal::of(prepared, None, Vec::new(), None);
            self.describe_portal(connection, &mut portal, false).await?;
            self.execute_portal(connection, &mut portal, u64::MAX).await?;
            if connection.is_full() {
                self.flush(connection).await?;
            }
            if lanes::spend(UNITS_PER_STATEMENT) || lanes::should_yield() {
                lanes::yield_now().await;
            }
        }
        Ok(())
    }

    async fn parse(&mut self, connection: &mut ClientConnection, message: Frame) -> Result<(), RequestError> {
        let Frame { body, charge, .. } = message.kept()?;
        let guardrails = self.guardrails();
        let reading = move || {
            let parse = body.parse()?;
            let statements = read(&parse.query, &guardrails)?;
            Ok::<_, Failure>((parse.name.unwrap_or_default(), parse.type_oids, statements))
        };
        let (name, types, mut statements) = self.apart(connection, charge.is_some(), reading).await??;
        drop(charge); // its text is charged below
        let max = self.sql.config().prepared_max;
        if self.prepared.len() >= max && !self.prepared.contains_key(&name) {
            let text = format!("this session has {max} prepared statements, which is the limit");
            return Err(Failure::new(state::LIMIT, text).into());
        }
        self.check_name(&name)?;
        let statement = statements.pop().unwrap_or_default();
        if !statements.is_empty() {
            let text = "cannot insert multiple commands into a prepared statement";
            return Err(Failure::new(state::SYNTAX, text).into());
        }
        // The unnamed statement is replaced, so free its memory before preparing the next.
        if name.is_empty() {
            self.prepared.remove(&name);
        }
        let prepared = self.prepare(connection, statement, &types).await?;
        self.prepared.insert(name, Rc::new(prepared));
        Ok(connection.put(&ParseComplete::new())?)
    }

    /// Checks the length of a name, which the session stores.
    fn check_name(&self, name: &str) -> Result<(), Failure> {
        if name.len() <= NAME_BYTES_MAX {
            return Ok(());
        }
        let text = format!("expected a name of at most {NAME_BYTES_MAX} bytes, got {}", name.len());
        Err(Failure::new(state::LIMIT, text))
    }

    pub(crate) fn guardrails(&self) -> Arc<engine::Guardrails> {
        self.here.engine.registry().guardrails().clone()
    }

    /// Prepares a statement. Plans it if it is a query.
    async fn prepare(
        &mut self,
        connection: &mut ClientConnection,
        statement: Read,
        specified: &[u32],
    ) -> Result<Prepared, RequestError> {
        let Read { text, kind, asks_settings } = statement;
        let mut prepared =
            Prepared { text, kind: None, planned: None, types: Vec::new(), charges: Vec::new() };
        if prepared.text.is_empty() {
            return Ok(prepared);
        }
        let kind = kind?;
        self.may_run(&kind)?;
        prepared.charges.push(self.account.charge(prepared.text.len() as u64)?);
        if kind == Statement::Query {
            let planned = self.plan(connection, &prepared.text, asks_settings, specified).await?;
            prepared.charges.push(self.account.charge(planned.get().bytes)?);
            let specified = if specified.is_empty() { planned.get().required_types } else { specified };
            prepared.types = parameters::types(&planned.get().parameters, specified);
            prepared.planned = Some(planned);
        }
        if kind == Statement::Access && prepared.text.len() > LARGE_BYTES {
            let (max, got) = (LARGE_BYTES, prepared.text.len());
            let text =
                format!("expected a statement about roles or levels of at most {max} bytes, got {got}");
            return Err(Failure::new(state::LIMIT, text).into());
        }
        prepared.kind = Some(kind);
        Ok(prepared)
    }

    /// Checks that a failed transaction runs nothing but its end.
    fn may_run(&self, kind: &Statement) -> Result<(), Failure> {
        let ends = matches!(kind, Statement::Session(SessionCommand::Commit | SessionCommand::Rollback));
        if self.transaction == TransactionStatus::Error && !ends {
            let text = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Failure::new(state::FAILED_TRANSACTION, text));
        }
        Ok(())
    }

    async fn bind(&mut self, connection: &mut ClientConnection, message: Frame) -> Result<(), RequestError> {
        let Frame { body, charge, .. } = message.kept()?;
        let (is_large, bytes) = (charge.is_some(), body.len() as u64);
        let bind = self.apart(connection, is_large, move || body.bind()).await??;
        let name = bind.portal_name.clone().unwrap_or_default();
        self.check_name(&name)?;
        let prepared = self.find_prepared(bind.statement_name.as_deref())?;
        prepared.kind.iter().try_for_each(|kind| self.may_run(kind))?;
        if self.portals.len() >= self.sql.config().prepared_max && !self.portals.contains_key(&name) {
            return Err(Failure::new(state::LIMIT, "this session has too many portals").into());
        }
        let planned = prepared.planned.as_ref().map(|planned| planned.get().clone());
        let (formats, types) = (bind.result_column_format_codes.clone(), prepared.types.clone());
        let reading = move || {
            let inferred = planned.as_ref().map_or(&[][..], |planned| &planned.parameters);
            parameters::values(&bind, inferred, &types)
        };
        let values = self.apart(connection, is_large, reading).await??;
        if let Some(planned) = &prepared.planned {
            Shape::new(planned.get().schema(), &formats)?;
        }
        drop(charge);
        self.close_portal(&name);
        let charge = self.account.charge(bytes + PORTAL_BYTES)?;
        self.portals.insert(name, Portal::of(prepared, values, formats, Some(charge)));
        Ok(connection.put(&BindComplete::new())?)
    }

    fn find_prepared(&self, name: Option<&str>) -> Result<Rc<Prepared>, Failure> {
        let name = name.unwrap_or_default();
        self.prepared.get(name).cloned().ok_or_else(|| {
            Failure::new(state::NO_STATEMENT, format!("prepared statement \"{name}\" does not exist"))
        })
    }

    async fn describe(
        &mut self,
        connection: &mut ClientConnection,
        describe: &Describe,
    ) -> Result<(), RequestError> {
        if describe.target_type == b'S' {
            let prepared = self.find_prepared(describe.name.as_deref())?;
            connection.put(&ParameterDescription::new(prepared.types.iter().map(Type::oid).collect()))?;
            let mut portal = Portal::of(prepared, None, Vec::new(), None);
            return self.describe_portal(connection, &mut portal, true).await;
        }
        let name = describe.name.clone().unwrap_or_default();
        let mut portal = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        let described = self.describe_portal(connection, &mut portal, true).await;
        self.portals.insert(name, portal);
        described
    }

    async fn execute(
        &mut self,
        connection: &mut ClientConnection,
        execute: &Execute,
    ) -> Result<(), RequestError> {
        let name = execute.name.clone().unwrap_or_default();
        let mut portal = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        let rows_max = u64::try_from(execute.max_rows).ok().filter(|max| *max > 0).unwrap_or(u64::MAX);
        self.execute_portal(connection, &mut portal, rows_max).await?;
        self.portals.insert(name, portal);
        Ok(())
    }

    /// Returns the level's settings for the session's statements.
    pub(crate) fn effective(&self) -> Result<Rc<Effective>, Failure> {
        self.effective_with(self.settings.service_level())
    }

    /// Returns the settings of the chosen level, or of the role's if `level` is `None`.
    pub(crate) fn effective_with(&self, level: Option<&str>) -> Result<Rc<Effective>, Failure> {
        match level {
            Some(level) => Ok(self.here.access.effective_using(&self.login, level)?),
            None => Ok(self.here.access.effective(&self.login)),
        }
    }

    /// Returns the viewer of a statement that begins now.
    pub(crate) fn viewer(&self) -> Arc<dyn Viewer> {
        let here = self.here.access.viewer(&self.login);
        let Some(roles) = self.roles.clone() else { return here };
        let reader = Reader { roles, consistency: self.settings.consistency() };
        Arc::new(ClusterViewer { here, reader })
    }

    /// Returns the session's options for scans.
    pub(crate) fn scan_options(&self) -> ScanOptions {
        ScanOptions { bypass_cache: self.settings.bypass_cache() }
    }

    /// Returns all settings, by name in lower case.
    pub(crate) fn all_set(&self) -> BTreeMap<String, String> {
        self.settings.all().map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect()
    }

    /// Returns the level of the session's role, which pays for what the session may not choose.
    pub(crate) fn of_role(&self) -> Rc<Effective> {
        self.here.access.effective(&self.login)
    }

    /// Returns true until the client's first statement, while it has chosen no level.
    pub(crate) fn is_starting(&self) -> bool {
        self.starting.is_any_left() && self.settings.service_level().is_none()
    }

    /// Moves the session's task to the group of its level, or to that of `driver` for one of the
    /// statements by which its driver connects. If the session may not use the level it chose,
    /// moves to that of its role, which pays for the refusal.
    pub(crate) async fn enter_level(&self, is_starting: bool) -> Result<(Rc<Effective>, Group), Failure> {
        let effective = if is_starting { Ok(self.here.access.handshake()) } else { self.effective() };
        let group = effective.as_ref().map_or_else(|_| self.of_role().group(), |found| found.group());
        if group != lanes::current_group() {
            lanes::switch_group(group).await;
        }
        Ok((effective?, group))
    }
}
