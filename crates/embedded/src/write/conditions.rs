//! Conditions of writes: IF NOT EXISTS, IF EXISTS, IF c = v. They are prepared and checked against
//! stored data here. The result is Cassandra's: `[applied]`, and the current values if it is false.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use cql::ast::{self, AssignmentTarget, CompareOp, IfClause, InValues};
use engine::{ColumnSpec, Error, ResultRows, Value};
use schema::{ColumnDef, ColumnKind, CqlType, TableDef, value};

use crate::bind::elements;
use crate::bind::filter::holds;
use crate::bind::mask::Masks;
use crate::bind::names::TableNames;
use crate::bind::projection::{Projection, masked_rows};
use crate::bind::restrict::{is_bound, sign, with_duration};
use crate::bind::show::{RowSource, Show, Shows};
use crate::bind::term::{Bind, Binder, Given};
use crate::read::chunk::{Chunk, Ends, Grants};
use crate::read::row_answer::{self, units_of_row};

/// Conditions of a write.
#[derive(Debug)]
pub(crate) struct Conditions {
    what: Requirement,
    /// True if the statement changes static columns alone: a partition without rows may pass.
    static_only: bool,
}

#[derive(Debug)]
enum Requirement {
    NotExists,
    Exists,
    Columns(Vec<ColumnTest>),
}

/// Test of one column.
#[derive(Debug)]
struct ColumnTest {
    /// Index in the table's `columns`.
    column: usize,
    /// Type of the column.
    of: CqlType,
    part: ConditionPart,
    /// Type of the tested value.
    ty: CqlType,
    test: Test,
}

#[derive(Debug)]
enum ConditionPart {
    Whole,
    Key(Bind),
    Index(Bind),
    Field(usize),
}

#[derive(Debug)]
enum Test {
    Compare(CompareOp, Bind),
    In(Vec<Bind>),
    Listed(Bind),
    Contains(Bind),
    ContainsKey(Bind),
}

fn invalid<T>(text: String) -> Result<T, Error> {
    Err(Error::Invalid(text))
}

impl Conditions {
    /// Returns the IF NOT EXISTS of an INSERT.
    pub(crate) fn not_exists(static_only: bool) -> Conditions {
        Conditions { what: Requirement::NotExists, static_only }
    }

    /// Prepares the IF of an UPDATE or a DELETE; `None` without one.
    pub(crate) fn of(
        names: &TableNames,
        clause: &IfClause,
        static_only: bool,
        binder: &mut Binder,
    ) -> Result<Option<Conditions>, Error> {
        let what = match clause {
            IfClause::None => return Ok(None),
            IfClause::Exists => Requirement::Exists,
            IfClause::Columns(conditions) => {
                let tests = conditions.iter().map(|condition| ColumnTest::of(names, condition, binder));
                Requirement::Columns(tests.collect::<Result<_, _>>()?)
            }
        };
        Ok(Some(Conditions { what, static_only }))
    }

    /// Returns true if nothing but static columns is tested.
    pub(crate) fn is_static(&self, def: &TableDef) -> bool {
        match &self.what {
            Requirement::Columns(tests) => tests.iter().all(|test| test.is_static(def)),
            _ => self.static_only,
        }
    }

    /// Returns the tested columns: those of rows, then static ones. Cassandra shows them so.
    pub(crate) fn columns(&self, def: &TableDef) -> impl Iterator<Item = usize> {
        let tests = if let Requirement::Columns(tests) = &self.what { &tests[..] } else { &[] };
        let of = |is_static| tests.iter().filter(move |test| test.is_static(def) == is_static);
        of(false).chain(of(true)).map(|test| test.column)
    }

    /// Returns the estimated work units of checking them against a row of `row_bytes`. Each test
    /// may walk all elements of a collection.
    pub(crate) fn units(&self, values: &[Value<'_>], row_bytes: usize) -> u64 {
        let Requirement::Columns(tests) = &self.what else { return 1 };
        let of_test = |test: &ColumnTest| 1 + (row_bytes as u64 + test.size(values)) / BYTES_PER_UNIT;
        tests.iter().map(of_test).sum()
    }

    /// Returns what the conditions test of a row.
    fn tested(&self, source: &RowSource<'_>) -> Result<Tested, Error> {
        let Requirement::Columns(tests) = &self.what else { return Ok(Tested::Row(self.finds(source))) };
        // Assemble a collection once, even if several tests use it.
        let mut wholes = HashMap::new();
        for test in tests {
            if let Entry::Vacant(place) = wholes.entry(test.column) {
                place.insert(source.column(test.column)?.map(Cow::into_owned));
            }
        }
        Ok(Tested::Columns(wholes))
    }

    /// Returns true if all conditions hold. Yields between tests, because each may walk all
    /// elements of a collection.
    async fn hold(&self, tested: Tested, values: &[Value<'_>]) -> Result<bool, Error> {
        let (tests, wholes) = match (&self.what, tested) {
            (Requirement::NotExists, Tested::Row(found)) => return Ok(!found),
            (Requirement::Columns(tests), Tested::Columns(wholes)) => (tests, wholes),
            (_, Tested::Row(found)) => return Ok(found),
            (_, Tested::Columns(_)) => unreachable!("made of the same requirement"),
        };
        for test in tests {
            let whole = wholes.get(&test.column).and_then(Option::as_deref);
            if !test.holds(whole, values)? {
                return Ok(false);
            }
            if lanes::spend_bytes(whole.map_or(1, |whole| whole.len().max(1))) {
                lanes::yield_now().await;
            }
        }
        Ok(true)
    }

    fn finds(&self, source: &RowSource<'_>) -> bool {
        source.row.is_some() && source.exists() || self.static_only && source.has_statics()
    }
}

/// Returns true if an IF tests a column of rows.
pub(crate) fn tests_rows(names: &TableNames, clause: &IfClause) -> Result<bool, Error> {
    let IfClause::Columns(conditions) = clause else { return Ok(false) };
    for condition in conditions {
        if names.find(condition.target.column())?.1.kind != ColumnKind::Static {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tested parts of a row.
enum Tested {
    /// True if the row exists.
    Row(bool),
    /// Values of the tested columns.
    Columns(HashMap<usize, Option<Vec<u8>>>),
}

/// Bytes of values that a test compares in one work unit.
const BYTES_PER_UNIT: u64 = 64;

impl ColumnTest {
    fn is_static(&self, def: &TableDef) -> bool {
        def.columns[self.column].kind == ColumnKind::Static
    }

    /// Returns the size of its values in one execution, in bytes as given by the client.
    fn size(&self, values: &[Value<'_>]) -> u64 {
        let of_part = match &self.part {
            ConditionPart::Key(bind) | ConditionPart::Index(bind) => bind.size(values),
            ConditionPart::Whole | ConditionPart::Field(_) => 0,
        };
        of_part
            + match &self.test {
                Test::In(binds) => binds.iter().map(|bind| BYTES_PER_UNIT + bind.size(values)).sum(),
                Test::Compare(_, bind) | Test::Listed(bind) => bind.size(values),
                Test::Contains(bind) | Test::ContainsKey(bind) => bind.size(values),
            }
    }

    fn of(names: &TableNames, condition: &ast::Condition, binder: &mut Binder) -> Result<ColumnTest, Error> {
        let name = condition.target.column();
        let (column, found) = names.find(name)?;
        if !matches!(found.kind, ColumnKind::Static | ColumnKind::Regular) {
            return invalid(format!("PRIMARY KEY column '{name}' cannot have IF conditions"));
        }
        let (part, ty) = match (&condition.target, found.ty.thawed()) {
            (AssignmentTarget::Column(_), _) => (ConditionPart::Whole, found.ty.clone()),
            (AssignmentTarget::Element(_, key), CqlType::Map(key_type, value)) => {
                (ConditionPart::Key(binder.bind(&format!("key({name})"), key_type, key)?), (**value).clone())
            }
            (AssignmentTarget::Element(_, at), CqlType::List(element)) => (
                ConditionPart::Index(binder.bind(&format!("idx({name})"), &CqlType::Int, at)?),
                (**element).clone(),
            ),
            (AssignmentTarget::Field(_, field), CqlType::Udt(udt)) => {
                match udt.fields.iter().position(|(known, _)| known == field) {
                    Some(at) => (ConditionPart::Field(at), udt.fields[at].1.clone()),
                    None => return invalid(format!("Unknown field {field} for column {name}")),
                }
            }
            (AssignmentTarget::Element(..), CqlType::Set(_)) => {
                return invalid(format!("Invalid element access syntax for set column {name}"));
            }
            (AssignmentTarget::Element(..), _) => {
                return invalid(format!("Invalid element access syntax for non-collection column {name}"));
            }
            (AssignmentTarget::Field(..), ty) => {
                return invalid(format!("Cannot operate on a field of column {name} of type {ty}"));
            }
        };
        if let ast::Test::Compare(op, _) = &condition.test
            && is_bound(*op)
            && let Some(what) = with_duration(&ty)
        {
            return invalid(match what {
                "durations" => format!("Slice conditions ( {} ) are not supported on durations", sign(*op)),
                what => format!("Slice conditions are not supported on {what}"),
            });
        }
        let inner = ty.thawed().inner();
        let test = match &condition.test {
            ast::Test::Compare(op, term) => Test::Compare(*op, binder.bind(name, &ty, term)?),
            ast::Test::In(InValues::List(terms)) => Test::In(binder.bind_all(name, &ty, terms)?),
            ast::Test::In(InValues::Marker(term)) => Test::Listed(binder.bind_list(name, &ty, term)?),
            ast::Test::Contains(term) => match inner.last().filter(|_| ty.is_collection()) {
                Some(element) => Test::Contains(binder.bind(&format!("value({name})"), element, term)?),
                None => return invalid(format!("Cannot use CONTAINS on non-collection column {name}")),
            },
            ast::Test::ContainsKey(term) => match ty.thawed() {
                CqlType::Map(key, _) => Test::ContainsKey(binder.bind(&format!("key({name})"), key, term)?),
                _ => return invalid(format!("Cannot use CONTAINS KEY on non-map column {name}")),
            },
            ast::Test::Like(_) => return invalid("LIKE is not supported in conditions".into()),
        };
        Ok(ColumnTest { column, of: found.ty.clone(), part, ty, test })
    }

    /// Returns the tested value. A collection or user type without elements is null.
    fn found<'w>(&self, whole: Option<&'w [u8]>, values: &[Value<'_>]) -> Result<Option<&'w [u8]>, Error> {
        let access = match &self.part {
            ConditionPart::Key(key) => Some((key, "map")),
            ConditionPart::Index(at) => Some((at, "list")),
            ConditionPart::Whole | ConditionPart::Field(_) => None,
        };
        if let Some((bind, what)) = access
            && bind.get(values)? == Given::Null
        {
            return invalid(format!("Invalid null value for {what} element access"));
        }
        if let ConditionPart::Index(at) = &self.part
            && let Some(negative) = at.number(values)?.filter(|at| *at < 0)
        {
            return invalid(format!("Invalid negative list index {negative}"));
        }
        let Some(whole) = whole else { return Ok(None) };
        Ok(match &self.part {
            ConditionPart::Whole => Some(whole),
            ConditionPart::Key(key) => elements::value_at_key(&self.of, whole, &key.required(values)?),
            ConditionPart::Index(at) => {
                let at = at.number(values)?.and_then(|at| usize::try_from(at).ok());
                at.and_then(|at| value::elements(whole).nth(at)).and_then(Result::ok)
            }
            ConditionPart::Field(at) => value::components(whole).nth(*at).and_then(Result::ok).flatten(),
        })
    }

    fn holds(&self, whole: Option<&[u8]>, values: &[Value<'_>]) -> Result<bool, Error> {
        let found = self.found(whole, values)?;
        let wanted = |bind: &Bind| match bind.get(values)? {
            Given::Bytes(bytes) if self.is_empty_collection(&bytes) => Ok(None),
            Given::Bytes(bytes) => Ok(Some(bytes.into_owned())),
            Given::Null => Ok(None),
            Given::Unset => invalid("Invalid 'unset' value in condition".into()),
        };
        let same = |wanted: &Option<Vec<u8>>| match (&found, wanted) {
            (Some(found), Some(wanted)) => value::compare(&self.ty, found, wanted).is_eq(),
            (found, wanted) => found.is_none() && wanted.is_none(),
        };
        let has = |bind: &Bind, key: bool| {
            let Some(wanted) = wanted(bind)? else {
                let operator = if key { "CONTAINS KEY" } else { "CONTAINS" };
                return invalid(format!("Invalid comparison with null for operator \"{operator}\""));
            };
            let Some(found) = &found else { return Ok(false) };
            Ok(match self.ty.thawed() {
                _ if key => elements::value_at_key(&self.ty, found, &wanted).is_some(),
                CqlType::Map(_, of) => {
                    value::pairs(found).flatten().any(|(_, v)| value::compare(of, v, &wanted).is_eq())
                }
                CqlType::List(of) | CqlType::Set(of) => {
                    value::elements(found).flatten().any(|v| value::compare(of, v, &wanted).is_eq())
                }
                _ => false,
            })
        };
        match &self.test {
            Test::Compare(op, bind) => match (op, wanted(bind)?) {
                (CompareOp::Eq, wanted) => Ok(same(&wanted)),
                (CompareOp::NotEq, wanted) => Ok(!same(&wanted)),
                (op, None) => {
                    let what = match bind.get(values)? {
                        Given::Bytes(_) => format!("an empty {}", self.ty.kind_name()),
                        Given::Null | Given::Unset => "null".to_owned(),
                    };
                    invalid(format!("Invalid comparison with {what} for operator \"{}\"", sign(*op)))
                }
                (op, Some(wanted)) => {
                    Ok(found.is_some_and(|found| holds(*op, value::compare(&self.ty, found, &wanted))))
                }
            },
            Test::In(binds) => {
                for bind in binds {
                    // As in Cassandra, the list is without its unset values.
                    if bind.get(values)? != Given::Unset && same(&wanted(bind)?) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Test::Listed(bind) => {
                let list = bind.list_with_nulls(&self.ty, values)?;
                Ok(list.into_iter().any(|wanted| {
                    let wanted = wanted.filter(|wanted| !self.is_empty_collection(wanted));
                    same(&wanted.map(<[u8]>::to_vec))
                }))
            }
            Test::Contains(bind) => has(bind, false),
            Test::ContainsKey(bind) => has(bind, true),
        }
    }

    /// Returns true for an empty collection of elements, which equals null.
    fn is_empty_collection(&self, bytes: &[u8]) -> bool {
        self.ty.is_multi_cell() && self.ty.is_collection() && bytes == [0; 4]
    }
}

/// Kind of the conditions on a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    NotExists,
    Exists,
    Columns,
}

/// Result of checking the conditions of one or more statements.
#[derive(Default)]
pub(crate) struct Verdict {
    /// Rows that were checked, and the kind of their conditions. `None`: the static columns.
    rows: BTreeMap<Option<Vec<u8>>, Kind>,
    /// Columns that were checked, in the order of the statements.
    columns: Vec<usize>,
    /// Set of the same columns, for lookups.
    seen: HashSet<usize>,
    /// True if a whole row was checked: all columns are shown.
    whole: bool,
    refused: bool,
}

impl Verdict {
    /// Checks the conditions of one statement against a row. The future does not hold the row, so
    /// that a heavy lane may run it.
    pub(crate) fn check<'c>(
        &'c mut self,
        conditions: &'c Conditions,
        row: Vec<u8>,
        source: &RowSource<'_>,
        values: &'c [Value<'c>],
    ) -> impl Future<Output = Result<(), Error>> + Send + use<'c> {
        let tested = self.note(conditions, row, source.def).and_then(|()| conditions.tested(source));
        async move {
            self.refused |= !conditions.hold(tested?, values).await?;
            Ok(())
        }
    }

    /// Notes the row and the columns of a statement's conditions.
    fn note(&mut self, conditions: &Conditions, row: Vec<u8>, def: &TableDef) -> Result<(), Error> {
        let kind = match &conditions.what {
            Requirement::NotExists => Kind::NotExists,
            Requirement::Exists => Kind::Exists,
            Requirement::Columns(_) => Kind::Columns,
        };
        self.whole |= kind != Kind::Columns;
        if !conditions.is_static(def) {
            self.note_row(Some(row), kind)?;
        }
        if conditions.is_static(def)
            || conditions.columns(def).any(|at| def.columns[at].kind == ColumnKind::Static)
        {
            self.note_row(None, kind)?;
        }
        self.columns.extend(conditions.columns(def).filter(|column| self.seen.insert(*column)));
        Ok(())
    }

    fn note_row(&mut self, row: Option<Vec<u8>>, kind: Kind) -> Result<(), Error> {
        let before = *self.rows.entry(row).or_insert(kind);
        match (before, kind) {
            _ if before == kind => Ok(()),
            (_, Kind::Columns) => {
                invalid("Cannot mix IF conditions and IF NOT EXISTS for the same row".into())
            }
            (Kind::Columns, _) => {
                let not = if kind == Kind::NotExists { "NOT " } else { "" };
                invalid(format!("Cannot mix IF conditions and IF {not}EXISTS for the same row"))
            }
            _ => invalid("Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row".into()),
        }
    }

    /// Returns true if a statement had conditions.
    pub(crate) fn is_conditional(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Returns the result of a failed condition, without its rows. `None` if all conditions hold.
    /// As in Cassandra, every role sees it behind the masks of the table.
    pub(crate) fn refusal(
        &mut self,
        def: &TableDef,
        in_batch: bool,
        read: impl FnOnce() -> ReadColumns,
        masks: Option<&Masks<'_>>,
    ) -> Option<Refusal> {
        if !self.refused {
            return None;
        }
        let read = read();
        let keys = def.partition_key().count() + def.clustering().count();
        let shown: Vec<usize> = match self.whole {
            false => (0..if in_batch { keys } else { 0 }).chain(self.columns.iter().copied()).collect(),
            true => (0..def.columns.len()).collect(),
        };
        let mut specs = vec![applied_column(def)];
        specs.extend(shown.iter().map(|at| spec(def, &def.columns[*at].name, def.columns[*at].ty.clone())));
        let show = |at: &usize| match read.has(def, *at) {
            true => Show::column(*at, &def.columns[*at]),
            false => Show::Regular(NO_COLUMN),
        };
        let shows = shown.iter().map(show).collect();
        let projection = match masks {
            Some(masks) => masked_rows(masks, shows),
            None => Projection::Rows(Shows::new(def, shows)),
        };
        let chunk = Chunk::new(ResultRows::new(specs.into()), u32::MAX, usize::MAX, Ends::Whole);
        let keys = std::mem::take(&mut self.rows).into_keys().flatten().collect();
        Some(Refusal { keys, read, projection, chunk })
    }
}

/// Number of no column: its value is null.
const NO_COLUMN: u32 = u32::MAX;

/// Columns that Cassandra reads for conditional statements. Others are null in its answer, and
/// neither a row nor a partition exists by them.
#[derive(Default)]
pub(crate) struct ReadColumns {
    /// True if a statement names rows.
    pub(crate) all_regulars: bool,
    /// True if a statement with conditions changes static columns.
    pub(crate) all_statics: bool,
    /// Other columns, by their index in the table's `columns`.
    pub(crate) others: HashSet<usize>,
}

impl ReadColumns {
    fn has(&self, def: &TableDef, at: usize) -> bool {
        match def.columns[at].kind {
            ColumnKind::PartitionKey(_) | ColumnKind::Clustering(..) => true,
            ColumnKind::Static => self.all_statics || self.others.contains(&at),
            ColumnKind::Regular => self.all_regulars || self.others.contains(&at),
        }
    }

    /// Returns true if the source has a value in a column of this kind that is read.
    fn has_value(&self, source: &RowSource<'_>, kind: ColumnKind) -> bool {
        let column = |at: &usize| Some(&source.def.columns[*at]).filter(|column| column.kind == kind);
        self.others.iter().filter_map(column).any(|column: &ColumnDef| source.has(column))
    }

    /// Returns true if the row exists.
    pub(crate) fn find_row(&self, source: &RowSource<'_>) -> bool {
        match source.row {
            Some(_) if self.all_regulars => source.exists(),
            Some(row) => row.liveness().is_some() || self.has_value(source, ColumnKind::Regular),
            None => false,
        }
    }

    /// Returns true if the partition has static cells.
    fn find_statics(&self, source: &RowSource<'_>) -> bool {
        if self.all_statics { source.has_statics() } else { self.has_value(source, ColumnKind::Static) }
    }
}

/// Result of a failed condition: the checked columns of the rows as they are.
///
/// 1. Rows that were checked and exist are shown. Each repeats the static columns.
/// 2. If none was checked, because all conditions are on static columns, the first row of the
///    partition is shown.
/// 3. Without any of these the static columns alone are shown, if there are some.
pub(crate) struct Refusal {
    /// Rows that were checked.
    pub(crate) keys: Vec<Vec<u8>>,
    read: ReadColumns,
    projection: Projection,
    chunk: Chunk,
}

impl Refusal {
    /// Sets the memory for its rows.
    pub(crate) fn within(mut self, grants: Grants) -> Refusal {
        self.chunk.grants = grants;
        self
    }

    /// Returns the work units of adding a small row.
    pub(crate) fn row_units(&self) -> u32 {
        units_of_row(self.projection.width())
    }

    /// Adds a row, if it exists.
    ///
    /// # Errors
    /// Returns an error if there is no memory for the result, or if it is too large.
    pub(crate) fn add(&mut self, source: &RowSource<'_>) -> Result<(), Error> {
        if self.read.find_row(source) { self.push(source) } else { Ok(()) }
    }

    /// Adds the static columns, if no row was added and there are some. Its errors are those of
    /// [`Refusal::add`].
    pub(crate) fn add_statics(&mut self, source: &RowSource<'_>) -> Result<(), Error> {
        let source = RowSource { row: None, ..*source };
        let is_alone = self.chunk.rows.count == 0 && self.read.find_statics(&source);
        if is_alone { self.push(&source) } else { Ok(()) }
    }

    fn push(&mut self, source: &RowSource<'_>) -> Result<(), Error> {
        self.chunk.rows.push(Some(&[0]));
        row_answer::add(&self.projection, source, &mut self.chunk).map(drop)
    }

    /// Returns the rows.
    pub(crate) fn finish(self, def: &TableDef) -> ResultRows {
        if self.chunk.rows.count > 0 {
            return self.chunk.rows;
        }
        let mut rows = ResultRows::new(vec![applied_column(def)].into());
        rows.push(Some(&[0]));
        rows.count = 1;
        rows
    }
}

/// Returns the result if all conditions hold.
pub(crate) fn applied(def: &TableDef) -> ResultRows {
    let mut rows = ResultRows::new(vec![applied_column(def)].into());
    rows.push(Some(&[1]));
    rows.count = 1;
    rows
}

fn applied_column(def: &TableDef) -> ColumnSpec {
    spec(def, "[applied]", CqlType::Boolean)
}

fn spec(def: &TableDef, name: &str, ty: CqlType) -> ColumnSpec {
    ColumnSpec {
        keyspace: def.keyspace.as_str().into(),
        table: def.name.as_str().into(),
        name: name.into(),
        ty,
    }
}
