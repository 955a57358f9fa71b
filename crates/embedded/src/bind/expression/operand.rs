//! Selectors before they become expressions: the functions that they call, their types, and the
//! names of their columns.
//!
//! 1. Types are resolved from the innermost call outwards ([`Operand::of`]).
//! 2. The expression is built from the outermost call inwards ([`Operand::build`]): terms get the
//!    types of the arguments for which they stand.

use std::sync::Arc;

use cql::ast::{Arithmetic, ArithmeticOp, Literal, SelectCall, SelectExpr, Term, TypeName};
use engine::Error;
use functions::{Aggregate, Argument, Fit, Function, FunctionError};
use schema::{ColumnKind, CqlType};

use super::groups::Call;
use super::times::{Property, Times, TimesStep};
use super::{Computed, Expr, Leaf};
use crate::bind::names::TableNames;
use crate::bind::show::{Inside, PathStep, Show};
use crate::bind::term::operand::{self as term, failed, fit_of_type, native_name, operator};
use crate::bind::term::{Bind, Binder};
use crate::bind::types::Types;

/// Name of bind markers in a selection, as in Cassandra.
const MARKER_NAME: &str = "[selection]";

/// Action of a call.
enum Called {
    Function(Arc<Function>),
    Aggregate(Arc<Aggregate>),
    /// Property of a part of a column.
    Times(Property),
    /// Token of the row's partition.
    Token,
}

/// Selector, or a part of one.
pub(crate) struct Operand<'a> {
    expr: &'a SelectExpr,
    /// Keyspace of the table, which names of user types show.
    keyspace: &'a str,
    /// `None`: the place where it is used decides.
    ty: Option<CqlType>,
    inner: Vec<Operand<'a>>,
    term: Option<term::Operand<'a>>,
    called: Option<Called>,
}

fn invalid<T>(text: String) -> Result<T, Error> {
    Err(Error::Invalid(text))
}

/// Aggregates of a selection, while it is prepared.
pub(crate) struct Building<'b> {
    pub(crate) names: &'b TableNames,
    pub(crate) binder: &'b mut Binder,
    pub(crate) aggregates: Vec<Call>,
    /// True inside the arguments of an aggregate.
    pub(crate) is_in_aggregate: bool,
}

impl<'a> Operand<'a> {
    /// Resolves the functions and types of a selector.
    ///
    /// # Errors
    /// Returns an error if a column or a function does not exist, or does not accept its arguments.
    pub(crate) fn of(
        types: &'a Types,
        names: &TableNames,
        expr: &'a SelectExpr,
    ) -> Result<Operand<'a>, Error> {
        let keyspace = types.keyspace();
        let mut operand = Operand { expr, keyspace, ty: None, inner: Vec::new(), term: None, called: None };
        let of = |expr| Operand::of(types, names, expr);
        operand.ty = match expr {
            SelectExpr::Column(name) => Some(names.find(name)?.1.ty.clone()),
            SelectExpr::Term(term) => {
                let term = operand.term.insert(term::Operand::of(types, term));
                term.ty()
            }
            SelectExpr::CountRows => operand.aggregate("count")?,
            SelectExpr::Function(call) => return operand.call(types, names, call),
            SelectExpr::Cast(base, to) => {
                operand.inner.push(of(base)?);
                operand.cast(to)?
            }
            SelectExpr::TypeHint(ty, base) => {
                operand.inner.push(of(base)?);
                Some(known(types, ty)?)
            }
            SelectExpr::Element(base, _) => {
                operand.inner.push(of(base)?);
                operand.inner[0].ty.as_ref().and_then(|ty| match ty.thawed() {
                    CqlType::Map(_, value) => Some(CqlType::clone(value)),
                    CqlType::Set(member) => Some(CqlType::clone(member)),
                    _ => None,
                })
            }
            SelectExpr::Slice(base, ..) => {
                operand.inner.push(of(base)?);
                operand.inner[0].ty.clone()
            }
            SelectExpr::Field(base, field) => {
                operand.inner.push(of(base)?);
                let ty = operand.inner[0].ty.as_ref().map(CqlType::thawed);
                let Some(CqlType::Udt(udt)) = ty else { return Ok(operand) };
                udt.fields.iter().find(|(name, _)| name == field).map(|(_, ty)| ty.clone())
            }
            SelectExpr::Arithmetic(sum) => {
                operand.inner = vec![of(&sum.left)?, of(&sum.right)?];
                let [left, right] = &operand.inner[..] else { unreachable!("an operator has two operands") };
                let function = functions::arithmetic(operator(sum.op), left, right, None).map_err(failed)?;
                operand.function(function)
            }
            SelectExpr::Negate(base) => {
                operand.inner.push(of(base)?);
                let function = functions::negate(&operand.inner[0], None).map_err(failed)?;
                operand.function(function)
            }
            SelectExpr::List(parts) | SelectExpr::Set(parts) | SelectExpr::Tuple(parts) => {
                operand.inner = parts.iter().map(of).collect::<Result<_, _>>()?;
                operand.type_of_parts()
            }
            SelectExpr::Map(entries) => {
                let parts = entries.iter().flat_map(|(key, value)| [of(key), of(value)]);
                operand.inner = parts.collect::<Result<_, _>>()?;
                operand.type_of_parts()
            }
            SelectExpr::Udt(fields) => {
                operand.inner = fields.iter().map(|(_, value)| of(value)).collect::<Result<_, _>>()?;
                None
            }
        };
        Ok(operand)
    }

    /// Returns the type of a literal, by the types of its parts.
    fn type_of_parts(&self) -> Option<CqlType> {
        let of = |first: usize, step: usize| {
            self.inner.iter().skip(first).step_by(step).find_map(|part| part.ty.clone()).map(Box::new)
        };
        match self.expr {
            SelectExpr::List(_) => of(0, 1).map(CqlType::List),
            SelectExpr::Set(_) => of(0, 1).map(CqlType::Set),
            SelectExpr::Map(_) => Some(CqlType::Map(of(0, 2)?, of(1, 2)?)),
            _ => self.inner.iter().map(|part| part.ty.clone()).collect::<Option<_>>().map(CqlType::Tuple),
        }
    }

    fn function(&mut self, function: Function) -> Option<CqlType> {
        let result = function.result.clone();
        self.called = Some(Called::Function(Arc::new(function)));
        Some(result)
    }

    /// Resolves the aggregate of this name, if there is one.
    fn aggregate(&mut self, name: &str) -> Result<Option<CqlType>, Error> {
        let arguments: Vec<&dyn Argument> =
            self.inner.iter().map(|operand| operand as &dyn Argument).collect();
        let Some(aggregate) = Aggregate::resolve(name, &arguments).map_err(failed)? else { return Ok(None) };
        let result = aggregate.result.clone();
        self.called = Some(Called::Aggregate(Arc::new(aggregate)));
        Ok(Some(result))
    }

    fn cast(&mut self, to: &TypeName) -> Result<Option<CqlType>, Error> {
        let base = &self.inner[0];
        if let (SelectExpr::Term(term), Some(operand)) = (base.expr, &base.term)
            && operand.certain_type().is_none()
        {
            return self.untyped(term);
        }
        // As in Cassandra, a cast to the same type is no function, and there are none to `varchar`.
        let (to, is_callable) = match to {
            TypeName::Native(ty) => (ty.clone(), true),
            _ => (CqlType::Text, false),
        };
        if base.ty.as_ref() == Some(&to) {
            return Ok(Some(to));
        }
        if !is_callable {
            return invalid(format!("{} cannot be cast to varchar", base.text()));
        }
        let function = functions::cast(base, &to).map_err(failed)?;
        Ok(self.function(function))
    }

    /// Returns the error for a term whose type nothing decides.
    fn untyped<T>(&self, term: &Term) -> Result<T, Error> {
        invalid(format!(
            "Cannot infer type for term {} in selection clause (try using a cast to force a type)",
            term::shown(&term_label(self.keyspace, term))
        ))
    }

    fn call(
        mut self,
        types: &'a Types,
        names: &TableNames,
        call: &'a SelectCall,
    ) -> Result<Operand<'a>, Error> {
        let name = native_name(&call.name)?;
        if let (Some(property), [argument]) = (Property::named(name), &call.arguments[..]) {
            self.called = Some(Called::Times(property));
            self.ty = Some(times_type(names, property, argument)?);
            return Ok(self);
        }
        // As in Cassandra, a constant that is not null counts rows.
        if let ("count", [SelectExpr::Term(Term::Literal(literal))]) = (name, &call.arguments[..])
            && *literal != Literal::Null
        {
            self.ty = self.aggregate("count")?;
            return Ok(self);
        }
        if name == "count" && call.arguments.is_empty() {
            return invalid(
                "Invalid number of arguments in call to function system.count: 1 required but 0 provided"
                    .into(),
            );
        }
        let arguments = call.arguments.iter().map(|argument| Operand::of(types, names, argument));
        self.inner = arguments.collect::<Result<_, _>>()?;
        if name == "token" {
            self.ty = Some(CqlType::BigInt);
            self.called = Some(self.token(names)?);
            return Ok(self);
        }
        self.ty = match self.aggregate(name)? {
            Some(result) => Some(result),
            None => {
                let arguments: Vec<&dyn Argument> =
                    self.inner.iter().map(|operand| operand as &dyn Argument).collect();
                let function = Function::resolve(name, &arguments, None).map_err(|error| match error {
                    FunctionError::Unknown(_) => {
                        Error::Invalid(format!("Unknown function '{}'", function_label(call)))
                    }
                    error => failed(error),
                })?;
                self.function(function)
            }
        };
        Ok(self)
    }

    fn token(&self, names: &TableNames) -> Result<Called, Error> {
        let column = |operand: &Operand<'a>| match operand.expr {
            SelectExpr::Column(name) => Some(name.as_str()),
            _ => None,
        };
        if self
            .inner
            .iter()
            .map(column)
            .eq(names.def.partition_key().map(|column| Some(column.name.as_str())))
        {
            return Ok(Called::Token);
        }
        let arguments: Vec<&dyn Argument> =
            self.inner.iter().map(|operand| operand as &dyn Argument).collect();
        let key: Vec<CqlType> = names.def.partition_key().map(|column| column.ty.clone()).collect();
        Ok(Called::Function(Arc::new(Function::token(&key, &arguments).map_err(failed)?)))
    }

    /// Returns the function if it does not keep the order of its argument, as Cassandra writes it.
    /// `None`: groups by it are ranges of a clustering column.
    pub(crate) fn unordered_function(&self) -> Option<String> {
        const ORDERED: &[&str] = &[
            "floor",
            "todate",
            "to_date",
            "totimestamp",
            "to_timestamp",
            "tounixtimestamp",
            "to_unix_timestamp",
        ];
        let (function, name) = match (&self.called, self.expr) {
            (Some(Called::Function(function)), SelectExpr::Arithmetic(sum)) => (
                function,
                match sum.op {
                    ArithmeticOp::Add => "\"_add\"",
                    ArithmeticOp::Subtract => "\"_substract\"",
                    ArithmeticOp::Multiply => "\"_multiply\"",
                    ArithmeticOp::Divide => "\"_divide\"",
                    ArithmeticOp::Remainder => "\"_modulo\"",
                },
            ),
            (Some(Called::Function(function)), SelectExpr::Negate(_)) => (function, "\"_negate\""),
            (Some(Called::Function(function)), _) => (function, function.name.as_str()),
            _ => return None,
        };
        if ORDERED.contains(&name) {
            return self.inner.iter().find_map(Operand::unordered_function);
        }
        let argument = |(operand, ty): (&Operand<'_>, &CqlType)| match operand.term {
            Some(_) => format!("{ty}(constant)"),
            None => ty.to_string(),
        };
        let arguments: Vec<String> = self.inner.iter().zip(&function.arguments).map(argument).collect();
        Some(format!("system.{name} : ({}) -> {} ", arguments.join(", "), function.result))
    }

    /// Returns true if the selector is or contains an aggregate.
    pub(crate) fn is_aggregate(&self) -> bool {
        matches!(self.called, Some(Called::Aggregate(_))) || self.inner.iter().any(Operand::is_aggregate)
    }

    /// Returns Cassandra's name of the column.
    pub(crate) fn label(&self) -> String {
        let of = |at: usize| self.inner[at].label();
        let all = || self.inner.iter().map(Operand::label).collect::<Vec<_>>().join(", ");
        match (self.expr, &self.called) {
            (SelectExpr::Column(name), _) => name.clone(),
            (SelectExpr::Term(term), _) => term_label(self.keyspace, term),
            (_, Some(Called::Aggregate(aggregate))) if aggregate.arguments.is_empty() => "count".to_owned(),
            (_, Some(Called::Aggregate(aggregate))) => format!("system.{}({})", aggregate.name, all()),
            (SelectExpr::Function(call), Some(Called::Times(property))) => {
                format!("{}({})", property.name(), path_label(&call.arguments[0]))
            }
            (SelectExpr::Cast(_, ty), Some(_)) => {
                format!("cast({} as {})", of(0), type_label(self.keyspace, ty))
            }
            (SelectExpr::Cast(..), None) => of(0),
            (SelectExpr::TypeHint(ty, _), _) => {
                format!("({}){}", type_label(self.keyspace, ty), self.unary())
            }
            (SelectExpr::Element(_, key), _) => format!("{}[{}]", of(0), term_label("", key)),
            (SelectExpr::Slice(_, from, to), _) => {
                let edge =
                    |edge: &Option<Term>| edge.as_ref().map(|edge| term_label("", edge)).unwrap_or_default();
                format!("{}[{}..{}]", of(0), edge(from), edge(to))
            }
            (SelectExpr::Field(_, field), _) => format!("{}.{field}", of(0)),
            (SelectExpr::Arithmetic(sum), _) => {
                let (left, right) = (self.side(sum, 0), self.side(sum, 1));
                format!("{left} {} {right}", sum.op)
            }
            (SelectExpr::Negate(_), _) => format!("-{}", self.unary()),
            (SelectExpr::Function(call), Some(Called::Function(function))) => {
                let name = if function.name.is_empty() { &call.name.name } else { &function.name };
                format!("system.{name}({})", all())
            }
            (SelectExpr::Function(call), _) => format!("system.{}({})", call.name.name, all()),
            (SelectExpr::CountRows, _) => "count".to_owned(),
            (SelectExpr::List(_), _) => format!("[{}]", all()),
            (SelectExpr::Set(_), _) => format!("{{{}}}", all()),
            (SelectExpr::Tuple(_), _) => format!("({})", all()),
            (SelectExpr::Map(_), _) => {
                let labels: Vec<String> = self.inner.iter().map(Operand::label).collect();
                format!("{{{}}}", labels.chunks(2).map(|pair| pair.join(": ")).collect::<Vec<_>>().join(", "))
            }
            (SelectExpr::Udt(fields), _) => {
                let field = |((name, _), value): (&(String, SelectExpr), &Operand<'_>)| {
                    format!("{name}: {}", value.label())
                };
                let fields: Vec<String> = fields.iter().zip(&self.inner).map(field).collect();
                format!("{{{}}}", fields.join(", "))
            }
        }
    }

    /// Returns the label of the operand of a sign or a hint, in parentheses if it is a sum.
    fn unary(&self) -> String {
        let label = self.inner[0].label();
        match self.inner[0].expr {
            SelectExpr::Arithmetic(_) => format!("({label})"),
            _ => label,
        }
    }

    /// Returns the label of an operand of `sum`, in parentheses if it binds less.
    fn side(&self, sum: &Arithmetic<SelectExpr>, at: usize) -> String {
        let is_product = |op: ArithmeticOp| !matches!(op, ArithmeticOp::Add | ArithmeticOp::Subtract);
        let label = self.inner[at].label();
        match self.inner[at].expr {
            SelectExpr::Arithmetic(inner)
                if is_product(sum.op) && !is_product(inner.op)
                    || at == 1 && is_product(sum.op) == is_product(inner.op) =>
            {
                format!("({label})")
            }
            _ => label,
        }
    }

    /// Builds the expression, for a place of type `expected`. Returns it with its type.
    ///
    /// # Errors
    /// Returns an error if a part has no type, or does not fit its place.
    pub(crate) fn build(
        &self,
        building: &mut Building<'_>,
        expected: Option<&CqlType>,
    ) -> Result<(Expr, CqlType), Error> {
        match (self.expr, &self.called) {
            (SelectExpr::Column(name), _) => {
                let (at, column) = building.names.find(name)?;
                Ok((Expr::Leaf(Leaf::Show(Show::column(at, column))), column.ty.clone()))
            }
            (SelectExpr::Term(term), _) => self.term(term, building.binder, expected),
            (_, Some(Called::Token)) => Ok((Expr::Leaf(Leaf::Show(Show::Token)), CqlType::BigInt)),
            (SelectExpr::Function(call), Some(Called::Times(property))) => {
                times(building, *property, &call.arguments[0])
            }
            (_, Some(Called::Function(function))) => {
                let arguments = self.arguments(building, &function.arguments)?;
                Ok((Expr::Call(function.clone(), arguments.into()), function.result.clone()))
            }
            (_, Some(Called::Aggregate(aggregate))) => {
                if building.is_in_aggregate {
                    return invalid(
                        "aggregate functions cannot be used as arguments of aggregate functions".into(),
                    );
                }
                building.is_in_aggregate = true;
                let arguments = Computed::new(self.arguments(building, &aggregate.arguments)?);
                building.is_in_aggregate = false;
                building.aggregates.push(Call { aggregate: aggregate.clone(), arguments });
                let total = Leaf::Total(building.aggregates.len() - 1);
                Ok((Expr::Leaf(total), aggregate.result.clone()))
            }
            (SelectExpr::TypeHint(..), _) => {
                let (base, ty) = (&self.inner[0], self.ty.clone().expect("a hint has a type"));
                if base.fit(&ty) == Fit::No {
                    let label = self.label();
                    return invalid(format!("Cannot assign value {label} to {label} of type {ty}"));
                }
                Ok((base.build(building, Some(&ty))?.0, ty))
            }
            (SelectExpr::Element(_, key), _) => self.element(building, key),
            (SelectExpr::Slice(_, from, to), _) => {
                let (base, ty) = self.inner[0].build(building, expected)?;
                let key_type = key_type(&ty, &self.inner[0].label(), "Slice", "slice")?.0;
                let name = key_name(&ty, &self.inner[0].label());
                let mut bind = |edge: &Option<Term>| {
                    edge.as_ref().map(|term| building.binder.bind(&name, &key_type, term)).transpose()
                };
                let (from, to) = (bind(from)?, bind(to)?);
                Ok((Expr::Slice(Box::new(base), ty.clone(), from, to), ty))
            }
            (SelectExpr::Field(_, field), _) => {
                let (base, ty) = self.inner[0].build(building, None)?;
                let (at, of_field) = field_of(&ty, &self.inner[0].label(), field)?;
                self.step(building.names, base, PathStep::Field(at)).map(|expr| (expr, of_field))
            }
            // A cast to the type that the value has.
            (SelectExpr::Cast(..), _) => self.inner[0].build(building, expected),
            (SelectExpr::Function(_) | SelectExpr::CountRows, None)
            | (SelectExpr::Arithmetic(_) | SelectExpr::Negate(_), _) => {
                Err(Error::Server("a call has no function".into()))
            }
            (
                SelectExpr::List(_)
                | SelectExpr::Set(_)
                | SelectExpr::Map(_)
                | SelectExpr::Udt(_)
                | SelectExpr::Tuple(_),
                _,
            ) => self.parts(building, expected),
            (SelectExpr::CountRows, Some(_)) => Err(Error::Server("count is an aggregate".into())),
        }
    }

    fn term(
        &self,
        term: &Term,
        binder: &mut Binder,
        expected: Option<&CqlType>,
    ) -> Result<(Expr, CqlType), Error> {
        let is_hint = matches!(term, Term::TypeHint(_));
        let certain = self.term.as_ref().and_then(term::Operand::certain_type);
        let own = if is_hint { certain.or(expected.cloned()) } else { expected.cloned().or(certain) };
        let Some(ty) = own else { return self.untyped(term) };
        // The types of hints have lost that they are frozen.
        let is_frozen = matches!(term, Term::TypeHint(hint) if matches!(hint.ty, TypeName::Frozen(_)));
        let bound = match is_frozen && ty.is_multi_cell() {
            true => CqlType::Frozen(Box::new(ty.clone())),
            false => ty.clone(),
        };
        let bind = binder.bind(MARKER_NAME, &bound, term)?;
        Ok((Expr::Bind(bind), ty))
    }

    /// Builds a literal with columns.
    fn parts(
        &self,
        building: &mut Building<'_>,
        expected: Option<&CqlType>,
    ) -> Result<(Expr, CqlType), Error> {
        let Some(ty) = expected.or(self.ty.as_ref()) else {
            return invalid(format!(
                "Cannot infer type for term {} in selection clause (try using a cast to force a type)",
                self.text()
            ));
        };
        if self.fit(ty) == Fit::No {
            return invalid(format!("{} is not of the expected type: {ty}", self.text()));
        }
        let mut parts = Vec::with_capacity(self.inner.len());
        match (self.expr, ty.thawed()) {
            (SelectExpr::Udt(fields), CqlType::Udt(udt)) => {
                for (name, of_field) in &udt.fields {
                    let given = fields.iter().rposition(|(field, _)| field == name);
                    parts.push(match given {
                        Some(at) => self.inner[at].build(building, Some(of_field))?.0,
                        None => {
                            let null = Term::Literal(Literal::Null);
                            Expr::Bind(building.binder.bind(MARKER_NAME, of_field, &null)?)
                        }
                    });
                }
            }
            (SelectExpr::Udt(fields), CqlType::Map(_, value)) => {
                for ((key, _), operand) in fields.iter().zip(&self.inner) {
                    let (at, column) = building.names.find(key)?;
                    parts.push(Expr::Leaf(Leaf::Show(Show::column(at, column))));
                    parts.push(operand.build(building, Some(value))?.0);
                }
            }
            _ => {
                for (operand, ty) in self.inner.iter().zip(part_types(ty)) {
                    parts.push(operand.build(building, Some(ty))?.0);
                }
            }
        }
        Ok((Expr::Parts(ty.clone(), parts.into()), ty.clone()))
    }

    fn arguments(&self, building: &mut Building<'_>, types: &[CqlType]) -> Result<Vec<Expr>, Error> {
        let all = self.inner.iter().zip(types);
        all.map(|(operand, ty)| Ok(operand.build(building, Some(ty))?.0)).collect()
    }

    fn element(&self, building: &mut Building<'_>, key: &Term) -> Result<(Expr, CqlType), Error> {
        let (base, ty) = self.inner[0].build(building, None)?;
        let (of_key, found) = key_type(&ty, &self.inner[0].label(), "Element", "element")?;
        let bind = building.binder.bind(&key_name(&ty, &self.inner[0].label()), &of_key, key)?;
        self.step(building.names, base, PathStep::Key(ty, bind)).map(|expr| (expr, found))
    }

    /// Adds a step into a value. Steps into a column stay a part of the column.
    fn step(&self, names: &TableNames, base: Expr, step: PathStep) -> Result<Expr, Error> {
        Ok(match (base, self.inner[0].expr) {
            (Expr::Leaf(Leaf::Show(Show::Inside(mut inside))), _) => {
                inside.steps.push(step);
                Expr::Leaf(Leaf::Show(Show::Inside(inside)))
            }
            (Expr::Leaf(Leaf::Show(_)), SelectExpr::Column(name)) => {
                let (column, _) = names.find(name)?;
                Expr::Leaf(Leaf::Show(Show::Inside(Box::new(Inside { column, steps: vec![step] }))))
            }
            (base, _) => Expr::Step(Box::new(base), step),
        })
    }
}

impl Argument for Operand<'_> {
    fn ty(&self) -> Option<CqlType> {
        self.ty.clone()
    }

    fn fit(&self, ty: &CqlType) -> Fit {
        if let Some(term) = &self.term {
            return term.fit(ty);
        }
        let is_collection = match (self.expr, ty.thawed()) {
            (SelectExpr::List(_), CqlType::List(_)) | (SelectExpr::Set(_), CqlType::Set(_)) => true,
            (SelectExpr::Map(_), CqlType::Map(..)) => true,
            (SelectExpr::Tuple(parts), CqlType::Tuple(types)) => parts.len() <= types.len(),
            (SelectExpr::Udt(fields), CqlType::Udt(udt)) => {
                let fits = |(field, operand): (&String, &Operand<'_>)| {
                    let ty = udt.fields.iter().find(|(name, _)| name == field).map(|(_, ty)| ty);
                    ty.is_some_and(|ty| operand.fit(ty) != Fit::No)
                };
                let fits = fields.iter().map(|(field, _)| field).zip(&self.inner).all(fits);
                return if fits { Fit::Weak } else { Fit::No };
            }
            (SelectExpr::Udt(_), CqlType::Map(..)) => return Fit::Weak,
            (SelectExpr::List(_) | SelectExpr::Set(_) | SelectExpr::Map(_), _) => false,
            (SelectExpr::Tuple(_) | SelectExpr::Udt(_), _) => false,
            _ => return fit_of_type(self.ty.as_ref(), ty),
        };
        match is_collection {
            true => {
                let parts = self.inner.iter().zip(part_types(ty)).map(|(part, ty)| part.fit(ty));
                parts.max().unwrap_or(Fit::Weak)
            }
            false => Fit::No,
        }
    }

    fn list_length(&self) -> Option<usize> {
        match (&self.term, self.expr) {
            (Some(term), _) => term.list_length(),
            (None, SelectExpr::List(parts)) => Some(parts.len()),
            _ => None,
        }
    }

    fn text(&self) -> String {
        term::shown(&self.label())
    }
}

fn known(types: &Types, name: &TypeName) -> Result<CqlType, Error> {
    types.find(name).ok_or_else(|| Error::Invalid(format!("Unknown type {name}")))
}

/// Returns the types of the parts of a list, set, map or tuple, in their order.
fn part_types(ty: &CqlType) -> Box<dyn Iterator<Item = &CqlType> + '_> {
    match ty.thawed() {
        CqlType::List(of) | CqlType::Set(of) => Box::new(std::iter::repeat(&**of)),
        CqlType::Map(key, value) => Box::new([&**key, &**value].into_iter().cycle()),
        CqlType::Tuple(types) => Box::new(types.iter()),
        _ => Box::new(std::iter::empty()),
    }
}

/// Returns the name of a function as the statement has it, without quotes.
fn function_label(call: &SelectCall) -> String {
    let name = &call.name.name;
    call.name.keyspace.as_ref().map_or_else(|| name.clone(), |keyspace| format!("{keyspace}.{name}"))
}

/// Returns the name of a type in a column's name.
fn type_label(keyspace: &str, name: &TypeName) -> String {
    let label = |inner: &TypeName| type_label(keyspace, inner);
    match name {
        TypeName::User(user) if user.keyspace.is_none() && !keyspace.is_empty() => {
            format!("{keyspace}.{user}")
        }
        TypeName::List(inner) => format!("list<{}>", label(inner)),
        TypeName::Set(inner) => format!("set<{}>", label(inner)),
        TypeName::Frozen(inner) => format!("frozen<{}>", label(inner)),
        TypeName::Map(key, value) => format!("map<{}, {}>", label(key), label(value)),
        TypeName::Tuple(types) => {
            format!("tuple<{}>", types.iter().map(label).collect::<Vec<_>>().join(", "))
        }
        TypeName::Vector(inner, dimension) => format!("vector<{}, {dimension}>", label(inner)),
        _ => name.to_string(),
    }
}

/// Returns Cassandra's text of a term.
fn term_label(keyspace: &str, term: &Term) -> String {
    match term {
        Term::TypeHint(hint) => {
            format!("({}){}", type_label(keyspace, &hint.ty), term_label(keyspace, &hint.term))
        }
        Term::Marker(_) => "?".to_owned(),
        Term::Literal(Literal::Null) => "NULL".to_owned(),
        // As in Cassandra, without escapes.
        Term::Literal(Literal::String(text)) => format!("'{text}'"),
        _ => term.to_string(),
    }
}

/// Returns the text of a part of a column.
fn path_label(path: &SelectExpr) -> String {
    match path {
        SelectExpr::Column(name) => name.clone(),
        SelectExpr::Element(base, key) => format!("{}[{}]", path_label(base), term_label("", key)),
        SelectExpr::Slice(base, from, to) => {
            let edge =
                |edge: &Option<Term>| edge.as_ref().map(|edge| term_label("", edge)).unwrap_or_default();
            format!("{}[{}..{}]", path_label(base), edge(from), edge(to))
        }
        SelectExpr::Field(base, field) => format!("{}.{field}", path_label(base)),
        other => other.to_string(),
    }
}

/// Returns the name of a marker for a key of a collection.
fn key_name(ty: &CqlType, label: &str) -> String {
    let what = if matches!(ty.thawed(), CqlType::Map(..)) { "key" } else { "value" };
    format!("{what}({label})")
}

/// Returns the types of the keys and of the elements of a set or a map.
fn key_type(ty: &CqlType, label: &str, what: &str, kind: &str) -> Result<(CqlType, CqlType), Error> {
    match ty.thawed() {
        CqlType::Map(key, value) => Ok((CqlType::clone(key), CqlType::clone(value))),
        CqlType::Set(member) => Ok((CqlType::clone(member), CqlType::clone(member))),
        CqlType::List(_) => {
            invalid(format!("{what} selection is only allowed on sets and maps, but {label} is a list"))
        }
        _ if kind == "element" => {
            invalid(format!("Invalid element selection: {label} is of type {ty} is not a collection"))
        }
        _ => invalid(format!("Invalid slice selection: {label} of type {ty} is not a collection")),
    }
}

/// Returns the number and the type of a field.
fn field_of(ty: &CqlType, label: &str, field: &str) -> Result<(usize, CqlType), Error> {
    let CqlType::Udt(udt) = ty.thawed() else {
        return invalid(format!("Invalid field selection: {label} of type {ty} is not a user type"));
    };
    match udt.fields.iter().position(|(name, _)| name == field) {
        Some(at) => Ok((at, udt.fields[at].1.clone())),
        None => invalid(format!("{label} of type {ty} has no field {field}")),
    }
}

/// Part of a column: its column, its type, and the steps to it.
struct Path {
    column: usize,
    ty: CqlType,
    steps: Vec<TimesStep>,
}

/// Returns the type of a property of a part of a column.
fn times_type(names: &TableNames, property: Property, argument: &SelectExpr) -> Result<CqlType, Error> {
    let (mut base, mut picks_one) = (argument, false);
    loop {
        base = match base {
            SelectExpr::Column(name) => {
                let (at, _) = names.find(name)?;
                let steps = match picks_one {
                    true => vec![TimesStep::Into(PathStep::Field(0))],
                    false => Vec::new(),
                };
                return Ok(Times { property, column: at, steps }.result(&names.def));
            }
            SelectExpr::Element(base, _) | SelectExpr::Field(base, _) => {
                picks_one = true;
                base
            }
            SelectExpr::Slice(base, ..) => base,
            // Without quotes, the name would have been a syntax error.
            _ => return invalid(format!("Unknown function '{}'", property.name())),
        };
    }
}

/// Prepares a property of a part of a column.
fn times(
    building: &mut Building<'_>,
    property: Property,
    argument: &SelectExpr,
) -> Result<(Expr, CqlType), Error> {
    let path = path(building, argument)?;
    let column = &building.names.def.columns[path.column];
    let is_static = column.kind == ColumnKind::Static;
    if !is_static && column.kind != ColumnKind::Regular {
        return invalid(format!(
            "Cannot use selection function {} on PRIMARY KEY part {}",
            property.name(),
            column.name
        ));
    }
    if path.steps.is_empty() && !column.ty.is_multi_cell() {
        let (show, ty) = match property {
            Property::Ttl => (Show::Ttl(column.id, is_static), CqlType::Int),
            _ => (Show::WriteTime(column.id, is_static), CqlType::BigInt),
        };
        return Ok((Expr::Leaf(Leaf::Show(show)), ty));
    }
    let times = Times { property, column: path.column, steps: path.steps };
    let ty = times.result(&building.names.def);
    Ok((Expr::Leaf(Leaf::Times(Box::new(times))), ty))
}

fn path(building: &mut Building<'_>, expr: &SelectExpr) -> Result<Path, Error> {
    Ok(match expr {
        SelectExpr::Column(name) => {
            let (column, def) = building.names.find(name)?;
            Path { column, ty: def.ty.clone(), steps: Vec::new() }
        }
        SelectExpr::Element(base, key) => {
            let mut path = path(building, base)?;
            let label = path_label(base);
            let (of_key, found) = key_type(&path.ty, &label, "Element", "element")?;
            let bind = building.binder.bind(&key_name(&path.ty, &label), &of_key, key)?;
            path.steps.push(TimesStep::Into(PathStep::Key(std::mem::replace(&mut path.ty, found), bind)));
            path
        }
        SelectExpr::Slice(base, from, to) => {
            let mut path = path(building, base)?;
            let label = path_label(base);
            let (of_key, _) = key_type(&path.ty, &label, "Slice", "slice")?;
            let name = key_name(&path.ty, &label);
            let mut bind = |edge: &Option<Term>| -> Result<Option<Bind>, Error> {
                edge.as_ref().map(|term| building.binder.bind(&name, &of_key, term)).transpose()
            };
            let (from, to) = (bind(from)?, bind(to)?);
            path.steps.push(TimesStep::Slice(path.ty.clone(), from, to));
            path
        }
        SelectExpr::Field(base, field) => {
            let mut path = path(building, base)?;
            let (at, ty) = field_of(&path.ty, &path_label(base), field)?;
            path.steps.push(TimesStep::Into(PathStep::Field(at)));
            path.ty = ty;
            path
        }
        other => return invalid(format!("{} is no part of a column", term::shown(&other.to_string()))),
    })
}
