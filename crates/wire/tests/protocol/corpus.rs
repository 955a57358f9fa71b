//! Every request and response once, in both versions, for the tests of this crate.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::BytesMut;
use schema::{CqlType, UdtType};
use wire::*;

/// Appends every request and returns their number.
pub(crate) fn all_requests(encoder: &mut Encoder, mut also: impl FnMut(&Request<'_>)) -> usize {
    let v5 = encoder.version() == Version::V5;
    let mut named = ValuesBuf::new();
    named.push_named("k", Value::Bytes(b"v")).unwrap();
    named.push_named("ü", Value::Unset).unwrap();
    let mut positional = ValuesBuf::new();
    for value in [Value::Bytes(b""), Value::Null, Value::Unset, Value::Bytes(&[7; 300])] {
        positional.push(value).unwrap();
    }
    let full = QueryParams {
        consistency: Consistency::LocalQuorum,
        values: positional.values(),
        skip_metadata: true,
        page_size: Some(5000),
        paging_state: Some(b"state"),
        serial_consistency: Some(Consistency::LocalSerial),
        timestamp: Some(-5),
        keyspace: v5.then_some("ks"),
        now_in_seconds: v5.then_some(77),
    };
    let mut entries = BatchBuf::new();
    let prepared = BatchEntry { statement: Statement::Prepared(b"id"), values: positional.values() };
    entries.push(prepared).unwrap();
    entries.push(BatchEntry { statement: Statement::Text("INSERT …"), values: Values::default() }).unwrap();
    let batch_params = BatchParams {
        consistency: Consistency::All,
        serial_consistency: Some(Consistency::Serial),
        timestamp: Some(1),
        keyspace: v5.then_some("ks"),
        now_in_seconds: v5.then_some(-1),
    };
    let metadata_id: &[u8] = if v5 { b"metadata" } else { b"" };
    let requests = [
        Request::Startup(vec![("CQL_VERSION", "3.0.0"), ("DRIVER_NAME", "test")]),
        Request::Options,
        Request::AuthResponse(Some(b"\0user\0password")),
        Request::AuthResponse(None),
        Request::Query(Query { text: "SELECT * FROM t", params: QueryParams::default() }),
        Request::Query(Query {
            text: "SELECT …",
            params: QueryParams { values: named.values(), ..Default::default() },
        }),
        Request::Query(Query { text: "", params: full.clone() }),
        Request::Prepare(Prepare { text: "SELECT ?", keyspace: v5.then_some("ks") }),
        Request::Prepare(Prepare { text: "SELECT ?", keyspace: None }),
        Request::Execute(Execute { id: b"0123456789abcdef", result_metadata_id: metadata_id, params: full }),
        Request::Batch(Batch::new(BatchKind::Unlogged, &entries, batch_params)),
        Request::Batch(Batch::default()),
        Request::Register(EVENT_TYPES.to_vec()),
    ];
    for (stream, request) in requests.iter().enumerate() {
        encoder.request(stream as i16, request).unwrap();
        also(request);
    }
    requests.len()
}

/// Returns one failure of every code.
pub(crate) fn all_failures(version: Version) -> Vec<Failure> {
    let consistency = Consistency::Quorum;
    let received = 1;
    let block_for = 2;
    let data_present = true;
    let failures = || match version {
        Version::V4 => Failures { count: 3, reasons: vec![] },
        Version::V5 => Failures { count: 1, reasons: vec![("10.0.0.1".parse().unwrap(), 5)] },
    };
    let write_type = || "CAS".to_string();
    let contentions = (version == Version::V5).then_some(9);
    let (keyspace, function) = ("ks".to_string(), "f".to_string());
    let table = String::new();
    let kinds = vec![
        FailureKind::Server,
        FailureKind::Protocol,
        FailureKind::Authentication,
        FailureKind::Unavailable { consistency, required: 3, alive: 1 },
        FailureKind::Overloaded,
        FailureKind::Bootstrapping,
        FailureKind::Truncate,
        FailureKind::WriteTimeout { consistency, received, block_for, write_type: write_type(), contentions },
        FailureKind::ReadTimeout { consistency, received, block_for, data_present },
        FailureKind::ReadFailure { consistency, received, block_for, failures: failures(), data_present },
        FailureKind::FunctionFailure {
            keyspace: keyspace.clone(),
            function,
            arg_types: vec!["int".into(), "text".into()],
        },
        FailureKind::WriteFailure {
            consistency,
            received,
            block_for,
            failures: failures(),
            write_type: write_type(),
        },
        FailureKind::CdcWriteFailure,
        FailureKind::CasWriteUnknown { consistency, received, block_for },
        FailureKind::Syntax,
        FailureKind::Unauthorized,
        FailureKind::Invalid,
        FailureKind::Config,
        FailureKind::AlreadyExists { keyspace, table },
        FailureKind::Unprepared(b"id".to_vec()),
        FailureKind::RateLimit { operation: 1, by_coordinator: true },
        FailureKind::Other(0x7777),
    ];
    kinds.into_iter().map(|kind| Failure::new(kind, "because …")).collect()
}

/// Returns one schema change of every target.
pub(crate) fn all_changes() -> Vec<SchemaChange> {
    let targets = [
        (ChangeType::Created, SchemaTarget::Keyspace),
        (ChangeType::Updated, SchemaTarget::Table("t".into())),
        (ChangeType::Dropped, SchemaTarget::Type("u".into())),
        (ChangeType::Created, SchemaTarget::Function("f".into(), vec!["int".into()])),
        (ChangeType::Created, SchemaTarget::Aggregate("a".into(), vec![])),
    ];
    let change = |(change, target)| SchemaChange { change, target, keyspace: "ks".into() };
    targets.into_iter().map(change).collect()
}

/// Returns one event of every kind.
pub(crate) fn all_events() -> Vec<Event> {
    let node = SocketAddr::from((Ipv6Addr::LOCALHOST, 9042));
    let mut events: Vec<Event> = all_changes().into_iter().map(Event::Schema).collect();
    events.push(Event::Topology { added: true, node });
    events.push(Event::Topology { added: false, node: "127.0.0.1:9042".parse().unwrap() });
    events.push(Event::Status { up: true, node });
    events.push(Event::Status { up: false, node });
    events
}

/// Returns every type without parameters, and some with.
pub(crate) fn all_types() -> Vec<CqlType> {
    use CqlType::*;
    let fields = vec![("f".to_string(), Int), ("g".to_string(), List(Box::new(Text)))];
    vec![
        Ascii,
        BigInt,
        Blob,
        Boolean,
        Counter,
        Date,
        Decimal,
        Double,
        Duration,
        Float,
        Inet,
        Int,
        SmallInt,
        Text,
        Time,
        Timestamp,
        TimeUuid,
        TinyInt,
        Uuid,
        Varint,
        List(Box::new(Int)),
        Set(Box::new(Tuple(vec![Int, Uuid]))),
        Map(Box::new(Text), Box::new(List(Box::new(Duration)))),
        Udt(Arc::new(UdtType::new("ks", "u", fields))),
    ]
}

/// Encodes columns of every type, of one table or of two.
pub(crate) fn columns(version: Version, types: &[CqlType], tables: [&str; 2]) -> Columns {
    let spec = |(index, ty)| ColumnSpec::new("ks", tables[index % 2], "column", ty);
    let specs: Vec<ColumnSpec<'_>> = types.iter().enumerate().map(spec).collect();
    Columns::encode(version, &specs).unwrap()
}

/// Appends every response.
pub(crate) fn all_responses(encoder: &mut Encoder) {
    let none = Prelude::default();
    let version = encoder.version();
    let types = all_types();
    let (one, two) = (columns(version, &types, ["t", "t"]), columns(version, &types, ["t", "u"]));
    for failure in all_failures(version) {
        encoder.error(1, &failure, &none).unwrap();
    }
    encoder.ready(2);
    encoder.authenticate(3, "org.apache.cassandra.auth.PasswordAuthenticator").unwrap();
    encoder.supported(4, &[("COMPRESSION", vec!["lz4", "snappy"]), ("EMPTY", vec![])]).unwrap();
    encoder.auth_challenge(5, Some(b"challenge")).unwrap();
    encoder.auth_success(6, None).unwrap();
    encoder.void(7, &Prelude::with_warnings(vec!["careful".into()])).unwrap();
    encoder.set_keyspace(8, "ks", &none).unwrap();
    for change in all_changes() {
        encoder.schema_change(9, &change, &none).unwrap();
    }
    for event in all_events() {
        encoder.event(&event).unwrap();
    }
    let prepared = PreparedHead {
        id: b"id",
        result_metadata_id: b"rid",
        bind: &one,
        partition_key_indexes: &[2, 0],
        result: &two,
    };
    encoder.prepared(10, &prepared, &none).unwrap();
    let head = RowsHead { paging_state: Some(b"more"), ..Default::default() };
    let mut rows = encoder.rows(11, &head, &two, &none);
    for index in 0..types.len() * 3 {
        rows.cell((index % 5 != 0).then_some(&[index as u8; 9]));
    }
    rows.end().unwrap();
}

/// Returns an encoder in one of the framings a connection can have.
pub(crate) fn encoder(direction: Direction, version: Version, framing: Framing) -> Encoder {
    let mut encoder = Encoder::new(direction, version);
    encoder.set_framing(framing);
    encoder
}

/// All framings after STARTUP, with their versions.
pub(crate) const FRAMINGS: [(Version, Framing); 7] = [
    (Version::V4, Framing::Startup),
    (Version::V5, Framing::Startup),
    (Version::V4, Framing::V4(Compression::None)),
    (Version::V4, Framing::V4(Compression::Lz4)),
    (Version::V4, Framing::V4(Compression::Snappy)),
    (Version::V5, Framing::V5 { lz4: false }),
    (Version::V5, Framing::V5 { lz4: true }),
];

/// Decodes all envelopes in `bytes`.
pub(crate) fn decode_all(from: Direction, framing: Framing, bytes: &[u8]) -> Result<Vec<Envelope>, Error> {
    let mut decoder = Decoder::new(from, Limits::default());
    decoder.set_framing(framing);
    let mut input = BytesMut::from(bytes);
    let mut envelopes = Vec::new();
    while let Some(envelope) = decoder.decode(&mut input)? {
        envelopes.push(envelope);
    }
    Ok(envelopes)
}
