//! Aggregates of whole columns: a loop over numbers instead of a parsed value per row. The results
//! are those of [`State::add`] for each value. Columns without a loop of their own go value by
//! value.

use super::{State, Sum, keep};
use crate::Column;

impl State {
    /// Adds rows to an aggregate without arguments.
    pub fn add_rows(&mut self, rows: usize) {
        if let Sum::Rows(sum) = &mut self.sum {
            *sum += rows as i64;
        }
    }

    /// Adds rows in which the argument has these values. Rows in which it is null change nothing.
    pub fn add_column(&mut self, column: Column<'_>) {
        if !self.add_at_once(column) {
            column.each(|value| self.add(&[Some(value)]));
        }
    }

    /// Adds a column if there is a loop for its values. Returns false otherwise.
    fn add_at_once(&mut self, column: Column<'_>) -> bool {
        match (&mut self.sum, column) {
            (Sum::Values(count), column) => *count += column.len() as i64,
            (Sum::Extreme { kept, value }, column) => {
                column.extreme(*kept).each(|other| keep(&self.ty, *kept, value, other));
            }
            (Sum::Integer(sum), column) => {
                let Some(all) = column.wrapping_sum() else { return false };
                *sum = sum.wrapping_add(all);
            }
            (Sum::IntegerMean { sum, count }, column) => {
                let Some(all) = column.sum() else { return false };
                *sum += all;
                *count += column.len() as i64;
            }
            (Sum::Float(sum), Column::Float32(values)) => values.iter().for_each(|v| sum.add((*v).into())),
            (Sum::Float(sum), Column::Float64(values)) => values.iter().for_each(|v| sum.add(*v)),
            (Sum::FloatMean(mean), Column::Float32(values)) => {
                values.iter().for_each(|v| mean.add((*v).into()));
            }
            (Sum::FloatMean(mean), Column::Float64(values)) => values.iter().for_each(|v| mean.add(*v)),
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use schema::CqlType;

    use super::*;
    use crate::Aggregate;

    /// Checks all aggregates of a type over a column, which is added in two parts.
    fn check(ty: &CqlType, column: Column<'_>, parts: [Column<'_>; 2]) {
        for name in ["count", "min", "max", "sum", "avg"] {
            let aggregate = Aggregate::named(name, ty);
            let (mut by_value, mut by_column) = (aggregate.start(), aggregate.start());
            column.each(|value| by_value.add(&[Some(value)]));
            parts.into_iter().for_each(|part| by_column.add_column(part));
            let (expected, found) = (by_value.finish(), by_column.finish());
            assert_eq!(found, expected, "{name} of {ty}: {column:?}");
        }
    }

    macro_rules! check {
        ($kind:ident, $types:expr, $values:expr) => {{
            let values = $values;
            for ty in $types {
                for middle in 0..=values.len() {
                    let (first, second) = values.split_at(middle);
                    check(&ty, Column::$kind(&values), [Column::$kind(first), Column::$kind(second)]);
                }
            }
        }};
    }

    #[test]
    fn columns_have_the_results_of_their_values() {
        use CqlType as T;
        check!(Int8, [T::TinyInt], [127_i8, 1, -128, -1, 127, 127]);
        check!(Int16, [T::SmallInt], [i16::MAX, i16::MAX, 3, i16::MIN]);
        check!(Int32, [T::Int], [i32::MIN, i32::MIN, i32::MIN, 7, -7]);
        check!(Int64, [T::BigInt, T::Counter, T::Time, T::Timestamp], [i64::MAX, i64::MAX, -2, i64::MIN, 5]);
        check!(UInt32, [T::Date], [1_u32 << 31, 5, u32::MAX, 0]);
        let nan = f32::from_bits(0xffc0_0001);
        check!(Float32, [T::Float], [1e38_f32, 3e38, -0.0, 0.0, 0.1, nan, f32::NAN, -1e38]);
        check!(Float32, [T::Float], [0.1_f32, f32::INFINITY, 0.3]);
        check!(Float64, [T::Double], [0.1_f64, 1e308, 1e308, 0.3, -1e308, 1e-300]);
        check!(Float64, [T::Double], [0.0_f64, -0.0, f64::NAN]);
        check!(Int64, [T::BigInt], [0_i64; 0]);
    }

    #[test]
    fn serialized_values_are_added_one_by_one() {
        let column = Column::Bytes { data: b"\x00\x07zebraant\x05", offsets: &[1, 2, 7, 10, 10, 11] };
        let parts = [
            Column::Bytes { data: b"\x00\x07zebraant\x05", offsets: &[1, 2, 7] },
            Column::Bytes { data: b"\x00\x07zebraant\x05", offsets: &[7, 10, 10, 11] },
        ];
        for ty in [CqlType::Text, CqlType::Blob, CqlType::Varint, CqlType::Decimal, CqlType::Int] {
            check(&ty, column, parts);
        }
        let mut state = Aggregate::named("max", &CqlType::Text).start();
        state.add_column(column);
        assert_eq!(state.finish().unwrap().unwrap(), b"zebra");
    }

    #[test]
    fn rows_are_counted_without_values() {
        let mut state = Aggregate::resolve("count", &[]).unwrap().unwrap().start();
        state.add(&[]);
        state.add_rows(7);
        assert_eq!(state.finish().unwrap().unwrap(), 8_i64.to_be_bytes());
    }

    #[test]
    fn rounding_and_equal_values_depend_on_the_order() {
        let depends = |name: &str, ty: CqlType| Aggregate::named(name, &ty).depends_on_order();
        assert!(depends("sum", CqlType::Double) && depends("avg", CqlType::Decimal));
        assert!(depends("min", CqlType::Varint) && depends("max", CqlType::Float));
        assert!(!depends("sum", CqlType::Int) && !depends("max", CqlType::Text));
        assert!(!depends("count", CqlType::Double) && !depends("avg", CqlType::Varint));
    }
}
