//! `DESCRIBE`, which cqlsh sends to the server.

use super::QualifiedName;

/// `DESCRIBE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Describe {
    /// The object to describe.
    pub target: DescribeTarget,
    /// `WITH INTERNALS`.
    pub with_internals: bool,
    /// `AND PASSWORDS`, as in ScyllaDB.
    pub with_passwords: bool,
}

/// Object of a DESCRIBE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DescribeTarget {
    /// `[FULL] SCHEMA`.
    Schema {
        /// `FULL`: system keyspaces too.
        full: bool,
    },
    /// `CLUSTER`.
    Cluster,
    /// `KEYSPACES`.
    Keyspaces,
    /// `[ONLY] KEYSPACE [k]`.
    Keyspace {
        /// `ONLY`: the keyspace without the objects in it.
        only: bool,
        /// The name. `None`: the keyspace of the session.
        name: Option<String>,
    },
    /// `TABLES`.
    Tables,
    /// `TABLE t` (or `COLUMNFAMILY t`).
    Table(QualifiedName),
    /// `TYPES`.
    Types,
    /// `TYPE t`.
    Type(QualifiedName),
    /// `FUNCTIONS`.
    Functions,
    /// `FUNCTION f`.
    Function(QualifiedName),
    /// `AGGREGATES`.
    Aggregates,
    /// `AGGREGATE a`.
    Aggregate(QualifiedName),
    /// `INDEX i`.
    Index(QualifiedName),
    /// `MATERIALIZED VIEW v`.
    MaterializedView(QualifiedName),
    /// `name`: a keyspace, table, view or index of that name.
    Named(QualifiedName),
}
