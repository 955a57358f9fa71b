//! Tuples of values for adjacent clustering columns: `(1, ?)`, or a marker for all of them.

use std::borrow::Cow;
use std::sync::Arc;

use cql::ast::{CompareOp, Term};
use engine::{Error, Value};
use schema::{ColumnDef, CqlType, value};

use crate::bind::term::{Bind, Binder, Given};

/// Values of several columns, not bound yet.
#[derive(Clone, Debug)]
pub(crate) enum TupleBind {
    /// A value for each column.
    Parts(Vec<Bind>),
    /// A tuple in one marker, with the names of the columns.
    Whole(Bind, Arc<[String]>),
}

/// Bound on one clustering column, or on several as a tuple.
#[derive(Clone, Debug)]
pub(crate) struct SliceBound {
    /// A comparison by order.
    pub(crate) op: CompareOp,
    pub(crate) value: TupleBind,
    /// True if null is a bound: for a single column that is not written as a tuple.
    pub(crate) may_be_null: bool,
}

impl TupleBind {
    /// Prepares a tuple literal or a marker for these columns.
    ///
    /// # Errors
    /// The literal has another number of elements, or one that is no value of its column.
    pub(crate) fn of(
        columns: &[ColumnDef],
        names: &Arc<[String]>,
        term: &Term,
        binder: &mut Binder,
    ) -> Result<TupleBind, Error> {
        match term {
            Term::Tuple(terms) if terms.len() == columns.len() => {
                let bind = |(column, term): (&ColumnDef, &Term)| binder.bind(&column.name, &column.ty, term);
                columns.iter().zip(terms).map(bind).collect::<Result<_, _>>().map(TupleBind::Parts)
            }
            Term::Tuple(terms) => Err(Error::Invalid(format!(
                "Expected {} elements in value tuple, but got {}: {term}",
                columns.len(),
                terms.len()
            ))),
            marker => {
                let name = format!("({})", names.join(","));
                let bind = binder.bind(&name, &tuple_of(columns), marker)?;
                Ok(TupleBind::Whole(bind, names.clone()))
            }
        }
    }

    /// Returns the number of its values.
    pub(crate) fn width(&self) -> usize {
        match self {
            TupleBind::Parts(binds) => binds.len(),
            TupleBind::Whole(_, columns) => columns.len(),
        }
    }

    /// Returns the size of its values in one execution, in bytes as given by the client.
    pub(crate) fn size(&self, values: &[Value<'_>]) -> u64 {
        match self {
            TupleBind::Parts(binds) => binds.iter().map(|bind| bind.size(values)).sum(),
            TupleBind::Whole(bind, _) => bind.size(values),
        }
    }

    /// Returns the values of one execution, none of which may be null.
    ///
    /// # Errors
    /// A value is unset, or null, which has the text that `null` returns for the column.
    pub(crate) fn required<'a>(
        &'a self,
        values: &[Value<'a>],
        null: impl Fn(&str) -> String,
    ) -> Result<Vec<Cow<'a, [u8]>>, Error> {
        let missing = |column: &str| Error::Invalid(null(column));
        match self {
            TupleBind::Parts(binds) => {
                let mut all = Vec::with_capacity(binds.len());
                for (at, bind) in binds.iter().enumerate() {
                    all.push(match bind.get(values)? {
                        Given::Bytes(bytes) => bytes,
                        Given::Null => return Err(missing(bind.name())),
                        Given::Unset if binds.len() == 1 => return Err(bind.unset()),
                        Given::Unset => {
                            return Err(Error::Invalid(format!(
                                "Invalid unset value for tuple field number {at}"
                            )));
                        }
                    });
                }
                Ok(all)
            }
            TupleBind::Whole(bind, columns) => {
                let whole = match bind.get(values)? {
                    Given::Bytes(bytes) => bytes,
                    Given::Null => return Err(missing(&columns[0])),
                    Given::Unset => {
                        return Err(Error::Invalid(format!("Invalid unset value for tuple {}", bind.name())));
                    }
                };
                let mut fields = value::components(&whole);
                let field = |column: &String| {
                    let field =
                        fields.next().transpose().map_err(|e| Error::Invalid(e.to_string()))?.flatten();
                    field.map(|bytes| Cow::Owned(bytes.to_vec())).ok_or_else(|| missing(column))
                };
                columns.iter().map(field).collect()
            }
        }
    }
}

/// Returns the type of a marker for a tuple of values of these columns.
pub(crate) fn tuple_of(columns: &[ColumnDef]) -> CqlType {
    CqlType::Tuple(columns.iter().map(|column| column.ty.clone()).collect())
}
