//! Self-check of a lane at start: the delay of its wake-ups while its heavy lane computes. On a CPU
//! of its own that is tens of microseconds. If other programs compute on the same CPU, or a
//! hypervisor gives it to others, it is milliseconds. This process cannot make up for them, so the
//! operator should know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc;
use std::time::Duration;

use crate::shared::Message;
use crate::timer::Timer;
use crate::{Flow, Group, Lanes, Report, WakeUp, sys};

/// Number of measured wake-ups: enough for a median. The latest of them stands for the worst 1 %.
const SAMPLES: usize = 40;
/// Interval between wake-ups, ns. Late ones included, this many fit into [`TIME_NS_MAX`].
const INTERVAL_NS: u64 = 1_000_000;
/// Longest time of the measurement, ns.
const TIME_NS_MAX: u64 = 45_000_000;

/// Has all lanes measure themselves at the same time, and reports poor ones. Called from outside of
/// lanes.
pub(crate) fn run(lanes: &Lanes) {
    let (sender, measured) = mpsc::channel();
    for core in 0..lanes.cores() {
        let sender = sender.clone();
        let start = move || {
            let check = async move {
                let _ = sender.send((core, measure().await));
            };
            crate::spawn(Group::CONTROL, check).detach();
        };
        drop(lanes.core(core).send(Message::Start(Group::CONTROL, Flow::NONE, Box::new(start))));
    }
    drop(sender);
    for (core, wake_up) in measured {
        let Some(wake_up) = wake_up else { continue };
        let shared = lanes.core(core);
        let _ = shared.wake_up.set(wake_up);
        if wake_up.is_poor() {
            lanes.report(&Report::PoorWakeUp { core, cpus: shared.cpus.clone(), wake_up });
        }
    }
}

/// Measures on a fast lane. `None`: no timer is available.
async fn measure() -> Option<WakeUp> {
    let mut timer = Timer::new().ok()?;
    let over = Arc::new(AtomicBool::new(false));
    let seen = over.clone();
    let _beside = crate::heavy(Group::COMPACTION, async move {
        while !seen.load(Relaxed) {
            std::hint::spin_loop();
            crate::heavy_yield().await;
        }
    });
    crate::time::sleep(Duration::from_millis(1)).await; // until the heavy task computes
    let began_ns = sys::monotonic_ns();
    let mut late_ns = Vec::with_capacity(SAMPLES);
    while late_ns.len() < SAMPLES {
        let now_ns = sys::monotonic_ns();
        if now_ns - began_ns >= TIME_NS_MAX {
            break;
        }
        let deadline_ns = now_ns + INTERVAL_NS;
        timer.wait_until(deadline_ns).await;
        late_ns.push(sys::monotonic_ns().saturating_sub(deadline_ns));
    }
    over.store(true, Relaxed);
    Some(WakeUp::of(late_ns))
}
