//! Shares of background work, for all cores: each core's shard decides for itself, while a group's shares hold on all cores. So the
//! highest that any core asks for is set. Where a flush gets more than its own core's controller asked for, its rate bounds it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lanes::{Group, GroupSpec, Lanes};
use sched::control::Division;

use crate::options::Groups;

/// Cores beyond this many go along with the others.
const CORES_MAX: usize = 256;

/// What each core asked for last, in 16 bits each; 0 for nothing yet.
static ASKED: [AtomicU64; CORES_MAX] = [const { AtomicU64::new(0) }; CORES_MAX];

fn pack(d: Division) -> u64 {
    // The fewer shares users have, the more background work gets: kept upside down, so that the highest of each counts.
    let parts = [1000 - d.users.min(1000), d.system, d.flush, d.compaction];
    parts.iter().fold(0, |packed, part| packed << 16 | u64::from(*part & 0xffff))
}

fn highest(a: u64, b: u64) -> u64 {
    let part = |at: u32| (a >> (16 * at) & 0xffff).max(b >> (16 * at) & 0xffff) << (16 * at);
    part(0) | part(1) | part(2) | part(3)
}

fn unpack(packed: u64) -> Division {
    let part = |at: u32| (packed >> (16 * at) & 0xffff) as u32;
    Division { users: 1000 - part(3).min(999), system: part(2), flush: part(1), compaction: part(0) }
}

/// Notes what a core asks for, and sets what all of them ask for.
pub(crate) fn set(lanes: &Lanes, core: usize, groups: Groups, division: Division) {
    let all = || ASKED.iter().map(|asked| asked.load(Relaxed)).fold(0, highest);
    let before = all();
    if let Some(own) = ASKED.get(core) {
        own.store(pack(division), Relaxed);
    }
    let now = all();
    let (before, now) = (unpack(before), unpack(now));
    let spec = |name: &str, shares: u32, class| GroupSpec { class, ..GroupSpec::new(name, shares) };
    let changes = [
        (Group::USERS, before.users, spec("users", now.users, sched::Class::Normal)),
        (Group::SYSTEM, before.system, spec("system", now.system, sched::Class::Normal)),
        (groups.flush, before.flush, spec("flush", now.flush, sched::Class::Batch)),
        (groups.compaction, before.compaction, spec("compaction", now.compaction, sched::Class::Batch)),
    ];
    for (group, before, spec) in changes {
        // Only groups that are known to be background's own: a caller's group keeps its name and class.
        let own = [Group::USERS, Group::SYSTEM, Group::FLUSH, Group::COMPACTION].contains(&group);
        if own && spec.shares != before {
            lanes.alter_group(group, spec);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_that_any_core_asks_for_is_set() {
        let quiet = Division { users: 1000, system: 200, flush: 1, compaction: 1000 };
        let urgent = Division { users: 111, system: 1000, flush: 1000, compaction: 5 };
        assert_eq!(unpack(pack(quiet)), quiet);
        assert_eq!(unpack(pack(urgent)), urgent);
        let both = Division { users: 111, system: 1000, flush: 1000, compaction: 1000 };
        assert_eq!(unpack(highest(pack(quiet), pack(urgent))), both);
    }
}
