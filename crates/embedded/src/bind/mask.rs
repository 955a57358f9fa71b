//! Masks of columns, for roles without UNMASK: a masked column becomes a call of its masking
//! function, in every expression that reads its value.
//!
//! As in Cassandra, functions, aggregates and elements see the masked value. Write times and times
//! to live, the order of rows, and groups are those of the stored values. WHERE and IF would reveal
//! stored values, so that they need SELECT_MASKED or UNMASK. Cassandra checks WHERE alone.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{About, Error, Viewer};
use functions::{Argument, Fit, Function};
use schema::{ColumnDef, ColumnMask, CqlType, TableDef};

use crate::bind::expression::{Expr, Leaf};
use crate::bind::show::{Inside, Show};
use crate::bind::term::Bind;

/// Masks of a table, ready to be called.
pub(crate) struct Masks<'d> {
    def: &'d TableDef,
    /// Function of each masked column with its arguments after the value, by the column's number.
    calls: HashMap<u32, (Arc<Function>, Vec<Expr>)>,
}

impl<'d> Masks<'d> {
    /// Returns the masks of a table. `None`: it has none.
    ///
    /// # Errors
    /// Returns an error if a stored mask is damaged. Its column must not be shown.
    pub(crate) fn of(def: &'d TableDef) -> Result<Option<Masks<'d>>, Error> {
        if def.masks.is_empty() {
            return Ok(None);
        }
        let masked = def.columns.iter().filter_map(|column| Some((column, def.masks.get(&column.id)?)));
        let calls = masked.map(|(column, mask)| Ok((column.id, call(column, mask)?)));
        Ok(Some(Masks { def, calls: calls.collect::<Result<_, Error>>()? }))
    }

    /// Replaces masked columns in an expression. Returns true if it read one.
    pub(crate) fn apply(&self, expr: &mut Expr) -> bool {
        let mut is_masked = false;
        expr.replace_leaves(&mut |expr| {
            if let Expr::Leaf(Leaf::Show(show)) = expr
                && let Some(masked) = self.masked(show)
            {
                is_masked = true;
                *expr = masked;
            }
        });
        is_masked
    }

    /// Returns the expression of a masked column. `None`: it shows no masked value.
    fn masked(&self, show: &Show) -> Option<Expr> {
        let keys = self.def.partition_key().count();
        match show {
            Show::Key(at) => self.column(*at),
            Show::Clustering(at) => self.column(keys + at),
            Show::Elements(at) => self.column(*at),
            Show::Static(id) | Show::Regular(id) => self.call(*id, || show.clone()),
            Show::Inside(inside) => {
                let Inside { column, steps } = &**inside;
                let whole = self.column(*column)?;
                Some(steps.iter().fold(whole, |whole, step| Expr::Step(Box::new(whole), step.clone())))
            }
            Show::Token => self.token(keys),
            Show::WriteTime(..) | Show::Ttl(..) => None,
        }
    }

    /// Returns the token of the partition key as it is shown, if a part of it is masked.
    fn token(&self, keys: usize) -> Option<Expr> {
        if (0..keys).all(|at| self.column(at).is_none()) {
            return None;
        }
        let part = |at: usize| self.column(at).unwrap_or(Expr::Leaf(Leaf::Show(Show::Key(at))));
        let types: Vec<Typed> = self.def.partition_key().map(|column| Typed(column.ty.clone())).collect();
        let arguments: Vec<&dyn Argument> = types.iter().map(|ty| ty as &dyn Argument).collect();
        let key: Vec<CqlType> = types.iter().map(|ty| ty.0.clone()).collect();
        let function = Function::token(&key, &arguments).expect("columns have their own types");
        Some(Expr::Call(Arc::new(function), (0..keys).map(part).collect()))
    }

    /// Returns the call that shows a column, by its index in the table's `columns`.
    fn column(&self, at: usize) -> Option<Expr> {
        let column = &self.def.columns[at];
        self.call(column.id, || Show::column(at, column))
    }

    fn call(&self, id: u32, show: impl FnOnce() -> Show) -> Option<Expr> {
        let (function, rest) = self.calls.get(&id)?;
        let value = Expr::Leaf(Leaf::Show(show()));
        Some(Expr::Call(function.clone(), [value].into_iter().chain(rest.iter().cloned()).collect()))
    }
}

/// Resolves the function of a mask, with its arguments after the value.
fn call(column: &ColumnDef, mask: &ColumnMask) -> Result<(Arc<Function>, Vec<Expr>), Error> {
    let types = [&column.ty].into_iter().chain(mask.arguments.iter().map(|argument| &argument.ty));
    let types: Vec<Typed> = types.map(|ty| Typed(ty.clone())).collect();
    let arguments: Vec<&dyn Argument> = types.iter().map(|ty| ty as &dyn Argument).collect();
    let function = Function::resolve(&mask.function, &arguments, None).map_err(|error| {
        Error::Server(format!("the mask of column {} cannot be called: {error}", column.name))
    })?;
    let constant = |argument: &schema::MaskArgument| {
        Expr::Bind(Bind::constant(&column.name, &argument.ty, argument.value.clone()))
    };
    Ok((Arc::new(function), mask.arguments.iter().map(constant).collect()))
}

/// Argument of which nothing but the type is known.
struct Typed(CqlType);

impl Argument for Typed {
    fn ty(&self) -> Option<CqlType> {
        Some(self.0.clone())
    }

    fn fit(&self, ty: &CqlType) -> Fit {
        Fit::of(&self.0, ty)
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// Returns true if the viewer sees the stored values of a table. `None`, the server, sees all.
pub(crate) fn sees_stored(def: &TableDef, viewer: Option<&Arc<dyn Viewer>>) -> bool {
    let about = About::Unmasked(&def.keyspace, &def.name, def.id.as_u128());
    def.masks.is_empty() || viewer.is_none_or(|viewer| viewer.sees(about))
}

/// Returns the masked ones of some columns, by their index in the table's `columns`.
pub(crate) fn masked_among(def: &TableDef, columns: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut masked: Vec<usize> = columns.filter(|at| def.masks.contains_key(&def.columns[*at].id)).collect();
    masked.sort_unstable();
    masked.dedup();
    masked
}

/// Checks that the viewer may have conditions on these masked columns of `def`. `stored` is the
/// table with the data, whose permissions decide: the base table of a view.
///
/// # Errors
/// Returns Cassandra's [`Error::Unauthorized`].
pub(crate) fn check_conditions(
    def: &TableDef,
    stored: &TableDef,
    masked: &[usize],
    viewer: Option<&Arc<dyn Viewer>>,
) -> Result<(), Error> {
    let about = About::MaskedConditions(&stored.keyspace, &stored.name, stored.id.as_u128());
    match viewer.filter(|viewer| !masked.is_empty() && !viewer.sees(about)) {
        Some(viewer) => {
            let names: Vec<&str> = masked.iter().map(|at| def.columns[*at].name.as_str()).collect();
            Err(Error::Unauthorized(format!(
                "User {} has no UNMASK nor SELECT_MASKED permission on table {}.{}, cannot query masked columns [{}]",
                viewer.role(),
                def.keyspace,
                def.name,
                names.join(", ")
            )))
        }
        None => Ok(()),
    }
}
