//! One core's books without a core: what is chosen is up to the groups, and what it used up to the
//! test.

use sched::SLICE_NS;

use super::*;
use crate::GroupSpec;

/// A heavy task that was woken just before its group was dropped, on a core that had not heard of
/// the group yet, was queued under a name that nobody looked for any more, and never ran.
#[test]
fn a_group_dropped_while_its_first_heavy_task_wakes_is_kept_for_it() {
    let registry = Arc::new(Registry::new(1));
    let mut groups = Groups::new(registry.clone(), 0, 1, Policy::DEFAULT);
    let create = || registry.create(Group::USERS, &GroupSpec::new("brief", 10)).expect("a slot");
    let group = create();
    let pending = &registry.counters(slot_of(group.0))[0].heavy_pending;
    pending.fetch_add(1, SeqCst);
    assert!(registry.drop_group(group));
    let slot = groups.end_group(group).expect("kept");
    groups.look(slot);
    groups.wake(slot, 0);
    assert!(matches!(groups.choose(0), Choice::Heavy(chosen, _) if chosen == slot));
    assert_ne!(slot_of(create().0), slot, "the slot is not free yet");
    pending.fetch_sub(1, SeqCst);
    groups.settle(slot);
    assert!(!groups.has(slot));
    let successor = create();
    assert_eq!(slot_of(successor.0), slot);
    // And one that no core has anything of goes at once.
    assert!(registry.drop_group(successor) && groups.end_group(successor).is_none());
    assert_eq!(slot_of(create().0), slot);
}

/// The group in this slot has heavy work from now on.
fn ready(groups: &mut Groups, registry: &Registry, slot: usize, now_ns: u64) {
    registry.counters(slot)[0].heavy_pending.store(1, SeqCst);
    groups.look(slot);
    groups.wake(slot, now_ns);
}

/// Of each of two groups that always have heavy work, how often it was chosen for a slice out of
/// 1000.
fn turns(groups: &mut Groups, registry: &Registry, both: [Group; 2], began_ns: u64) -> [u32; 2] {
    let slots = both.map(|group| groups.slot(group));
    for slot in slots {
        ready(groups, registry, slot, 0);
    }
    let mut turns = [0; 2];
    for slice in 0..1000 {
        let Choice::Heavy(chosen, _) = groups.choose(began_ns + slice * SLICE_NS) else {
            panic!("both have heavy work")
        };
        let at = slots.iter().position(|&slot| slot == chosen).expect("one of them");
        turns[at] += 1;
        let total_ns = groups.local(chosen).heavy_charged_ns + SLICE_NS;
        groups.charge_heavy(chosen, total_ns);
    }
    turns
}

#[test]
fn a_minimum_acts_on_groups_that_run_and_ends_with_an_alteration() {
    let registry = Arc::new(Registry::new(1));
    let mut groups = Groups::new(registry.clone(), 0, 1, Policy::DEFAULT);
    let spec = |cpu_min_ppm| GroupSpec { cpu_min_ppm, ..GroupSpec::new("few", 1) };
    let few = registry.create(Group::USERS, &spec(0)).expect("a slot");
    let many = registry.create(Group::USERS, &GroupSpec::new("many", 999)).expect("a slot");
    for (round, (min_ppm, expected)) in (0..).zip([(0, 1), (300_000, 301), (500_000, 501), (0, 1)]) {
        registry.get(few).expect("there").describe(&spec(min_ppm));
        groups.refresh(few);
        let [got, _] = turns(&mut groups, &registry, [few, many], round * 1000 * SLICE_NS);
        assert!(got.abs_diff(expected) <= 2, "{min_ppm}: {got} turns of 1000");
    }
}

/// Who waited for whom, µs, of two levels with fast work and one that comes and goes: slices of
/// 500, 600 and 150 µs.
#[test]
fn a_wait_is_for_those_who_had_the_core_meanwhile() {
    let registry = Arc::new(Registry::new(1));
    let mut groups = Groups::new(registry.clone(), 0, 1, Policy::DEFAULT);
    let names = ["a", "b", "late"];
    let made = names.map(|name| registry.create(Group::USERS, &GroupSpec::new(name, 100)).expect("a slot"));
    let [a, b, late] = made.map(|group| groups.slot(group));
    let ready = |groups: &mut Groups, slot: usize, now_us: u64| ready(groups, &registry, slot, now_us * 1000);
    ready(&mut groups, a, 1_000);
    ready(&mut groups, b, 1_000);
    let mut now_us = 1_000;
    for turn in 0..4_u64 {
        let Choice::Heavy(chosen, _) = groups.choose(now_us * 1000) else { panic!("there is work") };
        assert_eq!(chosen, [a, b, a, late][turn as usize], "{turn}");
        if turn == 2 {
            ready(&mut groups, late, now_us + 40); // in the middle of a's second turn
        }
        now_us += [500, 600, 150, 10][turn as usize];
        let total_ns = groups.local(chosen).heavy_charged_ns + [500, 600, 150, 10][turn as usize] * 1000;
        groups.charge_heavy(chosen, total_ns);
        groups.passed(chosen, now_us * 1000);
    }
    groups.throttle(b, now_us * 1000, 0);
    let waited = |group: Group| {
        let name = |id: u32| made.iter().position(|made| made.0 == id).map_or("?", |at| names[at]);
        let all = registry.waited_for(group).into_iter().map(move |(id, ns)| (name(id), ns / 1000));
        (all.collect::<Vec<_>>(), registry.usage(group, None).wait_ns / 1000)
    };
    assert_eq!(waited(made[0]), (vec![("b", 600)], 600));
    assert_eq!(waited(made[1]), (vec![("a", 500 + 150), ("late", 10)], 660));
    assert_eq!(waited(made[2]), (vec![("a", 110)], 110), "from when it was ready");
}
