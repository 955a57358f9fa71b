//! Test helpers: an engine of several cores in a folder, and statements on it.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use engine::{Engine, Error, ParsedTree, Request, StatementOutcome};
use lanes::Group;
use storage::{Event, EventSink};
pub(crate) use testkit::Folder;

use crate::Embedded;

thread_local! {
    static KEPT: RefCell<Option<Rc<Embedded>>> = const { RefCell::new(None) };
}

/// Returns true for reports of every start, and of work that ended normally.
pub(crate) fn is_routine(event: &Event) -> bool {
    use Event::{Compacted, Flushed, Recovered, RecoveredAll};
    matches!(event, Compacted { .. } | Flushed { .. } | Recovered { .. } | RecoveredAll { .. })
}

/// Opens a folder on `cores` cores, runs a task on core 0, and closes the folder. Returns the
/// result and the reported events.
pub(crate) fn session<T: Send + 'static>(
    dir: &Path,
    cores: u32,
    task: impl AsyncFnOnce(&Rc<Embedded>) -> T + Send + 'static,
) -> (T, Vec<String>) {
    let lanes = testkit::start_lanes(cores as usize);
    let reported = Arc::new(Mutex::new(Vec::new()));
    for core in 0..cores {
        let (dir, reported) = (dir.to_owned(), reported.clone());
        lanes.block_on(core as usize, Group::CONTROL, move || async move {
            let event_sink = EventSink::new(move |event| {
                if !is_routine(event) {
                    reported.lock().expect("no panic holds it").push(event.to_string());
                }
            });
            let options =
                storage::StorageOptions { event_sink, ..storage::StorageOptions::in_dir(dir, core, cores) };
            KEPT.set(Some(Embedded::open(options).await.expect("opens")));
        });
    }
    let kept = || KEPT.with_borrow(|kept| kept.clone()).expect("opened");
    let result = lanes.block_on(0, Group::CONTROL, move || async move { task(&kept()).await });
    for core in 0..cores as usize {
        lanes.block_on(core, Group::CONTROL, || async {
            // Some tests close a core themselves.
            drop(KEPT.take().expect("opened").shutdown().await);
        });
    }
    lanes.shutdown();
    let reported = reported.lock().expect("no panic holds it").clone();
    (result, reported)
}

pub(crate) async fn run(engine: &Rc<Embedded>, text: &str) -> Result<StatementOutcome, Error> {
    let statement = Arc::new(ParsedTree::parse(text).expect("parses"));
    let plan = engine.prepare(statement, Some("ks"))?;
    engine.execute(&plan, &Request::EMPTY).outcome(&**engine).await
}

pub(crate) async fn make_table(engine: &Rc<Embedded>) {
    for text in [
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE t (k int PRIMARY KEY, v blob, l list<int>)",
    ] {
        run(engine, text).await.expect(text);
    }
}

pub(crate) async fn count(engine: &Rc<Embedded>) -> usize {
    match run(engine, "SELECT k FROM t").await.expect("reads") {
        StatementOutcome::Rows(rows) => rows.count as usize,
        other => panic!("{other:?}"),
    }
}

/// Returns the core that owns a partition of `t`.
pub(crate) fn owner(engine: &Embedded, key: i32) -> usize {
    engine.owner(schema::token::token(&key.to_be_bytes()))
}

/// Returns two keys of core 0, then two of core 1.
pub(crate) fn keys(engine: &Embedded) -> [i32; 4] {
    let of = |core| (0..100).filter(move |key| owner(engine, *key) == core).take(2);
    let keys: Vec<i32> = of(0).chain(of(1)).collect();
    keys.try_into().expect("two cores")
}
