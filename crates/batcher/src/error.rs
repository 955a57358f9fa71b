//! Failures of commands.

use std::fmt;
use std::sync::Arc;

/// Reason why a command was not acknowledged. After the first one the batcher sends nothing more:
/// start a new one from [`crate::Handle::acknowledged_up_to`].
#[derive(Debug)]
pub enum Error<E> {
    /// A write of the command may have been applied, or may still be applied. The operation that
    /// failed is the reason.
    Unknown(Arc<E>),
    /// Nothing of the command was written.
    NotRun(Arc<E>),
    /// The batcher's future was dropped while the command waited or ran. Its writes may have been
    /// applied.
    Dropped,
}

impl<E> Clone for Error<E> {
    fn clone(&self) -> Error<E> {
        match self {
            Error::Unknown(reason) => Error::Unknown(reason.clone()),
            Error::NotRun(reason) => Error::NotRun(reason.clone()),
            Error::Dropped => Error::Dropped,
        }
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unknown(reason) => write!(f, "the command may have been applied in part: {reason}"),
            Error::NotRun(reason) => {
                write!(f, "the command was not run, because of an earlier failure: {reason}")
            }
            Error::Dropped => f.write_str("the batcher stopped before the command was acknowledged"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Error<E> {}
