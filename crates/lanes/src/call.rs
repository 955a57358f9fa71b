//! Calls from one core to another. A call is a message with a closure and the caller's group. The
//! answer comes back through a lock-free cell, whose waker puts the caller's task into the inbox of
//! its own lane.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::task::{Poll, Waker};

use crate::context::{current_group, in_group, with_shared};
use crate::queue::Inbox;
use crate::shared::{CoreShared, Message};
use crate::sync::cross;

/// Largest number of calls in flight from one core to another. Beyond it the caller waits.
pub const CALLS_MAX: u32 = 16 * 1024;

/// The called lane has ended, or is about to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lane has ended")
    }
}

impl std::error::Error for Ended {}

/// Bounded number of permits, taken and given back from any lane without a lock.
pub(crate) struct Permits {
    taken: AtomicU32,
    /// Tasks that found no permit. All are woken when one comes back, since a waiter may have been
    /// dropped since.
    waiting: Inbox<Waker>,
}

/// Permit, given back when dropped.
struct Permit {
    shared: Arc<CoreShared>,
    to: usize,
}

impl Permits {
    pub(crate) fn new() -> Permits {
        Permits { taken: AtomicU32::new(0), waiting: Inbox::new() }
    }

    fn try_take(&self) -> bool {
        self.taken.fetch_update(SeqCst, SeqCst, |taken| (taken < CALLS_MAX).then_some(taken + 1)).is_ok()
    }
}

impl Permit {
    async fn take(shared: &Arc<CoreShared>, to: usize) -> Permit {
        let permits = &shared.permits[to];
        std::future::poll_fn(|cx| {
            if permits.try_take() {
                return Poll::Ready(());
            }
            // The inbox is never closed, so this cannot fail. Check again after it: a permit may
            // have come back in between.
            let _ = permits.waiting.push(cx.waker().clone());
            if permits.try_take() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        Permit { shared: shared.clone(), to }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let permits = &self.shared.permits[self.to];
        permits.taken.fetch_sub(1, SeqCst);
        if !permits.waiting.is_empty() {
            permits.waiting.take().for_each(Waker::wake);
        }
    }
}

/// Runs `f` on the fast lane of core `core`, in the caller's group, and returns its result. From a
/// fast lane to itself it runs in place. If the caller is dropped, the called future still runs to
/// its end. At most [`CALLS_MAX`] calls from one core to another are in flight; beyond that the
/// caller waits. Panics if the called side panicked. While the lanes end there may be no answer;
/// the caller is then dropped, as all tasks are.
pub async fn call<T, Fut, F>(core: usize, f: F) -> T
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
    T: Send + 'static,
{
    match try_call(core, f).await {
        Ok(answer) => answer,
        Err(Ended) if with_shared(|lanes, _| lanes.are_ending()) => std::future::pending().await,
        Err(Ended) => panic!("core {core} has ended although the lanes run"),
    }
}

/// Does the same as [`call`], for callers that handle a missing answer.
///
/// # Errors
/// The lane has ended, or is about to. The closure may have run or not.
pub async fn try_call<T, Fut, F>(core: usize, f: F) -> Result<T, Ended>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let (shared, target, here) = with_shared(|lanes, shared| {
        let target = lanes.core(core);
        (shared.clone(), target.clone(), Arc::ptr_eq(shared, target) && !crate::on_heavy_lane())
    });
    if here {
        return Ok(f().await);
    }
    let group = current_group();
    let permit = Permit::take(&shared, core).await;
    let (sender, receiver) = cross::oneshot();
    let start = move || {
        let run = async move {
            let answer = f().await;
            drop(permit);
            sender.send(answer);
        };
        crate::spawn(current_group(), run).detach();
    };
    // If that lane has ended, the message is dropped, and the sender with it.
    drop(target.send(Message::Start(group, Box::new(start))));
    match receiver.await {
        Ok(answer) => Ok(answer),
        Err(_) if shared.stop.load(SeqCst) || target.stop.load(SeqCst) => Err(Ended),
        Err(_) => panic!("the call to core {core} ended without an answer: it panicked there"),
    }
}

/// Runs the job of a message, in its group.
pub(crate) fn start(group: crate::Group, job: Box<dyn FnOnce() + Send>) {
    in_group(group, job);
}
