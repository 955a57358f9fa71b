//! Names of the groups that levels and the server's own groups waited for.

use std::collections::{BTreeMap, HashMap};

use lanes::{Group, Lanes};

use crate::Catalog;
use crate::metrics::SYSTEM;

/// Sum of groups that are not distinguished, and of groups that no longer exist.
const OTHERS: &str = "$others";

/// Name of each group: a level by its name, the server's own groups by a name with `$`. Names of
/// levels never begin with `$`.
pub(crate) struct GroupNames(HashMap<Group, String>);

impl GroupNames {
    pub(crate) fn new(catalog: &Catalog) -> GroupNames {
        let levels = catalog.entries().map(|entry| (entry.level.group(), entry.spec.name.to_string()));
        let system = SYSTEM.iter().map(|(name, group)| (*group, format!("${name}")));
        GroupNames(levels.chain(system).collect())
    }

    /// Returns the groups that `group` waited for on all cores, with the time in ns.
    pub(crate) fn waited_for(&self, lanes: &Lanes, group: Group) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (holder, ns) in lanes.waited_for(group) {
            let name = holder.and_then(|holder| self.0.get(&holder)).map_or(OTHERS, String::as_str);
            *sums.entry(name.to_owned()).or_default() += ns;
        }
        sums
    }
}
