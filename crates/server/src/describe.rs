//! DESCRIBE, which cqlsh leaves to the server: the schema as the statements that would make it. A
//! role is shown the keyspaces that it has any right on. Of another one it is not told whether it
//! exists.
//!
//! 1. Definitions are looked up, and rights on them are checked, at once.
//! 2. Rows of few definitions are made at once as well, of many on the heavy lane, one at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::Login;
use cql::ast::{DescribeTarget, QualifiedName, Statement as Tree};
use engine::{About, ColumnSpec, Columns, Error, Keyspace, Outcome, Rows, Schema, Viewer};
use schema::{CqlType, TableDef, UdtType};

use crate::core::{Core, Shared};
use crate::handshake::PARTITIONER;
use crate::request::Later;

/// Columns, fields and names of which rows are made on the fast lane. One takes about 150 ns.
const INLINE_PARTS: usize = 300;

/// The answer to a DESCRIBE.
pub(crate) enum Answer {
    Now(Result<Outcome, Error>),
    Later(Later),
}

/// Answers a DESCRIBE. The answer is an error if the role is not shown the keyspace, or there is no such thing.
pub(crate) fn describe(core: &Core, login: &Login, tree: &Tree, session_keyspace: Option<&str>) -> Answer {
    let Tree::Describe(describe) = tree else { unreachable!("told apart when it was made ready") };
    if describe.target == DescribeTarget::Cluster {
        return Answer::Now(Ok(Outcome::Rows(cluster(&core.shared))));
    }
    let check = |keyspace: &str| core.access.authorize_sight(login, keyspace);
    let all = Described {
        schema: core.engine.schema(),
        virtual_tables: core.engine.registry().all().into_iter().map(|table| table.def).collect(),
        session: session_keyspace.map(str::to_owned),
        viewer: core.access.viewer(login),
    };
    let wanted = match all.wanted(&describe.target, &check) {
        Ok(wanted) => wanted,
        Err(error) => return Answer::Now(Err(error)),
    };
    let parts = all.parts(&wanted);
    if parts <= INLINE_PARTS {
        let _ = lanes::spend(parts as u32);
        let mut rows = wanted.no_rows();
        all.elements(&wanted).for_each(|element| push(&mut rows, &element));
        return Answer::Now(Ok(Outcome::Rows(rows)));
    }
    let make = async move {
        let mut rows = wanted.no_rows();
        for element in all.elements(&wanted) {
            push(&mut rows, &element);
            lanes::heavy_yield().await;
        }
        Ok(Outcome::Rows(rows))
    };
    Answer::Later(Box::pin(lanes::heavy(lanes::current_group(), make)))
}

/// A row of the answer: keyspace, kind, name, and the statement that makes it where that is wanted.
type Element = (String, &'static str, String, Option<String>);

/// What is described.
enum Wanted {
    /// Names of things of one kind.
    Names(Kind),
    /// Definitions.
    Items(Vec<Item>),
}

/// Kinds of which the names are listed.
#[derive(Clone, Copy)]
enum Kind {
    Keyspace,
    Table,
    Type,
    /// There are none.
    Function,
}

/// A definition.
enum Item {
    /// A keyspace with what is in it, or only itself.
    Keyspace {
        keyspace: Arc<Keyspace>,
        only: bool,
    },
    Table(Arc<TableDef>),
    VirtualTable(Arc<TableDef>),
    Type(Arc<UdtType>),
}

impl Wanted {
    fn no_rows(&self) -> Rows {
        Rows::new(match self {
            Wanted::Names(_) => columns(&["keyspace_name", "type", "name"]),
            Wanted::Items(_) => columns(&["keyspace_name", "type", "name", "create_statement"]),
        })
    }
}

impl Item {
    /// Columns and fields in it, definition by definition.
    fn parts(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        let one = |parts: usize| Box::new(std::iter::once(1 + parts));
        match self {
            Item::Keyspace { only: true, .. } => one(0),
            Item::Keyspace { keyspace, .. } => {
                let tables = keyspace.tables.values().map(|def| 1 + def.columns.len());
                Box::new(tables.chain(keyspace.types.values().map(|udt| 1 + udt.fields.len())))
            }
            Item::Table(def) | Item::VirtualTable(def) => one(def.columns.len()),
            Item::Type(udt) => one(udt.fields.len()),
        }
    }

    /// A keyspace before what is in it, types before the tables that use them.
    fn elements(&self) -> Box<dyn Iterator<Item = Element> + Send + '_> {
        match self {
            Item::Keyspace { keyspace, only } => {
                let name = &keyspace.def.name;
                let text = cql::create_keyspace(&keyspace.def);
                let own = (name.clone(), "keyspace", name.clone(), Some(text));
                let inside = (!only).then_some(keyspace).into_iter().flat_map(|keyspace| {
                    let types = types_in_order(keyspace).into_iter().map(|udt| type_element(udt));
                    types.chain(keyspace.tables.values().map(|def| table_element(def)))
                });
                Box::new(std::iter::once(own).chain(inside))
            }
            Item::Table(def) => Box::new(std::iter::once(table_element(def))),
            Item::VirtualTable(def) => Box::new(std::iter::once(virtual_element(def))),
            Item::Type(udt) => Box::new(std::iter::once(type_element(udt))),
        }
    }
}

/// The schema, as DESCRIBE reads it.
struct Described {
    schema: Arc<Schema>,
    virtual_tables: Vec<Arc<TableDef>>,
    session: Option<String>,
    /// Decides which keyspaces the role is shown.
    viewer: Arc<dyn Viewer>,
}

/// Checks whether the role is shown a keyspace.
type Check<'a> = dyn Fn(&str) -> Result<(), Error> + 'a;

impl Described {
    /// Looks a target up.
    fn wanted(&self, target: &DescribeTarget, check: &Check<'_>) -> Result<Wanted, Error> {
        let items = match target {
            DescribeTarget::Cluster => unreachable!("it is no part of the schema"),
            DescribeTarget::Keyspaces => return Ok(Wanted::Names(Kind::Keyspace)),
            DescribeTarget::Tables => return Ok(Wanted::Names(Kind::Table)),
            DescribeTarget::Types => return Ok(Wanted::Names(Kind::Type)),
            DescribeTarget::Functions | DescribeTarget::Aggregates => {
                return Ok(Wanted::Names(Kind::Function));
            }
            DescribeTarget::Schema { full } => self.whole(*full),
            DescribeTarget::Keyspace { only, name } => {
                let name = name.as_deref().or(self.session.as_deref()).ok_or_else(no_keyspace)?;
                self.keyspace(name, *only, check)?
            }
            DescribeTarget::Table(name) => vec![self.table(name, check)?],
            DescribeTarget::Type(name) => vec![self.user_type(name, check)?],
            DescribeTarget::Function(name) => return Err(self.not_found("User defined function", name)),
            DescribeTarget::Aggregate(name) => return Err(self.not_found("User defined aggregate", name)),
            DescribeTarget::Index(name) => return Err(self.not_found("Index", name)),
            DescribeTarget::MaterializedView(name) => return Err(self.not_found("Materialized view", name)),
            DescribeTarget::Named(name) => self.named(name, check)?,
        };
        Ok(Wanted::Items(items))
    }

    /// Columns, fields and names that the rows are made of. Counts no further than [`INLINE_PARTS`].
    fn parts(&self, wanted: &Wanted) -> usize {
        match wanted {
            Wanted::Items(items) => {
                let mut sum = 0;
                items
                    .iter()
                    .flat_map(Item::parts)
                    .take_while(|parts| {
                        sum += parts;
                        sum <= INLINE_PARTS
                    })
                    .for_each(|_| ());
                sum
            }
            Wanted::Names(Kind::Function) => 0,
            Wanted::Names(_) => {
                let keyspaces = self.schema.keyspaces.values();
                let inside = keyspaces.map(|keyspace| 1 + keyspace.tables.len() + keyspace.types.len());
                self.virtual_tables.len() + inside.sum::<usize>()
            }
        }
    }

    /// The rows of the answer.
    fn elements<'a>(&'a self, wanted: &'a Wanted) -> Box<dyn Iterator<Item = Element> + Send + 'a> {
        let names: Vec<(String, &'static str, String)> = match wanted {
            Wanted::Items(items) => return Box::new(items.iter().flat_map(Item::elements)),
            Wanted::Names(Kind::Function) => Vec::new(),
            Wanted::Names(Kind::Keyspace) => {
                self.keyspaces().into_iter().map(|name| (name.clone(), "keyspace", name)).collect()
            }
            Wanted::Names(Kind::Table) => {
                self.tables().into_iter().map(|(keyspace, name)| (keyspace, "table", name)).collect()
            }
            Wanted::Names(Kind::Type) => {
                self.types().into_iter().map(|(keyspace, name)| (keyspace, "type", name)).collect()
            }
        };
        Box::new(names.into_iter().map(|(keyspace, kind, name)| (keyspace, kind, name, None)))
    }

    fn sees(&self, keyspace: &str) -> bool {
        self.viewer.sees(About::Keyspace(keyspace))
    }

    /// Whether a listing is about the keyspace: the session's, or all without one.
    fn lists(&self, keyspace: &str) -> bool {
        self.session.as_deref().is_none_or(|session| keyspace == session) && self.sees(keyspace)
    }

    fn keyspaces(&self) -> Vec<String> {
        let mut names: Vec<String> = self.schema.keyspaces.keys().cloned().collect();
        names.extend(self.virtual_tables.iter().map(|def| def.keyspace.clone()));
        names.retain(|keyspace| self.sees(keyspace));
        names.sort();
        names.dedup();
        names
    }

    fn tables(&self) -> Vec<(String, String)> {
        let real = self.schema.keyspaces.values().flat_map(|k| k.tables.values());
        let mut names: Vec<_> = real
            .chain(&self.virtual_tables)
            .filter(|def| self.lists(&def.keyspace))
            .map(|def| (def.keyspace.clone(), def.name.clone()))
            .collect();
        names.sort();
        names.dedup();
        names
    }

    fn types(&self) -> Vec<(String, String)> {
        let types = self.schema.keyspaces.values().flat_map(|k| k.types.values());
        types
            .filter(|udt| self.lists(&udt.keyspace))
            .map(|udt| (udt.keyspace.clone(), udt.name.clone()))
            .collect()
    }

    fn whole(&self, full: bool) -> Vec<Item> {
        let wanted = self.schema.keyspaces.iter().filter(|(name, _)| full || !is_system(name));
        let shown = wanted.filter(|(name, _)| self.sees(name));
        shown.map(|(_, keyspace)| Item::Keyspace { keyspace: keyspace.clone(), only: false }).collect()
    }

    fn keyspace(&self, name: &str, only: bool, check: &Check<'_>) -> Result<Vec<Item>, Error> {
        check(name)?;
        if let Some(keyspace) = self.schema.keyspaces.get(name) {
            return Ok(vec![Item::Keyspace { keyspace: keyspace.clone(), only }]);
        }
        let own = self.virtual_tables.iter().filter(|def| def.keyspace == name);
        let own: Vec<Item> = own.map(|def| Item::VirtualTable(def.clone())).collect();
        if own.is_empty() {
            return Err(Error::Invalid(format!("'{name}' not found in keyspaces")));
        }
        Ok(own)
    }

    fn table(&self, name: &QualifiedName, check: &Check<'_>) -> Result<Item, Error> {
        let keyspace = self.keyspace_of(name).ok_or_else(no_keyspace)?;
        check(keyspace)?;
        if let Some(def) = self.schema.table(keyspace, &name.name) {
            return Ok(Item::Table(def.clone()));
        }
        let is_it = |def: &&Arc<TableDef>| def.keyspace == keyspace && def.name == name.name;
        match self.virtual_tables.iter().find(is_it) {
            Some(def) => Ok(Item::VirtualTable(def.clone())),
            None => Err(self.not_found("Table", name)),
        }
    }

    fn user_type(&self, name: &QualifiedName, check: &Check<'_>) -> Result<Item, Error> {
        let keyspace = self.keyspace_of(name).ok_or_else(no_keyspace)?;
        check(keyspace)?;
        let found = self.schema.keyspaces.get(keyspace).and_then(|k| k.types.get(&name.name));
        found.cloned().map(Item::Type).ok_or_else(|| self.not_found("User defined type", name))
    }

    /// A bare name: a keyspace, or a table of the session's.
    fn named(&self, name: &QualifiedName, check: &Check<'_>) -> Result<Vec<Item>, Error> {
        if name.keyspace.is_none()
            && let Ok(items) = self.keyspace(&name.name, false, check)
        {
            return Ok(items);
        }
        match self.table(name, check) {
            Ok(item) => return Ok(vec![item]),
            Err(error @ Error::Unauthorized(_)) => return Err(error),
            // The role sees the keyspace, or there is none to look in.
            Err(_) => {}
        }
        let keyspace = self.keyspace_of(name);
        if keyspace.is_none() {
            check(&name.name)?;
        }
        let text = match keyspace {
            Some(keyspace) => format!("'{}' not found in keyspace '{keyspace}'", name.name),
            None => format!("'{}' not found in keyspaces", name.name),
        };
        Err(Error::Invalid(text))
    }

    /// The keyspace of a name: its own, or the session's.
    fn keyspace_of<'a>(&'a self, name: &'a QualifiedName) -> Option<&'a str> {
        name.keyspace.as_deref().or(self.session.as_deref())
    }

    fn not_found(&self, what: &str, name: &QualifiedName) -> Error {
        match self.keyspace_of(name) {
            Some(keyspace) => {
                Error::Invalid(format!("{what} '{}' not found in keyspace '{keyspace}'", name.name))
            }
            None => no_keyspace(),
        }
    }
}

fn no_keyspace() -> Error {
    Error::Invalid("No keyspace specified and no current keyspace".to_owned())
}

/// Whether a keyspace is the server's own.
fn is_system(keyspace: &str) -> bool {
    keyspace == "system" || keyspace.starts_with("system_")
}

/// User types, each after those it is made of. Visits each field once: a keyspace may have thousands of types.
fn types_in_order(keyspace: &Keyspace) -> Vec<&Arc<UdtType>> {
    let mut levels = BTreeMap::new();
    for udt in keyspace.types.values() {
        level(udt, &mut levels);
    }
    let mut types: Vec<_> = keyspace.types.values().collect();
    // Types of one level stay in the order of their names.
    types.sort_by_key(|udt| levels[&*udt.name]);
    types
}

/// Returns the number of user types that a type is nested over, and notes that of each type inside. A type can only use types that
/// were there before it, so there is no circle.
fn level<'a>(udt: &'a UdtType, levels: &mut BTreeMap<&'a str, usize>) -> usize {
    fn inside<'a>(ty: &'a CqlType, levels: &mut BTreeMap<&'a str, usize>) -> usize {
        match ty {
            CqlType::Udt(udt) => level(udt, levels) + 1,
            ty => ty.inner().into_iter().map(|ty| inside(ty, levels)).max().unwrap_or(0),
        }
    }
    if let Some(known) = levels.get(&*udt.name) {
        return *known;
    }
    let found = udt.fields.iter().map(|(_, ty)| inside(ty, levels)).max().unwrap_or(0);
    levels.insert(&udt.name, found);
    found
}

fn type_element(udt: &UdtType) -> Element {
    (udt.keyspace.clone(), "type", udt.name.clone(), Some(cql::create_type(udt)))
}

fn table_element(def: &TableDef) -> Element {
    (def.keyspace.clone(), "table", def.name.clone(), Some(cql::create_table(def)))
}

/// A virtual table cannot be created, so its statement is a comment, as in Cassandra.
fn virtual_element(def: &TableDef) -> Element {
    let text = format!(
        "/*\nWarning: Table {}.{} is a virtual table and cannot be recreated with CQL.\n\
         Structure, for reference:\n{}\n*/",
        def.keyspace,
        def.name,
        cql::create_table(def)
    );
    (def.keyspace.clone(), "table", def.name.clone(), Some(text))
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

fn push(rows: &mut Rows, (keyspace, kind, name, text): &Element) {
    for cell in [keyspace, *kind, name].into_iter().chain(text.as_deref()) {
        rows.push(Some(cell.as_bytes()));
    }
    rows.count += 1;
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

#[cfg(test)]
mod tests {
    use schema::KeyspaceDef;

    use super::*;

    fn keyspace(types: Vec<UdtType>) -> Keyspace {
        Keyspace {
            def: KeyspaceDef { name: "ks".into(), replication: BTreeMap::new(), durable_writes: true },
            tables: BTreeMap::new(),
            types: types.into_iter().map(|udt| (udt.name.clone(), Arc::new(udt))).collect(),
        }
    }

    fn udt(name: &str, fields: &[CqlType]) -> UdtType {
        let fields = fields.iter().enumerate().map(|(at, ty)| (format!("f{at}"), ty.clone()));
        UdtType { keyspace: "ks".into(), name: name.into(), fields: fields.collect() }
    }

    fn frozen(udt: &UdtType) -> CqlType {
        CqlType::Frozen(Box::new(CqlType::Udt(Arc::new(udt.clone()))))
    }

    #[test]
    fn types_come_after_those_they_are_made_of() {
        let z = udt("z", &[CqlType::Int]);
        let m = udt("m", &[CqlType::List(Box::new(frozen(&z)))]);
        let a = udt("a", &[frozen(&m), frozen(&z)]);
        let b = udt("b", &[CqlType::Text]);
        let keyspace = keyspace(vec![z, m, a, b]);
        let names: Vec<&str> = types_in_order(&keyspace).iter().map(|udt| &*udt.name).collect();
        assert_eq!(names, ["b", "z", "m", "a"]);
    }

    /// Each type uses the one before it twice: a walk that does not remember what it has seen visits 2^60 fields.
    #[test]
    fn order_of_types_visits_each_field_once() {
        let mut types = vec![udt("t00", &[CqlType::Int])];
        for at in 1..60 {
            let inner = frozen(&types[at - 1]);
            types.push(udt(&format!("t{at:02}"), &[inner.clone(), inner]));
        }
        let keyspace = keyspace(types);
        let mut levels = BTreeMap::new();
        assert_eq!(level(&keyspace.types["t59"], &mut levels), 59);
        assert_eq!(levels.len(), 60);
    }
}
