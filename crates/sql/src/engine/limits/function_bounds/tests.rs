use super::*;
use datafusion::arrow::array::{Int64Array, StringArray};
use datafusion::prelude::SessionConfig;
use datafusion::scalar::ScalarValue;

fn context() -> SessionContext {
    let context = SessionContext::new_with_config(SessionConfig::new());
    register(&context, &Arc::default());
    context
}

fn call(name: &str, args: Vec<ColumnarValue>, rows: usize) -> Result<ColumnarValue> {
    let state = context().state();
    let function = match name {
        string_concat::NAME => {
            bounded(&string_concat::function(CallKey::of(&[])), &Arc::default()).expect("it needs bounds")
        }
        name => state.scalar_functions().get(name).unwrap_or_else(|| panic!("{name} is registered")).clone(),
    };
    assert!(function.inner().is::<Bounded>(), "{name}");
    let field = |value: &ColumnarValue| -> FieldRef {
        Arc::new(datafusion::arrow::datatypes::Field::new("a", value.data_type(), true))
    };
    let arg_fields: Vec<FieldRef> = args.iter().map(field).collect();
    let scalar_arguments = vec![None; args.len()];
    let return_field = function.return_field_from_args(ReturnFieldArgs {
        arg_fields: &arg_fields,
        scalar_arguments: &scalar_arguments,
    })?;
    let config_options = Arc::default();
    function.invoke_with_args(ScalarFunctionArgs {
        args,
        arg_fields,
        number_rows: rows,
        return_field,
        config_options,
    })
}

fn text(text: &str) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::Utf8(Some(text.to_owned())))
}

fn large(text: &str) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::LargeUtf8(Some(text.to_owned())))
}

fn number(number: i64) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::Int64(Some(number)))
}

#[track_caller]
fn refused(name: &str, args: Vec<ColumnarValue>, rows: usize) -> String {
    let error = call(name, args, rows).map(|_| ()).expect_err(name);
    match error.find_root() {
        DataFusionError::External(inner) if inner.is::<Exceeded>() => inner.to_string(),
        other => panic!("{name}: {other}"),
    }
}

/// Executing any of these calls would end the process.
#[test]
fn huge_results_are_refused_before_allocation() {
    let list = || {
        let list = ScalarValue::new_list(&[ScalarValue::Int64(Some(1))], &DataType::Int64, true);
        ColumnarValue::Scalar(ScalarValue::List(list))
    };
    for (name, args) in [
        ("repeat", vec![large("x"), number(4_000_000_000_000_000_000)]),
        ("repeat", vec![text("x"), number(2_147_483_647)]),
        ("lpad", vec![text("x"), number(2_000_000_000), text("y")]),
        ("rpad", vec![text("x"), number(2_000_000_000), text("y")]),
        ("array_repeat", vec![number(1), number(2_147_483_000)]),
        ("array_resize", vec![list(), number(2_147_483_000)]),
        ("range", vec![number(0), number(2_000_000_000)]),
        ("range", vec![number(2_000_000_000)]),
        ("generate_series", vec![number(i64::MIN), number(i64::MAX), number(1)]),
        ("generate_series", vec![number(0), number(-2_000_000_000), number(-1)]),
    ] {
        let message = refused(name, args, 1);
        assert!(message.contains("function_bytes"), "{name}: {message}");
    }
    let long = "x".repeat(10_000);
    for (name, args) in [
        ("replace", vec![text(&long), text("x"), text(&long)]),
        ("regexp_replace", vec![text(&long), text("x"), text(&long), text("g")]),
        ("levenshtein", vec![text(&"a".repeat(150_000)), text(&"b".repeat(150_000))]),
    ] {
        refused(name, args, 1);
    }
}

#[test]
fn usual_calls_return_the_function_result() {
    let cases = [
        ("repeat", vec![text("ab"), number(3)], "ababab"),
        ("lpad", vec![text("x"), number(3), text("yz")], "yzx"),
        ("replace", vec![text("abc"), text("b"), text("xx")], "axxc"),
        ("concat", vec![text("a"), text("b")], "ab"),
        ("concat_ws", vec![text("-"), text("a"), text("b")], "a-b"),
        ("||", vec![text("a"), text("b")], "ab"),
    ];
    for (name, args, expected) in cases {
        match call(name, args, 1) {
            Ok(ColumnarValue::Scalar(value)) => assert_eq!(value.to_string(), expected, "{name}"),
            Ok(ColumnarValue::Array(array)) => {
                assert_eq!(array.len(), 1, "{name}");
                assert_eq!(ScalarValue::try_from_array(&array, 0).unwrap().to_string(), expected, "{name}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn types_of_huge_fixed_size_are_refused() {
    let of = |ty: &str| check_type("arrow_cast", &ty.parse::<DataType>().expect(ty));
    for ty in ["FixedSizeBinary(2000000000)", "FixedSizeList(100000 x Int64)", "List(FixedSizeBinary(20000))"]
    {
        assert!(of(ty).is_err(), "{ty}");
    }
    for ty in ["FixedSizeBinary(16)", "FixedSizeList(3 x Float32)", "LargeUtf8", "Dictionary(Int32, Utf8)"] {
        assert!(of(ty).is_ok(), "{ty}");
    }
}

/// A constant of one MiB in a batch of 8192 rows would be 8 GiB.
#[test]
fn batches_are_bounded_and_computed_in_chunks() {
    let texts = |bytes: usize, rows: usize| {
        let texts: StringArray = (0..rows).map(|_| Some("x".repeat(bytes))).collect();
        ColumnarValue::Array(Arc::new(texts))
    };
    for name in ["concat", "||"] {
        let message = refused(name, vec![texts(1, 8192), text(&"y".repeat(1 << 20))], 8192);
        assert!(message.contains("batch of 8192 rows"), "{name}: {message}");
    }
    let times: ColumnarValue = ColumnarValue::Array(Arc::new(Int64Array::from(vec![1 << 20; 100])));
    let result = call("repeat", vec![text("z"), times], 100).expect("100 MiB are within the bounds");
    let ColumnarValue::Array(array) = result else { panic!("an array") };
    let array = datafusion::arrow::compute::cast(&array, &DataType::Utf8).expect("texts");
    assert_eq!((array.len(), bytes_of(&array) >> 20), (100, 100));
}
