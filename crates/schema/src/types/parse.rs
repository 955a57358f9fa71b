//! Parser of types in the notation of CQL, for `system_schema` and the engine's own records.

use std::fmt;
use std::sync::Arc;

use super::{CqlType, TYPE_DEPTH_MAX, UdtType, VECTOR_DIMENSION_MAX};

/// Error of [`CqlType::parse`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TypeError {
    /// The text violates the grammar. Holds its first 200 characters.
    Syntax(String),
    /// A name that is neither a CQL type nor a known user type.
    Unknown(String),
    /// Nesting deeper than [`TYPE_DEPTH_MAX`].
    TooDeep,
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypeError::Syntax(text) => write!(f, "Invalid type {text}"),
            TypeError::Unknown(name) => write!(f, "Unknown type {name}"),
            TypeError::TooDeep => write!(f, "Types are nested deeper than {TYPE_DEPTH_MAX} levels"),
        }
    }
}

impl std::error::Error for TypeError {}

/// Lookup of a user type by its name without quotes.
pub(super) type FindUdt<'f> = &'f dyn Fn(&str) -> Option<Arc<UdtType>>;

pub(super) fn parse(text: &str, find_udt: FindUdt<'_>) -> Result<CqlType, TypeError> {
    let mut parser = Parser { rest: text, find_udt };
    match parser.one(0) {
        Ok(ty) if parser.rest.trim().is_empty() => Ok(ty),
        Ok(_) | Err(None) => Err(TypeError::Syntax(text.chars().take(200).collect())),
        Err(Some(error)) => Err(error),
    }
}

struct Parser<'a> {
    rest: &'a str,
    find_udt: FindUdt<'a>,
}

/// Error inside the parser. `None` is a syntax error, which `parse` reports with the whole text.
type Failure = Option<TypeError>;

impl Parser<'_> {
    fn eat(&mut self, sign: char) -> bool {
        let rest = self.rest.trim_start();
        let found = rest.strip_prefix(sign);
        self.rest = found.unwrap_or(rest);
        found.is_some()
    }

    /// Reads a name, and returns true with it if it was in quotes.
    fn name(&mut self) -> Result<(String, bool), Failure> {
        if self.eat('"') {
            let mut name = String::new();
            loop {
                let (part, rest) = self.rest.split_once('"').ok_or(None)?;
                name.push_str(part);
                self.rest = rest;
                match rest.strip_prefix('"') {
                    Some(rest) => self.rest = rest,
                    None => return Ok((name, true)),
                }
                name.push('"');
            }
        }
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        if name.is_empty() { Err(None) } else { Ok((name.to_ascii_lowercase(), false)) }
    }

    fn one(&mut self, depth: usize) -> Result<CqlType, Failure> {
        if depth >= TYPE_DEPTH_MAX {
            return Err(Some(TypeError::TooDeep));
        }
        let (name, quoted) = self.name()?;
        if quoted || !self.eat('<') {
            let scalar = if quoted { None } else { CqlType::scalar(&name) };
            return match scalar.or_else(|| (self.find_udt)(&name).map(CqlType::Udt)) {
                Some(ty) => Ok(ty),
                None => Err(Some(TypeError::Unknown(name))),
            };
        }
        if name == "vector" {
            return self.vector(depth);
        }
        let mut parts = vec![self.one(depth + 1)?];
        while self.eat(',') {
            parts.push(self.one(depth + 1)?);
        }
        if !self.eat('>') {
            return Err(None);
        }
        match (name.as_str(), <[CqlType; 1]>::try_from(parts)) {
            ("tuple", Ok([one])) => Ok(CqlType::Tuple(vec![one])),
            ("tuple", Err(parts)) => Ok(CqlType::Tuple(parts)),
            ("list", Ok([element])) => Ok(CqlType::List(Box::new(element))),
            ("set", Ok([element])) => Ok(CqlType::Set(Box::new(element))),
            ("frozen", Ok([inner])) => Ok(CqlType::Frozen(Box::new(inner))),
            ("map", Err(parts)) => match <[CqlType; 2]>::try_from(parts) {
                Ok([key, value]) => Ok(CqlType::Map(Box::new(key), Box::new(value))),
                Err(_) => Err(None),
            },
            ("list" | "set" | "map" | "frozen", _) => Err(None),
            _ => Err(Some(TypeError::Unknown(name))),
        }
    }

    /// Reads the rest of a vector's type after `vector<`.
    fn vector(&mut self, depth: usize) -> Result<CqlType, Failure> {
        let element = self.one(depth + 1)?;
        if !self.eat(',') {
            return Err(None);
        }
        let (dimension, _) = self.name()?;
        match dimension.parse() {
            Ok(dimension @ 1..=VECTOR_DIMENSION_MAX) if self.eat('>') => {
                Ok(CqlType::Vector(Box::new(element), dimension))
            }
            _ => Err(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<CqlType, TypeError> {
        let find = |name: &str| {
            let known = name == "address" || name == "My \"Type";
            known.then(|| {
                let fields = vec![("street".to_owned(), CqlType::Text)];
                Arc::new(UdtType::new("ks", name, fields))
            })
        };
        CqlType::parse(text, &find)
    }

    #[test]
    fn types_parse_from_their_own_text() {
        let check = |text: &str, written: &str| assert_eq!(parsed(text).unwrap().to_string(), written);
        check("int", "int");
        check(" VarChar ", "text");
        check("list<int>", "list<int>");
        check("map< text ,frozen<set<timeuuid>>>", "map<text, frozen<set<timeuuid>>>");
        check("frozen<tuple<int, text, address>>", "frozen<tuple<int, text, address>>");
        check("tuple<int, tuple<text>>", "frozen<tuple<int, frozen<tuple<text>>>>");
        check("frozen<\"My \"\"Type\">", "frozen<\"My \"\"Type\">");
        check("vector<float,3>", "vector<float, 3>");
        check("list<vector<vector<text, 2> , 8192 >>", "list<vector<vector<text, 2>, 8192>>");
    }

    #[test]
    fn invalid_types_are_rejected() {
        let check = |text: &str, expected: &str| assert_eq!(parsed(text).unwrap_err().to_string(), expected);
        check("integer", "Unknown type integer");
        for vector in [
            "vector<int>",
            "vector<int, 0>",
            "vector<int, 2147483648>",
            "vector<int, 3, 3>",
            "vector<int, int>",
        ] {
            check(vector, &format!("Invalid type {vector}"));
        }
        check("vector<3, 3>", "Unknown type 3");
        check("\"int\"", "Unknown type int");
        check("", "Invalid type ");
        check("list<int", "Invalid type list<int");
        check("list<int>>", "Invalid type list<int>>");
        check("list<int, int>", "Invalid type list<int, int>");
        check("map<int>", "Invalid type map<int>");
        check("\"My", "Invalid type \"My");
        check(&"list<".repeat(100_000), "Types are nested deeper than 16 levels");
    }
}
