//! Definitions of secondary indexes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::names::quoted;
use crate::{Analysis, CqlType};

/// Part of a column that an index finds rows by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum IndexedPart {
    /// The value of a column that is not a collection.
    Value,
    /// Each element of a list or set, or each value of a map.
    Values,
    /// Each key of a map.
    Keys,
    /// Each pair of key and value of a map.
    Entries,
    /// A frozen collection as a whole.
    Full,
}

impl IndexedPart {
    /// Returns its name in CQL. `None` for a plain column.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            IndexedPart::Value => None,
            IndexedPart::Values => Some("values"),
            IndexedPart::Keys => Some("keys"),
            IndexedPart::Entries => Some("entries"),
            IndexedPart::Full => Some("full"),
        }
    }

    /// Returns the target of an index as CQL shows it: `c`, or `keys(c)`.
    #[must_use]
    pub fn of(self, column: &str) -> String {
        match self.name() {
            Some(name) => format!("{name}({})", quoted(column)),
            None => quoted(column),
        }
    }
}

/// A secondary index of a table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct IndexDef {
    /// Its name, unique in the keyspace.
    pub name: String,
    /// The indexed column.
    pub column: String,
    /// The indexed part of the column.
    pub part: IndexedPart,
    /// Options as `system_schema.indexes` shows them, with the target, and for a custom index with
    /// the class.
    pub options: BTreeMap<String, String>,
    /// Identity of the data. It is replaced with that of the table.
    pub data: Uuid,
    /// True if the data has an entry for every row. Queries use the index from then on.
    pub is_built: bool,
}

/// Name of the option with the class of a custom index.
pub const CLASS_OPTION: &str = "class_name";

/// Full class name of storage-attached indexes.
const STORAGE_ATTACHED: &str = "org.apache.cassandra.index.sai.StorageAttachedIndex";

/// Returns true for a class name of storage-attached indexes.
#[must_use]
pub fn is_storage_attached(class: &str) -> bool {
    let is_short = ["sai", "StorageAttachedIndex"].iter().any(|name| class.eq_ignore_ascii_case(name));
    is_short || class == STORAGE_ATTACHED
}

/// Returns true for a type whose values Cassandra's storage-attached indexes keep in order. Texts,
/// booleans, random UUIDs and frozen values are found by equality alone.
fn has_ranges(ty: &CqlType) -> bool {
    matches!(
        ty,
        CqlType::TinyInt
            | CqlType::SmallInt
            | CqlType::Int
            | CqlType::BigInt
            | CqlType::Varint
            | CqlType::Float
            | CqlType::Double
            | CqlType::Decimal
            | CqlType::Date
            | CqlType::Time
            | CqlType::Timestamp
            | CqlType::TimeUuid
            | CqlType::Inet
    )
}

impl IndexDef {
    /// Returns true for a storage-attached index.
    #[must_use]
    pub fn is_storage_attached(&self) -> bool {
        self.options.get(CLASS_OPTION).is_some_and(|class| is_storage_attached(class))
    }

    /// Returns true for an index with a class.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        self.options.contains_key(CLASS_OPTION)
    }

    /// Returns true if the index, on a column of this type, finds ranges of values: if it is
    /// storage-attached, and on one value of a number, time or address.
    #[must_use]
    pub fn finds_ranges(&self, ty: &CqlType) -> bool {
        self.part == IndexedPart::Value && self.is_storage_attached() && has_ranges(ty)
    }

    /// Returns true if the index, on a column of this type, has no entries of empty values. As in
    /// Cassandra, conditions that a storage-attached index supports never hold for them then.
    #[must_use]
    pub fn skips_empty(&self, ty: &CqlType) -> bool {
        let has_empty = matches!(ty.thawed(), CqlType::Text | CqlType::Ascii);
        self.is_storage_attached() && self.part == IndexedPart::Value && !has_empty
    }

    /// Returns the analysis of its values, on a column of this type.
    #[must_use]
    pub fn analysis(&self, ty: &CqlType) -> Analysis {
        let inner = ty.thawed().inner();
        let indexed = match self.part {
            IndexedPart::Value => Some(ty.thawed()),
            IndexedPart::Values => inner.last().copied(),
            IndexedPart::Keys => inner.first().copied(),
            IndexedPart::Entries | IndexedPart::Full => None,
        };
        let is = |option: &str, value: bool| {
            self.options.get(option).is_some_and(|given| given.eq_ignore_ascii_case(&value.to_string()))
        };
        Analysis {
            ignores_case: is("case_sensitive", false),
            normalizes: is("normalize", true),
            folds: is("ascii", true),
            maps_addresses: self.is_storage_attached() && indexed == Some(&CqlType::Inet),
        }
    }

    /// Returns true if another index differs only in the name and the data.
    #[must_use]
    pub fn is_duplicate_of(&self, other: &IndexDef) -> bool {
        self.options == other.options
    }
}
