//! Names of loads, phases and chapters. Results contain them, so that comparisons and charts find
//! what a chapter measured. The name of a load is also that of its role and its service level.

/// Interactive load of the demo of service levels.
pub(crate) const INTERACTIVE: &str = "interactive";
/// Batch load of that demo. (`batch` is a reserved word of CQL.)
pub(crate) const BATCH: &str = "analytics";
/// Loads that compete by shares.
pub(crate) const LOADS: [&str; 3] = ["load1", "load2", "load3"];
/// Load in a level with `cpu_limit`.
pub(crate) const CAPPED: &str = "capped";

/// Chapter of the demo of a cluster without the front.
pub(crate) const DIRECT: &str = "direct";

/// Load of the demo of flushes.
pub(crate) const WRITES: &str = "writes";
/// Labels of its phases, by the server: one that flushes, and one that keeps all writes in memory.
pub(crate) const FLUSHING: &str = "flushing";
pub(crate) const IN_MEMORY: &str = "in memory";

/// Phases of the published experiment with writes, by the state of the controllers.
pub(crate) const UNCONTROLLED: &str = "controllers off";
pub(crate) const CONTROLLED: &str = "controllers on";

/// Loads of the demo in the shape of a petabyte; the first two are roles and levels as well.
pub(crate) const USERS: &str = "users";
pub(crate) const APPLICATION: &str = "application";
pub(crate) const USER_WRITES: &str = "user writes";
pub(crate) const APPLICATION_WRITES: &str = "application writes";
/// Labels of its phases, with and without the cache.
pub(crate) const CACHED: &str = "with the cache";
pub(crate) const BYPASSING: &str = "BYPASS CACHE";

/// The two clients of the demo of queries: one connection whose throughput and latency count, and
/// those beside it.
pub(crate) const DASHBOARD: &str = "dashboard";
pub(crate) const REPORTS: &str = "reports";
/// Phases with a level for each client, and with one level for both. Names of phases of short
/// queries start with them.
pub(crate) const LEVELS: &str = "levels";
pub(crate) const ONE_LEVEL: &str = "one_level";
/// Phase of short queries without other load, the base of comparison.
pub(crate) const ALONE: &str = "alone";
/// Connections of the other client beside short queries.
pub(crate) const CONNECTIONS: [usize; 4] = [1, 2, 4, 8];
/// Chapters about short queries: of ClickBench, of TPC-H.
pub(crate) const SHORT_CLICKBENCH: &str = "olap_clickbench";
pub(crate) const SHORT_TPCH: &str = "olap_tpch";
pub(crate) const SHORT: [&str; 2] = [SHORT_CLICKBENCH, SHORT_TPCH];

/// Load of the demo of overload that stays the same, in a level of its own.
pub(crate) const STEADY: &str = "steady";
/// Its chapters.
pub(crate) const FROM_MEMORY: &str = "memory";
pub(crate) const FROM_DISK: &str = "disk";
pub(crate) const FULL_MEMTABLES: &str = "memtables";

/// Load of the demo of batches.
pub(crate) const COMMANDS: &str = "commands";
/// Its chapters, by strategy.
pub(crate) const PER_PARTITION: &str = "per_partition";
pub(crate) const THREADS: &str = "threads";
pub(crate) const BATCHED: &str = "batched";
pub(crate) const UNLIMITED: &str = "unlimited";
/// Phases to compare with each other: one key, and ten of them.
pub(crate) const ONE_KEY: &str = "keys-1";
pub(crate) const TEN_KEYS: &str = "keys-10";
