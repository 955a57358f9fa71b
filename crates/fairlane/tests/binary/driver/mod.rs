//! The Rust `scylla` driver, which picks the core of each of its connections and sends each request to the core that owns
//! its rows: types, paging, batches, roles and levels; on one core and on two; compressed or not.
//!
//! What the driver would have logged as a warning or worse fails the test, and so does a request that found its prepared
//! statement missing: the driver prepares on one core, and expects it on all.

mod shards;
mod statements;
mod warnings;

use scylla::client::Compression;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

use crate::server::{Folder, PATIENCE, Server};
use warnings::Warnings;

async fn connect(server: &Server, user: &str, password: &str, compression: Option<Compression>) -> Session {
    let builder = SessionBuilder::new().known_node(&server.cql).user(user, password);
    builder.compression(compression).build().await.expect("a session")
}

fn converse(name: &str, cores: u16, compression: Option<Compression>) {
    let folder = Folder::new(name);
    let mut command = Server::command(&folder);
    command.args(["--cores", &cores.to_string()]).env("FAIRLANE_ADMIN_PASSWORD", "secret");
    let server = Server::ready(&mut command);
    let warnings = Warnings::default();
    let gathering = tracing::subscriber::set_default(warnings.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let conversation = async {
        let session = connect(&server, "admin", "secret", compression).await;
        statements::schema(&session).await;
        statements::types(&session).await;
        statements::pages(&session).await;
        statements::batches(&session).await;
        shards::each_is_reached(&server, &session, cores).await;
        shards::owners_are_asked(&session).await;
        statements::large(&server, &session, compression.is_some()).await;
        statements::levels(&server, &session).await;
    };
    runtime
        .block_on(async { tokio::time::timeout(2 * PATIENCE, conversation).await })
        .expect("an end in time");
    drop((runtime, gathering));
    assert_eq!(warnings.all(), [""; 0]);
    for kind in ["unprepared", "protocol", "server"] {
        assert_eq!(server.metric(&format!("fairlane_errors_total{{kind=\"{kind}\"}}")), 0.0, "{kind}");
    }
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn on_one_core() {
    converse("driver-one", 1, Some(Compression::Snappy));
}

#[test]
fn on_two_cores() {
    converse("driver-two", 2, None);
}

#[test]
fn on_two_cores_with_lz4() {
    converse("driver-lz4", 2, Some(Compression::Lz4));
}
