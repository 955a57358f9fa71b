//! Command lines of `fairlane load tpch` and `fairlane load hits`. Progress goes to standard error,
//! the report to standard output.
use super::fill::{Fill, FillTarget};
use super::filling::{HITS_KEYSPACE, TPCH_KEYSPACE};
use super::flags::{HitsFlags, TpchFlags};
use super::hits::Hits;
use super::tpch::Tpch;
use super::{Decimals, TableSource};
use crate::LoadError;
use crate::common_flags::ReportFlags;
use crate::output::{stop_on_signals, write_json};

/// Smallest scale with unique primary keys. It has a hundred suppliers.
const UNIQUE_FROM: f64 = 0.01;

/// Writes the tables of TPC-H. Returns the exit code: 0 if every row was written, otherwise 1.
///
/// # Errors
/// [`LoadError`] if it cannot start or fails later. The rows written until then are reported first.
pub(crate) fn tpch(flags: &TpchFlags) -> Result<i32, LoadError> {
    let target = flags.target.target(TPCH_KEYSPACE)?;
    if flags.scale < UNIQUE_FROM {
        eprintln!(
            "fairlane load: below a scale of {UNIQUE_FROM} some rows of partsupp share a primary \
             key; CQL keeps one of them"
        );
    }
    let source = Tpch::new(flags.scale);
    let tables = chosen(&source, flags.only.as_ref().map_or(&[], |only| &only.0[..]))?;
    write(&Fill { source: &source, tables, target, decimals: flags.decimals }, &flags.target.report)
}

/// Writes the table of `hits`. Returns the exit code.
///
/// # Errors
/// As [`tpch`].
pub(crate) fn hits(flags: &HitsFlags) -> Result<i32, LoadError> {
    let target = flags.target.target(HITS_KEYSPACE)?;
    let source = Hits::new(flags.rows, flags.seed);
    let tables = chosen(&source, &[])?;
    let fill = Fill { source: &source, tables, target, decimals: Decimals::default() };
    write(&fill, &flags.target.report)
}

fn write(fill: &Fill<'_>, report: &ReportFlags) -> Result<i32, LoadError> {
    let stop = stop_on_signals()?;
    let mut second = 0u64;
    let mut before = 0u64;
    let (filled, failure) = fill.run(&stop, |table, rows, total| {
        second += 1;
        if !report.quiet && rows == 0 {
            eprintln!("{second:>5} s  preparing");
        } else if !report.quiet {
            let share = (rows as f64 / total.max(1) as f64 * 100.0).min(100.0);
            eprintln!(
                "{second:>5} s  {table:<10}{rows:>12} rows of about {total} ({share:.0} %){:>10}/s",
                rows - before
            );
        }
        before = rows;
    });
    let nothing = filled.tables.iter().all(|table| table.rows == 0);
    if report.prints_text() && !(nothing && failure.is_some()) {
        print!("{}", filled.text());
    }
    write_json(report.json.as_deref(), &filled)?;
    if !filled.complete && !nothing {
        let remedy = match fill.target {
            FillTarget::Cql(_) | FillTarget::Csv(_) => "run the same command again to complete them",
            FillTarget::Parquet(_) => {
                "tables reported with rows are complete; run again with --tables for the others"
            }
        };
        eprintln!("fairlane load: the tables are incomplete; {remedy}");
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(i32::from(!filled.complete)),
    }
}

/// Returns the indexes of the named tables, or of all tables without names.
fn chosen(source: &dyn TableSource, only: &[String]) -> Result<Vec<usize>, LoadError> {
    let all = source.tables();
    if only.is_empty() {
        return Ok((0..all.len()).collect());
    }
    let index = |name: &String| {
        all.iter().position(|table| table.name == name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|table| table.name).collect();
            LoadError::Usage(format!(
                "--tables: unknown table `{name}`; expected one of {}",
                names.join(", ")
            ))
        })
    };
    only.iter().map(index).collect()
}
