//! Parsers of the values of settings. An error is the expected form; the caller writes "expected …,
//! got …" around it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use server::logging::Format;
use storage::CommitMode;
use workload::{DefaultLimit, LEVEL_IN_FLIGHT_MAX};

/// The CPUs to run on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cpus {
    /// All CPUs that the process may use.
    Auto,
    /// The first ones of them, by number.
    Count(usize),
    /// The CPUs with these numbers.
    List(Vec<usize>),
}

/// Where the data is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EngineKind {
    /// In the data folder.
    Embedded,
    /// In the nodes of a cluster.
    Cluster,
}

pub(crate) fn engine_kind(text: &str) -> Result<EngineKind, String> {
    match text {
        "embedded" => Ok(EngineKind::Embedded),
        "cluster" => Ok(EngineKind::Cluster),
        _ => Err("embedded or cluster".into()),
    }
}

/// Parses whether drivers find the other servers in front of a cluster.
pub(crate) fn shows_peers(text: &str) -> Result<bool, String> {
    match text {
        "fleet" => Ok(true),
        "none" => Ok(false),
        _ => Err("fleet or none".into()),
    }
}

/// Parses addresses of nodes. A host may have several addresses: the first counts.
pub(crate) fn contacts(text: &str) -> Result<Vec<SocketAddr>, String> {
    let with_port = |host: &str| match host.parse::<std::net::IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, 9042).to_string(),
        Err(_) if host.contains(':') => host.to_owned(),
        Err(_) => format!("{host}:9042"),
    };
    let expected = || "addresses of nodes, HOST or HOST:PORT, separated by commas".to_owned();
    let one = |host: &str| {
        let found = with_port(host.trim()).to_socket_addrs().ok().and_then(|mut found| found.next());
        found.ok_or_else(expected)
    };
    text.split(',').map(one).collect()
}

/// Speed of the disk that settings specify, in the order of `DiskSpeed`: bandwidth of reads and
/// writes in bytes a second, operations a second of reads and writes, latency of a read in ns.
/// 0: not specified.
pub(crate) type DiskSpeedGiven = [u64; 5];

/// Stores a value in the field of its setting.
pub(crate) fn put<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

/// Parses a value. `None`: the text is `word`.
pub(crate) fn unless<T>(
    word: &str,
    text: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if text == word { Ok(None) } else { read(text).map(Some) }
}

/// Parses the limit of service levels without `max_concurrency`.
pub(crate) fn default_limit(text: &str) -> Result<DefaultLimit, String> {
    match text {
        "auto" => Ok(DefaultLimit::Auto),
        "off" => Ok(DefaultLimit::Off),
        _ => number(text, 1, LEVEL_IN_FLIGHT_MAX.into())
            .map(DefaultLimit::Statements)
            .map_err(|expected| format!("auto, off, or {expected}")),
    }
}

pub(crate) fn folder(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("a folder".into()) } else { Ok(text.into()) }
}

pub(crate) fn file(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("a file".into()) } else { Ok(text.into()) }
}

pub(crate) fn name(text: &str) -> Result<String, String> {
    let fits = !text.is_empty() && text.len() <= 128 && !text.contains(char::is_control);
    if fits { Ok(text.into()) } else { Err("a name of 1 to 128 bytes".into()) }
}

/// Parses the name of a keyspace, as clusters take it.
pub(crate) fn keyspace(text: &str) -> Result<String, String> {
    let fits = (1..=48).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if fits { Ok(text.into()) } else { Err("a name of 1 to 48 letters, digits and underscores".into()) }
}

/// Parses an address. A host name is resolved to its first address.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let expected = || "an address and port, such as 127.0.0.1:9042".to_string();
    let mut found = text.to_socket_addrs().map_err(|_| expected())?;
    found.next().ok_or_else(expected)
}

pub(crate) fn switch(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "true or false".into())
}

pub(crate) fn number<T: TryFrom<u64>>(text: &str, min: u64, max: u64) -> Result<T, String> {
    let found = text.parse::<u64>().ok().filter(|n| (min..=max).contains(n));
    found.and_then(|n| T::try_from(n).ok()).ok_or_else(|| format!("a whole number from {min} to {max}"))
}

pub(crate) fn cpus(text: &str) -> Result<Cpus, String> {
    let expected = || "a number of CPUs, or a list such as 0,2-3".to_string();
    if text == "auto" {
        return Ok(Cpus::Auto);
    }
    // A count is at least 1, so that 0 is a list of the CPU 0. Lists of another single CPU end in a
    // comma: `3,`.
    if !text.contains([',', '-']) && text != "0" {
        return number(text, 1, 1024).map(Cpus::Count).map_err(|_| expected());
    }
    let mut list = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let cpu = |text: &str| number::<usize>(text, 0, 4095).map_err(|_| expected());
        list.extend(cpu(first)?..=cpu(last)?);
    }
    list.sort_unstable();
    list.dedup();
    if list.is_empty() { Err(expected()) } else { Ok(Cpus::List(list)) }
}

/// Lower bound of the server's memory, bytes. Less would leave memtables no useful size.
pub(crate) const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// Lower bound of the memory for requests, bytes: one request of the largest size fits.
pub(crate) const REQUEST_MEMORY_BYTES_MIN: u64 = 48 << 20;

/// Lower bound of the memory for queries and of the space for spills, bytes: a small query fits.
pub(crate) const QUERY_MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Parses a size of at least `min` bytes. `least` is its text in the error.
pub(crate) fn bytes(text: &str, least: &str, min: u64) -> Result<u64, String> {
    let expected = || format!("a size of at least {least}, such as 8GiB or 500MB");
    units::parse_bytes(text).filter(|bytes| *bytes >= min).ok_or_else(expected)
}

pub(crate) fn guardrails(text: &str) -> Result<String, String> {
    let names = || engine::GUARDRAILS.map(|spec| spec.name).join(", ");
    let read = engine::Guardrails::default().set_all(text).map(|()| text.to_owned());
    read.map_err(|_| format!("NAME=WARN:FAIL,... where NAME is one of {}", names()))
}

pub(crate) fn first_start(text: &str) -> Result<bool, String> {
    match text {
        "first-start" => Ok(true),
        "off" => Ok(false),
        _ => Err("first-start or off".into()),
    }
}

/// Parses a value. 0: the text is `auto`.
pub(crate) fn or_zero(text: &str, read: impl FnOnce(&str) -> Result<u64, String>) -> Result<u64, String> {
    Ok(unless("auto", text, read)?.unwrap_or(0))
}

/// Parses a commit mode.
pub(crate) fn commit(text: &str) -> Result<CommitMode, String> {
    if text == "batch" {
        return Ok(CommitMode::Batch);
    }
    let ms = text.strip_prefix("periodic:").and_then(|ms| number(ms, 1, 60_000).ok());
    let every = ms.map(Duration::from_millis);
    every
        .map(|every| CommitMode::Periodic { every })
        .ok_or_else(|| "batch, or periodic:MS with 1 to 60000 ms, such as periodic:10".into())
}

/// Parses the statements before which a snapshot is made: DROP, and TRUNCATE.
pub(crate) fn auto_snapshot(text: &str) -> Result<(bool, bool), String> {
    match text {
        "off" => Ok((false, false)),
        "drop" => Ok((true, false)),
        "drop,truncate" => Ok((true, true)),
        _ => Err("off, drop, or drop,truncate".into()),
    }
}

pub(crate) fn format(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err("text or json".into()),
    }
}

/// Parses a time of at most a year.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    number(text, 1, 31_536_000).map(Duration::from_secs)
}

/// Parses host names separated by commas. `off` is none.
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
        Err("host names without a port, such as db.example".into())
    }
}
