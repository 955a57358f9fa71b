//! The file `disk-speed` of the data folder: the measured speed of the disk.
//!
//! ```text
//!   fairlane disk speed, version 2
//!   # measured by fairlane probe-disk: …
//!   read_bandwidth = 1987000000
//!   write_bandwidth = 1210000000
//!   read_ops = 151000
//!   write_ops = 98000
//!   read_latency_ns = 91000
//! ```
//!
//! The first line is fixed. Lines that begin with `#` are comments. Each of the five values is
//! present once, in any order, and is a whole number above zero:
//!
//! - Bandwidth: bytes a second, in requests of 128 KiB.
//! - Operations: requests of 4 KiB a second.
//! - Latency: ns of a read of 4 KiB on an idle disk.
//!
//! Version 1 has no latency. `sched::disk` then uses an estimate that is much too long, until
//! `fairlane probe-disk` measures it. Unknown versions and invalid lines are errors.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sched::DiskSpeed;

use crate::folder;

const HEADER: &str = "fairlane disk speed, version 2";
/// Upper bound of the length of the file, bytes. Real ones have about 200.
const LEN_MAX: u64 = 4096;

/// Names of the five values.
pub(super) const NAMES: [&str; 5] =
    ["read_bandwidth", "write_bandwidth", "read_ops", "write_ops", "read_latency_ns"];

/// Returns the values in the order of [`NAMES`].
pub(super) fn values(speed: &DiskSpeed) -> [u64; 5] {
    [speed.read_bandwidth, speed.write_bandwidth, speed.read_ops, speed.write_ops, speed.read_latency_ns]
}

/// Returns the speed with values in the order of [`NAMES`].
pub(super) fn speed(values: [u64; 5]) -> DiskSpeed {
    let [read_bandwidth, write_bandwidth, read_ops, write_ops, read_latency_ns] = values;
    DiskSpeed { read_bandwidth, write_bandwidth, read_ops, write_ops, read_latency_ns }
}

/// Returns the path of the file.
pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join("disk-speed")
}

/// Reads the file of a data folder. `None`: there is none.
///
/// # Errors
/// The file cannot be read or is invalid. Without a full stop.
pub(super) fn read(folder: &Path) -> Result<Option<DiskSpeed>, String> {
    let path = file(folder);
    let refused =
        |fault: String| format!("{} {fault}: remove it, or run `fairlane probe-disk`", path.display());
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > LEN_MAX => return Err(refused("is too long".into())),
        _ => {}
    }
    let text =
        std::fs::read_to_string(&path).map_err(|error| refused(format!("cannot be read ({error})")))?;
    parse(&text).map(Some).map_err(refused)
}

/// Writes the file. `comment` explains the origin of the values.
///
/// # Errors
/// One sentence: the file cannot be written.
pub(super) fn write(folder: &Path, speed: &DiskSpeed, comment: &str) -> Result<(), String> {
    folder::replace(&file(folder), &print(speed, comment), 0o600)
}

fn print(speed: &DiskSpeed, comment: &str) -> String {
    let mut text = format!("{HEADER}\n# {comment}\n");
    for (name, value) in NAMES.iter().zip(values(speed)) {
        text.push_str(&format!("{name} = {value}\n"));
    }
    text
}

fn parse(text: &str) -> Result<DiskSpeed, String> {
    let mut lines = text.lines();
    let mut found = [0; NAMES.len()];
    if lines.next() != Some(HEADER) {
        return Err(format!("does not begin with `{HEADER}`"));
    }
    for line in lines.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let invalid = || format!("has the invalid line `{line}`");
        let (name, value) = line.split_once('=').ok_or_else(invalid)?;
        let at = NAMES.iter().position(|known| *known == name.trim()).ok_or_else(invalid)?;
        let value = value.trim().parse::<u64>().ok().filter(|value| *value > 0).ok_or_else(invalid)?;
        if std::mem::replace(&mut found[at], value) != 0 {
            return Err(invalid());
        }
    }
    match found.iter().position(|value| *value == 0) {
        None => Ok(speed(found)),
        Some(missing) => Err(format!("has no {}", NAMES[missing])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEED: DiskSpeed = DiskSpeed {
        read_bandwidth: 1_987_000_000,
        write_bandwidth: 5,
        read_ops: 7,
        write_ops: u64::MAX,
        read_latency_ns: 91,
    };

    #[test]
    fn printed_speed_is_parsed() {
        assert_eq!(parse(&print(&SPEED, "measured")), Ok(SPEED));
        let shuffled = "\n\nwrite_ops=4\n read_ops = 3\n# x\nwrite_bandwidth = 2\nread_bandwidth = 1\n";
        assert_eq!(parse(&format!("{HEADER}{shuffled}read_latency_ns = 5")), Ok(speed([1, 2, 3, 4, 5])));
    }

    #[test]
    fn invalid_file_is_refused() {
        let good = print(&SPEED, "measured");
        let cases = [
            (String::new(), "begin with"),
            (good.replace("version 2", "version 3"), "begin with"),
            (good.replace("version 2", "version 1"), "begin with"),
            (good.replace("read_ops = 7\n", ""), "has no read_ops"),
            (good.replace("= 7", "= 0"), "invalid line `read_ops = 0`"),
            (good.replace("= 7", "= many"), "invalid line"),
            (good.replace("= 7", "= 99999999999999999999999"), "invalid line"),
            (good.replace("read_ops", "reads"), "invalid line `reads = 7`"),
            (format!("{good}read_ops = 7\n"), "invalid line"),
            (format!("{good}what?\n"), "invalid line"),
        ];
        for (text, expected) in cases {
            let reason = parse(&text).expect_err(&text);
            assert!(reason.contains(expected), "{reason}");
        }
    }
}
