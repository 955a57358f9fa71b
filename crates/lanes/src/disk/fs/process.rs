//! Use of memory, CPU and descriptors by this process, as `/proc` shows it.

use std::fs;
use std::io;

use crate::memory::resident_pages;
use crate::sys;

/// Use of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUse {
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// CPU time of all threads, ns.
    pub cpu_ns: u64,
    /// Open descriptors.
    pub open_files: u64,
    /// Start of the process, seconds since the Unix epoch, to a hundredth.
    pub started_s: f64,
}

/// Reads the use. It blocks, so it is for threads of the pool.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
pub(crate) fn read() -> io::Result<ProcessUse> {
    let missing = || io::Error::from(io::ErrorKind::InvalidData);
    let resident = resident_pages(&fs::read("/proc/self/statm")?).ok_or_else(missing)?;
    let since_boot = started_ticks(&fs::read_to_string("/proc/self/stat")?).ok_or_else(missing)?;
    let booted_s = booted_s(&fs::read_to_string("/proc/stat")?).ok_or_else(missing)?;
    // The listing itself has one.
    let open_files = (fs::read_dir("/proc/self/fd")?.count() as u64).saturating_sub(1);
    Ok(ProcessUse {
        resident_bytes: resident * sys::page_bytes(),
        cpu_ns: sys::process_cpu_ns(),
        open_files,
        started_s: booted_s as f64 + since_boot as f64 / sys::ticks_per_second() as f64,
    })
}

/// Returns the start of the process after that of the machine, in clock ticks: the 22nd field of
/// `/proc/self/stat`. The second one is a name in parentheses, which may contain any character.
fn started_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Returns the start of the machine from `/proc/stat`, seconds since the Unix epoch.
fn booted_s(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_of_this_process_is_read() {
        let before = read().expect("procfs");
        let after = read().expect("procfs");
        assert!(before.resident_bytes > 1 << 20 && before.open_files >= 3, "{before:?}");
        assert_eq!(before.started_s, after.started_s);
        let now_s = crate::time::unix_micros() as f64 / 1e6;
        // A clock may have been set since the machine started.
        assert!(before.started_s > 1e9 && before.started_s < now_s + 3600.0, "{before:?}, now {now_s}");
    }

    #[test]
    fn name_of_the_process_may_contain_anything() {
        let fields: Vec<String> = (3..=30).map(|field| field.to_string()).collect();
        assert_eq!(started_ticks(&format!("1 (a) b (c) {}", fields.join(" "))), Some(22));
        assert_eq!(started_ticks("1 (a"), None);
        assert_eq!(booted_s("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000));
    }
}
