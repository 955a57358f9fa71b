//! Functions and operators of arrays, where DataFusion answers otherwise than PostgreSQL:
//!
//! - Subscripts begin at 1. Those below it are outside of the array, and do not count from its end.
//! - A null is an element that `@>`, `<@` and `&&` never find, that `array_remove` removes, and
//!   that is greater than all other elements.
//! - `array_dims` is a text. An empty array has no dimensions.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, DynComparator, Int32Array, Int64Array, ListArray, StringArray,
    UInt64Array, make_comparator,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{SortOptions, take};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::error::Result;
use datafusion::functions_nested::array_has::{array_has_all_udf, array_has_any_udf};
use datafusion::functions_nested::dimension::{array_dims_udf, array_ndims_udf};
use datafusion::functions_nested::remove::array_remove_udf;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::engine::types::exact::casts;
use crate::engine::types::exact::common::common_type;
use crate::engine::types::exact::type_names::{is_int, is_text, list_of, refused};
use crate::engine::types::{argument_errors, text_form};
use crate::failure::state;

/// Returns the functions that have a name in SQL. The bounds on functions know them by these names.
pub(super) fn functions() -> [ScalarUDF; 5] {
    [
        (ArrayOperation::HasAll, array_has_all_udf()),
        (ArrayOperation::HasAny, array_has_any_udf()),
        (ArrayOperation::Remove, array_remove_udf()),
        (ArrayOperation::Dimensions, array_dims_udf()),
        (ArrayOperation::Depth, array_ndims_udf()),
    ]
    .map(|(kind, replaced)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        let aliases = replaced.aliases().to_vec();
        ScalarUDF::new_from_impl(ArrayFunction { kind, signature, aliases })
    })
}

/// Returns the element of an array at a place.
pub(super) fn element(args: Vec<Expr>) -> Expr {
    function(ArrayOperation::Element).call(args)
}

/// Returns the elements of an array from a place to another.
pub(super) fn slice(args: Vec<Expr>) -> Expr {
    function(ArrayOperation::Slice).call(args)
}

/// Returns an array of the texts that its elements have in results.
pub(super) fn texts(array: Expr) -> Expr {
    function(ArrayOperation::Texts).call(vec![array])
}

/// Returns a text that sorts as the array does, since windows take no bytes. Arrow's orders of
/// arrays with nulls differ from each other, and from PostgreSQL's.
pub(super) fn key(array: Expr) -> Expr {
    function(ArrayOperation::Key).call(vec![array])
}

/// Returns the comparison of arrays. That by `<`, `<=`, `>` or `>=` is a function.
pub(super) fn compared(binary: BinaryExpr) -> Expr {
    match binary.op {
        op @ (Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq) => {
            function(ArrayOperation::Order(op)).call(vec![*binary.left, *binary.right])
        }
        _ => Expr::BinaryExpr(binary),
    }
}

fn function(kind: ArrayOperation) -> ScalarUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    ScalarUDF::new_from_impl(ArrayFunction { kind, signature, aliases: Vec::new() })
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ArrayOperation {
    HasAll,
    HasAny,
    Remove,
    Dimensions,
    Depth,
    Element,
    Slice,
    Texts,
    Key,
    Order(Operator),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct ArrayFunction {
    kind: ArrayOperation,
    signature: Signature,
    /// Aliases of DataFusion's function, which would otherwise still be found under them.
    aliases: Vec<String>,
}

/// Reads a constant text beside an array of the type `beside` as such an array.
///
/// # Errors
/// The text is no array of it.
pub(super) fn read(expr: &mut Expr, ty: &DataType, beside: &DataType) -> Result<()> {
    if is_text(ty) && matches!(expr, Expr::Literal(..)) && matches!(beside, DataType::List(_)) {
        *expr = casts::convert_now(std::mem::take(expr), beside)?;
    }
    Ok(())
}

/// Returns the type of an array's elements. `None` for other types.
fn item_of(ty: &DataType) -> Option<&DataType> {
    match ty {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type())
        }
        DataType::Null => Some(&DataType::Null),
        _ => None,
    }
}

impl ScalarUDFImpl for ArrayFunction {
    fn name(&self) -> &'static str {
        match self.kind {
            ArrayOperation::HasAll => "array_has_all",
            ArrayOperation::HasAny => "array_has_any",
            ArrayOperation::Remove => "array_remove",
            ArrayOperation::Dimensions => "array_dims",
            ArrayOperation::Depth => "array_ndims",
            ArrayOperation::Element => "array_element",
            ArrayOperation::Slice => "array_slice",
            ArrayOperation::Texts => "array_texts",
            ArrayOperation::Key => "array_key",
            ArrayOperation::Order(Operator::Lt) => "array_lt",
            ArrayOperation::Order(Operator::LtEq) => "array_le",
            ArrayOperation::Order(Operator::Gt) => "array_gt",
            ArrayOperation::Order(_) => "array_ge",
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let is_place = |ty: &DataType| is_int(ty) || *ty == DataType::Null;
        let types = match (self.kind, arguments) {
            (ArrayOperation::HasAll | ArrayOperation::HasAny | ArrayOperation::Order(_), [left, right]) => {
                let items = item_of(left).zip(item_of(right));
                items.and_then(|(left, right)| common_type([left, right].into_iter())).map(|item| {
                    let list = list_of(&item);
                    vec![list.clone(), list]
                })
            }
            (ArrayOperation::Remove, [list, value]) => item_of(list)
                .and_then(|item| common_type([item, value].into_iter()))
                .map(|item| vec![list_of(&item), item]),
            (ArrayOperation::Element | ArrayOperation::Slice, [list, places @ ..])
                if places.len() == if self.kind == ArrayOperation::Element { 1 } else { 2 } =>
            {
                let item = item_of(list).filter(|_| places.iter().all(is_place));
                item.map(|item| [vec![list_of(item)], vec![DataType::Int64; places.len()]].concat())
            }
            (
                ArrayOperation::Dimensions
                | ArrayOperation::Depth
                | ArrayOperation::Texts
                | ArrayOperation::Key,
                [list],
            ) => item_of(list).map(|item| vec![list_of(item)]),
            _ => None,
        };
        types.map_or_else(|| argument_errors::refuse_call(self.name(), arguments), Ok)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let item = arguments.first().and_then(item_of).unwrap_or(&DataType::Null);
        Ok(match self.kind {
            ArrayOperation::HasAll | ArrayOperation::HasAny | ArrayOperation::Order(_) => DataType::Boolean,
            ArrayOperation::Element => item.clone(),
            ArrayOperation::Remove | ArrayOperation::Slice => list_of(item),
            ArrayOperation::Texts => list_of(&DataType::Utf8),
            ArrayOperation::Dimensions | ArrayOperation::Key => DataType::Utf8,
            ArrayOperation::Depth => DataType::Int32,
        })
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns: Result<Vec<ArrayRef>> =
            call.args.iter().map(|argument| argument.to_array(call.number_rows)).collect();
        let columns = columns?;
        let list = columns[0].as_list::<i32>();
        Ok(ColumnarValue::Array(match self.kind {
            ArrayOperation::HasAll | ArrayOperation::HasAny => {
                Arc::new(self.found(list, columns[1].as_list())?)
            }
            ArrayOperation::Order(op) => Arc::new(ordered(&columns[0], op, &columns[1])?),
            ArrayOperation::Remove => removed(list, &columns[1])?,
            ArrayOperation::Element => at(list, columns[1].as_primitive())?,
            ArrayOperation::Slice => between(list, columns[1].as_primitive(), columns[2].as_primitive())?,
            ArrayOperation::Texts => {
                let values: ArrayRef = Arc::new(text_form::texts(list.values())?);
                let item = Arc::new(Field::new_list_field(DataType::Utf8, true));
                Arc::new(ListArray::try_new(item, list.offsets().clone(), values, list.nulls().cloned())?)
            }
            ArrayOperation::Key => {
                let options = SortOptions { descending: false, nulls_first: false };
                let field = SortField::new_with_options(list.data_type().clone(), options);
                let rows = RowConverter::new(vec![field])?.convert_columns(&columns[..1])?;
                let keys = rows.iter().enumerate();
                let digits = |key: &[u8]| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
                let keys = keys.map(|(row, key)| list.is_valid(row).then(|| digits(key.as_ref())));
                Arc::new(keys.collect::<StringArray>())
            }
            ArrayOperation::Dimensions => {
                let text = |lengths: Vec<usize>| {
                    lengths.iter().map(|length| format!("[1:{length}]")).collect::<String>()
                };
                let texts = (0..list.len()).map(|row| lengths(list, row).map(text));
                Arc::new(texts.collect::<StringArray>())
            }
            ArrayOperation::Depth => {
                let depth = |row| lengths(list, row).and_then(|lengths| i32::try_from(lengths.len()).ok());
                Arc::new((0..list.len()).map(depth).collect::<Int32Array>())
            }
        }))
    }
}

/// Returns a comparison of elements, with nulls as the greatest.
fn comparator(left: &dyn Array, right: &dyn Array) -> Result<DynComparator> {
    Ok(make_comparator(left, right, SortOptions { descending: false, nulls_first: false })?)
}

fn range(list: &ListArray, row: usize) -> std::ops::Range<usize> {
    let offsets = list.value_offsets();
    // Offsets are not negative.
    offsets[row] as usize..offsets[row + 1] as usize
}

impl ArrayFunction {
    fn found(&self, left: &ListArray, right: &ListArray) -> Result<BooleanArray> {
        let (values, wanted) = (left.values(), right.values());
        let compare = comparator(values, wanted)?;
        let one = |row: usize| {
            if left.is_null(row) || right.is_null(row) {
                return None;
            }
            let mut wanted = range(right, row).map(|place| {
                wanted.is_valid(place) && range(left, row).any(|at| compare(at, place) == Ordering::Equal)
            });
            Some(if self.kind == ArrayOperation::HasAll {
                wanted.all(|found| found)
            } else {
                wanted.any(|found| found)
            })
        };
        Ok((0..left.len()).map(one).collect())
    }
}

fn ordered(left: &ArrayRef, op: Operator, right: &ArrayRef) -> Result<BooleanArray> {
    let compare = comparator(left, right)?;
    let one = |row: usize| {
        if left.is_null(row) || right.is_null(row) {
            return None;
        }
        let order = compare(row, row);
        Some(match op {
            Operator::Lt => order.is_lt(),
            Operator::LtEq => order.is_le(),
            Operator::Gt => order.is_gt(),
            _ => order.is_ge(),
        })
    };
    Ok((0..left.len()).map(one).collect())
}

/// Returns lists of some of the elements of `list`. `None` for null.
fn chosen(list: &ListArray, places: impl Fn(usize) -> Option<Vec<usize>>) -> Result<ArrayRef> {
    let mut all = Vec::new();
    let mut lengths = Vec::new();
    let mut valid = Vec::new();
    for row in 0..list.len() {
        let places = if list.is_null(row) { None } else { places(row) };
        valid.push(places.is_some());
        let places = places.unwrap_or_default();
        lengths.push(places.len());
        all.extend(places.into_iter().map(|place| place as u64));
    }
    let values = take(list.values(), &UInt64Array::from(all), None)?;
    let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let nulls = Some(NullBuffer::from(valid));
    Ok(Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), values, nulls)?))
}

fn removed(list: &ListArray, value: &ArrayRef) -> Result<ArrayRef> {
    let compare = comparator(list.values(), value)?;
    chosen(list, |row| Some(range(list, row).filter(|at| compare(*at, row) != Ordering::Equal).collect()))
}

fn at(list: &ListArray, places: &Int64Array) -> Result<ArrayRef> {
    let place = |row: usize| {
        let range = range(list, row);
        let place = usize::try_from(places.value(row)).ok()?.checked_sub(1)?;
        let is_within = list.is_valid(row) && places.is_valid(row) && place < range.len();
        is_within.then(|| (range.start + place) as u64)
    };
    let places: UInt64Array = (0..list.len()).map(place).collect();
    Ok(take(list.values(), &places, None)?)
}

fn between(list: &ListArray, from: &Int64Array, to: &Int64Array) -> Result<ArrayRef> {
    chosen(list, |row| {
        if from.is_null(row) || to.is_null(row) {
            return None;
        }
        let range = range(list, row);
        let place = |number: i64| usize::try_from(number).unwrap_or(0).min(range.len());
        let (from, to) = (place(from.value(row) - 1), place(to.value(row)));
        Some((range.start + from..range.start + to.max(from)).collect())
    })
}

/// Returns the lengths of an array's dimensions. `None`: it is null or has none.
fn lengths(list: &ListArray, row: usize) -> Option<Vec<usize>> {
    let range = range(list, row);
    if list.is_null(row) || range.is_empty() {
        return None;
    }
    let mut all = vec![range.len()];
    if let Some(inner) = list.values().as_list_opt::<i32>() {
        all.extend(lengths(inner, range.start).unwrap_or_default());
    }
    Some(all)
}

/// Refuses subscripts of arrays of arrays, which are JSON here. In PostgreSQL a single subscript of
/// such an array is null.
pub(super) fn check_subscript(ty: &DataType) -> Result<()> {
    match item_of(ty).map(item_of) {
        Some(Some(item)) if *item != DataType::Null => {
            refused(state::UNSUPPORTED, "subscripts of arrays of arrays are not supported: use unnest")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::types::Int32Type;

    use super::*;

    fn lists(rows: Vec<Option<Vec<Option<i32>>>>) -> ListArray {
        ListArray::from_iter_primitive::<Int32Type, _, _>(rows)
    }

    #[test]
    fn places_begin_at_one() {
        let list = lists(vec![Some(vec![Some(7), Some(8)]); 4]);
        let found = at(&list, &Int64Array::from(vec![-1, 0, 2, 3])).expect("elements");
        let found: Vec<_> = found.as_primitive::<Int32Type>().iter().collect();
        assert_eq!(found, [None, None, Some(8), None]);
        let (from, to) =
            (Int64Array::from(vec![-1, i64::MIN + 1, 2, 3]), Int64Array::from(vec![1, -1, 9, 2]));
        let found = between(&list, &from, &to).expect("slices");
        let lengths: Vec<_> = (0..4).map(|row| found.as_list::<i32>().value_length(row)).collect();
        assert_eq!(lengths, [1, 0, 1, 0]);
    }

    #[test]
    fn nulls_are_removed_and_never_found() {
        let list = lists(vec![Some(vec![Some(1), None])]);
        let null: ArrayRef = Arc::new(Int32Array::from(vec![None]));
        let found = removed(&list, &null).expect("a list");
        assert_eq!(found.as_list::<i32>().value_length(0), 1);
        let signature = Signature::any(2, Volatility::Immutable);
        let has_all = ArrayFunction { kind: ArrayOperation::HasAll, signature, aliases: Vec::new() };
        assert!(!has_all.found(&list, &list).expect("found").value(0));
    }

    #[test]
    fn nulls_are_the_greatest_elements() {
        let (one, other): (ArrayRef, ArrayRef) = (
            Arc::new(lists(vec![Some(vec![Some(1), None])])),
            Arc::new(lists(vec![Some(vec![Some(1), Some(2)])])),
        );
        assert!(ordered(&one, Operator::Gt, &other).expect("compared").value(0));
        assert!(!ordered(&one, Operator::LtEq, &other).expect("compared").value(0));
    }
}
