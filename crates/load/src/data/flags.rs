//! Command lines of `fairlane load tpch` and `fairlane load hits`, as tables of flags.

use std::path::PathBuf;

use super::Decimals;
use super::fill::{Cql, Target};
use crate::LoadError;
use crate::common::{self, Common};
use crate::flag::{Flag, flag, list, number, usage, whole};

/// Largest scale factor. Larger keys would overflow the generator's counters.
const SCALE_MAX: f64 = 1000.0;

/// Parsed flags.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) scale: f64,
    pub(crate) rows: u64,
    pub(crate) seed: u64,
    pub(crate) only: Vec<String>,
    pub(crate) decimals: Decimals,
    pub(crate) common: Common,
    csv: Option<PathBuf>,
    parquet: Option<PathBuf>,
    keyspace: Option<String>,
    replication: u32,
    consistency: String,
    connections: usize,
    in_flight: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            scale: 1.0,
            rows: 1_000_000,
            seed: 1,
            only: Vec::new(),
            decimals: Decimals::default(),
            common: Common::default(),
            csv: None,
            parquet: None,
            keyspace: None,
            replication: 1,
            consistency: "ONE".to_string(),
            connections: 4,
            in_flight: 256,
        }
    }
}

impl AsMut<Common> for Options {
    fn as_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

const TPCH: &[Flag<Options>] = &[
    flag!("scale", "N", "1", "scale factor, may be a fraction; 1 is about 1 GB", |o, v| {
        o.scale = number(v)?;
        Ok(())
    }),
    flag!("tables", "NAME,…", "all", "only these tables", |o, v| {
        o.only = v.split(',').map(str::to_string).collect();
        Ok(())
    }),
    flag!("decimals", "TYPE", "decimal", "type of money and percentages: `decimal` or `double`", |o, v| {
        o.decimals = match v {
            "decimal" => Decimals::Decimal,
            "double" => Decimals::Double,
            other => return Err(usage(format!("expected `decimal` or `double`, got `{other}`"))),
        };
        Ok(())
    }),
];

const HITS: &[Flag<Options>] = &[
    flag!("rows", "N", "1M", "number of rows", |o, v| {
        o.rows = whole(v)?;
        Ok(())
    }),
    flag!("seed", "N", "1", "seed of all rows", |o, v| {
        o.seed = whole(v)?;
        Ok(())
    }),
];

const BOTH: &[Flag<Options>] = &[
    flag!("csv", "FOLDER", "off", "write a CSV file for each table and schema.sql instead", |o, v| {
        o.csv = Some(PathBuf::from(v));
        Ok(())
    }),
    flag!("parquet", "FOLDER", "off", "write Parquet files instead; existing files are kept", |o, v| {
        o.parquet = Some(PathBuf::from(v));
        Ok(())
    }),
    common::hosts("127.0.0.1:9042"),
    common::user("none"),
    common::password(),
    common::password_file(),
    flag!("keyspace", "NAME", "the workload's", "keyspace of the tables", |o, v| {
        o.keyspace = Some(v.to_string());
        Ok(())
    }),
    flag!("replication", "N", "1", "replication factor of a keyspace created here", |o, v| {
        o.replication = number(v)?;
        Ok(())
    }),
    flag!("consistency", "LEVEL", "ONE", "consistency level", |o, v| {
        o.consistency = v.to_string();
        Ok(())
    }),
    flag!("connections", "N", "4", "connections, one thread each", |o, v| {
        o.connections = whole(v)? as usize;
        Ok(())
    }),
    flag!("in-flight", "N", "256", "requests in flight on each connection", |o, v| {
        o.in_flight = whole(v)? as usize;
        Ok(())
    }),
    common::json(),
    common::quiet(),
    common::help(),
];

fn table(workload: &str) -> impl Iterator<Item = &'static Flag<Options>> {
    let own = if workload == "tpch" { TPCH } else { HITS };
    own.iter().chain(BOTH)
}

/// Parses the flags of a workload.
///
/// # Errors
/// [`LoadError::Usage`].
pub(crate) fn parse(workload: &str, args: &[String]) -> Result<Options, LoadError> {
    let mut options = Options::default();
    let flags: Vec<&Flag<Options>> = table(workload).collect();
    let words = crate::flag::read(args, &mut options, &flags, &format!("fairlane load {workload}"))?;
    match words.first() {
        Some(word) => Err(usage(format!("unexpected word `{word}`; see `fairlane load {workload} --help`"))),
        None => Ok(options),
    }
}

/// Returns the help of a workload.
pub(crate) fn help(workload: &str) -> String {
    let flags: Vec<&Flag<Options>> = table(workload).collect();
    let what = match workload {
        "tpch" => {
            "fairlane load tpch: writes the eight tables of TPC-H into the keyspace `tpch`, or as files\n\n\
             The rows are those of the benchmark's own generator. The queries are in crates/load/queries/tpch.\n"
        }
        _ => {
            "fairlane load hits: writes a table with the columns of ClickBench's `hits`\n\
             into the keyspace `clickbench`, or as a file\n\n\
             Its 105 columns and their skew resemble the real table, but the rows are generated from a seed.\n\
             Compare results with each other, not with published ones.\n\
             Queries are in crates/load/queries/clickbench.\n"
        }
    };
    let again = "\nRows written before a stop or a failure remain. Run the same command again to complete the\n\
         tables: rows are overwritten.\n\
         Complete Parquet files are kept, and an incomplete one is removed.\n";
    format!("{what}{again}{}", list(&flags))
}

impl Options {
    /// Returns the target to write to.
    ///
    /// # Errors
    /// [`LoadError::Usage`] for invalid flags.
    pub(crate) fn target(&self, workload: &str) -> Result<Target, LoadError> {
        let refuse = |wrong: bool, reason: &str| if wrong { Err(usage(reason.into())) } else { Ok(()) };
        refuse(!(self.scale > 0.0 && self.scale <= SCALE_MAX), "--scale must be above 0 and at most 1000")?;
        refuse(self.rows == 0, "--rows must be at least 1")?;
        refuse(
            self.csv.is_some() && self.parquet.is_some(),
            "--csv and --parquet exclude each other; give one of them",
        )?;
        if let Some(folder) = &self.csv {
            return Ok(Target::Csv(folder.clone()));
        }
        if let Some(folder) = &self.parquet {
            return Ok(Target::Parquet(folder.clone()));
        }
        let keyspace = match (&self.keyspace, workload) {
            (Some(name), _) => name.clone(),
            (None, "tpch") => "tpch".to_string(),
            (None, _) => "clickbench".to_string(),
        };
        let hosts = self.common.hosts("127.0.0.1:9042");
        refuse(hosts.is_empty(), "--hosts names no server")?;
        refuse(!crate::spec::is_name(&keyspace), "--keyspace must be letters, digits and underscores")?;
        refuse(self.replication == 0, "--replication must be at least 1")?;
        refuse(!(1..=256).contains(&self.connections), "--connections must be 1 to 256")?;
        refuse(!(1..=32_000).contains(&self.in_flight), "--in-flight must be 1 to 32,000")?;
        let wanted = self.consistency.to_ascii_uppercase();
        let level = wire::Consistency::ALL.into_iter().find(|level| level.to_string() == wanted);
        let consistency =
            level.ok_or_else(|| usage(format!("unknown consistency level `{}`", self.consistency)))?;
        Ok(Target::Cql(Cql {
            hosts,
            user: self.common.user.clone(),
            password: self.common.password(),
            keyspace,
            replication: self.replication,
            consistency,
            connections: self.connections,
            in_flight_max: self.in_flight,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_error(workload: &str, line: &str, expected: &str) {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        let outcome = parse(workload, &args).and_then(|options| options.target(workload));
        let error = outcome.expect_err(line).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn errors_name_the_wrong_flag() {
        check_error("tpch", "--scale 0", "--scale");
        check_error("tpch", "--scale NaN", "--scale");
        check_error("tpch", "--rows 5", "--rows");
        check_error("tpch", "--decimals float", "float");
        check_error("tpch", "--csv a --parquet b", "--parquet");
        check_error("tpch", "twice", "twice");
        check_error("hits", "--scale 1", "--scale");
        check_error("hits", "--rows 0", "--rows");
        check_error("hits", "--keyspace a;b", "--keyspace");
        check_error("hits", "--in-flight 0", "--in-flight");
        check_error("hits", "--consistency MOST", "MOST");
    }

    #[test]
    fn help_has_every_flag() {
        for workload in ["tpch", "hits"] {
            let help = help(workload);
            assert!(table(workload).all(|flag| help.contains(&format!("--{}", flag.name))), "{help}");
        }
    }
}
