//! Tests of lanes and groups that end at a bad moment. Callers that wait get an error, and no
//! started work is lost.
#![expect(clippy::disallowed_methods, reason = "waits and ends lanes from outside of them")]

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lanes::{Ended, Group, GroupSpec};
use testkit::start_lanes;

#[test]
fn outside_caller_gets_an_error_when_lanes_end() {
    let lanes = start_lanes(1);
    let waiting = {
        let lanes = lanes.clone();
        std::thread::spawn(move || lanes.try_block_on(0, Group::DEFAULT, std::future::pending::<()>))
    };
    while lanes.usage(Group::DEFAULT).dispatches == 0 {
        std::thread::yield_now();
    }
    lanes.shutdown();
    assert_eq!(waiting.join().expect("no panic"), Err(Ended));
    assert_eq!(lanes.try_block_on(0, Group::DEFAULT, || async { 1 }), Err(Ended));
}

/// Tasks call another core while lanes end. Each gets an answer or an error, or is dropped: none is
/// left behind.
#[test]
fn calls_in_flight_when_lanes_end_are_answered_or_dropped() {
    for round in 0..30 {
        let lanes = start_lanes(2);
        let alive = Arc::new(());
        for core in 0..2 {
            let held = alive.clone();
            lanes.block_on(core, Group::DEFAULT, move || async move {
                for _ in 0..10 {
                    let held = held.clone();
                    let calls = async move {
                        while lanes::try_call(1 - core, || async { 7 }).await == Ok(7) {
                            std::hint::black_box(&held);
                        }
                    };
                    lanes::spawn(Group::DEFAULT, calls).detach();
                }
            });
        }
        std::thread::sleep(Duration::from_micros(round * 50));
        lanes.shutdown();
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

/// Future that waits for ever. Dropping one of them wakes all, while it holds the lock that all of
/// them take.
struct Waits(Arc<Mutex<Vec<Waker>>>);

impl Future for Waits {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.lock().expect("no panic").push(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.lock().expect("no panic").drain(..).for_each(Waker::wake);
    }
}

/// Value that wakes one waiting future when it is dropped.
struct WakesOne(Arc<Mutex<Vec<Waker>>>);

impl Drop for WakesOne {
    fn drop(&mut self) {
        let waker = self.0.lock().expect("no panic").pop();
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Futures wake others while they hold locks that the drop of the others takes (parts of a join
/// do). So no wake-up may end a task in place.
#[test]
fn heavy_tasks_woken_by_the_end_of_others_are_dropped_too() {
    let lanes = start_lanes(2);
    let waiting = Arc::new(Mutex::default());
    for core in 0..2 {
        let waiting = waiting.clone();
        lanes.block_on(core, Group::DEFAULT, move || async move {
            for _ in 0..3 {
                lanes::heavy(Group::DEFAULT, Waits(waiting.clone())).detach();
            }
            let wakes_one = WakesOne(waiting);
            lanes::spawn(Group::DEFAULT, async move {
                let _wakes_one = wakes_one;
                std::future::pending::<()>().await;
            })
            .detach();
        });
    }
    while waiting.lock().expect("no panic").len() < 6 {
        std::thread::yield_now();
    }
    let (ended, done_receiver) = mpsc::channel();
    std::thread::spawn(move || {
        lanes.shutdown();
        ended.send(())
    });
    assert_eq!(done_receiver.recv_timeout(Duration::from_secs(60)), Ok(()), "lanes do not end");
    assert_eq!(Arc::strong_count(&waiting), 1);
}

/// Heavy tasks of a group wake on both cores while an outside thread drops the group.
#[test]
fn heavy_task_woken_while_its_group_is_dropped_runs_on() {
    let lanes = start_lanes(2);
    let done = Arc::new(AtomicU64::new(0));
    let rounds = 300_u64;
    for round in 0..rounds {
        let group = lanes.create_group(Group::USERS, GroupSpec::new("brief", 100));
        for core in 0..2 {
            let done = done.clone();
            // This thread drops the group while the core queues its first heavy task.
            lanes.block_on(core, Group::CONTROL, move || async move {
                let work = async move {
                    for _ in 0..(round % 5) {
                        lanes::yield_now().await;
                    }
                    done.fetch_add(1, Relaxed);
                };
                lanes::spawn(Group::CONTROL, async move { lanes::heavy(group, work).await }).detach();
            });
        }
        lanes.drop_group(group);
    }
    let (lanes_run, counted) = (lanes.clone(), done.clone());
    let waiting = lanes_run.block_on(0, Group::DEFAULT, move || {
        lanes::time::timeout(Duration::from_secs(60), async move {
            while counted.load(Relaxed) < 2 * rounds {
                lanes::time::sleep(Duration::from_millis(1)).await;
            }
        })
    });
    assert_eq!(waiting, Ok(()), "{} of {}", done.load(Relaxed), 2 * rounds);
    lanes.shutdown();
}
