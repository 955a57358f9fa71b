//! Property tests of values with random and invalid bytes, for every type.

use std::cmp::Ordering;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{CqlType, UdtType};

const SCALARS: [CqlType; 20] = [
    CqlType::Ascii,
    CqlType::BigInt,
    CqlType::Blob,
    CqlType::Boolean,
    CqlType::Counter,
    CqlType::Date,
    CqlType::Decimal,
    CqlType::Double,
    CqlType::Duration,
    CqlType::Float,
    CqlType::Inet,
    CqlType::Int,
    CqlType::SmallInt,
    CqlType::Text,
    CqlType::Time,
    CqlType::Timestamp,
    CqlType::TimeUuid,
    CqlType::TinyInt,
    CqlType::Uuid,
    CqlType::Varint,
];

/// Bytes that are often edge cases: zeros, ones, sign bits.
fn edge_case_byte() -> impl Strategy<Value = u8> + Clone {
    prop_oneof![Just(0_u8), Just(0xff), Just(0x80), Just(0x7f), Just(1), any::<u8>()]
}

fn scalar_value(ty: &CqlType) -> BoxedStrategy<Vec<u8>> {
    match ty {
        CqlType::Ascii => "[\\x00-\\x02a-b]{0,6}".prop_map(String::into_bytes).boxed(),
        CqlType::Text => "[\\x00-\\x02a-bé漢]{0,6}".prop_map(String::into_bytes).boxed(),
        CqlType::Blob => vec(edge_case_byte(), 0..8).boxed(),
        CqlType::Boolean => (0_u8..2).prop_map(|b| vec![b]).boxed(),
        CqlType::Inet => prop_oneof![vec(edge_case_byte(), 4..5), vec(edge_case_byte(), 16..17)].boxed(),
        CqlType::Varint => {
            prop_oneof![4 => vec(edge_case_byte(), 1..6), 1 => vec(edge_case_byte(), 120..140)].boxed()
        }
        CqlType::Decimal => decimal_value(),
        CqlType::Duration => (any::<u16>(), any::<i32>(), any::<i64>(), any::<bool>())
            .prop_map(|(months, days, nanoseconds, negative)| {
                let sign = if negative { -1 } else { 1 };
                Duration {
                    months: sign * i32::from(months),
                    days: sign * (days >> 1).saturating_abs(),
                    nanoseconds: i64::from(sign) * (nanoseconds >> 1).saturating_abs(),
                }
                .to_bytes()
            })
            .boxed(),
        CqlType::Time => (0_i64..86_400_000_000_000).prop_map(|t| t.to_be_bytes().to_vec()).boxed(),
        CqlType::TimeUuid => vec(edge_case_byte(), 16..17)
            .prop_map(|mut v| {
                v[6] = v[6] & 0xf | 0x10;
                v
            })
            .boxed(),
        CqlType::Uuid => {
            // Many values have version 1, which has an order of its own.
            let version = prop_oneof![Just(Some(1_u8)), Just(Some(4)), Just(None)];
            let uuid = (vec(edge_case_byte(), 16..17), version).prop_map(|(mut v, version)| {
                if let Some(version) = version {
                    v[6] = v[6] & 0xf | version << 4;
                }
                v
            });
            uuid.boxed()
        }
        fixed => {
            let length = fixed.fixed_len().unwrap();
            vec(edge_case_byte(), length..=length).boxed()
        }
    }
}

/// Numbers close to each other in several notations, some with an extreme scale.
fn decimal_value() -> BoxedStrategy<Vec<u8>> {
    let scale = prop_oneof![8 => -4_i32..5, 1 => Just(i32::MIN), 1 => Just(i32::MAX), 1 => any::<i32>()];
    let unscaled = prop_oneof![(-3_i64..4).prop_map(|n| n * 1000), -1200_i64..1200, any::<i64>()];
    let decimal = (scale, unscaled, 0_usize..3).prop_map(|(scale, unscaled, idle)| {
        let mut bytes = scale.to_be_bytes().to_vec();
        bytes.extend(vec![if unscaled < 0 { 0xff } else { 0 }; idle]);
        bytes.extend(unscaled.to_be_bytes());
        bytes
    });
    decimal.boxed()
}

fn user_type(fields: Vec<(String, CqlType)>, is_extensible: bool) -> CqlType {
    CqlType::Udt(Arc::new(UdtType { is_extensible, ..UdtType::new("ks", "u", fields) }))
}

/// Returns the fields with unique names.
fn numbered(fields: Vec<(String, CqlType)>) -> Vec<(String, CqlType)> {
    fields.into_iter().enumerate().map(|(at, (name, ty))| (format!("{name}{at}"), ty)).collect()
}

/// Returns the type after `ALTER TYPE ... ADD` on every user type in it.
fn extended(ty: &CqlType, added: &CqlType) -> CqlType {
    let boxed = |inner: &CqlType| Box::new(extended(inner, added));
    match ty {
        CqlType::List(e) => CqlType::List(boxed(e)),
        CqlType::Set(e) => CqlType::Set(boxed(e)),
        CqlType::Map(k, v) => CqlType::Map(boxed(k), boxed(v)),
        CqlType::Tuple(types) => CqlType::Tuple(types.iter().map(|ty| extended(ty, added)).collect()),
        CqlType::Udt(udt) => {
            let fields = udt.fields.iter().map(|(name, ty)| (name.clone(), extended(ty, added)));
            user_type(fields.chain([("added".to_owned(), added.clone())]).collect(), true)
        }
        CqlType::Frozen(inner) => CqlType::Frozen(boxed(inner)),
        CqlType::Vector(e, dimension) => CqlType::Vector(boxed(e), *dimension),
        scalar => scalar.clone(),
    }
}

/// Returns true if the type contains a user type that is not extensible.
fn has_fixed_fields(ty: &CqlType) -> bool {
    matches!(ty, CqlType::Udt(udt) if !udt.is_extensible) || ty.inner().into_iter().any(has_fixed_fields)
}

/// Types of up to `depth` levels.
fn typed(depth: u32) -> BoxedStrategy<CqlType> {
    let scalar = proptest::sample::select(SCALARS.to_vec());
    if depth == 0 {
        return scalar.boxed();
    }
    let inner = typed(depth - 1);
    let boxed = |t: CqlType| Box::new(t);
    prop_oneof![
        scalar,
        inner.clone().prop_map(move |t| CqlType::List(boxed(t))),
        inner.clone().prop_map(move |t| CqlType::Set(boxed(t))),
        (inner.clone(), inner.clone()).prop_map(move |(k, v)| CqlType::Map(boxed(k), boxed(v))),
        vec(inner.clone(), 1..4).prop_map(CqlType::Tuple),
        (vec(("[a-cA\\\"]", inner.clone()), 1..4), prop_oneof![3 => Just(true), 1 => Just(false)])
            .prop_map(|(fields, is_extensible)| user_type(numbered(fields), is_extensible)),
        (inner.clone(), 1_u32..4).prop_map(move |(t, dimension)| CqlType::Vector(boxed(t), dimension)),
        inner.prop_map(move |t| CqlType::Frozen(boxed(t))),
    ]
    .boxed()
}

fn value_of(ty: &CqlType) -> BoxedStrategy<Vec<u8>> {
    let list = |bytes: Vec<Vec<u8>>| encode_list(bytes.iter().map(Vec::as_slice));
    let fields = |types: Vec<&CqlType>| {
        let fields: Vec<_> = types.into_iter().map(|ty| proptest::option::of(value_of(ty))).collect();
        let shown = 0..=fields.len();
        (fields, shown)
            .prop_map(|(fields, shown)| encode_tuple(fields.iter().take(shown).map(Option::as_deref)))
            .boxed()
    };
    let canonical_of = ty.clone();
    let raw = match ty {
        CqlType::Frozen(inner) => return value_of(inner),
        CqlType::List(e) | CqlType::Set(e) => vec(value_of(e), 0..4).prop_map(list).boxed(),
        CqlType::Map(k, v) => vec((value_of(k), value_of(v)), 0..4)
            .prop_map(|pairs| encode_map(pairs.iter().map(|(k, v)| (k.as_slice(), v.as_slice()))))
            .boxed(),
        CqlType::Vector(e, dimension) => {
            let element = e.clone();
            vec(value_of(e), *dimension as usize)
                .prop_map(move |parts| encode_vector(&element, parts.iter().map(Vec::as_slice)))
                .boxed()
        }
        CqlType::Tuple(types) => fields(types.iter().collect()),
        CqlType::Udt(udt) => fields(udt.fields.iter().map(|(_, ty)| ty).collect()),
        scalar => return scalar_value(scalar),
    };
    raw.prop_map(move |bytes| canonical(&canonical_of, &bytes).unwrap().into_owned()).boxed()
}

fn encoded(ty: &CqlType, value: &[u8], descending: bool) -> Vec<u8> {
    let mut out = Vec::new();
    encode_key_part(ty, value, descending, &mut out).unwrap();
    out
}

fn check_pair(ty: &CqlType, a: &[u8], b: &[u8]) {
    assert_eq!(check(ty, a), Ok(()), "{ty} {a:02x?}");
    let order = compare(ty, a, b);
    assert_eq!(compare(ty, b, a), order.reverse(), "{ty} {a:02x?} {b:02x?}");
    assert_eq!(compare(ty, a, a), Ordering::Equal, "{ty} {a:02x?}");
    for descending in [false, true] {
        let (x, y) = (encoded(ty, a, descending), encoded(ty, b, descending));
        let expected = if descending { order.reverse() } else { order };
        assert_eq!(x.cmp(&y), expected, "{ty} {a:02x?} {b:02x?}");
        assert!(order.is_eq() || !x.starts_with(&y), "{ty} {a:02x?} {b:02x?}: one is a prefix of the other");

        let mut input = [x.as_slice(), b"after"].concat();
        let mut decoded = b"before".to_vec();
        let mut rest = input.as_slice();
        decode_key_part(ty, descending, &mut rest, &mut decoded).unwrap();
        assert_eq!(rest, b"after");
        let decoded = decoded.strip_prefix(b"before").unwrap();
        assert_eq!(check(ty, decoded), Ok(()), "{ty} {a:02x?}");
        assert_eq!(compare(ty, a, decoded), Ordering::Equal, "{ty} {a:02x?} {decoded:02x?}");
        assert_eq!(encoded(ty, decoded, descending), x);
        if is_exact(ty) {
            assert_eq!(decoded, a, "{ty}");
        }
        input.truncate(x.len() - 1);
        let cut = decode_key_part(ty, descending, &mut input.as_slice(), &mut Vec::new());
        assert!(cut.is_err() || has_fixed_fields(ty), "{ty} {a:02x?}: a truncated part was decoded");
    }
}

/// Returns true if decoding a key returns the same bytes. Equal values of some types differ in
/// bytes.
fn is_exact(ty: &CqlType) -> bool {
    use CqlType as T;
    match ty {
        T::Float | T::Double | T::Varint | T::Decimal | T::Tuple(_) | T::Udt(_) => false,
        other => other.inner().into_iter().all(is_exact),
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

#[test]
fn encoding_preserves_the_order_of_scalars() {
    for ty in SCALARS {
        proptest!(config(400), |(a in value_of(&ty), b in value_of(&ty))| check_pair(&ty, &a, &b));
    }
}

#[test]
fn encoding_preserves_the_order_of_nested_types() {
    let values = typed(2).prop_flat_map(|ty| (value_of(&ty), value_of(&ty), Just(ty)));
    proptest!(config(600), |((a, b, ty) in values)| check_pair(&ty, &a, &b));
}

/// User types got fields, and keys of earlier values could not be decoded any more.
#[test]
fn added_fields_keep_the_keys_of_earlier_values() {
    let values = (typed(3), typed(1)).prop_flat_map(|(ty, added)| {
        // Nothing but extensible types can be extended.
        let before = extended(&ty, &CqlType::Int);
        let after = extended(&before, &added);
        (value_of(&before), value_of(&before), value_of(&after), Just((before, after)))
    });
    proptest!(config(1500), |((a, b, c, (before, after)) in values)| {
        for descending in [false, true] {
            prop_assert_eq!(encoded(&before, &a, descending), encoded(&after, &a, descending));
        }
        prop_assert_eq!(compare(&before, &a, &b), compare(&after, &a, &b));
        check_pair(&after, &a, &b);
        check_pair(&after, &a, &c);
    });
}

#[test]
fn trailing_nulls_of_user_types_are_missing_fields() {
    let int = |name: &str| (name.to_owned(), CqlType::Int);
    let one = [0, 0, 0, 4, 0, 0, 0, 1];
    let null = [0xff; 4];
    let check = |fields: &[&str], value: &[u8], key: &[u8], decoded: &[u8]| {
        let ty = user_type(fields.iter().map(|name| int(name)).collect(), true);
        assert_eq!(encoded(&ty, value, false), key);
        let mut out = Vec::new();
        decode_key_part(&ty, false, &mut &key[..], &mut out).unwrap();
        assert_eq!(out, decoded);
    };
    let key = [2, 0x80, 0, 0, 1, 0];
    check(&["a"], &one, &key, &one);
    check(&["a", "b"], &one, &key, &[&one[..], &null].concat());
    check(&["a", "b"], &[&one[..], &null].concat(), &key, &[&one[..], &null].concat());
    check(&["a", "b"], &[&null[..], &one].concat(), &[1, 2, 0x80, 0, 0, 1, 0], &[&null[..], &one].concat());
    check(&["a", "b"], &[], &[0], &[null, null].concat());
}

#[test]
fn fixed_user_types_keep_the_keys_of_earlier_versions() {
    let fields = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), CqlType::Int)).collect();
    let (before, after) = (user_type(fields(&["a", "b"]), false), user_type(fields(&["a", "b", "c"]), false));
    let value = [0, 0, 0, 4, 0, 0, 0, 1];
    let key = encoded(&before, &value, false);
    assert_eq!(key, [1, 0x80, 0, 0, 1, 0]);
    // Earlier versions added the field all the same. Its keys can be read where nothing follows.
    let mut decoded = Vec::new();
    decode_key_part(&after, false, &mut &key[..], &mut decoded).unwrap();
    assert_eq!(decoded, [&value[..], &[0xff; 8]].concat());
}

#[test]
fn encoding_preserves_the_order_of_composite_keys() {
    let keys = vec((typed(1), any::<bool>()), 1..4).prop_flat_map(|parts| {
        let key = parts.iter().map(|(ty, _)| value_of(ty)).collect::<Vec<_>>();
        (key.clone(), key, 0..=parts.len(), Just(parts))
    });
    proptest!(config(600), |((a, mut b, same, parts) in keys)| {
        b[..same].clone_from_slice(&a[..same]);
        let key = |values: &[Vec<u8>]| {
            let mut out = Vec::new();
            for ((ty, descending), value) in parts.iter().zip(values) {
                encode_key_part(ty, value, *descending, &mut out).unwrap();
            }
            out
        };
        let by_value = parts.iter().zip(a.iter().zip(&b)).map(|((ty, descending), (x, y))| {
            let order = compare(ty, x, y);
            if *descending { order.reverse() } else { order }
        });
        let expected = by_value.fold(Ordering::Equal, Ordering::then);
        prop_assert_eq!(key(&a).cmp(&key(&b)), expected);

        let prefix = key(&a[..same]);
        let within = b[..same].iter().zip(&a).zip(&parts).all(|((x, y), (ty, _))| compare(ty, x, y).is_eq());
        let key = key(&b);
        let bounded = key >= prefix && prefix_end(&prefix).is_none_or(|end| key < end);
        prop_assert_eq!(within, bounded);
        prop_assert!(within && key.starts_with(&prefix));
    });
}

/// Returns true for a type in which texts may make empty values that no client may send.
fn has_small(ty: &CqlType) -> bool {
    let is_small = matches!(ty.thawed(), CqlType::TinyInt | CqlType::SmallInt | CqlType::Duration);
    is_small || ty.inner().into_iter().any(has_small)
}

#[test]
fn empty_values_are_below_others_and_in_no_keys() {
    for ty in SCALARS {
        let is_value = check(&ty, &[]).is_ok();
        assert_eq!(
            is_value,
            is_empty(&ty, &[]) && !has_small(&ty)
                || matches!(ty, CqlType::Ascii | CqlType::Text | CqlType::Blob)
        );
        let never = matches!(
            ty,
            CqlType::TinyInt
                | CqlType::SmallInt
                | CqlType::Counter
                | CqlType::Date
                | CqlType::Time
                | CqlType::Duration
        );
        assert_eq!(is_value, !never, "{ty}");
        if !is_value {
            continue;
        }
        proptest!(config(20), |(value in value_of(&ty))| {
            prop_assert_eq!(compare(&ty, &[], &value), 0.cmp(&value.len()), "{}", ty);
            prop_assert_eq!(compare(&ty, &value, &[]), value.len().cmp(&0), "{}", ty);
        });
        let is_key = encode_key_part(&ty, &[], false, &mut Vec::new()).is_ok();
        let expected = matches!(ty, CqlType::Ascii | CqlType::Text | CqlType::Blob | CqlType::Inet);
        assert_eq!(is_key, expected, "{ty}");
        let list = CqlType::List(Box::new(ty.clone()));
        let value = encode_list([&b""[..]].into_iter());
        assert_eq!(check(&list, &value), Ok(()));
        assert_eq!(encode_key_part(&list, &value, true, &mut Vec::new()).is_ok(), expected, "{ty}");
        if is_empty(&ty, &[]) {
            assert_eq!(to_text(&list, &value), "[null]");
        }
    }
}

#[test]
fn prefix_end_is_the_lowest_key_above_the_prefix() {
    let check = |prefix: &[u8], expected: Option<&[u8]>| assert_eq!(prefix_end(prefix).as_deref(), expected);
    check(b"", None);
    check(&[0xff, 0xff], None);
    check(&[1], Some(&[2]));
    check(&[1, 0xff], Some(&[2]));
    check(&[1, 0xfe, 0xff], Some(&[1, 0xff]));
}

#[test]
fn invalid_bytes_and_text_never_panic() {
    let input = (typed(2), vec(edge_case_byte(), 0..40), vec(edge_case_byte(), 0..40), ".{0,20}");
    proptest!(config(1500), |((ty, a, b, text) in input)| {
        let is_valid = check(&ty, &a).is_ok();
        compare(&ty, &a, &b);
        let decoded = decode_key_part(&ty, a.len() % 2 == 0, &mut a.as_slice(), &mut Vec::new());
        let shown = to_text(&ty, &a);
        prop_assert!(is_valid || is_empty(&ty, &a) || shown.starts_with("0x"));
        if is_valid {
            // Empty values inside have no encoding.
            _ = encode_key_part(&ty, &a, false, &mut Vec::new());
            prop_assert!(canonical(&ty, &a).is_ok());
        }
        drop((decoded, canonical(&ty, &b)));
        for literal in [Literal::Integer(&text), Literal::Float(&text), Literal::String(&text), Literal::Uuid(&text),
            Literal::Duration(&text), Literal::Blob(&a), Literal::Boolean(true)] {
            if let Ok(bytes) = from_literal(&ty, literal) {
                prop_assert!(check(&ty, &bytes).is_ok() || has_small(&ty));
            }
        }
    });
}

#[test]
fn almost_valid_text_never_panics() {
    let text = "-?[+P0-9][-:. TZeEymodhnsµ0-9]{0,24}";
    proptest!(config(4000), |(ty in typed(0), text in text)| {
        if let Ok(bytes) = parse_text(&ty, &text) {
            prop_assert_eq!(check(&ty, &bytes), Ok(()));
        }
    });
}

#[test]
fn scalars_parse_from_their_own_text() {
    for ty in SCALARS {
        proptest!(config(300), |(value in value_of(&ty))| {
            let text = to_text(&ty, &value);
            let unquoted = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')).unwrap_or(&text);
            let read = parse_text(&ty, &unquoted.replace("''", "'"));
            prop_assert!(read.is_ok(), "{} {} {:?}", ty, text, read);
            prop_assert_eq!(compare(&ty, &value, &read.unwrap()), Ordering::Equal, "{} {}", ty, text);
        });
    }
}

/// Returns true if a value has a float that JSON cannot express.
fn has_infinite(ty: &CqlType, bytes: &[u8]) -> bool {
    let any = |types: Vec<&CqlType>| {
        let fields = types.into_iter().zip(components(bytes));
        fields.filter_map(|(ty, field)| Some((ty, field.ok()??))).any(|(ty, field)| has_infinite(ty, field))
    };
    match ty {
        CqlType::Float => !f32::from_be_bytes(bytes.try_into().unwrap()).is_finite(),
        CqlType::Double => !f64::from_be_bytes(bytes.try_into().unwrap()).is_finite(),
        CqlType::List(e) | CqlType::Set(e) => elements(bytes).flatten().any(|part| has_infinite(e, part)),
        CqlType::Map(k, v) => {
            pairs(bytes).flatten().any(|(key, value)| has_infinite(k, key) || has_infinite(v, value))
        }
        CqlType::Tuple(_) | CqlType::Udt(_) => any(ty.inner()),
        CqlType::Vector(e, n) => vector_elements(e, *n, bytes).flatten().any(|part| has_infinite(e, part)),
        CqlType::Frozen(inner) => has_infinite(inner, bytes),
        _ => false,
    }
}

#[test]
fn values_are_read_from_their_own_json() {
    let every = prop_oneof![proptest::sample::select(SCALARS.to_vec()), typed(3)];
    let values = every.prop_flat_map(|ty| (value_of(&ty), Just(ty)));
    proptest!(config(4000), |((value, ty) in values)| {
        prop_assume!(!has_infinite(&ty, &value));
        let mut text = String::new();
        json::to_json(&ty, &value, &mut text).unwrap();
        let read = json::from_json(&ty, &text);
        prop_assert!(matches!(read, Ok(Some(_))), "{} {} {:?}", ty, text, read);
        let read = read.unwrap().unwrap();
        prop_assert_eq!(check(&ty, &read), Ok(()));
        prop_assert_eq!(compare(&ty, &value, &read), Ordering::Equal, "{} {}", ty, text);
        prop_assert!(!is_exact(&ty) || value == read, "{} {}", ty, text);
        // As JSON within a string, too, for types that are no strings.
        let mut again = String::new();
        json::to_json(&ty, &read, &mut again).unwrap();
        prop_assert_eq!(again, text);
    });
}

#[test]
fn hostile_json_never_panics() {
    let noise = "[\\[\\]{}:,\"\\\\0-9a-cA-Eu .+-]{0,40}";
    let input = (typed(2), vec(edge_case_byte(), 0..40), noise);
    proptest!(config(3000), |((ty, bytes, text) in input)| {
        let mut shown = String::new();
        json::to_json(&ty, &bytes, &mut shown).unwrap();
        for text in [&text, &shown, &format!("[{text}]"), &format!("{{\"a0\": {text}, \"b1\": null}}")] {
            if let Ok(Some(value)) = json::from_json(&ty, text) {
                prop_assert!(check(&ty, &value).is_ok() || has_small(&ty));
            }
            let _ = json::from_json_row([("a0", &ty)].into_iter(), text);
        }
    });
}
