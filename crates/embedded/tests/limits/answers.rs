//! Short statements with large answers: counted before they are built, charged, and divided into
//! pages or refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engine::{
    AnswerGrant, AnswerMemory, Engine, Error, Guardrail, Plan, Request, ResultRows, StatementOutcome,
};

use crate::{Server, Session, ints};

const MIB: usize = 1 << 20;

/// Memory for answers that counts the largest grant.
#[derive(Debug, Clone)]
struct Room(Arc<Granted>);

#[derive(Debug)]
struct Granted {
    bytes_max: u64,
    most: AtomicU64,
}

impl Room {
    fn of(bytes_max: usize) -> Room {
        Room(Arc::new(Granted { bytes_max: bytes_max as u64, most: AtomicU64::new(0) }))
    }
}

impl AnswerMemory for Room {
    fn open(&self) -> Arc<dyn AnswerGrant> {
        self.0.clone()
    }
}

impl AnswerGrant for Granted {
    fn grow(&self, bytes: u64) -> Result<(), Error> {
        if bytes > self.bytes_max {
            return Err(Error::Overloaded(format!("no memory for {bytes} bytes")));
        }
        self.most.fetch_max(bytes, Relaxed);
        Ok(())
    }
}

impl Session {
    async fn rows(&self, plan: &std::rc::Rc<dyn Plan>, request: &Request<'_>) -> Result<ResultRows, Error> {
        match self.0.execute(plan, request).outcome(&*self.0).await? {
            StatementOutcome::Rows(rows) => Ok(rows),
            other => panic!("rows were expected: {other:?}"),
        }
    }

    /// Returns the cells of all pages, and the sizes of the pages in bytes.
    async fn pages(&self, text: &str, room: &Room) -> (Vec<Vec<Vec<u8>>>, Vec<usize>) {
        let plan = self.prepare(text).expect(text);
        let (mut all, mut sizes, mut state) = (Vec::new(), Vec::new(), None::<Vec<u8>>);
        loop {
            let room = Some(room as &dyn AnswerMemory);
            let request =
                Request { page_size: Some(100), paging_state: state.as_deref(), room, ..Request::EMPTY };
            let rows = self.rows(&plan, &request).await.expect(text);
            all.extend(owned(&rows));
            sizes.push(rows.cells.len());
            state = rows.paging_state;
            if state.is_none() {
                return (all, sizes);
            }
        }
    }
}

/// Returns the cells of rows.
fn owned(rows: &ResultRows) -> Vec<Vec<Vec<u8>>> {
    let cells = |row: Vec<Option<&[u8]>>| row.iter().map(|cell| cell.unwrap_or(b"null").to_vec()).collect();
    rows.decoded().into_iter().map(cells).collect()
}

/// Returns `SELECT v, v, … FROM t…`.
fn repeated(shown: &str, times: usize, rest: &str) -> String {
    format!("SELECT {} FROM {rest}", vec![shown; times].join(", "))
}

const TOO_LARGE: &str = "expected at most 67108864 bytes in one row of an answer, got ";

#[test]
fn value_shown_many_times_is_refused_by_its_bytes() {
    let server = Server::with(&[
        "CREATE TABLE t (k int, c int, s blob static, v blob, m map<int, blob>, f frozen<map<int, blob>>, \
         PRIMARY KEY (k, c))",
    ]);
    server.run(async |session| {
        session.limit(Guardrail::UnpagedBytes, 0);
        let mib = vec![7; MIB];
        for c in 0..3 {
            let text = format!(
                "INSERT INTO t (k, c, s, v, m, f) VALUES (1, {c}, ?, ?, {{1: ?, 2: 0x00}}, {{1: ?}})"
            );
            session.run(&text, &[&mib, &mib, &mib, &mib]).await.expect("written");
        }
        let list = ints(3);
        for shown in ["v", "v AS w", "s", "m", "m[1]", "f", "f[1]", "m[1], f[1]", "s, v"] {
            for rest in [
                "t WHERE k = 1 AND c = 1",
                "t WHERE k = 1",
                "t WHERE k = 1 AND c >= 1 LIMIT 1",
                "t",
                "t WHERE k IN ?",
                "t WHERE k IN ? ORDER BY c DESC",
                "t WHERE c = 1 ALLOW FILTERING",
            ] {
                // Static columns alone are not selected by row.
                if shown == "s" && (rest.contains("c = 1") || rest.contains("c >= 1")) {
                    continue;
                }
                let values: &[&[u8]] = if rest.contains('?') { &[&list] } else { &[] };
                let text = repeated(shown, 70, rest);
                let error = session.refused(&text, values).await;
                assert!(error.starts_with(TOO_LARGE), "{shown}, {rest}: {error}");
                let plan = session.prepare(&text).expect("prepares");
                let bound: Vec<_> = values.iter().map(|value| engine::Value::Bytes(value)).collect();
                let request = Request { values: &bound, page_size: Some(1), ..Request::EMPTY };
                if !rest.contains("ORDER") {
                    let error = session.rows(&plan, &request).await.expect_err("refused").to_string();
                    assert!(error.starts_with(TOO_LARGE), "{shown}, {rest}: {error}");
                }
                let rows = session.run(&repeated(shown, 2, rest), values).await;
                assert!(rows.is_ok_and(|rows| rows >= 1), "{shown}, {rest}");
            }
        }
    });
    server.end_with_bounded_polls();
}

#[test]
fn point_read_of_a_large_row_is_charged() {
    let server = Server::with(&["CREATE TABLE t (k int PRIMARY KEY, v blob)"]);
    server.run(async |session| {
        session.run("INSERT INTO t (k, v) VALUES (1, ?)", &[&vec![7; MIB]]).await.expect("written");
        let plan = session.prepare(&repeated("v", 20, "t WHERE k = 1")).expect("prepares");
        for (bytes_max, is_read) in [(MIB, false), (19 * MIB, false), (21 * MIB, true)] {
            let room = Room::of(bytes_max);
            let request = Request { room: Some(&room), page_size: Some(1), ..Request::EMPTY };
            let rows = session.rows(&plan, &request).await;
            match rows {
                Ok(rows) => assert_eq!((is_read, rows.cells.len()), (true, 20 * (MIB + 4))),
                Err(error) => assert!(!is_read && error.to_string().starts_with("no memory"), "{error}"),
            }
            let most = room.0.most.load(Relaxed);
            assert_eq!(most >= 20 << 20, is_read, "{most} bytes were granted");
        }
    });
    server.end_with_bounded_polls();
}

#[test]
fn value_of_many_megabytes_is_copied_in_bounded_polls() {
    let server = Server::with(&["CREATE TABLE t (k int PRIMARY KEY, v blob)"]);
    server.run(async |session| {
        let value: Vec<u8> = (0..12 * MIB).map(|n| (n / 1000) as u8).collect();
        session.run("INSERT INTO t (k, v) VALUES (1, ?)", &[&value]).await.expect("written");
        for text in ["SELECT v FROM t WHERE k = 1", "SELECT v, v FROM t"] {
            let plan = session.prepare(text).expect(text);
            let rows = session.rows(&plan, &Request::EMPTY).await.expect(text);
            assert!(owned(&rows)[0].iter().all(|cell| *cell == value), "{text}");
        }
    });
    server.end_with_bounded_polls();
}

async fn with_statics(session: &Session) {
    for k in 0..4 {
        let statics = vec![k as u8; MIB / 2];
        let text = format!("UPDATE t SET s = ? WHERE k = {k}");
        session.run(&text, &[&statics]).await.expect("written");
        for c in 0..(3 * k) {
            let text = format!("UPDATE t SET v = ? WHERE k = {k} AND c = {c}");
            let value = vec![c as u8; if c % 3 == 0 { 700_000 } else { 10 }];
            session.run(&text, &[&value]).await.expect("written");
        }
    }
}

#[test]
fn rows_with_large_statics_are_paged_by_bytes_and_resume() {
    for cores in [1, 2] {
        let server =
            Server::on(cores, &["CREATE TABLE t (k int, c int, s blob static, v blob, PRIMARY KEY (k, c))"]);
        server.run(async |session| {
            with_statics(&session).await;
            for text in [
                "SELECT k, c, s, v FROM t",
                "SELECT k, c, s FROM t",
                "SELECT k, c, s, s, s, v FROM t",
                "SELECT * FROM t WHERE k = 3",
                "SELECT * FROM t WHERE k = 3 ORDER BY c DESC",
                "SELECT * FROM t WHERE k IN (0, 1, 2, 3)",
                "SELECT DISTINCT k, s FROM t",
                "SELECT c, s FROM t PER PARTITION LIMIT 4",
                "SELECT c, s, v FROM t LIMIT 9",
            ] {
                let plan = session.prepare(text).expect(text);
                let whole = session.rows(&plan, &Request::EMPTY).await.expect(text);
                let room = Room::of(usize::MAX);
                let (rows, sizes) = session.pages(text, &room).await;
                let expected = owned(&whole);
                assert!(rows == expected, "{text}: {} and {} rows", rows.len(), expected.len());
                let largest = expected.iter().map(|row| row.iter().map(|cell| 4 + cell.len()).sum::<usize>());
                let bound = largest.max().unwrap_or(0).max(MIB);
                assert!(sizes.iter().all(|size| *size <= bound), "{text}: pages of {sizes:?} bytes");
                let most = room.0.most.load(Relaxed) as usize;
                assert!(most >= *sizes.iter().max().expect("a page"), "{text}: {most} bytes are charged");
            }
        });
        server.end_with_bounded_polls();
    }
}

/// An account that is nearly full makes pages short.
#[test]
fn page_ends_where_its_memory_ends() {
    let server = Server::with(&["CREATE TABLE t (k int, c int, v blob, PRIMARY KEY (k, c))"]);
    server.run(async |session| {
        for c in 0..10 {
            let text = format!("INSERT INTO t (k, c, v) VALUES (1, {c}, ?)");
            session.run(&text, &[&vec![7; 200_000]]).await.expect("written");
        }
        let room = Room::of(600_000);
        let (rows, sizes) = session.pages("SELECT c, v FROM t WHERE k = 1", &room).await;
        assert_eq!((rows.len(), sizes.len()), (10, 5), "{sizes:?}");
    });
    server.end_with_bounded_polls();
}

#[test]
fn answer_without_pages_ends_at_its_bound() {
    let server = Server::with(&["CREATE TABLE t (k int, c int, s blob static, v int, PRIMARY KEY (k, c))"]);
    server.run(async |session| {
        let rows = ints(1_000);
        session.run("UPDATE t SET v = 1 WHERE k = 1 AND c IN ?", &[&rows]).await.expect("written");
        session.run("UPDATE t SET s = ? WHERE k = 1", &[&vec![7; MIB]]).await.expect("written");
        let text = "SELECT c, s FROM t WHERE k = 1";
        let expected = "Guardrail unpaged_bytes violated: expected at most 134217728 bytes";
        let error = session.refused(text, &[]).await;
        assert!(error.starts_with(expected), "{error}");
        session.limit(Guardrail::UnpagedBytes, 0);
        let expected = "expected at most 251658240 bytes in one answer, got ";
        for text in [text, "SELECT c, s FROM t", "SELECT c, s FROM t WHERE k IN (1, 2) ORDER BY c DESC"] {
            let error = session.refused(text, &[]).await;
            assert!(error.starts_with(expected), "{text}: {error}");
            let plan = session.prepare(text).expect("prepares");
            let room = Room::of(8 * MIB);
            let request = Request { room: Some(&room), ..Request::EMPTY };
            let error = session.rows(&plan, &request).await.expect_err("too large").to_string();
            assert!(error.starts_with("no memory for "), "{text}: {error}");
        }
    });
    server.end_with_bounded_polls();
}

#[test]
fn refused_conditions_show_a_bounded_answer() {
    let server = Server::with(&["CREATE TABLE t (k int, c int, s blob static, v int, PRIMARY KEY (k, c))"]);
    server.run(async |session| {
        let rows = ints(300);
        session.run("UPDATE t SET v = 1 WHERE k = 1 AND c IN ?", &[&rows]).await.expect("written");
        session.run("UPDATE t SET s = ? WHERE k = 1", &[&vec![7; MIB]]).await.expect("written");
        let one = |c: u32, tests: &str| format!("UPDATE t SET v = 2 WHERE k = 1 AND c = {c} IF {tests};");
        let batch = |count: u32, tests: &str| {
            let parts: Vec<String> = (0..count).map(|c| one(c, tests)).collect();
            format!("BEGIN BATCH {} APPLY BATCH", parts.join(" "))
        };
        let expected = "expected at most 251658240 bytes in one answer, got ";
        for tests in ["v = 7 AND s = 0x00", "s = 0x00 AND v = 7"] {
            let error = session.refused(&batch(300, tests), &[]).await;
            assert!(error.starts_with(expected), "{error}");
            let plan = session.prepare(&batch(20, tests)).expect("prepares");
            let room = Room::of(8 * MIB);
            let request = Request { room: Some(&room), ..Request::EMPTY };
            let error = session.rows(&plan, &request).await.expect_err("too large").to_string();
            assert!(error.starts_with("no memory for "), "{error}");
            let room = Room::of(64 * MIB);
            let request = Request { room: Some(&room), ..Request::EMPTY };
            let rows = session.rows(&plan, &request).await.expect("fits");
            assert_eq!(rows.count, 20);
            assert!(room.0.most.load(Relaxed) as usize >= rows.cells.len());
        }
        let exists = "INSERT INTO t (k, c, v) VALUES (1, 1, 1) IF NOT EXISTS";
        assert_eq!(session.run(exists, &[]).await, Ok(1));
    });
    server.end_with_bounded_polls();
}

/// A batch of short conditions reads a large row for each.
#[test]
fn rows_read_for_conditions_are_charged() {
    let server = Server::with(&["CREATE TABLE t (k int, c int, b blob, v int, PRIMARY KEY (k, c))"]);
    server.run(async |session| {
        for c in 0..20 {
            let text = format!("INSERT INTO t (k, c, b, v) VALUES (1, {c}, ?, 1)");
            session.run(&text, &[&vec![7; MIB]]).await.expect("written");
        }
        let parts: Vec<String> =
            (0..20).map(|c| format!("UPDATE t SET v = 2 WHERE k = 1 AND c = {c} IF v = 7;")).collect();
        let plan =
            session.prepare(&format!("BEGIN BATCH {} APPLY BATCH", parts.join(" "))).expect("prepares");
        for (bytes_max, is_read) in [(10 * MIB, false), (22 * MIB, true)] {
            let room = Room::of(bytes_max);
            let request = Request { room: Some(&room), ..Request::EMPTY };
            let rows = session.rows(&plan, &request).await;
            assert_eq!(rows.is_ok(), is_read, "{bytes_max}: {rows:?}");
        }
    });
    server.end_with_bounded_polls();
}

#[test]
fn metadata_is_bounded_before_it_is_built() {
    let server = Server::with(&[]);
    server.run(async |session| {
        let fields: Vec<String> =
            (0..1_000).map(|n| format!("field_of_a_wide_user_type_{n:0100} int")).collect();
        session.run(&format!("CREATE TYPE wide ({})", fields.join(", ")), &[]).await.expect("created");
        let table = "CREATE TABLE t (k int PRIMARY KEY, u frozen<wide>, m map<int, frozen<wide>>)";
        session.run(table, &[]).await.expect("created");
        let name = "n".repeat(60_000);
        session.run(&format!("CREATE TABLE n (k int PRIMARY KEY, \"{name}\" int)"), &[]).await.expect("created");
        let expected = "expected at most 4194304 bytes of names and types of the columns and bind markers of a \
                        statement, got ";
        let markers = |count: usize| vec!["?"; count].join(", ");
        for text in [
            repeated("u", 100, "t"),
            repeated("u AS a", 100, "t"),
            repeated("m", 100, "t"),
            repeated("m[1]", 100, "t"),
            format!("SELECT k FROM t WHERE u IN ({}) ALLOW FILTERING", markers(100)),
            format!("UPDATE t SET u = ? WHERE k = 1 IF u IN ({})", markers(100)),
            format!("SELECT k FROM n WHERE \"{name}\" IN ({}) ALLOW FILTERING", markers(1_000)),
            format!("INSERT INTO t (k, m) VALUES (1, {{{}}})", vec!["?: ?"; 100].join(", ")),
        ] {
            let start: String = text.chars().take(60).collect();
            let error = session.prepare(&text).map(drop).expect_err(&start).to_string();
            assert!(error.starts_with(expected), "{start}: {error}");
        }
        for text in ["SELECT * FROM t", "SELECT u, m FROM t", "INSERT INTO t (k, u) VALUES (?, ?)", "SELECT * FROM n"] {
            let plan = session.prepare(text).expect(text);
            assert!((1..=4 << 20).contains(&plan.metadata_bytes()), "{text}");
        }
    });
    server.end_with_bounded_polls();
}

#[test]
fn columns_of_virtual_tables_are_shown_within_bounds() {
    let server = Server::with(&[]);
    server.run(async |session| {
        session.limit(Guardrail::CommentBytes, 0);
        let comment = "c".repeat(MIB);
        let text = format!("CREATE TABLE t (k int PRIMARY KEY) WITH comment = '{comment}'");
        session.run(&text, &[]).await.expect("created");
        for table in ["system_schema.tables"] {
            let error = session.refused(&repeated("comment", 70, table), &[]).await;
            assert!(error.starts_with(TOO_LARGE), "{error}");
            let count = session.run(&repeated("comment", 20, table), &[]).await;
            assert!(count.is_ok_and(|count| count > 10), "{table}");
            let room = Room::of(8 * MIB);
            let plan = session.prepare(&repeated("comment", 20, table)).expect("prepares");
            for page_size in [None, Some(100)] {
                let request = Request { room: Some(&room), page_size, ..Request::EMPTY };
                let error = session.rows(&plan, &request).await.expect_err("too large").to_string();
                assert!(error.starts_with("no memory for "), "{error}");
            }
        }
    });
    server.end_with_bounded_polls();
}
