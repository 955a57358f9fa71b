//! `system.nodes`: the nodes of the cluster in front of which this server stands, with their use by
//! each service level. A role sees its own levels. It sees `in_flight_of_all` only if it may
//! DESCRIBE ALL SERVICE LEVELS. The numbers are at most 100 ms old, and count from the start of the
//! server.

use std::rc::Rc;

use cluster::{Front, NodeUsage};
use engine::{Metric, Subject, VirtualTable};
use schema::CqlType;

use crate::cells::{bigint, int, text};
use crate::exposition::Page;

/// Returns the table for a core's registry.
pub(crate) fn table(front: &Rc<Front>) -> VirtualTable {
    let front = Rc::downgrade(front);
    let columns = [
        ("node", CqlType::Text),
        ("service_level", CqlType::Text),
        ("window", CqlType::Int),
        ("in_flight_of_all", CqlType::Int),
        ("in_flight", CqlType::Int),
        ("queued", CqlType::Int),
        ("requests", CqlType::BigInt),
        ("occupancy_us", CqlType::BigInt),
    ];
    let rows = move || {
        let nodes = front.upgrade().map(|front| front.shared().usage()).unwrap_or_default();
        nodes.iter().flat_map(rows_of).collect()
    };
    VirtualTable::new("system", "nodes", 1, 1, &columns, rows).about(Subject::Level { name: 1, others: 3 })
}

fn rows_of(node: &NodeUsage) -> Vec<Vec<Option<bytes::Bytes>>> {
    let count = |n: u32| int(i32::try_from(n).unwrap_or(i32::MAX));
    let total = |n: u64| bigint(i64::try_from(n).unwrap_or(i64::MAX));
    let row = |level: &cluster::LevelUsage| {
        vec![
            text(&node.address.to_string()),
            text(&level.level),
            count(node.window),
            count(node.in_flight),
            count(level.used.in_flight),
            count(level.used.queued),
            total(level.used.answers),
            total(level.used.occupancy_ns / 1000),
        ]
    };
    node.levels.iter().map(row).collect()
}

/// A value of a level at a node.
type OfLevel = fn(&cluster::LevelUsage) -> f64;

const LEVELS: [(Metric, OfLevel); 4] = [
    (Metric::gauge("fairlane_node_in_flight", "Requests in flight at a node of the cluster."), |level| {
        level.used.in_flight.into()
    }),
    (
        Metric::gauge("fairlane_node_queued", "Requests that wait for a place in the window of a node."),
        |level| level.used.queued.into(),
    ),
    (Metric::counter("fairlane_node_requests_total", "Requests that a node has answered."), |level| {
        level.used.answers as f64
    }),
    (
        Metric::counter(
            "fairlane_node_occupancy_seconds_total",
            "Time for which requests held places in the window of a node.",
        ),
        |level| level.used.occupancy_ns as f64 / 1e9,
    ),
];

const WINDOW: Metric =
    Metric::gauge("fairlane_node_window", "Requests in flight at a node, at most, from all cores.");

/// Appends the metrics of the nodes.
pub(crate) fn page(page: &mut Page, nodes: &[NodeUsage]) {
    page.head(&WINDOW);
    for node in nodes {
        page.value(&WINDOW, "node", node.address, node.window.into());
    }
    for (metric, value) in &LEVELS {
        page.head(metric);
        for node in nodes {
            for level in &node.levels {
                page.at_node(metric, node.address, &level.level, value(level));
            }
        }
    }
}
