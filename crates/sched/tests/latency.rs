//! A level with a latency target alongside a neighbour that comes, grows and goes, in simulated
//! time. The level has Poisson arrivals with exponential work, the neighbour always has work.

mod common;

use std::collections::VecDeque;

use sched::LATENCY_SLICE_NS;
use sched::control::{Latency, LatencyInput, LatencyReason, entitlement_ppm};
use testkit::Random;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const WORK_NS: u64 = 100_000;
const TARGET_NS: u64 = 5 * MS;
const SHARES_MIN: u32 = 100;
const SHARES_MAX: u32 = 6000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Neighbour {
    /// 0: it is absent.
    shares: u32,
    min_ppm: u32,
}

struct Core {
    random: Random,
    now_ns: u64,
    load: f64,
    next_ns: u64,
    waiting: VecDeque<u64>,
    /// Virtual times of the level and of its neighbour.
    clocks: [f64; 2],
    control: Latency,
    shares: u32,
    seconds: Vec<Second>,
}

/// Results of a second.
#[derive(Clone, Debug)]
struct Second {
    latencies_ns: Vec<u64>,
    shares: u32,
    reason: LatencyReason,
    neighbour_ppm: u32,
}

fn p99(latencies_ns: &mut [u64]) -> u64 {
    latencies_ns.sort_unstable();
    latencies_ns.get(latencies_ns.len() * 99 / 100).copied().unwrap_or(0)
}

impl Core {
    fn new(seed: u64, load: f64, shares: u32) -> Core {
        Core {
            random: Random::new(seed + 1),
            now_ns: 0,
            load,
            next_ns: 0,
            waiting: VecDeque::new(),
            clocks: [0.0; 2],
            control: Latency::new(shares),
            shares,
            seconds: Vec::new(),
        }
    }

    fn exponential(&mut self, mean_ns: f64) -> u64 {
        let part = (self.random.within(0, 1 << 30) + 1) as f64 / f64::from(1 << 30);
        (-part.ln() * mean_ns) as u64
    }

    /// Runs for a number of seconds. Returns the index of the first.
    fn run(&mut self, seconds: u64, neighbour: Neighbour) -> usize {
        let from = self.seconds.len();
        (0..seconds).for_each(|_| self.second(neighbour));
        from
    }

    fn second(&mut self, neighbour: Neighbour) {
        let end_ns = self.now_ns + SECOND;
        let both = self.shares + neighbour.shares;
        let part = f64::from(entitlement_ppm(self.shares, both, 0, neighbour.min_ppm, None)) / 1e6;
        if neighbour.shares == 0 {
            self.clocks = [0.0; 2];
        }
        let mut latencies_ns = Vec::new();
        let mut wait_ns = 0;
        let mut neighbour_ns = 0;
        while self.now_ns < end_ns {
            while self.next_ns <= self.now_ns {
                if self.waiting.is_empty() {
                    let credit = LATENCY_SLICE_NS as f64 / part;
                    self.clocks[0] = self.clocks[0].max(self.clocks[1] - credit);
                }
                self.waiting.push_back(self.next_ns);
                self.next_ns += self.exponential(WORK_NS as f64 / self.load);
            }
            let turn = neighbour.shares == 0 || self.clocks[0] <= self.clocks[1];
            if turn && let Some(due_ns) = self.waiting.pop_front() {
                // The limiter refuses what is too old.
                if self.now_ns - due_ns > 4 * TARGET_NS {
                    continue;
                }
                let work_ns = self.exponential(WORK_NS as f64);
                wait_ns += self.now_ns - due_ns;
                self.now_ns += work_ns;
                latencies_ns.push(self.now_ns - due_ns);
                self.clocks[0] += work_ns as f64 / part;
            } else if neighbour.shares > 0 {
                self.now_ns += LATENCY_SLICE_NS;
                neighbour_ns += LATENCY_SLICE_NS;
                self.clocks[1] += LATENCY_SLICE_NS as f64 / (1.0 - part);
                if self.waiting.is_empty() {
                    self.clocks[0] = self.clocks[0].max(self.clocks[1] - LATENCY_SLICE_NS as f64 / part);
                }
            } else {
                self.now_ns = self.next_ns;
            }
        }
        let ended = latencies_ns.len() as u64;
        let neighbour_ppm = (neighbour_ns / 1000) as u32;
        let (shares, reason) = self.control.decide(LatencyInput {
            p99_ns: p99(&mut latencies_ns),
            ended,
            cpu_wait_ns: wait_ns / ended.max(1),
            others_ppm: neighbour_ppm,
            ..input()
        });
        self.shares = shares;
        self.seconds.push(Second { latencies_ns, shares, reason, neighbour_ppm });
    }

    /// Returns the 99th percentile of each ten seconds from `from` on.
    fn windows(&self, from: usize) -> Vec<u64> {
        let tens = self.seconds[from..].chunks_exact(10);
        tens.map(|ten| {
            p99(&mut ten.iter().flat_map(|second| second.latencies_ns.clone()).collect::<Vec<_>>())
        })
        .collect()
    }
}

fn input() -> LatencyInput {
    LatencyInput {
        target_ns: TARGET_NS,
        ended: 1000,
        alone_ns: WORK_NS,
        shares_min: SHARES_MIN,
        shares_max: SHARES_MAX,
        ..LatencyInput::default()
    }
}

#[test]
fn neighbour_that_comes_grows_and_goes_leaves_the_target() {
    for seed in 0..3 {
        let mut core = Core::new(seed, 0.3, 500);
        let (mut windows, mut missed) = (0, Vec::new());
        for shares in [0, 1000, 3000, 0, 1000] {
            let from = core.run(120, Neighbour { shares, min_ppm: 100_000 });
            for p99_ns in core.windows(from) {
                windows += 1;
                // An idle core is faster.
                let least_ns = if shares == 0 { 0 } else { TARGET_NS * 8 / 10 };
                if !(least_ns..=TARGET_NS * 12 / 10).contains(&p99_ns) {
                    missed.push((shares, p99_ns));
                }
            }
            // After 40 s the shares do not swing.
            let settled = core.seconds[from + 40..].iter().map(|second| second.shares);
            let (low, high) = (settled.clone().min().unwrap(), settled.max().unwrap());
            assert!(high <= low + low * 2 / 5, "seed {seed}, neighbour {shares}: shares {low} to {high}");
        }
        assert!(missed.len() * 10 <= windows, "seed {seed}: {missed:?} of {windows} windows");
    }
}

#[test]
fn minimum_of_the_neighbour_is_untouched() {
    let mut core = Core::new(1, 0.4, 500);
    core.run(60, Neighbour { shares: 1000, min_ppm: 650_000 });
    for second in &core.seconds {
        assert!(second.neighbour_ppm >= 645_000, "the neighbour got {}", second.neighbour_ppm);
    }
    let last = core.seconds.last().expect("a second");
    assert_eq!((last.shares, last.reason), (SHARES_MAX, LatencyReason::UpperBound));
}

#[test]
fn shares_stay_within_their_bounds() {
    let mut random = Random::new(3);
    for _ in 0..20_000 {
        let mut any = || {
            let most = random.pick(&[1, 10, 1000, SECOND, u64::MAX]);
            random.within(0, most)
        };
        let (shares_min, shares_max) = (any() as u32, any() as u32);
        let mut control = Latency::new(any() as u32);
        for _ in 0..3 {
            let (shares, _) = control.decide(LatencyInput {
                target_ns: any(),
                p99_ns: any(),
                ended: any(),
                alone_ns: any(),
                slot_wait_ns: 0,
                cpu_wait_ns: any(),
                disk_wait_ns: any(),
                others_ppm: any() as u32,
                shares_min,
                shares_max,
            });
            let least = shares_min.max(1);
            assert!((least..=shares_max.max(least)).contains(&shares), "{shares}");
        }
    }
}

#[test]
fn small_steps_add_up() {
    let mut control = Latency::new(5);
    let late = LatencyInput { p99_ns: TARGET_NS * 18 / 10, others_ppm: 500_000, shares_min: 1, ..input() };
    let shares = [0; 3].map(|_| control.decide(late).0);
    assert_eq!(shares, [5, 6, 6], "a tenth of 5 is half a share");
}

fn check(p99_percent: u64, input: LatencyInput, shares: u32, reason: &str) {
    let input = LatencyInput { p99_ns: TARGET_NS * p99_percent / 100, ..input };
    let (now, because) = Latency::new(1000).decide(input);
    assert_eq!((now, because.to_string().as_str()), (shares, reason), "{input:?}");
}

#[test]
fn decision_names_its_reason() {
    let contended = LatencyInput { cpu_wait_ns: MS, others_ppm: 500_000, ..input() };
    // Twice the aim is 180 % of the target.
    check(180, contended, 1100, "raised shares from 1000 to 1100");
    check(10_000, contended, 1300, "raised shares from 1000 to 1300");
    check(94, contended, 1000, "met");
    check(45, contended, 950, "lowered shares from 1000 to 950");
    let least = LatencyInput { shares_min: 1000, ..contended };
    check(45, least, 1000, "met");
    let idle = LatencyInput { others_ppm: 0, ..contended };
    check(45, idle, 1000, "met");
    check(99, idle, 1000, "met");
    check(180, idle, 1000, "not limited by the CPU time of other levels");
    let disk = LatencyInput { disk_wait_ns: 2 * MS, ..contended };
    check(180, disk, 1000, "not limited by the CPU time of other levels");
    let slots = LatencyInput { slot_wait_ns: 2 * MS, ..contended };
    check(180, slots, 1000, "waits for its own slots (max_concurrency)");
    check(45, slots, 950, "lowered shares from 1000 to 950");
    let most = LatencyInput { shares_max: 1000, ..contended };
    check(99, most, 1000, "met");
    check(101, most, 1000, "at its upper bound of shares: cannot be met");
    let long = LatencyInput { alone_ns: TARGET_NS, ..contended };
    check(180, long, 1000, "a statement alone takes longer: cannot be met");
    let few = LatencyInput { ended: 199, ..contended };
    check(180, few, 1000, "too few statements to measure");
}
