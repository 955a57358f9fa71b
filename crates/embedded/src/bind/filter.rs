//! Comparisons that rows must pass, before and after the values of an execution are bound.

use std::borrow::Cow;
use std::cmp::Ordering;

use cql::ast::CompareOp;
use engine::{Error, Value};
use schema::{Analysis, CqlType, TableDef, value};

use crate::bind::choice::Choice;
use crate::bind::elements;
use crate::bind::term::{Bind, Given};
use crate::bind::tuple::TupleBind;

/// Comparison that rows must pass.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// Index in the table's `columns`.
    pub(crate) column: usize,
    /// Condition on the column.
    pub(crate) test: Test,
    /// Analysis of the values that it compares.
    pub(crate) analysis: Analysis,
    /// True if empty values never pass.
    pub(crate) skips_empty: bool,
}

/// Condition of a [`Filter`].
#[derive(Clone, Debug)]
pub(crate) enum Test {
    /// Comparison with one value.
    Compare(CompareOp, Bind),
    /// Equality with the value of a tuple at this position.
    Field(TupleBind, usize),
    /// Membership in a list of values.
    In(Choice),
    /// Membership of this value in the collection.
    Contains(Bind),
    /// Membership of this key in the map.
    ContainsKey(Bind),
    /// Equality of the map entry at this key with this value.
    Entry(Bind, Bind),
}

/// Filter bound to the values of one execution. It can be sent to another core.
#[derive(Clone, Debug)]
pub(crate) struct BoundFilter {
    /// Index in the table's `columns`.
    pub(crate) column: usize,
    test: BoundTest,
    analysis: Analysis,
    skips_empty: bool,
}

#[derive(Clone, Debug)]
enum BoundTest {
    Compare(CompareOp, Vec<u8>),
    /// Sorted in the order of the column's type, without duplicates.
    In(Vec<Vec<u8>>),
    Contains(Vec<u8>),
    ContainsKey(Vec<u8>),
    Entry(Vec<u8>, Vec<u8>),
}

impl Filter {
    pub(crate) fn new(column: usize, test: Test) -> Filter {
        Filter { column, test, analysis: Analysis::default(), skips_empty: false }
    }

    /// Returns the size of its values in one execution, in bytes as given by the client.
    pub(crate) fn size(&self, values: &[Value<'_>]) -> u64 {
        match &self.test {
            Test::Compare(_, bind) | Test::Contains(bind) | Test::ContainsKey(bind) => bind.size(values),
            Test::Field(tuple, _) => tuple.size(values),
            Test::In(choice) => choice.size(values).1,
            Test::Entry(key, bind) => key.size(values) + bind.size(values),
        }
    }

    /// Returns true if it is an equality with one value.
    pub(crate) fn is_equality(&self) -> bool {
        matches!(self.test, Test::Compare(CompareOp::Eq, _) | Test::Field(..))
    }

    /// Binds the values of one execution.
    pub(crate) fn bound(&self, def: &TableDef, values: &[Value<'_>]) -> Result<BoundFilter, Error> {
        let column = &def.columns[self.column].name;
        let one = |bind: &Bind, what: &str| match bind.get(values)? {
            Given::Bytes(bytes) => Ok(self.analysis.value(&bytes).into_owned()),
            Given::Null => Err(Error::Invalid(format!("Unsupported null {what} for column {column}"))),
            Given::Unset => Err(Error::Invalid(format!("Unsupported unset {what} for column {column}"))),
        };
        let test = match &self.test {
            Test::Compare(op, bind) => BoundTest::Compare(*op, one(bind, "value")?),
            Test::Field(tuple, at) => {
                let null = |column: &str| format!("Unsupported null value for column {column}");
                let mut fields = tuple.required(values, null)?;
                BoundTest::Compare(CompareOp::Eq, fields.swap_remove(*at).into_owned())
            }
            Test::In(choice) => {
                let all = match choice {
                    // As in Cassandra, nulls of a filter's list are without effect.
                    Choice::Some(binds) => {
                        let mut all = Vec::with_capacity(binds.len());
                        for bind in binds.iter() {
                            if bind.get(values)? != Given::Null {
                                all.push(bind.required(values)?.into_owned());
                            }
                        }
                        all
                    }
                    choice => choice.values(values)?.into_iter().map(Cow::into_owned).collect(),
                };
                BoundTest::In(in_order(&def.columns[self.column].ty, all))
            }
            Test::Contains(bind) => BoundTest::Contains(one(bind, "value")?),
            Test::ContainsKey(bind) => BoundTest::ContainsKey(one(bind, "value")?),
            Test::Entry(key, bind) => BoundTest::Entry(one(key, "map key")?, one(bind, "map value")?),
        };
        let Filter { column, analysis, skips_empty, .. } = *self;
        Ok(BoundFilter { column, test, analysis, skips_empty })
    }
}

/// Sorts and deduplicates values of a type, so that a row needs a binary search and not a scan.
pub(crate) fn in_order(ty: &CqlType, mut values: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let _ = lanes::spend(values.len() as u32);
    values.sort_unstable_by(|a, b| value::compare(ty, a, b));
    values.dedup_by(|a, b| value::compare(ty, a, b).is_eq());
    values
}

/// Returns true if `values`, from [`in_order`], contain `wanted`.
pub(crate) fn is_among(ty: &CqlType, values: &[Vec<u8>], wanted: &[u8]) -> bool {
    values.binary_search_by(|value| value::compare(ty, value, wanted)).is_ok()
}

impl BoundFilter {
    /// Returns true if a value passes. Null never passes.
    pub(crate) fn passes(&self, ty: &CqlType, found: Option<&[u8]>) -> bool {
        let Some(found) = found.filter(|found| !self.skips_empty || !found.is_empty()) else { return false };
        let analysis = self.analysis;
        let same = |ty: &CqlType, a: &[u8], b: &[u8]| match analysis.is_none() {
            true => value::compare(ty, a, b).is_eq(),
            false => *analysis.value(a) == *b,
        };
        match &self.test {
            BoundTest::Compare(CompareOp::Eq, other) => same(ty, found, other),
            BoundTest::Compare(op, other) => holds(*op, value::compare(ty, &analysis.value(found), other)),
            BoundTest::In(others) => is_among(ty, others, found),
            BoundTest::Contains(wanted) => match ty.thawed() {
                CqlType::Map(_, of) => {
                    value::pairs(found).flatten().any(|(_, value)| same(of, value, wanted))
                }
                CqlType::List(of) | CqlType::Set(of) => {
                    value::elements(found).flatten().any(|element| same(of, element, wanted))
                }
                _ => false,
            },
            BoundTest::ContainsKey(wanted) => match ty.thawed() {
                CqlType::Map(of, _) if !analysis.is_none() => {
                    value::pairs(found).flatten().any(|(key, _)| same(of, key, wanted))
                }
                _ => elements::value_at_key(ty, found, wanted).is_some(),
            },
            BoundTest::Entry(key, wanted) => match (ty.thawed(), elements::value_at_key(ty, found, key)) {
                (CqlType::Map(_, of), Some(value)) => same(of, value, wanted),
                _ => false,
            },
        }
    }
}

/// Returns true if the comparison `op` holds for values in this order.
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
