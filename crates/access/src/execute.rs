//! Statements about roles, grants and levels.

use std::sync::Arc;

use cql::ast::{AlterRole, RoleOptions};
use engine::{AnswerGrant, AnswerMemory, Error, SchemaChange, StatementOutcome};

use crate::access::Access;
use crate::cancel::CancelTarget;
use crate::change::Job;
use crate::login::{Login, ended};
use crate::plan::EMPTY_PASSWORD;
use crate::scram::PASSWORD_BYTES_MAX;
use crate::verifier::Verifier;

impl Access {
    /// True for a statement that [`Access::execute`] runs.
    #[must_use]
    pub fn handles(statement: &cql::Statement) -> bool {
        use cql::Statement::*;
        matches!(
            statement,
            CreateRole(_)
                | AlterRole(_)
                | DropRole(_)
                | CreateUser(_)
                | AlterUser(_)
                | DropUser(_)
                | GrantRole(_)
                | RevokeRole(_)
                | Grant(_)
                | Revoke(_)
                | ListRoles(_)
                | ListUsers
                | ListPermissions(_)
                | CreateServiceLevel(_)
                | AlterServiceLevel(_)
                | DropServiceLevel(_)
                | AttachServiceLevel(_)
                | DetachServiceLevel(_)
                | ListServiceLevels(_)
                | CancelStatement(_)
                | CancelSession(_)
        )
    }

    /// Runs a statement about roles, grants or levels. `keyspace` is that of the session. The rows
    /// of an answer are charged to `memory`. When this returns, changes are in the tables and
    /// visible on all cores.
    ///
    /// # Errors
    /// Returns the errors of the statement, which then changes nothing. Also returns the errors of
    /// the engine. The tables may then have part of the change, and the state in memory follows the
    /// tables.
    pub fn execute<'a>(
        &'a self,
        login: &'a Login,
        statement: &'a cql::Statement,
        keyspace: Option<&'a str>,
        memory: &'a dyn AnswerMemory,
    ) -> lanes::LocalBoxFuture<'a, Result<StatementOutcome, Error>> {
        Box::pin(async move {
            if !login.is_current() {
                return Err(ended(login.role()));
            }
            match statement {
                cql::Statement::CancelStatement(id) => {
                    return self.cancel(login, CancelTarget::Statement, id).await;
                }
                cql::Statement::CancelSession(id) => {
                    return self.cancel(login, CancelTarget::Session, id).await;
                }
                _ => {}
            }
            let actor = login.actor();
            // Plan with a placeholder verifier first. Statements that are forbidden or invalid then
            // cause no hashing.
            let placeholder = Some(&self.shared.placeholder);
            // In a fleet, the change reads the latest levels before it is refused.
            let is_judged_later = self.is_in_fleet() && password_of(statement).is_none();
            let answer = self.with_planner(actor, keyspace, placeholder, async |planner| {
                let listed = planner.list(statement, memory).await;
                listed.or_else(|| match planner.plan(statement) {
                    Ok(_) => None,
                    Err(Error::Invalid(_)) if is_judged_later => None,
                    Err(error) => Some(Err(error)),
                })
            });
            if let Some(answer) = answer.await {
                return answer;
            }
            let verifier = match password_of(statement) {
                Some(password) => Some(hash(password).await?),
                None => None,
            };
            if let Some(given) = hashed_password_of(statement).and_then(Verifier::parse) {
                let accepts_empty = async move { given.accepts("").await };
                if lanes::heavy_urgent(lanes::current_group(), accepts_empty).await {
                    return Err(Error::Invalid(EMPTY_PASSWORD.to_owned()));
                }
            }
            let statement = Box::new(statement.clone());
            let keyspace = keyspace.map(str::to_owned);
            self.change(actor.clone(), Job::Statement { statement, keyspace, verifier }).await?;
            Ok(StatementOutcome::Void)
        })
    }

    /// Parses and runs a statement about roles, grants or levels, as [`Access::execute`] does. For
    /// listeners with a language other than CQL. Names without a keyspace have none.
    ///
    /// # Errors
    /// Returns the errors of [`Access::execute`], and [`Error::Invalid`] for any other text.
    pub async fn execute_text(
        &self,
        login: &Login,
        text: &str,
        memory: &dyn AnswerMemory,
    ) -> Result<StatementOutcome, Error> {
        let statement = cql::parse(text).map_err(|error| Error::Invalid(error.to_string()))?;
        if !Access::handles(&statement) {
            return Err(Error::Invalid(
                "expected a statement about roles, grants or service levels".to_owned(),
            ));
        }
        self.execute(login, &statement, None, memory).await
    }

    /// Sets the password of a role and lets it log in, on core 0: for the operator of a data folder
    /// that no listener serves.
    ///
    /// # Errors
    /// The role is missing, the password is empty or too long, or the engine fails.
    pub fn set_password<'a>(
        &'a self,
        role: &'a str,
        password: &'a str,
    ) -> lanes::LocalBoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let password = Some(password.to_owned());
            let options = RoleOptions { password, login: Some(true), ..RoleOptions::default() };
            let alter = AlterRole { if_exists: false, name: role.to_owned(), options };
            let memory: Arc<dyn AnswerGrant> = Arc::new(NoRows);
            self.execute(&self.anonymous(), &cql::Statement::AlterRole(alter), None, &memory).await.map(drop)
        })
    }

    /// Follows a schema change of a session. The creator of a keyspace or table gets all
    /// permissions on it. Grants on dropped objects are removed. Callers call this after every
    /// schema change.
    ///
    /// # Errors
    /// Returns the errors of the engine.
    pub fn schema_changed<'a>(
        &'a self,
        login: &'a Login,
        change: &'a SchemaChange,
    ) -> lanes::LocalBoxFuture<'a, Result<(), Error>> {
        Box::pin(async move { self.change(login.actor().clone(), Job::SchemaChange(change.clone())).await })
    }
}

/// Memory of a statement that returns no rows.
#[derive(Debug)]
struct NoRows;

impl AnswerGrant for NoRows {
    fn grow(&self, bytes: u64) -> Result<(), Error> {
        Err(Error::Server(format!("expected no rows, got {bytes} bytes")))
    }
}

/// Returns the password in a statement.
fn password_of(statement: &cql::Statement) -> Option<&str> {
    use cql::Statement::{AlterRole, AlterUser, CreateRole, CreateUser};
    match statement {
        CreateRole(s) => s.options.password.as_deref(),
        AlterRole(s) => s.options.password.as_deref(),
        CreateUser(s) => s.password.as_deref(),
        AlterUser(s) => s.password.as_deref(),
        _ => None,
    }
}

/// Returns the verifier in a statement.
fn hashed_password_of(statement: &cql::Statement) -> Option<&str> {
    use cql::Statement::{AlterRole, AlterUser, CreateRole, CreateUser};
    match statement {
        CreateRole(s) => s.options.hashed_password.as_deref(),
        AlterRole(s) => s.options.hashed_password.as_deref(),
        CreateUser(s) => s.hashed_password.as_deref(),
        AlterUser(s) => s.hashed_password.as_deref(),
        _ => None,
    }
}

async fn hash(password: &str) -> Result<Arc<Verifier>, Error> {
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(Error::Invalid(format!("A password can't be longer than {PASSWORD_BYTES_MAX} bytes")));
    }
    let password = password.to_owned();
    let hashing = async move { Verifier::of(&password).await };
    Ok(Arc::new(lanes::heavy_urgent(lanes::current_group(), hashing).await))
}
