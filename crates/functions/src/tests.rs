//! Resolution and results of calls.

use schema::CqlType;

use crate::testing::{Fixed, Value, call, call_for, execute, ty};
use crate::{Aggregate, Argument, Function, FunctionError, Operator, arithmetic, cast, negate};

/// Checks the result of a call, whose arguments are `type text`.
#[track_caller]
fn check(name: &str, arguments: &[&str], expected: &str) {
    assert_eq!(call(name, arguments), expected, "{name}{arguments:?}");
}

#[track_caller]
fn operation(op: Operator, left: &str, right: &str, expected: &str) {
    let split = |text: &str| text.rsplit_once(' ').map(|(of, text)| (ty(of), text.to_owned())).unwrap();
    let (left, right) = (split(left), split(right));
    let columns = [Value(Some(left.0.clone())), Value(Some(right.0.clone()))];
    let function = arithmetic(op, &columns[0], &columns[1], None);
    assert_eq!(execute(function, &[left.clone(), right.clone()]), expected, "{left:?} {op:?} {right:?}");
}

#[test]
fn operations_have_the_types_of_cassandra() {
    use Operator::{Add, Divide, Modulo, Multiply, Subtract};
    operation(Add, "tinyint 1", "tinyint 2", "tinyint 3");
    operation(Add, "tinyint 127", "tinyint 1", "tinyint -128");
    operation(Add, "int 1", "bigint 2", "bigint 3");
    operation(Add, "counter 1", "counter 2", "bigint 3");
    operation(Add, "smallint 1", "float 5.5", "float 6.5");
    operation(Add, "bigint 1", "float 5.5", "double 6.5");
    operation(Add, "varint 7", "int 1", "varint 8");
    operation(Add, "varint 7", "double 5.5", "decimal 12.5");
    operation(Multiply, "decimal 8.5", "tinyint 1", "decimal 8.50");
    operation(Divide, "decimal 8.5", "int 3", "decimal 2.83333333333333333333333333333333");
    operation(Divide, "int 7", "int 2", "int 3");
    operation(Modulo, "int -7", "int 2", "int -1");
    operation(Subtract, "bigint -9223372036854775808", "bigint 1", "bigint 9223372036854775807");
    operation(Divide, "tinyint -128", "tinyint -1", "tinyint -128");
    operation(Divide, "bigint -9223372036854775808", "int -1", "bigint -9223372036854775808");
    operation(Divide, "float 5.5", "tinyint 0", "float Infinity");
    operation(Add, "ascii a", "text b", "text 'ab'");
    operation(Add, "ascii a", "ascii b", "ascii 'ab'");
    operation(Add, "int null", "int 1", "int null");
}

#[test]
fn failed_operations_name_their_types() {
    use Operator::{Add, Divide, Modulo, Subtract};
    operation(Divide, "int 1", "tinyint 0", "failure: the operation 'int / tinyint' failed: / by zero");
    operation(Modulo, "bigint 1", "int 0", "failure: the operation 'bigint % int' failed: / by zero");
    let by_zero = "failure: the operation 'varint / int' failed: BigInteger divide by zero";
    operation(Divide, "varint 1", "int 0", by_zero);
    let nan = "failure: the operation 'decimal + double' failed: A NaN cannot be converted into a decimal";
    operation(Add, "decimal 1", "double NaN", nan);
    let unsupported = "invalid: the '%' operation is not supported between a and a";
    operation(Modulo, "timestamp 0", "duration 10m", unsupported);
    operation(Add, "int 1", "boolean true", "invalid: the '+' operation is not supported between a and a");
    // A timestamp is readable as several types of integers.
    let ambiguous = "invalid: Ambiguous '-' operation with args a and a: use type hint to disambiguate, \
                     example '(int) ?'";
    operation(Subtract, "timestamp 0", "timestamp 0", ambiguous);
    let precision = "failure: the operation 'timestamp - duration' failed: \
                     The duration must have a millisecond precision. Was: 10us";
    operation(Subtract, "timestamp 0", "duration 10us", precision);
    let precision = "failure: the operation 'date - duration' failed: \
                     The duration must have a day precision. Was: 10m";
    operation(Subtract, "date 2016-10-04", "duration 10m", precision);
}

#[test]
fn times_are_shifted_by_durations() {
    use Operator::{Add, Subtract};
    let shift = |op, time: &str, duration: &str, expected: &str| {
        operation(op, &format!("timestamp {time}"), &format!("duration {duration}"), expected);
    };
    shift(Subtract, "2016-09-27T16:10:00Z", "10m", "timestamp '2016-09-27 16:00:00.000Z'");
    shift(Add, "2016-01-31T01:00:00Z", "1mo", "timestamp '2016-02-29 01:00:00.000Z'");
    shift(Add, "2015-11-30T01:00:00Z", "3mo1d2h", "timestamp '2016-03-01 03:00:00.000Z'");
    shift(Subtract, "2016-03-31T00:00:00Z", "13mo", "timestamp '2015-02-28 00:00:00.000Z'");
    operation(Add, "date 2016-10-01", "duration 1d", "date '2016-10-02'");
    operation(Subtract, "date 2016-09-27", "duration 2d", "date '2016-09-25'");
    // The greatest time and duration wrap around instead of failing.
    shift(Add, "9223372036854775807", "178956970y", "timestamp '-113318085-05-17 16:47:04.191Z'");
}

#[test]
fn literals_and_markers_resolve_by_the_wanted_type() {
    let int = Value(Some(CqlType::Int));
    let marker = Value(None);
    let text = |result: Result<Function, FunctionError>| match result {
        Ok(function) => format!("{:?}", function.arguments),
        Err(error) => error.to_string(),
    };
    let ambiguous =
        "Ambiguous '+' operation with args ? and a: use type hint to disambiguate, example '(int) ?'";
    assert_eq!(text(arithmetic(Operator::Add, &marker, &int, None)), ambiguous);
    assert_eq!(text(arithmetic(Operator::Add, &marker, &int, Some(&CqlType::Int))), ambiguous);
    let tiny = arithmetic(Operator::Add, &marker, &marker, Some(&CqlType::TinyInt));
    assert_eq!(text(tiny), "[TinyInt, TinyInt]");
    assert_eq!(text(negate(&marker, Some(&CqlType::Double))), "[Double]");
    assert_eq!(text(negate(&marker, None)), "Ambiguous negation: use type casts to disambiguate");
}

#[test]
fn resolution_errors_have_the_texts_of_cassandra() {
    check("unknown", &[], "invalid: Unknown function 'unknown'");
    let count =
        "invalid: Invalid number of arguments in call to function system.uuid: 0 required but 1 provided";
    check("uuid", &["int 1"], count);
    let fit =
        "invalid: Type error: a cannot be passed as argument 0 of function system.int_as_blob of type int";
    check("int_as_blob", &["text x"], fit);
    let match_none = "invalid: Invalid call to function to_date, none of its type signatures match (known \
                      type signatures: system.to_date : (timeuuid) -> date, system.to_date : (timestamp) -> date)";
    check("to_date", &["text x"], match_none);
    let numeric = "invalid: Function system.collection_sum requires a numeric set/list argument, but found argument \
                   a of type frozen<list<text>>";
    check("collection_sum", &["frozen<list<text>> x"], numeric);
    let strings = "invalid: Function system.mask_inner requires an argument of type [text|varchar|ascii], but found \
                   argument a of type int";
    check("mask_inner", &["int 1", "int 1", "int 1"], strings);
    let number = "invalid: Invalid number of arguments for function \
                  system.mask_inner([text|varchar|ascii], int, int, [text])";
    check("mask_inner", &["text a"], number);
    let infer = Function::resolve("mask_default", &[&Value(None)], None).unwrap_err();
    let expected = "Cannot infer type of argument ? in call to function system.mask_default(any): use type casts to \
                    disambiguate";
    assert_eq!(infer.to_string(), expected);
    let ambiguous = Function::resolve("to_date", &[&Value(None)], None).unwrap_err();
    assert!(
        matches!(ambiguous, FunctionError::Ambiguous(text) if text.starts_with("Ambiguous call to function"))
    );
}

#[test]
fn blobs_are_converted_both_ways() {
    check("int_as_blob", &["int 1"], "blob 0x00000001");
    check("varcharasblob", &["text ab"], "blob 0x6162");
    check("blob_as_bigint", &["blob 0x0000000000000001"], "bigint 1");
    check("blobastext", &["blob 0x6162"], "text 'ab'");
    check("blob_as_int", &["blob null"], "int null");
    let invalid = "invalid: In call to function system.blob_as_int, value 0x0001 is not a valid binary \
                   representation for type int";
    check("blob_as_int", &["blob 0x0001"], invalid);
    check("blob_as_blob", &["blob 0x00"], "invalid: Unknown function 'blob_as_blob'");
}

#[test]
fn times_are_converted() {
    let uuid = "timeuuid d732bc00-84cc-11e6-8080-808080808080";
    check("min_timeuuid", &["timestamp 2016-09-27T16:10:00Z"], uuid);
    check("to_timestamp", &[uuid], "timestamp '2016-09-27 16:10:00.000Z'");
    check("todate", &[uuid], "date '2016-09-27'");
    check("to_unix_timestamp", &[uuid], "bigint 1474992600000");
    check("to_timestamp", &["date 2016-09-27"], "timestamp '2016-09-27 00:00:00.000Z'");
    check("tounixtimestamp", &["date 1969-12-31"], "bigint -86400000");
    check("to_date", &["timestamp null"], "date null");
    check("current_timestamp", &[], "timestamp '2016-09-27 16:10:00.123Z'");
    check("currentdate", &[], "date '2016-09-27'");
    check("current_time", &[], "time '16:10:00.123456000'");
    check("now", &[], "timeuuid d7459280-84cc-11e6-8123-456789abcdef");
    check("uuid", &[], "uuid 01234567-89ab-4def-8123-456789abcdef");
    let is_pure = |name| Function::resolve(name, &[], None).unwrap().is_pure();
    assert_eq!(["now", "uuid", "current_date"].map(is_pure), [false; 3]);
}

#[test]
fn floor_rounds_down_to_a_multiple_of_the_duration() {
    let floor = |time: &str, duration: &str, expected: &str| {
        let arguments = [&format!("timestamp {time}")[..], &format!("duration {duration}")];
        check("floor", &arguments, &format!("timestamp '{expected}.000Z'"));
    };
    floor("2016-09-27T16:12:34Z", "5m", "2016-09-27 16:10:00");
    floor("2016-09-27T16:12:34Z", "1h", "2016-09-27 16:00:00");
    floor("2016-09-27T16:12:34Z", "2h", "2016-09-27 16:00:00");
    floor("2016-09-27T16:12:34Z", "1d", "2016-09-27 00:00:00");
    floor("2016-09-27T16:12:34Z", "1mo", "2016-09-01 00:00:00");
    floor("2016-09-27T16:12:34Z", "1mo5d", "2016-09-02 00:00:00");
    floor("2016-09-01T00:00:00Z", "1mo", "2016-09-01 00:00:00");
    floor("1970-01-01T00:00:00Z", "1mo", "1970-01-01 00:00:00");
    check("floor", &["time 04:05:06.5", "duration 1m"], "time '04:05:00.000000000'");
    check("floor", &["time 04:05:06.5", "duration 0s"], "time '04:05:06.500000000'");
    check("floor", &["date 2016-09-27", "duration 1mo"], "date '2016-09-01'");
    let from = ["timestamp 2016-09-27T16:12:34Z", "duration 2h", "timestamp 2016-09-27T15:30:00Z"];
    check("floor", &from, "timestamp '2016-09-27 15:30:00.000Z'");
    let late = "invalid: The floor function starting time is greater than the provided time";
    check("floor", &["timestamp -1", "duration 1h"], late);
    let negative = "invalid: Negative durations are not supported by the floor function";
    check("floor", &["timestamp 1", "duration -1h"], negative);
    let precision =
        "invalid: The floor cannot be computed for the 10us duration as precision is below 1 millisecond";
    check("floor", &["timestamp 1", "duration 10us"], precision);
    let precision = "invalid: The floor on date values cannot be computed for the 10m duration as precision is below \
                     1 day";
    check("floor", &["date 2016-09-27", "duration 10m"], precision);
    let day = "invalid: For time values, the floor can only be computed for durations smaller that a day";
    check("floor", &["time 04:05:06", "duration 1d"], day);
    // The greatest time in the shortest months takes some dozens of steps, not one per month.
    let far = call("floor", &["timestamp 9223372036854775807", "duration 1mo1ms"]);
    assert!(far.starts_with("timestamp '"), "{far}");
}

#[test]
fn numbers_have_mathematical_functions() {
    check("abs", &["int -3"], "int 3");
    check("abs", &["decimal -3.7"], "decimal 3.7");
    check("abs", &["tinyint -128"], "tinyint -128");
    check("exp", &["tinyint 5"], "tinyint -108");
    check("exp", &["int 1"], "int 2");
    check("exp", &["decimal 1"], "decimal 2.7182818284590452353602874713527");
    check("log", &["bigint -1"], "bigint 0");
    check("log", &["varint 5"], "varint 1");
    check("log10", &["float 10"], "float 1.0");
    check("round", &["double 5.5"], "double 6.0");
    check("round", &["double -1.5"], "double -1.0");
    check("round", &["decimal -1.5"], "decimal -2");
    check("round", &["float null"], "float null");
    check("log", &["decimal 0"], "invalid: Natural log of number zero or less");
    check("exp", &["varint 1000000"], "invalid: Overflow");
}

#[test]
fn collections_have_functions() {
    check("map_keys", &["map<int,text> 1:a,3:b"], "set<int> {1, 3}");
    check("map_values", &["frozen<map<int,text>> 1:a,3:b"], "list<text> ['a', 'b']");
    check("collection_count", &["map<int,text> 1:a,3:b"], "int 2");
    check("collection_count", &["frozen<list<int>> ,"], "int 0");
    check("collection_min", &["list<int> 2,1"], "int 1");
    check("collection_max", &["set<text> bcd,abc"], "text 'bcd'");
    check("collection_max", &["list<text> ,"], "text null");
    check("collection_sum", &["list<tinyint> 100,100"], "tinyint -56");
    check("collection_avg", &["list<tinyint> 100,102"], "tinyint 101");
    check("collection_avg", &["list<decimal> ,"], "decimal 0");
    check("collection_avg", &["set<double> 1.23,2.34"], "double 1.785");
    check("map_keys", &["map<int,text> null"], "set<int> null");
    let maps =
        "invalid: Function system.map_keys requires a map argument, but found argument a of type list<int>";
    check("map_keys", &["list<int> 1"], maps);
}

#[test]
fn masks_hide_values() {
    check("mask_null", &["int 1"], "int null");
    check("mask_default", &["text x"], "text '****'");
    check("mask_default", &["text null"], "text '****'");
    check("mask_default", &["date null"], "date '1970-01-01'");
    check("mask_default", &["inet null"], "inet '0.0.0.0'");
    check("mask_default", &["tuple<int, text> null"], "frozen<tuple<int, text>> (0, '****')");
    check("mask_replace", &["varint 5", "int 1"], "varint 1");
    check("mask_inner", &["text abcde", "int 1", "int 2"], "text 'a**de'");
    check("mask_outer", &["text abcde", "int 1", "int 2"], "text '*bc**'");
    check("mask_inner", &["text abcde", "int 5", "int 6"], "text 'abcde'");
    check("mask_outer", &["text abcde", "int 5", "int 6"], "text '*****'");
    check("mask_inner", &["text abcde", "int null", "int 2", "text #"], "text '###de'");
    check("mask_inner", &["text null", "int 0", "int 0"], "text null");
    check("mask_inner", &["ascii abc", "int 1", "int 1", "text é"], "ascii 'a?c'");
    let padding = "invalid: The padding argument for function system.mask_inner should be single-character, but \
                   'long' has 4 characters.";
    check("mask_inner", &["text abcde", "int 1", "int 2", "text long"], padding);
    let hash = "blob 0xba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    check("mask_hash", &["text abc"], hash);
    check("mask_hash", &["text abc", "text null"], hash);
    check("mask_hash", &["text abc", "text md5"], "blob 0x900150983cd24fb0d6963f7d28e17f72");
    check("mask_hash", &["text null"], "blob null");
    check("mask_hash", &["text abc", "text x"], "invalid: Hash algorithm not found: x");
}

#[test]
fn json_is_written_and_read() {
    check("to_json", &["frozen<list<int>> 1,2"], "text '[1, 2]'");
    check("tojson", &["int null"], "text 'null'");
    let selection = "invalid: from_json() cannot be used in the selection clause of a SELECT statement";
    check("from_json", &["text 1"], selection);
    let read = |wanted: &str, text: &str| call_for(Some(&ty(wanted)), "fromjson", &[&format!("text {text}")]);
    assert_eq!(read("list<int>", "[1,2]"), "list<int> [1, 2]");
    assert_eq!(read("int", "null"), "int null");
    assert_eq!(
        read("int", "\"x\""),
        "failure: org.apache.cassandra.serializers.MarshalException: Unable to make int from 'x'"
    );
    let syntax = "failure: execution of 'system.fromjson[text]' failed: Could not decode JSON string '{': ";
    assert!(read("int", "{").starts_with(syntax), "{}", read("int", "{"));
}

#[test]
fn vectors_have_similarities() {
    let (left, right) = ("vector<float, 2> 1,2", "vector<float, 2> 0.1,0.7");
    check("similarity_cosine", &[left, left], "float 1.0");
    check("similarity_cosine", &[right, left], "float 0.97434163");
    check("similarity_euclidean", &[left, "vector<float, 2> 3,4"], "float 0.11111111");
    check("similarity_dot_product", &[left, right], "float 1.25");
    check("similarity_dot_product", &[left, "vector<float, 2> 0,0"], "float 0.5");
    check("similarity_cosine", &[left, "vector<float, 2> null"], "float null");
    let zeros = "invalid: Function system.similarity_cosine doesn't support all-zero vectors.";
    check("similarity_cosine", &[left, "vector<float, 2> 0,0"], zeros);
    let dimensions = "invalid: All arguments must have the same vector dimensions";
    check("similarity_cosine", &[left, "vector<float, 3> 1,2,3"], dimensions);
    let floats = "invalid: Function system.similarity_cosine requires a float vector argument, but found argument a \
                  of type vector<int, 2>";
    check("similarity_cosine", &[left, "vector<int, 2> 1,2"], floats);
    let number = "invalid: Invalid number of arguments for function \
                  system.similarity_cosine(vector<float, n>, vector<float, n>)";
    check("similarity_cosine", &[left], number);
    check("mask_default", &[left], "vector<float, 2> [0.0, 0.0]");
    check("mask_default", &["vector<text, 2> null"], "vector<text, 2> ['****', '****']");
    check("mask_default", &["vector<float, 2000000000> null"], "vector<float, 2000000000> null");
    // A marker has the type of the other argument.
    let column = Value(Some(ty("vector<float, 2>")));
    let marker = Function::resolve("similarity_cosine", &[&Value(None), &column], None).unwrap();
    assert_eq!(marker.arguments, [ty("vector<float, 2>"), ty("vector<float, 2>")]);
}

#[test]
fn casts_convert_numbers_times_and_texts() {
    let check = |from: &str, to: &str, expected: &str| {
        let (of, text) = from.rsplit_once(' ').unwrap();
        let function = cast(&Value(Some(ty(of))), &ty(to));
        assert_eq!(execute(function, &[(ty(of), text.to_owned())]), expected, "{from} as {to}");
    };
    check("int 257", "tinyint", "tinyint 1");
    check("double 6.3", "int", "int 6");
    check("double 1e10", "int", "int 2147483647");
    check("decimal 6.9", "bigint", "bigint 6");
    check("int 3", "decimal", "decimal 3");
    check("double 6.3", "decimal", "decimal 6.3");
    check("varint 4", "float", "float 4.0");
    check("int 3", "int", "int 3");
    check("double 1e10", "text", "text '1.0E10'");
    check("decimal 1E+10", "text", "text '1E+10'");
    check("float 5.2", "decimal", "decimal 5.2");
    check("double 1e30", "varint", "varint 9223372036854775807");
    check("boolean true", "ascii", "ascii 'true'");
    check("inet ::1", "text", "text '0:0:0:0:0:0:0:1'");
    check("timestamp 2015-05-21T11:03:02Z", "text", "text '2015-05-21T11:03:02.000Z'");
    check("date 2015-05-21", "text", "text '2015-05-21'");
    check("time 11:03:02", "text", "text '11:03:02.000000000'");
    check("timestamp 2015-05-21T11:03:02Z", "date", "date '2015-05-21'");
    check("date 2015-05-21", "timestamp", "timestamp '2015-05-21 00:00:00.000Z'");
    check("int null", "text", "text null");
    check("int 1", "boolean", "invalid: a cannot be cast to boolean");
}

#[test]
fn token_is_that_of_the_partition_key() {
    let key = [CqlType::Int];
    let column = Value(Some(CqlType::Int));
    let token = Function::token(&key, &[&column]).unwrap();
    let call = |value: Option<&[u8]>| token.call(&[value], &Fixed).unwrap();
    assert_eq!(
        call(Some(&1_i32.to_be_bytes())),
        Some((-4_069_959_284_402_364_209_i64).to_be_bytes().to_vec())
    );
    assert_eq!(call(None), None);
    assert!(Function::token(&key, &[&column, &column]).is_err());
}

#[test]
fn aggregates_have_the_results_of_cassandra() {
    let run = |name: &str, of: &str, values: &[&str], split: usize| {
        let column = Value(Some(ty(of)));
        let aggregate = Aggregate::resolve(name, &[&column]).unwrap().unwrap();
        let mut parts = [aggregate.start(), aggregate.start()];
        for (i, text) in values.iter().enumerate() {
            let bytes = (*text != "null").then(|| crate::testing::value(&ty(of), text));
            parts[usize::from(i >= split)].add(&[bytes.as_deref()]);
        }
        let [mut first, second] = parts;
        first.merge(second);
        let result = first.finish().unwrap();
        result.map_or("null".to_owned(), |bytes| schema::value::to_text(&aggregate.result, &bytes))
    };
    let check = |name: &str, of: &str, values: &[&str], expected: &str| {
        for split in 0..=values.len() {
            assert_eq!(run(name, of, values, split), expected, "{name} {of} {values:?} split at {split}");
        }
    };
    check("count", "int", &["1", "null", "2"], "2");
    check("min", "int", &["3", "-1", "null", "2"], "-1");
    check("max", "text", &["b", "c", "a"], "'c'");
    check("max", "frozen<list<int>>", &["1,2", "1,3"], "[1, 3]");
    check("min", "int", &[], "null");
    check("sum", "tinyint", &["100", "100"], "-56");
    check("sum", "bigint", &["9223372036854775807", "1"], "-9223372036854775808");
    check("sum", "varint", &["9223372036854775807", "1"], "9223372036854775808");
    check("sum", "decimal", &["1.5", "2.25"], "3.75");
    check("sum", "double", &[], "0.0");
    check("avg", "bigint", &["9223372036854775807", "9223372036854775807"], "9223372036854775807");
    check("avg", "int", &["1", "2"], "1");
    check("avg", "int", &[], "0");
    check("avg", "varint", &["1", "4"], "2");
    check("avg", "double", &["1.7976931348623157e308", "1.7976931348623157e308"], "1.7976931348623157e308");
    check("avg", "decimal", &["1.0", "2.0"], "1.5");
    check("avg", "decimal", &[], "0");
    // Each row rounds, as in Cassandra.
    assert_eq!(run("avg", "decimal", &["1", "2", "2"], 3), "1");
}

#[test]
fn count_of_rows_counts_nulls() {
    let rows = Aggregate::resolve("count", &[]).unwrap().unwrap();
    let mut state = rows.start();
    state.add(&[]);
    state.add(&[]);
    assert_eq!(state.finish().unwrap(), Some(2_i64.to_be_bytes().to_vec()));
    assert_eq!(Aggregate::resolve("abs", &[]), Ok(None));
    assert!(Aggregate::resolve("sum", &[&Value(Some(CqlType::Text)) as &dyn Argument]).is_err());
}

#[test]
fn hostile_bytes_never_panic() {
    let names = [
        "abs",
        "exp",
        "log",
        "log10",
        "round",
        "to_date",
        "to_timestamp",
        "to_unix_timestamp",
        "min_timeuuid",
        "max_timeuuid",
        "map_keys",
        "map_values",
        "collection_count",
        "collection_min",
        "collection_sum",
        "collection_avg",
        "mask_hash",
        "mask_default",
        "blob_as_int",
        "text_as_blob",
    ];
    let types = [
        "tinyint",
        "int",
        "bigint",
        "float",
        "double",
        "varint",
        "decimal",
        "timestamp",
        "date",
        "timeuuid",
        "text",
        "blob",
        "frozen<map<int, text>>",
        "frozen<list<decimal>>",
        "frozen<set<text>>",
    ];
    let values: Vec<Vec<u8>> = (0..20_usize)
        .flat_map(|length| [0x00, 0x01, 0x7f, 0x80, 0xff].map(|byte| vec![byte; length]))
        .chain([vec![0xff; 2000], [&[0, 0, 0, 1][..], &[0x7f; 4]].concat()])
        .collect();
    for name in names {
        for of in types {
            let Ok(function) = Function::resolve(name, &[&Value(Some(ty(of)))], None) else { continue };
            for value in &values {
                let _ = function.call(&[Some(value)], &Fixed);
            }
        }
    }
    for op in [Operator::Add, Operator::Subtract, Operator::Multiply, Operator::Divide, Operator::Modulo] {
        for left in types {
            for right in types {
                let columns = [Value(Some(ty(left))), Value(Some(ty(right)))];
                let Ok(function) = arithmetic(op, &columns[0], &columns[1], None) else { continue };
                for value in &values {
                    let _ = function.call(&[Some(value), Some(value)], &Fixed);
                    let _ = function.call(&[Some(value), Some(&values[7])], &Fixed);
                }
            }
        }
    }
}
