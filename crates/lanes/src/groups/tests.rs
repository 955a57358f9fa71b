//! Groups of one core without a core: the groups decide what runs, and the test decides how much
//! CPU it uses.

use sched::SLICE_NS;

use super::*;
use crate::GroupSpec;

/// Regression: a heavy task woke just before its group was dropped, on a core that had not seen the
/// group yet. It was queued under an id that no worker looked up any more, and never ran.
#[test]
fn dropped_group_stays_for_a_heavy_task_that_is_waking() {
    let registry = Arc::new(Registry::new(1));
    let mut groups = Groups::new(registry.clone(), 0, 1);
    let create = || registry.create(Group::USERS, &GroupSpec::new("brief", 10)).expect("a slot");
    let group = create();
    let pending = &registry.counters(slot_of(group.0))[0].heavy_pending;
    pending.fetch_add(1, SeqCst);
    assert!(registry.drop_group(group));
    let slot = groups.end_group(group).expect("kept");
    groups.check_heavy(slot);
    groups.wake(slot, 0);
    assert!(matches!(groups.pick(0), Choice::Heavy(chosen, _) if chosen == slot));
    assert_ne!(slot_of(create().0), slot, "the slot is not free yet");
    pending.fetch_sub(1, SeqCst);
    groups.idle_if_empty(slot);
    assert!(!groups.has(slot));
    let successor = create();
    assert_eq!(slot_of(successor.0), slot);
    // A group without work on any core is removed at once.
    assert!(registry.drop_group(successor) && groups.end_group(successor).is_none());
    assert_eq!(slot_of(create().0), slot);
}

/// Gives the group in this slot heavy work.
fn ready(groups: &mut Groups, registry: &Registry, slot: usize, now_ns: u64) {
    registry.counters(slot)[0].heavy_pending.store(1, SeqCst);
    groups.check_heavy(slot);
    groups.wake(slot, now_ns);
}

/// Runs 1000 slices of two groups that always have heavy work. Returns the number of slices of
/// each.
fn slices(groups: &mut Groups, registry: &Registry, both: [Group; 2], began_ns: u64) -> [u32; 2] {
    let slots = both.map(|group| groups.slot(group));
    for slot in slots {
        ready(groups, registry, slot, 0);
    }
    let mut slices = [0; 2];
    for slice in 0..1000 {
        let Choice::Heavy(chosen, _) = groups.pick(began_ns + slice * SLICE_NS) else {
            panic!("both have heavy work")
        };
        let at = slots.iter().position(|&slot| slot == chosen).expect("one of them");
        slices[at] += 1;
        let total_ns = groups.local(chosen).heavy_charged_ns + SLICE_NS;
        groups.charge_heavy(chosen, total_ns);
    }
    slices
}

#[test]
fn minimum_acts_on_running_groups_until_it_is_altered() {
    let registry = Arc::new(Registry::new(1));
    let mut groups = Groups::new(registry.clone(), 0, 1);
    let spec = |cpu_min_ppm| GroupSpec { cpu_min_ppm, ..GroupSpec::new("few", 1) };
    let few = registry.create(Group::USERS, &spec(0)).expect("a slot");
    let many = registry.create(Group::USERS, &GroupSpec::new("many", 999)).expect("a slot");
    for (round, (min_ppm, expected)) in (0..).zip([(0, 1), (300_000, 301), (500_000, 501), (0, 1)]) {
        registry.get(few).expect("there").describe(&spec(min_ppm));
        groups.refresh(few);
        let [got, _] = slices(&mut groups, &registry, [few, many], round * 1000 * SLICE_NS);
        assert!(got.abs_diff(expected) <= 2, "{min_ppm}: {got} slices of 1000");
    }
}

/// Waits of two busy levels and one that comes and goes, µs. The slices take 500, 600 and 150 µs.
#[test]
fn wait_is_attributed_to_groups_that_had_the_core() {
    let registry = Arc::new(Registry::new(1));
    let mut groups = Groups::new(registry.clone(), 0, 1);
    let names = ["a", "b", "late"];
    let made = names.map(|name| registry.create(Group::USERS, &GroupSpec::new(name, 100)).expect("a slot"));
    let [a, b, late] = made.map(|group| groups.slot(group));
    let ready = |groups: &mut Groups, slot: usize, now_us: u64| ready(groups, &registry, slot, now_us * 1000);
    ready(&mut groups, a, 1_000);
    ready(&mut groups, b, 1_000);
    let mut now_us = 1_000;
    for round in 0..4_u64 {
        let Choice::Heavy(chosen, _) = groups.pick(now_us * 1000) else { panic!("there is work") };
        assert_eq!(chosen, [a, b, a, late][round as usize], "{round}");
        if round == 2 {
            ready(&mut groups, late, now_us + 40); // in the middle of a's second slice
        }
        now_us += [500, 600, 150, 10][round as usize];
        let total_ns = groups.local(chosen).heavy_charged_ns + [500, 600, 150, 10][round as usize] * 1000;
        groups.charge_heavy(chosen, total_ns);
        groups.record_slice(chosen, now_us * 1000);
    }
    groups.throttle(b, now_us * 1000, 0);
    let waited = |group: Group| {
        let name = |id: u32| made.iter().position(|made| made.0 == id).map_or("?", |at| names[at]);
        let all = registry.waited_for(group).into_iter().map(move |(id, ns)| (name(id), ns / 1000));
        (all.collect::<Vec<_>>(), registry.usage(group, None).wait_ns / 1000)
    };
    assert_eq!(waited(made[0]), (vec![("b", 600)], 600));
    assert_eq!(waited(made[1]), (vec![("a", 500 + 150), ("late", 10)], 660));
    assert_eq!(waited(made[2]), (vec![("a", 110)], 110), "from the time when it was ready");
}

/// Regression test: `control` paid for all polls, up to all that `system` has beside a level, and
/// the log waited for seconds.
#[test]
fn log_does_not_wait_for_what_polls_cost() {
    let registry = Arc::new(Registry::new(1));
    let mut groups = Groups::new(registry.clone(), 0, 1);
    let readers = registry.create(Group::USERS, &GroupSpec::new("readers", 1000)).expect("a slot");
    let [readers, log] = [readers, Group::LOG].map(|group| groups.slot(group));
    ready(&mut groups, &registry, readers, 0);
    let mut now_ns = 0;
    let mut waits = Vec::new();
    let mut waited = None;
    for round in 0..10_000 {
        if round % 10 == 0 && waited.is_none() {
            ready(&mut groups, &registry, log, now_ns);
            waited = Some(0);
        }
        let Choice::Heavy(chosen, _) = groups.pick(now_ns) else { panic!("readers always have work") };
        let used_ns = if chosen == log { 10_000 } else { SLICE_NS };
        now_ns += used_ns;
        let total_ns = groups.local(chosen).heavy_charged_ns + used_ns;
        groups.charge_heavy(chosen, total_ns);
        groups.record_slice(chosen, now_ns);
        if chosen == log {
            registry.counters(log)[0].heavy_pending.store(0, SeqCst);
            groups.check_heavy(log);
            groups.idle_if_empty(log);
            waits.extend(waited.take());
        }
        waited = waited.map(|slices: u32| slices + 1);
        now_ns += SLICE_NS / 2;
        groups.charge_poll(Some(chosen), SLICE_NS / 2);
    }
    assert!(waits.len() > 900, "{}", waits.len());
    assert_eq!(waits.iter().max(), Some(&1), "slices of readers before the log's");
    assert_eq!(registry.usage(Group::CONTROL, None).cpu_fast_ns, 0);
}
