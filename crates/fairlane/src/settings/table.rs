//! The table of settings. Each is declared here once. Flags, environment variables, keys of
//! `fairlane.toml`, help and `fairlane config --print` all come from this table.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use frontdoor::Limits;
use server::logging::{Format, Level};
use storage::CommitMode;
use workload::DefaultLimit;

use super::values::*;

/// One setting.
pub(crate) struct Setting {
    /// Its key in `fairlane.toml`, such as `data_dir`. The flag is `--data-dir`, the environment
    /// variable `FAIRLANE_DATA_DIR`.
    pub(crate) name: &'static str,
    /// Placeholder of the value in the help. Empty for a switch: its flag alone means `true`.
    pub(crate) value: &'static str,
    /// The default, in the form that a user writes.
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
    /// Checks a value and stores it.
    pub(crate) set: fn(&mut Settings, &str) -> Result<(), String>,
}

/// The values of all settings, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// All settings as texts, by name.
    pub(crate) texts: Vec<(&'static str, String)>,
    pub(crate) engine: EngineKind,
    pub(crate) contact: Vec<SocketAddr>,
    pub(crate) node_window: Option<u32>,
    pub(crate) cluster_user: Option<String>,
    pub(crate) fleet_keyspace: String,
    pub(crate) show_peers: bool,
    pub(crate) cluster_ca: Option<PathBuf>,
    pub(crate) cluster_tls_name: Option<String>,
    pub(crate) cluster_cert: Option<PathBuf>,
    pub(crate) cluster_key: Option<PathBuf>,
    pub(crate) datacenter: Option<String>,
    pub(crate) rack: String,
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
    pub(crate) cores: Cpus,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) memtable_memory_bytes: Option<u64>,
    pub(crate) query_memory_bytes: Option<u64>,
    pub(crate) spill_limit_bytes: Option<u64>,
    pub(crate) request_memory_bytes: Option<u64>,
    /// Thresholds that differ from the defaults, in the form that `engine::Guardrails` reads.
    pub(crate) guardrails: String,
    pub(crate) overprovisioned: bool,
    /// Measure the disk at first start.
    pub(crate) disk_probe: bool,
    pub(crate) disk_speed: DiskSpeedGiven,
    pub(crate) commit: CommitMode,
    /// Make snapshots before DROP, and before TRUNCATE.
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
    pub(crate) concurrency_limit: DefaultLimit,
    pub(crate) slow_statement: Option<Duration>,
    pub(crate) audit_log: Option<PathBuf>,
    pub(crate) audit_keyspaces: String,
    pub(crate) audit_literals: bool,
    pub(crate) log_level: Level,
    pub(crate) log_format: Format,
}

/// All settings, in the order of the help.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "engine",
        value: "embedded|cluster",
        default: "embedded",
        help: "Where the data is: in the data folder, or in a cluster in front of which this server stands.",
        set: |s, text| put(&mut s.engine, engine_kind(text)),
    },
    Setting {
        name: "contact",
        value: "HOST:PORT,...|none",
        default: "none",
        help: "Nodes of the cluster, for --engine cluster, separated by commas. The default port is 9042.",
        set: |s, text| put(&mut s.contact, unless("none", text, contacts).map(Option::unwrap_or_default)),
    },
    Setting {
        name: "cluster_user",
        value: "NAME|none",
        default: "none",
        help: "Role that reads the cluster's system tables, with the password in FAIRLANE_CLUSTER_PASSWORD.",
        set: |s, text| put(&mut s.cluster_user, unless("none", text, name)),
    },
    Setting {
        name: "cluster_ca",
        value: "FILE|off",
        default: "off",
        help: "Encrypts to nodes. Authorities of their certificates, in PEM. Reloaded when the file changes.",
        set: |s, text| put(&mut s.cluster_ca, unless("off", text, file)),
    },
    Setting {
        name: "cluster_tls_name",
        value: "NAME|none",
        default: "none",
        help: "Host name that the certificates of all nodes have, checked in place of the node's address.",
        set: |s, text| put(&mut s.cluster_tls_name, unless("none", text, name)),
    },
    Setting {
        name: "cluster_cert",
        value: "FILE|off",
        default: "off",
        help: "Certificate for nodes that request one, with its chain, in PEM.",
        set: |s, text| put(&mut s.cluster_cert, unless("off", text, file)),
    },
    Setting {
        name: "cluster_key",
        value: "FILE|off",
        default: "off",
        help: "Private key of the certificate for nodes, in PEM.",
        set: |s, text| put(&mut s.cluster_key, unless("off", text, file)),
    },
    Setting {
        name: "datacenter",
        value: "NAME|auto",
        default: "auto",
        help: "Datacenter of the cluster that serves, and that drivers see. auto: that of the first contact.",
        set: |s, text| put(&mut s.datacenter, unless("auto", text, name)),
    },
    Setting {
        name: "rack",
        value: "NAME",
        default: "rack1",
        help: "Rack that drivers see in front of a cluster.",
        set: |s, text| put(&mut s.rack, name(text)),
    },
    Setting {
        name: "fleet_keyspace",
        value: "NAME",
        default: "fairlane_fleet",
        help: "Keyspace of the cluster in which all servers in front of it share levels, leases and their addresses.",
        set: |s, text| put(&mut s.fleet_keyspace, keyspace(text)),
    },
    Setting {
        name: "peers",
        value: "fleet|none",
        default: "fleet",
        help: "Servers in front of the same cluster that drivers find. none: this one only, behind a load balancer.",
        set: |s, text| put(&mut s.show_peers, shows_peers(text)),
    },
    Setting {
        name: "node_window",
        value: "N|auto",
        default: "128",
        help: "Requests in flight at a node of the cluster, at most: others wait here. auto: found by a limiter.",
        set: |s, text| put(&mut s.node_window, unless("auto", text, |text| number(text, 1, 1 << 15))),
    },
    Setting {
        name: "data_dir",
        value: "FOLDER",
        default: "./fairlane-data",
        help: "The data folder. Created if missing. One server at a time may use it. In front of a cluster: the folder \
               to which queries over SQL spill; they do not without it.",
        set: |s, text| put(&mut s.data_dir, folder(text)),
    },
    Setting {
        name: "listen",
        value: "HOST:PORT",
        default: "127.0.0.1:9042",
        help: "Address of the CQL listener. Port 0 takes a free port.",
        set: |s, text| put(&mut s.listen, address(text)),
    },
    Setting {
        name: "advertise",
        value: "HOST:PORT|auto",
        default: "auto",
        help: "Address in system.local, for servers behind NAT or in containers; auto is that of the listener.",
        set: |s, text| put(&mut s.advertise, unless("auto", text, address)),
    },
    Setting {
        name: "shard_aware_port",
        value: "PORT|off",
        default: "19042",
        help: "Port on which the source port of a client selects the core of its connection.",
        set: |s, text| put(&mut s.shard_aware_port, unless("off", text, |text| number(text, 0, 65_535))),
    },
    Setting {
        name: "http_listen",
        value: "HOST:PORT|off",
        default: "127.0.0.1:9180",
        help: "Address that serves /metrics, /health/live and /health/ready.",
        set: |s, text| put(&mut s.http_listen, unless("off", text, address)),
    },
    Setting {
        name: "http_hosts",
        value: "NAMES|off",
        default: "off",
        help: "Host names of requests for /metrics, separated by commas. localhost and IP addresses are accepted too.",
        set: |s, text| put(&mut s.http_hosts, names(text)),
    },
    Setting {
        name: "sql_listen",
        value: "HOST:PORT|off",
        default: if cfg!(feature = "sql") { "127.0.0.1:5432" } else { "off" },
        help: "Address of the SQL listener (Postgres protocol). Port 0 takes a free port. In front of a cluster: off.",
        set: |s, text| put(&mut s.sql_listen, unless("off", text, address)),
    },
    Setting {
        name: "sql_decimals",
        value: "0-30",
        default: "6",
        help: "Scale of CQL decimals in SQL, at a precision of 38. Queries that read a larger scale fail.",
        set: |s, text| put(&mut s.sql_decimals, number(text, 0, engine::scan::arrow::SCALE_MAX as u64)),
    },
    Setting {
        name: "tls_certificate",
        value: "FILE|off",
        default: "off",
        help: "Certificate of all listeners with its chain, in PEM. Reloaded when the file changes.",
        set: |s, text| put(&mut s.tls_certificate, unless("off", text, file)),
    },
    Setting {
        name: "tls_key",
        value: "FILE|off",
        default: "off",
        help: "Private key of the certificate, in PEM.",
        set: |s, text| put(&mut s.tls_key, unless("off", text, file)),
    },
    Setting {
        name: "tls_client_ca",
        value: "FILE|off",
        default: "off",
        help: "Authorities of client certificates, in PEM. The common name is a role, which needs no password.",
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
        help: "Allow connections without encryption on addresses other than loopback.",
        set: |s, text| put(&mut s.allow_plaintext, switch(text)),
    },
    Setting {
        name: "cores",
        value: "N|LIST|auto",
        default: "auto",
        help: "CPUs to run on: a number, or a list such as 0,2-3 or 3,; auto is all CPUs that this process may use.",
        set: |s, text| put(&mut s.cores, cpus(text)),
    },
    Setting {
        name: "memory",
        value: "SIZE|auto",
        default: "auto",
        help: "Memory of the server, such as 8GiB; auto is the memory of the cgroup or machine.",
        set: |s, text| {
            put(&mut s.memory_bytes, unless("auto", text, |text| bytes(text, "64MiB", MEMORY_BYTES_MIN)))
        },
    },
    Setting {
        name: "memtable_memory",
        value: "SIZE|auto",
        default: "auto",
        help: "Memory for memtables of all cores together, at most 768MiB for each core; auto is 3/16 of --memory.",
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
        help: "Memory of all queries together; auto is 3/8 of --memory. Queries spill beyond it.",
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
        help: "Memory for large and waiting requests and for the state of SQL sessions; auto is 1/16 of --memory.",
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
        help: "Thresholds that warn and fail, such as in_values=100:1000; 0 is none. system.guardrails lists them.",
        set: |s, text| put(&mut s.guardrails, guardrails(text)),
    },
    Setting {
        name: "spill_limit",
        value: "SIZE|auto",
        default: "auto",
        help: "Disk space for spill files of queries, in the data folder; auto is 1/4 of the space free at the start.",
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
        help: "Do not pin threads to CPUs, because other busy processes use the CPUs too.",
        set: |s, text| put(&mut s.overprovisioned, switch(text)),
    },
    Setting {
        name: "disk_probe",
        value: "first-start|off",
        default: "first-start",
        help: "Measure the disk for two seconds at the first start, unless `fairlane probe-disk` has measured it.",
        set: |s, text| put(&mut s.disk_probe, first_start(text)),
    },
    Setting {
        name: "disk_read_bandwidth",
        value: "BYTES|auto",
        default: "auto",
        help: "Read bandwidth of the disk, bytes a second, such as 2GB. Replaces the measured value.",
        set: |s, text| put(&mut s.disk_speed[0], or_zero(text, |text| bytes(text, "1MB", 1_000_000))),
    },
    Setting {
        name: "disk_write_bandwidth",
        value: "BYTES|auto",
        default: "auto",
        help: "Write bandwidth of the disk, bytes a second. Replaces the measured value.",
        set: |s, text| put(&mut s.disk_speed[1], or_zero(text, |text| bytes(text, "1MB", 1_000_000))),
    },
    Setting {
        name: "disk_read_ops",
        value: "N|auto",
        default: "auto",
        help: "Reads of 4 KiB that the disk completes in a second. Replaces the measured value.",
        set: |s, text| put(&mut s.disk_speed[2], or_zero(text, |text| number(text, 10, 1_000_000_000))),
    },
    Setting {
        name: "disk_write_ops",
        value: "N|auto",
        default: "auto",
        help: "Writes of 4 KiB that the disk completes in a second. Replaces the measured value.",
        set: |s, text| put(&mut s.disk_speed[3], or_zero(text, |text| number(text, 10, 1_000_000_000))),
    },
    Setting {
        name: "disk_read_latency_us",
        value: "N|auto",
        default: "auto",
        help: "Latency of a read of 4 KiB on an idle disk, microseconds. Replaces the measured value.",
        set: |s, text| {
            let ns = or_zero(text, |text| Ok(number::<u64>(text, 1, 1_000_000)? * 1_000));
            put(&mut s.disk_speed[4], ns)
        },
    },
    Setting {
        name: "commit",
        value: "batch|periodic:MS",
        default: "batch",
        help: "batch: acknowledged writes are durable. periodic:MS: a crash may lose those of the last MS ms.",
        set: |s, text| put(&mut s.commit, commit(text)),
    },
    Setting {
        name: "background_controllers",
        value: "true|false",
        default: "true",
        help: "Pace flushes and compactions by controllers. Without them they run with fixed shares.",
        set: |s, text| put(&mut s.background_controllers, switch(text)),
    },
    Setting {
        name: "background_quota",
        value: "PERCENT",
        default: "50",
        help: "Part of a busy core that flushes and compactions may use. A flush that writes wait for may use more.",
        set: |s, text| put(&mut s.background_quota_percent, number(text, 1, 100)),
    },
    Setting {
        name: "compaction_shares",
        value: "N|auto",
        default: "auto",
        help: "Shares of compactions; all service levels together have 1000. auto follows the backlog.",
        set: |s, text| put(&mut s.compaction_shares, unless("auto", text, |text| number(text, 1, 10_000))),
    },
    Setting {
        name: "authenticate",
        value: "true|false",
        default: "true",
        help: "Require a user name and a password. Without authentication, every client may do everything.",
        set: |s, text| put(&mut s.authenticate, switch(text)),
    },
    Setting {
        name: "admin_user",
        value: "NAME",
        default: "admin",
        help: "The superuser created at the first start, with FAIRLANE_ADMIN_PASSWORD or a generated password.",
        set: |s, text| put(&mut s.admin_user, name(text)),
    },
    Setting {
        name: "cluster_name",
        value: "NAME",
        default: "fairlane",
        help: "Cluster name in system.local.",
        set: |s, text| put(&mut s.cluster_name, name(text)),
    },
    Setting {
        name: "connections_max",
        value: "N",
        default: "16384",
        help: "Maximum number of CQL sessions. A quarter as many connections may be logging in besides.",
        set: |s, text| put(&mut s.connections_max, number(text, 1, 1_000_000)),
    },
    Setting {
        name: "sql_connections_max",
        value: "N",
        default: "1024",
        help: "Maximum number of SQL sessions. A quarter as many connections may be logging in besides.",
        set: |s, text| put(&mut s.sql_connections_max, number(text, 1, 1_000_000)),
    },
    Setting {
        name: "connections_reserved",
        value: "N",
        default: "8",
        help: "Additional sessions of each listener, for superusers when all others are in use.",
        set: |s, text| put(&mut s.connections_reserved, number(text, 0, 10_000)),
    },
    Setting {
        name: "connections_per_address",
        value: "N|auto",
        default: "auto",
        help: "Maximum number of sessions of a listener from one address, superusers exempt; auto is half of all.",
        set: |s, text| {
            put(&mut s.connections_per_address, unless("auto", text, |text| number(text, 1, 1_000_000)))
        },
    },
    Setting {
        name: "connections_per_role",
        value: "N|off",
        default: "off",
        help: "Maximum number of sessions of a listener for one role, superusers exempt.",
        set: |s, text| {
            put(&mut s.connections_per_role, unless("off", text, |text| number(text, 1, 1_000_000)))
        },
    },
    Setting {
        name: "idle_timeout",
        value: "SECONDS|off",
        default: "off",
        help: "Time without a request after which a CQL session is closed. Heartbeats of drivers are requests.",
        set: |s, text| put(&mut s.idle_timeout, unless("off", text, seconds)),
    },
    Setting {
        name: "sql_idle_timeout",
        value: "SECONDS|off",
        default: "86400",
        help: "Time without a statement after which a SQL session is closed.",
        set: |s, text| put(&mut s.sql_idle_timeout, unless("off", text, seconds)),
    },
    Setting {
        name: "auto_snapshot",
        value: "off|drop|drop,truncate",
        default: "off",
        help: "Statements before which a snapshot of their tables is made, for `fairlane restore --table`.",
        set: |s, text| put(&mut s.auto_snapshot, auto_snapshot(text)),
    },
    Setting {
        name: "auto_snapshot_ttl_s",
        value: "SECONDS|off",
        default: "604800",
        help: "Age at which snapshots of auto_snapshot are removed.",
        set: |s, text| put(&mut s.auto_snapshot_ttl, unless("off", text, seconds)),
    },
    Setting {
        name: "request_timeout_ms",
        value: "MS",
        default: "10000",
        help: "Timeout of statements, unless the service level or USING TIMEOUT specifies another.",
        set: |s, text| put(&mut s.request_timeout, number(text, 1, 86_400_000).map(Duration::from_millis)),
    },
    Setting {
        name: "concurrency_limit",
        value: "auto|off|N",
        default: "off",
        help: "Statements in flight on each core, for service levels without max_concurrency.",
        set: |s, text| put(&mut s.concurrency_limit, default_limit(text)),
    },
    Setting {
        name: "slow_statement_ms",
        value: "MS|off",
        default: "500",
        help: "Time after which a statement is logged as slow.",
        set: |s, text| {
            let ms = |text: &str| number(text, 1, 86_400_000).map(Duration::from_millis);
            put(&mut s.slow_statement, unless("off", text, ms))
        },
    },
    Setting {
        name: "audit_log",
        value: "FILE|off",
        default: "off",
        help: "File for logins and changes of roles, permissions, levels and schema, as JSON lines. 576 MiB are kept.",
        set: |s, text| put(&mut s.audit_log, unless("off", text, file)),
    },
    Setting {
        name: "audit_keyspaces",
        value: "NAME,...|*",
        default: "",
        help: "Keyspaces whose reads and writes are logged in the audit log.",
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
        help: "Least level of lines that are logged: error, warn, info or debug. The log goes to standard error.",
        set: |s, text| {
            put(&mut s.log_level, Level::from_name(text).ok_or("error, warn, info or debug".into()))
        },
    },
    Setting {
        name: "log_format",
        value: "text|json",
        default: "text",
        help: "Format of the log.",
        set: |s, text| put(&mut s.log_format, format(text)),
    },
];

impl Settings {
    /// Returns the folder of spill files. `None` in front of a cluster without a given `data_dir`:
    /// servers that are started in the same folder would share the default.
    pub(crate) fn spill_dir(&self) -> Option<PathBuf> {
        let has_none = self.engine == EngineKind::Cluster && self.data_dir == Settings::default().data_dir;
        (!has_none).then(|| self.data_dir.join("spill"))
    }

    /// Returns the limits of a listener with `sessions_max` sessions.
    pub(crate) fn limits(&self, sessions_max: usize) -> Limits {
        Limits {
            reserved_max: self.connections_reserved,
            per_address_max: self.connections_per_address.unwrap_or(sessions_max.div_ceil(2)),
            per_role_max: self.connections_per_role.unwrap_or(sessions_max),
            ..Limits::of_sessions(sessions_max)
        }
    }
}

impl Default for Settings {
    /// Sets every setting to the default of the table. The defaults pass the same checks as values
    /// of users.
    fn default() -> Settings {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut settings = Settings {
            texts: Vec::new(),
            engine: EngineKind::Embedded,
            contact: Vec::new(),
            node_window: Some(128),
            cluster_user: None,
            fleet_keyspace: String::new(),
            show_peers: true,
            cluster_ca: None,
            cluster_tls_name: None,
            cluster_cert: None,
            cluster_key: None,
            datacenter: None,
            rack: String::new(),
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
            cores: Cpus::Auto,
            memory_bytes: None,
            memtable_memory_bytes: None,
            query_memory_bytes: None,
            spill_limit_bytes: None,
            request_memory_bytes: None,
            guardrails: String::new(),
            overprovisioned: false,
            disk_probe: false,
            disk_speed: DiskSpeedGiven::default(),
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
            concurrency_limit: DefaultLimit::Off,
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
