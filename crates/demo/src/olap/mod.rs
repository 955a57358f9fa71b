//! Demo of queries beside queries: throughput by shares, a hard cap, and the latency of short
//! queries beside other queries. `tests/bench/olap.py` has the same experiments.
//!
//! ```text
//!   shares   two clients, 2:1  ████████   both in one level  ████████
//!   cap      1 connection  ████   2  ████   4  ████              a level that may use half of the server
//!   short    alone █  beside 1 █ 2 █ 4 █ 8 █ 8 █ 4 █ 2 █ 1 █ (a level each), the same (one level), alone █
//! ```
//!
//! The server has all cores, since a query runs on all of them. The clients need hardly any CPU. In
//! each phase the clients log in, warm up, and are measured.
//!
//! The published experiments have the same chapters. Q23 then runs for minutes, with shares and
//! without the cache of column chunks, and it is the query of the cap too.

mod clients;
mod short;

use load::{Filling, Tables};

use crate::error::DemoError;
use crate::names::{CAPPED, DASHBOARD, LEVELS, ONE_LEVEL, REPORTS};
use crate::options::{OlapPart, OlapSizes};
use crate::results::{Capacity, Chapter};
use crate::server::ADMIN;
use crate::stage::Stage;
use charts::numbers::rate;
use clients::{Beside, Clients, Phases, Queries};

pub(crate) use short::{clickbench, tpch};

/// Query of the chapter about shares: a scan over texts, long enough to queue and short enough to
/// count.
const SHARED: Queries = Queries { keyspace: "clickbench", names: &["q23"] };
/// Query of the chapter about the cap: groups and counts distinct users, busy on all cores to its
/// end.
const EVERY_CORE: Queries = Queries { keyspace: "clickbench", names: &["q10"] };
/// Numbers of connections of the capped client.
const CAPPED_CONNECTIONS: [usize; 3] = [1, 2, 4];
/// Quiet time before measuring, seconds. Longer than the server keeps a memtable without new
/// writes.
const QUIET_S: f64 = 12.0;
/// Length of the phases of shares, in usual phases. Only a few queries end each second, and
/// throughput counts whole queries.
const SHARES_PHASES: f64 = 3.0;

/// Returns the flags of the server.
pub(crate) fn flags() -> Vec<String> {
    ["--sql-listen", "127.0.0.1:0"].map(str::to_string).to_vec()
}

/// Returns the lengths of the phases of shares, seconds: with a level each, and in one level. No
/// length was published for the second, and equal halves show soon.
fn shares_s(sizes: &OlapSizes) -> [f64; 2] {
    let usual_s = sizes.seconds * SHARES_PHASES;
    [sizes.published_s.unwrap_or(usual_s), usual_s]
}

/// Returns the query of the chapter about the cap, its name, and the length of a phase, seconds.
fn capped(sizes: &OlapSizes) -> (Queries, &'static str, f64) {
    match sizes.published_s {
        Some(seconds) => (SHARED, "Q23", seconds),
        None => (EVERY_CORE, "Q10", sizes.seconds),
    }
}

/// Fills the tables, creates roles and levels, and waits until flushes and compactions have ended.
pub(crate) fn prepare(stage: &mut Stage) -> Result<Capacity, DemoError> {
    let OlapSizes { rows, scale, only, .. } = stage.olap;
    fill(stage, Tables::Hits { rows }, &format!("writing {rows} rows in the shape of ClickBench's"))?;
    let mut keyspaces = vec!["clickbench"];
    if only.is_none_or(|only| only == OlapPart::Latency) {
        fill(stage, Tables::Tpch { scale }, &format!("writing the tables of TPC-H at a scale of {scale}"))?;
        keyspaces.push("tpch");
    }
    for role in [DASHBOARD, REPORTS, CAPPED] {
        keyspaces.iter().try_for_each(|keyspace| stage.reader(role, keyspace))?;
    }
    stage.cql(&[
        &format!("CREATE SERVICE LEVEL {DASHBOARD} WITH shares = 1000"),
        &format!("CREATE SERVICE LEVEL {REPORTS} WITH shares = 1000"),
        "CREATE SERVICE LEVEL capped WITH cpu_limit = '50%'",
        "ATTACH SERVICE LEVEL capped TO capped",
    ])?;
    stage.print("waiting for flushes and compactions to end");
    stage.settle(QUIET_S, "queries were measured beside them")?;
    Ok(Capacity::default())
}

fn fill(stage: &mut Stage, tables: Tables, what: &str) -> Result<(), DemoError> {
    stage.print(what);
    let filling = Filling {
        tables,
        host: stage.server.cql.clone(),
        user: ADMIN.to_string(),
        password: stage.password.clone(),
    };
    let filled = load::fill(&filling, &stage.stop, |table, rows, total| {
        stage.print(&format!("{table}: {rows} rows of about {total}"));
    });
    stage.interrupted()?;
    stage.server_check()?;
    filled.map_err(DemoError::from)
}

/// Gives each of the two clients its own level with these shares.
fn set_shares(stage: &mut Stage, shares: [u32; 2]) -> Result<(), DemoError> {
    for (role, shares) in [DASHBOARD, REPORTS].into_iter().zip(shares) {
        let alter = format!("ALTER SERVICE LEVEL {role} WITH shares = {shares}");
        let attach = format!("ATTACH SERVICE LEVEL {role} TO {role}");
        stage.cql(&[&alter, &attach])?;
    }
    Ok(())
}

/// Moves both clients to the default level.
fn set_one_level(stage: &mut Stage) -> Result<(), DemoError> {
    let detach = |role: &str| format!("DETACH SERVICE LEVEL FROM {role}");
    stage.cql(&[&detach(DASHBOARD), &detach(REPORTS)])
}

/// Measures two clients that run the same query without pause: with shares 2:1, then in one level.
pub(crate) fn shares(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let OlapSizes { rows, published_s, .. } = stage.olap;
    let [levels_s, one_level_s] = shares_s(&stage.olap);
    let bypass_cache = published_s.is_some();
    let client = |user: &'static str| Clients { user, queries: SHARED, connections: 1, bypass_cache };
    let (first, beside) = (client(DASHBOARD), Beside::Along(client(REPORTS)));
    let mut phases = Phases::new(stage);
    set_shares(phases.stage, [1000, 500])?;
    phases.measure(LEVELS, "a level each, shares 1000 and 500", first, beside, levels_s)?;
    set_one_level(phases.stage)?;
    phases.measure(ONE_LEVEL, "both in one level", first, beside, one_level_s)?;
    let mut chapter = phases.finish();
    chapter.id = "olap_shares".into();
    chapter.title = "Shares between queries: 2 to 1".to_string();
    chapter.what = format!(
        "Two clients, `{DASHBOARD}` and `{REPORTS}`, with a connection each run the same query without pause: \
         ClickBench's Q23, over {} rows in the shape of its table. First each has its own level, `{DASHBOARD}` \
         with twice the shares of the other. Then both are in one level. Nothing else changes.{}",
        rate(rows as f64),
        if bypass_cache { " Scans bypass the cache (`SET bypass_cache = on`)." } else { "" }
    );
    Ok(chapter)
}

/// Measures a hard limit with 1, 2 and 4 connections whose queries use all cores.
pub(crate) fn cap(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let rows = stage.olap.rows;
    let (queries, name, seconds) = capped(&stage.olap);
    let mut phases = Phases::new(stage);
    for connections in CAPPED_CONNECTIONS {
        let clients = Clients { user: CAPPED, queries, connections, bypass_cache: false };
        let label = format!("{connections} {}", if connections == 1 { "connection" } else { "connections" });
        phases.measure(&connections.to_string(), &label, clients, Beside::Nothing, seconds)?;
    }
    let mut chapter = phases.finish();
    chapter.id = "olap_cap".into();
    chapter.title = "A hard limit for queries: cpu_limit = '50%'".to_string();
    chapter.what = format!(
        "One client alone on the server, in a level that may use half of its CPU, runs ClickBench's {name} over {} \
         rows without pause. First one runs at a time, then two, then four. The first panel shows the CPU of the \
         whole server, as the kernel counts it, including planning, sockets and background work.",
        rate(rows as f64)
    );
    Ok(chapter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OlapOptions;

    #[test]
    fn program_contains_every_query() {
        for queries in [SHARED, EVERY_CORE, short::CLICKBENCH, short::TPCH] {
            assert_eq!(queries.texts().len(), queries.names.len());
        }
    }

    #[test]
    fn published_phases_run_q23_for_minutes() {
        let sizes = |is_published| OlapOptions { is_published, ..OlapOptions::default() }.sizes(false);
        assert_eq!((shares_s(&sizes(false)), shares_s(&sizes(true))), ([24.0; 2], [300.0, 24.0]));
        assert_eq!(capped(&sizes(false)), (EVERY_CORE, "Q10", 8.0));
        assert_eq!(capped(&sizes(true)), (SHARED, "Q23", 300.0));
    }
}
