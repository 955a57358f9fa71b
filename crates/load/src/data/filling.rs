//! Filling a server from another program, as `fairlane load tpch` and `hits` do by default, without
//! their output.
use super::cli::source;
use super::fill::Fill;
use super::flags::Options;
use crate::LoadError;
use crate::common::Common;
use crate::run::StopFlag;

/// Tables to write, in their default keyspaces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tables {
    /// Tables of TPC-H, in `tpch`.
    Tpch {
        /// Scale factor. 1 is about 1 GB.
        scale: f64,
    },
    /// A table with the columns of ClickBench's, in `clickbench`.
    Hits {
        /// Number of rows.
        rows: u64,
    },
}

/// Tables to write, and the server to write to.
#[derive(Clone, Debug)]
pub struct Filling {
    /// Tables to write.
    pub tables: Tables,
    /// HOST:PORT of the server's native protocol.
    pub host: String,
    /// User to log in as.
    pub user: String,
    /// Password of the user.
    pub password: String,
}

/// Writes the tables. Calls `observer` once a second with the current table, the rows written, and
/// the approximate total.
///
/// # Errors
/// [`LoadError`] if it cannot start or fails later. A stop returns `Ok`, with rows missing.
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
