//! What other threads know of a core: its inbox, whether its fast lane sleeps, and its heavy lane.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use sched::DiskModel;

use crate::call::Permits;
use crate::disk::Finished;
use crate::heavy::HeavyLane;
use crate::queue::Inbox;
use crate::registry::Registry;
use crate::task::Runnable;
use crate::{Group, WakeUp};

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
    pub(crate) stop: AtomicBool,
    pub(crate) heavy: HeavyLane,
    pub(crate) registry: Arc<Registry>,
    /// By core called: calls this core may still make to it.
    pub(crate) permits: Box<[Permits]>,
    pub(crate) stalls: AtomicU64,
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
            stop: AtomicBool::new(false),
            heavy: HeavyLane::new(),
            registry,
            permits: (0..cores).map(|_| Permits::new()).collect(),
            stalls: AtomicU64::new(0),
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
        self.inbox.push(message)?;
        self.wake();
        Ok(())
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
        self.waker.get_or_init(|| waker.clone());
    }

    pub(crate) fn take(&self) -> impl Iterator<Item = Message> + use<> {
        self.inbox.take()
    }

    pub(crate) fn close(&self) -> impl Iterator<Item = Message> + use<> {
        self.inbox.close()
    }
}
