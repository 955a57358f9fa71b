//! Table with a column of every type, and random statements that write it.

use testkit::Random;

/// Name, type, and true for a static column.
pub(crate) const COLUMNS: [(&str, &str, bool); 29] = [
    ("s", "text", true),
    ("st", "set<int>", true),
    ("a", "ascii", false),
    ("b", "bigint", false),
    ("bl", "blob", false),
    ("bo", "boolean", false),
    ("da", "date", false),
    ("de", "decimal", false),
    ("db", "double", false),
    ("du", "duration", false),
    ("fl", "float", false),
    ("ip", "inet", false),
    ("i", "int", false),
    ("sm", "smallint", false),
    ("te", "text", false),
    ("ti", "time", false),
    ("ts", "timestamp", false),
    ("tu", "timeuuid", false),
    ("ty", "tinyint", false),
    ("u", "uuid", false),
    ("va", "varint", false),
    ("l", "list<int>", false),
    ("se", "set<text>", false),
    ("m", "map<text, int>", false),
    ("fz", "frozen<list<int>>", false),
    ("tp", "tuple<int, text>", false),
    ("pl", "place", false),
    ("fp", "frozen<place>", false),
    ("gone", "int", false),
];

pub(crate) fn create() -> Vec<String> {
    let columns = COLUMNS
        .map(|(name, ty, of_partition)| format!("{name} {ty}{}", if of_partition { " static" } else { "" }));
    vec![
        "CREATE TYPE place (street text, number int)".into(),
        format!(
            "CREATE TABLE t (p int, q text, c bigint, d text, {}, PRIMARY KEY ((p, q), c, d)) \
             WITH CLUSTERING ORDER BY (c DESC, d ASC) AND compression = {{'class': 'LZ4Compressor', \
             'chunk_length_in_kb': 4}}",
            columns.join(", ")
        ),
    ]
}

/// Returns a constant of a type from a small set, so that values repeat.
pub(crate) fn constant(ty: &str, random: &mut Random) -> String {
    let n = random.below(40);
    match ty {
        "ascii" | "text" => format!(
            "'{}'",
            [
                "",
                "plain",
                if ty == "text" { "é" } else { "e" },
                "a longer text that does not fit sixteen bytes"
            ][n as usize % 4]
                .to_owned()
                + &n.to_string()
        ),
        "blob" => format!("0x{:08x}", n * 1_000_003),
        "boolean" => (n.is_multiple_of(2)).to_string(),
        "date" => format!("'{}-02-{:02}'", 1960 + n, 1 + n % 28),
        "decimal" => format!("-{n}.25"),
        "double" | "float" => format!("{}.5", n as i64 - 20),
        "duration" => format!("{n}mo3d{n}ns"),
        "inet" => {
            if n.is_multiple_of(2) {
                format!("'10.0.0.{n}'")
            } else {
                format!("'2001:db8::{n:x}'")
            }
        }
        "time" => format!("'{:02}:00:00.000000{n:03}'", n % 24),
        "timeuuid" => format!("{:08x}-29bb-11e5-b345-feff819cdc9f", n * 77_777),
        "uuid" => format!("{:08x}-29bb-41e5-b345-feff819cdc9f", n * 99_999),
        "varint" => format!("-{}", u128::from(n + 1) << 90),
        "timestamp" => (1_700_000_000_000 + n as i64 * 7 - 140).to_string(),
        "list<int>" | "frozen<list<int>>" => format!("[{n}, {}]", n % 3),
        "set<text>" => format!("{{'{n}', 'x', '{}'}}", n % 3),
        "set<int>" => format!("{{{n}, {}}}", n % 3),
        "map<text, int>" => format!("{{'{}': {n}, 'k': 1}}", n % 4),
        "tuple<int, text>" => {
            if n.is_multiple_of(3) {
                format!("({n}, null)")
            } else {
                format!("({n}, 't')")
            }
        }
        "place" | "frozen<place>" => {
            if n.is_multiple_of(3) {
                format!("{{street: '{n}'}}")
            } else {
                format!("{{street: 'x', number: {n}}}")
            }
        }
        _ => (n as i64 - 20).to_string(),
    }
}

fn partition(random: &mut Random) -> String {
    let (p, q) = (random.below(12), random.below(3));
    format!("p = {p} AND q = 'q{q}'")
}

fn row(random: &mut Random) -> String {
    let (c, d) = (random.below(9) as i64 - 4, random.below(3));
    format!("{} AND c = {c} AND d = 'd{d}'", partition(random))
}

fn some_column(random: &mut Random) -> (&'static str, &'static str, bool) {
    COLUMNS[random.below(COLUMNS.len() as u64) as usize]
}

/// Returns one write. With `brief`, some cells live for a second.
pub(crate) fn statement(random: &mut Random, brief: bool) -> String {
    let ttl = match random.below(6) {
        0 if brief => " USING TTL 1",
        1 => " USING TTL 100000",
        _ => "",
    };
    match random.below(20) {
        0..8 => {
            let (p, q) = (random.below(12), random.below(3));
            let (c, d) = (random.below(9) as i64 - 4, random.below(3));
            let (mut names, mut values) = (String::new(), String::new());
            for (name, ty, _) in COLUMNS {
                if random.one_in(2) {
                    names += &format!(", {name}");
                    values += &format!(", {}", constant(ty, random));
                }
            }
            format!("INSERT INTO t (p, q, c, d{names}) VALUES ({p}, 'q{q}', {c}, 'd{d}'{values}){ttl}")
        }
        8..13 => {
            let (name, ty, of_partition) = some_column(random);
            let place = if of_partition { partition(random) } else { row(random) };
            format!("UPDATE t{ttl} SET {name} = {} WHERE {place}", constant(ty, random))
        }
        13..16 => {
            let change = match random.below(7) {
                0 => format!("l = l + [{}]", random.below(9)),
                1 => format!("l = [{}] + l", random.below(9)),
                2 => format!("se = se + {{'{}'}}", random.below(9)),
                3 => "se = se - {'x', '1'}".into(),
                4 => format!("m['{}'] = {}", random.below(4), random.below(9)),
                5 => "m['k'] = null".into(),
                _ => format!("pl.number = {}", random.below(9)),
            };
            format!("UPDATE t{ttl} SET {change} WHERE {}", row(random))
        }
        16 => format!("UPDATE t SET st = st + {{{}}} WHERE {}", random.below(9), partition(random)),
        17 => {
            let (name, _, of_partition) = some_column(random);
            let place = if of_partition { partition(random) } else { row(random) };
            format!("DELETE {name} FROM t WHERE {place}")
        }
        18 => format!("DELETE FROM t WHERE {}", row(random)),
        _ if random.one_in(8) => format!("DELETE FROM t WHERE {}", partition(random)),
        _ => format!("DELETE FROM t WHERE {} AND c > 1", partition(random)),
    }
}
