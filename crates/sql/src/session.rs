//! A client's session, on its core's fast lane: who it is, its settings, its prepared statements, and one statement at a time. What
//! computes is handed to heavy lanes and waited for (`work`); here is only what goes between the client and that.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use access::Login;
use lanes::Group;
use pgwire::api::Type;
use pgwire::messages::PgWireFrontendMessage;
use pgwire::messages::data::ParameterDescription;
use pgwire::messages::extendedquery::{
    Bind, BindComplete, CloseComplete, Describe, Execute, Parse, ParseComplete,
};
use pgwire::messages::response::{EmptyQueryResponse, ReadyForQuery, TransactionStatus};
use workload::Effective;

use crate::connection::{Connection, End};
use crate::failure::{Failure, state};
use crate::login::Client;
use crate::output::Shape;
use crate::parameters;
use crate::plan::Planned;
use crate::portal::{Portal, no_portal};
use crate::server::{Cancel, Here, Live, Sql};
use crate::settings::Settings;
use crate::statement::{Own, Statement, classify};
use crate::table::ScanOptions;
use crate::tasks::Kept;
use crate::text;
use crate::work::LOOK_EVERY;

/// A statement made ready by Parse.
pub(crate) struct Prepared {
    pub(crate) text: String,
    pub(crate) kind: Option<Statement>,
    pub(crate) planned: Option<Kept<Arc<Planned>>>,
    types: Vec<Type>,
}

/// See the head of this file.
pub(crate) struct Session {
    pub(crate) sql: Sql,
    pub(crate) here: Rc<Here>,
    pub(crate) login: Login,
    pub(crate) live: Rc<Live>,
    pub(crate) settings: Settings,
    pub(crate) transaction: TransactionStatus,
    pub(crate) prepared: HashMap<String, Rc<Prepared>>,
    pub(crate) portals: HashMap<String, Portal>,
    /// An extended query failed: what follows is passed over until Sync.
    skips: bool,
}

/// What goes wrong with a statement: an answer to the client, or the end.
pub(crate) enum Wrong {
    Statement(Failure),
    Connection(End),
}

impl From<Failure> for Wrong {
    fn from(failure: Failure) -> Wrong {
        if failure.is_fatal { Wrong::Connection(End::Failed(failure)) } else { Wrong::Statement(failure) }
    }
}

impl From<End> for Wrong {
    fn from(end: End) -> Wrong {
        Wrong::Connection(end)
    }
}

impl From<engine::Error> for Wrong {
    fn from(error: engine::Error) -> Wrong {
        Wrong::Statement(error.into())
    }
}

impl Session {
    pub(crate) fn new(sql: Sql, here: Rc<Here>, client: Client, live: Rc<Live>) -> Session {
        let mut settings = Settings::default();
        let database = client.parameters.get("database");
        for (name, value) in &client.parameters {
            // What it does not know, a server passes over at the start.
            if !matches!(name.as_str(), "user" | "database" | "options" | "replication") {
                let _ = settings.set(name, Some(value));
            }
        }
        // A database that is a keyspace is where names without one are looked for.
        if let Some(keyspace) = database.filter(|name| here.tables().has_keyspace(name)) {
            let _ = settings.set("search_path", Some(keyspace));
        }
        Session {
            sql,
            here,
            login: client.login,
            live,
            settings,
            transaction: TransactionStatus::Idle,
            prepared: HashMap::new(),
            portals: HashMap::new(),
            skips: false,
        }
    }

    /// Serves the client until one side ends it: why.
    pub(crate) async fn run(mut self, connection: &mut Connection, number: i32, secret: i32) -> End {
        match self.serve(connection, number, secret).await {
            Ok(()) => End::Gone,
            Err(end) => end,
        }
    }

    async fn serve(&mut self, connection: &mut Connection, number: i32, secret: i32) -> Result<(), End> {
        for (name, value) in self.settings.reported() {
            connection.put_parameter(name, value)?;
        }
        connection.put_parameter("session_authorization", self.login.role())?;
        connection.put_parameter("is_superuser", "off")?;
        connection.put_key(number, secret)?;
        self.ready(connection).await?;
        // Whatever level it is in when it asks for something, it has left that of those who log in.
        let _ = self.enter_level().await;
        loop {
            let message = self.wait(connection).await?;
            if matches!(message, PgWireFrontendMessage::Terminate(_)) {
                return Ok(());
            }
            // A request that came after what it was for.
            if self.live.cancelled.get() == Cancel::Running {
                self.live.cancelled.take();
            }
            if let Err(wrong) = self.handle(connection, message).await {
                let failure = match wrong {
                    Wrong::Connection(end) => return Err(end),
                    Wrong::Statement(failure) => failure,
                };
                connection.put_failure(&failure)?;
                connection.flush().await?;
                self.skips = true;
                self.fail();
            }
            if connection.is_full() {
                connection.flush().await?;
            }
        }
    }

    /// The next message; a server that stops lets nobody begin anything. Meanwhile suspended queries are looked after.
    async fn wait(&mut self, connection: &mut Connection) -> Result<PgWireFrontendMessage, End> {
        let idle_timeout = self.sql.config().idle_timeout;
        let mut idle = std::pin::pin!(lanes::time::sleep(idle_timeout.unwrap_or_default()));
        loop {
            if self.live.killed.get() || self.sql.is_stopping() {
                let text = "terminating connection: the server is stopping";
                return Err(End::Failed(Failure::fatal(state::SHUTDOWN, text)));
            }
            let any = self.look_after_suspended().await?;
            tokio::select! { biased;
                () = self.live.bell.notified() => {}
                message = connection.next() => return message,
                () = lanes::time::sleep(LOOK_EVERY), if any => {}
                () = &mut idle, if idle_timeout.is_some() => {
                    let text = "terminating connection due to idle-session timeout";
                    return Err(End::Failed(Failure::fatal(state::IDLE, text)));
                }
            }
        }
    }

    async fn ready(&mut self, connection: &mut Connection) -> Result<(), End> {
        if self.transaction == TransactionStatus::Idle {
            self.close_portals();
        }
        connection.put(&ReadyForQuery::new(self.transaction))?;
        connection.flush().await
    }

    fn fail(&mut self) {
        self.close_portals();
        if self.transaction == TransactionStatus::Transaction {
            self.transaction = TransactionStatus::Error;
        }
    }

    async fn handle(
        &mut self,
        connection: &mut Connection,
        message: PgWireFrontendMessage,
    ) -> Result<(), Wrong> {
        use PgWireFrontendMessage as Message;
        match message {
            Message::Query(query) => {
                self.skips = false;
                match self.simple(connection, &query.query).await {
                    Err(Wrong::Statement(failure)) => {
                        connection.put_failure(&failure)?;
                        self.fail();
                    }
                    other => other?,
                }
                Ok(self.ready(connection).await?)
            }
            Message::Sync(_) => {
                self.skips = false;
                Ok(self.ready(connection).await?)
            }
            _ if self.skips => Ok(()),
            Message::Parse(parse) => self.parse(connection, parse).await,
            Message::Bind(bind) => self.bind(connection, &bind),
            Message::Describe(describe) => self.describe(connection, &describe).await,
            Message::Execute(execute) => self.execute(connection, &execute).await,
            Message::Close(close) => {
                let name = close.name.unwrap_or_default();
                match close.target_type {
                    b'S' => drop(self.prepared.remove(&name)),
                    _ => self.close_portal(&name),
                }
                Ok(connection.put(&CloseComplete::new())?)
            }
            Message::Flush(_) => Ok(connection.flush().await?),
            _ => Err(Failure::fatal(state::PROTOCOL, "unexpected message").into()),
        }
    }

    /// A Query message: statements one after the other, until one fails.
    async fn simple(&mut self, connection: &mut Connection, text: &str) -> Result<(), Wrong> {
        let statements = text::split(text);
        if statements.is_empty() {
            connection.put(&EmptyQueryResponse::new())?;
        }
        for text in statements {
            let prepared = Rc::new(self.prepare(connection, text.to_owned(), &[]).await?);
            if !prepared.types.is_empty() {
                let text = format!("there is no parameter ${}", prepared.types.len());
                return Err(Failure::new(state::SYNTAX, text).into());
            }
            let mut portal = Portal::of(prepared, None, Vec::new());
            self.describe_portal(connection, &mut portal, false).await?;
            self.execute_portal(connection, &mut portal, u64::MAX).await?;
        }
        Ok(())
    }

    async fn parse(&mut self, connection: &mut Connection, parse: Parse) -> Result<(), Wrong> {
        let name = parse.name.unwrap_or_default();
        let max = self.sql.config().prepared_max;
        if self.prepared.len() >= max && !self.prepared.contains_key(&name) {
            let text = format!("this session has {max} prepared statements, which is the limit");
            return Err(Failure::new(state::LIMIT, text).into());
        }
        let mut statements = text::split(&parse.query);
        let text = statements.pop().unwrap_or_default().to_owned();
        if !statements.is_empty() {
            let text = "cannot insert multiple commands into a prepared statement";
            return Err(Failure::new(state::SYNTAX, text).into());
        }
        let prepared = self.prepare(connection, text, &parse.type_oids).await?;
        self.prepared.insert(name, Rc::new(prepared));
        Ok(connection.put(&ParseComplete::new())?)
    }

    /// Makes a text ready: what kind of statement it is, and its plan.
    async fn prepare(
        &mut self,
        connection: &mut Connection,
        text: String,
        said: &[u32],
    ) -> Result<Prepared, Wrong> {
        let mut prepared = Prepared { text, kind: None, planned: None, types: Vec::new() };
        if prepared.text.is_empty() {
            return Ok(prepared);
        }
        let kind = classify(&prepared.text)?;
        self.may_run(&kind)?;
        if kind == Statement::Query {
            let planned = self.plan(connection, &prepared.text).await?;
            let said = if said.is_empty() { planned.get().told } else { said };
            prepared.types = parameters::types(&planned.get().parameters, said);
            prepared.planned = Some(planned);
        }
        prepared.kind = Some(kind);
        Ok(prepared)
    }

    /// After an error nothing runs but the end of the transaction.
    fn may_run(&self, kind: &Statement) -> Result<(), Failure> {
        let ends = matches!(kind, Statement::Own(Own::Commit | Own::Rollback));
        if self.transaction == TransactionStatus::Error && !ends {
            let text = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Failure::new(state::FAILED_TRANSACTION, text));
        }
        Ok(())
    }

    fn bind(&mut self, connection: &mut Connection, bind: &Bind) -> Result<(), Wrong> {
        let name = bind.portal_name.clone().unwrap_or_default();
        let prepared = self.find_prepared(bind.statement_name.as_deref())?;
        prepared.kind.iter().try_for_each(|kind| self.may_run(kind))?;
        if self.portals.len() >= self.sql.config().prepared_max && !self.portals.contains_key(&name) {
            return Err(Failure::new(state::LIMIT, "this session has too many portals").into());
        }
        let inferred = prepared.planned.as_ref().map_or(&[][..], |planned| &planned.get().parameters);
        let values = parameters::values(bind, inferred, &prepared.types)?;
        let formats = bind.result_column_format_codes.clone();
        if let Some(planned) = &prepared.planned {
            Shape::new(planned.get().schema(), &formats)?;
        }
        self.close_portal(&name);
        self.portals.insert(name, Portal::of(prepared, values, formats));
        Ok(connection.put(&BindComplete::new())?)
    }

    fn find_prepared(&self, name: Option<&str>) -> Result<Rc<Prepared>, Failure> {
        let name = name.unwrap_or_default();
        self.prepared.get(name).cloned().ok_or_else(|| {
            Failure::new(state::NO_STATEMENT, format!("prepared statement \"{name}\" does not exist"))
        })
    }

    async fn describe(&mut self, connection: &mut Connection, describe: &Describe) -> Result<(), Wrong> {
        if describe.target_type == b'S' {
            let prepared = self.find_prepared(describe.name.as_deref())?;
            connection.put(&ParameterDescription::new(prepared.types.iter().map(Type::oid).collect()))?;
            let mut portal = Portal::of(prepared, None, Vec::new());
            return self.describe_portal(connection, &mut portal, true).await;
        }
        let name = describe.name.clone().unwrap_or_default();
        let mut portal = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        let described = self.describe_portal(connection, &mut portal, true).await;
        self.portals.insert(name, portal);
        described
    }

    async fn execute(&mut self, connection: &mut Connection, execute: &Execute) -> Result<(), Wrong> {
        let name = execute.name.clone().unwrap_or_default();
        let mut portal = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        let rows_max = u64::try_from(execute.max_rows).ok().filter(|max| *max > 0).unwrap_or(u64::MAX);
        self.execute_portal(connection, &mut portal, rows_max).await?;
        self.portals.insert(name, portal);
        Ok(())
    }

    /// What holds for the session's statements now.
    pub(crate) fn effective(&self) -> Result<Rc<Effective>, Failure> {
        self.effective_with(self.settings.service_level())
    }

    /// What holds now for statements for which a level was chosen, or else that of the role.
    pub(crate) fn effective_with(&self, level: Option<&str>) -> Result<Rc<Effective>, Failure> {
        match level {
            Some(level) => Ok(self.here.access.effective_using(&self.login, level)?),
            None => Ok(self.here.access.effective(&self.login)),
        }
    }

    /// What it says about its scans.
    pub(crate) fn scan_options(&self) -> ScanOptions {
        ScanOptions { bypass_cache: self.settings.bypass_cache() }
    }

    /// All settings, if a statement may ask for them.
    pub(crate) fn settings_asked_for(&self, text: &str) -> BTreeMap<String, String> {
        match text.to_ascii_lowercase().contains("current_setting") {
            true => {
                self.settings.all().map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect()
            }
            false => BTreeMap::new(),
        }
    }

    /// The level's group, which the session's task moves to if it is in another.
    pub(crate) async fn enter_level(&self) -> Result<(Rc<Effective>, Group), Failure> {
        let effective = self.effective()?;
        let group = effective.group();
        if group != lanes::current_group() {
            lanes::switch_group(group).await;
        }
        Ok((effective, group))
    }
}
