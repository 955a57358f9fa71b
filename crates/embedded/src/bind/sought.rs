//! Conditions that indexes support, as relations and filters have them.

use cql::ast::CompareOp;
use schema::{ColumnDef, IndexDef, IndexedPart};

use crate::bind::filter::Test;

/// Condition on a column, as far as indexes are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sought {
    Equality,
    Range,
    Element,
    Key,
    Entry,
}

impl Sought {
    /// Returns the condition of a filter. `None`: no index supports it.
    pub(crate) fn of(test: &Test) -> Option<Sought> {
        match test {
            Test::Compare(CompareOp::Eq, _) => Some(Sought::Equality),
            Test::Compare(CompareOp::NotEq, _) => None,
            Test::Compare(..) => Some(Sought::Range),
            Test::Contains(_) => Some(Sought::Element),
            Test::ContainsKey(_) => Some(Sought::Key),
            Test::Entry(..) => Some(Sought::Entry),
            Test::Field(..) | Test::In(_) => None,
        }
    }

    /// Returns true if Cassandra's index of this class, on this column, supports the condition.
    pub(crate) fn has_index(self, index: &IndexDef, column: &ColumnDef) -> bool {
        index.column == column.name
            && match index.part {
                IndexedPart::Value if self == Sought::Range => index.finds_ranges(&column.ty),
                IndexedPart::Value | IndexedPart::Full => self == Sought::Equality,
                IndexedPart::Values => self == Sought::Element,
                IndexedPart::Keys => self == Sought::Key,
                IndexedPart::Entries => self == Sought::Entry,
            }
    }
}
