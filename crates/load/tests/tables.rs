//! `fairlane load tpch` and `hits`: every row is written whatever the server refuses for a moment, and what is not whole is said so.
#![expect(clippy::disallowed_methods, reason = "the load generator stands outside the lanes")]

mod fake;

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Date32Type, Decimal128Type, Int32Type, Int64Type};
use arrow_array::{Array as _, RecordBatch};
use arrow_schema::DataType;
use fake::{Fake, Script};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// Rows of TPC-H's tables at a thousandth, which is the smallest scale.
const ROWS: [u64; 8] = [5, 25, 10, 200, 800, 150, 1500, 6005];

/// A folder of this test's own, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("fairlane-tables-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).expect(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Runs a command line; `@` is the folder. Returns the exit code.
fn run(line: &str, folder: &Folder) -> i32 {
    let args: Vec<String> =
        line.split_whitespace().map(|word| word.replace('@', &folder.0.display().to_string())).collect();
    load::cli(&args)
}

/// Fills from a command line; returns its exit code, its report, and the server.
fn fill(name: &str, line: &str, script: Script) -> (i32, serde_json::Value, Fake) {
    let fake = Fake::start(script);
    let folder = Folder::new(name);
    let line = format!("{line} --hosts {} --json @/report.json --quiet", fake.address);
    let code = run(&line, &folder);
    (code, serde_json::from_str(&folder.read("report.json")).expect("JSON"), fake)
}

#[test]
fn every_row_is_written_once_also_where_some_are_refused_at_first() {
    let script = Script { fail_every: Some(500), ..Script::default() };
    let (code, report, fake) = fill("tpch", "tpch --scale 0.001 --connections 3 --in-flight 32", script);
    assert_eq!((code, &report["complete"]), (0, &serde_json::Value::Bool(true)));
    let rows: Vec<u64> =
        report["tables"].as_array().expect("tables").iter().filter_map(|t| t["rows"].as_u64()).collect();
    assert_eq!(rows, ROWS);
    let refused: u64 =
        report["tables"].as_array().expect("tables").iter().filter_map(|t| t["refused"].as_u64()).sum();
    assert!(refused > 0, "{report}");
    // Rows are told apart by their first two values, which some lines of an order share; all together they are as many.
    let written = fake.seen.written.lock().expect("no panic");
    assert_eq!(written.values().sum::<u64>(), rows.iter().sum::<u64>());
    // The lines of an order and the suppliers of a part go together: far fewer requests than rows.
    assert!(fake.seen.executes.load(Ordering::Relaxed) < 5000);
    let queries = fake.seen.queries.lock().expect("no panic");
    assert!(queries[0].starts_with("CREATE KEYSPACE IF NOT EXISTS tpch "), "{queries:?}");
    assert!(
        queries.iter().any(|text| text.ends_with("PRIMARY KEY ((l_orderkey), l_linenumber))")),
        "{queries:?}"
    );
}

#[test]
fn a_server_filled_by_another_program() {
    let fake = Fake::start(Script::default());
    let filling = load::Filling {
        tables: load::Tables::Hits { rows: 300 },
        host: fake.address.to_string(),
        user: "admin".into(),
        password: "secret".into(),
    };
    load::fill(&filling, &load::StopFlag::new(), |_, _, _| ()).expect("it is filled");
    assert_eq!(fake.seen.written.lock().expect("no panic").values().sum::<u64>(), 300);
}

#[test]
fn hits_by_their_seed() {
    let rows = |seed: u64| {
        let (code, report, fake) =
            fill(&format!("hits{seed}"), &format!("hits --rows 300 --seed {seed}"), Script::default());
        assert_eq!((code, report["tables"][0]["rows"].as_u64()), (0, Some(300)));
        let written = fake.seen.written.lock().expect("no panic");
        written.clone()
    };
    assert_eq!(rows(1), rows(1));
    assert_ne!(rows(1), rows(2));
}

#[test]
fn a_server_lost_half_way_is_an_error_and_the_rest_is_missing() {
    let script = Script { drop_at: Some(700), ..Script::default() };
    let (code, report, _fake) = fill("lost", "tpch --scale 0.001 --connections 1 --in-flight 8", script);
    assert_eq!((code, &report["complete"]), (1, &serde_json::Value::Bool(false)));
    let tables = report["tables"].as_array().expect("tables");
    assert_eq!((tables[0]["rows"].as_u64(), tables[7]["rows"].as_u64()), (Some(5), Some(0)));
}

#[test]
fn files_for_other_databases() {
    let folder = Folder::new("csv");
    assert_eq!(
        run("tpch --scale 0.001 --tables nation,lineitem --csv @ --quiet --json @/report.json", &folder),
        0
    );
    let nations = folder.read("nation.csv");
    assert_eq!(nations.lines().next(), Some("n_nationkey,n_name,n_regionkey,n_comment"));
    assert!(nations.contains("\n7,\"GERMANY\",3,\""), "{nations}");
    let lines = folder.read("lineitem.csv");
    assert_eq!(lines.lines().count(), 6006);
    let first = "1,156,4,1,17.00,17954.55,0.04,0.02,\"N\",\"O\",1996-03-13,1996-02-12,1996-03-22,\"DELIVER IN PERSON\",\"TRUCK\",";
    assert!(lines.lines().nth(1).is_some_and(|line| line.starts_with(first)), "{:?}", lines.lines().nth(1));
    let schema = folder.read("schema.sql");
    assert!(schema.contains("l_quantity DECIMAL(15, 2)") && !schema.contains("TABLE orders"), "{schema}");
}

/// The record batches of a table's file.
fn batches(folder: &Folder, table: &str) -> Vec<RecordBatch> {
    let file = File::open(folder.0.join(format!("{table}.parquet"))).expect("a file");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).and_then(|builder| builder.build());
    reader.expect("a Parquet file").map(|batch| batch.expect("rows")).collect()
}

#[test]
fn parquet_files_hold_the_same_rows() {
    let folder = Folder::new("parquet");
    let line = "tpch --scale 0.001 --parquet @ --quiet --json @/report.json";
    assert_eq!(run(line, &folder), 0);
    let report: serde_json::Value = serde_json::from_str(&folder.read("report.json")).expect("JSON");
    for (told, expected) in report["tables"].as_array().expect("tables").iter().zip(ROWS) {
        let name = told["table"].as_str().expect("a name");
        let found: usize = batches(&folder, name).iter().map(RecordBatch::num_rows).sum();
        assert_eq!((found as u64, told["rows"].as_u64()), (expected, Some(expected)), "{name}");
        let bytes = std::fs::metadata(folder.0.join(format!("{name}.parquet"))).expect("a file").len();
        assert_eq!(told["bytes"].as_u64(), Some(bytes), "{name}");
    }
    let lines = batches(&folder, "lineitem");
    let column = |name: &str| lines[0].column_by_name(name).expect(name);
    assert_eq!(column("l_orderkey").as_primitive::<Int64Type>().value(0), 1);
    assert_eq!(column("l_linenumber").as_primitive::<Int32Type>().value(0), 1);
    assert_eq!(column("l_extendedprice").data_type(), &DataType::Decimal128(15, 2));
    assert_eq!(column("l_extendedprice").as_primitive::<Decimal128Type>().value(0), 1_795_455);
    assert_eq!(column("l_shipdate").as_primitive::<Date32Type>().value(0), 9568); // 1996-03-13
    assert_eq!(column("l_shipmode").as_string::<i32>().value(0), "TRUCK");
}

#[test]
fn parquet_files_are_not_written_over() {
    let folder = Folder::new("again");
    std::fs::write(folder.0.join("orders.parquet"), "mine").expect("written");
    assert_eq!(run("tpch --scale 0.001 --parquet @ --quiet", &folder), 1);
    let left: Vec<_> = std::fs::read_dir(&folder.0).expect("the folder").flatten().collect();
    assert_eq!((left.len(), folder.read("orders.parquet").as_str()), (1, "mine"), "nothing was begun");
    assert_eq!(run("tpch --scale 0.001 --parquet @ --tables nation --decimals double --quiet", &folder), 0);
    assert_eq!(batches(&folder, "nation")[0].num_rows(), 25);
}

#[test]
fn hits_as_a_parquet_file() {
    let folder = Folder::new("hits-parquet");
    assert_eq!(run("hits --rows 20000 --parquet @ --quiet", &folder), 0);
    let found = batches(&folder, "hits");
    assert_eq!(
        (found.iter().map(RecordBatch::num_rows).sum::<usize>(), found[0].num_columns()),
        (20_000, 105)
    );
}

#[test]
fn command_lines_that_make_no_sense() {
    let folder = Folder::new("usage");
    for line in [
        "tpch --scale none",
        "tpch --tables lines --csv @",
        "hits --scale 1",
        "hits 5",
        "sql",
        "sql --queries @",
    ] {
        assert!([1, 2].contains(&run(line, &folder)), "{line}");
    }
    for line in ["tpch --help", "hits --help", "sql --help"] {
        assert_eq!(run(line, &folder), 0, "{line}");
    }
}
