//! Health, metrics, and the stop of a server.

use std::sync::mpsc;
use std::time::Duration;

use crate::common::{ADMIN, TestServer, settings};
use lanes::Group;
use server::logging::{self, Format, Level};
use wire::Version;

#[test]
fn server_reports_health_and_metrics() {
    let server = TestServer::start(2, settings());
    server.client(Version::V4, ADMIN).run("SELECT * FROM system.local");
    let status = |path: &str| server.get(path).0;
    assert_eq!(status("/health/live"), "HTTP/1.1 200 OK");
    assert_eq!(status("/health/ready"), "HTTP/1.1 200 OK");
    assert_eq!(status("/nothere"), "HTTP/1.1 404 Not Found");
    let metrics = server.get("/metrics").1;
    for line in [
        "fairlane_cql_requests_total{opcode=\"query\"} 1",
        "fairlane_cql_errors_total{kind=\"syntax\"} 0",
        "fairlane_rescues_total{core=\"1\"} 0",
        "fairlane_kernel_workers ",
        "fairlane_build_info{version=\"",
        "process_start_time_seconds 1",
        "process_open_fds ",
        "process_max_fds ",
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
}

/// Returns a value of a page of metrics.
fn value(page: &str, name: &str) -> f64 {
    let found = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{name} is missing in\n{page}")).parse().expect("a number")
}

#[test]
fn each_metric_is_declared_once_by_the_naming_rules() {
    let server = TestServer::start(2, settings());
    let page = server.get("/metrics").1;
    let mut declared: Vec<&str> = Vec::new();
    for line in page.lines() {
        let Some(rest) = line.strip_prefix("# TYPE ") else { continue };
        let (name, kind) = rest.split_once(' ').expect("a kind");
        assert!(!declared.contains(&name), "{name} is declared twice");
        // Those of a process have the names that every server gives them.
        assert!(name.starts_with("fairlane_") || name.starts_with("process_"), "{name}");
        assert!(name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase()), "{name}");
        // Base units only, so that every dashboard can add and divide.
        let scaled =
            ["nanoseconds", "microseconds", "milliseconds", "ns", "us", "ms", "minutes", "kib", "mib"];
        assert!(!name.split('_').any(|word| scaled.contains(&word)), "{name}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        let help = format!("# HELP {name} ");
        let help_lines = page.lines().filter(|line| line.starts_with(&help) && line.ends_with('.'));
        assert_eq!(help_lines.count(), 1, "{name} is explained once, in a sentence");
        declared.push(name);
    }
    // Values follow the metric they belong to, and each is a number.
    let mut last = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            last = rest.split(' ').next().expect("a name");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().expect("a name");
            let own = name.strip_prefix(last).expect("the metric declared above");
            assert!(["", "_bucket", "_sum", "_count"].contains(&own), "{line} is below {last}");
            let (_, value) = line.rsplit_once(' ').expect("a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
}

#[test]
fn metrics_of_server_work_and_storage_change() {
    let server = TestServer::start(2, settings());
    let before = server.get("/metrics").1;
    let mut admin = server.client(Version::V4, ADMIN);
    admin.run("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    admin.run("CREATE TABLE k.t (k int PRIMARY KEY, v text)");
    for key in 0..20 {
        admin.run(&format!("INSERT INTO k.t (k, v) VALUES ({key}, 'some text')"));
    }
    let after = server.get("/metrics").1;
    for core in 0..2 {
        let name = format!("fairlane_memtable_bytes{{core=\"{core}\"}}");
        assert!(value(&after, &name) > value(&before, &name), "{name} does not move");
    }
    for group in ["control", "log", "flush", "compaction"] {
        for what in ["cpu_seconds_total", "dispatches_total"] {
            value(&after, &format!("fairlane_{what}{{group=\"{group}\",lane=\"heavy\"}}"));
        }
        value(&after, &format!("fairlane_wait_seconds_total{{group=\"{group}\"}}"));
        value(&after, &format!("fairlane_disk_bytes_total{{group=\"{group}\",direction=\"write\"}}"));
    }
    let control = "fairlane_dispatches_total{group=\"control\",lane=\"fast\"}";
    assert!(value(&after, control) > value(&before, control), "the control group serves the pages");
    assert_eq!(value(&after, "fairlane_writes_refused{core=\"1\"}"), 0.0);
}

#[test]
fn statements_of_a_table_are_counted_with_their_latency() {
    let server = TestServer::start(2, settings());
    let mut admin = server.client(Version::V4, ADMIN);
    admin.run("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    admin.run("CREATE TABLE k.t (k int PRIMARY KEY, v text)");
    for key in 0..3 {
        admin.run(&format!("INSERT INTO k.t (k, v) VALUES ({key}, 'x')"));
    }
    admin.run("SELECT v FROM k.t WHERE k = 1");
    let page = server.get("/metrics").1;
    let table_value = |name: &str| value(&page, &format!("{name}{{keyspace=\"k\",table=\"t\"}}"));
    assert_eq!(table_value("fairlane_table_reads_total"), 1.0);
    assert_eq!(table_value("fairlane_table_writes_total"), 3.0);
    assert!(table_value("fairlane_table_write_seconds_total") > 0.0);
}

#[test]
fn stop_ends_every_connection_and_reports_not_ready() {
    let server = TestServer::start(2, settings());
    let mut clients: Vec<_> = (0..4).map(|_| server.client(Version::V5, ADMIN)).collect();
    let stopping = server.server.clone();
    let finished = server
        .lanes
        .block_on(0, Group::CONTROL, move || async move { stopping.stop(Duration::from_secs(5)).await });
    assert!(finished);
    for client in &mut clients {
        assert_eq!(client.receive(), None);
    }
    assert_eq!(server.get("/health/ready").0, "HTTP/1.1 503 Service Unavailable");
    assert!(!server.server.is_ready());
}

#[test]
fn blocked_core_does_not_block_a_stop() {
    let (logger, lines) = logging::logger(Level::Error, Format::Text);
    let server = TestServer::start_logging(3, settings(), logger);
    let mut clients: Vec<_> = (0..3).map(|_| server.client(Version::V5, ADMIN)).collect();
    let (release, released) = mpsc::channel::<()>();
    // Blocks the fast lane of core 1 until the sender is dropped.
    server.lanes.run_on_core(1, Group::CONTROL, move || _ = released.recv());
    let (stopping, (stopped, stops)) = (server.server.clone(), mpsc::channel());
    server.lanes.run_on_core(0, Group::CONTROL, move || {
        let stop = async move { _ = stopped.send(stopping.stop(Duration::from_millis(50)).await) };
        lanes::spawn(Group::CONTROL, stop).detach();
    });
    let in_time = stops.recv_timeout(Duration::from_secs(20));
    drop(release);
    assert_eq!(in_time, Ok(false), "the stop ends and reports the blocked core");
    let lines = lines.take();
    let names = |line: &String| line.contains("a core does not answer") && line.contains("core=1");
    assert!(lines.iter().any(names), "{lines:?}");
    // The cores after it were stopped as well.
    for at in [0, 2] {
        assert_eq!(clients[at].receive(), None);
    }
}
