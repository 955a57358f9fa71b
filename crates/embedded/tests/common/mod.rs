//! Running statements on an engine in memory.

use std::path::Path;
use std::rc::Rc;

use embedded::Embedded;
use engine::{Engine, Error, Outcome, Request};
use lanes::{Config, Group, Lanes};

/// Runs a script on an engine with `cores` cores. Returns each statement's result as text.
pub(crate) fn run(cores: usize, page: Option<u32>, script: &'static str) -> Vec<String> {
    run_in(None, cores, page, script)
}

/// Runs a script as [`run`] does, with files if `dir` is given.
pub(crate) fn run_in(
    dir: Option<&Path>,
    cores: usize,
    page: Option<u32>,
    script: &'static str,
) -> Vec<String> {
    let config = Config { cores: vec![0; cores], pin: false, ..Config::detect() };
    let lanes = Lanes::start(config).expect("lanes start");
    for core in 0..cores {
        let dir = dir.map(Path::to_owned);
        lanes.block_on(core, Group::CONTROL, move || async move {
            let options = storage::Options {
                dir,
                shard: core as u32,
                shards: cores as u32,
                ..storage::Options::in_memory()
            };
            let engine = Embedded::open(options).await.expect("opens");
            KEEP.with(|keep| *keep.borrow_mut() = Some(engine));
        });
    }
    let answers = lanes.block_on(0, Group::DEFAULT, move || async move {
        let engine = KEEP.with(|keep| keep.borrow().clone()).expect("the engine is open");
        let mut answers = Vec::new();
        for text in script.split(";\n").map(str::trim).filter(|text| !text.is_empty()) {
            answers.push(answer(&engine, text, page).await);
        }
        answers
    });
    for core in (0..cores).filter(|_| dir.is_some()) {
        lanes.block_on(core, Group::CONTROL, || async {
            let engine = KEEP.with(|keep| keep.borrow_mut().take()).expect("the engine is open");
            engine.shutdown().await.expect("closes");
        });
    }
    lanes.shutdown();
    answers
}

thread_local! {
    static KEEP: std::cell::RefCell<Option<Rc<Embedded>>> = const { std::cell::RefCell::new(None) };
}

async fn answer(engine: &Rc<Embedded>, text: &str, page: Option<u32>) -> String {
    match execute(engine, text, page).await {
        Ok(rows) => rows,
        Err(error) => format!("! {error}"),
    }
}

async fn execute(engine: &Rc<Embedded>, text: &str, page: Option<u32>) -> Result<String, Error> {
    let statement = cql::parse(text).map_err(|e| Error::Invalid(e.to_string()))?;
    let plan = engine.prepare(Rc::new(statement), Some("ks"))?;
    let mut state: Option<Vec<u8>> = None;
    let mut shown = Vec::new();
    loop {
        let request = Request { page_size: page, paging_state: state.as_deref(), ..Request::EMPTY };
        match engine.execute(&plan, &request).outcome(&**engine).await? {
            Outcome::Void => return Ok("void".into()),
            Outcome::SchemaChange(change) => return Ok(format!("{} {}", change.change, change.name)),
            Outcome::Rows(rows) => {
                for row in rows.decoded() {
                    let cells = row.iter().zip(rows.columns.iter());
                    let cells = cells.map(|(cell, column)| match cell {
                        Some(bytes) => schema::value::to_text(&column.ty, bytes),
                        None => "null".into(),
                    });
                    shown.push(cells.collect::<Vec<_>>().join(","));
                }
                assert!(page.is_none_or(|page| rows.count <= page), "a page has at most the requested rows");
                match rows.paging_state {
                    Some(next) => state = Some(next),
                    None => return Ok(shown.join(" ")),
                }
            }
        }
    }
}
