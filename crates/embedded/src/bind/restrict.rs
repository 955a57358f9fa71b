//! WHERE clauses, sorted by the use of each relation: to name partitions, to bound a slice, or to
//! filter rows.
//!
//! A column takes one `=` or `IN`, or one lower and one upper bound. More are rejected with
//! Cassandra's texts. The result is therefore bounded by the columns, even if a client sends more
//! relations.

use cql::ast::{CompareOp, InValues, Relation, Term};
use engine::Error;
use schema::{ColumnDef, CqlType, TableDef};

use crate::bind::choice::Choice;
use crate::bind::filter::{Filter, Test};
use crate::bind::names::TableNames;
use crate::bind::term::{Bind, Binder};

/// A bound on tokens.
pub(crate) type TokenBound = (CompareOp, Bind);

/// Prepared WHERE clause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restrictions {
    /// Values of each partition key column; empty if the statement names no partition.
    pub(crate) partition: Vec<Choice>,
    /// Values of a prefix of the clustering columns.
    pub(crate) clustering: Vec<Choice>,
    /// Bounds on the clustering column after that prefix.
    pub(crate) range: Vec<(CompareOp, Bind)>,
    /// Bounds on the token.
    pub(crate) tokens: Vec<TokenBound>,
    /// All other relations.
    pub(crate) filters: Vec<Filter>,
}

impl Restrictions {
    /// Returns true if a key column has an IN.
    pub(crate) fn has_in(&self) -> bool {
        self.partition.iter().chain(&self.clustering).any(|choice| !matches!(choice, Choice::One(_)))
    }

    /// Returns true if a clustering column is restricted.
    pub(crate) fn names_rows(&self) -> bool {
        !self.clustering.is_empty() || !self.range.is_empty()
    }

    /// Returns true if a filter compares the column with this index by `=`.
    pub(crate) fn filters_by_equality(&self, column: usize) -> bool {
        let is_equality = |test: &Test| matches!(test, Test::Compare(CompareOp::Eq, _));
        self.filters.iter().any(|filter| filter.column == column && is_equality(&filter.test))
    }

    /// Returns the number of constants in INs.
    pub(crate) fn listed(&self) -> usize {
        let choices = self.partition.iter().chain(&self.clustering).map(Choice::listed);
        let filters = self.filters.iter().map(|filter| match &filter.test {
            Test::In(choice) => choice.listed(),
            _ => 0,
        });
        choices.chain(filters).sum()
    }

    /// Returns true if an IN, of a key column or another, has a list that comes with the request.
    pub(crate) fn has_lists(&self) -> bool {
        let of_filters = self.filters.iter().filter_map(|filter| match &filter.test {
            Test::In(choice) => Some(choice),
            _ => None,
        });
        let mut choices = self.partition.iter().chain(&self.clustering).chain(of_filters);
        choices.any(|choice| matches!(choice, Choice::Listed(_)))
    }
}

/// Restrictions of one column, or of the token, found so far.
#[derive(Clone, Copy, Default, Debug)]
struct Restricted {
    equal: bool,
    one_of: bool,
    start: bool,
    end: bool,
}

impl Restricted {
    /// Adds a comparison.
    ///
    /// # Errors
    /// Returns Cassandra's text if it cannot be combined with earlier ones.
    fn compare(&mut self, name: &str, op: CompareOp) -> Result<(), Error> {
        let seen = match op {
            CompareOp::Eq => {
                self.reject_after_choice(name)?;
                if self.start || self.end {
                    return reject_both(name);
                }
                &mut self.equal
            }
            CompareOp::NotEq => return Ok(()),
            CompareOp::Greater | CompareOp::GreaterEq => {
                self.reject_after_choice(name)?;
                &mut self.start
            }
            CompareOp::Less | CompareOp::LessEq => {
                self.reject_after_choice(name)?;
                &mut self.end
            }
        };
        if std::mem::replace(seen, true) {
            let bound = if is_lower(op) { "start" } else { "end" };
            return Err(Error::Invalid(format!(
                "More than one restriction was found for the {bound} bound on {name}"
            )));
        }
        Ok(())
    }

    /// Adds an IN. Its errors are those of [`Restricted::compare`].
    fn one_of(&mut self, name: &str) -> Result<(), Error> {
        self.reject_after_choice(name)?;
        if self.start || self.end {
            return reject_both(name);
        }
        self.one_of = true;
        Ok(())
    }

    fn reject_after_choice(&self, name: &str) -> Result<(), Error> {
        let kind = match self {
            Restricted { equal: true, .. } => "an Equal",
            Restricted { one_of: true, .. } => "a IN",
            _ => return Ok(()),
        };
        Err(Error::Invalid(format!(
            "{name} cannot be restricted by more than one relation if it includes {kind}"
        )))
    }
}

fn reject_both<T>(name: &str) -> Result<T, Error> {
    Err(Error::Invalid(format!(
        "Column \"{name}\" cannot be restricted by both an equality and an inequality relation"
    )))
}

/// Returns true for a lower bound.
pub(crate) fn is_lower(op: CompareOp) -> bool {
    matches!(op, CompareOp::Greater | CompareOp::GreaterEq)
}

/// Sorts the relations of a WHERE over a table. With `all_filter` every relation is a filter
/// (virtual tables).
pub(crate) fn restrict(
    names: &TableNames,
    relations: &[Relation],
    binder: &mut Binder,
    all_filter: bool,
) -> Result<Restrictions, Error> {
    let mut sorting = Sorting {
        names,
        binder,
        tests: Vec::with_capacity(relations.len()),
        restricted: vec![Restricted::default(); names.def.columns.len()],
        tokens: Vec::new(),
        token: Restricted::default(),
    };
    for relation in relations {
        sorting.add(relation)?;
    }
    let Sorting { tests, restricted, tokens, .. } = sorting;
    let mut out = Restrictions { tokens, ..Restrictions::default() };
    let tests = match all_filter {
        true => tests,
        false => take_keys(&names.def, &restricted, tests, &mut out),
    };
    out.filters = tests.into_iter().map(|(column, test)| Filter { column, test }).collect();
    Ok(out)
}

/// Relations of a WHERE, bound so far.
struct Sorting<'a> {
    names: &'a TableNames,
    binder: &'a mut Binder,
    /// Tests of columns, by their index.
    tests: Vec<(usize, Test)>,
    /// Restrictions of each column.
    restricted: Vec<Restricted>,
    tokens: Vec<TokenBound>,
    /// Restrictions of the token.
    token: Restricted,
}

impl Sorting<'_> {
    fn add(&mut self, relation: &Relation) -> Result<(), Error> {
        match relation {
            Relation::Compare { column, op, value } => self.compare(column, *op, value),
            Relation::Contains { column, value } => self.contains(column, value),
            Relation::ContainsKey { column, key } => self.contains_key(column, key),
            Relation::Element { column, key, op, value } => self.element(column, key, *op, value),
            Relation::In { column, values } => self.one_of(column, values),
            Relation::Token { columns, op, value } => self.token(columns, *op, value),
            _ => Err(Error::Invalid(
                "This kind of relation (tuples of columns, LIKE, IS NOT NULL) is not supported yet".into(),
            )),
        }
    }

    fn compare(&mut self, column: &str, op: CompareOp, value: &Term) -> Result<(), Error> {
        let (at, column) = self.names.find(column)?;
        check_comparable(column, sign(op))?;
        if is_bound(op)
            && let Some(what) = with_duration(&column.ty)
        {
            let what = if what == "durations" { "duration columns" } else { what };
            return Err(Error::Invalid(format!("Slice restrictions are not supported on {what}")));
        }
        self.restricted[at].compare(&column.name, op)?;
        let bind = self.binder.bind(&column.name, &column.ty, value)?;
        self.tests.push((at, Test::Compare(op, bind)));
        Ok(())
    }

    fn contains(&mut self, column: &str, value: &Term) -> Result<(), Error> {
        let (at, column) = self.names.find(column)?;
        let (name, inner) = (&column.name, column.ty.thawed().inner());
        let element = inner
            .last()
            .filter(|_| column.ty.is_collection())
            .ok_or_else(|| Error::Invalid(format!("Cannot use CONTAINS on non-collection column {name}")))?;
        self.tests.push((at, Test::Contains(self.binder.bind(&format!("value({name})"), element, value)?)));
        Ok(())
    }

    fn contains_key(&mut self, column: &str, key: &Term) -> Result<(), Error> {
        let (at, column) = self.names.find(column)?;
        let name = &column.name;
        let CqlType::Map(of, _) = column.ty.thawed() else {
            return Err(Error::Invalid(format!("Cannot use CONTAINS KEY on non-map column {name}")));
        };
        self.tests.push((at, Test::ContainsKey(self.binder.bind(&format!("key({name})"), of, key)?)));
        Ok(())
    }

    fn element(&mut self, column: &str, key: &Term, op: CompareOp, value: &Term) -> Result<(), Error> {
        let (at, column) = self.names.find(column)?;
        let name = &column.name;
        let CqlType::Map(of, values) = column.ty.thawed() else {
            return Err(Error::Invalid(format!("Column {name} cannot be used as a map")));
        };
        if op != CompareOp::Eq {
            return Err(Error::Invalid("Only EQ relations are supported on map entries".into()));
        }
        let key = self.binder.bind(&format!("key({name})"), of, key)?;
        self.tests.push((at, Test::Entry(key, self.binder.bind(&format!("value({name})"), values, value)?)));
        Ok(())
    }

    fn one_of(&mut self, column: &str, values: &InValues) -> Result<(), Error> {
        let (at, column) = self.names.find(column)?;
        check_comparable(column, "IN")?;
        self.restricted[at].one_of(&column.name)?;
        let choice = match values {
            InValues::List(terms) => Choice::Some(self.binder.bind_all(&column.name, &column.ty, terms)?),
            InValues::Marker(term) => {
                Choice::Listed(self.binder.bind_list(&column.name, &column.ty, term)?)
            }
        };
        self.tests.push((at, Test::In(choice)));
        Ok(())
    }

    fn token(&mut self, columns: &[String], op: CompareOp, value: &Term) -> Result<(), Error> {
        if !columns.iter().eq(self.names.def.partition_key().map(|c| &c.name)) {
            return Err(Error::Invalid(
                "The token function arguments must be in the partition key order, and all of it".into(),
            ));
        }
        if op == CompareOp::NotEq {
            return Err(Error::Invalid("Unsupported \"!=\" relation on token".into()));
        }
        self.token.compare(&columns.join(", "), op)?;
        self.tokens.push((op, self.binder.bind("partition key token", &CqlType::BigInt, value)?));
        Ok(())
    }
}

/// Takes the relations that name partitions and slices. Returns the others.
fn take_keys(
    def: &TableDef,
    restricted: &[Restricted],
    tests: Vec<(usize, Test)>,
    out: &mut Restrictions,
) -> Vec<(usize, Test)> {
    let has_choice = |column: usize| restricted[column].equal || restricted[column].one_of;
    let partition = def.partition_key().count();
    if !(0..partition).all(has_choice) {
        return tests;
    }
    let keys = partition + def.clustering().count();
    let chosen = (partition..keys).find(|column| !has_choice(*column)).unwrap_or(keys);
    let mut choices: Vec<Option<Choice>> = vec![None; chosen];
    let mut others = Vec::new();
    for (column, test) in tests {
        match test {
            Test::In(choice) if column < chosen => choices[column] = Some(choice),
            Test::Compare(CompareOp::Eq, bind) if column < chosen => {
                choices[column] = Some(Choice::One(bind))
            }
            Test::Compare(op, bind) if column == chosen && chosen < keys && is_bound(op) => {
                out.range.push((op, bind));
            }
            test => others.push((column, test)),
        }
    }
    let mut choices = choices.into_iter().map(|choice| choice.expect("each of these columns has a choice"));
    out.partition = choices.by_ref().take(partition).collect();
    out.clustering = choices.collect();
    others
}

/// Rejects a comparison of a column of elements as a whole.
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

/// Returns Cassandra's name for a type with durations, which have no order. `None`: it has none.
pub(crate) fn with_duration(ty: &CqlType) -> Option<&'static str> {
    ty.mentions(&CqlType::Duration).then(|| match ty.thawed() {
        CqlType::Tuple(_) => "tuples containing durations",
        CqlType::Udt(_) => "UDTs containing durations",
        ty if ty.is_collection() => "collections containing durations",
        _ => "durations",
    })
}

/// Returns the CQL operator of a comparison.
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

/// Returns true for a comparison that bounds a value.
pub(crate) fn is_bound(op: CompareOp) -> bool {
    !matches!(op, CompareOp::Eq | CompareOp::NotEq)
}
