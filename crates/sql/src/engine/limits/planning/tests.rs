use std::cell::Cell;

use datafusion::common::ParamValues;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::scalar::ScalarValue;

use super::{NODES_MAX, bound_rules, optimized, size, step, step_binding, step_with};
use crate::failure::{Failure, state as class};
use crate::run::tasks;

thread_local! {
    static LARGEST: Cell<u64> = const { Cell::new(0) };
}

/// Records the size of a plan after a rule.
pub(super) fn observe(nodes: u64) {
    LARGEST.set(LARGEST.get().max(nodes));
}

fn bounded_state() -> SessionState {
    let config = SessionConfig::new().with_target_partitions(2);
    let builder = SessionStateBuilder::new_with_default_features().with_config(config);
    SessionContext::new_with_state(bound_rules(builder).build()).state()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

fn converted(state: &SessionState, text: &str) -> LogicalPlan {
    block_on(state.create_logical_plan(text)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Plans a statement as `plan.rs` does. Returns the largest size of the plan after a rule.
fn plan(state: &SessionState, text: &str) -> Result<u64> {
    LARGEST.set(0);
    let logical = converted(state, text);
    step_with(&logical)?;
    let logical = optimized(state, &logical)?;
    block_on(state.query_planner().create_physical_plan(&logical, state))?;
    Ok(LARGEST.get())
}

/// Returns a query over a chain of `levels` named queries. `level` is the query over the one below.
fn chained(levels: usize, first: &str, level: &str, last: &str) -> String {
    let named = |n: usize| format!(", q{} AS ({})", n + 1, level.replace("BELOW", &format!("q{n}")));
    let named: String = (0..levels).map(named).collect();
    format!("WITH q0 AS ({first}){named} {}", last.replace("BELOW", &format!("q{levels}")))
}

fn nested(levels: usize, inner: &str, level: impl Fn(&str) -> String) -> String {
    (0..levels).fold(inner.to_owned(), |below, _| level(&below))
}

const ONE: &str = "SELECT a FROM (VALUES (1), (2)) t(a)";

fn doubled(levels: usize, last: &str) -> String {
    chained(levels, ONE, "SELECT a + a AS a FROM BELOW", last)
}

#[test]
fn plans_stay_below_the_budget_after_each_rule() {
    let state = bounded_state();
    let outer = "SELECT u.b AS a FROM (VALUES (1)) t(a) LEFT JOIN (VALUES (1)) u(b) ON t.a = u.b";
    for levels in [2, 8, 14, 40] {
        let each = |level: &str| chained(levels, ONE, level, "SELECT * FROM BELOW");
        for (what, text) in [
            ("sums", doubled(levels, "SELECT a FROM BELOW")),
            ("a filter", doubled(levels, "SELECT a FROM BELOW WHERE a > 1")),
            ("filters", each("SELECT a + a AS a FROM BELOW WHERE a > 1")),
            ("groups", each("SELECT a + a AS a FROM BELOW WHERE a > 1 GROUP BY a + a")),
            ("a join", doubled(levels, "SELECT t.a FROM BELOW t JOIN (VALUES (3)) u(b) ON t.a = u.b")),
            (
                "an outer join",
                chained(
                    levels,
                    outer,
                    "SELECT a + a AS a FROM BELOW",
                    "SELECT count(*) FROM BELOW WHERE a > 1",
                ),
            ),
            ("an order", doubled(levels, "SELECT a FROM BELOW ORDER BY a + a LIMIT 1")),
            ("cases", each("SELECT CASE WHEN a > 1 THEN a ELSE a END AS a FROM BELOW WHERE a > 1")),
            ("windows", each("SELECT sum(a) OVER (PARTITION BY a + a) AS a FROM BELOW WHERE a > 1")),
            ("distinct", each("SELECT DISTINCT a + a AS a FROM BELOW WHERE a > 1")),
            ("structs", each("SELECT struct(a, a) AS a FROM BELOW WHERE a IS NOT NULL")),
        ] {
            if levels > 8 && matches!(what, "structs") {
                continue; // the type itself doubles
            }
            let largest = plan(&state, &text).unwrap_or_else(|error| panic!("{what}, {levels}: {error}"));
            assert!(largest <= 20_000, "{what}, {levels} levels: {largest} nodes");
        }
    }
}

/// A list below many unions is copied to each.
#[test]
fn filters_over_unions_do_not_multiply() {
    let list = (0..2_000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let unions = vec![ONE; 300].join(" UNION ALL ");
    let text = format!("SELECT a FROM ({unions}) t WHERE a IN ({list})");
    let largest = plan(&bounded_state(), &text).expect("planned");
    assert!(largest <= NODES_MAX, "{largest}");
}

#[test]
fn repeated_operands_are_refused_before_they_are_repeated() {
    let state = bounded_state();
    for (what, text) in [
        ("BETWEEN", nested(30, "a = 1", |below| format!("({below}) BETWEEN false AND true"))),
        ("coalesce", nested(30, "a", |below| format!("coalesce({below}, a)"))),
        ("nvl", nested(30, "a", |below| format!("nvl({below}, a)"))),
        ("CASE", nested(20, "a = 1", |below| format!("CASE WHEN {below} THEN a = 2 ELSE false END"))),
    ] {
        let text = format!("SELECT {text} FROM (VALUES (1), (2)) t(a)");
        let error = plan(&state, &text).expect_err(what);
        assert_eq!(Failure::from(error).code, class::COMPLEX, "{what}");
    }
}

/// DataFusion computes the type of the innermost operand once for each path to it. Without bounds,
/// this takes 2^60 steps.
#[test]
fn chains_of_casts_of_operators_are_not_merged() {
    let state = bounded_state();
    for level in ["(a > 1 = true)::int", "(a IS DISTINCT FROM 1)::int", "(-(a + 1)::smallint)::int + 1"] {
        let level = format!("SELECT {level} AS a FROM BELOW");
        plan(&state, &chained(60, ONE, &level, "SELECT a FROM BELOW")).expect(&level);
    }
}

/// Each filter triples where it moves below a projection, and there are as many as levels.
#[test]
fn moved_filters_grow_a_plan_by_a_part_of_the_budget() {
    let level = "SELECT (a = ANY (ARRAY[1, 2, 3]))::int AS a FROM BELOW WHERE a IS NOT NULL";
    for levels in [6, 24, 60] {
        let text = chained(levels, ONE, level, "SELECT a FROM BELOW");
        let largest = plan(&bounded_state(), &text).unwrap_or_else(|error| panic!("{levels}: {error}"));
        assert!(largest <= 500 * levels as u64, "{levels} levels: {largest} nodes");
    }
}

#[test]
fn casts_of_operators_within_one_expression_are_refused() {
    let state = bounded_state();
    let cast = |levels| {
        let text = nested(levels, "a", |below| format!("({below} + 1)::smallint"));
        plan(&state, &format!("SELECT {text} FROM (VALUES (1), (2)) t(a)"))
    };
    cast(8).expect("about 10,000 steps");
    assert_eq!(Failure::from(cast(14).expect_err("too many")).code, class::COMPLEX);
    let casts = "::text::int".repeat(100);
    plan(&state, &format!("SELECT a{casts} FROM (VALUES (1), (2)) t(a)")).expect("a chain of casts alone");
}

#[test]
fn predictions_bound_what_simplification_makes() {
    let state = bounded_state();
    for levels in 1..7 {
        for (what, text) in [
            ("BETWEEN", nested(levels, "a = 1", |below| format!("({below}) BETWEEN (b = 1) AND (b = 2)"))),
            ("coalesce", nested(levels, "a", |below| format!("coalesce({below}, b)"))),
            ("CASE", nested(levels, "a = 1", |below| format!("CASE WHEN {below} THEN b = 2 ELSE a = b END"))),
            ("CASE of columns", nested(levels, "c", |below| format!("CASE WHEN {below} THEN c END"))),
        ] {
            let text = format!("SELECT {text} FROM (VALUES (1, 2, true), (2, NULL, NULL)) t(a, b, c)");
            let plan = converted(&state, &text);
            let LogicalPlan::Projection(projection) = &plan else { panic!("a projection") };
            let predicted: u64 = projection.expr.iter().map(size::simplified).sum();
            let rules = state.optimizer().rules.iter();
            let rule = rules.clone().find(|rule| rule.name() == "simplify_expressions").expect("a rule");
            let coerced =
                state.analyzer().execute_and_check(plan, &state.config_options().clone(), |_, _| {});
            let after = rule.rewrite(coerced.expect("analyzed"), &state).expect("simplified").data;
            let LogicalPlan::Projection(after) = &after else { panic!("a projection") };
            let made: u64 = after.expr.iter().map(size::of_expr).sum();
            assert!(made <= predicted * 2, "{what}, {levels}: {made} nodes, predicted {predicted}");
        }
    }
}

#[test]
fn planning_ends_with_its_statement() {
    let state = bounded_state();
    let text = doubled(12, "SELECT a FROM BELOW WHERE a > 1 ORDER BY a");
    let (whole, checks) = tasks::ending_after(usize::MAX, || plan(&state, &text));
    whole.expect("planned");
    assert!(checks > 200, "checked {checks} times");
    for after in [1, 2, 10, 100, checks] {
        let (result, checks) = tasks::ending_after(after, || plan(&state, &text));
        let error = result.expect_err("the statement has ended").find_root().to_string();
        assert!(error.contains("the statement has ended"), "{error}");
        assert_eq!(checks, after, "planning went on");
    }
}

#[test]
fn large_plans_are_refused() {
    let error = step(NODES_MAX + 1).expect_err("too large");
    let DataFusionError::External(failure) = &error else { panic!("{error}") };
    let failure = failure.downcast_ref::<Failure>().expect("a failure");
    assert_eq!(failure.code, class::COMPLEX);
    assert!(failure.hint.is_some() && failure.message.contains("250000"), "{failure:?}");
}

#[test]
fn copies_of_a_parameter_count_before_they_are_made() {
    let state = bounded_state();
    let text = format!("SELECT {}", (0..1_000).map(|n| format!("$1 AS c{n}")).collect::<Vec<_>>().join(", "));
    let plan = converted(&state, &text);
    let value = |bytes: usize| ParamValues::from(vec![ScalarValue::from("x".repeat(bytes))]);
    step_binding(&plan, &value(10_000)).expect("10 MB");
    let error = step_binding(&plan, &value(1_000_000)).expect_err("1 GB");
    assert_eq!(Failure::from(error).code, class::COMPLEX);
}

#[test]
fn long_cases_of_constants_are_planned() {
    let whens: String = (0..2_000).map(|n| format!("WHEN a = {n} THEN 't{n}' ")).collect();
    let text = format!("SELECT CASE WHEN a = -1 THEN NULL {whens} END FROM (VALUES (1), (2)) t(a)");
    let largest = plan(&bounded_state(), &text).expect("planned");
    assert!(largest < 20_000, "{largest}");
}
