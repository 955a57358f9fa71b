//! Compares the answers to statements from a seed with those recorded from PostgreSQL
//! (`tests/corpus/record_random.py`). A line of the recording is a hash of the rows, or an
//! SQLSTATE.

mod generator;

use std::collections::BTreeMap;

use bytes::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::common::TestListener;

/// Number of statements.
const STATEMENTS: u64 = 7_000;
const RECORDED: &str = include_str!("../../corpus/random.expected");

/// Errors that stand for refusals, which docs/sql.md lists.
const KNOWN: [&str; 2] = ["Physical input schema should be the same", "Schema contains qualified field name"];

/// Returns the FNV-1a hash of texts.
fn hash<'a>(texts: impl Iterator<Item = &'a str>) -> u32 {
    let mut hash = 0x811c_9dc5_u32;
    for text in texts {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
    hash
}

/// Returns a value without the zeros that its type appends: columns of numerics have all the same
/// number of decimals here.
fn plain(value: Option<&str>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let is_number =
        value.contains('.') && value.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '-'));
    match is_number {
        true => format!("={}", value.trim_end_matches('0').trim_end_matches('.')),
        false => format!("={value}"),
    }
}

/// The value of a parameter as a text.
#[derive(Debug)]
struct Sent<'a>(&'a str);

impl ToSql for Sent<'_> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

fn type_of(name: &str) -> Type {
    match name {
        "int4" => Type::INT4,
        "float8" => Type::FLOAT8,
        "numeric" => Type::NUMERIC,
        "text" => Type::TEXT,
        "date" => Type::DATE,
        "timestamptz" => Type::TIMESTAMPTZ,
        other => panic!("{other}: a type of parameters"),
    }
}

/// Returns the rows of a statement of whole numbers with parameters.
async fn with_parameters(client: &Client, text: &str, values: &str) -> Result<Vec<String>, Error> {
    let values: Vec<(&str, &str)> =
        values.split('|').map(|value| value.split_once('=').expect("a value")).collect();
    let types = values.iter().filter(|(ty, _)| !ty.is_empty()).map(|(ty, _)| type_of(ty));
    let prepared = client.prepare_typed(text, &types.collect::<Vec<_>>()).await?;
    let values: Vec<Sent> = values.into_iter().map(|(_, value)| Sent(value)).collect();
    let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
    let rows = client.query(&prepared, &values).await?;
    Ok(rows.iter().map(|row| format!("={}", row.get::<_, i32>(0))).collect())
}

/// Returns the rows of a statement in order, or its SQLSTATE and message.
async fn answer(client: &Client, text: &str) -> Result<Vec<String>, (String, String)> {
    let failed = |error: Error| {
        let error = error.as_db_error().unwrap_or_else(|| panic!("{text}: {error}"));
        (error.code().code().to_owned(), error.message().to_owned())
    };
    if let Some((text, values)) = text.split_once(generator::VALUES) {
        let mut rows = with_parameters(client, text, values).await.map_err(failed)?;
        rows.sort_unstable();
        return Ok(rows);
    }
    let messages = client.simple_query(text).await.map_err(failed)?;
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|place| plain(row.get(place))).collect::<Vec<_>>().join("|"))
        }
        _ => None,
    };
    let mut rows: Vec<String> = messages.iter().filter_map(row).collect();
    rows.sort_unstable();
    Ok(rows)
}

#[test]
fn answers_to_random_statements_are_those_of_postgres() {
    let listener = TestListener::start(2);
    let (cql, _) = generator::tables();
    listener
        .cql(&["CREATE KEYSPACE r WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"]);
    listener.cql(&cql.iter().map(String::as_str).collect::<Vec<_>>());
    let statements: Vec<String> = (0..STATEMENTS).map(generator::statement).collect();
    let mut recorded = RECORDED.lines();
    let of_all = format!("{:08x}", hash(statements.iter().map(String::as_str)));
    assert_eq!(recorded.next(), Some(&*of_all), "run record_random.py");
    let mut wrong = Vec::new();
    let mut refused = BTreeMap::new();
    let mut same = 0_u64;
    let all: Vec<(&String, &str)> = statements.iter().zip(recorded).collect();
    assert_eq!(all.len() as u64, STATEMENTS, "run record_random.py");
    for part in all.chunks(100) {
        listener.client(async {
            let admin = listener.admin().await;
            for (text, expected) in part {
                let found = answer(&admin, text).await;
                match &found {
                    Ok(rows) if format!("{:08x}", hash(rows.iter().map(String::as_str))) == *expected => {
                        same += 1
                    }
                    Err((code, _)) if code == expected => same += 1,
                    // Refused, with the reason.
                    Err((code, message))
                        if code == "0A000" || KNOWN.iter().any(|known| message.contains(known)) =>
                    {
                        *refused.entry(message.clone()).or_insert(0_u64) += 1;
                    }
                    found => wrong.push(format!("{text}\n  expected {expected}\n  got      {found:?}")),
                }
            }
        });
    }
    let refusals: Vec<String> = refused.iter().map(|(why, count)| format!("{count} {why}")).collect();
    assert!(
        wrong.is_empty(),
        "{} of {STATEMENTS} statements, {same} same, refused:\n{}\n{}",
        wrong.len(),
        refusals.join("\n"),
        wrong.join("\n")
    );
    assert!(same >= STATEMENTS - 100, "{same} answers, refused:\n{}", refusals.join("\n"));
}

/// Writes the statements that `record_random.py` records, to the file that the environment names.
#[test]
#[ignore = "part of record_random.py"]
fn statements_are_written() {
    let (_, sql) = generator::tables();
    let statements = (0..STATEMENTS).map(generator::statement);
    let lines: Vec<String> = ["CREATE SCHEMA r".to_owned()]
        .into_iter()
        .chain(sql)
        .chain([String::new()])
        .chain(statements)
        .collect();
    #[expect(clippy::disallowed_methods, reason = "a file of the test")]
    std::fs::write(std::env::var("STATEMENTS").expect("STATEMENTS: a path"), lines.join("\n"))
        .expect("written");
}
