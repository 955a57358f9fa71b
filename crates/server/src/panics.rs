//! A panic costs one statement: it becomes an error to the client that sent it. The panic itself is logged, with its place, by the hook
//! of the process.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use engine::Error;
use wire::{Failure, FailureKind};

use crate::request::Later;
use crate::session::Session;

/// The text of the answer.
const TEXT: &str = "The statement failed inside the server; the server's log has the place of the failure";

/// The same result, with a panic as an error.
pub(crate) fn caught(mut later: Later) -> Later {
    Box::pin(poll_fn(move |cx| {
        // After a panic nothing of the statement is used any more; guards have put back what it held.
        match catch_unwind(AssertUnwindSafe(|| later.as_mut().poll(cx))) {
            Ok(poll) => poll,
            Err(_) => Poll::Ready(Err(Error::Server(TEXT.to_owned()))),
        }
    }))
}

/// The output of a task's work, or the failure to answer with if it panics.
pub(crate) async fn catch_task<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let mut work = pin!(work);
    poll_fn(|cx| match catch(|| work.as_mut().poll(cx)) {
        Ok(poll) => poll.map(Ok),
        Err(failure) => Poll::Ready(Err(failure)),
    })
    .await
}

impl Session {
    /// Does the work of a request that was begun (`Session::begin`) and ends it, however the work ends.
    pub(crate) async fn guarded(self: Rc<Self>, stream: i16, work: impl Future<Output = ()>) {
        if let Err(failure) = catch_task(work).await {
            self.refuse(stream, &failure);
        }
        self.end();
    }
}

/// Runs a part of a request that is answered at once; a panic is the failure to answer with.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Failure::new(FailureKind::Server, TEXT))
}
