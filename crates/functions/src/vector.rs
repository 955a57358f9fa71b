//! Similarity of vectors of floats, from 0 to 1. The sums have the precision of `float`, as in
//! Cassandra.

use crate::FunctionError;

/// A measure of similarity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Similarity {
    /// Half of 1 + the cosine of the angle. Vectors of zeros have none.
    Cosine,
    /// 1 / (1 + the square of the distance).
    Euclidean,
    /// Half of 1 + the dot product.
    DotProduct,
}

impl Similarity {
    /// Returns the measure of the function with this name.
    pub(crate) fn named(name: &str) -> Option<Similarity> {
        Some(match name {
            "similarity_cosine" => Similarity::Cosine,
            "similarity_euclidean" => Similarity::Euclidean,
            "similarity_dot_product" => Similarity::DotProduct,
            _ => return None,
        })
    }

    /// Returns the similarity of two serialized vectors. It is NaN for the cosine of a vector of
    /// zeros. `None` if their lengths differ.
    pub fn of(self, left: &[u8], right: &[u8]) -> Option<f32> {
        let ((left, rest), (right, others)) = (left.as_chunks::<4>(), right.as_chunks::<4>());
        if left.len() != right.len() || !rest.is_empty() || !others.is_empty() {
            return None;
        }
        let pairs = || {
            let left = left.iter().map(|bytes| f32::from_be_bytes(*bytes));
            left.zip(right.iter().map(|bytes| f32::from_be_bytes(*bytes)))
        };
        let sum = |of: fn(f32, f32) -> f32| pairs().fold(0_f32, |sum, (a, b)| sum + of(a, b));
        Some(match self {
            Similarity::Cosine => {
                let norms = f64::from(sum(|a, _| a * a)) * f64::from(sum(|_, b| b * b));
                let cosine = (f64::from(sum(|a, b| a * b)) / norms.sqrt()) as f32;
                (1.0 + cosine) / 2.0
            }
            Similarity::Euclidean => 1.0 / (1.0 + sum(|a, b| (a - b) * (a - b))),
            Similarity::DotProduct => (1.0 + sum(|a, b| a * b)) / 2.0,
        })
    }
}

/// Returns the similarity of two serialized vectors. `name` is that of the function. Vectors of
/// different lengths give null.
///
/// # Errors
/// Fails for the cosine of a vector of zeros, which has no direction.
pub(crate) fn similarity(
    similarity: Similarity,
    name: &str,
    left: &[u8],
    right: &[u8],
) -> Result<Option<Vec<u8>>, FunctionError> {
    let is_zero = |vector: &[u8]| vector.as_chunks::<4>().0.iter().all(|x| f32::from_be_bytes(*x) == 0.0);
    let found = similarity.of(left, right);
    if found.is_some() && similarity == Similarity::Cosine && (is_zero(left) || is_zero(right)) {
        return Err(FunctionError::invalid(format!(
            "Function system.{name} doesn't support all-zero vectors."
        )));
    }
    Ok(found.map(|found| found.to_be_bytes().to_vec()))
}
