//! Tests of `fairlane load tpch` and `hits`: every row is written despite temporary rejections, and
//! incomplete tables are reported.
#![expect(clippy::disallowed_methods, reason = "the load generator stands outside the lanes")]

mod fake;

use std::fs::File;
use std::sync::atomic::Ordering;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Date32Type, Decimal128Type, Int32Type, Int64Type};
use arrow_array::{Array as _, RecordBatch};
use arrow_schema::DataType;
use fake::{Fake, Script};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use testkit::Folder;

/// Rows of TPC-H's tables at scale 0.001, the smallest.
const ROWS: [u64; 8] = [5, 25, 10, 200, 800, 150, 1500, 6005];

fn text(folder: &Folder, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).expect(name)
}

/// Runs a command line with `@` replaced by the folder. Returns the exit code.
fn run(line: &str, folder: &Folder) -> i32 {
    let args: Vec<String> =
        line.split_whitespace().map(|word| word.replace('@', &folder.display().to_string())).collect();
    load::cli(&args)
}

/// Fills tables by a command line. Returns the exit code, the report and the server.
fn fill(name: &str, line: &str, script: Script) -> (i32, serde_json::Value, Fake) {
    let fake = Fake::start(script);
    let folder = Folder::empty(name);
    let line = format!("{line} --hosts {} --json @/report.json --quiet", fake.address);
    let code = run(&line, &folder);
    (code, serde_json::from_str(&text(&folder, "report.json")).expect("JSON"), fake)
}

#[test]
fn rejected_rows_are_written_again() {
    let script = Script { fail_every: Some(500), ..Script::default() };
    let (code, report, fake) = fill("tpch", "tpch --scale 0.001 --connections 3 --in-flight 32", script);
    assert_eq!((code, &report["complete"]), (0, &serde_json::Value::Bool(true)));
    let rows: Vec<u64> =
        report["tables"].as_array().expect("tables").iter().filter_map(|t| t["rows"].as_u64()).collect();
    assert_eq!(rows, ROWS);
    let refused: u64 =
        report["tables"].as_array().expect("tables").iter().filter_map(|t| t["refused"].as_u64()).sum();
    assert!(refused > 0, "{report}");
    // Some lines of an order share their first two values, which identify a row here. Sum the
    // counts.
    let written = fake.seen.written.lock().expect("no panic");
    assert_eq!(written.values().sum::<u64>(), rows.iter().sum::<u64>());
    // The lines of an order and the suppliers of a part are sent in batches.
    assert!(fake.seen.executes.load(Ordering::Relaxed) < 5000);
    let queries = fake.seen.queries.lock().expect("no panic");
    assert!(queries[0].starts_with("CREATE KEYSPACE IF NOT EXISTS tpch "), "{queries:?}");
    assert!(
        queries.iter().any(|text| text.ends_with("PRIMARY KEY ((l_orderkey), l_linenumber))")),
        "{queries:?}"
    );
}

#[test]
fn fill_writes_every_row_for_another_program() {
    let fake = Fake::start(Script::default());
    let filling = load::Filling {
        tables: load::Tables::Hits { rows: 300 },
        host: fake.address.to_string(),
        user: "admin".into(),
        password: "secret".into(),
    };
    load::fill(&filling, &load::StopFlag::new(), |_, _, _| ()).expect("the server accepts all rows");
    assert_eq!(fake.seen.written.lock().expect("no panic").values().sum::<u64>(), 300);
}

#[test]
fn hits_depend_on_the_seed() {
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
fn lost_server_is_reported_with_the_rows_written() {
    let script = Script { drop_at: Some(700), ..Script::default() };
    let (code, report, _fake) = fill("lost", "tpch --scale 0.001 --connections 1 --in-flight 8", script);
    assert_eq!((code, &report["complete"]), (1, &serde_json::Value::Bool(false)));
    let tables = report["tables"].as_array().expect("tables");
    assert_eq!((tables[0]["rows"].as_u64(), tables[7]["rows"].as_u64()), (Some(5), Some(0)));
}

#[test]
fn csv_files_have_headers_and_a_schema() {
    let folder = Folder::empty("csv");
    assert_eq!(
        run("tpch --scale 0.001 --tables nation,lineitem --csv @ --quiet --json @/report.json", &folder),
        0
    );
    let nations = text(&folder, "nation.csv");
    assert_eq!(nations.lines().next(), Some("n_nationkey,n_name,n_regionkey,n_comment"));
    assert!(nations.contains("\n7,\"GERMANY\",3,\""), "{nations}");
    let lines = text(&folder, "lineitem.csv");
    assert_eq!(lines.lines().count(), 6006);
    let first = "1,156,4,1,17.00,17954.55,0.04,0.02,\"N\",\"O\",\
                 1996-03-13,1996-02-12,1996-03-22,\"DELIVER IN PERSON\",\"TRUCK\",";
    assert!(lines.lines().nth(1).is_some_and(|line| line.starts_with(first)), "{:?}", lines.lines().nth(1));
    let schema = text(&folder, "schema.sql");
    assert!(schema.contains("l_quantity DECIMAL(15, 2)") && !schema.contains("TABLE orders"), "{schema}");
}

/// Returns the record batches of a table's file.
fn batches(folder: &Folder, table: &str) -> Vec<RecordBatch> {
    let file = File::open(folder.join(format!("{table}.parquet"))).expect("a file");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).and_then(|builder| builder.build());
    reader.expect("a Parquet file").map(|batch| batch.expect("rows")).collect()
}

#[test]
fn parquet_files_contain_all_rows() {
    let folder = Folder::empty("parquet");
    let line = "tpch --scale 0.001 --parquet @ --quiet --json @/report.json";
    assert_eq!(run(line, &folder), 0);
    let report: serde_json::Value = serde_json::from_str(&text(&folder, "report.json")).expect("JSON");
    for (reported, expected) in report["tables"].as_array().expect("tables").iter().zip(ROWS) {
        let name = reported["table"].as_str().expect("a name");
        let found: usize = batches(&folder, name).iter().map(RecordBatch::num_rows).sum();
        assert_eq!((found as u64, reported["rows"].as_u64()), (expected, Some(expected)), "{name}");
        let bytes = std::fs::metadata(folder.join(format!("{name}.parquet"))).expect("a file").len();
        assert_eq!(reported["bytes"].as_u64(), Some(bytes), "{name}");
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
fn existing_parquet_files_are_kept() {
    let folder = Folder::empty("again");
    std::fs::write(folder.join("orders.parquet"), "mine").expect("written");
    assert_eq!(run("tpch --scale 0.001 --parquet @ --quiet", &folder), 1);
    let left: Vec<_> = std::fs::read_dir(&*folder).expect("the folder").flatten().collect();
    assert_eq!((left.len(), text(&folder, "orders.parquet").as_str()), (1, "mine"), "no file was created");
    assert_eq!(run("tpch --scale 0.001 --parquet @ --tables nation --decimals double --quiet", &folder), 0);
    assert_eq!(batches(&folder, "nation")[0].num_rows(), 25);
}

#[test]
fn hits_are_written_as_parquet() {
    let folder = Folder::empty("hits-parquet");
    assert_eq!(run("hits --rows 20000 --parquet @ --quiet", &folder), 0);
    let found = batches(&folder, "hits");
    assert_eq!(
        (found.iter().map(RecordBatch::num_rows).sum::<usize>(), found[0].num_columns()),
        (20_000, 105)
    );
}

#[test]
fn invalid_command_lines_fail() {
    let folder = Folder::empty("usage");
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
