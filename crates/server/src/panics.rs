//! A panic costs one statement: it becomes an error to the client that sent it. The panic itself is logged, with its place, by the hook
//! of the process.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use engine::Error;
use wire::{Failure, FailureKind};

use crate::request::Later;

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

/// Runs a part of a request that is answered at once; a panic is the failure to answer with.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Failure::new(FailureKind::Server, TEXT))
}
