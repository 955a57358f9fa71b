//! Scans of tables of the cluster by columns.
//!
//! ```text
//!  heavy lane   next() ─▶ two pages asked ────────────▶ page ─▶ batch ─▶ the next page asked
//!                             │ message                  ▲
//!  fast lane                  └▶ CoreScan::page ─▶ node ─┘      (page.rs)
//! ```
//!
//! 1. Each core reads its own part of the tokens (`ranges.rs`), or of the keys that filters name
//!    (`pushed.rs`).
//! 2. First it asks for one page of the whole part. If that is all, the table is small. Otherwise
//!    the page only tells the size of rows, and the part is read range by range.
//! 3. A table that is small by the estimate of the query is read whole by one core, with a page for
//!    all of its rows. If the estimate was wrong, that core reads range by range.
//!    Dynamic filters that name few partition keys replace ranges by keys (`todo.rs`).
//! 4. Two pages are in flight or wait to be converted, each of another range or key. The next one
//!    of a range is asked for when the last one was converted. So a scan that is dropped, or whose
//!    consumer is slow, stops after two pages.
//! 5. Pages are sized in rows, towards [`PAGE_BYTES`].
//!
//! There is no snapshot: pages show what nodes have when they are read. A row that is written
//! during the scan may be in it or not.

mod page;
mod pushed;
mod ranges;
mod shape;
mod todo;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use engine::Error;
use engine::scan::{BatchSource, Filter, NextBatch, TableScan, TableSnapshot, TableStatistics};
use lanes::PerCore;
use lanes::sync::cross;
use uuid::Uuid;
use wire::{Consistency, Response};

use crate::catalog::Catalog;
use crate::front::Front;
use crate::role::Role;
use crate::scan::page::{CoreScan, Page, PageOf, PageRequest};
use crate::scan::pushed::pushed;
use crate::scan::ranges::span_of;
use crate::scan::shape::Shape;
use crate::scan::todo::Todo;

/// Bytes of a page, about: a node sends it in less than a millisecond.
const PAGE_BYTES: u64 = 256 << 10;

/// Rows of the first page, whose rows have an unknown size.
const FIRST_ROWS: u32 = 100;

/// Estimated rows of a table up to which one core reads it whole. Its first page has twice as many:
/// drivers ask for 5,000 rows as well.
const SMALL_ROWS_MAX: u64 = 2_500;

/// Factor by which the rows of a page grow, at most: the next rows may be larger.
const GROWTH_MAX: u32 = 8;

/// Rows of a page, at most, and so of a batch.
const ROWS_MAX: usize = 1 << 16;

/// Pages of a scan on a core that are in flight or wait to be converted.
const PAGES: usize = 2;

/// Access to tables of the cluster with the connections of a role. It holds no data: each scan
/// reads what nodes have then.
pub(crate) struct ClusterSnapshot {
    of: PerCore<Access>,
    catalog: Arc<Catalog>,
}

/// Front and role of a core, and the consistency of pages.
pub(crate) struct Access {
    front: Rc<Front>,
    role: Rc<Role>,
    consistency: Consistency,
}

impl ClusterSnapshot {
    /// Creates the access, on a fast lane.
    pub(crate) fn new(
        front: Rc<Front>,
        role: Rc<Role>,
        consistency: Consistency,
        catalog: Arc<Catalog>,
    ) -> ClusterSnapshot {
        let of = PerCore::new();
        of.set(Rc::new(Access { front, role, consistency }));
        ClusterSnapshot { of, catalog }
    }
}

impl TableSnapshot for ClusterSnapshot {
    fn scan(&self, scan: &TableScan) -> Result<Box<dyn BatchSource>, Error> {
        let access = self.of.get().ok_or_else(stopping)?;
        // The snapshot of a table is that of its views, too.
        let table = self.catalog.table(&scan.keyspace, &scan.table);
        let table = table.ok_or_else(|| missing(&scan.keyspace, &scan.table))?;
        let pushed = pushed(&table, &scan.filters)?;
        let id = table.def.id;
        let shape = Arc::new(Shape::new(table, scan)?);
        let core = lanes::current_core();
        let small = small_rows(scan.expected).filter(|_| pushed.keys.is_none());
        // All cores have the same estimate, and agree on the one that reads the table.
        let span = match small.map(|_| reader_of(id, lanes::cores()) == core) {
            Some(true) => span_of(0, 1, &scan.tokens),
            Some(false) => None,
            None => span_of(core, lanes::cores(), &scan.tokens),
        };
        let ring = access.front.nodes().topology.ring.clone();
        let todo = match (span, pushed.keys) {
            (Some(span), Some(keys)) => {
                Todo::of_keys(keys.into_iter().filter(|key| span.contains(key.token)), ring)
            }
            (span, _) => Todo::of_range(span, ring, scan.expected, lanes::cores()),
        };
        let received_bytes = Arc::new(AtomicU64::new(0));
        let own = CoreScan::new(&access, shape.clone(), &pushed.clustering, received_bytes.clone());
        let of = Arc::new(PerCore::new());
        of.set(Rc::new(own));
        let rows_max = u32::try_from(scan.batch_rows.clamp(1, ROWS_MAX)).expect("at most 2^16");
        Ok(Box::new(ClusterBatches {
            core,
            of,
            shape,
            filters: scan.filters.clone(),
            todo,
            page_rows: small.unwrap_or(FIRST_ROWS).min(rows_max),
            rows_max,
            left: scan.limit.unwrap_or(u64::MAX),
            pages: Default::default(),
            state: ScanState { received_bytes, is_broken: false },
        }))
    }
}

/// Returns the error for a table that the cluster does not have.
pub(crate) fn missing(keyspace: &str, table: &str) -> Error {
    Error::Invalid(format!("table {keyspace}.{table} does not exist"))
}

fn stopping() -> Error {
    Error::Server("the server is stopping".to_owned())
}

/// Returns the rows of the first page of a table that is small by its estimate. `None`: it is not.
fn small_rows(expected: Option<TableStatistics>) -> Option<u32> {
    let TableStatistics { rows, bytes } = expected?;
    let is_small = rows <= SMALL_ROWS_MAX && bytes <= PAGE_BYTES;
    is_small.then(|| u32::try_from(2 * rows).expect("at most 5,000").max(FIRST_ROWS))
}

/// Returns the core that reads a small table.
fn reader_of(table: Uuid, cores: usize) -> usize {
    (table.as_u128() % cores as u128) as usize
}

/// A page that was asked for.
struct Asked {
    of: PageOf,
    receiver: cross::Receiver<Result<Page, Error>>,
}

struct ScanState {
    received_bytes: Arc<AtomicU64>,
    /// True while a page is converted, and after an error: rows would be missing.
    is_broken: bool,
}

/// Scan of one core's part of a table. The head of this file describes it.
struct ClusterBatches {
    core: usize,
    of: Arc<PerCore<CoreScan>>,
    shape: Arc<Shape>,
    /// Filters of the scan itself.
    filters: Vec<Filter>,
    todo: Todo,
    /// Rows of the next page.
    page_rows: u32,
    rows_max: u32,
    /// Rows that may still be returned.
    left: u64,
    pages: [Option<Asked>; PAGES],
    state: ScanState,
}

impl ClusterBatches {
    /// Asks for pages of ranges or keys that were not begun yet.
    fn ask_more(&mut self) {
        for at in 0..PAGES {
            if self.pages[at].is_none()
                && let Some(of) = self.todo.next()
            {
                self.ask(at, of, None);
            }
        }
    }

    /// Asks for a page. `paging_state`: end of the page before.
    fn ask(&mut self, at: usize, of: PageOf, paging_state: Option<Bytes>) {
        let rows = self.page_rows.min(u32::try_from(self.left).unwrap_or(u32::MAX));
        let request = PageRequest { of: of.clone(), paging_state, rows };
        let (sender, receiver) = cross::oneshot();
        let (scan, group) = (self.of.clone(), lanes::current_group());
        let read = async move |sender: cross::Sender<Result<Page, Error>>| {
            // The scan may have ended meanwhile.
            let Some(scan) = scan.get() else { return };
            let page = scan.page(&request, || !sender.is_closed()).await;
            sender.send(page);
        };
        // A message instead of a call: the work stays on that lane, and this may move between
        // threads.
        lanes::handle().run_on_core(self.core, group, move || {
            lanes::spawn(group, async move { read(sender).await }).detach();
        });
        self.pages[at] = Some(Asked { of, receiver });
    }

    /// Waits for the next page. `None`: none was asked for.
    async fn received(&mut self) -> Option<(usize, PageOf, Result<Page, Error>)> {
        let pages = &mut self.pages;
        poll_fn(|cx| {
            for (at, page) in pages.iter_mut().enumerate() {
                let Some(asked) = page else { continue };
                if let Poll::Ready(received) = Pin::new(&mut asked.receiver).poll(cx) {
                    let of = page.take().expect("asked for").of;
                    return Poll::Ready(Some((at, of, received.unwrap_or_else(|_| Err(stopping())))));
                }
            }
            if pages.iter().all(Option::is_none) { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    async fn batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        if self.state.is_broken {
            return Err(Error::Server(format!("the scan of {} has failed before", self.shape.name())));
        }
        while self.left > 0 {
            self.ask_more();
            let Some((at, of, page)) = self.received().await else { break };
            self.state.is_broken = true;
            let batch = self.converted(at, of, page?).await?;
            self.state.is_broken = false;
            if let Some(batch) = batch {
                return Ok(Some(batch));
            }
        }
        self.pages = Default::default();
        Ok(None)
    }

    /// Converts a page, and asks for the next one of its range or key. `None`: it has no rows.
    async fn converted(&mut self, at: usize, of: PageOf, page: Page) -> Result<Option<RecordBatch>, Error> {
        let Page { answer, rows: asked } = page;
        let bytes = answer.body.len() as u64;
        let unreadable = |error| self.shape.unreadable(&error);
        let Response::Rows(rows) = answer.response().map_err(unreadable)? else {
            return Err(self.shape.altered());
        };
        // Without them, nothing tells what the rows are.
        let columns = rows.metadata.columns.as_ref().ok_or_else(|| self.shape.altered())?;
        self.shape.check(columns)?;
        self.page_rows = next_rows(asked, rows.len() as u64, bytes).min(self.rows_max);
        let paging_state = rows.metadata.paging_state.map(Bytes::copy_from_slice);
        let is_probe = self.todo.takes_probe();
        if let PageOf::Range { range, .. } = of
            && is_probe
            && paging_state.is_some()
            && (rows.len() as u64) < self.left
        {
            self.todo.begin_ranges(range);
            self.state.received_bytes.fetch_sub(bytes, Relaxed);
            return Ok(None);
        }
        let batch = if rows.is_empty() { None } else { Some(self.shape.batch(&rows).await?) };
        drop(answer);
        self.state.received_bytes.fetch_sub(bytes, Relaxed);
        let batch = batch.map(|batch| {
            let rows = usize::try_from(self.left).map_or(batch.num_rows(), |left| left.min(batch.num_rows()));
            self.left -= rows as u64;
            batch.slice(0, rows)
        });
        if self.left > 0 {
            if paging_state.is_some() {
                self.ask(at, of, paging_state);
            }
            self.ask_more();
        }
        Ok(batch)
    }
}

/// Returns the rows of the next page, after one of `asked` rows that had `rows` rows.
fn next_rows(asked: u32, rows: u64, bytes: u64) -> u32 {
    if rows == 0 {
        return asked;
    }
    let fitting = u32::try_from(PAGE_BYTES.saturating_mul(rows) / bytes.max(1)).unwrap_or(u32::MAX);
    fitting.clamp(1, asked.saturating_mul(GROWTH_MAX))
}

impl BatchSource for ClusterBatches {
    fn schema(&self) -> SchemaRef {
        self.shape.schema.clone()
    }

    fn next(&mut self) -> NextBatch<'_> {
        Box::pin(self.batch())
    }

    /// Uses filters on the whole partition key. Others only save the conversion of rows, which the
    /// operator above drops.
    fn push_down(&mut self, filters: &[Filter]) -> Result<(), Error> {
        let all = [&self.filters[..], filters].concat();
        if let Some(keys) = pushed(self.shape.table(), &all)?.keys {
            self.todo.narrow(keys);
        }
        Ok(())
    }

    /// Returns the bytes of the pages that were received, and not converted yet. A batch has about
    /// as many as its page.
    fn in_making(&self) -> Option<Arc<AtomicU64>> {
        Some(self.state.received_bytes.clone())
    }

    fn progress(&self) -> f64 {
        if self.left == 0 { 1.0 } else { self.todo.progress(self.pages.iter().flatten().count()) }
    }
}
