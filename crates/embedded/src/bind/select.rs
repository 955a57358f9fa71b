//! Prepared SELECTs: what to read, in which order, and what to show.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cql::ast::{self, SelectExpr, Selection};
use engine::{Cells, ColumnSpec, Columns, Error, METADATA_BYTES_MAX, ResultRows, Value};
use schema::{ClusteringOrder, ColumnDef, ColumnKind, CqlType, TableDef};
use storage::Pick;

use crate::bind::choice::Choice;
use crate::bind::names::TableNames;
use crate::bind::restrict::{NEEDS_FILTERING, Purpose, Restrictions, restrict};
use crate::bind::show::{Inside, PathStep, Show, Shows};
use crate::bind::term::{Bind, Binder};

/// Columns or count that a SELECT returns.
#[derive(Clone, Debug)]
pub(crate) enum Projection {
    /// Rows.
    Rows(Shows),
    /// Number of rows; with a column, number of rows in which it is not null.
    Count(Option<Show>),
}

impl Projection {
    /// Returns the number of columns shown of each row.
    pub(crate) fn width(&self) -> usize {
        match self {
            Projection::Rows(shows) => shows.len(),
            Projection::Count(_) => 1,
        }
    }

    /// Returns true if it shows static columns.
    pub(crate) fn shows_statics(&self, def: &TableDef) -> bool {
        match self {
            Projection::Rows(shows) => shows.iter().any(|show| show.is_static(def)),
            Projection::Count(show) => show.iter().any(|show| show.is_static(def)),
        }
    }
}

/// LIMIT and PER PARTITION LIMIT.
#[derive(Debug)]
pub(crate) struct RowLimits {
    pub(crate) all: Option<Bind>,
    pub(crate) per_partition: Option<Bind>,
}

/// Order of the rows of a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowOrder {
    pub(crate) is_reversed: bool,
    /// Number of clustering columns that ORDER BY names.
    pub(crate) columns: usize,
}

/// Prepared SELECT. Parts that are sent to other cores are behind [`Arc`].
#[derive(Debug)]
pub(crate) struct SelectPlan {
    pub(crate) def: Arc<TableDef>,
    pub(crate) projection: Arc<Projection>,
    pub(crate) columns: Columns,
    pub(crate) restrictions: Restrictions,
    pub(crate) limits: RowLimits,
    pub(crate) order: RowOrder,
    /// True for DISTINCT: one row per partition, of key and static columns.
    pub(crate) distinct: bool,
    /// True for a point read: a whole primary key by `=`, showing only cells of that row.
    pub(crate) point: bool,
    /// True if the size of a row of the result has no small bound.
    pub(crate) may_be_large: bool,
    pub(crate) is_virtual: bool,
    pub(crate) bypass_cache: bool,
    /// Columns that a point read needs, ascending. `None`: all.
    picked: Option<Box<[u32]>>,
    /// True if the shown columns depend on the values of an execution.
    open: bool,
    /// True if a key column has an IN.
    pub(crate) has_in: bool,
    /// Number of terms in INs, and true if one takes its list from the request.
    listed: (usize, bool),
    /// Size of its largest result so far, in bytes of cells, up to [`ROOM_MAX`].
    room: AtomicUsize,
}

/// Terms of INs bound in one task poll: at about 200 ns each, with sorting, 50 µs.
const TERMS_AT_ONCE: usize = 256;

/// Bytes of IN lists bound in one task poll: equals [`TERMS_AT_ONCE`] values of four bytes, with
/// their lengths.
const LIST_BYTES_AT_ONCE: usize = TERMS_AT_ONCE * 8;

/// Columns of fixed lengths whose row is small in any case.
const FIXED_COLUMNS: usize = 1_000;
/// Bytes of other values bound in one task poll. They may have elements, at about 20 ns for eight
/// bytes.
const BYTES_AT_ONCE: usize = 16 << 10;

/// Bytes reserved ahead of the rows, at most.
const ROOM_MAX: usize = 64 << 10;

impl SelectPlan {
    /// Returns an empty result with capacity for the largest result so far.
    pub(crate) fn rows(&self) -> ResultRows {
        ResultRows { cells: Cells::with_capacity(self.room()), ..ResultRows::new(self.columns.clone()) }
    }

    /// Returns the size of the largest result so far, in bytes of cells, up to [`ROOM_MAX`].
    pub(crate) fn room(&self) -> usize {
        self.room.load(Relaxed)
    }

    /// Binds the projection to the values of an execution.
    pub(crate) fn bound_projection(&self, values: &[Value<'_>]) -> Result<Arc<Projection>, Error> {
        match &*self.projection {
            Projection::Rows(shows) if self.open => Ok(Arc::new(Projection::Rows(shows.bound(values)?))),
            _ => Ok(self.projection.clone()),
        }
    }

    /// Returns true if binding the values takes longer than a task poll may.
    #[inline]
    pub(crate) fn is_large(&self, values: &[Value<'_>]) -> bool {
        let (terms, has_lists) = self.listed;
        let mut bytes = 0;
        for value in values {
            if let Value::Bytes(value) = value {
                bytes += value.len();
            }
        }
        let bytes_max = if has_lists { LIST_BYTES_AT_ONCE } else { BYTES_AT_ONCE };
        let filters = &self.restrictions.filters;
        let of_filters = || filters.iter().map(|filter| filter.size(values)).sum::<u64>();
        terms > TERMS_AT_ONCE
            || bytes > bytes_max
            || !filters.is_empty() && of_filters() > BYTES_AT_ONCE as u64
    }

    /// Returns the columns that a point read requests from storage.
    pub(crate) fn pick(&self) -> Pick<'_> {
        Pick { columns: self.picked.as_deref(), bypass_cache: self.bypass_cache }
    }

    /// Records the size of a result.
    pub(crate) fn measure(&self, rows: &ResultRows) {
        let taken = rows.cells.len().min(ROOM_MAX);
        if taken > self.room.load(Relaxed) {
            self.room.store(taken, Relaxed);
        }
    }
}

/// Prepares a SELECT over `def`.
pub(crate) fn select(
    names: &TableNames,
    select: &ast::Select,
    binder: &mut Binder,
    is_virtual: bool,
) -> Result<SelectPlan, Error> {
    let def = &names.def;
    if select.json {
        return Err(Error::Invalid("SELECT JSON is not supported yet".into()));
    }
    if !select.group_by.is_empty() {
        return Err(Error::Invalid("GROUP BY is not supported yet".into()));
    }
    if is_virtual && (select.distinct || select.per_partition_limit.is_some()) {
        return Err(Error::Invalid(
            "SELECT DISTINCT and PER PARTITION LIMIT are not supported on virtual tables".into(),
        ));
    }
    if select.distinct && select.per_partition_limit.is_some() {
        return Err(Error::Invalid("PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries".into()));
    }
    let (projection, columns) = prepare_projection(names, select, binder)?;
    select.order_by.iter().try_for_each(|(name, _)| names.find(name).map(drop))?;
    let purpose = match is_virtual {
        true => Purpose::Virtual,
        false => {
            Purpose::Select { statics: selects_statics(def, select), allow_filtering: select.allow_filtering }
        }
    };
    let restrictions = restrict(names, &select.relations, binder, purpose)?;
    if select.distinct {
        check_distinct(def, select, &restrictions)?;
    }
    if matches!(projection, Projection::Count(_)) && select.per_partition_limit.is_some() {
        return Err(Error::Invalid("PER PARTITION LIMIT is not allowed with aggregate queries.".into()));
    }
    if is_virtual && !restrictions.tokens.is_empty() {
        return Err(Error::Invalid("token() is not supported in the WHERE of virtual tables".into()));
    }
    binder.bind_timeout(&select.using)?;
    let mut limit = |name, term: &Option<ast::Term>| {
        term.as_ref().map(|term| binder.bind(name, &CqlType::Int, term)).transpose()
    };
    let per_partition = limit("[per_partition_limit]", &select.per_partition_limit)?;
    let limit = limit("[limit]", &select.limit)?;
    let order = order(names, select, &restrictions)?;
    if restrictions.partition.is_empty() && restrictions.names_rows() && !select.allow_filtering {
        return Err(Error::Invalid(NEEDS_FILTERING.into()));
    }
    let off_point = |show: &Show| show.is_static(def) || show.is_open();
    let open = matches!(&projection, Projection::Rows(shows) if shows.iter().any(Show::is_open));
    let point = !is_virtual
        && !select.distinct
        && restrictions.filters.is_empty()
        && restrictions.tokens.is_empty()
        && restrictions.partition.iter().chain(&restrictions.clustering).all(|c| matches!(c, Choice::One(_)))
        && !restrictions.partition.is_empty()
        && restrictions.clustering.len() == def.clustering().count()
        && per_partition.is_none()
        && matches!(&projection, Projection::Rows(shows) if !shows.iter().any(off_point));
    let (has_in, listed) = (restrictions.has_in(), (restrictions.listed(), restrictions.has_lists()));
    let picked = if point { picked(def, &projection) } else { None };
    let projection = Arc::new(projection);
    let may_be_large = columns.len() > FIXED_COLUMNS || columns.iter().any(|c| c.ty.fixed_len().is_none());
    Ok(SelectPlan {
        def: def.clone(),
        projection,
        columns,
        restrictions,
        limits: RowLimits { all: limit, per_partition },
        order,
        distinct: select.distinct,
        point,
        may_be_large,
        is_virtual,
        bypass_cache: select.bypass_cache,
        picked,
        open,
        has_in,
        listed,
        room: AtomicUsize::new(0),
    })
}

/// Returns the columns whose cells a point read shows, ascending. `None` for a table with dropped
/// columns: the existence of a row then depends on its other cells.
fn picked(def: &TableDef, projection: &Projection) -> Option<Box<[u32]>> {
    let Projection::Rows(shows) = projection else { return None };
    if def.next_column_id as usize != def.columns.len() {
        return None;
    }
    let mut columns: Vec<u32> = shows.iter().filter_map(|show| show.cells_of(def)).collect();
    columns.sort_unstable();
    columns.dedup();
    Some(columns.into())
}

/// Checks that a SELECT DISTINCT depends on partitions alone.
fn check_distinct(def: &TableDef, select: &ast::Select, restrictions: &Restrictions) -> Result<(), Error> {
    let of_partition =
        |column: &ColumnDef| matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Static);
    let Restrictions { partition, filters, .. } = restrictions;
    if restrictions.names_rows() || filters.iter().any(|filter| !of_partition(&def.columns[filter.column])) {
        return Err(Error::Invalid(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns."
                .into(),
        ));
    }
    let mut requested = HashSet::new();
    match &select.selection {
        Selection::All => requested.extend(def.columns.iter().map(|column| column.name.as_str())),
        Selection::Selectors(selectors) => {
            selectors.iter().for_each(|selector| columns_in(&selector.expr, &mut requested));
        }
    }
    let is_requested = |column: &&ColumnDef| requested.contains(column.name.as_str());
    if let Some(column) = def.columns.iter().filter(is_requested).find(|column| !of_partition(column)) {
        return Err(Error::Invalid(format!(
            "SELECT DISTINCT queries must only request partition key columns and/or static columns (not {})",
            column.name
        )));
    }
    // Without all partition key columns, distinct partitions could show equal rows.
    match def.partition_key().find(|column| partition.is_empty() && !is_requested(column)) {
        Some(column) => Err(Error::Invalid(format!(
            "SELECT DISTINCT queries must request all the partition key columns (missing {})",
            column.name
        ))),
        None => Ok(()),
    }
}

/// Adds the columns that an expression reads. The parser bounds its depth.
fn columns_in<'e>(expr: &'e SelectExpr, columns: &mut HashSet<&'e str>) {
    match expr {
        SelectExpr::Column(name) => {
            columns.insert(name);
        }
        SelectExpr::Function(call) => {
            call.arguments.iter().for_each(|argument| columns_in(argument, columns))
        }
        SelectExpr::Element(base, _)
        | SelectExpr::Field(base, _)
        | SelectExpr::Slice(base, ..)
        | SelectExpr::Cast(base, _)
        | SelectExpr::TypeHint(_, base)
        | SelectExpr::Negate(base) => columns_in(base, columns),
        SelectExpr::Arithmetic(arithmetic) => {
            columns_in(&arithmetic.left, columns);
            columns_in(&arithmetic.right, columns);
        }
        SelectExpr::CountRows | SelectExpr::Term(_) => {}
    }
}

/// Returns true if a SELECT shows static columns, and of the others those of the partition key alone.
fn selects_statics(def: &TableDef, select: &ast::Select) -> bool {
    let Selection::Selectors(selectors) = &select.selection else { return false };
    if def.columns.iter().all(|column| column.kind != ColumnKind::Static) {
        return false;
    }
    let mut shown = HashSet::new();
    selectors.iter().for_each(|selector| columns_in(&selector.expr, &mut shown));
    let mut statics = 0;
    let of_partition =
        def.columns.iter().filter(|column| shown.contains(column.name.as_str())).all(|column| {
            statics += usize::from(column.kind == ColumnKind::Static);
            matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Static)
        });
    of_partition && statics > 0
}

/// Returns the order of the rows. ORDER BY may skip clustering columns that an `=` restricts: they
/// are the same in all rows.
fn order(names: &TableNames, select: &ast::Select, restrictions: &Restrictions) -> Result<RowOrder, Error> {
    let mut order = RowOrder { is_reversed: false, columns: 0 };
    if !select.order_by.is_empty() && restrictions.partition.is_empty() {
        return Err(Error::Invalid(
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.".into(),
        ));
    }
    // As in Cassandra, a column that is named twice has its first place and its last direction.
    let mut wanted: Vec<(&str, ClusteringOrder)> = Vec::with_capacity(select.order_by.len());
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (name, direction) in &select.order_by {
        match places.entry(name) {
            Entry::Occupied(place) => wanted[*place.get()].1 = *direction,
            Entry::Vacant(place) => {
                place.insert(wanted.len());
                wanted.push((name, *direction));
            }
        }
    }
    let (mut reversed, mut is_mixed) = (None, false);
    for (name, wanted) in wanted {
        let (_, column) = names.find(name)?;
        let ColumnKind::Clustering(place, stored) = column.kind else {
            return Err(Error::Invalid(format!(
                "Order by is currently only supported on the clustered columns of the PRIMARY KEY, got {name}"
            )));
        };
        let is_equal = |at: usize| restrictions.is_equal(&names.def, at);
        if place < order.columns || !(order.columns..place).all(is_equal) {
            return Err(Error::Invalid(
                "Order by currently only supports the ordering of columns following their declared order \
                 in the PRIMARY KEY"
                    .into(),
            ));
        }
        order.columns = place + 1;
        let against = stored != wanted;
        is_mixed |= *reversed.get_or_insert(against) != against;
    }
    if is_mixed {
        return Err(Error::Invalid("Unsupported order by relation".into()));
    }
    order.is_reversed = reversed.unwrap_or(false);
    Ok(order)
}

/// Builds the columns of one result, which share the table's names.
struct Specs {
    keyspace: Arc<str>,
    table: Arc<str>,
}

impl Specs {
    fn of(def: &TableDef) -> Specs {
        Specs { keyspace: def.keyspace.as_str().into(), table: def.name.as_str().into() }
    }

    fn spec(&self, name: String, ty: CqlType) -> ColumnSpec {
        ColumnSpec { keyspace: self.keyspace.clone(), table: self.table.clone(), name, ty }
    }
}

fn prepare_projection(
    names: &TableNames,
    select: &ast::Select,
    binder: &mut Binder,
) -> Result<(Projection, Columns), Error> {
    let def = &names.def;
    let specs = Specs::of(def);
    let Selection::Selectors(selectors) = &select.selection else {
        let describe = |c: &ColumnDef| binder.describe(&c.name, c.ty.description_bytes(METADATA_BYTES_MAX));
        def.columns.iter().try_for_each(describe)?;
        let columns = def.columns.iter().map(|c| specs.spec(c.name.clone(), c.ty.clone())).collect();
        let shows = def.columns.iter().enumerate().map(|(at, column)| Show::column(at, column));
        return Ok((Projection::Rows(Shows::new(def, shows.collect())), columns));
    };
    let mut shows = Vec::with_capacity(selectors.len());
    let mut columns = Vec::with_capacity(selectors.len());
    // Bytes that describe the type of each column: it may be shown thousands of times.
    let mut described: HashMap<&str, usize> = HashMap::new();
    for selector in selectors {
        let name = |default: &str| selector.alias.clone().unwrap_or_else(|| default.to_owned());
        if let Some(counted) = counted(names, &selector.expr)? {
            if selectors.len() > 1 {
                return Err(Error::Invalid(
                    "An aggregate beside other selectors is not supported yet".into(),
                ));
            }
            let label = match &selector.expr {
                SelectExpr::CountRows => name("count"),
                _ => name(&format!("system.count({})", column_argument(&selector.expr))),
            };
            return Ok((Projection::Count(counted), vec![specs.spec(label, CqlType::BigInt)].into()));
        }
        let (what, label, ty) = selected(names, &selector.expr, binder)?;
        let label = name(&label);
        let count = || ty.description_bytes(METADATA_BYTES_MAX);
        let type_bytes = match &selector.expr {
            SelectExpr::Column(name) => *described.entry(name).or_insert_with(count),
            _ => count(),
        };
        binder.describe(&label, type_bytes)?;
        shows.push(what);
        columns.push(specs.spec(label, ty));
    }
    Ok((Projection::Rows(Shows::new(def, shows)), columns.into()))
}

fn column_argument(expr: &SelectExpr) -> &str {
    match expr {
        SelectExpr::Function(call) => match call.arguments.as_slice() {
            [SelectExpr::Column(name)] => name,
            _ => "*",
        },
        _ => "*",
    }
}

/// Prepares a `count`. `None`: the expression is no count. `Some(None)`: it counts rows.
fn counted(names: &TableNames, expr: &SelectExpr) -> Result<Option<Option<Show>>, Error> {
    Ok(match expr {
        SelectExpr::CountRows => Some(None),
        SelectExpr::Function(call) if call.name.name == "count" => match call.arguments.as_slice() {
            [SelectExpr::Column(name)] => {
                let (at, column) = names.find(name)?;
                Some(Some(Show::column(at, column)))
            }
            _ => Some(None),
        },
        _ => None,
    })
}

fn selected(
    names: &TableNames,
    expr: &SelectExpr,
    binder: &mut Binder,
) -> Result<(Show, String, CqlType), Error> {
    let def = &names.def;
    let unsupported = || {
        Error::Invalid(
            "Selecting anything but columns, count, writetime, ttl and token is not supported yet".into(),
        )
    };
    match expr {
        SelectExpr::Column(name) => {
            let (at, column) = names.find(name)?;
            Ok((Show::column(at, column), name.clone(), column.ty.clone()))
        }
        SelectExpr::Element(..) | SelectExpr::Field(..) => inside(names, expr, binder),
        SelectExpr::Function(call) => match (call.name.name.as_str(), call.arguments.as_slice()) {
            (function @ ("writetime" | "ttl"), [SelectExpr::Column(name)]) => {
                let (_, column) = names.find(name)?;
                let is_static = column.kind == ColumnKind::Static;
                if !is_static && column.kind != ColumnKind::Regular {
                    return Err(Error::Invalid(format!(
                        "Cannot use selection function {function} on PRIMARY KEY part {name}"
                    )));
                }
                if column.ty.is_multi_cell() {
                    let what = if column.ty.is_collection() { "collection" } else { "UDT" };
                    return Err(Error::Invalid(format!(
                        "Cannot use selection function {function} on non-frozen {what} {name}"
                    )));
                }
                Ok(match function {
                    "ttl" => (Show::Ttl(column.id, is_static), format!("ttl({name})"), CqlType::Int),
                    _ => {
                        (Show::WriteTime(column.id, is_static), format!("writetime({name})"), CqlType::BigInt)
                    }
                })
            }
            ("token", arguments) => {
                let names: Option<Vec<&String>> = arguments
                    .iter()
                    .map(|a| if let SelectExpr::Column(name) = a { Some(name) } else { None })
                    .collect();
                match names {
                    Some(names) if names.iter().copied().eq(def.partition_key().map(|c| &c.name)) => {
                        let names: Vec<&str> = names.iter().map(|n| n.as_str()).collect();
                        Ok((Show::Token, format!("system.token({})", names.join(", ")), CqlType::BigInt))
                    }
                    _ => Err(Error::Invalid(
                        "The token function takes the whole partition key, in its order".into(),
                    )),
                }
            }
            _ => Err(unsupported()),
        },
        _ => Err(unsupported()),
    }
}

/// Prepares `c[k]`, `c.f`, and nested combinations of them.
fn inside(
    names: &TableNames,
    expr: &SelectExpr,
    binder: &mut Binder,
) -> Result<(Show, String, CqlType), Error> {
    let (base, of, label, ty, step) = match expr {
        SelectExpr::Element(base, key) => {
            let (of, label, ty) = selected(names, base, binder)?;
            let (key_type, found) = match ty.thawed() {
                CqlType::Map(key, value) => (&**key, &**value),
                CqlType::Set(member) => (&**member, &**member),
                CqlType::List(_) => {
                    return Err(Error::Invalid(format!(
                        "Element selection is only allowed on sets and maps, but {label} is a list"
                    )));
                }
                _ => {
                    return Err(Error::Invalid(format!(
                        "Invalid element selection: {label} is of type {ty} is not a collection"
                    )));
                }
            };
            let bind = binder.bind(&format!("key({label})"), key_type, key)?;
            let found = found.clone();
            (base, of, format!("{label}[{key}]"), found, PathStep::Key(ty, bind))
        }
        SelectExpr::Field(base, field) => {
            let (of, label, ty) = selected(names, base, binder)?;
            let CqlType::Udt(udt) = ty.thawed() else {
                return Err(Error::Invalid(format!(
                    "Invalid field selection: {label} of type {ty} is not a user type"
                )));
            };
            let Some(at) = udt.fields.iter().position(|(name, _)| name == field) else {
                return Err(Error::Invalid(format!("{label} of type {ty} has no field {field}")));
            };
            (base, of, format!("{label}.{field}"), udt.fields[at].1.clone(), PathStep::Field(at))
        }
        other => return selected(names, other, binder),
    };
    let show = match of {
        Show::Inside(mut inside) => {
            inside.steps.push(step);
            Show::Inside(inside)
        }
        _ => {
            let SelectExpr::Column(name) = &**base else {
                return Err(Error::Invalid(format!("{label} has no parts")));
            };
            let (column, _) = names.find(name)?;
            Show::Inside(Box::new(Inside { column, steps: vec![step] }))
        }
    };
    Ok((show, label, ty))
}
