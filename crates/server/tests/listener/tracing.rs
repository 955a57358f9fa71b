//! Traces: their ids in answers, their stages in `system_traces`, and who sees them.

use crate::common::{ADMIN, Client, TestServer, settings};
use wire::*;

/// Runs a query with the tracing flag. Returns the id of its trace.
fn traced(client: &mut Client, text: &str) -> uuid::Uuid {
    client.ask_traced(&Request::Query(Query { text, params: QueryParams::default() }));
    uuid::Uuid::from_bytes(client.tracing_id.take().expect("the answer has the id of the trace"))
}

fn activities(client: &mut Client, id: uuid::Uuid) -> Vec<String> {
    let query = format!("SELECT activity FROM system_traces.events WHERE session_id = {id}");
    client.run(&query).texts().into_iter().map(|mut row| row.swap_remove(0)).collect()
}

const KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

#[test]
fn traced_statements_leave_their_stages() {
    for cores in [1, 2] {
        let server = TestServer::start(cores, settings());
        let mut client = server.client(Version::V5, ADMIN);
        client.run(KEYSPACE);
        client.run("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
        for k in 0..8 {
            let write = traced(&mut client, &format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'x')"));
            let stages = activities(&mut client, write);
            for stage in
                ["Receiving Query", "Admitted by service level", "Authorized", "Answering without rows"]
            {
                assert!(stages.iter().any(|text| text.starts_with(stage)), "{stage}: {stages:?}");
            }
            let applied =
                |text: &String| text.starts_with("Applied to") || text.starts_with("Writing on core");
            assert!(stages.iter().any(applied), "{stages:?}");
        }
        let read = traced(&mut client, "SELECT * FROM ks.t");
        let stages = activities(&mut client, read);
        assert!(stages.iter().any(|text| text.starts_with("Read 8 rows of ")), "{stages:?}");
        assert!(stages.iter().any(|text| text.starts_with("Answering with 8 rows of ")), "{stages:?}");
        assert_eq!(stages.iter().filter(|text| text.starts_with("Scanning on core")).count(), cores);
        let sessions = client.run(&format!(
            "SELECT request, parameters['query'], parameters['service_level'] FROM system_traces.sessions \
             WHERE session_id = {read}"
        ));
        assert_eq!(sessions.texts(), [["Execute CQL3 query", "SELECT * FROM ks.t", "default"]]);
    }
}

#[test]
fn untraced_statements_leave_nothing() {
    let server = TestServer::start(1, settings());
    let mut client = server.client(Version::V4, ADMIN);
    client.run("SELECT key FROM system.local");
    assert_eq!(client.tracing_id, None);
    assert_eq!(client.run("SELECT * FROM system_traces.sessions").texts().len(), 0);
    traced(&mut client, "SELECT key FROM system.local");
    assert_eq!(client.run("SELECT * FROM system_traces.sessions").texts().len(), 1);
}

#[test]
fn refused_statement_is_traced_with_its_error() {
    let server = TestServer::start(1, settings());
    let mut client = server.client(Version::V5, ADMIN);
    client.run(KEYSPACE);
    client.run("CREATE TABLE ks.t (k int PRIMARY KEY)");
    let id = traced(&mut client, "INSERT INTO ks.t (k) VALUES (1) USING TTL 999999999");
    let stages = activities(&mut client, id);
    assert!(stages.iter().any(|text| text.starts_with("Answering with an error: ")), "{stages:?}");
}

#[test]
fn role_sees_its_own_traces() {
    let server = TestServer::start(2, settings());
    let mut admin = server.client(Version::V5, ADMIN);
    admin.run("CREATE ROLE ann WITH PASSWORD = 'secret' AND LOGIN = true");
    let mut ann = server.client(Version::V5, ("ann", "secret"));
    traced(&mut admin, "SELECT key FROM system.local");
    let own = traced(&mut ann, "SELECT key FROM system.local");
    let all = "SELECT session_id FROM system_traces.sessions";
    assert_eq!(ann.run(all).texts().len(), 1);
    assert_eq!(admin.run(all).texts().len(), 2);
    assert!(!activities(&mut ann, own).is_empty());
    let of_events = ann.run("SELECT session_id FROM system_traces.events").texts();
    assert!(of_events.iter().all(|row| row[0].as_bytes() == of_events[0][0].as_bytes()), "only one trace");
}
