//! The Rust `scylla` driver: types, paging, batches, roles and levels, on one core and on two, with
//! and without compression. The driver selects the core of each connection, and sends a request to
//! the core that owns its rows.
//!
//! The test fails if the driver logs a warning or an error, or if a core does not know a prepared
//! statement: the driver prepares on one core, and expects the statement on all.

mod shards;
mod statements;
mod warnings;

use std::time::Duration;

use scylla::client::Compression;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

use crate::server::{Folder, PATIENCE, Server};
use warnings::Warnings;

async fn connect(server: &Server, user: &str, password: &str, compression: Option<Compression>) -> Session {
    let builder = SessionBuilder::new().known_node(&server.cql).user(user, password);
    builder.compression(compression).build().await.expect("a session")
}

/// Runs a client within a time limit.
fn within_patience<T>(conversation: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime
        .block_on(async { tokio::time::timeout(2 * PATIENCE, conversation).await })
        .expect("an end in time")
}

fn converse(name: &str, cores: u16, compression: Option<Compression>) {
    let folder = Folder::new(name);
    let mut command = Server::command(&folder);
    command.args(["--cores", &cores.to_string()]).env("FAIRLANE_ADMIN_PASSWORD", "secret");
    let server = Server::ready(&mut command);
    let warnings = Warnings::default();
    let gathering = tracing::subscriber::set_default(warnings.clone());
    within_patience(async {
        let session = connect(&server, "admin", "secret", compression).await;
        statements::schema(&session).await;
        statements::types(&session).await;
        statements::pages(&session).await;
        statements::batches(&session).await;
        shards::every_core_is_reached(&server, &session, cores).await;
        shards::requests_arrive_at_owners(&session).await;
        statements::large(&server, &session, compression.is_some()).await;
        statements::levels(&server, &session).await;
    });
    drop(gathering);
    // The driver logs warnings of the server. `large` exceeds a guardrail, and some count all rows.
    let mut others = warnings.all();
    for known in ["Guardrail write_bytes warning", "Aggregation query used without partition key"] {
        let all = others.len();
        others.retain(|warning| !warning.contains(known));
        assert!(others.len() < all, "the warning comes with the answer: {known}");
    }
    assert_eq!(others, [""; 0]);
    for kind in ["unprepared", "protocol", "server"] {
        assert_eq!(server.metric(&format!("fairlane_cql_errors_total{{kind=\"{kind}\"}}")), 0.0, "{kind}");
    }
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn driver_is_served_on_one_core() {
    converse("driver-one", 1, Some(Compression::Snappy));
}

#[test]
fn driver_is_served_on_two_cores() {
    converse("driver-two", 2, None);
}

#[test]
fn driver_is_served_on_two_cores_with_lz4() {
    converse("driver-lz4", 2, Some(Compression::Lz4));
}

#[test]
fn driver_reconnects_after_a_kill_of_the_server() {
    let folder = Folder::new("driver-again");
    let server = Server::start(&folder);
    let (cql, shard_aware) = (server.cql.clone(), server.shard_aware.clone());
    let shard_aware_port = shard_aware.rsplit(':').next().expect("a port").to_owned();
    within_patience(async {
        let session = connect(&server, "admin", "secret", None).await;
        statements::schema(&session).await;
        let insert =
            session.prepare("INSERT INTO shop.counts (id, n) VALUES (?, ?)").await.expect("prepared");
        let select = session.prepare("SELECT n FROM shop.counts WHERE id = ?").await.expect("prepared");
        session.execute_unpaged(&insert, (1_i64, 11)).await.expect("written");
        server.kill();
        let mut command = Server::command(&folder);
        command.args(["--listen", &cql, "--shard-aware-port", &shard_aware_port]);
        let server = Server::ready(&mut command);
        // Fails until the driver has reconnected. It prepares the statement again by itself.
        let result = loop {
            match session.execute_unpaged(&select, (1_i64,)).await {
                Ok(result) => break result,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        assert_eq!(result.into_rows_result().expect("rows").single_row::<(i32,)>().expect("one"), (11,));
        session.execute_unpaged(&insert, (2_i64, 22)).await.expect("written");
        drop(session);
        assert_eq!(server.stop().code(), Some(0));
    });
}
