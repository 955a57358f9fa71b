//! Changing roles and levels. Whichever core is asked, the change is made on core 0, one at a time:
//!
//! 1. A change waits for the guard, in order of arrival. One role has at most `JOBS_MAX` changes
//!    waiting.
//! 2. It is planned against what the change before it left, written to the tables, and published to
//!    all cores.
//! 3. The guard passes on. Sessions end whose role was dropped, lost LOGIN or got another password.
//!
//! All of it runs in the group of the session that caused it, and to its end even if the client
//! goes away. A level with few shares holds the guard for a few slices at most; whoever waits for
//! it waits for `JOBS_MAX` changes of each role.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::{Error, SchemaChange, SchemaTarget};
use lanes::sync::oneshot;
use workload::LevelSpec;

use crate::Snapshot;
use crate::access::Access;
use crate::login::{Identity, Login, ended};
use crate::plan::{Actor, World};
use crate::resource::Resource;
use crate::roles::{Edit, RoleName, Roles};
use crate::scram::Verifier;
use crate::store::Store;

/// Changes of one role that wait or are made at a time, superusers excepted. One connection may
/// have 2,048 requests in flight: without a bound, a change of an administrator would wait behind
/// all of them.
const JOBS_MAX: u32 = 16;

thread_local! {
    /// The server's face on this core: where changes that come from other cores find it.
    static HERE: RefCell<Weak<Access>> = const { RefCell::new(Weak::new()) };
}

/// What only core 0 has.
pub(crate) struct Writer {
    store: Store,
    guard: Rc<Guard>,
    jobs: Jobs,
}

/// Jobs that wait or are made, by role.
#[derive(Default)]
struct Jobs(RefCell<HashMap<RoleName, u32>>);

/// Lets one change be made at a time, in order of arrival.
#[derive(Default)]
struct Guard {
    taken: Cell<bool>,
    waiting: RefCell<VecDeque<oneshot::Sender<Turn>>>,
}

/// The guard, taken until it is dropped.
struct Turn(Rc<Guard>);

impl Guard {
    async fn take(self: &Rc<Self>) -> Turn {
        if !self.taken.replace(true) {
            return Turn(self.clone());
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().push_back(sender);
        receiver.await.expect("waiters are not dropped but with the lanes")
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Taken out first: a waiter that is gone gives its turn back, which comes here again.
        let next = self.0.waiting.borrow_mut().pop_front();
        match next {
            Some(sender) => drop(sender.send(Turn(self.0.clone()))),
            None => self.0.taken.set(false),
        }
    }
}

/// A job that counts for its role until it is dropped.
struct Counted<'a>(&'a Jobs, Option<RoleName>);

impl Writer {
    pub(crate) fn new(store: Store) -> Writer {
        Writer { store, guard: Rc::default(), jobs: Jobs::default() }
    }
}

impl Jobs {
    /// Counts a job. `role` is `None` for jobs without a bound.
    fn count(&self, role: Option<&RoleName>) -> Result<Counted<'_>, Error> {
        if let Some(role) = role {
            let mut jobs = self.0.borrow_mut();
            let count = jobs.entry(role.clone()).or_default();
            if *count >= JOBS_MAX {
                return Err(Error::Overloaded(format!(
                    "Role {role} has {JOBS_MAX} changes of roles and service levels in flight, the most that a role \
                     without superuser status may have: wait for their answers"
                )));
            }
            *count += 1;
        }
        Ok(Counted(self, role.cloned()))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let Some(role) = &self.1 else { return };
        let mut jobs = self.0.0.borrow_mut();
        if let Some(count) = jobs.get_mut(role) {
            *count -= 1;
            if *count == 0 {
                jobs.remove(role);
            }
        }
    }
}

/// What to change.
pub(crate) enum Job {
    /// What a statement says; its password is here as a verifier.
    Statement { statement: Box<cql::Statement>, keyspace: Option<String>, verifier: Option<Arc<Verifier>> },
    /// What follows from a change of the schema.
    SchemaChange(SchemaChange),
}

impl Access {
    /// Makes this the one that changes and ends of sessions go to on this core.
    pub(crate) fn register(self: &Rc<Self>) {
        HERE.set(Rc::downgrade(self));
    }

    /// Makes a change on core 0.
    pub(crate) async fn change(&self, actor: Actor, job: Job) -> Result<(), Error> {
        self.begin_change(actor, job).await
    }

    /// The same, as a task of its own.
    pub(crate) fn begin_change(
        &self,
        actor: Actor,
        job: Job,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        lanes::call(0, move || async move {
            let closing = || Error::Server("The server is shutting down".to_owned());
            let here = HERE.with_borrow(Weak::upgrade).ok_or_else(closing)?;
            let (sender, receiver) = oneshot::channel();
            let making = async move { drop(sender.send(here.make(&actor, &job).await)) };
            lanes::spawn(lanes::current_group(), making).detach();
            receiver.await.unwrap_or_else(|_| Err(closing()))
        })
    }

    async fn make(&self, actor: &Actor, job: &Job) -> Result<(), Error> {
        let is_bounded = matches!(job, Job::Statement { .. })
            && !actor.anonymous
            && !self.snapshot().roles.is_superuser(&actor.role);
        let _counted = self.writer().jobs.count(is_bounded.then_some(&actor.role))?;
        let turn = self.writer().guard.take().await;
        let edits = self.plan(actor, job)?;
        if edits.is_empty() {
            return Ok(());
        }
        let before = self.snapshot();
        self.write(edits.clone()).await?;
        drop(turn);
        self.end_sessions(ended_by(&before.roles, &self.snapshot().roles, &edits)).await;
        Ok(())
    }

    /// Ends the sessions of these roles that may not go on, on all cores.
    async fn end_sessions(&self, roles: Vec<RoleName>) {
        if roles.is_empty() {
            return;
        }
        for core in 0..lanes::cores() {
            let roles = roles.clone();
            let end = move || async move {
                if let Some(here) = HERE.with_borrow(Weak::upgrade) {
                    roles.iter().for_each(|role| here.end_sessions_here(role));
                }
            };
            lanes::call(core, end).await;
        }
    }

    fn end_sessions_here(&self, role: &RoleName) {
        let snapshot = self.snapshot();
        if snapshot.roles.get(role).is_none() {
            self.forget_view(role);
        }
        let logins = self.logins.borrow_mut().remove(role).unwrap_or_default();
        let (go_on, end): (Vec<Rc<Identity>>, Vec<_>) =
            logins.iter().filter_map(Weak::upgrade).partition(|login| login.is_current(&snapshot.roles));
        if !go_on.is_empty() {
            self.logins.borrow_mut().insert(role.clone(), go_on.iter().map(Rc::downgrade).collect());
        }
        end.iter().for_each(|login| login.end());
    }

    /// Remembers a session of a role, so that it can be ended.
    pub(crate) fn remember(&self, login: &Login) {
        let mut logins = self.logins.borrow_mut();
        let of_role = logins.entry(login.role().clone()).or_default();
        if of_role.len() == of_role.capacity() {
            // Each time the list would grow, so that this costs a constant for each login.
            of_role.retain(|login| login.strong_count() > 0);
        }
        of_role.push(Rc::downgrade(&login.identity));
    }

    fn plan(&self, actor: &Actor, job: &Job) -> Result<Vec<Edit>, Error> {
        let (keyspace, verifier) = match job {
            Job::Statement { keyspace, verifier, .. } => (keyspace.as_deref(), verifier.as_ref()),
            Job::SchemaChange(_) => (None, None),
        };
        self.with_world(actor, keyspace, verifier, |world| match job {
            Job::Statement { .. } if !world.has_actor() => Err(ended(&actor.role)),
            Job::Statement { statement, .. } => world.plan(statement),
            Job::SchemaChange(change) => Ok(world.after_schema_change(change)),
        })
    }

    /// What statements are planned against, as it is now.
    pub(crate) fn with_world<T>(
        &self,
        actor: &Actor,
        keyspace: Option<&str>,
        verifier: Option<&Arc<Verifier>>,
        f: impl FnOnce(&World<'_>) -> T,
    ) -> T {
        let (snapshot, levels) = (self.snapshot(), self.shared.levels.catalogue());
        f(&World {
            roles: &snapshot.roles,
            levels: &levels,
            has_data: &|resource| self.has_data(resource),
            table_id: &|keyspace, table| self.table_id(keyspace, table),
            actor,
            keyspace,
            verifier,
        })
    }

    fn writer(&self) -> &Writer {
        self.writer.as_ref().expect("changes are made on core 0")
    }

    /// Writes edits to the tables, then publishes them. If the engine fails, what is in the tables
    /// holds.
    pub(crate) async fn write(&self, edits: Vec<Edit>) -> Result<(), Error> {
        if let Err(error) = self.writer().store.write(&edits).await {
            // Some of it may have been written; if it cannot be read either, what was known before
            // stays.
            let _ = self.reload().await;
            return Err(error);
        }
        let mut roles = self.snapshot().roles.clone();
        let levels = &self.shared.levels;
        for edit in edits {
            // Planned against these very levels, under this very guard, so none of these can fail.
            match edit {
                Edit::PutLevel(spec) if levels.catalogue().get(&spec.name).is_some() => {
                    levels.alter(spec).expect("the level is there");
                }
                Edit::PutLevel(spec) => levels.create(spec).expect("the level is not there yet"),
                Edit::DropLevel(level) => levels.drop_level(&level).expect("the level is there"),
                edit => roles.apply(&edit),
            }
        }
        self.publish(roles);
        Ok(())
    }

    /// Reads the tables anew and publishes what they say. Roles that were known keep their ids.
    pub(crate) async fn reload(&self) -> Result<(), Error> {
        let before = self.snapshot();
        let table_id = |keyspace: &str, table: &str| self.table_id(keyspace, table);
        let (roles, levels): (Roles, Vec<LevelSpec>) =
            self.writer().store.load(&before.roles, &table_id).await?;
        self.shared.levels.replace(levels);
        self.publish(roles);
        Ok(())
    }

    fn publish(&self, roles: Roles) {
        self.shared.current.store(Arc::new(Snapshot { roles }));
        self.shared.version.fetch_add(1, Ordering::Release);
    }
}

/// Returns the roles some of whose sessions may have to end.
fn ended_by(before: &Roles, after: &Roles, edits: &[Edit]) -> Vec<RoleName> {
    let lost = |role: &RoleName| {
        let Some(before) = before.get(role) else { return false };
        let same = |now: &Option<Arc<Verifier>>| match (now, &before.verifier) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (None, None) => true,
            _ => false,
        };
        !after.get(role).is_some_and(|now| now.id == before.id && now.can_login && same(&now.verifier))
    };
    let touched = edits.iter().filter_map(|edit| match edit {
        Edit::PutRole { role, .. } | Edit::DropRole(role) => Some(role),
        _ => None,
    });
    touched.filter(|role| lost(role)).cloned().collect()
}

impl World<'_> {
    /// Grants to the maker of what is new, and the end of grants on what is gone.
    fn after_schema_change(&self, change: &SchemaChange) -> Vec<Edit> {
        let SchemaChange { keyspace, name, table_id, .. } = change;
        match (change.target, change.change) {
            (SchemaTarget::Keyspace, "CREATED") => {
                // Grants on an earlier keyspace of that name, should they not have followed it.
                let mut edits = self.forbid_gone(keyspace, true);
                edits.extend(self.permit_maker(Resource::Keyspace(keyspace.clone())));
                edits
            }
            (SchemaTarget::Keyspace, "DROPPED") => {
                // Where there is a new one already, its creation took away what was left.
                let is_gone = !(self.has_data)(&Resource::Keyspace(keyspace.clone()));
                self.forbid_gone(keyspace, is_gone)
            }
            (SchemaTarget::Table, _) => {
                let Some(id) = table_id else { return Vec::new() };
                let resource = Resource::Table(keyspace.clone(), name.clone(), id.as_u128());
                match change.change {
                    "CREATED" => self.permit_maker(resource).into_iter().collect(),
                    "DROPPED" => self.forbid_all(&resource),
                    _ => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn guard_passes_on_in_order_of_arrival() {
        let guard = Rc::new(Guard::default());
        let cx = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(guard.take()).poll(cx) else { panic!("the guard is free") };
        let (mut second, mut third) = (pin!(guard.take()), pin!(guard.take()));
        assert!(second.as_mut().poll(cx).is_pending());
        {
            let mut gone = pin!(guard.take());
            assert!(gone.as_mut().poll(cx).is_pending());
            // Replaced, and so dropped while it waits.
        }
        assert!(third.as_mut().poll(cx).is_pending());
        drop(first);
        assert!(third.as_mut().poll(cx).is_pending());
        let Poll::Ready(turn) = second.poll(cx) else { panic!("the second is next") };
        drop(turn);
        let Poll::Ready(turn) = third.poll(cx) else { panic!("the one that is gone is skipped") };
        drop(turn);
        assert!(!guard.taken.get());
    }

    #[test]
    fn role_has_a_bounded_number_of_jobs() {
        let jobs = Jobs::default();
        let (ann, bob): (RoleName, RoleName) = ("ann".into(), "bob".into());
        let held: Vec<_> = (0..JOBS_MAX).map(|_| jobs.count(Some(&ann)).expect("within the bound")).collect();
        assert!(matches!(jobs.count(Some(&ann)), Err(Error::Overloaded(_))));
        assert!(jobs.count(Some(&bob)).is_ok() && jobs.count(None).is_ok());
        drop(held);
        assert!(jobs.count(Some(&ann)).is_ok());
        assert!(jobs.0.borrow().is_empty());
    }
}
