//! Large legal schemas and requests, generated from a seed: no task poll may spend more work units
//! than the maximum, with all guardrails off. The result lists each kind of request that did.

use std::collections::BTreeMap;

use engine::{Engine, Value};
use schema::{CqlType, value};
use testkit::Random;

use crate::{Server, Session};

/// Elements of a large collection, and rows of a large partition.
const MANY: u64 = 6_000;

/// Bytes of a large text or blob.
const TEXT_BYTES: u64 = 6 << 20;

/// Fields of a wide user type.
const FIELDS: usize = 1_000;

/// Types of columns that the generator uses. `u` is a user type of [`FIELDS`] texts.
const TYPES: [&str; 12] = [
    "text",
    "blob",
    "list<int>",
    "set<text>",
    "map<int, text>",
    "frozen<list<text>>",
    "frozen<set<int>>",
    "frozen<map<text, int>>",
    "frozen<map<int, frozen<list<int>>>>",
    "u",
    "frozen<u>",
    "tuple<text, frozen<set<int>>, int>",
];

/// Returns a value of a type. Its elements or bytes are about `size`.
fn large(random: &mut Random, ty: &CqlType, size: u64) -> Vec<u8> {
    let count = size / 2 + random.below(size / 2 + 1);
    let few = |ty: &CqlType| if ty.is_collection() { 20 } else { 8 };
    match ty.thawed() {
        CqlType::Text => {
            "\u{20ac}".repeat(if size == MANY { TEXT_BYTES as usize / 3 } else { size as usize }).into()
        }
        CqlType::Blob => vec![7; if size == MANY { TEXT_BYTES as usize } else { size as usize }],
        CqlType::Int => (random.below(1 << 30) as u32).to_be_bytes().to_vec(),
        CqlType::List(of) | CqlType::Set(of) => {
            let all: Vec<Vec<u8>> = (0..count).map(|n| small(random, of, n)).collect();
            value::encode_list(all.iter().map(|one| &one[..]))
        }
        CqlType::Map(key, of) => {
            let all: Vec<_> =
                (0..count).map(|n| (small(random, key, n), large(random, of, few(of)))).collect();
            value::encode_map(all.iter().map(|(key, of)| (&key[..], &of[..])))
        }
        CqlType::Tuple(types) => {
            let all: Vec<Vec<u8>> = types.iter().map(|ty| large(random, ty, size)).collect();
            value::encode_tuple(all.iter().map(|one| Some(&one[..])))
        }
        CqlType::Udt(udt) => {
            let all: Vec<Vec<u8>> = udt.fields.iter().map(|(_, ty)| large(random, ty, 40)).collect();
            value::encode_tuple(all.iter().map(|one| Some(&one[..])))
        }
        other => panic!("no values of {other}"),
    }
}

/// Returns the `n`-th of different values of a scalar type, in a scattered order.
fn small(random: &mut Random, ty: &CqlType, n: u64) -> Vec<u8> {
    let n = (n as u32).wrapping_mul(7_919);
    match ty.thawed() {
        CqlType::Int => n.to_be_bytes().to_vec(),
        CqlType::Text => format!("{n:08x}").into(),
        other => large(random, other, 10),
    }
}

/// One table of a case, and the largest polls so far, by kind of request.
struct Case {
    seed: u64,
    ty: &'static str,
    largest: BTreeMap<String, u32>,
    server: Server,
}

impl Case {
    /// Creates a table with a column `v` and a static column `s` of the type.
    fn new(seed: u64) -> Case {
        let ty = TYPES[seed as usize % TYPES.len()];
        let server = Server::with(&[]);
        server.run(async move |session: Session| {
            engine::GUARDRAILS.iter().for_each(|spec| session.limit(spec.guardrail, 0));
            let fields: Vec<String> = (0..FIELDS).map(|n| format!("f{n} text")).collect();
            session.run(&format!("CREATE TYPE u ({})", fields.join(", ")), &[]).await.expect("created");
            let table = format!(
                "CREATE TABLE t (k int, c int, i int static, n int, s {ty} static, v {ty}, PRIMARY KEY (k, c))"
            );
            session.run(&table, &[]).await.expect("created");
        });
        Case { seed, ty, largest: BTreeMap::new(), server }
    }

    /// Runs a statement with large values of the column's type for each `#`.
    fn ask(&mut self, text: &'static str) {
        self.ask_with(text, MANY);
    }

    fn ask_with(&mut self, text: &'static str, size: u64) {
        let seed = self.seed;
        let units = self.server.units(async move |session: Session| {
            let mut random = Random::new(seed);
            let count = text.matches('#').count();
            let ty = session
                .0
                .schema()
                .table("ks", "t")
                .expect("created")
                .column("v")
                .expect("there")
                .1
                .ty
                .clone();
            let values: Vec<Vec<u8>> = (0..count).map(|_| large(&mut random, &ty, size)).collect();
            let plan = match session.prepare(&text.replace('#', "?")) {
                Ok(plan) => plan,
                // The type does not have this operation.
                Err(_) => return,
            };
            let body = bytes::Bytes::from(values.concat());
            let mut rest = &body[..];
            let values: Vec<Value<'_>> = values
                .iter()
                .map(|value| Value::Bytes(rest.split_off(..value.len()).expect("concatenated")))
                .collect();
            let request = engine::Request { values: &values, body: Some(&body), ..engine::Request::EMPTY };
            let answer = session.counted(session.0.execute(&plan, &request)).await;
            if let Err(error) = answer {
                let error = error.to_string();
                let is_legal = ["a list which is null", "Expected "].iter().any(|part| error.contains(part));
                assert!(is_legal, "{text}: {error}");
            }
        });
        let kind = format!("{}: {text}", self.ty);
        let largest = self.largest.entry(kind).or_default();
        *largest = units.max(*largest);
    }

    /// Stops the server. Returns the kinds of requests with polls beyond the maximum.
    fn end(self) -> Vec<(u32, String)> {
        self.server.end();
        let beyond = self.largest.into_iter().filter(|(_, units)| *units > lanes::UNITS_MAX);
        beyond.map(|(kind, units)| (units, kind)).collect()
    }
}

/// Requests of a case, in an order that depends on its seed.
fn requests(case: &mut Case) {
    case.ask("INSERT INTO t (k, c, v, s) VALUES (1, 1, #, #)");
    case.ask("UPDATE t SET v = # WHERE k = 1 AND c = 2");
    case.ask_with("UPDATE t SET v = v + # WHERE k = 1 AND c = 2", 40);
    case.ask_with("UPDATE t SET s = s + # WHERE k = 1", 40);
    (3..300).for_each(|_| case.ask_with("INSERT INTO t (k, c, n) VALUES (1, 3, 4)", 1));
    for text in [
        "SELECT v FROM t WHERE k = 1 AND c = 1",
        "SELECT n, writetime(n) FROM t WHERE k = 1 AND c = 2",
        "SELECT * FROM t WHERE k = 1",
        "SELECT c, i FROM t WHERE k = 1",
        "SELECT DISTINCT k, s FROM t",
        "SELECT count(v) FROM t",
        "SELECT c FROM t WHERE s = # ALLOW FILTERING",
        "SELECT c FROM t WHERE v = # ALLOW FILTERING",
        "SELECT c FROM t WHERE v CONTAINS 7919 ALLOW FILTERING",
        "INSERT INTO t (k, c, v) VALUES (1, 1, #) IF NOT EXISTS",
        "INSERT INTO t (k, c, v) VALUES (2, 1, #) IF NOT EXISTS",
        "UPDATE t SET n = 1 WHERE k = 1 AND c = 1 IF v = #",
        "UPDATE t SET v = # WHERE k = 1 AND c = 1 IF v = #",
        "UPDATE t SET n = 1 WHERE k = 1 AND c = 1 IF v IN (#, #)",
        "UPDATE t SET n = 1 WHERE k = 1 AND c = 1 IF s != #",
        "UPDATE t SET n = 1 WHERE k = 1 AND c = 1 IF EXISTS",
        "UPDATE t SET v = v + # WHERE k = 1 AND c = 1",
        "UPDATE t SET v = # + v WHERE k = 1 AND c = 1",
        "UPDATE t SET v = v - # WHERE k = 1 AND c = 1",
        "UPDATE t SET v[0] = 7 WHERE k = 1 AND c = 1",
        "DELETE v[3] FROM t WHERE k = 1 AND c = 1",
        "UPDATE t SET v = # WHERE k = 1 AND c IN (1, 2, 3, 4, 5, 6)",
        "DELETE v FROM t WHERE k = 1 AND c = 1",
        "SELECT v FROM t WHERE k = 1 AND c = 1",
        "SELECT * FROM t",
    ] {
        case.ask(text);
    }
}

#[test]
fn large_values_are_handled_in_bounded_polls() {
    let mut beyond = Vec::new();
    for seed in 0..TYPES.len() as u64 {
        let mut case = Case::new(seed);
        requests(&mut case);
        beyond.extend(case.end());
    }
    beyond.sort();
    let lines: Vec<String> = beyond.iter().map(|(units, kind)| format!("{units} units: {kind}")).collect();
    assert!(lines.is_empty(), "{} kinds of requests with long polls:\n{}", lines.len(), lines.join("\n"));
}
