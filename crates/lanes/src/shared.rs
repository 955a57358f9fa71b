//! What other threads know of a core: its inbox, whether its fast lane sleeps, and its heavy lane.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::thread::Thread;
use std::time::Duration;

use sched::DiskModel;

use crate::call::Permits;
use crate::disk::Finished;
use crate::heavy::HeavyLane;
use crate::queue::Inbox;
use crate::registry::Registry;
use crate::task::Runnable;
use crate::{Group, WakeUp, sys};

/// What a fast lane is told by others.
pub(crate) enum Message {
    /// One of its tasks was woken.
    Run(Runnable),
    /// Do this (start a task), in this group.
    Start(Group, Box<dyn FnOnce() + Send>),
    /// This group's heavy work began or ended: look.
    Look(Group),
    /// The group's specification changed.
    Refresh(Group),
    /// The group was dropped.
    Drop(Group),
    /// A disk request is done.
    Disk(Box<Finished>),
    /// The disk's maxima.
    DiskModel(DiskModel),
    /// The disk has nothing to do: requests that its bucket held back may go. To be woken is all there is to it.
    DiskIdle,
}

/// See the head of this file.
pub(crate) struct CoreShared {
    pub(crate) index: usize,
    /// CPUs its threads are pinned to; empty without pinning.
    pub(crate) cpus: Vec<usize>,
    inbox: Inbox<Message>,
    /// The fast lane is in its poller, or about to go there, and wants to be woken.
    sleeping: AtomicBool,
    waker: OnceLock<Waker>,
    /// The fast lane leaves the core to its heavy lane for a moment, and wants to be woken only when there is news of heavy work.
    lets_run: AtomicBool,
    thread: OnceLock<Thread>,
    pub(crate) stop: AtomicBool,
    pub(crate) heavy: HeavyLane,
    pub(crate) registry: Arc<Registry>,
    /// By core called: calls this core may still make to it.
    pub(crate) permits: Box<[Permits]>,
    pub(crate) stalls: AtomicU64,
    /// The most work units that one fast-lane task poll spent. Written by the fast lane alone.
    pub(crate) most_units: AtomicU32,
    /// Times a heavy lane was owed the core for long and got nearly nothing of it.
    pub(crate) starved: AtomicU64,
    /// The number of heavy turns that overran so far that a spare was started.
    pub(crate) overruns: AtomicU64,
    /// Turns that urgent heavy work got at normal priority.
    pub(crate) rescues: AtomicU64,
    /// How long its fast lane takes to wake, as measured at start.
    pub(crate) wake_up: OnceLock<WakeUp>,
}

impl CoreShared {
    pub(crate) fn new(index: usize, cpus: Vec<usize>, registry: Arc<Registry>, cores: usize) -> CoreShared {
        CoreShared {
            index,
            cpus,
            inbox: Inbox::new(),
            sleeping: AtomicBool::new(false),
            waker: OnceLock::new(),
            lets_run: AtomicBool::new(false),
            thread: OnceLock::new(),
            stop: AtomicBool::new(false),
            heavy: HeavyLane::new(),
            registry,
            permits: (0..cores).map(|_| Permits::new()).collect(),
            stalls: AtomicU64::new(0),
            most_units: AtomicU32::new(0),
            starved: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
            rescues: AtomicU64::new(0),
            wake_up: OnceLock::new(),
        }
    }

    /// Puts a message in and wakes the fast lane if it sleeps; if the lane is gone, the message comes back.
    ///
    /// No wake-up is lost: the lane announces its sleep and then looks into the inbox; a sender puts in and then looks for
    /// the announcement; in the one order of sequentially consistent operations, one of them sees the other.
    pub(crate) fn send(&self, message: Message) -> Result<(), Message> {
        let of_heavy_work = matches!(message, Message::Look(_));
        self.inbox.push(message)?;
        if of_heavy_work {
            self.end_let_run();
        }
        self.wake();
        Ok(())
    }

    fn end_let_run(&self) {
        if self.lets_run.load(SeqCst) && self.lets_run.swap(false, SeqCst) {
            self.thread.get().into_iter().for_each(Thread::unpark);
        }
    }

    /// Fast lane, its core handed over: sleeps until then (ns), or until there is news of heavy work. No other event wakes it; but
    /// what was there before, it goes to see at once.
    pub(crate) fn let_run(&self, until_ns: u64) {
        self.lets_run.store(true, SeqCst);
        if self.inbox.is_empty() && !self.stop.load(SeqCst) {
            // Woken early for nothing, it looks early: no harm.
            std::thread::park_timeout(Duration::from_nanos(until_ns.saturating_sub(sys::monotonic_ns())));
        }
        self.lets_run.store(false, Relaxed);
    }

    /// Wakes the fast lane, however it sleeps.
    pub(crate) fn rouse(&self) {
        self.end_let_run();
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if self.sleeping.load(SeqCst) && self.sleeping.swap(false, SeqCst) {
            self.waker.get().into_iter().for_each(Waker::wake_by_ref);
        }
    }

    /// Fast lane: announces its sleep. False, and not announced, if there is something to do.
    pub(crate) fn announce_sleep(&self) -> bool {
        self.sleeping.store(true, SeqCst);
        if self.inbox.is_empty() && !self.stop.load(SeqCst) {
            return true;
        }
        self.awake();
        false
    }

    /// Fast lane: it is awake.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Relaxed);
    }

    /// Fast lane: how others wake it.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        self.thread.get_or_init(std::thread::current);
        self.waker.get_or_init(|| waker.clone());
    }

    pub(crate) fn take(&self) -> impl Iterator<Item = Message> + use<> {
        self.inbox.take()
    }

    pub(crate) fn close(&self) -> impl Iterator<Item = Message> + use<> {
        self.inbox.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Lets the heavy lane run until that many ns from now, while another thread sends a message soon: how long it did, ns.
    fn interrupted_by(message: Message, for_ns: u64) -> u64 {
        let shared = Arc::new(CoreShared::new(0, Vec::new(), Arc::new(Registry::new(1)), 1));
        shared.set_waker(Waker::noop());
        let began_ns = sys::monotonic_ns();
        let sends = shared.clone();
        #[expect(clippy::disallowed_methods, reason = "another thread is what is tested")]
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50)); // what comes before it sleeps is seen at once
            drop(sends.send(message));
        });
        shared.let_run(began_ns + for_ns);
        let took_ns = sys::monotonic_ns() - began_ns;
        sender.join().expect("sends");
        took_ns
    }

    #[test]
    fn news_of_heavy_work_ends_what_the_heavy_lane_is_left_alone_for_and_nothing_else_does() {
        assert!(interrupted_by(Message::Look(Group::DEFAULT), 60_000 * MS) < 30_000 * MS);
        assert!(interrupted_by(Message::DiskIdle, 300 * MS) >= 300 * MS);
    }

    #[test]
    fn what_has_come_already_is_seen_at_once() {
        let shared = CoreShared::new(0, Vec::new(), Arc::new(Registry::new(1)), 1);
        shared.set_waker(Waker::noop());
        let began_ns = sys::monotonic_ns();
        drop(shared.send(Message::DiskIdle));
        shared.let_run(began_ns + 60_000 * MS);
        assert!(sys::monotonic_ns() - began_ns < 30_000 * MS);
    }
}
