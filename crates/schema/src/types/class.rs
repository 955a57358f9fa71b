//! Names of types as Cassandra's classes. The protocol has no id for vectors: they are described by
//! the name of their class. CQL accepts such a name, in single quotes, as a type.
//!
//! ```text
//! scalars             Int32Type
//! list, set, tuple    ListType(Int32Type)
//! map                 MapType(UTF8Type,Int32Type)
//! user type           UserType(keyspace,6e616d65,6669656c64:Int32Type)      names in hexadecimal
//! vector              VectorType(FloatType , 3)
//! frozen<>            FrozenType(ListType(Int32Type)): the outermost only, and none inside tuples
//! ```
//!
//! Written names have the package in front. Read ones may omit it.

use std::fmt::{self, Write};
use std::sync::Arc;

use super::{CqlType, TYPE_DEPTH_MAX, UdtType, VECTOR_DIMENSION_MAX};

const PACKAGE: &str = "org.apache.cassandra.db.marshal.";

const SCALARS: [(&str, CqlType); 20] = [
    ("AsciiType", CqlType::Ascii),
    ("BooleanType", CqlType::Boolean),
    ("ByteType", CqlType::TinyInt),
    ("BytesType", CqlType::Blob),
    ("CounterColumnType", CqlType::Counter),
    ("DecimalType", CqlType::Decimal),
    ("DoubleType", CqlType::Double),
    ("DurationType", CqlType::Duration),
    ("FloatType", CqlType::Float),
    ("InetAddressType", CqlType::Inet),
    ("Int32Type", CqlType::Int),
    ("IntegerType", CqlType::Varint),
    ("LongType", CqlType::BigInt),
    ("ShortType", CqlType::SmallInt),
    ("SimpleDateType", CqlType::Date),
    ("TimeType", CqlType::Time),
    ("TimeUUIDType", CqlType::TimeUuid),
    ("TimestampType", CqlType::Timestamp),
    ("UTF8Type", CqlType::Text),
    ("UUIDType", CqlType::Uuid),
];

/// Error of [`CqlType::from_class`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClassError {
    /// The text violates the grammar. Holds its first 200 characters.
    Syntax(String),
    /// A class that is no CQL type. Holds at most 200 characters of its name.
    Unknown(String),
    /// Nesting deeper than [`TYPE_DEPTH_MAX`].
    TooDeep,
}

impl fmt::Display for ClassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClassError::Syntax(text) => write!(f, "Syntax error parsing '{text}'"),
            ClassError::Unknown(name) => write!(f, "Unable to find abstract-type class '{name}'"),
            ClassError::TooDeep => write!(f, "Types are nested deeper than {TYPE_DEPTH_MAX} levels"),
        }
    }
}

impl std::error::Error for ClassError {}

impl CqlType {
    /// Returns the type as Cassandra's class.
    pub fn class_name(&self) -> String {
        let mut name = String::new();
        write(self, false, &mut name).expect("a string takes all");
        name
    }

    /// Returns the length of [`CqlType::class_name`], or a number above `limit` if it is longer.
    pub(crate) fn class_bytes(&self, limit: usize) -> usize {
        let mut counted = Counted { bytes: 0, limit };
        // It fails above the limit only.
        _ = write(self, false, &mut counted);
        counted.bytes
    }

    /// Parses the name of a class, with or without its package. User types have the fields of the
    /// text.
    ///
    /// # Errors
    /// The text is malformed, nested too deeply, or names a class that is no CQL type.
    pub fn from_class(text: &str) -> Result<CqlType, ClassError> {
        let mut parser = Parser { rest: text };
        match parser.one(0) {
            Ok(ty) if parser.rest.trim().is_empty() => Ok(ty),
            Ok(_) | Err(None) => Err(ClassError::Syntax(shortened(text))),
            Err(Some(error)) => Err(error),
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

/// Number of bytes written, up to a limit.
struct Counted {
    bytes: usize,
    limit: usize,
}

impl Write for Counted {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > self.limit { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Appends the name of a class. `is_inside` is true inside a frozen type, which shows no other.
fn write(ty: &CqlType, is_inside: bool, out: &mut impl Write) -> fmt::Result {
    let class = match ty {
        CqlType::Frozen(inner) => {
            let is_shown =
                !is_inside && (inner.thawed().is_collection() || matches!(inner.thawed(), CqlType::Udt(_)));
            if !is_shown {
                return write(inner, is_inside, out);
            }
            write!(out, "{PACKAGE}FrozenType(")?;
            write(inner, true, out)?;
            return out.write_char(')');
        }
        CqlType::List(_) => "ListType",
        CqlType::Set(_) => "SetType",
        CqlType::Map(..) => "MapType",
        CqlType::Tuple(_) => "TupleType",
        CqlType::Udt(_) => "UserType",
        CqlType::Vector(..) => "VectorType",
        scalar => SCALARS.iter().find(|(_, ty)| ty == scalar).expect("the table has all scalars").0,
    };
    write!(out, "{PACKAGE}{class}")?;
    match ty {
        CqlType::Vector(element, dimension) => {
            out.write_char('(')?;
            write(element, is_inside, out)?;
            write!(out, " , {dimension})")
        }
        CqlType::Udt(udt) => {
            write!(out, "({},", udt.keyspace)?;
            write_hex(&udt.name, out)?;
            for (name, ty) in &udt.fields {
                out.write_char(',')?;
                write_hex(name, out)?;
                out.write_char(':')?;
                write(ty, is_inside, out)?;
            }
            out.write_char(')')
        }
        nested if !nested.inner().is_empty() => {
            for (at, inner) in nested.inner().into_iter().enumerate() {
                out.write_char(if at == 0 { '(' } else { ',' })?;
                write(inner, is_inside || matches!(nested, CqlType::Tuple(_)), out)?;
            }
            out.write_char(')')
        }
        _ => Ok(()),
    }
}

fn write_hex(name: &str, out: &mut impl Write) -> fmt::Result {
    name.bytes().try_for_each(|byte| write!(out, "{byte:02x}"))
}

struct Parser<'a> {
    rest: &'a str,
}

/// Error inside the parser. `None` is a syntax error, which is reported with the whole text.
type Failure = Option<ClassError>;

impl<'a> Parser<'a> {
    fn eat(&mut self, sign: char) -> bool {
        let rest = self.rest.trim_start();
        let found = rest.strip_prefix(sign);
        self.rest = found.unwrap_or(rest);
        found.is_some()
    }

    fn expect(&mut self, sign: char) -> Result<(), Failure> {
        if self.eat(sign) { Ok(()) } else { Err(None) }
    }

    fn word(&mut self) -> Result<&'a str, Failure> {
        let rest = self.rest.trim_start();
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-+._&".contains(c);
        let (word, rest) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
        self.rest = rest;
        if word.is_empty() { Err(None) } else { Ok(word) }
    }

    /// Reads a name in hexadecimal.
    fn name(&mut self) -> Result<String, Failure> {
        let digits = self.word()?.as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some((digit(*high)? * 16 + digit(*low)?) as u8),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or(None)
    }

    fn one(&mut self, depth: usize) -> Result<CqlType, Failure> {
        if depth >= TYPE_DEPTH_MAX {
            return Err(Some(ClassError::TooDeep));
        }
        let word = self.word()?;
        let unknown = || {
            let package = if word.contains('.') { "" } else { PACKAGE };
            Err(Some(ClassError::Unknown(shortened(&format!("{package}{word}")))))
        };
        let class = match word.strip_prefix(PACKAGE) {
            Some(class) => class,
            None if word.contains('.') => return unknown(),
            None => word,
        };
        if let Some((_, scalar)) = SCALARS.iter().find(|(name, _)| *name == class) {
            return Ok(scalar.clone());
        }
        match class {
            "UserType" => return self.user_type(depth),
            "VectorType" => return self.vector(depth),
            "TupleType" | "ListType" | "SetType" | "MapType" | "FrozenType" => {}
            _ => return unknown(),
        }
        let parts = self.parts(depth)?;
        match (class, <[CqlType; 1]>::try_from(parts)) {
            ("TupleType", Ok([one])) => Ok(CqlType::Tuple(vec![one])),
            ("TupleType", Err(parts)) => Ok(CqlType::Tuple(parts)),
            ("ListType", Ok([element])) => Ok(CqlType::List(Box::new(element))),
            ("SetType", Ok([element])) => Ok(CqlType::Set(Box::new(element))),
            ("FrozenType", Ok([inner])) => Ok(CqlType::Frozen(Box::new(inner))),
            ("MapType", Err(parts)) => match <[CqlType; 2]>::try_from(parts) {
                Ok([key, value]) => Ok(CqlType::Map(Box::new(key), Box::new(value))),
                Err(_) => Err(None),
            },
            _ => Err(None),
        }
    }

    fn parts(&mut self, depth: usize) -> Result<Vec<CqlType>, Failure> {
        self.expect('(')?;
        let mut parts = vec![self.one(depth + 1)?];
        while self.eat(',') {
            parts.push(self.one(depth + 1)?);
        }
        self.expect(')')?;
        Ok(parts)
    }

    fn vector(&mut self, depth: usize) -> Result<CqlType, Failure> {
        self.expect('(')?;
        let element = self.one(depth + 1)?;
        self.expect(',')?;
        match self.word()?.parse() {
            Ok(dimension @ 1..=VECTOR_DIMENSION_MAX) if self.eat(')') => {
                Ok(CqlType::Vector(Box::new(element), dimension))
            }
            _ => Err(None),
        }
    }

    fn user_type(&mut self, depth: usize) -> Result<CqlType, Failure> {
        self.expect('(')?;
        let keyspace = self.word()?;
        self.expect(',')?;
        let name = self.name()?;
        let mut fields = Vec::new();
        while self.eat(',') {
            let field = self.name()?;
            self.expect(':')?;
            fields.push((field, self.one(depth + 1)?));
        }
        self.expect(')')?;
        Ok(CqlType::Udt(Arc::new(UdtType::new(keyspace, name, fields))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(text: &str) -> CqlType {
        let udt = || Arc::new(UdtType::new("ks", "u", vec![("f".to_owned(), CqlType::Int)]));
        CqlType::parse(text, &|name| (name == "u").then(udt)).unwrap()
    }

    #[test]
    fn classes_are_written_and_read() {
        let check = |text: &str, class: &str| {
            let ty = ty(text);
            let short = ty.class_name().replace(PACKAGE, "");
            assert_eq!(short, class);
            for class in [&ty.class_name(), &short] {
                assert_eq!(CqlType::from_class(class).unwrap().class_name(), ty.class_name());
            }
            assert_eq!(ty.class_bytes(usize::MAX), ty.class_name().len());
        };
        check("int", "Int32Type");
        check("vector<float, 3>", "VectorType(FloatType , 3)");
        check("list<text>", "ListType(UTF8Type)");
        check(
            "frozen<map<text, frozen<list<date>>>>",
            "FrozenType(MapType(UTF8Type,ListType(SimpleDateType)))",
        );
        check("vector<frozen<set<int>>, 2>", "VectorType(FrozenType(SetType(Int32Type)) , 2)");
        check("frozen<list<vector<int, 2>>>", "FrozenType(ListType(VectorType(Int32Type , 2)))");
        check("tuple<int, frozen<list<int>>>", "TupleType(Int32Type,ListType(Int32Type))");
        check("vector<frozen<u>, 1>", "VectorType(FrozenType(UserType(ks,75,66:Int32Type)) , 1)");
    }

    #[test]
    fn invalid_classes_are_rejected() {
        let check = |text: &str, expected: &str| {
            assert_eq!(CqlType::from_class(text).unwrap_err().to_string(), expected)
        };
        check("Foo", "Unable to find abstract-type class 'org.apache.cassandra.db.marshal.Foo'");
        check("com.example.Foo(Int32Type)", "Unable to find abstract-type class 'com.example.Foo'");
        for text in [
            "",
            "Int32Type)",
            "ListType",
            "ListType(Int32Type",
            "ListType(Int32Type,Int32Type)",
            "MapType(Int32Type)",
            "VectorType(Int32Type)",
            "VectorType(Int32Type, 0)",
            "UserType(ks,7)",
            "UserType(ks,75,66)",
        ] {
            check(text, &format!("Syntax error parsing '{text}'"));
        }
        check(&"ListType(".repeat(100_000), "Types are nested deeper than 16 levels");
    }

    #[test]
    fn length_of_a_class_is_counted_up_to_a_limit() {
        let tuple = CqlType::Tuple(vec![CqlType::Int; 4000]);
        assert!((1_000..2_000).contains(&tuple.class_bytes(1_000)));
    }
}
