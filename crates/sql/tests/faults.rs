//! Faults of DataFusion and its parser that a rule of this crate mends, or for which it refuses a
//! statement. Each test runs a statement on plain DataFusion, without the rules. It fails when the
//! library answers as PostgreSQL does: the rule, named in the failure, can go.

use datafusion::arrow::util::display::array_value_to_string;
use datafusion::prelude::{SessionConfig, SessionContext};

const TABLES: [&str; 3] = [
    "CREATE TABLE r1 AS SELECT * FROM (VALUES (1, 'a', 1, true, 9, 1.5), (2, 'a', NULL, false, 3, NULL), \
     (3, 'b', 2, NULL, 1, 2.0), (4, 'b', 3, true, 7, 3.0), (5, NULL, NULL, true, 2, 4.0)) t(id, g, x, b, w, d)",
    "CREATE TABLE r2 AS SELECT * FROM (VALUES (1, 1), (2, 2), (3, NULL)) t(id, k)",
    "CREATE TABLE r3 AS SELECT * FROM (VALUES (1, 1, 5), (2, 1, 6), (3, 7, 7)) t(id, k, v)",
];

/// Returns the sorted rows of a statement, or its error.
fn answer(statement: &str) -> String {
    let config =
        SessionConfig::new().with_target_partitions(1).set_str("datafusion.sql_parser.dialect", "PostgreSQL");
    let config = config.set_bool("datafusion.sql_parser.parse_float_as_decimal", true);
    let context = SessionContext::new_with_config(config);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        for table in TABLES {
            context.sql(table).await.expect("planned").collect().await.expect("created");
        }
        let batches = match context.sql(statement).await {
            Ok(frame) => frame.collect().await,
            Err(error) => Err(error),
        };
        let batches = match batches {
            Ok(batches) => batches,
            Err(error) => return format!("error: {}", error.find_root().strip_backtrace()),
        };
        let mut rows = Vec::new();
        for batch in &batches {
            for row in 0..batch.num_rows() {
                let cell = |column| match batch.column(column).is_null(row) {
                    true => "-".to_owned(),
                    false => array_value_to_string(batch.column(column), row).expect("a text"),
                };
                rows.push((0..batch.num_columns()).map(cell).collect::<Vec<_>>().join(" "));
            }
        }
        rows.sort_unstable();
        rows.join(", ")
    })
}

/// Checks that the answer of DataFusion is still `wrong`. A `wrong` that ends in `…` is the start
/// of an error.
#[track_caller]
fn check(rule: &str, statement: &str, wrong: &str, right: &str) {
    let found = answer(statement);
    assert_ne!(found, right, "DataFusion answers as PostgreSQL does: {rule} can go: {statement}");
    let is_same = match wrong.strip_suffix('…') {
        Some(start) => found.starts_with(start),
        None => found == wrong,
    };
    assert!(
        is_same,
        "DataFusion answers otherwise: check {rule}: {statement}\n expected {wrong}\n got      {found}"
    );
}

macro_rules! faults {
    ($($name:ident: $rule:literal, $statement:literal, $wrong:literal, $right:literal;)*) => {
        $(
            #[test]
            fn $name() {
                check($rule, $statement, $wrong, $right);
            }
        )*
    };
}

faults! {
    not_in_of_a_constant_ignores_nulls: "exact/subqueries.rs",
        "SELECT id FROM r1 WHERE 9 NOT IN (SELECT x FROM r1)",
        "1, 2, 3, 4, 5",
        "";
    not_in_of_a_null_is_true: "exact/subqueries.rs",
        "SELECT id FROM r1 WHERE NULLIF(id, id) NOT IN (SELECT id FROM r1)",
        "1, 2, 3, 4, 5",
        "";
    not_in_below_or_ignores_nulls: "exact/subqueries.rs",
        "SELECT id FROM r1 WHERE id NOT IN (SELECT x FROM r1) OR id = 1",
        "1, 4, 5",
        "1";
    in_as_a_value_ignores_nulls: "exact/subqueries.rs",
        "SELECT id FROM r1 WHERE coalesce(id IN (SELECT x FROM r1 WHERE x IS NULL), true)",
        "",
        "1, 2, 3, 4, 5";
    correlated_not_in_is_refused: "exact/subqueries.rs",
        "SELECT a.id FROM r1 a WHERE a.id NOT IN (SELECT x FROM r1 c WHERE c.g = a.g)",
        "error: Error during planning: null_aware anti join only…",
        "4, 5";
    in_of_a_select_list_is_refused: "exact/subqueries.rs (counted)",
        "SELECT id, id IN (SELECT k FROM r3) FROM r2",
        "error: This feature is not implemented: Physical plan does…",
        "1 true, 2 false, 3 false";
    exists_of_a_count_loses_rows: "exact/subqueries.rs (lost)",
        "SELECT id FROM r2 a WHERE EXISTS (SELECT count(*) FROM r3 c WHERE c.k = a.k)",
        "1",
        "1, 2, 3";
    in_of_a_count_loses_rows: "exact/subqueries.rs (lost)",
        "SELECT id FROM r2 a WHERE 0 IN (SELECT count(*) FROM r3 c WHERE c.k = a.k)",
        "",
        "2, 3";
    constant_of_a_count_loses_rows: "exact/subqueries.rs (is_constant)",
        "SELECT id, (SELECT 1 + 0 * count(*) FROM r3 c WHERE c.k = a.k) FROM r2 a",
        "1 1, 2 -, 3 -",
        "1 1, 2 1, 3 1";
    null_test_of_a_count_loses_rows: "planning/rules.rs (optimizer)",
        "SELECT id, (SELECT count(*) IS NULL FROM r3 c WHERE c.k = a.k) FROM r2 a",
        "1 false, 2 -, 3 -",
        "1 false, 2 false, 3 false";
    null_match_beside_an_equation_matches_nulls: "exact/subqueries.rs (matched)",
        "SELECT a.id, c.id FROM r1 a JOIN r1 c ON a.x IS NOT DISTINCT FROM c.x WHERE a.x = c.x",
        "1 1, 2 2, 2 5, 3 3, 4 4, 5 2, 5 5",
        "1 1, 3 3, 4 4";
    lists_of_one_value_forget_null: "exact/lists.rs",
        "SELECT id FROM r1 WHERE NOT (x IN (1) AND x IN (2))",
        "1, 2, 3, 4, 5",
        "1, 3, 4";
    xor_with_itself_forgets_null: "exact/arithmetic.rs (bits)",
        "SELECT id, x # x FROM r1",
        "1 0, 2 0, 3 0, 4 0, 5 0",
        "1 0, 2 -, 3 0, 4 0, 5 -";
    percentiles_are_rounded: "exact/percentile.rs",
        "SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY w::double) FROM r1",
        "8.599998",
        "8.6";
    order_below_an_offset_is_dropped: "exact/offsets.rs",
        "SELECT id FROM (SELECT id FROM r1 ORDER BY w OFFSET 3) q ORDER BY 1",
        "4, 5",
        "1, 4";
    scalar_subqueries_without_a_row_are_refused: "exact/expressions.rs (nullable)",
        "SELECT (SELECT x FROM (VALUES (1)) AS v(x) WHERE x > 1)",
        "error: Arrow error: Invalid argument error: Column 'x' is declared…",
        "-";
    lead_by_null_is_lead_by_one: "exact/expressions.rs (shifted)",
        "SELECT id, lead(x, NULL) OVER (ORDER BY id) FROM r1",
        "1 1, 2 -, 3 2, 4 3, 5 -",
        "1 -, 2 -, 3 -, 4 -, 5 -";
    sums_of_whole_numbers_wrap_around: "exact/totals.rs",
        "SELECT sum(a) FROM (VALUES (9223372036854775807), (1)) t(a)",
        "-9223372036854775808",
        "9223372036854775808";
    sums_wrap_around: "exact/arithmetic.rs",
        "SELECT a + a FROM (VALUES (9223372036854775807)) t(a)",
        "-2",
        "error: bigint out of range";
    quotients_of_decimals_are_cut_off: "exact/arithmetic.rs (quotient)",
        "SELECT 2.0 / 3 * 3 = 2.0",
        "false",
        "true";
    digits_beyond_38_are_cut_off: "exact/arithmetic.rs",
        "SELECT 99999999999999999999999999999999999999 + 1",
        "10000000000000000000000000000000000000",
        "100000000000000000000000000000000000000";
    casts_of_decimals_cut_off: "exact/casts",
        "SELECT CAST(2.7 AS int)",
        "2",
        "3";
    floats_are_compared_as_decimals: "exact/common.rs (compared_as)",
        "SELECT 0.3 = 0.1::double + 0.2::double",
        "true",
        "false";
    array_remove_removes_one: "exact/arrays.rs",
        "SELECT array_remove(ARRAY[1, 2, 1], 1)",
        "[2, 1]",
        "[2]";
    array_remove_of_null_is_null: "exact/arrays.rs",
        "SELECT array_remove_all(ARRAY[1, NULL], NULL)",
        "-",
        "[1]";
    array_replace_replaces_one: "exact/expressions.rs",
        "SELECT array_replace(ARRAY[1, 2, 1], 1, 9)",
        "[9, 2, 1]",
        "[9, 2, 9]";
    subscripts_count_from_the_end: "exact/arrays.rs (at)",
        "SELECT (ARRAY[1, 2, 3])[-1]",
        "3",
        "-";
    slices_count_from_the_end: "exact/arrays.rs (between)",
        "SELECT (ARRAY[1, 2, 3])[-2:-1]",
        "[2, 3]",
        "[]";
    nulls_of_arrays_are_contained: "exact/arrays.rs (found)",
        "SELECT ARRAY[1, NULL] @> ARRAY[NULL]",
        "true",
        "false";
    nulls_of_arrays_are_least: "exact/arrays.rs (ordered)",
        "SELECT ARRAY[1, NULL] < ARRAY[1, 2]",
        "true",
        "false";
    arrays_have_dimensions_without_bounds: "exact/arrays.rs (lengths)",
        "SELECT array_dims(ARRAY[1, 2])",
        "[2]",
        "[1:2]";
    any_of_an_array_forgets_null: "translate.rs (any_of)",
        "SELECT 1 < ANY (ARRAY[1, NULL])",
        "false",
        "-";
    equal_any_of_an_array_forgets_null: "exact/expressions.rs (any)",
        "SELECT 2 = ANY (ARRAY[1, NULL])",
        "false",
        "-";
    arrays_become_texts_with_zeros: "exact/arrays.rs (texts)",
        "SELECT array_to_string(ARRAY[1.5::double, 1e20::double], ',')",
        "1.5,100000000000000000000",
        "1.5,1e+20";
    series_of_a_select_list_is_an_array: "set_returning.rs (as_rows)",
        "SELECT generate_series(1, 2)",
        "[1, 2]",
        "1, 2";
    replacements_have_dollar_references: "exact/regexps.rs",
        "SELECT regexp_replace('foobar', '(o)(b)', '$2$1')",
        "foboar",
        "fo$2$1ar";
    dots_match_no_line_feed: "exact/regexps.rs, translate.rs",
        "SELECT regexp_like(concat('a', chr(10), 'b'), 'a.b')",
        "false",
        "true";
    groups_without_a_match_are_left_out: "exact/regexps.rs",
        "SELECT regexp_match('foobar', '(o)(x)?')",
        "[o]",
        "[o, ]";
    nan_in_groups_depends_on_the_order: "exact/extremes.rs",
        "SELECT g, min(f), max(f) FROM (VALUES (1, 'NaN'::double), (1, 1), (2, 3), (2, 'NaN')) t(g, f) GROUP BY g",
        "1 1.0 1.0, 2 NaN NaN",
        "1 1.0 NaN, 2 3.0 NaN";
    using_of_a_right_join_is_the_left_column: "scopes/using.rs",
        "SELECT k FROM r2 a RIGHT JOIN r3 c USING (k)",
        "-, 1, 1",
        "1, 1, 7";
    using_of_a_full_join_is_the_left_column: "scopes/using.rs",
        "SELECT max(k) FROM r2 a FULL JOIN r3 c USING (k)",
        "2",
        "7";
    window_of_a_window_loses_its_clauses: "scopes/windows.rs",
        "SELECT id, count(*) OVER (w ORDER BY id) FROM r1 WINDOW w AS (PARTITION BY g)",
        "1 1, 2 2, 3 3, 4 4, 5 5",
        "1 1, 2 2, 3 1, 4 2, 5 1";
    order_by_takes_output_names: "scopes/order.rs",
        "SELECT -x AS x FROM r1 WHERE x > 0 ORDER BY -x LIMIT 1",
        "-1",
        "-3";
    aggregates_that_differ_by_a_cast_are_one: "scopes.rs",
        "SELECT sum(x), sum(x::bigint) FROM r1",
        "error: Error during planning: Projections require unique…",
        "6 6";
    alias_of_a_table_is_a_column: "scopes/aliases.rs",
        "SELECT id.x FROM r1 id WHERE EXISTS (SELECT 1 FROM r3 c WHERE c.id = id.x)",
        "error: Execution error: Cannot access field at argument 1:…",
        "1, 2, 3";
    in_of_values_is_refused: "scopes.rs",
        "SELECT id FROM r1 WHERE id IN (VALUES (1), (2))",
        "error: Error during planning: single expression…",
        "1, 2";
    distinct_from_takes_what_follows: "precedence.rs",
        "SELECT id FROM r1 WHERE b IS DISTINCT FROM true AND x = 2",
        "1, 2, 3, 4, 5",
        "3";
    sign_is_taken_after_the_power: "precedence.rs",
        "SELECT - 2 ^ 2",
        "-4.0",
        "4";
    intersect_all_keeps_rows_of_the_left: "translate.rs (set)",
        "SELECT * FROM (VALUES (2), (2), (2)) t(a) INTERSECT ALL SELECT * FROM (VALUES (2), (2)) u(a)",
        "2, 2, 2",
        "2, 2";
    except_all_removes_all: "translate.rs (set)",
        "SELECT * FROM (VALUES (2), (2), (2)) t(a) EXCEPT ALL SELECT * FROM (VALUES (2)) u(a)",
        "",
        "2, 2";
    negative_intervals_negate_one_part: "translate.rs (plain)",
        "SELECT (timestamp '2024-01-01 10:00:00' - (- interval '1 hour 30 minutes'))::text",
        "2024-01-01T10:30:00",
        "2024-01-01 11:30:00";
    intervals_differ_by_their_parts: "exact/intervals.rs",
        "SELECT interval '1 day' = interval '24 hours'",
        "false",
        "true";
    distinct_collections_have_no_order: "translate.rs (sort_distinct)",
        "SELECT array_agg(DISTINCT x) FROM (VALUES (3), (1), (2), (5), (4)) t(x)",
        "[3, 1, 2, 5, 4]",
        "[1, 2, 3, 4, 5]";
    negative_numbers_have_bits_of_bigint: "exact/expressions.rs (to_hex)",
        "SELECT to_hex((-1)::int)",
        "ffffffffffffffff",
        "ffffffff";
    concat_spells_out_booleans: "exact/numbers.rs (output)",
        "SELECT concat(true, 1)",
        "true1",
        "t1";
    plural_units_of_date_trunc_are_refused: "exact/expressions.rs (date_trunc)",
        "SELECT date_trunc('milliseconds', timestamp '2024-01-01 00:00:00.1234')::text",
        "error: Execution error: Unsupported date_trunc granularity:…",
        "2024-01-01 00:00:00.123";
}
