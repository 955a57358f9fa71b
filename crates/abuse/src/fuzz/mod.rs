//! Seeded sessions at both listeners: random statements out of a grammar, and frames that were mutated. The
//! server has little memory and is watched; a crash, a panic, a frozen listener or memory without bound ends
//! the run with the seed that replays the session.
//!
//! A session depends on its seed and on the server's answers only. Earlier sessions leave tables and rows, so
//! a replay of one seed alone starts from another state; the report therefore names the first seed of the
//! server's life as well.

mod cql;
mod mutate;
mod random;
mod session;
mod sql;

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::admin;
use crate::server::Server;
use crate::setup;

/// Memory that the server is configured with: little, so that what is not accounted shows soon.
const MEMORY: &str = "256MiB";
/// The most resident memory, bytes: as configured, and as much again for code, stacks, sockets and the rows
/// of the set-up.
const RESIDENT_MAX: u64 = 512 << 20;
/// A progress line after so many sessions.
const PROGRESS: u64 = 200;

/// Options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) server: PathBuf,
    pub(crate) time: Duration,
    /// The seed of the first session; the next ones count up from it.
    pub(crate) seed: u64,
    pub(crate) sessions: u64,
}

/// A seed that differs from run to run.
pub(crate) fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() * 1_000_000)
}

/// Runs sessions until the time is over; the first fault is the error.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let mut server = Server::start_with(&options.server, MEMORY)?;
    setup::make(&server.target)?;
    server.memory.take_peak();
    println!("sessions from seed {}", options.seed);
    let started = Instant::now();
    let mut sessions = 0;
    let mut actions = 0;
    while sessions < options.sessions && started.elapsed() < options.time {
        let seed = options.seed.wrapping_add(sessions);
        actions += session::run(&server.target, seed);
        sessions += 1;
        if let Some(fault) = fault(&mut server) {
            let (first, count) = (options.seed, sessions);
            return Err(format!(
                "after the session of seed {seed}: {fault}\n\
                 To replay it alone: cargo xtask fuzz --seed {seed} --sessions 1\n\
                 To replay all before it as well: cargo xtask fuzz --seed {first} --sessions {count}"
            ));
        }
        if sessions % PROGRESS == 0 {
            println!(
                "{sessions} sessions, {actions} actions, next seed {}",
                options.seed.wrapping_add(sessions)
            );
        }
    }
    println!("{sessions} sessions and {actions} actions without a fault");
    Ok(())
}

/// What is wrong with the server after a session.
fn fault(server: &mut Server) -> Option<String> {
    // A process that was killed by a signal needs a moment to be reaped; the administrator takes longer.
    let admin = admin::once(&server.target).err();
    if let Err(how) = server.check() {
        return Some(format!("the server died: {how}"));
    }
    if let Some(panic) = server.panics().pop() {
        return Some(format!("the server panicked: {panic}"));
    }
    if let Some(why) = admin {
        return Some(format!("the administrator: {why}"));
    }
    let peak = server.memory.take_peak();
    (peak > RESIDENT_MAX).then(|| format!("{} MiB resident, at most {}", peak >> 20, RESIDENT_MAX >> 20))
}
