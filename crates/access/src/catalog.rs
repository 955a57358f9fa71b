//! Catalog of a fleet as edits of the tables of this server, and edits as changes of the catalog.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cluster::{EntryChange, EntryKind, Fleet, FleetCatalog};
use engine::Error;
use workload::{Catalog, DEFAULT_LEVEL, DRIVER_LEVEL, LevelSpec};

use crate::options;
use crate::roles::{Edit, Roles};

/// Membership in a fleet.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) fleet: Arc<Fleet>,
    /// Number of the catalog that the tables have.
    pub(crate) adopted: AtomicU64,
}

impl Membership {
    pub(crate) fn new(fleet: Arc<Fleet>) -> Membership {
        Membership { fleet, adopted: AtomicU64::new(0) }
    }
}

/// Returns the changes of the catalog among edits.
pub(crate) fn changes(edits: &[Edit]) -> Vec<EntryChange> {
    let change = |kind, name: &Arc<str>, value: Option<String>| {
        Some(EntryChange { kind, name: name.to_string(), value })
    };
    let of_edit = |edit: &Edit| match edit {
        Edit::PutLevel(spec) => change(EntryKind::Level, &spec.name, Some(options::to_text(spec))),
        Edit::DropLevel(level) => change(EntryKind::Level, level, None),
        Edit::Attach { role, level } => change(EntryKind::Attachment, role, Some(level.to_string())),
        Edit::Detach { role } => change(EntryKind::Attachment, role, None),
        Edit::PutRole { .. }
        | Edit::DropRole(_)
        | Edit::AddMember { .. }
        | Edit::RemoveMember { .. }
        | Edit::Permit { .. }
        | Edit::Forbid { .. } => None,
    };
    edits.iter().filter_map(of_edit).collect()
}

/// Returns the edits after which levels and attachments are those of the catalog. A role that is
/// not known here yet gets a copy that cannot log in, until it does.
///
/// # Errors
/// The options of a level are not valid here.
pub(crate) fn edits_to(roles: &Roles, levels: &Catalog, catalog: &FleetCatalog) -> Result<Vec<Edit>, Error> {
    let mut specs: BTreeMap<&str, LevelSpec> = BTreeMap::new();
    let mut attached: BTreeMap<&str, &str> = BTreeMap::new();
    for ((kind, name), value) in &catalog.entries {
        match kind {
            EntryKind::Level => {
                let spec = options::of_text(name, value).ok_or_else(|| {
                    Error::Server(format!(
                        "the service level `{name}` of the fleet has options that this version does not know \
                         ({value}): install the version of the other fronts here"
                    ))
                })?;
                specs.insert(name, spec);
            }
            EntryKind::Attachment => drop(attached.insert(name, value)),
        }
    }
    specs.entry(DRIVER_LEVEL).or_insert_with(LevelSpec::driver_level);
    specs.remove(DEFAULT_LEVEL);
    let mut edits = Vec::new();
    let exists = |level: &str| level == DEFAULT_LEVEL || specs.contains_key(level);
    for (role, level) in &attached {
        let known = roles.get(role);
        if !exists(level) || known.is_some_and(|known| known.level.as_deref() == Some(*level)) {
            continue;
        }
        if known.is_none() {
            let role = (*role).into();
            edits.push(Edit::PutRole { role, can_login: false, is_superuser: false, verifier: None });
        }
        edits.push(Edit::Attach { role: (*role).into(), level: (*level).into() });
    }
    for (role, _) in roles.iter().filter(|(_, known)| known.level.is_some()) {
        let keeps = attached.get(&**role).is_some_and(|level| exists(level));
        if !keeps {
            edits.push(Edit::Detach { role: role.clone() });
        }
    }
    let unwanted = levels.entries().filter(|entry| !exists(&entry.spec.name));
    edits.extend(unwanted.map(|entry| Edit::DropLevel(entry.spec.name.clone())));
    let is_same = |spec: &LevelSpec| levels.get(&spec.name).is_some_and(|entry| entry.spec == *spec);
    let changed = specs.into_values().filter(|spec| !is_same(spec)).map(Edit::PutLevel);
    // Levels are there before roles are attached to them.
    Ok(changed.chain(edits).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::tests::roles;

    fn catalog(levels: &[(&str, &str)], attached: &[(&str, &str)]) -> FleetCatalog {
        let entry =
            |kind| move |(name, value): &(&str, &str)| ((kind, (*name).to_owned()), (*value).to_owned());
        let levels = levels.iter().map(entry(EntryKind::Level));
        let entries = levels.chain(attached.iter().map(entry(EntryKind::Attachment))).collect();
        FleetCatalog { number: 1, version: 1, entries }
    }

    #[test]
    fn levels_and_attachments_become_those_of_the_catalog() {
        let lanes = testkit::start_lanes(1);
        let levels = workload::Levels::new(lanes.clone());
        let mut known = roles(&["ann", "bob"]);
        let mut adopt = |of: &FleetCatalog| {
            let edits = edits_to(&known, &levels.catalog(), of).expect("valid");
            for edit in &edits {
                match edit {
                    Edit::PutLevel(spec) if levels.catalog().get(&spec.name).is_some() => {
                        levels.alter(spec.clone()).expect("there");
                    }
                    Edit::PutLevel(spec) => levels.create(spec.clone()).expect("new"),
                    Edit::DropLevel(level) => levels.drop_level(level).expect("there"),
                    edit => known.apply(edit),
                }
            }
            let level_of =
                |role| known.get(role).and_then(|role: &Arc<_>| role.level.as_deref().map(str::to_owned));
            let catalog = levels.catalog();
            let shares = |level: &str| catalog.get(level).map(|entry| entry.spec.shares);
            (edits.len(), [level_of("ann"), level_of("team")], [shares("etl"), shares("web")])
        };
        let some = |name: &str| Some(name.to_owned());
        let first =
            catalog(&[("etl", "shares = 100"), ("web", "shares = 800")], &[("ann", "web"), ("team", "etl")]);
        assert_eq!(adopt(&first), (5, [some("web"), some("etl")], [Some(100), Some(800)]));
        assert_eq!(adopt(&first).0, 0);
        let second = catalog(&[("web", "shares = 900")], &[("ann", "web"), ("team", "gone")]);
        assert_eq!(adopt(&second), (3, [some("web"), None], [None, Some(900)]));
        assert_eq!(adopt(&catalog(&[], &[])), (2, [None, None], [None, None]));
        assert!(!known.get("team").expect("kept").can_login);
        assert!(edits_to(&known, &levels.catalog(), &catalog(&[("x", "speed = 1")], &[])).is_err());
        lanes.shutdown();
    }

    #[test]
    fn only_levels_and_attachments_are_shared() {
        let level = LevelSpec { shares: 7, ..LevelSpec::new("web") };
        let edits = [
            Edit::PutRole { role: "ann".into(), can_login: true, is_superuser: false, verifier: None },
            Edit::PutLevel(level.clone()),
            Edit::Detach { role: "ann".into() },
        ];
        let put =
            EntryChange { kind: EntryKind::Level, name: "web".into(), value: Some(options::to_text(&level)) };
        let detach = EntryChange { kind: EntryKind::Attachment, name: "ann".into(), value: None };
        assert_eq!(changes(&edits), [put, detach]);
    }
}
