//! Sizes of Arrow's arrays in memory. Arrow's own functions count either whole buffers, which many
//! slices may share, or leave out the texts that an array of views refers to. These count the rows
//! of an array, as if it owned them.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, GenericByteViewArray, GenericListArray, OffsetSizeTrait, RecordBatch,
};
use datafusion::arrow::datatypes::{ArrowNativeType, ByteViewType, DataType};
use datafusion::scalar::ScalarValue;

/// Bytes of constants and wide values in a batch that the rows are computed for. An operator holds
/// a few such batches at a time.
pub(crate) const BATCH_BYTES: u64 = 16 << 20;

/// Longest value that a view contains, bytes.
const INLINE_BYTES: u64 = 12;

/// Returns the bytes of an array's rows.
pub(crate) fn array_bytes(array: &dyn Array) -> u64 {
    let nulls = if array.nulls().is_some() { array.len() as u64 / 8 } else { 0 };
    let own = match array.data_type() {
        DataType::Utf8View => views_bytes(array).saturating_add(text_bytes(array.as_string_view())),
        DataType::BinaryView => views_bytes(array).saturating_add(text_bytes(array.as_binary_view())),
        DataType::List(_) | DataType::Map(..) => offset_bytes(array.len(), 4),
        DataType::LargeList(_) => offset_bytes(array.len(), 8),
        DataType::FixedSizeList(..) | DataType::Struct(_) => 0,
        _ => array.to_data().get_slice_memory_size().map_or(0, |bytes| bytes as u64),
    };
    elements(array)
        .iter()
        .fold(own.saturating_add(nulls), |sum, part| sum.saturating_add(array_bytes(part.as_ref())))
}

/// Returns the bytes of texts outside of the views of an array, also in nested ones. Arrays that
/// are joined share these texts with the parts, and slices keep all of them.
pub(crate) fn shared_bytes(array: &dyn Array) -> u64 {
    match array.data_type() {
        DataType::Utf8View => text_bytes(array.as_string_view()),
        DataType::BinaryView => text_bytes(array.as_binary_view()),
        _ => elements(array).iter().fold(0, |sum, part| sum.saturating_add(shared_bytes(part.as_ref()))),
    }
}

/// Returns the elements of the rows of nested arrays.
fn elements(array: &dyn Array) -> Vec<ArrayRef> {
    match array.data_type() {
        DataType::List(_) => vec![elements_of(array.as_list::<i32>())],
        DataType::LargeList(_) => vec![elements_of(array.as_list::<i64>())],
        DataType::Map(..) => {
            let map = array.as_map();
            let offsets = map.value_offsets();
            let (first, last) = (offsets[0].as_usize(), offsets[map.len()].as_usize());
            vec![Arc::new(map.entries().slice(first, last - first))]
        }
        DataType::FixedSizeList(..) => vec![array.as_fixed_size_list().values().clone()],
        DataType::Struct(_) => array.as_struct().columns().to_vec(),
        _ => Vec::new(),
    }
}

/// Returns the bytes of texts outside of the views of a value.
pub(crate) fn shared_scalar_bytes(value: &ScalarValue) -> u64 {
    match value {
        ScalarValue::Utf8View(_) | ScalarValue::BinaryView(_) => heap_bytes(value),
        ScalarValue::List(list) => shared_bytes(list.as_ref()),
        ScalarValue::LargeList(list) => shared_bytes(list.as_ref()),
        ScalarValue::FixedSizeList(list) => shared_bytes(list.as_ref()),
        ScalarValue::Struct(row) => shared_bytes(row.as_ref()),
        ScalarValue::Map(map) => shared_bytes(map.as_ref()),
        _ => 0,
    }
}

fn offset_bytes(rows: usize, width: u64) -> u64 {
    (rows as u64 + 1) * width
}

fn views_bytes(array: &dyn Array) -> u64 {
    offset_bytes(array.len(), 16)
}

fn text_bytes<T: ByteViewType + ?Sized>(views: &GenericByteViewArray<T>) -> u64 {
    let outside = |view: &u128| u64::from(*view as u32);
    views.views().iter().map(outside).filter(|bytes| *bytes > INLINE_BYTES).fold(0, u64::saturating_add)
}

fn elements_of<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> ArrayRef {
    let offsets = lists.value_offsets();
    let (first, last) = (offsets[0].as_usize(), offsets[lists.len()].as_usize());
    lists.values().slice(first, last - first)
}

/// Returns the bytes of a batch's rows.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().fold(0, |sum: u64, column| sum.saturating_add(array_bytes(column.as_ref())))
}

/// Returns the bytes of a value.
pub(crate) fn scalar_bytes(value: &ScalarValue) -> u64 {
    value.size() as u64
}

/// Returns the bytes of a value beyond those of its type, such as its text.
pub(crate) fn heap_bytes(value: &ScalarValue) -> u64 {
    value.size().saturating_sub(size_of::<ScalarValue>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    use datafusion::arrow::array::{Int64Array, ListArray, StringArray, StringViewArray};
    use datafusion::arrow::datatypes::Int64Type;

    #[test]
    fn rows_of_a_slice_count_without_the_rest() {
        let long = "x".repeat(1000);
        let texts: Vec<&str> = (0..100).map(|n| if n < 10 { long.as_str() } else { "y" }).collect();
        let lists = (0..100_i64).map(|n| Some((0..if n < 10 { 125 } else { 1 }).map(Some)));
        let arrays: [ArrayRef; 3] = [
            Arc::new(StringArray::from(texts.clone())),
            Arc::new(StringViewArray::from(texts)),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)),
        ];
        for array in &arrays {
            let (all, few) = (array_bytes(array.as_ref()), array_bytes(array.slice(90, 10).as_ref()));
            assert!((10_000..13_000).contains(&all), "{all} bytes of {}", array.data_type());
            assert!((10..400).contains(&few), "{few} bytes of {}", array.data_type());
        }
        assert_eq!(array_bytes(&Int64Array::from(vec![1, 2, 3])), 24);
    }
}
