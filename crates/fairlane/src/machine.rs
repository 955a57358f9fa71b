//! Resources of this process and their limits in the settings: CPUs, memory, open files.

use frontdoor::{CLOSING_MAX, Limits};
use lanes::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use storage::StorageOptions;

use crate::settings::{Cpus, REQUEST_MEMORY_BYTES_MIN, Settings};

/// Returns the configuration of the lanes: the detected one, with the settings applied.
///
/// # Errors
/// One sentence: the settings specify CPUs that the process may not use.
pub(crate) fn lanes(settings: &Settings) -> Result<Config, String> {
    let mut config = Config::detect();
    config.pin = !settings.overprovisioned;
    config.disk_dir = Some(settings.data_dir.clone());
    match &settings.cores {
        Cpus::Auto => {}
        // Without pinning, cores are threads without a CPU, so that their number is free.
        Cpus::Count(count) if settings.overprovisioned => config.cores = (0..*count).collect(),
        Cpus::Count(count) => {
            let all = all_cpus();
            if *count > all.len() {
                return Err(format!(
                    "--cores: expected at most {} CPUs, got {count}: lower it, or add --overprovisioned.",
                    all.len()
                ));
            }
            config.cores = all.into_iter().take(*count).collect();
        }
        Cpus::List(list) => {
            let all = all_cpus();
            if let Some(missing) = list.iter().find(|cpu| !all.contains(cpu)).filter(|_| config.pin) {
                return Err(format!(
                    "--cores: expected CPUs out of {all:?}, which this process may use, got {missing}."
                ));
            }
            config.cores = list.clone();
        }
    }
    Ok(config)
}

/// Returns the CPUs of the process's affinity mask. The quota of its cgroup does not matter.
fn all_cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Returns the memory that this process may use, bytes: the smaller of the machine's and its
/// cgroup's (version 2 or 1).
pub(crate) fn memory_bytes() -> u64 {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")).and_then(kib);
    let limits =
        [number("/sys/fs/cgroup/memory.max"), number("/sys/fs/cgroup/memory/memory.limit_in_bytes"), total];
    // A machine without these files is assumed to be small.
    limits.into_iter().flatten().min().unwrap_or(1 << 30)
}

/// Parses `  16384 kB`, and returns bytes.
fn kib(text: &str) -> Option<u64> {
    text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Bounds of the size of log segments, bytes. A segment is zeroed once: larger ones take longer to
/// prepare, and smaller ones are prepared more often.
const SEGMENT_BYTES_MIN: u64 = 128 << 10;
const SEGMENT_BYTES_MAX: u64 = 32 << 20;

/// Upper bound of a memtable of a shard, bytes. Every row of a memtable is then smaller than the
/// largest row of a table file (1 GiB, 2^26 elements of one column), so that a flush can write it.
const MEMTABLE_BYTES_MAX: usize = 256 << 20;

/// Sets the sizes of memtables, log segments and cache of one shard.
///
/// Up to three memtables exist at once, so that 1/16 of the memory each is 3/16. The cache has 1/4.
/// The rest is for queries, requests, connections and the allocator. `memtables_bytes` replaces the
/// 3/16.
pub(crate) fn size(options: &mut StorageOptions, memory_bytes: u64, memtables_bytes: Option<u64>) {
    let own = (memory_bytes / u64::from(options.shards)) as usize;
    options.memtable_bytes_max = (own / 16).clamp(4 << 20, MEMTABLE_BYTES_MAX);
    if let Some(bytes) = memtables_bytes {
        let own = (bytes / 3 / u64::from(options.shards)) as usize;
        options.memtable_bytes_max = own.clamp(1 << 20, MEMTABLE_BYTES_MAX);
    }
    options.cache_bytes = (own / 4).max(8 << 20);
    // Eight segments for each memtable keep the log below the size of four memtables.
    options.segment_bytes =
        (options.memtable_bytes_max as u64 / 8).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
    options.segment_bytes = options.segment_bytes.next_multiple_of(SEGMENT_BYTES_MIN);
}

/// Returns the memory for queries, bytes: 3/8 of the server's memory, beside 1/4 for the cache and
/// 3/16 for memtables.
pub(crate) fn query_memory(memory_bytes: u64) -> u64 {
    memory_bytes / 8 * 3
}

/// Returns the memory for large and waiting requests, bytes: 1/16 of the server's memory.
pub(crate) fn request_memory(memory_bytes: u64) -> u64 {
    (memory_bytes / 16).max(REQUEST_MEMORY_BYTES_MIN)
}

/// Returns the most rows in hand of the reads of several rows on one core, bytes: 1/16 of the
/// server's memory for all cores.
pub(crate) fn read_memory(memory_bytes: u64, cores: usize) -> usize {
    (memory_bytes / 16) as usize / cores
}

/// Returns the most memory that the definitions of all keyspaces, tables and types may take, bytes.
pub(crate) fn schema_memory(memory_bytes: u64) -> u64 {
    (memory_bytes / 16).max(DEFINITION_BYTES_MIN)
}

/// Returns the most memory that all roles, grants and service levels may take, bytes.
pub(crate) fn roles_memory(memory_bytes: u64) -> u64 {
    (memory_bytes / 32).max(DEFINITION_BYTES_MIN)
}

/// Least memory for definitions of one kind, bytes.
const DEFINITION_BYTES_MIN: u64 = 16 << 20;

/// Returns the memory for prepared statements of one core, bytes. Every core has all of them, so
/// that it does not depend on the number of cores.
pub(crate) fn prepared_memory(memory_bytes: u64) -> usize {
    (memory_bytes / 128).clamp(8 << 20, 256 << 20) as usize
}

/// Recommended limit of open files: 16,384 connections, and files of tables.
const FILES_WANTED: u64 = 65_536;

/// Sockets of the HTTP listener, with those that are being closed.
const HTTP_SOCKETS_MAX: usize = 64 + CLOSING_MAX;
/// Least sockets of the other listeners: administrators must get in, whatever the limit.
const SOCKETS_MIN: usize = 16;

/// Files that a server has open before its first client: standard streams, listeners and signals;
/// on each core a poller, wakers, timers, the ring, a lock, log segments, and a few files of
/// tables.
const FILES_MIN: u64 = 32;
const FILES_MIN_PER_CORE: u64 = 24;

/// Raises the limit of open files as far as allowed. Returns a warning if the limit is low.
///
/// # Errors
/// One sentence: the limit is too low to start.
pub(crate) fn raise_file_limit(cores: usize) -> Result<Option<String>, String> {
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: now.maximum, maximum: now.maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => now.maximum,
        Err(_) => now.current,
    };
    judge_file_limit(limit.unwrap_or(u64::MAX), cores)
}

/// Returns the most sockets of all listeners together, with `limit` files that may be open, of
/// which `open` are after the start. Half of the rest is for tables, logs and spills to come, with
/// at least as many as a start needs.
pub(crate) fn sockets_max(limit: u64, open: u64, cores: usize) -> usize {
    let growth = FILES_MIN + FILES_MIN_PER_CORE * cores as u64;
    let left = limit.saturating_sub(open);
    usize::try_from((left / 2).min(left.saturating_sub(growth))).unwrap_or(usize::MAX)
}

/// Returns the number of files that this process has open, or that of a start if `/proc` is not
/// mounted.
pub(crate) fn open_files(cores: usize) -> u64 {
    let listed = std::fs::read_dir("/proc/self/fd").map(|files| files.count() as u64);
    listed.unwrap_or(FILES_MIN + FILES_MIN_PER_CORE * cores as u64)
}

/// Reduces the limits of the listeners for CQL and SQL to `sockets` sockets of all listeners, each
/// in proportion. Returns true if they were reduced.
pub(crate) fn share_sockets(sockets: usize, cql: &mut Limits, sql: Option<&mut Limits>) -> bool {
    let mut none = Limits { sessions_max: 0, reserved_max: 0, logins_max: 0, ..*cql };
    let has_sql = sql.is_some();
    let sql = sql.unwrap_or(&mut none);
    let beside = HTTP_SOCKETS_MAX + CLOSING_MAX * (1 + usize::from(has_sql));
    let wanted = cql.sockets_max() + sql.sockets_max();
    let left = sockets.saturating_sub(beside).max(SOCKETS_MIN);
    if wanted <= left {
        return false;
    }
    let of_cql = (left as u128 * cql.sockets_max() as u128 / wanted as u128) as usize;
    (*cql, *sql) = (cql.within(of_cql), sql.within(left - of_cql));
    true
}

/// Checks a limit of open files, as [`raise_file_limit`] does.
fn judge_file_limit(files: u64, cores: usize) -> Result<Option<String>, String> {
    let raise = format!("raise it with `ulimit -n {FILES_WANTED}` or LimitNOFILE=");
    let needed = FILES_MIN + FILES_MIN_PER_CORE * cores as u64;
    if files < needed {
        return Err(format!("only {files} files may be open at once, and a start takes {needed}: {raise}."));
    }
    let few = format!("only {files} files may be open at once; {raise} before many clients connect");
    Ok((files < FILES_WANTED).then_some(few))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_detected_and_divided() {
        assert_eq!(kib("   16384 kB"), Some(16 << 20));
        assert_eq!(kib("many"), None);
        assert!(memory_bytes() > 0);
        let mut options = StorageOptions { shards: 4, ..StorageOptions::in_memory() };
        size(&mut options, 4 << 30, None);
        assert_eq!((options.memtable_bytes_max, options.cache_bytes), (64 << 20, 256 << 20));
        assert_eq!(options.segment_bytes, 8 << 20);
        size(&mut options, 64 << 20, None);
        assert_eq!((options.memtable_bytes_max, options.cache_bytes), (4 << 20, 8 << 20));
        size(&mut options, 64 << 20, Some(960 << 20));
        assert_eq!((options.memtable_bytes_max, options.cache_bytes), (80 << 20, 8 << 20));
        size(&mut options, 64 << 20, Some(96 << 30));
        assert_eq!(options.memtable_bytes_max, 256 << 20);
        size(&mut options, 64 << 30, None);
        assert_eq!((options.memtable_bytes_max, options.segment_bytes), (256 << 20, 32 << 20));
    }

    #[test]
    fn low_file_limit_is_a_warning_or_refused() {
        assert_eq!(judge_file_limit(u64::MAX, 64), Ok(None));
        assert!(judge_file_limit(1024, 2).expect("enough").expect("few").contains("ulimit -n 65536"));
        assert!(judge_file_limit(79, 2).expect_err("too few").contains("a start takes 80"));
    }

    #[test]
    fn sockets_of_all_listeners_leave_descriptors_for_files() {
        for (limit, open, cores) in [(u64::MAX, 100, 2), (65_536, 2_000, 16), (1024, 90, 2), (300, 80, 1)] {
            let (mut cql, mut sql) = (Limits::of_sessions(16_384), Limits::of_sessions(1024));
            let sockets = sockets_max(limit, open, cores);
            share_sockets(sockets, &mut cql, Some(&mut sql));
            let all = cql.sockets_max() + sql.sockets_max() + HTTP_SOCKETS_MAX + 2 * CLOSING_MAX;
            assert!(all as u64 <= (limit - open) / 2 || sockets < all && limit < 512, "{limit}: {all}");
            assert!(cql.reserved_max > 0 && sql.logins_max > 0, "{limit}: {cql:?} {sql:?}");
            if limit >= 65_536 {
                assert_eq!(cql, Limits::of_sessions(16_384), "{limit}");
            }
        }
    }

    #[test]
    fn cores_follow_the_setting() {
        let one = Settings { cores: Cpus::Count(1), ..Settings::default() };
        assert_eq!(lanes(&one).expect("one CPU is there").cores.len(), 1);
        let many = Settings { cores: Cpus::Count(1000), ..Settings::default() };
        assert!(lanes(&many).expect_err("too many").contains("--overprovisioned"));
        let shared = Settings { overprovisioned: true, ..many };
        let config = lanes(&shared).expect("any number of threads");
        assert_eq!((config.cores.len(), config.pin), (1000, false));
    }
}
