//! Delay of wake-ups of a fast lane.

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
    pub(crate) fn of(mut late_ns: Vec<u64>) -> WakeUp {
        late_ns.sort_unstable();
        let at = |percent: usize| late_ns.get((late_ns.len() * percent / 100).min(late_ns.len().max(1) - 1));
        let us = |percent| at(percent).map_or(0, |late_ns| late_ns / 1000);
        WakeUp { samples: late_ns.len() as u32, p50_us: us(50), p99_us: us(99) }
    }

    pub(crate) fn is_poor(self) -> bool {
        self.p50_us > POOR_US
    }
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
