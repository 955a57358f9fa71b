//! Where the running code is: which lane of which core, and in which group. Every thread of the
//! lanes knows it in thread-local cells.
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

/// A piece of fast-lane work should end after this long, ns.
pub(crate) const PIECE_NS: u64 = sched::LATENCY_SLICE_NS;
/// A piece of heavy work gives way after this long whoever waits, ns: perhaps it was cancelled, or
/// another task of its group is next.
const HEAVY_PIECE_NS: u64 = 1_000_000;

thread_local! {
    /// The core whose fast lane this thread is; null elsewhere.
    static CORE: Cell<*const Core> = const { Cell::new(ptr::null()) };
    /// The core this thread belongs to as a heavy worker, and its seat there.
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
    static GROUP: Cell<Group> = const { Cell::new(Group::CONTROL) };
    /// When the piece being run began, ns.
    static PIECE_BEGAN: Cell<u64> = const { Cell::new(0) };
    /// When this thread, a heavy worker, last let others have its CPU, ns.
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

/// Gives this thread a worker's seat on a heavy lane.
pub(crate) fn take_seat(seat: Option<Seat>) {
    SEAT.set(seat);
}

/// Calls `f` with this thread's core if it is a fast lane.
pub(crate) fn with_core<T>(f: impl FnOnce(&Core) -> T) -> Option<T> {
    let core = CORE.get();
    if core.is_null() {
        return None;
    }
    // SAFETY: `as_fast_lane` holds a reference to the core as long as the pointer is set, and a
    // Core is only ever reached on this thread.
    Some(f(unsafe { &*core }))
}

/// Calls `f` if this thread is the fast lane of just that core.
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

/// The core this thread works for, on either lane.
pub(crate) fn with_shared<T>(f: impl FnOnce(&Lanes, &Arc<CoreShared>) -> T) -> T {
    let mut f = Some(f);
    let mut once = |lanes: &Lanes, shared: &Arc<CoreShared>| f.take().map(|f| f(lanes, shared));
    if let Some(result) = with_core(|core| once(&core.lanes, &core.shared)) {
        return result.expect("called once");
    }
    // The seat is cloned so that `f` may come here again.
    let seat = SEAT.with_borrow(Clone::clone).expect("to be called on a lane");
    once(&seat.lanes, &seat.shared).expect("called once")
}

/// Sets the group for as long as `f` runs.
pub(crate) fn in_group<T>(group: Group, f: impl FnOnce() -> T) -> T {
    let outer = GROUP.replace(group);
    let result = f();
    GROUP.set(outer);
    result
}

pub(crate) fn piece_begins(now_ns: u64) {
    PIECE_BEGAN.set(now_ns);
}

/// The lanes this thread belongs to. Panics outside of them.
#[must_use]
pub fn handle() -> Lanes {
    with_shared(|lanes, _| lanes.clone())
}

/// Number of cores. Panics outside of lanes.
#[must_use]
pub fn cores() -> usize {
    with_shared(|lanes, _| lanes.cores())
}

/// Index of this thread's core, 0..[`cores`]. Panics outside of lanes.
#[must_use]
pub fn current_core() -> usize {
    with_core(|core| core.shared.index).unwrap_or_else(|| with_shared(|_, shared| shared.index))
}

/// The core whose heavy lane has the fewest tasks that want to run; this one, unless another has
/// fewer by two at least. For heavy work that may run anywhere: it is a look at this moment, and
/// promises nothing. Of several the next after this one. Linear in the number of cores. Panics
/// outside of lanes.
#[must_use]
pub fn least_loaded_core() -> usize {
    let own = current_core();
    with_shared(|lanes, _| least_loaded(own, (0..lanes.cores()).map(|core| lanes.core(core).heavy.ready())))
}

/// Of these numbers of tasks by core.
fn least_loaded(own: usize, ready: impl Iterator<Item = u32> + Clone) -> usize {
    let here = ready.clone().nth(own).unwrap_or(0);
    let (before, after) = (ready.clone().enumerate().take(own), ready.enumerate().skip(own));
    let least = after.chain(before).min_by_key(|&(_, ready)| ready);
    least.filter(|&(_, ready)| ready.saturating_add(1) < here).map_or(own, |(core, _)| core)
}

/// The group of the running task; [`Group::CONTROL`] outside of tasks.
#[must_use]
pub fn current_group() -> Group {
    GROUP.get()
}

/// Whether this thread works on a heavy lane.
#[must_use]
pub fn on_heavy_lane() -> bool {
    SEAT.with_borrow(Option::is_some)
}

/// Whether this thread is a fast lane.
pub(crate) fn on_fast_lane() -> bool {
    !CORE.get().is_null()
}

/// Whether this thread works for lanes that run. While they shut down, what is dropped last is not.
#[must_use]
pub fn on_lane() -> bool {
    !CORE.get().is_null() || on_heavy_lane()
}

/// Whether the running piece of work should give way now: on a heavy lane if its group's turn is
/// over or it has run for 1 ms, on a fast lane if it has used its 50 µs. For code that is polled
/// rather than awaited; others call [`heavy_yield`]. About 25 ns, and on a heavy lane a system call
/// ten times a millisecond at most, for the sake of a fast lane that is ready.
#[must_use]
pub fn turn_is_over() -> bool {
    SEAT.with_borrow(|seat| match seat {
        Some(seat) => {
            let now_ns = sys::monotonic_ns();
            offer_cpu(now_ns, seat.lanes.config().policy.offer_cpu_ns);
            seat.turn_is_over() || piece_ns(now_ns) >= HEAVY_PIECE_NS
        }
        None => should_yield(),
    })
}

/// Lets another thread that is ready have this heavy worker's CPU, every `every_ns`. The kernel
/// takes the CPU from the idle class for a fast lane that wakes. But it also gives the idle class
/// its entitlement (3 parts of 1,027 beside one thread, and a turn to a thread that has just
/// woken), until its next tick: up to 4 ms in which a fast lane that is ready does not run.
fn offer_cpu(now_ns: u64, every_ns: u64) {
    if now_ns.saturating_sub(YIELDED.get()) >= every_ns {
        YIELDED.set(now_ns);
        sys::yield_cpu();
    }
}

/// How long the running piece has run, ns.
fn piece_ns(now_ns: u64) -> u64 {
    now_ns.saturating_sub(PIECE_BEGAN.get())
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

/// As [`spawn`], said to be from there.
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

/// As [`heavy`], for short work that somebody waits for who cannot be put off: a login, a flush. It
/// goes before its group's other heavy work; and when another program keeps the core's CPU busy, so
/// that the heavy lane gets next to nothing, it runs at normal priority, in slices, charged like
/// all work. Panics outside of lanes.
#[track_caller]
pub fn heavy_urgent<F>(group: Group, f: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let at = Location::caller();
    with_shared(|_, shared| task::spawn_heavy(shared, group, true, at, f))
}

/// Moves the running task to another group, from its next piece on, which begins when this returns.
/// To be awaited by the task itself, not within a combinator that polls on its own.
pub fn switch_group(group: Group) -> impl Future<Output = ()> {
    Again {
        before: Some(move || assert!(task::switch(group), "only a task can change its group")),
        waited: false,
    }
}

/// Lets others run, if the scheduler thinks they should.
pub fn yield_now() -> impl Future<Output = ()> {
    Again { before: Some(|| ()), waited: false }
}

/// Whether the running piece of fast-lane work has used its 50 µs, and should [`yield_now`]. About
/// 25 ns.
#[must_use]
pub fn should_yield() -> bool {
    piece_ns(sys::monotonic_ns()) >= PIECE_NS
}

/// Returns to the scheduler if [`turn_is_over`].
pub async fn heavy_yield() {
    if turn_is_over() {
        yield_now().await;
    }
}

/// Does something, wakes its task and is ready the next time.
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
    fn the_least_loaded_core_is_this_one_unless_another_has_much_less_to_do() {
        let of = |own, ready: &[u32]| least_loaded(own, ready.iter().copied());
        assert_eq!([of(0, &[0, 0]), of(1, &[0, 0]), of(1, &[1, 2])], [0, 1, 1]);
        assert_eq!([of(1, &[0, 2]), of(1, &[3, 5, 2, 2]), of(3, &[9, 9, 9, 4])], [0, 2, 3]);
        assert_eq!([of(1, &[0, 7, 0]), of(2, &[0, 0, 7])], [2, 0], "not all to the first");
        assert_eq!(of(0, &[u32::MAX, u32::MAX]), 0);
    }
}
