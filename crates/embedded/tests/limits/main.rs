//! Sizes that a client controls: statements are rejected before work is done for them, or run in
//! task polls of bounded length.

mod answers;
mod batches;
mod bindings;
mod definitions;
mod json;
mod large;
mod reads;
mod sizes;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use embedded::Embedded;
use engine::{Engine, Error, Guardrail, ParsedTree, Plan, Request, StatementOutcome, Value};
use lanes::{Group, Lanes};

/// Engine in memory.
pub(crate) struct Server(pub(crate) Lanes);

/// Engine for running statements.
#[derive(Clone)]
pub(crate) struct Session(pub(crate) Rc<Embedded>);

impl Server {
    /// Starts an engine with a keyspace `ks`, and runs the statements in it.
    pub(crate) fn with(statements: &'static [&'static str]) -> Server {
        Server::on(1, statements)
    }

    /// Starts an engine on `cores` cores, as [`Server::with`] does.
    pub(crate) fn on(cores: usize, statements: &'static [&'static str]) -> Server {
        let server = Server(testkit::Setup::new(cores).start());
        server.run(async |session| {
            for text in [testkit::KEYSPACE].into_iter().chain(statements.iter().copied()) {
                session.run(text, &[]).await.expect(text);
            }
        });
        server
    }

    /// Runs a task with the engine.
    pub(crate) fn run<T: Send + 'static>(&self, task: impl AsyncFnOnce(Session) -> T + Send + 'static) -> T {
        self.0.block_on(0, Group::DEFAULT, move || async move { task(Session(testkit::engine())).await })
    }

    /// Runs a task with the engine. Returns the most work units of its task polls.
    pub(crate) fn units(&self, task: impl AsyncFnOnce(Session) + Send + 'static) -> u32 {
        // A poll is counted when it ends. Run another one, so that the last one is counted.
        self.0.block_on(0, Group::CONTROL, || async {});
        self.0.take_most_units(0);
        self.run(task);
        self.0.block_on(0, Group::CONTROL, || async {});
        self.0.take_most_units(0)
    }

    /// Stops the server.
    pub(crate) fn end(self) {
        self.0.shutdown();
    }

    /// Stops the server. Checks that no task poll spent more work units than the maximum.
    pub(crate) fn end_with_bounded_polls(self) {
        let most = (0..self.0.cores()).map(|core| self.0.most_units(core)).max().unwrap_or(0);
        self.0.shutdown();
        assert!(most <= lanes::UNITS_MAX, "a task poll spent {most} work units");
    }
}

impl Session {
    pub(crate) fn prepare(&self, text: &str) -> Result<Rc<dyn Plan>, Error> {
        let statement = ParsedTree::parse(text).map_err(|error| Error::Invalid(error.to_string()))?;
        self.0.prepare(Arc::new(statement), Some("ks"))
    }

    /// Runs a text with values, which are in one body as those of a client are. Yields before it as
    /// a connection does. Returns the number of rows.
    pub(crate) async fn run(&self, text: &str, values: &[&[u8]]) -> Result<u32, Error> {
        if lanes::spend(1) {
            lanes::yield_now().await;
        }
        let plan = self.prepare(text)?;
        let body = Bytes::from(values.concat());
        let mut left = &body[..];
        let in_body = |value: &&[u8]| Value::Bytes(left.split_off(..value.len()).expect("it is in the body"));
        let values: Vec<Value<'_>> = values.iter().map(in_body).collect();
        let request = Request { values: &values, body: Some(&body), ..Request::EMPTY };
        self.counted(self.0.execute(&plan, &request)).await
    }

    /// Returns the error of a statement.
    pub(crate) async fn refused(&self, text: &str, values: &[&[u8]]) -> String {
        match self.run(text, values).await {
            Ok(rows) => format!("{rows} rows"),
            Err(error) => error.to_string(),
        }
    }

    pub(crate) async fn counted(&self, execution: engine::Execution) -> Result<u32, Error> {
        Ok(match execution.outcome(&*self.0).await? {
            StatementOutcome::Rows(rows) => rows.count,
            _ => 0,
        })
    }

    pub(crate) fn limit(&self, guardrail: Guardrail, fail: u64) {
        self.0.registry().guardrails().set(guardrail, 0, fail);
    }
}

/// Serializes a list of `count` ints.
pub(crate) fn ints(count: u32) -> Vec<u8> {
    let ints: Vec<[u8; 4]> = (0..count).map(u32::to_be_bytes).collect();
    schema::value::encode_list(ints.iter().map(|int| &int[..]))
}
