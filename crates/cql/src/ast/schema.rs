//! Statements that change the schema.

use ::schema::ClusteringOrder;

use super::{FunctionCall, OptionList, QualifiedName, Relation, Selection, TableName, Term, TypeName};

/// `CREATE KEYSPACE`.
#[derive(Clone, PartialEq, Debug)]
pub struct CreateKeyspace {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Its name.
    pub name: String,
    /// `WITH`.
    pub options: OptionList,
}

/// `ALTER KEYSPACE`.
#[derive(Clone, PartialEq, Debug)]
pub struct AlterKeyspace {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// Its name.
    pub name: String,
    /// `WITH`.
    pub options: OptionList,
}

/// `DROP KEYSPACE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropKeyspace {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// Its name.
    pub name: String,
}

/// `DROP` of a table, a type, an index or a materialized view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropObject {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// Its name.
    pub name: QualifiedName,
}

/// `CREATE TABLE`.
#[derive(Clone, PartialEq, Debug)]
pub struct CreateTable {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Its name.
    pub table: TableName,
    /// The columns, in the order of the text.
    pub columns: Vec<ColumnDefinition>,
    /// The partition key. Empty without a primary key.
    pub partition_key: Vec<String>,
    /// The clustering columns.
    pub clustering: Vec<String>,
    /// `WITH`.
    pub properties: TableProperties,
}

/// A column of a new table.
#[derive(Clone, PartialEq, Debug)]
pub struct ColumnDefinition {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: TypeName,
    /// `STATIC`.
    pub is_static: bool,
    /// `MASKED WITH f(…)`, without the first argument, which is the value. `DEFAULT` is
    /// `mask_default()`.
    pub mask: Option<FunctionCall>,
}

/// `WITH` of a table or a view.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TableProperties {
    /// `name = value`; `ID = '…'` is the option `id`.
    pub options: OptionList,
    /// `CLUSTERING ORDER BY`. Empty without the clause.
    pub clustering_order: Vec<(String, ClusteringOrder)>,
    /// `COMPACT STORAGE`.
    pub compact_storage: bool,
}

/// `ALTER TABLE`.
#[derive(Clone, PartialEq, Debug)]
pub struct AlterTable {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The table.
    pub table: TableName,
    /// The change.
    pub change: TableChange,
}

/// Change of an ALTER TABLE.
#[derive(Clone, PartialEq, Debug)]
pub enum TableChange {
    /// `ADD c t, …`.
    Add {
        /// `IF NOT EXISTS`.
        if_not_exists: bool,
        /// At least one column.
        columns: Vec<ColumnDefinition>,
    },
    /// `DROP c, …`.
    Drop {
        /// `IF EXISTS`.
        if_exists: bool,
        /// At least one column.
        columns: Vec<String>,
        /// `USING TIMESTAMP`, in microseconds.
        timestamp: Option<Term>,
    },
    /// `DROP COMPACT STORAGE`.
    DropCompactStorage,
    /// `RENAME a TO b AND …`.
    Rename {
        /// `IF EXISTS`.
        if_exists: bool,
        /// Old and new names, at least one pair.
        columns: Vec<(String, String)>,
    },
    /// `ALTER c TYPE t`.
    Type {
        /// The column.
        column: String,
        /// Its new type.
        ty: TypeName,
    },
    /// `ALTER c MASKED WITH f(…)` or `ALTER c DROP MASKED`.
    Mask {
        /// `IF EXISTS`.
        if_exists: bool,
        /// The column.
        column: String,
        /// The function without its first argument. `None` for DROP.
        mask: Option<FunctionCall>,
    },
    /// `WITH`.
    With(TableProperties),
}

/// `CREATE TYPE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateType {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Its name.
    pub name: QualifiedName,
    /// Its fields, at least one.
    pub fields: Vec<(String, TypeName)>,
}

/// `ALTER TYPE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterType {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// Its name.
    pub name: QualifiedName,
    /// The change.
    pub change: TypeChange,
}

/// Change of an ALTER TYPE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TypeChange {
    /// `ADD f t`.
    Add {
        /// `IF NOT EXISTS`.
        if_not_exists: bool,
        /// The field.
        field: String,
        /// Its type.
        ty: TypeName,
    },
    /// `RENAME a TO b AND …`.
    Rename {
        /// `IF EXISTS`.
        if_exists: bool,
        /// Old and new names, at least one pair.
        fields: Vec<(String, String)>,
    },
    /// `ALTER f TYPE t`.
    Type {
        /// The field.
        field: String,
        /// Its new type.
        ty: TypeName,
    },
}

/// `CREATE INDEX`.
#[derive(Clone, PartialEq, Debug)]
pub struct CreateIndex {
    /// `CREATE CUSTOM INDEX`.
    pub custom: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Its name. `None`: the text has none.
    pub name: Option<QualifiedName>,
    /// The table.
    pub table: TableName,
    /// The indexed columns. May be empty for a custom index.
    pub targets: Vec<IndexTarget>,
    /// `USING 'class'`.
    pub class: Option<String>,
    /// `WITH`.
    pub options: OptionList,
}

/// Indexed column, or the indexed part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexTarget {
    /// `c`.
    Column(String),
    /// `values(c)`.
    Values(String),
    /// `keys(c)`.
    Keys(String),
    /// `entries(c)`.
    Entries(String),
    /// `full(c)`.
    Full(String),
}

/// `CREATE MATERIALIZED VIEW`.
#[derive(Clone, PartialEq, Debug)]
pub struct CreateMaterializedView {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Its name.
    pub name: QualifiedName,
    /// The columns of the view.
    pub selection: Selection,
    /// The base table.
    pub from: TableName,
    /// `WHERE`.
    pub relations: Vec<Relation>,
    /// The partition key.
    pub partition_key: Vec<String>,
    /// The clustering columns.
    pub clustering: Vec<String>,
    /// `WITH`.
    pub properties: TableProperties,
}

/// `ALTER MATERIALIZED VIEW`.
#[derive(Clone, PartialEq, Debug)]
pub struct AlterMaterializedView {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// Its name.
    pub name: QualifiedName,
    /// `WITH`.
    pub properties: TableProperties,
}

/// `CREATE FUNCTION`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateFunction {
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Its name.
    pub name: QualifiedName,
    /// Its arguments.
    pub arguments: Vec<(String, TypeName)>,
    /// `CALLED ON NULL INPUT`; otherwise `RETURNS NULL ON NULL INPUT`.
    pub called_on_null_input: bool,
    /// Its result type.
    pub returns: TypeName,
    /// `LANGUAGE`.
    pub language: String,
    /// `AS`.
    pub body: String,
}

/// `DROP FUNCTION` or `DROP AGGREGATE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropFunction {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// Its name.
    pub name: QualifiedName,
    /// Its argument types. `None`: the text has no argument list.
    pub arguments: Option<Vec<TypeName>>,
}

/// `CREATE AGGREGATE`.
#[derive(Clone, PartialEq, Debug)]
pub struct CreateAggregate {
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Its name.
    pub name: QualifiedName,
    /// Its argument types.
    pub arguments: Vec<TypeName>,
    /// `SFUNC`.
    pub state_function: String,
    /// `STYPE`.
    pub state_type: TypeName,
    /// `FINALFUNC`.
    pub final_function: Option<String>,
    /// `INITCOND`.
    pub initial: Option<Term>,
}

/// `CREATE TRIGGER`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateTrigger {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Its name.
    pub name: String,
    /// The table.
    pub table: TableName,
    /// `USING 'class'`.
    pub class: String,
}

/// `DROP TRIGGER`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropTrigger {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// Its name.
    pub name: String,
    /// The table.
    pub table: TableName,
}
