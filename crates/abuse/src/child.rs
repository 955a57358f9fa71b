//! An attack in a process of its own: `abuse attack NAME TARGET SECONDS ROUNDS`. Its low priority
//! keeps its effect on server and probes small. Its memory is separate too.
//!
//! ```text
//!   parent                                child
//!     spawn ──────────────────────────────► traffic begins, or everything is in place
//!     ◄──────────────────────────── ready   (standard output)
//!     close its standard input ───────────► a holding attack ends
//!     ◄──────────────────── answer … lines  exit
//! ```

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::answers::{Answers, ServerAnswer};
use crate::attack::{Attack, AttackRun, READY};
use crate::target::AttackTarget;
use crate::{cpu, table};

/// Added to the niceness of the attacker's process. 19 gives it the least share of a common core,
/// since a real attacker has cores of its own.
const NICE: i32 = 19;
/// Time an attack may take beyond its limit: two waits for a silent server (one for a connection,
/// one for requests in flight), and closing sockets.
pub(crate) const GRACE: Duration = Duration::from_secs(45);

/// Runs one attack and prints the answers it received.
pub(crate) fn main(words: &[String]) -> ExitCode {
    let [name, target, seconds, rounds] = words else { return ExitCode::from(2) };
    let (Some(attack), Some(target)) = (table::find(name), AttackTarget::parse(target)) else {
        return ExitCode::from(2);
    };
    let (Ok(seconds), Ok(rounds)) = (seconds.parse(), rounds.parse()) else { return ExitCode::from(2) };
    // A failure makes the measurement slightly worse, but not the attack.
    let _ = rustix::process::nice(NICE);
    // Some attacks hold more sockets than the usual limit of a shell.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: files.maximum, ..files };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
    let run = Arc::new(AttackRun::new(attack, target, Duration::from_secs_f64(seconds), rounds));
    let released = Arc::clone(&run);
    std::thread::spawn(move || {
        // The parent writes nothing. The read ends when it closes the pipe or dies.
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        released.release();
    });
    if let Err(answer) = (attack.run)(&run) {
        run.record(ServerAnswer { label: format!("gave up: {}", answer.label), text: answer.text });
    }
    print!("{}", run.answers().lines());
    ExitCode::SUCCESS
}

/// The parent's end of an attack.
#[derive(Debug)]
pub(crate) struct Attacker {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    answers: Answers,
    ends: Instant,
}

impl Attacker {
    /// Starts an attack of `time` and at most `rounds` rounds.
    pub(crate) fn start(
        attack: &Attack,
        target: &AttackTarget,
        time: Duration,
        rounds: u64,
    ) -> Result<Attacker, String> {
        let failed = |error: std::io::Error| format!("starting {} failed: {error}", attack.name);
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(["attack", attack.name, &target.text(), &time.as_secs_f64().to_string()]);
        command.arg(rounds.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|out| BufReader::new(out).lines().map_while(Result::ok)) {
                drop(sender.send(line));
            }
        });
        Ok(Attacker { child, stdin, lines, answers: Answers::default(), ends: Instant::now() + time + GRACE })
    }

    /// Waits until the attack's traffic has begun or everything it holds is in place.
    pub(crate) fn ready(&mut self) {
        while let Some(line) = self.next() {
            if line == READY {
                return;
            }
        }
    }

    /// Releases a holding attack and waits for the end, as [`Attacker::run_out`] does.
    pub(crate) fn finish(mut self) -> (Answers, f64) {
        self.stdin = None;
        self.run_out()
    }

    /// Waits until the attack's time is over. Returns the answers and the CPU time used, seconds.
    /// Kills an attack that does not end.
    pub(crate) fn run_out(mut self) -> (Answers, f64) {
        while self.next().is_some() {}
        // Read the counters before waiting for the process, which removes them.
        let cpu_s = cpu::of_process(self.child.id());
        if !matches!(self.child.try_wait(), Ok(Some(_))) && Instant::now() >= self.ends {
            self.answers.add(ServerAnswer::new("attack did not end"));
        }
        (std::mem::take(&mut self.answers), cpu_s)
    }

    /// Returns the next line. `None`: the attack has ended, or its time is over.
    fn next(&mut self) -> Option<String> {
        let left = self.ends.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                self.answers.parse(&line);
                Some(line)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // It has ended, or must end now.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the named program of the server, by default the one beside this program.
pub(crate) fn server_program(named: Option<&Path>) -> Result<std::path::PathBuf, String> {
    if let Some(path) = named {
        // The server runs in a folder of its own, where relative paths are wrong.
        return path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let beside = own.with_file_name("fairlane");
    if beside.exists() { Ok(beside) } else { Err(format!("expected the server at {}", beside.display())) }
}
