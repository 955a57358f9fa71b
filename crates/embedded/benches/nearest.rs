//! Recall and cost of `ORDER BY … ANN OF` over 100,000 vectors of 128 dimensions, in clusters, from
//! a seed. Run with `cargo bench -p embedded --bench nearest`, and with
//! `BENCH_RESULTS=bench/results` to write the results to that folder.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use embedded::Embedded;
use engine::{Engine, ParsedTree, Plan, Request, StatementOutcome, Value};
use lanes::Group;
use result_file::{ResultRun, Section};
use testkit::{KEYSPACE, Random, Setup, engine, texts};

const VECTORS: Section = Section {
    file: "25-vectors",
    title: "Nearest vectors",
    goal: "Recall at 10 on 100,000 vectors of 128 dimensions is at least 0.95, and the p99 of point \
           reads beside searches is at most 1.2 times that alone.",
};

const ROWS: usize = 100_000;
const DIMENSION: usize = 128;
const CLUSTERS: usize = 1_000;
const QUERIES: usize = 500;
const NEAREST: usize = 10;
/// Searches in flight at a time, on each core.
const IN_FLIGHT: usize = 8;
/// Searches that compare all rows. Each takes as long as a scan.
const EXACT_QUERIES: usize = 5;

struct Data {
    rows: Vec<Vec<f32>>,
    queries: Vec<Vec<f32>>,
}

impl Data {
    fn new() -> Data {
        let mut random = Random::new(47);
        let mut vector = |spread: f64| -> Vec<f32> {
            (0..DIMENSION).map(|_| ((random.fraction() * 2.0 - 1.0) * spread) as f32).collect()
        };
        let centres: Vec<Vec<f32>> = (0..CLUSTERS).map(|_| vector(1.0)).collect();
        let mut near = |count: usize| -> Vec<Vec<f32>> {
            let one =
                |at: usize| centres[at % CLUSTERS].iter().zip(vector(0.5)).map(|(a, b)| a + b).collect();
            (0..count).map(one).collect()
        };
        Data { rows: near(ROWS), queries: near(QUERIES) }
    }

    /// Returns the numbers of the rows nearest to a query.
    fn nearest(&self, query: &[f32]) -> HashSet<usize> {
        let distance = |row: &[f32]| row.iter().zip(query).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
        let mut all: Vec<(f32, usize)> =
            self.rows.iter().enumerate().map(|(at, row)| (distance(row), at)).collect();
        all.select_nth_unstable_by(NEAREST, |a, b| a.0.total_cmp(&b.0));
        all[..NEAREST].iter().map(|(_, at)| *at).collect()
    }
}

fn serialized(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_be_bytes()).collect()
}

async fn run(plan: &Rc<dyn Plan>, engine: &Rc<Embedded>, values: &[Value<'_>]) -> Vec<Vec<String>> {
    let request = Request { values, ..Request::EMPTY };
    match engine.execute(plan, &request).outcome(&**engine).await.expect("runs") {
        StatementOutcome::Rows(rows) => texts(&rows),
        _ => Vec::new(),
    }
}

fn prepare(engine: &Rc<Embedded>, text: &str) -> Rc<dyn Plan> {
    let statement = ParsedTree::parse(text).expect("parses");
    engine.prepare(Arc::new(statement), Some("ks")).expect("prepares")
}

async fn metric(name: &'static str) -> f64 {
    let mut sum = 0.0;
    for core in 0..lanes::cores() {
        let own = move || async move {
            let all = engine().metrics();
            all.iter().find(|measure| measure.metric.name == name).expect("the metric").value
        };
        sum += lanes::call(core, own).await;
    }
    sum
}

async fn load(engine: &Rc<Embedded>, data: &Data) {
    for text in [KEYSPACE, &format!("CREATE TABLE t (k int PRIMARY KEY, v vector<float, {DIMENSION}>)")] {
        run(&prepare(engine, text), engine, &[]).await;
    }
    let insert = prepare(engine, "INSERT INTO t (k, v) VALUES (?, ?)");
    for (at, row) in data.rows.iter().enumerate() {
        let (key, vector) = ((at as i32).to_be_bytes(), serialized(row));
        run(&insert, engine, &[Value::Bytes(&key), Value::Bytes(&vector)]).await;
        if at % 64 == 0 {
            lanes::yield_now().await;
        }
    }
}

/// Runs all queries on this core, several at a time. Returns the number of the nearest rows that
/// they found.
async fn search(data: Arc<Data>, expected: Arc<Vec<HashSet<usize>>>) -> usize {
    let (next, hits) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let one = || {
        let (data, expected, next, hits) = (data.clone(), expected.clone(), next.clone(), hits.clone());
        lanes::spawn(Group::DEFAULT, async move {
            let engine = engine();
            let text = format!("SELECT k FROM t ORDER BY v ANN OF ? LIMIT {NEAREST}");
            let plan = prepare(&engine, &text);
            loop {
                let at = next.replace(next.get() + 1);
                let Some(query) = data.queries.get(at) else { return };
                let found = run(&plan, &engine, &[Value::Bytes(&serialized(query))]).await;
                let hit = |row: &&Vec<String>| row[0].parse().is_ok_and(|row| expected[at].contains(&row));
                hits.set(hits.get() + found.iter().filter(hit).count());
            }
        })
    };
    let all: Vec<_> = (0..IN_FLIGHT).map(|_| one()).collect();
    for task in all {
        task.await;
    }
    hits.get()
}

async fn measure(data: Arc<Data>, expected: Arc<Vec<HashSet<usize>>>, cores: usize) {
    let engine = engine();
    load(&engine, &data).await;
    let mut results = ResultRun::new(VECTORS, "cargo bench -p embedded --bench nearest", 1);
    let create = "CREATE INDEX ON t (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}";
    let begin = lanes::time::now();
    run(&prepare(&engine, create), &engine, &[]).await;
    let text = format!("SELECT k FROM t ORDER BY v ANN OF ? LIMIT {NEAREST}");
    let plan = prepare(&engine, &text);
    let exact = lanes::time::now();
    for query in &data.queries[..EXACT_QUERIES] {
        run(&plan, &engine, &[Value::Bytes(&serialized(query))]).await;
    }
    let exact_ms = exact.elapsed().as_secs_f64() * 1e3 / EXACT_QUERIES as f64;
    while metric("fairlane_vector_graphs_ready").await < cores as f64 {
        lanes::time::sleep(Duration::from_millis(20)).await;
    }
    let made = begin.elapsed().as_secs_f64();
    results.row("search that compares all rows, beside the build", &format!("{exact_ms:.0}"), "ms");
    results.row("build of the graphs", &format!("{:.0}", ROWS as f64 / made), "rows/s");
    let bytes = metric("fairlane_vector_graph_bytes").await / ROWS as f64;
    results.row("memory of a row of 512 bytes in a graph", &format!("{bytes:.0}"), "bytes");
    let begin = lanes::time::now();
    let mut tasks = Vec::new();
    for core in 0..cores {
        let (data, expected) = (data.clone(), expected.clone());
        let work = move || search(data, expected);
        tasks.push(lanes::spawn(Group::DEFAULT, lanes::call(core, work)));
    }
    let mut hits = 0;
    for task in tasks {
        hits += task.await;
    }
    let per_second = (QUERIES * cores) as f64 / begin.elapsed().as_secs_f64();
    let recall = hits as f64 / (QUERIES * cores * NEAREST) as f64;
    results.row("recall at 10", &format!("{recall:.3}"), "");
    results.row("searches by graphs, two cores", &format!("{per_second:.0}"), "1/s");
    let searches = metric("fairlane_vector_searches_total").await;
    assert!(searches >= (QUERIES * cores * cores) as f64, "graphs answered: {searches}");
    results.finish();
}

fn main() {
    let cores = 2;
    let data = Arc::new(Data::new());
    let expected = Arc::new(data.queries.iter().map(|query| data.nearest(query)).collect::<Vec<_>>());
    let lanes = Setup::new(cores).options(|options| options.cache_bytes = 512 << 20).start();
    lanes.block_on(0, Group::CONTROL, move || measure(data, expected, cores));
    lanes.shutdown();
}
