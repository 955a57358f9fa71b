//! Prepared SELECTs: what to read, in which order, and what to show.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cql::ast::{self, Selection};
use engine::{Cells, ColumnSpec, Columns, Error, Note, ResultRows, Value, Viewer};
use schema::{ClusteringOrder, ColumnDef, ColumnKind, CqlType, TableDef};
use storage::Pick;

use crate::bind::choice::Choice;
use crate::bind::indexed::{IndexUse, analyze, choose};
use crate::bind::mask::{Masks, check_conditions, masked_among, sees_stored};
use crate::bind::names::TableNames;
use crate::bind::nearest::{self, Nearest};
use crate::bind::projection::{Projection, columns_in, group_by, selected};
use crate::bind::restrict::{NEEDS_FILTERING, Purpose, Restrictions, restrict};
use crate::bind::term::{Bind, Binder};
use crate::index::view::ViewSource;

/// LIMIT and PER PARTITION LIMIT.
#[derive(Clone, Debug)]
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
    /// The only column of a SELECT JSON, whose texts are made of the other columns.
    pub(crate) json: Option<Columns>,
    pub(crate) restrictions: Restrictions,
    /// Index that finds the rows. `None`: all of the named partitions are read.
    pub(crate) index: Option<IndexUse>,
    /// View that is read. `None`: a table.
    pub(crate) view: Option<Arc<ViewSource>>,
    /// Vector whose nearest rows come first.
    pub(crate) nearest: Option<Nearest>,
    pub(crate) limits: RowLimits,
    pub(crate) order: RowOrder,
    /// True for DISTINCT: one row per partition, of key and static columns.
    pub(crate) distinct: bool,
    /// True for a point read: a whole primary key by `=`, showing only that row, without groups.
    pub(crate) point: bool,
    /// True if all but the projection is that of a point read.
    may_be_point: bool,
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
    /// Use of masked columns, if there is one.
    masked: Option<MaskedUse>,
    /// Warning for the client of each execution.
    pub(crate) note: Option<Note>,
}

/// Use of masked columns.
#[derive(Debug)]
struct MaskedUse {
    /// Plan for roles without UNMASK. `None`: no masked column is shown.
    shown: Option<Arc<SelectPlan>>,
    /// Masked columns in the WHERE, by their index in the table's `columns`.
    restricted: Vec<usize>,
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
    /// Returns the plan of reading a view, whose definition as a table it is bound to.
    pub(crate) fn of_view(self, view: ViewSource) -> SelectPlan {
        let view = Arc::new(view);
        let of_view = |plan: SelectPlan| SelectPlan { view: Some(view.clone()), point: false, ..plan };
        let mut plan = of_view(self);
        if let Some(masked) = &mut plan.masked {
            masked.shown =
                masked.shown.take().and_then(Arc::into_inner).map(|shown| Arc::new(of_view(shown)));
        }
        plan
    }

    /// Returns an empty result with capacity for the largest result so far.
    pub(crate) fn rows(&self) -> ResultRows {
        ResultRows { cells: Cells::with_capacity(self.room()), ..ResultRows::new(self.columns.clone()) }
    }

    /// Returns the size of the largest result so far, in bytes of cells, up to [`ROOM_MAX`].
    pub(crate) fn room(&self) -> usize {
        self.room.load(Relaxed)
    }

    /// Returns true if its result depends on the rights of its viewer.
    pub(crate) fn needs_viewer(&self) -> bool {
        self.is_virtual || self.masked.is_some()
    }

    /// Returns the plan that shows what a viewer may see. `None`, the server, sees all.
    ///
    /// # Errors
    /// Returns [`Error::Unauthorized`] if the viewer may not restrict a column of the WHERE.
    #[inline]
    pub(crate) fn for_viewer<'p>(
        self: &'p Arc<SelectPlan>,
        viewer: Option<&Arc<dyn Viewer>>,
    ) -> Result<&'p Arc<SelectPlan>, Error> {
        match &self.masked {
            None => Ok(self),
            Some(masked) => self.unless_masked(masked, viewer),
        }
    }

    #[cold]
    fn unless_masked<'p>(
        self: &'p Arc<SelectPlan>,
        masked: &'p MaskedUse,
        viewer: Option<&Arc<dyn Viewer>>,
    ) -> Result<&'p Arc<SelectPlan>, Error> {
        // Permissions on the base table decide what is seen of a view.
        let stored = self.view.as_ref().map_or(&self.def, |view| &view.base);
        if sees_stored(stored, viewer) {
            return Ok(self);
        }
        check_conditions(&self.def, stored, &masked.restricted, viewer)?;
        Ok(masked.shown.as_ref().unwrap_or(self))
    }

    /// Returns the same plan with other columns of the same names and types.
    fn showing(&self, projection: Projection) -> SelectPlan {
        let Shape { point, open, picked } = Shape::of(&self.def, &projection, self.may_be_point);
        SelectPlan {
            def: self.def.clone(),
            projection: Arc::new(projection),
            columns: self.columns.clone(),
            json: self.json.clone(),
            restrictions: self.restrictions.clone(),
            index: self.index.clone(),
            view: self.view.clone(),
            nearest: self.nearest.clone(),
            limits: self.limits.clone(),
            point,
            picked,
            open,
            room: AtomicUsize::new(0),
            masked: None,
            ..*self
        }
    }

    /// Returns true if the shown columns depend on the values of an execution, or on its time.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Binds the projection to the values of an execution.
    pub(crate) fn bound_projection(&self, values: &[Value<'_>]) -> Result<Arc<Projection>, Error> {
        match self.open {
            true => Ok(Arc::new(self.projection.bound(values)?)),
            false => Ok(self.projection.clone()),
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

    /// Returns true for a point read of a table, shown as it is and without a note.
    pub(crate) fn is_plain_point(&self) -> bool {
        let is_rare = self.is_virtual || self.masked.is_some() || self.json.is_some() || self.note.is_some();
        self.point && !is_rare
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
    if is_virtual && (select.distinct || select.per_partition_limit.is_some()) {
        return Err(Error::Invalid(
            "SELECT DISTINCT and PER PARTITION LIMIT are not supported on virtual tables".into(),
        ));
    }
    if select.distinct && select.per_partition_limit.is_some() {
        return Err(Error::Invalid("PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries".into()));
    }
    let selected = selected(names, &select.selection, binder)?;
    nearest::check_ordering(names, select)?;
    let purpose = match is_virtual {
        true => Purpose::Virtual,
        false => {
            Purpose::Select {
                statics: selects_statics(def, select),
                // With a vector, its search decides what needs it.
                allow_filtering: select.allow_filtering || !select.nearest.is_empty(),
            }
        }
    };
    let mut restrictions = restrict(names, &select.relations, binder, purpose)?;
    if select.distinct {
        check_distinct(def, select, &restrictions)?;
    }
    let columns = selected.columns.clone();
    let by = group_by(names, select, &restrictions, binder)?;
    let masks = Masks::of(def)?;
    let masked =
        masks.and_then(|masks| selected.masked(&masks)).map(|masked| masked.projection(def, by.clone()));
    let projection = selected.projection(def, by);
    if projection.group_of_all().is_some() && select.per_partition_limit.is_some() {
        return Err(Error::Invalid("PER PARTITION LIMIT is not allowed with aggregate queries.".into()));
    }
    if is_virtual && !restrictions.tokens.is_empty() {
        return Err(Error::Invalid("token() is not supported in the WHERE of virtual tables".into()));
    }
    binder.bind_timeout(&select.using)?;
    let nearest = nearest::bind(names, select, &restrictions, projection.groups().is_some(), binder)?;
    let mut limit = |name, term: &Option<ast::Term>| {
        term.as_ref().map(|term| binder.bind(name, &CqlType::Int, term)).transpose()
    };
    let per_partition = limit("[per_partition_limit]", &select.per_partition_limit)?;
    let limit = limit("[limit]", &select.limit)?;
    let index = if is_virtual {
        None
    } else {
        analyze(def, &mut restrictions);
        choose(def, &restrictions, select.allow_filtering, !select.order_by.is_empty())?
    };
    let order = order(names, select, &restrictions)?;
    let is_filtered = select.allow_filtering || nearest.is_some();
    if restrictions.partition.is_empty() && restrictions.names_rows() && !is_filtered {
        return Err(Error::Invalid(NEEDS_FILTERING.into()));
    }
    let may_be_point = !is_virtual
        && !select.distinct
        && restrictions.filters.is_empty()
        && restrictions.tokens.is_empty()
        && restrictions.partition.iter().chain(&restrictions.clustering).all(|c| matches!(c, Choice::One(_)))
        && !restrictions.partition.is_empty()
        && restrictions.clustering.len() == def.clustering().count()
        && per_partition.is_none()
        && nearest.is_none();
    let Shape { point, open, picked } = Shape::of(def, &projection, may_be_point);
    let note = projection.groups().and_then(|_| note(def, &select.relations));
    let (has_in, listed) = (restrictions.has_in(), (restrictions.listed(), restrictions.has_lists()));
    let projection = Arc::new(projection);
    let may_be_large = columns.len() > FIXED_COLUMNS || columns.iter().any(|c| c.ty.fixed_len().is_none());
    let mut plan = SelectPlan {
        def: def.clone(),
        projection,
        columns,
        json: select.json.then(|| json_column(def)),
        restrictions,
        index,
        view: None,
        nearest,
        limits: RowLimits { all: limit, per_partition },
        order,
        distinct: select.distinct,
        point,
        may_be_point,
        may_be_large,
        is_virtual,
        bypass_cache: select.bypass_cache,
        picked,
        open,
        has_in,
        listed,
        room: AtomicUsize::new(0),
        masked: None,
        note,
    };
    if !def.masks.is_empty() {
        let restricted = masked_among(def, restricted_columns(names, select)?.into_iter());
        let shown = masked.map(|projection| Arc::new(plan.showing(projection)));
        if shown.is_some() || !restricted.is_empty() {
            plan.masked = Some(MaskedUse { shown, restricted });
        }
    }
    Ok(plan)
}

/// Returns the warning for an aggregate or a `GROUP BY`. As in Cassandra, an `IN` of one value is
/// an equality.
fn note(def: &TableDef, relations: &[ast::Relation]) -> Option<Note> {
    let is_of_key = |relation: &&ast::Relation| {
        let is_key = |name: &String| def.partition_key().any(|column| column.name == *name);
        relation.columns().iter().any(is_key)
    };
    let of_key: Vec<_> = relations.iter().filter(is_of_key).collect();
    let is_in = |relation: &&ast::Relation| match relation {
        ast::Relation::In { values: ast::InValues::List(values), .. } => values.len() != 1,
        ast::Relation::In { .. } | ast::Relation::TupleIn { .. } => true,
        _ => false,
    };
    match of_key.is_empty() {
        true => Some(Note::AggregationOfAll),
        false => of_key.iter().any(is_in).then_some(Note::AggregationOfSeveral),
    }
}

/// Returns the columns whose values decide which rows are shown: those of the WHERE, and vectors
/// that are searched. By their index in the table's `columns`.
fn restricted_columns(names: &TableNames, select: &ast::Select) -> Result<Vec<usize>, Error> {
    let searched = select.nearest.iter().map(|nearest| &nearest.column);
    let columns = select.relations.iter().flat_map(ast::Relation::columns).chain(searched);
    columns.map(|name| Ok(names.find(name)?.0)).collect()
}

/// Properties of a plan that depend on its projection.
struct Shape {
    point: bool,
    open: bool,
    picked: Option<Box<[u32]>>,
}

impl Shape {
    /// Returns the shape of a plan. `may_be_point`: the rest of it is that of a point read.
    fn of(def: &TableDef, projection: &Projection, may_be_point: bool) -> Shape {
        let point = may_be_point && projection.groups().is_none() && !projection.shows_statics(def);
        let picked = if point { picked(def, projection) } else { None };
        Shape { point, open: projection.is_open(), picked }
    }
}

/// Returns the column of a SELECT JSON.
fn json_column(def: &TableDef) -> Columns {
    let (keyspace, table) = (def.keyspace.as_str().into(), def.name.as_str().into());
    Arc::from([ColumnSpec { keyspace, table, name: "[json]".to_owned(), ty: CqlType::Text }])
}

/// Returns the columns whose cells a point read shows, ascending. `None` for a table with dropped
/// columns: the existence of a row then depends on its other cells.
fn picked(def: &TableDef, projection: &Projection) -> Option<Box<[u32]>> {
    if def.next_column_id as usize != def.columns.len() {
        return None;
    }
    let mut columns: Vec<u32> = match projection {
        Projection::Rows(shows) => shows.iter().filter_map(|show| show.cells_of(def)).collect(),
        Projection::Computed(computed) => computed.cells_of(def),
        Projection::Groups(_) => return None,
    };
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

/// Returns true if a SELECT shows static columns, and of the others those of the partition key
/// alone.
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
        let partition = names.def.partition_key().count();
        let is_equal = |at: usize| restrictions.is_equal(&names.def, partition + at);
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
