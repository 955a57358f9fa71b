//! Full scans: the same rows in the same order on any number of cores, in pages of any size.

use crate::common::run;

/// Returns statements for partitions with one row, with many, with static cells alone, and with no
/// row that passes a filter.
fn filled() -> String {
    let mut script = String::from(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
         CREATE TABLE t (p int, c int, v int, s int static, PRIMARY KEY (p, c))",
    );
    for p in 0..60 {
        let rows = [1, 0, 3, 25][p % 4];
        for c in 0..rows {
            script += &format!(";\nINSERT INTO t (p, c, v) VALUES ({p}, {c}, {})", (p + c) % 5);
        }
        if rows == 0 || p % 3 == 0 {
            script += &format!(";\nUPDATE t SET s = {p} WHERE p = {p}");
        }
    }
    script
}

const QUESTIONS: [&str; 9] = [
    "SELECT p, c, v, s FROM t",
    "SELECT token(p), p FROM t LIMIT 50",
    "SELECT p, c FROM t PER PARTITION LIMIT 2",
    "SELECT p, c FROM t PER PARTITION LIMIT 7 LIMIT 61",
    "SELECT DISTINCT p, s FROM t",
    "SELECT p, c FROM t WHERE v = 3 ALLOW FILTERING",
    "SELECT count(*) FROM t WHERE v = 3 ALLOW FILTERING",
    "SELECT p, c FROM t WHERE token(p) > -4000000000000000000 AND token(p) <= 4000000000000000000",
    "SELECT p FROM t WHERE c = 24 ALLOW FILTERING",
];

#[test]
fn a_scan_goes_in_token_order_on_any_number_of_cores() {
    let script: &'static str =
        Box::leak(QUESTIONS.iter().fold(filled(), |script, text| script + ";\n" + text).into_boxed_str());
    let answers = |cores, page| {
        let all = run(cores, page, script);
        all[all.len() - QUESTIONS.len()..].to_vec()
    };
    let expected = answers(1, None);
    let tokens = expected[1].split(' ').map(|row| row.split_once(',').expect("two cells").0.parse::<i64>());
    let tokens: Vec<i64> = tokens.map(|token| token.expect("a token")).collect();
    assert!(tokens.len() == 50 && tokens.is_sorted());
    assert!(expected[0].split(' ').count() > 400);
    for cores in [1, 2, 5] {
        for page in [Some(1), Some(2), Some(7), Some(100), None] {
            let seen = answers(cores, page);
            for ((seen, expected), question) in seen.iter().zip(&expected).zip(QUESTIONS) {
                assert_eq!(seen, expected, "{question} on {cores} cores, in pages of {page:?}");
            }
        }
    }
}

#[test]
fn client_that_pages_by_token_sees_every_row() {
    let script = filled();
    let mut last = i64::MIN;
    let mut seen = Vec::new();
    loop {
        let text = format!("SELECT DISTINCT token(p), p FROM t WHERE token(p) > {last} LIMIT 7");
        let whole: &'static str = Box::leak((script.clone() + ";\n" + &text).into_boxed_str());
        let answer = run(3, None, whole).pop().expect("answers");
        if answer.is_empty() {
            break;
        }
        for row in answer.split(' ') {
            let (token, p) = row.split_once(',').expect("two cells");
            last = token.parse().expect("a token");
            seen.push(p.parse::<i32>().expect("an int"));
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..60).collect::<Vec<_>>());
}
