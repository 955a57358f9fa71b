//! All lanes of the server: start and end, access from outside, groups, and counters.
#![expect(unsafe_code, reason = "the lane's loop is a tokio task that stays on its thread")]

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::Location;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use sched::DiskModel;

use crate::config::{Config, DiskBackend};
use crate::context::{as_fast_lane, in_group, spawn_at, with_core};
use crate::disk::{Bucket, KernelThreads, Pool, Ring, Service};
use crate::executor::Core;
use crate::heavy::{self, NORMAL_WORKER, SEATS};
use crate::registry::{NO_GROUP, Registry};
use crate::shared::{CoreShared, Message};
use crate::timer::Timer;
use crate::{Ended, Group, GroupSpec, Report, Usage, WakeUp, self_check, sys};

/// Handle of the lanes of this server. It is cheap to clone and usable from any thread.
#[derive(Clone)]
pub struct Lanes(Arc<Server>);

struct Server {
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

/// Reason why lanes could not be started.
#[derive(Debug)]
pub enum StartError {
    /// The configuration has no core.
    NoCores,
    /// A system call failed: the action and the error.
    Io(&'static str, io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::NoCores => f.write_str("no CPU to run on: give at least one core"),
            StartError::Io(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl Lanes {
    /// Starts a fast and a heavy lane for each core of the configuration. Returns once all of them
    /// run.
    ///
    /// # Errors
    /// There is no core, or a system call failed. Started lanes are ended again.
    pub fn start(config: Config) -> Result<Lanes, StartError> {
        let count = config.cores.len();
        if count == 0 {
            return Err(StartError::NoCores);
        }
        let registry = Arc::new(Registry::new(count));
        let cores = config.cores.iter().enumerate().map(|(index, &cpu)| {
            let cpus = if config.pin { vec![cpu] } else { Vec::new() };
            Arc::new(CoreShared::new(index, cpus, registry.clone(), count))
        });
        let cores = cores.collect();
        let (pool, threads) =
            Pool::start().map_err(|error| StartError::Io("starting disk threads", error))?;
        let lanes = Lanes(Arc::new(Server {
            cores,
            registry,
            config,
            threads: Mutex::new(threads),
            pool,
            bucket: Arc::new(Bucket::new(count)),
            uring: true.into(),
            direct_refused: false.into(),
            ending: false.into(),
            kernel_threads: Mutex::default(),
        }));
        lanes.start_threads().inspect_err(|_| lanes.shutdown())?;
        if lanes.0.config.self_check && lanes.0.config.pin {
            self_check::run(&lanes);
        }
        Ok(lanes)
    }

    #[expect(clippy::disallowed_methods, reason = "this crate owns the threads")]
    fn start_threads(&self) -> Result<(), StartError> {
        let (ready, readiness) = mpsc::channel();
        for index in 0..self.cores() {
            let (lanes, ready) = (self.clone(), ready.clone());
            let builder = std::thread::Builder::new().name(format!("fast-{index}"));
            let thread = builder.spawn(move || lanes.fast_lane(index, &ready));
            let thread = thread.map_err(|error| StartError::Io("starting a lane", error))?;
            self.0.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        for _ in 0..self.cores() {
            readiness.recv().expect("every lane reports its start")?;
        }
        Ok(())
    }

    /// Runs the thread of a fast lane.
    fn fast_lane(&self, index: usize, ready: &mpsc::Sender<Result<(), StartError>>) {
        let shared = self.0.cores[index].clone();
        let fail = |what, error| drop(ready.send(Err(StartError::Io(what, error))));
        if !shared.cpus.is_empty()
            && let Err(error) = sys::pin_to(&shared.cpus)
        {
            return fail("pinning a lane to its CPU", error);
        }
        sys::disable_timer_slack();
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return fail("starting a lane's poller", error),
        };
        let guard = runtime.enter();
        let timer = match Timer::new() {
            Ok(timer) => timer,
            Err(error) => return fail("making a lane's timer", error),
        };
        let ring = self.ring(&shared);
        let (bucket, pool) = (self.0.bucket.clone(), self.0.pool.clone());
        let service = Service::new(shared.clone(), bucket, pool, ring, self.0.config.disk);
        let workers = match self.start_workers(&shared) {
            Ok(workers) => workers,
            Err(error) => return fail("starting a heavy lane", error),
        };
        let core = Core::new(self.clone(), shared.clone(), service);
        drop(guard);
        drop(ready.send(Ok(())));
        as_fast_lane(&core, || runtime.block_on(run_core(&core, timer)));
        shared.stop.store(true, SeqCst);
        shared.heavy.wake_all();
        for worker in workers {
            drop(worker.join()); // a panic of a worker was reported where it happened
        }
        shared.heavy.drain();
        shared.close().for_each(drop);
    }

    fn ring(&self, shared: &CoreShared) -> Option<Ring> {
        let ring = match self.0.config.disk_backend {
            DiskBackend::Threads => None,
            DiskBackend::Auto => Ring::new(&shared.cpus).ok(),
            #[cfg(test)]
            DiskBackend::Restricted => Ring::restricted().ok(),
        };
        self.0.uring.fetch_and(ring.is_some(), Relaxed);
        ring
    }

    /// Starts the workers from the fast lane's thread, so that they inherit its CPU and its policy,
    /// which they lower themselves.
    #[expect(clippy::disallowed_methods, reason = "this crate owns the threads")]
    fn start_workers(&self, shared: &Arc<CoreShared>) -> io::Result<Vec<JoinHandle<()>>> {
        let start = |worker| {
            let (lanes, shared) = (self.clone(), shared.clone());
            let kind = if worker == NORMAL_WORKER { "urgent" } else { "heavy" };
            let builder = std::thread::Builder::new().name(format!("{kind}-{}-{worker}", shared.index));
            builder.spawn(move || heavy::work(lanes, shared, worker))
        };
        (0..SEATS).map(start).collect()
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

    pub(crate) fn core(&self, core: usize) -> &Arc<CoreShared> {
        &self.0.cores[core]
    }

    /// Runs a future on a core's fast lane and waits for it, from any thread outside of lanes.
    /// Panics if the future panics or the lanes end first.
    #[track_caller]
    pub fn block_on<F, Fut, T>(&self, core: usize, group: Group, f: F) -> T
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        self.try_block_on(core, group, f).expect("lanes run until they are ended")
    }

    /// Does the same as [`Lanes::block_on`], for callers that may run while the lanes end. Panics
    /// if the future panics.
    ///
    /// # Errors
    /// The lanes ended first. The future may have run or not.
    #[track_caller]
    pub fn try_block_on<F, Fut, T>(&self, core: usize, group: Group, f: F) -> Result<T, Ended>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        assert!(crate::context::with_core(|_| ()).is_none(), "a lane must not wait for a lane");
        let (sender, receiver) = mpsc::channel();
        let at = Location::caller();
        let start = move || {
            let run = async move { drop(sender.send(f().await)) };
            spawn_at(at, group, run).detach();
        };
        drop(self.core(core).send(Message::Start(group, Box::new(start))));
        match receiver.recv() {
            Ok(answer) => Ok(answer),
            Err(_) if self.core(core).stop.load(SeqCst) => Err(Ended),
            Err(_) => panic!("the future that core {core} was to run panicked there"),
        }
    }

    /// Runs a closure of a few microseconds on the fast lane of a core, in this group, without
    /// waiting for it; from any thread. On that very lane it runs at once. If the lane has ended,
    /// it does not run.
    pub fn tell(&self, core: usize, group: Group, f: impl FnOnce() + Send + 'static) {
        let target = self.core(core);
        if with_core(|here| Arc::ptr_eq(&here.shared, target)) == Some(true) {
            in_group(group, f);
        } else {
            drop(target.send(Message::Start(group, Box::new(f))));
        }
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
        self.0.cores.iter().map(|core| core.stalls.load(Relaxed)).sum()
    }

    /// Returns the most work units ([`crate::spend`]) that one task poll of the core's fast lane
    /// has spent since the start.
    #[must_use]
    pub fn most_units(&self, core: usize) -> u32 {
        self.core(core).most_units.load(Relaxed)
    }

    /// Returns how often a core's heavy lane had the core for 50 ms and got nearly no CPU: another
    /// busy process is on that CPU.
    #[must_use]
    pub fn starved(&self, core: usize) -> u64 {
        self.core(core).starved.load(Relaxed)
    }

    /// Returns the number of slices that urgent heavy work got at normal priority because the
    /// core's heavy lane was starved.
    #[must_use]
    pub fn rescues(&self, core: usize) -> u64 {
        self.core(core).promotions.load(Relaxed)
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
    pub fn overruns(&self) -> u64 {
        self.0.cores.iter().map(|core| core.overruns.load(Relaxed)).sum()
    }

    /// Ends all lanes. Every task is dropped, and every thread has ended when this returns. Called
    /// on a lane, it only begins the end. A second call does nothing.
    pub fn shutdown(&self) {
        self.0.ending.store(true, SeqCst);
        for core in &self.0.cores {
            core.stop.store(true, SeqCst);
            core.wake_from_any_sleep();
            core.heavy.wake_all();
        }
        let own = crate::context::with_core(|_| ()).is_some() || crate::on_heavy_lane();
        if own {
            return;
        }
        let mut threads = std::mem::take(&mut *self.0.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if threads.is_empty() {
            return;
        }
        let lanes: Vec<_> = threads.extract_if(.., |thread| is_fast(thread)).collect();
        lanes.into_iter().for_each(|thread| drop(thread.join()));
        self.0.pool.stop();
        threads.into_iter().for_each(|thread| drop(thread.join()));
        // The end of tasks on one core may have woken tasks of another core that had already ended.
        while self.0.cores.iter().any(|core| core.heavy.drain()) {}
    }

    pub(crate) fn report(&self, report: &Report) {
        self.0.config.reporter.report(report);
    }

    /// Returns a group's name for reports; `?` for a dropped group.
    pub(crate) fn group_name(&self, group: Group) -> String {
        self.0.registry.get(group).map_or_else(|| "?".into(), |slot| slot.name())
    }
}

fn is_fast(thread: &JoinHandle<()>) -> bool {
    thread.thread().name().is_some_and(|name| name.starts_with("fast-"))
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lanes({})", self.0.config)
    }
}

/// Wrapper that makes a value `Send` which stays on its thread.
struct Stays<T>(T);

// SAFETY: used below only, for a task of a current-thread runtime, which is polled by `block_on`
// and dropped with the runtime, both on the lane's thread.
unsafe impl<T> Send for Stays<T> {}

impl<T: Future + Unpin> Future for Stays<T> {
    type Output = T::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// Runs a core's loop until the core stops.
async fn run_core(core: &Core, timer: Timer) {
    let (core_pointer, mut timer) = (std::ptr::from_ref(core), timer);
    let step = poll_fn(move |cx| {
        // SAFETY: the loop is awaited to its end below, before the borrow of `core` ends. If this
        // future were dropped earlier, the runtime's thread would be ending and would poll no more
        // tasks.
        let core = unsafe { &*core_pointer };
        core.poll(cx, &mut timer)
    });
    let run_loop = Stays(Box::pin(tokio::task::unconstrained(step)));
    #[expect(clippy::disallowed_methods, reason = "the one task of this runtime")]
    let mut run_loop = tokio::task::spawn(run_loop);
    poll_fn(|cx| {
        core.shared.set_waker(cx.waker());
        core.wake();
        Pin::new(&mut run_loop).poll(cx).map(drop)
    })
    .await;
    core.end();
}
