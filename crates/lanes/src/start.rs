//! Start and end of all lanes.
#![expect(unsafe_code, reason = "the lane's loop is a tokio task that stays on its thread")]

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, PoisonError, mpsc};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use crate::config::{Config, DiskBackend};
use crate::context::{as_fast_lane, on_lane};
use crate::disk::io::pool::Pool;
use crate::disk::io::service::Service;
use crate::disk::io::uring::Ring;
use crate::executor::Core;
use crate::heavy::{NORMAL_WORKER, SEATS};
use crate::lanes::Lanes;
use crate::shared::CoreShared;
use crate::timer::Timer;
use crate::{heavy_worker, per_core, self_check, sys};

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
        if config.cores.is_empty() {
            return Err(StartError::NoCores);
        }
        let (pool, threads) =
            Pool::start().map_err(|error| StartError::Io("starting disk threads", error))?;
        let lanes = Lanes::new(config, pool, threads);
        lanes.start_threads().inspect_err(|_| lanes.shutdown())?;
        if lanes.config().self_check && lanes.config().pin {
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
            self.threads().lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        for _ in 0..self.cores() {
            readiness.recv().expect("every lane reports its start")?;
        }
        Ok(())
    }

    /// Runs the thread of a fast lane.
    fn fast_lane(&self, index: usize, ready: &mpsc::Sender<Result<(), StartError>>) {
        let shared = self.core(index).clone();
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
        let (bucket, pool) = (self.bucket().clone(), self.pool().clone());
        let service = Service::new(shared.clone(), bucket, pool, ring, self.config().disk);
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
        per_core::drop_all();
    }

    fn ring(&self, shared: &CoreShared) -> Option<Ring> {
        let ring = match self.config().disk_backend {
            DiskBackend::Threads => None,
            DiskBackend::Auto => Ring::new(&shared.cpus).ok(),
            #[cfg(test)]
            DiskBackend::Restricted => Ring::restricted().ok(),
        };
        self.record_ring(ring.is_some());
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
            builder.spawn(move || heavy_worker::work(lanes, shared, worker))
        };
        (0..SEATS).map(start).collect()
    }

    /// Ends all lanes. Every task is dropped, and every thread has ended when this returns. Called
    /// on a lane, it only begins the end. A second call does nothing.
    pub fn shutdown(&self) {
        self.begin_end();
        for core in self.all_cores() {
            core.stop.store(true, SeqCst);
            core.wake_from_any_sleep();
            core.heavy.wake_all();
        }
        if on_lane() {
            return;
        }
        let mut threads = std::mem::take(&mut *self.threads().lock().unwrap_or_else(PoisonError::into_inner));
        if threads.is_empty() {
            return;
        }
        let lanes: Vec<_> = threads.extract_if(.., |thread| is_fast(thread)).collect();
        lanes.into_iter().for_each(|thread| drop(thread.join()));
        self.pool().stop();
        threads.into_iter().for_each(|thread| drop(thread.join()));
        // The end of tasks on one core may have woken tasks of another core that had already ended.
        while self.all_cores().iter().any(|core| core.heavy.drain()) {}
    }
}

fn is_fast(thread: &JoinHandle<()>) -> bool {
    thread.thread().name().is_some_and(|name| name.starts_with("fast-"))
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
