//! Columnar scans compared with SELECT: the same rows on any number of cores, from memory and from
//! files, for any columns and filters. Aggregates by column compared with those by row.
//!
//! A failure prints its seed. `FAIRLANE_SEED=<seed> cargo test --release -p embedded --test
//! columns` replays it.

mod aggregates;
mod server;
mod views;
mod writes;

use std::collections::HashSet;
use std::ops::Bound;

use bytes::Bytes;
use engine::scan::{Filter, TableScan};
use schema::{CqlType, TableDef, value};
use testkit::Random;

use server::{Row, Server, all, filtered, lines_of_rows};

/// Memtable bytes small enough that the tests' writes cause many flushes.
const SMALL: usize = 64 << 10;

/// Returns the seed from the environment, or the test's own.
fn seed(own: u64) -> u64 {
    std::env::var("FAIRLANE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(own)
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort_unstable();
    lines
}

fn select_all(server: &Server) -> Vec<Row> {
    let names: Vec<String> = server.def().columns.iter().map(|column| column.name.clone()).collect();
    server.run(vec![format!("SELECT {} FROM t", names.join(", "))])
}

/// Checks that the scans of all cores together return the rows of SELECT. Returns them.
fn check_whole(server: &Server, what: &str) -> Vec<Row> {
    let (def, rows) = (server.def(), select_all(server));
    let found = sorted(server.scan(&all("t", def.columns.len())).concat());
    let expected = sorted(lines_of_rows(&def, &rows));
    assert_eq!(found.len(), expected.len(), "{what}: rows");
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected, "{what}");
    }
    rows
}

/// Returns a filter on a random column, with values that occur.
fn some_filter(def: &TableDef, rows: &[Row], random: &mut Random) -> Option<Filter> {
    let column = random.below(def.columns.len() as u64) as usize;
    let ty = &def.columns[column].ty;
    let (kind, listed) = (random.below(9), random.below(4));
    let mut edge = || rows[random.below(rows.len() as u64) as usize][column].clone().map(Bytes::from);
    let (mut low, mut high) = (edge()?, edge()?);
    if value::compare(ty, &low, &high).is_gt() {
        std::mem::swap(&mut low, &mut high);
    }
    // Four of nine filters are lists of values.
    if kind >= 5 {
        let more = (0..listed).filter_map(|_| edge()).map(|value| Filter::equal(column, value));
        let all: Vec<Filter> =
            [low, high].map(|value| Filter::equal(column, value)).into_iter().chain(more).collect();
        return all.into_iter().reduce(|one, other| one.or(other, ty).expect("bounds"));
    }
    Some(match kind {
        0 => Filter::between(column, Bound::Included(low), Bound::Excluded(high)),
        1 => Filter::between(column, Bound::Excluded(low), Bound::Unbounded),
        2 => Filter::between(column, Bound::Unbounded, Bound::Included(high)),
        _ => Filter::equal(column, low),
    })
}

fn matches_filter(def: &TableDef, row: &Row, filter: &Filter) -> bool {
    let ty = &def.columns[filter.column].ty;
    let Some(own) = &row[filter.column] else { return false };
    let above = match &filter.from {
        Bound::Included(edge) => value::compare(ty, own, edge).is_ge(),
        Bound::Excluded(edge) => value::compare(ty, own, edge).is_gt(),
        Bound::Unbounded => true,
    };
    let below = match &filter.to {
        Bound::Included(edge) => value::compare(ty, own, edge).is_le(),
        Bound::Excluded(edge) => value::compare(ty, own, edge).is_lt(),
        Bound::Unbounded => true,
    };
    let listed = |values: &Vec<Bytes>| values.iter().any(|value| value::compare(ty, own, value).is_eq());
    above && below && filter.values.as_ref().is_none_or(listed)
}

/// Checks that scans with random filters return every matching row, and only rows of the table.
fn check_filters(server: &Server, rows: &[Row], random: &mut Random, what: &str) {
    let def = server.def();
    let lines = lines_of_rows(&def, rows);
    let everything = sorted(lines.clone());
    for _ in 0..30 {
        let filters: Vec<Filter> =
            (0..1 + random.below(3)).filter_map(|_| some_filter(&def, rows, random)).collect();
        let found = sorted(server.scan(&filtered("t", def.columns.len(), &filters)).concat());
        for (row, line) in rows.iter().zip(&lines) {
            let wanted = filters.iter().all(|filter| matches_filter(&def, row, filter));
            assert!(!wanted || found.binary_search(line).is_ok(), "{what}: {filters:?} lost {line}");
        }
        assert!(found.iter().all(|line| everything.binary_search(line).is_ok()), "{what}: {filters:?}");
        assert!(found.windows(2).all(|two| two[0] != two[1]), "{what}: {filters:?} gives a row twice");
    }
}

#[test]
fn scans_return_the_rows_of_select() {
    for cores in [1, 3] {
        let seed = seed(40 + cores as u64);
        let what = format!("seed {seed} on {cores} cores");
        let mut random = Random::new(seed);
        let server = Server::start(cores, SMALL);
        server.run(writes::create());
        for round in 0..3 {
            server.run((0..250).map(|_| writes::statement(&mut random, false)).collect());
            check_whole(&server, &format!("{what}, round {round}"));
        }
        // Rows with only a cell of a column that will be dropped, and cells that expire after a
        // second.
        server.run((0..150).map(|_| writes::statement(&mut random, true)).collect());
        server.run(
            (0..9)
                .map(|n| format!("UPDATE t SET gone = 1 WHERE p = {n} AND q = 'new' AND c = 0 AND d = ''"))
                .collect(),
        );
        server.run(vec!["ALTER TABLE t DROP gone".into(), "ALTER TABLE t ADD gone int".into()]);
        server.wait(std::time::Duration::from_millis(2100));
        let rows = check_whole(&server, &format!("{what}, after expiry"));
        assert!(rows.len() > 100, "{what}: {} rows", rows.len());
        check_filters(&server, &rows, &mut random, &what);
        let (counted, bytes) = server.statistics();
        assert!(counted >= 100 && bytes > 10_000, "{counted} rows of {bytes} bytes");
        server.stop();
    }
}

/// Returns a server with a table of many rows with ascending numbers, in several files and a
/// memtable.
fn with_numbers(cores: usize, memtable_bytes_max: usize) -> Server {
    let server = Server::start(cores, memtable_bytes_max);
    let mut script = vec![
        "CREATE TABLE t (p int, c date, n bigint, v text, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC) \
         AND compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 4}"
            .to_owned(),
    ];
    for p in 0..300 {
        for c in 0..10 {
            let n = p * 10 + c;
            script.push(format!(
                "INSERT INTO t (p, c, n, v) VALUES ({p}, '2024-01-{:02}', {n}, 'value {n}')",
                c + 1
            ));
        }
    }
    server.run(script);
    server
}

#[test]
fn one_partition_is_found_on_its_owner() {
    let server = with_numbers(3, SMALL);
    for p in [0_i32, 17, 299, 300] {
        let filter = Filter::equal(0, Bytes::copy_from_slice(&p.to_be_bytes()));
        let found = server.scan(&filtered("t", 4, std::slice::from_ref(&filter)));
        let expected = server.run(vec![format!("SELECT p, c, n, v FROM t WHERE p = {p}")]);
        assert_eq!(expected.len(), if p < 300 { 10 } else { 0 });
        assert_eq!(found.concat(), lines_of_rows(&server.def(), &expected), "the rows of {p}, in order");
        assert!(found.iter().filter(|lines| !lines.is_empty()).count() <= 1);
    }
    server.stop();
}

#[test]
fn partitions_are_looked_up_if_cheaper_than_a_scan() {
    let listed = |wanted: &[i32]| {
        let equal = |p: &i32| Filter::equal(0, Bytes::copy_from_slice(&p.to_be_bytes()));
        let all = wanted.iter().map(equal).reduce(|one, other| one.or(other, &CqlType::Int).expect("bounds"));
        all.expect("some")
    };
    for in_files in [false, true] {
        let server = with_numbers(3, 64 << 20);
        if in_files {
            server.flush();
        }
        server.run(vec!["INSERT INTO t (p, c, n, v) VALUES (17, '2025-01-01', 1, 'new')".into()]);
        let rows = select_all(&server);
        let check = |wanted: &[i32], narrowed_after: Option<usize>, exact: bool| {
            let what = format!(
                "in files: {in_files}, {} wanted, pushed down after: {narrowed_after:?}",
                wanted.len()
            );
            let filter = listed(wanted);
            let expected: Vec<Row> =
                rows.iter().filter(|row| matches_filter(&server.def(), row, &filter)).cloned().collect();
            let found = match narrowed_after {
                None => server.scan(&filtered("t", 4, &[filter])),
                Some(after) => server.with_dynamic_filters(
                    &TableScan { batch_rows: 100, ..all("t", 4) },
                    &[filter],
                    after,
                ),
            };
            let found = sorted(found.concat());
            let expected = lines_of_rows(&server.def(), &expected);
            assert!(expected.iter().all(|line| found.binary_search(line).is_ok()), "{what}");
            assert!(found.windows(2).all(|two| two[0] != two[1]), "{what}: a row twice");
            assert!(!exact || found.len() == expected.len(), "{what}: {} rows", found.len());
        };
        let few = [299, 300, 17, 0, 17];
        check(&few, None, true);
        // A filter pushed down before the first batch has full effect; later the scan goes on
        // unchanged.
        check(&few, Some(0), true);
        check(&few, Some(1), false);
        check(&few, Some(3), false);
        // Scanning a file's blocks is faster than 250 lookups.
        let many: Vec<i32> = (0..250).collect();
        check(&many, None, !in_files);
        check(&many, Some(0), !in_files);
        server.stop();
    }
}

#[test]
fn every_core_keeps_the_limit() {
    let server = with_numbers(2, SMALL);
    let everything = server.scan(&all("t", 4));
    for limit in [0_u64, 1, 49, 50, 51, 1000, 5000] {
        let found = server.scan(&TableScan { limit: Some(limit), ..all("t", 4) });
        for (found, everything) in found.iter().zip(&everything) {
            assert_eq!(found.len(), everything.len().min(limit as usize), "limit {limit}");
            // Any rows, but no duplicates.
            let (distinct, everything): (HashSet<_>, HashSet<_>) =
                (found.iter().collect(), everything.iter().collect());
            assert!(distinct.len() == found.len() && distinct.is_subset(&everything), "limit {limit}");
        }
    }
    server.stop();
}

#[test]
fn token_ranges_are_disjoint_and_complete() {
    let server = with_numbers(2, SMALL);
    let ranges = [i64::MIN..=-1, 0..=i64::MAX];
    let parts: Vec<String> = ranges
        .into_iter()
        .flat_map(|tokens| server.scan(&TableScan { tokens, ..all("t", 4) }).concat())
        .collect();
    assert_eq!(sorted(parts), sorted(server.scan(&all("t", 4)).concat()));
    server.stop();
}

#[test]
fn scans_skip_numbers_and_keys_out_of_range() {
    let server = with_numbers(1, 64 << 20);
    server.flush();
    server.run(vec!["INSERT INTO t (p, c, n, v) VALUES (7, '2024-01-05', 74, 'value 74')".into()]);
    let rows = select_all(&server);
    let def = server.def();
    let ask = |column: usize, low: &[u8], high: &[u8]| {
        let bound = |edge: &[u8]| Bound::Included(Bytes::copy_from_slice(edge));
        let filter = Filter::between(column, bound(low), bound(high));
        let wanted = rows.iter().filter(|row| matches_filter(&def, row, &filter)).count();
        (wanted, server.scan(&filtered("t", 4, &[filter])).concat().len())
    };
    // No row has such a number: the scan reads only memtables and adjacent rows.
    let (wanted, found) = ask(2, &100_000_i64.to_be_bytes(), &200_000_i64.to_be_bytes());
    assert!(wanted == 0 && found < rows.len() / 10, "{found} of {} rows", rows.len());
    let day = (1_u32 << 31) + 19_723;
    let (wanted, found) = ask(1, &(day + 3).to_be_bytes(), &(day + 4).to_be_bytes());
    assert!(wanted == 600 && (600..=rows.len()).contains(&found), "{found} of {wanted}");
    server.stop();
}

#[test]
fn scans_of_few_or_no_columns_return_every_row() {
    let server = with_numbers(2, SMALL);
    let count = |columns: &[usize]| {
        let scan = TableScan { columns: columns.to_vec(), ..all("t", 0) };
        server.scan(&scan).concat().len()
    };
    assert_eq!(count(&[]), 3000);
    assert_eq!(count(&[1]), 3000);
    assert_eq!(count(&[2, 2, 0]), 3000);
    server.stop();
}

#[test]
fn counters_and_virtual_tables_are_scanned() {
    let server = Server::start(2, SMALL);
    let mut script = vec!["CREATE TABLE t (k text PRIMARY KEY, n counter)".to_owned()];
    script.extend((0..40).map(|n| format!("UPDATE t SET n = n + {n} WHERE k = 'k{}'", n % 7)));
    server.run(script);
    let rows = check_whole(&server, "counters");
    assert_eq!(rows.len(), 7);
    let scan = TableScan { keyspace: "system_schema".into(), columns: vec![0, 1], ..all("tables", 0) };
    let found = server.scan(&scan);
    let expected = server.run(vec!["SELECT table_name FROM system_schema.tables".into()]);
    assert_eq!(
        (found[0].len(), found[1].len()),
        (expected.len(), 0),
        "core 0 returns rows that are the \
    same on all cores"
    );
    let few = server.scan(&TableScan { limit: Some(2), ..scan });
    assert_eq!(few[0][..], found[0][..2]);
    server.stop();
}

#[test]
fn scan_does_not_see_later_writes() {
    let server = with_numbers(1, SMALL);
    server.check_snapshot_is_stable(&all("t", 4), "DELETE FROM t WHERE p = 5", 3000);
    let tables = TableScan { keyspace: "system_schema".into(), ..all("tables", 2) };
    let count = server.scan(&tables)[0].len();
    server.check_snapshot_is_stable(&tables, "CREATE TABLE another (k int PRIMARY KEY)", count);
    server.stop();
}

#[test]
fn missing_tables_and_columns_are_errors() {
    let server = with_numbers(1, SMALL);
    let error = |scan: TableScan| server.refused(scan);
    assert_eq!(error(all("nope", 1)), "table ks.nope does not exist");
    assert_eq!(error(all("t", 5)), "ks.t has no column 4: it has 4");
    let short = Filter::equal(0, Bytes::from_static(&[0]));
    assert_eq!(error(filtered("t", 1, &[short])), "Expected 4 or 0 byte int (1)");
    server.stop();
}
