//! What a session asks of those who keep roles and levels: who is this, what may they do, and in which group do
//! they run. A trait, so that sessions can be tested with two roles made up on the spot.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use engine::{Error, Outcome, Target};
use lanes::Group;

/// What an asynchronous question gives.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Error>>>>;

/// The level a statement runs under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effective {
    /// Its group.
    pub group: Group,
    /// The longest time for its statements; `None` leaves it to the server.
    pub timeout: Option<Duration>,
    /// The level's number, for [`Gate::record`].
    pub level: u32,
}

/// What one statement cost.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Whether it wrote.
    pub write: bool,
    /// Whether it failed.
    pub failed: bool,
    /// From the start of its work to its answer, ns.
    pub service_ns: u64,
    /// From reading it off the socket to the start of its work, ns.
    pub queue_ns: u64,
}

/// Roles, rights and levels, as one core sees them.
pub trait Gate {
    /// The role that a name and a password prove.
    fn authenticate(&self, name: &str, password: &str) -> Answer<Rc<str>>;

    /// Changes whenever the answer of [`Gate::effective`], [`Gate::level`] or [`Gate::authorize`] may have. One atomic
    /// load: it is asked for every request.
    fn generation(&self) -> u64;

    /// The level of a role now.
    fn effective(&self, role: &str) -> Effective;

    /// The level that `USING SERVICE LEVEL` names, if the role may use it.
    ///
    /// # Errors
    /// No such level, or no right to it.
    fn level(&self, role: &str, name: &str) -> Result<Effective, Error>;

    /// Whether a role may do what a statement does.
    ///
    /// # Errors
    /// What it may not.
    fn authorize(&self, role: &str, targets: &[Target]) -> Result<(), Error>;

    /// Whether a statement is about roles, rights or levels.
    fn handles(&self, statement: &cql::Statement) -> bool;

    /// Runs such a statement for a role.
    fn execute(&self, role: &str, statement: Rc<cql::Statement>) -> Answer<Outcome>;

    /// Counts a statement for its level.
    fn record(&self, level: u32, sample: Sample);

    /// The levels' counts of all cores, as Prometheus text.
    fn metrics_text(&self) -> String;
}
