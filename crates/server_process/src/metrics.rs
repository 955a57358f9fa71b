//! A server's page of metrics, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Most bytes read of a page.
const PAGE_BYTES_MAX: u64 = 64 << 20;

/// Value of one time series: a metric with its labels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Series<'p> {
    /// Name of the metric.
    pub metric: &'p str,
    /// Labels as the page has them, such as `level="a",lane="fast"`.
    pub labels: &'p str,
    /// Value.
    pub value: f64,
}

impl<'p> Series<'p> {
    /// Returns the value of a label.
    pub fn label(&self, name: &str) -> Option<&'p str> {
        let is_label = |at: usize| at == 0 || self.labels.as_bytes()[at - 1] == b',';
        let mark = format!("{name}=\"");
        let (at, _) = self.labels.match_indices(&mark).find(|(at, _)| is_label(*at))?;
        self.labels[at + mark.len()..].split('"').next()
    }
}

/// Returns the series of a page. Skips lines of another form.
pub fn series(page: &str) -> impl Iterator<Item = Series<'_>> {
    page.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let value = value.trim().parse().ok()?;
        match name.split_once('{') {
            Some((metric, labels)) => Some(Series { metric, labels: labels.strip_suffix('}')?, value }),
            None => Some(Series { metric: name, labels: "", value }),
        }
    })
}

/// Returns the sums of a metric by the values of one label, over other labels such as lanes.
pub fn sums(page: &str, metric: &str, label: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for found in series(page).filter(|found| found.metric == metric) {
        if let Some(name) = found.label(label) {
            *sums.entry(name.to_owned()).or_insert(0.0) += found.value;
        }
    }
    sums
}

/// Reads the page of a server: sends one GET, and reads until the server closes the connection.
/// `timeout` bounds each step. The head of the answer is left in place, as no line of it is a
/// series of a server's metric.
///
/// # Errors
/// The server cannot be reached, or does not answer in time.
pub fn fetch(address: &str, timeout: Duration) -> Result<String, Error> {
    let target = address.to_socket_addrs()?.next().ok_or(ErrorKind::AddrNotAvailable)?;
    let mut stream = TcpStream::connect_timeout(&target, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut page = Vec::new();
    stream.take(PAGE_BYTES_MAX).read_to_end(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_of_a_level_are_summed() {
        let page = "# HELP x\ncpu_total{level=\"a\",lane=\"fast\"} 1.5\ncpu_total{level=\"a\",lane=\"heavy\"} 0.25\n\
                    cpu_total{level=\"b\",lane=\"fast\"} 2\ncpu_total{x 1\ncpu_total{group=\"c\"} 7\n\
                    shares{level=\"b\"} 7\n";
        assert_eq!(sums(page, "cpu_total", "level"), BTreeMap::from([("a".into(), 1.75), ("b".into(), 2.0)]));
        assert!(sums(page, "cpu", "level").is_empty());
    }

    #[test]
    fn label_is_found_by_its_whole_name() {
        let page = "a{sublevel=\"x\",level=\"y z\",le=\"0.5\"} 3\nb 4\nc many\n";
        let found: Vec<Series<'_>> = series(page).collect();
        assert_eq!((found.len(), found[0].metric, found[0].value), (2, "a", 3.0));
        assert_eq!((found[0].label("level"), found[0].label("le")), (Some("y z"), Some("0.5")));
        assert_eq!(found[1], Series { metric: "b", labels: "", value: 4.0 });
        assert_eq!(found[1].label("level"), None);
    }
}
