//! Whom levels and the server's own groups waited for, by name.

use std::collections::{BTreeMap, HashMap};

use lanes::{Group, Lanes};

use crate::Catalogue;
use crate::metrics::SYSTEM;

/// Whoever is not told apart, and groups that are no more.
const OTHERS: &str = "$others";

/// What each group is called beside the others: a level by its name, the server's own work by one that begins with `$`, which no level's
/// name does.
pub(crate) struct Names(HashMap<Group, String>);

impl Names {
    pub(crate) fn new(catalogue: &Catalogue) -> Names {
        let levels = catalogue.entries().map(|entry| (entry.level.group(), entry.spec.name.to_string()));
        let system = SYSTEM.iter().map(|(name, group)| (*group, format!("${name}")));
        Names(levels.chain(system).collect())
    }

    /// Whom the group waited for on all cores, and how long, ns.
    pub(crate) fn waited_for(&self, lanes: &Lanes, group: Group) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (whom, ns) in lanes.waited_for(group) {
            let name = whom.and_then(|whom| self.0.get(&whom)).map_or(OTHERS, String::as_str);
            *sums.entry(name.to_owned()).or_default() += ns;
        }
        sums
    }
}
