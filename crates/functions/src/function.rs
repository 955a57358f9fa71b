//! A resolved scalar function.

use schema::CqlType;

use crate::{Argument, Context, FunctionError};

/// A scalar function with the types of one call.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// Cassandra's name without keyspace, which is part of the name of a selected column.
    pub name: String,
    /// Types of the arguments. Literals and markers get these types.
    pub arguments: Vec<CqlType>,
    /// Type of the result.
    pub result: CqlType,
}

impl Function {
    /// Resolves a call as Cassandra does: by name, by exact and weak matches of the arguments, and
    /// by the type that the caller wants. `name` is in lower case, or as written in quotes.
    pub fn resolve(
        name: &str,
        arguments: &[&dyn Argument],
        wanted: Option<&CqlType>,
    ) -> Result<Function, FunctionError> {
        let _ = (arguments, wanted);
        Err(FunctionError::Unknown(name.to_owned()))
    }

    /// Returns `token` of a partition key of these types.
    pub fn token(partition_key: &[CqlType], arguments: &[&dyn Argument]) -> Result<Function, FunctionError> {
        let _ = (partition_key, arguments);
        Err(FunctionError::Unknown("token".to_owned()))
    }

    /// Returns true if equal arguments give equal results. False for `now`, `uuid` and the like.
    pub fn is_pure(&self) -> bool {
        true
    }

    /// Calls the function with one value per argument.
    pub fn call(
        &self,
        arguments: &[Option<&[u8]>],
        context: &dyn Context,
    ) -> Result<Option<Vec<u8>>, FunctionError> {
        let _ = (arguments, context);
        Ok(None)
    }
}
