//! `CANCEL STATEMENT 'id'`: a statement that runs or waits, on any core and on any front door, is ended by whoever runs as the same role,
//! or by a superuser. `system.running_statements` names what runs. Doors say how one of theirs is ended.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use engine::{Error, Outcome};

use crate::access::{Access, Shared};
use crate::login::Login;

/// What became of the wish to cancel a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancelled {
    /// No statement of that name runs here.
    Unknown,
    /// It is another role's.
    OfOther,
    /// It ends.
    Done,
}

/// Ends the statement of that name, if it runs on this core and door, and the role given (none: of whatever role) asked for it.
type Door = dyn Fn(&str, Option<&str>) -> Cancelled;

thread_local! {
    /// This core's doors, each with the roles and levels that it belongs to: tests run several servers in one process.
    static DOORS: RefCell<Vec<(usize, Rc<Door>)>> = const { RefCell::new(Vec::new()) };
}

fn key(shared: &Arc<Shared>) -> usize {
    Arc::as_ptr(shared) as usize
}

/// Asks this core's doors.
fn ask(key: usize, id: &str, role: Option<&str>) -> Cancelled {
    let of_key = |(of, door): &(usize, Rc<Door>)| (*of == key).then(|| door.clone());
    let doors: Vec<Rc<Door>> = DOORS.with_borrow(|doors| doors.iter().filter_map(of_key).collect());
    let mut answers = doors.iter().map(|door| door(id, role));
    answers.find(|answer| *answer != Cancelled::Unknown).unwrap_or(Cancelled::Unknown)
}

impl Access {
    /// Says how a statement of this core is ended that runs on a front door.
    pub fn on_cancel(&self, door: impl Fn(&str, Option<&str>) -> Cancelled + 'static) {
        DOORS.with_borrow_mut(|doors| doors.push((key(&self.shared), Rc::new(door))));
    }

    /// Ends a statement.
    pub(crate) async fn cancel(&self, login: &Login, id: &str) -> Result<Outcome, Error> {
        let role = (!self.may_everything(login)).then(|| login.role().to_string());
        let key = key(&self.shared);
        for core in 0..lanes::cores() {
            let (id, role) = (id.to_owned(), role.clone());
            match lanes::call(core, move || async move { ask(key, &id, role.as_deref()) }).await {
                Cancelled::Unknown => {}
                Cancelled::Done => return Ok(Outcome::Void),
                Cancelled::OfOther => {
                    return Err(Error::Unauthorized(format!(
                        "User {} may cancel statements of its own only; a superuser may cancel any",
                        login.role()
                    )));
                }
            }
        }
        Err(Error::Invalid(format!(
            "No statement '{id}' is running: SELECT id, statement FROM system.running_statements shows what is"
        )))
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        let own = key(&self.shared);
        let gone = DOORS
            .try_with(|doors| doors.borrow_mut().extract_if(.., |(of, _)| *of == own).collect::<Vec<_>>());
        drop(gone);
    }
}
