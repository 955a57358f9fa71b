//! `fairlane load tpch` and `fairlane load hits`: flags to a fill, progress on standard error, the report on standard output.

use super::fill::{Fill, Target};
use super::flags::Options;
use super::hits::Hits;
use super::tpch::Tpch;
use super::{Source, flags};
use crate::LoadError;
use crate::cli::{stop_on_signals, write_json};

/// From this scale on, with a hundred suppliers, the primary keys of TPC-H's rows are unique.
const UNIQUE_FROM: f64 = 0.01;

/// Runs a workload with what follows its name; returns the exit code: 0 when every row was written, 1 when not.
///
/// # Errors
/// [`LoadError`], when it could not be begun or failed on the way; what was written until then has been told.
pub(crate) fn run(workload: &str, args: &[String]) -> Result<i32, LoadError> {
    let options = flags::parse(workload, args)?;
    if options.common.help {
        print!("{}", flags::help(workload));
        return Ok(0);
    }
    let target = options.target(workload)?;
    let source = source(workload, &options);
    if workload == "tpch" && options.scale < UNIQUE_FROM {
        eprintln!(
            "fairlane load: below a scale of {UNIQUE_FROM} some parts have the same supplier twice: of those rows of partsupp CQL keeps one."
        );
    }
    let tables = chosen(source.as_ref(), &options.only)?;
    let fill = Fill { source: source.as_ref(), tables, target, decimals: options.decimals };
    let stop = stop_on_signals()?;
    let mut second = 0u64;
    let mut before = 0u64;
    let (filled, failure) = fill.run(&stop, |table, rows, total| {
        second += 1;
        if !options.common.quiet && rows == 0 {
            eprintln!("{second:>5} s  getting ready");
        } else if !options.common.quiet {
            let share = (rows as f64 / total.max(1) as f64 * 100.0).min(100.0);
            eprintln!(
                "{second:>5} s  {table:<10}{rows:>12} rows of about {total} ({share:.0} %){:>10}/s",
                rows - before
            );
        }
        before = rows;
    });
    let nothing = filled.tables.iter().all(|table| table.rows == 0);
    if options.common.json.as_deref() != Some("-") && !(nothing && failure.is_some()) {
        print!("{}", filled.text());
    }
    write_json(options.common.json.as_deref(), &filled)?;
    if !filled.complete && !nothing {
        let again = match fill.target {
            Target::Cql(_) | Target::Csv(_) => "The same command again makes them so; nothing is doubled.",
            Target::Parquet(_) => {
                "Those told above with rows are, and stay; --tables with the others makes these."
            }
        };
        eprintln!("fairlane load: the tables are not whole. {again}");
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(i32::from(!filled.complete)),
    }
}

/// What makes the tables of a workload.
pub(super) fn source(workload: &str, options: &Options) -> Box<dyn Source> {
    match workload {
        "tpch" => Box::new(Tpch::new(options.scale)),
        _ => Box::new(Hits::new(options.rows, options.seed)),
    }
}

/// The places of the tables named; all when none is.
fn chosen(source: &dyn Source, only: &[String]) -> Result<Vec<usize>, LoadError> {
    let all = source.tables();
    if only.is_empty() {
        return Ok((0..all.len()).collect());
    }
    let place = |name: &String| {
        all.iter().position(|table| table.name == name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|table| table.name).collect();
            LoadError::Usage(format!("--tables: there is no `{name}`; there are {}.", names.join(", ")))
        })
    };
    only.iter().map(place).collect()
}
