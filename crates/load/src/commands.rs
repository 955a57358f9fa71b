//! Commands of `fairlane load`, each with its groups of flags.

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::LoadError;
use crate::capacity::flags::CapacityFlags;
use crate::common_flags::{CommandLine, PageFlags, ReportFlags, parse, usage};
use crate::data::flags::{HitsFlags, TpchFlags};
use crate::flags::CqlFlags;
use crate::scan::ScanFlags;
use crate::spec::Workload;
use crate::sql_flags::SqlFlags;
use crate::sweep::flags::{self as sweep, SweepFlags};
use crate::usl::flags::{self as usl, LadderFlags};

/// Open- and closed-loop load over the CQL native protocol
#[derive(Debug, Parser)]
#[command(
    bin_name = "fairlane load",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = workloads()
)]
pub(crate) struct LoadCommand {
    #[command(subcommand)]
    pub(crate) command: Option<OtherCommand>,
    /// Kind of requests
    #[arg(value_parser = workload)]
    pub(crate) workload: Option<Workload>,
    #[command(flatten)]
    pub(crate) flags: CqlFlags,
}

/// Commands beside the loads over CQL.
#[derive(Debug, Subcommand)]
pub(crate) enum OtherCommand {
    /// Closed loops of growing concurrency, fitted to the scalability law
    Usl(Box<UslCommand>),
    /// Open loops at 4, 40 and 100 % of the peak, with at most 4096 in flight
    Sweep(Box<SweepCommand>),
    /// Cores and concurrency for a rate, from the JSON of `usl`
    #[command(after_help = "\
Example
  fairlane load plan --from usl.json --rate 500k --p99 2ms --headroom 30%

One ladder, or several of servers that differ in their cores. Four core counts determine a law over cores.")]
    Plan(CapacityFlags),
    /// Pages of a whole table, one after the other, over and over
    Scan(ScanFlags),
    /// One report from the raw histograms of several generators
    Merge(MergeFlags),
    /// Write the eight tables of TPC-H into the keyspace `tpch`, or as files
    #[command(after_help = concat!(
        "The rows are those of the benchmark's own generator. The queries are in crates/load/queries/tpch.\n\n",
        "Rows written before a stop or a failure remain. Run the same command again to complete the\n",
        "tables: rows are overwritten.\n",
        "Complete Parquet files are kept, and an incomplete one is removed.",
    ))]
    Tpch(TpchFlags),
    /// Write a table like ClickBench's `hits` into the keyspace `clickbench`, or as a file
    #[command(after_help = concat!(
        "Its 105 columns and their skew resemble the real table, but the rows are generated from a seed.\n",
        "Compare results with each other, not with published ones.\n",
        "Queries are in crates/load/queries/clickbench.\n\n",
        "Rows written before a stop or a failure remain. Run the same command again to complete the\n",
        "tables: rows are overwritten.\n",
        "Complete Parquet files are kept, and an incomplete one is removed.",
    ))]
    Hits(HitsFlags),
    /// Queries over the Postgres protocol, open or closed loop
    #[command(after_help = "\
Example
  fairlane load sql --queries crates/load/queries/tpch --search-path tpch --concurrency 4 --duration 60s

Connections are not encrypted.")]
    Sql(Box<SqlFlags>),
}

/// Flags of `usl`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = workloads(),
    mut_arg("duration_s", |arg| arg.default_value(usl::SECONDS)),
    mut_arg("warmup_s", |arg| arg.default_value(usl::WARMUP)),
)]
pub(crate) struct UslCommand {
    #[command(subcommand)]
    pub(crate) sql: Option<UslTarget>,
    /// Kind of requests
    #[arg(value_parser = workload, default_value = "read")]
    pub(crate) workload: Workload,
    #[command(flatten)]
    pub(crate) ladder: LadderFlags,
    #[command(flatten)]
    pub(crate) page: PageFlags,
    #[command(flatten)]
    pub(crate) flags: CqlFlags,
}

/// Other targets of `usl`.
#[derive(Debug, Subcommand)]
pub(crate) enum UslTarget {
    /// Throughput of queries over concurrency, fitted to the scalability law
    #[command(after_help = "\
Example
  fairlane load usl sql --queries crates/load/queries/tpch --search-path tpch --ladder 1,2,4,8,16

--concurrency connections are open all the time and take turns: 64 by default, or fewer if the last
concurrency is lower. More queries in flight than connections are sent in a pipeline.")]
    Sql(Box<UslSqlFlags>),
}

/// Flags of `usl sql`.
#[derive(Args, Debug)]
#[command(
    mut_arg("duration_s", |arg| arg.default_value(usl::SECONDS)),
    mut_arg("warmup_s", |arg| arg.default_value(usl::WARMUP)),
)]
pub(crate) struct UslSqlFlags {
    #[command(flatten)]
    pub(crate) ladder: LadderFlags,
    #[command(flatten)]
    pub(crate) page: PageFlags,
    #[command(flatten)]
    pub(crate) metrics: MetricsFlags,
    #[command(flatten)]
    pub(crate) flags: SqlFlags,
}

/// Flags of `sweep`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = workloads(),
    mut_arg("duration_s", |arg| arg.default_value(sweep::SECONDS)),
    mut_arg("warmup_s", |arg| arg.default_value(sweep::WARMUP)),
)]
pub(crate) struct SweepCommand {
    #[command(subcommand)]
    pub(crate) sql: Option<SweepTarget>,
    /// Kind of requests
    #[arg(value_parser = workload, default_value = "read")]
    pub(crate) workload: Workload,
    #[command(flatten)]
    pub(crate) sweep: SweepFlags,
    #[command(flatten)]
    pub(crate) page: PageFlags,
    #[command(flatten)]
    pub(crate) flags: CqlFlags,
}

/// Other targets of `sweep`.
#[derive(Debug, Subcommand)]
pub(crate) enum SweepTarget {
    /// Queries in open loops at 4, 40 and 100 % of the peak
    #[command(after_help = "\
Example
  fairlane load sweep sql --queries crates/load/queries/tpch --search-path tpch --from usl.json

--concurrency connections are open all the time and take turns, 64 by default. More queries in flight than
connections, up to 4096, are sent in a pipeline.")]
    Sql(Box<SweepSqlFlags>),
}

/// Flags of `sweep sql`.
#[derive(Args, Debug)]
#[command(
    mut_arg("duration_s", |arg| arg.default_value(sweep::SECONDS)),
    mut_arg("warmup_s", |arg| arg.default_value(sweep::WARMUP)),
)]
pub(crate) struct SweepSqlFlags {
    #[command(flatten)]
    pub(crate) sweep: SweepFlags,
    #[command(flatten)]
    pub(crate) page: PageFlags,
    #[command(flatten)]
    pub(crate) metrics: MetricsFlags,
    #[command(flatten)]
    pub(crate) flags: SqlFlags,
}

/// Metrics of a server with SQL.
#[derive(Args, Debug)]
pub(crate) struct MetricsFlags {
    /// The server's metrics, for its service times and CPU
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<String>,
}

/// Flags of `merge`.
#[derive(Args, Debug)]
pub(crate) struct MergeFlags {
    /// Files written by --hdr
    #[arg(required = true)]
    pub(crate) files: Vec<String>,
    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

/// Parses the arguments after the word `load`. Prints the help and returns `None` if it is asked
/// for.
///
/// # Errors
/// [`LoadError::Usage`].
pub(crate) fn command(args: &[String]) -> Result<Option<LoadCommand>, LoadError> {
    match parse(LoadCommand::command(), args)? {
        CommandLine::Matches(matches) => {
            LoadCommand::from_arg_matches(&matches).map(Some).map_err(|error| usage(&error))
        }
        CommandLine::Help(text) => {
            print!("{text}");
            Ok(None)
        }
    }
}

fn workload(word: &str) -> Result<Workload, LoadError> {
    let found = Workload::ALL.iter().find(|(_, name, _)| *name == word);
    let names = || Workload::ALL.map(|(_, name, _)| name).join(", ");
    let unknown = || LoadError::Usage(format!("expected one of {}, got `{word}`", names()));
    found.map(|(workload, ..)| *workload).ok_or_else(unknown)
}

fn workloads() -> String {
    let line = |(_, name, what): &(Workload, &str, &str)| format!("\n  {name:<10}{what}");
    format!("Workloads{}", Workload::ALL.iter().map(line).collect::<String>())
}
