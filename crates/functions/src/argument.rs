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

impl Fit {
    /// Returns the assignability of a value of type `value` to `receiver`, for columns, nested
    /// calls and type hints. The outermost `frozen<>` makes no difference to equal types.
    pub fn of(value: &CqlType, receiver: &CqlType) -> Fit {
        if is_same(value, receiver) {
            Fit::Exact
        } else if is_readable(value, receiver) {
            Fit::Weak
        } else {
            Fit::No
        }
    }
}

/// An argument of a call before its execution: a column, a literal, a marker or a nested call.
pub trait Argument {
    /// Returns the type of a column, of a nested call or of a cast `(type) …`. Returns the
    /// preferred type of a literal: the smallest of `int`, `bigint` and `varint` for digits,
    /// `double` or, if it would lose digits, `decimal` for a fraction, `ascii` or `text` for text.
    /// `None`: a marker, `null`, or an empty collection.
    fn ty(&self) -> Option<CqlType>;

    /// Returns the assignability to a type. A marker without a type fits all types weakly.
    fn fit(&self, ty: &CqlType) -> Fit;

    /// Returns the number of elements of a list literal such as `[1, 2]`, which can also be a
    /// vector. `None`: another argument.
    fn list_length(&self) -> Option<usize> {
        None
    }

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

    /// Returns a random UUID, of version 4, another one at each call.
    fn random_uuid(&self) -> [u8; 16];
}

/// Returns true if the types are equal without `frozen<>`.
pub(crate) fn is_same(a: &CqlType, b: &CqlType) -> bool {
    use CqlType as T;
    match (a.thawed(), b.thawed()) {
        (T::List(a), T::List(b)) | (T::Set(a), T::Set(b)) => is_same(a, b),
        (T::Map(ak, av), T::Map(bk, bv)) => is_same(ak, bk) && is_same(av, bv),
        (T::Vector(a, n), T::Vector(b, m)) => n == m && is_same(a, b),
        (T::Tuple(a), T::Tuple(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (T::Udt(a), T::Udt(b)) => (&a.keyspace, &a.name) == (&b.keyspace, &b.name),
        (a, b) => a == b,
    }
}

/// Returns true if each value of type `value` is also one of `receiver`, as in Cassandra's
/// `isValueCompatibleWith`. Elements of a collection that is not frozen must also have one order
/// in both, as members of sets and keys of maps always must.
fn is_readable(value: &CqlType, receiver: &CqlType) -> bool {
    use CqlType as T;
    if is_same(value, receiver) {
        return true;
    }
    match (receiver.thawed(), value.thawed()) {
        (T::Blob, _) => true,
        (T::Text, T::Ascii) | (T::Uuid, T::TimeUuid) | (T::Date, T::Int) => true,
        (T::BigInt, T::Timestamp) | (T::Timestamp, T::BigInt) | (T::Time, T::BigInt) => true,
        (T::Varint, T::Int | T::BigInt | T::Timestamp) => true,
        (T::Set(to), T::Set(from)) => is_ordered_alike(from, to),
        (T::List(to), T::List(from)) if receiver.is_multi_cell() => is_ordered_alike(from, to),
        (T::List(to), T::List(from)) => is_readable(from, to),
        (T::Map(to_key, to), T::Map(from_key, from)) => {
            let is_compatible = if receiver.is_multi_cell() { is_ordered_alike } else { is_readable };
            is_ordered_alike(from_key, to_key) && is_compatible(from, to)
        }
        (T::Tuple(to), T::Tuple(from)) => {
            to.len() >= from.len() && from.iter().zip(to).all(|(from, to)| is_readable(from, to))
        }
        _ => false,
    }
}

/// Returns true if each value of type `value` is also one of `receiver`, in the same order, as in
/// Cassandra's `isCompatibleWith`.
fn is_ordered_alike(value: &CqlType, receiver: &CqlType) -> bool {
    use CqlType as T;
    let is_wider =
        matches!((receiver.thawed(), value.thawed()), (T::Text, T::Ascii) | (T::Blob, T::Ascii | T::Text));
    is_wider || is_same(value, receiver)
}
