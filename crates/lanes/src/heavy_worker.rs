//! Threads of the heavy lane: each runs tasks of the group that the fast lane grants it.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use crate::context::{WorkerContext, set_worker};
use crate::current::{in_group, poll_begins};
use crate::heavy::{Grant, NORMAL_WORKER};
use crate::lanes::Lanes;
use crate::memory::KeptMemory;
use crate::registry::slot_of;
use crate::shared::{CoreShared, Message};
use crate::sys::{self, ThreadClock};
use crate::{Flow, Group, task};

/// Runs a worker thread until the lane stops.
pub(crate) fn work(lanes: Lanes, shared: Arc<CoreShared>, index: usize) {
    let worker = &shared.heavy.workers[index];
    if !shared.cpus.is_empty() {
        // The worker has inherited the affinity of the fast lane already, so a failure changes
        // nothing.
        drop(sys::pin_to(&shared.cpus));
    }
    let class = if index == NORMAL_WORKER { Ok(()) } else { sys::become_idle_class() };
    worker.attach_thread(class.and_then(|()| ThreadClock::of_this_thread()).ok());
    let mut memory = KeptMemory::of_this_thread();
    while !shared.stop.load(SeqCst) {
        memory.return_if_asked();
        let grant = worker.grant();
        if worker.is_done(grant) {
            std::thread::park();
            continue;
        }
        set_worker(Some(WorkerContext {
            lanes: lanes.clone(),
            shared: shared.clone(),
            worker: index,
            grant,
        }));
        if run_slice(&shared, index, grant, &mut memory) {
            drop(shared.send(Message::CheckHeavy(Group(grant.group()))));
        }
    }
    set_worker(None);
}

/// Runs tasks of the granted group until the grant changes or none are left. Returns true in the
/// latter case.
fn run_slice(shared: &CoreShared, index: usize, grant: Grant, memory: &mut KeptMemory) -> bool {
    let worker = &shared.heavy.workers[index];
    worker.begin_slice(grant, sys::thread_cpu_ns());
    // Use the slot, not the group: the group may have been dropped since, and its counts must fall
    // all the same.
    let counters = &shared.registry.counters(slot_of(grant.group()))[shared.index];
    let mut drained = false;
    while worker.grant() == grant && !shared.stop.load(Relaxed) {
        let Some(runnable) = shared.heavy.pop(index, grant.group(), counters) else {
            drained = true;
            break;
        };
        let header = runnable.metadata();
        if header.urgent {
            counters.urgent_queued.fetch_sub(1, SeqCst);
        }
        let group = Group(header.group.load(Relaxed));
        let flow = header.flow;
        let urgent = header.urgent;
        // Read the CPU clock, a system call, only while another flow waits for its turn.
        let is_charged = !urgent && flow != Flow::NONE && shared.heavy.is_contended(grant.group());
        let began_cpu_ns = if is_charged { sys::thread_cpu_ns() } else { 0 };
        memory.return_if_asked();
        poll_begins(sys::monotonic_ns());
        in_group(group, flow, || task::run(runnable));
        if is_charged {
            let cpu_ns = sys::thread_cpu_ns().saturating_sub(began_cpu_ns);
            shared.heavy.charge(grant.group(), flow, cpu_ns);
        }
        counters.heavy_pending.fetch_sub(1, AcqRel);
        shared.heavy.was_polled();
    }
    worker.end_slice(sys::thread_cpu_ns(), counters);
    if drained {
        worker.mark_done(grant);
    }
    drained
}
