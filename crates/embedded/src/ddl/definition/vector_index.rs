//! Types and options of indexes on vectors.

use engine::Error;
use functions::Similarity;
use schema::{CqlType, IndexDef};

use crate::index::vectors::{SIMILARITY_OPTION, is_of_floats, similarity_named};

/// Options of indexes on vectors.
pub(super) const OPTIONS: [&str; 4] =
    ["construction_beam_width", "maximum_node_connections", "optimize_for", SIMILARITY_OPTION];

fn invalid<T>(text: String) -> Result<T, Error> {
    Err(Error::Invalid(text))
}

/// Checks the options for vectors of a storage-attached index on a column of this type, and the
/// type if it is one of vectors. The texts are Cassandra's.
///
/// # Errors
/// The type has no such options, or a value is not one of its option.
pub(super) fn check(ty: &CqlType, index: &IndexDef) -> Result<(), Error> {
    let CqlType::Vector(_, dimension) = ty.thawed() else {
        return match OPTIONS.iter().any(|name| index.options.contains_key(*name)) {
            true => invalid(format!("CQL type {ty} cannot have vector options")),
            false => Ok(()),
        };
    };
    for (option, name) in [
        ("maximum_node_connections", "Maximum node connections"),
        ("construction_beam_width", "Construction beam width"),
    ] {
        if index.options.contains_key(option) {
            return invalid(format!(
                "{name} cannot be set without enabling SAI_VECTOR_ALLOW_CUSTOM_PARAMETERS"
            ));
        }
    }
    let mut similarity = Similarity::Cosine;
    if let Some(name) = index.options.get(SIMILARITY_OPTION) {
        let name = name.to_uppercase();
        similarity = similarity_named(&name).ok_or_else(|| {
            Error::Invalid(format!(
                "Similarity function {name} was not recognized for index null. Valid values are: EUCLIDEAN, \
                 DOT_PRODUCT, COSINE"
            ))
        })?;
    }
    if let Some(name) = index.options.get("optimize_for") {
        let name = name.to_uppercase();
        if !matches!(&*name, "LATENCY" | "RECALL") {
            return invalid(format!(
                "optimize_for '{name}' was not recognized for index null. Valid values are: LATENCY, RECALL"
            ));
        }
    }
    if !is_of_floats(ty) {
        return invalid("SAI ANN indexes are only allowed on vector columns with float elements".into());
    }
    if *dimension == 1 && similarity == Similarity::Cosine {
        return invalid("Cosine similarity is not supported for single-dimension vectors".into());
    }
    Ok(())
}
