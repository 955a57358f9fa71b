//! Scans of materialized views compared with SELECT, which reads their entries.

use bytes::Bytes;
use engine::scan::{Filter, TableScan};
use testkit::Random;

use crate::server::{Row, Server, all, filtered, lines_of_relation};
use crate::{SMALL, matches_filter, seed, some_filter, sorted, writes};

/// Views of the table of `writes` (name, columns, WHERE, key): by values of several types, by the
/// key alone, and with conditions of one column and of two.
const VIEWS: [(&str, &str, &str, &str); 8] = [
    (
        "by_te",
        "p, q, c, d, te, a, i, de, l, m, fp",
        "te IS NOT NULL AND p IS NOT NULL AND q IS NOT NULL AND c IS NOT NULL AND d IS NOT NULL",
        "te, p, q, c, d",
    ),
    (
        "by_i",
        "p, q, c, d, i, b, l, pl",
        "i IS NOT NULL AND p IS NOT NULL AND q IN ('q0', 'q2') AND c IS NOT NULL AND d IS NOT NULL",
        "(i, q), d, c, p",
    ),
    (
        "by_b",
        "p, q, c, d, b, te, m",
        "b IS NOT NULL AND p IS NOT NULL AND q IS NOT NULL AND c > -2 AND c <= 3 AND d IS NOT NULL",
        "(p, q), b, c, d",
    ),
    (
        "by_fz",
        "p, q, c, d, fz, se",
        "fz IS NOT NULL AND p IS NOT NULL AND q IS NOT NULL AND c IS NOT NULL AND d IS NOT NULL",
        "fz, d, c, q, p",
    ),
    (
        "by_de",
        "p, q, c, d, de, tp",
        "de IS NOT NULL AND p > 2 AND q IS NOT NULL AND c IS NOT NULL AND d IS NOT NULL",
        "(q, de), c, d, p",
    ),
    (
        "by_c",
        "p, q, c, d, te, u",
        "p IS NOT NULL AND q IS NOT NULL AND c IS NOT NULL AND d IS NOT NULL",
        "c, d, q, p",
    ),
    (
        "of_one",
        "p, q, c, d, te, du, se",
        "p = 3 AND q = 'q1' AND c IS NOT NULL AND d IS NOT NULL",
        "(d, p), q, c",
    ),
    ("of_pairs", "p, q, c, d, i", "p IS NOT NULL AND q IS NOT NULL AND (c, d) > (0, 'd1')", "(p, q), c, d"),
];

fn create((name, columns, conditions, key): (&str, &str, &str, &str)) -> String {
    format!(
        "CREATE MATERIALIZED VIEW {name} AS SELECT {columns} FROM t WHERE {conditions} PRIMARY KEY ({key})"
    )
}

/// Returns the rows of SELECT, and of them the lines of a scan.
fn select(server: &Server, view: &'static str) -> (Vec<Row>, Vec<String>) {
    let relation = server.relation(view);
    let names: Vec<&str> = relation.def.columns.iter().map(|column| column.name.as_str()).collect();
    let rows = server.run(vec![format!("SELECT {} FROM {view}", names.join(", "))]);
    let lines = lines_of_relation(&relation, &rows);
    (rows, lines)
}

/// Checks that the scans of all cores together return the rows of SELECT. Returns their number.
fn check_view(server: &Server, view: &'static str, what: &str) -> usize {
    let columns = server.relation(view).def.columns.len();
    let found = sorted(server.scan(&all(view, columns)).concat());
    let expected = sorted(select(server, view).1);
    assert_eq!(found.len(), expected.len(), "{what}: rows of {view}");
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected, "{what}: {view}");
    }
    found.len()
}

fn check_all(server: &Server, what: &str) -> usize {
    VIEWS.iter().map(|(view, ..)| check_view(server, view, what)).sum()
}

#[test]
fn scans_of_views_return_the_rows_of_select() {
    for cores in [1, 3] {
        let seed = seed(70 + cores as u64);
        let what = format!("seed {seed} on {cores} cores");
        let mut random = Random::new(seed);
        let server = Server::start(cores, SMALL);
        server.run(writes::create());
        server.run((0..200).map(|_| writes::statement(&mut random, false)).collect());
        server.run(VIEWS.map(create).to_vec());
        check_all(&server, &format!("{what}, after the builds"));
        server.run((0..300).map(|_| writes::statement(&mut random, false)).collect());
        check_all(&server, &format!("{what}, after more writes"));
        server.run((0..150).map(|_| writes::statement(&mut random, true)).collect());
        server.run(vec!["ALTER TABLE t RENAME c TO cc".into(), "ALTER TABLE t ADD more int".into()]);
        server.run(
            (0..9)
                .map(|n| {
                    format!("UPDATE t SET more = {n} WHERE p = 3 AND q = 'q1' AND cc = {n} AND d = 'd1'")
                })
                .collect(),
        );
        server.wait(std::time::Duration::from_millis(2100));
        let rows = check_all(&server, &format!("{what}, after expiry"));
        assert!(rows > 200, "{what}: {rows} rows");
        server.flush();
        check_all(&server, &format!("{what}, from files"));
        for (view, ..) in VIEWS {
            check_filters(&server, view, &mut random, &what);
        }
        server.stop();
    }
}

/// Checks that scans with random filters return every matching row, and only rows of the view,
/// whether storage knows the filters at once or later.
fn check_filters(server: &Server, view: &'static str, random: &mut Random, what: &str) {
    let relation = server.relation(view);
    let def = &relation.def;
    let (rows, lines) = select(server, view);
    let everything = sorted(lines.clone());
    for _ in 0..20 {
        let filters: Vec<Filter> =
            (0..1 + random.below(3)).filter_map(|_| some_filter(def, &rows, random)).collect();
        let after = [usize::MAX, 0, 1][random.below(3) as usize];
        let scan = match after {
            usize::MAX => filtered(view, def.columns.len(), &filters),
            _ => all(view, def.columns.len()),
        };
        let found = sorted(server.with_dynamic_filters(&scan, &filters, after).concat());
        for (row, line) in rows.iter().zip(&lines) {
            let wanted = filters.iter().all(|filter| matches_filter(def, row, filter));
            assert!(!wanted || found.binary_search(line).is_ok(), "{what}: {view}, {filters:?} lost {line}");
        }
        assert!(
            found.iter().all(|line| everything.binary_search(line).is_ok()),
            "{what}: {view}, {filters:?}"
        );
        assert!(
            found.windows(2).all(|two| two[0] != two[1]),
            "{what}: {view}, {filters:?} gives a row twice"
        );
    }
}

/// Values from before a view may be too long for its key, or empty numbers.
#[test]
fn rows_that_no_view_can_have_are_in_no_scan() {
    let server = Server::start(2, 64 << 20);
    let long = "x".repeat(66_000);
    let middle = "y".repeat(30_000);
    let nulls = "z\0".repeat(10);
    server.run(vec![
        "CREATE TABLE t (k int, j int, v text, n int, PRIMARY KEY ((k, j)))".into(),
        format!("INSERT INTO t (k, j, v, n) VALUES (1, 1, '{long}', 1)"),
        format!("INSERT INTO t (k, j, v, n) VALUES (2, 1, '{middle}', 2)"),
        format!("INSERT INTO t (k, j, v, n) VALUES (3, 1, '{nulls}', 3)"),
        "INSERT INTO t (k, j, v, n) VALUES (4, 1, '', blobAsInt(0x))".into(),
        "INSERT INTO t (k, j, v, n) VALUES (blobAsInt(0x), 1, 'five', 5)".into(),
        "INSERT INTO t (k, j, v) VALUES (6, 1, 'six')".into(),
        "INSERT INTO t (k, j, n) VALUES (7, 1, 7)".into(),
    ]);
    let views = [
        ("a", "v", "v, k, j"),
        ("b", "v", "(k, v), j"),
        ("c", "n", "n, k, j"),
        ("d", "n", "k, n, j"),
        ("e", "k", "j, k"),
    ];
    for (view, value, key) in views {
        server.run(vec![format!(
            "CREATE MATERIALIZED VIEW {view} AS SELECT * FROM t WHERE {value} IS NOT NULL AND k IS NOT NULL AND j IS \
             NOT NULL PRIMARY KEY ({key})"
        )]);
    }
    let counts = ["a", "b", "c", "d", "e"].map(|view| check_view(&server, view, "from before the view"));
    // Not the long value; not the empty part of the key as a clustering column; the empty number as
    // a partition key only.
    assert_eq!(counts, [4, 5, 5, 5, 6]);
    // The same with a key that has no empty parts.
    server.run(vec![
        "CREATE TABLE u (k int PRIMARY KEY, n int)".into(),
        "INSERT INTO u (k, n) VALUES (1, blobAsInt(0x))".into(),
        "INSERT INTO u (k, n) VALUES (2, 2)".into(),
        "INSERT INTO u (k) VALUES (3)".into(),
        "CREATE MATERIALIZED VIEW g AS SELECT * FROM u WHERE k IS NOT NULL AND n IS NOT NULL PRIMARY KEY (k, n)".into(),
        "CREATE MATERIALIZED VIEW h AS SELECT * FROM u WHERE k IS NOT NULL AND n IS NOT NULL PRIMARY KEY (n, k)".into(),
    ]);
    assert_eq!(["g", "h"].map(|view| check_view(&server, view, "of numbers")), [1, 2]);
    // An empty value can be the whole key of a partition.
    server.run(vec!["INSERT INTO t (k, j, v) VALUES (8, 1, '')".into()]);
    let counts = ["a", "b", "e"].map(|view| check_view(&server, view, "after it"));
    assert_eq!(counts, [5, 6, 7]);
    server.flush();
    assert_eq!(["a", "b", "e"].map(|view| check_view(&server, view, "from files")), counts);
    server.stop();
}

#[test]
fn partitions_with_static_cells_alone_are_in_no_view() {
    let server = Server::start(2, SMALL);
    server.run(vec![
        "CREATE TABLE t (k int, c int, s int static, PRIMARY KEY (k, c))".into(),
        "CREATE MATERIALIZED VIEW m AS SELECT c, k FROM t WHERE k IS NOT NULL AND c IS NOT NULL \
         PRIMARY KEY (c, k)"
            .into(),
        "UPDATE t SET s = 1 WHERE k = 1".into(),
        "INSERT INTO t (k, c) VALUES (2, 5)".into(),
    ]);
    assert_eq!(check_view(&server, "m", "in memory"), 1);
    server.flush();
    assert_eq!(check_view(&server, "m", "from files"), 1);
    server.stop();
}

#[test]
fn limit_counts_rows_of_the_view() {
    let server = Server::start(2, 64 << 20);
    let mut script = vec![
        "CREATE TABLE t (k int PRIMARY KEY, v int)".to_owned(),
        "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE k IS NOT NULL AND v IS NOT NULL PRIMARY KEY (v, k)".into(),
    ];
    script.extend((0..2000).map(|k| match k % 100 {
        0 => format!("INSERT INTO t (k, v) VALUES ({k}, {k})"),
        _ => format!("INSERT INTO t (k) VALUES ({k})"),
    }));
    server.run(script);
    let everything = server.scan(&all("m", 2));
    assert_eq!(everything.concat().len(), 20);
    for limit in [0, 1, 3, 100] {
        let found = server.scan(&TableScan { limit: Some(limit), ..all("m", 2) });
        for (found, everything) in found.iter().zip(&everything) {
            assert_eq!(found.len(), everything.len().min(limit as usize), "limit {limit}");
        }
    }
    // A column that is not selected, and a filter on the value.
    let filter = Filter::equal(0, Bytes::copy_from_slice(&300_i32.to_be_bytes()));
    let one = TableScan { columns: vec![1], ..filtered("m", 2, &[filter]) };
    assert!(server.scan(&one).concat().len() <= 20);
    let none = TableScan { columns: Vec::new(), ..all("m", 2) };
    assert_eq!(server.scan(&none).concat().len(), 20);
    assert_eq!(server.refused(all("nothing", 1)), "table ks.nothing does not exist");
    server.stop();
}
