//! Wake-up of tasks: puts a task that woke into the queue of its lane, from any thread.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use crate::Group;
use crate::context::with_own_core;
use crate::registry::slot_of;
use crate::shared::{CoreShared, Message};
use crate::task::Runnable;

/// Queues a fast-lane task that woke, from any thread.
pub(crate) fn schedule_fast(shared: &Arc<CoreShared>, runnable: Runnable) {
    let mut runnable = Some(runnable);
    with_own_core(shared, |core| {
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

/// Queues a heavy task that woke, from any thread.
pub(crate) fn schedule_heavy(shared: &Arc<CoreShared>, runnable: Runnable) {
    let header = runnable.metadata();
    let wanted = Group(header.group.load(Relaxed));
    let (group, before) = match count_ready(shared, wanted) {
        Some(before) => (wanted, before),
        None => {
            let before = count_ready(shared, Group::DEFAULT);
            (Group::DEFAULT, before.expect("the default group is never dropped"))
        }
    };
    header.queued_as.store(group.0, Relaxed);
    if header.urgent {
        // Increment before enqueueing. A zero count then proves that the queue is empty.
        shared.registry.counters(slot_of(group.0))[shared.index].urgent_queued.fetch_add(1, SeqCst);
    }
    shared.heavy.push(runnable);
    if before == 0 {
        notify_fast_lane(shared, group);
    } // else the fast lane knows of this group, or a worker that finds it empty reports it
}

/// Counts a ready task of a group. Returns the count before, or `None` if the group was dropped.
///
/// Another thread may drop the group at any moment. It invalidates the group's id and then has each
/// core check the count. This function increments the count and then checks the id. Both are
/// sequentially consistent. So either the core sees the task and keeps the group for it, or this
/// function sees that the group was dropped.
fn count_ready(shared: &Arc<CoreShared>, group: Group) -> Option<u32> {
    let pending = &shared.registry.get(group)?.counters[shared.index].heavy_pending;
    let before = pending.fetch_add(1, SeqCst);
    if shared.registry.get(group).is_some() {
        return Some(before);
    }
    pending.fetch_sub(1, SeqCst);
    notify_fast_lane(shared, group); // a core that saw the count meanwhile may release the group now
    None
}

/// Has the fast lane check whether a group has heavy work.
fn notify_fast_lane(shared: &Arc<CoreShared>, group: Group) {
    let mut is_own = false;
    with_own_core(shared, |core| {
        core.check_heavy(group);
        is_own = true;
    });
    if !is_own {
        drop(shared.send(Message::CheckHeavy(group)));
    }
}
