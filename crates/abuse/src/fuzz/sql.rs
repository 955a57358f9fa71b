//! Random SQL statements over the tables of a run.

use super::random::Random;

const TABLES: [&str; 9] = [
    "yard.t",
    "yard.w",
    "big",
    "maps",
    "information_schema.columns",
    "pg_catalog.pg_class",
    "generate_series(1, 1000) AS g(x)",
    "(VALUES (1, 'a'), (2, NULL)) AS y(k, v)",
    "system.local",
];
const COLUMNS: [&str; 7] = ["k", "c", "v", "x", "m", "column_name", "relname"];
const FUNCTIONS: [&str; 22] = [
    "abs",
    "length",
    "upper",
    "sum",
    "count",
    "max",
    "avg",
    "array_agg",
    "string_agg",
    "repeat",
    "lpad",
    "substr",
    "replace",
    "coalesce",
    "levenshtein",
    "array_repeat",
    "range",
    "regexp_replace",
    "to_timestamp",
    "date_trunc",
    "random",
    "current_setting",
];
const TYPES: [&str; 10] =
    ["int", "bigint", "text", "float8", "numeric(38, 10)", "boolean", "date", "timestamp", "bytea", "int[]"];
const OPERATORS: [&str; 16] =
    ["+", "-", "*", "/", "%", "=", "<", ">=", "<>", "AND", "OR", "||", "LIKE", "~", "IS DISTINCT FROM", "^"];

/// Returns an expression, nested at most `depth` deep.
fn expression(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return match random.below(7) {
            0 | 1 => random.pick(&COLUMNS).to_string(),
            2 => random.below(1_000).to_string(),
            3 => format!("'{}'", "x".repeat(random.length(2_000))),
            4 => {
                random.pick(&["NULL", "true", "9223372036854775807", "-1", "1e308", "'a%'", "0"]).to_string()
            }
            5 => format!("${}", 1 + random.below(3)),
            _ => "*".to_owned(),
        };
    }
    let inner = depth - 1;
    match random.below(12) {
        0 | 1 => {
            let (left, right) = (expression(random, inner), expression(random, inner));
            format!("({left} {} {right})", random.pick(&OPERATORS))
        }
        2 | 3 => format!("{}({})", random.pick(&FUNCTIONS), expressions(random, inner)),
        4 => format!("CAST({} AS {})", expression(random, inner), random.pick(&TYPES)),
        5 => format!("{}::{}", expression(random, inner), random.pick(&TYPES)),
        6 => {
            let (when, then) = (expression(random, inner), expression(random, inner));
            format!("CASE WHEN {when} THEN {then} ELSE {} END", expression(random, inner))
        }
        7 => format!("{} IN ({})", expression(random, inner), expressions(random, inner)),
        8 => format!("({})", query(random, inner)),
        9 => format!("EXISTS ({})", query(random, inner)),
        10 => format!(
            "row_number() OVER (PARTITION BY {} ORDER BY {})",
            random.pick(&COLUMNS),
            random.pick(&COLUMNS)
        ),
        _ => format!("ARRAY[{}]", expressions(random, inner)),
    }
}

fn expressions(random: &mut Random, depth: usize) -> String {
    let count = 1 + random.below(3);
    (0..count).map(|_| expression(random, depth)).collect::<Vec<_>>().join(", ")
}

fn query(random: &mut Random, depth: usize) -> String {
    let inner = depth.saturating_sub(1);
    if random.once_in(8) {
        let word = *random.pick(&["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]);
        let (left, right) = (query(random, inner), query(random, inner));
        return format!("{left} {word} {right}");
    }
    let mut text = format!("SELECT {}", expressions(random, depth));
    if !random.once_in(6) {
        text += &format!(" FROM {}", random.pick(&TABLES));
        if random.once_in(3) {
            let join = *random.pick(&["JOIN", "LEFT JOIN", "FULL JOIN", "CROSS JOIN", "NATURAL JOIN"]);
            text += &format!(" {join} {}", random.pick(&TABLES));
            if !join.starts_with(['C', 'N']) {
                text += &format!(" ON {}", expression(random, inner));
            }
        }
    }
    if random.once_in(2) {
        text += &format!(" WHERE {}", expression(random, depth));
    }
    if random.once_in(4) {
        text += &format!(" GROUP BY {}", expressions(random, inner));
    }
    if random.once_in(3) {
        text += &format!(" ORDER BY {} DESC", expressions(random, inner));
    }
    if random.once_in(2) {
        text += &format!(" LIMIT {}", random.below(100));
    }
    text
}

/// Returns a statement.
pub(super) fn statement(random: &mut Random) -> String {
    let texts = [
        "BEGIN",
        "COMMIT",
        "SHOW ALL",
        "SET search_path = yard",
        "SET service_level = 'calm'",
        "SET statement_timeout = 500",
        "DISCARD ALL",
        "INSERT INTO yard.t VALUES (1, 'a')",
        "DEALLOCATE ALL",
        ";;",
        "",
    ];
    match random.below(8) {
        0 => (*random.pick(&texts)).to_owned(),
        1 => format!("EXPLAIN {}", query(random, 2)),
        2 => format!("WITH z AS ({}) {}", query(random, 1), query(random, 2)),
        _ => {
            let depth = 1 + random.below(3);
            query(random, depth)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_depend_on_the_seed_and_are_finite() {
        let text = |seed| statement(&mut Random::new(seed));
        assert!((0..500).all(|seed| text(seed) == text(seed) && text(seed).len() < 1 << 20));
        let all: std::collections::BTreeSet<String> = (0..500).map(text).collect();
        assert!(all.len() > 400, "{} different statements", all.len());
        let begins = |word: &str| all.iter().any(|text| text.starts_with(word));
        let has = |word: &str| all.iter().any(|text| text.contains(word));
        assert!(["SELECT", "EXPLAIN", "WITH", "SHOW", "SET", "INSERT", "BEGIN"].into_iter().all(begins));
        assert!([" JOIN ", " WHERE ", " GROUP BY ", " ORDER BY ", " LIMIT "].into_iter().all(has));
    }
}
