//! Work for the lanes from any thread: futures to wait for, and short closures.

use std::future::Future;
use std::panic::Location;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, mpsc};

use crate::context::{on_fast_lane, with_core};
use crate::current::in_group;
use crate::lanes::Lanes;
use crate::shared::Message;
use crate::spawn::spawn_at;
use crate::{Ended, Flow, Group};

impl Lanes {
    /// Runs a future on a core's fast lane and waits for it, from any thread outside of lanes.
    /// Panics if the future panics or the lanes end first.
    #[track_caller]
    pub fn block_on<F, Fut, T>(&self, core: usize, group: Group, f: F) -> T
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        self.try_block_on(core, group, f).expect("lanes run until they are ended")
    }

    /// Does the same as [`Lanes::block_on`], for callers that may run while the lanes end. Panics
    /// if the future panics.
    ///
    /// # Errors
    /// The lanes ended first. The future may have run or not.
    #[track_caller]
    pub fn try_block_on<F, Fut, T>(&self, core: usize, group: Group, f: F) -> Result<T, Ended>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        assert!(!on_fast_lane(), "a lane must not wait for a lane");
        let (sender, receiver) = mpsc::channel();
        let at = Location::caller();
        let start = move || {
            let run = async move { drop(sender.send(f().await)) };
            spawn_at(at, group, run).detach();
        };
        drop(self.core(core).send(Message::Start(group, Flow::NONE, Box::new(start))));
        match receiver.recv() {
            Ok(answer) => Ok(answer),
            Err(_) if self.core(core).stop.load(SeqCst) => Err(Ended),
            Err(_) => panic!("the future that core {core} was to run panicked there"),
        }
    }

    /// Runs a closure of a few microseconds on the fast lane of a core, in this group, without
    /// waiting for it; from any thread. On that very lane it runs at once. If the lane has ended,
    /// it does not run.
    pub fn run_on_core(&self, core: usize, group: Group, f: impl FnOnce() + Send + 'static) {
        let target = self.core(core);
        if with_core(|here| Arc::ptr_eq(&here.shared, target)) == Some(true) {
            in_group(group, Flow::NONE, f);
        } else {
            drop(target.send(Message::Start(group, Flow::NONE, Box::new(f))));
        }
    }
}
