//! Walks over syntax trees. sqlparser's traversal of all node types is generic over the visitor,
//! and an instance of it takes seconds to compile. These functions take visitors as trait objects,
//! so that this crate has one instance for shared trees and one for exclusive ones.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut, Visitor,
    VisitorMut,
};

/// Visits a tree. Returns `Break` if the visitor ended the walk.
pub(crate) fn walk(tree: &impl Visit, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
    tree.visit(&mut SharedVisitor(visitor))
}

/// Visits a tree that the visitor may change. Returns `Break` if the visitor ended the walk.
pub(crate) fn walk_mut(
    tree: &mut impl VisitMut,
    visitor: &mut dyn VisitorMut<Break = ()>,
) -> ControlFlow<()> {
    tree.visit(&mut ExclusiveVisitor(visitor))
}

/// Continues a walk unless `result` is an error.
pub(crate) fn while_ok<T, E>(result: &Result<T, E>) -> ControlFlow<()> {
    if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// Visits all expressions of a tree, each before its operands.
pub(crate) fn expressions(
    tree: &impl Visit,
    visit: &mut dyn FnMut(&Expr) -> ControlFlow<()>,
) -> ControlFlow<()> {
    struct Expressions<'a>(&'a mut dyn FnMut(&Expr) -> ControlFlow<()>);
    impl Visitor for Expressions<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            (self.0)(expr)
        }
    }
    walk(tree, &mut Expressions(visit))
}

/// Visits all expressions of a tree that `visit` may change, each after its operands.
pub(crate) fn expressions_mut(
    tree: &mut impl VisitMut,
    visit: &mut dyn FnMut(&mut Expr) -> ControlFlow<()>,
) -> ControlFlow<()> {
    struct Expressions<'a>(&'a mut dyn FnMut(&mut Expr) -> ControlFlow<()>);
    impl VisitorMut for Expressions<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            (self.0)(expr)
        }
    }
    walk_mut(tree, &mut Expressions(visit))
}

/// Visits the names of all relations of a tree.
pub(crate) fn relations(
    tree: &impl Visit,
    visit: &mut dyn FnMut(&ObjectName) -> ControlFlow<()>,
) -> ControlFlow<()> {
    struct Relations<'a>(&'a mut dyn FnMut(&ObjectName) -> ControlFlow<()>);
    impl Visitor for Relations<'_> {
        type Break = ();

        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
            (self.0)(relation)
        }
    }
    walk(tree, &mut Relations(visit))
}

struct SharedVisitor<'a>(&'a mut dyn Visitor<Break = ()>);

struct ExclusiveVisitor<'a>(&'a mut dyn VisitorMut<Break = ()>);

/// Forwards each method to the trait object. A method that a newer sqlparser adds must be added
/// here: visitors would not be called by it.
macro_rules! forward {
    ($($method:ident($node:ty),)*) => {
        impl Visitor for SharedVisitor<'_> {
            type Break = ();
            $(fn $method(&mut self, node: &$node) -> ControlFlow<()> {
                self.0.$method(node)
            })*
        }

        impl VisitorMut for ExclusiveVisitor<'_> {
            type Break = ();
            $(fn $method(&mut self, node: &mut $node) -> ControlFlow<()> {
                self.0.$method(node)
            })*
        }
    };
}

forward! {
    pre_visit_query(Query),
    post_visit_query(Query),
    pre_visit_select(Select),
    post_visit_select(Select),
    pre_visit_relation(ObjectName),
    post_visit_relation(ObjectName),
    pre_visit_table_factor(TableFactor),
    post_visit_table_factor(TableFactor),
    pre_visit_expr(Expr),
    post_visit_expr(Expr),
    pre_visit_statement(Statement),
    post_visit_statement(Statement),
    pre_visit_value(ValueWithSpan),
    post_visit_value(ValueWithSpan),
}
