//! Service levels in front of a cluster whose nodes know none.
//!
//! ```text
//!   loads ──► front: levels, queues by shares ──► window ──► node: everybody in one level
//!     └─────────────────── direct, for comparison ──────────► on cores of its own
//! ```
//!
//! The node is the resource that the loads compete for, so it has a core of its own. With fewer
//! than four cores the front shares that of the loads: beside the batch load the node takes 98 % of
//! its core, the front 50 % of the other (AMD EPYC, 2026-11-29).
//!
//! The node treats all requests in its window alike, so that a request waits there for others,
//! whatever its level. A small window keeps that queue short. It must still cover the time until
//! the front learns of an answer and sends the next request, or the node idles.
//!
//! The front divides occupancy: the time for which requests hold places in the window. This node
//! lets connections take turns (`docs/scheduler.md`), and each role has one connection to it. So
//! the more requests of a role are in its queue, the longer each of them takes: the larger the
//! window, the less operations follow shares.

use crate::error::DemoError;
use crate::names::DIRECT;
use crate::phases;
use crate::results::{Capacity, Chapter};
use crate::stage::Stage;

/// Fraction of the node's CPU for the interactive load. A single row costs the front and the sender
/// more CPU than the node: with 0.2 they filled the core that they share, and the node was idle for
/// 14 % of the time (2026-11-29).
const PART: f64 = 0.1;

/// Note about what the demo does not have, and what follows from it.
pub(crate) const NOT_A_CLUSTER: &str = concat!(
    "One node, and another fairlane instead of Cassandra: all its users are in one service level there. There is no ",
    "network in between. The server in tables and charts is the node. It lets connections take turns, and each role ",
    "has one: requests of a role with many in the window hold their places for longer, so operations follow shares ",
    "less than occupancy does, and with larger windows less. Cassandra serves requests in the order of their arrival."
);
/// Note for machines on which the front has no core of its own.
pub(crate) const SHARED_CORE: &str = concat!(
    "The front and the loads share a core, so latencies through the front include the time that it and the senders ",
    "wait for each other. The node has its own."
);

/// Fills the tables, starts the front, and measures what the node can do behind it. The tables are
/// filled without the front: few writes in flight would share each write to the disk.
pub(crate) fn prepare(stage: &mut Stage) -> Result<Capacity, DemoError> {
    stage.prefill()?;
    stage.start_front()?;
    let window = stage.times.node_window;
    stage.notes.push(format!("At most {window} requests were in flight at the node (`--node-window`)."));
    stage.capacity(PART)
}

/// Both loads in the default level of the front.
pub(crate) fn one_level(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let chapter = phases::one_level(stage)?;
    Ok(Chapter {
        title: "Through the front: both loads in one level".to_string(),
        what: "The interactive load is an open loop of single-row reads. It runs alone, then beside an unlimited \
               batch load with 256 slices of 100 rows in flight, then alone again. Both are in the default level of \
               the front, so that their connections take turns for places in the window of the node."
            .to_string(),
        ..chapter
    })
}

/// A level of the front for each load.
pub(crate) fn two_levels(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let batch = "CREATE SERVICE LEVEL analytics WITH shares = 10 AND workload_type = 'batch'";
    let chapter = phases::a_level_each(stage, batch)?;
    Ok(Chapter {
        title: "Through the front: a level for each load, shares 1000 and 10".to_string(),
        what: "The same two loads, after two CREATE and two ATTACH statements that the front keeps to itself. \
               Interactive requests are sent to the node before waiting slices. There they still wait for the slices \
               that are already in the window."
            .to_string(),
        ..chapter
    })
}

/// Both loads at the node itself.
pub(crate) fn direct(stage: &mut Stage) -> Result<Chapter, DemoError> {
    stage.target.clone_from(&stage.server.cql);
    let chapter = phases::one_level(stage)?;
    Ok(Chapter {
        id: DIRECT.to_string(),
        title: "Without a front: both loads at the node".to_string(),
        what: "The same two loads are connected to the node itself, where all roles are in one level. The front is \
               idle. The rate is that of the other chapters."
            .to_string(),
        ..chapter
    })
}
