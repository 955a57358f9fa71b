//! Minimal HTTP client: one GET on one connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use server_process::metrics::series;

use crate::answers::{CLOSED, ServerAnswer};
use crate::dial::dial;
use crate::native::{lost, refused};
use crate::target::AttackTarget;

/// Longest response read, bytes.
const RESPONSE_BYTES_MAX: u64 = 16 << 20;

/// Opens a connection without sending anything.
pub(crate) fn open(
    target: &AttackTarget,
    from: Ipv4Addr,
    patience: Duration,
) -> Result<TcpStream, ServerAnswer> {
    dial(target.http, from, patience).map_err(|error| refused(&error))
}

/// Sends a GET. Returns the status code as label and the body as text.
pub(crate) fn get(
    target: &AttackTarget,
    from: Ipv4Addr,
    path: &str,
    patience: Duration,
) -> Result<ServerAnswer, ServerAnswer> {
    let mut stream = open(target, from, patience)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(|error| lost(&error))?;
    let mut response = Vec::new();
    stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response).map_err(|error| lost(&error))?;
    let response = String::from_utf8_lossy(&response);
    let status = response.split(' ').nth(1).ok_or_else(|| ServerAnswer::new(CLOSED))?;
    let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok(ServerAnswer { label: status.to_owned(), text: body.to_owned() })
}

/// Returns the value of a metric without labels, or the largest over all its labels.
pub(crate) fn metric(body: &str, name: &str) -> Option<f64> {
    series(body).filter(|found| found.metric == name).map(|found| found.value).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::metric;

    #[test]
    fn metric_is_the_largest_over_its_labels() {
        let body = "# HELP a_max x\na_max{core=\"0\"} 3\na_max{core=\"1\"} 7\na_max_total 9\n";
        assert_eq!(metric(body, "a_max"), Some(7.0));
        assert_eq!(metric(body, "a_max_total"), Some(9.0));
        assert_eq!(metric(body, "b"), None);
    }
}
