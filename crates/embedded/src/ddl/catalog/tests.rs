//! Tests of the stored schema, and of the cost of its changes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::Mutex;

use engine::{Engine, Keyspace, ParsedTree, Request};
use lanes::{Group, Lanes};
use schema::{KeyspaceDef, TableDef};
use storage::Mutation;
use uuid::Uuid;

use super::*;

/// Opens a folder, runs a task with the engine, and closes it.
fn session<T: Send + 'static>(dir: &Path, task: impl AsyncFnOnce(&Rc<Embedded>) -> T + Send + 'static) -> T {
    let lanes = testkit::start_lanes(1);
    let dir = dir.to_owned();
    let result = lanes.block_on(0, Group::CONTROL, move || async move {
        let engine = Embedded::open(storage::StorageOptions::in_dir(dir, 0, 1)).await.expect("opens");
        let result = task(&engine).await;
        engine.shutdown().await.expect("closes");
        result
    });
    lanes.shutdown();
    result
}

async fn run(engine: &Rc<Embedded>, text: &str) -> Result<StatementOutcome, Error> {
    let statement = Arc::new(ParsedTree::parse(text).expect("parses"));
    let plan = engine.prepare(statement, Some("ks"))?;
    engine.execute(&plan, &Request::EMPTY).outcome(&**engine).await
}

async fn run_all(engine: &Rc<Embedded>, statements: &[&str]) {
    for text in statements {
        run(engine, text).await.expect(text);
    }
}

const KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

fn names(engine: &Embedded) -> Vec<String> {
    let schema = engine.current.schema();
    let keyspaces = schema.keyspaces.values();
    let all = keyspaces.flat_map(|keyspace| keyspace.tables.keys().chain(keyspace.types.keys()));
    all.cloned().collect()
}

/// The text of DESCRIBE, executed again, defines the same table.
#[test]
fn described_table_can_be_created_again() {
    const OPTIONS: [&str; 19] = [
        "additional_write_policy = '99p'",
        "allow_auto_snapshot = false",
        "bloom_filter_fp_chance = 0.25",
        "caching = {'keys': 'NONE', 'rows_per_partition': '5'}",
        "comment = 'it''s \"quoted\" {not a map}'",
        "compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 100}",
        "compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS', \
         'compaction_window_size': '1'}",
        "compression = {'class': 'ZstdCompressor'}",
        "compression = {'enabled': 'false'}",
        "crc_check_chance = 1",
        "default_time_to_live = 100 AND gc_grace_seconds = 5",
        "extensions = {'it''s': 'x''y'}",
        "max_index_interval = 4096 AND min_index_interval = 64",
        "memtable = 'default'",
        "memtable_flush_period_in_ms = 0",
        "read_repair = 'NONE'",
        "speculative_retry = '50ms'",
        "speculative_retry = 'ALWAYS'",
        "tombstone_gc = {'mode': 'timeout'}",
    ];
    let dir = testkit::Folder::new("described-again");
    session(&dir, async |engine| {
        run_all(engine, &[KEYSPACE, "CREATE TYPE u (a int, \"B\" list<text>)"]).await;
        for options in OPTIONS {
            run(
                engine,
                &format!(
                    "CREATE TABLE \"T\" (k int, j text, \"C\" timeuuid, s int static, m map<text, frozen<u>>, \
                     t frozen<tuple<int, text>>, PRIMARY KEY ((k, j), \"C\")) \
                     WITH CLUSTERING ORDER BY (\"C\" DESC) AND {options}"
                ),
            )
            .await
            .expect(options);
            let before = engine.current.schema().table("ks", "T").expect("created").clone();
            let text = cql::create_table(&before);
            run_all(engine, &["DROP TABLE \"T\"", text.trim_end_matches(';')]).await;
            let after = engine.current.schema().table("ks", "T").expect("created").clone();
            // The options have their effect, although the text has the defaults too.
            assert_eq!((cql::create_table(&after), &after.columns), (text, &before.columns), "{options}");
            run_all(engine, &["DROP TABLE \"T\""]).await;
        }
    });
}

/// Together they exceed the maximum size of a log record.
#[test]
fn long_definitions_do_not_block_other_changes() {
    let dir = testkit::Folder::new("long-comments");
    session(&dir, async |engine| {
        engine.guardrails().set(Guardrail::CommentBytes, 0, 0);
        run_all(engine, &[KEYSPACE]).await;
        let comment = "x".repeat(1 << 20);
        for table in 0..18 {
            let text = format!("CREATE TABLE t{table} (k int PRIMARY KEY) WITH comment = '{comment}'");
            run(engine, &text).await.expect("created");
        }
    });
    session(&dir, async |engine| assert_eq!(names(engine).len(), 18));
}

#[test]
fn change_writes_only_changed_rows() {
    let apply = |schema: &Schema, text: &str| {
        let statement = ParsedTree::parse(text).expect("parses");
        let step = definition::apply(schema, &statement, Some("ks"), Uuid::from_u128(7), 1);
        step.expect(text).expect("there is something to do").schema
    };
    let mut schema = apply(&Schema::default(), KEYSPACE);
    schema = apply(&schema, "CREATE TYPE u (a int)");
    for table in 0..200 {
        let ty = if table < 3 { "frozen<u>" } else { "int" };
        schema = apply(&schema, &format!("CREATE TABLE t{table} (k int PRIMARY KEY, v {ty})"));
    }
    let check = |text: &str, written: usize, gone: usize, tables: usize| {
        let after = apply(&schema, text);
        let edits = rows::edits(&schema, &after);
        let is_gone = |(_, value): &&rows::Edit| value.is_none();
        assert_eq!(edits.iter().filter(is_gone).count(), gone, "{text}");
        assert_eq!(edits.len() - gone, written, "{text}");
        assert_eq!(rows::changed_tables(&schema, &after).len(), tables, "{text}");
    };
    check("ALTER TABLE t100 ADD w int", 1, 0, 1);
    check("CREATE TABLE s (k int PRIMARY KEY)", 1, 0, 1);
    check("DROP TABLE t5", 0, 1, 0);
    check("ALTER TYPE u ADD b int", 4, 0, 3);
    check("ALTER KEYSPACE ks WITH durable_writes = false", 1, 0, 0);
    check("DROP KEYSPACE ks", 0, 202, 0);
}

/// Types of earlier versions are not extensible. Their values have no end in keys.
#[test]
fn fields_are_added_to_an_old_type_unless_keys_have_its_values() {
    let apply = |schema: &Schema, text: &str| {
        let statement = ParsedTree::parse(text).expect("parses");
        let step = definition::apply(schema, &statement, Some("ks"), Uuid::from_u128(7), 1);
        step.map(|step| step.expect("there is something to do").schema)
    };
    let check = |table: &str, refused: bool| {
        let mut schema = apply(&Schema::default(), KEYSPACE).expect("created");
        schema = apply(&schema, "CREATE TYPE u (a int)").expect("created");
        let keyspace = Arc::make_mut(schema.keyspaces.get_mut("ks").expect("created"));
        let old = schema::UdtType { is_extensible: false, ..(*keyspace.types["u"]).clone() };
        // Definitions of earlier versions have no such property.
        let text = serde_json::to_string(&old).expect("JSON").replace(",\"is_extensible\":false", "");
        assert_eq!(serde_json::from_str::<schema::UdtType>(&text).expect("a type"), old);
        keyspace.types.insert("u".to_owned(), Arc::new(old));
        schema = apply(&schema, table).expect("created");
        match apply(&schema, "ALTER TYPE u ADD b int") {
            Err(error) => {
                assert!(refused && error.to_string().contains("following tables: ks.t;"), "{error}")
            }
            Ok(schema) => assert!(!refused && schema.keyspaces["ks"].types["u"].is_extensible, "{table}"),
        }
    };
    check("CREATE TABLE t (k int PRIMARY KEY, v frozen<u>, l list<frozen<u>>, m map<int, frozen<u>>)", false);
    check("CREATE TABLE t (k int PRIMARY KEY, v frozen<set<frozen<u>>>)", false);
    check("CREATE TABLE t (k int PRIMARY KEY, v set<frozen<u>>)", true);
    check("CREATE TABLE t (k int PRIMARY KEY, v map<frozen<tuple<u, int>>, int>)", true);
    check("CREATE TABLE t (k int, c frozen<list<u>>, PRIMARY KEY (k, c))", true);
}

#[test]
fn schema_of_another_format_is_refused() {
    let dir = testkit::Folder::new("schema-format");
    session(&dir, async |engine| {
        run_all(engine, &[KEYSPACE]).await;
        engine.write_rows(vec![(rows::FORMAT.to_vec(), Some(vec![9]))]).await.expect("written");
        let refused = engine.read_schema(SCHEMA_TABLE).await.expect_err("another format").to_string();
        assert!(refused.contains("format version 9, expected at most 3"), "{refused}");
    });
}

#[test]
fn plans_of_other_tables_outlive_a_change() {
    let dir = testkit::Folder::new("plans");
    session(&dir, async |engine| {
        let all = [KEYSPACE, "CREATE TABLE a (k int PRIMARY KEY)", "CREATE TABLE b (k int PRIMARY KEY)"];
        run_all(engine, &all).await;
        let prepare = |text: &str| {
            engine.prepare(Arc::new(ParsedTree::parse(text).expect("parses")), Some("ks")).expect("prepares")
        };
        let (a, b) = (prepare("SELECT * FROM a"), prepare("INSERT INTO b (k) VALUES (1)"));
        let both =
            prepare("BEGIN BATCH INSERT INTO a (k) VALUES (1); INSERT INTO b (k) VALUES (1) APPLY BATCH");
        let local = prepare("SELECT * FROM system_schema.tables");
        let current = || [&a, &b, &both, &local].map(|plan| plan.is_current());
        run_all(engine, &["CREATE TABLE c (k int PRIMARY KEY)", "DROP TABLE c"]).await;
        assert_eq!(current(), [true; 4]);
        run_all(engine, &["ALTER TABLE a ADD v int"]).await;
        assert_eq!(current(), [false, true, false, true]);
        run_all(engine, &["DROP TABLE b", "CREATE TABLE b (k int PRIMARY KEY)"]).await;
        assert_eq!(
            current(),
            [false, false, false, true],
            "a new table with the same name is a different one"
        );
    });
}

#[test]
fn table_change_makes_a_plan_bound_meanwhile_stale() {
    let dir = testkit::Folder::new("stale-plans");
    session(&dir, async |engine| {
        run_all(
            engine,
            &[KEYSPACE, "CREATE TABLE a (k int PRIMARY KEY)", "CREATE TABLE b (k int PRIMARY KEY)"],
        )
        .await;
        let bind = |text| engine.plan_long(Arc::new(ParsedTree::parse(text).expect("parses")), Some("ks"));
        for change in ["ALTER TABLE a ADD v int", "DROP TABLE a"] {
            let (of_a, of_b) = (bind("SELECT * FROM a"), bind("SELECT * FROM b"));
            run_all(engine, &[change]).await;
            let plan = of_a.await;
            let plan = plan.expect("bound to the old definition");
            assert!(!plan.is_current(), "{change}");
            let outcome = engine.execute(&plan, &Request::EMPTY).outcome(&**engine).await;
            assert!(matches!(outcome, Err(Error::Stale)), "{change}");
            let other = of_b.await;
            assert!(other.expect("binds").is_current(), "{change}");
        }
        let gone = bind("SELECT * FROM a").await;
        assert!(gone.is_err());
    });
}

#[test]
fn names_of_server_keyspaces_are_reserved() {
    let dir = testkit::Folder::new("reserved");
    session(&dir, async |engine| {
        for name in ["system", "system_mine", "system_views", "fairlane"] {
            let text = KEYSPACE.replace("ks", name);
            let error = run(engine, &text).await.expect_err("refused").to_string();
            assert!(error.starts_with(&format!("Keyspace name '{name}' is reserved")), "{error}");
        }
        run_all(engine, &[&KEYSPACE.replace("ks", "systematic")]).await;
    });
}

/// An older folder may have such a table. The server's own table is found first.
#[test]
fn client_table_cannot_hide_a_server_table() {
    let dir = testkit::Folder::new("hiding");
    session(&dir, async |engine| {
        let text = KEYSPACE.replace("ks", "system_distributed");
        let table = "CREATE TABLE system_distributed.clients (k int PRIMARY KEY)";
        run_all(engine, &[&text, table, "SELECT k FROM system_distributed.clients"]).await;
        let columns = [("address", schema::CqlType::Text)];
        let own = engine::VirtualTable::new("system_distributed", "clients", 1, 0, &columns, Vec::new);
        engine.registry().add(own);
        run_all(engine, &["SELECT address FROM system_distributed.clients"]).await;
        assert!(run(engine, "INSERT INTO system_distributed.clients (k) VALUES (1)").await.is_err());
    });
}

#[test]
fn guardrails_limit_definitions() {
    let dir = testkit::Folder::new("definitions");
    session(&dir, async |engine| {
        run_all(engine, &[KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY, v int)"]).await;
        for (guardrail, fail, text) in [
            (Guardrail::Tables, 1, "CREATE TABLE s (k int PRIMARY KEY)"),
            (Guardrail::Keyspaces, 1, "CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy'}"),
            (Guardrail::Columns, 2, "CREATE TABLE s (k int PRIMARY KEY, v int, w int)"),
            (Guardrail::Columns, 2, "ALTER TABLE t ADD w int"),
            (Guardrail::VectorDimensions, 3, "CREATE TABLE s (k int PRIMARY KEY, v vector<float, 4>)"),
            (Guardrail::VectorDimensions, 3, "ALTER TABLE t ADD v frozen<list<vector<float, 4>>>"),
            (Guardrail::VectorDimensions, 3, "CREATE TYPE u (a int, v tuple<int, vector<float, 4>>)"),
            (Guardrail::CommentBytes, 4, "ALTER TABLE t WITH comment = 'hello'"),
            (Guardrail::CommentBytes, 4, "CREATE TABLE s (k int PRIMARY KEY) WITH comment = 'hello'"),
        ] {
            engine.guardrails().set(guardrail, 0, fail);
            let error = run(engine, text).await.expect_err(text).to_string();
            let name = guardrail.spec().name;
            assert!(error.starts_with(&format!("Guardrail {name} violated")), "{error}");
            engine.guardrails().set(guardrail, 0, 0);
        }
        assert_eq!(names(engine), ["t"]);
    });
}

/// Starts engines in memory on two cores. Panics that stop a server are added to `reported`.
fn in_memory(reported: &Arc<Mutex<Vec<String>>>) -> Lanes {
    thread_local! {
        static KEPT: RefCell<Option<Rc<Embedded>>> = const { RefCell::new(None) };
    }
    let lanes = testkit::start_lanes(2);
    for core in 0..2 {
        let reported = reported.clone();
        let event_sink = storage::EventSink::new(move |event| {
            if !crate::testing::is_routine(event) {
                reported.lock().expect("no panic holds it").push(event.to_string());
            }
        });
        lanes.block_on(core, Group::CONTROL, move || async move {
            let options = storage::StorageOptions {
                shard: core as u32,
                shards: 2,
                event_sink,
                ..storage::StorageOptions::in_memory()
            };
            let engine = Embedded::open(options).await.expect("opens");
            KEPT.with_borrow_mut(|kept| *kept = Some(engine));
        });
    }
    lanes
}

const TABLE: &str = "CREATE TABLE t (k int PRIMARY KEY)";

/// Returns the schema with a keyspace `wide` of `tables` tables with `columns` columns.
fn with_wide(now: &Schema, tables: usize, columns: usize) -> Schema {
    let column = |at: usize| schema::ColumnDef {
        id: at as u32,
        name: format!("c{at}"),
        ty: schema::CqlType::Text,
        kind: if at == 0 { schema::ColumnKind::PartitionKey(0) } else { schema::ColumnKind::Regular },
    };
    let table = |at: usize| TableDef {
        id: Uuid::from_u128(1_000 + at as u128),
        keyspace: "wide".into(),
        name: format!("t{at}"),
        next_column_id: columns as u32,
        data: None,
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Vec::new(),
        views: Vec::new(),
        columns: (0..columns).map(column).collect(),
        options: schema::TableOptions::default(),
    };
    let tables = (0..tables).map(table).map(|def| (def.name.clone(), Arc::new(def)));
    let def = KeyspaceDef { name: "wide".into(), replication: BTreeMap::new(), durable_writes: true };
    let wide = Keyspace { def, tables: tables.collect(), types: BTreeMap::new() };
    let mut schema = now.clone();
    schema.keyspaces.insert("wide".into(), Arc::new(wide));
    schema
}

async fn count(engine: &Rc<Embedded>, text: &str) -> u32 {
    match run(engine, text).await.expect(text) {
        StatementOutcome::Rows(rows) => rows.count,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn large_schema_is_read_and_changed_in_short_polls() {
    const TABLES: u32 = 200;
    const COLUMNS: u32 = 60;
    let lanes = in_memory(&Arc::default());
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = Embedded::local();
        run_all(&engine, &[KEYSPACE]).await;
        let wide = with_wide(&engine.current.schema(), TABLES as usize, COLUMNS as usize);
        drop(engine.current.replace(Arc::new(wide)));
        let of_wide = |table| format!("SELECT * FROM system_schema.{table} WHERE keyspace_name = 'wide'");
        assert_eq!(count(&engine, &of_wide("tables")).await, TABLES);
        assert_eq!(count(&engine, &of_wide("columns")).await, TABLES * COLUMNS);
        run_all(
            &engine,
            &[
                "CREATE TABLE wide.one (k int PRIMARY KEY)",
                "ALTER TABLE wide.t7 ADD v int",
                "CREATE TYPE wide.u (a int)",
                "DROP TABLE wide.t8",
                "ALTER KEYSPACE wide WITH durable_writes = false",
                "DROP KEYSPACE wide",
            ],
        )
        .await;
        assert_eq!(count(&engine, &of_wide("tables")).await, 0);
    });
    for core in 0..2 {
        // A poll is counted when it has ended: run one more to be sure of that.
        lanes.block_on(core, Group::CONTROL, || async {});
        let most = lanes.most_units(core);
        assert!(most <= lanes::UNITS_MAX, "{most} work units without a yield on core {core}");
    }
    lanes.shutdown();
}

#[test]
fn panic_on_one_core_in_a_schema_change_stops_the_server() {
    let reported = Arc::default();
    let lanes = in_memory(&reported);
    lanes.block_on(1, Group::CONTROL, || async {
        Embedded::local()
            .on_schema_change(Rc::new(|_| Box::pin(async { panic!("this panic is part of the test") })));
    });
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = Embedded::local();
        for statement in [KEYSPACE, TABLE] {
            let error = run(&engine, statement).await.expect_err("half done").to_string();
            assert!(error.contains("left half done by a panic"), "{error}");
        }
    });
    lanes.shutdown();
    let once = ["background task failed: schema; the server stops, as its work stays half done"];
    assert_eq!(*reported.lock().expect("no panic holds it"), once);
}

#[test]
fn panic_while_planning_a_change_fails_one_statement() {
    let reported = Arc::default();
    let lanes = in_memory(&reported);
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = Embedded::local();
        run_all(&engine, &[KEYSPACE]).await;
        let planner = engine.clone();
        let statement = lanes::catch_panic(async move {
            let guard = planner.definitions.lock().await;
            let plan = async { panic!("this panic is part of the test") };
            let outcome = planner.change(plan).await;
            drop(guard);
            outcome
        });
        assert!(statement.await.is_err());
        run_all(&engine, &[TABLE, "SELECT k FROM t"]).await;
    });
    lanes.shutdown();
    assert!(reported.lock().expect("no panic holds it").is_empty());
}

/// Returns a write of one row.
fn row_of(table: TableId) -> Mutation {
    let (key, change) = (b"key", rows::change(&(Vec::new(), Some(vec![1])), 1, 1));
    Mutation { table, token: schema::token::token(key), key: Bytes::from_static(key), changes: vec![change] }
}

/// A crash came between the change of the schema and the drop of the data.
#[test]
fn start_drops_data_that_no_schema_names() {
    let dir = testkit::Folder::new("leftovers");
    let unknown = TableId(7 << 64);
    session(&dir, async move |engine| {
        run_all(engine, &[KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t (k) VALUES (1)"])
            .await;
        engine.shard.apply(vec![row_of(unknown)]).expect("applied").await.expect("written");
        engine.flush().await.expect("flushed");
        assert!(engine.shard.tables().contains(&unknown));
    });
    session(&dir, async move |engine| {
        for _ in 0..10_000 {
            if !engine.shard.tables().contains(&unknown) {
                break;
            }
            lanes::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert!(!engine.shard.tables().contains(&unknown), "the leftover table exists");
        assert!(engine.shard.tables().len() >= 2, "the schema and the table remain");
        assert!(
            matches!(run(engine, "SELECT k FROM t").await, Ok(StatementOutcome::Rows(rows)) if rows.count == 1)
        );
    });
}

/// A write that was bound before the drop arrives after it.
#[test]
fn late_write_does_not_recreate_a_dropped_table() {
    let dir = testkit::Folder::new("late-write");
    session(&dir, async |engine| {
        run_all(engine, &[KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY)"]).await;
        let table = TableId(engine.current.schema().table("ks", "t").expect("there").data_id().as_u128());
        run_all(engine, &["DROP TABLE t"]).await;
        let refused = engine.apply_by_core(vec![vec![row_of(table)]]).await;
        assert!(matches!(refused, Err(Error::Stale)), "{refused:?}");
        assert!(!engine.shard.tables().contains(&table));
    });
}
