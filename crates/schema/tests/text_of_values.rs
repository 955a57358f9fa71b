//! CQL constants and the text of their values.

use schema::value::{self, Duration, Literal, from_literal, parse_text, to_text};
use schema::{CqlType, UdtType};

/// Checks that `text` is a value of type `ty` whose text is `expected`.
fn check(ty: &CqlType, text: &str, expected: &str) {
    let bytes = parse_text(ty, text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(to_text(ty, &bytes), expected, "{text}");
}

/// Checks that the texts are no values of the type. `message` has `{}` in place of the text.
fn check_refused(ty: &CqlType, message: &str, texts: &[&str]) {
    for text in texts {
        let error = parse_text(ty, text).expect_err(text);
        assert_eq!(error.to_string(), message.replace("{}", text));
    }
}

#[test]
fn integers_parse_within_their_range() {
    check(&CqlType::TinyInt, "-128", "-128");
    check(&CqlType::SmallInt, "32767", "32767");
    check(&CqlType::Int, "+7", "7");
    check(&CqlType::BigInt, "-9223372036854775808", "-9223372036854775808");
    check(
        &CqlType::Varint,
        "-170141183460469231731687303715884105729",
        "-170141183460469231731687303715884105729",
    );
    check_refused(&CqlType::TinyInt, "Unable to make byte from '{}'", &["128", "1.0", "x"]);
    check_refused(&CqlType::Int, "Unable to make int from '{}'", &["2147483648", " 1", "0x1"]);
    check_refused(&CqlType::BigInt, "Unable to make long from '{}'", &["9223372036854775808"]);
    check_refused(&CqlType::Varint, "unable to make int from '{}'", &["-", "--1", "1_0", "1.0"]);
    assert!(parse_text(&CqlType::Varint, &"9".repeat(1_000_000)).is_err());
}

#[test]
fn fractions_parse_and_print() {
    check(&CqlType::Double, "1", "1.0");
    check(&CqlType::Double, "-0.0", "-0.0");
    check(&CqlType::Double, "1e300", "1e300");
    check(&CqlType::Float, "0.1", "0.1");
    check(&CqlType::Float, "NaN", "NaN");
    check(&CqlType::Float, " 1.5\n", "1.5");
    check(&CqlType::Double, "-Infinity", "-Infinity");
    check_refused(&CqlType::Double, "Unable to make double from '{}'", &["inf", "nan", "1f", "0x1p3"]);
    check(&CqlType::Decimal, "1.00", "1.00");
    check(&CqlType::Decimal, "-.5", "-0.5");
    check(&CqlType::Decimal, "0.000001", "0.000001");
    check(&CqlType::Decimal, "0.0000001", "1E-7");
    check(&CqlType::Decimal, "12e3", "1.2E+4");
    check(&CqlType::Decimal, "1e2147483648", "1E+2147483648");
    check_refused(
        &CqlType::Decimal,
        "unable to make BigDecimal from '{}'",
        &[".", "1e", "1.2.3", "1e2147483649", "1.-5", "--5"],
    );
}

#[test]
fn timestamps_dates_and_times_parse_and_print() {
    let shown = "'2011-02-03 04:05:00.000Z'";
    for text in [
        "2011-02-03 04:05+0000",
        "2011-02-03 04:05:00",
        "2011-02-03T04:05:00Z",
        "2011-02-03 04:05:00.000 UTC",
        "2011-02-03 06:05:00.000+0200",
        "2011-02-02T23:35-04:30",
        "1296705900000",
    ] {
        check(&CqlType::Timestamp, text, shown);
    }
    check(&CqlType::Timestamp, "2011-02-03", "'2011-02-03 00:00:00.000Z'");
    check(&CqlType::Timestamp, "2011-02-03+0100", "'2011-02-02 23:00:00.000Z'");
    check(&CqlType::Timestamp, "2000-02-29T23:59:59.1239", "'2000-02-29 23:59:59.123Z'");
    check(&CqlType::Timestamp, "2011-02-30", "'2011-02-28 00:00:00.000Z'");
    check(&CqlType::Timestamp, "2011-02-03T24:00:00Z", "'2011-02-04 00:00:00.000Z'");
    check(&CqlType::Timestamp, "-1", "'1969-12-31 23:59:59.999Z'");
    check_refused(
        &CqlType::Timestamp,
        "Unable to parse a date/time from '{}'",
        &[
            "now",
            "2011-02-32",
            "2011-13-01",
            "2011-02-03 24:01",
            "2011-02-03 ",
            "+1",
            "2011-02-03T",
            "2011-02-03 04:05 EST",
        ],
    );
    check(&CqlType::Date, "1970-01-01", "'1970-01-01'");
    check(&CqlType::Date, "2147483648", "'1970-01-01'");
    check(&CqlType::Date, "0", "'-5877641-06-23'");
    check(&CqlType::Date, "+5881580-07-11", "'+5881580-07-11'");
    check_refused(
        &CqlType::Date,
        "Unable to coerce '{}' to a formatted date (long)",
        &["", "+5881580-07-12", "12345-01-01", "1970-1-1", "+1970-01-01", "1970-00-01", "1970-01-00"],
    );
    check_refused(&CqlType::Date, "Unable to make unsigned int (for date) from: '{}'", &["-1", "4294967296"]);
    check_refused(&CqlType::Time, "Unable to make long (for time) from: '{}'", &["-1", "86400000000000"]);
    check(&CqlType::Time, "08:12:54.1", "'08:12:54.100000000'");
    check(&CqlType::Time, "008:012:054", "'08:12:54.000000000'");
    check(&CqlType::Time, "86399999999999", "'23:59:59.999999999'");
    check_refused(
        &CqlType::Time,
        "(TimeType) Unable to coerce '{}' to a formatted time (long)",
        &["", "24:00:00", "08:12", "08:12:54.", "08:12:54.1234567890"],
    );
}

#[test]
fn durations_parse_and_print() {
    let full = "1y2mo3d4h5m6s7ms8us9ns";
    check(&CqlType::Duration, full, full);
    check(&CqlType::Duration, "12h30m", "12h30m");
    check(&CqlType::Duration, "14mo", "1y2mo");
    check(&CqlType::Duration, "2W3µS", "14d3us");
    check(&CqlType::Duration, "-90s", "-1m30s");
    check(&CqlType::Duration, "P1Y2M3DT4H5M6S", "1y2mo3d4h5m6s");
    check(&CqlType::Duration, "PT5M", "5m");
    check(&CqlType::Duration, "P3W", "21d");
    check(&CqlType::Duration, "-P0001-02-03T04:05:06", "-1y2mo3d4h5m6s");
    check(&CqlType::Duration, "0s", "0s");
    for text in ["-", "P", "PT", "1", "h", "1x", "PT1D", "P1H", "--1h"] {
        let error = parse_text(&CqlType::Duration, text).expect_err(text);
        assert_eq!(error.to_string(), format!("Unable to convert '{text}' to a duration"));
    }
    for (text, expected) in [
        ("1h1d", "The hours should be after days"),
        ("1h1h", "The hours are specified multiple times"),
        ("2147483648d", "The total number of days must be less or equal to 2147483647"),
        ("9999999999h", "The total number of nanoseconds must be less or equal to 2147483647"),
    ] {
        let error = parse_text(&CqlType::Duration, text).expect_err(text);
        assert_eq!(error.to_string(), format!("Invalid duration. {expected}"));
    }
    let least = Duration { months: i32::MIN, days: i32::MIN, nanoseconds: i64::MIN };
    assert_eq!(Duration::from_bytes(&least.to_bytes()), Ok(least));
    assert_eq!(Duration::parse(&least.to_string()), Ok(least));
    // Bytes from Cassandra: zigzag 2, 4 and 2,000,000. The last needs three bytes.
    let known = Duration { months: 1, days: 2, nanoseconds: 1_000_000 };
    assert_eq!(known.to_bytes(), [0x02, 0x04, 0xde, 0x84, 0x80]);
    assert!(Duration::from_bytes(&[0x02, 0x03, 0x00]).is_err(), "signs differ");
}

#[test]
fn other_scalars_parse_and_print() {
    check(&CqlType::Text, "it's 漢", "'it''s 漢'");
    check(&CqlType::Ascii, "", "''");
    check_refused(&CqlType::Ascii, "Invalid ASCII character in string literal: {}", &["é"]);
    check(&CqlType::Boolean, "TRUE", "true");
    check(&CqlType::Blob, "0xCAfe", "0xcafe");
    check(&CqlType::Blob, "0x", "0x");
    check_refused(&CqlType::Blob, "cannot parse '{}' as hex bytes", &["cafe", "0xc", "0xgg", "0x+1", "0xé"]);
    check(&CqlType::Inet, "127.0.0.1", "'127.0.0.1'");
    check(&CqlType::Inet, "2001:DB8::1", "'2001:db8::1'");
    check(&CqlType::Inet, "127.1", "'127.0.0.1'");
    check(&CqlType::Inet, "::ffff:1.2.3.4", "'1.2.3.4'");
    check_refused(
        &CqlType::Inet,
        "Unable to make inet address from '{}'",
        &["localhost", "1.2.70000", "1.2.3.4/8", "1..2", "+1"],
    );
    let uuid = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
    check(&CqlType::Uuid, uuid, uuid);
    check(&CqlType::TimeUuid, uuid, uuid);
    check_refused(
        &CqlType::Uuid,
        "Unable to make UUID from '{}'",
        &["{f81d4fae-7dec-11d0-a765-00a0c91e6bf6}", "f81d4fae7dec11d0a76500a0c91e6bf6"],
    );
    let error = parse_text(&CqlType::TimeUuid, "f81d4fae-7dec-41d0-a765-00a0c91e6bf6").unwrap_err();
    assert_eq!(error.to_string(), "TimeUUID supports only version 1 UUIDs");
}

#[test]
fn constants_of_the_wrong_kind_are_rejected() {
    let check = |ty: &CqlType, literal: Literal<'_>, expected: &str| {
        assert_eq!(from_literal(ty, literal).unwrap_err().for_column("age"), expected);
    };
    check(&CqlType::Int, Literal::String("x"), "Invalid STRING constant (x) for \"age\" of type int");
    check(&CqlType::Text, Literal::Integer("1"), "Invalid INTEGER constant (1) for \"age\" of type text");
    check(&CqlType::Int, Literal::Float("1.5"), "Invalid FLOAT constant (1.5) for \"age\" of type int");
    check(&CqlType::Boolean, Literal::Blob(&[1]), "Invalid HEX constant (0x01) for \"age\" of type boolean");
    check(&CqlType::Blob, Literal::Boolean(true), "Invalid BOOLEAN constant (true) for \"age\" of type blob");
    let list = CqlType::List(Box::new(CqlType::Int));
    check(&list, Literal::Integer("1"), "Invalid INTEGER constant (1) for \"age\" of type list<int>");
    check(&CqlType::Int, Literal::Integer("99999999999"), "Unable to make int from '99999999999'");
    assert_eq!(from_literal(&CqlType::Double, Literal::Integer("1")).unwrap(), 1_f64.to_be_bytes());
    assert_eq!(from_literal(&CqlType::Blob, Literal::Blob(b"ab")).unwrap(), b"ab");
}

#[test]
fn no_text_is_an_empty_value_where_cassandra_has_one() {
    for ty in [CqlType::Int, CqlType::Timestamp, CqlType::Uuid, CqlType::Inet, CqlType::Decimal] {
        assert_eq!(parse_text(&ty, ""), Ok(Vec::new()), "{ty}");
        assert_eq!(to_text(&ty, &[]), "null", "{ty}");
    }
    let constant = |ty: &CqlType| from_literal(ty, Literal::String(""));
    assert_eq!(constant(&CqlType::Timestamp), Ok(Vec::new()));
    assert!(constant(&CqlType::Int).is_err(), "a number is no text");
}

#[test]
fn vectors_are_checked_and_shown() {
    let ty = |text: &str| CqlType::parse(text, &|_| None).unwrap();
    let check = |text: &str, bytes: &[u8], expected: &str| {
        let ty = ty(text);
        let found = value::check(&ty, bytes).map_or_else(|error| error.to_string(), |()| to_text(&ty, bytes));
        assert_eq!(found, expected, "{text} {bytes:?}");
    };
    check("vector<int, 2>", &[0, 0, 0, 1, 0, 0, 0, 2], "[1, 2]");
    check("vector<boolean, 2>", &[0, 1], "[false, true]");
    check("vector<text, 2>", b"\x01a\x00", "['a', '']");
    check("vector<smallint, 2>", &[2, 0, 1, 2, 0, 2], "[1, 2]");
    check("vector<vector<tinyint, 1>, 2>", &[2, 1, 7, 2, 1, 8], "[[7], [8]]");
    check("vector<vector<float, 1>, 2>", &[0; 8], "[[0.0], [0.0]]");
    check("vector<varint, 2>", &[0, 1, 1], "[null, 1]");
    check("vector<int, 2>", &[], "Invalid empty vector value");
    check("vector<int, 2>", &[0; 4], "Not enough bytes to read a vector<int, 2>");
    check("vector<int, 2>", &[0; 16], "Unexpected 8 extraneous bytes after vector<int, 2> value");
    check("vector<text, 2>", b"\x01a", "Not enough bytes to read a vector<text, 2>");
    check("vector<text, 2>", b"\x02a", "Not enough bytes to read a vector<text, 2>");
    check("vector<text, 2>", b"\x01a\x01b\x01c", "Unexpected 2 extraneous bytes after vector<text, 2> value");
    check("vector<text, 2>", b"\x01\xff\x01b", "String didn't validate.");
    check("vector<smallint, 2>", &[0, 1, 0, 2], "Expected 2 bytes for a smallint (0)");
    check("vector<float, 2147483647>", &[0; 8], "Not enough bytes to read a vector<float, 2147483647>");
    // A length in more bytes than it needs is stored in one.
    let long = b"\x80\x01a\x00";
    assert_eq!(value::canonical(&ty("vector<text, 2>"), long).unwrap().as_ref(), b"\x01a\x00");
}

#[test]
fn values_of_the_wrong_length_are_rejected() {
    let check = |ty: CqlType, bytes: &[u8], expected: &str| {
        assert_eq!(value::check(&ty, bytes).unwrap_err().to_string(), expected);
    };
    check(CqlType::Int, &[0; 5], "Expected 4 or 0 byte int (5)");
    check(CqlType::SmallInt, &[], "Expected 2 bytes for a smallint (0)");
    check(CqlType::Inet, &[0; 5], "Expected 4 or 16 byte inetaddress; got 0000000000");
    check(CqlType::Decimal, &[0; 4], "Expected 0 or at least 5 bytes (4)");
    check(CqlType::Duration, &[0; 2], "Expected at least 3 bytes for a duration (2)");
    check(CqlType::Text, &[0xff], "String didn't validate.");
    check(CqlType::Ascii, "é".as_bytes(), "Invalid byte for ascii: -61");
    check(CqlType::Time, &[0xff; 8], "Invalid time value: it is outside of a day");
    let list = CqlType::List(Box::new(CqlType::Int));
    check(list.clone(), &[0, 0, 0, 1, 0, 0, 0, 1, 0], "Expected 4 or 0 byte int (1)");
    check(list.clone(), &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff], "Null value read when not allowed");
    check(list.clone(), &[0x7f, 0xff, 0xff, 0xff], "Not enough bytes to read a list");
    check(list.clone(), &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "Not enough bytes to read a list");
    check(list.clone(), &[0xff; 4], "The data cannot be deserialized as a list");
    check(list, &[0, 0, 0, 0, 0], "Unexpected extraneous bytes after list value");
}

#[test]
fn nested_values_print_as_constants() {
    let find = |name: &str| {
        let fields = vec![("a".to_owned(), CqlType::Int), ("B c".to_owned(), CqlType::Text)];
        Some(std::sync::Arc::new(UdtType::new("ks", name, fields)))
    };
    let check = |ty: &str, bytes: &[u8], expected: &str| {
        assert_eq!(to_text(&CqlType::parse(ty, &find).unwrap(), bytes), expected);
    };
    let one = 1_i32.to_be_bytes();
    let two = 2_i32.to_be_bytes();
    let a = b"it's";
    check("list<int>", &value::encode_list([&one[..], &two].into_iter()), "[1, 2]");
    check("set<int>", &value::encode_list([].into_iter()), "{}");
    check("map<int, text>", &value::encode_map([(&one[..], &a[..])].into_iter()), "{1: 'it''s'}");
    check("tuple<int, text>", &value::encode_tuple([None, Some(&a[..])].into_iter()), "(null, 'it''s')");
    check("u", &value::encode_tuple([Some(&two[..])].into_iter()), "{a: 2}");
    check("u", &value::encode_tuple([Some(&two[..]), None].into_iter()), "{a: 2, \"B c\": null}");
    check("list<int>", &[1, 2], "0x0102");
}

#[test]
fn canonical_form_sorts_sets_and_maps() {
    let check = |ty: &str, input: Vec<u8>, expected: &str| {
        let ty = CqlType::parse(ty, &|_| None).unwrap();
        assert_eq!(to_text(&ty, &value::canonical(&ty, &input).unwrap()), expected);
    };
    let int = |n: i32| n.to_be_bytes();
    let a = int(-1);
    let b = int(5);
    let c = int(7);
    let set = value::encode_list([&b[..], &a, &b].into_iter());
    check("set<int>", set.clone(), "{-1, 5}");
    check("frozen<list<int>>", set.clone(), "[5, -1, 5]");
    check("list<frozen<set<int>>>", value::encode_list([&set[..]].into_iter()), "[{-1, 5}]");
    let map = value::encode_map([(&b[..], &a[..]), (&a, &a), (&b, &c)].into_iter());
    check("map<int, int>", map, "{-1: -1, 5: 7}");
}

#[test]
fn min_and_max_timeuuid_bound_their_millisecond() {
    let ms = 1_296_705_900_123;
    let (least, most) = (value::min_timeuuid(ms), value::max_timeuuid(ms));
    let order = |a: &[u8], b: &[u8]| value::compare(&CqlType::TimeUuid, a, b);
    for low in [0, 1, u64::MAX, 0x7f7f_7f7f_7f7f_7f7f] {
        let within = value::timeuuid(ms * 10_000 + 9_999, low);
        assert_eq!(value::check(&CqlType::TimeUuid, &within), Ok(()));
        assert_eq!(value::unix_ms_of_timeuuid(&within), Some(ms));
        assert!(order(&least, &within).is_lt() && order(&within, &most).is_le(), "{low:x}");
        assert!(order(&most, &value::timeuuid((ms + 1) * 10_000, low)).is_lt());
    }
    // The time of a well-known UUID, and the lowest UUID of 1970.
    let known = parse_text(&CqlType::TimeUuid, "50554d6e-29bb-11e5-b345-feff819cdc9f").unwrap();
    assert_eq!(value::unix_ms_of_timeuuid(&known), Some(1_436_832_018_805));
    assert_eq!(to_text(&CqlType::TimeUuid, &value::min_timeuuid(0)), "13814000-1dd2-11b2-8080-808080808080");
    assert_eq!(value::unix_ms_of_timeuuid(&[0; 16]), None);
    assert_eq!(value::unix_ms_of_timeuuid(b"short"), None);
    assert_eq!(value::min_timeuuid(i64::MIN)[..8], [0, 0, 0, 0, 0, 0, 0x10, 0]);
}
