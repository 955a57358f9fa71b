//! Stops that cannot complete. A stop asks every core to close its files. It would wait forever for
//! a core that never runs again, or for work that a panic of a background task left half done. The
//! process then ends without the stop. No acknowledged write is lost by that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use lanes::{Group, Lanes};
use server::logging::{FieldValue, Level, Logger};
use signal_hook::consts::SIGTERM;

/// Time that running statements may take to finish when the server stops.
pub(crate) const DRAIN: Duration = Duration::from_secs(10);

/// Exit status after a stop that did not complete: EX_SOFTWARE of sysexits.h.
const EXIT_SOFTWARE: i32 = 70;

/// Time for a stop after a background task has panicked, and for a core to answer during any stop:
/// [`DRAIN`], and as long for files.
const STOP_DEADLINE: Duration = DRAIN.saturating_mul(2);

/// Interval between two messages to a core during a stop.
const PING_INTERVAL: Duration = Duration::from_millis(500);

/// Time to write the last line of the log.
const LOG_FLUSH: Duration = Duration::from_millis(200);

/// Begins a stop as SIGTERM does, and ends the process if the stop takes longer than
/// [`STOP_DEADLINE`].
pub(crate) fn stop_after_panic() {
    static STOPPING: AtomicBool = AtomicBool::new(false);
    if STOPPING.swap(true, Ordering::SeqCst) {
        return;
    }
    let watchdog = std::thread::Builder::new().name("watchdog".into()).spawn(|| {
        std::thread::sleep(STOP_DEADLINE);
        std::process::exit(EXIT_SOFTWARE);
    });
    // Without the thread or the signal, the stop could not begin or would not end.
    if watchdog.is_err() || signal_hook::low_level::raise(SIGTERM).is_err() {
        std::process::exit(EXIT_SOFTWARE);
    }
}

/// Watches a stop until it is dropped. Ends the process with a message if a core does not answer
/// for [`STOP_DEADLINE`].
pub(crate) struct StopWatch {
    /// The thread ends when this is dropped.
    _running: Sender<()>,
}

impl StopWatch {
    /// Starts the thread. If that fails, the stop is not watched.
    pub(crate) fn start(lanes: &Lanes, logger: &Logger) -> StopWatch {
        let (running, ended) = channel::<()>();
        let (lanes, logger) = (lanes.clone(), logger.clone());
        let watch = move || {
            loop {
                let silent = silent_cores(&lanes, STOP_DEADLINE);
                match ended.recv_timeout(if silent.is_empty() { PING_INTERVAL } else { Duration::ZERO }) {
                    Err(RecvTimeoutError::Disconnected) => return,
                    _ if silent.is_empty() => {}
                    _ => break end_without(&logger, &silent),
                }
            }
        };
        // Without the thread the operator has to end a stop that hangs.
        let _ = std::thread::Builder::new().name("stop-watch".into()).spawn(watch);
        StopWatch { _running: running }
    }
}

/// Ends the process without the stop.
fn end_without(logger: &Logger, silent: &[usize]) {
    let cores = silent.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let text = "cores do not answer and cannot be stopped: the process ends without them";
    logger.log(
        Level::Error,
        text,
        &[("cores", FieldValue::text(&cores)), ("waited_s", STOP_DEADLINE.as_secs().into())],
    );
    std::thread::sleep(LOG_FLUSH);
    std::process::exit(EXIT_SOFTWARE);
}

/// Returns the cores whose fast lanes did not run a message within `patience`.
fn silent_cores(lanes: &Lanes, patience: Duration) -> Vec<usize> {
    let (sender, answers) = channel();
    let mut silent: Vec<usize> = (0..lanes.cores()).collect();
    for core in 0..lanes.cores() {
        let sender = sender.clone();
        lanes.run_on_core(core, Group::CONTROL, move || _ = sender.send(core));
    }
    // A lane that has ended drops its sender. It has no files left to close.
    drop(sender);
    let end = Instant::now() + patience;
    while !silent.is_empty() {
        match answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(core) => silent.retain(|other| *other != core),
            Err(RecvTimeoutError::Disconnected) => return Vec::new(),
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    silent
}

#[cfg(test)]
mod tests {
    use lanes::Config;

    use super::*;

    #[test]
    fn blocked_core_is_found() {
        let lanes = Lanes::start(Config { cores: vec![0; 3], pin: false, ..Config::detect() });
        let lanes = lanes.expect("lanes start");
        assert_eq!(silent_cores(&lanes, Duration::from_secs(20)), [0; 0]);
        let (release, released) = channel::<()>();
        lanes.run_on_core(1, Group::CONTROL, move || _ = released.recv());
        // The others answer at once. The call waits for all of its time.
        assert_eq!(silent_cores(&lanes, Duration::from_secs(2)), [1]);
        drop(release);
        lanes.shutdown();
        assert_eq!(silent_cores(&lanes, Duration::from_secs(20)), [0; 0], "ended lanes are not waited for");
    }
}
