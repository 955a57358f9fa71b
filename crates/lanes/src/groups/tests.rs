//! One core's books without a core: what is chosen is up to the groups, and what it used up to the test.

use super::*;
use crate::GroupSpec;

/// A heavy task that was woken just before its group was dropped, on a core that had not heard of the group yet, was
/// queued under a name that nobody looked for any more, and never ran.
#[test]
fn a_group_dropped_while_its_first_heavy_task_wakes_is_kept_for_it() {
    let registry = Arc::new(Registry::new(1));
    let mut groups = Groups::new(registry.clone(), 0, 1);
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

/// Of each of two groups that always have heavy work, how often it was chosen for a slice out of 1000.
fn turns(groups: &mut Groups, registry: &Registry, both: [Group; 2]) -> [u32; 2] {
    let slots = both.map(|group| groups.slot(group));
    for slot in slots {
        ready(groups, registry, slot, 0);
    }
    let mut turns = [0; 2];
    for _ in 0..1000 {
        let Choice::Heavy(chosen, _) = groups.choose(0) else { panic!("both have heavy work") };
        let at = slots.iter().position(|&slot| slot == chosen).expect("one of them");
        turns[at] += 1;
        let total_ns = groups.local(chosen).heavy_charged_ns + TICK_NS;
        groups.charge_heavy(chosen, total_ns);
    }
    turns
}

#[test]
fn a_minimum_acts_on_groups_that_run_and_ends_with_an_alteration() {
    let registry = Arc::new(Registry::new(1));
    let mut groups = Groups::new(registry.clone(), 0, 1);
    let spec = |cpu_min_ppm| GroupSpec { cpu_min_ppm, ..GroupSpec::new("few", 1) };
    let few = registry.create(Group::USERS, &spec(0)).expect("a slot");
    let many = registry.create(Group::USERS, &GroupSpec::new("many", 999)).expect("a slot");
    for (min_ppm, expected) in [(0, 1), (300_000, 301), (500_000, 501), (0, 1)] {
        registry.get(few).expect("there").describe(&spec(min_ppm));
        groups.refresh(few);
        let [got, _] = turns(&mut groups, &registry, [few, many]);
        assert!(got.abs_diff(expected) <= 2, "{min_ppm}: {got} turns of 1000");
    }
}

/// A group that wakes for a moment now and then uses less than it is due beside one that always has heavy work, whatever its shares,
/// until it wants more than they say.
#[test]
fn who_uses_less_than_it_is_due_is_owed() {
    let registry = Arc::new(Registry::new(1));
    let mut groups = Groups::new(registry.clone(), 0, 1);
    let mut slot_of_new = |name, shares| {
        let group = registry.create(Group::USERS, &GroupSpec::new(name, shares)).expect("a slot");
        groups.slot(group)
    };
    let (light, heavy) = (slot_of_new("light", 100), slot_of_new("heavy", 100));
    ready(&mut groups, &registry, heavy, 0);
    let round = |groups: &mut Groups, light_ns: u64, heavy_ticks: u64| {
        groups.wake(light, 0);
        let owed = groups.is_owed_beside(light, heavy);
        groups.charge_fast(light, light_ns, true);
        groups.settle(light);
        let total_ns = groups.local(heavy).heavy_charged_ns + heavy_ticks * TICK_NS;
        groups.charge_heavy(heavy, total_ns);
        owed
    };
    assert!(!round(&mut groups, TICK_NS, 4), "a newcomer");
    assert!((0..100).all(|_| round(&mut groups, TICK_NS, 4)), "a fifth of the core");
    let flush = groups.slot(Group::FLUSH);
    assert!(!groups.is_owed_beside(light, flush) && !groups.is_owed_beside(flush, heavy), "levels only");
    assert!((0..100).map(|_| round(&mut groups, 4 * TICK_NS, 1)).skip(50).all(|owed| !owed), "four fifths");
}

#[test]
fn events_do_not_wait_while_a_level_of_a_latency_class_is_active() {
    let registry = Arc::new(Registry::new(1));
    let mut groups = Groups::new(registry.clone(), 0, 1);
    let now_ns = 5_000_000_000;
    let [queries, flush] = [Group::DEFAULT, Group::FLUSH].map(|group| groups.slot(group));
    let mut wakes = |group: Group| {
        let slot = groups.slot(group);
        groups.wake(slot, now_ns);
        groups.sees_each_event(queries, now_ns)
    };
    let class = Class::Latency;
    let level = registry.create(Group::USERS, &GroupSpec { class, ..GroupSpec::new("level", 100) });
    // The log's own class is about its slices.
    assert!(![Group::LOG, Group::CONTROL, Group::DEFAULT].map(&mut wakes).contains(&true));
    assert!(wakes(level.expect("a slot")));
    let sees = |had_by, after_ms: u64| groups.sees_each_event(had_by, now_ns + after_ms * 1_000_000);
    assert!(sees(queries, 900) && !sees(queries, 1_100));
    assert!(!sees(flush, 0), "flushes must keep up");
}

/// Who waited for whom, µs, of two levels with fast work and one that comes and goes: turns of 50, 100 and 150 µs.
#[test]
fn a_wait_is_for_those_who_had_the_core_meanwhile() {
    let registry = Arc::new(Registry::new(1));
    let mut groups = Groups::new(registry.clone(), 0, 1);
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
        now_us += [50, 100, 150, 10][turn as usize];
        let total_ns = groups.local(chosen).heavy_charged_ns + [50, 100, 150, 10][turn as usize] * 1000;
        groups.charge_heavy(chosen, total_ns);
        groups.passed(chosen, now_us * 1000);
    }
    groups.throttle(b, now_us * 1000, 0);
    let waited = |group: Group| {
        let name = |id: u32| made.iter().position(|made| made.0 == id).map_or("?", |at| names[at]);
        let all = registry.waited_for(group).into_iter().map(move |(id, ns)| (name(id), ns / 1000));
        (all.collect::<Vec<_>>(), registry.usage(group, None).wait_ns / 1000)
    };
    assert_eq!(waited(made[0]), (vec![("b", 100)], 100));
    assert_eq!(waited(made[1]), (vec![("a", 50 + 150), ("late", 10)], 210));
    assert_eq!(waited(made[2]), (vec![("a", 110)], 110), "from when it was ready");
}

/// Events are looked for every 50 µs, yet of levels that always have more to do each has the core for a whole tick; one
/// that wakes is picked at once.
#[test]
fn turns_last_a_tick_unless_somebody_wakes() {
    let registry = Arc::new(Registry::new(1));
    let mut groups = Groups::new(registry.clone(), 0, 1);
    let made = ["a", "b", "late"]
        .map(|name| registry.create(Group::USERS, &GroupSpec::new(name, 100)).expect("a slot"));
    let [a, b, late] = made.map(|group| groups.slot(group));
    let mut now_ns = 1_000_000;
    [a, b].iter().for_each(|&slot| ready(&mut groups, &registry, slot, now_ns));
    // How often the core changed hands in so many looks.
    let mut changes = |groups: &mut Groups, looks: usize| {
        let mut look = || {
            let Choice::Heavy(chosen, _) = groups.choose(now_ns) else { panic!("there is work") };
            now_ns += 50_000;
            let total_ns = groups.local(chosen).heavy_charged_ns + 50_000;
            groups.charge_heavy(chosen, total_ns);
            chosen
        };
        let chosen: Vec<usize> = (0..looks).map(|_| look()).collect();
        let count = |slot: usize| chosen.iter().filter(|&&at| at == slot).count();
        assert!(count(a).abs_diff(count(b)) <= 10, "{} and {}", count(a), count(b));
        chosen.windows(2).filter(|pair| pair[0] != pair[1]).count()
    };
    assert!(changes(&mut groups, 100) > 90, "who woke a moment ago may be short of work again");
    changes(&mut groups, 100); // until 10 ms after they woke
    let seen = changes(&mut groups, 205);
    assert!((19..=21).contains(&seen), "{seen}");
    // In the middle of a turn.
    ready(&mut groups, &registry, late, now_ns);
    assert!(matches!(groups.choose(now_ns), Choice::Heavy(chosen, _) if chosen == late));
}
