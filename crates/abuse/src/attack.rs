//! Description of an attack, and its execution: bounds in time and count, and the answers received.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::answers::{Answers, ServerAnswer};
use crate::target::{AttackTarget, Role};

/// Line by which an attack's process reports that its traffic has begun, or that everything it
/// holds is in place.
pub(crate) const READY: &str = "ready";

/// Interval at which a holding attack checks whether to end.
const HOLD_POLL: Duration = Duration::from_millis(20);

/// A listener of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Listener {
    Cql,
    Sql,
    Http,
    /// Several listeners at once.
    #[value(skip)]
    All,
}

impl Listener {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Listener::Cql => "CQL",
            Listener::Sql => "SQL",
            Listener::Http => "HTTP",
            Listener::All => "all",
        }
    }
}

/// One entry of the table of attacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) listener: Listener,
    pub(crate) needs: Role,
    /// The traffic, for the table of results.
    pub(crate) sends: &'static str,
    /// Accepted labels: the answers of a hardened server. Any other label fails the attack.
    pub(crate) expected: &'static [&'static str],
    /// Rounds of the short form. Each attack defines its round. 0: only the long form has it.
    pub(crate) rounds: u64,
    /// True if the attack holds sockets, frames or answers instead of sending continuously.
    pub(crate) holds: bool,
    pub(crate) run: fn(&AttackRun) -> Result<(), ServerAnswer>,
    /// Most files that the server may open. Such an attack gets a server of its own. `None`: the
    /// limit of this process.
    pub(crate) files_max: Option<u32>,
    pub(crate) after: After,
}

/// Further checks of the server after an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Nothing,
    /// The attack leaves much in the schema. The next attack gets another server.
    Replaced,
    /// Writes and flushes succeed again. The next attack gets another server.
    Flushes,
    /// Without clients the server uses no CPU.
    Rests,
    /// The same, and it stops in time.
    Stops,
    /// The server stops in time while the attack goes on.
    StopsBeside,
}

impl After {
    /// Returns true if the attack ends by stopping the server. Then there is nothing to measure
    /// beside it.
    pub(crate) fn is_stop(self) -> bool {
        matches!(self, After::Stops | After::StopsBeside)
    }
}

impl Attack {
    pub(crate) const fn then(self, after: After) -> Attack {
        Attack { after, ..self }
    }

    pub(crate) const fn with_files(self, files: u32) -> Attack {
        Attack { files_max: Some(files), ..self }
    }
}

/// An attack in progress.
#[derive(Debug)]
pub(crate) struct AttackRun {
    pub(crate) target: AttackTarget,
    pub(crate) role: Role,
    holds: bool,
    deadline: Instant,
    rounds_max: u64,
    rounds: AtomicU64,
    reported: AtomicBool,
    released: AtomicBool,
    answers: Mutex<Answers>,
}

impl AttackRun {
    /// Returns an attack that ends after `time` or `rounds_max` rounds, whichever comes first.
    pub(crate) fn new(attack: &Attack, target: AttackTarget, time: Duration, rounds_max: u64) -> AttackRun {
        AttackRun {
            target,
            role: attack.needs,
            holds: attack.holds,
            deadline: Instant::now() + time,
            rounds_max,
            rounds: AtomicU64::new(0),
            reported: AtomicBool::new(false),
            released: AtomicBool::new(false),
            answers: Mutex::new(Answers::default()),
        }
    }

    /// Returns a part of another attack. That attack reports readiness.
    pub(crate) fn quiet(attack: &Attack, target: AttackTarget, time: Duration, rounds_max: u64) -> AttackRun {
        AttackRun { reported: AtomicBool::new(true), ..AttackRun::new(attack, target, time, rounds_max) }
    }

    /// Starts a round and returns true, unless time or rounds are used up. Threads share the
    /// rounds.
    pub(crate) fn round(&self) -> bool {
        if !self.holds {
            self.report_ready();
        }
        self.rounds.fetch_add(1, Ordering::Relaxed) < self.rounds_max && self.has_time()
    }

    pub(crate) fn has_time(&self) -> bool {
        Instant::now() < self.deadline && !self.released.load(Ordering::Relaxed)
    }

    pub(crate) fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Reports that everything is in place. Then waits until the attack is released or its time is
    /// over, and calls `each` every 20 ms meanwhile.
    pub(crate) fn hold(&self, mut each: impl FnMut()) {
        self.report_ready();
        while self.has_time() {
            each();
            std::thread::sleep(HOLD_POLL);
        }
    }

    /// Ends a holding attack.
    pub(crate) fn release(&self) {
        if self.holds {
            self.released.store(true, Ordering::Relaxed);
        }
    }

    fn report_ready(&self) {
        if !self.reported.swap(true, Ordering::Relaxed) {
            let mut out = std::io::stdout().lock();
            // Without a parent, the time limit ends the attack.
            let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
        }
    }

    /// Counts an answer.
    pub(crate) fn record(&self, answer: ServerAnswer) {
        self.answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).add(answer);
    }

    /// Counts the outcome of an exchange. Returns true if the connection can still be used.
    pub(crate) fn count(&self, outcome: Result<ServerAnswer, ServerAnswer>) -> bool {
        let usable = outcome.as_ref().is_ok_and(|answer| !answer.ends());
        let (Ok(answer) | Err(answer)) = outcome;
        self.record(answer);
        usable
    }

    pub(crate) fn answers(&self) -> Answers {
        self.answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}
