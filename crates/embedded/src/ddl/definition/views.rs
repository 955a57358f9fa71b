//! CREATE, ALTER and DROP MATERIALIZED VIEW, and the changes of a table that concern its views.
//! Rules, their order and their texts are Cassandra's.

use std::collections::HashSet;
use std::sync::Arc;

use cql::ast::{self, CompareOp, InValues, Relation, SelectExpr, Selection};
use engine::{Error, Guardrails, Schema, SchemaTarget};
use schema::{
    ClusteringOrder, ColumnDef, ColumnKind, CqlType, KeyCondition, KeyTest, TableDef, TableOptions, ViewDef,
};

use super::step::{DefinitionStep, changed, no_keyspace, put_table, refused};
use super::table_options;
use super::view_checks::text_of;
use crate::bind::names::TableNames;
use crate::bind::restrict::{Purpose, restrict};
use crate::bind::term::{Bind, Binder};
use crate::bind::tuple::TupleBind;

fn invalid<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid(text.into()))
}

/// Checks that a view is in the keyspace of its table.
pub(crate) fn check_keyspace(create: &ast::CreateMaterializedView, keyspace: &str) -> Result<(), Error> {
    match &create.from.keyspace {
        Some(of_table) if of_table != keyspace => {
            invalid("Cannot create a materialized view on a table in a different keyspace")
        }
        _ => Ok(()),
    }
}

/// Creates a view. Its data has the version of the schema as its identity.
pub(super) fn create(
    mut schema: Schema,
    create: &ast::CreateMaterializedView,
    keyspace: &str,
) -> Result<Option<DefinitionStep>, Error> {
    check_keyspace(create, keyspace)?;
    let Some(found) = schema.keyspaces.get(keyspace) else { return Err(no_keyspace(keyspace)) };
    let (name, table) = (&create.name.name, &create.from.name);
    if create.properties.compact_storage {
        return Err(Error::Syntax("COMPACT STORAGE tables are not allowed starting with version 4.0".into()));
    }
    let mut seen = HashSet::new();
    if let Some((twice, _)) = create.properties.clustering_order.iter().find(|(name, _)| !seen.insert(name)) {
        return invalid(format!(
            "Duplicate column '{twice}' in CLUSTERING ORDER BY clause for view '{keyspace}.{name}'"
        ));
    }
    let Some(base) = found.tables.get(table).cloned() else {
        return invalid(format!("Base table '{table}' doesn't exist"));
    };
    if found.tables.contains_key(name) {
        return invalid(format!(
            "Cannot create materialized view '{name}' - a table with the same name already exists"
        ));
    }
    if found.view(name).is_some() {
        let error = Error::AlreadyExists { keyspace: keyspace.to_owned(), table: name.clone() };
        return if create.if_not_exists { Ok(None) } else { Err(error) };
    }
    if base.is_counter() {
        return invalid("Materialized views are not supported on counter tables");
    }
    if base.options.gc_grace_seconds == 0 {
        return invalid(format!(
            "Cannot create materialized view '{name}' for base table '{table}' with gc_grace_seconds of 0, since \
             this value is used to TTL undelivered updates. Setting gc_grace_seconds too low might cause undelivered \
             updates to expire before being replayed."
        ));
    }
    let view = new_view(&schema, &base, create)?;
    let mut def = TableDef::clone(&base);
    let at = def.views.partition_point(|other| other.name < view.name);
    def.views.insert(at, view);
    put_table(&mut schema, def)?;
    let mut step = changed(schema, "CREATED", SchemaTarget::Table, keyspace, name)?;
    // Its creator has the rights on the table.
    step.iter_mut().flat_map(|step| &mut step.change).for_each(|change| change.table_id = None);
    Ok(step)
}

fn new_view(
    schema: &Schema,
    base: &Arc<TableDef>,
    create: &ast::CreateMaterializedView,
) -> Result<ViewDef, Error> {
    let name = &create.name.name;
    let names = TableNames::of(base.clone());
    let selected = selected(&names, create)?;
    let (partition_key, clustering) = key(base, &selected, create)?;
    let binder = Binder::new(Arc::new(Guardrails::default()), 0).with_schema(Arc::new(schema.clone()));
    let conditions = conditions(&names, create, binder)?;
    let is_key = |id: &u32| partition_key.contains(id) || clustering.iter().any(|(key, _)| key == id);
    let others = match create.selection {
        Selection::All => None,
        Selection::Selectors(_) => {
            Some(selected.iter().map(|column| column.id).filter(|id| !is_key(id)).collect())
        }
    };
    let chosen = table_options::id(schema, &create.properties.options)?;
    let mut view = ViewDef {
        id: chosen.unwrap_or(schema.version),
        name: name.clone(),
        partition_key,
        clustering,
        others,
        where_clause: text_of(&create.relations),
        conditions,
        options: TableOptions::default(),
        data: schema.version,
        is_built: false,
    };
    view.options = options(&view, base, &create.properties)?;
    if view.options.default_time_to_live > 0 {
        return invalid(
            "Cannot set default_time_to_live for a materialized view. Data in a materialized view always expire at \
             the same time than the corresponding data in the parent table.",
        );
    }
    view.table(base).validate().map_err(refused)?;
    Ok(view)
}

/// Returns the options of a view with those of a statement.
fn options(view: &ViewDef, base: &TableDef, given: &ast::TableProperties) -> Result<TableOptions, Error> {
    let mut table = view.table(base);
    table_options::set(&mut table, &given.options)?;
    Ok(table.options)
}

/// Returns the selected columns, in the order of the statement.
fn selected<'d>(
    names: &'d TableNames,
    create: &ast::CreateMaterializedView,
) -> Result<Vec<&'d ColumnDef>, Error> {
    let columns: Vec<&ColumnDef> = match &create.selection {
        Selection::All => names.def.columns.iter().collect(),
        Selection::Selectors(selectors) => {
            let one = |selector: &ast::Selector| {
                if let Some(alias) = &selector.alias {
                    return invalid(format!(
                        "Cannot use aliases when defining a materialized view (got {} AS {alias})",
                        selector.expr
                    ));
                }
                let SelectExpr::Column(name) = &selector.expr else {
                    return invalid(format!(
                        "Can only select columns by name when defining a materialized view (got {})",
                        selector.expr
                    ));
                };
                names.find(name).map(|(_, column)| column)
            };
            selectors.iter().map(one).collect::<Result<_, _>>()?
        }
    };
    match columns.iter().find(|column| column.kind == ColumnKind::Static) {
        Some(column) => invalid(format!(
            "Cannot include static column '{}' in materialized view '{}'",
            column.name, create.name.name
        )),
        None => Ok(columns),
    }
}

/// Numbers of the columns of a view's key.
type ViewKeyColumns = (Vec<u32>, Vec<(u32, ClusteringOrder)>);

/// Returns the key of a view.
fn key(
    base: &TableDef,
    selected: &[&ColumnDef],
    create: &ast::CreateMaterializedView,
) -> Result<ViewKeyColumns, Error> {
    let view = &create.name.name;
    let mut seen = HashSet::new();
    for name in create.partition_key.iter().chain(&create.clustering) {
        let Some(column) = selected.iter().find(|column| column.name == *name) else {
            return invalid(format!(
                "Unknown column '{name}' referenced in PRIMARY KEY for materialized view '{view}'"
            ));
        };
        if !seen.insert(name) {
            return invalid(format!(
                "Duplicate column '{name}' in PRIMARY KEY clause for materialized view '{view}'"
            ));
        }
        check_key_type(column)?;
    }
    let order = &create.properties.clustering_order;
    if !order.is_empty() && !order.iter().map(|(name, _)| name).eq(&create.clustering) {
        return invalid("Clustering key columns must exactly match columns in CLUSTERING ORDER BY directive");
    }
    let is_key =
        |column: &&ColumnDef| matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering(..));
    let missing: Vec<&str> = base
        .columns
        .iter()
        .filter(is_key)
        .map(|column| column.name.as_str())
        .filter(|name| !seen.iter().any(|seen| seen == name))
        .collect();
    if !missing.is_empty() {
        return invalid(format!(
            "Cannot create materialized view '{view}' without primary key columns {} from base table '{}'",
            missing.join(", "),
            base.name
        ));
    }
    let column = |name: &String| base.column(name).map(|(_, column)| column).expect("it is selected");
    let all = create.partition_key.iter().chain(&create.clustering);
    let others: Vec<&str> =
        all.map(column).filter(|column| !is_key(column)).map(|column| column.name.as_str()).collect();
    if others.len() > 1 {
        return invalid(format!(
            "Cannot include more than one non-primary key column in materialized view primary key (got {})",
            others.join(", ")
        ));
    }
    let order_of = |name: &String| {
        let given = order.iter().find(|(named, _)| named == name).map(|(_, order)| *order);
        given.unwrap_or(match column(name).kind {
            ColumnKind::Clustering(_, order) => order,
            _ => ClusteringOrder::Asc,
        })
    };
    let partition = create.partition_key.iter().map(|name| column(name).id).collect();
    let clustering = create.clustering.iter().map(|name| (column(name).id, order_of(name))).collect();
    Ok((partition, clustering))
}

fn check_key_type(column: &ColumnDef) -> Result<(), Error> {
    let (name, ty) = (&column.name, &column.ty);
    if ty.is_multi_cell() {
        let what = if ty.is_collection() { "collection" } else { "user-defined" };
        return invalid(format!(
            "Invalid non-frozen {what} type '{}' for PRIMARY KEY column '{name}'",
            ty.class_name()
        ));
    }
    if ty.mentions(&CqlType::Duration) {
        return invalid(format!("duration type is not supported for PRIMARY KEY column '{name}'"));
    }
    Ok(())
}

/// Returns the conditions of the WHERE other than `IS NOT NULL`.
fn conditions(
    names: &TableNames,
    create: &ast::CreateMaterializedView,
    mut binder: Binder,
) -> Result<Vec<KeyCondition>, Error> {
    let relations = &create.relations;
    if relations.iter().any(|relation| matches!(relation, Relation::Token { .. })) {
        return invalid("Cannot use token relation when defining a materialized view");
    }
    let mut restricted = HashSet::new();
    for relation in relations {
        for column in relation.columns() {
            names.find(column)?;
            restricted.insert(column.clone());
        }
    }
    let is_condition = |relation: &&Relation| !matches!(relation, Relation::IsNotNull { .. });
    let given: Vec<Relation> = relations.iter().filter(is_condition).cloned().collect();
    let purpose = Purpose::Select { statics: false, allow_filtering: true };
    restrict(names, &given, &mut binder, purpose)?;
    let key = create.partition_key.iter().chain(&create.clustering);
    let free: Vec<&str> = key.filter(|name| !restricted.contains(*name)).map(String::as_str).collect();
    if !free.is_empty() {
        return invalid(format!(
            "Primary key columns {} must be restricted with 'IS NOT NULL' or otherwise",
            free.join(", ")
        ));
    }
    let mut others = Vec::new();
    for relation in &given {
        for name in relation.columns() {
            let (_, column) = names.find(name)?;
            if !matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering(..)) {
                others.push(name.clone());
            }
        }
    }
    if !others.is_empty() {
        others.dedup();
        return invalid(format!(
            "Non-primary key columns can only be restricted with 'IS NOT NULL' (got: {} restricted illegally)",
            others.join(",")
        ));
    }
    given.iter().map(|relation| condition(names, relation, &mut binder)).collect()
}

/// Returns a relation with its values.
fn condition(names: &TableNames, relation: &Relation, binder: &mut Binder) -> Result<KeyCondition, Error> {
    let value = |bind: &Bind| bind.required(&[]).map(|bytes| vec![bytes.into_owned()]);
    let tuple = |bind: &TupleBind| {
        let null = |column: &str| format!("Invalid null value in condition for column {column}");
        let values = bind.required(&[], null)?;
        Ok::<_, Error>(values.into_iter().map(|value| value.into_owned()).collect::<Vec<_>>())
    };
    let of = |column: &ColumnDef, test, values| KeyCondition { columns: vec![column.id], test, values };
    match relation {
        Relation::Compare { column, op, value: term } => {
            let (_, column) = names.find(column)?;
            let bind = binder.bind(&column.name, &column.ty, term)?;
            Ok(of(column, test_of(*op), vec![value(&bind)?]))
        }
        Relation::In { column, values: InValues::List(terms) } => {
            let (_, column) = names.find(column)?;
            let binds = binder.bind_all(&column.name, &column.ty, terms)?;
            Ok(of(column, KeyTest::In, binds.iter().map(value).collect::<Result<_, _>>()?))
        }
        Relation::Contains { column, value: term } | Relation::ContainsKey { column, key: term } => {
            let (_, column) = names.find(column)?;
            let inner = column.ty.thawed().inner();
            let as_key = matches!(relation, Relation::ContainsKey { .. });
            let ty = if as_key { inner.first() } else { inner.last() };
            let Some(ty) = ty else { return invalid(format!("Unsupported restriction: {relation}")) };
            let bind = binder.bind(&column.name, ty, term)?;
            let test = if as_key { KeyTest::ContainsKey } else { KeyTest::Contains };
            Ok(of(column, test, vec![value(&bind)?]))
        }
        Relation::Tuple { columns, .. } | Relation::TupleIn { columns, .. } => {
            let found = columns.iter().map(|name| names.find(name).map(|(_, column)| column.clone()));
            let defs: Vec<ColumnDef> = found.collect::<Result<_, _>>()?;
            let shared: Arc<[String]> = columns.clone().into();
            let one = std::slice::from_ref;
            let (test, terms) = match relation {
                Relation::Tuple { op, value, .. } => (test_of(*op), one(value)),
                Relation::TupleIn { values: InValues::List(terms), .. } => (KeyTest::In, &terms[..]),
                _ => return invalid(format!("Unsupported restriction: {relation}")),
            };
            let mut values = Vec::with_capacity(terms.len());
            for term in terms {
                values.push(tuple(&TupleBind::of(&defs, &shared, term, binder)?)?);
            }
            Ok(KeyCondition { columns: defs.iter().map(|column| column.id).collect(), test, values })
        }
        _ => invalid(format!("Unsupported restriction: {relation}")),
    }
}

fn test_of(op: CompareOp) -> KeyTest {
    match op {
        CompareOp::Eq | CompareOp::NotEq => KeyTest::In,
        CompareOp::Less => KeyTest::Less,
        CompareOp::LessEq => KeyTest::LessEq,
        CompareOp::Greater => KeyTest::Greater,
        CompareOp::GreaterEq => KeyTest::GreaterEq,
    }
}

/// Changes the options of a view.
pub(super) fn alter(
    mut schema: Schema,
    alter: &ast::AlterMaterializedView,
    keyspace: &str,
) -> Result<Option<DefinitionStep>, Error> {
    let name = &alter.name.name;
    let Some((base, view)) = schema.view(keyspace, name) else {
        return missing(keyspace, name, alter.if_exists);
    };
    table_options::check_altered(&alter.properties)?;
    let options = options(view, base, &alter.properties)?;
    if options.gc_grace_seconds == 0 {
        return invalid(
            "Cannot alter gc_grace_seconds of a materialized view to 0, since this value is used to TTL undelivered \
             updates. Setting gc_grace_seconds too low might cause undelivered updates to expire before being \
             replayed.",
        );
    }
    if options.default_time_to_live > 0 {
        return invalid(
            "Forbidden default_time_to_live detected for a materialized view. Data in a materialized view always \
             expire at the same time than the corresponding data in the parent table. default_time_to_live must be \
             set to zero, see CASSANDRA-12868 for more information",
        );
    }
    if options == view.options {
        return Ok(None);
    }
    let mut def = TableDef::clone(base);
    def.views.iter_mut().filter(|view| view.name == *name).for_each(|view| view.options = options.clone());
    put_table(&mut schema, def)?;
    changed(schema, "UPDATED", SchemaTarget::Table, keyspace, name)
}

/// Drops a view, and its data.
pub(super) fn drop(
    mut schema: Schema,
    drop: &ast::DropObject,
    keyspace: &str,
) -> Result<Option<DefinitionStep>, Error> {
    let name = &drop.name.name;
    let Some((base, view)) = schema.view(keyspace, name) else {
        return missing(keyspace, name, drop.if_exists);
    };
    let data = view.data;
    let mut def = TableDef::clone(base);
    def.views.retain(|view| view.name != *name);
    put_table(&mut schema, def)?;
    let mut step = changed(schema, "DROPPED", SchemaTarget::Table, keyspace, name)?;
    step.iter_mut().for_each(|step| step.dropped_indexes = vec![data]);
    Ok(step)
}

fn missing(keyspace: &str, name: &str, if_exists: bool) -> Result<Option<DefinitionStep>, Error> {
    match if_exists {
        true => Ok(None),
        false => invalid(format!("Materialized view '{keyspace}.{name}' doesn't exist")),
    }
}
