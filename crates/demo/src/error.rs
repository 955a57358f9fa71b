//! Errors of the demo.

use std::fmt;

/// Reason why the demo, or one of its chapters, failed.
#[derive(Debug)]
pub(crate) enum DemoError {
    /// Ctrl-C.
    Interrupted,
    /// The server has ended, so that further chapters cannot run.
    ServerGone(String),
    /// This chapter failed. Others may succeed.
    Failed(String),
}

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DemoError::Interrupted => f.write_str("interrupted; everything is cleaned up"),
            DemoError::ServerGone(reason) | DemoError::Failed(reason) => f.write_str(reason),
        }
    }
}

impl From<load::LoadError> for DemoError {
    fn from(error: load::LoadError) -> DemoError {
        DemoError::Failed(error.to_string())
    }
}
