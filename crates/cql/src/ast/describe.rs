//! `DESCRIBE`, which cqlsh leaves to the server.

use super::QualifiedName;

/// `DESCRIBE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Describe {
    /// What is asked for.
    pub target: DescribeTarget,
    /// `WITH INTERNALS`.
    pub with_internals: bool,
}

/// What a DESCRIBE asks for.
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
        /// `ONLY`: without what is in it.
        only: bool,
        /// Its name; the session's without one.
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
    /// A bare name: whichever keyspace, table, view or index has it.
    Named(QualifiedName),
}
