//! Compares results with those recorded from PostgreSQL (`tests/corpus`, by `record.py`): names
//! and types of columns, and rows as text, or the SQLSTATE. Marks in the corpus list refused
//! statements, and intended differences. Their kinds are rows of the tables in `docs/sql.md`.

use std::collections::BTreeSet;

use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::common::TestListener;

macro_rules! groups {
    ($($name:literal),*) => {
        [$((
            $name,
            include_str!(concat!("../../corpus/", $name, ".sql")),
            include_str!(concat!("../../corpus/", $name, ".expected")),
        )),*]
    };
}

const GROUPS: [(&str, &str, &str); 18] = groups![
    "answers",
    "arrays",
    "bytes",
    "casts",
    "dates",
    "floats",
    "grouping",
    "intervals",
    "nulls",
    "numbers",
    "numeric",
    "patterns",
    "queries",
    "refusals",
    "text",
    "types",
    "windows",
    "zones"
];
const TABLES: &str = include_str!("../../corpus/tables.txt");
const DOCUMENT: &str = include_str!("../../../../../docs/sql.md");

/// A statement with its expected result.
struct Case<'a> {
    place: String,
    text: &'a str,
    expected: Expected<'a>,
}

enum Expected<'a> {
    /// The lines of PostgreSQL.
    Same(Vec<&'a str>),
    /// An error with this SQLSTATE, of a kind.
    Refused(&'a str, &'a str),
    /// Other lines, with the reason.
    Other(&'a str, Vec<&'a str>),
}

fn cases<'a>((name, statements, recorded): &(&'a str, &'a str, &'a str)) -> Vec<Case<'a>> {
    let mut recorded = recorded.trim_end().split("\n\n").map(|block| {
        let mut lines = block.lines();
        (lines.next().expect("a statement"), lines.collect::<Vec<_>>())
    });
    let mut found = Vec::new();
    let mut refused = None;
    let mut differs = None;
    let mut gives = None;
    for (number, line) in statements.lines().enumerate() {
        let place = format!("{name}.sql:{}", number + 1);
        if let Some(mark) = line.strip_prefix("-- refused ") {
            refused = Some(mark.split_once(": ").unwrap_or_else(|| panic!("{place}: expected a kind")));
        } else if let Some(mark) = line.strip_prefix("-- differs ") {
            differs = Some(mark);
        } else if let Some(lines) = line.strip_prefix("-- gives: ") {
            gives = Some(lines.split(" ; ").collect());
        } else if !line.is_empty() && !line.starts_with("--") {
            let (text, lines) = recorded.next().unwrap_or_else(|| panic!("{place}: run record.py"));
            assert_eq!(text, line, "{place}: run record.py");
            let expected = match (refused.take(), differs.take(), gives.take()) {
                (None, None, None) => Expected::Same(lines),
                (Some((code, kind)), None, None) => Expected::Refused(code, kind),
                (None, Some(reason), Some(lines)) => Expected::Other(reason, lines),
                _ => panic!("{place}: expected one mark"),
            };
            found.push(Case { place, text: line, expected });
        }
    }
    assert!(recorded.next().is_none(), "{name}: run record.py");
    found
}

/// Replaces types that are texts here by `text`.
fn shown(line: &str) -> String {
    let texts = ["varchar", "bpchar", "name", "json", "uuid"];
    let column = |column: &str| match column.rsplit_once(' ') {
        Some((name, ty)) if texts.contains(&ty) => format!("{name} text"),
        _ => column.to_owned(),
    };
    match line.strip_prefix("= ") {
        Some(columns) => format!("= {}", columns.split('|').map(column).collect::<Vec<_>>().join("|")),
        None => line.to_owned(),
    }
}

fn escaped(value: Option<&str>) -> String {
    let escape = |value: &str| value.replace('\\', "\\\\").replace('|', "\\|").replace('\n', "\\n");
    value.map_or_else(|| "\\N".to_owned(), escape)
}

async fn answer(client: &Client, text: &str) -> Vec<String> {
    let answered = async {
        let (setting, query) = text.split_once("; ").unwrap_or(("", text));
        client.simple_query(setting).await?;
        let prepared = client.prepare(query).await?;
        let columns = prepared.columns().iter();
        let columns =
            columns.map(|column| format!("{} {}", escaped(Some(column.name())), column.type_().name()));
        let mut lines = vec![format!("= {}", columns.collect::<Vec<_>>().join("|"))];
        for message in client.simple_query(query).await? {
            if let SimpleQueryMessage::Row(row) = message {
                let cells: Vec<String> = (0..row.len()).map(|place| escaped(row.get(place))).collect();
                lines.push(format!("> {}", cells.join("|")));
            }
        }
        Ok::<_, Error>(lines)
    };
    let lines = answered.await.unwrap_or_else(|error| match error.as_db_error() {
        Some(error) => vec![format!("! {} {}", error.code().code(), error.message().replace('\n', " "))],
        None => panic!("{text}: {error}"),
    });
    client.simple_query("RESET ALL").await.expect("reset");
    lines
}

fn is_expected(expected: &Expected, given: &[String]) -> bool {
    let code = |line: &str| line.strip_prefix("! ")?.split(' ').next().map(str::to_owned);
    let code_given = given.first().and_then(|line| code(line));
    match expected {
        Expected::Refused(wanted, _) => code_given.as_deref() == Some(*wanted),
        Expected::Other(_, lines) => given == lines,
        Expected::Same(lines) => match (lines.first().and_then(|line| code(line)), code_given) {
            // A statement with several errors may report another one than PostgreSQL.
            (Some(wanted), Some(found)) => {
                wanted == found || (wanted.starts_with("42") && (found.starts_with("42") || found == "0A000"))
            }
            (None, None) => lines.iter().map(|line| shown(line)).eq(given.iter().map(|line| shown(line))),
            _ => false,
        },
    }
}

#[test]
fn answers_are_those_of_postgres() {
    let listener = TestListener::start(2);
    listener.cql(&[
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE shop.items (id int PRIMARY KEY, name text, kind text, price decimal, qty int, big bigint, \
         small smallint, ratio double, weight float, sold boolean, at timestamp, day date)",
        "CREATE TABLE shop.sales (item int, day date, amount int, price decimal, PRIMARY KEY (item, day))",
        "CREATE TABLE shop.r1 (id int PRIMARY KEY, g text, x int, b boolean, w int, d decimal, at timestamp)",
        "CREATE TABLE shop.r2 (id int PRIMARY KEY, k int)",
        "CREATE TABLE shop.r3 (id int PRIMARY KEY, k int, v int)",
    ]);
    listener.cql(&TABLES.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>());
    let groups: Vec<Vec<Case>> = GROUPS.iter().map(cases).collect();
    let count: usize = groups.iter().map(Vec::len).sum();
    assert!(count >= 900, "{count} statements");
    #[expect(clippy::disallowed_methods, reason = "the files of the test")]
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus")).expect("a folder");
    let paths = files.map(|file| file.expect("a file").path());
    let files = paths.filter(|path| path.extension().is_some_and(|ending| ending == "sql")).count();
    assert_eq!(files, GROUPS.len(), "every file of statements is a group");
    let mut wrong = Vec::new();
    // A session for each group, since the timeout applies to each.
    for group in &groups {
        listener.client(async {
            let admin = listener.admin().await;
            for case in group {
                let given = answer(&admin, case.text).await;
                if !is_expected(&case.expected, &given) {
                    let expected = match &case.expected {
                        Expected::Same(lines) | Expected::Other(_, lines) => lines.join(" ; "),
                        Expected::Refused(code, _) => format!("! {code}"),
                    };
                    let given = given.join(" ; ");
                    wrong.push(format!(
                        "{}: {}\n  expected {expected}\n  got      {given}",
                        case.place, case.text
                    ));
                }
            }
        });
    }
    assert!(wrong.is_empty(), "{} of {count} statements:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the kinds that the table below a heading of the document lists.
fn kinds_of(heading: &str) -> BTreeSet<&'static str> {
    let section =
        DOCUMENT.split(heading).nth(1).and_then(|rest| rest.split("\n## ").next()).expect("a section");
    section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

/// Refusals that no statement of the corpus reaches: statements without parameters, and those that
/// random statements find.
const UNREACHED: [&str; 2] = ["parameters", "subqueries"];

#[test]
fn documentation_lists_every_refusal() {
    let cases: Vec<Case> = GROUPS.iter().flat_map(cases).collect();
    let mut used: BTreeSet<&str> = cases
        .iter()
        .filter_map(|case| match case.expected {
            Expected::Refused(_, kind) => Some(kind),
            _ => None,
        })
        .collect();
    used.extend(UNREACHED);
    assert_eq!(used, kinds_of("## Errors"));
}

#[test]
fn documentation_lists_every_difference() {
    let cases: Vec<Case> = GROUPS.iter().flat_map(cases).collect();
    let used: BTreeSet<&str> = cases
        .iter()
        .filter_map(|case| match case.expected {
            Expected::Other(reason, _) => Some(reason),
            _ => None,
        })
        .collect();
    let documented = kinds_of("## Differences");
    assert_eq!(used, documented);
    let marked = cases.iter().filter(|case| matches!(case.expected, Expected::Other(..))).count();
    assert!(marked <= 60, "{marked} statements differ");
}
