//! Round trips of every message, in both versions and every framing. Some messages are compared
//! with bytes derived by hand from the specification.

use crate::corpus::*;
use proptest::prelude::*;
use schema::CqlType;
use wire::*;

#[test]
fn every_request_decodes_to_itself() {
    for (version, framing) in FRAMINGS {
        let mut encoder = encoder(Direction::Request, version, framing);
        let mut sent = Vec::new();
        all_requests(&mut encoder, |request| sent.push(format!("{request:?}")));
        let bytes = encoder.finish().split();
        let envelopes = decode_all(Direction::Request, framing, &bytes).unwrap();
        let received: Vec<String> =
            envelopes.iter().map(|envelope| format!("{:?}", envelope.request().unwrap())).collect();
        assert_eq!(received, sent, "{framing:?}");
        assert!(envelopes.iter().enumerate().all(|(index, envelope)| envelope.stream == index as i16));
    }
}

#[test]
fn every_failure_and_event_decodes_to_itself() {
    for (version, framing) in FRAMINGS {
        let mut encoder = encoder(Direction::Response, version, framing);
        let mut expected = Vec::new();
        for failure in all_failures(version) {
            encoder.error(5, &failure, &Prelude::default()).unwrap();
            expected.push(Response::Error(failure));
        }
        for event in all_events() {
            encoder.event(&event).unwrap();
            expected.push(Response::Event(event));
        }
        for change in all_changes() {
            encoder.schema_change(5, &change, &Prelude::default()).unwrap();
            expected.push(Response::SchemaChange(change));
        }
        let envelopes = decode_all(Direction::Response, framing, encoder.finish()).unwrap();
        let received: Vec<Response<'_>> = envelopes.iter().map(|e| e.response().unwrap()).collect();
        assert_eq!(received, expected, "{framing:?}");
    }
}

#[test]
fn other_responses_decode_to_themselves() {
    for (version, framing) in FRAMINGS {
        let mut encoder = encoder(Direction::Response, version, framing);
        all_responses(&mut encoder);
        let envelopes = decode_all(Direction::Response, framing, encoder.finish()).unwrap();
        let on = |stream| envelopes.iter().find(|e| e.stream == stream).unwrap();
        assert_eq!(on(2).response(), Ok(Response::Ready));
        let class = "org.apache.cassandra.auth.PasswordAuthenticator";
        assert_eq!(on(3).response(), Ok(Response::Authenticate(class)));
        let supported = vec![("COMPRESSION", vec!["lz4", "snappy"]), ("EMPTY", vec![])];
        assert_eq!(on(4).response(), Ok(Response::Supported(supported)));
        assert_eq!(on(5).response(), Ok(Response::AuthChallenge(Some(b"challenge"))));
        assert_eq!(on(6).response(), Ok(Response::AuthSuccess(None)));
        assert_eq!(on(7).response(), Ok(Response::Void));
        assert_eq!(on(7).prelude().unwrap().warnings, ["careful"]);
        assert_eq!(on(8).response(), Ok(Response::SetKeyspace("ks")));
        check_prepared(version, on(10));
        check_rows(on(11));
    }
}

fn check_columns(columns: ColumnsRef<'_>, tables: [&str; 2]) {
    let decoded = columns.decode().unwrap();
    let types: Vec<CqlType> = decoded.iter().map(|c| c.ty.clone().into_owned()).collect();
    assert_eq!(types, all_types());
    for (index, column) in decoded.iter().enumerate() {
        let found = (&*column.keyspace, &*column.table, &*column.name);
        assert_eq!(found, ("ks", tables[index % 2], "column"));
    }
}

fn check_prepared(version: Version, envelope: &Envelope) {
    let Ok(Response::Prepared(prepared)) = envelope.response() else { panic!("not prepared") };
    assert_eq!(prepared.id, b"id");
    let expected: &[u8] = if version == Version::V5 { b"rid" } else { b"" };
    assert_eq!(prepared.result_metadata_id, expected);
    assert_eq!(prepared.partition_key_indexes, [2, 0]);
    check_columns(prepared.bind, ["t", "t"]);
    check_columns(prepared.result.columns.unwrap(), ["t", "u"]);
}

fn check_rows(envelope: &Envelope) {
    let Ok(Response::Rows(rows)) = envelope.response() else { panic!("not rows") };
    let width = all_types().len();
    assert_eq!((rows.len(), rows.metadata.columns_count), (3, width));
    assert_eq!(rows.metadata.paging_state, Some(b"more".as_slice()));
    check_columns(rows.metadata.columns.unwrap(), ["t", "u"]);
    for (index, cell) in rows.cells().enumerate() {
        assert_eq!(cell, (index % 5 != 0).then_some([index as u8; 9].as_slice()));
    }
    assert!(rows.iter().all(|row| row.len() == width));
}

#[test]
fn metadata_is_skipped_unless_it_changed() {
    let columns = columns(Version::V5, &[CqlType::Int], ["t", "t"]);
    let check = |version, head: RowsHead<'_>, described, new_id: Option<&[u8]>| {
        let mut encoder = Encoder::new(Direction::Response, version);
        encoder.rows(0, &head, &columns, &Prelude::default()).end().unwrap();
        let envelopes = decode_all(Direction::Response, Framing::Startup, encoder.finish()).unwrap();
        let Ok(Response::Rows(rows)) = envelopes[0].response() else { panic!("not rows") };
        assert_eq!(rows.metadata.columns.is_some(), described);
        assert_eq!(rows.metadata.new_metadata_id, new_id);
        assert!(rows.is_empty());
    };
    let skip = RowsHead { skip_metadata: true, ..Default::default() };
    let changed = RowsHead { new_metadata_id: Some(b"new"), ..skip };
    check(Version::V4, RowsHead::default(), true, None);
    check(Version::V4, skip, false, None);
    check(Version::V4, changed, false, None);
    check(Version::V5, skip, false, None);
    check(Version::V5, changed, true, Some(b"new"));
}

#[test]
fn preludes_decode_to_themselves() {
    let payload = vec![("a".to_string(), Some("b".into())), ("null".to_string(), None)];
    let asked = Prelude { tracing: true, payload: payload.clone(), ..Default::default() };
    let told =
        Prelude { tracing_id: Some([3; 16]), warnings: vec!["w".into()], payload, ..Default::default() };
    for (version, framing) in FRAMINGS {
        let mut requests = encoder(Direction::Request, version, framing);
        requests.request_with(0, &Request::Query(Query::default()), &asked).unwrap();
        let sent = decode_all(Direction::Request, framing, requests.finish()).unwrap();
        assert_eq!(sent[0].prelude().as_ref(), Ok(&asked));
        assert_eq!(sent[0].request(), Ok(Request::Query(Query::default())));

        let mut responses = encoder(Direction::Response, version, framing);
        responses.void(0, &told).unwrap();
        let sent = decode_all(Direction::Response, framing, responses.finish()).unwrap();
        assert_eq!(sent[0].prelude().as_ref(), Ok(&told));
        assert_eq!(sent[0].response(), Ok(Response::Void));
    }
}

#[test]
fn requests_match_the_golden_bytes() {
    let mut values = ValuesBuf::new();
    values.push(Value::Bytes(b"k")).unwrap();
    let params =
        QueryParams { consistency: Consistency::LocalOne, values: values.values(), ..Default::default() };
    let execute = Request::Execute(Execute { id: b"ID", result_metadata_id: b"R", params });
    let check = |version, request: &Request<'_>, expected: &[u8]| {
        let mut encoder = Encoder::new(Direction::Request, version);
        encoder.request(0x0102, request).unwrap();
        assert_eq!(&encoder.finish()[..], expected);
    };
    check(
        Version::V4,
        &execute,
        b"\x04\x00\x01\x02\x0A\x00\x00\x00\x0E\x00\x02ID\x00\x0A\x01\x00\x01\x00\x00\x00\x01k",
    );
    check(
        Version::V5,
        &execute,
        b"\x05\x00\x01\x02\x0A\x00\x00\x00\x14\x00\x02ID\x00\x01R\x00\x0A\x00\x00\x00\x01\x00\x01\x00\x00\x00\x01k",
    );
    check(Version::V4, &Request::Options, b"\x04\x00\x01\x02\x05\x00\x00\x00\x00");
    let startup = Request::Startup(vec![("CQL_VERSION", "3.0.0")]);
    let body = b"\x00\x01\x00\x0BCQL_VERSION\x00\x053.0.0";
    check(Version::V4, &startup, &[b"\x04\x00\x01\x02\x01\x00\x00\x00\x16".as_slice(), body].concat());
}

#[test]
fn responses_match_the_golden_bytes() {
    let columns = columns(Version::V4, &[CqlType::Int], ["t", "t"]);
    let mut encoder = Encoder::new(Direction::Response, Version::V4);
    let mut rows = encoder.rows(1, &RowsHead::default(), &columns, &Prelude::default());
    rows.cell(Some(&[0, 0, 0, 9]));
    rows.end().unwrap();
    let metadata = b"\0\0\0\x01\0\0\0\x01\0\x02ks\0\x01t\0\x06column\0\x09";
    let expected =
        [b"\x84\0\0\x01\x08\0\0\0\x29\0\0\0\x02".as_slice(), metadata, b"\0\0\0\x01\0\0\0\x04\0\0\0\x09"];
    assert_eq!(encoder.finish().split(), expected.concat());

    let refused = Error::UnsupportedVersion(66);
    encoder.error(0, &Failure::from(&refused), &Prelude::default()).unwrap();
    let text = "Invalid or unsupported protocol version (66); supported versions are (4/v4, 5/v5)";
    let mut expected = b"\x84\0\0\0\0\0\0\0\x57\0\0\0\x0A\0\x51".to_vec();
    expected.extend_from_slice(text.as_bytes());
    assert_eq!(&encoder.finish()[..], expected);
}

/// A v4 server has no type id for durations. Drivers expect the class name.
#[test]
fn durations_are_a_custom_type_in_v4_only() {
    let has_class = |version| {
        let mut encoder = Encoder::new(Direction::Response, version);
        let columns = columns(version, &[CqlType::Duration], ["t", "t"]);
        encoder.rows(0, &RowsHead::default(), &columns, &Prelude::default()).end().unwrap();
        encoder.finish().windows(12).any(|window| window == b"DurationType".as_slice())
    };
    assert!(has_class(Version::V4));
    assert!(!has_class(Version::V5));
}

#[test]
fn oversized_fields_are_refused_and_append_nothing() {
    let long = "x".repeat(70_000);
    for (version, framing) in FRAMINGS {
        let mut responses = encoder(Direction::Response, version, framing);
        let refused = responses.set_keyspace(1, &long, &Prelude::default());
        assert!(matches!(refused, Err(Error::TooLong { length: 70_000, .. })), "{refused:?}");
        assert_eq!(responses.finish().len(), 0);
        drop(responses.begin(1, Opcode::Result));
        assert_eq!(responses.finish().len(), 0);
        responses.error(2, &Failure::new(FailureKind::Invalid, long.clone()), &Prelude::default()).unwrap();
        let envelopes = decode_all(Direction::Response, framing, responses.finish()).unwrap();
        let Ok(Response::Error(failure)) = envelopes[0].response() else { panic!("not an error") };
        assert_eq!(failure.message.len(), 65_535);
    }
}

/// Generated value.
#[derive(Debug, Clone)]
enum GeneratedValue {
    Null,
    Unset,
    Bytes(Vec<u8>),
}

fn made() -> impl Strategy<Value = GeneratedValue> {
    prop_oneof![
        Just(GeneratedValue::Null),
        Just(GeneratedValue::Unset),
        proptest::collection::vec(any::<u8>(), 0..600).prop_map(GeneratedValue::Bytes)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_execute_decodes_to_itself(
        id in proptest::collection::vec(any::<u8>(), 0..40),
        given in proptest::collection::vec(made(), 0..40),
        named in any::<bool>(),
        level in 0u16..11,
        page_size in any::<Option<i32>>(),
        paging_state in any::<Option<Vec<u8>>>(),
        timestamp in (i64::MIN + 1)..,
        stream in any::<i16>(),
        framing in 0usize..FRAMINGS.len(),
    ) {
        let (version, framing) = FRAMINGS[framing];
        let mut values = ValuesBuf::new();
        for (index, value) in given.iter().enumerate() {
            let value = match value {
                GeneratedValue::Null => Value::Null,
                GeneratedValue::Unset => Value::Unset,
                GeneratedValue::Bytes(bytes) => Value::Bytes(bytes),
            };
            match named {
                true => values.push_named(&format!("n{index}"), value).unwrap(),
                false => values.push(value).unwrap(),
            }
        }
        let params = QueryParams {
            consistency: Consistency::from_number(level).unwrap(),
            values: values.values(),
            page_size,
            paging_state: paging_state.as_deref(),
            timestamp: Some(timestamp),
            ..Default::default()
        };
        let request = Request::Execute(Execute { id: &id, result_metadata_id: &[], params });
        let mut encoder = encoder(Direction::Request, version, framing);
        encoder.request(stream, &request).unwrap();
        let envelopes = decode_all(Direction::Request, framing, encoder.finish()).unwrap();
        prop_assert_eq!(envelopes.len(), 1);
        prop_assert_eq!(envelopes[0].stream, stream);
        prop_assert_eq!(envelopes[0].request().unwrap(), request);
    }

    #[test]
    fn any_rows_decode_to_themselves(
        width in 1usize..6,
        cells in proptest::collection::vec(any::<Option<Vec<u8>>>(), 0..60),
        framing in 0usize..FRAMINGS.len(),
    ) {
        let (version, framing) = FRAMINGS[framing];
        let columns = columns(version, &vec![CqlType::Blob; width], ["t", "t"]);
        let whole = cells.len() / width * width;
        let mut encoder = encoder(Direction::Response, version, framing);
        let mut rows = encoder.rows(3, &RowsHead::default(), &columns, &Prelude::default());
        cells[..whole].iter().for_each(|cell| rows.cell(cell.as_deref()));
        rows.end().unwrap();
        let envelopes = decode_all(Direction::Response, framing, encoder.finish()).unwrap();
        let Response::Rows(rows) = envelopes[0].response().unwrap() else { panic!("not rows") };
        let read: Vec<Option<Vec<u8>>> = rows.cells().map(|cell| cell.map(<[u8]>::to_vec)).collect();
        prop_assert_eq!(read.as_slice(), &cells[..whole]);
    }
}
