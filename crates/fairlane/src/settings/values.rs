//! How the values of settings are written, with an error that says what was expected.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use server::logging::Format;
use std::time::Duration;
use storage::CommitMode;

use super::table::Cores;

pub(crate) fn put<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

/// None for one word, else a value.
pub(crate) fn unless<T>(
    word: &str,
    text: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if text == word { Ok(None) } else { read(text).map(Some) }
}

pub(crate) fn folder(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("a folder is wanted".into()) } else { Ok(text.into()) }
}

pub(crate) fn file(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("a file is wanted".into()) } else { Ok(text.into()) }
}

pub(crate) fn name(text: &str) -> Result<String, String> {
    let fits = !text.is_empty() && text.len() <= 128 && !text.contains(char::is_control);
    if fits { Ok(text.into()) } else { Err("a name of 1 to 128 bytes is wanted".into()) }
}

/// An address, or the first that a host's name stands for.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let wanted = || "an address and port is wanted, such as 127.0.0.1:9042".to_string();
    let mut found = text.to_socket_addrs().map_err(|_| wanted())?;
    found.next().ok_or_else(wanted)
}

pub(crate) fn switch(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "true or false is wanted".into())
}

pub(crate) fn number<T: TryFrom<u64>>(text: &str, min: u64, max: u64) -> Result<T, String> {
    let found = text.parse::<u64>().ok().filter(|n| (min..=max).contains(n));
    found
        .and_then(|n| T::try_from(n).ok())
        .ok_or_else(|| format!("a whole number from {min} to {max} is wanted"))
}

pub(crate) fn cores(text: &str) -> Result<Cores, String> {
    let wanted = || "a number of CPUs, or a list such as 0,2-3, is wanted".to_string();
    if text == "auto" {
        return Ok(Cores::Auto);
    }
    // No count is 0, so that is the CPU of this number; any other CPU alone is written with a comma behind it.
    if !text.contains([',', '-']) && text != "0" {
        return number(text, 1, 1024).map(Cores::Count).map_err(|_| wanted());
    }
    let mut list = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let cpu = |text: &str| number::<usize>(text, 0, 4095).map_err(|_| wanted());
        list.extend(cpu(first)?..=cpu(last)?);
    }
    list.sort_unstable();
    list.dedup();
    if list.is_empty() { Err(wanted()) } else { Ok(Cores::List(list)) }
}

/// The least memory that leaves room for memtables at all.
pub(crate) const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// The least memory that leaves room for one request of the largest kind.
pub(crate) const REQUEST_MEMORY_BYTES_MIN: u64 = 48 << 20;

/// The least memory that leaves room for a small query.
pub(crate) const QUERY_MEMORY_BYTES_MIN: u64 = 1 << 20;

/// A size of at least `min`, which people call `least`.
pub(crate) fn bytes(text: &str, least: &str, min: u64) -> Result<u64, String> {
    const UNITS: [(&str, u64); 8] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ];
    let split = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?.trim_end(), *factor)));
    let (digits, factor) = split.unwrap_or((text, 1));
    let found = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
    let wanted = || format!("a size of at least {least} is wanted, such as 8GiB or 500MB");
    found.filter(|bytes| *bytes >= min).ok_or_else(wanted)
}

pub(crate) fn guardrails(text: &str) -> Result<String, String> {
    engine::Guardrails::default().set_all(text).map(|()| text.to_owned())
}

pub(crate) fn first_start(text: &str) -> Result<bool, String> {
    match text {
        "first-start" => Ok(true),
        "off" => Ok(false),
        _ => Err("first-start or off is wanted".into()),
    }
}

/// Zero for `auto`.
pub(crate) fn or_zero(text: &str, read: impl FnOnce(&str) -> Result<u64, String>) -> Result<u64, String> {
    Ok(unless("auto", text, read)?.unwrap_or(0))
}

/// What `commit` says.
pub(crate) fn commit(text: &str) -> Result<CommitMode, String> {
    if text == "batch" {
        return Ok(CommitMode::Batch);
    }
    let ms = text.strip_prefix("periodic:").and_then(|ms| number(ms, 1, 60_000).ok());
    let every = ms.map(Duration::from_millis);
    every
        .map(|every| CommitMode::Periodic { every })
        .ok_or_else(|| "batch, or periodic: and 1 to 60000 ms, such as periodic:10, is wanted".into())
}

/// Reads the statements before which a snapshot is made: DROP, and TRUNCATE.
pub(crate) fn auto_snapshot(text: &str) -> Result<(bool, bool), String> {
    match text {
        "off" => Ok((false, false)),
        "drop" => Ok((true, false)),
        "drop,truncate" => Ok((true, true)),
        _ => Err("off, drop, or drop,truncate is wanted".into()),
    }
}

pub(crate) fn format(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err("text or json is wanted".into()),
    }
}

/// A time of at most a year.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    number(text, 1, 31_536_000).map(Duration::from_secs)
}

/// Host names with commas between them; none for `off`.
pub(crate) fn names(text: &str) -> Result<Vec<String>, String> {
    if text == "off" {
        return Ok(Vec::new());
    }
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    let fits = |name: &String| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    if names.iter().all(fits) {
        Ok(names)
    } else {
        Err("host names without a port are wanted, such as db.example".into())
    }
}
