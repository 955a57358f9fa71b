//! A panic costs one statement: it becomes an error to the client that sent it. The panic itself is logged, with its place, by the hook
//! of the process.

use std::rc::Rc;

use engine::Error;
use lanes::{Panicked, catch_panic};
use wire::{Failure, FailureKind};

use crate::session::Session;

/// The text of the answer.
const TEXT: &str = "The statement failed inside the server; the server's log has the place of the failure";

/// The error of a statement whose engine call panicked.
pub(crate) fn error(_: Panicked) -> Error {
    Error::Server(TEXT.to_owned())
}

/// The answer to a request whose work panicked.
pub(crate) fn failure(_: Panicked) -> Failure {
    Failure::new(FailureKind::Server, TEXT)
}

impl Session {
    /// Does the work of a request that was begun (`Session::begin`) and ends it, however the work ends.
    pub(crate) async fn guarded(self: Rc<Self>, stream: i16, work: impl Future<Output = ()>) {
        if let Err(panicked) = catch_panic(work).await {
            self.refuse(stream, &failure(panicked));
        }
        self.end();
    }
}
