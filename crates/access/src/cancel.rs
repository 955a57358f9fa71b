//! `CANCEL STATEMENT 'id'` and `CANCEL SESSION 'id'`. They end a running or waiting statement, or a
//! session, on any core and of any listener. Its own role or a superuser may do so.
//! `system.running_statements` and `system.connections` list the ids. Each listener registers a
//! function that cancels its statements and sessions.
//!
//! Roles without superuser status get the same response for an unknown id and for an id of another
//! role.

use std::cell::RefCell;
use std::rc::Rc;

use engine::{Error, StatementOutcome};

use crate::access::{Access, SharedAccess};
use crate::login::Login;

/// Longest part of an id that a response repeats, in characters. Ids are shorter.
const ID_CHARS_MAX: usize = 64;

/// The target of a CANCEL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelTarget {
    /// A statement.
    Statement,
    /// A session with all its statements.
    Session,
}

/// Result of a CANCEL on one core and listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancelled {
    /// This core and listener have no such statement or session.
    Unknown,
    /// It belongs to another role.
    OfOther,
    /// It is ending.
    Done,
}

/// Function that cancels a statement or session of one listener on this core. Its last argument
/// restricts it to one role. `None` permits any role.
pub(crate) type CancelFn = dyn Fn(CancelTarget, &str, Option<&str>) -> Cancelled;

/// Asks the listeners of this core.
fn ask(shared: &SharedAccess, target: CancelTarget, id: &str, role: Option<&str>) -> Cancelled {
    let listeners = shared.listeners.with(|listeners| listeners.borrow().clone()).unwrap_or_default();
    let mut answers = listeners.iter().map(|cancel| cancel(target, id, role));
    answers.find(|answer| *answer != Cancelled::Unknown).unwrap_or(Cancelled::Unknown)
}

impl Access {
    /// Registers the function that cancels statements and sessions of a listener on this core.
    pub fn on_cancel(&self, cancel: impl Fn(CancelTarget, &str, Option<&str>) -> Cancelled + 'static) {
        let listeners = self.shared.listeners.get_or_set(RefCell::default);
        listeners.borrow_mut().push(Rc::new(cancel));
    }

    /// Cancels a statement or a session.
    pub(crate) async fn cancel(
        &self,
        login: &Login,
        target: CancelTarget,
        id: &str,
    ) -> Result<StatementOutcome, Error> {
        let role = (!self.may_everything(login)).then(|| login.role().to_string());
        for core in 0..lanes::cores() {
            let shared = self.shared.clone();
            let id = id.to_owned();
            let role = role.clone();
            let answer = lanes::call(core, move || async move { ask(&shared, target, &id, role.as_deref()) });
            if answer.await == Cancelled::Done {
                return Ok(StatementOutcome::Void);
            }
        }
        Err(not_cancelled(target, login.role(), id, role.is_some()))
    }
}

/// Returns the error of a CANCEL that cancelled nothing.
fn not_cancelled(target: CancelTarget, role: &str, id: &str, is_restricted: bool) -> Error {
    let (thing, listing) = match target {
        CancelTarget::Statement => ("statement", "SELECT id, statement FROM system.running_statements"),
        CancelTarget::Session => ("session", "SELECT id, role, address FROM system.connections"),
    };
    let id: String = id.chars().take(ID_CHARS_MAX).collect();
    if is_restricted {
        return Error::Unauthorized(format!(
            "User {role} may cancel a {thing} of its own only, and has no {thing} '{id}' now; \
             a superuser may cancel any"
        ));
    }
    Error::Invalid(format!("no {thing} has the id '{id}': {listing} lists all"))
}

impl Drop for Access {
    fn drop(&mut self) {
        drop(self.shared.listeners.take());
        drop(self.shared.rights_checks.take());
    }
}
