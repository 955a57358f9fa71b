//! Effective options of a role: those of its own level and of all roles granted to it, merged.
//!
//! - `timeout`: the smallest. A level without a timeout does not count.
//! - `shares`: the smallest. Statements run in the group of the level that supplied them, so that
//!   the caps of that level apply unmerged.
//! - `workload_type`: batch has precedence over interactive. A level without a type does not count.
//! - `tag`: the first. A level without a tag does not count.
//!
//! A role without any level, attached or granted, is in `default`.

use std::sync::Arc;

use lanes::Group;

use crate::{Level, LevelEntry, LevelSpec, WorkloadType};

/// Effective options of a role.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The level in whose group statements run: the one that supplied `shares`.
    pub level: Arc<Level>,
    /// Options of `level`, with `timeout`, `workload_type` and `tag` merged.
    pub spec: LevelSpec,
    /// The level that supplied the timeout.
    pub timeout_from: Option<Arc<str>>,
    /// The level that supplied the workload type.
    pub workload_type_from: Option<Arc<str>>,
    /// The level that supplied the tag.
    pub tag_from: Option<Arc<str>>,
}

impl Effective {
    /// Returns the options of statements that run under one level.
    #[must_use]
    pub fn of(entry: &LevelEntry) -> Effective {
        let LevelEntry { level, spec } = entry;
        let from = |is_set: bool| is_set.then(|| spec.name.clone());
        Effective {
            level: level.clone(),
            timeout_from: from(spec.timeout.is_some()),
            workload_type_from: from(spec.workload_type.is_some()),
            tag_from: from(spec.tag.is_some()),
            spec: spec.clone(),
        }
    }

    /// Returns the options of a running statement that moves to another level: those of that level,
    /// with the time limit that it began with.
    #[must_use]
    pub fn moved_to(&self, entry: &LevelEntry) -> Effective {
        let mut moved = Effective::of(entry);
        (moved.spec.timeout, moved.timeout_from) = (self.spec.timeout, self.timeout_from.clone());
        moved
    }

    /// Returns the group of the statements in the lanes.
    #[must_use]
    pub fn group(&self) -> Group {
        self.level.group()
    }
}

/// Merges the levels of a role and of the roles granted to it. Returns `default` if there are none.
/// If levels agree in an option, the first one supplies it: pass the role's own level first.
#[must_use]
pub fn merge<'a>(levels: impl IntoIterator<Item = &'a LevelEntry>, default: &LevelEntry) -> Effective {
    let mut levels = levels.into_iter();
    let Some(first) = levels.next() else { return Effective::of(default) };
    let mut merged = Effective::of(first);
    levels.for_each(|entry| merge_into(&mut merged, entry));
    merged
}

fn merge_into(merged: &mut Effective, LevelEntry { level, spec }: &LevelEntry) {
    let LevelSpec { timeout, workload_type, .. } = merged.spec;
    if spec.shares < merged.spec.shares {
        merged.level = level.clone();
        let tag = merged.spec.tag.take();
        merged.spec = LevelSpec { timeout, workload_type, tag, ..spec.clone() };
    }
    if merged.spec.tag.is_none() && spec.tag.is_some() {
        (merged.spec.tag, merged.tag_from) = (spec.tag.clone(), Some(spec.name.clone()));
    }
    if spec.timeout.is_some_and(|new| timeout.is_none_or(|old| new < old)) {
        (merged.spec.timeout, merged.timeout_from) = (spec.timeout, Some(spec.name.clone()));
    }
    let has_precedence = matches!(
        (workload_type, spec.workload_type),
        (None, Some(_)) | (Some(WorkloadType::Interactive), Some(WorkloadType::Batch))
    );
    if has_precedence {
        (merged.spec.workload_type, merged.workload_type_from) =
            (spec.workload_type, Some(spec.name.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use WorkloadType::{Batch, Interactive};

    type LevelOptions = (u16, Option<u64>, Option<WorkloadType>);

    fn entry(name: &str, (shares, timeout_ms, workload_type): LevelOptions) -> LevelEntry {
        let timeout = timeout_ms.map(Duration::from_millis);
        let spec = LevelSpec { shares, timeout, workload_type, ..LevelSpec::new(name) };
        LevelEntry {
            level: Arc::new(Level::new(spec.name.clone(), Group::DEFAULT, 1, &crate::Memory::new(0))),
            spec,
        }
    }

    /// Checks the merge of `levels`, named a, b, c, …: each option with the level that supplied it.
    fn check(levels: &[LevelOptions], expected: &str) {
        let names = ["a", "b", "c"];
        let levels: Vec<LevelEntry> =
            names.iter().zip(levels).map(|(name, level)| entry(name, *level)).collect();
        let merged = merge(&levels, &entry("default", (1000, None, None)));
        let timeout = merged.spec.timeout.map(|timeout| format!("{timeout:?}")).zip(merged.timeout_from);
        let kind = merged.spec.workload_type.map(|kind| format!("{kind:?}")).zip(merged.workload_type_from);
        let shares = (merged.spec.shares.to_string(), Arc::from(&**merged.level.name()));
        let options = [Some(shares), timeout, kind].into_iter().flatten();
        let got: Vec<String> = options.map(|(value, from)| format!("{value} of {from}")).collect();
        assert_eq!(got.join(", "), expected);
    }

    #[test]
    fn merge_takes_smallest_values_and_batch() {
        check(&[], "1000 of default");
        check(&[(700, None, None)], "700 of a");
        check(&[(700, None, None), (200, None, None), (300, None, None)], "200 of b");
        check(&[(1, None, None), (2, Some(50), None)], "1 of a, 50ms of b");
        check(&[(1, Some(60), None), (2, Some(50), None), (3, Some(55), None)], "1 of a, 50ms of b");
        check(&[(9, None, Some(Interactive)), (9, None, None)], "9 of a, Interactive of a");
        check(&[(9, None, Some(Interactive)), (8, None, Some(Batch))], "8 of b, Batch of b");
        check(&[(9, None, Some(Batch)), (8, None, Some(Interactive))], "8 of b, Batch of a");
        check(&[(9, Some(5), Some(Batch)), (9, Some(5), Some(Batch))], "9 of a, 5ms of a, Batch of a");
    }

    #[test]
    fn merge_takes_the_first_tag() {
        let mut levels = ["a", "b", "c"].map(|name| entry(name, (900, None, None)));
        let tag = |name: &str| crate::Tag::parse(name).ok();
        levels[1].spec.tag = tag("dc:b");
        (levels[2].spec.tag, levels[2].spec.shares) = (tag("dc:c"), 1);
        let merged = merge(&levels, &entry("default", (1000, None, None)));
        assert_eq!((merged.spec.tag, merged.tag_from.as_deref()), (tag("dc:b"), Some("b")));
        assert_eq!(&**merged.level.name(), "c", "shares are another option");
        assert_eq!(Effective::of(&levels[0]).tag_from, None);
    }

    #[test]
    fn cap_comes_from_the_level_that_supplied_the_shares() {
        let mut wide = entry("wide", (500, None, None));
        let mut narrow = entry("narrow", (600, None, None));
        wide.spec.cpu_limit_ppm = None;
        narrow.spec.cpu_limit_ppm = Some(10_000);
        assert_eq!(merge([&narrow, &wide], &wide).spec.cpu_limit_ppm, None);
        wide.spec.shares = 900;
        assert_eq!(merge([&wide, &narrow], &wide).spec.cpu_limit_ppm, Some(10_000));
    }
}
