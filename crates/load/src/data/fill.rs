//! Generation and writing of tables, from start to end.
//!
//! 1. Create missing tables and prepare the INSERTs, or create the folder.
//! 2. Split the tables into chunks. Threads take one after another, each with its own connection.
//! 3. Report the progress once a second. A signal ends the work between two rows.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::writer::{Insert, Writer};
use super::{Decimals, Table, TableSource, chunks, csv, parquet};
use crate::LoadError;
use crate::connector::HANDSHAKE;
use crate::run::StopFlag;
use crate::session::Session;

/// Destination of the rows.
#[derive(Clone, Debug)]
pub(crate) enum FillTarget {
    /// CQL, into this keyspace.
    Cql(Cql),
    /// CSV files in this folder.
    Csv(PathBuf),
    /// Parquet files in this folder.
    Parquet(PathBuf),
}

/// Connection parameters of a server.
#[derive(Clone, Debug)]
pub(crate) struct Cql {
    pub(crate) hosts: Vec<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) keyspace: String,
    pub(crate) replication: u32,
    pub(crate) consistency: wire::Consistency,
    pub(crate) connections: usize,
    pub(crate) in_flight_max: usize,
}

/// A task: tables to generate and their destination.
#[derive(Debug)]
pub(crate) struct Fill<'a> {
    pub(crate) source: &'a dyn TableSource,
    /// Indexes of the tables to write.
    pub(crate) tables: Vec<usize>,
    pub(crate) target: FillTarget,
    pub(crate) decimals: Decimals,
}

impl std::fmt::Debug for dyn TableSource + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.tables().iter().map(|table| table.name)).finish()
    }
}

/// Rows written of a table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Written {
    pub(crate) table: &'static str,
    pub(crate) rows: u64,
    /// Bytes sent for these rows, or the size of their file.
    pub(crate) bytes: u64,
    /// Requests that the server rejected temporarily. They were sent again.
    pub(crate) refused: u64,
}

/// Rows written of all tables.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Filled {
    /// True if every row of every table was written.
    pub(crate) complete: bool,
    pub(crate) seconds: f64,
    pub(crate) rows_per_s: f64,
    pub(crate) tables: Vec<Written>,
}

/// State shared by the threads: counts, and the request to end.
pub(crate) struct FillState {
    stop: StopFlag,
    failed: AtomicBool,
    counts: Vec<[AtomicU64; 3]>,
}

impl FillState {
    fn new(tables: usize, stop: &StopFlag) -> FillState {
        let counts = (0..tables).map(|_| Default::default()).collect();
        FillState { stop: stop.clone(), failed: AtomicBool::new(false), counts }
    }

    /// Returns true if the threads must end early.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.is_set() || self.failed.load(Ordering::Relaxed)
    }

    /// Adds to the counts of a table.
    pub(crate) fn add(&self, table: usize, rows: u64, bytes: u64, refused: u64) {
        for (count, more) in self.counts[table].iter().zip([rows, bytes, refused]) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Resets the counts of a table whose file was removed.
    #[cfg(feature = "parquet")]
    pub(crate) fn reset(&self, table: usize) {
        self.counts[table].iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    fn of(&self, table: usize) -> [u64; 3] {
        [0, 1, 2].map(|index| self.counts[table][index].load(Ordering::Relaxed))
    }
}

impl Fill<'_> {
    /// Writes the tables. Calls `observer` once a second with the current table, the rows written,
    /// and the approximate total.
    ///
    /// # Errors
    /// Returns the error of the start, of a server or of a disk beside the rows written until then.
    /// A stop is no error.
    pub(crate) fn run(
        &self,
        stop: &StopFlag,
        mut observer: impl FnMut(&'static str, u64, u64),
    ) -> (Filled, Option<LoadError>) {
        let shared = FillState::new(self.source.tables().len(), stop);
        let begun = Instant::now();
        let next = AtomicUsize::new(0);
        let work: Vec<(usize, u64)> = match &self.target {
            FillTarget::Csv(_) | FillTarget::Parquet(_) => {
                self.tables.iter().map(|table| (*table, 0)).collect()
            }
            FillTarget::Cql(_) => self.tables.iter().flat_map(|table| self.chunks_of(*table)).collect(),
        };
        let failure = match self.begin() {
            Err(error) => Some(error),
            Ok(()) => self.run_threads(&shared, &work, &next, &mut observer),
        };
        let seconds = begun.elapsed().as_secs_f64();
        let written = |table: &usize| {
            let [rows, bytes, refused] = shared.of(*table);
            Written { table: self.source.tables()[*table].name, rows, bytes, refused }
        };
        let tables: Vec<Written> = self.tables.iter().map(written).collect();
        let rows: u64 = tables.iter().map(|table| table.rows).sum();
        let complete = failure.is_none() && !stop.is_set();
        (Filled { complete, seconds, rows_per_s: rows as f64 / seconds.max(1e-9), tables }, failure)
    }

    fn chunks_of(&self, table: usize) -> impl Iterator<Item = (usize, u64)> + use<> {
        (0..chunks(&self.source.tables()[table])).map(move |chunk| (table, chunk))
    }

    /// Creates missing tables or the folder.
    fn begin(&self) -> Result<(), LoadError> {
        let all = self.source.tables();
        let tables: Vec<&Table> = self.tables.iter().map(|table| &all[*table]).collect();
        let cql = match &self.target {
            FillTarget::Csv(folder) => return csv::begin(folder, &tables, self.decimals),
            FillTarget::Parquet(folder) => return parquet::begin(folder, &tables),
            FillTarget::Cql(cql) => cql,
        };
        let mut session = cql.connect(0)?;
        session.query(&format!(
            "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': {}}}",
            cql.keyspace, cql.replication
        ))?;
        for table in tables {
            session.query(&table.definition(&cql.keyspace, self.decimals))?;
        }
        Ok(())
    }

    /// Prepares the INSERTs on a server. `None` for tables that are not written.
    fn inserts(&self, session: &mut Session, cql: &Cql) -> Result<Vec<Option<Insert>>, LoadError> {
        let mut inserts = vec![None; self.source.tables().len()];
        for index in &self.tables {
            let table = &self.source.tables()[*index];
            let prepared = session.prepare(&table.insert(&cql.keyspace))?;
            inserts[*index] = Some(Insert {
                table: *index,
                id: prepared.id,
                batch_columns: table.batch_columns,
                decimals: self.decimals,
                consistency: cql.consistency,
            });
        }
        Ok(inserts)
    }

    /// Runs the threads. Returns the first failure.
    fn run_threads(
        &self,
        shared: &FillState,
        work: &[(usize, u64)],
        next: &AtomicUsize,
        observer: &mut impl FnMut(&'static str, u64, u64),
    ) -> Option<LoadError> {
        let threads = match &self.target {
            FillTarget::Cql(cql) => cql.connections.min(work.len()),
            FillTarget::Csv(_) | FillTarget::Parquet(_) => {
                std::thread::available_parallelism().map_or(1, |cores| cores.get()).min(work.len())
            }
        };
        let failure = Mutex::new(None);
        let fail = |error: LoadError| {
            shared.failed.store(true, Ordering::Relaxed);
            failure.lock().expect("no thread panics with the guard").get_or_insert(error);
        };
        let running = AtomicUsize::new(threads);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let fail = &fail;
                let running = &running;
                scope.spawn(move || {
                    // Decrement even if the thread panics. The loop below would never end
                    // otherwise.
                    let _ended = Countdown(running);
                    if let Err(error) = self.run_thread(thread, shared, work, next) {
                        fail(error);
                    }
                });
            }
            let total: u64 = self.tables.iter().map(|table| self.source.tables()[*table].rows).sum();
            let mut seen = Instant::now();
            while running.load(Ordering::Acquire) > 0 {
                std::thread::sleep(Duration::from_millis(20));
                if seen.elapsed() >= Duration::from_secs(1) {
                    seen += Duration::from_secs(1);
                    let at = next.load(Ordering::Relaxed).clamp(1, work.len()) - 1;
                    let rows = self.tables.iter().map(|table| shared.of(*table)[0]).sum();
                    observer(self.source.tables()[work[at].0].name, rows, total);
                }
            }
        });
        failure.into_inner().expect("no thread panicked with the guard")
    }

    /// Runs one thread: takes chunks until none is left.
    fn run_thread(
        &self,
        thread: usize,
        shared: &FillState,
        work: &[(usize, u64)],
        next: &AtomicUsize,
    ) -> Result<(), LoadError> {
        let take = || work.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !shared.stopped());
        let cql = match &self.target {
            FillTarget::Csv(folder) => {
                while let Some((table, _)) = take() {
                    csv::write(self.source, *table, folder, shared)?;
                }
                return Ok(());
            }
            FillTarget::Parquet(folder) => {
                while let Some((table, _)) = take() {
                    parquet::write(self.source, *table, folder, self.decimals, shared)?;
                }
                return Ok(());
            }
            FillTarget::Cql(cql) => cql,
        };
        let host = thread % cql.hosts.len();
        let mut session = cql.connect(host)?;
        let inserts = self.inserts(&mut session, cql)?;
        let mut writer =
            Writer::new(session.into_stream(), cql.hosts[host].clone(), cql.in_flight_max, inserts.len())?;
        while let Some((table, chunk)) = take() {
            let Some(insert) = &inserts[*table] else { continue };
            self.write_chunk(&mut writer, insert, *chunk, shared)?;
        }
        let outcome = writer.finish();
        count(&mut writer, shared);
        outcome
    }

    fn write_chunk(
        &self,
        writer: &mut Writer,
        insert: &Insert,
        chunk: u64,
        shared: &FillState,
    ) -> Result<(), LoadError> {
        let mut outcome = Ok(());
        let mut rows = 0u64;
        let chunks = chunks(&self.source.tables()[insert.table]);
        self.source.make(insert.table, chunk, chunks, &mut |row| {
            outcome = writer.row(insert, row);
            rows += 1;
            // A thousand rows take a few milliseconds.
            if rows.is_multiple_of(1000) {
                count(writer, shared);
            }
            if outcome.is_err() || shared.stopped() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        outcome.and_then(|()| writer.end_chunk(insert)).inspect_err(|_| count(writer, shared))
    }
}

struct Countdown<'a>(&'a AtomicUsize);

impl Drop for Countdown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

fn count(writer: &mut Writer, shared: &FillState) {
    for (table, done) in writer.take_progress() {
        shared.add(table, done.rows, done.bytes, done.refused);
    }
}

impl Cql {
    fn connect(&self, host: usize) -> Result<Session, LoadError> {
        let user = self.user.as_deref();
        let password = self.password.as_deref();
        Session::connect(&self.hosts[host], user, password, HANDSHAKE)
    }
}

impl Filled {
    /// Formats the report as text.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for table in &self.tables {
            let refused = match table.refused {
                0 => String::new(),
                refused => format!("   {refused} temporarily rejected and sent again"),
            };
            let megabytes = table.bytes as f64 / 1e6;
            out += &format!("  {:<10}{:>12} rows{megabytes:>10.1} MB{refused}\n", table.table, table.rows);
        }
        out + &format!("{:.1} s, {:.0} rows/s\n", self.seconds, self.rows_per_s)
    }
}
