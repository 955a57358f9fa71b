//! Types that a statement refers to by name: user types in type hints and casts, and those of the
//! partition key as arguments of `token`.

use std::sync::Arc;

use cql::ast::TypeName;
use engine::Schema;
use schema::CqlType;

/// Source of the types of one statement.
#[derive(Clone, Default)]
pub(crate) struct Types {
    schema: Arc<Schema>,
    keyspace: Arc<str>,
    table: Arc<str>,
}

impl Types {
    /// Returns the types of a schema.
    pub(crate) fn of(schema: Arc<Schema>) -> Types {
        Types { schema, ..Types::default() }
    }

    /// Moves on to another table.
    pub(crate) fn about(&mut self, keyspace: &Arc<str>, table: &Arc<str>) {
        (self.keyspace, self.table) = (keyspace.clone(), table.clone());
    }

    /// Returns the keyspace of the statement's table.
    pub(crate) fn keyspace(&self) -> &str {
        &self.keyspace
    }

    /// Returns the types of the partition key. Those of virtual tables are unknown.
    pub(crate) fn partition_key(&self) -> Vec<CqlType> {
        let def = self.schema.table(&self.keyspace, &self.table);
        def.into_iter().flat_map(|def| def.partition_key()).map(|column| column.ty.clone()).collect()
    }

    /// Returns the type of a name. `None`: there is no such type. Types inside of others are not
    /// marked as frozen, because values of both forms have the same bytes.
    pub(crate) fn find(&self, name: &TypeName) -> Option<CqlType> {
        let boxed = |inner: &TypeName| self.find(inner).map(Box::new);
        Some(match name {
            TypeName::Native(ty) => ty.clone(),
            TypeName::List(element) => CqlType::List(boxed(element)?),
            TypeName::Set(element) => CqlType::Set(boxed(element)?),
            TypeName::Map(key, value) => CqlType::Map(boxed(key)?, boxed(value)?),
            TypeName::Tuple(types) => {
                CqlType::Tuple(types.iter().map(|ty| self.find(ty)).collect::<Option<_>>()?)
            }
            TypeName::Frozen(inner) => self.find(inner)?,
            TypeName::User(name) => {
                let keyspace = name.keyspace.as_deref().unwrap_or(&self.keyspace);
                let found = self.schema.keyspaces.get(keyspace)?.types.get(&name.name)?;
                CqlType::Udt(found.clone())
            }
            TypeName::Vector(element, dimension) => CqlType::Vector(boxed(element)?, *dimension),
            TypeName::Custom(_) => return None,
        })
    }

    /// Returns the full name of a user type in a type, if there is no such type.
    pub(crate) fn unknown(&self, name: &TypeName) -> Option<String> {
        match name {
            TypeName::List(inner)
            | TypeName::Set(inner)
            | TypeName::Frozen(inner)
            | TypeName::Vector(inner, _) => self.unknown(inner),
            TypeName::Map(key, value) => self.unknown(key).or_else(|| self.unknown(value)),
            TypeName::Tuple(types) => types.iter().find_map(|ty| self.unknown(ty)),
            TypeName::User(user) if self.find(name).is_none() => {
                let keyspace = user.keyspace.as_deref().unwrap_or(&self.keyspace);
                Some(format!("{keyspace}.{}", user.name))
            }
            TypeName::User(_) | TypeName::Native(_) | TypeName::Custom(_) => None,
        }
    }
}
