//! Limits on connections, before and after login.

#![expect(clippy::disallowed_methods, reason = "the client runs outside the lanes")]

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::*;
use frontdoor::Limits;
use server::ServerConfig;
use wire::{Compression, Version};

fn start(cores: usize, connections: Limits) -> TestServer {
    TestServer::start(cores, ServerConfig { connections, ..settings() })
}

#[test]
fn superuser_logs_in_when_all_sessions_are_taken() {
    let server = start(2, Limits { reserved_max: 1, ..Limits::of_sessions(3) });
    let mut admin = server.client(Version::V4, ADMIN);
    admin.run("CREATE ROLE app WITH PASSWORD = 'secret' AND LOGIN = true");
    let app = ("app", "secret");
    let mut apps = [server.client(Version::V4, app), server.client(Version::V4, app)];
    let mut refused = server.connect();
    refused.startup(Version::V4, Compression::None);
    let answer = refused.log_in(app.0, app.1);
    assert_eq!(answer.code(), 0x1001, "{answer:?}");
    assert!(
        format!("{answer:?}").contains("Too many connections: 3 connections are the limit"),
        "{answer:?}"
    );
    assert_eq!(refused.receive(), None);
    server.client(Version::V4, ADMIN).run("SELECT * FROM system.local");
    apps.iter_mut().for_each(|client| drop(client.run("SELECT * FROM system.local")));
}

#[test]
fn silent_connections_block_no_login() {
    let server = start(2, Limits { logins_max: 8, logins_per_address_max: 8, ..Limits::of_sessions(4) });
    let mut silent: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    server.client(Version::V4, ADMIN).run("SELECT * FROM system.local");
    // The server has closed the connections that it evicted for others.
    silent[..42].iter_mut().for_each(|client| assert_eq!(client.receive(), None));
}

#[test]
fn role_and_address_are_limited() {
    let server = start(1, Limits { per_role_max: 1, per_address_max: 3, ..Limits::of_sessions(9) });
    let mut admin = server.client(Version::V4, ADMIN);
    for role in ["a", "b"] {
        admin.run(&format!("CREATE ROLE {role} WITH PASSWORD = 'secret' AND LOGIN = true"));
    }
    let refused = |role: &str| {
        let mut client = server.connect();
        client.startup(Version::V4, Compression::None);
        format!("{:?}", client.log_in(role, "secret"))
    };
    let _a = server.client(Version::V4, ("a", "secret"));
    let answer = refused("a");
    assert!(answer.contains("1 connections of one role are the limit"), "{answer}");
    let _b = server.client(Version::V4, ("b", "secret"));
    let answer = refused("b");
    assert!(answer.contains("3 connections from one address are the limit"), "{answer}");
    server.client(Version::V4, ADMIN);
}

#[test]
fn unfinished_requests_block_no_health_check() {
    let server = start(1, Limits::of_sessions(4));
    let unfinished: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(server.at.http.expect("on")).expect("connects");
            stream.write_all(b"GET /health/live HTTP/1.1\r\n").expect("is sent");
            stream
        })
        .collect();
    assert_eq!(server.get("/health/live").0, "HTTP/1.1 200 OK");
    assert_eq!(server.get("/metrics").0, "HTTP/1.1 200 OK");
    drop(unfinished);
}

#[test]
fn metrics_are_refused_under_an_unknown_host_name() {
    let server = start(1, Limits::of_sessions(4));
    let mut stream = TcpStream::connect(server.at.http.expect("on")).expect("connects");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n").expect("is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 421 ") && !answer.contains("fairlane_"), "{answer}");
}

#[test]
fn idle_session_is_closed() {
    let idle_timeout = Some(std::time::Duration::from_millis(50));
    let server = TestServer::start(2, ServerConfig { idle_timeout, ..settings() });
    let mut client = server.client(Version::V4, ADMIN);
    assert_eq!(client.receive(), None);
}
