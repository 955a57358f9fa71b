//! Tests of deferred work. It is done when its group pauses: after the group's other ready tasks,
//! before a slice of another group, and soon even if the group never pauses.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use lanes::{DeferredWork, Group, GroupSpec};

struct Note {
    notes: Rc<RefCell<Vec<&'static str>>>,
    text: &'static str,
}

impl DeferredWork for Note {
    fn run_deferred(self: Rc<Self>) {
        self.notes.borrow_mut().push(self.text);
    }
}

#[test]
fn deferred_work_follows_the_ready_tasks_of_its_group_in_order() {
    let lanes = testkit::start_lanes(1);
    let notes = lanes.block_on(0, Group::DEFAULT, || async {
        let notes = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = ["first", "second"]
            .into_iter()
            .map(|text| {
                let notes = notes.clone();
                lanes::spawn(Group::DEFAULT, async move {
                    notes.borrow_mut().push("task");
                    lanes::defer(Rc::new(Note { notes, text }));
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        // All notes are there once the group has slept.
        lanes::time::sleep(std::time::Duration::from_millis(1)).await;
        notes.take()
    });
    lanes.shutdown();
    assert_eq!(notes, ["task", "task", "first", "second"]);
}

#[test]
fn deferred_work_is_done_before_a_slice_of_another_group() {
    let lanes = testkit::start_lanes(1);
    let other = lanes.create_group(Group::USERS, GroupSpec::new("other", 1));
    let notes = lanes.block_on(0, Group::DEFAULT, move || async move {
        let notes = Rc::new(RefCell::new(Vec::new()));
        let theirs = notes.clone();
        let task = lanes::spawn(other, async move { theirs.borrow_mut().push("other") });
        lanes::defer(Rc::new(Note { notes: notes.clone(), text: "deferred" }));
        task.await;
        notes.take()
    });
    lanes.shutdown();
    assert_eq!(notes, ["deferred", "other"]);
}

#[test]
fn group_that_never_pauses_does_its_deferred_work() {
    struct Flag(Cell<bool>);
    impl DeferredWork for Flag {
        fn run_deferred(self: Rc<Self>) {
            self.0.set(true);
        }
    }
    let lanes = testkit::start_lanes(1);
    lanes.block_on(0, Group::DEFAULT, || async {
        let flag = Rc::new(Flag(Cell::new(false)));
        lanes::defer(flag.clone());
        // The task is always ready, so without a bound this would never end.
        while !flag.0.get() {
            lanes::yield_now().await;
        }
    });
    lanes.shutdown();
}

#[test]
fn deferred_work_is_charged_to_the_group_that_deferred_it() {
    struct Work;
    impl DeferredWork for Work {
        fn run_deferred(self: Rc<Self>) {
            let began_ns = lanes::time::monotonic_ns();
            while lanes::time::monotonic_ns() - began_ns < 2_000_000 {}
            assert_eq!(lanes::current_group(), Group::DRIVER);
        }
    }
    let lanes = testkit::start_lanes(1);
    lanes.block_on(0, Group::DRIVER, || async {
        for _ in 0..20 {
            lanes::defer(Rc::new(Work));
            lanes::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    });
    let (own, control) = (lanes.usage(Group::DRIVER), lanes.usage(Group::CONTROL));
    lanes.shutdown();
    // The wall clock advances while the thread is off its CPU. The CPU it did get is charged to the
    // group.
    assert!(own.cpu_fast_ns > control.cpu_fast_ns, "{own:?} {control:?}");
}
