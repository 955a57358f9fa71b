//! The fleet: all fronts of a cluster, which act as one. They share three tables in a keyspace of
//! the cluster, and nothing else.
//!
//! ```text
//!   thread `control` of each front, every second
//!    1  its row, with what its levels want of each node  ─▶ ┌─────────────────────────┐
//!    2  rows of the leases, then of the fronts           ◀─ │ fronts      (TTL 10 s)  │
//!    3  version of the catalog; if it changed, all       ◀─ │ catalog     IF version  │
//!    4  leases that should change                        ─▶ │ leases      IF version  │
//!                                                           └─────────────────────────┘
//! ```
//!
//! - **Catalog.** Service levels and their attachments. A change is one conditional batch on one
//!   partition, so changes have one order, and each is whole. It is read SERIAL, so a reader is
//!   never behind a change that was acknowledged. If the tables cannot be reached, fronts go on
//!   with the last catalog and refuse changes.
//! - **Fronts.** A front that reports nothing new for five seconds of the reader's clock is gone.
//! - **Leases** of `max_concurrency`: `sched::cluster::Lease`.

mod demand;
mod leases;
mod member;
mod report;
mod tables;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use lanes::sync::cross;
use tokio::sync::{Notify, mpsc};
use uuid::Uuid;
use workload::Levels;

pub(crate) use demand::{FleetDemand, Other};
pub(crate) use member::Member;
pub(crate) use report::{NodeDemand, Report};
pub(crate) use tables::CurrentSession;

/// Configuration of a front as a member of its fleet.
#[derive(Clone)]
pub struct FleetOptions {
    /// Keyspace of the tables.
    pub keyspace: String,
    /// Id that drivers see, the same after a restart.
    pub host_id: Uuid,
    /// Rack that drivers see.
    pub rack: String,
    /// Levels whose concurrency is leased.
    pub levels: Arc<Levels>,
}

/// Most entries of a catalog: half of the levels that a server can have.
const ENTRIES_MAX: usize = workload::LEVELS_MAX / 2;

/// Kind of an entry of the catalog.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EntryKind {
    /// A service level: its name, and its options as CQL.
    Level,
    /// An attachment: the name of a role, and that of its level.
    Attachment,
}

impl EntryKind {
    /// All kinds.
    const ALL: [EntryKind; 2] = [EntryKind::Level, EntryKind::Attachment];

    fn name(self) -> &'static str {
        match self {
            EntryKind::Level => "level",
            EntryKind::Attachment => "attachment",
        }
    }

    fn of_name(name: &str) -> Option<EntryKind> {
        EntryKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Change of one entry of the catalog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryChange {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Its name.
    pub name: String,
    /// Its new value. `None`: it is removed.
    pub value: Option<String>,
}

/// Catalog of levels and attachments, as last read.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct FleetCatalog {
    /// Number of this reading in this process: a later one has a larger number.
    pub number: u64,
    /// Version in the table. 0: it was never written.
    pub version: i64,
    /// Kind, name and value of each entry.
    pub entries: std::collections::BTreeMap<(EntryKind, String), String>,
}

impl FleetCatalog {
    /// Returns true if a change would change nothing.
    fn has(&self, changes: &[EntryChange]) -> bool {
        let value = |change: &EntryChange| self.entries.get(&(change.kind, change.name.clone()));
        changes.iter().all(|change| value(change) == change.value.as_ref())
    }

    /// Returns the next catalog, with changes.
    ///
    /// # Errors
    /// It would have more than [`ENTRIES_MAX`] entries.
    fn with(&self, changes: &[EntryChange]) -> Result<FleetCatalog, String> {
        let mut entries = self.entries.clone();
        for EntryChange { kind, name, value } in changes {
            let key = (*kind, name.clone());
            match value {
                Some(value) => drop(entries.insert(key, value.clone())),
                None => drop(entries.remove(&key)),
            }
        }
        if entries.len() > ENTRIES_MAX {
            return Err(format!("there may be at most {ENTRIES_MAX} levels and attachments: drop some"));
        }
        Ok(FleetCatalog { number: self.number + 1, version: self.version + 1, entries })
    }
}

/// Outcome of a change of the catalog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CatalogOutcome {
    /// It was applied. The number of the catalog that has it.
    Applied(u64),
    /// The catalog has changed: [`Fleet::catalog`] has a newer one, on which the change has to
    /// be planned again.
    Outdated,
}

/// Request for a change of the catalog.
struct ChangeRequest {
    /// Number of the catalog on which it was planned.
    number: u64,
    changes: Vec<EntryChange>,
    reply: cross::Sender<Result<CatalogOutcome, String>>,
}

/// Another front, as it has last reported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Id of its process.
    pub front: Uuid,
    /// Id that drivers see.
    pub host_id: Uuid,
    /// Address at which it serves clients.
    pub address: SocketAddr,
    /// Datacenter that drivers see.
    pub datacenter: Arc<str>,
    /// Rack that drivers see.
    pub rack: Arc<str>,
}

/// Handle of the fleet, for all cores. The control thread does the work.
pub struct Fleet {
    /// Id of this process.
    front: Uuid,
    catalog: ArcSwap<FleetCatalog>,
    peers: ArcSwap<Vec<Peer>>,
    /// Demands of the other fronts.
    others: ArcSwap<Vec<(Uuid, Report)>>,
    /// Demands of this front, for the next report.
    own: Mutex<Report>,
    /// Address at which this front serves clients, once it does.
    address: Mutex<Option<SocketAddr>>,
    is_leaving: AtomicBool,
    requests: mpsc::UnboundedSender<ChangeRequest>,
    /// Wakes the control thread for a round.
    wake: Notify,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("front", &self.front).finish_non_exhaustive()
    }
}

impl Fleet {
    fn new(catalog: FleetCatalog) -> (Arc<Fleet>, mpsc::UnboundedReceiver<ChangeRequest>) {
        let mut bytes = [0; 16];
        lanes::random::fill(&mut bytes);
        // Changes are made one after the other, so the queue is short.
        let (requests, receiver) = mpsc::unbounded_channel();
        let fleet = Fleet {
            front: uuid::Builder::from_random_bytes(bytes).into_uuid(),
            catalog: ArcSwap::from_pointee(catalog),
            peers: ArcSwap::default(),
            others: ArcSwap::default(),
            own: Mutex::default(),
            address: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            requests,
            wake: Notify::new(),
        };
        (Arc::new(fleet), receiver)
    }

    /// Returns the catalog as last read, at most about a second old while the tables can be
    /// reached.
    #[must_use]
    pub fn catalog(&self) -> Arc<FleetCatalog> {
        self.catalog.load_full()
    }

    /// Changes the catalog. `number`: that of the catalog on which the changes were planned.
    /// Without changes it only reads the catalog.
    ///
    /// # Errors
    /// One sentence: the tables cannot be reached, or it is not known whether the change was made.
    /// [`Fleet::catalog`] shows it later.
    pub async fn change(&self, number: u64, changes: Vec<EntryChange>) -> Result<CatalogOutcome, String> {
        let stopped = || "the control thread has stopped".to_owned();
        let (reply, outcome) = cross::oneshot();
        let sent = self.requests.send(ChangeRequest { number, changes, reply });
        sent.map_err(|_| stopped())?;
        outcome.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Returns the other fronts, by host id.
    #[must_use]
    pub fn peers(&self) -> Arc<Vec<Peer>> {
        self.peers.load_full()
    }

    /// Joins the fleet: this front serves clients at `address`.
    pub fn join(&self, address: SocketAddr) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
        self.wake.notify_one();
    }

    /// Tells the other fronts that this one serves no new clients. It stays a member while its
    /// statements run: [`crate::Control`] removes it when it is dropped.
    pub fn leave(&self) {
        self.is_leaving.store(true, Relaxed);
        self.wake.notify_one();
    }

    fn address(&self) -> Option<SocketAddr> {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the other fronts want of the nodes, by front.
    pub(crate) fn others(&self) -> Arc<Vec<(Uuid, Report)>> {
        self.others.load_full()
    }

    /// Returns the id of this process.
    pub(crate) fn front(&self) -> Uuid {
        self.front
    }

    /// Adds to the report of this front.
    pub(crate) fn report(&self, add: impl FnOnce(&mut Report)) {
        add(&mut self.own.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_catalog_has_the_changes() {
        let change = |name: &str, value: Option<&str>| EntryChange {
            kind: EntryKind::Level,
            name: name.to_owned(),
            value: value.map(str::to_owned),
        };
        let first = FleetCatalog::default().with(&[change("a", Some("1")), change("b", Some("2"))]);
        let first = first.expect("few");
        let second =
            first.with(&[change("a", None), change("b", Some("3")), change("c", None)]).expect("few");
        let level = |name: &str| (EntryKind::Level, name.to_owned());
        assert_eq!(second.entries, [(level("b"), "3".to_owned())].into());
        assert_eq!((first.version, second.version, second.number), (1, 2, 2));
        assert!(second.has(&[change("a", None), change("b", Some("3"))]));
        assert!(!second.has(&[change("b", Some("2"))]) && !second.has(&[change("d", Some("4"))]));
    }

    #[test]
    fn full_catalog_refuses_new_entries_only() {
        let change = |name: String, value: Option<&str>| EntryChange {
            kind: EntryKind::Level,
            name,
            value: value.map(str::to_owned),
        };
        let all: Vec<EntryChange> = (0..ENTRIES_MAX).map(|n| change(n.to_string(), Some("1"))).collect();
        let full = FleetCatalog::default().with(&all).expect("as many as there may be");
        assert!(full.with(&[change("new".into(), Some("1"))]).is_err());
        for allowed in [change("0".into(), None), change("0".into(), Some("2"))] {
            assert!(full.with(&[allowed]).is_ok());
        }
        let replaced = full.with(&[change("0".into(), None), change("new".into(), Some("1"))]);
        assert!(replaced.is_ok(), "as many as before");
    }
}
