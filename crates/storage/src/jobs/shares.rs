//! Shares of background work over all cores. Each core's shard decides for itself, but a group's
//! shares hold on all cores. So the maximum over all cores is set. Where a flush gets more than its
//! own core's controller wants, its rate limits it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lanes::{Group, GroupSpec, Lanes};
use sched::control::Division;

use crate::options::Groups;

/// Cores with higher numbers use the shares of the others.
const CORES_MAX: usize = 256;

/// The last decision of each core, in 16 bits each; 0 before the first.
static DECISIONS: [AtomicU64; CORES_MAX] = [const { AtomicU64::new(0) }; CORES_MAX];

fn pack(d: Division) -> u64 {
    // Fewer user shares mean more background work. They are stored inverted, so that the maximum
    // favors background work in each field.
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

/// Stores a core's decision, and sets the maximum over all cores.
pub(crate) fn set(lanes: &Lanes, core: usize, groups: Groups, division: Division) {
    let all = || DECISIONS.iter().map(|decision| decision.load(Relaxed)).fold(0, highest);
    let before = all();
    if let Some(own) = DECISIONS.get(core) {
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
        // Only built-in groups: a caller's group keeps its name and class.
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
    fn maximum_over_all_cores_is_set() {
        let quiet = Division { users: 1000, system: 200, flush: 1, compaction: 1000 };
        let urgent = Division { users: 111, system: 1000, flush: 1000, compaction: 5 };
        assert_eq!(unpack(pack(quiet)), quiet);
        assert_eq!(unpack(pack(urgent)), urgent);
        let both = Division { users: 111, system: 1000, flush: 1000, compaction: 1000 };
        assert_eq!(unpack(highest(pack(quiet), pack(urgent))), both);
    }
}
