//! Changes of roles and levels. Core 0 makes all changes, one at a time:
//!
//! 1. A change waits for the lock. The wait queue is first in, first out. Each role has at most
//!    `JOBS_MAX` changes in flight.
//! 2. The change is planned against the result of the previous change, written to the tables, and
//!    published to all cores.
//! 3. The lock passes to the next waiter. Sessions end if their role was dropped, lost LOGIN or got
//!    another password. After an edit that takes rights, listeners check running statements.
//!
//! A change runs in the group of its session. It completes even if the client disconnects. A level
//! with few shares holds the lock for a few slices at most. A waiter waits for at most `JOBS_MAX`
//! changes of each role.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cluster::ClusterRole;
use engine::{Error, SchemaChange, SchemaTarget};
use lanes::sync::oneshot;
use workload::LevelSpec;

use crate::access::{Access, SharedAccess};
use crate::login::{Identity, Login, ended};
use crate::plan::{Actor, Planner, copy_edits, drop_edits};
use crate::resource::Resource;
use crate::roles::{Edit, RoleName, Roles};
use crate::store::Store;
use crate::verifier::Verifier;

/// Most changes in flight per role, except for superusers. One connection may have 2,048 requests
/// in flight. Without this bound, the change of an administrator would wait behind all of them.
const JOBS_MAX: u32 = 16;

/// Times for which a change is planned, at most: servers of a fleet change the same levels.
const PLANNED_MAX: u32 = 8;

/// Work units to end one session: its tasks are dropped and its connection is woken.
const END_UNITS: u32 = 10;
/// Bytes of a service level without those of its group on each core: its options and its row.
const LEVEL_BYTES: u64 = 512;
/// Bytes of a service level on each core.
const LEVEL_CORE_BYTES: u64 = 256;

/// State of core 0 for changes.
pub(crate) struct Writer {
    store: Store,
    lock: Rc<ChangeLock>,
    jobs: Jobs,
}

/// Number of changes in flight, by role.
#[derive(Default)]
struct Jobs(RefCell<HashMap<RoleName, u32>>);

/// Lock of changes, with a first-in, first-out wait queue.
#[derive(Default)]
struct ChangeLock {
    is_locked: Cell<bool>,
    waiters: RefCell<VecDeque<oneshot::Sender<ChangeGuard>>>,
}

/// Guard of the lock. Releases it on drop.
pub(crate) struct ChangeGuard(Rc<ChangeLock>);

impl ChangeLock {
    async fn take(self: &Rc<Self>) -> ChangeGuard {
        if !self.is_locked.replace(true) {
            return ChangeGuard(self.clone());
        }
        let (sender, receiver) = oneshot::channel();
        self.waiters.borrow_mut().push_back(sender);
        receiver.await.expect("only a shutdown of the lanes drops waiters")
    }
}

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        // Remove the waiter first. If its receiver is gone, dropping the sent guard reenters this
        // function.
        let next = self.0.waiters.borrow_mut().pop_front();
        match next {
            Some(sender) => drop(sender.send(ChangeGuard(self.0.clone()))),
            None => self.0.is_locked.set(false),
        }
    }
}

/// Counts as a change in flight of its role until it is dropped.
struct JobSlot<'a>(&'a Jobs, Option<RoleName>);

impl Writer {
    pub(crate) fn new(store: Store) -> Writer {
        Writer { store, lock: Rc::default(), jobs: Jobs::default() }
    }
}

impl Jobs {
    /// Counts a job. `role` is `None` for jobs without a bound.
    fn count(&self, role: Option<&RoleName>) -> Result<JobSlot<'_>, Error> {
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
        Ok(JobSlot(self, role.cloned()))
    }
}

impl Drop for JobSlot<'_> {
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

impl SharedAccess {
    /// Returns the `Access` of this core.
    pub(crate) fn on_this_core(&self) -> Option<Rc<Access>> {
        self.cores.with(Weak::upgrade).flatten()
    }
}

/// A change to make.
pub(crate) enum Job {
    /// A statement. Its password is replaced by a verifier.
    Statement { statement: Box<cql::Statement>, keyspace: Option<String>, verifier: Option<Arc<Verifier>> },
    /// The consequences of a schema change.
    SchemaChange(SchemaChange),
    /// A role as a cluster has it: itself, and the roles granted to it.
    CopyRole { role: String, granted: Vec<ClusterRole> },
    /// Copies of a cluster's roles that nothing needs.
    DropCopies(BTreeSet<RoleName>),
}

impl Access {
    /// Registers this value as the target of changes and of ended sessions on this core.
    pub(crate) fn register(self: &Rc<Self>) {
        self.shared.cores.set(Rc::new(Rc::downgrade(self)));
    }

    /// Makes a change on core 0.
    pub(crate) async fn change(&self, actor: Actor, job: Job) -> Result<(), Error> {
        self.begin_change(actor, job).await
    }

    /// Makes a change on core 0, as a separate task.
    pub(crate) fn begin_change(
        &self,
        actor: Actor,
        job: Job,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        let shared = self.shared.clone();
        lanes::call(0, move || async move {
            let shutdown = || Error::Server("The server is shutting down".to_owned());
            let local = shared.on_this_core().ok_or_else(shutdown)?;
            let (sender, receiver) = oneshot::channel();
            let run = async move { drop(sender.send(local.run_job(&actor, &job).await)) };
            lanes::spawn(lanes::current_group(), run).detach();
            receiver.await.unwrap_or_else(|_| Err(shutdown()))
        })
    }

    async fn run_job(&self, actor: &Actor, job: &Job) -> Result<(), Error> {
        let is_bounded = matches!(job, Job::Statement { .. })
            && !actor.anonymous
            && !self.snapshot().roles.is_superuser(&actor.role);
        let _slot = self.writer().jobs.count(is_bounded.then_some(&actor.role))?;
        let guard = self.take_change_lock().await;
        for _ in 0..PLANNED_MAX {
            let planned = self.plan(actor, job).await;
            let changes_nothing = match &planned {
                Ok(edits) => edits.is_empty(),
                Err(error) => matches!(error, Error::Invalid(_)),
            };
            // Another front may just have created or changed the level that it names.
            if changes_nothing && matches!(job, Job::Statement { .. }) && self.read_catalog().await? {
                continue;
            }
            let edits = planned?;
            if edits.is_empty() {
                return Ok(());
            }
            let before = self.snapshot();
            // Grants that follow a schema change are bounded by the schema.
            if !matches!(job, Job::SchemaChange(_)) {
                self.check_bytes(&before.roles, &edits)?;
            }
            if !self.share_and_write(edits.clone()).await? {
                continue;
            }
            drop(guard);
            if edits.iter().any(takes_rights) {
                self.end_what_lost_its_rights(ended_by(&before.roles, &self.snapshot().roles, &edits)).await;
            }
            return Ok(());
        }
        Err(Error::Overloaded(
            "Other fronts of the cluster change service levels all the time: try again".to_owned(),
        ))
    }

    /// Waits for the end of other changes. On core 0.
    pub(crate) async fn take_change_lock(&self) -> ChangeGuard {
        self.writer().lock.take().await
    }

    /// Checks the memory of all roles, grants and levels after a change.
    ///
    /// # Errors
    /// Returns an error if it is over the bound and grows.
    pub(crate) fn check_bytes(&self, before: &Roles, edits: &[Edit]) -> Result<(), Error> {
        let catalog = self.shared.levels.catalog();
        let mut after = before.clone();
        edits.iter().for_each(|edit| after.apply(edit));
        let added_levels = edits.iter().filter(|edit| match edit {
            Edit::PutLevel(spec) => catalog.get(&spec.name).is_none(),
            _ => false,
        });
        let added_levels = added_levels.count() as u64;
        if after.bytes() <= before.bytes() && added_levels == 0 {
            return Ok(());
        }
        let level_bytes = LEVEL_BYTES + LEVEL_CORE_BYTES * lanes::cores() as u64;
        let levels = catalog.entries().count() as u64 + added_levels;
        let bytes = after.bytes() + levels * level_bytes;
        let bytes_max = self.shared.bytes_max.load(Relaxed);
        if bytes <= bytes_max {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "expected at most {bytes_max} bytes of roles, grants and service levels, got {bytes}: drop those that are \
             not used, grant permissions on keyspaces instead of tables, or start the server with more --memory"
        )))
    }

    /// Ends the sessions of `roles` on all cores, unless they are still current. Then listeners
    /// check the rights of the statements of all roles: rights may come from a granted role.
    async fn end_what_lost_its_rights(&self, roles: Vec<RoleName>) {
        for core in 0..lanes::cores() {
            let shared = self.shared.clone();
            let roles = roles.clone();
            let end = move || async move {
                let Some(local) = shared.on_this_core() else { return };
                for role in &roles {
                    local.end_sessions_here(role).await;
                }
                let checks = shared.rights_checks.with(|checks| checks.borrow().clone()).unwrap_or_default();
                checks.iter().for_each(|check| check());
            };
            lanes::call(core, end).await;
        }
    }

    async fn end_sessions_here(&self, role: &RoleName) {
        let snapshot = self.snapshot();
        if snapshot.roles.get(role).is_none() {
            self.forget_view(role);
        }
        let logins = self.logins.borrow_mut().remove(role).unwrap_or_default();
        let (current, end): (Vec<Rc<Identity>>, Vec<_>) =
            logins.iter().filter_map(Weak::upgrade).partition(|login| login.is_current(&snapshot.roles));
        if !current.is_empty() {
            self.logins.borrow_mut().insert(role.clone(), current.iter().map(Rc::downgrade).collect());
        }
        for login in end {
            login.end();
            // A role may have thousands of sessions.
            if lanes::spend(END_UNITS) {
                lanes::yield_now().await;
            }
        }
    }

    /// Registers a function that checks the rights of a listener's running statements on this core.
    /// It runs after each change that takes rights from a role. It must be short: work that grows
    /// with the number of statements belongs in a task.
    pub fn on_rights_taken(&self, check: impl Fn() + 'static) {
        self.shared.rights_checks.get_or_set(RefCell::default).borrow_mut().push(Rc::new(check));
    }

    /// Remembers a session of a role, so that it can be ended.
    pub(crate) fn remember(&self, login: &Login) {
        let mut logins = self.logins.borrow_mut();
        let of_role = logins.entry(login.role().clone()).or_default();
        if of_role.len() == of_role.capacity() {
            // Clean up only when the list would grow. The amortized cost of a login is constant.
            of_role.retain(|login| login.strong_count() > 0);
        }
        of_role.push(Rc::downgrade(&login.identity));
    }

    async fn plan(&self, actor: &Actor, job: &Job) -> Result<Vec<Edit>, Error> {
        let (keyspace, verifier) = match job {
            Job::Statement { keyspace, verifier, .. } => (keyspace.as_deref(), verifier.as_ref()),
            Job::SchemaChange(_) | Job::CopyRole { .. } | Job::DropCopies(_) => (None, None),
        };
        let planned = self.with_planner(actor, keyspace, verifier, async |planner| match job {
            Job::Statement { .. } if !planner.has_actor() => Err(ended(&actor.role)),
            Job::Statement { statement, .. } => planner.plan(statement),
            Job::SchemaChange(change) => Ok(planner.after_schema_change(change)),
            Job::CopyRole { role, granted } => Ok(copy_edits(planner.roles, role, granted)),
            Job::DropCopies(unused) => Ok(drop_edits(planner.roles, unused)),
        });
        planned.await
    }

    /// Calls `f` with the current roles, levels and schema.
    pub(crate) async fn with_planner<T>(
        &self,
        actor: &Actor,
        keyspace: Option<&str>,
        verifier: Option<&Arc<Verifier>>,
        f: impl AsyncFnOnce(&Planner<'_>) -> T,
    ) -> T {
        let snapshot = self.snapshot();
        let levels = self.shared.levels.catalog();
        let topology = self.shared.cluster.get().map(|published| published.snapshot());
        f(&Planner {
            roles: &snapshot.roles,
            levels: &levels,
            has_data: &|resource| self.has_data(resource),
            table_id: &|keyspace, table| self.table_id(keyspace, table),
            actor,
            keyspace,
            verifier,
            cluster: topology.as_deref(),
        })
        .await
    }

    fn writer(&self) -> &Writer {
        self.writer.as_ref().expect("changes are made on core 0")
    }

    /// Writes edits to the tables, then publishes them. If the engine fails, the tables decide:
    /// they are loaded again.
    pub(crate) async fn write(&self, edits: Vec<Edit>) -> Result<(), Error> {
        if let Err(error) = self.writer().store.write(&edits).await {
            // The engine may have written some edits. If loading fails too, the previous state
            // stays.
            let _ = self.reload().await;
            return Err(error);
        }
        let mut roles = self.snapshot().roles.clone();
        let levels = &self.shared.levels;
        for edit in edits {
            // The edits were planned against these levels under the same guard, so that none can
            // fail.
            match edit {
                Edit::PutLevel(spec) if levels.catalog().get(&spec.name).is_some() => {
                    levels.alter(spec).expect("the level is there");
                }
                Edit::PutLevel(spec) => levels.create(spec).expect("the level is not there yet"),
                Edit::DropLevel(level) => levels.drop_level(&level).expect("the level is there"),
                edit => roles.apply(&edit),
            }
        }
        self.shared.published.publish(roles);
        Ok(())
    }

    /// Loads the tables and publishes the result. Known roles keep their ids.
    pub(crate) async fn reload(&self) -> Result<(), Error> {
        let before = self.snapshot();
        let table_id = |keyspace: &str, table: &str| self.table_id(keyspace, table);
        let (roles, levels): (Roles, Vec<LevelSpec>) =
            self.writer().store.load(&before.roles, &table_id).await?;
        self.shared.levels.replace(levels);
        self.shared.published.publish(roles);
        Ok(())
    }
}

/// Returns true for an edit after which a role may have fewer rights than before.
fn takes_rights(edit: &Edit) -> bool {
    match edit {
        Edit::PutRole { .. } | Edit::DropRole(_) | Edit::RemoveMember { .. } | Edit::Forbid { .. } => true,
        Edit::AddMember { .. }
        | Edit::Permit { .. }
        | Edit::Attach { .. }
        | Edit::Detach { .. }
        | Edit::PutLevel(_)
        | Edit::DropLevel(_) => false,
    }
}

/// Returns the roles with sessions that may have to end.
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

impl Planner<'_> {
    /// Returns the edits that follow a schema change: grants to the creator of an object, and the
    /// removal of grants on a dropped one.
    fn after_schema_change(&self, change: &SchemaChange) -> Vec<Edit> {
        let SchemaChange { keyspace, name, table_id, .. } = change;
        match (change.target, change.change) {
            (SchemaTarget::Keyspace, "CREATED") => {
                // Remove leftover grants on an earlier keyspace of that name.
                let mut edits = self.forbid_dropped(keyspace, true);
                edits.extend(self.permit_creator(Resource::Keyspace(keyspace.clone())));
                edits
            }
            (SchemaTarget::Keyspace, "DROPPED") => {
                // If a new keyspace exists, its creation has removed the leftover grants.
                let is_dropped = !(self.has_data)(&Resource::Keyspace(keyspace.clone()));
                self.forbid_dropped(keyspace, is_dropped)
            }
            (SchemaTarget::Table, _) => {
                let Some(id) = table_id else { return Vec::new() };
                let resource = Resource::Table(keyspace.clone(), name.clone(), id.as_u128());
                match change.change {
                    "CREATED" => self.permit_creator(resource).into_iter().collect(),
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
    fn lock_serves_waiters_in_order_of_arrival() {
        let lock = Rc::new(ChangeLock::default());
        let cx = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(lock.take()).poll(cx) else { panic!("the lock is free") };
        let (mut second, mut third) = (pin!(lock.take()), pin!(lock.take()));
        assert!(second.as_mut().poll(cx).is_pending());
        {
            let mut dropped = pin!(lock.take());
            assert!(dropped.as_mut().poll(cx).is_pending());
            // Dropped while it waits.
        }
        assert!(third.as_mut().poll(cx).is_pending());
        drop(first);
        assert!(third.as_mut().poll(cx).is_pending());
        let Poll::Ready(guard) = second.poll(cx) else { panic!("the second is next") };
        drop(guard);
        let Poll::Ready(guard) = third.poll(cx) else { panic!("the dropped waiter is skipped") };
        drop(guard);
        assert!(!lock.is_locked.get());
    }

    #[test]
    fn jobs_beyond_the_bound_of_a_role_are_rejected() {
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
