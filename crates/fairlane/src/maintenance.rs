//! `fairlane compact`, `flush` and `scrub`: run the statements of the same names and show progress.
//!
//! A command has two connections. One waits for the answer of the statement, the other reads
//! `system_views.sstable_tasks`. Ctrl-C ends the process and so the first connection. The server
//! then ends the statement.

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use frontdoor::{ClientFiles, TlsClient};
use load::LoadError;
use load::session::{self, Session};

use crate::output::print;

const USAGE: &str = "\
fairlane compact KEYSPACE.TABLE [FLAGS]
fairlane flush KEYSPACE.TABLE [FLAGS]
fairlane scrub KEYSPACE.TABLE [FLAGS]

`compact` compacts the files of a table to one run on each core. `flush` writes memtables to table
files. `scrub` reads every file of a table and writes the undamaged part of damaged ones to new files.
A running server does the work, on all cores, in the service level of the role. The role needs ALTER
on the table. Ctrl-C ends the work. Files that were finished by then stay.

  --host HOST:PORT      the server (127.0.0.1:9042)
  --user NAME           role to log in as
  --password-file FILE  file whose first line is the password (otherwise the variable FAIRLANE_PASSWORD)
  --tls-ca FILE         encrypts: the authority that signed the certificate of the server, in PEM
  --tls-certificate FILE, --tls-key FILE
                        client certificate and its key, for a server that asks for them
  --quiet               no progress
";

/// Timeout of a connection and of all answers except that of the statement.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the statement. The client requires one, and no compaction takes this long.
const WORK_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Interval of the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// A command line.
#[derive(Debug)]
struct CommandLine {
    keyspace: String,
    table: String,
    host: String,
    user: Option<String>,
    password: Option<String>,
    tls_ca: Option<PathBuf>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    quiet: bool,
}

/// A connection, encrypted or not.
trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// Runs the statement `verb` for the table that the command line names.
pub(crate) fn run(verb: &'static str, args: &[String]) -> ExitCode {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        return print(USAGE);
    }
    match parse(args) {
        Err(reason) => {
            eprintln!("fairlane: {reason}. See `fairlane {} --help`.", verb.to_lowercase());
            ExitCode::from(2)
        }
        Ok(command) => match work(verb, &command) {
            Ok(text) => print(&text),
            Err(error) => {
                eprintln!("fairlane: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

fn parse(args: &[String]) -> Result<CommandLine, String> {
    let mut command = CommandLine {
        keyspace: String::new(),
        table: String::new(),
        host: "127.0.0.1:9042".to_owned(),
        user: None,
        password: std::env::var("FAIRLANE_PASSWORD").ok(),
        tls_ca: None,
        tls_certificate: None,
        tls_key: None,
        quiet: false,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (flag, given) = match arg.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
            _ => (arg.as_str(), None),
        };
        let mut value =
            || given.clone().or_else(|| args.next().cloned()).ok_or(format!("expected a value after {flag}"));
        match flag {
            "--host" => command.host = value()?,
            "--user" => command.user = Some(value()?),
            "--password-file" => {
                let path = value()?;
                let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
                command.password = Some(text.lines().next().unwrap_or_default().to_owned());
            }
            "--tls-ca" => command.tls_ca = Some(value()?.into()),
            "--tls-certificate" => command.tls_certificate = Some(value()?.into()),
            "--tls-key" => command.tls_key = Some(value()?.into()),
            "--quiet" => command.quiet = true,
            flag if flag.starts_with('-') => return Err(format!("unknown flag {flag}")),
            name if command.table.is_empty() => {
                let (keyspace, table) =
                    name.split_once('.').ok_or(format!("expected KEYSPACE.TABLE, got `{name}`"))?;
                (command.keyspace, command.table) = (keyspace.to_owned(), table.to_owned());
            }
            name => return Err(format!("expected one table, got `{name}` too")),
        }
    }
    match () {
        () if command.table.is_empty() || command.keyspace.is_empty() => {
            Err("expected KEYSPACE.TABLE".to_owned())
        }
        () if command.tls_certificate.is_some() != command.tls_key.is_some() => {
            Err("expected --tls-certificate and --tls-key together".to_owned())
        }
        () if command.tls_certificate.is_some() && command.tls_ca.is_none() => {
            Err("expected --tls-ca with --tls-certificate".to_owned())
        }
        () => Ok(command),
    }
}

fn connect(command: &CommandLine, timeout: Duration) -> Result<Session<Box<dyn Stream>>, LoadError> {
    let stream = session::open(&command.host, timeout)?;
    let stream: Box<dyn Stream> = match &command.tls_ca {
        Some(authority) => {
            let own = command.tls_certificate.as_deref().zip(command.tls_key.as_deref());
            let own = own.map(|(certificate, key)| ClientFiles { certificate, key });
            let host = command.host.rsplit_once(':').map_or(&*command.host, |(host, _)| host);
            let host = host.trim_matches(['[', ']']);
            let encrypted = TlsClient::from_files(authority, own).and_then(|tls| tls.connect(host, stream));
            let refused = |reason| LoadError::Connect { address: command.host.clone(), reason };
            Box::new(encrypted.map_err(refused)?)
        }
        None => Box::new(stream),
    };
    Session::over(stream, &command.host, command.user.as_deref(), command.password.as_deref())
}

/// Runs the statement, with progress on standard error if that is a terminal. Returns the text for
/// standard output.
fn work(verb: &'static str, command: &CommandLine) -> Result<String, LoadError> {
    let mut worker = connect(command, WORK_TIMEOUT)?;
    let statement = format!("{verb} {}.{}", command.keyspace, command.table);
    let (answer, answered) = mpsc::channel();
    std::thread::spawn(move || {
        // Fails if the command has ended.
        let _ = answer.send(worker.query(&statement));
    });
    let mut progress = match !command.quiet && std::io::stderr().is_terminal() {
        true => Some(connect(command, TIMEOUT)?),
        false => None,
    };
    let rows = loop {
        match answered.recv_timeout(PROGRESS_INTERVAL) {
            Ok(answer) => break answer,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(session) = &mut progress {
                    match tasks(session, command) {
                        Ok(line) => eprint!("\r\x1b[K{line}"),
                        // The work continues without progress.
                        Err(_) => progress = None,
                    }
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                let reason = "the work ended without an answer".to_owned();
                break Err(LoadError::Connect { address: command.host.clone(), reason });
            }
        }
    };
    if progress.is_some() {
        eprint!("\r\x1b[K");
    }
    let rows = rows?;
    Ok(if verb == "SCRUB" { scrubbed(&rows) } else { String::new() })
}

/// Returns the tasks on the table, summed over all cores: `compaction 12 of 40 MiB, flush 1 of 3
/// MiB`.
fn tasks(session: &mut Session<Box<dyn Stream>>, command: &CommandLine) -> Result<String, LoadError> {
    let text = "SELECT keyspace_name, table_name, kind, progress, total FROM system_views.sstable_tasks";
    let mut kinds: std::collections::BTreeMap<String, (u64, u64)> = std::collections::BTreeMap::new();
    for row in session.query(text)? {
        let text = |place: usize| row.get(place).and_then(Option::as_deref).map(String::from_utf8_lossy);
        if text(0).as_deref() != Some(&command.keyspace) || text(1).as_deref() != Some(&command.table) {
            continue;
        }
        let sums = kinds.entry(text(2).unwrap_or_default().into_owned()).or_default();
        sums.0 += number(row.get(3));
        sums.1 += number(row.get(4));
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let kinds = kinds
        .iter()
        .map(|(kind, (progress, total))| format!("{kind} {} of {} MiB", mib(*progress), mib(*total)));
    Ok(kinds.collect::<Vec<_>>().join(", "))
}

/// Returns the value of a `bigint`, 0 for null.
fn number(cell: Option<&Option<Vec<u8>>>) -> u64 {
    let bytes = cell.and_then(Option::as_deref).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
    bytes.map_or(0, |bytes| u64::try_from(i64::from_be_bytes(bytes)).unwrap_or(0))
}

/// Returns the text for the answer of `SCRUB`: sums over all cores.
fn scrubbed(rows: &[load::session::ResultRow]) -> String {
    let sum = |place: usize| rows.iter().map(|row| number(row.get(place))).sum::<u64>();
    let mut text = format!("{} files read, {} of them damaged\n", sum(1), sum(2));
    if sum(2) > 0 {
        let lost = format!("lost: {} files, {} blocks, {} rows\n", sum(3), sum(4), sum(5));
        text.push_str(&lost);
        text.push_str(&format!("saved of the damaged files: {} rows of {} partitions\n", sum(6), sum(7)));
    }
    text
}
