//! Output of the commands: JSON, other files, and the flag of Ctrl-C.

use std::sync::Arc;

use serde::Serialize;

use crate::LoadError;
use crate::run::StopFlag;

/// Writes a report as JSON to a file, or to standard output for `-`.
pub(crate) fn write_json(path: Option<&str>, value: &impl Serialize) -> Result<(), LoadError> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(value).map_err(|error| LoadError::System(error.to_string()))?;
    if path == "-" {
        println!("{text}");
        return Ok(());
    }
    write_file(path, &text)
}

/// Writes a text to a file.
pub(crate) fn write_file(path: &str, text: &str) -> Result<(), LoadError> {
    std::fs::write(path, text)
        .map_err(|error| LoadError::File { path: path.to_string(), reason: error.to_string() })
}

/// Returns a flag that SIGINT and SIGTERM set. A second signal ends the process at once.
pub(crate) fn stop_on_signals() -> Result<StopFlag, LoadError> {
    let stop = StopFlag::new();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let flag = stop.shared();
        let registered = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, flag));
        registered.map_err(|error| LoadError::System(error.to_string()))?;
    }
    Ok(stop)
}
