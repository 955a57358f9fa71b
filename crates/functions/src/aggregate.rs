//! Aggregates: `count`, `min`, `max`, `sum` and `avg`.

use schema::CqlType;

use crate::{Argument, FunctionError};

/// An aggregate with the types of one call.
#[derive(Clone, PartialEq, Debug)]
pub struct Aggregate {
    /// Cassandra's name without keyspace. `countRows` for `count(*)` and `count(1)`.
    pub name: String,
    /// Types of the arguments.
    pub arguments: Vec<CqlType>,
    /// Type of the result.
    pub result: CqlType,
}

impl Aggregate {
    /// Resolves a call. `None`: no aggregate has this name. `count(*)` and `count(1)` are `count`
    /// without arguments.
    pub fn resolve(name: &str, arguments: &[&dyn Argument]) -> Result<Option<Aggregate>, FunctionError> {
        let _ = (name, arguments);
        Ok(None)
    }

    /// Returns the state before the first row.
    pub fn start(&self) -> State {
        State {}
    }
}

/// State of an aggregate over some rows.
#[derive(Debug)]
pub struct State {}

impl State {
    /// Adds a row: one value per argument.
    pub fn add(&mut self, arguments: &[Option<&[u8]>]) {
        let _ = arguments;
    }

    /// Adds the rows of another state of the same aggregate.
    pub fn merge(&mut self, other: State) {
        let _ = other;
    }

    /// Returns the result. `None` is null.
    pub fn finish(self) -> Result<Option<Vec<u8>>, FunctionError> {
        Ok(None)
    }
}
