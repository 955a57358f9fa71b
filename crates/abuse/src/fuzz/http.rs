//! Random HTTP requests. Most are complete, some are mutated, and one write has several.

use std::io::{Read, Write};
use std::time::Duration;

use super::SessionCounts;
use super::mutate::mutate;
use super::random::Random;
use crate::dial::RUDE;
use crate::http::open;
use crate::target::AttackTarget;

const METHODS: [&str; 7] = ["GET", "GET", "HEAD", "POST", "PUT", "get", "\u{feff}GET"];
const PATHS: [&str; 9] =
    ["/metrics", "/health/live", "/health/ready", "/", "", "*", "/metrics?x=%00", "//", "http://h/metrics"];
const VERSIONS: [&str; 5] = ["HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP"];
const HEADERS: [&str; 9] = [
    "Host: h",
    "Connection: close",
    "Connection: keep-alive",
    "Content-Length: 18446744073709551615",
    "Content-Length: -1",
    "Transfer-Encoding: chunked",
    "Expect: 100-continue",
    "Accept-Encoding: gzip",
    ": no name",
];
/// Longest value of a header, path or body, bytes.
const VALUE_BYTES_MAX: usize = 20_000;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_millis(100);

/// Runs a session of at most `actions` writes.
pub(super) fn session(target: &AttackTarget, random: &mut Random, actions: usize) -> SessionCounts {
    let mut counts = SessionCounts::default();
    let Ok(mut stream) = open(target, RUDE, PATIENCE) else { return counts };
    for _ in 0..actions {
        let mut bytes: Vec<u8> = (0..1 + random.length(20)).flat_map(|_| request(random)).collect();
        if random.once_in(3) {
            mutate(random, &mut bytes);
        }
        if stream.write_all(&bytes).is_err() {
            break;
        }
        counts.add(SessionCounts { actions: 1, bytes: bytes.len() as u64 });
        let mut answer = [0; 64 << 10];
        if !random.once_in(4) && matches!(stream.read(&mut answer), Ok(0)) {
            break;
        }
    }
    counts
}

fn request(random: &mut Random) -> Vec<u8> {
    let mut text = format!("{} {}", random.pick(&METHODS), random.pick(&PATHS));
    if random.once_in(6) {
        text += &"/x".repeat(random.length(VALUE_BYTES_MAX / 2));
    }
    text += &format!(" {}\r\n", random.pick(&VERSIONS));
    for n in 0..random.length(200) {
        text += if random.once_in(3) { *random.pick(&HEADERS) } else { "X" };
        text += &format!("-{n}: {}\r\n", "v".repeat(random.length(VALUE_BYTES_MAX)));
    }
    text += "\r\n";
    let mut bytes = text.into_bytes();
    if random.once_in(5) {
        let count = random.length(VALUE_BYTES_MAX);
        bytes.extend(random.bytes(count));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_depend_on_the_seed_alone() {
        let bytes = |seed| request(&mut Random::new(seed));
        assert!((0..100).all(|seed| bytes(seed) == bytes(seed)));
        assert!((0..100).any(|seed| bytes(seed) != bytes(0)));
    }
}
