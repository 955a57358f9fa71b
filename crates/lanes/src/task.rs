//! Task: a future with a header that has its group. Waking a task puts it into its group's queue:
//! directly if the waker is called on the task's own fast lane, else through that lane's inbox.
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

/// State beside each future.
pub(crate) struct Header {
    /// Current group; the task itself may change it.
    pub(crate) group: AtomicU32,
    /// Heavy tasks: the group in whose count of ready tasks it is.
    pub(crate) queued_as: AtomicU32,
    /// Heavy tasks: it must not wait for a starved heavy lane.
    pub(crate) urgent: bool,
    /// Source location of the spawn, for reports.
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

/// Handle of a spawned task. Awaiting it returns its output, or passes on its panic. Dropping it
/// cancels the task.
#[must_use = "a task that is dropped is cancelled: detach it, or await it"]
pub struct Task<T>(async_task::Task<T, Header>);

impl<T> Task<T> {
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

/// Guard that removes a task's waker from its lane's list when the future is dropped, in whatever
/// way.
struct Listed {
    key: usize,
}

impl Drop for Listed {
    fn drop(&mut self) {
        crate::context::with_core(|core| core.unlist(self.key));
    }
}

/// Starts a task on this thread's fast lane.
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
    // SAFETY:
    // 1. The future is not Send, but it is polled and dropped only where its Runnable is.
    //    `schedule` passes a Runnable only to this core's queues, which only this thread empties.
    //    When the lane ends, it wakes and drops every task in its list, so that no task is
    //    scheduled later (`schedule_fast` leaks a runnable that comes too late).
    // 2. Future and schedule are 'static.
    // 3. Schedule is Send and Sync: an Arc of a Sync value.
    // 4. An output that is not Send cannot leave the thread: Task<T> is Send only if T is.
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
        // The lane has ended, and with it every future. This thread may not touch the rest of the
        // task.
        std::mem::forget(late);
    }
}

/// Starts a task on the heavy lane of `shared`'s core.
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
