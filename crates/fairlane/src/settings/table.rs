//! The settings: each is declared here once, and flags, environment variables, keys of `fairlane.toml`, help and
//! `fairlane config --print` all come from this table.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use server::logging::{Format, Level};
use storage::CommitMode;

use super::values::*;
use crate::probe::Given;

/// One setting. Its name is its key in `fairlane.toml`; with `-` for `_` it is its flag, and in capitals behind `FAIRLANE_`
/// its environment variable.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    /// What stands for its value in the help; empty for a switch, whose flag alone means `true`.
    pub(crate) value: &'static str,
    /// The default, as one would write it.
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
    /// Checks a value and takes it over.
    pub(crate) set: fn(&mut Settings, &str) -> Result<(), String>,
}

/// The CPUs to run on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cores {
    /// As many as the process was given.
    Auto,
    /// The first so many of those.
    Count(usize),
    /// These.
    List(Vec<usize>),
}

/// All settings, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    pub(crate) data_dir: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) advertise: Option<SocketAddr>,
    pub(crate) shard_aware_port: Option<u16>,
    pub(crate) http_listen: Option<SocketAddr>,
    pub(crate) http_hosts: Vec<String>,
    pub(crate) sql_listen: Option<SocketAddr>,
    pub(crate) sql_decimals: i8,
    pub(crate) tls_certificate: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) tls_client_ca: Option<PathBuf>,
    pub(crate) tls_client_required: bool,
    pub(crate) allow_plaintext: bool,
    pub(crate) cores: Cores,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) memtable_memory_bytes: Option<u64>,
    pub(crate) query_memory_bytes: Option<u64>,
    pub(crate) spill_limit_bytes: Option<u64>,
    pub(crate) request_memory_bytes: Option<u64>,
    /// Thresholds that differ from the defaults, as a text that `engine::Guardrails` reads.
    pub(crate) guardrails: String,
    pub(crate) overprovisioned: bool,
    /// Measure the disk at first start.
    pub(crate) disk_probe: bool,
    /// Figures that go before measured ones.
    pub(crate) disk_speed: Given,
    pub(crate) commit: CommitMode,
    /// Snapshots before DROP, and before TRUNCATE.
    pub(crate) auto_snapshot: (bool, bool),
    pub(crate) auto_snapshot_ttl: Option<Duration>,
    pub(crate) background_controllers: bool,
    pub(crate) background_quota_percent: u32,
    pub(crate) compaction_shares: Option<u32>,
    pub(crate) authenticate: bool,
    pub(crate) admin_user: String,
    pub(crate) cluster_name: String,
    pub(crate) connections_max: usize,
    pub(crate) sql_connections_max: usize,
    pub(crate) connections_reserved: usize,
    pub(crate) connections_per_address: Option<usize>,
    pub(crate) connections_per_role: Option<usize>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) sql_idle_timeout: Option<Duration>,
    pub(crate) request_timeout: Duration,
    pub(crate) slow_statement: Option<Duration>,
    pub(crate) audit_log: Option<PathBuf>,
    pub(crate) audit_keyspaces: String,
    pub(crate) audit_literals: bool,
    pub(crate) log_level: Level,
    pub(crate) log_format: Format,
}

/// Every setting, in the order of help.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "data_dir",
        value: "FOLDER",
        default: "./fairlane-data",
        help: "Where data is kept. Made if it is not there; one server at a time may use it.",
        set: |s, text| put(&mut s.data_dir, folder(text)),
    },
    Setting {
        name: "listen",
        value: "HOST:PORT",
        default: "127.0.0.1:9042",
        help: "Where CQL clients connect. Port 0 takes a free one.",
        set: |s, text| put(&mut s.listen, address(text)),
    },
    Setting {
        name: "advertise",
        value: "HOST:PORT|auto",
        default: "auto",
        help: "The address that clients are told in system.local, for servers behind NAT or in containers.",
        set: |s, text| put(&mut s.advertise, unless("auto", text, address)),
    },
    Setting {
        name: "shard_aware_port",
        value: "PORT|off",
        default: "19042",
        help: "The port on which a client picks the core of its connection by its own source port.",
        set: |s, text| put(&mut s.shard_aware_port, unless("off", text, |text| number(text, 0, 65_535))),
    },
    Setting {
        name: "http_listen",
        value: "HOST:PORT|off",
        default: "127.0.0.1:9180",
        help: "Where /metrics, /health/live and /health/ready are served.",
        set: |s, text| put(&mut s.http_listen, unless("off", text, address)),
    },
    Setting {
        name: "http_hosts",
        value: "NAMES|off",
        default: "off",
        help: "Names under which /metrics may be asked for, with commas between; IP addresses and localhost always may.",
        set: |s, text| put(&mut s.http_hosts, names(text)),
    },
    Setting {
        name: "sql_listen",
        value: "HOST:PORT|off",
        default: crate::sql_listener::LISTEN,
        help: "Where SQL clients connect (Postgres protocol). Port 0 takes a free one.",
        set: |s, text| put(&mut s.sql_listen, unless("off", text, address)),
    },
    Setting {
        name: "sql_decimals",
        value: "0-30",
        default: "6",
        help: "Digits behind the point that SQL reads a decimal with, of 38; a query that reads one with more fails.",
        set: |s, text| put(&mut s.sql_decimals, number(text, 0, engine::scan::arrow::DECIMALS_MAX as u64)),
    },
    Setting {
        name: "tls_certificate",
        value: "FILE|off",
        default: "off",
        help: "The certificate for CQL, SQL and HTTP clients that encrypt, with its chain, in PEM. Read again when it changes.",
        set: |s, text| put(&mut s.tls_certificate, unless("off", text, file)),
    },
    Setting {
        name: "tls_key",
        value: "FILE|off",
        default: "off",
        help: "Its private key, in PEM.",
        set: |s, text| put(&mut s.tls_key, unless("off", text, file)),
    },
    Setting {
        name: "tls_client_ca",
        value: "FILE|off",
        default: "off",
        help: "Authorities of client certificates, in PEM. A certificate's common name is a role, which then needs no password.",
        set: |s, text| put(&mut s.tls_client_ca, unless("off", text, file)),
    },
    Setting {
        name: "tls_client_required",
        value: "",
        default: "false",
        help: "Refuse encrypted CQL and SQL connections without a client certificate.",
        set: |s, text| put(&mut s.tls_client_required, switch(text)),
    },
    Setting {
        name: "allow_plaintext",
        value: "",
        default: "false",
        help: "Speak without encryption on addresses beyond loopback.",
        set: |s, text| put(&mut s.allow_plaintext, switch(text)),
    },
    Setting {
        name: "cores",
        value: "N|LIST|auto",
        default: "auto",
        help: "CPUs to run on: how many of those this process was given, or which, such as 0,2-3 or 3,.",
        set: |s, text| put(&mut s.cores, cores(text)),
    },
    Setting {
        name: "memory",
        value: "SIZE|auto",
        default: "auto",
        help: "Memory that memtables and caches are sized by, such as 8GiB; auto is what this process was given.",
        set: |s, text| {
            put(&mut s.memory_bytes, unless("auto", text, |text| bytes(text, "64MiB", MEMORY_BYTES_MIN)))
        },
    },
    Setting {
        name: "memtable_memory",
        value: "SIZE|auto",
        default: "auto",
        help: "Memory for memtables of all cores together, at most 768MiB for each core; auto is three sixteenths of --memory.",
        set: |s, text| {
            put(
                &mut s.memtable_memory_bytes,
                unless("auto", text, |text| bytes(text, "64MiB", MEMORY_BYTES_MIN)),
            )
        },
    },
    Setting {
        name: "query_memory",
        value: "SIZE|auto",
        default: "auto",
        help: "Memory that queries compute with, all together; auto is three eighths of --memory. What does not fit spills.",
        set: |s, text| {
            put(
                &mut s.query_memory_bytes,
                unless("auto", text, |text| bytes(text, "1MiB", QUERY_MEMORY_BYTES_MIN)),
            )
        },
    },
    Setting {
        name: "request_memory",
        value: "SIZE|auto",
        default: "auto",
        help: "Memory for requests that are large or wait, and for what SQL sessions keep; auto is a sixteenth of --memory.",
        set: |s, text| {
            put(
                &mut s.request_memory_bytes,
                unless("auto", text, |text| bytes(text, "48MiB", REQUEST_MEMORY_BYTES_MIN)),
            )
        },
    },
    Setting {
        name: "guardrails",
        value: "NAME=WARN:FAIL,...",
        default: "",
        help: "Thresholds of limits that warn and refuse, such as in_values=100:1000; 0 is none. system.guardrails lists them.",
        set: |s, text| put(&mut s.guardrails, guardrails(text)),
    },
    Setting {
        name: "spill_limit",
        value: "SIZE|auto",
        default: "auto",
        help: "The most that queries put aside in the data folder; auto is a quarter of what is free there at the start.",
        set: |s, text| {
            put(
                &mut s.spill_limit_bytes,
                unless("auto", text, |text| bytes(text, "1MiB", QUERY_MEMORY_BYTES_MIN)),
            )
        },
    },
    Setting {
        name: "overprovisioned",
        value: "",
        default: "false",
        help: "The CPUs are shared with other busy processes: do not pin threads to them.",
        set: |s, text| put(&mut s.overprovisioned, switch(text)),
    },
    Setting {
        name: "disk_probe",
        value: "first-start|off",
        default: "first-start",
        help: "Whether the disk is measured, for under two seconds, if `fairlane probe-disk` has not done so before.",
        set: |s, text| put(&mut s.disk_probe, first_start(text)),
    },
    Setting {
        name: "disk_read_bandwidth",
        value: "BYTES|auto",
        default: "auto",
        help: "What the disk reads in a second, such as 2GB, in place of what was measured.",
        set: |s, text| put(&mut s.disk_speed[0], or_zero(text, |text| bytes(text, "1MB", 1_000_000))),
    },
    Setting {
        name: "disk_write_bandwidth",
        value: "BYTES|auto",
        default: "auto",
        help: "What the disk writes in a second, in place of what was measured.",
        set: |s, text| put(&mut s.disk_speed[1], or_zero(text, |text| bytes(text, "1MB", 1_000_000))),
    },
    Setting {
        name: "disk_read_ops",
        value: "N|auto",
        default: "auto",
        help: "How many reads of 4 KiB the disk does in a second, in place of what was measured.",
        set: |s, text| put(&mut s.disk_speed[2], or_zero(text, |text| number(text, 10, 1_000_000_000))),
    },
    Setting {
        name: "disk_write_ops",
        value: "N|auto",
        default: "auto",
        help: "How many writes of 4 KiB the disk does in a second, in place of what was measured.",
        set: |s, text| put(&mut s.disk_speed[3], or_zero(text, |text| number(text, 10, 1_000_000_000))),
    },
    Setting {
        name: "disk_read_latency_us",
        value: "N|auto",
        default: "auto",
        help: "What the disk takes for a read of 4 KiB that it has to itself, microseconds, in place of what was measured.",
        set: |s, text| {
            let ns = or_zero(text, |text| Ok(number::<u64>(text, 1, 1_000_000)? * 1_000));
            put(&mut s.disk_speed[4], ns)
        },
    },
    Setting {
        name: "commit",
        value: "batch|periodic:MS",
        default: "batch",
        help: "batch: acknowledged means durable. periodic: a crash may lose the last so many milliseconds.",
        set: |s, text| put(&mut s.commit, commit(text)),
    },
    Setting {
        name: "background_controllers",
        value: "true|false",
        default: "true",
        help: "Whether flushes and compactions are paced. If not, they go as fast as fixed shares let them.",
        set: |s, text| put(&mut s.background_controllers, switch(text)),
    },
    Setting {
        name: "background_quota",
        value: "PERCENT",
        default: "50",
        help: "The most of a busy core for flushes and compactions; more only for a flush that writes wait for.",
        set: |s, text| put(&mut s.background_quota_percent, number(text, 1, 100)),
    },
    Setting {
        name: "compaction_shares",
        value: "N|auto",
        default: "auto",
        help: "What compactions weigh beside all users, who weigh 1000; auto is what their backlog asks for.",
        set: |s, text| put(&mut s.compaction_shares, unless("auto", text, |text| number(text, 1, 10_000))),
    },
    Setting {
        name: "authenticate",
        value: "true|false",
        default: "true",
        help: "Whether clients must give a name and a password. If not, everyone may do everything.",
        set: |s, text| put(&mut s.authenticate, switch(text)),
    },
    Setting {
        name: "admin_user",
        value: "NAME",
        default: "admin",
        help: "The superuser made at first start. Its password is taken from FAIRLANE_ADMIN_PASSWORD, or generated.",
        set: |s, text| put(&mut s.admin_user, name(text)),
    },
    Setting {
        name: "cluster_name",
        value: "NAME",
        default: "fairlane",
        help: "The name in system.local.",
        set: |s, text| put(&mut s.cluster_name, name(text)),
    },
    Setting {
        name: "connections_max",
        value: "N",
        default: "16384",
        help: "CQL sessions at once. A quarter as many connections may be logging in besides.",
        set: |s, text| put(&mut s.connections_max, number(text, 1, 1_000_000)),
    },
    Setting {
        name: "sql_connections_max",
        value: "N",
        default: "1024",
        help: "SQL sessions at once. A quarter as many connections may be logging in besides.",
        set: |s, text| put(&mut s.sql_connections_max, number(text, 1, 1_000_000)),
    },
    Setting {
        name: "connections_reserved",
        value: "N",
        default: "8",
        help: "Further sessions of each listener, for superusers when all others are taken.",
        set: |s, text| put(&mut s.connections_reserved, number(text, 0, 10_000)),
    },
    Setting {
        name: "connections_per_address",
        value: "N|auto",
        default: "auto",
        help: "Sessions of a listener from one address, superusers exempt; auto is half of all.",
        set: |s, text| {
            put(&mut s.connections_per_address, unless("auto", text, |text| number(text, 1, 1_000_000)))
        },
    },
    Setting {
        name: "connections_per_role",
        value: "N|off",
        default: "off",
        help: "Sessions of a listener for one role, superusers exempt.",
        set: |s, text| {
            put(&mut s.connections_per_role, unless("off", text, |text| number(text, 1, 1_000_000)))
        },
    },
    Setting {
        name: "idle_timeout",
        value: "SECONDS|off",
        default: "off",
        help: "CQL sessions without a request for so long are closed. Drivers keep theirs with heartbeats.",
        set: |s, text| put(&mut s.idle_timeout, unless("off", text, seconds)),
    },
    Setting {
        name: "sql_idle_timeout",
        value: "SECONDS|off",
        default: "86400",
        help: "SQL sessions without a statement for so long are closed.",
        set: |s, text| put(&mut s.sql_idle_timeout, unless("off", text, seconds)),
    },
    Setting {
        name: "auto_snapshot",
        value: "off|drop|drop,truncate",
        default: "off",
        help: "Statements before which a snapshot of the tables that they empty is made; fairlane restore --table reads it.",
        set: |s, text| put(&mut s.auto_snapshot, auto_snapshot(text)),
    },
    Setting {
        name: "auto_snapshot_ttl_s",
        value: "SECONDS|off",
        default: "604800",
        help: "Snapshots that auto_snapshot made are removed when they are so old.",
        set: |s, text| put(&mut s.auto_snapshot_ttl, unless("off", text, seconds)),
    },
    Setting {
        name: "request_timeout_ms",
        value: "MS",
        default: "10000",
        help: "The longest time for a statement, unless its service level or USING TIMEOUT says otherwise.",
        set: |s, text| put(&mut s.request_timeout, number(text, 1, 86_400_000).map(Duration::from_millis)),
    },
    Setting {
        name: "slow_statement_ms",
        value: "MS|off",
        default: "500",
        help: "Statements that take longer are logged.",
        set: |s, text| {
            let ms = |text: &str| number(text, 1, 86_400_000).map(Duration::from_millis);
            put(&mut s.slow_statement, unless("off", text, ms))
        },
    },
    Setting {
        name: "audit_log",
        value: "FILE|off",
        default: "off",
        help: "A file for logins and changes of roles, rights, levels and schema, as JSON lines; eight full files of 64 MiB are kept.",
        set: |s, text| put(&mut s.audit_log, unless("off", text, file)),
    },
    Setting {
        name: "audit_keyspaces",
        value: "NAME,...|*",
        default: "",
        help: "Keyspaces whose reads and writes are in the audit log too.",
        set: |s, text| put(&mut s.audit_keyspaces, Ok(text.to_owned())),
    },
    Setting {
        name: "audit_literals",
        value: "",
        default: "false",
        help: "Keep the literals of statements in the audit log.",
        set: |s, text| put(&mut s.audit_literals, switch(text)),
    },
    Setting {
        name: "log_level",
        value: "LEVEL",
        default: "info",
        help: "error, warn, info or debug; lines go to standard error.",
        set: |s, text| {
            put(&mut s.log_level, Level::from_name(text).ok_or("error, warn, info or debug is wanted".into()))
        },
    },
    Setting {
        name: "log_format",
        value: "text|json",
        default: "text",
        help: "How log lines look.",
        set: |s, text| put(&mut s.log_format, format(text)),
    },
];

impl Default for Settings {
    /// What the table says: its defaults pass through its own checks.
    fn default() -> Settings {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut settings = Settings {
            data_dir: PathBuf::new(),
            listen: nowhere,
            advertise: None,
            shard_aware_port: None,
            http_listen: None,
            http_hosts: Vec::new(),
            sql_listen: None,
            sql_decimals: 0,
            tls_certificate: None,
            tls_key: None,
            tls_client_ca: None,
            tls_client_required: false,
            allow_plaintext: false,
            cores: Cores::Auto,
            memory_bytes: None,
            memtable_memory_bytes: None,
            query_memory_bytes: None,
            spill_limit_bytes: None,
            request_memory_bytes: None,
            guardrails: String::new(),
            overprovisioned: false,
            disk_probe: false,
            disk_speed: Given::default(),
            commit: CommitMode::Batch,
            auto_snapshot: (false, false),
            auto_snapshot_ttl: None,
            background_controllers: false,
            background_quota_percent: 0,
            compaction_shares: None,
            authenticate: true,
            admin_user: String::new(),
            cluster_name: String::new(),
            connections_max: 0,
            sql_connections_max: 0,
            connections_reserved: 0,
            connections_per_address: None,
            connections_per_role: None,
            idle_timeout: None,
            sql_idle_timeout: None,
            request_timeout: Duration::ZERO,
            slow_statement: None,
            audit_log: None,
            audit_keyspaces: String::new(),
            audit_literals: false,
            log_level: Level::Info,
            log_format: Format::Text,
        };
        for setting in SETTINGS {
            let set = (setting.set)(&mut settings, setting.default);
            set.unwrap_or_else(|reason| panic!("the default of {} passes its check: {reason}", setting.name));
        }
        settings
    }
}
