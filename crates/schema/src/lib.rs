//! CQL types, values, table definitions, key order and tokens. Defines columns and keys for all
//! other crates. It knows no storage and no protocol.

mod analysis;
mod index;
pub mod names;
pub mod table;
pub mod token;
pub mod types;
pub mod value;
mod weight;

pub use analysis::Analysis;
pub use index::{CLASS_OPTION, IndexDef, IndexedPart, is_storage_attached};
pub use table::{
    ClusteringOrder, ColumnDef, ColumnKind, ColumnMask, DefinitionError, DroppedColumn, KeyCondition,
    KeyTest, KeyspaceDef, MaskArgument, STORED_OPTIONS, StoredOption, TTL_SECONDS_MAX, TableDef,
    TableOptions, ViewDef, stored_option,
};
pub use token::{KeyError, Sharding, Token};
pub use types::{CqlType, TypeError, UdtType};
pub use value::ValueError;
pub use weight::Weight;
