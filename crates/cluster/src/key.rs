//! Partition key of an EXECUTE: the bind markers that make it, from the node's answer to PREPARE,
//! and the token of bound values.
//!
//! Only positional values have a token. Names would have to be compared with those of the
//! metadata, and drivers do not send them with prepared statements.

use std::cell::RefCell;

use schema::token::{Token, compose_partition_key};
use smallvec::{SmallVec, smallvec};
use wire::{Prepared, Value, Values};

/// Components of a partition key, at most. A statement on a table with more has no token: any node
/// can coordinate it.
const COMPONENTS_MAX: usize = 16;

/// Capacity that a core keeps for composite keys, bytes. A longer key is allocated each time.
const KEPT_BYTES_MAX: usize = 1024;

thread_local! {
    /// Composite key that is being hashed.
    static COMPOSED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Place of a component of the partition key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Marker {
    /// Position of its value among the bound values.
    value: usize,
    /// Position in the key.
    component: usize,
}

/// Bind markers of a prepared statement that make its partition key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoutingKey {
    keyspace: Box<str>,
    table: Box<str>,
    /// In the order of the values.
    markers: Box<[Marker]>,
}

impl RoutingKey {
    /// Reads the markers from a node's answer to PREPARE. `None`: the statement binds no whole
    /// partition key, or one of more than 16 components.
    #[must_use]
    pub fn of(prepared: &Prepared<'_>) -> Option<RoutingKey> {
        let indexes = &prepared.partition_key_indexes;
        if indexes.is_empty() || indexes.len() > COMPONENTS_MAX {
            return None;
        }
        let (keyspace, table) = prepared.bind.table()?;
        let marker = |(component, &value): (usize, &u16)| Marker { value: value.into(), component };
        let mut markers: Box<[Marker]> = indexes.iter().enumerate().map(marker).collect();
        markers.sort_unstable_by_key(|marker| marker.value);
        Some(RoutingKey { keyspace: keyspace.into(), table: table.into(), markers })
    }

    /// Returns the keyspace of the table.
    #[must_use]
    pub fn keyspace(&self) -> &str {
        &self.keyspace
    }

    /// Returns the table.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Returns the token of bound values. `None`: a component is null, not set or missing, the
    /// values have names, or the key is empty or longer than the 65,535 bytes of Cassandra. The
    /// node then finds the fault.
    ///
    /// Walks once over the values up to the last marker.
    #[must_use]
    pub fn token(&self, values: &Values<'_>) -> Option<Token> {
        if values.is_named() {
            return None;
        }
        let mut components: SmallVec<[&[u8]; 4]> = smallvec![&[][..]; self.markers.len()];
        let mut markers = self.markers.iter().peekable();
        for (at, value) in values.iter().enumerate() {
            while let Some(marker) = markers.next_if(|marker| marker.value == at) {
                let Value::Bytes(bytes) = value else { return None };
                components[marker.component] = bytes;
            }
            if markers.peek().is_none() {
                break;
            }
        }
        if markers.peek().is_some() {
            return None;
        }
        match components[..] {
            [single] => token_of(single),
            _ => COMPOSED.with_borrow_mut(|key| {
                key.clear();
                compose_partition_key(components.iter().copied(), key).ok()?;
                let token = token_of(key);
                key.clear();
                key.shrink_to(KEPT_BYTES_MAX);
                token
            }),
        }
    }
}

/// Returns the token of a serialized key. `None`: it is empty or too long, and no partition has it.
fn token_of(key: &[u8]) -> Option<Token> {
    let is_valid = !key.is_empty() && key.len() <= schema::token::PARTITION_KEY_BYTES_MAX;
    is_valid.then(|| schema::token::token(key))
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use schema::CqlType;
    use wire::{
        ColumnSpec, Columns, Decoder, Direction, Encoder, Envelope, Execute, Limits, Prelude, PreparedHead,
        QueryParams, Request, Response, ValuesBuf, Version,
    };

    use super::*;

    /// Returns the key of a statement with four markers, as a node describes it.
    fn key(indexes: &[u16]) -> Option<RoutingKey> {
        let markers: Vec<ColumnSpec<'_>> =
            ["a", "b", "c", "d"].map(|name| ColumnSpec::new("ks", "t", name, &CqlType::Int)).to_vec();
        let bind = Columns::encode(Version::V5, &markers).expect("short names");
        let mut encoder = Encoder::new(Direction::Response, Version::V5);
        let head = PreparedHead {
            id: b"id",
            result_metadata_id: b"r",
            bind: &bind,
            partition_key_indexes: indexes,
            result: &Columns::default(),
        };
        encoder.prepared(0, &head, &Prelude::default()).expect("short");
        let mut bytes = encoder.finish().split();
        let envelope =
            Decoder::new(Direction::Response, Limits::default()).decode(&mut bytes).expect("well-formed");
        match envelope.expect("whole").response().expect("a result") {
            Response::Prepared(prepared) => RoutingKey::of(&prepared),
            other => panic!("not expected: {other:?}"),
        }
    }

    /// Returns an EXECUTE with these values.
    fn execute(values: &[Value<'_>]) -> Envelope {
        let mut own = ValuesBuf::new();
        values.iter().for_each(|value| own.push(*value).expect("few"));
        let params = QueryParams { values: own.values(), ..QueryParams::default() };
        let mut encoder = Encoder::new(Direction::Request, Version::V4);
        let request = Request::Execute(Execute { id: b"id", params, ..Execute::default() });
        encoder.request(0, &request).expect("short");
        let mut bytes: BytesMut = encoder.finish().split();
        let decoded = Decoder::new(Direction::Request, Limits::default()).decode(&mut bytes);
        decoded.expect("well-formed").expect("whole")
    }

    fn token_of_body(key: &RoutingKey, envelope: &Envelope) -> Option<Token> {
        match envelope.request() {
            Ok(Request::Execute(execute)) => key.token(&execute.params.values),
            _ => None,
        }
    }

    #[track_caller]
    fn check(indexes: &[u16], values: &[Value<'_>], expected: Option<&[u8]>) {
        let key = key(indexes).expect("a key");
        assert_eq!((key.keyspace(), key.table()), ("ks", "t"));
        let token = token_of_body(&key, &execute(values));
        assert_eq!(token, expected.map(schema::token::token), "{indexes:?} {values:?}");
    }

    #[test]
    fn token_is_that_of_the_bound_partition_key() {
        let (a, b, c) = (Value::Bytes(b"a"), Value::Bytes(b"bc"), Value::Bytes(b""));
        check(&[0], &[a], Some(b"a"));
        check(&[2], &[b, Value::Null, a, Value::Unset], Some(b"a"));
        check(&[0, 1], &[a, b], Some(b"\0\x01a\0\0\x02bc\0"));
        // The key's order is that of the table, not of the statement.
        check(&[3, 0], &[b, Value::Null, Value::Null, a], Some(b"\0\x01a\0\0\x02bc\0"));
        check(&[0, 1], &[c, a], Some(b"\0\0\0\0\x01a\0"));
        let long = vec![7; 40_000];
        check(&[0], &[Value::Bytes(&long)], Some(&long));
    }

    #[test]
    fn values_that_make_no_key_have_no_token() {
        let (a, b) = (Value::Bytes(b"a"), Value::Bytes(b"bc"));
        check(&[0], &[Value::Null], None);
        check(&[1], &[a, Value::Unset], None);
        check(&[0, 1], &[a, Value::Null], None);
        check(&[0, 3], &[a, b], None);
        check(&[0], &[], None);
        check(&[0], &[Value::Bytes(b"")], None);
        let half = vec![0; 40_000];
        check(&[0, 1], &[Value::Bytes(&half), Value::Bytes(&half)], None);
        check(&[0], &[Value::Bytes(&[0; 65_536])], None);
        let mut named = ValuesBuf::new();
        named.push_named("a", a).expect("short");
        assert_eq!(key(&[0]).expect("a key").token(&named.values()), None);
    }

    #[test]
    fn statement_without_a_whole_key_has_no_markers() {
        assert!(key(&[]).is_none());
        assert!(key(&[0; COMPONENTS_MAX]).is_some());
        assert!(key(&[0; COMPONENTS_MAX + 1]).is_none());
    }

    #[test]
    fn truncated_or_changed_body_never_panics() {
        let key = key(&[1, 0]).expect("a key");
        let whole = execute(&[Value::Bytes(b"one"), Value::Bytes(b"two"), Value::Null]);
        assert!(token_of_body(&key, &whole).is_some());
        for cut in 0..whole.body.len() {
            let envelope = Envelope { body: whole.body.slice(..cut), ..whole.clone() };
            assert_eq!(token_of_body(&key, &envelope), None, "cut to {cut} bytes");
        }
        for at in 0..whole.body.len() {
            for byte in [0x00, 0x7f, 0x80, 0xff] {
                let mut body = whole.body.to_vec();
                body[at] = byte;
                // Some changes leave a valid body: only a panic is a fault.
                let _ = token_of_body(&key, &Envelope { body: Bytes::from(body), ..whole.clone() });
            }
        }
    }

    #[test]
    fn long_composite_key_leaves_little_memory() {
        let long = vec![0; 30_000];
        let mut key = Vec::new();
        compose_partition_key([&long[..], &long].into_iter(), &mut key).expect("fits");
        check(&[0, 1], &[Value::Bytes(&long), Value::Bytes(&long)], Some(&key));
        assert!(COMPOSED.with_borrow(Vec::capacity) <= KEPT_BYTES_MAX);
    }
}
