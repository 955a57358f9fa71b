//! `fairlane serve`: starts the server, waits for a signal, and stops the server.
//!
//! 1. Catch signals. Check certificate, addresses, data folder and the limit of open files.
//! 2. Start the lanes and set their disk model. Open shard and engine of every core, core 0 first,
//!    then roles and levels.
//! 3. Open the listeners. Print one line with their addresses to standard output.
//! 4. On SIGTERM or SIGINT, close the listeners, finish running statements, flush, end the lanes
//!    and exit with 0. A second signal ends the process at once. No acknowledged write is lost by
//!    that. SIGHUP reloads the certificates.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use access::AuditLog;
use frontdoor::{Accounts, Tls, TlsFiles};
use lanes::{FREED_MEMORY_CHECK_EVERY, FreedMemory, Group, Lanes, MemoryAhead, Reporter};
use server::ServerConfig;
use server::logging::{self, FieldValue, Level, Logger};
use sha2::Digest;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use storage::{Event, EventSink};

use crate::audit::Audit;
use crate::certificates::Certificates;
use crate::cores::Cores;
use crate::folder::Prepared;
use crate::listeners::Listeners;
use crate::requests::Watch;
use crate::settings::{EngineKind, PASSWORD_VARIABLE, Settings};
use crate::sql_listener::SqlConfig;
use crate::stop::{StopWatch, stop_after_panic};
use crate::{folder, listeners, machine, probe, sql_listener};

/// Exit status after the second signal: 128 + SIGINT, as shells report it.
const EXIT_AT_ONCE: i32 = 130;

/// Prefaulted memory beyond the memory in use, for each core and once more, bytes: one block of the
/// allocator ([`MemoryAhead`]).
const MEMORY_AHEAD: u64 = 32 << 20;
/// Part of the server's memory up to which freed memory is kept. Beyond it, freed memory returns to
/// the kernel. Memtables and caches fill a half.
const FREED_MEMORY: (u64, u64) = (3, 4);
/// Divisor of the server's memory: at most this part of it is prefaulted, as much as a memtable of
/// all cores.
const MEMORY_AHEAD_PART: u64 = 16;

/// Runs a server until a signal stops it. Returns 0 if the stop completed.
pub(crate) fn serve(settings: &Settings, warnings: &[String]) -> ExitCode {
    // First, because no other thread may run yet.
    let keeps_memory = lanes::keep_freed_memory();
    let log = Log::start(settings);
    log_panics(log.logger.clone());
    for warning in warnings {
        log.logger.log(Level::Warn, warning, &[]);
    }
    let result = run(settings, keeps_memory, &log.logger);
    // The hook holds a logger, and the writer ends with the last one.
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

/// Logs panics. The standard hook writes to standard error itself. That would block a lane while no
/// program reads standard error, and takes time for a backtrace.
fn log_panics(logger: Logger) {
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let place = panic.location().map_or_else(|| "?".to_owned(), ToString::to_string);
        let fields = [
            ("at", place.into()),
            ("thread", thread.name().unwrap_or("?").into()),
            ("message", panic_message(panic.payload()).into()),
        ];
        logger.log(Level::Error, "panic: a task ended", &fields);
    }));
}

/// Returns the text of a panic, or `?` for a payload of another kind.
fn panic_message(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}

/// Runs the server: everything that needs the log.
fn run(settings: &Settings, keeps_memory: bool, logger: &Logger) -> Result<(), String> {
    let mut signals = catch_signals().map_err(|error| format!("signals cannot be caught: {error}."))?;
    // Settings that cannot work are reported before the folder is touched.
    let tls = tls(settings)?;
    listeners::check(settings)?;
    folder::keep_files_private();
    let is_front = settings.engine == EngineKind::Cluster;
    let prepared = if is_front { None } else { Some(folder::prepare(&settings.data_dir)?) };
    let spills = settings.spill_dir().filter(|_| is_front && settings.sql_listen.is_some());
    let _lock = spills.map(|_| folder::lock(&settings.data_dir)).transpose()?;
    if prepared == Some(Prepared::Full) {
        let text = "the disk of the data folder is full: reads are served, and writes are refused until it has \
                    space; free some";
        logger.log(Level::Warn, text, &[("folder", FieldValue::text(settings.data_dir.display()))]);
    }
    let open = [
        prepared.and_then(|_| folder::make_private(&settings.data_dir)),
        settings.tls_key.as_deref().and_then(folder::judge_key),
    ];
    for warning in open.into_iter().flatten().chain(unauthenticated(settings)) {
        logger.log(Level::Warn, &warning, &[]);
    }
    let mut config = machine::lanes(settings)?;
    if let Some(low) = machine::raise_file_limit(config.cores.len())? {
        logger.log(Level::Warn, &low, &[]);
    }
    let to_log = logger.clone();
    config.reporter = Reporter::new(move |report| {
        let level = if report.is_normal() { Level::Info } else { Level::Warn };
        to_log.log(level, &report.to_string(), &[]);
    });
    config.self_check = true;
    let memory_bytes = settings.memory_bytes.unwrap_or_else(machine::memory_bytes);
    let found = format!("{config}, {} MiB of memory", memory_bytes >> 20);
    logger.log(
        Level::Info,
        "starting",
        &[("version", env!("CARGO_PKG_VERSION").into()), ("on", found.into())],
    );
    let ahead_bytes = (MEMORY_AHEAD * (config.cores.len() as u64 + 1)).min(memory_bytes / MEMORY_AHEAD_PART);
    let ahead = keeps_memory.then(|| MemoryAhead::start(ahead_bytes, memory_bytes)).transpose();
    let _ahead = ahead.map_err(|error| format!("a thread cannot be started: {error}."))?;
    let lanes = Lanes::start(config).map_err(|error| {
        format!("the lanes cannot start ({error}): choose other CPUs with --cores, or try --overprovisioned.")
    })?;
    if keeps_memory {
        bound_freed_memory(&lanes, memory_bytes / FREED_MEMORY.1 * FREED_MEMORY.0);
    }
    let disk = if lanes.uses_io_uring() { "io_uring" } else { "threads, as io_uring is refused" };
    logger.log(Level::Info, "lanes started", &[("disk", disk.into()), ("wake_up", wake_ups(&lanes).into())]);
    if !is_front {
        probe::set_disk_model(&lanes, settings, logger);
    }
    let audit = Audit::start(settings, logger)?;
    let audit_log = audit.as_ref().map(|audit| audit.log.clone());
    let found = Found { memory_bytes, prepared, tls };
    let result = open_and_wait(settings, logger, &lanes, found, audit_log, &mut signals);
    lanes.shutdown();
    drop(lanes);
    audit.into_iter().for_each(Audit::end);
    result
}

/// Returns freed memory beyond `limit` bytes to the kernel. Without `/proc` all is kept.
fn bound_freed_memory(lanes: &Lanes, limit: u64) {
    let Ok(freed) = FreedMemory::new(limit) else { return };
    lanes.block_on(0, Group::CONTROL, move || async move {
        let check = async move {
            while freed.check().is_ok() {
                lanes::time::sleep(FREED_MEMORY_CHECK_EVERY).await;
            }
        };
        lanes::spawn(Group::CONTROL, check).detach();
    });
}

/// Returns the median and 99th percentile of the wake-ups of each core: `18/40 21/39 us`.
fn wake_ups(lanes: &Lanes) -> String {
    let measured: Vec<String> = (0..lanes.cores())
        .filter_map(|core| lanes.wake_up(core))
        .map(|wake_up| format!("{}/{}", wake_up.p50_us, wake_up.p99_us))
        .collect();
    if measured.is_empty() { "not measured".to_owned() } else { format!("{} us", measured.join(" ")) }
}

/// Findings of the start before the lanes run.
struct Found {
    memory_bytes: u64,
    /// State of the data folder. `None`: a server in front of a cluster has none.
    prepared: Option<Prepared>,
    /// Certificate of all listeners.
    tls: Option<Tls>,
}

/// Returns a sink that logs the events of storage, and stops the server after a panic.
fn event_sink(logger: &Logger) -> EventSink {
    let logger = logger.clone();
    EventSink::new(move |event| {
        let level = match event {
            Event::Panicked { .. } => Level::Error,
            event if event.is_bad() => Level::Warn,
            _ => Level::Info,
        };
        logger.log(level, &event.phrase(), &event.fields());
        if matches!(event, Event::Panicked { .. }) {
            stop_after_panic();
        }
    })
}

fn log_refused_handshakes(tls: &Tls, logger: &Logger) {
    let logger = logger.clone();
    tls.on_refused(move |refused| {
        let fields = [
            ("client", FieldValue::text(refused.client)),
            ("error", refused.reason.into()),
            ("unreported", refused.unreported.into()),
        ];
        logger.log(Level::Warn, "TLS handshake refused", &fields);
    });
}

/// Opens the server on running lanes, waits for a signal, and closes it.
fn open_and_wait(
    settings: &Settings,
    logger: &Logger,
    lanes: &Lanes,
    Found { memory_bytes, prepared, tls }: Found,
    audit: Option<Arc<AuditLog>>,
    signals: &mut Signals,
) -> Result<(), String> {
    let given = std::env::var(PASSWORD_VARIABLE).ok().filter(|password| !password.is_empty());
    let event_sink = event_sink(logger);
    let request_bytes =
        settings.request_memory_bytes.unwrap_or_else(|| machine::request_memory(memory_bytes));
    let frame_bytes = ServerConfig::default().frame_bytes_max;
    let accounts = Accounts::new(request_bytes, server::largest_request_bytes(frame_bytes));
    tls.iter().for_each(|tls| log_refused_handshakes(tls, logger));
    let host_id = front_id(settings);
    let (mut sql, cores) = match prepared {
        Some(prepared) => {
            let sql = sql_listener::config(settings, tls.clone(), &accounts, audit.clone())?;
            let cores = Cores::open(lanes, settings, memory_bytes, given, prepared, &event_sink)?;
            (sql, cores)
        }
        None => {
            let sql = sql_listener::config(settings, tls.clone(), &accounts, audit.clone())?;
            let cores = Cores::open_front(
                lanes,
                settings,
                host_id,
                memory_bytes,
                request_bytes,
                &event_sink,
                logger,
            )?;
            if let Some(warning) = unauthenticated_by_cluster(settings, &cores) {
                logger.log(Level::Warn, &warning, &[]);
            }
            (sql, cores)
        }
    };
    if let Some(path) = cores.password_file() {
        let fields =
            [("role", settings.admin_user.as_str().into()), ("file", FieldValue::text(path.display()))];
        logger.log(Level::Warn, "password generated", &fields);
    }
    let host_id = match prepared {
        Some(_) => folder::host_id(&settings.data_dir),
        None => Ok(host_id),
    };
    let opened = host_id.and_then(|host_id| {
        let mut config = ServerConfig {
            audit,
            tls: tls.clone(),
            accounts,
            ..server_config(settings, lanes.cores(), memory_bytes, host_id)
        };
        bound_sockets(lanes.cores(), &mut config, sql.as_mut(), logger);
        Listeners::open(lanes, config, sql, logger.clone())
    });
    let listeners = match opened {
        Ok(listeners) => listeners,
        Err(reason) => {
            cores.close()?;
            return Err(reason);
        }
    };
    print_ready(&listeners.describe());
    logger.log(Level::Info, "ready", &[("listening", listeners.describe().into())]);
    let watch = prepared.map(|_| Watch::start(&settings.data_dir, lanes, logger));
    let of_nodes = cores.node_tls().map(|tls| Certificates::watch(tls.clone(), logger));
    let of_listeners = tls.map(|tls| Certificates::watch(tls, logger));
    let certificates: Vec<Certificates> = of_nodes.into_iter().chain(of_listeners).collect();
    let signal = signals.forever().find(|&signal| {
        if signal == SIGHUP {
            certificates.iter().for_each(Certificates::reload);
        }
        signal != SIGHUP
    });
    drop(certificates);
    let name = if signal == Some(SIGINT) { "SIGINT" } else { "SIGTERM" };
    logger.log(Level::Info, "stopping", &[("signal", name.into())]);
    let stop_watch = StopWatch::start(lanes, logger);
    watch.into_iter().for_each(Watch::end);
    listeners.close(lanes);
    cores.close()?;
    drop(stop_watch);
    logger.log(Level::Info, "stopped", &[]);
    Ok(())
}

/// Bounds the connections of all listeners, so that they leave descriptors for the files of the
/// store. Call it once those of the start are open.
fn bound_sockets(cores: usize, cql: &mut ServerConfig, sql: Option<&mut SqlConfig>, logger: &Logger) {
    let (limit, open) = (lanes::disk::open_files_max(), machine::open_files(cores));
    let sockets = machine::sockets_max(limit, open, cores);
    if machine::share_sockets(sockets, &mut cql.connections, sql.map(sql_listener::limits)) {
        let sessions = cql.connections.sessions_max;
        let fields = [
            ("open_files_max", limit.into()),
            ("open", open.into()),
            ("sockets_max", sockets.into()),
            ("cql_sessions_max", sessions.into()),
        ];
        let phrase =
            "connections are bounded by the limit of open files: raise it with `ulimit -n` or LimitNOFILE=";
        logger.log(Level::Warn, phrase, &fields);
    }
}

/// Prints the line that other programs wait for. A closed standard output is no reason to stop.
fn print_ready(listening: &str) {
    use std::io::Write;
    let mut out = std::io::stdout();
    let _ = writeln!(out, "fairlane is ready: {listening}").and_then(|()| out.flush());
}

/// Catches the signals that the server handles. The second SIGTERM or SIGINT ends the process at
/// once.
fn catch_signals() -> std::io::Result<Signals> {
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // The order matters: the first signal finds the flag cleared and sets it, the second finds
        // it set.
        signal_hook::flag::register_conditional_shutdown(signal, EXIT_AT_ONCE, stopping.clone())?;
        signal_hook::flag::register(signal, stopping.clone())?;
    }
    debug_assert!(!stopping.load(Ordering::Relaxed));
    Signals::new([SIGTERM, SIGINT, SIGHUP])
}

fn server_config(settings: &Settings, cores: usize, memory_bytes: u64, host_id: uuid::Uuid) -> ServerConfig {
    let is_front = settings.engine == EngineKind::Cluster;
    ServerConfig {
        listen: settings.listen,
        shard_aware_port: settings.shard_aware_port.filter(|_| !is_front),
        advertise: settings.advertise,
        http: settings.http_listen,
        allow_plaintext: settings.allow_plaintext,
        authenticate: settings.authenticate,
        cluster_name: settings.cluster_name.clone(),
        host_id,
        rack: settings.rack.clone(),
        show_peers: settings.show_peers,
        connections: settings.limits(settings.connections_max),
        idle_timeout: settings.idle_timeout,
        http_hosts: settings.http_hosts.clone(),
        request_timeout: settings.request_timeout,
        slow_statement: settings.slow_statement,
        prepared_bytes_max: machine::prepared_memory(memory_bytes),
        read_bytes_max: machine::read_memory(memory_bytes, cores),
        data_dir: (!is_front).then(|| settings.data_dir.clone()),
        settings: settings.texts.clone(),
        ..ServerConfig::default()
    }
}

/// Returns the id of a server in front of a cluster: the same after a restart, so that drivers see
/// the same server.
fn front_id(settings: &Settings) -> uuid::Uuid {
    let address = settings.advertise.unwrap_or(settings.listen);
    if address.port() == 0 {
        // Each start has another address.
        return uuid::Uuid::new_v4();
    }
    let name = format!("{} {address}", settings.cluster_name);
    let hash = sha2::Sha256::digest(name.as_bytes());
    uuid::Builder::from_custom_bytes(hash[..16].try_into().expect("16 bytes of 32")).into_uuid()
}

/// Returns a warning if clients of other machines need no password, because of a setting.
fn unauthenticated(settings: &Settings) -> Option<String> {
    let reason = "--authenticate=false: switch authentication on";
    if settings.authenticate { None } else { open_to_all(settings, reason) }
}

/// Returns a warning if clients of other machines need no password, because of their cluster.
fn unauthenticated_by_cluster(settings: &Settings, cores: &Cores) -> Option<String> {
    let reason = "a cluster that asks for no passwords: switch authentication on there";
    if cores.asks_for_passwords() { None } else { open_to_all(settings, reason) }
}

/// Returns a warning if the server, which needs no password for this reason, listens beyond
/// loopback.
fn open_to_all(settings: &Settings, reason: &str) -> Option<String> {
    let listening = [Some(settings.listen), settings.sql_listen];
    let beyond = listening.into_iter().flatten().find(|address| !address.ip().is_loopback())?;
    Some(format!(
        "every client that reaches {beyond} may read, change and drop everything, because of {reason}, or listen on \
         127.0.0.1"
    ))
}

/// Returns the certificate of all listeners. `None`: none is configured.
fn tls(settings: &Settings) -> Result<Option<Tls>, String> {
    let (certificate, key) = match (&settings.tls_certificate, &settings.tls_key) {
        (None, None) if settings.tls_client_ca.is_some() => {
            return Err(
                "client certificates need an encrypted connection: give --tls-certificate and --tls-key \
                        beside --tls-client-ca."
                    .into(),
            );
        }
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
        _ => {
            return Err(
                "a certificate needs its key: give both --tls-certificate and --tls-key, or neither.".into(),
            );
        }
    };
    if settings.tls_client_required && settings.tls_client_ca.is_none() {
        return Err(
            "client certificates cannot be checked without their authorities: give --tls-client-ca beside \
                    --tls-client-required."
                .into(),
        );
    }
    let client_ca = settings.tls_client_ca.clone();
    let files = TlsFiles { certificate, key, client_ca, client_required: settings.tls_client_required };
    let tls = Tls::from_files(files);
    tls.map(Some).map_err(|reason| format!("{reason} (--tls-certificate, --tls-key, --tls-client-ca)."))
}

/// The log and the thread that writes its lines, so that no lane waits for the reader of standard
/// error.
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

    /// Waits until the queued lines are written, for a second at most. The writer ends with the
    /// last logger.
    fn end(self) {
        drop(self.logger);
        // A lane that could not be ended still has a logger. Its lines are lost, so that the
        // process ends.
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
    fn remote_listener_without_passwords_is_a_warning() {
        let address = |text: &str| text.parse().expect("an address");
        let settings = Settings { authenticate: false, ..Settings::default() };
        assert_eq!(unauthenticated(&settings), None);
        let cql = Settings { listen: address("0.0.0.0:9042"), ..settings.clone() };
        assert!(unauthenticated(&cql).expect("a warning").contains("0.0.0.0:9042"));
        let sql = Settings { sql_listen: Some(address("[::]:5432")), ..settings };
        assert!(unauthenticated(&sql).expect("a warning").contains("[::]:5432"));
        assert_eq!(unauthenticated(&Settings { authenticate: true, ..sql }), None);
        let open = open_to_all(&cql, "a cluster that asks for no passwords").expect("a warning");
        assert!(open.contains("0.0.0.0:9042") && open.contains("because of a cluster that"), "{open}");
        assert_eq!(open_to_all(&Settings::default(), "a cluster"), None, "on loopback");
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
