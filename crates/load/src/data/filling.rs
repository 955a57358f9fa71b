//! Filling a server from another program, as `fairlane load tpch` and `hits` do by default, without
//! their output.
use super::fill::{Cql, Fill, FillTarget};
use super::flags::{CONNECTIONS, IN_FLIGHT};
use super::hits::Hits;
use super::tpch::Tpch;
use super::{Decimals, TableSource};
use crate::LoadError;
use crate::run::StopFlag;

/// Default keyspace of TPC-H.
pub(super) const TPCH_KEYSPACE: &str = "tpch";
/// Default keyspace of ClickBench's table.
pub(super) const HITS_KEYSPACE: &str = "clickbench";
/// Seed of the rows of ClickBench's table.
const SEED: u64 = 1;

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
    let (source, keyspace): (Box<dyn TableSource>, _) = match filling.tables {
        Tables::Tpch { scale } => (Box::new(Tpch::new(scale)), TPCH_KEYSPACE),
        Tables::Hits { rows } => (Box::new(Hits::new(rows, SEED)), HITS_KEYSPACE),
    };
    let target = FillTarget::Cql(Cql {
        hosts: vec![filling.host.clone()],
        user: Some(filling.user.clone()),
        password: Some(filling.password.clone()),
        keyspace: keyspace.to_string(),
        replication: 1,
        consistency: wire::Consistency::One,
        connections: CONNECTIONS,
        in_flight_max: IN_FLIGHT,
    });
    let tables = (0..source.tables().len()).collect();
    let fill = Fill { source: source.as_ref(), tables, target, decimals: Decimals::default() };
    let (_, failure) = fill.run(stop, observer);
    failure.map_or(Ok(()), Err)
}
