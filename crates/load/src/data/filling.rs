//! Tables for another program of this house: a server filled as `fairlane load tpch` and `hits` do by default, without their output.

use super::cli::source;
use super::fill::Fill;
use super::flags::Options;
use crate::LoadError;
use crate::common::Common;
use crate::run::StopFlag;

/// Which tables, in their usual keyspaces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tables {
    /// Those of TPC-H at this scale, in `tpch`.
    Tpch {
        /// 1 is about a gigabyte.
        scale: f64,
    },
    /// One in the shape of ClickBench's, in `clickbench`.
    Hits {
        /// How many rows.
        rows: u64,
    },
}

/// What to write, and where.
#[derive(Clone, Debug)]
pub struct Filling {
    /// The tables.
    pub tables: Tables,
    /// HOST:PORT of the server's native protocol.
    pub host: String,
    /// Who logs in.
    pub user: String,
    /// Their password.
    pub password: String,
}

/// Writes the tables. `observer` is called once a second with the table under way, the rows written and about how many there will be.
///
/// # Errors
/// [`LoadError`], when it cannot be begun or fails on the way. A stop is no error, though not all rows may be there then.
pub fn fill(
    filling: &Filling,
    stop: &StopFlag,
    observer: impl FnMut(&'static str, u64, u64),
) -> Result<(), LoadError> {
    let mut options = Options::default();
    let workload = match filling.tables {
        Tables::Tpch { scale } => {
            options.scale = scale;
            "tpch"
        }
        Tables::Hits { rows } => {
            options.rows = rows;
            "hits"
        }
    };
    options.common = Common {
        hosts: Some(vec![filling.host.clone()]),
        user: Some(filling.user.clone()),
        password: Some(filling.password.clone()),
        ..Common::default()
    };
    let target = options.target(workload)?;
    let source = source(workload, &options);
    let tables = (0..source.tables().len()).collect();
    let fill = Fill { source: source.as_ref(), tables, target, decimals: options.decimals };
    let (_, failure) = fill.run(stop, observer);
    failure.map_or(Ok(()), Err)
}
