//! The handshake in every version and compression, with and without authentication.

use crate::common::{ADMIN, Answer, TestServer, settings};
use server::ServerConfig;
use wire::{Compression, Request, Version};

#[test]
fn server_accepts_every_version_and_compression() {
    let server = TestServer::start(2, settings());
    for (version, compression) in [
        (Version::V4, Compression::None),
        (Version::V4, Compression::Lz4),
        (Version::V4, Compression::Snappy),
        (Version::V5, Compression::None),
        (Version::V5, Compression::Lz4),
    ] {
        let mut client = server.connect();
        client.encoder.set_version(version);
        let Answer::Supported(options) = client.ask(&Request::Options) else { panic!("SUPPORTED") };
        let option = |key: &str| options.iter().find(|(k, _)| k == key).map(|(_, values)| values.join(","));
        assert_eq!(option("PROTOCOL_VERSIONS").as_deref(), Some("4/v4,5/v5"));
        assert_eq!(option("SCYLLA_NR_SHARDS").as_deref(), Some("2"));
        let startup = client.startup(version, compression);
        assert_eq!(startup, Answer::Authenticate("org.apache.cassandra.auth.PasswordAuthenticator".into()));
        assert_eq!(client.log_in(ADMIN.0, ADMIN.1), Answer::AuthSuccess);
        let local =
            client.run("SELECT cluster_name, native_protocol_version FROM system.local WHERE key = 'local'");
        assert_eq!(local.texts(), [["fairlane", "5"]], "{version:?} {compression:?}");
        assert_eq!(client.run("SELECT * FROM system.peers_v2").texts().len(), 0);
    }
}

#[test]
fn server_rejects_snappy_with_v5() {
    let server = TestServer::start(1, settings());
    assert_eq!(server.connect().startup(Version::V5, Compression::Snappy).code(), 0x000A);
}

#[test]
fn wrong_passwords_close_the_connection() {
    let server = TestServer::start(1, ServerConfig { auth_failures_max: 2, ..settings() });
    let mut client = server.connect();
    client.startup(Version::V4, Compression::None);
    assert_eq!(client.log_in(ADMIN.0, "wrong").code(), 0x0100);
    assert_eq!(client.log_in("nobody", "wrong").code(), 0x0100);
    assert_eq!(client.receive(), None, "the connection is closed");
    let (_, metrics) = server.get("/metrics");
    assert!(metrics.contains("fairlane_auth_failures_total 2\n"), "{metrics}");
}

#[test]
fn queries_before_authentication_are_refused() {
    let server = TestServer::start(1, settings());
    let mut client = server.connect();
    assert_eq!(client.query("SELECT * FROM system.local").code(), 0x000A);
    client.startup(Version::V4, Compression::None);
    assert_eq!(client.query("SELECT * FROM system.local").code(), 0x000A);
    assert_eq!(client.log_in(ADMIN.0, ADMIN.1), Answer::AuthSuccess);
    client.run("SELECT * FROM system.local");
}

#[test]
fn session_is_ready_at_once_without_authentication() {
    let server = TestServer::start(1, ServerConfig { authenticate: false, ..settings() });
    let mut client = server.connect();
    assert_eq!(client.startup(Version::V5, Compression::None), Answer::Ready);
    client.run("SELECT * FROM system.local");
}

#[test]
fn source_port_chooses_the_core() {
    let server = TestServer::start(3, settings());
    let shard_aware = server.at.shard_aware.expect("on");
    for _ in 0..4 {
        let mut client = crate::common::Client::connect(shard_aware);
        let port = client.stream.local_addr().expect("bound").port();
        let Answer::Supported(options) = client.ask(&Request::Options) else { panic!("SUPPORTED") };
        let shard =
            options.iter().find(|(key, _)| key == "SCYLLA_SHARD").map(|(_, values)| values[0].clone());
        assert_eq!(shard, Some((port % 3).to_string()));
    }
}
