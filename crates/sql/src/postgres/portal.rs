//! A portal: a statement with its parameter values, executed for a client. If the client fetches a
//! query in steps, the query is suspended between them. It keeps its slot, memory and limits until
//! it ends, and its limits are checked meanwhile.

use std::rc::Rc;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use frontdoor::Charge;
use pgwire::messages::data::NoData;
use pgwire::messages::extendedquery::PortalSuspended;
use pgwire::messages::response::{CommandComplete, EmptyQueryResponse};
use workload::{Level, Ticket};

use crate::engine::parse::text;
use crate::failure::{Failure, state};
use crate::postgres::connection::ClientConnection;
use crate::postgres::counts::add;
use crate::postgres::error::{End, RequestError};
use crate::postgres::output::Shape;
use crate::postgres::query::{ChunkEnd, Running};
use crate::postgres::server::{Cancel, LiveSession};
use crate::postgres::session::{Prepared, Session};
use crate::postgres::statement::{SessionCommand, Statement};
use crate::postgres::statement_context::StatementContext;
use crate::run::tasks::HeavyDrop;

/// A bound statement, and how far it has come.
pub(crate) struct Portal {
    prepared: Rc<Prepared>,
    values: Option<datafusion::common::ParamValues>,
    formats: Vec<i16>,
    /// The query, if it is suspended.
    suspended: Option<Suspended>,
    /// Reason why the query was ended while it was suspended.
    failure: Option<Failure>,
    /// All rows were sent.
    is_done: bool,
    /// Rows of a statement about roles and levels, if Describe has executed it already.
    listed: Option<engine::ResultRows>,
    rows: u64,
    /// Memory of the parameter values.
    _charge: Option<Charge>,
}

/// A query whose client has not asked for more rows yet. It keeps its slot, its memory and its
/// limits.
pub(crate) struct Suspended {
    context: StatementContext,
    running: HeavyDrop<Running>,
}

impl Session {
    /// Ends suspended queries that exceed their limits, or all of them after `CANCEL STATEMENT`.
    /// Returns true if suspended queries remain. Clears the session's cancel request: a running
    /// statement that it was for has ended.
    pub(crate) async fn check_suspended(&mut self) -> Result<bool, End> {
        let all = self.live.cancelled.take() == Cancel::All;
        let mut portals = std::mem::take(&mut self.portals);
        let mut any = false;
        for portal in portals.values_mut() {
            let Some(suspended) = portal.suspended.take() else { continue };
            match suspended.context.check(self, all).await {
                Ok(()) => {
                    any = true;
                    portal.suspended = Some(suspended);
                }
                Err(RequestError::Statement(failure)) => {
                    drop(suspended.context.end(&self.live, true));
                    portal.failure = Some(failure);
                }
                Err(RequestError::Connection(end)) => return Err(end),
            }
        }
        self.portals = portals;
        Ok(any)
    }

    /// Returns the slot of a suspended query of the level. The session's next query borrows it.
    pub(crate) fn lent_slot(&self, level: &Arc<Level>) -> Option<Rc<Ticket>> {
        self.portals.values().find_map(|portal| portal.suspended.as_ref()?.context.slot_of(level))
    }

    pub(crate) fn close_portal(&mut self, name: &str) {
        self.portals.remove(name).into_iter().for_each(|portal| portal.close(&self.live));
    }

    /// Closes all portals and ends their suspended queries, as the end of a transaction does.
    pub(crate) fn close_portals(&mut self) {
        self.portals.drain().for_each(|(_, portal)| portal.close(&self.live));
    }

    /// Sends the columns of a statement. If it has none, sends NoData when `is_asked`.
    pub(crate) async fn describe_portal(
        &mut self,
        connection: &mut ClientConnection,
        portal: &mut Portal,
        is_asked: bool,
    ) -> Result<(), RequestError> {
        let shape = match &portal.prepared.kind {
            Some(Statement::Query) => {
                let planned = portal.prepared.planned.as_ref().expect("queries are planned");
                Some(Shape::new(planned.get().schema(), &portal.formats)?)
            }
            Some(Statement::Session(SessionCommand::Show(name))) => {
                let (name, _) = self.show(name)?;
                Some(Shape::text(name))
            }
            Some(Statement::Session(SessionCommand::ShowAll)) => Some(self.all_settings().1),
            Some(Statement::Cancel(call)) => {
                Some(Shape::new(truth(call.function)?.schema_ref(), &portal.formats)?)
            }
            // Among these only LIST returns rows. Its columns are known after execution.
            Some(Statement::Access) if text::words(&portal.prepared.text, 1)[0].is("list") => {
                let rows = self.list(&portal.prepared.text).await?;
                let batch = crate::postgres::outcome::batch(&rows)?;
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

    async fn list(&mut self, text: &str) -> Result<engine::ResultRows, RequestError> {
        match self.access(text).await? {
            engine::StatementOutcome::Rows(rows) => Ok(rows),
            _ => Err(Failure::new(state::INTERNAL, "a LIST without rows").into()),
        }
    }

    pub(crate) async fn execute_portal(
        &mut self,
        connection: &mut ClientConnection,
        portal: &mut Portal,
        rows_max: u64,
    ) -> Result<(), RequestError> {
        let prepared = portal.prepared.clone();
        if prepared.kind.is_some() && portal.suspended.is_none() {
            add(&self.here.counts.statements, 1);
        }
        match &prepared.kind {
            None => Ok(connection.put(&EmptyQueryResponse::new())?),
            Some(Statement::Session(command)) => self.run_command(connection, command),
            Some(Statement::Cancel(call)) => {
                self.access(&call.command).await?;
                let batch = truth(call.function)?;
                let shape = Shape::new(batch.schema_ref(), &portal.formats)?;
                self.put_rows(connection, &shape, batch)?;
                Ok(connection.put(&CommandComplete::new("SELECT 1".to_owned()))?)
            }
            Some(Statement::Access) => {
                let outcome = match portal.listed.take() {
                    Some(rows) => engine::StatementOutcome::Rows(rows),
                    None => self.access(&prepared.text).await?,
                };
                let engine::StatementOutcome::Rows(rows) = outcome else {
                    return Ok(connection.put(&CommandComplete::new(tag_of(&prepared.text)))?);
                };
                let batch = crate::postgres::outcome::batch(&rows)?;
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
                if let Some(failure) = portal.failure.take() {
                    return Err(failure.into());
                }
                let begun = portal.suspended.take();
                if begun.is_none() {
                    for (name, to) in &planned.get().sets {
                        self.set(connection, name, Some(&to.value(portal.values.as_ref())?))?;
                    }
                }
                let (rows, left) = self.rows(connection, &prepared, begun, values, shape, rows_max).await?;
                portal.rows += rows;
                portal.suspended = left;
                if portal.suspended.is_some() {
                    return Ok(connection.put(&PortalSuspended::new())?);
                }
                portal.is_done = true;
                Ok(connection.put(&CommandComplete::new(format!("{tag} {}", portal.rows)))?)
            }
        }
    }

    /// Sends rows of a query, and resumes it if it was suspended. Returns the number of rows and
    /// the suspended query, if any.
    async fn rows(
        &mut self,
        connection: &mut ClientConnection,
        prepared: &Prepared,
        begun: Option<Suspended>,
        values: Option<datafusion::common::ParamValues>,
        shape: Shape,
        rows_max: u64,
    ) -> Result<(u64, Option<Suspended>), RequestError> {
        let planned = prepared.planned.as_ref().expect("queries are planned").get();
        let is_of_server = planned.reads_server_only();
        let (mut context, begun) = match begun {
            Some(Suspended { mut context, running }) => {
                context.resume(self).await;
                (context, Some(running))
            }
            None => {
                let is_starting = self.is_starting() && planned.is_of_drivers();
                let mut context = self.begin_statement(connection, is_starting, || is_of_server).await?;
                let reads = planned.tables.iter().map(|(keyspace, table)| format!(" {keyspace}.{table}"));
                context.show(&self.live, reads.fold("read".to_owned(), |all, one| all + &one));
                (context, None)
            }
        };
        let result = async {
            let mut running = match begun {
                Some(running) => running,
                None => {
                    // Operators must see why a level is full.
                    if !is_of_server {
                        context.enter(self, connection).await?;
                    }
                    context.start(self, connection, planned, values, shape).await?
                }
            };
            let mut sent = 0;
            loop {
                let (left, rows, progress) =
                    context.chunk(self, connection, running, rows_max - sent).await?;
                sent += rows;
                running = left;
                match progress {
                    ChunkEnd::More => context.flush(self, connection).await?,
                    ChunkEnd::Suspended => return Ok((sent, Some(running))),
                    ChunkEnd::Done => return Ok((sent, None)),
                }
            }
        };
        let result: Result<_, RequestError> = result.await;
        if let Ok((sent, Some(running))) = result {
            self.permits.keep_unsent(context.suspend());
            return Ok((sent, Some(Suspended { context, running })));
        }
        if !planned.is_of_drivers() {
            self.log_if_slow(&context, &prepared.text);
        }
        self.permits.keep_unsent(context.end(&self.live, result.is_err()));
        connection.rest();
        if planned.of_catalog && matches!(result, Err(RequestError::Statement(_))) {
            add(&self.here.counts.catalog_failures, 1);
        }
        result.map(|(sent, _)| (sent, None))
    }
}

/// Returns a row of one column, whose value is true.
fn truth(column: &str) -> Result<RecordBatch, Failure> {
    let values: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
    RecordBatch::try_from_iter([(column, values)])
        .map_err(|error| Failure::new(state::INTERNAL, error.to_string()))
}

impl Portal {
    pub(crate) fn of(
        prepared: Rc<Prepared>,
        values: Option<datafusion::common::ParamValues>,
        formats: Vec<i16>,
        charge: Option<Charge>,
    ) -> Portal {
        Portal {
            prepared,
            values,
            formats,
            suspended: None,
            failure: None,
            is_done: false,
            listed: None,
            rows: 0,
            _charge: charge,
        }
    }

    /// Ends the suspended query, if any.
    fn close(self, live: &LiveSession) {
        self.suspended.into_iter().for_each(|suspended| drop(suspended.context.end(live, false)));
    }
}

pub(crate) fn no_portal(name: &str) -> Failure {
    Failure::new(state::NO_PORTAL, format!("portal \"{name}\" does not exist"))
}

/// Returns the command tag of a statement about roles and levels: its first words.
fn tag_of(text: &str) -> String {
    let words: Vec<String> = text::words(text, 3).iter().map(|word| word.text().to_uppercase()).collect();
    let count = match (words.first().map(String::as_str), words.get(1).map(String::as_str)) {
        (Some("GRANT" | "REVOKE"), _) => 1,
        (_, Some("SERVICE")) => 3,
        _ => 2,
    };
    words[..count.min(words.len())].join(" ")
}
