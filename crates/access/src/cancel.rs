//! `CANCEL STATEMENT 'id'` and `CANCEL SESSION 'id'`: a statement that runs or waits, or a whole session, on any core and of any
//! listener, is ended by its own role or by a superuser. `system.running_statements` and `system.connections` show the ids. Each
//! listener registers how its own are ended.
//!
//! A role that is no superuser gets the same answer for the id of another role and for one that does not exist.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use engine::{Error, Outcome};

use crate::access::{Access, Shared};
use crate::login::Login;

/// Characters of an id that an answer repeats. Ids are shorter.
const ID_CHARS_MAX: usize = 64;

/// The target of a CANCEL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A statement.
    Statement,
    /// A session with all its statements.
    Session,
}

/// The outcome of a CANCEL on one core and listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancelled {
    /// There is no such statement or session here.
    Unknown,
    /// It is another role's.
    OfOther,
    /// It ends.
    Done,
}

/// Ends the statement or session with that id, if it is on this core and of this listener, and of the role given (`None`: of any role).
type Door = dyn Fn(Target, &str, Option<&str>) -> Cancelled;

thread_local! {
    /// This core's listeners, each with the roles and levels that it belongs to: tests run several servers in one process.
    static DOORS: RefCell<Vec<(usize, Rc<Door>)>> = const { RefCell::new(Vec::new()) };
}

fn key(shared: &Arc<Shared>) -> usize {
    Arc::as_ptr(shared) as usize
}

/// Asks this core's listeners.
fn ask(key: usize, target: Target, id: &str, role: Option<&str>) -> Cancelled {
    let of_key = |(of, door): &(usize, Rc<Door>)| (*of == key).then(|| door.clone());
    let doors: Vec<Rc<Door>> = DOORS.with_borrow(|doors| doors.iter().filter_map(of_key).collect());
    let mut answers = doors.iter().map(|door| door(target, id, role));
    answers.find(|answer| *answer != Cancelled::Unknown).unwrap_or(Cancelled::Unknown)
}

impl Access {
    /// Registers how a listener's statements and sessions of this core are ended.
    pub fn on_cancel(&self, door: impl Fn(Target, &str, Option<&str>) -> Cancelled + 'static) {
        DOORS.with_borrow_mut(|doors| doors.push((key(&self.shared), Rc::new(door))));
    }

    /// Ends a statement or a session.
    pub(crate) async fn cancel(&self, login: &Login, target: Target, id: &str) -> Result<Outcome, Error> {
        let role = (!self.may_everything(login)).then(|| login.role().to_string());
        let key = key(&self.shared);
        for core in 0..lanes::cores() {
            let (id, role) = (id.to_owned(), role.clone());
            let asked = lanes::call(core, move || async move { ask(key, target, &id, role.as_deref()) });
            if asked.await == Cancelled::Done {
                return Ok(Outcome::Void);
            }
        }
        Err(refusal(target, login.role(), id, role.is_some()))
    }
}

/// The answer where nothing was ended.
fn refusal(target: Target, role: &str, id: &str, is_restricted: bool) -> Error {
    let (thing, listing) = match target {
        Target::Statement => ("statement", "SELECT id, statement FROM system.running_statements"),
        Target::Session => ("session", "SELECT id, role, address FROM system.connections"),
    };
    let id: String = id.chars().take(ID_CHARS_MAX).collect();
    if is_restricted {
        return Error::Unauthorized(format!(
            "User {role} may cancel a {thing} of its own only, and has no {thing} '{id}' now; a superuser may cancel any"
        ));
    }
    Error::Invalid(format!("There is no {thing} '{id}' now: {listing} shows all"))
}

impl Drop for Access {
    fn drop(&mut self) {
        let own = key(&self.shared);
        let gone = DOORS
            .try_with(|doors| doors.borrow_mut().extract_if(.., |(of, _)| *of == own).collect::<Vec<_>>());
        drop(gone);
    }
}
