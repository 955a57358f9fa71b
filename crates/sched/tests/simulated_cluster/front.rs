//! A simulated front: for each node a queue, a part of the node's window, and a limiter.

use std::collections::VecDeque;

use sched::control::{NodeSample, NodeWindow, WindowBounds};

use crate::node::Request;

/// Bounds of the specification.
pub(crate) const BOUNDS: WindowBounds = WindowBounds { min: 4, max: 1024 };

/// Window of every node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Window {
    Fixed(u32),
    Found,
}

/// State of a front for one node.
pub(crate) struct Side {
    pub(crate) queue: VecDeque<Request>,
    pub(crate) in_flight: u32,
    pub(crate) limiter: NodeWindow,
    pub(crate) sample: NodeSample,
    /// The node's window in force, and this front's part of it.
    pub(crate) window: u32,
    pub(crate) part: u32,
    /// Bounds of the part, as parts of the window: after those of the fronts before.
    pub(crate) share: [f64; 2],
    /// Requests in flight and queued, at most the window, summed over ticks and decayed. Without
    /// that bound and the decay, parts follow queues that the last parts made, and swing.
    pub(crate) demand: u64,
    /// Mean time of a request at the node, ns.
    pub(crate) mean_ns: f64,
    full_ns: u64,
    full_since_ns: Option<u64>,
}

impl Side {
    pub(crate) fn new(window: Window, drain_offset_ns: u64, share: [f64; 2]) -> Side {
        let start = match window {
            Window::Fixed(window) => window,
            Window::Found => BOUNDS.min,
        };
        let mut side = Side {
            queue: VecDeque::new(),
            in_flight: 0,
            limiter: NodeWindow::new(BOUNDS, drain_offset_ns),
            sample: NodeSample::default(),
            window: start,
            part: 0,
            share,
            demand: 0,
            mean_ns: 0.0,
            full_ns: 0,
            full_since_ns: None,
        };
        side.divide();
        side
    }

    /// Sets the part from the window and the share.
    pub(crate) fn divide(&mut self) {
        let [from, to] = self.share.map(|bound| (bound * f64::from(self.window) + 0.5) as u32);
        self.part = (to - from).max(1);
    }

    /// Notes at each change whether the part is used up.
    pub(crate) fn note(&mut self, now_ns: u64) {
        let is_full = self.in_flight >= self.part;
        match self.full_since_ns {
            Some(since_ns) if !is_full => {
                self.full_ns += now_ns - since_ns;
                self.full_since_ns = None;
            }
            None if is_full => self.full_since_ns = Some(now_ns),
            _ => {}
        }
    }

    /// Returns the time for which the part was used up since the last call.
    pub(crate) fn take_full_ns(&mut self, now_ns: u64) -> u64 {
        let since_ns =
            self.full_since_ns.as_mut().map_or(0, |since_ns| now_ns - std::mem::replace(since_ns, now_ns));
        std::mem::take(&mut self.full_ns) + since_ns
    }
}
