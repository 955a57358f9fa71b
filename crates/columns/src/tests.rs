//! Conversion of edge cases of every type, null and invalid bytes, in both directions.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, IntervalMonthDayNanoType, Time64NanosecondType};
use arrow_array::{Array, ArrayRef, BinaryArray};
use schema::{CqlType, UdtType, value};

use super::*;

fn ty(text: &str) -> CqlType {
    let udt =
        UdtType::new("ks", "place", vec![("street".into(), CqlType::Text), ("number".into(), CqlType::Int)]);
    CqlType::parse(text, &|name| (name == "place").then(|| Arc::new(udt.clone()))).expect("a type")
}

fn column(ty: &CqlType, values: &[Option<Vec<u8>>]) -> ArrayRef {
    let mut builder = ColumnBuilder::new(ty, SCALE_DEFAULT, values.len());
    values.iter().for_each(|value| builder.push(value.as_deref()).expect("a value"));
    assert_eq!(builder.len(), values.len());
    let array = builder.finish();
    assert!(builder.is_empty());
    array
}

/// Converts the values with these texts, and a null, to a column, and checks the values converted
/// back.
#[track_caller]
fn check(text: &str, texts: &[&str]) -> ArrayRef {
    let ty = ty(text);
    let values = texts.iter().map(|text| Some(value::parse_text(&ty, text).expect("a value")));
    let values: Vec<_> = values.chain([None]).collect();
    let array = column(&ty, &values);
    assert_eq!(*array.data_type(), arrow_type(&ty, SCALE_DEFAULT));
    assert_eq!((array.len(), array.null_count()), (values.len(), 1));
    for (row, value) in values.iter().enumerate() {
        let back = serialized(&ty, &array, row);
        match (value, back) {
            (Some(value), Some(back)) => {
                assert!(value::compare(&ty, value, &back).is_eq(), "{text} {row}: {value:?} {back:?}");
            }
            (value, back) => assert!(value.is_none() && back.is_none(), "{text} {row}: {back:?}"),
        }
    }
    array
}

#[test]
fn scalars_survive_the_conversion() {
    check("boolean", &["true", "false"]);
    check("tinyint", &["-128", "0", "127"]);
    check("smallint", &["-32768", "-1", "32767"]);
    check("int", &["-2147483648", "0", "2147483647"]);
    check("bigint", &["-9223372036854775808", "1", "9223372036854775807"]);
    check("counter", &["-5", "5"]);
    check("float", &["-1.5", "0.0", "NaN", "Infinity"]);
    check("double", &["-1.5e300", "-0.0", "-Infinity"]);
    check("ascii", &["", "plain"]);
    check("text", &["", "漢字 é"]);
    check("blob", &["0x", "0x00ff"]);
    check("timestamp", &["1969-12-31T23:59:59.999Z", "2024-02-29T12:00:00Z", "-9223372036854775808"]);
    check("frozen<int>", &["7"]);
}

#[test]
fn dates_times_and_durations_are_converted() {
    let days = check("date", &["1970-01-01", "1969-12-31", "0", "4294967295"]);
    assert_eq!(days.as_primitive::<Date32Type>().values()[..4], [0, -1, i32::MIN, i32::MAX]);
    let times = check("time", &["00:00:00", "23:59:59.999999999"]);
    assert_eq!(times.as_primitive::<Time64NanosecondType>().value(1), 86_399_999_999_999);
    let intervals = check("duration", &["1y2mo3d4ns", "-5s", "0s"]);
    let first = intervals.as_primitive::<IntervalMonthDayNanoType>().value(0);
    assert_eq!((first.months, first.days, first.nanoseconds), (14, 3, 4));
}

#[test]
fn types_unknown_to_sql_become_text() {
    let long = format!("-{}", "123456789".repeat(30));
    let check_texts = |text: &str, texts: &[&str]| {
        let array = check(text, texts);
        let found: Vec<_> = array.as_string::<i32>().iter().flatten().collect();
        assert_eq!(found, texts, "{text}");
    };
    check_texts("varint", &["0", "-170141183460469231731687303715884105728", &long]);
    check_texts("uuid", &["123e4567-e89b-42d3-a456-426655440000"]);
    check_texts("timeuuid", &["50554d6e-29bb-11e5-b345-feff819cdc9f"]);
    check_texts("inet", &["127.0.0.1", "2001:db8::1"]);
}

#[test]
fn decimals_are_exact_or_rejected() {
    let array = check("decimal", &["1.5", "-0.000001", "100", "1e6", "1.500000000", "0e99", "0.0000000000"]);
    let found = &array.as_primitive::<Decimal128Type>().values()[..7];
    assert_eq!(found, [1_500_000, -1, 100_000_000, 1_000_000_000_000, 1_500_000, 0, 0]);
    let most = "99999999999999999999999999999999.999999";
    check("decimal", &[most, &format!("-{most}"), &format!("1.{}", "0".repeat(60))]);
    for text in
        ["0.0000001", "1e32", "-1e99", "1.0000000000000000000000000000000000000000001", "1e-2147483647"]
    {
        let bytes = value::parse_text(&CqlType::Decimal, text).expect("a decimal");
        let error =
            ColumnBuilder::new(&CqlType::Decimal, SCALE_DEFAULT, 1).push(Some(&bytes)).expect_err(text);
        assert!(error.to_string().contains("expected a decimal that fits 38 digits"), "{error}");
    }
}

#[test]
fn decimals_have_the_configured_scale() {
    let texts = ["1.5", "0.000000000000000001", "-2", "99999999999999999999.5"];
    let ty = ty("map<text, frozen<list<decimal>>>");
    assert!(format!("{:?}", arrow_type(&ty, 18)).contains("Decimal128(38, 18)"), "also inside other types");
    let bytes: Vec<_> =
        texts.iter().map(|text| value::parse_text(&CqlType::Decimal, text).expect("a decimal")).collect();
    let mut builder = ColumnBuilder::new(&CqlType::Decimal, 18, 1);
    bytes.iter().for_each(|value| builder.push(Some(value)).expect("a number"));
    let (built, at_once) =
        (builder.finish(), decimal_column(&bytes.iter().map(Some).collect(), 18).expect("numbers"));
    assert_eq!(*built.data_type(), DataType::Decimal128(38, 18));
    assert_eq!(&built, &at_once);
    let unit = 10_i128.pow(18);
    let expected = [unit * 3 / 2, 1, -2 * unit, 100_000_000_000_000_000_000 * unit - unit / 2];
    assert_eq!(built.as_primitive::<Decimal128Type>().values()[..], expected);
    let back = serialized(&CqlType::Decimal, &built, 1).expect("a decimal");
    assert_eq!(value::to_text(&CqlType::Decimal, &back), "1E-18");
    let error = ColumnBuilder::new(&CqlType::Decimal, 0, 1).push(Some(&bytes[0])).expect_err("1.5");
    assert!(error.to_string().contains("digits with scale 0"), "{error}");
}

#[test]
fn decimals_of_any_form_keep_their_number() {
    let bytes = |scale: i32, unscaled: &[u8]| [&scale.to_be_bytes(), unscaled].concat();
    let most = i64::MIN.to_be_bytes();
    let cases: &[(i32, &[u8], Option<i128>)] = &[
        (6, &[0x80], Some(-128)),
        (6, &[0xff, 0x80], Some(-128)),
        (6, &[0, 0, 0, 0, 0, 0, 0, 0x80], Some(128)),
        (6, &[0, 0, 0, 0, 0, 0, 0, 0, 0x80], Some(128)),
        (6, &most, Some(i128::from(i64::MIN))),
        (2, &most, Some(i128::from(i64::MIN) * 10_000)),
        (-12, &[9], Some(9 * 10_i128.pow(18))),
        (-12, &most, Some(i128::from(i64::MIN) * 10_i128.pow(18))),
        (-13, &[9], Some(9 * 10_i128.pow(19))),
        (-13, &most, Some(i128::from(i64::MIN) * 10_i128.pow(19))),
        (-14, &most, None),
        (7, &[10], Some(1)),
        (7, &[11], None),
        (i32::MIN, &[1], None),
        (i32::MIN, &[0], Some(0)),
        (i32::MAX, &[1], None),
        (6, &[], None),
    ];
    for (scale, unscaled, expected) in cases {
        let value = bytes(*scale, unscaled);
        // The number is last in one row, and followed by other bytes in the other.
        let column = decimal_column(
            &BinaryArray::from_opt_vec(vec![None, Some(&value), None, Some(&value)]).slice(1, 3),
            SCALE_DEFAULT,
        );
        let found = column.map(|column| {
            assert!(!column.is_null(0) && column.is_null(1));
            let numbers = column.as_primitive::<Decimal128Type>();
            (numbers.value(0), numbers.value(2))
        });
        assert_eq!(found.ok(), expected.map(|number| (number, number)), "scale {scale}, {unscaled:?}");
        let mut builder = ColumnBuilder::new(&CqlType::Decimal, SCALE_DEFAULT, 1);
        assert_eq!(builder.push(Some(&value)).is_ok(), expected.is_some());
    }
}

#[test]
fn collections_become_lists_maps_and_structs() {
    let (one, two) = (1_i32.to_be_bytes(), 2_i32.to_be_bytes());
    let list = value::encode_list([&one[..], &two].into_iter());
    let lists = column(&ty("list<int>"), &[Some(list.clone()), None, Some(vec![0; 4])]);
    assert_eq!(*lists.data_type(), arrow_type(&ty("set<int>"), SCALE_DEFAULT));
    let lists = lists.as_list::<i32>();
    assert_eq!((lists.value_length(0), lists.is_null(1), lists.value_length(2)), (2, true, 0));
    assert!(!lists.is_null(2), "an empty frozen list is not null");

    let map = value::encode_map([(&b"a"[..], &list[..])].into_iter());
    let maps = column(&ty("map<text, frozen<list<int>>>"), &[None, Some(map)]);
    let entry = maps.as_map().value(1);
    assert_eq!(entry.column(0).as_string::<i32>().value(0), "a");
    assert_eq!(entry.column(1).as_list::<i32>().value_length(0), 2);

    let tuple = value::encode_tuple([Some(&one[..]), None].into_iter());
    let tuples = column(&ty("tuple<int, text>"), &[Some(tuple), None]);
    let tuples = tuples.as_struct();
    assert_eq!(tuples.column_names(), ["f1", "f2"]);
    assert_eq!((tuples.column(1).is_null(0), tuples.is_null(0), tuples.is_null(1)), (true, false, true));

    // A value written before ALTER TYPE added `number`.
    let short = value::encode_tuple([Some(&b"High"[..])].into_iter());
    let places = column(&ty("list<frozen<place>>"), &[Some(value::encode_list([&short[..]].into_iter()))]);
    let place = places.as_list::<i32>().value(0);
    assert_eq!(place.as_struct().column_names(), ["street", "number"]);
    assert!(place.as_struct().column(1).is_null(0));
    assert_eq!(serialized(&ty("list<int>"), &column(&ty("list<int>"), &[Some(list)]), 0), None);

    let numbers = [1_f32.to_be_bytes(), 2_f32.to_be_bytes()].concat();
    let vectors = column(&ty("vector<float, 2>"), &[None, Some(numbers)]);
    assert_eq!(*vectors.data_type(), arrow_type(&ty("list<float>"), SCALE_DEFAULT));
    assert_eq!((vectors.as_list::<i32>().value_length(0), vectors.as_list::<i32>().value_length(1)), (0, 2));
    let texts = column(&ty("vector<text, 2>"), &[Some(b"\x01a\x00".to_vec())]);
    assert_eq!(texts.as_list::<i32>().value(0).as_string::<i32>().value(0), "a");
}

#[test]
fn invalid_bytes_are_rejected() {
    let long = [0; 17];
    for text in [
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "counter",
        "float",
        "double",
        "date",
        "time",
        "timestamp",
        "uuid",
        "timeuuid",
        "inet",
        "duration",
        "list<int>",
        "map<int, int>",
        "tuple<int>",
        "place",
    ] {
        for bytes in [&long[..], &[0xff; 3]] {
            let pushed = ColumnBuilder::new(&ty(text), SCALE_DEFAULT, 1).push(Some(bytes));
            assert!(pushed.is_err(), "{text} {bytes:?}");
        }
    }
    for (text, bytes) in [
        ("text", &[0xff][..]),
        ("decimal", &[0; 4]),
        ("time", &[0x7f; 8]),
        ("set<text>", &[0, 0, 0, 1, 0, 0, 0, 1, 0xff]),
        ("vector<int, 1>", &[0; 8]),
        ("tuple<int>", &[0, 0, 0, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]),
    ] {
        assert!(ColumnBuilder::new(&ty(text), SCALE_DEFAULT, 1).push(Some(bytes)).is_err(), "{text}");
    }
}

#[test]
fn empty_values_are_null() {
    for text in ["boolean", "int", "double", "timestamp", "uuid", "inet", "varint", "decimal"] {
        let array = column(&ty(text), &[Some(Vec::new())]);
        assert!(array.is_null(0), "{text}");
    }
    let array = column(&ty("list<int>"), &[Some(value::encode_list([&b""[..]].into_iter()))]);
    assert!(array.as_list::<i32>().value(0).is_null(0));
    let map = value::encode_map([(&b""[..], &b"a"[..])].into_iter());
    assert!(ColumnBuilder::new(&ty("map<int, text>"), SCALE_DEFAULT, 1).push(Some(&map)).is_err());
    let stored =
        BinaryArray::from(vec![Some(&b"\0\0\0\0\x07"[..]), None, Some(&[]), Some(&b"\0\0\0\0\x08"[..])]);
    let numbers = decimal_column(&stored, 0).expect("valid");
    let valid: Vec<bool> = (0..4).map(|row| numbers.is_valid(row)).collect();
    assert_eq!(valid, [true, false, false, true]);
    assert_eq!(numbers.as_primitive::<Decimal128Type>().value(3), 8);
}

#[test]
fn invalid_values_are_not_serialized() {
    let texts: ArrayRef = Arc::new(arrow_array::StringArray::from(vec!["nope", "é"]));
    for text in ["uuid", "inet", "varint", "int"] {
        assert_eq!(serialized(&ty(text), &texts, 0), None, "{text}");
    }
    assert_eq!(serialized(&CqlType::Ascii, &texts, 1), None);
    assert_eq!(serialized(&CqlType::Text, &texts, 1).as_deref(), Some("é".as_bytes()));
}
