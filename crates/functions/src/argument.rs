//! Inputs of the caller: arguments at resolution, clock and randomness at execution.

use schema::CqlType;

/// Assignability of an argument to a type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fit {
    /// The argument has exactly this type.
    Exact,
    /// The argument can be converted to the type without a cast: a literal, a marker, a value of a
    /// compatible type.
    Weak,
    /// The argument is not assignable.
    No,
}

/// An argument of a call before its execution: a column, a literal, a marker or a nested call.
pub trait Argument {
    /// Returns the type. `None`: a marker or a literal without a type of its own.
    fn ty(&self) -> Option<CqlType>;

    /// Returns the assignability to a type. A marker without a type fits all types weakly.
    fn fit(&self, ty: &CqlType) -> Fit;

    /// Returns the text for errors: of a column its name, of a literal its CQL text, of a marker
    /// `?` or `:name`.
    fn text(&self) -> String;
}

/// Clock and randomness of one execution.
pub trait Context {
    /// Returns the time in microseconds since 1970. All calls of one execution get the same value.
    fn now_micros(&self) -> i64;

    /// Returns 64 random bits, other ones at each call.
    fn random(&self) -> u64;
}
