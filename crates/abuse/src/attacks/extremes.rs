//! Every function with no, one null and extreme arguments, every frame of a window, and operators
//! over nothing, one row and many. None may end in an internal error.

use super::on_threads;
use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::native::Native;
use crate::postgres::Postgres;

/// Sessions that send such statements.
const CLIENTS: usize = 4;
/// Time limit, since some arguments are large.
const TIMEOUT: &str = "SET statement_timeout = 500";
/// Characters of a statement that a report shows.
const SHOWN: usize = 110;

/// Arguments, the most dangerous first.
const ARGUMENTS: [&str; 34] = [
    "",
    "NULL",
    "x",
    "9223372036854775807",
    "x, x",
    "-9223372036854775808, -9223372036854775808",
    "NULL, NULL",
    "''",
    "'x', 9223372036854775807",
    "NULL, NULL, NULL",
    "ARRAY[]::int[]",
    "'NaN'::float8",
    "0",
    "ARRAY[1, NULL], -9223372036854775808",
    "'x', -9223372036854775808, 9223372036854775807",
    "'-Infinity'::float8, 'Infinity'::float8",
    "'year', timestamp '0001-01-01 00:00:00'",
    "0, 0",
    "ARRAY[1], 9223372036854775807, -1, 0",
    "date '9999-12-31', 2147483647",
    "'', '', '', ''",
    "interval '170000000 years'",
    "timestamp '9999-12-31', interval '200000 years'",
    "99999999999999999999999999999999999999::numeric",
    "1e308, 1e308",
    "'\\xff'::bytea",
    "DISTINCT x",
    "*",
    "ROW(1, NULL)",
    "ARRAY[ARRAY[1], ARRAY[]::int[]]",
    "1, 2, 3, 4, 5, 6, 7, 8, 9",
    "'(', 'x', '\\\\9', 'gix'",
    "true",
    "'x' ORDER BY 1",
];

/// Statements around a call.
const AROUND: [&str; 8] = [
    "SELECT $",
    "SELECT $ FROM generate_series(1, 3) AS t(x)",
    "SELECT $ OVER (ORDER BY x) FROM generate_series(1, 3) AS t(x)",
    "SELECT * FROM $",
    "SELECT $ FROM generate_series(1, 0) AS t(x) GROUP BY x",
    "SELECT $ FILTER (WHERE x > 1) FROM generate_series(1, 3) AS t(x)",
    "SELECT count(*) FROM generate_series(1, 3) AS t(x) WHERE $ IS NULL",
    "SELECT $ OVER (ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) FROM generate_series(1, 3) AS t(x)",
];

/// Functions that the catalog may not list.
const FUNCTIONS: &str = "abs acos acosh array_agg array_any_value array_append array_concat array_dims \
    array_distance array_distinct array_element array_empty array_except array_has array_has_all \
    array_has_any array_intersect array_join array_length array_max array_min array_ndims array_pop_back \
    array_pop_front array_position array_positions array_prepend array_remove array_remove_all array_remove_n \
    array_repeat array_replace array_replace_all array_replace_n array_resize array_reverse array_slice \
    array_sort array_to_string array_union approx_distinct approx_median approx_percentile_cont \
    approx_percentile_cont_with_weight arrow_cast arrow_typeof ascii asin asinh atan atan2 atanh avg bit_and \
    bit_length bit_or bit_xor bool_and bool_or btrim cardinality cbrt ceil char_length character_length chr \
    coalesce concat concat_ws contains corr cos cosh cot count covar_pop covar_samp cume_dist current_database \
    current_date current_schema current_schemas current_time current_timestamp date_bin date_format date_part \
    date_trunc datepart datetrunc decode degrees dense_rank digest encode ends_with exp extract factorial \
    find_in_set first_value flatten floor format_type from_unixtime gcd gen_range gen_random_uuid \
    generate_series greatest grouping ilike initcap instr iszero lag last_value lcm lead least left length \
    levenshtein ln log log10 log2 lower lpad ltrim make_array make_date make_interval make_timestamp map \
    map_entries map_extract map_keys map_values max md5 mean median min mod named_struct nanvl now nth_value \
    ntile nullif nvl nvl2 obj_description octet_length overlay percent_rank percentile_cont percentile_disc pi \
    position pow power pg_get_expr pg_get_userbyid pg_table_is_visible pg_sleep quote_ident quote_literal \
    radians random range rank regexp_count regexp_instr regexp_like regexp_match regexp_replace \
    regexp_split_to_array regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy \
    regr_syy repeat replace reverse right round row row_number rpad rtrim set_config sha224 sha256 sha384 \
    sha512 signum sign sin sinh split_part sqrt starts_with stddev stddev_pop stddev_samp string_agg \
    string_to_array strpos struct substr substr_index substring sum tan tanh to_char to_date to_hex \
    to_local_time to_number to_timestamp to_timestamp_micros to_timestamp_millis to_timestamp_nanos \
    to_timestamp_seconds to_unixtime today translate trim trunc union_extract union_tag unnest upper uuid \
    uuidv4 var var_pop var_samp variance version width_bucket age clock_timestamp date_add date_sub \
    json_build_array jsonb_array_length percentile_cont first last bit_count array_fill trim_array \
    has_table_privilege txid_current pg_backend_pid pg_cancel_backend array_upper array_lower";

/// Runs the statements of `make`, each on the next of four sessions. Records internal errors and
/// closed sessions with their statement.
fn run_all(run: &AttackRun, make: impl Fn(usize) -> String + Sync) -> Result<(), ServerAnswer> {
    on_threads(CLIENTS, |thread| {
        let login = || {
            let mut postgres = Postgres::login(&run.target, run.role)?;
            postgres.query(TIMEOUT)?;
            Ok::<Postgres, ServerAnswer>(postgres)
        };
        let mut postgres = login()?;
        for n in (thread..).step_by(CLIENTS) {
            if !run.round() {
                break;
            }
            let text = make(n);
            let answer = postgres.query(&text).unwrap_or_else(|answer| answer);
            let has_ended = answer.ends();
            run.record(judged(&text, answer));
            if has_ended && run.has_time() {
                postgres = login()?;
            }
        }
        Ok(())
    })
}

/// Returns "ran", "refused", or the fault with the statement.
fn judged(text: &str, answer: ServerAnswer) -> ServerAnswer {
    let shown: String = text.chars().take(SHOWN).collect();
    match answer.label.as_str() {
        "complete" | "empty" => ServerAnswer::new("ran"),
        "error XX000" | "closed" => fault(&shown, answer),
        "silence" => answer,
        _ => ServerAnswer::new("refused"),
    }
}

/// Prints a fault, since the results keep one text of each label. Adds the statement to the answer.
fn fault(shown: &str, answer: ServerAnswer) -> ServerAnswer {
    eprintln!("{}: {shown}: {}", answer.label, answer.text);
    ServerAnswer { text: format!("{shown}: {}", answer.text), ..answer }
}

/// Calls every function with every arguments.
pub(crate) fn functions(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut postgres = Postgres::login(&run.target, run.role)?;
    let mut names: Vec<String> = FUNCTIONS.split_whitespace().map(str::to_owned).collect();
    // A server without such a table has the list.
    let listed = [
        "SELECT DISTINCT routine_name FROM information_schema.routines",
        "SELECT DISTINCT proname FROM pg_catalog.pg_proc",
    ];
    listed.iter().for_each(|text| names.extend(postgres.texts(text).unwrap_or_default()));
    names.sort_unstable();
    names.dedup();
    run_all(run, |n| {
        let (name, n) = (&names[n % names.len()], n / names.len());
        // All arguments in the plain form first, in steps through the forms.
        let arguments = ARGUMENTS[n % ARGUMENTS.len()];
        let around = AROUND[(n + n / ARGUMENTS.len()) % AROUND.len()];
        around.replace('$', &format!("{name}({arguments})"))
    })
}

/// Bounds of frames.
const BOUNDS: [&str; 14] = [
    "UNBOUNDED PRECEDING",
    "CURRENT ROW",
    "UNBOUNDED FOLLOWING",
    "18446744073709551615 FOLLOWING",
    "18446744073709551615 PRECEDING",
    "9223372036854775807 FOLLOWING",
    "9223372036854775808 PRECEDING",
    "0 PRECEDING",
    "0 FOLLOWING",
    "-1 FOLLOWING",
    "NULL PRECEDING",
    "1.5 FOLLOWING",
    "interval '170000000 years' FOLLOWING",
    "340282366920938463463374607431768211456 PRECEDING",
];

/// Runs windows with every pair of bounds, in rows, ranges and groups, over several types.
pub(crate) fn frames(run: &AttackRun) -> Result<(), ServerAnswer> {
    let units = ["ROWS", "RANGE", "GROUPS"];
    let calls = [
        "sum(x)",
        "first_value(x)",
        "nth_value(x, 9223372036854775807)",
        "lag(x, -9223372036854775808)",
        "array_agg(x)",
        "count(*)",
        "min(x::text)",
        "ntile(0)",
        "lead(x, 9223372036854775807, NULL)",
        "percentile_cont(0.5)",
    ];
    let orders = [
        "ORDER BY x",
        "ORDER BY x::text DESC",
        "",
        "ORDER BY x::numeric",
        "ORDER BY x::float8 / 0.5 DESC NULLS FIRST",
        "ORDER BY timestamp '2020-01-01' + x * interval '1 day'",
        "PARTITION BY NULL ORDER BY NULL",
        "ORDER BY x, x DESC",
        "ORDER BY x::smallint",
        "ORDER BY (x - 9223372036854775806)",
    ];
    let sources = [
        "generate_series(1, 5)",
        "generate_series(1, 0)",
        "generate_series(9223372036854775805, 9223372036854775807)",
    ];
    run_all(run, |n| {
        let (from, to) = (BOUNDS[n % BOUNDS.len()], BOUNDS[n / BOUNDS.len() % BOUNDS.len()]);
        let (unit, call) = (units[n % units.len()], calls[(n / 3 + n / 7) % calls.len()]);
        let (order, source) = (orders[(n / 11 + n) % orders.len()], sources[n / 5 % sources.len()]);
        let frame =
            if n % 9 == 8 { format!("{unit} {from}") } else { format!("{unit} BETWEEN {from} AND {to}") };
        format!("SELECT {call} OVER ({order} {frame}) FROM {source} AS t(x)")
    })
}

/// Sources of no, one and many rows.
const SOURCES: [&str; 8] = [
    "generate_series(1, 0)",
    "generate_series(1, 3)",
    "(SELECT 1 AS x WHERE false)",
    "generate_series(1, 30000)",
    "(SELECT NULL::bigint AS x)",
    "(SELECT k AS x FROM yard.absent)",
    "(SELECT k AS x FROM yard.t)",
    "(SELECT x FROM generate_series(1, 9) AS s(x) LIMIT 0)",
];

/// Statements over the sources `A`, `B` and `C`.
const SHAPES: [&str; 30] = [
    "SELECT count(*) FROM A, B, C WHERE a.x + b.x + c.x = 0",
    "SELECT a.x FROM A, B, C WHERE a.x < b.x AND b.x < c.x AND c.x < 4 LIMIT 5",
    "SELECT count(*) FROM A JOIN B ON a.x = b.x FULL JOIN C ON b.x = c.x",
    "SELECT count(*) FROM A LEFT JOIN B ON a.x < b.x RIGHT JOIN C ON c.x = 1",
    "SELECT count(*) FROM A CROSS JOIN B CROSS JOIN C",
    "SELECT a.x FROM A WHERE a.x IN (SELECT b.x FROM B) AND NOT EXISTS (SELECT 1 FROM C WHERE c.x = a.x) LIMIT 3",
    "SELECT a.x FROM A WHERE a.x NOT IN (SELECT b.x FROM B) LIMIT 3",
    "SELECT x FROM A UNION ALL SELECT x FROM B UNION SELECT x FROM C ORDER BY x LIMIT 3",
    "SELECT x FROM A EXCEPT SELECT x FROM B INTERSECT SELECT x FROM C",
    "SELECT sum(x), avg(x), median(x), array_agg(x), string_agg(x::text, ','), count(DISTINCT x) FROM A",
    "SELECT x, count(*) FROM A GROUP BY GROUPING SETS ((), (x), (x)) ORDER BY x LIMIT 5",
    "SELECT x, sum(x) OVER (PARTITION BY x), rank() OVER (ORDER BY x) FROM A ORDER BY 2 LIMIT 5",
    "SELECT DISTINCT ON (x) x FROM A ORDER BY x DESC LIMIT 1 OFFSET 2",
    "SELECT x FROM A ORDER BY x LIMIT 0",
    "SELECT x FROM A ORDER BY x OFFSET 9223372036854775807",
    "SELECT x FROM A LIMIT 9223372036854775807 OFFSET 9223372036854775807",
    "SELECT (SELECT max(b.x) FROM B) + (SELECT min(c.x) FROM C), a.x FROM A LIMIT 3",
    "SELECT (SELECT x FROM B LIMIT 1) FROM A LIMIT 3",
    "SELECT a.x, b.x FROM A NATURAL JOIN B LIMIT 3",
    "SELECT count(*) FROM A JOIN B USING (x) JOIN C USING (x)",
    "SELECT unnest(ARRAY[x, NULL]) FROM A LIMIT 3",
    "WITH RECURSIVE r(x) AS (SELECT x FROM A UNION SELECT r.x FROM r, B WHERE r.x = b.x) SELECT count(*) FROM r",
    "SELECT count(*) FROM (SELECT x FROM A ORDER BY x) AS o JOIN (SELECT x, row_number() OVER () AS n FROM \
     B) AS p ON o.x = p.n",
    "SELECT count(*) FROM A JOIN B ON a.x = b.x AND a.x > b.x OR a.x IS NULL",
    "SELECT max(x) FROM A HAVING count(*) > 5",
    "SELECT count(*) FROM A AS one, A AS two WHERE one.x = two.x AND one.x = ANY (ARRAY[1, NULL])",
    "SELECT x / nullif(x, x) FROM A LIMIT 2",
    "SELECT x::smallint, x::text::int, x::boolean FROM A ORDER BY random() LIMIT 2",
    "VALUES ((SELECT count(*) FROM A)), ((SELECT max(x) FROM B))",
    "EXPLAIN ANALYZE SELECT count(*) FROM A, B WHERE a.x = b.x",
];

/// Runs every shape over the sources, with and without rows.
pub(crate) fn operators(run: &AttackRun) -> Result<(), ServerAnswer> {
    run_all(run, |n| {
        let (shape, n) = (SHAPES[n % SHAPES.len()], n / SHAPES.len());
        let source = |n: usize, name: &str| {
            let source = SOURCES[n % SOURCES.len()];
            if source.starts_with('(') {
                format!("{source} AS {name}")
            } else {
                format!("{source} AS {name}(x)")
            }
        };
        let a = source(n, "a");
        let b = source(n / 3 + n, "b");
        let c = source(n / 7 + 3 * n + 1, "c");
        let shape =
            shape.replace("A AS one, A AS two", &format!("{} , {}", source(n, "one"), source(n, "two")));
        placed(&shape, &[("A", &a), ("B", &b), ("C", &c)])
    })
}

/// Replaces the words that are names of sources.
fn placed(shape: &str, sources: &[(&str, &String)]) -> String {
    let word = |word: &str| {
        let bare = word.trim_end_matches([',', ')']);
        let found = sources.iter().find(|(name, _)| *name == bare);
        found.map_or_else(|| word.to_owned(), |(_, source)| format!("{source}{}", &word[bare.len()..]))
    };
    shape.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Extreme constants and functions of CQL.
const CQL_VALUES: &[&str] = &[
    "null",
    "-1",
    "0",
    "2147483647",
    "-2147483648",
    "9223372036854775807",
    "''",
    "0x",
    "1e400",
    "NaN",
    "-Infinity",
    "now()",
    "uuid()",
    "token()",
    "token(1, 2, 3)",
    "currentTimestamp()",
    "minTimeuuid(null)",
    "maxTimeuuid('9999999-01-01')",
    "(int) null",
    "[null]",
    "{1: null}",
    "()",
    "P99999999999Y",
    "'P1Y'",
    "-9223372036854775808",
    "99999999999999999999999999999999999999999",
    "1/0",
    "writetime(k)",
    "{}",
    "[]",
];

/// Statements with a place for them at each `$`.
const CQL_PLACES: &[&str] = &[
    "SELECT $ FROM yard.t LIMIT 1",
    "SELECT v FROM yard.t WHERE k = $",
    "SELECT v FROM yard.t WHERE k IN ($, $)",
    "SELECT v FROM yard.t WHERE token(k) > $ LIMIT 1",
    "SELECT v FROM yard.t LIMIT $",
    "SELECT v FROM yard.w WHERE k = 1 AND c > $ AND c < $",
    "SELECT v FROM yard.w PER PARTITION LIMIT $",
    "INSERT INTO yard.b (id, v) VALUES ($, $)",
    "INSERT INTO yard.b (id, v) VALUES (1, 'x') USING TTL $",
    "INSERT INTO yard.b (id, v) VALUES (1, 'x') USING TIMESTAMP $",
    "UPDATE yard.b USING TTL $ AND TIMESTAMP $ SET v = 'x' WHERE id = 1",
    "UPDATE yard.maps SET m[$] = $ WHERE k = 1",
    "UPDATE yard.maps SET m = m + {$: $} WHERE k = 1",
    "DELETE m[$] FROM yard.maps WHERE k = $",
    "UPDATE yard.b SET v = $ WHERE id = 1 IF v = $",
    "SELECT m[$] FROM yard.maps WHERE k = 1",
    "SELECT v FROM yard.b USING TIMEOUT $",
    "ALTER TABLE yard.b WITH gc_grace_seconds = $",
    "ALTER TABLE yard.b WITH default_time_to_live = $ AND bloom_filter_fp_chance = $",
    "DELETE FROM yard.w WHERE k = 99 AND c >= $ AND c <= $",
    "SELECT count($) FROM yard.absent",
    "BEGIN BATCH USING TIMESTAMP $ INSERT INTO yard.b (id) VALUES (1) APPLY BATCH",
];

/// Runs CQL with extreme constants and functions in every place, over no and some rows.
pub(crate) fn cql(run: &AttackRun) -> Result<(), ServerAnswer> {
    on_threads(CLIENTS, |thread| {
        let login = || Native::login(&run.target, run.role, wire::Compression::None);
        let mut native = login()?;
        for n in (thread..).step_by(CLIENTS) {
            if !run.round() {
                break;
            }
            let text = CQL_PLACES[n % CQL_PLACES.len()]
                .replace('$', CQL_VALUES[n / CQL_PLACES.len() % CQL_VALUES.len()]);
            let answer = native.query(&text).unwrap_or_else(|answer| answer);
            let has_ended = answer.ends();
            run.record(match answer.label.as_str() {
                // A fault of the server, or a lost connection.
                "error 0x0000" | "closed" => fault(&text.chars().take(SHOWN).collect::<String>(), answer),
                "silence" => answer,
                label if label.starts_with("error") => ServerAnswer::new("refused"),
                _ => ServerAnswer::new("ran"),
            });
            if has_ended && run.has_time() {
                native = login()?;
            }
        }
        Ok(())
    })
}
