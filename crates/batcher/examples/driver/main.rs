//! A client with the Rust driver `scylla`: `tests/clients/_drivers.py` explains its steps, and
//! `tests/clients/driver_rust.py` runs it.
#![expect(clippy::disallowed_methods, reason = "a client, which stands outside the lanes")]

mod values;

use std::collections::HashMap;
use std::error::Error;
use std::io::BufRead;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::metadata::Table;
use scylla::response::PagingState;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{Counter, CqlValue, MaybeUnset, Row};
use serde_json::Value;

type Answer<T> = Result<T, Box<dyn Error>>;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Answer<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, port, table] = &arguments[..] else { return Err("expected a host, a port and a file".into()) };
    let table: Value = serde_json::from_str(&std::fs::read_to_string(table)?)?;
    let columns = table["columns"].as_array().ok_or("no columns")?;
    let session = SessionBuilder::new()
        .known_node(format!("{host}:{port}"))
        .user("admin", std::env::var("PASSWORD")?)
        .connection_timeout(PATIENCE)
        // An event marks a keyspace, which is read at the next refresh, by default within a minute.
        .cluster_metadata_refresh_interval(Duration::from_millis(200))
        .build()
        .await?;
    types(&session, columns).await?;
    pages(&session).await?;
    batches(&session).await?;
    conditions(&session).await?;
    metadata(&session, columns)?;
    events(&session, "announced").await?;
    restart(&session).await?;
    events(&session, "announced_again").await
}

async fn types(session: &Session, columns: &[Value]) -> Answer<()> {
    let names: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
    let (list, marks) = (names.join(", "), ", ?".repeat(names.len()));
    let insert = session.prepare(format!("INSERT INTO shop.kinds (id, {list}) VALUES (?{marks})")).await?;
    let select = session.prepare(format!("SELECT {list} FROM shop.kinds WHERE id = ?")).await?;
    let write = async |id: i32, values: Vec<MaybeUnset<Option<CqlValue>>>| {
        let mut bound = vec![MaybeUnset::Set(Some(CqlValue::Int(id)))];
        bound.extend(values);
        session.execute_unpaged(&insert, bound).await
    };
    let read = async |id: i32| -> Answer<Vec<Option<CqlValue>>> {
        let rows = session.execute_unpaged(&select, (id,)).await?.into_rows_result()?;
        Ok(rows.single_row::<Row>()?.columns)
    };
    let mut expected = Vec::new();
    for row in 0..2 {
        expected.clear();
        for (spec, column) in insert.get_variable_col_specs().iter().skip(1).zip(columns) {
            expected.push(values::native(spec.typ(), &column["values"][row as usize][1])?);
        }
        assert_eq!(read(row).await?, expected);
        for id in [10 + row, 12] {
            write(id, expected.iter().cloned().map(MaybeUnset::Set).collect()).await?;
            assert_eq!(read(id).await?, expected);
        }
    }
    write(12, vec![MaybeUnset::Unset; columns.len()]).await?;
    assert_eq!(read(12).await?, expected);
    write(12, vec![MaybeUnset::Set(None); columns.len()]).await?;
    assert_eq!(read(12).await?, vec![None; columns.len()]);
    Ok(())
}

async fn pages(session: &Session) -> Answer<()> {
    let create = "CREATE TABLE shop.readings (device text, at int, note text, PRIMARY KEY (device, at)) \
                  WITH CLUSTERING ORDER BY (at DESC)";
    session.query_unpaged(create, ()).await?;
    let insert = "INSERT INTO shop.readings (device, at, note) VALUES (?, ?, ?)";
    let insert = session.prepare(insert).await?;
    for first in (0..1000).step_by(100) {
        let mut batch = Batch::new(BatchType::Unlogged);
        let mut values = Vec::new();
        for at in first..first + 100 {
            batch.append_statement(insert.clone());
            values.push(("clock", at, format!("note {at}")));
        }
        session.batch(&batch, values).await?;
    }
    let mut select = session.prepare("SELECT at, note FROM shop.readings WHERE device = ?").await?;
    select.set_page_size(100);
    let (mut state, mut found, mut fetched) = (PagingState::start(), Vec::new(), 0);
    loop {
        let (page, next) = session.execute_single_page(&select, ("clock",), state).await?;
        let page = page.into_rows_result()?;
        for row in page.rows::<(i32, String)>()? {
            found.push(row?);
        }
        fetched += 1;
        match next.into_paging_control_flow() {
            ControlFlow::Continue(next) => state = next,
            ControlFlow::Break(()) => break,
        }
    }
    let expected: Vec<(i32, String)> = (0..1000).rev().map(|at| (at, format!("note {at}"))).collect();
    assert_eq!(found, expected);
    assert!((10..=11).contains(&fetched), "{fetched} pages");
    Ok(())
}

async fn batches(session: &Session) -> Answer<()> {
    session.query_unpaged("CREATE TABLE shop.hits (page text PRIMARY KEY, hits counter)", ()).await?;
    let insert = "INSERT INTO shop.readings (device, at, note) VALUES (?, ?, ?)";
    let insert = session.prepare(insert).await?;
    let mut batch = Batch::new(BatchType::Logged);
    batch.append_statement(insert.clone());
    batch.append_statement(insert);
    batch.append_statement("INSERT INTO shop.readings (device, at) VALUES ('three', 3)");
    session.batch(&batch, (("one", 1, Some("a")), ("two", 2, None::<&str>), ())).await?;
    let some = "SELECT device, note FROM shop.readings WHERE device IN ('one', 'two', 'three')";
    let rows = session.query_unpaged(some, ()).await?.into_rows_result()?;
    let notes: HashMap<&str, Option<&str>> = rows.rows()?.collect::<Result<_, _>>()?;
    assert_eq!(notes, HashMap::from([("one", Some("a")), ("two", None), ("three", None)]));

    let count = session.prepare("UPDATE shop.hits SET hits = hits + ? WHERE page = ?").await?;
    let mut batch = Batch::new(BatchType::Counter);
    batch.append_statement(count.clone());
    batch.append_statement(count);
    session.batch(&batch, ((Counter(5), "a"), (Counter(-7), "b"))).await?;
    let rows = session.query_unpaged("SELECT page, hits FROM shop.hits", ()).await?.into_rows_result()?;
    let hits: HashMap<&str, Counter> = rows.rows()?.collect::<Result<_, _>>()?;
    assert_eq!(hits, HashMap::from([("a", Counter(5)), ("b", Counter(-7))]));
    Ok(())
}

async fn conditions(session: &Session) -> Answer<()> {
    session.query_unpaged("CREATE TABLE shop.locks (name text PRIMARY KEY, owner int)", ()).await?;
    let take = "INSERT INTO shop.locks (name, owner) VALUES (?, ?) IF NOT EXISTS";
    let take = session.prepare(take).await?;
    let taken = session.execute_unpaged(&take, ("door", 1)).await?.into_rows_result()?;
    assert_eq!(taken.first_row::<Row>()?.columns[0], Some(CqlValue::Boolean(true)));
    let refused = session.execute_unpaged(&take, ("door", 2)).await?.into_rows_result()?;
    assert_eq!(refused.single_row::<(bool, &str, i32)>()?, (false, "door", 1));
    let give = session.prepare("UPDATE shop.locks SET owner = ? WHERE name = ? IF owner = ?").await?;
    let refused = session.execute_unpaged(&give, (3, "door", 2)).await?.into_rows_result()?;
    assert_eq!(refused.single_row::<(bool, i32)>()?, (false, 1));
    let given = session.execute_unpaged(&give, (3, "door", 1)).await?.into_rows_result()?;
    assert_eq!(given.first_row::<Row>()?.columns[0], Some(CqlValue::Boolean(true)));
    Ok(())
}

fn metadata(session: &Session, columns: &[Value]) -> Answer<()> {
    let kinds = table(session, "kinds").ok_or("no table")?;
    assert_eq!(kinds.columns.len(), 1 + columns.len());
    for column in columns {
        let (name, text) = (column["name"].as_str().ok_or("no name")?, column["type"].as_str());
        assert_eq!(Some(values::text(&kinds.columns[name].typ).as_str()), text, "{name}");
    }
    let readings = table(session, "readings").ok_or("no table")?;
    assert_eq!((readings.partition_key, readings.clustering_key), (vec!["device".into()], vec!["at".into()]));
    Ok(())
}

/// Returns the driver's copy of a table's definition.
fn table(session: &Session, name: &str) -> Option<Table> {
    session.get_cluster_state().get_keyspace("shop")?.tables.get(name).cloned()
}

async fn events(session: &Session, name: &str) -> Answer<()> {
    ask(&format!("CREATE TABLE shop.{name} (id int PRIMARY KEY)"))?;
    until("a created table", async || table(session, name).is_some()).await;
    ask(&format!("ALTER TABLE shop.{name} ADD note text"))?;
    let is_added = async || table(session, name).is_some_and(|table| table.columns.contains_key("note"));
    until("an added column", is_added).await;
    ask(&format!("DROP TABLE shop.{name}"))?;
    until("a dropped table", async || table(session, name).is_none()).await;
    Ok(())
}

async fn restart(session: &Session) -> Answer<()> {
    let select = session.prepare("SELECT owner FROM shop.locks WHERE name = ?").await?;
    assert_eq!(owner(session, &select).await?, 3);
    ask("restart")?;
    until("a connection", async || owner(session, &select).await.is_ok_and(|owner| owner == 3)).await;
    Ok(())
}

async fn owner(session: &Session, select: &PreparedStatement) -> Answer<i32> {
    let rows = session.execute_unpaged(select, ("door",)).await?.into_rows_result()?;
    Ok(rows.single_row::<(i32,)>()?.0)
}

/// Asks the test to restart the server, or to run a statement as another client.
fn ask(request: &str) -> Answer<()> {
    println!("{request}");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    assert_eq!(line, "done\n");
    Ok(())
}

/// Repeats an attempt until it returns true.
async fn until(purpose: &str, attempt: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !attempt().await {
        assert!(started.elapsed() < PATIENCE, "{purpose}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
