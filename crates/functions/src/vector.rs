//! Similarity of vectors of floats, from 0 to 1. The sums have the precision of `float`, as in
//! Cassandra.

use crate::FunctionError;

/// A measure of similarity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Similarity {
    Cosine,
    Euclidean,
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
    let ((left, rest), (right, others)) = (left.as_chunks::<4>(), right.as_chunks::<4>());
    if left.len() != right.len() || !rest.is_empty() || !others.is_empty() {
        return Ok(None);
    }
    let pairs = || {
        let left = left.iter().map(|bytes| f32::from_be_bytes(*bytes));
        left.zip(right.iter().map(|bytes| f32::from_be_bytes(*bytes)))
    };
    let sum = |of: fn(f32, f32) -> f32| pairs().fold(0_f32, |sum, (a, b)| sum + of(a, b));
    let result = match similarity {
        Similarity::Cosine => {
            if pairs().all(|(a, _)| a == 0.0) || pairs().all(|(_, b)| b == 0.0) {
                return Err(FunctionError::invalid(format!(
                    "Function system.{name} doesn't support all-zero vectors."
                )));
            }
            let norms = f64::from(sum(|a, _| a * a)) * f64::from(sum(|_, b| b * b));
            let cosine = (f64::from(sum(|a, b| a * b)) / norms.sqrt()) as f32;
            (1.0 + cosine) / 2.0
        }
        Similarity::Euclidean => 1.0 / (1.0 + sum(|a, b| (a - b) * (a - b))),
        Similarity::DotProduct => (1.0 + sum(|a, b| a * b)) / 2.0,
    };
    Ok(Some(result.to_be_bytes().to_vec()))
}
