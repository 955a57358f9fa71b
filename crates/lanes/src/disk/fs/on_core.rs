//! Disk service as a part of its core.

use std::task::{Context, Waker};

use crate::disk::io::op::Finished;
use crate::disk::io::service::{RequestAnswer, WaitingRequest};
use crate::executor::Core;
use crate::shared::Message;

impl Core {
    /// Reaps completions and sends requests. Returns true if that woke a task.
    pub(crate) fn run_disk(&self, cx: Option<&mut Context<'_>>) -> bool {
        let ran = self.disk.borrow_mut().run(cx);
        if let Some(bucket) = ran.idle {
            // This core has just checked its queue.
            let others = bucket.take_waiting().filter(|&core| core != self.shared.index);
            others.for_each(|core| drop(self.lanes.core(core).send(Message::DiskIdle)));
        }
        ran.refusal.into_iter().for_each(|error| self.lanes.ring_refused(self.shared.index, &error));
        let any = !ran.answers.is_empty() || !ran.wakers.is_empty();
        ran.answers.into_iter().for_each(RequestAnswer::give);
        ran.wakers.into_iter().for_each(Waker::wake);
        any
    }

    /// Queues a request. Returns it if its group's queue is full. The task is then woken when that
    /// may have changed.
    pub(crate) fn queue_request(&self, waiting: WaitingRequest, cx: &Context<'_>) -> Option<WaitingRequest> {
        let refused = self.disk.borrow_mut().queue_request(waiting, cx);
        self.wake();
        refused
    }

    pub(crate) fn disk_finished(&self, finished: Finished) {
        let cpu_ns = finished.cpu_ns;
        let (group, answer) = self.disk.borrow_mut().finished(finished);
        self.charge_elsewhere(group, cpu_ns);
        answer.give();
    }
}
