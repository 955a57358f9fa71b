//! Changing roles and levels. Whichever core is asked, the change is made on core 0, where changes take turns: each is
//! planned against what the one before it left, written to the tables, and then published to all cores. It is done in
//! the server's control group, so that a level with few shares does not keep the others' turns waiting, and runs to its
//! end even if the client goes away.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::{Error, SchemaChange, SchemaTarget};
use lanes::Group;
use lanes::sync::{Notify, oneshot};
use workload::LevelSpec;

use crate::Snapshot;
use crate::access::Access;
use crate::plan::{Actor, World};
use crate::resource::Resource;
use crate::roles::{Edit, Roles};
use crate::scram::Verifier;
use crate::store::Store;

thread_local! {
    /// The server's face on this core, if this is core 0: where changes that come from other cores find it.
    static HERE: RefCell<Weak<Access>> = const { RefCell::new(Weak::new()) };
}

/// What only core 0 has.
pub(crate) struct Writer {
    store: Store,
    taken: Cell<bool>,
    free: Notify,
}

/// A turn at making changes.
struct Turn<'a>(&'a Writer);

impl Writer {
    pub(crate) fn new(store: Store) -> Writer {
        Writer { store, taken: Cell::new(false), free: Notify::new() }
    }

    /// Waits for its turn. Those who wait are no more than the requests in flight.
    async fn turn(&self) -> Turn<'_> {
        while self.taken.replace(true) {
            self.free.notified().await;
        }
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.taken.set(false);
        self.0.free.notify_waiters();
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
    /// Makes this the one that core 0's changes go to.
    pub(crate) fn register(self: &Rc<Self>) {
        HERE.set(Rc::downgrade(self));
    }

    /// Makes a change on core 0.
    pub(crate) async fn change(&self, actor: Actor, job: Job) -> Result<(), Error> {
        lanes::call(0, move || async move {
            let ended = || Error::Server("The server is shutting down".to_owned());
            let here = HERE.with_borrow(Weak::upgrade).ok_or_else(ended)?;
            let (sender, receiver) = oneshot::channel();
            let making = async move { drop(sender.send(here.make(&actor, &job).await)) };
            lanes::spawn(Group::CONTROL, making).detach();
            receiver.await.unwrap_or_else(|_| Err(ended()))
        })
        .await
    }

    async fn make(&self, actor: &Actor, job: &Job) -> Result<(), Error> {
        let _turn = self.writer().turn().await;
        let edits = self.plan(actor, job)?;
        if edits.is_empty() {
            return Ok(());
        }
        self.write(edits).await
    }

    fn plan(&self, actor: &Actor, job: &Job) -> Result<Vec<Edit>, Error> {
        let (keyspace, verifier) = match job {
            Job::Statement { keyspace, verifier, .. } => (keyspace.as_deref(), verifier.as_ref()),
            Job::SchemaChange(_) => (None, None),
        };
        self.with_world(actor, keyspace, verifier, |world| match job {
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
            actor,
            keyspace,
            verifier,
        })
    }

    fn writer(&self) -> &Writer {
        self.writer.as_ref().expect("changes are made on core 0")
    }

    /// Writes edits to the tables, then publishes them. If the engine fails, what is in the tables holds.
    pub(crate) async fn write(&self, edits: Vec<Edit>) -> Result<(), Error> {
        if let Err(error) = self.writer().store.write(&edits).await {
            // Some of it may have been written; if it cannot be read either, what was known before stays.
            let _ = self.reload().await;
            return Err(error);
        }
        let mut roles = self.snapshot().roles.clone();
        let levels = &self.shared.levels;
        for edit in edits {
            // Planned against these very levels, in this very turn, so none of these can fail.
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

    /// Reads the tables anew and publishes what they say.
    pub(crate) async fn reload(&self) -> Result<(), Error> {
        let (roles, levels): (Roles, Vec<LevelSpec>) = self.writer().store.load().await?;
        self.shared.levels.replace(levels);
        self.publish(roles);
        Ok(())
    }

    fn publish(&self, roles: Roles) {
        self.shared.current.store(Arc::new(Snapshot { roles }));
        self.shared.version.fetch_add(1, Ordering::Release);
    }
}

impl World<'_> {
    /// Grants to the maker of what is new, and the end of grants on what is gone.
    fn after_schema_change(&self, change: &SchemaChange) -> Vec<Edit> {
        let resource = match change.target {
            SchemaTarget::Keyspace => Resource::Keyspace(change.keyspace.clone()),
            SchemaTarget::Table => Resource::Table(change.keyspace.clone(), change.name.clone()),
            SchemaTarget::Type => return Vec::new(),
        };
        match change.change {
            "CREATED" => self.permit_maker(resource).into_iter().collect(),
            "DROPPED" => self.forbid_all(&resource),
            _ => Vec::new(),
        }
    }
}
