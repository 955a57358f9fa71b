//! Demands of a front on the nodes, as its row in `fronts` has it: JSON, so that operators can read
//! it and later versions can add to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Most bytes of a report. A larger one leaves out what the levels want of the nodes.
const REPORT_BYTES_MAX: usize = 1 << 20;

/// Report of a front.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Number of cores.
    #[serde(default)]
    pub(crate) cores: u16,
    /// Nodes.
    #[serde(default)]
    pub(crate) nodes: BTreeMap<SocketAddr, NodeDemand>,
    /// True if the front serves no new clients.
    #[serde(default)]
    pub(crate) is_leaving: bool,
    /// Statements of each level that have or want a slot, for levels with leases.
    #[serde(default)]
    pub(crate) slots: BTreeMap<String, u32>,
}

/// Demand of a front on a node.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct NodeDemand {
    /// Window that this front has found. `None`: it has not found one yet.
    #[serde(default)]
    pub(crate) window: Option<u32>,
    /// For each level, cores with requests in flight or waiting, and the number of these.
    #[serde(default)]
    pub(crate) levels: BTreeMap<String, Vec<(u16, u32)>>,
}

impl Report {
    pub(crate) fn to_text(&self) -> String {
        let text = |report: &Report| serde_json::to_string(report).expect("maps with names as keys");
        let all = text(self);
        if all.len() <= REPORT_BYTES_MAX {
            return all;
        }
        text(&Report { nodes: BTreeMap::new(), ..self.clone() })
    }

    /// Parses a report. One that is damaged, or too large, wants nothing.
    pub(crate) fn of_text(text: &str) -> Report {
        if text.len() > REPORT_BYTES_MAX {
            return Report::default();
        }
        serde_json::from_str(text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_survives_its_text() {
        let node = NodeDemand {
            window: Some(32),
            levels: BTreeMap::from([("a \"b\"".to_owned(), vec![(0, 7), (3, 1)])]),
        };
        let report = Report {
            cores: 4,
            nodes: BTreeMap::from([("[::1]:9042".parse().expect("an address"), node)]),
            is_leaving: true,
            slots: BTreeMap::from([("etl".to_owned(), 9)]),
        };
        assert_eq!(Report::of_text(&report.to_text()), report);
        assert_eq!(Report::of_text("{\"cores\":2,\"of a later version\":[]}").cores, 2);
        assert_eq!(Report::of_text("{\"cores\":"), Report::default());
    }

    #[test]
    fn report_beyond_its_bound_keeps_the_slots() {
        let node = |port| (SocketAddr::from(([10, 0, 0, 1], port)), NodeDemand::default());
        let nodes = (1..=60_000).map(node).collect();
        let report = Report { nodes, slots: BTreeMap::from([("etl".to_owned(), 9)]), ..Report::default() };
        let kept = Report::of_text(&report.to_text());
        assert_eq!((kept.nodes.len(), kept.slots), (0, report.slots));
    }
}
