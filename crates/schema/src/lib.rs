//! Types, values, table definitions, key order and tokens: what every other room means by "a column"
//! and "a key". Nothing here knows storage or protocols.

pub mod names;
pub mod table;
pub mod token;
pub mod types;
pub mod value;

pub use table::{
    ClusteringOrder, ColumnDef, ColumnKind, DefinitionError, KeyspaceDef, TableDef, TableOptions,
};
pub use token::{KeyError, Sharding, Token};
pub use types::{CqlType, TypeError, UdtType};
pub use value::ValueError;
