//! Tests of the guarantees of lanes that are deterministic: no wake-up is lost, the group goes with
//! the work, dropped tasks are cancelled, and the end is clean. The benchmark measures times.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

use lanes::{Config, Group, GroupSpec, Lanes};
use testkit::start_lanes;

/// Runs one scenario on core 0 of new lanes and ends them.
fn check<T, Fut>(cores: usize, expected: T, scenario: impl FnOnce() -> Fut + Send + 'static)
where
    T: PartialEq + std::fmt::Debug + Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    let lanes = start_lanes(cores);
    assert_eq!(lanes.block_on(0, Group::DEFAULT, scenario), expected);
    lanes.shutdown();
}

#[test]
fn group_goes_with_calls_and_heavy_work() {
    check(2, [Group::LOG; 5], || async {
        lanes::switch_group(Group::LOG).await;
        let here = lanes::current_group();
        let there = lanes::call(1, || async { lanes::current_group() }).await;
        let back =
            lanes::call(1, || async { lanes::call(0, || async { lanes::current_group() }).await }).await;
        let heavy = lanes::heavy(lanes::current_group(), async {
            let called = lanes::call(1, || async { lanes::current_group() }).await;
            assert!(lanes::on_heavy_lane());
            (lanes::current_group(), called)
        });
        let (heavy, called) = heavy.await;
        [here, there, back, heavy, called]
    });
}

#[test]
fn task_knows_since_when_it_is_ready() {
    check(1, (), || async {
        let times = || (lanes::ready_since_ns(), lanes::time::monotonic_ns());
        let waiting = lanes::spawn(Group::DEFAULT, async move {
            let first = times();
            lanes::yield_now().await;
            (first, times())
        });
        // The other task waits while this one works.
        let (_, spawned_ns) = times();
        while lanes::time::monotonic_ns() < spawned_ns + 1_000_000 {}
        let (_, worked_ns) = times();
        let ((ready_ns, began_ns), (again_ns, resumed_ns)) = waiting.await;
        assert!(ready_ns <= spawned_ns && worked_ns <= began_ns, "{ready_ns} {spawned_ns} {began_ns}");
        assert!(ready_ns < again_ns && again_ns <= resumed_ns, "{ready_ns} {again_ns} {resumed_ns}");
        let heavy = lanes::heavy(Group::DEFAULT, async move { lanes::ready_since_ns() }).await;
        assert!(heavy >= resumed_ns, "a heavy task has the present time");
    });
}

#[test]
fn task_has_its_core_on_both_lanes() {
    check(2, vec![0, 0, 1, 1], || async {
        let mut cores =
            vec![lanes::current_core(), lanes::heavy(Group::DEFAULT, async { lanes::current_core() }).await];
        cores.extend(
            lanes::call(1, || async {
                vec![
                    lanes::current_core(),
                    lanes::heavy(Group::DEFAULT, async { lanes::current_core() }).await,
                ]
            })
            .await,
        );
        cores
    });
}

#[test]
fn no_wake_up_across_cores_is_lost() {
    check(3, 6_000, || async {
        let mut tasks = Vec::new();
        for worker in 0..20 {
            tasks.push(lanes::spawn(Group::DEFAULT, async move {
                let mut sum = 0;
                for n in 0..300 {
                    sum += lanes::call((worker + n) % 3, move || async move {
                        if n % 7 == 0 {
                            lanes::yield_now().await;
                        }
                        1
                    })
                    .await;
                }
                sum
            }));
        }
        let mut sum = 0;
        for task in tasks {
            sum += task.await;
        }
        sum
    });
}

#[test]
fn no_wake_up_of_heavy_tasks_is_lost() {
    check(2, 2_000, || async {
        let mut tasks = Vec::new();
        for worker in 0..20_u64 {
            let group = if worker % 2 == 0 { Group::DEFAULT } else { Group::COMPACTION };
            tasks.push(lanes::heavy(group, async move {
                let mut sum = 0;
                for n in 0..100 {
                    sum += lanes::call((n % 2) as usize, || async { 1 }).await;
                    lanes::heavy_yield().await;
                    if n % 10 == 0 {
                        lanes::yield_now().await;
                    }
                }
                sum
            }));
        }
        let mut sum = 0;
        for task in tasks {
            sum += task.await;
        }
        sum
    });
}

#[test]
fn heavy_work_without_yields_does_not_block_other_work() {
    check(1, (), || async {
        let stop = Arc::new(AtomicU64::new(0));
        let seen = stop.clone();
        let spinner = lanes::heavy(Group::DEFAULT, async move {
            while seen.load(Relaxed) == 0 {
                std::hint::spin_loop();
            }
        });
        lanes::time::sleep(Duration::from_millis(5)).await;
        lanes::heavy(Group::COMPACTION, async {}).await;
        stop.store(1, Relaxed);
        spinner.await;
    });
}

#[test]
fn heavy_work_yields_to_its_group_and_can_be_cancelled() {
    check(1, None, || async {
        let long = lanes::heavy(Group::DEFAULT, async {
            let began = lanes::time::now();
            while began.elapsed() < Duration::from_secs(20) {
                lanes::heavy_yield().await;
            }
        });
        lanes::heavy(Group::DEFAULT, async {}).await;
        long.cancel().await
    });
}

#[test]
fn dropped_task_is_cancelled_and_a_detached_one_is_not() {
    check(1, (0, 1), || async {
        let (cancelled, detached) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let seen = cancelled.clone();
        drop(lanes::spawn(Group::DEFAULT, async move { seen.set(1) }));
        let seen = detached.clone();
        lanes::spawn(Group::DEFAULT, async move { seen.set(1) }).detach();
        while Rc::strong_count(&cancelled) > 1 || Rc::strong_count(&detached) > 1 {
            lanes::yield_now().await;
        }
        (cancelled.get(), detached.get())
    });
}

#[test]
fn shutdown_drops_every_task_and_joins() {
    let alive = Arc::new(());
    let lanes = start_lanes(2);
    for core in 0..2 {
        let held = alive.clone();
        lanes.block_on(core, Group::DEFAULT, move || async move {
            let local = Rc::new(held.clone());
            lanes::spawn(Group::DEFAULT, async move {
                lanes::time::sleep(Duration::from_secs(3600)).await;
                drop(local);
            })
            .detach();
            let queued = held.clone();
            lanes::heavy(Group::DEFAULT, async move {
                loop {
                    lanes::yield_now().await;
                    std::hint::black_box(&queued);
                }
            })
            .detach();
            lanes::spawn(Group::DRIVER, async move {
                let _held = held;
                lanes::call(1, std::future::pending::<()>).await;
            })
            .detach();
            lanes::yield_now().await;
        });
    }
    lanes.shutdown();
    lanes.shutdown();
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn panic_reaches_only_the_task_that_awaits_it() {
    check(1, true, || async {
        let panicking = lanes::spawn(Group::DEFAULT, async { panic!("of the test") });
        let awaiting = lanes::spawn(Group::DEFAULT, async move {
            let () = panicking.await;
        });
        awaiting.detach();
        lanes::time::sleep(Duration::from_millis(2)).await;
        lanes::spawn(Group::DEFAULT, async { true }).await
    });
}

#[test]
fn groups_are_created_altered_and_dropped_under_running_tasks() {
    check(2, 40, || async {
        let lanes = lanes::handle();
        let mut done = 0;
        for round in 0..10 {
            let group = lanes.create_group(Group::USERS, GroupSpec::new("level", 100));
            let fast = lanes::spawn(group, async {
                for _ in 0..20 {
                    lanes::yield_now().await;
                }
                1
            });
            let heavy = lanes::heavy(group, async {
                for _ in 0..20 {
                    lanes::yield_now().await;
                }
                1
            });
            let there = lanes::call(1, move || async move {
                lanes::switch_group(group).await;
                lanes::yield_now().await;
                lanes::heavy(group, async { 1 }).await
            });
            let limit = Some(500_000);
            lanes.alter_group(
                group,
                GroupSpec { cpu_limit_ppm: limit, ..GroupSpec::new("level", 100 + round) },
            );
            lanes::yield_now().await;
            done += there.await;
            lanes.drop_group(group);
            done += lanes::spawn(group, async { 1 }).await;
            done += fast.await + heavy.await;
        }
        done
    });
}

#[test]
fn usage_is_counted_for_the_group_that_ran() {
    let lanes = start_lanes(1);
    let group = lanes.create_group(Group::USERS, GroupSpec::new("counted", 10));
    lanes.block_on(0, group, move || async move {
        let spin = || (0..2_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
        spin();
        lanes::yield_now().await;
        lanes::heavy(group, async move { spin() }).await;
    });
    lanes.block_on(0, Group::DEFAULT, || lanes::time::sleep(Duration::from_millis(2)));
    let usage = lanes.usage(group);
    assert!(usage.cpu_fast_ns > 0 && usage.cpu_heavy_ns > 0, "{usage:?}");
    assert!(usage.dispatches >= 2 && usage.heavy_dispatches >= 1, "{usage:?}");
    assert_eq!(lanes.core_usage(0, group).dispatches, usage.dispatches);
    assert_eq!(lanes.usage(Group::FLUSH).cpu_heavy_ns, 0);
    lanes.shutdown();
}

#[test]
fn calls_beyond_the_limit_wait() {
    check(2, u64::from(lanes::CALLS_MAX) + 500, || async {
        let gate = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for _ in 0..lanes::CALLS_MAX + 500 {
            let gate = gate.clone();
            tasks.push(lanes::spawn(Group::DEFAULT, async move {
                lanes::call(1, move || async move {
                    while gate.load(Relaxed) == 0 {
                        lanes::yield_now().await;
                    }
                    1
                })
                .await
            }));
        }
        lanes::time::sleep(Duration::from_millis(5)).await;
        gate.store(1, Relaxed);
        let mut sum = 0;
        for task in tasks {
            sum += task.await;
        }
        sum
    });
}

#[test]
fn time_limit_ends_a_longer_future() {
    check(1, (true, Ok(7)), || async {
        let late = lanes::time::timeout(Duration::from_millis(2), std::future::pending::<()>()).await;
        let heavy = lanes::heavy(Group::DEFAULT, async {
            lanes::time::timeout(Duration::from_secs(3600), async {
                lanes::time::sleep(Duration::from_millis(1)).await;
                7
            })
            .await
        });
        (late.is_err(), heavy.await)
    });
}

#[test]
fn time_limit_ends_a_future_that_never_waits() {
    check(1, true, || async {
        // The future wakes itself at each poll, as a reader whose socket is never empty does. It is
        // ready at the second poll, after the limit.
        let mut polls = 0_u32;
        let busy = std::future::poll_fn(|cx| {
            polls += 1;
            let until = lanes::time::now() + Duration::from_millis(3);
            while lanes::time::now() < until {
                std::hint::spin_loop();
            }
            cx.waker().wake_by_ref();
            if polls == 2 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        });
        lanes::time::timeout(Duration::from_millis(2), busy).await.is_err()
    });
}

#[test]
fn start_without_cores_is_an_error() {
    let none = Lanes::start(Config { cores: Vec::new(), ..Config::detect() });
    assert!(none.is_err_and(|error| error.to_string().contains("at least one core")));
}

/// The lane switches that a hard limit causes are charged to the limited group, so that the limit
/// covers both.
#[test]
fn limited_group_pays_for_wake_ups_of_the_core() {
    let lanes = start_lanes(1);
    let limited = GroupSpec { cpu_limit_ppm: Some(500_000), ..GroupSpec::new("limited", 100) };
    let limited = lanes.create_group(Group::USERS, limited);
    let free = lanes.create_group(Group::USERS, GroupSpec::new("free", 100));
    for group in [limited, free] {
        lanes.block_on(0, Group::DRIVER, move || async move {
            let began = lanes::time::monotonic_ns();
            let work = async move {
                while lanes::time::monotonic_ns() - began < 200_000_000 {
                    lanes::heavy_yield().await;
                }
            };
            lanes::heavy(group, work).await;
        });
    }
    // Neither group has fast-lane work.
    let [limited, free] = [limited, free].map(|group| lanes.usage(group));
    assert!(limited.cpu_fast_ns > 0 && limited.cpu_heavy_ns > 0, "{limited:?}");
    assert!(free.cpu_fast_ns == 0 && free.cpu_heavy_ns > 0, "{free:?}");
    lanes.shutdown();
}
