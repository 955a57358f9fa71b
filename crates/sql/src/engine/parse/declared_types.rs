//! Types that a client declares for parameters. A parameter of a declared type is a cast to it, so
//! that operators and functions are chosen by this type and not by the other operand's.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, LimitClause, Query, Statement, TimezoneInfo, Value, ValueWithSpan, VisitorMut,
};

use crate::engine::parse::syntax;
use crate::walk;

/// Casts the parameters of a statement to their declared types, by PostgreSQL's ids from `$1`.
/// Texts and types that are not declared stay: they take the type of their place.
pub(crate) fn cast(statement: &mut Statement, types: &[u32]) {
    if types.iter().any(|oid| type_of(*oid).is_some()) {
        let _ = walk::walk_mut(statement, &mut Declared(types));
    }
}

fn type_of(oid: u32) -> Option<DataType> {
    Some(match oid {
        16 => DataType::Boolean,
        20 => DataType::BigInt(None),
        // As an `integer`, functions take a `smallint` too.
        21 | 23 => DataType::Integer(None),
        700 => DataType::Real,
        701 => DataType::DoublePrecision,
        1082 => DataType::Date,
        1114 => DataType::Timestamp(None, TimezoneInfo::None),
        1184 => DataType::Timestamp(None, TimezoneInfo::WithTimeZone),
        _ => return None,
    })
}

struct Declared<'a>(&'a [u32]);

impl VisitorMut for Declared<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Value(ValueWithSpan { value: Value::Placeholder(name), .. }) = expr
            && let Some(place) = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok())
            && let Some(ty) = place.checked_sub(1).and_then(|place| self.0.get(place))
            && let Some(data_type) = type_of(*ty)
        {
            *expr = syntax::cast(expr.clone(), data_type);
        }
        ControlFlow::Continue(())
    }

    /// Numbers of rows are `bigint` in any case, and no expressions.
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
            let offset = offset.as_mut().map(|offset| &mut offset.value);
            for expr in limit.iter_mut().chain(offset) {
                if let Expr::Cast { expr: inner, .. } = expr
                    && matches!(&**inner, Expr::Value(ValueWithSpan { value: Value::Placeholder(_), .. }))
                {
                    *expr = (**inner).clone();
                }
            }
        }
        ControlFlow::Continue(())
    }
}
