//! Statements about data: SELECT, INSERT, UPDATE, DELETE and BATCH.

use ::schema::ClusteringOrder;

use super::{Arithmetic, QualifiedName, Statement, TableName, Term, TypeName};

/// `SELECT`.
#[derive(Clone, PartialEq, Debug)]
pub struct Select {
    /// `SELECT DISTINCT`.
    pub distinct: bool,
    /// `SELECT JSON`.
    pub json: bool,
    /// The expressions to return.
    pub selection: Selection,
    /// The table.
    pub from: TableName,
    /// `WHERE`, joined by AND. Empty without a WHERE.
    pub relations: Vec<Relation>,
    /// `GROUP BY`: columns, or functions of columns.
    pub group_by: Vec<SelectExpr>,
    /// `ORDER BY`: columns and their order.
    pub order_by: Vec<(String, ClusteringOrder)>,
    /// `ORDER BY … ANN OF`. Printed before `order_by`: no valid statement has both.
    pub nearest: Vec<Nearest>,
    /// `PER PARTITION LIMIT`.
    pub per_partition_limit: Option<Term>,
    /// `LIMIT`.
    pub limit: Option<Term>,
    /// `ALLOW FILTERING`.
    pub allow_filtering: bool,
    /// `BYPASS CACHE`.
    pub bypass_cache: bool,
    /// `USING TIMEOUT … AND SERVICE LEVEL …`. The parser rejects TIMESTAMP and TTL here.
    pub using: Using,
}

/// `c ANN OF v` of an ORDER BY: the rows nearest to a vector come first.
#[derive(Clone, PartialEq, Debug)]
pub struct Nearest {
    /// The column of vectors.
    pub column: String,
    /// The vector.
    pub vector: Term,
    /// Its order. Engines refuse all but `ASC`.
    pub order: ClusteringOrder,
}

/// Result columns of a SELECT.
#[derive(Clone, PartialEq, Debug)]
pub enum Selection {
    /// `*`.
    All,
    /// At least one selector.
    Selectors(Vec<Selector>),
}

/// One result column.
#[derive(Clone, PartialEq, Debug)]
pub struct Selector {
    /// The expression to compute.
    pub expr: SelectExpr,
    /// `AS alias`.
    pub alias: Option<String>,
}

/// An expression over a row.
#[derive(Clone, PartialEq, Debug)]
pub enum SelectExpr {
    /// A column.
    Column(String),
    /// A constant, a bind marker, a collection or tuple of these, or a type hint for one of them. A
    /// term never contains a column.
    Term(Term),
    /// `count(*)` or `count(1)`.
    CountRows,
    /// A function or an aggregate. Includes `token(…)`, `writetime(c)` and `ttl(c)`.
    Function(SelectCall),
    /// `CAST(e AS t)`.
    Cast(Box<SelectExpr>, TypeName),
    /// `(t) e`: a type hint for an expression with columns or functions. A hint for a constant is a
    /// `Term`.
    TypeHint(TypeName, Box<SelectExpr>),
    /// `e[key]`.
    Element(Box<SelectExpr>, Term),
    /// `e[from..to]`.
    Slice(Box<SelectExpr>, Option<Term>, Option<Term>),
    /// `e.field`.
    Field(Box<SelectExpr>, String),
    /// `a + b`.
    Arithmetic(Box<Arithmetic<SelectExpr>>),
    /// `-e`.
    Negate(Box<SelectExpr>),
    /// `[a, b]`, at least one element. One of constants alone is a `Term`, as are the following.
    List(Vec<SelectExpr>),
    /// `{a, b}`, at least one member.
    Set(Vec<SelectExpr>),
    /// `{a: b}`, at least one entry.
    Map(Vec<(SelectExpr, SelectExpr)>),
    /// `{f: e}`, at least one field: a value of a user type, or a map whose keys are columns.
    Udt(Vec<(String, SelectExpr)>),
    /// `(a, b)`, at least two components.
    Tuple(Vec<SelectExpr>),
}

/// A function call in a selection.
#[derive(Clone, PartialEq, Debug)]
pub struct SelectCall {
    /// The function.
    pub name: QualifiedName,
    /// Its arguments.
    pub arguments: Vec<SelectExpr>,
}

/// A comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the variants are the operators")]
pub enum CompareOp {
    Eq,
    NotEq,
    Less,
    LessEq,
    Greater,
    GreaterEq,
}

/// Operand of IN.
#[derive(Clone, PartialEq, Debug)]
pub enum InValues {
    /// `(a, b)`; may be empty.
    List(Vec<Term>),
    /// `?` or `:name` for the whole list.
    Marker(Term),
}

/// One relation of a WHERE.
#[derive(Clone, PartialEq, Debug)]
pub enum Relation {
    /// `c < v`.
    Compare {
        /// The column.
        column: String,
        /// The comparison.
        op: CompareOp,
        /// The value.
        value: Term,
    },
    /// `c[k] = v`.
    Element {
        /// The column.
        column: String,
        /// The key or index.
        key: Term,
        /// The comparison.
        op: CompareOp,
        /// The value.
        value: Term,
    },
    /// `c IN …`.
    In {
        /// The column.
        column: String,
        /// The values.
        values: InValues,
    },
    /// `c CONTAINS v`.
    Contains {
        /// The column.
        column: String,
        /// The value.
        value: Term,
    },
    /// `c CONTAINS KEY v`.
    ContainsKey {
        /// The column.
        column: String,
        /// The key.
        key: Term,
    },
    /// `c LIKE v`.
    Like {
        /// The column.
        column: String,
        /// The pattern.
        pattern: Term,
    },
    /// `c IS NOT NULL`.
    IsNotNull {
        /// The column.
        column: String,
    },
    /// `(a, b) > (1, 2)`.
    Tuple {
        /// The columns.
        columns: Vec<String>,
        /// The comparison.
        op: CompareOp,
        /// A tuple or a marker.
        value: Term,
    },
    /// `(a, b) IN …`.
    TupleIn {
        /// The columns.
        columns: Vec<String>,
        /// Tuples or markers.
        values: InValues,
    },
    /// `token(a, b) > v`.
    Token {
        /// The columns.
        columns: Vec<String>,
        /// The comparison.
        op: CompareOp,
        /// The value.
        value: Term,
    },
}

impl Relation {
    /// Returns the columns that it restricts.
    pub fn columns(&self) -> &[String] {
        match self {
            Relation::Compare { column, .. }
            | Relation::Element { column, .. }
            | Relation::In { column, .. }
            | Relation::Contains { column, .. }
            | Relation::ContainsKey { column, .. }
            | Relation::Like { column, .. }
            | Relation::IsNotNull { column } => std::slice::from_ref(column),
            Relation::Tuple { columns, .. }
            | Relation::TupleIn { columns, .. }
            | Relation::Token { columns, .. } => columns,
        }
    }

    /// Returns the columns that it restricts, to rename them.
    pub fn columns_mut(&mut self) -> &mut [String] {
        match self {
            Relation::Compare { column, .. }
            | Relation::Element { column, .. }
            | Relation::In { column, .. }
            | Relation::Contains { column, .. }
            | Relation::ContainsKey { column, .. }
            | Relation::Like { column, .. }
            | Relation::IsNotNull { column } => std::slice::from_mut(column),
            Relation::Tuple { columns, .. }
            | Relation::TupleIn { columns, .. }
            | Relation::Token { columns, .. } => columns,
        }
    }
}

/// `USING … AND …`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Using {
    /// `TIMESTAMP`, in microseconds.
    pub timestamp: Option<Term>,
    /// `TTL`, in seconds.
    pub ttl: Option<Term>,
    /// `TIMEOUT`: a duration or a marker.
    pub timeout: Option<Term>,
    /// `SERVICE LEVEL`.
    pub service_level: Option<String>,
}

/// `TRUNCATE t USING TIMEOUT …`.
#[derive(Clone, PartialEq, Debug)]
pub struct Truncate {
    /// The table.
    pub table: TableName,
    /// `USING TIMEOUT`, as in ScyllaDB, and the level. Without markers.
    pub using: Using,
}

impl Using {
    /// True without a USING clause.
    pub fn is_empty(&self) -> bool {
        *self == Using::default()
    }
}

/// `INSERT`.
#[derive(Clone, PartialEq, Debug)]
pub struct Insert {
    /// The table.
    pub table: TableName,
    /// The columns. Empty for INSERT JSON.
    pub columns: Vec<String>,
    /// The values. The parser checks that there is one value per column.
    pub values: Vec<Term>,
    /// `INSERT … JSON`.
    pub json: Option<InsertJson>,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// `USING`.
    pub using: Using,
}

/// JSON of an INSERT.
#[derive(Clone, PartialEq, Debug)]
pub struct InsertJson {
    /// A string or a marker.
    pub value: Term,
    /// `DEFAULT UNSET`: keep the values of columns that the JSON does not name.
    pub default_unset: bool,
}

/// `UPDATE`.
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// The table.
    pub table: TableName,
    /// `USING`.
    pub using: Using,
    /// `SET`, at least one.
    pub assignments: Vec<Assignment>,
    /// `WHERE`, at least one.
    pub relations: Vec<Relation>,
    /// `IF`.
    pub condition: IfClause,
}

/// One assignment of an UPDATE.
#[derive(Clone, PartialEq, Debug)]
pub struct Assignment {
    /// The column or part that changes.
    pub target: AssignmentTarget,
    /// The change.
    pub change: Change,
}

/// A column, or a part of it.
#[derive(Clone, PartialEq, Debug)]
pub enum AssignmentTarget {
    /// `c`.
    Column(String),
    /// `c[k]`.
    Element(String, Term),
    /// `c.f`.
    Field(String, String),
}

impl AssignmentTarget {
    /// Returns the column.
    pub fn column(&self) -> &str {
        match self {
            AssignmentTarget::Column(column)
            | AssignmentTarget::Element(column, _)
            | AssignmentTarget::Field(column, _) => column,
        }
    }
}

/// Change of one assignment.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// `c = v`.
    Set(Term),
    /// `c = c + v` or `c += v`.
    Add(Term),
    /// `c = c - v` or `c -= v`.
    Subtract(Term),
    /// `c = v + c`.
    Prepend(Term),
}

/// `IF` of an UPDATE or a DELETE.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum IfClause {
    /// No condition.
    #[default]
    None,
    /// `IF EXISTS`.
    Exists,
    /// `IF c = v AND …`, at least one.
    Columns(Vec<Condition>),
}

/// One condition of an IF.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    /// The column or part to check.
    pub target: AssignmentTarget,
    /// The condition on it.
    pub test: Test,
}

/// Condition on a value.
#[derive(Clone, PartialEq, Debug)]
pub enum Test {
    /// `< v`.
    Compare(CompareOp, Term),
    /// `IN …`.
    In(InValues),
    /// `CONTAINS v`.
    Contains(Term),
    /// `CONTAINS KEY v`.
    ContainsKey(Term),
    /// `LIKE v`.
    Like(Term),
}

/// `DELETE`.
#[derive(Clone, PartialEq, Debug)]
pub struct Delete {
    /// The columns or parts of columns. Empty to delete whole rows.
    pub targets: Vec<AssignmentTarget>,
    /// The table.
    pub table: TableName,
    /// `USING`. The parser rejects TTL here.
    pub using: Using,
    /// `WHERE`, at least one.
    pub relations: Vec<Relation>,
    /// `IF`.
    pub condition: IfClause,
}

/// `BEGIN BATCH … APPLY BATCH`.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    /// Its kind.
    pub kind: BatchKind,
    /// `USING`. The parser rejects TTL here.
    pub using: Using,
    /// The statements. Only `Insert`, `Update` and `Delete`. May be empty.
    pub statements: Vec<Statement>,
}

/// The kind of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchKind {
    /// `BEGIN BATCH`: atomic.
    Logged,
    /// `BEGIN UNLOGGED BATCH`.
    Unlogged,
    /// `BEGIN COUNTER BATCH`.
    Counter,
}
