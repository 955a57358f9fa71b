//! Bind markers of a statement, found by a walk of its tree.
//!
//! A separate list would duplicate the tree and cost statements without markers. With a walk, equal
//! trees always have equal markers.

use super::*;

impl Statement {
    /// Returns the bind markers, sorted by index: marker `i` is at position `i`. At most 65,535.
    pub fn bind_markers(&self) -> Vec<&BindMarker> {
        let mut markers = Vec::new();
        self.for_each_marker(&mut |marker| markers.push(marker));
        markers.sort_by_key(|marker| marker.index);
        markers
    }

    /// Returns the number of bind markers.
    pub fn bind_marker_count(&self) -> usize {
        let mut count = 0;
        self.for_each_marker(&mut |_| count += 1);
        count
    }

    fn for_each_marker<'a>(&'a self, f: &mut impl FnMut(&'a BindMarker)) {
        match self {
            Statement::Select(s) => select(s, f),
            Statement::Insert(s) => {
                terms(&s.values, f);
                terms(s.json.iter().map(|json| &json.value), f);
                using(&s.using, f);
            }
            Statement::Update(s) => {
                using(&s.using, f);
                s.assignments.iter().for_each(|a| assignment(a, f));
                relations(&s.relations, f);
                condition(&s.condition, f);
            }
            Statement::Delete(s) => {
                s.targets.iter().for_each(|t| target(t, f));
                using(&s.using, f);
                relations(&s.relations, f);
                condition(&s.condition, f);
            }
            Statement::Batch(s) => {
                using(&s.using, f);
                for statement in &s.statements {
                    debug_assert!(!matches!(statement, Statement::Batch(_)), "batches do not nest");
                    statement.for_each_marker(f);
                }
            }
            // The parser rejects markers in every other statement.
            _ => {}
        }
    }
}

fn select<'a>(s: &'a Select, f: &mut impl FnMut(&'a BindMarker)) {
    if let Selection::Selectors(selectors) = &s.selection {
        selectors.iter().for_each(|selector| expr(&selector.expr, f));
    }
    relations(&s.relations, f);
    s.group_by.iter().for_each(|e| expr(e, f));
    terms(s.nearest.iter().map(|nearest| &nearest.vector), f);
    terms(s.per_partition_limit.iter().chain(&s.limit), f);
    using(&s.using, f);
}

fn expr<'a>(e: &'a SelectExpr, f: &mut impl FnMut(&'a BindMarker)) {
    match e {
        SelectExpr::Column(_) | SelectExpr::CountRows => {}
        SelectExpr::Term(t) => term(t, f),
        SelectExpr::Function(call) => call.arguments.iter().for_each(|e| expr(e, f)),
        SelectExpr::Cast(e, _)
        | SelectExpr::TypeHint(_, e)
        | SelectExpr::Field(e, _)
        | SelectExpr::Negate(e) => {
            expr(e, f);
        }
        SelectExpr::Element(e, key) => {
            expr(e, f);
            term(key, f);
        }
        SelectExpr::Slice(e, from, to) => {
            expr(e, f);
            terms(from.iter().chain(to), f);
        }
        SelectExpr::Arithmetic(operation) => {
            expr(&operation.left, f);
            expr(&operation.right, f);
        }
        SelectExpr::List(parts) | SelectExpr::Set(parts) | SelectExpr::Tuple(parts) => {
            parts.iter().for_each(|e| expr(e, f));
        }
        SelectExpr::Map(entries) => entries.iter().for_each(|(key, value)| {
            expr(key, f);
            expr(value, f);
        }),
        SelectExpr::Udt(fields) => fields.iter().for_each(|(_, e)| expr(e, f)),
    }
}

fn using<'a>(u: &'a Using, f: &mut impl FnMut(&'a BindMarker)) {
    terms(u.timestamp.iter().chain(&u.ttl).chain(&u.timeout), f);
}

fn assignment<'a>(a: &'a Assignment, f: &mut impl FnMut(&'a BindMarker)) {
    target(&a.target, f);
    match &a.change {
        Change::Set(t) | Change::Add(t) | Change::Subtract(t) | Change::Prepend(t) => term(t, f),
    }
}

fn target<'a>(t: &'a AssignmentTarget, f: &mut impl FnMut(&'a BindMarker)) {
    if let AssignmentTarget::Element(_, key) = t {
        term(key, f);
    }
}

fn condition<'a>(c: &'a IfClause, f: &mut impl FnMut(&'a BindMarker)) {
    let IfClause::Columns(conditions) = c else { return };
    for condition in conditions {
        target(&condition.target, f);
        match &condition.test {
            Test::Compare(_, t) | Test::Contains(t) | Test::ContainsKey(t) | Test::Like(t) => term(t, f),
            Test::In(values) => in_values(values, f),
        }
    }
}

fn relations<'a>(rs: &'a [Relation], f: &mut impl FnMut(&'a BindMarker)) {
    for relation in rs {
        match relation {
            Relation::Compare { value, .. }
            | Relation::Tuple { value, .. }
            | Relation::Token { value, .. }
            | Relation::Contains { value, .. }
            | Relation::ContainsKey { key: value, .. }
            | Relation::Like { pattern: value, .. } => term(value, f),
            Relation::Element { key, value, .. } => {
                term(key, f);
                term(value, f);
            }
            Relation::In { values, .. } | Relation::TupleIn { values, .. } => in_values(values, f),
            Relation::IsNotNull { .. } => {}
        }
    }
}

fn in_values<'a>(values: &'a InValues, f: &mut impl FnMut(&'a BindMarker)) {
    match values {
        InValues::List(list) => terms(list, f),
        InValues::Marker(marker) => term(marker, f),
    }
}

fn terms<'a>(ts: impl IntoIterator<Item = &'a Term>, f: &mut impl FnMut(&'a BindMarker)) {
    ts.into_iter().for_each(|t| term(t, f));
}

fn term<'a>(t: &'a Term, f: &mut impl FnMut(&'a BindMarker)) {
    match t {
        Term::Literal(_) => {}
        Term::Marker(marker) => f(marker),
        Term::List(ts) | Term::Set(ts) | Term::Tuple(ts) => terms(ts, f),
        Term::Map(entries) => entries.iter().for_each(|(k, v)| {
            term(k, f);
            term(v, f);
        }),
        Term::Udt(fields) => fields.iter().for_each(|(_, t)| term(t, f)),
        Term::Function(call) => terms(&call.arguments, f),
        Term::TypeHint(hint) => term(&hint.term, f),
        Term::Arithmetic(operation) => {
            term(&operation.left, f);
            term(&operation.right, f);
        }
        Term::Negate(t) => term(t, f),
    }
}
