//! Checks the frames of window functions. DataFusion computes with offsets beyond 63 bits as if
//! they were other numbers, and reports others in its own words.

use datafusion::sql::sqlparser::ast::{
    Expr, OrderByExpr, UnaryOperator, Value, ValueWithSpan, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowSpec,
};

use crate::failure::{Failure, state, unsupported};

/// PostgreSQL's `windowing_error`.
const WINDOWING: &str = "42P20";
/// PostgreSQL's `invalid_preceding_or_following_size`.
const SIZE: &str = "22013";
/// PostgreSQL's `null_value_not_allowed`.
const NULL: &str = "22004";

/// Checks the frame of a window, and rounds its offsets as PostgreSQL does.
///
/// # Errors
/// PostgreSQL refuses the frame, or an offset is not constant.
pub(crate) fn check(window: &mut WindowSpec) -> Result<(), Failure> {
    let Some(frame) = &mut window.window_frame else { return Ok(()) };
    order(frame, &window.order_by)?;
    let WindowFrame { units, start_bound, end_bound } = frame;
    bound(*units, start_bound, "starting")?;
    end_bound.as_mut().map_or(Ok(()), |end| bound(*units, end, "ending"))
}

fn windowing(text: &str) -> Result<(), Failure> {
    Err(Failure::new(WINDOWING, text))
}

fn order(frame: &WindowFrame, order_by: &[OrderByExpr]) -> Result<(), Failure> {
    use WindowFrameBound::{CurrentRow, Following, Preceding};
    let (start, end) = (&frame.start_bound, frame.end_bound.as_ref().unwrap_or(&CurrentRow));
    match (start, end) {
        (Following(None), _) => return windowing("frame start cannot be UNBOUNDED FOLLOWING"),
        (_, Preceding(None)) => return windowing("frame end cannot be UNBOUNDED PRECEDING"),
        (CurrentRow, Preceding(_)) => {
            return windowing("frame starting from current row cannot have preceding rows");
        }
        (Following(_), CurrentRow | Preceding(_)) => {
            return windowing("frame starting from following row cannot have preceding rows");
        }
        _ => {}
    }
    let has_offset = |bound: &WindowFrameBound| matches!(bound, Preceding(Some(_)) | Following(Some(_)));
    match frame.units {
        WindowFrameUnits::Groups if order_by.is_empty() => {
            windowing("GROUPS mode requires an ORDER BY clause")
        }
        WindowFrameUnits::Range if order_by.len() != 1 && (has_offset(start) || has_offset(end)) => {
            windowing("RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column")
        }
        _ => Ok(()),
    }
}

fn bound(units: WindowFrameUnits, bound: &mut WindowFrameBound, which: &str) -> Result<(), Failure> {
    let (WindowFrameBound::Preceding(Some(offset)) | WindowFrameBound::Following(Some(offset))) = bound
    else {
        return Ok(());
    };
    while let Expr::Nested(inner) = &mut **offset {
        **offset = std::mem::replace(inner, Expr::Value(Value::Null.into()));
    }
    let is_range = units == WindowFrameUnits::Range;
    let negative = || match is_range {
        true => Failure::new(SIZE, "invalid preceding or following size in window function"),
        false => Failure::new(SIZE, format!("frame {which} offset must not be negative")),
    };
    let (digits, is_negative) = match &**offset {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => (number(expr), true),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => (number(expr), false),
        other => (number(other), false),
    };
    match (&**offset, digits) {
        (Expr::Value(ValueWithSpan { value: Value::Null, .. }), _) => {
            Err(Failure::new(NULL, format!("frame {which} offset must not be null")))
        }
        (_, Some(digits)) if is_range => match digits.parse::<f64>() {
            Ok(number) if is_negative && number > 0.0 => Err(negative()),
            _ if digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse::<i64>().is_err() => {
                let text =
                    "RANGE with offset PRECEDING/FOLLOWING is not supported for an offset of type numeric";
                unsupported(text)
            }
            _ => Ok(()),
        },
        (_, Some(digits)) => {
            let rows = whole(digits).ok_or_else(|| Failure::new(state::RANGE, "bigint out of range"))?;
            if is_negative && rows > 0 {
                return Err(negative());
            }
            **offset = Expr::Value(Value::Number(rows.to_string(), false).with_empty_span());
            Ok(())
        }
        (Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }), None) if !is_range => {
            let Ok(rows) = text.trim().parse::<i64>() else {
                let text = format!("invalid input syntax for type bigint: \"{text}\"");
                return Err(Failure::new(state::TEXT, text));
            };
            if rows < 0 {
                return Err(negative());
            }
            **offset = Expr::Value(Value::Number(rows.to_string(), false).with_empty_span());
            Ok(())
        }
        (Expr::Value(_) | Expr::Interval(_) | Expr::Cast { .. } | Expr::TypedString(_), None) if is_range => {
            Ok(())
        }
        _ => unsupported("a frame offset that is not a constant is not supported"),
    }
}

fn number(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => Some(digits),
        _ => None,
    }
}

/// Rounds a number to a `bigint`. `None` if it is out of range.
fn whole(digits: &str) -> Option<i64> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return digits.parse().ok();
    }
    let rounded = digits.parse::<f64>().ok()?.round();
    // 2^63 is the first float beyond.
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    (rounded < 9_223_372_036_854_775_808.0).then_some(rounded as i64)
}
