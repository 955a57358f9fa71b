//! The types of CQL. `Frozen` marks a collection that is one cell; on the wire it is transparent.

mod parse;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use parse::TypeError;

/// How deep types may be nested: what recurses over a type recurses no deeper.
pub const TYPE_DEPTH_MAX: usize = 16;

/// How many types a type may be made of, itself and user types' fields included, so that user types within
/// user types cannot multiply without end.
pub const TYPE_PARTS_MAX: usize = 4096;

/// A user-defined type: a named list of named fields.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct UdtType {
    /// The keyspace it belongs to.
    pub keyspace: String,
    /// Its name in that keyspace.
    pub name: String,
    /// Its fields, in order.
    pub fields: Vec<(String, CqlType)>,
}

impl UdtType {
    /// The type with `altered` in place of the user type of the same keyspace and name inside its fields.
    pub fn with_user_type(&self, altered: &Arc<UdtType>) -> UdtType {
        let fields = self.fields.iter().map(|(name, ty)| (name.clone(), ty.with_user_type(altered)));
        UdtType { keyspace: self.keyspace.clone(), name: self.name.clone(), fields: fields.collect() }
    }
}

/// A CQL type.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
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

    /// The type that `text` writes, as [`Display`](fmt::Display) does; `find_udt` finds user types by name.
    pub fn parse(text: &str, find_udt: &dyn Fn(&str) -> Option<Arc<UdtType>>) -> Result<CqlType, TypeError> {
        parse::parse(text, find_udt)
    }

    /// How many levels of types the type has (a scalar has one), and how many types it is made of.
    pub fn size(&self) -> (usize, usize) {
        self.inner().into_iter().map(CqlType::size).fold(
            (1, 1),
            |(depth, parts), (inner_depth, inner_parts)| {
                (depth.max(inner_depth + 1), parts.saturating_add(inner_parts))
            },
        )
    }

    /// Whether this type, or one inside it, is `wanted`.
    pub fn mentions(&self, wanted: &CqlType) -> bool {
        self == wanted || self.inner().into_iter().any(|inner| inner.mentions(wanted))
    }

    /// Whether this type is the user type of that keyspace and name, or one inside it is.
    pub fn mentions_user_type(&self, keyspace: &str, name: &str) -> bool {
        let is_it = matches!(self, CqlType::Udt(udt) if udt.keyspace == keyspace && udt.name == name);
        is_it || self.inner().into_iter().any(|inner| inner.mentions_user_type(keyspace, name))
    }

    /// The type with `altered` in place of the user type of the same keyspace and name, however deep inside.
    pub fn with_user_type(&self, altered: &Arc<UdtType>) -> CqlType {
        let boxed = |inner: &CqlType| Box::new(inner.with_user_type(altered));
        match self {
            CqlType::List(e) => CqlType::List(boxed(e)),
            CqlType::Set(e) => CqlType::Set(boxed(e)),
            CqlType::Frozen(e) => CqlType::Frozen(boxed(e)),
            CqlType::Map(k, v) => CqlType::Map(boxed(k), boxed(v)),
            CqlType::Tuple(es) => CqlType::Tuple(es.iter().map(|e| e.with_user_type(altered)).collect()),
            CqlType::Udt(udt) if udt.keyspace == altered.keyspace && udt.name == altered.name => {
                CqlType::Udt(altered.clone())
            }
            CqlType::Udt(udt) => CqlType::Udt(Arc::new(udt.with_user_type(altered))),
            scalar => scalar.clone(),
        }
    }

    /// The type without an outer `frozen<>`.
    pub fn thawed(&self) -> &CqlType {
        match self {
            CqlType::Frozen(inner) => inner.thawed(),
            other => other,
        }
    }

    /// The bytes every value of the type has, or `None` where values differ.
    pub fn fixed_len(&self) -> Option<usize> {
        match self {
            CqlType::Boolean | CqlType::TinyInt => Some(1),
            CqlType::SmallInt => Some(2),
            CqlType::Int | CqlType::Float | CqlType::Date => Some(4),
            CqlType::BigInt | CqlType::Counter | CqlType::Double | CqlType::Time | CqlType::Timestamp => {
                Some(8)
            }
            CqlType::Uuid | CqlType::TimeUuid => Some(16),
            CqlType::Frozen(inner) => inner.fixed_len(),
            _ => None,
        }
    }

    /// The type's bare name: `int`, `list`, `tuple`; `frozen` is looked through, a user type is `udt`.
    pub fn kind_name(&self) -> &'static str {
        match self {
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
            CqlType::List(_) => "list",
            CqlType::Set(_) => "set",
            CqlType::Map(..) => "map",
            CqlType::Tuple(_) => "tuple",
            CqlType::Udt(_) => "udt",
            CqlType::Frozen(inner) => inner.kind_name(),
        }
    }

    /// Whether the type is a collection (list, set or map), frozen or not.
    pub fn is_collection(&self) -> bool {
        matches!(self.thawed(), CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..))
    }

    /// Whether values of the type are kept as several cells: a collection or user type that is not frozen.
    pub fn is_multi_cell(&self) -> bool {
        matches!(self, CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..) | CqlType::Udt(_))
    }

    /// The types directly inside this one, in order.
    pub fn inner(&self) -> Vec<&CqlType> {
        match self {
            CqlType::List(e) | CqlType::Set(e) | CqlType::Frozen(e) => vec![e],
            CqlType::Map(k, v) => vec![k, v],
            CqlType::Tuple(es) => es.iter().collect(),
            CqlType::Udt(udt) => udt.fields.iter().map(|(_, ty)| ty).collect(),
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for CqlType {
    /// The type as CQL writes it, as in `system_schema.columns.type`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CqlType::List(e) => write!(f, "list<{e}>"),
            CqlType::Set(e) => write!(f, "set<{e}>"),
            CqlType::Map(k, v) => write!(f, "map<{k}, {v}>"),
            CqlType::Tuple(es) => {
                f.write_str("tuple<")?;
                for (i, e) in es.iter().enumerate() {
                    write!(f, "{}{e}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(">")
            }
            CqlType::Udt(udt) => f.write_str(&crate::names::quoted(&udt.name)),
            CqlType::Frozen(inner) => write!(f, "frozen<{inner}>"),
            scalar => f.write_str(scalar.kind_name()),
        }
    }
}
