//! Viewer of a session in front of a cluster: what its role sees here, and how its scans read the
//! tables of the cluster.

use std::any::Any;
use std::sync::Arc;

use cluster::Reader;
use engine::{About, Viewer};

/// Viewer of one statement.
#[derive(Debug)]
pub(crate) struct ClusterViewer {
    pub(crate) here: Arc<dyn Viewer>,
    pub(crate) reader: Reader,
}

impl Viewer for ClusterViewer {
    fn sees(&self, about: About<'_>) -> bool {
        self.here.sees(about)
    }

    fn reader(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.reader)
    }
}
