//! SELECT, INSERT, UPDATE, DELETE and BATCH.

use ::schema::ClusteringOrder;

use super::{Arithmetic, QualifiedName, Statement, TableName, Term, TypeName};

/// `SELECT`.
#[derive(Clone, PartialEq, Debug)]
pub struct Select {
    /// `SELECT DISTINCT`.
    pub distinct: bool,
    /// `SELECT JSON`.
    pub json: bool,
    /// What is asked for.
    pub selection: Selection,
    /// The table.
    pub from: TableName,
    /// Joined by AND; empty without a WHERE.
    pub relations: Vec<Relation>,
    /// Columns, or functions of columns.
    pub group_by: Vec<SelectExpr>,
    /// Columns and their order.
    pub order_by: Vec<(String, ClusteringOrder)>,
    /// `PER PARTITION LIMIT`.
    pub per_partition_limit: Option<Term>,
    /// `LIMIT`.
    pub limit: Option<Term>,
    /// `ALLOW FILTERING`.
    pub allow_filtering: bool,
    /// `BYPASS CACHE`.
    pub bypass_cache: bool,
    /// `USING TIMEOUT … AND SERVICE LEVEL …`; the parser lets no timestamp and no TTL in here.
    pub using: Using,
}

/// What a SELECT asks for.
#[derive(Clone, PartialEq, Debug)]
pub enum Selection {
    /// `*`.
    All,
    /// At least one selector.
    Selectors(Vec<Selector>),
}

/// One column of the result.
#[derive(Clone, PartialEq, Debug)]
pub struct Selector {
    /// What is computed.
    pub expr: SelectExpr,
    /// `AS alias`.
    pub alias: Option<String>,
}

/// An expression over a row.
#[derive(Clone, PartialEq, Debug)]
pub enum SelectExpr {
    /// A column.
    Column(String),
    /// A constant, a bind marker, a collection or tuple of such, or a hint about one; columns are never inside.
    Term(Term),
    /// `count(*)` or `count(1)`.
    CountRows,
    /// A function or an aggregate. `token(…)`, `writetime(c)` and `ttl(c)` are here too, under those names.
    Function(SelectCall),
    /// `CAST(e AS t)`.
    Cast(Box<SelectExpr>, TypeName),
    /// `(t) e`: a hint about an expression with columns or functions in it; one about a constant is a `Term`.
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
}

/// A call in a selection.
#[derive(Clone, PartialEq, Debug)]
pub struct SelectCall {
    /// The function.
    pub name: QualifiedName,
    /// Its arguments.
    pub arguments: Vec<SelectExpr>,
}

/// A comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the variants are the signs")]
pub enum CompareOp {
    Eq,
    NotEq,
    Less,
    LessEq,
    Greater,
    GreaterEq,
}

/// What follows IN.
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

impl Using {
    /// Whether there is no USING clause.
    pub fn is_empty(&self) -> bool {
        *self == Using::default()
    }
}

/// `INSERT`.
#[derive(Clone, PartialEq, Debug)]
pub struct Insert {
    /// The table.
    pub table: TableName,
    /// The columns; empty for INSERT JSON.
    pub columns: Vec<String>,
    /// One value a column: the parser checks that they are as many.
    pub values: Vec<Term>,
    /// `INSERT … JSON`.
    pub json: Option<InsertJson>,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// `USING`.
    pub using: Using,
}

/// The JSON of an INSERT.
#[derive(Clone, PartialEq, Debug)]
pub struct InsertJson {
    /// A string or a marker.
    pub value: Term,
    /// `DEFAULT UNSET`: columns that are not named are left alone.
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
    /// What is assigned to.
    pub target: Target,
    /// What is done to it.
    pub change: Change,
}

/// A column, or a part of one.
#[derive(Clone, PartialEq, Debug)]
pub enum Target {
    /// `c`.
    Column(String),
    /// `c[k]`.
    Element(String, Term),
    /// `c.f`.
    Field(String, String),
}

impl Target {
    /// The column.
    pub fn column(&self) -> &str {
        match self {
            Target::Column(column) | Target::Element(column, _) | Target::Field(column, _) => column,
        }
    }
}

/// What an assignment does.
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
    /// Unconditional.
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
    /// What is looked at.
    pub target: Target,
    /// What must hold.
    pub test: Test,
}

/// What must hold of a value.
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
    /// The columns or parts of them; empty for whole rows.
    pub targets: Vec<Target>,
    /// The table.
    pub table: TableName,
    /// `USING`; the parser lets no TTL in here.
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
    /// `USING`; the parser lets no TTL in here.
    pub using: Using,
    /// Only `Insert`, `Update` and `Delete`; may be empty.
    pub statements: Vec<Statement>,
}

/// The kind of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchKind {
    /// `BEGIN BATCH`: all or nothing.
    Logged,
    /// `BEGIN UNLOGGED BATCH`.
    Unlogged,
    /// `BEGIN COUNTER BATCH`.
    Counter,
}
