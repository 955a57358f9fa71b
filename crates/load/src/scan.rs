//! Scans of a whole table by paging, as a client that exports all rows does. Each connection asks
//! for one page after the other, and begins again after the last one, so that one page a connection
//! is in flight at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use crate::LoadError;
use crate::common_flags::{ReportFlags, ServerFlags};
use crate::flag_values::{seconds, size_in};
use crate::output::{stop_on_signals, write_json};
use crate::run::StopFlag;
use crate::session::{Page, Session};
use crate::spec::is_name;

/// Timeout of a page. A table is scanned beside overloads.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause after a failed page, so that a server that refuses pages is not asked in a tight loop.
const PAUSE: Duration = Duration::from_millis(50);

/// Flags of `scan`.
#[derive(Args, Debug)]
pub(crate) struct ScanFlags {
    #[command(flatten)]
    server: ServerFlags,
    /// Table to read, as KEYSPACE.TABLE
    #[arg(long, value_name = "NAME", default_value = "keyspace1.standard1", value_parser = table)]
    table: String,
    /// Connections, one thread and one page in flight each
    #[arg(long, value_name = "N", default_value = "1", value_parser = |text: &str| size_in(text, 1..=256))]
    connections: usize,
    /// Rows of a page, at most
    #[arg(long, value_name = "N", default_value = "5000", value_parser = |text: &str| size_in(text, 1..=1_000_000))]
    page_rows: usize,
    /// Time to measure
    #[arg(long = "duration", value_name = "TIME", default_value = "30s", value_parser = seconds)]
    duration_s: f64,
    #[command(flatten)]
    report: ReportFlags,
}

fn table(text: &str) -> Result<String, LoadError> {
    let is_table = text.split_once('.').is_some_and(|(keyspace, table)| is_name(keyspace) && is_name(table));
    if is_table {
        Ok(text.to_string())
    } else {
        Err(LoadError::Usage(format!("expected KEYSPACE.TABLE, got `{text}`")))
    }
}

/// Results of a scan.
#[derive(Debug, Default, PartialEq, Serialize)]
struct ScanReport {
    seconds: f64,
    pages: u64,
    rows: u64,
    /// Scans that came to the last page.
    scans: u64,
    /// Pages that failed.
    errors: u64,
    /// Mean time of a page, from its request to its last byte, milliseconds.
    page_ms_mean: f64,
}

/// Counts of all connections.
#[derive(Default)]
struct Counts {
    pages: AtomicU64,
    rows: AtomicU64,
    scans: AtomicU64,
    errors: AtomicU64,
    page_ns: AtomicU64,
}

/// Runs the scan that the flags describe. Returns the exit code: 1 if no page was read.
///
/// # Errors
/// Those of connections that cannot be opened. Failures of pages are counted.
pub(crate) fn cli(flags: &ScanFlags) -> Result<i32, LoadError> {
    let stop = stop_on_signals()?;
    let report = run(flags, &stop)?;
    if flags.report.prints_text() {
        let ScanReport { pages, rows, scans, errors, page_ms_mean, seconds } = &report;
        println!("{pages} pages and {rows} rows in {seconds:.1} s, {page_ms_mean:.1} ms a page");
        println!("{scans} whole scans, {errors} errors");
    }
    write_json(flags.report.json.as_deref(), &report)?;
    Ok(i32::from(report.pages == 0))
}

fn run(flags: &ScanFlags, stop: &StopFlag) -> Result<ScanReport, LoadError> {
    let hosts = flags.server.hosts()?;
    let password = flags.server.password()?;
    let text = format!("SELECT * FROM {}", flags.table);
    let open = |index: usize| {
        let user = flags.server.user.as_deref();
        Session::connect(&hosts[index % hosts.len()], user, password.as_deref(), PAGE_TIMEOUT)
    };
    let sessions = (0..flags.connections).map(open).collect::<Result<Vec<_>, _>>()?;
    let counts = Counts::default();
    let begin = Instant::now();
    let until = begin + Duration::from_secs_f64(flags.duration_s);
    std::thread::scope(|scope| {
        for mut session in sessions {
            let (counts, text) = (&counts, &text);
            let page = move |state: Option<&[u8]>| session.page(text, flags.page_rows as i32, state);
            scope.spawn(move || scan(counts, page, || stop.is_set() || Instant::now() >= until));
        }
    });
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let pages = of(&counts.pages);
    Ok(ScanReport {
        seconds: begin.elapsed().as_secs_f64(),
        pages,
        rows: of(&counts.rows),
        scans: of(&counts.scans),
        errors: of(&counts.errors),
        page_ms_mean: of(&counts.page_ns) as f64 / 1e6 / pages.max(1) as f64,
    })
}

/// Reads pages until `is_over`. A scan with a failed page begins again. A lost connection ends it:
/// the count of errors then says so.
fn scan(
    counts: &Counts,
    mut page: impl FnMut(Option<&[u8]>) -> Result<Page, LoadError>,
    mut is_over: impl FnMut() -> bool,
) {
    let mut state: Option<Vec<u8>> = None;
    while !is_over() {
        let begin = Instant::now();
        match page(state.as_deref()) {
            Ok(page) => {
                counts.page_ns.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
                counts.pages.fetch_add(1, Ordering::Relaxed);
                counts.rows.fetch_add(page.rows as u64, Ordering::Relaxed);
                counts.scans.fetch_add(u64::from(page.next.is_none()), Ordering::Relaxed);
                state = page.next;
            }
            Err(error) => {
                counts.errors.fetch_add(1, Ordering::Relaxed);
                if !matches!(error, LoadError::Statement { .. }) {
                    return;
                }
                state = None;
                std::thread::sleep(PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answers: Vec<Result<Page, LoadError>>, states: &[Option<&[u8]>], expected: [u64; 4]) {
        let counts = Counts::default();
        let mut asked = Vec::new();
        let (mut answers, left) = (answers.into_iter(), states.len());
        let mut rounds = 0;
        scan(
            &counts,
            |state| {
                asked.push(state.map(<[u8]>::to_vec));
                answers.next().expect("no page beyond the last")
            },
            || {
                rounds += 1;
                rounds > left
            },
        );
        assert_eq!(asked.iter().map(Option::as_deref).collect::<Vec<_>>(), states);
        let found = [&counts.pages, &counts.rows, &counts.scans, &counts.errors];
        assert_eq!(found.map(|count| count.load(Ordering::Relaxed)), expected);
    }

    fn page(rows: usize, next: Option<&[u8]>) -> Result<Page, LoadError> {
        Ok(Page { rows, next: next.map(<[u8]>::to_vec) })
    }

    #[test]
    fn scan_begins_again_after_the_last_page() {
        let answers = vec![page(3, Some(b"a")), page(2, None), page(3, Some(b"a"))];
        check(answers, &[None, Some(b"a"), None], [3, 8, 1, 0]);
    }

    #[test]
    fn refused_page_begins_the_scan_again() {
        let refused = LoadError::Statement { statement: String::new(), code: 0x1001, reason: String::new() };
        let answers = vec![page(3, Some(b"a")), Err(refused), page(3, Some(b"a"))];
        check(answers, &[None, Some(b"a"), None], [2, 6, 0, 1]);
    }

    #[test]
    fn names_of_tables_are_checked() {
        assert_eq!(table("a.b").ok().as_deref(), Some("a.b"));
        assert!(["a", "a.b; DROP", ".b"].iter().all(|text| table(text).is_err()));
    }
}
