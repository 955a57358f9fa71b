//! Random CQL statements over the tables of a run. Most are valid, so that they reach execution.

use super::random::Random;

const TABLES: [&str; 8] = [
    "yard.t",
    "yard.w",
    "yard.b",
    "yard.maps",
    "yard.big",
    "yard.fuzz",
    "system_schema.columns",
    "system.local",
];
const COLUMNS: [&str; 10] = ["k", "c", "v", "id", "m", "key", "column_name", "n", "l", "s"];
const TYPES: [&str; 14] = [
    "int",
    "text",
    "bigint",
    "uuid",
    "timeuuid",
    "blob",
    "decimal",
    "varint",
    "counter",
    "duration",
    "inet",
    "list<int>",
    "map<int, text>",
    "frozen<set<frozen<list<text>>>>",
];
const OPERATORS: [&str; 8] = ["=", "<", ">", "<=", ">=", "!=", "IN", "CONTAINS"];

/// Returns a term, nested at most `depth` deep.
fn term(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 9 } else { 14 }) {
        0 | 1 => random.below(50).to_string(),
        2 => format!("'{}'", "x".repeat(random.length(5_000))),
        3 => "?".to_owned(),
        4 => "null".to_owned(),
        5 => {
            random.pick(&["-9223372036854775808", "1e400", "NaN", "0x00", "true", "P1D", "now()"]).to_string()
        }
        6 => "7e1d0b1e-0000-4000-8000-000000000000".to_owned(),
        7 => ":name".to_owned(),
        8 => random.pick(&["9999999999999999999999", "-0", "''", "$$a$$", "1.5"]).to_string(),
        9 => format!("[{}]", terms(random, depth - 1)),
        10 => format!("{{{}}}", terms(random, depth - 1)),
        11 => {
            let (key, value) = (term(random, depth - 1), term(random, depth - 1));
            format!("{{{key}: {value}}}")
        }
        12 => format!("({})", terms(random, depth - 1)),
        _ => format!("(int){}", term(random, depth - 1)),
    }
}

fn terms(random: &mut Random, depth: usize) -> String {
    let count = 1 + random.length(30);
    (0..count).map(|_| term(random, depth)).collect::<Vec<_>>().join(", ")
}

fn relation(random: &mut Random) -> String {
    let (column, operator) = (*random.pick(&COLUMNS), *random.pick(&OPERATORS));
    match random.below(8) {
        0 => format!("token({column}) {operator} {}", term(random, 1)),
        1 => format!("({column}, c) {operator} ({})", terms(random, 1)),
        _ if operator == "IN" => format!("{column} IN ({})", terms(random, 1)),
        _ => format!("{column} {operator} {}", term(random, 2)),
    }
}

fn relations(random: &mut Random) -> String {
    // Most statements restrict the partition key first, so that a read finds rows.
    let first = *random.pick(&["k = 1", "k = ?", "k IN (1, 2, 3)", "id = 4", "key = 'local'"]);
    let more: Vec<String> = (0..random.length(20)).map(|_| relation(random)).collect();
    std::iter::once(first.to_owned()).chain(more).collect::<Vec<_>>().join(" AND ")
}

fn select(random: &mut Random) -> String {
    let what = match random.below(6) {
        0 => "count(*)".to_owned(),
        1 => format!("DISTINCT {}", random.pick(&COLUMNS)),
        2 => format!("ttl({0}), writetime({0}), {0}", random.pick(&COLUMNS)),
        3 => (0..=random.length(40)).map(|_| *random.pick(&COLUMNS)).collect::<Vec<_>>().join(", "),
        _ => "*".to_owned(),
    };
    let mut text = format!("SELECT {what} FROM {}", random.pick(&TABLES));
    if !random.once_in(4) {
        text += &format!(" WHERE {}", relations(random));
    }
    if random.once_in(4) {
        text += &format!(" ORDER BY {} DESC", random.pick(&COLUMNS));
    }
    if random.once_in(5) {
        text += &format!(" PER PARTITION LIMIT {}", term(random, 0));
    }
    if random.once_in(3) {
        text += &format!(" LIMIT {}", term(random, 0));
    }
    if random.once_in(2) {
        text += " ALLOW FILTERING";
    }
    if random.once_in(6) {
        text += " USING TIMEOUT 1ms";
    }
    text
}

fn using(random: &mut Random) -> String {
    match random.below(6) {
        0 => format!(" USING TTL {}", term(random, 0)),
        1 => format!(" USING TIMESTAMP {}", random.next() as i64),
        _ => String::new(),
    }
}

fn condition(random: &mut Random) -> String {
    match random.below(6) {
        0 => " IF EXISTS".to_owned(),
        1 => format!(" IF {} = {}", random.pick(&COLUMNS), term(random, 1)),
        _ => String::new(),
    }
}

fn write(random: &mut Random) -> String {
    let table = *random.pick(&TABLES[..6]);
    match random.below(5) {
        0 | 1 => {
            let columns: Vec<&str> = match table {
                "yard.w" => vec!["k", "c", "v"],
                "yard.b" => vec!["id", "v"],
                "yard.maps" => vec!["k", "m"],
                _ => vec!["k", "v"],
            };
            let values: Vec<String> = columns.iter().map(|_| term(random, 2)).collect();
            let condition = if random.once_in(6) { " IF NOT EXISTS" } else { "" };
            let columns = columns.join(", ");
            let values = values.join(", ");
            let using = using(random);
            format!("INSERT INTO {table} ({columns}) VALUES ({values}){condition}{using}")
        }
        2 | 3 => {
            let set: Vec<String> = (0..=random.length(10))
                .map(|_| {
                    let column = *random.pick(&COLUMNS);
                    match random.below(5) {
                        0 => format!("{column} = {column} + {}", term(random, 2)),
                        1 => format!("{column} = {column} - {}", term(random, 2)),
                        2 => format!("{column}[{}] = {}", term(random, 1), term(random, 1)),
                        _ => format!("{column} = {}", term(random, 2)),
                    }
                })
                .collect();
            let (using, set) = (using(random), set.join(", "));
            format!("UPDATE {table}{using} SET {set} WHERE {}{}", relations(random), condition(random))
        }
        _ => {
            let what = if random.once_in(2) { "" } else { *random.pick(&["v ", "m[1] ", "k, v "]) };
            format!("DELETE {what}FROM {table} WHERE {}{}", relations(random), condition(random))
        }
    }
}

fn schema(random: &mut Random) -> String {
    let (column, kind) = (*random.pick(&COLUMNS), *random.pick(&TYPES));
    match random.below(9) {
        0 | 1 => {
            let columns: Vec<String> =
                (0..random.length(20)).map(|n| format!("{column}{n} {}, ", random.pick(&TYPES))).collect();
            format!(
                "CREATE TABLE IF NOT EXISTS yard.fuzz (k int, c int, v text, l list<int>, s text STATIC, \
                 {}PRIMARY KEY (k, c))",
                columns.concat()
            )
        }
        2 => format!("ALTER TABLE yard.fuzz ADD {column} {kind}"),
        3 => format!("ALTER TABLE yard.fuzz DROP {column}"),
        4 => format!("ALTER TABLE yard.fuzz WITH comment = '{}'", "c".repeat(random.length(100_000))),
        5 => "DROP TABLE IF EXISTS yard.fuzz".to_owned(),
        6 => "TRUNCATE yard.fuzz".to_owned(),
        7 => format!("CREATE TYPE IF NOT EXISTS yard.u{} (a {kind}, b text)", random.below(4)),
        _ => random.pick(&["DESCRIBE KEYSPACES", "DESC TABLE yard.fuzz", "DESCRIBE FULL SCHEMA"]).to_string(),
    }
}

fn access(random: &mut Random) -> String {
    let texts = [
        "LIST ROLES",
        "LIST ALL PERMISSIONS OF nobody",
        "GRANT SELECT ON yard.t TO rude",
        "CREATE ROLE fuzz WITH PASSWORD = 'x' AND LOGIN = true",
        "LIST ALL SERVICE LEVELS",
        "CREATE SERVICE LEVEL fuzz WITH shares = 1",
        "CANCEL STATEMENT '0-0'",
        "USE yard",
        "BEGIN BATCH APPLY BATCH",
        "SELECT * FROM system.running_statements",
        "SELECT * FROM system.memory",
    ];
    (*random.pick(&texts)).to_owned()
}

/// Returns a statement.
pub(super) fn statement(random: &mut Random) -> String {
    match random.below(12) {
        0..=4 => select(random),
        5..=8 => write(random),
        9 => schema(random),
        10 => access(random),
        _ => {
            let writes: Vec<String> = (0..=random.length(50)).map(|_| write(random)).collect();
            let kind = *random.pick(&["", "UNLOGGED ", "COUNTER "]);
            format!("BEGIN {kind}BATCH {}; APPLY BATCH", writes.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_depend_on_the_seed_alone() {
        let text = |seed| statement(&mut Random::new(seed));
        assert!((0..500).all(|seed| text(seed) == text(seed)));
        let first: std::collections::BTreeSet<String> =
            (0..500).map(|seed| text(seed).split(' ').next().unwrap_or_default().to_owned()).collect();
        assert!(
            ["SELECT", "INSERT", "UPDATE", "DELETE", "BEGIN", "ALTER"]
                .iter()
                .all(|word| first.contains(*word))
        );
    }
}
