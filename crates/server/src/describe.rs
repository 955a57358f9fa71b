//! DESCRIBE, which cqlsh leaves to the server: the schema as the statements that would make it. A
//! role is shown the keyspaces that it has any right on. Of another one it is not told whether it
//! exists.

use std::sync::Arc;

use access::Login;
use cql::ast::{DescribeTarget, QualifiedName, Statement as Tree};
use engine::{About, ColumnSpec, Columns, Engine, Error, Keyspace, Outcome, Rows, Schema};
use schema::CqlType;

use crate::core::{Core, Shared};
use crate::handshake::PARTITIONER;

/// A described thing: keyspace, kind, name, and the statement that makes it.
type Element = (String, &'static str, String, String);

/// Answers a DESCRIBE.
///
/// # Errors
/// The role is not shown its keyspace, or there is no such thing.
pub(crate) fn describe(
    core: &Core,
    login: &Login,
    tree: &Tree,
    session_keyspace: Option<&str>,
) -> Result<Outcome, Error> {
    let Tree::Describe(describe) = tree else { unreachable!("told apart when it was made ready") };
    let (engine, schema) = (&*core.engine, core.engine.schema());
    let viewer = core.access.viewer(login);
    let sees = |keyspace: &str| viewer.sees(About::Keyspace(keyspace));
    let check = |keyspace: &str| core.access.authorize_sight(login, keyspace);
    let all = Described { schema: &schema, engine, session: session_keyspace, sees: &sees, check: &check };
    let rows = match &describe.target {
        DescribeTarget::Cluster => cluster(&core.shared),
        DescribeTarget::Keyspaces => names(all.keyspaces().into_iter().map(|k| (k.clone(), "keyspace", k))),
        DescribeTarget::Tables => names(all.tables().into_iter().map(|(k, t)| (k, "table", t))),
        DescribeTarget::Types => names(all.types().into_iter().map(|(k, t)| (k, "type", t))),
        DescribeTarget::Functions | DescribeTarget::Aggregates => names(std::iter::empty()),
        DescribeTarget::Schema { full } => statements(all.whole(*full)),
        DescribeTarget::Keyspace { only, name } => {
            let name = name.as_deref().or(all.session).ok_or_else(no_keyspace)?;
            statements(all.keyspace(name, *only)?)
        }
        DescribeTarget::Table(name) => statements(vec![all.table(name)?]),
        DescribeTarget::Type(name) => statements(vec![all.user_type(name)?]),
        DescribeTarget::Function(name) => return Err(not_found("User defined function", name, all.session)),
        DescribeTarget::Aggregate(name) => {
            return Err(not_found("User defined aggregate", name, all.session));
        }
        DescribeTarget::Index(name) => return Err(not_found("Index", name, all.session)),
        DescribeTarget::MaterializedView(name) => {
            return Err(not_found("Materialized view", name, all.session));
        }
        DescribeTarget::Named(name) => statements(all.named(name)?),
    };
    Ok(Outcome::Rows(rows))
}

/// The schema, as DESCRIBE looks at it.
struct Described<'a> {
    schema: &'a Schema,
    engine: &'a dyn Engine,
    session: Option<&'a str>,
    /// Whether the role is shown a keyspace.
    sees: &'a dyn Fn(&str) -> bool,
    /// The same, with the error.
    check: &'a dyn Fn(&str) -> Result<(), Error>,
}

impl Described<'_> {
    fn keyspaces(&self) -> Vec<String> {
        let mut names: Vec<String> = self.schema.keyspaces.keys().cloned().collect();
        names.extend(self.engine.registry().all().iter().map(|table| table.def.keyspace.clone()));
        names.retain(|keyspace| (self.sees)(keyspace));
        names.sort();
        names.dedup();
        names
    }

    fn tables(&self) -> Vec<(String, String)> {
        let real = self.schema.keyspaces.values().flat_map(|k| k.tables.values().cloned());
        let virtual_ = self.engine.registry().all().into_iter().map(|table| table.def);
        let mut names: Vec<_> = real
            .chain(virtual_)
            .filter(|def| self.session.is_none_or(|keyspace| def.keyspace == keyspace))
            .filter(|def| (self.sees)(&def.keyspace))
            .map(|def| (def.keyspace.clone(), def.name.clone()))
            .collect();
        names.sort();
        names.dedup();
        names
    }

    fn types(&self) -> Vec<(String, String)> {
        let types = self.schema.keyspaces.values().flat_map(|k| k.types.values());
        types
            .filter(|udt| self.session.is_none_or(|keyspace| udt.keyspace == keyspace))
            .filter(|udt| (self.sees)(&udt.keyspace))
            .map(|udt| (udt.keyspace.clone(), udt.name.clone()))
            .collect()
    }

    fn whole(&self, full: bool) -> Vec<Element> {
        let wanted = self.schema.keyspaces.iter().filter(|(name, _)| full || !is_system(name));
        let shown = wanted.filter(|(name, _)| (self.sees)(name));
        shown.flat_map(|(_, keyspace)| elements(keyspace, false)).collect()
    }

    fn keyspace(&self, name: &str, only: bool) -> Result<Vec<Element>, Error> {
        (self.check)(name)?;
        if let Some(keyspace) = self.schema.keyspaces.get(name) {
            return Ok(elements(keyspace, only));
        }
        let tables = self.engine.registry().all();
        let own: Vec<Element> =
            tables.iter().filter(|t| t.def.keyspace == name).map(|t| virtual_element(&t.def)).collect();
        if own.is_empty() {
            return Err(Error::Invalid(format!("'{name}' not found in keyspaces")));
        }
        Ok(own)
    }

    fn table(&self, name: &QualifiedName) -> Result<Element, Error> {
        let keyspace = name.keyspace.as_deref().or(self.session).ok_or_else(no_keyspace)?;
        (self.check)(keyspace)?;
        if let Some(def) = self.schema.table(keyspace, &name.name) {
            return Ok(table_element(def));
        }
        match self.engine.registry().get(keyspace, &name.name) {
            Some(table) => Ok(virtual_element(&table.def)),
            None => Err(not_found("Table", name, self.session)),
        }
    }

    fn user_type(&self, name: &QualifiedName) -> Result<Element, Error> {
        let keyspace = name.keyspace.as_deref().or(self.session).ok_or_else(no_keyspace)?;
        (self.check)(keyspace)?;
        let found = self.schema.keyspaces.get(keyspace).and_then(|k| k.types.get(&name.name));
        let udt = found.ok_or_else(|| not_found("User defined type", name, self.session))?;
        Ok((udt.keyspace.clone(), "type", udt.name.clone(), cql::create_type(udt)))
    }

    /// A bare name: a keyspace, or a table of the session's.
    fn named(&self, name: &QualifiedName) -> Result<Vec<Element>, Error> {
        if name.keyspace.is_none()
            && let Ok(elements) = self.keyspace(&name.name, false)
        {
            return Ok(elements);
        }
        match self.table(name) {
            Ok(element) => return Ok(vec![element]),
            Err(error @ Error::Unauthorized(_)) => return Err(error),
            // The role sees the keyspace, or there is none to look in.
            Err(_) => {}
        }
        if name.keyspace.is_none() && self.session.is_none() {
            (self.check)(&name.name)?;
        }
        let text = match name.keyspace.as_deref().or(self.session) {
            Some(keyspace) => format!("'{}' not found in keyspace '{keyspace}'", name.name),
            None => format!("'{}' not found in keyspaces", name.name),
        };
        Err(Error::Invalid(text))
    }
}

fn no_keyspace() -> Error {
    Error::Invalid("No keyspace specified and no current keyspace".to_owned())
}

fn not_found(what: &str, name: &QualifiedName, session: Option<&str>) -> Error {
    match name.keyspace.as_deref().or(session) {
        Some(keyspace) => {
            Error::Invalid(format!("{what} '{}' not found in keyspace '{keyspace}'", name.name))
        }
        None => no_keyspace(),
    }
}

/// Whether a keyspace is the server's own.
fn is_system(keyspace: &str) -> bool {
    keyspace == "system" || keyspace.starts_with("system_")
}

/// A keyspace and what is in it: types before the tables that use them.
fn elements(keyspace: &Keyspace, only: bool) -> Vec<Element> {
    let name = &keyspace.def.name;
    let mut all = vec![(name.clone(), "keyspace", name.clone(), cql::create_keyspace(&keyspace.def))];
    if !only {
        for udt in types_in_order(keyspace) {
            all.push((name.clone(), "type", udt.name.clone(), cql::create_type(udt)));
        }
        all.extend(keyspace.tables.values().map(|def| table_element(def)));
    }
    all
}

/// User types, each after those it is made of. A type can only use types that were there before it,
/// so there is no circle, and each pass places at least one.
fn types_in_order(keyspace: &Keyspace) -> Vec<&Arc<schema::UdtType>> {
    let mut waiting: Vec<&Arc<schema::UdtType>> = keyspace.types.values().collect();
    let mut placed: Vec<&Arc<schema::UdtType>> = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let (free, bound): (Vec<_>, Vec<_>) = waiting.iter().partition(|udt| {
            let uses = |other: &Arc<schema::UdtType>| {
                let other = CqlType::Udt(other.clone());
                udt.fields.iter().any(|(_, ty)| ty.mentions(&other))
            };
            !waiting.iter().any(|other| other.name != udt.name && uses(other))
        });
        if free.is_empty() {
            placed.extend(bound);
            break;
        }
        placed.extend(free);
        waiting = bound;
    }
    placed
}

fn table_element(def: &schema::TableDef) -> Element {
    (def.keyspace.clone(), "table", def.name.clone(), cql::create_table(def))
}

/// A virtual table cannot be created, so its statement is a comment, as in Cassandra.
fn virtual_element(def: &schema::TableDef) -> Element {
    let text = format!(
        "/*\nWarning: Table {}.{} is a virtual table and cannot be recreated with CQL.\n\
         Structure, for reference:\n{}\n*/",
        def.keyspace,
        def.name,
        cql::create_table(def)
    );
    (def.keyspace.clone(), "table", def.name.clone(), text)
}

fn columns(names: &[&str]) -> Columns {
    let column = |name: &&str| ColumnSpec {
        keyspace: "system".into(),
        table: "describe".into(),
        name: (*name).to_owned(),
        ty: CqlType::Text,
    };
    names.iter().map(column).collect()
}

fn names(all: impl Iterator<Item = (String, &'static str, String)>) -> Rows {
    let mut rows = Rows::new(columns(&["keyspace_name", "type", "name"]));
    for (keyspace, kind, name) in all {
        [&keyspace, kind, &name].iter().for_each(|cell| rows.push(Some(cell.as_bytes())));
        rows.count += 1;
    }
    rows
}

fn statements(all: Vec<Element>) -> Rows {
    let mut rows = Rows::new(columns(&["keyspace_name", "type", "name", "create_statement"]));
    for (keyspace, kind, name, text) in &all {
        [keyspace, *kind, name, text].iter().for_each(|cell| rows.push(Some(cell.as_bytes())));
        rows.count += 1;
    }
    rows
}

fn cluster(shared: &Shared) -> Rows {
    let mut rows = Rows::new(columns(&["cluster", "partitioner", "snitch"]));
    let partitioner = PARTITIONER.rsplit('.').next().expect("a part after the last dot");
    for cell in [&*shared.config.cluster_name, partitioner, "SimpleSnitch"] {
        rows.push(Some(cell.as_bytes()));
    }
    rows.count = 1;
    rows
}
