//! Nearest vectors over restarts, and compared with a model while rows change.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use embedded::Embedded;
use engine::{Engine, ParsedTree, Request, StatementOutcome, Value};
use lanes::Group;
use testkit::{Folder, KEYSPACE, Random, Setup, close_engines, engine, texts};

const DIMENSION: usize = 8;

pub(crate) async fn run(engine: &Rc<Embedded>, text: &str, values: &[Value<'_>]) -> Vec<Vec<String>> {
    let statement = ParsedTree::parse(text).expect(text);
    let plan = engine.prepare(Arc::new(statement), Some("ks")).expect(text);
    let request = Request { values, ..Request::EMPTY };
    match engine.execute(&plan, &request).outcome(&**engine).await.expect(text) {
        StatementOutcome::Rows(rows) => texts(&rows),
        _ => Vec::new(),
    }
}

/// Returns the sum of a metric over all cores.
pub(crate) async fn metric(name: &'static str) -> u64 {
    let mut sum = 0.0;
    for core in 0..lanes::cores() {
        let own = move || async move {
            let all = engine().metrics();
            all.iter().find(|measure| measure.metric.name == name).expect(name).value
        };
        sum += lanes::call(core, own).await;
    }
    sum as u64
}

/// Waits until the graphs have all rows.
pub(crate) async fn graphs_are_made() {
    while metric("fairlane_vector_graphs_ready").await < metric("fairlane_vector_graphs").await
        || metric("fairlane_vector_queue_rows").await > 0
    {
        lanes::time::sleep(Duration::from_millis(1)).await;
    }
}

fn vector(random: &mut Random) -> Vec<f32> {
    (0..DIMENSION).map(|_| (random.fraction() * 4.0 - 2.0) as f32).collect()
}

pub(crate) fn serialized(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_be_bytes()).collect()
}

pub(crate) fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Rows as they should be: their vector, and the value of `n`.
type Model = BTreeMap<(i32, i32), (Option<Vec<f32>>, i32)>;

/// Changes a random row, or several.
async fn change(engine: &Rc<Embedded>, random: &mut Random, model: &mut Model) {
    let (k, c, n) = (random.below(40) as i32, random.below(20) as i32, random.below(5) as i32);
    let (key, row, number) = (k.to_be_bytes(), c.to_be_bytes(), n.to_be_bytes());
    match random.below(20) {
        0 => {
            run(engine, "DELETE FROM t WHERE k = ?", &[Value::Bytes(&key)]).await;
            model.retain(|(own, _), _| *own != k);
        }
        1 => {
            let values = [Value::Bytes(&key), Value::Bytes(&row)];
            run(engine, "DELETE FROM t WHERE k = ? AND c > ?", &values).await;
            model.retain(|(own, at), _| *own != k || *at <= c);
        }
        2 | 3 => {
            let values = [Value::Bytes(&key), Value::Bytes(&row)];
            run(engine, "DELETE FROM t WHERE k = ? AND c = ?", &values).await;
            model.remove(&(k, c));
        }
        4 if model.contains_key(&(k, c)) => {
            let values = [Value::Bytes(&key), Value::Bytes(&row)];
            run(engine, "UPDATE t SET v = null WHERE k = ? AND c = ?", &values).await;
            model.get_mut(&(k, c)).expect("it is there").0 = None;
        }
        _ => {
            let new = vector(random);
            let bytes = serialized(&new);
            let values =
                [Value::Bytes(&key), Value::Bytes(&row), Value::Bytes(&number), Value::Bytes(&bytes)];
            run(engine, "INSERT INTO t (k, c, n, v) VALUES (?, ?, ?, ?)", &values).await;
            model.insert((k, c), (Some(new), n));
        }
    }
}

/// Compares a query with the model. Returns the rows that are missing: a graph may miss some.
async fn compare(engine: &Rc<Embedded>, random: &mut Random, model: &Model) -> usize {
    let (query, limit) = (vector(random), 1 + random.index(30));
    let (bytes, n) = (serialized(&query), random.below(5) as i32);
    let is_filtered = random.one_in(3);
    let filter = if is_filtered { format!("WHERE n = {n}") } else { String::new() };
    let text = format!("SELECT k, c, v FROM t {filter} ORDER BY v ANN OF ? LIMIT {limit}");
    let found = run(engine, &text, &[Value::Bytes(&bytes)]).await;
    let fits = |number: i32| !is_filtered || number == n;
    let rows = model.iter().filter(|(_, (_, number))| fits(*number));
    let mut expected: Vec<(f32, (i32, i32))> =
        rows.filter_map(|(place, (vector, _))| Some((distance(vector.as_ref()?, &query), *place))).collect();
    expected.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert_eq!(found.len(), limit.min(expected.len()), "{text}");
    let mut last = 0.0;
    for row in &found {
        let place = (row[0].parse().unwrap(), row[1].parse().unwrap());
        let (distance, _) = expected.iter().find(|(_, own)| *own == place).unwrap_or_else(|| {
            panic!("{text}: {row:?} was deleted or overwritten, or does not pass the filter")
        });
        assert!(*distance >= last - 1e-4, "{text}: {row:?} is out of order");
        last = *distance;
    }
    let furthest = expected[..found.len()].last().map_or(0.0, |(distance, _)| *distance);
    usize::from(last > furthest + 1e-4)
}

#[test]
fn nearest_rows_are_those_of_a_model() {
    for cores in [1, 3] {
        let lanes = Setup::new(cores).start();
        lanes.block_on(0, Group::CONTROL, move || async move {
            let engine = engine();
            run(&engine, KEYSPACE, &[]).await;
            let table = format!(
                "CREATE TABLE t (k int, c int, n int, v vector<float, {DIMENSION}>, PRIMARY KEY (k, c))"
            );
            run(&engine, &table, &[]).await;
            let (mut random, mut model) = (Random::new(47 + cores as u64), Model::new());
            for _ in 0..300 {
                change(&engine, &mut random, &mut model).await;
            }
            run(&engine, "CREATE INDEX ON t (n) USING 'sai'", &[]).await;
            let create =
                "CREATE INDEX ON t (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}";
            run(&engine, create, &[]).await;
            let mut missed = 0;
            for round in 0..60 {
                for _ in 0..random.index(40) {
                    change(&engine, &mut random, &mut model).await;
                }
                // Half of the rounds search while vectors wait for the graph.
                if round % 2 == 0 {
                    graphs_are_made().await;
                }
                missed += compare(&engine, &mut random, &model).await;
            }
            assert!(missed <= 2, "{missed} of 60 answers missed a near row");
            assert!(metric("fairlane_vector_searches_total").await > 20, "graphs are used");
        });
        lanes.shutdown();
    }
}

/// Opens the folder and runs the statements. Returns the keys that the last one finds, before its
/// graph is made and afterwards.
fn session(dir: &Path, cores: usize, closes: bool, statements: &'static [&'static str]) -> [String; 2] {
    let lanes = Setup::new(cores).dir(Some(dir)).start();
    let answer = lanes.block_on(0, Group::CONTROL, move || async move {
        let engine = engine();
        let shown = |rows: Vec<Vec<String>>| rows.concat().join(" ");
        let (last, others) = statements.split_last().expect("a query");
        for text in others {
            run(&engine, text, &[]).await;
        }
        let before = shown(run(&engine, last, &[]).await);
        graphs_are_made().await;
        let searches = metric("fairlane_vector_searches_total").await;
        let after = shown(run(&engine, last, &[]).await);
        assert!(metric("fairlane_vector_searches_total").await > searches, "the graph is used");
        [before, after]
    });
    if closes {
        close_engines(&lanes);
    }
    lanes.shutdown();
    answer
}

#[test]
fn graphs_are_made_anew_after_a_start_and_a_crash() {
    let dir = Folder::new("nearest-restart");
    let both = |keys: &str| [keys.to_owned(), keys.to_owned()];
    let first = &[
        KEYSPACE,
        "CREATE TABLE t (k int PRIMARY KEY, v vector<float, 2>)",
        "CREATE INDEX ON t (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}",
        "INSERT INTO t (k, v) VALUES (0, [0, 0])",
        "INSERT INTO t (k, v) VALUES (1, [1, 1])",
        "INSERT INTO t (k, v) VALUES (2, [2, 2])",
        "INSERT INTO t (k, v) VALUES (3, [3, 3])",
        "UPDATE t SET v = [9, 9] WHERE k = 1",
        "SELECT k FROM t ORDER BY v ANN OF [0, 0.1] LIMIT 3",
    ];
    assert_eq!(session(&dir, 2, false, first), both("0 2 3"));
    let query = &["SELECT k FROM t ORDER BY v ANN OF [0, 0.1] LIMIT 3"];
    assert_eq!(session(&dir, 2, true, query), both("0 2 3"));
    for cores in [3, 1] {
        assert_eq!(session(&dir, cores, true, query), both("0 2 3"), "{cores} cores");
    }
    let more =
        &["DELETE FROM t WHERE k = 2", "FLUSH t", "SELECT k FROM t ORDER BY v ANN OF [0, 0.1] LIMIT 5"];
    assert_eq!(session(&dir, 2, false, more), both("0 3 1"));
    assert_eq!(session(&dir, 2, true, query), both("0 3 1"));
}

#[test]
fn vectors_that_expire_leave_the_graph() {
    let lanes = Setup::new(1).start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        for text in [
            KEYSPACE,
            "CREATE TABLE t (k int PRIMARY KEY, v vector<float, 2>)",
            "CREATE INDEX ON t (v) USING 'sai'",
            "INSERT INTO t (k, v) VALUES (0, [1, 0])",
            "INSERT INTO t (k, v) VALUES (1, [1, 0.1]) USING TTL 100",
        ] {
            run(&engine, text, &[]).await;
        }
        graphs_are_made().await;
        let text = "SELECT k FROM t ORDER BY v ANN OF [1, 0.1] LIMIT 2";
        assert_eq!(run(&engine, text, &[]).await.concat(), ["1", "0"]);
        let later = (lanes::time::unix_micros() / 1_000_000) as u32 + 200;
        let plan = engine.prepare(Arc::new(ParsedTree::parse(text).unwrap()), Some("ks")).unwrap();
        let request = Request { now_s: Some(later), ..Request::EMPTY };
        let outcome = engine.execute(&plan, &request).outcome(&*engine).await.unwrap();
        let StatementOutcome::Rows(rows) = outcome else { panic!("rows") };
        assert_eq!(texts(&rows).concat(), ["0"]);
    });
    lanes.shutdown();
}

#[test]
fn search_is_exact_where_the_graph_has_no_memory() {
    let lanes = Setup::new(1).options(|options| options.cache_bytes = 1 << 10).start();
    lanes.block_on(0, Group::CONTROL, || async {
        let engine = engine();
        for text in [
            KEYSPACE,
            "CREATE TABLE t (k int PRIMARY KEY, v vector<float, 2>)",
            "CREATE INDEX ON t (v) USING 'sai'",
            "INSERT INTO t (k, v) VALUES (0, [1, 0])",
            "INSERT INTO t (k, v) VALUES (1, [1, 0.1])",
        ] {
            run(&engine, text, &[]).await;
        }
        while metric("fairlane_vector_graphs_ready").await > 0 {
            lanes::time::sleep(Duration::from_millis(1)).await;
        }
        let text = "SELECT k FROM t ORDER BY v ANN OF [1, 0.1] LIMIT 2";
        assert_eq!(run(&engine, text, &[]).await.concat(), ["1", "0"]);
        run(&engine, "INSERT INTO t (k, v) VALUES (2, [1, 0.05])", &[]).await;
        assert_eq!(run(&engine, text, &[]).await.concat(), ["1", "2"]);
        assert_eq!(metric("fairlane_vector_graph_bytes").await, 0);
    });
    lanes.shutdown();
}
