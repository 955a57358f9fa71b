//! The start of a server, seen from its parent.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Most bytes of a log that [`tail`] looks at.
const TAIL_BYTES_MAX: usize = 4 << 10;

/// Addresses of a server's listeners, HOST:PORT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// CQL.
    pub cql: String,
    /// HTTP: metrics and health.
    pub http: String,
    /// SQL. `None`: it is off.
    pub sql: Option<String>,
}

impl Addresses {
    /// Parses the line by which a server reports that it is ready. `None`: another line.
    pub fn parse(line: &str) -> Option<Addresses> {
        let address = |mark: &str| {
            let rest = line.split(mark).nth(1)?;
            let found = rest.split([',', ' ', '\n']).next()?.trim_end_matches('.');
            found.contains(':').then(|| found.to_owned())
        };
        line.contains("is ready:").then_some(())?;
        Some(Addresses { cql: address("CQL ")?, http: address("HTTP ")?, sql: address("SQL ") })
    }
}

/// Waits until a child with piped output is ready. Reads the output to its end on a thread, so that
/// the server never blocks on a full pipe. `None`: it ended, or was not ready within `patience`.
pub fn wait_until_ready(child: &mut Child, patience: Duration) -> Option<Addresses> {
    let stdout = child.stdout.take();
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in stdout.into_iter().flat_map(|out| BufReader::new(out).lines().map_while(Result::ok)) {
            let _not_received = sender.send(line);
        }
    });
    let start = Instant::now();
    while let Some(left) = patience.checked_sub(start.elapsed()) {
        let line = lines.recv_timeout(left).ok()?;
        if let Some(addresses) = Addresses::parse(&line) {
            return Some(addresses);
        }
    }
    None
}

/// Removes the settings of a server from the environment of a command.
pub fn without_settings(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FAIRLANE_")) {
        command.env_remove(name);
    }
    command
}

/// Returns the last `count` lines of a log, for messages.
pub fn tail(log: &Path, count: usize) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL_BYTES_MAX)..]).into_owned();
    let lines: Vec<&str> = text.lines().rev().take(count).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn addresses_are_read_from_the_line_of_a_ready_server() {
        let found = |listeners: &str| Addresses::parse(&format!("fairlane is ready: {listeners}\n"));
        let mut expected =
            Addresses { cql: "127.0.0.1:4711".to_owned(), http: "127.0.0.1:8080".to_owned(), sql: None };
        assert_eq!(found("CQL 127.0.0.1:4711, HTTP 127.0.0.1:8080"), Some(expected.clone()));
        expected.sql = Some("127.0.0.1:5433".to_owned());
        assert_eq!(found("CQL 127.0.0.1:4711, HTTP 127.0.0.1:8080, SQL 127.0.0.1:5433."), Some(expected));
        assert_eq!(Addresses::parse("starting: CQL 1:2, HTTP 1:3"), None);
        assert_eq!(found("CQL 127.0.0.1:4711"), None);
    }

    #[test]
    fn child_without_the_line_is_not_ready() {
        let start = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdout(Stdio::piped());
            let mut child = without_settings(&mut command).spawn().expect("sh starts");
            let ready = wait_until_ready(&mut child, Duration::from_secs(30));
            child.wait().expect("sh ends");
            ready.map(|ready| ready.cql)
        };
        assert_eq!(start("echo a warning; echo x is ready: CQL h:1, HTTP h:2").as_deref(), Some("h:1"));
        assert_eq!(start("echo starting"), None);
    }

    #[test]
    fn tail_has_the_last_lines() {
        let log = std::env::temp_dir().join(format!("fairlane-tail-{}", std::process::id()));
        std::fs::write(&log, "a\nb\nc\n").expect("written");
        assert_eq!(tail(&log, 2), "b | c");
        std::fs::remove_file(&log).expect("removed");
        assert_eq!(tail(&log, 2), "");
    }
}
