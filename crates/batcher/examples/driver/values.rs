//! Types and values of `tests/clients/drivers/types.json`, as the driver has them.

use scylla::cluster::metadata::{CollectionType, ColumnType, NativeType};
use scylla::value::{
    CqlDate, CqlDecimal, CqlDuration, CqlTime, CqlTimestamp, CqlTimeuuid, CqlValue, CqlVarint,
};
use serde_json::Value;

use super::Answer;

/// Returns a value of the table, `None` for null.
pub(super) fn native(typ: &ColumnType<'_>, value: &Value) -> Answer<Option<CqlValue>> {
    if value.is_null() {
        return Ok(None);
    }
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    Ok(Some(match typ {
        ColumnType::Native(native) => scalar(native, value)?,
        ColumnType::Collection { typ: CollectionType::List(item), .. } => CqlValue::List(all(item, items)?),
        ColumnType::Collection { typ: CollectionType::Set(item), .. } => CqlValue::Set(all(item, items)?),
        ColumnType::Collection { typ: CollectionType::Map(key, item), .. } => {
            let pair = |pair: &Value| Ok((one(key, &pair[0])?, one(item, &pair[1])?));
            CqlValue::Map(items.iter().map(pair).collect::<Answer<_>>()?)
        }
        ColumnType::Tuple(types) => {
            let elements = types.iter().zip(items).map(|(typ, item)| native(typ, item));
            CqlValue::Tuple(elements.collect::<Answer<_>>()?)
        }
        ColumnType::UserDefinedType { definition, .. } => {
            let fields = definition.field_types.iter().zip(items);
            let fields = fields.map(|((name, typ), item)| Ok((name.to_string(), native(typ, item)?)));
            CqlValue::UserDefinedType {
                keyspace: definition.keyspace.to_string(),
                name: definition.name.to_string(),
                fields: fields.collect::<Answer<_>>()?,
            }
        }
        other => return Err(format!("no values of {other:?}").into()),
    }))
}

/// Returns a value that is not null.
fn one(typ: &ColumnType<'_>, value: &Value) -> Answer<CqlValue> {
    native(typ, value)?.ok_or_else(|| "null in a collection".into())
}

fn all(typ: &ColumnType<'_>, items: &[Value]) -> Answer<Vec<CqlValue>> {
    items.iter().map(|item| one(typ, item)).collect()
}

fn scalar(typ: &NativeType, value: &Value) -> Answer<CqlValue> {
    let text = || value.as_str().ok_or_else(|| format!("expected a text, got {value}"));
    let whole = || match value {
        Value::String(text) => text.parse::<i64>().map_err(|error| error.to_string()),
        _ => value.as_i64().ok_or_else(|| format!("expected an integer, got {value}")),
    };
    let float = || value.as_f64().ok_or_else(|| format!("expected a number, got {value}"));
    Ok(match typ {
        NativeType::Ascii => CqlValue::Ascii(text()?.into()),
        NativeType::BigInt => CqlValue::BigInt(whole()?),
        NativeType::Blob => CqlValue::Blob(blob(text()?)?),
        NativeType::Boolean => CqlValue::Boolean(value.as_bool().ok_or("expected a boolean")?),
        NativeType::Date => CqlValue::Date(CqlDate((whole()? + (1 << 31)).try_into()?)),
        NativeType::Decimal => CqlValue::Decimal(decimal(text()?)?),
        NativeType::Double => CqlValue::Double(float()?),
        NativeType::Duration => CqlValue::Duration(CqlDuration {
            months: value[0].as_i64().unwrap_or_default().try_into()?,
            days: value[1].as_i64().unwrap_or_default().try_into()?,
            nanoseconds: value[2].as_str().unwrap_or_default().parse()?,
        }),
        NativeType::Float => CqlValue::Float(float()? as f32),
        NativeType::Inet => CqlValue::Inet(text()?.parse()?),
        NativeType::Int => CqlValue::Int(whole()?.try_into()?),
        NativeType::SmallInt => CqlValue::SmallInt(whole()?.try_into()?),
        NativeType::Text => CqlValue::Text(text()?.into()),
        NativeType::Time => CqlValue::Time(CqlTime(whole()?)),
        NativeType::Timestamp => CqlValue::Timestamp(CqlTimestamp(whole()?)),
        NativeType::Timeuuid => CqlValue::Timeuuid(text()?.parse::<CqlTimeuuid>()?),
        NativeType::TinyInt => CqlValue::TinyInt(whole()?.try_into()?),
        NativeType::Uuid => CqlValue::Uuid(text()?.parse::<CqlTimeuuid>()?.into()),
        NativeType::Varint => CqlValue::Varint(CqlVarint::from_signed_bytes_be(bytes(text()?.parse()?))),
        other => return Err(format!("no values of {other:?}").into()),
    })
}

fn blob(hex: &str) -> Answer<Vec<u8>> {
    (0..hex.len()).step_by(2).map(|at| Ok(u8::from_str_radix(&hex[at..at + 2], 16)?)).collect()
}

fn decimal(text: &str) -> Answer<CqlDecimal> {
    let scale = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let unscaled = text.replace('.', "").parse()?;
    Ok(CqlDecimal::from_signed_be_bytes_and_exponent(bytes(unscaled), scale.try_into()?))
}

/// Returns the fewest big-endian bytes of the two's complement.
fn bytes(number: i128) -> Vec<u8> {
    let all = number.to_be_bytes();
    let sign = if number < 0 { 0xff } else { 0 };
    let is_sign = |at: usize| all[at] == sign && (all[at + 1] ^ sign) & 0x80 == 0;
    let first = (0..all.len() - 1).find(|at| !is_sign(*at)).unwrap_or(all.len() - 1);
    all[first..].to_vec()
}

/// Returns the name of a type in CQL.
pub(super) fn text(typ: &ColumnType<'_>) -> String {
    let frozen = |frozen: bool, text: String| if frozen { format!("frozen<{text}>") } else { text };
    match typ {
        ColumnType::Native(native) => format!("{native:?}").to_lowercase(),
        ColumnType::Collection { frozen: is_frozen, typ } => {
            let text = match typ {
                CollectionType::List(item) => format!("list<{}>", text(item)),
                CollectionType::Set(item) => format!("set<{}>", text(item)),
                CollectionType::Map(key, item) => format!("map<{}, {}>", text(key), text(item)),
                other => format!("{other:?}"),
            };
            frozen(*is_frozen, text)
        }
        ColumnType::Tuple(types) => {
            frozen(true, format!("tuple<{}>", types.iter().map(text).collect::<Vec<_>>().join(", ")))
        }
        ColumnType::UserDefinedType { frozen: is_frozen, definition } => {
            frozen(*is_frozen, definition.name.to_string())
        }
        other => format!("{other:?}"),
    }
}
