//! The schema has a weight: names, columns, types and options of all definitions are bounded, with
//! or without guardrails.

use engine::{Engine, GUARDRAILS, Request, ResultRows, StatementOutcome};

use crate::{Server, Session};

const KIB: usize = 1 << 10;

impl Session {
    /// Switches all guardrails off, and sets the most bytes of the schema.
    fn bound_schema(&self, bytes: usize) {
        GUARDRAILS.iter().for_each(|spec| self.limit(spec.guardrail, 0));
        self.0.set_schema_bytes_max(bytes as u64);
    }

    /// Runs numbered statements until one is refused. Returns the number of those that were run.
    async fn until_refused(&self, text: impl Fn(usize) -> String) -> usize {
        for n in 0..2_000 {
            if let Err(error) = self.run(&text(n), &[]).await {
                let error = error.to_string();
                let expected = "expected at most 1048576 bytes of definitions in the whole schema, got ";
                assert!(error.starts_with(expected), "{error}");
                return n;
            }
        }
        panic!("no statement was refused: {:.200}", text(0))
    }

    async fn all(&self, text: &str, page_size: Option<u32>, page_bytes_max: usize) -> Vec<Vec<Vec<u8>>> {
        let plan = self.prepare(text).expect(text);
        let (mut all, mut state) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let paging_state = state.as_deref();
            let request = Request { page_size, paging_state, page_bytes_max, ..Request::EMPTY };
            let outcome = self.0.execute(&plan, &request).outcome(&*self.0).await.expect(text);
            let StatementOutcome::Rows(rows) = outcome else { panic!("rows were expected") };
            assert!(page_size.is_none_or(|page| rows.count <= page), "{text}");
            all.extend(cells(&rows));
            // A client sends a request for each page.
            lanes::yield_now().await;
            state = rows.paging_state;
            if state.is_none() {
                return all;
            }
        }
    }
}

fn cells(rows: &ResultRows) -> Vec<Vec<Vec<u8>>> {
    let row = |row: Vec<Option<&[u8]>>| row.iter().map(|cell| cell.unwrap_or_default().to_vec()).collect();
    rows.decoded().into_iter().map(row).collect()
}

#[test]
fn definitions_are_refused_beyond_their_weight() {
    let long = |n: usize, bytes: usize| format!("\"{n:0bytes$}\"");
    type Form = Box<dyn Fn(usize) -> String + Send>;
    let forms: Vec<(&str, &str, Form)> = vec![
        (
            "names of columns",
            "",
            Box::new(move |n| format!("CREATE TABLE t{n} (k int PRIMARY KEY, {} int)", long(n, 60_000))),
        ),
        (
            "columns",
            "",
            Box::new(|n| {
                let columns: Vec<String> = (0..500).map(|c| format!("c{c} int")).collect();
                format!("CREATE TABLE t{n} (k int PRIMARY KEY, {})", columns.join(", "))
            }),
        ),
        (
            "added columns",
            "CREATE TABLE t (k int PRIMARY KEY)",
            Box::new(move |n| format!("ALTER TABLE t ADD {} int", long(n, 10_000))),
        ),
        (
            "comments",
            "",
            Box::new(|n| {
                format!("CREATE TABLE t{n} (k int PRIMARY KEY) WITH comment = '{}'", "c".repeat(100_000))
            }),
        ),
        (
            "altered comments",
            "CREATE TABLE t (k int PRIMARY KEY)",
            Box::new(|n| format!("ALTER TABLE t WITH comment = '{}'", "c".repeat(1 + n * 50_000))),
        ),
        (
            "options",
            "",
            Box::new(|n| {
                let value = "o".repeat(100_000);
                format!("CREATE TABLE t{n} (k int PRIMARY KEY) WITH extensions = {{'a': '{value}'}}")
            }),
        ),
        (
            "fields",
            "",
            Box::new(|n| {
                let fields: Vec<String> = (0..500).map(|f| format!("f{f} int")).collect();
                format!("CREATE TYPE t{n} ({})", fields.join(", "))
            }),
        ),
        (
            "uses of a type",
            "CREATE TYPE u (a int, b int, c int, d int, e int, f int, g int)",
            Box::new(|n| {
                let columns: Vec<String> = (0..40).map(|c| format!("c{c} frozen<u>")).collect();
                format!("CREATE TABLE t{n} (k int PRIMARY KEY, {})", columns.join(", "))
            }),
        ),
        (
            "fields added to a used type",
            "CREATE TYPE u (a int)",
            Box::new(move |n| match n {
                0 => {
                    let columns: Vec<String> = (0..100).map(|c| format!("c{c} frozen<u>")).collect();
                    format!("CREATE TABLE t (k int PRIMARY KEY, {})", columns.join(", "))
                }
                n => format!("ALTER TYPE u ADD {} int", long(n, 200)),
            }),
        ),
        ("tables", "", Box::new(|n| format!("CREATE TABLE t{n} (k int PRIMARY KEY)"))),
    ];
    for (name, before, form) in forms {
        let server = Server::with(&[]);
        server.run(async move |session| {
            session.bound_schema(KIB * KIB);
            if !before.is_empty() {
                session.run(before, &[]).await.expect(before);
            }
            let run = session.until_refused(form).await;
            assert!(run > 0, "{name}: a small schema is permitted");
            // A full schema may shrink, and then grow again.
            session.run("DROP KEYSPACE ks", &[]).await.expect("dropped");
            session.run(testkit::KEYSPACE, &[]).await.unwrap_or_else(|error| {
                assert_eq!(name, "keyspaces", "{error}");
                0
            });
        });
        server.0.shutdown();
    }
}

/// A server that is started with less memory keeps its schema.
#[test]
fn schema_over_its_bound_is_usable_and_may_shrink() {
    let server = Server::with(&[
        "CREATE TABLE a (k int PRIMARY KEY, v int) WITH comment = 'a long comment'",
        "CREATE TABLE b (k int PRIMARY KEY)",
    ]);
    server.run(async |session| {
        session.bound_schema(100);
        let error = session.refused("CREATE TABLE c (k int PRIMARY KEY)", &[]).await;
        assert!(error.starts_with("expected at most 100 bytes of definitions"), "{error}");
        for text in [
            "INSERT INTO a (k, v) VALUES (1, 1)",
            "TRUNCATE a",
            "CREATE TABLE IF NOT EXISTS a (k int PRIMARY KEY)",
            "ALTER TABLE a WITH comment = ''",
            "ALTER TABLE a DROP v",
            "DROP TABLE b",
        ] {
            assert_eq!(session.refused(text, &[]).await, "0 rows", "{text}");
        }
    });
    server.end_with_bounded_polls();
}

#[test]
fn catalog_reads_have_the_same_rows_in_pages_of_any_size() {
    let server = Server::with(&[
        "CREATE KEYSPACE aa WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE KEYSPACE zz WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TYPE aa.u (b int, a text)",
        "CREATE TABLE aa.t (k int, c int, z int static, b frozen<u>, a int, PRIMARY KEY (k, c))",
        "CREATE TABLE zz.t (k int PRIMARY KEY)",
        "CREATE TABLE zz.a (k int PRIMARY KEY)",
    ]);
    server.run(async |session| {
        let columns: Vec<String> = (0..1_000).map(|c| format!("c{c} int")).collect();
        let text = format!("CREATE TABLE wide (k int PRIMARY KEY, {})", columns.join(", "));
        session.run(&text, &[]).await.expect("created");
        for (table, keys) in [("keyspaces", 1), ("tables", 2), ("columns", 3), ("types", 2), ("views", 2)] {
            for rest in ["", " WHERE keyspace_name = 'aa'", " LIMIT 7"] {
                let text = format!("SELECT * FROM system_schema.{table}{rest}");
                let whole = session.all(&text, None, 0).await;
                let of_key: Vec<_> = whole.iter().map(|row| row[..keys].to_vec()).collect();
                assert!(of_key.is_sorted(), "{text} is in the order of the key");
                assert!(table == "views" || !whole.is_empty(), "{text}");
                for (rows, bytes) in [(1, usize::MAX), (3, usize::MAX), (100, 300), (5_000, usize::MAX)] {
                    if whole.len() > 500 && rows < 100 {
                        continue;
                    }
                    let paged = session.all(&text, Some(rows), bytes).await;
                    assert!(paged == whole, "{text}, {rows} rows a page");
                }
            }
        }
        let wide = "SELECT column_name FROM system_schema.columns WHERE table_name = 'wide'";
        assert_eq!(session.all(wide, None, 0).await.len(), 1_001);
        let counted = "SELECT count(*) FROM system_schema.columns WHERE table_name = 'wide' ALLOW FILTERING";
        assert_eq!(session.all(counted, None, 0).await, [[1_001_i64.to_be_bytes().to_vec()]]);
    });
    server.end_with_bounded_polls();
}
