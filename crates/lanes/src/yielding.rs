//! Yield points of tasks: when a task should return to the scheduler, and how it does.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::context::{on_fast_lane, with_worker};
use crate::current::poll_ns;
use crate::units::UNITS_PER_POLL;
use crate::{Group, sys, task, units};

/// Time after which a fast-lane task should yield, ns.
const POLL_NS_MAX: u64 = sched::LATENCY_SLICE_NS;
/// Time after which a heavy task yields in any case, ns: it may have been cancelled, or another
/// task of its group is next.
const HEAVY_POLL_NS_MAX: u64 = 1_000_000;
/// Interval at which heavy work offers its CPU to other threads, ns.
const OFFER_CPU_NS: u64 = 100_000;

/// Units between two readings of the clock, each of which takes about 25 ns.
const UNITS_PER_CLOCK: u32 = 16;

/// Bytes of text or of values that count as one unit.
const BYTES_PER_UNIT: usize = 64;

/// Bytes that count as one unit when they are only copied or checksummed.
const COPIED_PER_UNIT: usize = 1 << 10;

thread_local! {
    /// Time at which this thread, a heavy worker, last offered its CPU, ns.
    static YIELDED: Cell<u64> = const { Cell::new(0) };
}

/// Returns true if the running task should yield. On a heavy lane, its group's slice is over or it
/// has run for 1 ms. On a fast lane, it has used its 50 µs. For code that is polled; code that can
/// await calls [`heavy_yield`]. Takes about 25 ns. On a heavy lane it also makes a system call at
/// most ten times a millisecond, to offer the CPU to a fast lane that is ready.
#[must_use]
pub fn slice_is_over() -> bool {
    let on_heavy_lane = with_worker(|worker| {
        let now_ns = sys::monotonic_ns();
        offer_cpu(now_ns);
        worker.slice_is_over() || poll_ns(now_ns) >= HEAVY_POLL_NS_MAX
    });
    on_heavy_lane.unwrap_or_else(should_yield)
}

/// Offers the CPU of this heavy worker to other threads, every [`OFFER_CPU_NS`]. The kernel
/// takes the CPU from the idle class for a fast lane that wakes. But it also gives the idle class
/// its entitlement: 3 parts of 1,027 beside one thread, and a whole tick to a thread that has just
/// woken: up to 4 ms in which a fast lane that is ready does not run.
fn offer_cpu(now_ns: u64) {
    if now_ns.saturating_sub(YIELDED.get()) >= OFFER_CPU_NS {
        YIELDED.set(now_ns);
        sys::yield_cpu();
    }
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
    should_yield_at(sys::monotonic_ns())
}

/// Does the same as [`should_yield`] with a reading of the monotonic clock that the caller has
/// anyway, ns.
#[must_use]
pub fn should_yield_at(now_ns: u64) -> bool {
    poll_ns(now_ns) >= POLL_NS_MAX
}

/// Returns to the scheduler if [`slice_is_over`].
pub async fn heavy_yield() {
    if slice_is_over() {
        yield_now().await;
    }
}

/// Counts `units` of work for the running task poll. Returns true when the task should
/// [`crate::yield_now`]: on a fast lane after [`UNITS_PER_POLL`] or 50 µs, on a heavy lane when
/// [`slice_is_over`].
pub fn spend(units: u32) -> bool {
    let (before, spent) = units::add(units);
    if spent >= UNITS_PER_POLL && on_fast_lane() {
        return true;
    }
    spent / UNITS_PER_CLOCK != before / UNITS_PER_CLOCK && slice_is_over()
}

/// Counts `units` of work that the caller cannot divide, for the running task poll. The caller's
/// own caller yields at its next [`spend`]. Takes about 1 ns, and may be called from any thread.
#[inline]
pub fn count(units: u32) {
    units::add_undivided(units);
}

/// Counts bytes that are copied or checksummed, as [`count`] does: one unit for each 1 KiB, at
/// about 10 GB/s.
#[inline]
pub fn count_copied(bytes: usize) {
    if bytes >= COPIED_PER_UNIT {
        count(units_of_copy(bytes));
    }
}

/// Returns the units of copying bytes or adding them to a checksum, for [`spend`].
pub fn units_of_copy(bytes: usize) -> u32 {
    u32::try_from(bytes / COPIED_PER_UNIT).unwrap_or(u32::MAX)
}

/// Counts the work of processing `bytes` bytes, as [`spend`] does: one unit for each 64 of them.
pub fn spend_bytes(bytes: usize) -> bool {
    spend(u32::try_from(bytes.div_ceil(BYTES_PER_UNIT)).unwrap_or(u32::MAX))
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
