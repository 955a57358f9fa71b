//! CQL types. `Frozen` marks a collection or user type that is stored as one cell. The protocol
//! does not show it.

mod class;
mod parse;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use class::ClassError;
pub use parse::TypeError;

/// Highest nesting depth of a type. It bounds every recursion over a type.
pub const TYPE_DEPTH_MAX: usize = 16;

/// Most types in one type, including itself and the fields of user types. It bounds the growth by
/// user types that contain user types.
pub const TYPE_PARTS_MAX: usize = 4096;

/// Largest dimension of a vector, as in Cassandra. Nothing is allocated for a dimension: the bytes
/// of a value bound its elements.
pub const VECTOR_DIMENSION_MAX: u32 = i32::MAX.unsigned_abs();

/// Longest name of a class. The protocol writes its length as `u16`.
pub(crate) const CLASS_BYTES_MAX: usize = u16::MAX as usize;

/// A user-defined type: a name and named fields.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct UdtType {
    /// The keyspace of the type.
    pub keyspace: String,
    /// Its name in the keyspace.
    pub name: String,
    /// Its fields, in order.
    pub fields: Vec<(String, CqlType)>,
    /// True if keys encode its values so that fields can be added behind the last one. False for
    /// stored types of versions that wrote each field, also nulls: their keys have no end.
    #[serde(default)]
    pub is_extensible: bool,
}

impl UdtType {
    /// Returns a new type, which is extensible.
    pub fn new(
        keyspace: impl Into<String>,
        name: impl Into<String>,
        fields: Vec<(String, CqlType)>,
    ) -> UdtType {
        UdtType { keyspace: keyspace.into(), name: name.into(), fields, is_extensible: true }
    }

    /// Returns the type with `altered` in place of each user type of the same keyspace and name in
    /// its fields.
    pub fn with_user_type(&self, altered: &Arc<UdtType>) -> UdtType {
        let fields = self.fields.iter().map(|(name, ty)| (name.clone(), ty.with_user_type(altered)));
        UdtType {
            keyspace: self.keyspace.clone(),
            name: self.name.clone(),
            fields: fields.collect(),
            is_extensible: self.is_extensible,
        }
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
    /// The type of the elements, and their number: 1 to [`VECTOR_DIMENSION_MAX`].
    Vector(Box<CqlType>, u32),
}

impl CqlType {
    /// Returns the scalar type with this CQL name in any case. `varchar` is `text`. `None`: no
    /// scalar type has this name.
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

    /// Parses the notation of [`Display`](fmt::Display). `find_udt` returns the user type of a
    /// name.
    pub fn parse(text: &str, find_udt: &dyn Fn(&str) -> Option<Arc<UdtType>>) -> Result<CqlType, TypeError> {
        parse::parse(text, find_udt)
    }

    /// Returns the nesting depth of the type (1 for a scalar) and the number of types in it,
    /// including itself.
    pub fn size(&self) -> (usize, usize) {
        self.inner().into_iter().map(CqlType::size).fold(
            (1, 1),
            |(depth, parts), (inner_depth, inner_parts)| {
                (depth.max(inner_depth + 1), parts.saturating_add(inner_parts))
            },
        )
    }

    /// Returns the bytes that describe the type in a message of the protocol. Stops counting above
    /// `limit`, so that the work is proportional to it.
    pub fn description_bytes(&self, limit: usize) -> usize {
        let mut sum = 2;
        let mut add = |bytes: usize, ty: &CqlType| {
            sum += bytes;
            if sum <= limit {
                sum += ty.description_bytes(limit - sum);
            }
            sum <= limit
        };
        match self {
            CqlType::Frozen(inner) => return inner.description_bytes(limit),
            CqlType::List(e) | CqlType::Set(e) => _ = add(0, e),
            // It is described by the name of a class.
            CqlType::Vector(..) => sum += 2 + self.class_bytes(limit),
            CqlType::Map(k, v) => _ = add(0, k) && add(0, v),
            CqlType::Tuple(es) => _ = es.iter().all(|e| add(0, e)),
            CqlType::Udt(udt) => {
                // Keyspace, name, and the number of fields.
                let names = 6 + udt.keyspace.len() + udt.name.len();
                let mut names = Some(names);
                _ = udt.fields.iter().all(|(name, ty)| add(names.take().unwrap_or(0) + 2 + name.len(), ty));
            }
            // In version 4 of the protocol, it is described by the name of a class.
            CqlType::Duration => sum += 48,
            _ => {}
        }
        sum
    }

    /// Returns true if this type or a type inside it is `wanted`.
    pub fn mentions(&self, wanted: &CqlType) -> bool {
        self == wanted || self.inner().into_iter().any(|inner| inner.mentions(wanted))
    }

    /// Returns true if this type or a type inside it is the user type of this keyspace and name.
    pub fn mentions_user_type(&self, keyspace: &str, name: &str) -> bool {
        let is_it = matches!(self, CqlType::Udt(udt) if udt.keyspace == keyspace && udt.name == name);
        is_it || self.inner().into_iter().any(|inner| inner.mentions_user_type(keyspace, name))
    }

    /// Returns the type with `altered` in place of each user type of the same keyspace and name, at
    /// any depth.
    pub fn with_user_type(&self, altered: &Arc<UdtType>) -> CqlType {
        let boxed = |inner: &CqlType| Box::new(inner.with_user_type(altered));
        match self {
            CqlType::List(e) => CqlType::List(boxed(e)),
            CqlType::Set(e) => CqlType::Set(boxed(e)),
            CqlType::Frozen(e) => CqlType::Frozen(boxed(e)),
            CqlType::Vector(e, dimension) => CqlType::Vector(boxed(e), *dimension),
            CqlType::Map(k, v) => CqlType::Map(boxed(k), boxed(v)),
            CqlType::Tuple(es) => CqlType::Tuple(es.iter().map(|e| e.with_user_type(altered)).collect()),
            CqlType::Udt(udt) if udt.keyspace == altered.keyspace && udt.name == altered.name => {
                CqlType::Udt(altered.clone())
            }
            CqlType::Udt(udt) => CqlType::Udt(Arc::new(udt.with_user_type(altered))),
            scalar => scalar.clone(),
        }
    }

    /// Returns the type with tuples in place of user types, which may have been dropped.
    #[must_use]
    pub fn without_user_types(&self) -> CqlType {
        let boxed = |inner: &CqlType| Box::new(inner.without_user_types());
        match self {
            CqlType::List(e) => CqlType::List(boxed(e)),
            CqlType::Set(e) => CqlType::Set(boxed(e)),
            CqlType::Map(k, v) => CqlType::Map(boxed(k), boxed(v)),
            CqlType::Vector(e, dimension) => CqlType::Vector(boxed(e), *dimension),
            CqlType::Tuple(es) => CqlType::Tuple(es.iter().map(CqlType::without_user_types).collect()),
            CqlType::Udt(udt) => {
                CqlType::Tuple(udt.fields.iter().map(|(_, ty)| ty.without_user_types()).collect())
            }
            CqlType::Frozen(inner) => CqlType::Frozen(boxed(inner)),
            scalar => scalar.clone(),
        }
    }

    /// Returns the type without its outer `frozen<>`.
    pub fn thawed(&self) -> &CqlType {
        match self {
            CqlType::Frozen(inner) => inner.thawed(),
            other => other,
        }
    }

    /// Returns the length in bytes of each element, if vectors of this type have no lengths between
    /// their elements. `None`: each element follows its length. Cassandra counts `tinyint`,
    /// `smallint`, `counter`, `date` and `time` among the types whose length varies.
    pub fn element_len(&self) -> Option<usize> {
        match self {
            CqlType::TinyInt | CqlType::SmallInt | CqlType::Counter | CqlType::Date | CqlType::Time => None,
            other => other.fixed_len(),
        }
    }

    /// Returns the length in bytes of all values of the type. `None`: the length varies.
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
            CqlType::Vector(element, dimension) => {
                Some(element.element_len()?.saturating_mul(*dimension as usize))
            }
            _ => None,
        }
    }

    /// Returns the name without parameters, such as `int`, `list` or `tuple`. For `frozen<>` it is
    /// the name of the inner type, for a user type it is `udt`.
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
            CqlType::Vector(..) => "vector",
            CqlType::Frozen(inner) => inner.kind_name(),
        }
    }

    /// Returns true for a list, set or map, frozen or not.
    pub fn is_collection(&self) -> bool {
        matches!(self.thawed(), CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..))
    }

    /// Returns true if values of the type are stored as several cells: for collections and user
    /// types that are not frozen.
    pub fn is_multi_cell(&self) -> bool {
        matches!(self, CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..) | CqlType::Udt(_))
    }

    /// Returns the types directly inside this one, in order.
    pub fn inner(&self) -> Vec<&CqlType> {
        match self {
            CqlType::List(e) | CqlType::Set(e) | CqlType::Frozen(e) | CqlType::Vector(e, _) => vec![e],
            CqlType::Map(k, v) => vec![k, v],
            CqlType::Tuple(es) => es.iter().collect(),
            CqlType::Udt(udt) => udt.fields.iter().map(|(_, ty)| ty).collect(),
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for CqlType {
    /// Writes the type as CQL does, and as `system_schema.columns.type` shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CqlType::List(e) => write!(f, "list<{e}>"),
            CqlType::Set(e) => write!(f, "set<{e}>"),
            CqlType::Map(k, v) => write!(f, "map<{k}, {v}>"),
            // A tuple is always one cell, and shown so.
            CqlType::Tuple(es) => {
                f.write_str("frozen<tuple<")?;
                for (i, e) in es.iter().enumerate() {
                    write!(f, "{}{e}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(">>")
            }
            // Without quotes, `int` would be the built-in type.
            CqlType::Udt(udt) if CqlType::scalar(&udt.name).is_some() => {
                f.write_str(&crate::names::always_quoted(&udt.name))
            }
            CqlType::Udt(udt) => f.write_str(&crate::names::quoted(&udt.name)),
            CqlType::Frozen(inner) if matches!(inner.thawed(), CqlType::Tuple(_)) => inner.fmt(f),
            CqlType::Frozen(inner) => write!(f, "frozen<{inner}>"),
            CqlType::Vector(element, dimension) => write!(f, "vector<{element}, {dimension}>"),
            scalar => f.write_str(scalar.kind_name()),
        }
    }
}
