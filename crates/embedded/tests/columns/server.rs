//! Engine on several cores with small memtables in a folder, with its results as rows and as
//! columns.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use engine::scan::arrow::{ColumnBuilder, SCALE_DEFAULT};
use engine::scan::{Filter, TableScan};
use engine::{Engine, Execution, ParsedTree, Relation, Request, StatementOutcome};
use lanes::{Group, Lanes};
use schema::TableDef;
use testkit::{Folder, KEYSPACE, Setup, close_engines, engine};

/// Serialized cells of a row.
pub(crate) type Row = Vec<Option<Vec<u8>>>;

/// Result of a query of one row, with the bytes of rows that were read for it.
pub(crate) struct One {
    pub(crate) row: Result<Row, String>,
    pub(crate) bytes_read: u64,
}

pub(crate) struct Server {
    lanes: Lanes,
    cores: usize,
    _dir: Folder,
}

impl Server {
    /// Starts a server with a keyspace `ks`, whose memtables are flushed at `memtable_bytes_max`
    /// bytes.
    pub(crate) fn start(cores: usize, memtable_bytes_max: usize) -> Server {
        let dir = Folder::new("columns");
        let lanes = Setup::new(cores)
            .dir(Some(&dir))
            .options(|options| {
                options.memtable_bytes_max = memtable_bytes_max;
                options.segment_bytes = 1 << 20;
                options.commit = storage::CommitMode::Periodic { every: std::time::Duration::from_secs(1) };
            })
            .start();
        let server = Server { lanes, cores, _dir: dir };
        server.run(vec![KEYSPACE.into()]);
        server
    }

    /// Flushes all cores, into one file each if the memtables were large enough.
    pub(crate) fn flush(&self) {
        for core in 0..self.cores {
            self.lanes.block_on(core, Group::CONTROL, || async { engine().flush().await.expect("flushes") });
        }
    }

    /// Runs statements. Returns the rows of the last one.
    pub(crate) fn run(&self, statements: Vec<String>) -> Vec<Row> {
        self.lanes.block_on(0, Group::DEFAULT, move || async move {
            let engine = engine();
            let mut last = Vec::new();
            for text in statements {
                let statement = Arc::new(ParsedTree::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}")));
                let plan = engine.prepare(statement, Some("ks")).unwrap_or_else(|e| panic!("{text}: {e}"));
                let outcome = engine.execute(&plan, &Request::EMPTY).outcome(&*engine).await;
                last = match outcome.unwrap_or_else(|e| panic!("{text}: {e}")) {
                    StatementOutcome::Rows(rows) => {
                        let owned = |row: Vec<Option<&[u8]>>| {
                            row.into_iter().map(|cell| cell.map(<[u8]>::to_vec)).collect()
                        };
                        rows.decoded().into_iter().map(owned).collect()
                    }
                    _ => Vec::new(),
                };
            }
            last
        })
    }

    /// Runs a query of one row.
    pub(crate) fn one(&self, text: &str) -> One {
        let text = text.to_owned();
        self.lanes.block_on(0, Group::DEFAULT, move || async move {
            let engine = engine();
            let statement = Arc::new(ParsedTree::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}")));
            let plan = engine.prepare(statement, Some("ks")).unwrap_or_else(|e| panic!("{text}: {e}"));
            let Execution::Reading { later, reads, .. } = engine.execute(&plan, &Request::EMPTY) else {
                panic!("{text}: the result is there at once");
            };
            let row = match later.await {
                Ok(StatementOutcome::Rows(rows)) => {
                    let [row] = &rows.decoded()[..] else { panic!("{text}: {} rows", rows.count) };
                    Ok(row.iter().map(|cell| cell.map(<[u8]>::to_vec)).collect())
                }
                Ok(other) => panic!("{text}: {other:?}"),
                Err(error) => Err(error.to_string()),
            };
            One { row, bytes_read: reads.bytes() }
        })
    }

    pub(crate) fn wait(&self, duration: std::time::Duration) {
        self.lanes.block_on(0, Group::DEFAULT, move || lanes::time::sleep(duration));
    }

    /// Returns the definition of `ks.t`.
    pub(crate) fn def(&self) -> TableDef {
        self.lanes.block_on(0, Group::DEFAULT, || async {
            TableDef::clone(engine().schema().table("ks", "t").expect("the table is there"))
        })
    }

    /// Returns a table or view of `ks`.
    pub(crate) fn relation(&self, name: &'static str) -> Relation {
        self.lanes.block_on(0, Group::DEFAULT, move || async move {
            engine().schema().relation("ks", name).expect("it is there")
        })
    }

    /// Runs a scan on every core. Returns the lines of each core.
    pub(crate) fn scan(&self, scan: &TableScan) -> Vec<Vec<String>> {
        self.with_dynamic_filters(scan, &[], usize::MAX)
    }

    /// Runs scans that get dynamic filters after `after` batches.
    pub(crate) fn with_dynamic_filters(
        &self,
        scan: &TableScan,
        by: &[Filter],
        after: usize,
    ) -> Vec<Vec<String>> {
        let lines = |core| {
            let (scan, by) = (scan.clone(), by.to_vec());
            self.lanes.block_on(core, Group::DEFAULT, move || async move {
                let mut source = engine().scan(&scan).expect("a scan");
                let schema = source.schema();
                lanes::heavy(Group::DEFAULT, async move {
                    let (mut lines, mut batches) = (Vec::new(), 0);
                    loop {
                        if batches == after {
                            source.push_down(&by).expect("sound filters");
                        }
                        let Some(batch) = source.next().await.expect("a batch") else { break };
                        batches += 1;
                        assert!(batch.num_rows() > 0, "no batch is empty");
                        assert_eq!(batch.schema(), schema);
                        lines.extend(lines_of(&batch));
                    }
                    assert_eq!(source.progress(), 1.0, "the scan is finished");
                    lines
                })
                .await
            })
        };
        (0..self.cores).map(lines).collect()
    }

    /// Checks that scans of a snapshot on core 0 return `rows` rows each, after a statement that
    /// ran in the middle of the first one.
    pub(crate) fn check_snapshot_is_stable(&self, scan: &TableScan, statement: &'static str, rows: usize) {
        let scan = scan.clone();
        let found = self.lanes.block_on(0, Group::DEFAULT, move || async move {
            let engine = engine();
            let snapshot = engine.table_snapshot(&scan.keyspace, &scan.table).expect("a snapshot");
            let mut source = snapshot.scan(&scan).expect("a scan");
            let mut found = [source.next().await.expect("a batch").map_or(0, |batch| batch.num_rows()), 0];
            let plan = engine.prepare(Arc::new(ParsedTree::parse(statement).expect("parses")), Some("ks"));
            let written = engine.execute(&plan.expect("prepares"), &Request::EMPTY);
            written.outcome(&*engine).await.expect("runs");
            for found in &mut found {
                while let Some(batch) = source.next().await.expect("a batch") {
                    *found += batch.num_rows();
                }
                source = snapshot.scan(&scan).expect("another scan");
            }
            found
        });
        assert_eq!(found, [rows; 2], "rows of scans of a snapshot from before {statement}");
    }

    /// Returns the error of a scan.
    pub(crate) fn refused(&self, scan: TableScan) -> String {
        self.lanes.block_on(0, Group::DEFAULT, move || async move {
            engine().scan(&scan).expect_err("it is refused").to_string()
        })
    }

    /// Returns the rows and bytes of `ks.t` on all cores.
    pub(crate) fn statistics(&self) -> (u64, u64) {
        let of = |core| {
            self.lanes.block_on(core, Group::DEFAULT, || async {
                engine().statistics("ks", "t").expect("the table is there")
            })
        };
        (0..self.cores).map(of).fold((0, 0), |(rows, bytes), own| (rows + own.rows, bytes + own.bytes))
    }

    pub(crate) fn stop(self) {
        close_engines(&self.lanes);
        self.lanes.shutdown();
    }
}

/// Returns a scan of all columns of a table of `ks`.
pub(crate) fn all(table: &str, columns: usize) -> TableScan {
    TableScan {
        keyspace: "ks".into(),
        table: table.into(),
        columns: (0..columns).collect(),
        tokens: i64::MIN..=i64::MAX,
        filters: Vec::new(),
        limit: None,
        batch_rows: 50,
        scale: SCALE_DEFAULT,
        bypass_cache: false,
        expected: None,
    }
}

pub(crate) fn filtered(table: &str, columns: usize, filters: &[Filter]) -> TableScan {
    TableScan { filters: filters.to_vec(), ..all(table, columns) }
}

/// Formats each row as text.
pub(crate) fn lines_of(batch: &RecordBatch) -> Vec<String> {
    let cell = |column: &dyn Array, row: usize| format!("{:?}", column.slice(row, 1));
    let line = |row| batch.columns().iter().map(|column| cell(column, row)).collect::<String>();
    (0..batch.num_rows()).map(line).collect()
}

/// Formats rows of a SELECT as the lines of a scan, independently of the engine.
pub(crate) fn lines_of_rows(def: &TableDef, rows: &[Row]) -> Vec<String> {
    lines_of_relation(&Arc::new(def.clone()).into(), rows)
}

/// Does the same for a table or view.
pub(crate) fn lines_of_relation(relation: &Relation, rows: &[Row]) -> Vec<String> {
    let arrays = relation.def.columns.iter().enumerate().map(|(at, column)| {
        let mut builder = ColumnBuilder::new(&column.ty, SCALE_DEFAULT, rows.len());
        rows.iter().for_each(|row| builder.push(row[at].as_deref()).expect("a value"));
        builder.finish()
    });
    let schema = engine::scan::schema_of_relation(relation, SCALE_DEFAULT);
    lines_of(&RecordBatch::try_new(schema, arrays.collect()).expect("columns"))
}
