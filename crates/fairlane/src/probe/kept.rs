//! What was measured of a disk, kept in a small text file beside the data, `disk-speed`:
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
//! The first line is as above; lines that begin with `#` are for people; each of the five lines is there once, in any order, a whole
//! number above zero. Bandwidth is in bytes a second in requests of 128 KiB, operations are of 4 KiB, a second, and the latency is that of
//! a read of 4 KiB with nothing else under way. Version 1 has no latency: it is estimated, as much too long, until `fairlane probe-disk` measures it
//! (`sched::disk`). A version that is not known, like anything else that is odd, is refused rather than guessed at.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sched::DiskSpeed;

use crate::folder;

const HEADER: &str = "fairlane disk speed, version 2";
const HEADER_1: &str = "fairlane disk speed, version 1";
/// A file much longer than this is not ours, bytes.
const LEN_MAX: u64 = 4096;

/// The five numbers by name.
pub(super) const NAMES: [&str; 5] =
    ["read_bandwidth", "write_bandwidth", "read_ops", "write_ops", "read_latency_ns"];

/// Where the latency is among them.
const LATENCY: usize = 4;

/// Their values in the same order.
pub(super) fn values(speed: &DiskSpeed) -> [u64; 5] {
    [speed.read_bandwidth, speed.write_bandwidth, speed.read_ops, speed.write_ops, speed.read_latency_ns]
}

/// The other way round.
pub(super) fn speed(values: [u64; 5]) -> DiskSpeed {
    let [read_bandwidth, write_bandwidth, read_ops, write_ops, read_latency_ns] = values;
    DiskSpeed { read_bandwidth, write_bandwidth, read_ops, write_ops, read_latency_ns }
}

/// Where it is kept.
pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join("disk-speed")
}

/// What is kept in the folder, if anything is.
///
/// # Errors
/// One sentence: there is something that cannot be used.
pub(super) fn read(folder: &Path) -> Result<Option<DiskSpeed>, String> {
    let path = file(folder);
    let refused =
        |what: String| format!("{} {what}: remove it, or run `fairlane probe-disk`", path.display());
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > LEN_MAX => return Err(refused("is not a disk's speed".into())),
        _ => {}
    }
    let text =
        std::fs::read_to_string(&path).map_err(|error| refused(format!("cannot be read ({error})")))?;
    parse(&text).map(Some).map_err(refused)
}

/// Keeps what was measured; `how` is for people.
///
/// # Errors
/// One sentence.
pub(super) fn write(folder: &Path, speed: &DiskSpeed, how: &str) -> Result<(), String> {
    folder::replace(&file(folder), &print(speed, how), 0o600)
}

fn print(speed: &DiskSpeed, how: &str) -> String {
    let mut text = format!("{HEADER}\n# {how}\n");
    for (name, value) in NAMES.iter().zip(values(speed)) {
        text.push_str(&format!("{name} = {value}\n"));
    }
    text
}

fn parse(text: &str) -> Result<DiskSpeed, String> {
    let mut lines = text.lines();
    let mut found = [0; NAMES.len()];
    let mut names = &NAMES[..];
    match lines.next() {
        Some(HEADER) => {}
        Some(HEADER_1) => names = &NAMES[..LATENCY],
        _ => return Err(format!("does not begin with `{HEADER}`")),
    }
    for line in lines.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let odd = || format!("has an odd line, `{line}`");
        let (name, value) = line.split_once('=').ok_or_else(odd)?;
        let at = names.iter().position(|known| *known == name.trim()).ok_or_else(odd)?;
        let value = value.trim().parse::<u64>().ok().filter(|value| *value > 0).ok_or_else(odd)?;
        if std::mem::replace(&mut found[at], value) != 0 {
            return Err(odd());
        }
    }
    match found[..names.len()].iter().position(|value| *value == 0) {
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
    fn what_is_written_is_read() {
        assert_eq!(parse(&print(&SPEED, "measured")), Ok(SPEED));
        let shuffled = "\n\nwrite_ops=4\n read_ops = 3\n# x\nwrite_bandwidth = 2\nread_bandwidth = 1\n";
        assert_eq!(parse(&format!("{HEADER}{shuffled}read_latency_ns = 5")), Ok(speed([1, 2, 3, 4, 5])));
        assert_eq!(parse(&format!("{HEADER_1}{shuffled}")), Ok(speed([1, 2, 3, 4, 0])));
    }

    #[test]
    fn what_is_odd_is_refused() {
        let good = print(&SPEED, "measured");
        let cases = [
            (String::new(), "begin with"),
            (good.replace("version 2", "version 3"), "begin with"),
            (good.replace("version 2", "version 1"), "odd line, `read_latency_ns = 91`"),
            (good.replace("read_ops = 7\n", ""), "has no read_ops"),
            (good.replace("= 7", "= 0"), "odd line, `read_ops = 0`"),
            (good.replace("= 7", "= many"), "odd line"),
            (good.replace("= 7", "= 99999999999999999999999"), "odd line"),
            (good.replace("read_ops", "reads"), "odd line, `reads = 7`"),
            (format!("{good}read_ops = 7\n"), "odd line"),
            (format!("{good}what?\n"), "odd line"),
        ];
        for (text, expected) in cases {
            let reason = parse(&text).expect_err(&text);
            assert!(reason.contains(expected), "{reason}");
        }
    }
}
