//! Requests of tasks to the disk service of their core.

use std::io;
use std::task::Poll;

use crate::call::try_call;
use crate::context::{current_core, fast, on_heavy_lane};
use crate::current::{current_flow, current_group};
use crate::disk::io::op::Op;
use crate::disk::io::service::WaitingRequest;
use crate::sync::cross;
use crate::sys;

/// Request that failed, with its operation if that came back.
pub(crate) struct Failed {
    pub(crate) error: io::Error,
    pub(crate) op: Option<Op>,
}

impl From<Failed> for io::Error {
    fn from(failed: Failed) -> io::Error {
        failed.error
    }
}

/// Sends a request of this task's group through the core's queue. Returns the completed request
/// with its buffer.
pub(crate) async fn submit(op: Op) -> Result<Op, Failed> {
    if on_heavy_lane() {
        let submitted = try_call(current_core(), move || submit_here(op)).await;
        return submitted.unwrap_or_else(|ended| Err(Failed { error: io::Error::other(ended), op: None }));
    }
    submit_here(op).await
}

async fn submit_here(op: Op) -> Result<Op, Failed> {
    let (ticket, answer) = cross::oneshot();
    let (group, flow) = (current_group(), current_flow());
    let mut unsent = Some(WaitingRequest { op, ticket, group, flow, submitted_ns: sys::monotonic_ns() });
    std::future::poll_fn(move |cx| {
        let Some(waiting) = unsent.take() else { return Poll::Ready(()) };
        unsent = fast(|core| core.queue_request(waiting, cx));
        if unsent.is_none() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    match answer.await {
        Ok((Ok(()), op)) => Ok(op),
        Ok((Err(error), op)) => Err(Failed { error, op: Some(op) }),
        Err(_) => {
            let error = io::Error::other("the lane ended before the request was done");
            Err(Failed { error, op: None })
        }
    }
}
