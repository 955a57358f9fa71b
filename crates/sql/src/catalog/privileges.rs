//! `has_table_privilege` and its like. Over SQL a role may read what it has SELECT on, and nothing
//! else: INSERT, CREATE and their like are false for all.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::BooleanArray;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::catalog::{CATALOG, Catalog, is_of_postgres, reads, shows};
use crate::failure::{refusal, state};

/// Kind of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ObjectKind {
    Table,
    Schema,
    Database,
}

impl ObjectKind {
    /// Returns the privileges on such an object: first those that a reader has.
    fn privileges(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            ObjectKind::Table => (
                &["SELECT"],
                &["INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN"],
            ),
            ObjectKind::Schema => (&["USAGE"], &["CREATE"]),
            ObjectKind::Database => (&["CONNECT"], &["CREATE", "TEMPORARY", "TEMP"]),
        }
    }
}

/// Functions by name, with the number of arguments between the object and the privilege.
const FUNCTIONS: [(&str, ObjectKind, usize); 5] = [
    ("has_table_privilege", ObjectKind::Table, 0),
    ("has_any_column_privilege", ObjectKind::Table, 0),
    ("has_column_privilege", ObjectKind::Table, 1),
    ("has_schema_privilege", ObjectKind::Schema, 0),
    ("has_database_privilege", ObjectKind::Database, 0),
];

/// Returns the functions for a session of `user`, whose tables without a keyspace are in `schema`.
pub(crate) fn functions(catalog: &Arc<Catalog>, user: &str, schema: &str) -> impl Iterator<Item = ScalarUDF> {
    FUNCTIONS.into_iter().map(move |(name, kind, between)| {
        ScalarUDF::new_from_impl(HasPrivilege {
            name,
            kind,
            between,
            user: user.to_owned(),
            schema: schema.to_owned(),
            catalog: catalog.clone(),
            signature: Signature::variadic_any(Volatility::Stable),
        })
    })
}

/// `has_…_privilege([user,] object, … privilege)`.
struct HasPrivilege {
    name: &'static str,
    kind: ObjectKind,
    between: usize,
    user: String,
    schema: String,
    catalog: Arc<Catalog>,
    signature: Signature,
}

impl HasPrivilege {
    fn identity(&self) -> (&str, &str, &str) {
        (self.name, &self.user, &self.schema)
    }

    /// Returns the value for the arguments of a row. `None`: null.
    fn of_row(&self, arguments: &[ScalarValue]) -> Result<Option<bool>> {
        if arguments.iter().any(ScalarValue::is_null) {
            return Ok(None);
        }
        let own = 2 + self.between;
        let arguments = match arguments.len() {
            n if n == own => arguments,
            n if n == own + 1 => {
                let user = text(&arguments[0]);
                if user.as_deref() != Some(&self.user) {
                    let text = format!("{} knows the privileges of the session's own role only", self.name);
                    return Err(refusal(state::UNSUPPORTED, text));
                }
                &arguments[1..]
            }
            n => {
                let text = format!("{} takes {own} or {} arguments, got {n}", self.name, own + 1);
                return Err(refusal(state::NO_FUNCTION, text));
            }
        };
        let reads = self.reads(&text(&arguments[own - 1]).unwrap_or_default())?;
        Ok(Some(self.is_visible(&arguments[0])? && reads))
    }

    /// Returns true if a list of privileges has one that readers have.
    fn reads(&self, list: &str) -> Result<bool> {
        let (of_readers, others) = self.kind.privileges();
        let mut reads = false;
        for privilege in list.split(',') {
            let upper = privilege.trim().to_uppercase();
            // No role grants over SQL.
            let (name, grants) = match upper.strip_suffix(" WITH GRANT OPTION") {
                Some(name) => (name, true),
                None => (&*upper, false),
            };
            if !of_readers.contains(&name) && !others.contains(&name) {
                let text = format!("unrecognized privilege type: \"{}\"", privilege.trim());
                return Err(refusal(state::INVALID, text));
            }
            reads |= of_readers.contains(&name) && !grants;
        }
        Ok(reads)
    }

    /// Returns true if the role may read an object. Numbers are those of rows in `pg_catalog`,
    /// which has only what the role sees.
    fn is_visible(&self, object: &ScalarValue) -> Result<bool> {
        let Some(name) = text(object) else { return Ok(true) };
        let parts: Vec<String> = name.split('.').map(unquoted).collect();
        let missing = |what: &str, code| Err(refusal(code, format!("{what} \"{name}\" does not exist")));
        match (self.kind, &parts[..]) {
            (ObjectKind::Database, [database]) if database == CATALOG => Ok(true),
            (ObjectKind::Database, _) => missing("database", state::NO_DATABASE),
            (ObjectKind::Schema, [schema]) if shows(schema) && self.has_schema(schema) => Ok(true),
            (ObjectKind::Schema, _) => missing("schema", state::NO_SCHEMA),
            (ObjectKind::Table, [table]) => self.sees(&self.schema, table, &name),
            (ObjectKind::Table, [.., keyspace, table]) => self.sees(keyspace, table, &name),
            (ObjectKind::Table, []) => missing("relation", state::NO_TABLE),
        }
    }

    fn has_schema(&self, name: &str) -> bool {
        is_of_postgres(name) || self.catalog.tables().has_keyspace(name)
    }

    fn sees(&self, keyspace: &str, table: &str, name: &str) -> Result<bool> {
        if is_of_postgres(keyspace) {
            return Ok(true);
        }
        let found = self.catalog.tables().table(keyspace, table).filter(|_| shows(keyspace));
        let Some(found) = found else {
            return Err(refusal(state::NO_TABLE, format!("relation \"{name}\" does not exist")));
        };
        Ok(reads(&found))
    }
}

/// Returns an identifier as PostgreSQL reads it: in lower case unless quoted.
fn unquoted(part: &str) -> String {
    let quoted = part.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    quoted.map_or_else(|| part.to_lowercase(), |inner| inner.replace("\"\"", "\""))
}

fn text(value: &ScalarValue) -> Option<String> {
    value.try_as_str().flatten().map(str::to_owned)
}

impl fmt::Debug for HasPrivilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for HasPrivilege {
    fn eq(&self, other: &HasPrivilege) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for HasPrivilege {}

impl Hash for HasPrivilege {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl ScalarUDFImpl for HasPrivilege {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&call.args)?;
        let of_row = |row| {
            let arguments: Result<Vec<ScalarValue>> =
                arrays.iter().map(|array| ScalarValue::try_from_array(array, row)).collect();
            self.of_row(&arguments?)
        };
        let rows = arrays.first().map_or(call.number_rows, |array| array.len());
        let values: Result<BooleanArray> = (0..rows).map(of_row).collect();
        Ok(ColumnarValue::Array(Arc::new(values?)))
    }
}
