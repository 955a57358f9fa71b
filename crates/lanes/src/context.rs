//! Position of the running code: its lane, core and group. Every thread of the lanes keeps it in
//! thread-local cells.
#![expect(unsafe_code, reason = "a pointer to the lane's core, valid while its thread runs the lane")]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::executor::Core;
use crate::heavy::Seat;
use crate::lanes::Lanes;
use crate::shared::CoreShared;
use crate::task::{self, Task};
use crate::{Group, sys};

/// Time after which a fast-lane task should yield, ns.
pub(crate) const POLL_NS_MAX: u64 = sched::LATENCY_SLICE_NS;
/// Time after which a heavy task yields in any case, ns: it may have been cancelled, or another
/// task of its group is next.
const HEAVY_POLL_NS_MAX: u64 = 1_000_000;

thread_local! {
    /// Core whose fast lane this thread is; null elsewhere.
    static CORE: Cell<*const Core> = const { Cell::new(ptr::null()) };
    /// Core that this thread serves as a heavy worker, and its seat there.
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
    static GROUP: Cell<Group> = const { Cell::new(Group::CONTROL) };
    /// Start of the running task poll, ns.
    static POLL_BEGAN: Cell<u64> = const { Cell::new(0) };
    /// Time at which this thread, a heavy worker, last offered its CPU, ns.
    static YIELDED: Cell<u64> = const { Cell::new(0) };
}

/// Makes this thread the fast lane of `core` for as long as `lane` runs.
pub(crate) fn as_fast_lane<T>(core: &Core, lane: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CORE.set(ptr::null());
        }
    }
    CORE.set(core);
    let _leave = Leave;
    lane()
}

/// Makes this thread a worker of a heavy lane.
pub(crate) fn take_seat(seat: Option<Seat>) {
    SEAT.set(seat);
}

/// Calls `f` with this thread's core if it is a fast lane.
pub(crate) fn with_core<T>(f: impl FnOnce(&Core) -> T) -> Option<T> {
    let core = CORE.get();
    if core.is_null() {
        return None;
    }
    // SAFETY: `as_fast_lane` holds a reference to the core as long as the pointer is set, and only
    // this thread uses a Core.
    Some(f(unsafe { &*core }))
}

/// Calls `f` if this thread is the fast lane of `shared`.
pub(crate) fn with_own_core(shared: &Arc<CoreShared>, f: impl FnOnce(&Core)) {
    with_core(|core| {
        if Arc::ptr_eq(&core.shared, shared) {
            f(core);
        }
    });
}

pub(crate) fn fast<T>(f: impl FnOnce(&Core) -> T) -> T {
    with_core(f).expect("to be called on a fast lane")
}

/// Calls `f` with the core that this thread works for, on either lane.
pub(crate) fn with_shared<T>(f: impl FnOnce(&Lanes, &Arc<CoreShared>) -> T) -> T {
    let mut f = Some(f);
    let mut once = |lanes: &Lanes, shared: &Arc<CoreShared>| f.take().map(|f| f(lanes, shared));
    if let Some(result) = with_core(|core| once(&core.lanes, &core.shared)) {
        return result.expect("called once");
    }
    // Clone the seat, so that `f` may call this function again.
    let seat = SEAT.with_borrow(Clone::clone).expect("to be called on a lane");
    once(&seat.lanes, &seat.shared).expect("called once")
}

/// Sets the current group while `f` runs.
pub(crate) fn in_group<T>(group: Group, f: impl FnOnce() -> T) -> T {
    let outer = GROUP.replace(group);
    let result = f();
    GROUP.set(outer);
    result
}

pub(crate) fn poll_begins(now_ns: u64) {
    POLL_BEGAN.set(now_ns);
}

/// Returns the lanes that this thread belongs to. Panics outside of lanes.
#[must_use]
pub fn handle() -> Lanes {
    with_shared(|lanes, _| lanes.clone())
}

/// Returns the number of cores. Panics outside of lanes.
#[must_use]
pub fn cores() -> usize {
    with_shared(|lanes, _| lanes.cores())
}

/// Returns the index of this thread's core, 0..[`cores`]. Panics outside of lanes.
#[must_use]
pub fn current_core() -> usize {
    with_core(|core| core.shared.index).unwrap_or_else(|| with_shared(|_, shared| shared.index))
}

/// Returns the core with the shortest heavy run queue. Prefers this core unless another queue is
/// shorter by two. Among equals, takes the next after this one. The answer is a snapshot, for heavy
/// work that may run on any core. Linear in the number of cores. Panics outside of lanes.
#[must_use]
pub fn least_loaded_core() -> usize {
    let own = current_core();
    with_shared(|lanes, _| least_loaded(own, (0..lanes.cores()).map(|core| lanes.core(core).heavy.ready())))
}

/// Returns the least loaded core, given the number of ready tasks of each.
fn least_loaded(own: usize, ready: impl Iterator<Item = u32> + Clone) -> usize {
    let here = ready.clone().nth(own).unwrap_or(0);
    let (before, after) = (ready.clone().enumerate().take(own), ready.enumerate().skip(own));
    let least = after.chain(before).min_by_key(|&(_, ready)| ready);
    least.filter(|&(_, ready)| ready.saturating_add(1) < here).map_or(own, |(core, _)| core)
}

/// Returns the group of the running task; [`Group::CONTROL`] outside of tasks.
#[must_use]
pub fn current_group() -> Group {
    GROUP.get()
}

/// Returns true if this thread works on a heavy lane.
#[must_use]
pub fn on_heavy_lane() -> bool {
    SEAT.with_borrow(Option::is_some)
}

/// Returns true if this thread is a fast lane.
pub(crate) fn on_fast_lane() -> bool {
    !CORE.get().is_null()
}

/// Returns true if this thread works for running lanes. While lanes shut down, the last values are
/// dropped outside of them.
#[must_use]
pub fn on_lane() -> bool {
    !CORE.get().is_null() || on_heavy_lane()
}

/// Returns true if the running task should yield. On a heavy lane, its group's slice is over or it
/// has run for 1 ms. On a fast lane, it has used its 50 µs. For code that is polled; code that can
/// await calls [`heavy_yield`]. Takes about 25 ns. On a heavy lane it also makes a system call at
/// most ten times a millisecond, to offer the CPU to a fast lane that is ready.
#[must_use]
pub fn turn_is_over() -> bool {
    SEAT.with_borrow(|seat| match seat {
        Some(seat) => {
            let now_ns = sys::monotonic_ns();
            offer_cpu(now_ns, seat.lanes.config().policy.offer_cpu_ns);
            seat.slice_is_over() || poll_ns(now_ns) >= HEAVY_POLL_NS_MAX
        }
        None => should_yield(),
    })
}

/// Offers the CPU of this heavy worker to other threads, every `every_ns`. The kernel takes the CPU
/// from the idle class for a fast lane that wakes. But it also gives the idle class its
/// entitlement: 3 parts of 1,027 beside one thread, and a turn to a thread that has just woken.
/// Such a turn lasts until the next tick, up to 4 ms in which a fast lane that is ready does not
/// run.
fn offer_cpu(now_ns: u64, every_ns: u64) {
    if now_ns.saturating_sub(YIELDED.get()) >= every_ns {
        YIELDED.set(now_ns);
        sys::yield_cpu();
    }
}

/// Returns the time that the running task poll has taken, ns.
fn poll_ns(now_ns: u64) -> u64 {
    now_ns.saturating_sub(POLL_BEGAN.get())
}

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
    fast(|core| task::spawn_fast(core, group, at, f))
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
    with_shared(|_, shared| task::spawn_heavy(shared, group, false, at, f))
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
    with_shared(|_, shared| task::spawn_heavy(shared, group, true, at, f))
}

/// Moves the running task to another group, from its next task poll on, which begins when this
/// returns. The task itself must await it, not a combinator that polls on its own.
pub fn switch_group(group: Group) -> impl Future<Output = ()> {
    Again {
        before: Some(move || assert!(task::switch(group), "only a task can change its group")),
        waited: false,
    }
}

/// Returns to the scheduler, which may run other tasks.
pub fn yield_now() -> impl Future<Output = ()> {
    Again { before: Some(|| ()), waited: false }
}

/// Returns true if the running fast-lane task poll has used its 50 µs and should [`yield_now`].
/// Takes about 25 ns.
#[must_use]
pub fn should_yield() -> bool {
    poll_ns(sys::monotonic_ns()) >= POLL_NS_MAX
}

/// Returns to the scheduler if [`turn_is_over`].
pub async fn heavy_yield() {
    if turn_is_over() {
        yield_now().await;
    }
}

/// Future that runs a closure, wakes its task, and is ready at the next poll.
struct Again<F> {
    before: Option<F>,
    waited: bool,
}

impl<F: FnOnce() + Unpin> Future for Again<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.waited {
            return Poll::Ready(());
        }
        self.before.take().into_iter().for_each(|before| before());
        self.waited = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_core_is_preferred_unless_another_has_two_tasks_fewer() {
        let of = |own, ready: &[u32]| least_loaded(own, ready.iter().copied());
        assert_eq!([of(0, &[0, 0]), of(1, &[0, 0]), of(1, &[1, 2])], [0, 1, 1]);
        assert_eq!([of(1, &[0, 2]), of(1, &[3, 5, 2, 2]), of(3, &[9, 9, 9, 4])], [0, 2, 3]);
        assert_eq!([of(1, &[0, 7, 0]), of(2, &[0, 0, 7])], [2, 0], "ties do not all go to the first core");
        assert_eq!(of(0, &[u32::MAX, u32::MAX]), 0);
    }
}
