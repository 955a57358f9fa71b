//! INSERT JSON: columns whose values are read from one text.
//!
//! A constant is read when the statement is prepared. With a bind marker, the columns depend on the
//! value of an execution. The statement is then prepared for all columns of the table, with one
//! value for each behind the values of the client. An execution reads the text and adds these
//! values. Everything after that is an ordinary INSERT.

use cql::ast;
use engine::{Error, Guardrail, Value};
use schema::value::json::{JsonColumn, from_json_row};
use schema::{ColumnKind, CqlType, TableDef, value};

use crate::bind::term::{Bind, Binder};

/// Bytes of JSON that are read in one work unit, at about 10 ns each.
const BYTES_PER_UNIT: usize = 10;

/// Text of an INSERT JSON that every execution reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonText {
    marker: usize,
    /// True if columns that it does not name stay unchanged.
    default_unset: bool,
}

/// Columns of an INSERT, by their indexes in the table's `columns`, with their values.
pub(crate) type Given = Vec<(usize, Bind)>;

/// Prepares the columns of an INSERT JSON.
pub(crate) fn columns(
    def: &TableDef,
    json: &ast::InsertJson,
    binder: &mut Binder,
) -> Result<(Given, Option<JsonText>), Error> {
    let default_unset = json.default_unset;
    if let ast::Term::Literal(ast::Literal::String(text)) = &json.value {
        return Ok((constants(def, text, default_unset, binder)?, None));
    }
    let Some(marker) = binder.bind("[json]", &CqlType::Text, &json.value)?.marker() else {
        return Err(Error::Invalid("expected a JSON string or a bind marker".into()));
    };
    let all = def.columns.iter().enumerate().map(|(at, column)| (at, binder.added(&column.name, &column.ty)));
    Ok((all.collect(), Some(JsonText { marker, default_unset })))
}

/// Reads the columns of a constant.
fn constants(def: &TableDef, text: &str, default_unset: bool, binder: &Binder) -> Result<Given, Error> {
    lanes::count(units(def, text.len()));
    let mut given = Vec::new();
    for (at, (column, value)) in def.columns.iter().zip(read(def, text)?).enumerate() {
        let is_key = matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering(..));
        let value = match value {
            JsonColumn::Missing if default_unset && is_key => return Err(unset_key(&column.name)),
            JsonColumn::Missing if default_unset => continue,
            JsonColumn::Missing | JsonColumn::Null => None,
            JsonColumn::Value(value) => Some(value),
        };
        if let Some(value) = value.as_deref().filter(|_| column.ty.is_collection()) {
            binder.check(Guardrail::CollectionElements, value::elements(value).count_left() as usize)?;
        }
        given.push((at, Bind::constant(&column.name, &column.ty, value)));
    }
    Ok(given)
}

fn unset_key(name: &str) -> Error {
    Error::Invalid(format!("Invalid unset value for column {name}"))
}

/// Returns the work units of reading a text.
fn units(def: &TableDef, bytes: usize) -> u32 {
    (bytes / BYTES_PER_UNIT + def.columns.len()) as u32
}

/// Returns the values of all columns of a table.
fn read(def: &TableDef, text: &str) -> Result<Vec<JsonColumn>, Error> {
    let columns = def.columns.iter().map(|column| (column.name.as_str(), &column.ty));
    from_json_row(columns, text).map_err(|error| Error::Invalid(error.to_string()))
}

impl JsonText {
    /// Returns the length of the text in bytes.
    pub(crate) fn bytes(&self, values: &[Value<'_>]) -> usize {
        match values.get(self.marker) {
            Some(Value::Bytes(text)) => text.len(),
            _ => 0,
        }
    }

    /// Reads the text of an execution. Returns the values of all columns of the table.
    pub(crate) fn read(&self, def: &TableDef, values: &[Value<'_>]) -> Result<Vec<JsonColumn>, Error> {
        match values[self.marker] {
            Value::Bytes(text) => {
                let text = std::str::from_utf8(text)
                    .map_err(|_| Error::Invalid("Invalid text value: it is not UTF-8".into()))?;
                let _ = lanes::spend(units(def, text.len()));
                read(def, text)
            }
            Value::Null => Err(Error::Invalid("Got null for INSERT JSON values".into())),
            Value::Unset => Err(Error::Invalid("Invalid unset value for column [json]".into())),
        }
    }

    /// Returns the value of a column for the statement.
    pub(crate) fn value<'v>(&self, column: &'v JsonColumn) -> Value<'v> {
        match column {
            JsonColumn::Missing if self.default_unset => Value::Unset,
            JsonColumn::Missing | JsonColumn::Null => Value::Null,
            JsonColumn::Value(value) => Value::Bytes(value),
        }
    }
}
