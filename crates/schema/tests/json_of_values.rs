//! Values as JSON, and Cassandra's messages for JSON that is no value of a type.

use std::sync::Arc;

use schema::value::json::{
    JSON_BYTES_MAX, JsonColumn, float_text, from_json, from_json_row, push_name, to_json,
};
use schema::value::{self, parse_text};
use schema::{CqlType, UdtType};

/// Parses a type. `u` is a user type.
fn ty(text: &str) -> CqlType {
    let find = |name: &str| {
        let fields =
            vec![("a".to_owned(), CqlType::Int), ("B c".to_owned(), CqlType::Set(Box::new(CqlType::Text)))];
        Some(Arc::new(UdtType::new("ks", name, fields)))
    };
    CqlType::parse(text, &find).unwrap()
}

fn json(ty: &CqlType, bytes: &[u8]) -> String {
    let mut out = String::new();
    to_json(ty, bytes, &mut out).unwrap();
    out
}

/// Checks that `text` is a value of the type, whose JSON is `expected`.
fn check(of: &str, text: &str, expected: &str) {
    let of = ty(of);
    let bytes = from_json(&of, text).unwrap_or_else(|error| panic!("{text}: {error}")).expect("a value");
    assert_eq!(json(&of, &bytes), expected, "{of} {text}");
}

fn check_refused(of: &str, text: &str, expected: &str) {
    let error = from_json(&ty(of), text).expect_err(text).to_string();
    assert_eq!(error, expected, "{of} {text}");
}

#[test]
fn numbers_keep_all_digits() {
    check("int", "-2147483648", "-2147483648");
    check("int", "\"7\"", "7");
    check("bigint", " 9223372036854775807 ", "9223372036854775807");
    check("smallint", "\"32767\"", "32767");
    check("tinyint", "-128", "-128");
    let digits = "1234567890".repeat(20);
    check("varint", &digits, &digits);
    check("decimal", &format!("-{digits}.{digits}"), &format!("-{digits}.{digits}"));
    check("decimal", "1.10", "1.10");
    check("decimal", "\"-1.23E-12\"", "-1.23E-12");
    check("double", "123123", "123123.0");
    check("double", "1e300", "1.0E300");
    check("double", "12345678", "1.2345678E7");
    check("double", "0.00012", "1.2E-4");
    check("double", "-0.0", "-0.0");
    check("float", "123123.123123", "123123.125");
    check("float", "\"0.1\"", "0.1");
    check("double", "\"NaN\"", "null");
    check("float", "\"-Infinity\"", "null");
}

#[test]
fn other_scalars_are_strings() {
    check("text", r#""some \" \u2013 \ud83d\ude00 \/""#, "\"some \\\" – 😀 /\"");
    check("text", r#""\u0000\b\u001f\n""#, r#""\u0000\b\u001F\n""#);
    check("ascii", "\"\"", "\"\"");
    check("blob", "\"0x00FF\"", "\"0x00ff\"");
    check("blob", "\"0x\"", "\"0x\"");
    check("boolean", "true", "true");
    check("boolean", "\"FALSE\"", "false");
    check("date", "\"1987-03-23\"", "\"1987-03-23\"");
    check("time", "\"07:35:07.000111222\"", "\"07:35:07.000111222\"");
    check("timestamp", "123123123123", "\"1973-11-26 00:52:03.123Z\"");
    check("timestamp", "\"2014-01-01\"", "\"2014-01-01 00:00:00.000Z\"");
    check("duration", "\"P2W\"", "\"14d\"");
    check("inet", "\"127.0.0.1\"", "\"127.0.0.1\"");
    check("inet", "\"2001:DB8::1\"", "\"2001:db8:0:0:0:0:0:1\"");
    let uuid = "\"6bddc89a-5644-11e4-97fc-56847afe9799\"";
    check("uuid", &uuid.to_uppercase(), uuid);
    check("timeuuid", uuid, uuid);
}

#[test]
fn nested_values_are_arrays_and_objects() {
    check("list<int>", "[3, 1, \"2\"]", "[3, 1, 2]");
    check("set<int>", "[3,1,2,1]", "[1, 2, 3]");
    check("list<int>", "\"[1]\"", "[1]");
    check("map<text, boolean>", r#"{"b": true, "a": false, "b": false}"#, r#"{"a": false, "b": false}"#);
    check("map<int, float>", r#"{"10": 1, "9": 2}"#, r#"{"9": 2.0, "10": 1.0}"#);
    check("map<frozen<list<text>>, int>", r#"{"[\"x\"]": 1}"#, r#"{"[\"x\"]": 1}"#);
    let nested = r#"{"{\"[\\\"0\\\", \\\"1\\\"]\": \"a\"}": true}"#;
    check("map<frozen<map<frozen<set<text>>, text>>, boolean>", nested, nested);
    check("tuple<int, text, uuid>", r#"[1, null, null]"#, r#"[1, null, null]"#);
    check("u", r#"{"A": 1, "\"B c\"": ["y", "x"]}"#, r#"{"a": 1, "\"B c\"": ["x", "y"]}"#);
    check("u", r#"{"a": 5, "\"a\"": 6}"#, r#"{"a": 6, "\"B c\"": null}"#);
    check("u", "{}", r#"{"a": null, "\"B c\"": null}"#);
    // A trailing field that was added later.
    let one = value::encode_tuple([Some(&1_i32.to_be_bytes()[..])].into_iter());
    assert_eq!(json(&ty("u"), &one), r#"{"a": 1, "\"B c\"": null}"#);
    assert_eq!(json(&ty("list<int>"), &[1]), "\"0x01\"");
    assert_eq!(from_json(&ty("list<int>"), "null"), Ok(None));
}

#[test]
fn wrong_scalars_get_the_messages_of_cassandra() {
    let expected = |wanted: &str, got: &str| format!("Expected {wanted}, but got a {got}");
    check_refused("ascii", "123", &expected("an ascii string", "Integer: 123"));
    check_refused("ascii", r#""\u1fff""#, "Invalid ASCII character in string literal: \u{1fff}");
    check_refused("text", "123", &expected("a UTF-8 string", "Integer: 123"));
    check_refused(
        "bigint",
        "9223372036854775808",
        &expected("a bigint value", "BigInteger: 9223372036854775808"),
    );
    check_refused("bigint", "123.456", &expected("a bigint value", "Double: 123.456"));
    check_refused(
        "bigint",
        r#"["abc", {"a": 1e9}]"#,
        &expected("a bigint value", "ArrayList: [abc, {a=1.0E9}]"),
    );
    check_refused("bigint", "\"abc\"", "Unable to make long from 'abc'");
    check_refused("int", "2147483648", &expected("an int value", "Long: 2147483648"));
    check_refused("int", "true", &expected("an int value", "Boolean: true"));
    check_refused("smallint", "32768", "Unable to make short from '32768'");
    check_refused("tinyint", "1e2", "Unable to make byte from '100.0'");
    check_refused("tinyint", "true", &expected("a byte value", "Boolean: true"));
    check_refused("double", "{}", &expected("a double value", "LinkedHashMap: {}"));
    check_refused("float", "\"xyzz\"", "Unable to make float from 'xyzz'");
    check_refused("boolean", "\"abc\"", "Unable to make boolean from 'abc'");
    check_refused("boolean", "123", &expected("a boolean value", "Integer: 123"));
    check_refused(
        "varint",
        "123123.123",
        "Value '123123.123' is not a valid representation of a varint value",
    );
    check_refused("varint", "\"\"", "Value '' is not a valid representation of a varint value");
    check_refused("decimal", "true", "Value 'true' is not a valid representation of a decimal value");
    check_refused(
        "blob",
        "\"123\"",
        "Value '123' is not a valid blob representation: String representation of blob is missing 0x prefix: 123",
    );
    check_refused(
        "blob",
        "\"0x123\"",
        "Value '0x123' is not a valid blob representation: cannot parse '123' as hex bytes",
    );
    check_refused("date", "\"xyz\"", "Unable to coerce 'xyz' to a formatted date (long)");
    check_refused("time", "123456", &expected("a string representation of a time value", "Integer: 123456"));
    check_refused(
        "timestamp",
        "123.456",
        &expected("a long or a datestring representation of a timestamp value", "Double: 123.456"),
    );
    check_refused("timestamp", "\"abcd\"", "Unable to parse a date/time from 'abcd'");
    check_refused("inet", "\"xyzz\"", "Unable to make inet address from 'xyzz'");
    check_refused("uuid", "\"zz\"", "Unable to make UUID from 'zz'");
    let zero = "\"00000000-0000-0000-0000-000000000000\"";
    check_refused("timeuuid", zero, "TimeUUID supports only version 1 UUIDs");
    check_refused("duration", "\"xyz\"", "Unable to convert 'xyz' to a duration");
}

#[test]
fn wrong_containers_get_the_messages_of_cassandra() {
    check_refused("list<int>", "123", "Expected a list, but got a Integer: 123");
    check_refused("list<int>", "\"\\\"[1]\\\"\"", "Expected a list, but got a String: [1]");
    check_refused("list<int>", "[null]", "Invalid null element in list");
    check_refused(
        "set<uuid>",
        "{\"a\":1}",
        "Expected a list (representing a set), but got a LinkedHashMap: {a=1}",
    );
    check_refused("set<uuid>", "[null]", "Invalid null element in set");
    check_refused("map<text, int>", "[1]", "Expected a map, but got a ArrayList: [1]");
    check_refused("map<text, int>", "{\"a\": null}", "Invalid null value in map");
    check_refused("map<int, int>", "{\"a\": 1}", "Unable to make int from 'a'");
    check_refused("tuple<int, int>", "[1]", "Tuple is missing items (expected 2): [1]");
    check_refused("tuple<int, int>", "[1, 2, 3]", "Tuple contains extra items (expected 2): [1, 2, 3]");
    check_refused("u", "{\"xxx\": 1}", "Unknown field 'xxx' in value of user defined type u");
    check_refused("u", "{\"a\": \"foobar\"}", "Unable to make int from 'foobar'");
    let error = from_json(&CqlType::Int, "ΎΔδϠ").unwrap_err().to_string();
    assert!(error.starts_with("Could not decode JSON string 'ΎΔδϠ': "), "{error}");
    for text in ["", "1x", "1,", "truee", "[1", "{\"a\" 1}", "'a'", "01", "\"\\ud800\"", "NaN"] {
        let error = from_json(&CqlType::Text, text).expect_err(text).to_string();
        assert!(error.starts_with("Could not decode JSON string '"), "{text}: {error}");
    }
    check("int", "1 2", "1");
}

#[test]
fn rows_name_columns_in_any_case() {
    let columns = [("k", CqlType::Int), ("V", CqlType::Text)];
    let row = |text: &str| {
        let columns = columns.iter().map(|(name, ty)| (*name, ty));
        from_json_row(columns, text).map_err(|error| error.to_string())
    };
    let int = |n: i32| JsonColumn::Value(n.to_be_bytes().to_vec());
    assert_eq!(row(r#"{"k": 1, "\"V\"": null}"#), Ok(vec![int(1), JsonColumn::Null]));
    assert_eq!(row(r#"{"K": 1} and more"#), Ok(vec![int(1), JsonColumn::Missing]));
    assert_eq!(row(r#"{"k": 1, "k": 2}"#), Ok(vec![int(2), JsonColumn::Missing]));
    assert_eq!(row(r#"{"K": 1, "k": 2}"#), Ok(vec![int(1), JsonColumn::Missing]));
    let unknown = |name: &str| Err(format!("JSON values map contains unrecognized column: {name}"));
    assert_eq!(row(r#"{"k": 1, "V": "x", "zzz": 1, "a": 2}"#), unknown("v"));
    assert_eq!(row(r#"{"k": 1, "\"K\"": 1}"#), unknown("K"));
    let error = row(r#"{"k": "a", "zzz": 1}"#);
    assert_eq!(error, Err("Error decoding JSON value for k: Unable to make int from 'a'".to_owned()));
    assert_eq!(row("null"), Err("Got null for INSERT JSON values".to_owned()));
    for text in ["\"notamap\"", "12.34", "", "{"] {
        let error = row(text).unwrap_err();
        assert!(error.starts_with("Could not decode JSON string as a map: "), "{error}");
        assert!(error.ends_with(&format!(". (String was: {text})")), "{error}");
    }
    let mut name = String::new();
    push_name("a\"Ä", &mut name).unwrap();
    assert_eq!(name, r#""\"a\"Ä\"""#);
}

#[test]
fn sizes_are_bounded() {
    let too_long = |error: &dyn std::fmt::Display| assert!(error.to_string().contains("67108864"), "{error}");
    // Each level of keys doubles the backslashes.
    let mut of = ty("text");
    let mut bytes = vec![b'"'; 1 << 16];
    for _ in 0..7 {
        of = CqlType::Frozen(Box::new(CqlType::Map(Box::new(of), Box::new(CqlType::Int))));
        bytes = value::encode_map([(&bytes[..], &[0, 0, 0, 1][..])].into_iter());
    }
    let mut out = String::new();
    to_json(&of, &bytes, &mut out).unwrap();
    for _ in 0..7 {
        of = CqlType::Map(Box::new(of), Box::new(CqlType::Int));
        bytes = value::encode_map([(&bytes[..], &[0, 0, 0, 1][..])].into_iter());
    }
    let mut out = String::new();
    too_long(&to_json(&of, &bytes, &mut out).unwrap_err());
    assert!(out.len() <= JSON_BYTES_MAX + 100);
    // Each `{}` has thousands of null fields.
    let fields = (0..4000).map(|at| (format!("f{at}"), CqlType::Int)).collect();
    let wide = CqlType::List(Box::new(CqlType::Udt(Arc::new(UdtType::new("ks", "w", fields)))));
    let text = format!("[{{}}{}]", ",{}".repeat(10_000));
    too_long(&from_json(&wide, &text).unwrap_err());
    // Depth that no type has is checked without recursion.
    let deep = "[".repeat(1 << 20);
    assert!(from_json(&ty("list<int>"), &deep).is_err());
    let deep = format!("[{}{}]", "[".repeat(1 << 20), "]".repeat(1 << 20));
    assert!(from_json(&ty("list<int>"), &deep).is_err());
    assert!(parse_text(&CqlType::Varint, &"9".repeat(3000)).is_err());
    assert!(from_json(&CqlType::Varint, &"9".repeat(3000)).is_err());
}

#[test]
fn floats_have_the_texts_of_java() {
    for (number, expected) in [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-6.3, "-6.3"),
        (100.0, "100.0"),
        (1234567.0, "1234567.0"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (1.25e10, "1.25E10"),
        (0.001, "0.001"),
        (0.0125, "0.0125"),
        (0.00012, "1.2E-4"),
        (f64::MAX, "1.7976931348623157E308"),
        (f64::NAN, "NaN"),
        (f64::NEG_INFINITY, "-Infinity"),
    ] {
        assert_eq!(float_text(number), expected);
    }
    assert_eq!(float_text(5.2_f32), "5.2");
    assert_eq!(float_text(3.4028235e38_f32), "3.4028235E38");
}
