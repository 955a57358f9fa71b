//! A resolved scalar function.

use schema::CqlType;

use crate::math::Math;
use crate::operator::Operator;
use crate::vector::Similarity;

/// A scalar function with the types of one call.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// Cassandra's name without keyspace, which is part of the name of a selected column.
    pub name: String,
    /// Types of the arguments. Literals and markers get these types.
    pub arguments: Vec<CqlType>,
    /// Type of the result.
    pub result: CqlType,
    pub(crate) body: Body,
}

/// Implementation of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    Arithmetic(Operator),
    Concatenate,
    /// Date or timestamp, and a duration to be added or subtracted.
    Shift(Operator),
    Negate,
    Math(Math),
    /// The value itself.
    Same,
    CastNumber,
    CastText,
    FromBlob,
    Now,
    Uuid,
    MinTimeuuid,
    MaxTimeuuid,
    /// Conversion of times to the type of the result.
    Convert,
    Floor,
    MapKeys,
    MapValues,
    CollectionCount,
    /// Aggregate of this name over the elements.
    CollectionAggregate(&'static str),
    MaskNull,
    MaskDefault,
    MaskReplace,
    /// True: the inner part is masked. False: the outer part.
    MaskPart(bool),
    MaskHash,
    Token,
    ToJson,
    FromJson,
    Similarity(Similarity),
}

impl Function {
    pub(crate) fn new(name: &str, arguments: Vec<CqlType>, result: CqlType, body: Body) -> Function {
        Function { name: name.to_owned(), arguments, result, body }
    }

    /// Returns true if equal arguments give equal results. False for `now`, `uuid` and the like.
    pub fn is_pure(&self) -> bool {
        !matches!(self.body, Body::Now | Body::Uuid)
    }
}
