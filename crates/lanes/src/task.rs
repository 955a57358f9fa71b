//! Task: a future with a header that has its group.
#![expect(unsafe_code, reason = "a pointer to the header of the task that this thread polls")]

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use crate::{Flow, Group, current_flow, sys};

/// State beside each future.
pub(crate) struct Header {
    /// Current group; the task itself may change it.
    pub(crate) group: AtomicU32,
    /// Flow of the task that spawned it.
    pub(crate) flow: Flow,
    /// Fast-lane tasks: place of the flow in the run queue where it was queued last.
    pub(crate) place: AtomicU32,
    /// Fast-lane tasks: time when it was queued last, ns of the monotonic clock.
    pub(crate) queued_ns: AtomicU64,
    /// Heavy tasks: the group in whose count of ready tasks it is.
    pub(crate) queued_as: AtomicU32,
    /// Heavy tasks: it must not wait for a starved heavy lane.
    pub(crate) urgent: bool,
    /// Source location of the spawn, for reports.
    pub(crate) spawned_at: &'static Location<'static>,
}

impl Header {
    pub(crate) fn new(group: Group, urgent: bool, spawned_at: &'static Location<'static>) -> Header {
        let flow = if group.is_of_server() { Flow::NONE } else { current_flow() };
        let group = group.0;
        Header {
            group: AtomicU32::new(group),
            flow,
            place: AtomicU32::new(0),
            queued_ns: AtomicU64::new(0),
            queued_as: AtomicU32::new(group),
            urgent,
            spawned_at,
        }
    }
}

pub(crate) type Runnable = async_task::Runnable<Header>;

thread_local! {
    /// Header of the task that this thread polls.
    static RUNNING: Cell<*const Header> = const { Cell::new(ptr::null()) };
}

/// Polls a task, with its header available to [`switch`].
pub(crate) fn run(runnable: Runnable) {
    let outer = RUNNING.replace(ptr::from_ref(runnable.metadata()));
    runnable.run();
    RUNNING.set(outer);
}

/// Moves the task being polled to another group. Returns false if this thread polls no task.
pub(crate) fn switch(group: Group) -> bool {
    let Some(header) = NonNull::new(RUNNING.get().cast_mut()) else { return false };
    // SAFETY: `run` sets it for the length of the poll. The task and its header are alive during
    // that time, since the task's own future called this.
    unsafe { header.as_ref() }.group.store(group.0, Relaxed);
    true
}

/// Returns the time when the running fast-lane task became ready, ns of the monotonic clock, at a
/// resolution of one task poll. Outside of such tasks: the present time.
#[must_use]
pub fn ready_since_ns() -> u64 {
    let header = NonNull::new(RUNNING.get().cast_mut());
    // SAFETY: as in `switch`.
    let queued_ns = header.map_or(0, |header| unsafe { header.as_ref() }.queued_ns.load(Relaxed));
    // A heavy task has no such time.
    if queued_ns == 0 { sys::monotonic_ns() } else { queued_ns }
}

/// Handle of a spawned task. Awaiting it returns its output, or passes on its panic. Dropping it
/// cancels the task.
#[must_use = "a task that is dropped is cancelled: detach it, or await it"]
pub struct Task<T>(async_task::Task<T, Header>);

impl<T> Task<T> {
    pub(crate) fn new(task: async_task::Task<T, Header>) -> Task<T> {
        Task(task)
    }

    /// Lets the task run on without the handle.
    pub fn detach(self) {
        self.0.detach();
    }

    /// Cancels the task and waits for its end. Returns its output if it had finished before.
    pub async fn cancel(self) -> Option<T> {
        self.0.cancel().await
    }

    /// Returns true if the task has finished or was cancelled.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("finished", &self.is_finished()).finish_non_exhaustive()
    }
}
