//! Ends that are not in order. A stop asks every core to close what it has, and would wait for ever for a core that never runs
//! again, or for what a background task left half done when it panicked. Nothing acknowledged is lost by ending the process then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use lanes::{Group, Lanes};
use server::logging::{Level, Logger};
use signal_hook::consts::SIGTERM;

/// The exit status after a stop that did not end: EX_SOFTWARE of sysexits.h.
const EXIT_SOFTWARE: i32 = 70;

/// Time for an orderly stop after a background task has panicked, and for a core to answer during any stop: the clients' 10 s, and
/// as long for files.
const STOP_DEADLINE: Duration = Duration::from_secs(20);

/// Time between two questions to the cores during a stop.
const PING_PAUSE: Duration = Duration::from_millis(500);

/// Time for the log's last line to be written.
const LAST_LINE: Duration = Duration::from_millis(200);

/// Begins an orderly stop, as SIGTERM does, and ends the process where that does not come to an end.
pub(crate) fn stop_by_itself() {
    static STOPPING: AtomicBool = AtomicBool::new(false);
    if STOPPING.swap(true, Ordering::SeqCst) {
        return;
    }
    let watchdog = std::thread::Builder::new().name("watchdog".into()).spawn(|| {
        std::thread::sleep(STOP_DEADLINE);
        std::process::exit(EXIT_SOFTWARE);
    });
    // Without a thread to watch over the stop, and where the signal cannot be raised, there is no order to keep.
    if watchdog.is_err() || signal_hook::low_level::raise(SIGTERM).is_err() {
        std::process::exit(EXIT_SOFTWARE);
    }
}

/// Watches over a stop until it is dropped: ends the process, with a message, if a core does not answer for [`STOP_DEADLINE`].
pub(crate) struct StopWatch {
    /// Disconnected when dropped.
    _running: Sender<()>,
}

impl StopWatch {
    /// Starts to watch. Without a thread the stop goes on unwatched.
    pub(crate) fn start(lanes: &Lanes, logger: &Logger) -> StopWatch {
        let (running, ended) = channel::<()>();
        let (lanes, logger) = (lanes.clone(), logger.clone());
        let watch = move || {
            loop {
                let silent = silent_cores(&lanes, STOP_DEADLINE);
                match ended.recv_timeout(if silent.is_empty() { PING_PAUSE } else { Duration::ZERO }) {
                    Err(RecvTimeoutError::Disconnected) => return,
                    _ if silent.is_empty() => {}
                    _ => break end_without(&logger, &silent),
                }
            }
        };
        // Nothing to be done without it: the operator can end the process as well.
        let _ = std::thread::Builder::new().name("stop-watch".into()).spawn(watch);
        StopWatch { _running: running }
    }
}

fn end_without(logger: &Logger, silent: &[usize]) {
    let cores = silent.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let text = "cores do not answer and cannot be stopped: the process ends without them";
    logger.log(Level::Error, text, &[("cores", &cores), ("waited_s", &STOP_DEADLINE.as_secs())]);
    std::thread::sleep(LAST_LINE);
    std::process::exit(EXIT_SOFTWARE);
}

/// Returns the cores whose fast lanes did nothing for `patience`, though asked.
fn silent_cores(lanes: &Lanes, patience: Duration) -> Vec<usize> {
    let (sender, answers) = channel();
    let mut silent: Vec<usize> = (0..lanes.cores()).collect();
    for core in 0..lanes.cores() {
        let sender = sender.clone();
        lanes.tell(core, Group::CONTROL, move || _ = sender.send(core));
    }
    // A lane that has ended drops its sender: it has nothing left to stop.
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
    fn core_that_never_runs_again_is_found() {
        let lanes = Lanes::start(Config { cores: vec![0; 3], pin: false, ..Config::detect() });
        let lanes = lanes.expect("lanes start");
        assert_eq!(silent_cores(&lanes, Duration::from_secs(20)), [0; 0]);
        let (release, released) = channel::<()>();
        lanes.tell(1, Group::CONTROL, move || _ = released.recv());
        // The others answer within any time; the asking thread waits for all of it.
        assert_eq!(silent_cores(&lanes, Duration::from_secs(2)), [1]);
        drop(release);
        lanes.shutdown();
        assert_eq!(silent_cores(&lanes, Duration::from_secs(20)), [0; 0], "ended lanes are not waited for");
    }
}
