//! Values that belong to one core each, such as the engine of this core. A message to another core
//! carries the [`PerCore`], and finds the value there.
//!
//! Each thread has one registry, from the number of a [`PerCore`] to its value. Numbers are never
//! reused, so that several servers in one process do not find each other's values.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustc_hash::FxHashMap;

use crate::Group;
use crate::call::call;
use crate::context::{handle, on_fast_lane};
use crate::lanes::Lanes;

/// Next number of a [`PerCore`].
static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Values of this core.
    static VALUES: RefCell<FxHashMap<u64, Rc<dyn Any>>> = RefCell::default();
}

/// One `T` for each core, at most. Fast lanes set and read their own. Dropping it drops the values
/// of all cores, each on its core. A static one keeps them until their lanes end.
pub struct PerCore<T> {
    number: u64,
    /// Lanes whose cores may have a value.
    lanes: OnceLock<Lanes>,
    /// Its values stay on their threads, so that it is `Send` and `Sync` for any `T`.
    of: PhantomData<fn() -> T>,
}

impl<T> Default for PerCore<T> {
    fn default() -> PerCore<T> {
        PerCore { number: NEXT.fetch_add(1, Relaxed), lanes: OnceLock::new(), of: PhantomData }
    }
}

impl<T: 'static> PerCore<T> {
    /// Creates it without values.
    #[must_use]
    pub fn new() -> PerCore<T> {
        PerCore::default()
    }

    /// Sets the value of this core, on its fast lane. Panics elsewhere.
    pub fn set(&self, value: Rc<T>) {
        assert!(on_fast_lane(), "a core sets its own value");
        self.lanes.get_or_init(handle);
        let old = VALUES.with_borrow_mut(|values| values.insert(self.number, value));
        drop(old);
    }

    /// Returns the value of this core, on its fast lane. `None`: it has none, or this thread is not
    /// a fast lane.
    #[must_use]
    pub fn get(&self) -> Option<Rc<T>> {
        value(self.number)
    }

    /// Returns the value of this core, and makes it first if it has none. Panics outside of fast
    /// lanes.
    pub fn get_or_set(&self, make: impl FnOnce() -> T) -> Rc<T> {
        self.get().unwrap_or_else(|| {
            let made = Rc::new(make());
            self.set(made.clone());
            made
        })
    }

    /// Calls `f` with the value of this core, if it has one.
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.get().map(|value| f(&value))
    }

    /// Removes the value of this core and returns it.
    pub fn take(&self) -> Option<Rc<T>> {
        remove(self.number).map(typed)
    }

    /// Calls `f` on the fast lane of another core, with the value there. `None`: it has none.
    pub fn call<R, F>(&self, core: usize, f: F) -> impl Future<Output = Option<R>> + use<T, R, F>
    where
        R: Send + 'static,
        F: FnOnce(&T) -> R + Send + 'static,
    {
        let number = self.number;
        call(core, move || async move { value(number).map(|value: Rc<T>| f(&value)) })
    }
}

impl<T> Drop for PerCore<T> {
    fn drop(&mut self) {
        let (number, Some(lanes)) = (self.number, self.lanes.get()) else { return };
        for core in 0..lanes.cores() {
            lanes.run_on_core(core, Group::CONTROL, move || drop(remove(number)));
        }
    }
}

/// Returns the value of this thread.
fn value<T: 'static>(number: u64) -> Option<Rc<T>> {
    // The registry is gone if a drop asks for a value while its thread ends.
    let found = VALUES.try_with(|values| values.borrow().get(&number).cloned());
    found.ok().flatten().map(typed)
}

/// Removes the value of this thread. The caller drops it, since that may call functions of this
/// file.
fn remove(number: u64) -> Option<Rc<dyn Any>> {
    VALUES.try_with(|values| values.borrow_mut().remove(&number)).ok().flatten()
}

/// Drops all values of this thread at the end of its lane. Their drops may use other thread-local
/// values, which are gone when the thread ends.
pub(crate) fn drop_all() {
    drop(VALUES.take());
}

fn typed<T: 'static>(value: Rc<dyn Any>) -> Rc<T> {
    value.downcast().unwrap_or_else(|_| unreachable!("a number has values of one type"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Config;

    fn lanes() -> Lanes {
        Lanes::start(Config { cores: vec![0; 2], pin: false, ..Config::detect() }).expect("lanes start")
    }

    /// Returns the value of a core.
    fn value_on(lanes: &Lanes, core: usize, values: &Arc<PerCore<u32>>) -> Option<u32> {
        let values = values.clone();
        lanes.block_on(core, Group::CONTROL, || async move { values.with(|value| *value) })
    }

    #[test]
    fn servers_of_one_process_do_not_find_each_others_values() {
        let lanes = lanes();
        let servers: [Arc<PerCore<u32>>; 2] = std::array::from_fn(|_| Arc::default());
        for (server, value) in servers.iter().zip([7, 8]) {
            let server = server.clone();
            lanes.block_on(0, Group::CONTROL, move || async move { server.set(Rc::new(value)) });
        }
        assert_eq!(servers.each_ref().map(|server| value_on(&lanes, 0, server)), [Some(7), Some(8)]);
        assert_eq!(value_on(&lanes, 0, &Arc::default()), None);
        assert_eq!(servers[0].get(), None, "this thread is no core");
        lanes.shutdown();
    }

    #[test]
    fn core_without_a_value_answers_none() {
        let lanes = lanes();
        let values: Arc<PerCore<u32>> = Arc::default();
        let calls = values.clone();
        let answers = lanes.block_on(0, Group::CONTROL, move || async move {
            calls.set(Rc::new(7));
            let answers = (calls.call(0, |value| *value).await, calls.call(1, |value| *value).await);
            (answers, calls.take().map(|value| *value), calls.with(|value| *value))
        });
        assert_eq!(answers, ((Some(7), None), Some(7), None));
        assert_eq!(value_on(&lanes, 1, &values), None);
        lanes.shutdown();
    }

    #[test]
    fn drop_removes_the_values_of_all_cores() {
        let lanes = lanes();
        let values: Arc<PerCore<Arc<()>>> = Arc::default();
        let held = Arc::new(());
        for core in 0..2 {
            let (values, held) = (values.clone(), held.clone());
            let set = move || async move { drop(values.get_or_set(|| held)) };
            lanes.block_on(core, Group::CONTROL, set);
        }
        assert_eq!(Arc::strong_count(&held), 3);
        drop(values);
        // Each core works on its messages in their order.
        (0..2).for_each(|core| lanes.block_on(core, Group::CONTROL, || async {}));
        assert_eq!(Arc::strong_count(&held), 1);
        lanes.shutdown();
    }

    /// Regression: a value was dropped as a thread-local one, after those that its drop used.
    #[test]
    fn lane_drops_its_values_before_its_thread_ends() {
        struct AsksForItsLane(std::sync::mpsc::Sender<bool>);
        impl Drop for AsksForItsLane {
            fn drop(&mut self) {
                let _ = self.0.send(crate::on_lane());
            }
        }
        let (lanes, values) = (lanes(), Arc::new(PerCore::new()));
        let (sender, answers) = std::sync::mpsc::channel();
        let set = values.clone();
        lanes.block_on(0, Group::CONTROL, move || async move { set.set(Rc::new(AsksForItsLane(sender))) });
        lanes.shutdown();
        assert_eq!(answers.recv(), Ok(false));
        drop(values);
    }
}
