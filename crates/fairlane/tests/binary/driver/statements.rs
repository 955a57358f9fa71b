//! Statements of an application.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::ControlFlow;

use scylla::client::session::Session;
use scylla::response::PagingState;
use scylla::statement::batch::{Batch, BatchType};
use scylla::value::{
    CqlDate, CqlDecimal, CqlDuration, CqlTime, CqlTimestamp, CqlTimeuuid, CqlVarint, MaybeUnset,
};
use scylla::{DeserializeRow, SerializeRow};
use uuid::Uuid;

use crate::driver::connect;
use crate::server::Server;

/// Runs a statement without values.
async fn run(session: &Session, statement: &str) {
    session.query_unpaged(statement, &[]).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
}

pub(super) async fn schema(session: &Session) {
    run(
        session,
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    )
    .await;
    session.use_keyspace("shop", false).await.expect("the keyspace");
    run(session, "CREATE TABLE counts (id bigint PRIMARY KEY, n int)").await;
    run(session, "CREATE TABLE texts (id int PRIMARY KEY, text text)").await;
    run(
        session,
        "CREATE TABLE orders (customer int, day date, id timeuuid, item text, PRIMARY KEY ((customer, day), id)) \
         WITH CLUSTERING ORDER BY (id DESC)",
    )
    .await;
    run(
        session,
        "CREATE TABLE kinds (id int PRIMARY KEY, a ascii, b bigint, c blob, d boolean, e date, f decimal, \
         g double, h float, i inet, j int, k smallint, l text, m time, n timestamp, o tinyint, p uuid, \
         q varint, r frozen<list<int>>, s frozen<map<text, int>>, t frozen<set<text>>, u timeuuid, \
         v duration)",
    )
    .await;
    let state = session.get_cluster_state();
    let orders = &state.get_keyspace("shop").expect("known to the driver").tables["orders"];
    assert_eq!(orders.partition_key, ["customer", "day"]);
    assert_eq!(orders.clustering_key, ["id"]);
}

/// A row with a column of each type.
#[derive(Clone, Debug, PartialEq, SerializeRow, DeserializeRow)]
struct Kinds {
    id: i32,
    a: Option<String>,
    b: Option<i64>,
    c: Option<Vec<u8>>,
    d: Option<bool>,
    e: Option<CqlDate>,
    f: Option<CqlDecimal>,
    g: Option<f64>,
    h: Option<f32>,
    i: Option<IpAddr>,
    j: Option<i32>,
    k: Option<i16>,
    l: Option<String>,
    m: Option<CqlTime>,
    n: Option<CqlTimestamp>,
    o: Option<i8>,
    p: Option<Uuid>,
    q: Option<CqlVarint>,
    r: Option<Vec<i32>>,
    s: Option<HashMap<String, i32>>,
    t: Option<HashSet<String>>,
    u: Option<CqlTimeuuid>,
    v: Option<CqlDuration>,
}

fn kinds() -> Kinds {
    Kinds {
        id: 1,
        a: Some("plain".into()),
        b: Some(i64::MIN),
        c: Some(vec![0, 255]),
        d: Some(true),
        e: Some(CqlDate(1 << 31)),
        f: Some(CqlDecimal::from_signed_be_bytes_slice_and_exponent(&[0xff, 0x6a], 2)),
        g: Some(0.1),
        h: Some(f32::MAX),
        i: Some("::1".parse().expect("an address")),
        j: Some(-1),
        k: Some(i16::MAX),
        l: Some("straße".into()),
        m: Some(CqlTime(86_399_999_999_999)),
        n: Some(CqlTimestamp(-1)),
        o: Some(i8::MIN),
        p: Some(Uuid::from_u128(7)),
        q: Some(CqlVarint::from_signed_bytes_be(vec![1, 0, 0, 0, 0, 0, 0, 0, 0])),
        r: Some(vec![3, 1, 2]),
        s: Some(HashMap::from([("x".into(), 1), ("y".into(), 2)])),
        t: Some(HashSet::from(["new".into(), "paid".into()])),
        u: Some(CqlTimeuuid::from(Uuid::from_u128(0x1b4e28ba_2fa1_11d2_883f_0016d3cca427))),
        v: Some(CqlDuration { months: -1, days: -2, nanoseconds: -3 }),
    }
}

const COLUMNS: &str = "id, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v";

pub(super) async fn types(session: &Session) {
    let marks = vec!["?"; COLUMNS.split(", ").count()].join(", ");
    let insert = session.prepare(format!("INSERT INTO kinds ({COLUMNS}) VALUES ({marks})")).await;
    let insert = insert.expect("prepared");
    let select =
        session.prepare(format!("SELECT {COLUMNS} FROM kinds WHERE id = ?")).await.expect("prepared");
    let read = async |id: i32| {
        let result = session.execute_unpaged(&select, (id,)).await.expect("read");
        result.into_rows_result().expect("rows").single_row::<Kinds>().expect("one row")
    };
    session.execute_unpaged(&insert, kinds()).await.expect("written");
    assert_eq!(read(1).await, kinds());
    // Null deletes a value, unset keeps it.
    let update = session.prepare("UPDATE kinds SET j = ?, l = ? WHERE id = 1").await.expect("prepared");
    let values = (None::<i32>, MaybeUnset::<&str>::Unset);
    session.execute_unpaged(&update, values).await.expect("written");
    assert_eq!(read(1).await, Kinds { j: None, ..kinds() });
    let wrong = session.query_unpaged("INSERT INTO kinds (id, j) VALUES (2, 'two')", &[]).await;
    assert!(wrong.expect_err("no int").to_string().contains("Invalid"), "a text is no int");
}

/// Rows of one partition: 6 pages of 40, and one of 10.
const ORDERS: i64 = 250;

pub(super) async fn pages(session: &Session) {
    let text = "INSERT INTO orders (customer, day, id, item) VALUES (7, '2026-01-31', ?, ?)";
    let insert = session.prepare(text).await.expect("prepared");
    for n in 0..ORDERS {
        session.execute_unpaged(&insert, (order(n), format!("item {n}"))).await.expect("written");
    }
    let text = "SELECT id, item FROM orders WHERE customer = ? AND day = ?";
    let mut select = session.prepare(text).await.expect("prepared");
    select.set_page_size(40);
    let (mut state, mut found, mut pages) = (PagingState::start(), Vec::new(), 0);
    loop {
        let key = (7, CqlDate((1 << 31) + 20_484));
        let (result, next) = session.execute_single_page(&select, key, state).await.expect("a page");
        let rows = result.into_rows_result().expect("rows");
        found.extend(rows.rows::<(CqlTimeuuid, String)>().expect("typed").map(|row| row.expect("a row")));
        pages += 1;
        match next.into_paging_control_flow() {
            ControlFlow::Continue(next) => state = next,
            ControlFlow::Break(()) => break,
        }
    }
    let newest_first: Vec<_> = (0..ORDERS).rev().map(|n| (order(n), format!("item {n}"))).collect();
    assert_eq!(found, newest_first);
    assert_eq!(pages, 7);
}

/// Returns the id of an order made `n` units of 100 ns after the first one.
fn order(n: i64) -> CqlTimeuuid {
    CqlTimeuuid::from(Uuid::from_fields(n as u32, 0, 0x1000, &[0x80, 0, 0, 0, 0, 0, 0, 1]))
}

pub(super) async fn batches(session: &Session) {
    let insert = session.prepare("INSERT INTO counts (id, n) VALUES (?, ?)").await.expect("prepared");
    for kind in [BatchType::Logged, BatchType::Unlogged] {
        let mut batch = Batch::new(kind);
        batch.append_statement(insert.clone());
        batch.append_statement("INSERT INTO counts (id, n) VALUES (1001, 2)");
        batch.append_statement(insert.clone());
        session.batch(&batch, ((1000_i64, 1), (), (1002_i64, 3))).await.expect("all or nothing");
    }
    let text = "SELECT n FROM counts WHERE id IN (1000, 1001, 1002)";
    let rows = session.query_unpaged(text, &[]).await.expect("read").into_rows_result().expect("rows");
    let mut found: Vec<i32> = rows.rows::<(i32,)>().expect("ints").map(|row| row.expect("a row").0).collect();
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3]);
}

/// Writes and reads a large value. With compression, fewer bytes are sent.
pub(super) async fn large(server: &Server, session: &Session, compressed: bool) {
    const LONG: usize = 1 << 20;
    let text = "fairlane ".repeat(LONG / 9);
    let before = server.metric("fairlane_bytes_received_total");
    let statement = "INSERT INTO texts (id, text) VALUES (1, ?)";
    session.query_unpaged(statement, (&text,)).await.expect("written");
    let sent = server.metric("fairlane_bytes_received_total") - before;
    assert_eq!(sent < LONG as f64 / 4.0, compressed, "{sent} bytes were sent");
    let result = session.query_unpaged("SELECT text FROM texts WHERE id = 1", &[]).await.expect("read");
    let rows = result.into_rows_result().expect("rows");
    assert_eq!(rows.single_row::<(&str,)>().expect("one"), (&*text,));
}

pub(super) async fn levels(server: &Server, session: &Session) {
    for statement in [
        "CREATE ROLE analyst WITH PASSWORD = 'word' AND LOGIN = true",
        "GRANT SELECT ON KEYSPACE shop TO analyst",
        "CREATE SERVICE LEVEL olap WITH shares = 100 AND cpu_limit = '50%'",
        "ATTACH SERVICE LEVEL olap TO analyst",
        "ALTER SERVICE LEVEL olap WITH shares = 10",
    ] {
        run(session, statement).await;
    }
    let listed = session.query_unpaged("LIST ATTACHED SERVICE LEVEL OF analyst", &[]).await.expect("listed");
    let rows = listed.into_rows_result().expect("rows");
    assert_eq!(rows.single_row::<(&str, &str)>().expect("one"), ("analyst", "olap"));
    let analyst = connect(server, "analyst", "word", None).await;
    let counted = analyst.query_unpaged("SELECT count(*) FROM shop.counts", &[]).await.expect("granted");
    let rows = counted.into_rows_result().expect("rows");
    assert_eq!(rows.single_row::<(i64,)>().expect("one"), (103,));
    let refused = analyst.query_unpaged("DELETE FROM shop.counts WHERE id = 1", &[]).await;
    let refused = refused.expect_err("only SELECT was granted").to_string();
    assert!(refused.contains("analyst has no MODIFY permission"), "{refused}");
}
