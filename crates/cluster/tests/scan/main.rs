//! Scans of a table of the cluster, against scripted nodes, by the pages that they are asked for.

mod nodes;

use std::ops::Bound::Unbounded;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::scan::{Filter, TableScan, TableStatistics};
use engine::{Error, VirtualTable};
use lanes::{Group, Lanes};
use nodes::{Act, Asked, Nodes, Session, keys, start, token_of, whole};
use schema::{CqlType, Token};
use testkit::start_lanes;
use wire::FailureKind;

/// Tokens of three nodes. The last range of the ring wraps around.
const RING: [Token; 3] = [-6_000_000_000_000_000_000, 5, 7_000_000_000_000_000_000];

/// Runs a scan on each core, and returns the keys of all, sorted.
fn scan_on(lanes: &Lanes, nodes: &Nodes, scan: &TableScan) -> Result<Vec<i64>, Error> {
    let mut all = Vec::new();
    for core in 0..lanes.cores() {
        let (nodes, scan) = (nodes.clone(), scan.clone());
        let found = lanes.block_on(core, Group::CONTROL, move || async move {
            let session = nodes.engine(&RING).await;
            keys(&session, &scan).await
        });
        all.extend(found?);
    }
    all.sort_unstable();
    Ok(all)
}

/// Returns the node with the first copy of a token.
fn owner(token: Token) -> usize {
    RING.iter().position(|end| token <= *end).unwrap_or(0)
}

fn bigint(value: i64) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

fn int(value: i32) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

#[test]
fn every_range_is_read_once_at_a_replica() {
    let lanes = start_lanes(2);
    let nodes = Nodes::start(&lanes, 3, 3_000, |_, _| Act::Rows);
    let scan = TableScan { batch_rows: 10, ..whole() };
    assert_eq!(scan_on(&lanes, &nodes, &scan), Ok((0..3_000).collect()));
    let asked = nodes.asked().clone();
    // The first page of a core is of its whole part, and not used.
    let is_probe = |page: &&Asked| page.range() == (Token::MIN, 0) || page.range() == (0, Token::MAX);
    assert_eq!(asked.iter().filter(is_probe).count(), 2);
    let mut begun: Vec<(Token, Token)> =
        asked.iter().filter(|page| !is_probe(page) && page.offset == 0).map(Asked::range).collect();
    begun.sort_unstable();
    assert!(begun.len() >= 64, "at least 32 a core: {}", begun.len());
    let mut next = Token::MIN;
    for (after, to) in begun {
        assert_eq!(after, next, "each token once");
        next = to;
    }
    assert_eq!(next, Token::MAX, "up to the last token, behind which the ring begins anew");
    for page in asked.iter().filter(|page| !is_probe(page)) {
        let (after, to) = page.range();
        let first = owner(to);
        assert_eq!(owner(after + 1), first, "a range has the same replicas");
        assert!([first, (first + 1) % 3].contains(&page.node), "{page:?}");
        assert!(page.rows <= 10);
    }
    // Pages of a range follow each other.
    let mut pages: Vec<((Token, Token), usize)> =
        asked.iter().filter(|page| !is_probe(page)).map(|page| (page.range(), page.offset)).collect();
    let count = pages.len();
    pages.sort_unstable();
    pages.dedup();
    assert_eq!(pages.len(), count, "each page once");
    assert!(pages.iter().all(|(_, offset)| offset % 10 == 0));
    assert!(pages.iter().any(|(_, offset)| *offset >= 20), "a range has several pages");
    lanes.shutdown();
}

#[test]
fn small_table_is_one_page_a_core() {
    let lanes = start_lanes(2);
    let nodes = Nodes::start(&lanes, 3, 50, |_, _| Act::Rows);
    assert_eq!(scan_on(&lanes, &nodes, &whole()), Ok((0..50).collect()));
    let ranges: Vec<(Token, Token)> = nodes.asked().iter().map(Asked::range).collect();
    assert_eq!(ranges, [(Token::MIN, 0), (0, Token::MAX)]);
    lanes.shutdown();
}

#[test]
fn table_that_is_small_by_its_estimate_is_one_page_of_one_core() {
    let expected = |rows, bytes| Some(TableStatistics { rows, bytes });
    let pages = |rows: i64, expected| {
        let lanes = start_lanes(2);
        let nodes = Nodes::start(&lanes, 3, rows, |_, _| Act::Rows);
        let scan = TableScan { expected, ..whole() };
        assert_eq!(scan_on(&lanes, &nodes, &scan), Ok((0..rows).collect()), "{expected:?}");
        let asked = nodes.asked().clone();
        lanes.shutdown();
        asked
    };
    let one = pages(1_000, expected(700, 20_000));
    assert_eq!(one.len(), 1);
    assert_eq!((one[0].range(), one[0].rows), ((Token::MIN, Token::MAX), 1_400));
    // It is larger than the estimate: each row is read once all the same.
    let many = pages(1_000, expected(1, 20));
    assert_eq!((many[0].range(), many[0].rows), ((Token::MIN, Token::MAX), 100));
    assert!(many.len() > 32, "{}", many.len());
    // Estimates that are not small.
    for expected in [expected(2_501, 1), expected(1, 300_000), None] {
        assert_eq!(pages(20, expected).len(), 2, "one page a core");
    }
}

#[test]
fn failed_page_is_asked_of_another_replica_with_half_the_rows() {
    let lanes = start_lanes(1);
    let nodes = Nodes::start(&lanes, 3, 1_000, |_, before| match before {
        5 | 6 => Act::Fail(FailureKind::Overloaded),
        _ => Act::Rows,
    });
    let scan = TableScan { batch_rows: 20, ..whole() };
    assert_eq!(scan_on(&lanes, &nodes, &scan), Ok((0..1_000).collect()));
    let asked = nodes.asked().clone();
    let failed = asked[5].clone();
    let again: Vec<&Asked> = asked
        .iter()
        .skip(6)
        .filter(|page| page.range() == failed.range() && page.offset == failed.offset)
        .collect();
    assert!(!again.is_empty());
    assert_eq!(again[0].rows, failed.rows / 2);
    assert_ne!(again[0].node, failed.node);
    lanes.shutdown();
}

#[test]
fn page_that_fails_four_times_names_its_tokens_and_the_node() {
    let lanes = start_lanes(1);
    let nodes = Nodes::start(&lanes, 3, 1_000, |page, _| match page.range() {
        (Token::MIN, Token::MAX) => Act::Rows,
        (after, _) if after < RING[0] && after > Token::MIN => Act::Fail(FailureKind::Server),
        _ => Act::Rows,
    });
    let error = scan_on(&lanes, &nodes, &whole()).expect_err("a range cannot be read").to_string();
    for part in ["the tokens above -", "of ks.t", "4 attempts", "the node 127.0.0.1:", "scripted"] {
        assert!(error.contains(part), "{error}");
    }
    let first =
        nodes.asked().iter().find(|page| page.range().0 < RING[0] && page.range().0 > Token::MIN).cloned();
    let first = first.expect("asked");
    let of_range: Vec<i32> =
        nodes.asked().iter().filter(|page| page.range() == first.range()).map(|page| page.rows).collect();
    assert_eq!(of_range, [first.rows, first.rows / 2, first.rows / 4, first.rows / 8]);
    lanes.shutdown();
}

#[test]
fn lost_node_is_replaced_by_another_replica() {
    let lanes = start_lanes(1);
    let nodes =
        Nodes::start(
            &lanes,
            3,
            1_000,
            |page, before| if page.node == 1 && before > 4 { Act::Close } else { Act::Rows },
        );
    let scan = TableScan { batch_rows: 20, ..whole() };
    assert_eq!(scan_on(&lanes, &nodes, &scan), Ok((0..1_000).collect()));
    assert!(nodes.asked().iter().skip(5).any(|page| page.node == 1), "it was asked");
    lanes.shutdown();
}

#[test]
fn node_that_forgets_the_statement_prepares_it_again() {
    let lanes = start_lanes(1);
    let nodes =
        Nodes::start(&lanes, 3, 1_000, |_, before| if before % 7 == 6 { Act::Forget } else { Act::Rows });
    let scan = TableScan { batch_rows: 20, ..whole() };
    assert_eq!(scan_on(&lanes, &nodes, &scan), Ok((0..1_000).collect()));
    lanes.shutdown();
}

#[test]
fn known_keys_are_read_one_by_one_on_one_core() {
    let lanes = start_lanes(2);
    let nodes = Nodes::start(&lanes, 3, 1_000, |_, _| Act::Rows);
    let wanted = [3, 999, 5_000, 3];
    let values: Vec<Bytes> = wanted.iter().map(|key| bigint(*key)).collect();
    let filter = Filter { values: Some(values), ..Filter::equal(0, bigint(0)) };
    let scan = TableScan { filters: vec![filter], ..whole() };
    assert_eq!(scan_on(&lanes, &nodes, &scan), Ok(vec![3, 999]));
    let asked = nodes.asked().clone();
    assert_eq!(asked.len(), 3, "each key once");
    for page in &asked {
        assert_eq!(page.text, "SELECT \"k\", \"c\", \"v\" FROM \"ks\".\"t\" WHERE \"k\" = ?");
        let first = owner(token_of(i64::from_be_bytes(page.values[0][..].try_into().expect("a bigint"))));
        assert!([first, (first + 1) % 3].contains(&page.node), "{page:?}");
    }
    lanes.shutdown();
}

#[test]
fn pages_of_several_keys_wait_for_one_prepare() {
    let lanes = start_lanes(1);
    let nodes = Nodes::start(&lanes, 1, 100, |_, _| Act::Rows);
    let values = (0..20).map(bigint).collect();
    let filter = Filter { values: Some(values), ..Filter::equal(0, bigint(0)) };
    let scan = TableScan { filters: vec![filter], ..whole() };
    assert_eq!(scan_on(&lanes, &nodes, &scan), Ok((0..20).collect()));
    assert_eq!((nodes.asked().len(), nodes.prepares()), (20, 1));
    lanes.shutdown();
}

#[test]
fn keys_of_a_dynamic_filter_are_read_in_place_of_ranges() {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    let lanes = start_lanes(1);
    let nodes = Nodes::start(&lanes, 3, 3_000, |_, _| Act::Rows);
    // Returns the keys of the rows, and the number of pages.
    let read = |filters: Vec<Filter>| {
        nodes.asked().clear();
        let own = nodes.clone();
        let mut keys = lanes.block_on(0, Group::CONTROL, move || async move {
            let session = own.engine(&RING).await;
            let mut source = start(&session, &whole()).expect("starts");
            source.push_down(&filters).expect("valid bounds");
            lanes::heavy(Group::CONTROL, async move {
                let mut keys: Vec<i64> = Vec::new();
                while let Some(batch) = source.next().await.expect("rows") {
                    keys.extend(batch.column(0).as_primitive::<Int64Type>().values());
                }
                assert_eq!(source.progress(), 1.0);
                keys
            })
            .await
        });
        keys.sort_unstable();
        (keys, nodes.asked().len())
    };
    let any_of = |keys: Vec<i64>| {
        let values = Some(keys.into_iter().map(bigint).collect());
        Filter { values, ..Filter::between(0, Unbounded, Unbounded) }
    };
    // One page shows that the table is not small, then a page for each key.
    assert_eq!(read(vec![any_of(vec![7, 2_999, 5_000])]), (vec![7, 2_999], 4));
    assert_eq!(read(vec![any_of(vec![])]), (vec![], 1));
    let (all, pages) = read(vec![any_of((0..129).collect())]);
    assert_eq!(all.len(), 3_000, "as many keys as that are no less work");
    assert!(pages > 32);
    assert_eq!(read(vec![Filter::equal(1, int(0))]).0.len(), 3_000, "no condition on the key");
    lanes.shutdown();
}

#[test]
fn conditions_on_clustering_columns_and_columns_are_pushed_down() {
    use std::ops::Bound::{Excluded, Included};
    let lanes = start_lanes(1);
    let nodes = Nodes::start(&lanes, 3, 10, |_, _| Act::Rows);
    let check = |filters: Vec<Filter>, columns: Vec<usize>, expected: &str, values: usize| {
        let scan = TableScan { filters, columns, ..whole() };
        let own = nodes.clone();
        lanes.block_on(0, Group::CONTROL, move || async move {
            let session = own.engine(&RING).await;
            let mut source = start(&session, &scan).expect("starts");
            let rows = lanes::heavy(Group::CONTROL, async move {
                let mut rows = 0;
                while let Some(batch) = source.next().await.expect("rows") {
                    assert_eq!(batch.num_columns(), scan.columns.len());
                    rows += batch.num_rows();
                }
                rows
            });
            assert!(rows.await > 0);
        });
        let last = nodes.asked().last().cloned().expect("asked");
        assert_eq!((last.text.as_str(), last.values.len()), (expected, values));
    };
    let tokens = "FROM \"ks\".\"t\" WHERE token(\"k\") > ? AND token(\"k\") <= ?";
    check(vec![], vec![2], &format!("SELECT \"v\" {tokens}"), 2);
    check(vec![], vec![], &format!("SELECT \"k\" {tokens}"), 2);
    let from = Filter::between(1, Included(int(-1)), Unbounded);
    let to = Filter::between(1, Unbounded, Excluded(int(9)));
    let both = format!("SELECT \"c\" {tokens} AND \"c\" >= ? AND \"c\" < ? ALLOW FILTERING");
    check(vec![from.clone(), to.clone()], vec![1], &both, 4);
    let key = Filter::equal(0, bigint(3));
    let of_key = "SELECT \"c\" FROM \"ks\".\"t\" WHERE \"k\" = ? AND \"c\" = ?";
    check(vec![key, Filter::equal(1, int(0))], vec![1], of_key, 2);
    // Nothing is between these: nodes refuse some such bounds.
    let never = Filter::between(1, Unbounded, Excluded(int(-2)));
    let lower = format!("SELECT \"c\" {tokens} AND \"c\" >= ? ALLOW FILTERING");
    check(vec![from, never], vec![1], &lower, 3);
    // Other columns are filtered by the caller.
    check(vec![Filter::equal(2, Bytes::from_static(b"v1"))], vec![2], &format!("SELECT \"v\" {tokens}"), 2);
    lanes.shutdown();
}

#[test]
fn limit_ends_the_scan_and_bounds_its_pages() {
    let lanes = start_lanes(1);
    let nodes = Nodes::start(&lanes, 3, 1_000, |_, _| Act::Rows);
    let few = TableScan { limit: Some(7), ..whole() };
    assert_eq!(scan_on(&lanes, &nodes, &few).map(|keys| keys.len()), Ok(7));
    assert_eq!(nodes.asked().iter().map(|page| page.rows).collect::<Vec<_>>(), [7]);
    nodes.asked().clear();
    let more = TableScan { limit: Some(250), ..whole() };
    assert_eq!(scan_on(&lanes, &nodes, &more).map(|keys| keys.len()), Ok(250));
    assert!(nodes.asked().len() < 20, "{}", nodes.asked().len());
    let none = TableScan { limit: Some(0), ..whole() };
    nodes.asked().clear();
    assert_eq!(scan_on(&lanes, &nodes, &none), Ok(Vec::new()));
    assert!(nodes.asked().is_empty());
    lanes.shutdown();
}

#[test]
fn scan_keeps_two_pages_ahead_and_ends_when_dropped() {
    let lanes = start_lanes(1);
    let nodes = Nodes::start(&lanes, 3, 1_000, |_, _| Act::Rows);
    let own = nodes.clone();
    lanes.block_on(0, Group::CONTROL, move || async move {
        let session = own.engine(&RING).await;
        let mut source = start(&session, &TableScan { batch_rows: 10, ..whole() }).expect("starts");
        let source = lanes::heavy(Group::CONTROL, async move {
            assert!(source.next().await.expect("rows").is_some());
            source
        });
        let source = source.await;
        // The first page, one converted, and two ahead.
        for _ in 0..100 {
            lanes::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(own.asked().len() <= 4, "{}", own.asked().len());
        drop(source);
        let asked = own.asked().len();
        for _ in 0..50 {
            lanes::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(own.asked().len(), asked);
    });
    lanes.shutdown();
}

#[test]
fn rights_and_columns_are_those_of_the_cluster() {
    let lanes = start_lanes(1);
    let check = |act: fn() -> Act, expected: fn(&Error) -> bool| {
        let nodes = Nodes::start(&lanes, 3, 10, move |_, _| act());
        let error = scan_on(&lanes, &nodes, &whole()).expect_err("refused");
        assert!(expected(&error), "{error:?}");
        assert_eq!(nodes.asked().len(), 1, "other nodes would refuse as well");
    };
    check(|| Act::Fail(FailureKind::Unauthorized), |error| matches!(error, Error::Unauthorized(_)));
    check(|| Act::Fail(FailureKind::Invalid), |error| matches!(error, Error::Invalid(_)));
    check(|| Act::Altered, |error| error.to_string().contains("have changed"));
    lanes.shutdown();
}

#[test]
fn engine_has_the_tables_of_the_cluster_for_sessions_that_have_logged_in() {
    let lanes = start_lanes(1);
    let nodes = Nodes::start(&lanes, 1, 10, |_, _| Act::Rows);
    lanes.block_on(0, Group::CONTROL, move || async move {
        let Session { engine, viewer } = nodes.engine(&RING).await;
        let schema = engine.schema();
        assert!(schema.table("ks", "t").is_some());
        assert!(Arc::ptr_eq(&schema, &engine.schema()), "nothing has changed");
        assert_eq!(engine.statistics("ks", "t"), None);
        assert!(engine.table_snapshot_for("ks", "t", Some(&viewer)).is_ok());
        let refused = engine.table_snapshot("ks", "t").map(drop);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        let missing = engine.table_snapshot_for("ks", "u", None);
        assert!(matches!(missing, Err(Error::Invalid(_))), "it does not exist");
    });
    lanes.shutdown();
}

#[test]
fn engine_shows_only_those_system_tables_that_are_about_the_front() {
    let lanes = start_lanes(1);
    let nodes = Nodes::start(&lanes, 1, 10, |_, _| Act::Rows);
    lanes.block_on(0, Group::CONTROL, move || async move {
        let Session { engine, .. } = nodes.engine(&RING).await;
        for name in ["system.nodes", "system.table_stats", "system_schema.tables", "other.nodes"] {
            let (keyspace, table) = name.split_once('.').expect("two names");
            engine.registry().add(VirtualTable::new(keyspace, table, 1, 0, &[("k", CqlType::Int)], Vec::new));
        }
        let shown = engine.scanned_virtual_tables();
        let shown: Vec<String> = shown.iter().map(|def| format!("{}.{}", def.keyspace, def.name)).collect();
        assert_eq!(shown, ["system.nodes"]);
        let refused = |keyspace, table| engine.table_snapshot(keyspace, table).err().map(|e| e.to_string());
        let missing = Some("table system_schema.tables does not exist".to_owned());
        assert_eq!(refused("system_schema", "tables"), missing);
        let local = refused("system", "nodes").expect("the local engine of this test has no scans");
        assert!(local.contains("does not scan"), "{local}");
    });
    lanes.shutdown();
}
