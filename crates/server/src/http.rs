//! `/health/live`, `/health/ready` and `/metrics`, over a minimal HTTP/1.1: GET and HEAD, one
//! request a connection. They run in the control group, so that they answer while every level is
//! busy. With a certificate they are also served over HTTPS.
//!
//! Connections are bounded. One more closes the oldest connection of the address that has the most,
//! so that unfinished requests block no health check. Requests for metrics take memory and CPU
//! time, so they have a limit of their own.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use engine::{Engine, Guardrails, Measure, Metric, TableMeasures};
use frontdoor::{ClientCertificates, Connections, Limits, Stream};
use lanes::Group;
use lanes::net::{TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::core::ServerShared;
use crate::exposition::Page;
use crate::logging::{FieldValue, Level};
use crate::sessions::{self, Sessions};
use crate::{counters, lane_metrics};

/// Limits on connections. None ever becomes a session. One address may have 3/4 of them.
const LIMITS: Limits = Limits {
    sessions_max: 0,
    reserved_max: 0,
    logins_max: 64,
    logins_per_address_max: 48,
    per_address_max: 0,
    per_role_max: 0,
};
/// Maximum number of requests for metrics in flight: each holds a page of up to some MiB.
const METRICS_MAX: usize = 4;
/// Maximum length of a request's head, bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Time limit for a request and its answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// State of the HTTP listener on core 0.
struct Http {
    sessions: Rc<Sessions>,
    /// Number of requests for metrics in flight.
    metrics: Cell<usize>,
}

/// One request for metrics in flight, until it is dropped.
struct MetricsSlot<'a>(&'a Cell<usize>);

impl MetricsSlot<'_> {
    fn take(count: &Cell<usize>) -> Option<MetricsSlot<'_>> {
        let slot = (count.get() < METRICS_MAX).then(|| MetricsSlot(count))?;
        count.set(count.get() + 1);
        Some(slot)
    }
}

impl Drop for MetricsSlot<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Serves HTTP until the lanes end.
pub(crate) async fn serve(sessions: Rc<Sessions>, listener: TcpListener) {
    let shared = sessions.core.shared.clone();
    let logger = shared.logger.clone();
    let connections = Connections::new(LIMITS, move |refusals| {
        logger.log(Level::Warn, &format!("HTTP: {refusals}"), &[]);
    });
    connections.begin();
    let http = Rc::new(Http { sessions, metrics: Cell::new(0) });
    let take = |stream, peer: std::net::SocketAddr| {
        let (slot, http) = (connections.accept(peer.ip()), http.clone());
        let work = async move {
            // Ignore the result: a client that is too slow, or evicted in favour of others, is
            // closed.
            let _ = slot.log_in(TIMEOUT, serve_connection(&http, stream)).await;
        };
        lanes::spawn(Group::CONTROL, work).detach();
    };
    let failed = |error: &std::io::Error| {
        shared.logger.log(
            Level::Error,
            "cannot accept HTTP connections",
            &[("error", FieldValue::text(error))],
        );
    };
    frontdoor::accept(listener, &connections, take, failed).await;
}

/// An answer: status, type and body.
type HttpAnswer = (&'static str, &'static str, String);

async fn serve_connection(http: &Http, tcp: TcpStream) -> std::io::Result<()> {
    let config = &http.sessions.core.shared.config;
    let stream = Stream::accept(tcp, config.tls.as_ref(), ClientCertificates::Ignored).await?;
    if stream.is_encrypted() || config.http.is_none_or(|address| config.takes_plaintext(address)) {
        answer(http, stream).await
    } else {
        let text = "this server takes encrypted connections only: use https\n";
        write(stream, ("400 Bad Request", TEXT, text.to_owned()), true).await
    }
}

async fn answer(http: &Http, mut stream: Stream) -> std::io::Result<()> {
    let mut head = Vec::with_capacity(1024);
    // The slot is released after the answer has been written.
    let mut slot = None;
    let (answer, with_body) = loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) => {
                let (method, path) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
                let path = path.split('?').next().unwrap_or("");
                let host = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("host"));
                let host = host.map(|header| header.value);
                let answer = match method {
                    "GET" | "HEAD" if path == "/metrics" => {
                        slot = MetricsSlot::take(&http.metrics);
                        metrics_or_refusal(http, host, slot.is_some()).await
                    }
                    "GET" | "HEAD" if path == "/health/ready" => readiness(&http.sessions.core.shared).await,
                    "GET" | "HEAD" if path == "/health/live" => ("200 OK", TEXT, "live\n".to_owned()),
                    "GET" | "HEAD" => {
                        let paths = "there are /metrics, /health/live and /health/ready\n";
                        ("404 Not Found", TEXT, paths.to_owned())
                    }
                    _ => ("405 Method Not Allowed", TEXT, "only GET and HEAD\n".to_owned()),
                };
                break (answer, method != "HEAD");
            }
            Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => {
                if stream.read_buf(&mut head).await? == 0 {
                    return Ok(());
                }
            }
            _ => break (("400 Bad Request", TEXT, "not an HTTP request\n".to_owned()), true),
        }
    };
    write(stream, answer, with_body).await?;
    drop(slot);
    Ok(())
}

/// Writes an answer and closes the connection.
async fn write(mut stream: Stream, (status, kind, body): HttpAnswer, with_body: bool) -> std::io::Result<()> {
    let mut out = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n",
        body.len()
    );
    if with_body {
        out.push_str(&body);
    }
    stream.write_all(out.as_bytes()).await?;
    stream.shutdown().await
}

const TEXT: &str = "text/plain; charset=utf-8";

/// Time within which every core must answer. Otherwise the server is not ready.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// Answers ready if the server has started, is not stopping, and all of its cores take writes.
async fn readiness(shared: &Arc<ServerShared>) -> HttpAnswer {
    let unready = |text: &str| ("503 Service Unavailable", TEXT, format!("not ready{text}\n"));
    if !shared.ready.load(SeqCst) {
        return unready("");
    }
    for core in 0..shared.counters.len() {
        let shared = shared.clone();
        let ask = move || async move { engine_here(&shared).is_none_or(|engine| engine.refuses_writes()) };
        match lanes::time::timeout(READY_TIMEOUT, lanes::call(core, ask)).await {
            Ok(false) => {}
            Ok(true) => return unready(&format!(": core {core} refuses writes; the log has the reason")),
            Err(_) => return unready(&format!(": core {core} does not answer")),
        }
    }
    ("200 OK", TEXT, "ready\n".to_owned())
}

async fn metrics_or_refusal(http: &Http, host: Option<&[u8]>, has_slot: bool) -> HttpAnswer {
    let shared = http.sessions.core.shared.clone();
    if !is_allowed(host, &shared.config.http_hosts) {
        let text = "this host name is not configured: use an IP address, or add the name with --http-hosts\n";
        return ("421 Misdirected Request", TEXT, text.to_owned());
    }
    if !has_slot {
        let text = format!("{METRICS_MAX} requests for metrics are in progress, which is the limit\n");
        return ("503 Service Unavailable", TEXT, text);
    }
    let levels = http.sessions.core.access.levels().clone();
    let engines = engines(&shared).await;
    let tables = tables(&shared).await;
    // Build the page on the heavy lane: it takes long with many levels.
    let guardrails = http.sessions.core.engine.registry().guardrails().clone();
    let nodes = http.sessions.core.front.as_ref().map(|front| front.shared().usage());
    let page = async move {
        let mut page = metrics(&shared, &levels, &engines, &tables, &guardrails).await;
        if let Some(nodes) = nodes {
            crate::nodes::page(&mut page, &nodes);
        }
        page.0
    };
    let text = lanes::heavy_urgent(Group::CONTROL, page).await;
    ("200 OK", "text/plain; version=0.0.4; charset=utf-8", text)
}

/// Returns true for an IP address, `localhost`, a name in `names`, or no host. This protects
/// against DNS rebinding: the name of a web page may resolve to this server, so that a browser lets
/// the page read the answer. A browser always sends the name.
fn is_allowed(host: Option<&[u8]>, names: &[String]) -> bool {
    let Some(host) = host else { return true };
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let host = host.trim();
    if let Some(bracketed) = host.strip_prefix('[') {
        let address = bracketed.split_once(']').map(|(address, _)| address);
        return address.is_some_and(|address| address.parse::<IpAddr>().is_ok());
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    let name = name.strip_suffix('.').unwrap_or(name);
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Number of connections closed in favour of others.
const CLOSED: Metric = Metric::counter(
    "fairlane_connections_closed_before_login_total",
    "CQL connections closed before login in favour of others.",
);

/// Returns this core's engine, or `None` before the core joined and after the server stopped.
fn engine_here(shared: &Arc<ServerShared>) -> Option<Rc<dyn Engine>> {
    sessions::here(shared).map(|here| here.core.engine.clone())
}

/// Returns the metrics of each core's engine and registry, read on that core.
async fn engines(shared: &Arc<ServerShared>) -> Vec<Vec<Measure>> {
    let mut all = Vec::with_capacity(shared.counters.len());
    for core in 0..shared.counters.len() {
        let shared = shared.clone();
        let ask = move || async move {
            engine_here(&shared)
                .map_or_else(Vec::new, |engine| [engine.metrics(), engine.registry().measures()].concat())
        };
        all.push(lanes::call(core, ask).await);
    }
    all
}

/// Returns the metrics of tables, which core 0 collects.
async fn tables(shared: &Arc<ServerShared>) -> Vec<TableMeasures> {
    let shared = shared.clone();
    let ask = move || async move {
        match engine_here(&shared) {
            Some(engine) => engine.registry().table_measures().await,
            None => Vec::new(),
        }
    };
    lanes::call(0, ask).await
}

const REQUEST_BYTES: Metric =
    Metric::gauge("fairlane_cql_request_bytes", "Memory of large and waiting CQL requests, bytes.");
const REQUESTS_REFUSED: Metric = Metric::counter(
    "fairlane_cql_requests_without_memory_total",
    "Times that the account of all CQL requests was full.",
);

async fn metrics(
    shared: &ServerShared,
    levels: &workload::Levels,
    engines: &[Vec<Measure>],
    tables: &[TableMeasures],
    guardrails: &Arc<Guardrails>,
) -> Page {
    let mut page = Page::default();
    levels.metrics_text(&mut page.0);
    let all: Vec<&counters::Counters> = shared.counters.iter().map(|c| &**c).collect();
    counters::page(&all, &mut page);
    crate::guardrails::page(guardrails, &mut page);
    page.one(&REQUEST_BYTES, shared.config.accounts.all().used_bytes() as f64);
    page.one(&REQUESTS_REFUSED, shared.config.accounts.all().refused() as f64);
    page.one(&CLOSED, shared.connections.closed() as f64);
    lane_metrics::process_page(&mut page, shared.config.data_dir.as_deref()).await;
    lane_metrics::page(&mut page).await;
    page.cores(engines);
    page.tables(tables);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_configured_names_are_hosts() {
        let names = ["metrics.example".to_owned()];
        let check =
            |host: &str, expected| assert_eq!(is_allowed(Some(host.as_bytes()), &names), expected, "{host}");
        check("127.0.0.1:9180", true);
        check("10.1.2.3", true);
        check("[::1]:9180", true);
        check("[2001:db8::1]", true);
        check("LocalHost:9180", true);
        check("Metrics.Example.:9180", true);
        check("evil.example:9180", false);
        check("127.0.0.1.evil.example", false);
        check("[evil]", false);
        check("", false);
        assert!(is_allowed(None, &names));
    }

    #[test]
    fn metrics_slot_is_released_when_its_task_panics() {
        let count = Cell::new(0);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _slot = MetricsSlot::take(&count);
            panic!("this panic is part of the test");
        }));
        assert!(panicked.is_err());
        assert_eq!(count.get(), 0);
        let slots: Vec<_> = (0..METRICS_MAX).map(|_| MetricsSlot::take(&count)).collect();
        assert!(slots.iter().all(Option::is_some) && MetricsSlot::take(&count).is_none());
    }
}
