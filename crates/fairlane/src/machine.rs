//! What this process was given and how settings change it: CPUs, memory, open files.

use lanes::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use storage::Options;

use crate::settings::{Cores, Settings};

/// The lanes' layout: what was found, unless settings say otherwise.
///
/// # Errors
/// A sentence when CPUs are asked for that are not there to be had.
pub(crate) fn lanes(settings: &Settings) -> Result<Config, String> {
    let mut config = Config::detect();
    config.pin = !settings.overprovisioned;
    config.disk_dir = Some(settings.data_dir.clone());
    match &settings.cores {
        Cores::Auto => {}
        // Without pinning a core is only a number of threads, so there may be any number of them.
        Cores::Count(count) if settings.overprovisioned => config.cores = (0..*count).collect(),
        Cores::Count(count) => {
            let all: Vec<usize> = all_cpus();
            if *count > all.len() {
                return Err(format!(
                    "--cores {count} is more than the {} CPUs this process may use; ask for fewer, or add --overprovisioned.",
                    all.len()
                ));
            }
            config.cores = all.into_iter().take(*count).collect();
        }
        Cores::List(list) => {
            let all = all_cpus();
            if let Some(missing) = list.iter().find(|cpu| !all.contains(cpu)).filter(|_| config.pin) {
                return Err(format!("--cores names CPU {missing}, but this process may use only {all:?}."));
            }
            config.cores = list.clone();
        }
    }
    Ok(config)
}

/// Every CPU of the process's set, whatever the cgroup's quota.
fn all_cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Memory that this process may use, bytes: the least of the machine's and its cgroup's (v2 and v1).
pub(crate) fn memory_bytes() -> u64 {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")).and_then(kib);
    let limits =
        [number("/sys/fs/cgroup/memory.max"), number("/sys/fs/cgroup/memory/memory.limit_in_bytes"), total];
    // A machine that says nothing is taken for a small one.
    limits.into_iter().flatten().min().unwrap_or(1 << 30)
}

/// `  16384 kB` in bytes.
fn kib(text: &str) -> Option<u64> {
    text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The sizes of log segments in bytes: each is zeroed once, so larger ones take longer to prepare, and smaller ones are prepared
/// more often.
const SEGMENT_BYTES_MIN: u64 = 128 << 10;
const SEGMENT_BYTES_MAX: u64 = 32 << 20;

/// The largest memtable of a shard, bytes. A row of a memtable is then well below what a table file
/// holds (1 GiB or 2^26 elements of one column), so that a flush never meets one that it cannot write.
const MEMTABLE_BYTES_MAX: usize = 256 << 20;

/// Sizes memtables, log segments and cache of one shard by the memory it may have.
///
/// Up to three memtables exist at once, so a sixteenth each is under a fifth together; a quarter is cache. The rest is for
/// connections, requests and what the allocator keeps. `memtables_bytes` is another size of all memtables together.
pub(crate) fn size(options: &mut Options, memory_bytes: u64, memtables_bytes: Option<u64>) {
    let own = (memory_bytes / u64::from(options.shards)) as usize;
    options.memtable_bytes_max = (own / 16).clamp(4 << 20, MEMTABLE_BYTES_MAX);
    if let Some(bytes) = memtables_bytes {
        let own = (bytes / 3 / u64::from(options.shards)) as usize;
        options.memtable_bytes_max = own.clamp(1 << 20, MEMTABLE_BYTES_MAX);
    }
    options.cache_bytes = (own / 4).max(8 << 20);
    // The log is then under four memtables.
    options.segment_bytes =
        (options.memtable_bytes_max as u64 / 8).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
    options.segment_bytes = options.segment_bytes.next_multiple_of(SEGMENT_BYTES_MIN);
}

/// What queries may compute with, of the memory that the server may have: three eighths, beside the quarter for the cache and the
/// fifth for memtables.
pub(crate) fn query_memory(memory_bytes: u64) -> u64 {
    memory_bytes / 8 * 3
}

/// Memory for CQL requests that are large or wait, of the memory that the server may have.
pub(crate) fn request_memory(memory_bytes: u64) -> u64 {
    (memory_bytes / 16).max(crate::settings::REQUEST_MEMORY_BYTES_MIN)
}

/// Memory for prepared statements on each core: as they are kept on every core, more cores make it no larger in all.
pub(crate) fn prepared_memory(memory_bytes: u64) -> usize {
    (memory_bytes / 128).clamp(8 << 20, 256 << 20) as usize
}

/// Under this many open files a busy server runs out: 16,384 connections, and files of tables.
const FILES_WANTED: u64 = 65_536;

/// What a server has open before its first client: standard streams, doors and signals; on each core a poller, wakers,
/// timers, the ring, a lock, log segments, and a few files of tables.
const FILES_MIN: u64 = 32;
const FILES_MIN_PER_CORE: u64 = 24;

/// Raises the limit on open files as far as allowed; a warning when that is low.
///
/// # Errors
/// One sentence, when it is too low to begin with.
pub(crate) fn raise_file_limit(cores: usize) -> Result<Option<String>, String> {
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: now.maximum, maximum: now.maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => now.maximum,
        Err(_) => now.current,
    };
    judge_file_limit(limit.unwrap_or(u64::MAX), cores)
}

fn judge_file_limit(files: u64, cores: usize) -> Result<Option<String>, String> {
    let raise = format!("raise it with `ulimit -n {FILES_WANTED}` or LimitNOFILE=");
    let needed = FILES_MIN + FILES_MIN_PER_CORE * cores as u64;
    if files < needed {
        return Err(format!("Only {files} files may be open at once, and a start takes {needed}: {raise}."));
    }
    let few = format!("only {files} files may be open at once; {raise} before many clients connect");
    Ok((files < FILES_WANTED).then_some(few))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_and_shared_out() {
        assert_eq!(kib("   16384 kB"), Some(16 << 20));
        assert_eq!(kib("many"), None);
        assert!(memory_bytes() > 0);
        let mut options = Options { shards: 4, ..Options::in_memory() };
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
    fn few_files_are_warned_of_and_too_few_refused() {
        assert_eq!(judge_file_limit(u64::MAX, 64), Ok(None));
        assert!(judge_file_limit(1024, 2).expect("enough").expect("few").contains("ulimit -n 65536"));
        assert!(judge_file_limit(79, 2).expect_err("too few").contains("a start takes 80"));
    }

    #[test]
    fn cores_are_those_asked_for() {
        let one = Settings { cores: Cores::Count(1), ..Settings::default() };
        assert_eq!(lanes(&one).expect("one CPU is there").cores.len(), 1);
        let many = Settings { cores: Cores::Count(1000), ..Settings::default() };
        assert!(lanes(&many).expect_err("too many").contains("--overprovisioned"));
        let shared = Settings { overprovisioned: true, ..many };
        let config = lanes(&shared).expect("any number of threads");
        assert_eq!((config.cores.len(), config.pin), (1000, false));
    }
}
