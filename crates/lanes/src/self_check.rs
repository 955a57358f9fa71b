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
use crate::{Group, Lanes, Report, sys};

/// Number of measured wake-ups: enough for a median. The latest of them stands for the worst 1 %.
const SAMPLES: usize = 40;
/// Interval between wake-ups, ns. Late ones included, this many fit into [`TIME_NS_MAX`].
const INTERVAL_NS: u64 = 1_000_000;
/// Longest time of the measurement, ns.
const TIME_NS_MAX: u64 = 45_000_000;
/// Median above which wake-ups are poor, µs: ten times that of a CPU without other programs.
const POOR_US: u64 = 500;

/// Delay of a fast lane's wake-ups: from the time of its timer to the poll of the task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WakeUp {
    /// Number of wake-ups measured.
    pub samples: u32,
    /// Median, µs.
    pub p50_us: u64,
    /// 99th percentile, µs.
    pub p99_us: u64,
}

impl WakeUp {
    fn of(mut late_ns: Vec<u64>) -> WakeUp {
        late_ns.sort_unstable();
        let at = |percent: usize| late_ns.get((late_ns.len() * percent / 100).min(late_ns.len().max(1) - 1));
        let us = |percent| at(percent).map_or(0, |late_ns| late_ns / 1000);
        WakeUp { samples: late_ns.len() as u32, p50_us: us(50), p99_us: us(99) }
    }

    fn is_poor(self) -> bool {
        self.p50_us > POOR_US
    }
}

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
        drop(lanes.core(core).send(Message::Start(Group::CONTROL, Box::new(start))));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_milliseconds_is_poor_and_one_hiccup_is_not() {
        let of_us = |late_us: &[u64]| WakeUp::of(late_us.iter().map(|us| us * 1000).collect());
        let mut good = vec![30; 39];
        good.push(9_000);
        assert_eq!(of_us(&good), WakeUp { samples: 40, p50_us: 30, p99_us: 9_000 });
        assert!(!of_us(&good).is_poor() && of_us(&[2_000, 10, 3_000]).is_poor());
        assert_eq!(of_us(&[]), WakeUp::default());
    }
}
