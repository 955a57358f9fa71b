//! Output of commands.

use std::io::Write;
use std::process::ExitCode;

/// Prints a text to standard output. A closed pipe is not a failure of the command.
pub(crate) fn print(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}
