//! Terms: what stands where a value is wanted. Also type names, which terms need for casts.

use schema::CqlType;
use uuid::Uuid;

use super::QualifiedName;

/// A value, or what will become one.
#[derive(Clone, PartialEq, Debug)]
pub enum Term {
    /// A constant.
    Literal(Literal),
    /// `?` or `:name`.
    Marker(BindMarker),
    /// `[a, b]`.
    List(Vec<Term>),
    /// `{a, b}`; `{}` too, which may also mean an empty map: the column's type decides.
    Set(Vec<Term>),
    /// `{k: v, …}`, at least one entry.
    Map(Vec<(Term, Term)>),
    /// `(a, b)`; at least one component.
    Tuple(Vec<Term>),
    /// `{field: value, …}`, at least one field.
    Udt(Vec<(String, Term)>),
    /// `f(a, b)`.
    Function(FunctionCall),
    /// `(type) term`: a hint, not a conversion.
    TypeHint(Box<TypeHint>),
    /// `a + b`.
    Arithmetic(Box<Arithmetic<Term>>),
    /// `-term`, where the term is no number literal.
    Negate(Box<Term>),
}

/// A constant, as written.
#[derive(Clone, PartialEq, Debug)]
pub enum Literal {
    /// Decimal digits with an optional `-`.
    Integer(String),
    /// A number with a fraction or an exponent, or `NaN`, `-NaN`, `Infinity`, `-Infinity`; `f64::from_str` reads it.
    Float(String),
    /// A string, with its quotes undone.
    String(String),
    /// `true` or `false`.
    Boolean(bool),
    /// A UUID.
    Uuid(Uuid),
    /// `0x…`.
    Blob(Vec<u8>),
    /// A duration such as `1h30m` or `P1Y2M`.
    Duration(Duration),
    /// `NULL`.
    Null,
}

/// A duration: three parts of one sign, because a month has no fixed number of days, nor a day of hours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Duration {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Nanoseconds.
    pub nanoseconds: i64,
}

/// A place for a value that comes with the request. Every occurrence has its own number, also of the same name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindMarker {
    /// Its number in the statement (in the whole batch, for a batch), in the order of the text, from 0.
    pub index: u16,
    /// The name of a `:name`; `None` for `?`.
    pub name: Option<String>,
}

/// A call of a function with terms.
#[derive(Clone, PartialEq, Debug)]
pub struct FunctionCall {
    /// The function.
    pub name: QualifiedName,
    /// Its arguments.
    pub arguments: Vec<Term>,
}

/// `(type) term`.
#[derive(Clone, PartialEq, Debug)]
pub struct TypeHint {
    /// The type.
    pub ty: TypeName,
    /// The term.
    pub term: Term,
}

/// Two operands and the sign between them.
#[derive(Clone, PartialEq, Debug)]
pub struct Arithmetic<T> {
    /// The sign.
    pub op: ArithmeticOp,
    /// The left operand.
    pub left: T,
    /// The right operand.
    pub right: T,
}

/// The sign of an arithmetic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the variants are the signs")]
pub enum ArithmeticOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// A type as written: user types are only named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TypeName {
    /// A scalar.
    Native(CqlType),
    /// `list<e>`.
    List(Box<TypeName>),
    /// `set<e>`.
    Set(Box<TypeName>),
    /// `map<k, v>`.
    Map(Box<TypeName>, Box<TypeName>),
    /// `tuple<…>`, at least one component.
    Tuple(Vec<TypeName>),
    /// `vector<e, n>`.
    Vector(Box<TypeName>, u32),
    /// `frozen<t>`.
    Frozen(Box<TypeName>),
    /// A user-defined type.
    User(QualifiedName),
    /// `'org.example.SomeType'`.
    Custom(String),
}
