//! DESCRIBE, which cqlsh leaves to the server: shows the schema as the statements that create it. A
//! role sees the keyspaces that it has any right on. The answer does not reveal if another keyspace
//! exists.
//!
//! 1. Find the definitions and check the rights on them, at once.
//! 2. Create the rows of few definitions at once, and those of many on the heavy lane, one at a
//!    time. An answer has the bytes of a page at most, or else is charged as it grows.

mod rows;

use std::collections::BTreeMap;
use std::sync::Arc;

use access::{AccessSchema, Login};
use cql::ast::{DescribeTarget, QualifiedName, Statement as Tree};
use engine::{
    About, ColumnSpec, Columns, Error, Keyspace, Later, ResultRows, Schema, StatementOutcome, Viewer,
};
use schema::{CqlType, TableDef, UdtType, Weight, value};

use crate::core::{Core, ServerShared};
use crate::options::PARTITIONER;

pub(crate) use rows::Page;
use rows::{Element, PagedRows, Text};

/// Maximum number of columns, fields and names for which rows are created on the fast lane. Each
/// takes about 150 ns.
const INLINE_PARTS: usize = 300;
/// Weight of a column or field with a name of usual length, bytes.
const PART_BYTES: u64 = 256;

/// Answer to a DESCRIBE.
pub(crate) enum DescribeAnswer {
    Now(Result<StatementOutcome, Error>),
    Later(Later),
}

/// Answers a DESCRIBE. Answers with an error if the role may not see the keyspace, or if the object
/// does not exist.
pub(crate) fn describe(
    core: &Core,
    login: &Login,
    tree: &Tree,
    session_keyspace: Option<&str>,
    part: Page,
) -> DescribeAnswer {
    let Tree::Describe(describe) = tree else { unreachable!("binding selected DESCRIBE statements only") };
    if describe.target == DescribeTarget::Cluster {
        return DescribeAnswer::Now(Ok(StatementOutcome::Rows(cluster(&core.shared, session_keyspace))));
    }
    let check = |keyspace: &str| core.access.authorize_sight(login, keyspace);
    let all = Described {
        schema: core.engine.schema(),
        virtual_tables: core.engine.registry().all().into_iter().map(|table| table.def).collect(),
        session: session_keyspace.map(str::to_owned),
        viewer: core.access.viewer(login),
        with_internals: describe.with_internals,
    };
    let mut targets = match all.targets(&describe.target, &check) {
        Ok(targets) => targets,
        Err(error) => return DescribeAnswer::Now(Err(error)),
    };
    if let (DescribeTarget::Schema { .. }, true, Targets::Items(items)) =
        (&describe.target, describe.with_internals, &mut targets)
    {
        match core.access.describe(login, describe.with_passwords) {
            Ok(access) => items.extend(access.map(|access| Item::Access(Box::new(access)))),
            Err(error) => return DescribeAnswer::Now(Err(error)),
        }
    }
    let mut rows = match PagedRows::new(targets.no_rows(), part, all.schema.version) {
        Ok(rows) => rows,
        Err(error) => return DescribeAnswer::Now(Err(error)),
    };
    let parts = all.parts(&targets);
    if parts <= INLINE_PARTS {
        let _ = lanes::spend(parts as u32);
        for element in all.elements(&targets) {
            match rows.push(&element) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return DescribeAnswer::Now(Err(error)),
            }
        }
        return DescribeAnswer::Now(Ok(StatementOutcome::Rows(rows.finish())));
    }
    let make = async move {
        for element in all.elements(&targets) {
            if !rows.push(&element)? {
                break;
            }
            lanes::heavy_yield().await;
        }
        Ok(StatementOutcome::Rows(rows.finish()))
    };
    DescribeAnswer::Later(Box::pin(lanes::heavy(lanes::current_group(), make)))
}

/// Objects to describe.
enum Targets {
    /// Names of all objects of one kind.
    Names(ObjectKind),
    /// Definitions.
    Items(Vec<Item>),
}

/// Kinds of objects whose names are listed.
#[derive(Clone, Copy)]
enum ObjectKind {
    Keyspace,
    Table,
    Type,
    /// Functions and aggregates. There are none.
    Function,
}

/// A definition.
enum Item {
    /// A keyspace, with its contents unless `only` is set.
    Keyspace {
        keyspace: Arc<Keyspace>,
        only: bool,
    },
    Table(Arc<TableDef>),
    /// A keyspace of the server without its tables.
    OwnKeyspace(String),
    /// A table of the server.
    OwnTable(Arc<TableDef>),
    Type(Arc<UdtType>),
    /// An index of a table, by its number.
    Index(Arc<TableDef>, usize),
    /// A view of a table, by its number.
    View(Arc<TableDef>, usize),
    /// Roles, grants and levels.
    Access(Box<AccessSchema>),
}

impl Targets {
    fn no_rows(&self) -> ResultRows {
        ResultRows::new(match self {
            Targets::Names(_) => columns(&["keyspace_name", "type", "name"]),
            Targets::Items(_) => columns(&["keyspace_name", "type", "name", "create_statement"]),
        })
    }
}

/// Returns the number of columns or fields of usual length in a definition.
fn parts_of(weigh: impl FnOnce(&mut Weight)) -> usize {
    let mut weight = Weight::up_to(INLINE_PARTS as u64 * PART_BYTES);
    weigh(&mut weight);
    1 + (weight.bytes() / PART_BYTES) as usize
}

impl Item {
    /// Returns the number of columns and fields of usual length, definition by definition.
    fn parts(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        let of_table = |def: &Arc<TableDef>| parts_of(|weight| weight.table(def));
        let of_type = |udt: &Arc<UdtType>| parts_of(|weight| weight.user_type(udt));
        let of_keyspace = |keyspace: &Keyspace| parts_of(|weight| weight.keyspace(&keyspace.def));
        match self {
            Item::Keyspace { keyspace, only: true } => Box::new(std::iter::once(of_keyspace(keyspace))),
            Item::Keyspace { keyspace, .. } => {
                let inside = keyspace.tables.values().map(of_table);
                let inside = inside.chain(keyspace.types.values().map(of_type));
                Box::new(std::iter::once(of_keyspace(keyspace)).chain(inside))
            }
            Item::Table(def) | Item::OwnTable(def) => Box::new(std::iter::once(of_table(def))),
            Item::OwnKeyspace(_) => Box::new(std::iter::once(1)),
            Item::Type(udt) => Box::new(std::iter::once(of_type(udt))),
            Item::Index(..) => Box::new(std::iter::once(1)),
            Item::View(def, _) => Box::new(std::iter::once(of_table(def))),
            // Their number has no small bound.
            Item::Access(_) => Box::new(std::iter::once(INLINE_PARTS + 1)),
        }
    }

    /// Returns the rows: a keyspace before its contents, types before the tables that use them.
    fn elements(&self, with_internals: bool) -> Box<dyn Iterator<Item = Element<'_>> + Send + '_> {
        match self {
            Item::Keyspace { keyspace, only } => {
                let name = &*keyspace.def.name;
                let text = Text::Keyspace(keyspace);
                let own = Element { keyspace: name, kind: "keyspace", name: name.into(), text };
                let inside = (!only).then_some(keyspace).into_iter().flat_map(move |keyspace| {
                    let types = types_in_order(keyspace).into_iter().map(|udt| type_element(udt));
                    let mut tables: Vec<_> = keyspace.tables.values().collect();
                    tables.sort_by_key(|def| caseless(&def.name));
                    types.chain(tables.into_iter().flat_map(move |def| table_elements(def, with_internals)))
                });
                Box::new(std::iter::once(own).chain(inside))
            }
            Item::OwnKeyspace(name) => Box::new(std::iter::once(Element {
                keyspace: name,
                kind: "keyspace",
                name: name.into(),
                text: Text::OwnKeyspace(name),
            })),
            Item::Table(def) => Box::new(table_elements(def, with_internals)),
            Item::Index(def, at) => Box::new(std::iter::once(index_element(def, *at))),
            Item::View(def, at) => Box::new(std::iter::once(view_element(def, *at, with_internals))),
            Item::OwnTable(def) => Box::new(std::iter::once(table_element(def, Text::OwnTable(def)))),
            Item::Type(udt) => Box::new(std::iter::once(type_element(udt))),
            Item::Access(access) => Box::new(access.statements().map(|statement| Element {
                keyspace: "",
                kind: statement.kind,
                name: statement.name.into(),
                text: Text::Statement(statement.text),
            })),
        }
    }
}

/// Returns the key by which names are listed: as in Cassandra, upper case makes no difference.
fn caseless(name: &str) -> String {
    name.to_lowercase()
}

/// The schema as DESCRIBE reads it.
struct Described {
    schema: Arc<Schema>,
    virtual_tables: Vec<Arc<TableDef>>,
    session: Option<String>,
    /// Decides which keyspaces the role sees.
    viewer: Arc<dyn Viewer>,
    /// `WITH INTERNALS`.
    with_internals: bool,
}

/// Checks if the role may see a keyspace.
type Check<'a> = dyn Fn(&str) -> Result<(), Error> + 'a;

impl Described {
    /// Finds the objects of a target.
    fn targets(&self, target: &DescribeTarget, check: &Check<'_>) -> Result<Targets, Error> {
        let items = match target {
            DescribeTarget::Cluster => unreachable!("the cluster is answered before"),
            DescribeTarget::Keyspaces => return Ok(Targets::Names(ObjectKind::Keyspace)),
            DescribeTarget::Tables => return Ok(Targets::Names(ObjectKind::Table)),
            DescribeTarget::Types => return Ok(Targets::Names(ObjectKind::Type)),
            DescribeTarget::Functions | DescribeTarget::Aggregates => {
                return Ok(Targets::Names(ObjectKind::Function));
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
            DescribeTarget::Index(name) => vec![self.index(name, check)?],
            DescribeTarget::MaterializedView(name) => vec![self.view(name, check)?],
            DescribeTarget::Named(name) => self.named(name, check)?,
        };
        Ok(Targets::Items(items))
    }

    /// Returns the number of columns, fields and names in the rows. Stops counting above
    /// [`INLINE_PARTS`].
    fn parts(&self, targets: &Targets) -> usize {
        match targets {
            Targets::Items(items) => {
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
            Targets::Names(ObjectKind::Function) => 0,
            Targets::Names(_) => {
                let keyspaces = self.schema.keyspaces.values();
                let inside = keyspaces.map(|keyspace| 1 + keyspace.tables.len() + keyspace.types.len());
                self.virtual_tables.len() + inside.sum::<usize>()
            }
        }
    }

    /// Returns the rows of the answer.
    fn elements<'a>(&'a self, targets: &'a Targets) -> Box<dyn Iterator<Item = Element<'a>> + Send + 'a> {
        let names: Vec<(&str, &'static str, &str)> = match targets {
            Targets::Items(items) => {
                return Box::new(items.iter().flat_map(|item| item.elements(self.with_internals)));
            }
            Targets::Names(ObjectKind::Function) => Vec::new(),
            Targets::Names(ObjectKind::Keyspace) => {
                self.keyspaces().into_iter().map(|name| (name, "keyspace", name)).collect()
            }
            Targets::Names(ObjectKind::Table) => {
                self.tables().into_iter().map(|(keyspace, name)| (keyspace, "table", name)).collect()
            }
            Targets::Names(ObjectKind::Type) => {
                self.types().into_iter().map(|(keyspace, name)| (keyspace, "type", name)).collect()
            }
        };
        let element = |(keyspace, kind, name): (&'a str, _, &'a str)| Element {
            keyspace,
            kind,
            name: name.into(),
            text: Text::None,
        };
        Box::new(names.into_iter().map(element))
    }

    fn sees(&self, keyspace: &str) -> bool {
        self.viewer.sees(About::Keyspace(keyspace))
    }

    /// Returns true if a listing includes the keyspace: the session's keyspace, or every visible
    /// one if the session has none.
    fn lists(&self, keyspace: &str) -> bool {
        self.session.as_deref().is_none_or(|session| keyspace == session) && self.sees(keyspace)
    }

    fn keyspaces(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.schema.keyspaces.keys().map(String::as_str).collect();
        names.extend(self.virtual_tables.iter().map(|def| &*def.keyspace));
        names.retain(|keyspace| self.sees(keyspace));
        names.sort_by_key(|name| (caseless(name), *name));
        names.dedup();
        names
    }

    fn tables(&self) -> Vec<(&str, &str)> {
        let real = self.schema.keyspaces.values().flat_map(|k| k.tables.values());
        let mut names: Vec<_> = real
            .chain(&self.virtual_tables)
            .filter(|def| self.lists(&def.keyspace))
            .map(|def| (&*def.keyspace, &*def.name))
            .collect();
        names.sort_by_key(|(keyspace, name)| (caseless(keyspace), *keyspace, caseless(name), *name));
        names.dedup();
        names
    }

    fn types(&self) -> Vec<(&str, &str)> {
        let types = self.schema.keyspaces.values().flat_map(|k| k.types.values());
        let listed = types.filter(|udt| self.lists(&udt.keyspace));
        let mut names: Vec<_> = listed.map(|udt| (&*udt.keyspace, &*udt.name)).collect();
        names.sort_by_key(|(keyspace, name)| (caseless(keyspace), *keyspace, caseless(name), *name));
        names
    }

    fn whole(&self, full: bool) -> Vec<Item> {
        let targets = self.schema.keyspaces.iter().filter(|(name, _)| full || !is_system(name));
        let shown = targets.filter(|(name, _)| self.sees(name));
        shown.map(|(_, keyspace)| Item::Keyspace { keyspace: keyspace.clone(), only: false }).collect()
    }

    fn keyspace(&self, name: &str, only: bool, check: &Check<'_>) -> Result<Vec<Item>, Error> {
        check(name)?;
        if let Some(keyspace) = self.schema.keyspaces.get(name) {
            return Ok(vec![Item::Keyspace { keyspace: keyspace.clone(), only }]);
        }
        let own = self.virtual_tables.iter().filter(|def| def.keyspace == name);
        let tables: Vec<Item> = own.map(|def| Item::OwnTable(def.clone())).collect();
        if tables.is_empty() {
            return Err(not_in_keyspaces(name));
        }
        let inside = tables.into_iter().filter(|_| !only);
        Ok(std::iter::once(Item::OwnKeyspace(name.to_owned())).chain(inside).collect())
    }

    fn table(&self, name: &QualifiedName, check: &Check<'_>) -> Result<Item, Error> {
        let keyspace = self.keyspace_of(name).ok_or_else(no_keyspace)?;
        check(keyspace)?;
        if let Some(def) = self.schema.table(keyspace, &name.name) {
            return Ok(Item::Table(def.clone()));
        }
        let is_it = |def: &&Arc<TableDef>| def.keyspace == keyspace && def.name == name.name;
        match self.virtual_tables.iter().find(is_it) {
            Some(def) => Ok(Item::OwnTable(def.clone())),
            None => Err(self.not_found("Table", name)),
        }
    }

    fn index(&self, name: &QualifiedName, check: &Check<'_>) -> Result<Item, Error> {
        let keyspace = self.keyspace_of(name).ok_or_else(no_keyspace)?;
        check(keyspace)?;
        let tables = self.schema.keyspaces.get(keyspace).into_iter().flat_map(|k| k.tables.values());
        let mut found = tables.filter_map(|def| {
            let at = def.indexes.iter().position(|index| index.name == name.name)?;
            Some(Item::Index(def.clone(), at))
        });
        found.next().ok_or_else(|| {
            Error::Invalid(format!("Table for existing index '{}' not found in '{keyspace}'", name.name))
        })
    }

    fn view(&self, name: &QualifiedName, check: &Check<'_>) -> Result<Item, Error> {
        let keyspace = self.keyspace_of(name).ok_or_else(no_keyspace)?;
        check(keyspace)?;
        let Some((base, view)) = self.schema.view(keyspace, &name.name) else {
            return Err(self.not_found("Materialized view", name));
        };
        let at = base.views.iter().position(|other| other.name == view.name).unwrap_or_default();
        Ok(Item::View(base.clone(), at))
    }

    fn user_type(&self, name: &QualifiedName, check: &Check<'_>) -> Result<Item, Error> {
        let keyspace = self.keyspace_of(name).ok_or_else(no_keyspace)?;
        check(keyspace)?;
        let found = self.schema.keyspaces.get(keyspace).and_then(|k| k.types.get(&name.name));
        found.cloned().map(Item::Type).ok_or_else(|| self.not_found("User defined type", name))
    }

    /// Finds an unqualified name: a keyspace, or a table of the session's keyspace.
    fn named(&self, name: &QualifiedName, check: &Check<'_>) -> Result<Vec<Item>, Error> {
        if name.keyspace.is_none()
            && let Ok(items) = self.keyspace(&name.name, false, check)
        {
            return Ok(items);
        }
        match self.table(name, check) {
            Ok(item) => return Ok(vec![item]),
            Err(error @ Error::Unauthorized(_)) => return Err(error),
            // The role sees the keyspace, or there is no keyspace to search.
            Err(_) => {}
        }
        if let Ok(item) = self.index(name, check).or_else(|_| self.view(name, check)) {
            return Ok(vec![item]);
        }
        match self.keyspace_of(name) {
            Some(keyspace) => Err(match self.exists(keyspace) {
                true => Error::Invalid(format!("'{}' not found in keyspace '{keyspace}'", name.name)),
                false => not_in_keyspaces(keyspace),
            }),
            None => {
                check(&name.name)?;
                Err(not_in_keyspaces(&name.name))
            }
        }
    }

    fn exists(&self, keyspace: &str) -> bool {
        self.schema.keyspaces.contains_key(keyspace)
            || self.virtual_tables.iter().any(|def| def.keyspace == keyspace)
    }

    /// Returns the keyspace of a name: its own, or the session's.
    fn keyspace_of<'a>(&'a self, name: &'a QualifiedName) -> Option<&'a str> {
        name.keyspace.as_deref().or(self.session.as_deref())
    }

    fn not_found(&self, what: &str, name: &QualifiedName) -> Error {
        match self.keyspace_of(name) {
            Some(keyspace) if !self.exists(keyspace) => not_in_keyspaces(keyspace),
            Some(keyspace) => {
                let of = if what == "Table" { "keyspace " } else { "" };
                Error::Invalid(format!("{what} '{}' not found in {of}'{keyspace}'", name.name))
            }
            None => no_keyspace(),
        }
    }
}

fn no_keyspace() -> Error {
    Error::Invalid("No keyspace specified and no current keyspace".to_owned())
}

fn not_in_keyspaces(keyspace: &str) -> Error {
    Error::Invalid(format!("'{keyspace}' not found in keyspaces"))
}

/// Returns true for the server's own keyspaces.
fn is_system(keyspace: &str) -> bool {
    keyspace == "system" || keyspace.starts_with("system_")
}

/// Returns user types, each after the types it contains. Visits each field once: a keyspace may
/// have thousands of types.
fn types_in_order(keyspace: &Keyspace) -> Vec<&Arc<UdtType>> {
    let mut levels = BTreeMap::new();
    for udt in keyspace.types.values() {
        level(udt, &mut levels);
    }
    let mut types: Vec<_> = keyspace.types.values().collect();
    // The sort is stable: types of one level stay in the order of their names.
    types.sort_by_key(|udt| levels[&*udt.name]);
    types
}

/// Returns the nesting depth of a user type and stores it in `levels`, also for the types inside. A
/// type can only use types that existed before it, so there is no cycle.
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

fn type_element(udt: &UdtType) -> Element<'_> {
    Element { keyspace: &udt.keyspace, kind: "type", name: (&*udt.name).into(), text: Text::Type(udt) }
}

/// Returns the rows of a table, of its indexes and of its views.
fn table_elements(def: &TableDef, with_internals: bool) -> impl Iterator<Item = Element<'_>> {
    // As in Cassandra, in the order of names without regard to case.
    let mut order: Vec<usize> = (0..def.indexes.len()).collect();
    order.sort_by_cached_key(|at| def.indexes[*at].name.to_lowercase());
    let indexes = order.into_iter().map(|at| index_element(def, at));
    let views = (0..def.views.len()).map(move |at| view_element(def, at, with_internals));
    std::iter::once(table_element(def, Text::Table { def, with_internals })).chain(indexes).chain(views)
}

fn view_element(base: &TableDef, at: usize, with_internals: bool) -> Element<'_> {
    let (name, text) = ((&*base.views[at].name).into(), Text::View { base, at, with_internals });
    Element { keyspace: &base.keyspace, kind: "materialized_view", name, text }
}

fn index_element(def: &TableDef, at: usize) -> Element<'_> {
    let (name, text) = ((&*def.indexes[at].name).into(), Text::Index(def, at));
    Element { keyspace: &def.keyspace, kind: "index", name, text }
}

fn table_element<'a>(def: &'a TableDef, text: Text<'a>) -> Element<'a> {
    Element { keyspace: &def.keyspace, kind: "table", name: (&*def.name).into(), text }
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

/// Returns the description of the cluster. With a keyspace of clients in use, it includes the
/// tokens of this server, which has the whole ring.
fn cluster(shared: &ServerShared, keyspace: Option<&str>) -> ResultRows {
    let names = columns(&["cluster", "partitioner", "snitch", "range_ownership"]);
    let mut specs: Vec<ColumnSpec> = names.to_vec();
    let shows_ranges = keyspace.is_some_and(|keyspace| !engine::is_of_server(keyspace));
    match shows_ranges {
        true => {
            let owners = CqlType::List(Box::new(CqlType::Text));
            specs[3].ty = CqlType::Map(Box::new(CqlType::Text), Box::new(owners));
        }
        false => specs.truncate(3),
    }
    let mut rows = ResultRows::new(specs.into());
    let partitioner = PARTITIONER.rsplit('.').next().expect("a part after the last dot");
    for cell in [&*shared.config.cluster_name, partitioner, "SimpleSnitch"] {
        rows.push(Some(cell.as_bytes()));
    }
    if shows_ranges {
        let here = shared.advertised();
        let token = i64::MIN.to_string();
        let owners = value::encode_list([here.to_string().as_bytes()].into_iter());
        rows.push(Some(&value::encode_map([(token.as_bytes(), &owners[..])].into_iter())));
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
        UdtType::new("ks", name, fields.collect())
    }

    fn frozen(udt: &UdtType) -> CqlType {
        CqlType::Frozen(Box::new(CqlType::Udt(Arc::new(udt.clone()))))
    }

    #[test]
    fn types_come_after_the_types_they_contain() {
        let z = udt("z", &[CqlType::Int]);
        let m = udt("m", &[CqlType::List(Box::new(frozen(&z)))]);
        let a = udt("a", &[frozen(&m), frozen(&z)]);
        let b = udt("b", &[CqlType::Text]);
        let keyspace = keyspace(vec![z, m, a, b]);
        let names: Vec<&str> = types_in_order(&keyspace).iter().map(|udt| &*udt.name).collect();
        assert_eq!(names, ["b", "z", "m", "a"]);
    }

    /// Each type uses the one before it twice. A walk without memory would visit 2^60 fields.
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
