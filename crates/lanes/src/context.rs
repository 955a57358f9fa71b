//! Lane and core of the running code. Every thread of the lanes keeps them in thread-local cells.
#![expect(unsafe_code, reason = "a pointer to the lane's core, valid while its thread runs the lane")]

use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use crate::current::current_group;
use crate::deferred::DeferredWork;
use crate::executor::Core;
use crate::heavy::Grant;
use crate::lanes::Lanes;
use crate::registry::GroupSlot;
use crate::shared::CoreShared;

thread_local! {
    /// Core whose fast lane this thread is; null elsewhere.
    static CORE: Cell<*const Core> = const { Cell::new(ptr::null()) };
    /// Core that this thread serves as a heavy worker, and its context there.
    static WORKER: RefCell<Option<WorkerContext>> = const { RefCell::new(None) };
}

/// Worker and grant that the running code belongs to.
#[derive(Clone)]
pub(crate) struct WorkerContext {
    pub(crate) lanes: Lanes,
    pub(crate) shared: Arc<CoreShared>,
    pub(crate) worker: usize,
    pub(crate) grant: Grant,
}

impl WorkerContext {
    pub(crate) fn slice_is_over(&self) -> bool {
        !self.shared.heavy.workers[self.worker].has_grant(self.grant)
    }
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
pub(crate) fn set_worker(context: Option<WorkerContext>) {
    WORKER.set(context);
}

/// Calls `f` with the context of this thread if it is a heavy worker.
pub(crate) fn with_worker<T>(f: impl FnOnce(&WorkerContext) -> T) -> Option<T> {
    WORKER.with_borrow(|context| context.as_ref().map(f))
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
    // Clone the context, so that `f` may call this function again.
    let context = WORKER.with_borrow(Clone::clone).expect("to be called on a lane");
    once(&context.lanes, &context.shared).expect("called once")
}

/// Returns the lanes that this thread belongs to. Panics outside of lanes.
#[must_use]
pub fn handle() -> Lanes {
    with_shared(|lanes, _| lanes.clone())
}

/// Returns the shares of the running task's group. Panics outside of lanes.
#[must_use]
pub fn current_shares() -> u32 {
    with_shared(|_, shared| shared.registry.get(current_group()).map_or(1, GroupSlot::shares))
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
    let before = ready.clone().enumerate().take(own);
    let after = ready.enumerate().skip(own);
    let least = after.chain(before).min_by_key(|&(_, ready)| ready);
    least.filter(|&(_, ready)| ready.saturating_add(1) < here).map_or(own, |(core, _)| core)
}

/// Returns true if this thread works on a heavy lane.
#[must_use]
pub fn on_heavy_lane() -> bool {
    WORKER.with_borrow(Option::is_some)
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

/// Defers `work` until this core's running group pauses: when it has nothing else to run here, or
/// another group gets the core, or after 100 µs. Only for tasks of a fast lane; panics elsewhere.
pub fn defer(work: Rc<dyn DeferredWork>) {
    fast(|core| core.deferred.push(work));
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
