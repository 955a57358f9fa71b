//! Start of tasks, on the fast and on the heavy lane.
#![expect(unsafe_code, reason = "futures that are not Send, kept to one thread by construction")]

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use crate::Group;
use crate::context::{fast, with_core, with_shared};
use crate::executor::Core;
use crate::shared::CoreShared;
use crate::task::{Header, Runnable, Task};
use crate::wake::{schedule_fast, schedule_heavy};

/// Starts a task on this core's fast lane. Panics elsewhere.
#[track_caller]
pub fn spawn<F>(group: Group, f: F) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    spawn_at(Location::caller(), group, f)
}

/// Does the same as [`spawn`], with an explicit source location.
pub(crate) fn spawn_at<F>(at: &'static Location<'static>, group: Group, f: F) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    fast(|core| spawn_fast(core, group, at, f))
}

/// Starts a task on the heavy lane of this core, from either of its lanes. It should call
/// [`heavy_yield`] every millisecond or so. Panics outside of lanes.
#[track_caller]
pub fn heavy<F>(group: Group, f: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let at = Location::caller();
    with_shared(|_, shared| spawn_heavy(shared, group, false, at, f))
}

/// Starts an urgent heavy task: short work that a client or a writer waits for, such as a login or
/// a flush. It goes before other heavy work of its group. If another program leaves the heavy lane
/// next to no CPU, it runs at normal priority, in slices, charged like all work. Panics outside of
/// lanes.
#[track_caller]
pub fn heavy_urgent<F>(group: Group, f: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let at = Location::caller();
    with_shared(|_, shared| spawn_heavy(shared, group, true, at, f))
}

/// Guard that removes a task's waker from its lane's list when the future is dropped, in whatever
/// way.
struct Listed {
    key: usize,
}

impl Drop for Listed {
    fn drop(&mut self) {
        with_core(|core| core.unlist(self.key));
    }
}

/// Starts a task on this thread's fast lane.
fn spawn_fast<F>(core: &Core, group: Group, at: &'static Location<'static>, future: F) -> Task<F::Output>
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
    Task::new(task)
}

/// Starts a task on the heavy lane of `shared`'s core.
fn spawn_heavy<F>(
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
    let schedule = move |runnable: Runnable| schedule_heavy(&core, runnable);
    let builder = async_task::Builder::new().propagate_panic(true).metadata(Header::new(group, urgent, at));
    let (runnable, task) = builder.spawn(|_| future, schedule);
    runnable.schedule();
    Task::new(task)
}
