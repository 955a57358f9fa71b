//! What tasks put off is done when their group pauses: after its other ready tasks, before another group's, and soon even if
//! it never pauses.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use lanes::{AtPause, Config, Group, GroupSpec, Lanes};

struct Note {
    said: Rc<RefCell<Vec<&'static str>>>,
    text: &'static str,
}

impl AtPause for Note {
    fn at_pause(self: Rc<Self>) {
        self.said.borrow_mut().push(self.text);
    }
}

fn lanes() -> Lanes {
    Lanes::start(Config { cores: vec![0], pin: false, ..Config::detect() }).expect("lanes start")
}

#[test]
fn what_is_put_off_comes_after_the_groups_ready_tasks_and_in_order() {
    let lanes = lanes();
    let said = lanes.block_on(0, Group::DEFAULT, || async {
        let said = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = ["first", "second"]
            .into_iter()
            .map(|text| {
                let said = said.clone();
                lanes::spawn(Group::DEFAULT, async move {
                    said.borrow_mut().push("task");
                    lanes::at_pause(Rc::new(Note { said, text }));
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        // Everything is said by the time the group has slept once.
        lanes::time::sleep(std::time::Duration::from_millis(1)).await;
        said.take()
    });
    lanes.shutdown();
    assert_eq!(said, ["task", "task", "first", "second"]);
}

#[test]
fn another_groups_turn_does_not_begin_before_it_is_done() {
    let lanes = lanes();
    let other = lanes.create_group(Group::USERS, GroupSpec::new("other", 1));
    let said = lanes.block_on(0, Group::DEFAULT, move || async move {
        let said = Rc::new(RefCell::new(Vec::new()));
        let theirs = said.clone();
        let task = lanes::spawn(other, async move { theirs.borrow_mut().push("other") });
        lanes::at_pause(Rc::new(Note { said: said.clone(), text: "put off" }));
        task.await;
        said.take()
    });
    lanes.shutdown();
    assert_eq!(said, ["put off", "other"]);
}

#[test]
fn a_group_that_never_pauses_does_it_all_the_same() {
    struct Flag(Cell<bool>);
    impl AtPause for Flag {
        fn at_pause(self: Rc<Self>) {
            self.0.set(true);
        }
    }
    let lanes = lanes();
    lanes.block_on(0, Group::DEFAULT, || async {
        let flag = Rc::new(Flag(Cell::new(false)));
        lanes::at_pause(flag.clone());
        // Always ready: without a bound this would never end.
        while !flag.0.get() {
            lanes::yield_now().await;
        }
    });
    lanes.shutdown();
}

#[test]
fn what_it_costs_is_charged_to_who_put_it_off() {
    struct Work;
    impl AtPause for Work {
        fn at_pause(self: Rc<Self>) {
            let began_ns = lanes::time::monotonic_ns();
            while lanes::time::monotonic_ns() - began_ns < 2_000_000 {}
            assert_eq!(lanes::current_group(), Group::DRIVER);
        }
    }
    let lanes = lanes();
    lanes.block_on(0, Group::DRIVER, || async {
        for _ in 0..20 {
            lanes::at_pause(Rc::new(Work));
            lanes::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    });
    let (own, control) = (lanes.usage(Group::DRIVER), lanes.usage(Group::CONTROL));
    lanes.shutdown();
    // The wall clock may run on while the thread is off its CPU; what it did get is the group's.
    assert!(own.cpu_fast_ns > control.cpu_fast_ns, "{own:?} {control:?}");
}
