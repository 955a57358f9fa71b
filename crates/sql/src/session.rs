//! A client's session, on its core's fast lane: who it is, its settings, its prepared statements, and one statement at a time. What
//! computes is handed to heavy lanes and waited for (`work`); here is only what goes between the client and that.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use access::Login;
use lanes::Group;
use pgwire::api::Type;
use pgwire::messages::PgWireFrontendMessage;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, CloseComplete, Describe, Execute, Parse, ParseComplete, PortalSuspended,
};
use pgwire::messages::response::{CommandComplete, EmptyQueryResponse, ReadyForQuery, TransactionStatus};
use workload::Effective;

use crate::connection::{Connection, End};
use crate::failure::{Failure, state};
use crate::login::Client;
use crate::output::Shape;
use crate::parameters;
use crate::plan::Planned;
use crate::query::{Progress, Running};
use crate::server::{Here, Live, Sql};
use crate::settings::Settings;
use crate::statement::{Own, Statement, classify};
use crate::table::ScanOptions;
use crate::tasks::Kept;
use crate::text;

/// A statement made ready by Parse.
pub(crate) struct Prepared {
    text: String,
    kind: Option<Statement>,
    planned: Option<Kept<Arc<Planned>>>,
    types: Vec<Type>,
}

/// A statement with its values.
struct Portal {
    prepared: Rc<Prepared>,
    values: Option<datafusion::common::ParamValues>,
    formats: Vec<i16>,
    /// Begun, and left in the middle.
    running: Option<Kept<Running>>,
    /// All its rows were given.
    is_done: bool,
    /// Rows of a statement about roles and levels, made to be described.
    listed: Option<engine::Rows>,
    rows: u64,
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
    portals: HashMap<String, Portal>,
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
            self.live.cancelled.set(false);
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

    /// The next message; a server that stops lets nobody begin anything.
    async fn wait(&self, connection: &mut Connection) -> Result<PgWireFrontendMessage, End> {
        loop {
            if self.live.killed.get() || self.sql.is_stopping() {
                let text = "terminating connection: the server is stopping";
                return Err(End::Failed(Failure::fatal(state::SHUTDOWN, text)));
            }
            tokio::select! { biased;
                () = self.live.bell.notified() => {}
                message = connection.next() => return message,
            }
        }
    }

    async fn ready(&mut self, connection: &mut Connection) -> Result<(), End> {
        connection.put(&ReadyForQuery::new(self.transaction))?;
        connection.flush().await
    }

    fn fail(&mut self) {
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
                if self.transaction == TransactionStatus::Idle {
                    self.portals.clear();
                }
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
                    _ => drop(self.portals.remove(&name)),
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
        let ends = matches!(kind, Statement::Own(Own::Commit | Own::Rollback));
        if self.transaction == TransactionStatus::Error && !ends {
            let text = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Failure::new(state::FAILED_TRANSACTION, text).into());
        }
        if kind == Statement::Query {
            let planned = self.plan(connection, &prepared.text).await?;
            prepared.types = parameters::types(&planned.get().parameters, said);
            prepared.planned = Some(planned);
        }
        prepared.kind = Some(kind);
        Ok(prepared)
    }

    fn bind(&mut self, connection: &mut Connection, bind: &Bind) -> Result<(), Wrong> {
        let name = bind.portal_name.clone().unwrap_or_default();
        let prepared = self.find_prepared(bind.statement_name.as_deref())?;
        if self.portals.len() >= self.sql.config().prepared_max && !self.portals.contains_key(&name) {
            return Err(Failure::new(state::LIMIT, "this session has too many portals").into());
        }
        let inferred = prepared.planned.as_ref().map_or(&[][..], |planned| &planned.get().parameters);
        let values = parameters::values(bind, inferred, &prepared.types)?;
        let formats = bind.result_column_format_codes.clone();
        if let Some(planned) = &prepared.planned {
            Shape::new(planned.get().schema(), &formats)?;
        }
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

    /// Says which columns a statement gives; where it gives none, says so if `is_asked`.
    async fn describe_portal(
        &mut self,
        connection: &mut Connection,
        portal: &mut Portal,
        is_asked: bool,
    ) -> Result<(), Wrong> {
        let shape = match &portal.prepared.kind {
            Some(Statement::Query) => {
                let planned = portal.prepared.planned.as_ref().expect("queries are planned");
                Some(Shape::new(planned.get().schema(), &portal.formats)?)
            }
            Some(Statement::Own(Own::Show(name))) => {
                let (name, _) = self.show(name)?;
                Some(Shape::text(name))
            }
            Some(Statement::Own(Own::ShowAll)) => Some(self.all_settings().1),
            // Only what lists has columns, and which is known when it has been made.
            Some(Statement::Access) if text::words(&portal.prepared.text, 1)[0].is("list") => {
                let rows = self.list(&portal.prepared.text).await?;
                let batch = crate::outcome::batch(&rows)?;
                portal.listed = Some(rows);
                Some(Shape::new(batch.schema_ref(), &portal.formats)?)
            }
            _ => None,
        };
        match shape {
            Some(shape) => connection.put(&shape.description())?,
            None if is_asked => connection.put(&NoData::new())?,
            None => {}
        }
        Ok(())
    }

    async fn list(&mut self, text: &str) -> Result<engine::Rows, Wrong> {
        match self.access(text).await? {
            engine::Outcome::Rows(rows) => Ok(rows),
            _ => Err(Failure::new(state::INTERNAL, "a LIST without rows").into()),
        }
    }

    async fn execute(&mut self, connection: &mut Connection, execute: &Execute) -> Result<(), Wrong> {
        let name = execute.name.clone().unwrap_or_default();
        let mut portal = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        let rows_max = u64::try_from(execute.max_rows).ok().filter(|max| *max > 0).unwrap_or(u64::MAX);
        self.execute_portal(connection, &mut portal, rows_max).await?;
        self.portals.insert(name, portal);
        Ok(())
    }

    async fn execute_portal(
        &mut self,
        connection: &mut Connection,
        portal: &mut Portal,
        rows_max: u64,
    ) -> Result<(), Wrong> {
        let prepared = portal.prepared.clone();
        match &prepared.kind {
            None => Ok(connection.put(&EmptyQueryResponse::new())?),
            Some(Statement::Own(own)) => {
                let own = own.clone();
                self.own(connection, &own)?;
                if own == Own::Discard {
                    self.portals.clear();
                }
                Ok(())
            }
            Some(Statement::Access) => {
                let outcome = match portal.listed.take() {
                    Some(rows) => engine::Outcome::Rows(rows),
                    None => self.access(&prepared.text).await?,
                };
                let engine::Outcome::Rows(rows) = outcome else {
                    return Ok(connection.put(&CommandComplete::new(tag_of(&prepared.text)))?);
                };
                let batch = crate::outcome::batch(&rows)?;
                let shape = Shape::new(batch.schema_ref(), &portal.formats)?;
                self.put_rows(connection, &shape, batch)?;
                Ok(connection.put(&CommandComplete::new(format!("LIST {}", rows.count)))?)
            }
            Some(Statement::Query) => {
                let planned = prepared.planned.as_ref().expect("queries are planned");
                let tag = planned.get().tag;
                if portal.is_done {
                    return Ok(connection.put(&CommandComplete::new(format!("{tag} 0")))?);
                }
                let shape = Shape::new(planned.get().schema(), &portal.formats)?;
                let values = portal.values.clone();
                let begun = portal.running.take();
                let (rows, left) =
                    self.rows(connection, planned.get(), begun, values, shape, rows_max).await?;
                portal.rows += rows;
                portal.running = left;
                if portal.running.is_some() {
                    return Ok(connection.put(&PortalSuspended::new())?);
                }
                portal.is_done = true;
                Ok(connection.put(&CommandComplete::new(format!("{tag} {}", portal.rows)))?)
            }
        }
    }

    /// What holds for the session's statements now.
    pub(crate) fn effective(&self) -> Result<Rc<Effective>, Failure> {
        match self.settings.service_level() {
            Some(level) => Ok(self.here.access.effective_using(&self.login, level)?),
            None => Ok(self.here.access.effective(&self.login)),
        }
    }

    /// What it says about its scans.
    pub(crate) fn scan_options(&self) -> ScanOptions {
        ScanOptions { bypass_cache: self.settings.bypass_cache() }
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

    /// Sends a query's rows, from where it was left if it was begun: how many, and what is left of it.
    async fn rows(
        &mut self,
        connection: &mut Connection,
        planned: &Arc<Planned>,
        begun: Option<Kept<Running>>,
        values: Option<datafusion::common::ParamValues>,
        shape: Shape,
        rows_max: u64,
    ) -> Result<(u64, Option<Kept<Running>>), Wrong> {
        let mut work = self.begin_work().await?;
        let reads = planned.tables.iter().map(|(keyspace, table)| format!(" {keyspace}.{table}"));
        work.show(&self.live, reads.fold("read".to_owned(), |all, one| all + &one));
        let result = async {
            work.enter(self, connection).await?;
            let mut running = match begun {
                Some(running) => running,
                None => work.start(self, connection, planned, values, shape).await?,
            };
            let mut sent = 0;
            loop {
                let (left, rows, progress) = work.chunk(self, connection, running, rows_max - sent).await?;
                sent += rows;
                running = left;
                match progress {
                    Progress::More => connection.flush().await?,
                    Progress::Suspended => return Ok((sent, Some(running))),
                    Progress::Done => return Ok((sent, None)),
                }
            }
        };
        let result: Result<_, Wrong> = result.await;
        self.live.query.replace(None);
        work.end(result.is_err());
        result
    }
}

impl Portal {
    fn of(
        prepared: Rc<Prepared>,
        values: Option<datafusion::common::ParamValues>,
        formats: Vec<i16>,
    ) -> Portal {
        Portal { prepared, values, formats, running: None, is_done: false, listed: None, rows: 0 }
    }
}

fn no_portal(name: &str) -> Failure {
    Failure::new(state::NO_PORTAL, format!("portal \"{name}\" does not exist"))
}

/// What is said when a statement about roles and levels is done: its first words.
fn tag_of(text: &str) -> String {
    let words: Vec<String> = text::words(text, 3).iter().map(|word| word.text().to_uppercase()).collect();
    let count = match (words.first().map(String::as_str), words.get(1).map(String::as_str)) {
        (Some("GRANT" | "REVOKE"), _) => 1,
        (_, Some("SERVICE")) => 3,
        _ => 2,
    };
    words[..count.min(words.len())].join(" ")
}
