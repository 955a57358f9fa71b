//! `fairlane serve`: opens the rooms from the bottom up, says when it is ready, waits for a signal, and closes them from
//! the top down.
//!
//! 1. Settings are checked, signals are caught, the data folder and the limit on open files are looked at.
//! 2. Lanes start, and learn what the disk can do; every core opens its shard and engine, core 0 first, then roles and levels.
//! 3. The front doors open, and one line on standard output says where.
//! 4. SIGTERM or SIGINT: the doors close and finish what runs, shards write what is in memory, lanes end, exit 0.
//!    A second signal ends the process at once; nothing acknowledged is lost by that.
//!    SIGHUP reads the certificates again.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use access::AuditLog;
use frontdoor::{Accounts, Limits, Tls, TlsFiles};
use lanes::{FREED_MEMORY_LOOK, FreedMemory, Group, Lanes, MemoryAhead, Reporter};
use server::ServerConfig;
use server::logging::{self, Level, Logger};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use storage::{Event, Teller};

use crate::audit::Audit;
use crate::certificates::Certificates;
use crate::rooms::Rooms;
use crate::settings::{PASSWORD_VARIABLE, Settings};
use crate::snapshot::Watch;
use crate::stop::{StopWatch, stop_by_itself};
use crate::{folder, machine, probe, sql_listener};

/// What a process killed by its second signal exits with.
const EXIT_AT_ONCE: i32 = 130;

/// Memory that is kept ready beyond what is in use, for each core and once more, bytes: a block of the allocator's; see [`MemoryAhead`].
const MEMORY_AHEAD: u64 = 32 << 20;
/// With so large a part of the server's memory resident, freed memory goes back to the kernel. Memtables and caches fill a half.
const FREED_MEMORY: (u64, u64) = (3, 4);
/// No more memory is kept ready than one part in so many of the server's memory: as much as a memtable takes.
const MEMORY_AHEAD_PART: u64 = 16;

/// Runs a server until it is told to stop; 0 after an orderly end.
pub(crate) fn serve(settings: &Settings, warnings: &[String]) -> ExitCode {
    // First of all: no other thread runs yet. A user who has set the delay in the environment has a reason.
    let keeps_memory = lanes::keep_freed_memory();
    let log = Log::start(settings);
    log_panics(log.logger.clone());
    for warning in warnings {
        log.logger.log(Level::Warn, warning, &[]);
    }
    let result = run(settings, keeps_memory, &log.logger);
    // The hook holds a logger.
    drop(std::panic::take_hook());
    log.end();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("fairlane: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Has panics logged. The standard hook writes to standard error itself, which blocks a lane while nobody reads that, and takes
/// time for a backtrace.
fn log_panics(logger: Logger) {
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let place = panic.location().map_or_else(|| "?".to_owned(), ToString::to_string);
        let fields: [(&str, &dyn std::fmt::Display); 3] = [
            ("at", &place),
            ("thread", &thread.name().unwrap_or("?")),
            ("message", &panic_message(panic.payload())),
        ];
        logger.log(Level::Error, "panic: a task ended", &fields);
    }));
}

/// Returns the text of a panic, or `?` for a payload of another kind.
fn panic_message(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}

fn run(settings: &Settings, keeps_memory: bool, logger: &Logger) -> Result<(), String> {
    let mut signals = catch_signals().map_err(|error| format!("Signals cannot be caught: {error}."))?;
    folder::keep_files_private();
    folder::prepare(&settings.data_dir)?;
    let open =
        [folder::make_private(&settings.data_dir), settings.tls_key.as_deref().and_then(folder::judge_key)];
    for warning in open.into_iter().flatten().chain(open_to_all(settings)) {
        logger.log(Level::Warn, &warning, &[]);
    }
    let mut config = machine::lanes(settings)?;
    if let Some(low) = machine::raise_file_limit(config.cores.len())? {
        logger.log(Level::Warn, &low, &[]);
    }
    let to_log = logger.clone();
    config.reporter = Reporter::new(move |report| to_log.log(Level::Warn, &report.to_string(), &[]));
    config.self_check = true;
    let memory_bytes = settings.memory_bytes.unwrap_or_else(machine::memory_bytes);
    let found = format!("{config}, {} MiB of memory", memory_bytes >> 20);
    logger.log(Level::Info, "starting", &[("version", &env!("CARGO_PKG_VERSION")), ("on", &found)]);
    let ahead_bytes = (MEMORY_AHEAD * (config.cores.len() as u64 + 1)).min(memory_bytes / MEMORY_AHEAD_PART);
    let ahead = keeps_memory.then(|| MemoryAhead::start(ahead_bytes, memory_bytes)).transpose();
    let _ahead = ahead.map_err(|error| format!("A thread cannot be started: {error}."))?;
    let lanes = Lanes::start(config).map_err(|error| {
        format!("The lanes cannot start ({error}): give other CPUs with --cores, or try --overprovisioned.")
    })?;
    if keeps_memory {
        bound_freed_memory(&lanes, memory_bytes / FREED_MEMORY.1 * FREED_MEMORY.0);
    }
    let disk = if lanes.uses_io_uring() { "io_uring" } else { "threads, as io_uring is refused" };
    logger.log(Level::Info, "lanes run", &[("disk", &disk), ("wake_up", &wake_ups(&lanes))]);
    probe::tell(&lanes, settings, logger);
    let audit = Audit::start(settings, logger)?;
    let audit_log = audit.as_ref().map(|audit| audit.log.clone());
    let result = open_and_wait(settings, logger, &lanes, memory_bytes, audit_log, &mut signals);
    lanes.shutdown();
    drop(lanes);
    audit.into_iter().for_each(Audit::end);
    result
}

/// Has the process keep freed memory up to a limit, bytes. Without `/proc` it keeps all.
fn bound_freed_memory(lanes: &Lanes, limit: u64) {
    let Ok(freed) = FreedMemory::new(limit) else { return };
    lanes.block_on(0, Group::CONTROL, move || async move {
        let look = async move {
            while freed.look().is_ok() {
                lanes::time::sleep(FREED_MEMORY_LOOK).await;
            }
        };
        lanes::spawn(Group::CONTROL, look).detach();
    });
}

/// Median and worst wake-up of each core: `18/40 21/39 us`.
fn wake_ups(lanes: &Lanes) -> String {
    let measured: Vec<String> = (0..lanes.cores())
        .filter_map(|core| lanes.wake_up(core))
        .map(|wake_up| format!("{}/{}", wake_up.p50_us, wake_up.p99_us))
        .collect();
    if measured.is_empty() { "not measured".to_owned() } else { format!("{} us", measured.join(" ")) }
}

/// Everything between the start of the lanes and their end.
fn open_and_wait(
    settings: &Settings,
    logger: &Logger,
    lanes: &Lanes,
    memory_bytes: u64,
    audit: Option<Arc<AuditLog>>,
    signals: &mut Signals,
) -> Result<(), String> {
    let given = std::env::var(PASSWORD_VARIABLE).ok().filter(|password| !password.is_empty());
    let to_log = logger.clone();
    let teller = Teller::new(move |event| {
        let level = match event {
            Event::Panicked { .. } => Level::Error,
            event if event.is_bad() => Level::Warn,
            _ => Level::Info,
        };
        to_log.log_fields(level, &event.phrase(), &event.fields());
        if matches!(event, Event::Panicked { .. }) {
            stop_by_itself();
        }
    });
    let tls = tls(settings)?;
    let request_bytes =
        settings.request_memory_bytes.unwrap_or_else(|| machine::request_memory(memory_bytes));
    let frame_bytes = ServerConfig::default().frame_bytes_max;
    let accounts = Accounts::new(request_bytes, server::largest_request_bytes(frame_bytes));
    let sql = sql_listener::config(settings, tls.clone(), &accounts, audit.clone())?;
    let rooms = Rooms::open(lanes, settings, memory_bytes, given, &teller)?;
    if let Some(path) = rooms.password_file() {
        let said = format!(
            "the password of {} was generated and written to {}",
            settings.admin_user,
            path.display()
        );
        logger.log(Level::Warn, &said, &[]);
    }
    let opened = folder::host_id(&settings.data_dir).and_then(|host_id| {
        let config = ServerConfig {
            audit,
            tls: tls.clone(),
            accounts,
            ..server_config(settings, memory_bytes, host_id)
        };
        rooms.open_doors(config, sql, logger.clone())
    });
    let doors = match opened {
        Ok(doors) => doors,
        Err(reason) => {
            rooms.close()?;
            return Err(reason);
        }
    };
    say_ready(&doors.describe());
    logger.log(Level::Info, "ready", &[("listening", &doors.describe())]);
    let watch = Watch::start(&settings.data_dir, lanes, logger);
    let certificates = tls.map(|tls| Certificates::watch(tls, logger));
    let signal = signals.forever().find(|&signal| {
        if signal == SIGHUP {
            certificates.iter().for_each(Certificates::read_now);
        }
        signal != SIGHUP
    });
    drop(certificates);
    let name = if signal == Some(SIGINT) { "SIGINT" } else { "SIGTERM" };
    logger.log(Level::Info, "stopping", &[("signal", &name)]);
    let stop_watch = StopWatch::start(lanes, logger);
    watch.end();
    doors.close(lanes);
    rooms.close()?;
    drop(stop_watch);
    logger.log(Level::Info, "stopped", &[]);
    Ok(())
}

/// Programs wait for this line. Nobody may be reading: that is no reason not to serve.
fn say_ready(doors: &str) {
    use std::io::Write;
    let mut out = std::io::stdout();
    let _ = writeln!(out, "fairlane is ready: {doors}").and_then(|()| out.flush());
}

/// Signals to wait for; the second one ends the process where it stands.
fn catch_signals() -> std::io::Result<Signals> {
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // In this order: the first signal finds the flag down and raises it, the second finds it raised.
        signal_hook::flag::register_conditional_shutdown(signal, EXIT_AT_ONCE, stopping.clone())?;
        signal_hook::flag::register(signal, stopping.clone())?;
    }
    debug_assert!(!stopping.load(Ordering::Relaxed));
    Signals::new([SIGTERM, SIGINT, SIGHUP])
}

fn server_config(settings: &Settings, memory_bytes: u64, host_id: uuid::Uuid) -> ServerConfig {
    ServerConfig {
        listen: settings.listen,
        shard_aware_port: settings.shard_aware_port,
        advertise: settings.advertise,
        http: settings.http_listen,
        allow_plaintext: settings.allow_plaintext,
        authenticate: settings.authenticate,
        cluster_name: settings.cluster_name.clone(),
        host_id,
        connections: limits(settings, settings.connections_max),
        idle_timeout: settings.idle_timeout,
        http_hosts: settings.http_hosts.clone(),
        request_timeout: settings.request_timeout,
        slow_statement: settings.slow_statement,
        prepared_bytes_max: machine::prepared_memory(memory_bytes),
        ..ServerConfig::default()
    }
}

/// Returns a warning if clients beyond this machine need no password.
fn open_to_all(settings: &Settings) -> Option<String> {
    let listening = [Some(settings.listen), settings.sql_listen];
    let beyond = listening.into_iter().flatten().find(|address| !address.ip().is_loopback())?;
    (!settings.authenticate).then(|| {
        format!(
            "everyone who reaches {beyond} may read, change and drop everything, as --authenticate=false: switch \
             authentication on, or listen on 127.0.0.1"
        )
    })
}

/// The limits of a listener with `sessions_max` sessions.
pub(crate) fn limits(settings: &Settings, sessions_max: usize) -> Limits {
    Limits {
        reserved_max: settings.connections_reserved,
        per_address_max: settings.connections_per_address.unwrap_or(sessions_max.div_ceil(2)),
        per_role_max: settings.connections_per_role.unwrap_or(sessions_max),
        ..Limits::of_sessions(sessions_max)
    }
}

/// The certificate of all listeners. `None` where none is configured.
fn tls(settings: &Settings) -> Result<Option<Tls>, String> {
    let (certificate, key) = match (&settings.tls_certificate, &settings.tls_key) {
        (None, None) if settings.tls_client_ca.is_some() => {
            return Err("Client certificates need an encrypted connection: give --tls-certificate and --tls-key beside \
                        --tls-client-ca."
                .into());
        }
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
        _ => {
            return Err(
                "A certificate needs its key: give both --tls-certificate and --tls-key, or neither.".into(),
            );
        }
    };
    if settings.tls_client_required && settings.tls_client_ca.is_none() {
        return Err(
            "Client certificates cannot be checked without their authorities: give --tls-client-ca beside \
                    --tls-client-required."
                .into(),
        );
    }
    let client_ca = settings.tls_client_ca.clone();
    let files = TlsFiles { certificate, key, client_ca, client_required: settings.tls_client_required };
    let tls = Tls::from_files(files);
    tls.map(Some).map_err(|reason| format!("{reason} (--tls-certificate, --tls-key, --tls-client-ca)."))
}

/// Log lines, and the thread that writes them, so that no lane waits for whoever reads standard error.
struct Log {
    logger: Logger,
    writer: JoinHandle<()>,
}

impl Log {
    fn start(settings: &Settings) -> Log {
        let (logger, lines) = logging::logger(settings.log_level, settings.log_format);
        let writer = std::thread::spawn(move || lines.write_to(std::io::stderr()));
        Log { logger, writer }
    }

    /// Lets go of the logger, so that the writer ends when the others have; lines still waiting are written.
    fn end(self) {
        drop(self.logger);
        // If some lane could not be ended and holds a logger, its lines are lost rather than the exit held up.
        for _ in 0..100 {
            if self.writer.is_finished() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_beyond_the_machine_without_passwords_is_warned_of() {
        let beyond = |address: &str| address.parse().expect("an address");
        let settings = Settings { authenticate: false, ..Settings::default() };
        assert_eq!(open_to_all(&settings), None);
        let cql = Settings { listen: beyond("0.0.0.0:9042"), ..settings.clone() };
        assert!(open_to_all(&cql).expect("a warning").contains("0.0.0.0:9042"));
        let sql = Settings { sql_listen: Some(beyond("[::]:5432")), ..settings };
        assert!(open_to_all(&sql).expect("a warning").contains("[::]:5432"));
        assert_eq!(open_to_all(&Settings { authenticate: true, ..sql }), None);
    }

    #[test]
    fn panic_is_one_log_line_with_its_place() {
        let (logger, lines) = logging::logger(Level::Error, logging::Format::Text);
        log_panics(logger);
        let panicked = std::thread::spawn(|| panic!("this panic is part of the test")).join();
        drop(std::panic::take_hook());
        assert!(panicked.is_err());
        // Tests that run at the same time may add lines.
        let lines = lines.take();
        let line = lines.iter().find(|line| line.contains("this panic is part of the test"));
        assert!(line.expect("a line").contains("serve.rs:"), "{lines:?}");
    }
}
