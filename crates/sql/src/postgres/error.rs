//! Reasons for which a request or a connection ends.

use std::io;

use frontdoor::Full;

use crate::failure::Failure;

/// Reason for the end of a connection.
#[derive(Debug)]
pub(crate) enum End {
    /// The client closed the connection or sent Terminate.
    Gone,
    /// An error, to be sent to the client.
    Failed(Failure),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Gone
    }
}

/// Failure of a statement: reported to the client, or the end of the connection.
pub(crate) enum RequestError {
    Statement(Failure),
    Connection(End),
}

impl From<Full> for RequestError {
    fn from(full: Full) -> RequestError {
        RequestError::from(Failure::from(full))
    }
}

impl From<Failure> for RequestError {
    fn from(failure: Failure) -> RequestError {
        if failure.is_fatal {
            RequestError::Connection(End::Failed(failure))
        } else {
            RequestError::Statement(failure)
        }
    }
}

impl From<End> for RequestError {
    fn from(end: End) -> RequestError {
        RequestError::Connection(end)
    }
}

impl From<engine::Error> for RequestError {
    fn from(error: engine::Error) -> RequestError {
        RequestError::Statement(error.into())
    }
}
