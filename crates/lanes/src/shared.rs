//! State of a core that other threads use: its inbox, the sleep of its fast lane, and its heavy
//! lane.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::thread::Thread;
use std::time::Duration;

use sched::DiskModel;

use crate::disk::io::op::Finished;
use crate::heavy::HeavyLane;
use crate::permits::Permits;
use crate::queue::Inbox;
use crate::registry::Registry;
use crate::task::Runnable;
use crate::{Flow, Group, WakeUp, sys};

/// Message to a fast lane.
pub(crate) enum Message {
    /// One of its tasks was woken.
    Run(Runnable),
    /// Run this job (start a task), in this group and flow.
    Start(Group, Flow, Box<dyn FnOnce() + Send>),
    /// Check this group's heavy work, which began or ended.
    CheckHeavy(Group),
    /// The group's specification changed.
    Refresh(Group),
    /// The group was dropped.
    Drop(Group),
    /// A disk request was completed.
    Disk(Box<Finished>),
    /// New maxima of the disk.
    DiskModel(DiskModel),
    /// The disk is idle: requests that wait for its bucket may be sent. The message only wakes the
    /// core.
    DiskIdle,
}

/// Counts of a core, for reports.
#[derive(Default)]
pub(crate) struct CoreCounts {
    /// Task polls of the fast lane that took too long.
    pub(crate) stalls: AtomicU64,
    /// Most work units that one fast-lane task poll spent. Written by the fast lane alone.
    pub(crate) most_units: AtomicU32,
    /// The same with undivided work.
    pub(crate) most_units_in_all: AtomicU32,
    /// Number of times that heavy work had the core for long and got nearly no CPU.
    pub(crate) starved: AtomicU64,
    /// Number of heavy slices that overran so far that a spare was started.
    pub(crate) overruns: AtomicU64,
    /// Number of slices that urgent heavy work got at normal priority.
    pub(crate) promotions: AtomicU64,
}

/// The fast lane's thread, for those who wake it.
struct FastThread {
    /// Wakes it from its poller.
    waker: Waker,
    /// Ends its coalesced sleep.
    thread: Thread,
}

/// Shared state of a core. The head of this file describes it.
pub(crate) struct CoreShared {
    pub(crate) index: usize,
    /// CPUs its threads are pinned to; empty without pinning.
    pub(crate) cpus: Vec<usize>,
    inbox: Inbox<Message>,
    /// The fast lane is in its poller, or about to go there, and has to be woken.
    sleeping: AtomicBool,
    /// The fast lane leaves the core to its heavy lane without polling, and has to be woken only
    /// for messages about heavy work.
    sleeps_coalesced: AtomicBool,
    fast: OnceLock<FastThread>,
    pub(crate) stop: AtomicBool,
    pub(crate) heavy: HeavyLane,
    pub(crate) registry: Arc<Registry>,
    /// Permits for calls from this core to each core.
    pub(crate) permits: Box<[Permits]>,
    pub(crate) counts: CoreCounts,
    /// Delay of its fast lane's wake-ups, as measured at start.
    pub(crate) wake_up: OnceLock<WakeUp>,
}

impl CoreShared {
    pub(crate) fn new(index: usize, cpus: Vec<usize>, registry: Arc<Registry>, cores: usize) -> CoreShared {
        CoreShared {
            index,
            cpus,
            inbox: Inbox::new(),
            sleeping: AtomicBool::new(false),
            sleeps_coalesced: AtomicBool::new(false),
            fast: OnceLock::new(),
            stop: AtomicBool::new(false),
            heavy: HeavyLane::new(),
            registry,
            permits: (0..cores).map(|_| Permits::new()).collect(),
            counts: CoreCounts::default(),
            wake_up: OnceLock::new(),
        }
    }

    /// Sends a message and wakes the fast lane if it sleeps. Returns the message if the lane has
    /// ended.
    ///
    /// No wake-up is lost. The lane announces its sleep and then checks the inbox. A sender fills
    /// the inbox and then checks the announcement. Both are sequentially consistent, so one of them
    /// sees the other.
    pub(crate) fn send(&self, message: Message) -> Result<(), Message> {
        let of_heavy_work = matches!(message, Message::CheckHeavy(_));
        self.inbox.push(message)?;
        if of_heavy_work {
            self.end_coalesced_sleep();
        }
        self.wake();
        Ok(())
    }

    fn end_coalesced_sleep(&self) {
        if self.sleeps_coalesced.load(SeqCst) && self.sleeps_coalesced.swap(false, SeqCst) {
            self.fast.get().into_iter().for_each(|fast| fast.thread.unpark());
        }
    }

    /// Sleeps until `until_ns`, or until a message about heavy work, after the core was yielded. No
    /// other event wakes the fast lane, but it returns at once if a message is there already.
    pub(crate) fn sleep_coalesced(&self, until_ns: u64) {
        self.sleeps_coalesced.store(true, SeqCst);
        if self.inbox.is_empty() && !self.stop.load(SeqCst) {
            // A spurious wake-up only makes it poll early.
            std::thread::park_timeout(Duration::from_nanos(until_ns.saturating_sub(sys::monotonic_ns())));
        }
        self.sleeps_coalesced.store(false, Relaxed);
    }

    /// Wakes the fast lane from either kind of sleep.
    pub(crate) fn wake_from_any_sleep(&self) {
        self.end_coalesced_sleep();
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if self.sleeping.load(SeqCst) && self.sleeping.swap(false, SeqCst) {
            self.fast.get().into_iter().for_each(|fast| fast.waker.wake_by_ref());
        }
    }

    /// Announces the sleep of the fast lane. Returns false, without an announcement, if there is
    /// work.
    pub(crate) fn announce_sleep(&self) -> bool {
        self.sleeping.store(true, SeqCst);
        if self.inbox.is_empty() && !self.stop.load(SeqCst) {
            return true;
        }
        self.awake();
        false
    }

    /// Marks the fast lane as awake.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Relaxed);
    }

    /// Sets the waker of the fast lane, which is the calling thread.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        self.fast.get_or_init(|| FastThread { waker: waker.clone(), thread: std::thread::current() });
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

    /// Sleeps for `for_ns` while another thread sends a message after 50 ms. Returns the time
    /// slept, ns.
    fn interrupted_by(message: Message, for_ns: u64) -> u64 {
        let shared = Arc::new(CoreShared::new(0, Vec::new(), Arc::new(Registry::new(1)), 1));
        shared.set_waker(Waker::noop());
        let began_ns = sys::monotonic_ns();
        let sends = shared.clone();
        #[expect(clippy::disallowed_methods, reason = "another thread is what is tested")]
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50)); // a message before the sleep ends it at once
            drop(sends.send(message));
        });
        shared.sleep_coalesced(began_ns + for_ns);
        let took_ns = sys::monotonic_ns() - began_ns;
        sender.join().expect("sends");
        took_ns
    }

    #[test]
    fn only_messages_of_heavy_work_end_a_coalesced_sleep() {
        assert!(interrupted_by(Message::CheckHeavy(Group::DEFAULT), 60_000 * MS) < 30_000 * MS);
        assert!(interrupted_by(Message::DiskIdle, 300 * MS) >= 300 * MS);
    }

    #[test]
    fn earlier_message_ends_a_coalesced_sleep_at_once() {
        let shared = CoreShared::new(0, Vec::new(), Arc::new(Registry::new(1)), 1);
        shared.set_waker(Waker::noop());
        let began_ns = sys::monotonic_ns();
        drop(shared.send(Message::DiskIdle));
        shared.sleep_coalesced(began_ns + 60_000 * MS);
        assert!(sys::monotonic_ns() - began_ns < 30_000 * MS);
    }
}
