//! Cores for a rate. Throughput over cores follows the scalability law with cores in place of N.
//!
//! 1. With core counts c₀ … and throughput X₀ … the law passes through the largest measured count:
//!    X(c) = X₀ · shape(c) ÷ shape(c₀). Linear: shape(c) = c. Contention: c ÷ (1 + 5 % · (c − 1)).
//! 2. With four different counts the law is fitted to them instead.
//! 3. The result is the least whole c with X(c) ≥ rate · (1 + headroom).

use serde::Serialize;

use super::operating::Operating;
use crate::usl::{Estimate, Point, Usl, fit};

/// Contention over cores in the second bracket. Two measured core counts do not determine it. With
/// 5 %, 16 cores do the work of 9.
const SIGMA: f64 = 0.05;
/// Uncertainty of the cost of a request, for loads that differ from the measured one.
const COST: f64 = 0.2;
/// Least number of different core counts for a fit. Three parameters need three, and a fourth to
/// contradict them.
const FIT_MIN: usize = 4;
/// Largest part by which a fitted law may differ from a core count without a note.
const MISFIT: f64 = 0.10;

/// Requested capacity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// Requests a second.
    pub rate_per_s: f64,
    /// Most that the 99th percentile of response times may be, µs. `None`: no target.
    pub p99_us: Option<f64>,
    /// Spare capacity as a part of the rate.
    pub headroom: f64,
}

impl Goal {
    /// Returns the throughput that the cores must reach, requests a second.
    pub fn demand_per_s(&self) -> f64 {
        self.rate_per_s * (1.0 + self.headroom)
    }
}

/// Cores by one law over cores, and one cost of a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NeededCores {
    /// Law over cores: `linear`, `σ = 5 %` or `fitted`.
    pub law: &'static str,
    /// Cost of a request as a multiple of the measured one.
    pub cost: f64,
    /// Cores by the lower end of the interval of throughput. `None`: no number of cores suffices.
    pub cores: Option<u64>,
    /// Cores by the fitted throughput.
    pub cores_by_value: Option<u64>,
    /// Cores by the upper end.
    pub cores_by_high: Option<u64>,
    /// Requests in flight for `cores`.
    pub concurrency: Option<u64>,
}

/// Plan for a rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Needed {
    /// The request.
    pub goal: Goal,
    /// Throughput to reach, requests a second: the rate with its headroom.
    pub demand_per_s: f64,
    /// Ladders, by ascending core count.
    pub measured: Vec<Operating>,
    /// Different core counts.
    pub core_counts: usize,
    /// Law over cores. `None`: fewer than four core counts.
    pub fitted: Option<Usl>,
    /// Rows, the plan first.
    pub rows: Vec<NeededCores>,
    /// Remarks, as sentences.
    pub notes: Vec<String>,
}

/// Name of a law that is fitted to the core counts.
const FITTED: &str = "fitted";
/// Ends of the intervals, from the one that needs most cores.
const ENDS: [fn(&Estimate) -> f64; 3] = [|e| e.low, |e| e.value, |e| e.high];

/// A law over cores: its name, and one law for each of [`ENDS`].
type Laws = (&'static str, [Usl; 3]);

/// Computes the plan. `measured` has at least one ladder.
pub fn needed(goal: Goal, mut measured: Vec<Operating>) -> Needed {
    measured.sort_by_key(|operating| operating.cores);
    let mut counts: Vec<usize> = measured.iter().map(|operating| operating.cores).collect();
    counts.dedup();
    let mut found = Needed {
        goal,
        demand_per_s: goal.demand_per_s(),
        core_counts: counts.len(),
        fitted: None,
        rows: Vec::new(),
        notes: Vec::new(),
        measured,
    };
    let laws = found.laws();
    found.fitted = laws.iter().find(|(name, _)| *name == FITTED).map(|(_, laws)| laws[1]);
    for (name, laws) in &laws {
        for cost in [1.0, 1.0 + COST, 1.0 - COST] {
            found.rows.push(row(&found, name, laws, cost));
        }
    }
    found.notes = notes(&found);
    found
}

impl Needed {
    /// Returns the laws of throughput over cores by their names, each by the lower end of the
    /// interval of throughput, by its value and by the upper end. Two laws bracket the result
    /// unless there are four core counts, which determine one.
    pub fn laws(&self) -> Vec<Laws> {
        if self.core_counts >= FIT_MIN
            && let [Some(low), Some(value), Some(high)] = ENDS.map(|end| fitted(&self.measured, end))
        {
            return vec![(FITTED, [low, value, high])];
        }
        let Some(largest) = self.measured.last() else { return Vec::new() };
        let through = |sigma: f64| {
            let shape = Usl { lambda: 1.0, sigma, kappa: 0.0 };
            let each = shape.throughput(largest.cores as f64);
            ENDS.map(|end| Usl { lambda: end(&largest.throughput_per_s) / each, ..shape })
        };
        vec![("linear", through(0.0)), ("σ = 5 %", through(SIGMA))]
    }
}

fn row(plan: &Needed, law: &'static str, laws: &[Usl; 3], cost: f64) -> NeededCores {
    // A request that costs 20 % more divides all throughput by 1.2.
    let [cores, cores_by_value, cores_by_high] =
        laws.map(|law| law.at_least(plan.demand_per_s * cost).and_then(|(begin, end)| whole(begin, end)));
    let scaled = |cores: u64| {
        let operating = plan.measured.last()?;
        Some((operating.n as u64 * cores / operating.cores.max(1) as u64).max(1))
    };
    NeededCores { law, cost, cores, cores_by_value, cores_by_high, concurrency: cores.and_then(scaled) }
}

/// Returns the least whole number of `begin` to `end`. A result within 1e-9 of a whole number is
/// that number, since the law is computed with rounding errors.
fn whole(begin: f64, end: f64) -> Option<u64> {
    let cores = (begin - 1e-9 * begin.max(1.0)).ceil().max(1.0);
    (cores <= end * (1.0 + 1e-9) && cores < 1e9).then_some(cores as u64)
}

/// Fits throughput over cores. `None`: fewer than four core counts.
fn fitted(measured: &[Operating], end: fn(&Estimate) -> f64) -> Option<Usl> {
    let point = |operating: &Operating| Point {
        n: operating.cores as f64,
        throughput_per_s: end(&operating.throughput_per_s),
    };
    fit(&measured.iter().map(point).collect::<Vec<_>>())
}

fn notes(plan: &Needed) -> Vec<String> {
    let mut out = Vec::new();
    match plan.fitted {
        None => out.push(format!(
            "{} core {} no law over cores: a fit needs {FIT_MIN}, each with a ladder of its own (--from). Linear \
             scaling and σ = 5 % are brackets.",
            plan.core_counts,
            if plan.core_counts == 1 { "count determines" } else { "counts determine" },
        )),
        Some(law) => {
            let part = |operating: &Operating| {
                operating.throughput_per_s.value / law.throughput(operating.cores as f64) - 1.0
            };
            for operating in plan.measured.iter().filter(|operating| part(operating).abs() > MISFIT) {
                out.push(format!(
                    "The law over cores differs from {} by {:+.0} %, so that the result is a guess.",
                    operating.file,
                    part(operating) * 100.0
                ));
            }
        }
    }
    let largest = plan.measured.last().map_or(1, |operating| operating.cores);
    let beyond = plan.rows.iter().filter_map(|row| row.cores).max().filter(|cores| *cores > largest as u64);
    if let Some(cores) = beyond {
        let factor = cores as f64 / largest as f64;
        out.push(format!(
            "Up to {factor:.1} times the measured cores are extrapolated: measure before relying on them."
        ));
    }
    if plan.rows.iter().any(|row| row.cores.is_none()) {
        out.push(
            "`never`: by that law no number of cores reaches the throughput. Use more servers.".to_string(),
        );
    }
    if plan.measured.windows(2).any(|pair| pair[0].load != pair[1].load) {
        out.push("The ladders measured different loads, so that they are not comparable.".to_string());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a ladder's result: 10 in flight for each core, ± 10 % of throughput.
    fn measured(cores: usize, throughput_per_s: f64) -> Operating {
        Operating {
            file: format!("{cores}.json"),
            load: "read".into(),
            cores,
            n: 10 * cores,
            linear_end: 10 * cores,
            throughput_per_s: Estimate {
                value: throughput_per_s,
                low: 0.9 * throughput_per_s,
                high: 1.1 * throughput_per_s,
            },
            p99_n: 16 * cores,
            p99_us: 900.0,
        }
    }

    const GOAL: Goal = Goal { rate_per_s: 500_000.0, p99_us: None, headroom: 0.3 };

    /// Returns cores by the lower end, the value and the upper end, and the concurrency.
    fn found(plan: &Needed, law: &str, cost: f64) -> [Option<u64>; 4] {
        let row = plan.rows.iter().find(|row| row.law == law && row.cost == cost).expect("a row");
        [row.cores, row.cores_by_value, row.cores_by_high, row.concurrency]
    }

    #[test]
    fn linear_scaling_follows_the_formula() {
        // 2 × 500,000 × 1.3 ÷ 90,000 = 14.4, ÷ 100,000 = 13, ÷ 110,000 = 11.8; 20 × 15 ÷ 2 in
        // flight.
        let plan = needed(GOAL, vec![measured(2, 100_000.0)]);
        assert_eq!(plan.demand_per_s, 650_000.0);
        assert_eq!(found(&plan, "linear", 1.0), [Some(15), Some(13), Some(12), Some(150)]);
        assert_eq!(found(&plan, "linear", 1.2), [Some(18), Some(16), Some(15), Some(180)]);
        assert_eq!(found(&plan, "linear", 0.8), [Some(12), Some(11), Some(10), Some(120)]);
        assert!(
            plan.notes[0].starts_with("1 core count determines no law over cores: a fit needs 4"),
            "{plan:?}"
        );
    }

    #[test]
    fn contention_needs_more_cores_or_never_suffices() {
        // X(c) = 100,000 · (c ÷ (1 + 0.05·(c−1))) ÷ (2 ÷ 1.05): 52,500·c ÷ (0.95 + 0.05·c).
        let plan = needed(GOAL, vec![measured(2, 100_000.0)]);
        let by_value = (650_000.0 * 0.95f64 / (52_500.0 - 650_000.0 * 0.05)).ceil() as u64;
        assert_eq!(found(&plan, "σ = 5 %", 1.0)[1], Some(by_value));
        assert!(found(&plan, "σ = 5 %", 1.0)[0] > found(&plan, "linear", 1.0)[0]);
        // At most 52,500 ÷ 0.05 = 1,050,000 a second, on any number of cores.
        let beyond = needed(Goal { rate_per_s: 1_000_000.0, ..GOAL }, vec![measured(2, 100_000.0)]);
        assert_eq!(found(&beyond, "σ = 5 %", 1.0), [None; 4]);
        assert!(beyond.notes.iter().any(|note| note.contains("Use more servers")), "{beyond:?}");
    }

    #[test]
    fn small_rate_needs_one_core_and_one_request_in_flight() {
        let mut small = measured(4, 100_000.0);
        small.n = 2;
        let plan = needed(Goal { rate_per_s: 10.0, ..GOAL }, vec![small]);
        assert_eq!(found(&plan, "linear", 1.0), [Some(1), Some(1), Some(1), Some(1)]);
        assert!(!plan.notes.iter().any(|note| note.contains("extrapolated")), "{plan:?}");
    }

    #[test]
    fn exact_quotient_is_not_rounded_up() {
        // 2 × 450,000 ÷ 90,000 is 10, whatever the rounding errors are.
        let goal = Goal { rate_per_s: 450_000.0, headroom: 0.0, ..GOAL };
        assert_eq!(found(&needed(goal, vec![measured(2, 100_000.0)]), "linear", 1.0)[0], Some(10));
    }

    #[test]
    fn three_core_counts_are_bracketed_and_four_are_fitted() {
        let law = Usl { lambda: 50_000.0, sigma: 0.03, kappa: 0.0002 };
        let ladders = |counts: &[usize]| {
            counts.iter().map(|cores| measured(*cores, law.throughput(*cores as f64))).collect::<Vec<_>>()
        };
        // The second ladder of two cores is no further count.
        let few = needed(GOAL, ladders(&[4, 1, 2, 2]));
        assert_eq!((few.core_counts, few.fitted, few.measured[3].cores), (3, None, 4));
        assert!(few.notes[0].starts_with("3 core counts determine no law"), "{few:?}");
        let four = needed(GOAL, ladders(&[8, 1, 4, 2]));
        let fitted = four.fitted.expect("four counts");
        assert!((fitted.sigma - 0.03).abs() < 1e-6 && (fitted.kappa - 0.0002).abs() < 1e-8, "{fitted:?}");
        let (begin, _) = law.at_least(650_000.0).expect("below the peak");
        assert_eq!(found(&four, "fitted", 1.0)[1], Some(begin.ceil() as u64));
        assert!(four.rows.iter().all(|row| row.law == "fitted"));
        // The peak is at 70 cores, with 867,000 a second: lower than 1.3 × 700,000.
        let beyond = needed(Goal { rate_per_s: 700_000.0, ..GOAL }, ladders(&[8, 1, 4, 2]));
        assert_eq!(found(&beyond, "fitted", 1.0)[1], None);
        assert!(four.notes.iter().any(|note| note.contains("times the measured cores")), "{four:?}");
    }

    #[test]
    fn law_over_cores_that_explains_little_is_noted() {
        let counts = [(1, 50_000.0), (2, 100_000.0), (4, 120_000.0), (8, 400_000.0)];
        let plan = needed(GOAL, counts.iter().map(|(cores, x)| measured(*cores, *x)).collect());
        assert!(plan.notes.iter().any(|note| note.contains("differs from 4.json")), "{plan:?}");
        let mut mixed = [measured(1, 1000.0), measured(2, 2000.0)];
        mixed[1].load = "write".into();
        let plan = needed(GOAL, mixed.to_vec());
        assert!(plan.notes.iter().any(|note| note.contains("different loads")), "{plan:?}");
    }
}
