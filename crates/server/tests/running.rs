//! Health, metrics, and the end.

mod common;

use std::time::Duration;

use common::{ADMIN, TestServer, settings};
use lanes::Group;
use wire::Version;

#[test]
fn health_and_metrics_are_told() {
    let server = TestServer::start(2, settings());
    server.client(Version::V4, ADMIN).run("SELECT * FROM system.local");
    let status = |path: &str| server.get(path).0;
    assert_eq!(status("/health/live"), "HTTP/1.1 200 OK");
    assert_eq!(status("/health/ready"), "HTTP/1.1 200 OK");
    assert_eq!(status("/nothere"), "HTTP/1.1 404 Not Found");
    let metrics = server.get("/metrics").1;
    for line in [
        "fairlane_requests_total{opcode=\"query\"} 1",
        "fairlane_errors_total{kind=\"syntax\"} 0",
        "fairlane_rescues_total{core=\"1\"} 0",
        "fairlane_kernel_workers ",
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
    // Every line is a comment or a name with a number.
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').expect("a value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn a_stop_ends_every_connection_and_says_not_ready() {
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
