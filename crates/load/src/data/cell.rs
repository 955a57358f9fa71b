//! Values of rows, with their encodings for CQL and CSV.

use std::fmt::Write as _;

use units::Day;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellType {
    Small,
    Int,
    Big,
    /// Number of scale 2, such as money.
    Hundredths,
    Date,
    Timestamp,
    Text,
}

/// Type that stores columns of hundredths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Decimals {
    /// `decimal`, exact.
    #[default]
    Decimal,
    /// `double`, smaller and faster to compute with.
    Double,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: CellType,
}

impl CellType {
    /// Returns the CQL type.
    pub(crate) fn cql(self, decimals: Decimals) -> &'static str {
        match (self, decimals) {
            (CellType::Small, _) => "smallint",
            (CellType::Int, _) => "int",
            (CellType::Big, _) => "bigint",
            (CellType::Hundredths, Decimals::Decimal) => "decimal",
            (CellType::Hundredths, Decimals::Double) => "double",
            (CellType::Date, _) => "date",
            (CellType::Timestamp, _) => "timestamp",
            (CellType::Text, _) => "text",
        }
    }

    /// Returns the SQL type of other databases.
    pub(crate) fn sql(self, decimals: Decimals) -> &'static str {
        match (self, decimals) {
            (CellType::Small, _) => "SMALLINT",
            (CellType::Int, _) => "INTEGER",
            (CellType::Big, _) => "BIGINT",
            (CellType::Hundredths, Decimals::Decimal) => "DECIMAL(15, 2)",
            (CellType::Hundredths, Decimals::Double) => "DOUBLE",
            (CellType::Date, _) => "DATE",
            (CellType::Timestamp, _) => "TIMESTAMP",
            (CellType::Text, _) => "VARCHAR",
        }
    }
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cell<'a> {
    Small(i16),
    Int(i32),
    Big(i64),
    /// Number of hundredths.
    Hundredths(i64),
    /// Days since 1970.
    Date(i32),
    /// Milliseconds since 1970.
    Timestamp(i64),
    Text(&'a str),
}

impl Cell<'_> {
    /// Returns true if it has this type.
    #[cfg(test)]
    pub(crate) fn is(self, kind: CellType) -> bool {
        kind == match self {
            Cell::Small(_) => CellType::Small,
            Cell::Int(_) => CellType::Int,
            Cell::Big(_) => CellType::Big,
            Cell::Hundredths(_) => CellType::Hundredths,
            Cell::Date(_) => CellType::Date,
            Cell::Timestamp(_) => CellType::Timestamp,
            Cell::Text(_) => CellType::Text,
        }
    }

    /// Appends the CQL encoding: four bytes of length, then the value.
    pub(crate) fn encode(self, decimals: Decimals, out: &mut Vec<u8>) {
        match (self, decimals) {
            (Cell::Small(value), _) => framed(out, &value.to_be_bytes()),
            (Cell::Int(value), _) => framed(out, &value.to_be_bytes()),
            (Cell::Big(value) | Cell::Timestamp(value), _) => framed(out, &value.to_be_bytes()),
            // CQL encodes 1970-01-01 as 2^31.
            (Cell::Date(days), _) => framed(out, &(days as u32 ^ (1 << 31)).to_be_bytes()),
            (Cell::Text(text), _) => framed(out, text.as_bytes()),
            (Cell::Hundredths(value), Decimals::Double) => framed(out, &(value as f64 / 100.0).to_be_bytes()),
            (Cell::Hundredths(value), Decimals::Decimal) => {
                let whole = value.to_be_bytes();
                let number = &whole[spare_bytes(value)..];
                out.extend_from_slice(&(4 + number.len() as i32).to_be_bytes());
                out.extend_from_slice(&2i32.to_be_bytes());
                out.extend_from_slice(number);
            }
        }
    }

    /// Appends the value as a CSV field. Text is always quoted, so that an empty text is not null.
    pub(crate) fn print(self, out: &mut String) {
        // Writing to a String cannot fail.
        let _ = match self {
            Cell::Small(value) => write!(out, "{value}"),
            Cell::Int(value) => write!(out, "{value}"),
            Cell::Big(value) => write!(out, "{value}"),
            Cell::Hundredths(value) => {
                let sign = if value < 0 { "-" } else { "" };
                let value = value.unsigned_abs();
                write!(out, "{sign}{}.{:02}", value / 100, value % 100)
            }
            Cell::Date(days) => write!(out, "{}", Day(days.into())),
            Cell::Timestamp(ms) => {
                let day = Day(ms.div_euclid(86_400_000));
                let of_day = ms.rem_euclid(86_400_000);
                let seconds = of_day / 1000;
                write!(out, "{day} {:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
            }
            Cell::Text(text) => {
                out.push('"');
                text.split_inclusive('"').for_each(|part| {
                    out.push_str(part);
                    if part.ends_with('"') {
                        out.push('"');
                    }
                });
                out.push('"');
                Ok(())
            }
        };
    }
}

fn framed(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Returns how many leading bytes of a two's complement number are redundant.
fn spare_bytes(value: i64) -> usize {
    let magnitude = if value < 0 { !value } else { value };
    // One of the 64 bits is the sign.
    (magnitude.leading_zeros() as usize - 1) / 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::CqlType;

    /// Checks both encodings against crate `schema`.
    fn check(cell: Cell<'_>, decimals: Decimals, ty: CqlType, printed: &str, in_schema: &str) {
        let mut bytes = Vec::new();
        cell.encode(decimals, &mut bytes);
        assert_eq!(bytes[..4], (bytes.len() as i32 - 4).to_be_bytes());
        schema::value::check(&ty, &bytes[4..]).expect("a value of its type");
        assert_eq!(schema::value::to_text(&ty, &bytes[4..]).trim_matches('\''), in_schema);
        let mut text = String::new();
        cell.print(&mut text);
        assert_eq!(text, printed);
    }

    #[test]
    fn encodings_match_crate_schema() {
        let double = Decimals::Double;
        check(Cell::Small(-7), double, CqlType::SmallInt, "-7", "-7");
        check(Cell::Int(7), double, CqlType::Int, "7", "7");
        check(Cell::Big(i64::MIN), double, CqlType::BigInt, "-9223372036854775808", "-9223372036854775808");
        check(Cell::Date(8035), double, CqlType::Date, "1992-01-01", "1992-01-01");
        check(Cell::Date(11_016), double, CqlType::Date, "2000-02-29", "2000-02-29");
        check(Cell::Date(-1), double, CqlType::Date, "1969-12-31", "1969-12-31");
        let time = Cell::Timestamp(1_373_885_254_000);
        check(time, double, CqlType::Timestamp, "2013-07-15 10:47:34", "2013-07-15 10:47:34.000Z");
        check(Cell::Text("a \"b\", c"), double, CqlType::Text, "\"a \"\"b\"\", c\"", "a \"b\", c");
        check(Cell::Text(""), double, CqlType::Text, "\"\"", "");
        check(Cell::Hundredths(-5), double, CqlType::Double, "-0.05", "-0.05");
    }

    #[test]
    fn decimals_use_the_fewest_bytes() {
        for (value, printed, bytes) in [
            (0, "0.00", 1),
            (127, "1.27", 1),
            (128, "1.28", 2),
            (-128, "-1.28", 1),
            (-129, "-1.29", 2),
            (999_999_999_999, "9999999999.99", 6),
            (i64::MIN, "-92233720368547758.08", 8),
        ] {
            check(Cell::Hundredths(value), Decimals::Decimal, CqlType::Decimal, printed, printed);
            assert_eq!(8 - spare_bytes(value), bytes, "{value}");
        }
    }
}
