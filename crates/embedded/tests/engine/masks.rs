//! Masked columns as roles with and without UNMASK and SELECT_MASKED see them, as in Cassandra 5.0.

use std::sync::Arc;

use embedded::Embedded;
use engine::{About, BatchKind, Engine, Error, ParsedTree, Request, StatementOutcome, Viewer};
use lanes::Group;
use testkit::{Setup, texts};

/// A role: `clear` has UNMASK, `conditional` SELECT_MASKED.
#[derive(Clone, Copy, Debug)]
struct Role {
    clear: bool,
    conditional: bool,
}

impl Viewer for Role {
    fn sees(&self, about: About<'_>) -> bool {
        match about {
            About::Unmasked("ks", ..) => self.clear,
            About::MaskedConditions("ks", ..) => self.clear || self.conditional,
            _ => true,
        }
    }

    fn role(&self) -> &str {
        "ann"
    }
}

const MASKED: Role = Role { clear: false, conditional: false };
const CONDITIONAL: Role = Role { clear: false, conditional: true };
const CLEAR: Role = Role { clear: true, conditional: false };

const SETUP: &[&str] = &[
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE ks.u (f int, g text)",
    "CREATE TABLE ks.t (k int, c int, s text static MASKED WITH mask_replace('hidden'), v text MASKED WITH \
     mask_inner(1, null), n int MASKED WITH mask_null(), d int MASKED WITH DEFAULT, o text, \
     m map<text, int> MASKED WITH DEFAULT, w u MASKED WITH DEFAULT, b blob MASKED WITH mask_hash('MD5'), \
     PRIMARY KEY (k, c))",
    "INSERT INTO ks.t (k, c, s, v, n, d, o, m, w, b) VALUES (1, 1, 'secret', 'abc', 5, 6, 'open', {'a': 1}, \
     {f: 1, g: 'x'}, 0x01) USING TIMESTAMP 7",
    "INSERT INTO ks.t (k, c, v) VALUES (1, 2, 'xyz')",
    "INSERT INTO ks.t (k, c, d) VALUES (2, 1, 9)",
    "CREATE TABLE ks.p (a int, b int, c int, v int, PRIMARY KEY ((a, b), c))",
    "INSERT INTO ks.p (a, b, c, v) VALUES (1, 2, 3, 4)",
    "INSERT INTO ks.p (a, b, c, v) VALUES (1, 2, 5, 6)",
    "ALTER TABLE ks.p ALTER b MASKED WITH mask_replace(-1)",
    "ALTER TABLE ks.p ALTER c MASKED WITH mask_replace(-7)",
];

async fn execute(
    engine: &Embedded,
    text: &str,
    viewer: Option<&Arc<dyn Viewer>>,
    page_size: Option<u32>,
) -> Result<String, Error> {
    let statement = ParsedTree::parse(text).map_err(|error| Error::Syntax(error.to_string()))?;
    let plan = engine.prepare(Arc::new(statement), Some("ks"))?;
    let (mut all, mut state): (Vec<String>, Option<Vec<u8>>) = (Vec::new(), None);
    loop {
        let request = Request { viewer, page_size, paging_state: state.as_deref(), ..Request::EMPTY };
        match engine.execute(&plan, &request).outcome(engine).await? {
            StatementOutcome::Rows(rows) => {
                all.extend(texts(&rows).iter().map(|row| row.join(" | ")));
                state = rows.paging_state;
                if state.is_none() {
                    return Ok(all.join("; "));
                }
            }
            _ => return Ok("done".to_owned()),
        }
    }
}

/// Runs statements over the rows above, each by a role, on one core and on three, unpaged and in
/// pages of one row.
fn check(statements: &[(Role, &'static str, &'static str)]) {
    for (cores, page) in [(1, None), (3, None), (3, Some(1))] {
        let statements = statements.to_vec();
        let lanes = Setup::new(cores).start();
        lanes.block_on(0, Group::DEFAULT, move || async move {
            let engine = testkit::engine();
            for text in SETUP {
                run_as_server(&engine, text).await;
            }
            for (role, text, expected) in statements {
                let viewer: Arc<dyn Viewer> = Arc::new(role);
                let answer = match execute(&engine, text, Some(&viewer), page).await {
                    Ok(answer) => answer,
                    Err(error) => format!("! {error}"),
                };
                assert_eq!(answer, expected, "{text}, {role:?}, pages of {page:?}");
            }
        });
        lanes.shutdown();
    }
}

async fn run_as_server(engine: &Embedded, text: &str) {
    let statement = Arc::new(ParsedTree::parse(text).expect(text));
    let plan = engine.prepare(statement, Some("ks")).expect(text);
    engine.execute(&plan, &Request::EMPTY).outcome(engine).await.expect(text);
}

#[test]
fn role_without_unmask_sees_masked_values() {
    check(&[
        (
            MASKED,
            "SELECT * FROM ks.t WHERE k = 1 AND c = 1",
            "1 | 1 | 'hidden' | 0x55a54008ad1ba589aa210d2629c1df41 | 0 | {} | null | 'open' | 'a**' | \
             {f: 0, g: '****'}",
        ),
        (
            CLEAR,
            "SELECT * FROM ks.t WHERE k = 1 AND c = 1",
            "1 | 1 | 'secret' | 0x01 | 6 | {'a': 1} | 5 | 'open' | 'abc' | {f: 1, g: 'x'}",
        ),
        (MASKED, "SELECT c, v, d FROM ks.t WHERE k = 1", "1 | 'a**' | 0; 2 | 'x**' | 0"),
        (
            MASKED,
            "SELECT JSON k, v, n, s FROM ks.t WHERE k = 2",
            "'{\"k\": 2, \"v\": null, \"n\": null, \"s\": \"hidden\"}'",
        ),
        (MASKED, "SELECT DISTINCT k, s FROM ks.t WHERE k IN (1, 2)", "1 | 'hidden'; 2 | 'hidden'"),
        (MASKED, "SELECT o FROM ks.t WHERE k = 1 AND c = 1", "'open'"),
        (CONDITIONAL, "SELECT v FROM ks.t WHERE k = 1 AND c = 1", "'a**'"),
    ]);
}

#[test]
fn functions_and_aggregates_see_masked_values() {
    check(&[
        (MASKED, "SELECT max(v), count(n), count(d), sum(d) FROM ks.t WHERE k = 1", "'x**' | 0 | 2 | 0"),
        (CLEAR, "SELECT max(v), count(n), count(d), sum(d) FROM ks.t WHERE k = 1", "'xyz' | 1 | 1 | 6"),
        (MASKED, "SELECT d + 1, cast(d as text), (int) d FROM ks.t WHERE k = 1 AND c = 1", "1 | '0' | 0"),
        (
            MASKED,
            "SELECT m['a'], m['a'..], w.f, w.g, map_keys(m) FROM ks.t WHERE k = 1 AND c = 1",
            "null | null | 0 | '****' | {}",
        ),
        (CLEAR, "SELECT m['a'], w.f FROM ks.t WHERE k = 1 AND c = 1", "1 | 1"),
        (
            MASKED,
            "SELECT writetime(v), ttl(v), writetime(w.f) FROM ks.t WHERE k = 1 AND c = 1",
            "7 | null | 7",
        ),
        (MASKED, "SELECT k, v FROM ks.t WHERE k = 1 GROUP BY k", "1 | 'a**'"),
        (MASKED, "SELECT k, c, count(*) FROM ks.t WHERE k = 1 GROUP BY k, c", "1 | 1 | 1; 1 | 2 | 1"),
    ]);
}

#[test]
fn keys_are_masked_and_ordered_by_their_stored_values() {
    check(&[
        (MASKED, "SELECT * FROM ks.p", "1 | -1 | -7 | 4; 1 | -1 | -7 | 6"),
        (CLEAR, "SELECT * FROM ks.p", "1 | 2 | 3 | 4; 1 | 2 | 5 | 6"),
        (CONDITIONAL, "SELECT c, v FROM ks.p WHERE a = 1 AND b = 2 ORDER BY c DESC", "-7 | 6; -7 | 4"),
        (MASKED, "SELECT a, b, count(*) FROM ks.p GROUP BY a, b", "1 | -1 | 2"),
    ]);
    // The token of the key as it is shown.
    let lanes = Setup::new(1).start();
    lanes.block_on(0, Group::DEFAULT, move || async move {
        let engine = testkit::engine();
        for text in SETUP {
            run_as_server(&engine, text).await;
        }
        let viewer: Arc<dyn Viewer> = Arc::new(MASKED);
        let query = "SELECT DISTINCT token(a, b), token(1, -1), token(1, 2) FROM ks.p";
        let answer = execute(&engine, query, Some(&viewer), None).await.expect("the role may read");
        let tokens: Vec<&str> = answer.split(" | ").collect();
        assert_eq!(tokens[0], tokens[1]);
        assert_ne!(tokens[0], tokens[2]);
    });
    lanes.shutdown();
}

#[test]
fn masked_columns_in_a_where_need_select_masked() {
    const REFUSED: &str = "! User ann has no UNMASK nor SELECT_MASKED permission on table ks.p, cannot query masked \
                           columns [c]";
    check(&[
        (MASKED, "SELECT v FROM ks.p WHERE c = 3 ALLOW FILTERING", REFUSED),
        (MASKED, "SELECT v FROM ks.p WHERE c > 3 AND v = 4 ALLOW FILTERING", REFUSED),
        (MASKED, "SELECT v FROM ks.p WHERE (c) IN ((3), (4)) ALLOW FILTERING", REFUSED),
        (
            MASKED,
            "SELECT v FROM ks.p WHERE token(a, b) > 0",
            "! User ann has no UNMASK nor SELECT_MASKED permission on table ks.p, cannot query masked columns [b]",
        ),
        (
            MASKED,
            "SELECT v FROM ks.p WHERE a = 1 AND b = 2 AND c = 3",
            "! User ann has no UNMASK nor SELECT_MASKED permission on table ks.p, cannot query masked columns [b, c]",
        ),
        (CONDITIONAL, "SELECT c, v FROM ks.p WHERE a = 1 AND b = 2 AND c = 3", "-7 | 4"),
        (CLEAR, "SELECT c, v FROM ks.p WHERE c = 3 ALLOW FILTERING", "3 | 4"),
        (MASKED, "SELECT b, v FROM ks.p WHERE v = 4 ALLOW FILTERING", "-1 | 4"),
    ]);
}

#[test]
fn failed_conditions_show_masked_values() {
    check(&[
        (
            MASKED,
            "INSERT INTO ks.p (a, b, c, v) VALUES (1, 2, 3, 9) IF NOT EXISTS",
            "false | 1 | -1 | -7 | 4",
        ),
        // As in Cassandra, whatever the role may see.
        (CLEAR, "INSERT INTO ks.p (a, b, c, v) VALUES (1, 2, 3, 9) IF NOT EXISTS", "false | 1 | -1 | -7 | 4"),
        (MASKED, "UPDATE ks.p SET v = 8 WHERE a = 1 AND b = 2 AND c = 3 IF v = 5", "false | 4"),
        (
            MASKED,
            "UPDATE ks.t SET o = 'x' WHERE k = 1 AND c = 1 IF v = 'abc'",
            "! User ann has no UNMASK nor SELECT_MASKED permission on table ks.t, cannot query masked columns [v]",
        ),
        (CONDITIONAL, "UPDATE ks.t SET o = 'x' WHERE k = 1 AND c = 1 IF v = 'no'", "false | 'a**'"),
        (CLEAR, "UPDATE ks.t SET o = 'x' WHERE k = 1 AND c = 1 IF v = 'no'", "false | 'a**'"),
        (MASKED, "INSERT INTO ks.t (k, c, v) VALUES (3, 3, 'new')", "done"),
        (CLEAR, "SELECT v FROM ks.t WHERE k = 3", "'new'"),
    ]);
}

#[test]
fn batch_with_a_masked_condition_is_refused() {
    let lanes = Setup::new(1).start();
    lanes.block_on(0, Group::DEFAULT, move || async move {
        let engine = testkit::engine();
        for text in SETUP {
            run_as_server(&engine, text).await;
        }
        let viewer: Arc<dyn Viewer> = Arc::new(MASKED);
        let parse = |text| Arc::new(ParsedTree::parse(text).expect("it is CQL"));
        let update = parse("UPDATE ks.t SET o = 'x' WHERE k = 1 AND c = 1 IF v = 'abc'");
        let plan = engine.prepare(update, None).expect("it is bound");
        let request = Request { viewer: Some(&viewer), ..Request::EMPTY };
        let outcome =
            engine.execute_batch(BatchKind::Logged, &[(plan, &[])], &request).outcome(&*engine).await;
        assert!(matches!(outcome, Err(Error::Unauthorized(_))), "a prepared batch");
        let batch = "BEGIN BATCH UPDATE ks.t SET o = 'x' WHERE k = 1 AND c = 1 IF d = 6 APPLY BATCH";
        let plan = engine.prepare(parse(batch), None).expect("it is bound");
        let outcome = engine.execute(&plan, &request).outcome(&*engine).await;
        assert!(matches!(outcome, Err(Error::Unauthorized(_))), "a textual batch");
    });
    lanes.shutdown();
}
