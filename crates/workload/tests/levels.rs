//! The catalog of levels, and their groups in the lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use lanes::{Group, Lanes};
use workload::{Action, LevelError, LevelSpec, Levels, QueryLimit, WorkloadType};

fn with_levels(test: impl FnOnce(&Arc<Levels>, &Lanes)) {
    let lanes = testkit::start_lanes(2);
    test(&Levels::new(lanes.clone()), &lanes);
    lanes.shutdown();
}

fn spec(name: &str, shares: u16) -> LevelSpec {
    LevelSpec { shares, ..LevelSpec::new(name) }
}

fn names(levels: &Levels) -> Vec<String> {
    levels.catalog().entries().map(|entry| format!("{}={}", entry.spec.name, entry.spec.shares)).collect()
}

#[test]
fn levels_are_created_altered_and_dropped() {
    with_levels(|levels, _| {
        assert_eq!(names(levels), ["default=1000", "driver=200"]);
        assert_eq!(levels.catalog().default_level().level.group(), Group::DEFAULT);
        assert_eq!(levels.catalog().driver_level().level.group(), Group::DRIVER);
        levels.create(spec("a", 10)).expect("new");
        let before = levels.catalog();
        assert_eq!(levels.create(spec("a", 11)), Err(LevelError::Exists("a".into())));
        levels.alter(spec("a", 12)).expect("there");
        assert_eq!(levels.alter(spec("b", 12)), Err(LevelError::Missing("b".into())));
        assert_eq!(names(levels), ["a=12", "default=1000", "driver=200"]);
        let (old, new) = (before.get("a").unwrap(), levels.catalog());
        assert_eq!(old.spec.shares, 10, "a snapshot does not change");
        assert!(Arc::ptr_eq(&old.level, &new.get("a").unwrap().level), "the level is the same");
        assert_eq!(levels.drop_level("default"), Err(LevelError::BuiltIn("default".into())));
        assert_eq!(levels.drop_level("driver"), Err(LevelError::BuiltIn("driver".into())));
        levels.drop_level("a").expect("there");
        assert_eq!(levels.drop_level("a"), Err(LevelError::Missing("a".into())));
    });
}

/// Checks the options of level `new` alongside a level `there`, which has minimums of 60 %. `None`:
/// they are accepted.
#[track_caller]
fn check_options(levels: &Levels, change: impl FnOnce(&mut LevelSpec), expected: Option<&str>) {
    let mut new = spec("new", 100);
    change(&mut new);
    let refused = levels.catalog().check(&new).err();
    assert_eq!(refused.is_some(), expected.is_some(), "{refused:?}");
    assert!(refused.iter().all(|text| text.contains(expected.unwrap_or_default())), "{refused:?}");
}

#[test]
fn options_that_contradict_others_are_refused() {
    with_levels(|levels, _| {
        let mut there = LevelSpec { cpu_min_ppm: 600_000, ..spec("there", 1) };
        there.memory.min_ppm = 600_000;
        levels.create(there.clone()).expect("new");
        check_options(levels, |_| {}, None);
        for ppm in [400_000, 400_001] {
            let too_much = (ppm > 400_000).then_some("which leaves 40%");
            check_options(levels, |new| new.cpu_min_ppm = ppm, too_much);
            check_options(levels, |new| new.memory.min_ppm = ppm, too_much);
        }
        // An altered level gives up its own minimum.
        check_options(levels, |new| *new = LevelSpec { cpu_min_ppm: 1_000_000, ..there }, None);
        for limit in [200_000, 199_999] {
            let more = |what| (limit < 200_000).then_some(what);
            let cpu = |new: &mut LevelSpec| (new.cpu_min_ppm, new.cpu_limit_ppm) = (200_000, Some(limit));
            check_options(levels, cpu, more("'cpu_min' cannot be more than 'cpu_limit'"));
            let memory =
                |new: &mut LevelSpec| (new.memory.min_ppm, new.memory.limit_ppm) = (200_000, Some(limit));
            check_options(levels, memory, more("'memory_min' cannot be more than 'memory_limit'"));
        }
        for (least, most, expected) in [
            (100, 100, None),
            (101, 200, Some("'shares_min' cannot be more than 'shares'")),
            (1, 99, Some("'shares_max' cannot be less than 'shares'")),
        ] {
            let bounds = |new: &mut LevelSpec| {
                (new.latency.shares_min, new.latency.shares_max) = (Some(least), Some(most));
            };
            check_options(levels, bounds, expected);
        }
        for (level, expected) in
            [("there", None), ("new", Some("cannot demote its statements to itself")), ("gone", Some("gone"))]
        {
            let demote = || Action::Demote(level.into());
            let limit = |action, overload| {
                Some(QueryLimit { elapsed: None, rows: Some(1), bytes: None, action, overload })
            };
            check_options(levels, |new| new.query_limit = limit(demote(), vec![]), expected);
            check_options(levels, |new| new.query_limit = limit(Action::Log, vec![demote()]), expected);
        }
    });
}

#[test]
fn replace_changes_only_levels_that_differ() {
    with_levels(|levels, _| {
        levels.replace(vec![spec("a", 10), spec("b", 20), spec("default", 5), spec("driver", 30)]);
        assert_eq!(names(levels), ["a=10", "b=20", "default=1000", "driver=30"]);
        let before = levels.catalog();
        levels.replace(vec![spec("b", 21), spec("c", 1), spec("c", 2)]);
        assert_eq!(names(levels), ["b=21", "c=1", "default=1000", "driver=200"]);
        let group = |name: &str| levels.catalog().get(name).unwrap().level.group();
        assert_eq!(group("b"), before.get("b").unwrap().level.group());
    });
}

#[test]
fn server_supports_a_thousand_levels() {
    with_levels(|levels, lanes| {
        for i in 0..1000 {
            levels.create(spec(&format!("l{i}"), 1 + i % 1000)).expect("new");
        }
        let group = levels.catalog().get("l999").unwrap().level.group();
        let ran = lanes.block_on(1, group, || async { lanes::current_group() });
        assert_eq!(ran, group);
        let mut text = String::new();
        levels.metrics_text(&mut text);
        assert!(text.contains("fairlane_shares{level=\"l999\"} 1000"));
        levels
            .alter(LevelSpec { workload_type: Some(WorkloadType::Batch), ..spec("l999", 1) })
            .expect("there");
        levels.replace(Vec::new());
        assert_eq!(names(levels), ["default=1000", "driver=200"]);
    });
}

#[test]
fn usage_names_the_levels_that_delayed_a_level() {
    with_levels(|levels, lanes| {
        let both = ["a", "b"].map(|name| {
            levels.create(spec(name, 100)).expect("new");
            levels.catalog().get(name).expect("there").level.group()
        });
        let waited_us = |levels: &Levels, waiter: &str, holder: &str| {
            let usage = levels.usage();
            let level = usage.iter().find(|level| &*level.name == waiter).expect("a level");
            level.waited_for.get(holder).map_or(0, |ns| ns / 1000)
        };
        let of_lane = levels.clone();
        lanes.block_on(0, Group::DEFAULT, move || async move {
            // Another program may keep the CPU from heavy work for a while.
            let (is_over, began) = (Arc::new(AtomicBool::new(false)), lanes::time::now());
            let busy = both.map(|group| {
                let is_over = is_over.clone();
                lanes::heavy(group, async move {
                    while !is_over.load(Relaxed) {
                        lanes::heavy_yield().await;
                    }
                })
            });
            let waited = || [("a", "b"), ("b", "a")].map(|(one, other)| waited_us(&of_lane, one, other));
            while waited().iter().any(|us| *us <= 10_000) && began.elapsed() < Duration::from_secs(60) {
                lanes::time::sleep(Duration::from_millis(10)).await;
            }
            is_over.store(true, Relaxed);
            for task in busy {
                task.await;
            }
        });
        let waited_us = |waiter, holder| waited_us(levels, waiter, holder);
        assert!(waited_us("a", "b") > 10_000 && waited_us("b", "a") > 10_000, "{:?}", levels.usage());
        assert_eq!((waited_us("a", "a"), waited_us("b", "b")), (0, 0), "no level waits for itself");
        let mut text = String::new();
        levels.metrics_text(&mut text);
        assert!(text.contains("fairlane_waited_for_seconds_total{level=\"a\",whom=\"b\"} 0."), "{text}");
    });
}
