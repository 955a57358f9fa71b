//! Seeded sessions at all listeners: random statements from a grammar, and mutated frames. The
//! server has little memory and is watched. Faults are a crash, a panic, a frozen listener, and a
//! task poll or memory beyond its bound. Each is reported with the seed that replays the session.
//!
//! A session depends only on its seed and on the server's answers. Earlier sessions leave tables
//! and rows, so that a replay of one seed alone starts from another state. The report therefore
//! also names the first seed that this server ran.

mod check;
mod cql;
mod http;
mod mutate;
mod random;
mod session;
mod sql;

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::attack::Listener;
use crate::server::{AttackedServer, Conditions};
use crate::setup;

/// Configured memory of the server. It is small, so that unaccounted memory is found soon.
const MEMORY: &str = "256MiB";
/// Sessions between two progress lines.
const PROGRESS: u64 = 200;
/// Sessions between two full checks, which open connections. Death, panics and memory are checked
/// after each session.
const FULL_CHECK: u64 = 8;
/// Faults after which a run with `--go-on` ends. By then it finds one fault again and again.
const FAULTS_MAX: usize = 200;

/// Options of a run.
#[derive(Clone, Debug)]
pub(crate) struct FuzzOptions {
    pub(crate) server: PathBuf,
    pub(crate) time: Duration,
    /// Seed of the first session. The next ones count up from it.
    pub(crate) seed: u64,
    pub(crate) sessions: u64,
    /// Listener of all sessions. `None`: a random listener for each.
    pub(crate) listener: Option<Listener>,
    /// True to start another server after a fault, instead of ending.
    pub(crate) goes_on: bool,
}

/// Returns a seed that differs from run to run.
pub(crate) fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() * 1_000_000)
}

/// Work of one or more sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionCounts {
    pub(crate) actions: u64,
    /// Bytes sent after the login.
    pub(crate) bytes: u64,
}

impl SessionCounts {
    fn add(&mut self, other: SessionCounts) {
        self.actions += other.actions;
        self.bytes += other.bytes;
    }
}

/// Sessions and their work, by listener.
#[derive(Debug, Default)]
struct Tally([(u64, SessionCounts); 3]);

impl Tally {
    fn add(&mut self, listener: Listener, counts: SessionCounts) {
        let (sessions, sum) = &mut self.0[listener as usize];
        *sessions += 1;
        sum.add(counts);
    }

    fn text(&self) -> String {
        let part = |listener: Listener| {
            let (sessions, counts) = self.0[listener as usize];
            format!("{} {sessions} / {} / {}", listener.name(), counts.actions, counts.bytes)
        };
        let parts = [Listener::Cql, Listener::Sql, Listener::Http].map(part);
        format!("sessions / actions / bytes: {}", parts.join(", "))
    }
}

/// Runs sessions until the time is over. The first fault is the error. With `goes_on`, faults are
/// printed and their number is the error.
pub(crate) fn run(options: &FuzzOptions) -> Result<(), String> {
    println!("sessions from seed {}", options.seed);
    let started = Instant::now();
    let mut tally = Tally::default();
    let mut faults = Vec::new();
    let mut next = 0;
    let runs = |next: u64| next < options.sessions && started.elapsed() < options.time;
    while runs(next) && faults.len() < FAULTS_MAX {
        let mut server =
            AttackedServer::start(&options.server, &Conditions { memory: MEMORY, ..Conditions::default() })?;
        setup::make(&server.target)?;
        server.memory.take_peak();
        let (first, mut checked) = (next, next);
        while runs(next) {
            let seed = options.seed.wrapping_add(next);
            let (listener, counts) = session::run(&server.target, seed, options.listener);
            tally.add(listener, counts);
            next += 1;
            let full = next % FULL_CHECK == 0 || !runs(next);
            if let Some(fault) = check::fault(&mut server, full) {
                let mut fault = report(options, &fault, first..next, checked);
                let log = std::env::temp_dir().join(format!("fairlane-fuzz-{seed}.log"));
                if server.keep_log(&log).is_ok() {
                    fault += &format!("\nIts log: {}", log.display());
                }
                if !options.goes_on {
                    return Err(fault);
                }
                println!("FAULT {fault}");
                faults.push(fault);
                break;
            }
            if full {
                checked = next;
            }
            if next % PROGRESS == 0 {
                let seconds = started.elapsed().as_secs();
                println!("{seconds} s, next seed {}, {}", options.seed.wrapping_add(next), tally.text());
            }
        }
    }
    println!("{next} sessions, {} faults, {}", faults.len(), tally.text());
    if faults.is_empty() { Ok(()) } else { Err(format!("{} faults", faults.len())) }
}

/// Formats a fault with the commands that replay it: the last session, the sessions since the last
/// full check, and all sessions of this server.
fn report(options: &FuzzOptions, fault: &str, life: std::ops::Range<u64>, checked: u64) -> String {
    let listener =
        options.listener.map(|of| format!(" --listener {}", of.name().to_lowercase())).unwrap_or_default();
    let seed = |session: u64| options.seed.wrapping_add(session);
    let line = |from: u64| {
        format!("cargo xtask fuzz --seed {} --sessions {}{listener}", seed(from), life.end - from)
    };
    format!(
        "after the session of seed {}: {fault}\n\
         To replay it alone: {}\n\
         To replay the sessions since the last full check: {}\n\
         To replay all of this server: {}",
        seed(life.end - 1),
        line(life.end - 1),
        line(checked),
        line(life.start)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_names_the_commands_that_replay_it() {
        let options = FuzzOptions {
            server: PathBuf::new(),
            time: Duration::ZERO,
            seed: 100,
            sessions: 50,
            listener: Some(Listener::Sql),
            goes_on: false,
        };
        let text = report(&options, "a panic", 3..20, 16);
        assert!(text.starts_with("after the session of seed 119: a panic\n"), "{text}");
        for replay in ["--seed 119 --sessions 1", "--seed 116 --sessions 4", "--seed 103 --sessions 17"] {
            assert!(text.contains(&format!("{replay} --listener sql")), "{text}");
        }
    }

    #[test]
    fn tally_counts_by_listener() {
        let mut tally = Tally::default();
        tally.add(Listener::Http, SessionCounts { actions: 2, bytes: 30 });
        tally.add(Listener::Http, SessionCounts { actions: 1, bytes: 5 });
        assert_eq!(tally.text(), "sessions / actions / bytes: CQL 0 / 0 / 0, SQL 0 / 0 / 0, HTTP 2 / 3 / 35");
    }
}
