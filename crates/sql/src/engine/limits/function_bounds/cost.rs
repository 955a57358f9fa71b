//! Estimates the result size and work of functions from the sizes of their arguments, without
//! calling them. The estimates are upper bounds, except for lists, whose elements count with their
//! average size.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;

use super::string_concat;

/// Size of a result in bytes, and work in steps of about 1 ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Estimate {
    pub(super) bytes: u64,
    pub(super) steps: u64,
}

impl Estimate {
    /// Returns the sum.
    pub(super) fn and(self, other: Estimate) -> Estimate {
        Estimate {
            bytes: self.bytes.saturating_add(other.bytes),
            steps: self.steps.saturating_add(other.steps),
        }
    }
}

/// Dependence of a function's cost on its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cost {
    /// Returns the first argument, repeated as often as the second argument specifies.
    Repeat,
    /// Returns a text of the length in the second argument.
    Pad,
    /// Returns a list of the length in the second argument.
    Resize,
    /// Returns the elements from a first to a last value.
    Range,
    /// Returns the first argument with each occurrence of the second replaced by the third.
    Replace,
    /// Returns the first argument with matches of a pattern replaced by the third.
    RegexpReplace,
    /// Searches for a pattern.
    Regexp,
    /// Returns a list with elements replaced by the third argument.
    ListReplace,
    /// Joins the elements of a list with a separator.
    Join,
    /// Returns all arguments combined.
    Sum,
    /// Joins all other arguments with the first as separator.
    SumWith,
    /// Returns a number. Compares each character of one argument with each of the other.
    Product,
    /// Compares each element of one list with each of the other.
    ListProduct,
    /// Returns a value of the type named in the second argument. The type is checked as well.
    Type,
}

/// Functions with bounds, by their names in DataFusion.
const COSTS: [(&str, Cost); 38] = [
    ("arrow_cast", Cost::Type),
    ("arrow_try_cast", Cost::Type),
    ("repeat", Cost::Repeat),
    ("array_repeat", Cost::Repeat),
    ("lpad", Cost::Pad),
    ("rpad", Cost::Pad),
    ("array_resize", Cost::Resize),
    ("range", Cost::Range),
    ("generate_series", Cost::Range),
    ("replace", Cost::Replace),
    ("regexp_replace", Cost::RegexpReplace),
    ("regexp_like", Cost::Regexp),
    ("regexp_match", Cost::Regexp),
    ("regexp_count", Cost::Regexp),
    ("regexp_instr", Cost::Regexp),
    ("array_replace", Cost::ListReplace),
    ("array_replace_n", Cost::ListReplace),
    ("array_replace_all", Cost::ListReplace),
    ("array_to_string", Cost::Join),
    (string_concat::NAME, Cost::Sum),
    ("concat", Cost::Sum),
    ("concat_ws", Cost::SumWith),
    ("overlay", Cost::Sum),
    ("make_array", Cost::Sum),
    ("struct", Cost::Sum),
    ("named_struct", Cost::Sum),
    ("map", Cost::Sum),
    ("array_append", Cost::Sum),
    ("array_prepend", Cost::Sum),
    ("array_concat", Cost::Sum),
    ("array_union", Cost::Sum),
    ("arrays_zip", Cost::Sum),
    ("levenshtein", Cost::Product),
    ("array_has", Cost::ListProduct),
    ("array_has_all", Cost::ListProduct),
    ("array_has_any", Cost::ListProduct),
    ("array_intersect", Cost::ListProduct),
    ("array_except", Cost::ListProduct),
];

/// Steps to compile a pattern. A pattern that is not constant is compiled for each row.
const PATTERN_STEPS: u64 = 1 << 20;
/// Size of values of fixed size, such as numbers and times, and of an element's offset in a list,
/// bytes.
const WORD_BYTES: u64 = 16;

/// Sizes of an argument, by row. A constant has one size for all rows.
struct Sizes(Vec<u64>);

impl Sizes {
    fn of(&self, row: usize) -> u64 {
        self.0.get(row).or(self.0.last()).copied().unwrap_or(0)
    }
}

/// Measured arguments of a call.
pub(super) struct Costs {
    cost: Cost,
    bytes: Vec<Sizes>,
    elements: Vec<Sizes>,
    /// Number or length in the second argument.
    times: Sizes,
    /// Number of elements of a range.
    range: Sizes,
    is_constant_pattern: bool,
}

impl Cost {
    /// Returns the cost of a function, if it needs bounds.
    pub(super) fn of(name: &str) -> Option<Cost> {
        COSTS.iter().find(|(function, _)| *function == name).map(|(_, cost)| *cost)
    }

    /// Measures the arguments of a call.
    ///
    /// # Errors
    /// A value has the wrong type for the function.
    pub(super) fn of_rows(self, arguments: &[ColumnarValue], rows: usize) -> Result<Costs> {
        let arrays = arguments.iter().map(|value| match value {
            ColumnarValue::Array(array) => Ok(array.clone()),
            ColumnarValue::Scalar(scalar) => scalar.to_array(),
        });
        let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        let takes_times = matches!(self, Cost::Repeat | Cost::Pad | Cost::Resize);
        let times = match arrays.get(1).filter(|_| takes_times) {
            Some(times) => numbers(times)?,
            None => Sizes(Vec::new()),
        };
        let range = if self == Cost::Range { range(&arrays, rows)? } else { Sizes(Vec::new()) };
        Ok(Costs {
            cost: self,
            bytes: arrays.iter().map(sizes).collect(),
            elements: arrays.iter().map(elements).collect(),
            times,
            range,
            is_constant_pattern: !matches!(arguments.get(1), Some(ColumnarValue::Array(_))),
        })
    }
}

impl Costs {
    /// Returns the estimate for a row.
    pub(super) fn of(&self, row: usize) -> Estimate {
        let bytes = |place: usize| self.bytes.get(place).map_or(0, |sizes| sizes.of(row));
        let elements = |place: usize| self.elements.get(place).map_or(0, |sizes| sizes.of(row));
        let sum = (0..self.bytes.len()).fold(0, |sum: u64, place| sum.saturating_add(bytes(place)));
        let pattern = || {
            let search = bytes(0).saturating_mul(bytes(1).max(8)) / 8;
            if self.is_constant_pattern { search } else { search.saturating_add(PATTERN_STEPS) }
        };
        let linear = |bytes: u64| Estimate { bytes, steps: bytes };
        match self.cost {
            Cost::Repeat => linear(bytes(0).saturating_mul(self.times.of(row))),
            // A character has up to four bytes.
            Cost::Pad => linear(self.times.of(row).saturating_mul(4)),
            Cost::Resize => {
                let one = (bytes(0) / elements(0).max(1)).max(bytes(2)).max(WORD_BYTES);
                linear(one.saturating_mul(self.times.of(row)))
            }
            Cost::Range => linear(self.range.of(row).saturating_mul(8)),
            Cost::Replace => {
                let found = bytes(0) / bytes(1).max(1) + 1;
                linear(found.saturating_mul(bytes(2)).saturating_add(bytes(0)))
            }
            Cost::RegexpReplace => {
                // Every position may match. Each reference in the replacement (`\0`, two
                // characters) may insert the whole match.
                let one = bytes(0).saturating_add(1).saturating_mul(bytes(2)).saturating_mul(2);
                let one = if self.bytes.len() > 3 { one } else { one / 2 };
                Estimate { bytes: one.saturating_add(bytes(0)), steps: pattern().saturating_add(one) }
            }
            Cost::Regexp => Estimate { bytes: bytes(0), steps: pattern() },
            Cost::ListReplace => {
                linear(elements(0).saturating_mul(bytes(2).max(WORD_BYTES)).saturating_add(bytes(0)))
            }
            Cost::Join => {
                let between = bytes(1).saturating_add(bytes(2)).saturating_add(WORD_BYTES);
                linear(elements(0).saturating_mul(between).saturating_add(bytes(0).saturating_mul(2)))
            }
            Cost::Sum | Cost::Type => linear(sum),
            Cost::SumWith => linear(bytes(0).saturating_mul(self.bytes.len() as u64).saturating_add(sum)),
            Cost::Product => Estimate { bytes: 8, steps: bytes(0).saturating_mul(bytes(1)) },
            Cost::ListProduct => {
                Estimate { bytes: bytes(0), steps: elements(0).saturating_mul(elements(1).max(1)) }
            }
        }
    }
}

/// Returns the size of the longest value of a column, bytes. 0 if the type has a fixed size.
pub(crate) fn widest(array: &ArrayRef) -> u64 {
    match array.data_type() {
        ty if ty.is_primitive() || matches!(ty, DataType::Boolean | DataType::Null) => 0,
        _ => sizes(array).0.into_iter().max().unwrap_or(0),
    }
}

/// Returns the sizes of values, bytes.
fn sizes(array: &ArrayRef) -> Sizes {
    macro_rules! lengths {
        ($array:expr) => {{
            let array = $array;
            (0..array.len()).map(|row| array.value(row).len() as u64).collect()
        }};
    }
    Sizes(match array.data_type() {
        DataType::Utf8 => lengths!(array.as_string::<i32>()),
        DataType::LargeUtf8 => lengths!(array.as_string::<i64>()),
        DataType::Utf8View => lengths!(array.as_string_view()),
        DataType::Binary => lengths!(array.as_binary::<i32>()),
        DataType::LargeBinary => lengths!(array.as_binary::<i64>()),
        DataType::BinaryView => lengths!(array.as_binary_view()),
        ty if ty.is_primitive() || *ty == DataType::Boolean || *ty == DataType::Null => {
            vec![WORD_BYTES; array.len()]
        }
        DataType::List(_) => list_bytes(array.as_list::<i32>()),
        DataType::LargeList(_) => list_bytes(array.as_list::<i64>()),
        _ => {
            // Values of equal size, or nested values whose elements count with their average size.
            let all = array.to_data().get_slice_memory_size().map_or(u64::MAX, |bytes| bytes as u64);
            let counts = elements(array);
            let total: u64 = (0..array.len()).map(|row| counts.of(row).max(1)).sum();
            let one = all.div_ceil(total.max(1)).max(1);
            (0..array.len()).map(|row| counts.of(row).max(1).saturating_mul(one)).collect()
        }
    })
}

/// Returns the sizes of lists, bytes. Measures only elements of these rows: a slice of an array
/// refers to the elements of the whole array.
fn list_bytes<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Vec<u64> {
    let offsets = lists.value_offsets();
    let (first, last) = (offsets[0].as_usize(), offsets[lists.len()].as_usize());
    let elements = lists.values().slice(first, last - first);
    let all = elements.to_data().get_slice_memory_size().map_or(u64::MAX, |bytes| bytes as u64);
    let one = all.div_ceil((last - first).max(1) as u64).max(1);
    (0..lists.len())
        .map(|row| (lists.value_length(row).as_usize() as u64).max(1).saturating_mul(one))
        .collect()
}

/// Returns the numbers of elements of lists, and 1 for other values.
fn elements(array: &ArrayRef) -> Sizes {
    macro_rules! lengths {
        ($array:expr) => {{
            let array = $array;
            (0..array.len()).map(|row| u64::try_from(array.value_length(row)).unwrap_or(0)).collect()
        }};
    }
    Sizes(match array.data_type() {
        DataType::List(_) => lengths!(array.as_list::<i32>()),
        DataType::LargeList(_) => lengths!(array.as_list::<i64>()),
        DataType::FixedSizeList(_, length) => vec![u64::try_from(*length).unwrap_or(0); array.len()],
        DataType::Map(..) => lengths!(array.as_map()),
        _ => vec![1; array.len()],
    })
}

/// Converts to whole numbers. Null and negative ones become 0.
fn numbers(array: &ArrayRef) -> Result<Sizes> {
    let numbers = cast(array, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>().iter();
    Ok(Sizes(numbers.map(|number| number.and_then(|n| u64::try_from(n).ok()).unwrap_or(0)).collect()))
}

/// Returns the numbers of elements from a first to a last value by a step. The values are whole
/// numbers, dates, or timestamps.
fn range(arguments: &[ArrayRef], rows: usize) -> Result<Sizes> {
    let whole = |array: &ArrayRef| -> Result<ArrayRef> {
        let array = match array.data_type() {
            DataType::Date32 => cast(array, &DataType::Int32)?,
            DataType::Timestamp(..) | DataType::Date64 => {
                cast(&cast(array, &DataType::Timestamp(TimeUnit::Nanosecond, None))?, &DataType::Int64)?
            }
            _ => array.clone(),
        };
        Ok(cast(&array, &DataType::Int64)?)
    };
    let at = |array: &ArrayRef, row: usize| {
        let row = if array.len() == 1 { 0 } else { row };
        array.is_valid(row).then(|| i128::from(array.as_primitive::<Int64Type>().value(row)))
    };
    let is_of_days = arguments.first().is_some_and(|first| *first.data_type() == DataType::Date32);
    let step_at = |row: usize| -> Result<Option<i128>> {
        let Some(step) = arguments.get(2) else { return Ok(Some(1)) };
        let row = if step.len() == 1 { 0 } else { row };
        if step.is_null(row) {
            return Ok(None);
        }
        Ok(Some(match step.as_primitive_opt::<IntervalMonthDayNanoType>() {
            Some(step) => {
                let step = step.value(row);
                let days = i128::from(step.months) * 28 + i128::from(step.days);
                // A day has at least 23 hours.
                let nanoseconds = days * 82_800_000_000_000 + i128::from(step.nanoseconds);
                if is_of_days { days } else { nanoseconds }
            }
            None => i128::from(whole(step)?.as_primitive::<Int64Type>().value(row)),
        }))
    };
    let (first, last) = match arguments {
        [last] => (None, whole(last)?),
        [first, last, ..] => (Some(whole(first)?), whole(last)?),
        [] => return Ok(Sizes(Vec::new())),
    };
    let count = |row: usize| -> Result<u64> {
        let from = first.as_ref().map_or(Some(0), |first| at(first, row));
        let (Some(from), Some(to), Some(step)) = (from, at(&last, row), step_at(row)?) else { return Ok(0) };
        let count = (to - from).unsigned_abs() / step.unsigned_abs().max(1) + 1;
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    };
    Ok(Sizes((0..rows).map(count).collect::<Result<_>>()?))
}
