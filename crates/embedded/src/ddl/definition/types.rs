//! User types: created, altered and dropped, and resolved in the types of columns.
//!
//! A definition contains the types it uses in full, so that reading values needs no lookup. An
//! altered type therefore replaces its old version in every table and every other type of its
//! keyspace at once. Types of other keyspaces cannot be used.

use std::sync::Arc;

use cql::ast::{self, QualifiedName, TypeChange, TypeName};
use engine::{Error, Schema, SchemaTarget};
use schema::types::ClassError;
use schema::{ColumnDef, ColumnKind, CqlType, IndexDef, TableDef, UdtType, ViewDef};

use super::step::{DefinitionStep, changed, no_keyspace};

fn invalid<T>(text: String) -> Result<T, Error> {
    Err(Error::Invalid(text))
}

/// Adds a type to the schema. `None`: it exists, and the statement has `IF NOT EXISTS`.
pub(super) fn create(
    mut schema: Schema,
    create: &ast::CreateType,
    keyspace: &str,
) -> Result<Option<DefinitionStep>, Error> {
    let Some(found) = schema.keyspaces.get(keyspace) else { return Err(no_keyspace(keyspace)) };
    let name = &create.name.name;
    if found.types.contains_key(name) {
        return match create.if_not_exists {
            true => Ok(None),
            false => invalid(format!("A user type with name '{name}' already exists")),
        };
    }
    let field = |(field, ty): &(String, TypeName)| {
        check_field(ty)?;
        Ok((field.clone(), resolve(&schema, keyspace, ty)?))
    };
    let fields = create.fields.iter().map(field).collect::<Result<_, Error>>()?;
    let udt = UdtType::new(keyspace, name, fields);
    put(&mut schema, udt)?;
    changed(schema, "CREATED", SchemaTarget::Type, keyspace, name)
}

/// Alters a type wherever it is used. `None`: there is nothing to do.
pub(super) fn alter(
    mut schema: Schema,
    alter: &ast::AlterType,
    keyspace: &str,
) -> Result<Option<DefinitionStep>, Error> {
    let name = &alter.name.name;
    let Some(old) = schema.keyspaces.get(keyspace).and_then(|k| k.types.get(name)) else {
        return match alter.if_exists {
            true => Ok(None),
            false => invalid(format!("Type {keyspace}.{name} doesn't exist")),
        };
    };
    let mut udt = UdtType::clone(old);
    match &alter.change {
        TypeChange::Add { if_not_exists, field, ty } => {
            if udt.fields.iter().any(|(known, _)| known == field) {
                return match if_not_exists {
                    true => Ok(None),
                    false => invalid(format!(
                        "Cannot add field {field} to type {keyspace}.{name}: a field with name {field} already exists"
                    )),
                };
            }
            check_field(ty)?;
            let raw = ty;
            let ty = resolve(&schema, keyspace, ty)?;
            let alone = UdtType::new(keyspace, name, vec![(field.clone(), ty.clone())]);
            alone.validate().map_err(|e| Error::Invalid(e.to_string()))?;
            let adding = format!(
                "Cannot add new field {field} of type {} to user type {keyspace}.{name} as",
                qualified(raw, keyspace)
            );
            if ty.mentions_user_type(keyspace, name) {
                return invalid(format!("{adding} it would create a circular reference"));
            }
            let uses = |ty: &CqlType| ty.mentions_user_type(keyspace, name);
            let tables = tables_with(&schema, keyspace, |column| {
                matches!(column.kind, ColumnKind::PartitionKey(_)) && uses(&column.ty)
            });
            if !tables.is_empty() {
                return invalid(format!(
                    "{adding} the type is being used in partition key by the following tables: {}",
                    listed(keyspace, &tables)
                ));
            }
            let tables = tables_with(&schema, keyspace, |column| key_type(column).is_some_and(uses));
            if !udt.is_extensible && !tables.is_empty() {
                return invalid(format!(
                    "{adding} an earlier version has written values of it without an end into keys of the \
                     following tables: {}; copy their rows to tables with a new type",
                    listed(keyspace, &tables)
                ));
            }
            let has_index = |def: &&Arc<TableDef>| {
                let of = |index: &IndexDef| def.column(&index.column).is_some_and(|(_, c)| uses(&c.ty));
                let in_view_key = |view: &ViewDef| {
                    let is_key = |column: &&ColumnDef| view.key_kind(column.id).is_some();
                    def.columns.iter().filter(is_key).any(|column| uses(&column.ty))
                };
                def.indexes.iter().any(of) || def.views.iter().any(in_view_key)
            };
            let mut indexed = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
            if !udt.is_extensible
                && let Some(def) = indexed.find(has_index)
            {
                return invalid(format!(
                    "{adding} an earlier version has made it without an end, and an index or view of table {} has \
                     values of it: drop that first",
                    def.name
                ));
            }
            udt.is_extensible = true;
            udt.fields.push((field.clone(), ty));
        }
        TypeChange::Rename { if_exists, fields } => {
            for (from, to) in fields {
                match old.fields.iter().position(|(known, _)| known == from) {
                    Some(at) => udt.fields[at].0.clone_from(to),
                    None if *if_exists => {}
                    None => return invalid(format!("Unkown field {from} in user type {keyspace}.{name}")),
                }
            }
            for (at, (field, _)) in udt.fields.iter().enumerate() {
                if udt.fields[..at].iter().any(|(earlier, _)| earlier == field) {
                    // Cassandra's text, which names the keyspace.
                    return invalid(format!("Duplicate field name {field} in type {keyspace}"));
                }
            }
        }
        TypeChange::Type { .. } => return invalid("Altering field types is no longer supported".into()),
    }
    if udt == **old {
        return Ok(None);
    }
    put(&mut schema, udt)?;
    changed(schema, "UPDATED", SchemaTarget::Type, keyspace, name)
}

/// Removes an unused type from the schema. `None`: it does not exist, and the statement has
/// `IF EXISTS`.
pub(super) fn drop(
    mut schema: Schema,
    drop: &ast::DropObject,
    keyspace: &str,
) -> Result<Option<DefinitionStep>, Error> {
    let name = &drop.name.name;
    let found = schema.keyspaces.get(keyspace).filter(|found| found.types.contains_key(name));
    let Some(found) = found else {
        return match drop.if_exists {
            true => Ok(None),
            false => invalid(format!("Type '{keyspace}.{name}' doesn't exist")),
        };
    };
    let still = |by: String| {
        invalid(format!("Cannot drop user type '{keyspace}.{name}' as it is still used by {by}"))
    };
    let uses = |udt: &&Arc<UdtType>| udt.fields.iter().any(|(_, ty)| ty.mentions_user_type(keyspace, name));
    let types: Vec<&str> = found.types.values().filter(uses).map(|udt| udt.name.as_str()).collect();
    if !types.is_empty() {
        return still(format!("user types {}", types.join(", ")));
    }
    let tables = tables_with(&schema, keyspace, |column| column.ty.mentions_user_type(keyspace, name));
    if !tables.is_empty() {
        return still(format!("tables {}", tables.join(", ")));
    }
    if let Some(found) = schema.keyspaces.get_mut(keyspace) {
        Arc::make_mut(found).types.remove(name);
    }
    changed(schema, "DROPPED", SchemaTarget::Type, keyspace, name)
}

/// Checks that a field has a type of one cell, before the names in that type are resolved.
fn check_field(ty: &TypeName) -> Result<(), Error> {
    match ty {
        TypeName::User(_) => invalid("A user type cannot contain non-frozen UDTs".into()),
        TypeName::Native(CqlType::Counter) => invalid("A user type cannot contain counters".into()),
        _ => Ok(()),
    }
}

/// Returns true if a column of the type would have a collection of many cells in each value.
pub(super) fn has_open_field(ty: &CqlType) -> bool {
    matches!(ty, CqlType::Udt(udt) if udt.fields.iter().any(|(_, field)| field.is_multi_cell()))
}

/// Returns the names of the tables with such a column.
fn tables_with<'s>(schema: &'s Schema, keyspace: &str, uses: impl Fn(&ColumnDef) -> bool) -> Vec<&'s str> {
    let Some(found) = schema.keyspaces.get(keyspace) else { return Vec::new() };
    let tables = found.tables.values().filter(|def| def.columns.iter().any(&uses));
    tables.map(|def| def.name.as_str()).collect()
}

/// Returns a list of tables with their keyspace, as text.
fn listed(keyspace: &str, tables: &[&str]) -> String {
    let names: Vec<String> = tables.iter().map(|table| format!("{keyspace}.{table}")).collect();
    names.join(", ")
}

/// Returns the type of the values of a column that are stored in key encoding: clustering keys, and
/// the keys of elements.
fn key_type(column: &ColumnDef) -> Option<&CqlType> {
    match (&column.kind, &column.ty) {
        (ColumnKind::Clustering(..), ty) => Some(ty),
        (ColumnKind::Static | ColumnKind::Regular, CqlType::Set(key) | CqlType::Map(key, _)) => Some(key),
        _ => None,
    }
}

/// Puts a type into its keyspace, and replaces every use of that type there.
fn put(schema: &mut Schema, udt: UdtType) -> Result<(), Error> {
    udt.validate().map_err(|e| Error::Invalid(e.to_string()))?;
    let Some(found) = schema.keyspaces.get_mut(&udt.keyspace) else { return Err(no_keyspace(&udt.keyspace)) };
    let keyspace = Arc::make_mut(found);
    let udt = Arc::new(udt);
    let uses = |ty: &CqlType| ty.mentions_user_type(&udt.keyspace, &udt.name);
    for other in keyspace.types.values_mut().filter(|other| other.fields.iter().any(|(_, ty)| uses(ty))) {
        let with = other.with_user_type(&udt);
        with.validate().map_err(|e| Error::Invalid(e.to_string()))?;
        *other = Arc::new(with);
    }
    for def in keyspace.tables.values_mut().filter(|def| def.columns.iter().any(|c| uses(&c.ty))) {
        let def = Arc::make_mut(def);
        for column in &mut def.columns {
            column.ty = column.ty.with_user_type(&udt);
        }
        def.validate().map_err(|e| Error::Invalid(e.to_string()))?;
    }
    keyspace.types.insert(udt.name.clone(), udt);
    Ok(())
}

/// Returns the type with the keyspace before each user type, as Cassandra shows it in errors.
fn qualified(ty: &TypeName, keyspace: &str) -> TypeName {
    let boxed = |inner: &TypeName| Box::new(qualified(inner, keyspace));
    match ty {
        TypeName::User(name) => {
            TypeName::User(QualifiedName { keyspace: Some(keyspace.to_owned()), name: name.name.clone() })
        }
        TypeName::Frozen(inner) => TypeName::Frozen(boxed(inner)),
        TypeName::List(element) => TypeName::List(boxed(element)),
        TypeName::Set(element) => TypeName::Set(boxed(element)),
        TypeName::Map(key, value) => TypeName::Map(boxed(key), boxed(value)),
        TypeName::Tuple(types) => TypeName::Tuple(types.iter().map(|ty| qualified(ty, keyspace)).collect()),
        other => other.clone(),
    }
}

/// Resolves the names in a type, for a definition in `keyspace`.
pub(super) fn resolve(schema: &Schema, keyspace: &str, ty: &TypeName) -> Result<CqlType, Error> {
    check_nested(ty)?;
    resolve_names(schema, keyspace, ty)
}

/// Checks that collections of many cells have elements of one cell. The error shows the type as it
/// is written.
fn check_nested(ty: &TypeName) -> Result<(), Error> {
    let inner = match ty {
        TypeName::List(element) | TypeName::Set(element) => vec![element],
        TypeName::Map(key, value) => vec![value, key],
        _ => return Ok(()),
    };
    let what = inner.into_iter().find_map(|inner| match **inner {
        TypeName::List(_) | TypeName::Set(_) | TypeName::Map(..) => Some("collections"),
        TypeName::User(_) => Some("UDTs"),
        _ => None,
    });
    match what {
        Some(what) => invalid(format!("Non-frozen {what} are not allowed inside collections: {ty}")),
        None => Ok(()),
    }
}

fn resolve_names(schema: &Schema, keyspace: &str, ty: &TypeName) -> Result<CqlType, Error> {
    let boxed = |inner: &TypeName| resolve_names(schema, keyspace, inner).map(Box::new);
    Ok(match ty {
        TypeName::Native(native) => native.clone(),
        TypeName::List(e) => CqlType::List(boxed(e)?),
        TypeName::Set(e) => CqlType::Set(boxed(e)?),
        TypeName::Map(k, v) => CqlType::Map(boxed(k)?, boxed(v)?),
        TypeName::Tuple(parts) => {
            let part = |part| resolve_names(schema, keyspace, part).map(frozen_within);
            CqlType::Tuple(parts.iter().map(part).collect::<Result<_, _>>()?)
        }
        TypeName::Frozen(inner) => frozen_within(resolve_names(schema, keyspace, inner)?),
        TypeName::User(name) => {
            let of = name.keyspace.as_deref().unwrap_or(keyspace);
            if of != keyspace {
                return invalid(format!(
                    "Statement on keyspace {keyspace} cannot refer to a user type in keyspace {of}; \
                     user types can only be used in the keyspace they are defined in"
                ));
            }
            match schema.keyspaces.get(keyspace).and_then(|k| k.types.get(&name.name)) {
                Some(udt) => CqlType::Udt(udt.clone()),
                None => return invalid(format!("Unknown type {keyspace}.{}", name.name)),
            }
        }
        // Its elements are single values, but not shown as frozen, as in Cassandra.
        TypeName::Vector(element, dimension) => CqlType::Vector(boxed(element)?, *dimension),
        TypeName::Custom(class) => custom(schema, class)?,
    })
}

/// Resolves the class of a CQL type. User types in it must be those of their keyspace.
fn custom(schema: &Schema, class: &str) -> Result<CqlType, Error> {
    let wrong = |error: ClassError| Error::Syntax(format!("Error setting type {class}: {error}"));
    let ty = CqlType::from_class(class).map_err(wrong)?;
    if has_foreign_types(schema, &ty) {
        return invalid(format!("A user type in '{class}' is none of its keyspace: write its name instead"));
    }
    Ok(ty)
}

fn has_foreign_types(schema: &Schema, ty: &CqlType) -> bool {
    let is_foreign = match ty {
        CqlType::Udt(udt) => {
            let known = schema.keyspaces.get(&udt.keyspace).and_then(|k| k.types.get(&udt.name));
            known.is_none_or(|known| known != udt)
        }
        _ => false,
    };
    is_foreign || ty.inner().into_iter().any(|inner| has_foreign_types(schema, inner))
}

/// Returns the type as one cell: everything inside `frozen<>` and tuples is frozen, and displayed
/// so, as in Cassandra.
fn frozen_within(ty: CqlType) -> CqlType {
    let boxed = |inner: CqlType| Box::new(frozen_within(inner));
    let inside = match ty {
        CqlType::List(e) => CqlType::List(boxed(*e)),
        CqlType::Set(e) => CqlType::Set(boxed(*e)),
        CqlType::Map(k, v) => CqlType::Map(boxed(*k), boxed(*v)),
        CqlType::Udt(udt) => CqlType::Udt(udt),
        // Tuples are frozen implicitly. Frozen types and scalars stay unchanged.
        other => return other,
    };
    CqlType::Frozen(Box::new(inside))
}
