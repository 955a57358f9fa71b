//! A server without sockets: two cores, each with an engine and its `Access`, and sessions by role
//! name.
#![allow(dead_code, reason = "every test file uses its own part of this")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use access::{Access, AuthError, Login};
use embedded::WallClock;
use engine::{AnswerGrant, AnswerMemory, Engine, Error, ParsedTree, Request, StatementOutcome};
use lanes::{Group, Lanes};
use testkit::{Setup, close_engines, open_roles, run, texts};
use workload::Levels;

/// The password of every role in these tests.
pub(crate) const PASSWORD: &str = testkit::ADMIN.1;
pub(crate) const CORES: usize = 2;

thread_local! {
    static SESSIONS: RefCell<HashMap<String, Login>> = RefCell::default();
    static ACCESS: RefCell<Option<Rc<Access>>> = const { RefCell::new(None) };
}

/// Returns the `Access` of this core.
pub(crate) fn access() -> Rc<Access> {
    ACCESS.with_borrow(|access| access.clone().expect("open"))
}

pub(crate) struct Server {
    lanes: Lanes,
}

impl Server {
    /// Starts a server in memory, or in a directory.
    pub(crate) fn start(dir: Option<&Path>) -> Server {
        Server::start_at(dir, WallClock::default())
    }

    /// Starts a server with another clock.
    pub(crate) fn start_at(dir: Option<&Path>, clock: WallClock) -> Server {
        let lanes = Setup::new(CORES).dir(dir).clock(clock).start();
        open_roles(&lanes, &Levels::new(lanes.clone()), |_, access| ACCESS.set(Some(access)));
        Server { lanes }
    }

    /// Runs a function on a core.
    pub(crate) fn on<T: Send + 'static, F: Future<Output = T> + 'static>(
        &self,
        core: usize,
        run: impl FnOnce(Rc<Access>) -> F + Send + 'static,
    ) -> T {
        self.lanes.block_on(core, Group::DEFAULT, move || run(access()))
    }

    /// Runs a statement in the role's session on a core. `role!` means a new session. Returns `ok`,
    /// the rows as text, or the error.
    pub(crate) fn run(&self, core: usize, role: &str, text: &str) -> String {
        let (role, text) = (role.to_owned(), text.to_owned());
        self.on(core, |access| async move {
            let login = match role.strip_suffix('!') {
                Some(role) => access.authenticate(role, PASSWORD).await,
                None => open_session(&access, &role).await,
            };
            let login = match login {
                Ok(login) => login,
                Err(error) => return format!("BadCredentials: {error}"),
            };
            format_result(statement(&access, &login, &text).await)
        })
    }

    pub(crate) fn stop(self) {
        for core in 0..CORES {
            self.lanes.block_on(core, Group::CONTROL, || async { drop(ACCESS.take()) });
        }
        close_engines(&self.lanes);
        self.lanes.shutdown();
    }
}

/// Returns the role's session on this core. Sessions are shared, because hashing is slow in a debug
/// build.
pub(crate) async fn open_session(access: &Rc<Access>, role: &str) -> Result<Login, AuthError> {
    let known = SESSIONS.with_borrow(|sessions| sessions.get(role).cloned());
    if let Some(login) = known.filter(Login::is_current) {
        return Ok(login);
    }
    let login = access.authenticate(role, PASSWORD).await?;
    SESSIONS.with_borrow_mut(|sessions| sessions.insert(role.to_owned(), login.clone()));
    Ok(login)
}

/// Runs a statement on the engine without a role. Does not follow schema changes.
pub(crate) async fn engine_alone(text: &str) -> Result<StatementOutcome, Error> {
    run(&testkit::engine(), text).await
}

/// Memory for any answer.
struct Unlimited;

impl AnswerMemory for Unlimited {
    fn open(&self) -> Arc<dyn AnswerGrant> {
        unimplemented!("answers of these tests are short")
    }
}

/// Runs a statement like the server: checks the rights, then dispatches it.
pub(crate) async fn statement(
    access: &Rc<Access>,
    login: &Login,
    text: &str,
) -> Result<StatementOutcome, Error> {
    let statement = ParsedTree::parse(text).map_err(|error| Error::Invalid(format!("syntax: {error}")))?;
    if Access::handles(&statement) {
        return access.execute(login, &statement, Some("ks"), &Unlimited).await;
    }
    let engine = testkit::engine();
    access.authorize_statement(login, &statement, Some("ks"))?;
    if let cql::Statement::Describe(_) = &*statement {
        return Ok(StatementOutcome::Void);
    }
    if let cql::Statement::Select(select) = &*statement
        && let Some(level) = &select.using.service_level
    {
        access.effective_using(login, level)?;
    }
    let plan = engine.prepare(Arc::new(statement), Some("ks"))?;
    access.authorize(login, plan.targets())?;
    let outcome = engine.execute(&plan, &Request::EMPTY).outcome(&*engine).await?;
    if let StatementOutcome::SchemaChange(change) = &outcome {
        access.schema_changed(login, change).await?;
    }
    Ok(outcome)
}

pub(crate) fn format_result(result: Result<StatementOutcome, Error>) -> String {
    match result {
        Ok(StatementOutcome::Rows(rows)) => {
            let names: Vec<&str> = rows.columns.iter().map(|column| column.name.as_str()).collect();
            let mut lines = vec![names.join(" | ")];
            lines.extend(texts(&rows).iter().map(|row| row.join(" | ")));
            lines.join("\n")
        }
        Ok(_) => "ok".to_owned(),
        Err(error) => {
            let kind = match error {
                Error::Invalid(_) => "Invalid",
                Error::Unauthorized(_) => "Unauthorized",
                Error::Overloaded(_) => "Overloaded",
                _ => "other",
            };
            format!("{kind}: {error}")
        }
    }
}
