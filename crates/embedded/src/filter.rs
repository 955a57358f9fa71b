//! Comparisons that rows must pass, before and after they have the values of an execution.

use std::cmp::Ordering;

use cql::ast::CompareOp;
use engine::{Error, Value};
use schema::{CqlType, TableDef, value};

use crate::choice::Choice;
use crate::elements;
use crate::term::Bind;

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
    /// In the order of the column's type, without repeats.
    In(Vec<Vec<u8>>),
    Contains(Vec<u8>),
    ContainsKey(Vec<u8>),
    Entry(Vec<u8>, Vec<u8>),
}

impl Filter {
    /// Takes the values of one execution.
    pub(crate) fn bound(&self, def: &TableDef, values: &[Value<'_>]) -> Result<BoundFilter, Error> {
        let one = |bind: &Bind| Ok::<_, Error>(bind.required(values)?.into_owned());
        let test = match &self.test {
            Test::Compare(op, bind) => BoundTest::Compare(*op, one(bind)?),
            Test::In(choice) => {
                let all = choice.values(values)?.into_iter().map(std::borrow::Cow::into_owned).collect();
                BoundTest::In(in_order(&def.columns[self.column].ty, all))
            }
            Test::Contains(bind) => BoundTest::Contains(one(bind)?),
            Test::ContainsKey(bind) => BoundTest::ContainsKey(one(bind)?),
            Test::Entry(key, bind) => BoundTest::Entry(one(key)?, one(bind)?),
        };
        Ok(BoundFilter { column: self.column, test })
    }
}

/// Sorts values of a type, so that rows look theirs up rather than compare it with all of them.
pub(crate) fn in_order(ty: &CqlType, mut values: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let _ = lanes::spend(values.len() as u32);
    values.sort_unstable_by(|a, b| value::compare(ty, a, b));
    values.dedup_by(|a, b| value::compare(ty, a, b).is_eq());
    values
}

/// Whether a value is among those of [`in_order`].
pub(crate) fn is_among(ty: &CqlType, values: &[Vec<u8>], wanted: &[u8]) -> bool {
    values.binary_search_by(|value| value::compare(ty, value, wanted)).is_ok()
}

impl BoundFilter {
    /// Whether a value passes; null passes nothing.
    pub(crate) fn passes(&self, ty: &CqlType, found: Option<&[u8]>) -> bool {
        let Some(found) = found else { return false };
        let same = |ty: &CqlType, a: &[u8], b: &[u8]| value::compare(ty, a, b).is_eq();
        match &self.test {
            BoundTest::Compare(op, other) => holds(*op, value::compare(ty, found, other)),
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
