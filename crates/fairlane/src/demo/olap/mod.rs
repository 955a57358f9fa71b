//! SQL beside SQL: whether shares divide what queries get done, whether a hard cap holds, and what a client of short queries feels
//! of others beside it. The same experiments as `tests/bench/olap.py`, drawn.
//!
//! ```text
//!   shares        two clients, 2:1  ████████   both in one level  ████████
//!   cap           1 connection  ████   2  ████   4  ████           a level that may use half of the server
//!   short         alone █  beside 1 █ 2 █ 4 █ 8 █ 8 █ 4 █ 2 █ 1 █ (a level each)  the same (one level)  alone █; of ClickBench, of TPC-H
//! ```
//!
//! Unlike in the other subjects the server has every core, since a query runs on all of them; the clients wait for answers most
//! of the time and take hardly any. A phase is a run of its own: its clients log in, warm up, and are measured.

mod clients;
mod short;

use load::{Filling, Tables};

use super::DemoError;
use super::figures::{Capacity, Chapter};
use super::server::ADMIN;
use super::shares::CAPPED;
use super::stage::Stage;
use super::units::rate;
use clients::{Beside, Clients, Phases, Queries};

pub(super) use short::{ALONE, CONNECTIONS, SHORT, clickbench, is_short, tpch};

/// Roles, levels and names in reports of two clients beside each other.
pub(super) const FIRST: &str = "first";
pub(super) const SECOND: &str = "second";
/// The phases of the chapter about shares, and what begins the names of those beside others: a level for each client, or one for both.
pub(super) const LEVELS: &str = "levels";
pub(super) const ONE_LEVEL: &str = "one_level";

/// Long enough to be queued behind each other, short enough to be counted: a scan over texts.
const SHARED: Queries = Queries { keyspace: "clickbench", names: &["q23"] };
/// Groups and counts distinct users: busy on every core from beginning to end.
const EVERY_CORE: Queries = Queries { keyspace: "clickbench", names: &["q10"] };
/// How many connections the capped client has.
const CAPPED_CONNECTIONS: [usize; 3] = [1, 2, 4];
/// Longer than the server leaves a memtable that is not written to any more, seconds.
const QUIET_S: f64 = 12.0;
/// A ratio of throughputs is one of whole queries, of which there are some a second: so shares have longer phases.
const SHARES_PHASES: f64 = 3.0;

/// One of the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Shares,
    Cap,
    Latency,
}

impl Part {
    /// By the words that ask for them alone.
    pub(super) const WORDS: [(&'static str, Part); 3] =
        [("shares", Part::Shares), ("cap", Part::Cap), ("latency", Part::Latency)];
}

/// What the command line said of this subject.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Asked {
    pub(super) rows: Option<u64>,
    pub(super) scale: Option<f64>,
    pub(super) seconds: Option<f64>,
    pub(super) only: Option<Part>,
}

/// Sizes and times of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sizes {
    /// Rows of ClickBench's table.
    rows: u64,
    /// Of TPC-H.
    scale: f64,
    /// A phase.
    seconds: f64,
    /// Ahead of it: connections, plans, caches.
    warmup_s: f64,
    only: Option<Part>,
}

const QUICK: Sizes = Sizes { rows: 50_000, scale: 0.01, seconds: 2.0, warmup_s: 0.5, only: None };
const FULL: Sizes = Sizes { rows: 200_000, scale: 0.05, seconds: 8.0, warmup_s: 1.5, only: None };

impl Asked {
    pub(super) fn sizes(&self, quick: bool) -> Sizes {
        let usual = if quick { QUICK } else { FULL };
        Sizes {
            rows: self.rows.unwrap_or(usual.rows),
            scale: self.scale.unwrap_or(usual.scale),
            seconds: self.seconds.unwrap_or(usual.seconds),
            only: self.only,
            ..usual
        }
    }
}

/// Flags of the server: the door that the clients come through.
pub(super) fn flags() -> Vec<String> {
    ["--sql-listen", "127.0.0.1:0"].map(str::to_string).to_vec()
}

/// Fills the tables, makes roles and levels, and waits for the flushes and compactions that this leaves.
pub(super) fn prepare(stage: &mut Stage) -> Result<Capacity, DemoError> {
    let Sizes { rows, scale, only, .. } = stage.olap;
    fill(stage, Tables::Hits { rows }, &format!("writing {rows} rows in the shape of ClickBench's"))?;
    let mut keyspaces = vec!["clickbench"];
    if only.is_none_or(|only| only == Part::Latency) {
        fill(stage, Tables::Tpch { scale }, &format!("writing the tables of TPC-H at a scale of {scale}"))?;
        keyspaces.push("tpch");
    }
    for role in [FIRST, SECOND, CAPPED] {
        keyspaces.iter().try_for_each(|keyspace| stage.reader(role, keyspace))?;
    }
    stage.cql(&[
        "CREATE SERVICE LEVEL first WITH shares = 1000",
        "CREATE SERVICE LEVEL second WITH shares = 1000",
        "CREATE SERVICE LEVEL capped WITH cpu_limit = '50%'",
        "ATTACH SERVICE LEVEL capped TO capped",
    ])?;
    stage.say("waiting until what was written is in files, so that queries are measured beside queries only");
    stage.settle(QUIET_S, "queries were measured beside them")?;
    Ok(Capacity::default())
}

fn fill(stage: &mut Stage, tables: Tables, what: &str) -> Result<(), DemoError> {
    stage.say(what);
    let filling = Filling {
        tables,
        host: stage.server.cql.clone(),
        user: ADMIN.to_string(),
        password: stage.password.clone(),
    };
    let filled = load::fill(&filling, &stage.stop, |table, rows, total| {
        stage.say(&format!("{table}: {rows} rows of about {total}"));
    });
    stage.interrupted()?;
    stage.server_check()?;
    filled.map_err(DemoError::from)
}

/// A level for each of the two, with these shares.
fn a_level_each(stage: &mut Stage, shares: [u32; 2]) -> Result<(), DemoError> {
    for (role, shares) in [FIRST, SECOND].into_iter().zip(shares) {
        let alter = format!("ALTER SERVICE LEVEL {role} WITH shares = {shares}");
        let attach = format!("ATTACH SERVICE LEVEL {role} TO {role}");
        stage.cql(&[&alter, &attach])?;
    }
    Ok(())
}

/// Both in the level that everybody has.
fn one_level(stage: &mut Stage) -> Result<(), DemoError> {
    stage.cql(&["DETACH SERVICE LEVEL FROM first", "DETACH SERVICE LEVEL FROM second"])
}

/// Two clients that run the same query without pause: shares 2:1, then one level.
pub(super) fn shares(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let Sizes { rows, seconds, .. } = stage.olap;
    let seconds = seconds * SHARES_PHASES;
    let client = |user: &'static str| Clients { user, queries: SHARED, connections: 1 };
    let (first, beside) = (client(FIRST), Beside::Along(client(SECOND)));
    let mut phases = Phases::new(stage);
    a_level_each(phases.stage, [1000, 500])?;
    phases.measure(LEVELS, "a level each, shares 1000 and 500", first, beside, seconds)?;
    one_level(phases.stage)?;
    phases.measure(ONE_LEVEL, "both in one level", first, beside, seconds)?;
    let mut chapter = phases.finish();
    chapter.id = "olap_shares".into();
    chapter.title = "Shares between queries: 2 to 1".to_string();
    chapter.what = format!(
        "Two clients with a connection each run the same query without pause: ClickBench's Q23, over {} rows in the shape of its table. First \
         each is in a level of its own, with twice the shares for one of them; then both are in one level. Nothing else changes.",
        rate(rows as f64)
    );
    Ok(chapter)
}

/// A hard limit, with ever more connections that all want every core.
pub(super) fn cap(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let Sizes { rows, seconds, .. } = stage.olap;
    let mut phases = Phases::new(stage);
    for connections in CAPPED_CONNECTIONS {
        let clients = Clients { user: CAPPED, queries: EVERY_CORE, connections };
        let label = format!("{connections} {}", if connections == 1 { "connection" } else { "connections" });
        phases.measure(&connections.to_string(), &label, clients, Beside::Nobody, seconds)?;
    }
    let mut chapter = phases.finish();
    chapter.id = "olap_cap".into();
    chapter.title = "A hard limit for queries: cpu_limit = '50%'".to_string();
    chapter.what = format!(
        "One client alone on the server, in a level that may use half of its CPU, runs ClickBench's Q10 over {} rows without pause: a query \
         that keeps every core busy, one after the other, then two and four at a time. What is drawn first is the whole server, by the \
         system's count, and so what planning, sockets and its own work take beside the level.",
        rate(rows as f64)
    );
    Ok(chapter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_comes_before_what_is_usual() {
        let asked = Asked { rows: Some(7), only: Some(Part::Cap), ..Asked::default() };
        assert_eq!(asked.sizes(true), Sizes { rows: 7, only: Some(Part::Cap), ..QUICK });
        assert_eq!(Asked::default().sizes(false), FULL);
    }

    #[test]
    fn every_query_is_carried_along() {
        for queries in [SHARED, EVERY_CORE, SHORT[0].1, SHORT[1].1] {
            assert_eq!(queries.texts().len(), queries.names.len());
        }
    }
}
