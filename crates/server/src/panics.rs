//! Containment of panics: a panic fails one statement, whose client receives an error. The panic
//! hook of the process logs the panic with its location.

use engine::Error;
use lanes::Panicked;
use wire::{Failure, FailureKind};

/// Text of the answer.
const TEXT: &str = "The statement failed inside the server; the server's log has the place of the failure";

/// Returns the error of a statement whose engine call panicked.
pub(crate) fn error(_: Panicked) -> Error {
    Error::Server(TEXT.to_owned())
}

/// Returns the answer to a request whose work panicked.
pub(crate) fn failure(_: Panicked) -> Failure {
    Failure::new(FailureKind::Server, TEXT)
}
