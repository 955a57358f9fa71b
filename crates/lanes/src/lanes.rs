//! Handle of all lanes of the server: groups, counters, and what the cores share.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use sched::DiskModel;

use crate::config::Config;
use crate::disk::io::bucket::Bucket;
use crate::disk::io::kernel::KernelThreads;
use crate::disk::io::pool::Pool;
use crate::group::NO_GROUP;
use crate::registry::Registry;
use crate::shared::{CoreShared, Message};
use crate::{Group, GroupSpec, Report, Usage, WakeUp};

/// Handle of the lanes of this server. It is cheap to clone and usable from any thread.
#[derive(Clone)]
pub struct Lanes(Arc<ServerLanes>);

/// State that all cores of a server share.
struct ServerLanes {
    cores: Box<[Arc<CoreShared>]>,
    registry: Arc<Registry>,
    config: Config,
    /// Locked only to start and end lanes.
    threads: Mutex<Vec<JoinHandle<()>>>,
    pool: Arc<Pool>,
    bucket: Arc<Bucket>,
    uring: AtomicBool,
    /// A file system without direct I/O was reported.
    direct_refused: AtomicBool,
    ending: AtomicBool,
    kernel_threads: Mutex<KernelThreads>,
}

impl Lanes {
    /// Creates the lanes of a configuration, without their threads. `disk_threads`: those of the
    /// pool.
    pub(crate) fn new(config: Config, pool: Arc<Pool>, disk_threads: Vec<JoinHandle<()>>) -> Lanes {
        let count = config.cores.len();
        let registry = Arc::new(Registry::new(count));
        let cores = config.cores.iter().enumerate().map(|(index, &cpu)| {
            let cpus = if config.pin { vec![cpu] } else { Vec::new() };
            Arc::new(CoreShared::new(index, cpus, registry.clone(), count))
        });
        let cores = cores.collect();
        Lanes(Arc::new(ServerLanes {
            cores,
            registry,
            config,
            threads: Mutex::new(disk_threads),
            pool,
            bucket: Arc::new(Bucket::new(count)),
            uring: true.into(),
            direct_refused: false.into(),
            ending: false.into(),
            kernel_threads: Mutex::default(),
        }))
    }

    /// Returns the number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.0.cores.len()
    }

    /// Returns the configuration that the lanes were started with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Returns true if disk requests go through io_uring on every core.
    #[must_use]
    pub fn uses_io_uring(&self) -> bool {
        self.0.uring.load(Relaxed)
    }

    /// Records whether a core has an io_uring.
    pub(crate) fn record_ring(&self, has_ring: bool) {
        self.0.uring.fetch_and(has_ring, Relaxed);
    }

    /// Records and reports that the kernel rejects io_uring requests on a core.
    pub(crate) fn ring_refused(&self, core: usize, error: &io::Error) {
        self.0.uring.store(false, Relaxed);
        self.report(&Report::RingRefused { core, error: error.to_string() });
    }

    /// Reports once that a file system does not support direct I/O.
    pub(crate) fn direct_refused(&self, path: &Path) {
        if !self.0.direct_refused.swap(true, Relaxed) {
            self.report(&Report::DirectRefused { path: path.to_owned() });
        }
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.0.pool
    }

    pub(crate) fn bucket(&self) -> &Arc<Bucket> {
        &self.0.bucket
    }

    /// Returns the threads that have to be joined at the end, without those of heavy lanes.
    pub(crate) fn threads(&self) -> &Mutex<Vec<JoinHandle<()>>> {
        &self.0.threads
    }

    pub(crate) fn all_cores(&self) -> &[Arc<CoreShared>] {
        &self.0.cores
    }

    pub(crate) fn core(&self, core: usize) -> &Arc<CoreShared> {
        &self.0.cores[core]
    }

    /// Records that the lanes end.
    pub(crate) fn begin_end(&self) {
        self.0.ending.store(true, SeqCst);
    }

    /// Returns true after [`Lanes::shutdown`] was called.
    pub(crate) fn are_ending(&self) -> bool {
        self.0.ending.load(SeqCst)
    }

    pub(crate) fn kernel_threads(&self) -> &Mutex<KernelThreads> {
        &self.0.kernel_threads
    }

    /// Creates a group under [`Group::USERS`] or [`Group::SYSTEM`], usable at once. Panics for
    /// another parent, and beyond a million groups.
    #[must_use]
    pub fn create_group(&self, parent: Group, spec: GroupSpec) -> Group {
        assert!(parent == Group::USERS || parent == Group::SYSTEM, "{parent:?} holds work, not groups");
        self.0.registry.create(parent, &spec).expect("fewer than a million groups")
    }

    /// Changes the specification of a group at once, also for its running tasks. Does nothing if
    /// there is no such group.
    pub fn alter_group(&self, group: Group, spec: GroupSpec) {
        if let Some(slot) = self.0.registry.get(group) {
            slot.describe(&spec);
            self.send_to_all(|| Message::Refresh(group));
        }
    }

    /// Drops a group. Its running tasks go on in [`Group::DEFAULT`]. The groups that every server
    /// has stay.
    pub fn drop_group(&self, group: Group) {
        if group.0 >= Group::BUILT_IN && self.0.registry.drop_group(group) {
            self.send_to_all(|| Message::Drop(group));
        }
    }

    /// Replaces the maxima of the disk, at first those of [`Config::disk`]. Queued requests keep
    /// their cost.
    pub fn set_disk(&self, model: DiskModel) {
        self.send_to_all(|| Message::DiskModel(model));
    }

    fn send_to_all(&self, message: impl Fn() -> Message) {
        self.0.cores.iter().for_each(|core| drop(core.send(message())));
    }

    /// Returns the usage of a group on all cores; zeros for an unknown group.
    #[must_use]
    pub fn usage(&self, group: Group) -> Usage {
        self.0.registry.usage(group, None)
    }

    /// Returns the usage of a group on one core.
    #[must_use]
    pub fn core_usage(&self, core: usize, group: Group) -> Usage {
        self.0.registry.usage(group, Some(core))
    }

    /// Returns the waits of a group on all cores: each group that had the core while this one was
    /// ready, and the time, ns. `None` stands for groups that are not counted individually.
    /// `waits.rs` says when the times are exact and when sampled.
    #[must_use]
    pub fn waited_for(&self, group: Group) -> Vec<(Option<Group>, u64)> {
        let named = |(id, ns)| ((id != NO_GROUP).then_some(Group(id)), ns);
        self.0.registry.waited_for(group).into_iter().map(named).collect()
    }

    /// Returns the number of fast-lane task polls longer than 200 µs, on all cores and of all
    /// groups.
    #[must_use]
    pub fn stalls(&self) -> u64 {
        self.0.cores.iter().map(|core| core.counts.stalls.load(Relaxed)).sum()
    }

    /// Returns the most work units ([`crate::spend`]) that one task poll of the core's fast lane
    /// has spent since the start.
    #[must_use]
    pub fn most_units(&self, core: usize) -> u32 {
        self.core(core).counts.most_units.load(Relaxed)
    }

    /// Returns the most work units of a task poll since the last call, for tests that compare kinds
    /// of work. Unlike [`Lanes::most_units`] it includes work that code cannot divide
    /// ([`crate::count`]).
    pub fn take_most_units(&self, core: usize) -> u32 {
        self.core(core).counts.most_units_in_all.swap(0, Relaxed)
    }

    /// Returns how often a core's heavy lane had the core for 50 ms and got nearly no CPU: another
    /// busy process is on that CPU.
    #[must_use]
    pub fn starved(&self, core: usize) -> u64 {
        self.core(core).counts.starved.load(Relaxed)
    }

    /// Returns the number of slices that urgent heavy work got at normal priority because the
    /// core's heavy lane was starved.
    #[must_use]
    pub fn promotions(&self, core: usize) -> u64 {
        self.core(core).counts.promotions.load(Relaxed)
    }

    /// Returns the delay of wake-ups of the core's fast lane, as measured at start. `None`: the
    /// measurement is switched off, or lanes are not pinned.
    #[must_use]
    pub fn wake_up(&self, core: usize) -> Option<WakeUp> {
        self.core(core).wake_up.get().copied()
    }

    /// Returns the number of heavy slices, on all cores, that overran by 10 ms while another group
    /// waited, so that a spare worker was started.
    #[must_use]
    pub fn slice_overruns(&self) -> u64 {
        self.0.cores.iter().map(|core| core.counts.overruns.load(Relaxed)).sum()
    }

    pub(crate) fn report(&self, report: &Report) {
        self.0.config.reporter.report(report);
    }

    /// Returns a group's name for reports; `?` for a dropped group.
    pub(crate) fn group_name(&self, group: Group) -> String {
        self.0.registry.get(group).map_or_else(|| "?".into(), |slot| slot.name())
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lanes({})", self.0.config)
    }
}
