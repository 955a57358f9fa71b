//! Column descriptions of results and bind markers, in encoded form. A server encodes those of a
//! prepared statement once and copies the bytes into every answer. A client decodes them on demand.

use std::borrow::Cow;

use bytes::Bytes;
use schema::CqlType;

use crate::body::Body;
use crate::frame::Direction;
use crate::read::{Reader, out_of_range};
use crate::{Encoder, Error, Opcode, Version, types};

pub(crate) const GLOBAL_TABLE: i32 = 0x01;
pub(crate) const MORE_PAGES: i32 = 0x02;
pub(crate) const NO_METADATA: i32 = 0x04;
pub(crate) const METADATA_CHANGED: i32 = 0x08;

/// One column of a result, or one bind marker.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnSpec<'a> {
    /// Keyspace of the table.
    pub keyspace: Cow<'a, str>,
    /// Table of the column.
    pub table: Cow<'a, str>,
    /// Name or alias.
    pub name: Cow<'a, str>,
    /// CQL type.
    pub ty: Cow<'a, CqlType>,
}

impl<'a> ColumnSpec<'a> {
    /// Creates a column from borrowed parts.
    pub fn new(keyspace: &'a str, table: &'a str, name: &'a str, ty: &'a CqlType) -> ColumnSpec<'a> {
        ColumnSpec {
            keyspace: Cow::Borrowed(keyspace),
            table: Cow::Borrowed(table),
            name: Cow::Borrowed(name),
            ty: Cow::Borrowed(ty),
        }
    }
}

/// Column descriptions, encoded for one protocol version. Cloning them is cheap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Columns {
    count: usize,
    /// True if one keyspace and table precede all columns.
    global: bool,
    bytes: Bytes,
}

impl Columns {
    /// Encodes descriptions. Keyspace and table are written once if all columns share them.
    ///
    /// # Errors
    /// [`Error::TooLong`] for a name over 65,535 bytes.
    pub fn encode(version: Version, columns: &[ColumnSpec<'_>]) -> Result<Columns, Error> {
        let global = match columns {
            [] => false,
            [first, rest @ ..] => rest.iter().all(|c| c.keyspace == first.keyspace && c.table == first.table),
        };
        // Encode with a temporary encoder, and take the bytes after the header.
        let mut encoder = Encoder::new(Direction::Response, version);
        let mut body = encoder.begin(0, Opcode::Result);
        if let (true, Some(first)) = (global, columns.first()) {
            body.string(&first.keyspace);
            body.string(&first.table);
        }
        for column in columns {
            if !global {
                body.string(&column.keyspace);
                body.string(&column.table);
            }
            body.string(&column.name);
            types::write(&column.ty, &mut body);
        }
        body.end()?;
        let bytes = encoder.finish().split_off(crate::HEADER_BYTES).freeze();
        Ok(Columns { count: columns.len(), global, bytes })
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are no columns.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn flags(&self) -> i32 {
        if self.global { GLOBAL_TABLE } else { 0 }
    }

    pub(crate) fn write(&self, body: &mut Body<'_>) {
        body.raw(&self.bytes);
    }

    /// Returns the descriptions, borrowed.
    pub fn as_ref(&self) -> ColumnsRef<'_> {
        ColumnsRef { count: self.count, global: self.global, bytes: &self.bytes }
    }
}

/// Column descriptions inside a response, validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ColumnsRef<'a> {
    count: usize,
    global: bool,
    bytes: &'a [u8],
}

impl<'a> ColumnsRef<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, flags: i32, count: usize) -> Result<ColumnsRef<'a>, Error> {
        let global = flags & GLOBAL_TABLE != 0;
        let whole = reader.rest();
        if global {
            reader.string("keyspace")?;
            reader.string("table")?;
        }
        reader.check_count(count, 4, "columns")?;
        for _ in 0..count {
            if !global {
                reader.string("keyspace")?;
                reader.string("table")?;
            }
            reader.string("column name")?;
            types::skip(reader, 0)?;
        }
        Ok(ColumnsRef { count, global, bytes: &whole[..whole.len() - reader.rest().len()] })
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are no columns.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns keyspace and table of the first column. `None`: there is no column.
    pub fn table(&self) -> Option<(&'a str, &'a str)> {
        let mut reader = Reader::new(self.bytes);
        // They come first, whether they are those of all columns or of one. `read` has validated
        // the bytes.
        let read =
            |reader: &mut Reader<'a>| Some((reader.string("keyspace").ok()?, reader.string("table").ok()?));
        if self.count == 0 { None } else { read(&mut reader) }
    }

    /// Decodes the descriptions.
    ///
    /// # Errors
    /// [`Error::CustomType`], and [`Error::OutOfRange`] for an unknown type id.
    pub fn decode(&self) -> Result<Vec<ColumnSpec<'a>>, Error> {
        let mut reader = Reader::new(self.bytes);
        let mut table = ("", "");
        if self.global {
            table = (reader.string("keyspace")?, reader.string("table")?);
        }
        (0..self.count)
            .map(|_| {
                if !self.global {
                    table = (reader.string("keyspace")?, reader.string("table")?);
                }
                Ok(ColumnSpec {
                    keyspace: Cow::Borrowed(table.0),
                    table: Cow::Borrowed(table.1),
                    name: Cow::Borrowed(reader.string("column name")?),
                    ty: Cow::Owned(types::read(&mut reader, 0)?),
                })
            })
            .collect()
    }

    /// Decodes names and types. `None` is a type that contains a custom one.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for an unknown type id.
    pub fn decode_known(&self) -> Result<Vec<(&'a str, Option<CqlType>)>, Error> {
        let mut reader = Reader::new(self.bytes);
        if self.global {
            reader.string("keyspace")?;
            reader.string("table")?;
        }
        let mut column = || {
            if !self.global {
                reader.string("keyspace")?;
                reader.string("table")?;
            }
            let name = reader.string("column name")?;
            let mut of_type = Reader::new(reader.rest());
            types::skip(&mut reader, 0)?;
            match types::read(&mut of_type, 0) {
                Ok(ty) => Ok((name, Some(ty))),
                Err(Error::CustomType(_)) => Ok((name, None)),
                Err(error) => Err(error),
            }
        };
        (0..self.count).map(|_| column()).collect()
    }

    /// Returns an owned copy.
    pub fn to_columns(&self) -> Columns {
        Columns { count: self.count, global: self.global, bytes: Bytes::copy_from_slice(self.bytes) }
    }
}

/// Reads an `[int]` count.
pub(crate) fn read_count(reader: &mut Reader<'_>, field: &'static str) -> Result<usize, Error> {
    let count = reader.int(field)?;
    usize::try_from(count).map_err(|_| out_of_range(field, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_that_of_the_first_column() {
        let column = |table: &'static str| ColumnSpec::new("ks", table, "c", &CqlType::Int);
        let check = |columns: &[ColumnSpec<'_>], expected| {
            let encoded = Columns::encode(Version::V5, columns).expect("short names");
            assert_eq!(encoded.as_ref().table(), expected);
        };
        check(&[], None);
        check(&[column("t"), column("t")], Some(("ks", "t")));
        check(&[column("t"), column("other")], Some(("ks", "t")));
    }

    #[test]
    fn columns_behind_a_custom_type_are_decoded() {
        let mut encoder = Encoder::new(Direction::Response, Version::V5);
        let mut body = encoder.begin(0, Opcode::Result);
        for (table, column, is_list) in [("t", "a", true), ("u", "b", false)] {
            ["ks", table, column].iter().for_each(|name| body.string(name));
            if is_list {
                body.short(0x20);
            }
            body.short(0);
            body.string("org.example.VectorType(FloatType, 3)");
        }
        ["ks", "t", "c"].iter().for_each(|name| body.string(name));
        body.short(9);
        body.end().expect("short");
        let bytes = encoder.finish().split_off(crate::HEADER_BYTES);
        let columns = ColumnsRef::read(&mut Reader::new(&bytes), 0, 3).expect("valid");
        let known = columns.decode_known().expect("no unknown id");
        assert_eq!(known, [("a", None), ("b", None), ("c", Some(CqlType::Int))]);
    }
}
