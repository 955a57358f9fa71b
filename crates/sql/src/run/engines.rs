//! Access to the stored tables from heavy lanes: the engine of each core, which only that core's
//! fast lane may use.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use engine::Engine;
use lanes::PerCore;

/// The engine of each core, from joining the listener to its stop. Cheap to clone, and usable from
/// any thread.
#[derive(Clone, Default)]
pub(crate) struct Engines(Arc<PerCore<Rc<dyn Engine>>>);

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engines")
    }
}

impl Engines {
    /// Sets the engine of this core, on its fast lane.
    pub(crate) fn set(&self, engine: Rc<dyn Engine>) {
        self.0.set(Rc::new(engine));
    }

    /// Returns the engine of this core, on its fast lane. `None`: the listener has stopped.
    pub(crate) fn here(&self) -> Option<Rc<dyn Engine>> {
        self.0.get().map(|engine| (*engine).clone())
    }

    /// Removes the engine of this core, on its fast lane.
    pub(crate) fn remove(&self) {
        drop(self.0.take());
    }
}
