//! `/health/live`, `/health/ready` and `/metrics`, over just enough HTTP/1.1: GET and HEAD, one request a connection,
//! in the control group so that they answer while every level is busy.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use engine::{Guardrails, Measure, Metric};
use lanes::net::{TcpListener, TcpStream};
use lanes::{Group, sync::mpsc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::core::{Core, Shared};
use crate::exposition::Page;
use crate::server::Server;
use crate::{counters, lane_metrics};

/// Connections served at once; more wait in the kernel.
const CONNECTIONS_MAX: usize = 32;
/// Longest head of a request, bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Time for a whole request and its answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Serves until the lanes end.
pub(crate) async fn serve(core: Rc<Core>, listener: TcpListener) {
    // A channel as a counter: a slot is taken for each connection, and given back when it ends.
    let (slots, taken) = mpsc::channel::<()>(CONNECTIONS_MAX);
    let taken = Rc::new(RefCell::new(taken));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            lanes::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if slots.send(()).await.is_err() {
            return;
        }
        let (core, taken) = (core.clone(), taken.clone());
        let work = async move {
            // Who is too slow is closed; nobody is waiting for this result.
            let _ = lanes::time::timeout(TIMEOUT, answer(&core, stream)).await;
            taken.borrow_mut().try_recv();
        };
        lanes::spawn(Group::CONTROL, work).detach();
    }
}

async fn answer(core: &Core, mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::with_capacity(1024);
    let (status, kind, body, with_body) = loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) => {
                let (method, path) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
                let (status, kind, body) = match method {
                    "GET" | "HEAD" => page(core, path.split('?').next().unwrap_or("")).await,
                    _ => ("405 Method Not Allowed", TEXT, "only GET and HEAD\n".to_owned()),
                };
                break (status, kind, body, method != "HEAD");
            }
            Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => {
                if stream.read_buf(&mut head).await? == 0 {
                    return Ok(());
                }
            }
            _ => break ("400 Bad Request", TEXT, "not an HTTP request\n".to_owned(), true),
        }
    };
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

async fn page(core: &Core, path: &str) -> (&'static str, &'static str, String) {
    match path {
        "/health/live" => ("200 OK", TEXT, "live\n".to_owned()),
        "/health/ready" if core.shared.ready.load(SeqCst) => ("200 OK", TEXT, "ready\n".to_owned()),
        "/health/ready" => ("503 Service Unavailable", TEXT, "not ready\n".to_owned()),
        "/metrics" => {
            let (shared, levels) = (core.shared.clone(), core.access.levels().clone());
            let engines = engines(&shared).await;
            let guardrails = core.engine.registry().guardrails().clone();
            // Long where there are many levels, and nothing to hold a fast lane up with.
            let text = lanes::heavy_urgent(Group::CONTROL, async move {
                metrics(&shared, &levels, &engines, &guardrails).await
            })
            .await;
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", text)
        }
        _ => ("404 Not Found", TEXT, "there are /metrics, /health/live and /health/ready\n".to_owned()),
    }
}

/// What each core's engine counts, and who else is beside it, asked for on that core.
async fn engines(shared: &Arc<Shared>) -> Vec<Vec<Measure>> {
    let mut all = Vec::with_capacity(shared.counters.len());
    for core in 0..shared.counters.len() {
        let server = Server::of(shared.clone());
        let ask = move || async move {
            let engine = server.here().map(|core| core.engine.clone());
            engine.map_or_else(Vec::new, |engine| [engine.metrics(), engine.registry().measures()].concat())
        };
        all.push(lanes::call(core, ask).await);
    }
    all
}

const REQUEST_BYTES: Metric =
    Metric::gauge("fairlane_cql_request_bytes", "Memory of CQL requests that are large or wait.");
const REQUESTS_REFUSED: Metric = Metric::counter(
    "fairlane_cql_requests_without_memory_total",
    "Times that the account of all CQL requests had no room.",
);

async fn metrics(
    shared: &Shared,
    levels: &workload::Levels,
    engines: &[Vec<Measure>],
    guardrails: &Arc<Guardrails>,
) -> String {
    let mut page = Page::default();
    levels.metrics_text(&mut page.0);
    let all: Vec<&counters::Counters> = shared.counters.iter().map(|c| &**c).collect();
    counters::page(&all, &mut page);
    crate::guardrails::page(guardrails, &mut page);
    page.one(&REQUEST_BYTES, shared.requests.used_bytes() as f64);
    page.one(&REQUESTS_REFUSED, shared.requests.refused() as f64);
    lane_metrics::page(&mut page).await;
    page.cores(engines);
    page.0
}
