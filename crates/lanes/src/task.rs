//! A task: a future with a header that says whose it is. Waking a task puts it into its group's queue: directly if the
//! waker is called on the task's own fast lane, else by way of that lane's inbox.
#![expect(unsafe_code, reason = "futures that are not Send, kept to one thread by construction")]

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};

use crate::Group;
use crate::executor::Core;
use crate::shared::{CoreShared, Message};

/// What the lanes keep beside each future.
pub(crate) struct Header {
    /// Whose it is now; the task itself may change it.
    pub(crate) group: AtomicU32,
    /// Heavy tasks: the group whose count of ready tasks it was added to when it was queued.
    pub(crate) queued_as: AtomicU32,
    /// Heavy tasks: it is not to wait for a starved heavy lane.
    pub(crate) urgent: bool,
    /// Where it was spawned, for reports.
    pub(crate) spawned_at: &'static Location<'static>,
}

impl Header {
    fn new(group: Group, urgent: bool, spawned_at: &'static Location<'static>) -> Header {
        let group = group.0;
        Header { group: AtomicU32::new(group), queued_as: AtomicU32::new(group), urgent, spawned_at }
    }
}

pub(crate) type Runnable = async_task::Runnable<Header>;

thread_local! {
    /// The header of the task being polled on this thread.
    static RUNNING: Cell<*const Header> = const { Cell::new(ptr::null()) };
}

/// Polls a task, with its header at hand for [`switch`].
pub(crate) fn run(runnable: Runnable) {
    let outer = RUNNING.replace(ptr::from_ref(runnable.metadata()));
    runnable.run();
    RUNNING.set(outer);
}

/// Moves the task being polled to another group: whether there is one.
pub(crate) fn switch(group: Group) -> bool {
    let Some(header) = NonNull::new(RUNNING.get().cast_mut()) else { return false };
    // SAFETY: set by `run` for as long as the poll lasts, during which the task, and its header with it, is alive: it is
    // the task's own future that got us here.
    unsafe { header.as_ref() }.group.store(group.0, Relaxed);
    true
}

/// A spawned task. Awaiting it gives its output (and passes on its panic); dropping it cancels.
#[must_use = "a task that is dropped is cancelled: detach it, or await it"]
pub struct Task<T>(async_task::Task<T, Header>);

impl<T> Task<T> {
    /// Lets it run on by itself.
    pub fn detach(self) {
        self.0.detach();
    }

    /// Cancels it and waits until it is gone: its output, if it was done before.
    pub async fn cancel(self) -> Option<T> {
        self.0.cancel().await
    }

    /// Whether it is done or cancelled.
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

/// Takes a task's waker out of its lane's list when the future is gone, whichever way it went.
struct Listed {
    key: usize,
}

impl Drop for Listed {
    fn drop(&mut self) {
        crate::context::with_core(|core| core.unlist(self.key));
    }
}

/// A task on this thread's fast lane.
pub(crate) fn spawn_fast<F>(
    core: &Core,
    group: Group,
    at: &'static Location<'static>,
    future: F,
) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let key = core.reserve_listing();
    let listed = Listed { key };
    let wrapped = async move {
        let _listed = listed;
        future.await
    };
    let shared = core.shared.clone();
    let schedule = move |runnable: Runnable| schedule_fast(&shared, runnable);
    let builder = async_task::Builder::new().propagate_panic(true).metadata(Header::new(group, false, at));
    // SAFETY: (1) the future is not Send: it is polled and dropped only where its Runnable is, and a Runnable gets from
    // `schedule` only to this core's queues, which only this thread empties; when the lane ends, it wakes and drops every
    // task in its list, so that none is left to be scheduled later (`schedule_fast` leaks a runnable that comes too late).
    // (2) future and schedule are 'static. (3) schedule is Send and Sync: an Arc of a Sync value. (4) an output
    // that is not Send cannot leave the thread: Task<T> is Send only if T is.
    let (runnable, task) = unsafe { builder.spawn_unchecked(|_| wrapped, schedule) };
    core.list(key, runnable.waker());
    runnable.schedule();
    Task(task)
}

fn schedule_fast(shared: &Arc<CoreShared>, runnable: Runnable) {
    let mut runnable = Some(runnable);
    crate::context::with_own_core(shared, |core| {
        if let Some(runnable) = runnable.take() {
            core.enqueue(runnable);
        }
    });
    if let Some(runnable) = runnable
        && let Err(Message::Run(late)) = shared.send(Message::Run(runnable))
    {
        // The lane is gone, and with it every future; what is left of this task may not be touched by this thread.
        std::mem::forget(late);
    }
}

/// A task on the heavy lane of `shared`'s core.
pub(crate) fn spawn_heavy<F>(
    shared: &Arc<CoreShared>,
    group: Group,
    urgent: bool,
    at: &'static Location<'static>,
    future: F,
) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let core = shared.clone();
    let schedule = move |runnable: Runnable| crate::heavy::schedule(&core, runnable);
    let builder = async_task::Builder::new().propagate_panic(true).metadata(Header::new(group, urgent, at));
    let (runnable, task) = builder.spawn(|_| future, schedule);
    runnable.schedule();
    Task(task)
}
