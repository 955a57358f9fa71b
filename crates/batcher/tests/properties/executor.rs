//! A single-threaded executor in virtual time: the clock moves when no task can run. It repeats
//! itself exactly.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Default)]
struct Time {
    now_us: u64,
    timers: BTreeMap<(u64, u64), Waker>,
    timers_set: u64,
    /// Tasks that tasks have spawned.
    spawned: Vec<Task>,
}

thread_local! {
    static TIME: RefCell<Time> = RefCell::default();
}

/// Returns the virtual time.
pub(crate) fn now_us() -> u64 {
    TIME.with_borrow(|time| time.now_us)
}

/// Waits in virtual time.
pub(crate) async fn sleep_us(us: u64) {
    let end_us = now_us() + us;
    let mut is_set = false;
    std::future::poll_fn(|context| {
        if now_us() >= end_us {
            return Poll::Ready(());
        }
        if !is_set {
            is_set = true;
            TIME.with_borrow_mut(|time| {
                time.timers_set += 1;
                time.timers.insert((end_us, time.timers_set), context.waker().clone());
            });
        }
        Poll::Pending
    })
    .await;
}

/// Runs a future beside its caller.
pub(crate) fn spawn(future: impl Future<Output = ()> + 'static) {
    TIME.with_borrow_mut(|time| time.spawned.push(Box::pin(future)));
}

/// Numbers of the tasks that can run.
type Ready = Arc<Mutex<VecDeque<usize>>>;

struct Wakes {
    task: usize,
    ready: Ready,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.ready.lock().unwrap().push_back(self.task);
    }
}

/// The executor of a test. A new one begins at time 0.
pub(crate) struct Executor {
    tasks: Vec<Option<Task>>,
    ready: Ready,
}

impl Executor {
    pub(crate) fn new() -> Executor {
        TIME.set(Time::default());
        Executor { tasks: Vec::new(), ready: Ready::default() }
    }

    /// Adds a task and returns its number.
    pub(crate) fn spawn(&mut self, future: impl Future<Output = ()> + 'static) -> usize {
        self.tasks.push(Some(Box::pin(future)));
        self.ready.lock().unwrap().push_back(self.tasks.len() - 1);
        self.tasks.len() - 1
    }

    /// Drops a task.
    pub(crate) fn cancel(&mut self, task: usize) {
        self.tasks[task] = None;
    }

    /// Returns true if the task has ended.
    pub(crate) fn has_ended(&self, task: usize) -> bool {
        self.tasks[task].is_none()
    }

    /// Runs until no task can run any more, or `is_over` returns true.
    pub(crate) fn run(&mut self, mut is_over: impl FnMut() -> bool) {
        while !is_over() {
            let next = self.ready.lock().unwrap().pop_front();
            match next {
                Some(task) => self.poll(task),
                None => {
                    let timer = TIME.with_borrow_mut(|time| {
                        let ((at_us, _), waker) = time.timers.pop_first()?;
                        time.now_us = at_us;
                        Some(waker)
                    });
                    let Some(waker) = timer else { return };
                    waker.wake();
                }
            }
        }
    }

    fn poll(&mut self, number: usize) {
        let Some(task) = &mut self.tasks[number] else { return };
        let waker = Waker::from(Arc::new(Wakes { task: number, ready: self.ready.clone() }));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.tasks[number] = None;
        }
        let spawned = TIME.with_borrow_mut(|time| std::mem::take(&mut time.spawned));
        for task in spawned {
            self.tasks.push(Some(task));
            self.ready.lock().unwrap().push_back(self.tasks.len() - 1);
        }
    }
}
