//! Calls from one core to another. A call is a message with a closure, and the caller's group and
//! flow. The answer comes back through a lock-free cell, whose waker puts the caller's task into
//! the inbox of its own lane.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use crate::Flow;
use crate::context::{on_heavy_lane, with_shared};
use crate::current::{current_flow, current_group};
use crate::permits::Taken;
use crate::shared::{CoreShared, Message};
use crate::spawn::spawn;
use crate::sync::cross;

/// The called lane has ended, or is about to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lane has ended")
    }
}

impl std::error::Error for Ended {}

/// Permit, given back when dropped.
struct Permit {
    shared: Arc<CoreShared>,
    to: usize,
    taken: Taken,
}

impl Permit {
    async fn take(shared: &Arc<CoreShared>, to: usize, flow: Flow) -> Permit {
        let taken = std::future::poll_fn(|cx| shared.permits[to].poll_take(flow, cx)).await;
        Permit { shared: shared.clone(), to, taken }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shared.permits[self.to].give_back(self.taken);
    }
}

/// Runs `f` on the fast lane of core `core`, in the caller's group, and returns its result. From a
/// fast lane to itself it runs in place. If the caller is dropped, the called future still runs to
/// its end. At most [`crate::CALLS_MAX`] calls from one core to another are in flight; beyond that
/// the caller waits. Panics if the called side panicked. While the lanes end there may be no
/// answer; the caller is then dropped, as all tasks are.
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
        (shared.clone(), target.clone(), Arc::ptr_eq(shared, target) && !on_heavy_lane())
    });
    if here {
        return Ok(f().await);
    }
    let (group, flow) = (current_group(), current_flow());
    let permit = Permit::take(&shared, core, flow).await;
    let (sender, receiver) = cross::oneshot();
    let start = move || {
        let run = async move {
            let answer = f().await;
            drop(permit);
            sender.send(answer);
        };
        spawn(current_group(), run).detach();
    };
    // If that lane has ended, the message is dropped, and the sender with it.
    drop(target.send(Message::Start(group, flow, Box::new(start))));
    match receiver.await {
        Ok(answer) => Ok(answer),
        Err(_) if shared.stop.load(SeqCst) || target.stop.load(SeqCst) => Err(Ended),
        Err(_) => panic!("the call to core {core} ended without an answer: it panicked there"),
    }
}
