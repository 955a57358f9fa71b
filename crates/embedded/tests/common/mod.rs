//! Running statements on an engine in memory.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use embedded::Embedded;
use engine::{Engine, Error, ParsedTree, Request, StatementOutcome};
use lanes::Group;
use testkit::{Setup, close_engines, texts};

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
    let lanes = Setup::new(cores).dir(dir).start();
    let answers = lanes.block_on(0, Group::DEFAULT, move || async move {
        let engine = testkit::engine();
        let mut answers = Vec::new();
        for text in script.split(";\n").map(str::trim).filter(|text| !text.is_empty()) {
            answers.push(answer(&engine, text, page).await);
        }
        answers
    });
    if dir.is_some() {
        close_engines(&lanes);
    }
    lanes.shutdown();
    answers
}

async fn answer(engine: &Rc<Embedded>, text: &str, page: Option<u32>) -> String {
    match execute(engine, text, page).await {
        Ok(rows) => rows,
        Err(error) => format!("! {error}"),
    }
}

async fn execute(engine: &Rc<Embedded>, text: &str, page: Option<u32>) -> Result<String, Error> {
    let statement = ParsedTree::parse(text).map_err(|e| Error::Invalid(e.to_string()))?;
    let plan = engine.prepare(Arc::new(statement), Some("ks"))?;
    let mut state: Option<Vec<u8>> = None;
    let mut shown = Vec::new();
    loop {
        let request = Request { page_size: page, paging_state: state.as_deref(), ..Request::EMPTY };
        match engine.execute(&plan, &request).outcome(&**engine).await? {
            StatementOutcome::Void => return Ok("void".into()),
            StatementOutcome::SchemaChange(change) => {
                return Ok(format!("{} {}", change.change, change.name));
            }
            StatementOutcome::Rows(rows) => {
                shown.extend(texts(&rows).iter().map(|row| row.join(",")));
                assert!(page.is_none_or(|page| rows.count <= page), "a page has at most the requested rows");
                match rows.paging_state {
                    Some(next) => state = Some(next),
                    None => return Ok(shown.join(" ")),
                }
            }
        }
    }
}
