//! Terms, and type names, which casts need. A term stands for a value.

use schema::CqlType;
pub use schema::value::Duration;
use uuid::Uuid;

use super::QualifiedName;

/// A value, or an expression that evaluates to one.
#[derive(Clone, PartialEq, Debug)]
pub enum Term {
    /// A constant.
    Literal(Literal),
    /// `?` or `:name`.
    Marker(BindMarker),
    /// `[a, b]`.
    List(Vec<Term>),
    /// `{a, b}` or `{}`. The column type decides if `{}` is an empty set or an empty map.
    Set(Vec<Term>),
    /// `{k: v, …}`, at least one entry.
    Map(Vec<(Term, Term)>),
    /// `(a, b)`, at least one component.
    Tuple(Vec<Term>),
    /// `{field: value, …}`, at least one field.
    Udt(Vec<(String, Term)>),
    /// `f(a, b)`.
    Function(FunctionCall),
    /// `(type) term`: a hint, not a conversion.
    TypeHint(Box<TypeHint>),
    /// `a + b`.
    Arithmetic(Box<Arithmetic<Term>>),
    /// `-term`, unless the term is a number literal.
    Negate(Box<Term>),
}

/// A constant, as in the text.
#[derive(Clone, PartialEq, Debug)]
pub enum Literal {
    /// Decimal digits with an optional `-`.
    Integer(String),
    /// A number with a fraction or an exponent, or `NaN`, `-NaN`, `Infinity`, `-Infinity`.
    /// `f64::from_str` accepts all of them.
    Float(String),
    /// An unescaped string.
    String(String),
    /// `true` or `false`.
    Boolean(bool),
    /// A UUID.
    Uuid(Uuid),
    /// `0x…`.
    Blob(Vec<u8>),
    /// A duration such as `1h30m` or `P1Y2M`, with its text.
    Duration(Duration, String),
    /// `NULL`.
    Null,
}

impl Term {
    /// Returns true for a bind marker.
    #[must_use]
    pub fn is_marker(&self) -> bool {
        matches!(self, Term::Marker(_))
    }
}

/// Placeholder of a value that the request carries. Every occurrence has its own index, even if
/// names repeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindMarker {
    /// Index in the statement, or in the whole batch, in the order of the text, from 0.
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

/// Two operands and their operator.
#[derive(Clone, PartialEq, Debug)]
pub struct Arithmetic<T> {
    /// The operator.
    pub op: ArithmeticOp,
    /// The left operand.
    pub left: T,
    /// The right operand.
    pub right: T,
}

/// Arithmetic operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the variants are the operators")]
pub enum ArithmeticOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// A type as in the text. User types are names only.
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

impl TypeName {
    /// Returns the greatest dimension of the vectors in it, or 0. The parser bounds its depth.
    pub fn dimension_max(&self) -> u32 {
        let of_all = |types: &[TypeName]| types.iter().map(TypeName::dimension_max).max().unwrap_or(0);
        match self {
            TypeName::Native(_) | TypeName::User(_) | TypeName::Custom(_) => 0,
            TypeName::List(of) | TypeName::Set(of) | TypeName::Frozen(of) => of.dimension_max(),
            TypeName::Map(key, value) => key.dimension_max().max(value.dimension_max()),
            TypeName::Tuple(types) => of_all(types),
            TypeName::Vector(of, dimension) => of.dimension_max().max(*dimension),
        }
    }
}
