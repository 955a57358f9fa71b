//! Runs a history on the engine and on the model in parallel.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use embedded::{Embedded, WallClock};
use engine::{Engine, Error, ParsedTree, Request, StatementOutcome};
use lanes::{Group, Lanes};
use testkit::{Folder, KEYSPACE, Setup, close_engines, start_lanes, texts};

use crate::data::{Show, Step, Table};
use crate::generate::Case;
use crate::model::{Answer, Model, Now, STATEMENT_US};

/// Texts of permitted errors: the feature is missing, or Cassandra rejects the statement too.
const REFUSED: [&str; 6] = [
    "is not supported",
    "Cannot page queries with both ORDER BY and a IN",
    "Select on indexed columns and with IN clause for the PRIMARY KEY",
    "ORDER BY with 2ndary indexes is not supported",
    // An index of a clustering column makes the next ones filters.
    "Multi-column slice restrictions cannot be used for filtering",
    "Multicolumn IN filters are not supported",
];

/// Failed history: the step, the reason, and the statements up to it.
pub(crate) struct Failure {
    pub(crate) step: usize,
    pub(crate) what: String,
    pub(crate) trace: Vec<String>,
}

/// Number of statements by kind.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) statements: u64,
    pub(crate) refused: u64,
    reads: u64,
    rows: u64,
    restarts: u64,
}

/// Lanes by their number of cores, shared by all histories.
#[derive(Default)]
pub(crate) struct Server {
    lanes: [Option<Lanes>; 4],
    clock_us: Arc<AtomicI64>,
    pub(crate) counts: Counts,
}

type Found = Result<Vec<Vec<String>>, String>;

async fn execute(
    engine: &Rc<Embedded>,
    text: &str,
    page: Option<u32>,
    now_s: u32,
) -> Result<Vec<Vec<String>>, Error> {
    let statement = ParsedTree::parse(text).map_err(|error| Error::Invalid(error.to_string()))?;
    let plan = engine.prepare(Arc::new(statement), Some("ks"))?;
    let (mut state, mut shown): (Option<Vec<u8>>, Vec<Vec<String>>) = (None, Vec::new());
    loop {
        // Reads have the time of the statement, as writes do.
        let request = Request { now_s: Some(now_s), ..Request::EMPTY };
        let request = Request { page_size: page, paging_state: state.as_deref(), ..request };

        let StatementOutcome::Rows(rows) = engine.execute(&plan, &request).outcome(&**engine).await? else {
            return Ok(shown);
        };
        shown.extend(texts(&rows));
        if page.is_some_and(|page| rows.count > page) {
            return Err(Error::Server(format!("a page of {} rows", rows.count)));
        }
        match rows.paging_state {
            Some(next) => state = Some(next),
            None => return Ok(shown),
        }
    }
}

impl Server {
    fn open(&mut self, cores: usize, dir: Option<&Path>) {
        let clock_us = self.clock_us.clone();
        Setup::new(cores)
            .dir(dir)
            .options(|options| {
                options.memtable_bytes_max = 64 << 10;
                options.segment_bytes = 64 << 10;
                options.record_bytes_max = 1 << 20;
            })
            .clock(WallClock::new(move || clock_us.load(Ordering::SeqCst)))
            .open(self.lanes[cores].get_or_insert_with(|| start_lanes(cores)));
    }

    fn stop(&mut self, cores: usize) {
        close_engines(self.lanes[cores].as_ref().expect("started"));
    }

    /// Stops all lanes.
    pub(crate) fn close(&mut self) {
        for lanes in self.lanes.iter_mut().filter_map(Option::take) {
            lanes.shutdown();
        }
    }

    fn ask(&mut self, cores: usize, text: &str, page: Option<u32>) -> Found {
        let text = text.to_owned();
        let now_s = (self.clock_us.load(Ordering::SeqCst) / 1_000_000) as u32;
        let lanes = self.lanes[cores].as_ref().expect("started");
        lanes.block_on(0, Group::DEFAULT, move || async move {
            let engine = testkit::engine();
            execute(&engine, &text, page, now_s).await.map_err(|error| error.to_string())
        })
    }

    /// Runs one history.
    pub(crate) fn run(&mut self, case: &Case) -> Result<(), Failure> {
        // Not behind this machine's clock, by which compactions drop expired cells.
        self.clock_us.store((lanes::time::unix_micros() / 1_000_000 + 60) * 1_000_000, Ordering::SeqCst);
        let folder = case.is_durable.then(|| Folder::new("model"));
        let dir = folder.as_deref();
        self.open(case.cores, dir);
        let result = self.play(case, dir);
        self.stop(case.cores);
        result
    }

    fn play(&mut self, case: &Case, dir: Option<&Path>) -> Result<(), Failure> {
        let mut trace = Vec::new();
        for text in [KEYSPACE.to_owned(), case.table.create()] {
            if let Err(error) = self.ask(case.cores, &text, None) {
                return Err(Failure { step: 0, what: format!("{text}: {error}"), trace });
            }
            trace.push(format!("{text};"));
        }
        let mut model = Model::new(case.table.clone());
        for (number, step) in case.steps.iter().enumerate() {
            let now = Now { us: self.clock_us.fetch_add(STATEMENT_US, Ordering::SeqCst) + STATEMENT_US };
            if let Err(what) = self.step(step, &mut model, now, (case.cores, dir), &mut trace) {
                return Err(Failure { step: number, what, trace });
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        step: &Step,
        model: &mut Model,
        now: Now,
        (cores, dir): (usize, Option<&Path>),
        trace: &mut Vec<String>,
    ) -> Result<(), String> {
        let timestamp = |ago: i64| now.us - ago * STATEMENT_US;
        let (text, page, wanted) = match step {
            Step::Sleep(seconds) => {
                self.clock_us.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
                trace.push(format!("-- {seconds} s pass"));
                return Ok(());
            }
            Step::Restart => {
                trace.push("-- restart".to_owned());
                self.counts.restarts += 1;
                self.stop(cores);
                // Write timestamps rise by the step of their floor.
                self.clock_us.fetch_add(5_000_000, Ordering::SeqCst);
                self.open(cores, dir);
                return Ok(());
            }
            Step::Index(name, target, is_attached) => {
                let kind = target.split_once('(').map_or("plain", |(kind, _)| kind);
                let (sai, using) = if *is_attached { ("_sai", " USING 'sai'") } else { ("", "") };
                (
                    format!("CREATE INDEX IF NOT EXISTS i_{name}_{kind}{sai} ON t ({target}){using}"),
                    None,
                    Some(Answer::Done),
                )
            }
            Step::DropIndexes(name) => {
                for kind in ["plain", "full", "keys", "values", "entries"] {
                    for sai in ["", "_sai"] {
                        let text = format!("DROP INDEX IF EXISTS i_{name}_{kind}{sai}");
                        self.ask(cores, &text, None)?;
                        trace.push(format!("{text};"));
                    }
                }
                return Ok(());
            }
            Step::CreateView(view) => {
                model.views.push(view.clone());
                (view.create(), None, Some(Answer::Done))
            }
            Step::DropViews => {
                for view in std::mem::take(&mut model.views) {
                    let text = format!("DROP MATERIALIZED VIEW {}", view.name);
                    self.ask(cores, &text, None)?;
                    trace.push(format!("{text};"));
                }
                return Ok(());
            }
            Step::Flush => ("FLUSH t".to_owned(), None, Some(Answer::Done)),
            Step::Compact => ("COMPACT t".to_owned(), None, Some(Answer::Done)),
            Step::Truncate => {
                model.truncate();
                ("TRUNCATE t".to_owned(), None, Some(Answer::Done))
            }
            Step::Drop(name) => {
                model.drop_column(name);
                (format!("ALTER TABLE t DROP {name}"), None, Some(Answer::Done))
            }
            Step::Add(column) => {
                model.table.columns.push(column.clone());
                let ty = Table { columns: vec![column.clone()] }.create();
                let ty = ty
                    .split_once(&format!("{} ", column.name))
                    .and_then(|(_, rest)| rest.split_once(", PRIMARY"));
                for view in model.views.iter_mut().filter(|view| view.has_all) {
                    view.table.columns.push(column.clone());
                }
                let text = format!("ALTER TABLE t ADD {} {}", column.name, ty.expect("a definition").0);
                (text, None, Some(Answer::Done))
            }
            Step::Write(write) => {
                let text = write.text(&model.table, timestamp);
                (text, None, Some(model.write(write, now)))
            }
            Step::Batch(all, is_logged) => {
                let texts: Vec<_> = all.iter().map(|write| write.text(&model.table, timestamp)).collect();
                let kind = if *is_logged { "" } else { "UNLOGGED " };
                let text = format!("BEGIN {kind}BATCH {}; APPLY BATCH", texts.join("; "));
                (text, None, Some(model.batch(all, now)))
            }
            Step::Select(select) => {
                let text = select.text("t", &model.table, |key| model.token(key));
                (text, select.page, model.select(select, now))
            }
            Step::SelectView(name, select) => {
                let Some(view) = model.views.iter().find(|view| view.name == *name) else { return Ok(()) };
                let rows = model.view(view, now);
                let text = select.text(name, &rows.table, |key| rows.token(key));
                (text, select.page, rows.select(select, now))
            }
        };
        let page_text = page.map(|page| format!(" -- pages of {page}")).unwrap_or_default();
        trace.push(format!("{text};{page_text}"));
        let found = self.ask(cores, &text, page);
        self.counts.statements += 1;
        let refused = found.as_ref().is_err_and(|error| REFUSED.iter().any(|known| error.contains(known)));
        if refused && matches!(step, Step::Select(_) | Step::SelectView(..)) {
            self.counts.refused += 1;
            return Ok(());
        }
        let Some(wanted) = wanted else { return Ok(()) };
        if let (Ok(rows), Step::Select(_) | Step::SelectView(..)) = (&found, step) {
            self.counts.reads += 1;
            self.counts.rows += rows.len() as u64;
        }
        let (found, wanted) = (rounded(step, found), rounded_answer(step, wanted));
        let is_right = match (&found, &wanted) {
            (Ok(_), Answer::Done) => true,
            (Ok(rows), Answer::Applied(is)) => rows.first().is_some_and(|row| row[0] == is.to_string()),
            (Ok(rows), Answer::Rows(wanted)) => rows == wanted,
            (Err(error), Answer::Refused(text)) => error.to_lowercase().contains(text),
            _ => false,
        };
        if is_right { Ok(()) } else { Err(format!("{text}{page_text}\n found {found:?}\nwanted {wanted:?}")) }
    }
}

/// Rounds timestamps: those of the server are a few microseconds above the clock.
fn rounded(step: &Step, found: Found) -> Found {
    found.map(|rows| round(step, rows))
}

fn rounded_answer(step: &Step, wanted: Answer) -> Answer {
    match wanted {
        Answer::Rows(rows) => Answer::Rows(round(step, rows)),
        other => other,
    }
}

fn round(step: &Step, mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let (Step::Select(select) | Step::SelectView(_, select)) = step else { return rows };
    for row in &mut rows {
        for (cell, show) in row.iter_mut().zip(&select.shows) {
            if let (Show::WriteTime(_), Ok(us)) = (show, cell.parse::<i64>()) {
                *cell = (us / 1000).to_string();
            }
        }
    }
    rows
}
