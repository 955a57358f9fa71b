//! The types of CQL. `Frozen` marks a collection that is one cell; on the wire it is transparent.

use std::fmt;
use std::sync::Arc;

/// A user-defined type: a named list of named fields.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct UdtType {
    /// The keyspace it belongs to.
    pub keyspace: String,
    /// Its name in that keyspace.
    pub name: String,
    /// Its fields, in order.
    pub fields: Vec<(String, CqlType)>,
}

/// A CQL type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the variants are CQL's own type names")]
pub enum CqlType {
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
    List(Box<CqlType>),
    Set(Box<CqlType>),
    Map(Box<CqlType>, Box<CqlType>),
    Tuple(Vec<CqlType>),
    Udt(Arc<UdtType>),
    Frozen(Box<CqlType>),
}

impl CqlType {
    /// The type of a scalar by its CQL name (any case; `varchar` is `text`), or `None`.
    pub fn scalar(name: &str) -> Option<CqlType> {
        Some(match name.to_ascii_lowercase().as_str() {
            "ascii" => CqlType::Ascii,
            "bigint" => CqlType::BigInt,
            "blob" => CqlType::Blob,
            "boolean" => CqlType::Boolean,
            "counter" => CqlType::Counter,
            "date" => CqlType::Date,
            "decimal" => CqlType::Decimal,
            "double" => CqlType::Double,
            "duration" => CqlType::Duration,
            "float" => CqlType::Float,
            "inet" => CqlType::Inet,
            "int" => CqlType::Int,
            "smallint" => CqlType::SmallInt,
            "text" | "varchar" => CqlType::Text,
            "time" => CqlType::Time,
            "timestamp" => CqlType::Timestamp,
            "timeuuid" => CqlType::TimeUuid,
            "tinyint" => CqlType::TinyInt,
            "uuid" => CqlType::Uuid,
            "varint" => CqlType::Varint,
            _ => return None,
        })
    }

    /// The type without an outer `frozen<>`.
    pub fn thawed(&self) -> &CqlType {
        match self {
            CqlType::Frozen(inner) => inner.thawed(),
            other => other,
        }
    }
}

impl fmt::Display for CqlType {
    /// The type as CQL writes it, as in `system_schema.columns.type`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            CqlType::Ascii => "ascii",
            CqlType::BigInt => "bigint",
            CqlType::Blob => "blob",
            CqlType::Boolean => "boolean",
            CqlType::Counter => "counter",
            CqlType::Date => "date",
            CqlType::Decimal => "decimal",
            CqlType::Double => "double",
            CqlType::Duration => "duration",
            CqlType::Float => "float",
            CqlType::Inet => "inet",
            CqlType::Int => "int",
            CqlType::SmallInt => "smallint",
            CqlType::Text => "text",
            CqlType::Time => "time",
            CqlType::Timestamp => "timestamp",
            CqlType::TimeUuid => "timeuuid",
            CqlType::TinyInt => "tinyint",
            CqlType::Uuid => "uuid",
            CqlType::Varint => "varint",
            CqlType::List(e) => return write!(f, "list<{e}>"),
            CqlType::Set(e) => return write!(f, "set<{e}>"),
            CqlType::Map(k, v) => return write!(f, "map<{k}, {v}>"),
            CqlType::Tuple(es) => {
                f.write_str("tuple<")?;
                for (i, e) in es.iter().enumerate() {
                    write!(f, "{}{e}", if i == 0 { "" } else { ", " })?;
                }
                return f.write_str(">");
            }
            CqlType::Udt(udt) => return f.write_str(&crate::names::quoted(&udt.name)),
            CqlType::Frozen(inner) => return write!(f, "frozen<{inner}>"),
        };
        f.write_str(name)
    }
}
