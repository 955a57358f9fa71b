//! Flags of `fairlane load tpch` and `fairlane load hits`.

use std::path::PathBuf;

use clap::Args;

use super::Decimals;
use super::fill::{Cql, FillTarget};
use crate::LoadError;
use crate::common_flags::{ReportFlags, ServerFlags, TableFlags};
use crate::flag_values::{CommaList, number, size_in, whole};
use crate::spec::{consistency_level, is_name};

/// Largest scale factor. Larger keys would overflow the generator's counters.
const SCALE_MAX: f64 = 1000.0;
/// Default number of connections.
pub(super) const CONNECTIONS: usize = 4;
/// Default number of requests in flight on each connection.
pub(super) const IN_FLIGHT: usize = 256;

/// Flags of `tpch`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TpchFlags {
    /// Scale factor, may be a fraction; 1 is about 1 GB
    #[arg(long, value_name = "N", default_value = "1", value_parser = scale)]
    pub(super) scale: f64,
    /// Only these tables [default: all]
    #[arg(long = "tables", value_name = "NAME,…")]
    pub(super) only: Option<CommaList>,
    /// Type of money and percentages: `decimal` or `double`
    #[arg(long, value_name = "TYPE", default_value = "decimal", value_enum, hide_possible_values = true)]
    pub(super) decimals: Decimals,
    #[command(flatten)]
    pub(super) target: TargetFlags,
}

/// Flags of `hits`.
#[derive(Args, Clone, Debug)]
pub(crate) struct HitsFlags {
    /// Number of rows
    #[arg(long, value_name = "N", default_value = "1M", value_parser = rows)]
    pub(super) rows: u64,
    /// Seed of all rows
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole)]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) target: TargetFlags,
}

/// Destination of the rows.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetFlags {
    /// Write a CSV file for each table and schema.sql instead
    #[arg(long, value_name = "FOLDER")]
    csv: Option<PathBuf>,
    /// Write Parquet files instead; existing files are kept
    #[arg(long, value_name = "FOLDER", conflicts_with = "csv")]
    parquet: Option<PathBuf>,
    #[command(flatten)]
    server: ServerFlags,
    /// Keyspace of the tables [default: the workload's]
    #[arg(long, value_name = "NAME", value_parser = keyspace)]
    keyspace: Option<String>,
    #[command(flatten)]
    tables: TableFlags,
    /// Connections, one thread each
    #[arg(
        long,
        value_name = "N",
        default_value_t = CONNECTIONS,
        value_parser = |text: &str| size_in(text, 1..=256)
    )]
    connections: usize,
    /// Requests in flight on each connection
    #[arg(
        long,
        value_name = "N",
        default_value_t = IN_FLIGHT,
        value_parser = |text: &str| size_in(text, 1..=32_000)
    )]
    in_flight: usize,
    #[command(flatten)]
    pub(super) report: ReportFlags,
}

fn scale(text: &str) -> Result<f64, LoadError> {
    match number(text)? {
        scale if scale > 0.0 && scale <= SCALE_MAX => Ok(scale),
        _ => Err(LoadError::Usage(format!("expected a scale above 0 and at most {SCALE_MAX}, got `{text}`"))),
    }
}

fn rows(text: &str) -> Result<u64, LoadError> {
    match whole(text)? {
        0 => Err(LoadError::Usage("expected at least 1 row, got `0`".into())),
        rows => Ok(rows),
    }
}

fn keyspace(text: &str) -> Result<String, LoadError> {
    if is_name(text) {
        return Ok(text.to_string());
    }
    Err(LoadError::Usage(format!("expected letters, digits and underscores, got `{text}`")))
}

impl TargetFlags {
    /// Returns the target to write to. `keyspace` is the default.
    ///
    /// # Errors
    /// [`LoadError::Usage`] for invalid flags.
    pub(super) fn target(&self, keyspace: &str) -> Result<FillTarget, LoadError> {
        if let Some(folder) = &self.csv {
            return Ok(FillTarget::Csv(folder.clone()));
        }
        if let Some(folder) = &self.parquet {
            return Ok(FillTarget::Parquet(folder.clone()));
        }
        Ok(FillTarget::Cql(Cql {
            hosts: self.server.hosts()?,
            user: self.server.user.clone(),
            password: self.server.password()?,
            keyspace: self.keyspace.clone().unwrap_or_else(|| keyspace.to_string()),
            replication: self.tables.replication,
            consistency: consistency_level(&self.tables.consistency)?,
            connections: self.connections,
            in_flight_max: self.in_flight,
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::{OtherCommand, command};

    fn check_error(line: &str, expected: &str) {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        let target = |command| match command {
            Some(OtherCommand::Tpch(flags)) => flags.target.target("tpch"),
            Some(OtherCommand::Hits(flags)) => flags.target.target("clickbench"),
            other => panic!("{other:?}"),
        };
        let found = command(&args).and_then(|load| target(load.expect("no help").command));
        let error = found.expect_err(line).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn errors_name_the_wrong_flag() {
        check_error("tpch --scale 0", "--scale");
        check_error("tpch --scale NaN", "--scale");
        check_error("tpch --rows 5", "--rows");
        check_error("tpch --decimals float", "float");
        check_error("tpch --csv a --parquet b", "--parquet");
        check_error("tpch twice", "twice");
        check_error("hits --scale 1", "--scale");
        check_error("hits --rows 0", "--rows");
        check_error("hits --keyspace a;b", "--keyspace");
        check_error("hits --in-flight 0", "--in-flight");
        check_error("hits --consistency MOST", "MOST");
    }
}
