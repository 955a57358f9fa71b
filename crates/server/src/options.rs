//! Messages about the session itself: OPTIONS, REGISTER and USE.

use wire::{Failure, FailureKind, Prelude};

use crate::failure;
use crate::session::Session;

/// Number of a token's most significant bits that ScyllaDB's sharding ignores: its default.
const IGNORE_MSB: u32 = 12;

/// Name of the partitioner.
pub(crate) const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

/// CQL version announced to clients.
pub(crate) const CQL_VERSION: &str = "3.4.7";

/// Answers OPTIONS.
pub(crate) fn supported(session: &Session, stream: i16) {
    let shared = &session.core.shared;
    let mut options: Vec<(&str, Vec<String>)> = vec![
        ("PROTOCOL_VERSIONS", vec!["4/v4".to_owned(), "5/v5".to_owned()]),
        ("COMPRESSION", vec!["snappy".to_owned(), "lz4".to_owned()]),
        ("CQL_VERSION", vec![CQL_VERSION.to_owned()]),
    ];
    if let Some(port) = shared.bound.get().and_then(|bound| bound.shard_aware).map(|at| at.port()) {
        let mut put = |key, value: String| options.push((key, vec![value]));
        put("SCYLLA_SHARD", session.core.index.to_string());
        put("SCYLLA_NR_SHARDS", shared.counters.len().to_string());
        put("SCYLLA_PARTITIONER", PARTITIONER.to_owned());
        put("SCYLLA_SHARDING_ALGORITHM", "biased-token-round-robin".to_owned());
        put("SCYLLA_SHARDING_IGNORE_MSB", IGNORE_MSB.to_string());
        // The same port accepts TLS: the first byte of a client decides.
        put("SCYLLA_SHARD_AWARE_PORT", port.to_string());
        if shared.config.tls.is_some() {
            put("SCYLLA_SHARD_AWARE_PORT_SSL", port.to_string());
        }
    }
    let options: Vec<(String, Vec<String>)> = options.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    session.outgoing.encoder.borrow_mut().supported(stream, &options).expect("short names");
}

/// Answers REGISTER. A server in front of a cluster accepts unknown types, which are never sent:
/// drivers register for events of the cluster's product or version.
pub(crate) fn register(session: &Session, stream: i16, types: &[&str]) -> Result<(), Failure> {
    let unknown = types.iter().find(|name| !wire::EVENT_TYPES.contains(name));
    if let Some(unknown) = unknown.filter(|_| session.core.front.is_none()) {
        return Err(failure::protocol(&format!("Invalid value '{unknown}' for event type")));
    }
    let wanted = wire::EVENT_TYPES.map(|name| types.contains(&name));
    let before = session.wanted_events.get();
    session.wanted_events.set(std::array::from_fn(|kind| before[kind] || wanted[kind]));
    session.outgoing.encoder.borrow_mut().ready(stream);
    Ok(())
}

/// Answers USE. Returns true if the session uses the keyspace now.
pub(crate) fn use_keyspace(session: &Session, stream: i16, keyspace: &str) -> bool {
    let engine = &session.core.engine;
    let known = engine.schema().keyspaces.contains_key(keyspace)
        || engine.registry().all().iter().any(|table| table.def.keyspace == keyspace);
    if !known {
        let text = format!("Keyspace '{keyspace}' does not exist");
        session.refuse(stream, &Failure::new(FailureKind::Invalid, text));
        return false;
    }
    *session.keyspace.borrow_mut() = Some(keyspace.into());
    session.outgoing.encoder.borrow_mut().set_keyspace(stream, keyspace, &Prelude::default()).is_ok()
}
