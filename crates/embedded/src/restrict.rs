//! WHERE, sorted by what each relation is good for: naming partitions, bounding a slice, or filtering rows.

use std::cmp::Ordering;

use cql::ast::{CompareOp, InValues, Relation};
use engine::{Error, Value};
use schema::{ColumnDef, CqlType, TableDef, value};

use crate::elements;
use crate::term::{Bind, Binder};

/// The most values an IN, or the product of several, may name.
pub(crate) const KEYS_MAX: usize = 10_000;

/// Values for one key column.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// `= v`.
    One(Bind),
    /// `IN (a, b)`.
    Some(Vec<Bind>),
    /// `IN ?`, a list.
    Listed(Bind),
}

impl Choice {
    /// The values for one execution, in the order given.
    pub(crate) fn values(&self, values: &[Value<'_>]) -> Result<Vec<Vec<u8>>, Error> {
        match self {
            Choice::One(bind) => Ok(vec![bind.required(values)?.into_owned()]),
            Choice::Some(binds) => binds.iter().map(|b| Ok(b.required(values)?.into_owned())).collect(),
            Choice::Listed(bind) => {
                let list = bind.required(values)?;
                let elements = schema::value::elements(&list).map(|e| e.map(<[u8]>::to_vec));
                elements.collect::<Result<_, _>>().map_err(|e| Error::Invalid(e.to_string()))
            }
        }
    }
}

/// A comparison that rows must pass.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// The column's place in the table's `columns`.
    pub(crate) column: usize,
    /// What is asked.
    pub(crate) test: Test,
}

/// See [`Filter`].
#[derive(Clone, Debug)]
pub(crate) enum Test {
    /// A comparison with one value.
    Compare(CompareOp, Bind),
    /// One of several.
    In(Choice),
    /// A collection has this value.
    Contains(Bind),
    /// A map has this key.
    ContainsKey(Bind),
    /// A map has this value under this key.
    Entry(Bind, Bind),
}

/// A bound on tokens.
pub(crate) type TokenBound = (CompareOp, Bind);

/// A WHERE clause, made ready.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restrictions {
    /// For each partition-key column its values; empty where the partition is not named.
    pub(crate) partition: Vec<Choice>,
    /// For a prefix of the clustering columns, their values.
    pub(crate) clustering: Vec<Choice>,
    /// Bounds on the clustering column after that prefix.
    pub(crate) range: Vec<(CompareOp, Bind)>,
    /// Bounds on the token.
    pub(crate) tokens: Vec<TokenBound>,
    /// The rest.
    pub(crate) filters: Vec<Filter>,
}

/// Sorts the relations of a WHERE over `def`. With `all_filter`, every relation is a filter (virtual tables).
pub(crate) fn restrict(
    def: &TableDef,
    relations: &[Relation],
    binder: &mut Binder,
    all_filter: bool,
) -> Result<Restrictions, Error> {
    let mut tests: Vec<(usize, Test)> = Vec::with_capacity(relations.len());
    let mut tokens = Vec::new();
    for relation in relations {
        match relation {
            Relation::Compare { column, op, value } => {
                let (at, column) = find(def, column)?;
                check_comparable(column, sign(*op))?;
                let bind = binder.bind(&column.name, &column.ty, value)?;
                tests.push((at, Test::Compare(*op, bind)));
            }
            Relation::Contains { column, value } => {
                let (at, column) = find(def, column)?;
                let (name, inner) = (&column.name, column.ty.thawed().inner());
                let element = inner.last().filter(|_| column.ty.is_collection()).ok_or_else(|| {
                    Error::Invalid(format!("Cannot use CONTAINS on non-collection column {name}"))
                })?;
                tests.push((at, Test::Contains(binder.bind(&format!("value({name})"), element, value)?)));
            }
            Relation::ContainsKey { column, key } => {
                let (at, column) = find(def, column)?;
                let name = &column.name;
                let CqlType::Map(of, _) = column.ty.thawed() else {
                    return Err(Error::Invalid(format!("Cannot use CONTAINS KEY on non-map column {name}")));
                };
                tests.push((at, Test::ContainsKey(binder.bind(&format!("key({name})"), of, key)?)));
            }
            Relation::Element { column, key, op, value } => {
                let (at, column) = find(def, column)?;
                let name = &column.name;
                let CqlType::Map(of, values) = column.ty.thawed() else {
                    return Err(Error::Invalid(format!("Column {name} cannot be used as a map")));
                };
                if *op != CompareOp::Eq {
                    return Err(Error::Invalid("Only EQ relations are supported on map entries".into()));
                }
                let key = binder.bind(&format!("key({name})"), of, key)?;
                tests.push((at, Test::Entry(key, binder.bind(&format!("value({name})"), values, value)?)));
            }
            Relation::In { column, values } => {
                let (at, column) = find(def, column)?;
                check_comparable(column, "IN")?;
                let choice = match values {
                    InValues::List(terms) => {
                        let binds = terms.iter().map(|t| binder.bind(&column.name, &column.ty, t));
                        Choice::Some(binds.collect::<Result<_, _>>()?)
                    }
                    InValues::Marker(term) => {
                        let list = CqlType::List(Box::new(column.ty.clone()));
                        Choice::Listed(binder.bind(&format!("in({})", column.name), &list, term)?)
                    }
                };
                tests.push((at, Test::In(choice)));
            }
            Relation::Token { columns, op, value } => {
                if !columns.iter().eq(def.partition_key().map(|c| &c.name)) {
                    return Err(Error::Invalid(
                        "The token function arguments must be in the partition key order, and all of it"
                            .into(),
                    ));
                }
                tokens.push((*op, binder.bind("partition key token", &CqlType::BigInt, value)?));
            }
            _ => {
                return Err(Error::Invalid(
                    "This kind of relation (tuples of columns, LIKE, IS NOT NULL) is not supported yet"
                        .into(),
                ));
            }
        }
    }
    let mut out = Restrictions { tokens, ..Restrictions::default() };
    if !all_filter {
        take_keys(def, &mut tests, &mut out);
    }
    out.filters = tests.into_iter().map(|(column, test)| Filter { column, test }).collect();
    Ok(out)
}

/// Takes the relations that name partitions and slices out of `tests`.
fn take_keys(def: &TableDef, tests: &mut Vec<(usize, Test)>, out: &mut Restrictions) {
    let choice_at = |tests: &[(usize, Test)], column: usize| {
        tests.iter().position(|(at, test)| {
            *at == column && matches!(test, Test::Compare(CompareOp::Eq, _) | Test::In(_))
        })
    };
    let keys = def.partition_key().count();
    let whole = (0..keys).all(|column| choice_at(tests, column).is_some());
    if !whole {
        return;
    }
    for column in 0..keys {
        let at = choice_at(tests, column).expect("just seen");
        out.partition.push(choice(tests.remove(at).1));
    }
    for column in keys..keys + def.clustering().count() {
        if let Some(at) = choice_at(tests, column) {
            out.clustering.push(choice(tests.remove(at).1));
            continue;
        }
        while let Some(at) = tests.iter().position(|(c, t)| *c == column && is_bound(t)) {
            if let Test::Compare(op, bind) = tests.remove(at).1 {
                out.range.push((op, bind));
            }
        }
        break;
    }
}

/// A column of elements cannot be compared as a whole.
fn check_comparable(column: &ColumnDef, sign: &str) -> Result<(), Error> {
    let (name, ty) = (&column.name, &column.ty);
    match ty.is_multi_cell() {
        true if ty.is_collection() => Err(Error::Invalid(format!(
            "Collection column '{name}' ({ty}) cannot be restricted by a '{sign}' relation"
        ))),
        true => Err(Error::Invalid(format!(
            "Non-frozen UDT column '{name}' ({ty}) cannot be restricted by any relation"
        ))),
        false => Ok(()),
    }
}

/// How CQL writes a comparison.
pub(crate) fn sign(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "=",
        CompareOp::NotEq => "!=",
        CompareOp::Less => "<",
        CompareOp::LessEq => "<=",
        CompareOp::Greater => ">",
        CompareOp::GreaterEq => ">=",
    }
}

fn is_bound(test: &Test) -> bool {
    matches!(
        test,
        Test::Compare(CompareOp::Less | CompareOp::LessEq | CompareOp::Greater | CompareOp::GreaterEq, _)
    )
}

fn choice(test: Test) -> Choice {
    match test {
        Test::In(choice) => choice,
        Test::Compare(_, bind) | Test::Contains(bind) | Test::ContainsKey(bind) | Test::Entry(_, bind) => {
            Choice::One(bind)
        }
    }
}

/// The column of that name.
pub(crate) fn find<'a>(def: &'a TableDef, name: &str) -> Result<(usize, &'a schema::ColumnDef), Error> {
    def.column(name).ok_or_else(|| {
        Error::Invalid(format!("Undefined column name {name} in table {}.{}", def.keyspace, def.name))
    })
}

/// A filter with its values, for one execution; it can travel to another core.
#[derive(Clone, Debug)]
pub(crate) struct BoundFilter {
    /// The column's place in the table's `columns`.
    pub(crate) column: usize,
    test: BoundTest,
}

#[derive(Clone, Debug)]
enum BoundTest {
    Compare(CompareOp, Vec<u8>),
    In(Vec<Vec<u8>>),
    Contains(Vec<u8>),
    ContainsKey(Vec<u8>),
    Entry(Vec<u8>, Vec<u8>),
}

impl Filter {
    /// Takes the values of one execution.
    pub(crate) fn bound(&self, values: &[Value<'_>]) -> Result<BoundFilter, Error> {
        let one = |bind: &Bind| Ok::<_, Error>(bind.required(values)?.into_owned());
        let test = match &self.test {
            Test::Compare(op, bind) => BoundTest::Compare(*op, one(bind)?),
            Test::In(choice) => BoundTest::In(choice.values(values)?),
            Test::Contains(bind) => BoundTest::Contains(one(bind)?),
            Test::ContainsKey(bind) => BoundTest::ContainsKey(one(bind)?),
            Test::Entry(key, bind) => BoundTest::Entry(one(key)?, one(bind)?),
        };
        Ok(BoundFilter { column: self.column, test })
    }
}

impl BoundFilter {
    /// Whether a value passes; null passes nothing.
    pub(crate) fn passes(&self, ty: &CqlType, found: Option<&[u8]>) -> bool {
        let Some(found) = found else { return false };
        let same = |ty: &CqlType, a: &[u8], b: &[u8]| value::compare(ty, a, b).is_eq();
        match &self.test {
            BoundTest::Compare(op, other) => holds(*op, value::compare(ty, found, other)),
            BoundTest::In(others) => others.iter().any(|other| same(ty, found, other)),
            BoundTest::Contains(wanted) => match ty.thawed() {
                CqlType::Map(_, of) => {
                    value::pairs(found).flatten().any(|(_, value)| same(of, value, wanted))
                }
                CqlType::List(of) | CqlType::Set(of) => {
                    value::elements(found).flatten().any(|element| same(of, element, wanted))
                }
                _ => false,
            },
            BoundTest::ContainsKey(key) => elements::under_key(ty, found, key).is_some(),
            BoundTest::Entry(key, wanted) => match (ty.thawed(), elements::under_key(ty, found, key)) {
                (CqlType::Map(_, of), Some(value)) => same(of, value, wanted),
                _ => false,
            },
        }
    }
}

/// Whether a comparison holds for values that stand in this order.
pub(crate) fn holds(op: CompareOp, order: Ordering) -> bool {
    match op {
        CompareOp::Eq => order.is_eq(),
        CompareOp::NotEq => order.is_ne(),
        CompareOp::Less => order.is_lt(),
        CompareOp::LessEq => order.is_le(),
        CompareOp::Greater => order.is_gt(),
        CompareOp::GreaterEq => order.is_ge(),
    }
}
