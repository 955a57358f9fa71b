//! Turn of flows within a group, counted in task polls. Each poll takes at least a turn, so that a
//! flow has one for each of its turns, however slow the machine is.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::task::{Poll, Waker};

use lanes::{Flow, Group};
use testkit::start_lanes;

/// Flows that pour tasks, and the tasks of each.
const POURING: u64 = 8;
const TASKS: u64 = 300;
/// Length of a poll, ns: more than a turn of the fast lane.
const POLL_NS: u64 = 60_000;

fn work() {
    let end_ns = lanes::time::monotonic_ns() + POLL_NS;
    while lanes::time::monotonic_ns() < end_ns {}
}

#[test]
fn flow_goes_with_calls_and_heavy_work() {
    let lanes = start_lanes(2);
    lanes.block_on(0, Group::DEFAULT, || async {
        assert_eq!(lanes::current_flow(), Flow::NONE);
        let flow = Flow::new();
        assert_ne!(flow, Flow::new());
        let all = flow.run(|| {
            lanes::spawn(Group::DEFAULT, async {
                let here = lanes::current_flow();
                let there = lanes::call(1, || async { lanes::current_flow() }).await;
                let heavy = lanes::heavy(Group::DEFAULT, async {
                    let called = lanes::call(1, || async { lanes::current_flow() }).await;
                    [lanes::current_flow(), called]
                });
                lanes::switch_group(Group::DRIVER).await;
                let [heavy, called] = heavy.await;
                let server = lanes::spawn(Group::CONTROL, async { lanes::current_flow() }).await;
                assert_eq!(server, Flow::NONE, "the server's own work is of no connection");
                [here, there, heavy, called, lanes::current_flow()]
            })
        });
        assert_eq!(lanes::current_flow(), Flow::NONE);
        assert_eq!(all.await, [flow; 5]);
    });
    lanes.shutdown();
}

/// State of the fast-lane test: polls of flows that pour, and the polite task.
#[derive(Default)]
struct Seen {
    polls: Cell<u64>,
    waker: Cell<Option<Waker>>,
    /// Polls when the polite task was woken.
    woken_at: Cell<u64>,
}

#[test]
fn task_waits_for_one_turn_of_each_pouring_flow() {
    let lanes = start_lanes(1);
    let longest = lanes.block_on(0, Group::CONTROL, || async {
        let seen = Rc::new(Seen::default());
        for flow in (0..POURING).map(|_| Flow::new()) {
            for _ in 0..TASKS {
                let seen = seen.clone();
                let pour = async move {
                    work();
                    seen.polls.set(seen.polls.get() + 1);
                    if let Some(waker) = seen.waker.take() {
                        seen.woken_at.set(seen.polls.get());
                        waker.wake();
                    }
                };
                flow.run(|| lanes::spawn(Group::DEFAULT, pour).detach());
            }
        }
        let polite = async move {
            // It was spawned before the first of these polls.
            let mut longest = seen.polls.get();
            for _ in 0..20 {
                let mut waits = seen.polls.get() == POURING * TASKS; // else a poll wakes it
                poll_fn(|cx| {
                    if std::mem::replace(&mut waits, true) {
                        return Poll::Ready(());
                    }
                    seen.waker.set(Some(cx.waker().clone()));
                    Poll::Pending
                })
                .await;
                longest = longest.max(seen.polls.get() - seen.woken_at.get());
            }
            longest
        };
        Flow::new().run(|| lanes::spawn(Group::DEFAULT, polite)).await
    });
    lanes.shutdown();
    assert!(longest <= POURING, "it waited for {longest} polls of {POURING} flows");
}

#[test]
fn call_waits_for_one_turn_of_each_pouring_flow() {
    let lanes = start_lanes(2);
    let waited = lanes.block_on(0, Group::DEFAULT, || async {
        let polls = Arc::new(AtomicU64::new(0));
        for flow in (0..POURING).map(|_| Flow::new()) {
            for _ in 0..TASKS {
                let polls = polls.clone();
                let pour = lanes::call(1, move || async move {
                    work();
                    polls.fetch_add(1, SeqCst);
                });
                flow.run(|| lanes::spawn(Group::DEFAULT, pour).detach());
            }
        }
        // All calls are sent before: these tasks are behind those that send them.
        for _ in 0..POURING * TASKS {
            lanes::yield_now().await;
        }
        let polite = async move {
            let before = polls.load(SeqCst);
            lanes::call(1, move || async move { polls.load(SeqCst) - before }).await
        };
        Flow::new().run(|| lanes::spawn(Group::DEFAULT, polite)).await
    });
    lanes.shutdown();
    // The other core takes messages between two slices of 500 µs.
    let slice = sched::SLICE_NS / POLL_NS + 1;
    assert!(waited <= 2 * (POURING + slice), "it waited for {waited} polls of {POURING} flows");
}

#[test]
fn heavy_task_waits_for_few_turns_of_each_pouring_flow() {
    const FLOWS: u64 = 4;
    let lanes = start_lanes(1);
    let waited = lanes.block_on(0, Group::DEFAULT, || async {
        let polls = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for flow in (0..FLOWS).map(|_| Flow::new()) {
            for _ in 0..40 {
                let polls = polls.clone();
                let pour = async move {
                    // More CPU time than a turn of the heavy lane: a wait would not count.
                    let _ = (0..4_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
                    polls.fetch_add(1, SeqCst);
                };
                tasks.push(flow.run(|| lanes::heavy(Group::DEFAULT, pour)));
            }
        }
        let before = polls.load(SeqCst);
        let polite = async move { polls.load(SeqCst) - before };
        let waited = Flow::new().run(|| lanes::heavy(Group::DEFAULT, polite)).await;
        drop(tasks);
        waited
    });
    lanes.shutdown();
    assert!(waited <= 3 * FLOWS, "it waited for {waited} tasks of {FLOWS} flows");
}
